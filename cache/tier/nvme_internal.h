/*
 * What the files of the NVMe tier share.
 *
 *   nvme.c        open, close, statistics
 *   nvme_slots.c  which slots there are, and their states
 *   nvme_load.c   what the catalog knows, handed over
 *   nvme_write.c  batches and drops, up to the queue of the flush thread
 *   nvme_flush.c  the flush thread: checksums, syncs, commits
 *   nvme_health.c the state of the tier, probes, pre-writing
 *   nvme_read.c   reads, checksums, how long they take
 *
 * Every function that is not of nvme.h says what it requires; "lock" is nvme->lock.
 */
#ifndef KVT_NVME_INTERNAL_H
#define KVT_NVME_INTERNAL_H

#include "cache/tier/nvme.h"
#include "cache/tier/store.h"

#define KVT_NVME_DROP_NS UINT64_C(20000000)      /* a drop waits so long for company */
#define KVT_NVME_COMMIT_NS UINT64_C(10000000000) /* deadline of one try */
#define KVT_NVME_CATALOG_OPEN_NS UINT64_C(60000000000)
#define KVT_NVME_LOAD_NS UINT64_C(120000000000)
#define KVT_NVME_RETRY_NS UINT64_C(100000000)        /* between tries of a dead catalog */
#define KVT_NVME_BACKOFF_NS_MIN UINT64_C(1000000000) /* of probes */
#define KVT_NVME_BACKOFF_NS_MAX UINT64_C(60000000000)
#define KVT_NVME_READ_FAILURES_MAX 8u                /* in a row: the tier is off */
#define KVT_NVME_WRITE_LATE_NS UINT64_C(30000000000) /* no write ended for so long: they hang */
#define KVT_NVME_WARN_NS UINT64_C(60000000000)       /* between two warnings alike */
#define KVT_NVME_FULL_NS UINT64_C(1000000000)        /* a full catalog is asked again after */
#define KVT_NVME_MERGE_BYTES (UINT64_C(4) << 20) /* adjacent slots go in one operation of this */
#define KVT_NVME_ZERO_BYTES (UINT64_C(1) << 20)  /* pre-writing goes in pieces of this */
#define KVT_NVME_MEASURE_OPS 8u                  /* of 1 MiB, read at open */
#define KVT_NVME_MEASURE_NS UINT64_C(50000000)
#define KVT_NVME_READ_BYTES_PER_S_GUESS UINT64_C(1000000000) /* before anything was measured */
#define KVT_NVME_LEFT_DROPS 64u     /* of pages that nobody took over, at a time */
#define KVT_NVME_HEADER_EXTENTS 16u /* so many extents were pre-written: the header is told */
#define KVT_NVME_WHY_BYTES 160u
#define KVT_NVME_BUDGET_PARTS 96u /* of a day: what the bucket of the write budget holds */

enum kvt_nvme_slot_state {
    KVT_SLOT_FREE,
    KVT_SLOT_RESERVED,
    KVT_SLOT_WRITING, /* in a batch that was submitted */
    KVT_SLOT_HELD,
    KVT_SLOT_DYING, /* its delete waits or is being committed */
    KVT_SLOT_GONE,  /* deleted; waits for its last reader */
    KVT_SLOT_BAD    /* deleted, and set aside */
};

struct kvt_nvme_slot {
    uint64_t seq;
    uint64_t checksum;
    uint32_t generation;
    uint32_t next; /* FREE: in its extent, index + 1. DYING, or left: name of the next one */
    uint16_t readers;
    uint8_t state;
    bool bad;  /* its bytes failed their check */
    bool left; /* known to the catalog, taken over by nobody */
};

#define KVT_NVME_NONE UINT32_MAX

enum kvt_nvme_extent_state {
    KVT_EXTENT_FREE,
    KVT_EXTENT_PREPARING, /* zeros are being written */
    KVT_EXTENT_USED,
    KVT_EXTENT_BLOCKED /* holds pages that could not be noted, for want of memory */
};

struct kvt_nvme_extent {
    struct kvt_nvme_slot *slots; /* [slot_count]; NULL unless USED */
    uint64_t slot_bytes;
    uint32_t slot_count, used; /* used: not FREE */
    uint32_t free_head;        /* index + 1 of the first free slot */
    uint32_t prev, next;       /* in the list it stands in: free ones, or of its class */
    uint8_t state;
    bool prepared; /* all of it was written once */
    bool listed;
};

/* Extents with slots of one size that have a free one. */
struct kvt_nvme_class {
    uint64_t slot_bytes;
    uint32_t head; /* of extents, KVT_NVME_NONE: none */
};

/* One drive. Guarded by the lock, but for what is immutable after open. */
struct kvt_nvme_drive {
    struct kvt_store store; /* the flush thread's after open */
    uint32_t file;          /* of the io queue */
    uint64_t extent_bytes;
    uint32_t extent_count;
    struct kvt_nvme_extent *extents; /* [extent_count] */
    uint32_t free_head[2];           /* free extents: not prepared, prepared */
    uint32_t free_count[2];
    struct kvt_nvme_class *classes; /* [class_capacity] */
    uint32_t class_count, class_capacity;
    uint64_t free_bytes; /* of free slots and free extents */
    /* pre-writing, one extent at a time */
    struct kvt_io_op zero_op;
    uint32_t zero_extent; /* KVT_NVME_NONE: none */
    bool zero_flushing, zero_failed;
    uint32_t prepared_since; /* extents, since the header was written */
    /* a sync, a probe */
    struct kvt_io_op sync_op, probe_op;
    bool sync_wanted, sync_good;
};

/* A batch, from its submission to `done`. */
struct kvt_nvme_batch_op {
    struct kvt_io_op op;
    struct kvt_nvme_batch *batch;
    uint32_t first, count; /* pages */
};
struct kvt_nvme_batch_page {
    uint64_t seq, parent_seq, checksum;
    bool landed;
};
struct kvt_nvme_batch {
    struct kvt_nvme *nvme;
    struct kvt_nvme_write *write;
    struct kvt_nvme_batch *next; /* guarded by the lock */
    struct kvt_nvme_batch_op *ops;
    struct kvt_nvme_batch_page *pages;
    uint32_t op_count;
    uint32_t good; /* the flush thread's: pages that may be committed */
    size_t block_bytes;
    uint64_t submitted_ns;
    _Atomic uint32_t ops_left;
    bool landed; /* guarded by the lock */
    bool hashed; /* the flush thread's, as what follows */
    bool namespaces_done;
    int error;
    kvt_status status;
};

/* Something that is not as it should be: of writing or of reading. Guarded by the lock. */
struct kvt_nvme_health {
    bool bad;
    bool by_catalog; /* cured by its answer */
    bool say_bad, say_good;
    uint64_t probe_at_ns, backoff_ns, cured_ns;
    char why[KVT_NVME_WHY_BYTES];
};

enum kvt_nvme_probe { KVT_PROBE_NONE, KVT_PROBE_WRITE, KVT_PROBE_FLUSH, KVT_PROBE_READ };

struct kvt_nvme {
    /* immutable after open */
    const struct kvt_memory *mem;
    const struct kvt_log *log;
    struct kvt_clock clock;
    struct kvt_io *io;
    struct kvt_catalog *catalog;
    struct kvt_thread flush_thread;
    uint64_t read_late_ns;
    uint64_t bytes_budget;
    uint64_t extent_bytes_max;
    uint64_t budget_per_day;
    void *zeros;   /* [KVT_NVME_ZERO_BYTES], aligned, never written */
    void *scratch; /* [KVT_NVME_ALIGN_BYTES * stores]: probes read into it */
    void *blocks;  /* what the two lie in */
    size_t blocks_bytes;
    uint32_t drive_count;
    bool direct;
    bool started; /* the flush thread runs */

    _Atomic uint64_t write_moved_ns; /* when a write ended last */

    struct kvt_cond cond; /* of everything that waits */
    struct kvt_lock lock; /* KVT_RANK_NVME; protects what follows */
    bool loaded, closing, close_tried;
    struct kvt_nvme_drive drives[KVT_NVME_STORES_MAX];
    uint64_t close_ns; /* give up after */
    uint64_t seq_next;

    struct kvt_nvme_batch *batch_head, *batch_tail;
    uint64_t batches_submitted, batches_finished;
    uint64_t drops_queued, drops_done;
    uint64_t drop_since_ns;          /* of the oldest one */
    uint32_t dying_head, dying_tail; /* names of slots, FIFO by `next` */
    uint32_t left_head;              /* pages that nobody took over, newest first */
    uint64_t pages_left;             /* how many */
    uint32_t generation_next;
    uint64_t *strays; /* [stray_capacity]: records without a slot, to delete */
    uint64_t stray_count, stray_capacity;
    uint32_t flush_waiters, syncs_left;

    struct kvt_nvme_health writing, reading;
    enum kvt_nvme_probe probe;
    uint32_t probes_left;
    uint32_t reads_failed; /* in a row */
    bool probe_good;
    bool catalog_full, say_catalog_full;
    bool say_too_large, said_too_large;
    uint64_t catalog_full_ns, too_large_bytes;
    uint64_t checksum_said_ns, checksum_unsaid;

    int64_t budget_left; /* of the bucket; a debt is paid off first */
    uint64_t budget_ns;  /* when it was filled last */

    uint64_t bytes_used, pages, slots_free, slots_bad, slots_dying, slots_reading, extents_bytes;
    uint64_t written_pages, written_bytes, read_pages, read_bytes;
    uint64_t read_errors, write_errors, checksum_failures, reads_late, budget_refusals;
    uint64_t orphans_dropped, damaged_records;

    uint64_t read_bytes_per_s, measured_bytes, measured_busy_ns;
    struct kvt_nvme_measure *measure;

    /* the flush thread's: one commit */
    struct kvt_catalog_page *commit_pages; /* [KVT_CATALOG_BATCH_MAX], as the others */
    struct kvt_catalog_namespace *commit_namespaces;
    uint64_t *commit_deletes;
    uint32_t *commit_slots; /* names of the slots that commit_deletes speaks of; strays follow */
};

/* ---- slots (nvme_slots.c); all require the lock ---- */

/* Lists of a drive whose extents are zeroed memory. */
void kvt_nvme_drive_init(struct kvt_nvme_drive *drive, uint32_t prepared_extents);
/* NULL: no slot of that name is there. */
struct kvt_nvme_slot *kvt_nvme_slot_at(struct kvt_nvme *nvme, uint32_t name);
/* NULL: stale. */
struct kvt_nvme_slot *kvt_nvme_slot_of(struct kvt_nvme *nvme, struct kvt_place place);
uint64_t kvt_nvme_slot_size(const struct kvt_nvme *nvme, uint32_t name);
uint64_t kvt_nvme_slot_offset(const struct kvt_nvme *nvme, uint32_t name);
/* A reserved slot with a new generation. LIMIT, NOMEM. */
kvt_status kvt_nvme_slot_take(struct kvt_nvme *nvme, uint64_t slot_bytes,
                              struct kvt_place *out_place) KVT_MUST_CHECK;
/* Claims the named slot for a record of the catalog; it is HELD. INVAL: it cannot be; LIMIT: it is
 * taken already; NOMEM: it may be, but could not be noted: its extent is blocked. */
kvt_status kvt_nvme_slot_claim(struct kvt_nvme *nvme, const struct kvt_catalog_page *page)
    KVT_MUST_CHECK;
/* After the last claim. */
void kvt_nvme_slots_loaded(struct kvt_nvme *nvme);
/* Back to the free ones, from any state. Requires: no reader. */
void kvt_nvme_slot_free(struct kvt_nvme *nvme, uint32_t name);
/* HELD or WRITING: its delete is queued. */
void kvt_nvme_slot_kill(struct kvt_nvme *nvme, uint32_t name);
/* Its delete is durable: free, or bad, or waits for its readers. */
void kvt_nvme_slot_gone(struct kvt_nvme *nvme, uint32_t name);
/* A read of it begins, ends. */
void kvt_nvme_slot_ref(struct kvt_nvme *nvme, struct kvt_nvme_slot *slot);
void kvt_nvme_slot_unref(struct kvt_nvme *nvme, uint32_t name);
bool kvt_nvme_slot_room(struct kvt_nvme *nvme, uint64_t slot_bytes);
/* A free extent that was not written yet, taken from the free ones; NONE: there is none, or it is
 * the last. And given back. */
uint32_t kvt_nvme_extent_prepare(struct kvt_nvme_drive *drive);
void kvt_nvme_extent_prepared(struct kvt_nvme_drive *drive, uint32_t extent, bool good);
/* Frees the slots of all extents. */
void kvt_nvme_drive_fini(struct kvt_nvme *nvme, struct kvt_nvme_drive *drive);

/* ---- the flush thread (nvme_flush.c) ---- */

void *kvt_nvme_flush_main(void *arg);
/* Batches that never got so far. Requires: nothing is in flight, no flush thread, no lock. */
void kvt_nvme_batches_cancel(struct kvt_nvme *nvme);
/* Deletes of records without a slot. False: no memory. Requires: lock. */
bool kvt_nvme_stray_add(struct kvt_nvme *nvme, uint64_t seq);

/* ---- health (nvme_health.c) ---- */

/* Requires: lock. In nvme.c. */
bool kvt_nvme_takes_writes(const struct kvt_nvme *nvme);

/* Writing, reading does not work. Requires: lock. */
void kvt_nvme_write_failed(struct kvt_nvme *nvme, bool by_catalog, const char *what, int error);
void kvt_nvme_read_failed(struct kvt_nvme *nvme, const char *what, int error);
/* The catalog answered. Requires: lock. */
void kvt_nvme_catalog_answered(struct kvt_nvme *nvme);
/* Starts and ends probes when it is time. Requires: lock. True: the catalog is to be tried too. */
bool kvt_nvme_probe_step(struct kvt_nvme *nvme);
/* The catalog's answer to that. Requires: lock. */
void kvt_nvme_probe_end(struct kvt_nvme *nvme, bool good);
/* Says what is to be said. Requires: no lock. The flush thread's. */
void kvt_nvme_say(struct kvt_nvme *nvme);
/* May failed checksums be warned of again? Requires: lock. */
bool kvt_nvme_checksum_due(const struct kvt_nvme *nvme);
/* Starts pre-writing where there is need. Requires: lock. */
void kvt_nvme_prepare_step(struct kvt_nvme *nvme);
/* Headers that lag behind. Requires: no lock. The flush thread's, or close's. `all`: also those
 * that lag by little. */
void kvt_nvme_headers_write(struct kvt_nvme *nvme, bool all);

/* ---- reads (nvme_read.c) ---- */

/* The small measurement at open. */
void kvt_nvme_measure_start(struct kvt_nvme *nvme);
/* Frees its memory when it ended. Requires: lock. */
void kvt_nvme_measure_step(struct kvt_nvme *nvme);
/* Bandwidth of reads from what the queue did since the last time. Requires: lock. */
void kvt_nvme_bandwidth_step(struct kvt_nvme *nvme, const struct kvt_io_stats *io);

#endif
