/*
 * The catalog: which pages lie on NVMe, durably. LMDB, in a process of its own.
 *
 * A memory-mapped catalog dies by SIGBUS when its drive fails, and a flipped bit can crash who
 * reads it. So LMDB is opened by the program kvtier-catalog only, a child of whoever owns the
 * store; this is the owner's end of the socket between them. The child's death is a status, never a
 * signal: the request that met it answers UNAVAILABLE or TIMEOUT and may be sent again (all of them
 * may be repeated). The child is started again by a later request, after a pause that grows from
 * 1 s to 60 s; until then every request answers UNAVAILABLE at once. It ends by itself when its
 * owner is gone.
 *
 * What is written, byte by byte: cache/FORMAT.md.
 *
 * Records are numbered by never reused 64-bit sequence numbers, rising; a page's parent always has
 * a smaller number than the page.
 *
 * Not usable in a process forked from the one that opened it (PROCESS; close only frees there).
 *
 * Every function [any-thread] but open and close; requests of several threads are served one after
 * the other. Functions that talk to the child block up to the deadline given.
 *
 * Layer 2.
 */
#ifndef KVT_CATALOG_H
#define KVT_CATALOG_H

#include "cache/base/base.h"
#include "cache/tier/slab.h"

#define KVT_CATALOG_VERSION 1u
#define KVT_CATALOG_BATCH_MAX 1024u /* records of one transaction */
#define KVT_CATALOG_STORES_MAX 8u
#define KVT_CATALOG_EXTRA_BYTES 40u /* an extra key: token_index u64, digest [32] */
#define KVT_CATALOG_NAME_BYTES_MAX 65536u
#define KVT_CATALOG_ID_BYTES 16u

/* A page on NVMe. What is pointed to is borrowed for the call. */
struct kvt_catalog_page {
    uint64_t seq;    /* its number, not 0 */
    uint64_t parent; /* 0: the first page of its namespace */
    uint32_t ns;     /* number of a namespace record */
    struct kvt_place place;
    uint32_t bytes;    /* of the payload */
    uint64_t checksum; /* of the payload */
    uint32_t token_count;
    uint32_t extra_count;
    const uint32_t *tokens;
    const void *extras; /* [extra_count * KVT_CATALOG_EXTRA_BYTES] */
};

struct kvt_catalog_namespace {
    uint32_t number; /* not 0, never reused */
    uint64_t group;
    uint64_t slot_bytes;
    const void *canonical;
    uint32_t canonical_bytes;
};

/* The stores (one a drive) that this catalog speaks of, and what all of it was made for. */
struct kvt_catalog_store {
    unsigned char id[KVT_CATALOG_ID_BYTES];
    uint64_t bytes;        /* of its data file */
    uint64_t extent_bytes; /* of its extents */
};
struct kvt_catalog_head {
    unsigned char id[KVT_CATALOG_ID_BYTES]; /* of the catalog; each store's header names it */
    uint32_t version;                       /* KVT_CATALOG_VERSION when it was made */
    uint32_t page_tokens;
    uint32_t store_count;
    uint32_t reserved0;
    struct kvt_catalog_store stores[KVT_CATALOG_STORES_MAX];
};

struct kvt_catalog_config {
    const struct kvt_memory *mem; /* borrowed until close, as log */
    const struct kvt_log *log;
    const char *folder; /* of the catalog; it is made, 0700, when missing. Copied */
    uint64_t bytes_max; /* of its file */
    /* Path of kvtier-catalog; NULL: $KVT_CATALOG_PROGRAM; else, from the folder of the file that
     * this code was loaded from (dladdr): itself, ../libexec/kvtier, ../../libexec/kvtier; else
     * PATH. Copied. */
    const char *program;
    bool read_only; /* for check: nothing on disk is changed, no lock file made */
    /* A new catalog gets these; an old one must agree in page_tokens (0 with read_only: any). */
    uint32_t page_tokens;
    bool create; /* make one where there is none; else that is an error */
};

struct kvt_catalog;

/* Starts the child and opens the file, within timeout_ns. `why` gets a sentence on failure:
 * UNAVAILABLE (no program, the child died), BUSY (another process has it; names its pid), VERSION
 * (names both), CORRUPT (no LMDB file, a damaged one), IO, NOMEM, INVAL (page_tokens differ,
 * nothing there and not create), TIMEOUT. */
kvt_status kvt_catalog_open(const struct kvt_catalog_config *, uint64_t timeout_ns,
                            struct kvt_catalog **out_catalog, char *why, size_t why_bytes)
    KVT_MUST_CHECK;
/* Ends the child, waiting a moment for what it is doing. NULL is a no-op. */
void kvt_catalog_close(struct kvt_catalog *);

void kvt_catalog_head(const struct kvt_catalog *, struct kvt_catalog_head *out_head);
/* Replace the list of stores (only ever appended to by its owner). */
kvt_status kvt_catalog_set_head(struct kvt_catalog *, const struct kvt_catalog_head *,
                                uint64_t timeout_ns) KVT_MUST_CHECK;

/* Everything in it: namespaces first, then pages in rising seq. What does not pass its own checksum
 * is counted, not handed over. A callback's error ends the walk and is returned. */
struct kvt_catalog_visitor {
    void *ctx;
    kvt_status (*on_namespace)(void *ctx, const struct kvt_catalog_namespace *);
    kvt_status (*on_page)(void *ctx, const struct kvt_catalog_page *);
};
struct kvt_catalog_load {
    uint64_t namespaces, pages, damaged_records;
    uint64_t seq_last; /* the highest number ever used */
    uint64_t load_ns;
    uint32_t namespace_last; /* the highest number of a namespace ever used */
    uint32_t reserved0;
};
/* UNAVAILABLE, CORRUPT (what was handed over before is good), TIMEOUT. */
kvt_status kvt_catalog_load(struct kvt_catalog *, const struct kvt_catalog_visitor *,
                            uint64_t timeout_ns, struct kvt_catalog_load *out_load) KVT_MUST_CHECK;

/*
 * One durable transaction: namespaces, then deletes, then pages. OK: it is on the drive. LIMIT: the
 * file is full for new records (deletes alone still work); IO: the file system refused (`out_error`
 * errno: ENOSPC, EDQUOT, EROFS, EIO ...); UNAVAILABLE, TIMEOUT: it may or may not have been done,
 * send it again. Deletes of what is not there, and puts of what is there alike, are fine.
 */
struct kvt_catalog_batch {
    const struct kvt_catalog_namespace *namespaces;
    uint32_t namespace_count;
    const uint64_t *deletes; /* page numbers */
    uint32_t delete_count;
    const uint32_t *namespace_deletes;
    uint32_t namespace_delete_count;
    const struct kvt_catalog_page *pages;
    uint32_t page_count;
};
kvt_status kvt_catalog_commit(struct kvt_catalog *, const struct kvt_catalog_batch *,
                              uint64_t timeout_ns, int *out_error) KVT_MUST_CHECK;

struct kvt_catalog_stats {
    bool alive;
    int32_t pid;
    uint64_t restarts, commits, commit_failures;
    uint64_t file_bytes, used_bytes, bytes_max; /* as the child said last */
    uint64_t commit_ns;                         /* all of them together */
};
void kvt_catalog_stats(struct kvt_catalog *, struct kvt_catalog_stats *out_stats);

/* For bench open: time of a plain cursor walk over all records in the child, ns. */
kvt_status kvt_catalog_walk(struct kvt_catalog *, uint64_t timeout_ns, uint64_t *out_walk_ns,
                            uint64_t *out_records) KVT_MUST_CHECK;

#endif
