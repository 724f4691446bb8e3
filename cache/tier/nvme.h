/*
 * The NVMe tier: slot files on one or several drives, and one catalog that says what lies in them.
 *
 * A store is a folder: `store.kvt` (its header), `data.kvt` (its slots, preallocated); the first
 * folder also holds the catalog. Layout, byte by byte: cache/FORMAT.md. The data file is divided
 * into extents of one size; an extent that is in use holds slots of one size, and goes back to the
 * free ones when its last slot does. Pages are spread over the stores by free room.
 *
 * A slot's states, and who moves it:
 *
 *   free --reserve--> reserved --write, sync, catalog commit--> held --drop--> dying
 *                        |                                      |               |
 *                        +--unreserve, or the write failed      |        catalog commit,
 *                           --> free              its bytes fail their         last read ended
 *                                                 check, then drop --> bad      --> free
 *
 * Order of a write: the bytes land, the file is flushed, the catalog entry commits (with or after
 * its parent's), then `done` is called and the page may be made visible. Order of a delete: the
 * caller has made it invisible, the catalog entry goes, then the slot may be used again. A slot
 * that is being read is not used again before the last read of it ended. A slot whose bytes failed
 * their check is set aside (bad) until the store is opened anew, and is not used again before.
 *
 * The checksum, XXH3-64 seeded by the page's key, is verified on every read, always.
 *
 * State: whether it works is a gauge, not an error. A write that failed makes the tier read-only
 * for a while (it tries again after 1, 2, 4 .. 60 s), the catalog's death too; reads that fail make
 * it off in the same way. One warning when it degrades, with cause and remedy, one line when it is
 * back.
 *
 * Threads: one of the io queue, and one that flushes and commits. `done` callbacks come from these
 * two, no lock held, and must not block. Everything else [any-thread] no-block, under a lock of its
 * own (KVT_RANK_NVME), but for open and close.
 *
 * Layer 2.
 */
#ifndef KVT_NVME_H
#define KVT_NVME_H

#include "cache/base/base.h"
#include "cache/catalog/catalog.h"
#include "cache/io/io.h"
#include "cache/tier/slab.h"

#define KVT_NVME_STORES_MAX KVT_CATALOG_STORES_MAX
#define KVT_NVME_ALIGN_BYTES 4096u                 /* of slots, also where less would do */
#define KVT_NVME_EXTENT_BYTES (UINT64_C(64) << 20) /* unless the store is small or huge */
#define KVT_NVME_STORE_BYTES_MIN (UINT64_C(8) << 20)
#define KVT_NVME_CATALOG_DIVISOR 16u                  /* this part of the first store is for it */
#define KVT_NVME_BATCH_PAGES_MAX 256u                 /* of one write, one read */
#define KVT_NVME_LATE_NS_DEFAULT UINT64_C(5000000000) /* a read is given up after this */

/* ---- opening ---- */

struct kvt_nvme_store {
    const char *folder; /* made for its owner alone (0700, files 0600) when missing. Copied */
    uint64_t bytes;     /* budget: data, header and, in the first, the catalog */
};

struct kvt_nvme_config {
    const struct kvt_memory *mem; /* borrowed until close, as log */
    const struct kvt_log *log;
    struct kvt_clock clock;
    const struct kvt_nvme_store *stores; /* [store_count] */
    uint32_t store_count;
    uint32_t page_tokens;
    const char *catalog_program; /* see catalog.h */
    uint64_t read_late_ns;       /* 0: default */
    /* Budget; 0: none. A token bucket that holds a quarter of an hour's worth, full at open; spent
     * by writes, asked by kvt_nvme_may_write(). */
    uint64_t write_bytes_per_day;
    bool threads_only; /* no io_uring */
    bool buffered;     /* no O_DIRECT. For tests */
};

struct kvt_nvme;

/*
 * Opens or makes the stores, starts the catalog's process. A smaller budget than before shrinks
 * (from the end: what lies there is dropped while loading), a larger one grows. May block
 * (preallocates). `why` gets a sentence that names folder, cause and remedy: INVAL, BUSY (another
 * process has a store; names its pid), VERSION, CORRUPT (a header that is not ours, or of another
 * catalog), IO, NOMEM, UNAVAILABLE (no catalog).
 */
kvt_status kvt_nvme_open(const struct kvt_nvme_config *, struct kvt_nvme **out_nvme, char *why,
                         size_t why_bytes) KVT_MUST_CHECK;
/* Ends what is under way: finishes commits that are waiting, within timeout_ns; then waits for the
 * kernel. NULL is a no-op. */
void kvt_nvme_close(struct kvt_nvme *, uint64_t timeout_ns);

/*
 * Load: hand over everything that the catalog knows. Call once, before anything else. Pages come in
 * an order in which parents precede children. on_page answers OK to keep it (its slot is held from
 * then on), anything else to have it dropped from the catalog (its parent is gone, say), but NOMEM
 * and LIMIT, which end the load; what was not kept is then left alone on the drive, and is dropped
 * as room is needed, and out_load is written all the same. Reads no data. The errors of
 * kvt_catalog_load() leave a tier that reads what was handed over and writes nothing.
 */
kvt_status kvt_nvme_load(struct kvt_nvme *, const struct kvt_catalog_visitor *,
                         struct kvt_catalog_load *out_load) KVT_MUST_CHECK;

/* Memory that reads and writes will use: see kvt_io_buffer_add(). */
void kvt_nvme_buffer_add(struct kvt_nvme *, void *base, uint64_t bytes);
void kvt_nvme_buffer_remove(struct kvt_nvme *, void *base);

/* ---- writing ---- */

/* A slot for a page of `bytes` (any; rounded up). LIMIT: no room, drop something first; IO: the
 * tier takes no writes now, or was not loaded; NOMEM. */
kvt_status kvt_nvme_reserve(struct kvt_nvme *, uint64_t bytes, struct kvt_place *out_place)
    KVT_MUST_CHECK;
/* Give back a reserved slot that was not written. */
void kvt_nvme_unreserve(struct kvt_nvme *, struct kvt_place);
/* True while the write budget and the state allow to write so many bytes now; false is counted. */
bool kvt_nvme_may_write(struct kvt_nvme *, uint64_t bytes);

struct kvt_nvme_page {
    struct kvt_place place; /* reserved */
    /* Of the page before it: held, or in this batch before it, or in a batch before this one;
     * generation 0: none. */
    struct kvt_place parent;
    uint32_t ns;   /* catalog number of its namespace */
    uint64_t seed; /* kvt_nvme_seed() of its key */
    /* Aligned to KVT_NVME_ALIGN_BYTES; the slot's whole rounded size is readable. */
    const void *payload;
    uint32_t bytes;
    uint32_t token_count, extra_count;
    const uint32_t *tokens;
    const void *extras;
};

/* One batch. Everything pointed to is borrowed until done. Batches become durable in the order of
 * their submission; a page whose parent did not is not written to the catalog either. */
struct kvt_nvme_write {
    struct kvt_nvme_page *pages; /* parents before children */
    uint32_t page_count;
    /* Namespaces that this batch uses for the first time. */
    const struct kvt_catalog_namespace *namespaces;
    uint32_t namespace_count;
    void (*done)(struct kvt_nvme_write *);
    void *user;
    /* filled: pages 0 .. pages_good - 1 are durable and their slots held; the slots of the others
     * are free again. status: why not all of them */
    uint32_t pages_good;
    kvt_status status;
};
/* NOMEM, INVAL (no page, more than KVT_NVME_BATCH_PAGES_MAX, as many namespaces, or a place that is
 * not reserved for so many bytes): nothing was started and the slots are still reserved. Otherwise
 * `done` comes, in the order of submission. Namespaces are written whatever happened to the pages,
 * unless the catalog itself failed: status is then not OK, and pages_good is 0. */
kvt_status kvt_nvme_write(struct kvt_nvme *, struct kvt_nvme_write *) KVT_MUST_CHECK;

/* Drop held pages that are invisible already: children before parents. Deferred and batched; their
 * slots come back when the catalog has committed. A stale place is a no-op. Never fails: without
 * memory it leaves the page in the catalog, where the next load drops it as an orphan or finds it
 * again. */
void kvt_nvme_drop(struct kvt_nvme *, const struct kvt_place *places, uint32_t count);
/* Wait until all writes and drops so far are durable. TIMEOUT, IO. May block. */
kvt_status kvt_nvme_flush(struct kvt_nvme *, uint64_t timeout_ns) KVT_MUST_CHECK;

/* ---- reading ---- */

struct kvt_nvme_read_page {
    struct kvt_place place;
    uint64_t seed;
    void *buffer; /* aligned; room for the slot's whole rounded size */
    uint32_t bytes;
    bool good; /* filled: arrived and passed its check */
    bool bad;  /* filled: arrived and did not (its slot is set aside). Neither: not read */
};

struct kvt_nvme_read {
    struct kvt_nvme_read_page *pages;
    uint32_t page_count;
    uint32_t class; /* 0: somebody waits; 1: prefetch */
    /* All reads ended, or the deadline passed (status TIMEOUT, `late` set): then the buffers are
     * still the kernel's until `released` is called, which comes once, after done, in every
     * case. */
    void (*done)(struct kvt_nvme_read *);
    void (*released)(struct kvt_nvme_read *);
    void *user;
    kvt_status status; /* OK when all are good; CORRUPT before IO before TIMEOUT */
    bool late;
};
/* The slots are pinned until `released`, in which the struct may be freed. Nothing was started:
 * STALE, one of the places is not held; NOMEM; IO, the tier is off; INVAL, no page, or more than
 * KVT_NVME_BATCH_PAGES_MAX. */
kvt_status kvt_nvme_read(struct kvt_nvme *, struct kvt_nvme_read *) KVT_MUST_CHECK;

/* ---- what is known ---- */

/* The seed of a page's checksum from its 16 key bytes. */
uint64_t kvt_nvme_seed(const unsigned char key[16]);
/* The checksum itself, as the catalog keeps it. */
uint64_t kvt_nvme_checksum(const void *payload, uint64_t bytes, uint64_t seed);
/* Slot bytes for a payload: rounded up to KVT_NVME_ALIGN_BYTES. */
static inline uint64_t kvt_nvme_slot_bytes(uint64_t bytes)
{
    return (bytes + KVT_NVME_ALIGN_BYTES - 1) / KVT_NVME_ALIGN_BYTES * KVT_NVME_ALIGN_BYTES;
}
/* What a read of so many bytes would take now, by measured bandwidth and what waits before it, ns.
 * Before anything was read: by a small measurement at open. */
uint64_t kvt_nvme_read_estimate_ns(struct kvt_nvme *, uint64_t bytes);

enum kvt_nvme_state { KVT_NVME_OK, KVT_NVME_READ_ONLY, KVT_NVME_OFF };

struct kvt_nvme_stats {
    enum kvt_nvme_state state;
    char state_why[160];
    uint64_t bytes_budget, bytes_mapped, bytes_used; /* mapped: extents in use, and the catalog */
    uint64_t pages, slots_free;                      /* free: of extents in use */
    uint64_t slots_bad, slots_dying, slots_reading;
    uint64_t pages_left; /* of pages: the load handed them over, and they were not taken */
    uint64_t written_pages, written_bytes, read_pages, read_bytes;
    uint64_t read_errors, write_errors, checksum_failures, reads_late;
    uint64_t budget_refusals; /* by kvt_nvme_may_write() */
    uint64_t orphans_dropped, damaged_records;
    uint64_t read_bytes_per_s; /* measured; 0: not yet */
    bool direct;               /* every store takes O_DIRECT */
    struct kvt_io_stats io;
    struct kvt_catalog_stats catalog;
};
void kvt_nvme_stats(struct kvt_nvme *, struct kvt_nvme_stats *out_stats);
/* False while it cannot be read. */
bool kvt_nvme_readable(struct kvt_nvme *);
/* True while the tier takes writes. */
bool kvt_nvme_writable(struct kvt_nvme *);
/* True when a reserve of this size would find a slot. */
bool kvt_nvme_has_room(struct kvt_nvme *, uint64_t bytes);
/* Of the io queue. Tests only. */
struct kvt_io_faults *kvt_nvme_faults(struct kvt_nvme *);

#endif
