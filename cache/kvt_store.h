/*
 * kvt_store.h - looking after the stores of the nvme tier, and measuring them.
 *
 * A store is a folder that kvt_cache_config names; the first one of a set holds the catalog of all.
 * What is here is for tools: `kvtier check` and `kvtier bench`. A cache never needs it.
 *
 * Functions may block as long as the drives take. Each takes one caller at a time.
 */
#ifndef KVT_STORE_TOOLS_H
#define KVT_STORE_TOOLS_H

#include <stddef.h>
#include <stdint.h>

#include "kvt_status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define KVT_STORE_SET_MAX 8u /* stores of one set */
/* Flags of every config here. */
#define KVT_STORE_THREADS 1u  /* never io_uring */
#define KVT_STORE_BUFFERED 2u /* through the page cache: for tests */

/* ---- check ---- */

#define KVT_STORE_VERIFY 4u /* read all data, and compare it with its checksums */
#define KVT_STORE_REPAIR 8u /* take out what is damaged; see kvt_store_check() */

enum kvt_store_find {
    KVT_STORE_FOUND_DAMAGE = 1,   /* something is lost, or in the way of opening */
    KVT_STORE_FOUND_LEFTOVER = 2, /* of a crash: opening cleans it up */
    KVT_STORE_FOUND_NOTE = 3,     /* what limits this answer, such as an owner at work */
    KVT_STORE_FOUND_REPAIR = 4    /* what was done */
};
/* So many sentences of each kind are told; the counts are whole. */
#define KVT_STORE_SENTENCES_MAX 50u

struct kvt_store_check_config {
    const char *const *folders; /* [folder_count], in the order of the set */
    uint32_t folder_count;
    uint32_t flags;
    const char *catalog_program; /* path of kvtier-catalog; NULL: looked for */
    void (*log)(void *ctx, int32_t level, const char *line); /* NULL: silent. [any-thread] */
    /* One sentence each, on the caller's thread. May be NULL. */
    void (*found)(void *ctx, uint32_t kind, const char *sentence);
    /* While data is verified, on the caller's thread. May be NULL. */
    void (*progress)(void *ctx, uint64_t done_bytes, uint64_t total_bytes);
    void *ctx; /* of the three */
};

struct kvt_store_check_result {
    uint64_t stores;
    uint64_t owner_pid;  /* somebody has it open; 0: nobody */
    uint64_t namespaces; /* records */
    uint64_t pages;      /* records that passed their own checksum */
    uint64_t page_bytes; /* of their payloads */
    /* damage */
    uint64_t damaged_files;   /* headers, data files, the catalog */
    uint64_t damaged_records; /* failed their own checksum */
    uint64_t misplaced_pages; /* outside of the file, or at odds with another one */
    uint64_t orphaned_pages;  /* their parent or namespace is not there */
    uint64_t corrupt_pages;   /* the payload is not what was written, or cannot be read */
    uint64_t dependent_pages; /* good, but behind one of the above */
    /* not damage */
    uint64_t leftovers;
    uint64_t verified_pages, verified_bytes;
    uint64_t verified; /* 1: data was read */
    /* repair */
    uint64_t removed_pages; /* of those above, from the catalog */
    uint64_t repaired;      /* 1: something was changed, and what is there now is without damage */
    uint64_t damaged;       /* 1: damage was found, repaired or not */
};

/*
 * Look at a set of stores. Nothing on disk changes without KVT_STORE_REPAIR, and an owner may be at
 * work: what is told is then of a moment ago.
 *
 * Repair removes records that are damaged, misplaced, orphaned, corrupt (where verified) and all
 * that continues them; makes headers anew from the catalog, or, where that cannot be read, an empty
 * catalog from the headers; the old catalog is kept beside it. It locks the stores, and leaves them
 * alone while an owner lives.
 *
 * OK: looked at, and the result says what was found. Else `why` gets a sentence: INVAL (not all
 * stores of the set, or not in order), STALE (no store there), BUSY (repair: an owner lives),
 * VERSION, IO, NOMEM, UNAVAILABLE (no kvtier-catalog), CORRUPT (repair did not get it clean).
 */
kvt_status kvt_store_check(const struct kvt_store_check_config *config,
                           struct kvt_store_check_result *out_result, char *why, size_t why_bytes)
    KVT_MUST_CHECK;

/* ---- bench: a tier with pages in it ---- */

struct kvt_store_bench;

struct kvt_store_bench_config {
    const char *const *folders; /* new or empty ones */
    uint32_t folder_count;
    uint32_t flags;
    uint64_t bytes;       /* of the pages that are written, and read, at a time */
    uint64_t page_bytes;  /* of one */
    uint64_t batch_bytes; /* of one write, which is synced and committed */
    uint32_t page_tokens;
    uint32_t depth; /* pages whose reads are under way */
    const char *catalog_program;
    void (*log)(void *ctx, int32_t level, const char *line);
    void *log_ctx;
};

/* What was moved, and how long it took. */
struct kvt_store_bench_rate {
    uint64_t pages, bytes, ns;
    uint64_t p50_ns, p99_ns; /* of one page's read */
};

struct kvt_store_bench_facts {
    const char *io;        /* "uring" or "threads" */
    const char *io_reason; /* why not uring; "" */
    uint64_t direct;       /* 1: past the page cache */
    uint64_t budget_bytes; /* of the stores */
    uint64_t data_bytes;   /* bytes of pages, whole batches */
};

/* Makes the stores and starts the tier. `why` as kvt_cache_create(). */
kvt_status kvt_store_bench_open(const struct kvt_store_bench_config *config,
                                struct kvt_store_bench **out_bench, char *why, size_t why_bytes)
    KVT_MUST_CHECK;
/* NULL is a no-op. */
void kvt_store_bench_close(struct kvt_store_bench *bench);
void kvt_store_bench_facts(struct kvt_store_bench *bench, struct kvt_store_bench_facts *out_facts);
/* Drop all pages and write them again, until they are durable; the time is of the writing. IO,
 * LIMIT, TIMEOUT, NOMEM. */
kvt_status kvt_store_bench_write(struct kvt_store_bench *bench,
                                 struct kvt_store_bench_rate *out_write) KVT_MUST_CHECK;
/* Read all pages, checksums verified. CORRUPT too. */
kvt_status kvt_store_bench_read(struct kvt_store_bench *bench, uint32_t depth,
                                struct kvt_store_bench_rate *out_read) KVT_MUST_CHECK;
/* The same while other pages are written, write_bytes_per_s of them if the drive can. */
kvt_status kvt_store_bench_mixed(struct kvt_store_bench *bench, uint32_t depth,
                                 uint64_t write_bytes_per_s, struct kvt_store_bench_rate *out_read,
                                 struct kvt_store_bench_rate *out_write) KVT_MUST_CHECK;
/* The checksum alone, of `bytes` in pieces of piece_bytes, by this thread. NOMEM. */
kvt_status kvt_store_bench_checksum(uint64_t bytes, uint64_t piece_bytes, uint64_t *out_ns)
    KVT_MUST_CHECK;

/* ---- bench: a catalog alone ---- */

struct kvt_store_fill_config {
    const char *folder; /* new or empty */
    const char *catalog_program;
    uint64_t pages;
    uint64_t page_bytes;
    uint32_t page_tokens;
    uint32_t churn_rounds; /* in each a part is deleted and written anew */
    uint64_t seed;
    void (*log)(void *ctx, int32_t level, const char *line);
    void (*progress)(void *ctx, uint64_t done, uint64_t total); /* records */
    void *ctx;
};
/* Makes a store whose catalog knows so many pages, which nobody wrote. out_store_bytes: its budget.
 * `why` as kvt_cache_create(). */
kvt_status kvt_store_fill(const struct kvt_store_fill_config *config, uint64_t *out_store_bytes,
                          char *why, size_t why_bytes) KVT_MUST_CHECK;
/* What of the store's files is in the page cache goes, as far as the kernel does it. IO. */
kvt_status kvt_store_uncache(const char *folder, char *why, size_t why_bytes) KVT_MUST_CHECK;
/* How long a plain cursor over all records of the catalog takes. */
kvt_status kvt_store_walk(const char *folder, const char *catalog_program, uint64_t *out_ns,
                          uint64_t *out_records, char *why, size_t why_bytes) KVT_MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
