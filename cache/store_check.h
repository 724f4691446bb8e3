/*
 * What the files of kvt_store_check() share.
 *
 *   store_check.c         the stores, the catalog, and whether they belong together
 *   store_check_pages.c   every record, and the data it speaks of
 *   store_check_repair.c  what is taken out, and made anew
 *
 * Layer 5.
 */
#ifndef KVT_STORE_CHECK_H
#define KVT_STORE_CHECK_H

#include "cache/base/base.h"
#include "cache/catalog/catalog.h"
#include "cache/index/key.h"
#include "cache/kvt_store.h"
#include "cache/tier/store.h"

#define KVT_CHECK_CATALOG_NS UINT64_C(600000000000)
#define KVT_CHECK_SENTENCE_BYTES 512u
#define KVT_CHECK_PATH_BYTES 4096u
#define KVT_CHECK_NONE UINT32_MAX
#define KVT_CHECK_CATALOG_BYTES_MIN (UINT64_C(1) << 20)

/* Why a page is not kept. */
enum kvt_check_bad {
    KVT_PAGE_GOOD,
    KVT_PAGE_MISPLACED,
    KVT_PAGE_ORPHANED,
    KVT_PAGE_CORRUPT,
    KVT_PAGE_DEPENDENT,
    KVT_PAGE_LEFT /* behind the end of a store that was made smaller: a leftover */
};

struct kvt_check_page {
    uint64_t seq, checksum;
    struct kvt_key key;
    uint32_t parent; /* its index, KVT_CHECK_NONE: none */
    uint32_t slot;   /* its name */
    uint32_t generation;
    uint32_t bytes;
    uint32_t ns;
    uint32_t bad; /* enum kvt_check_bad */
};

struct kvt_check_namespace {
    uint32_t number;
    struct kvt_key key;
};

struct kvt_check_store {
    const char *folder;
    int folder_fd, data_fd; /* -1 */
    bool has_header, header_damaged, data_missing;
    bool needs_header; /* repair: to be made anew */
    bool foreign;      /* not of this set: repair leaves all alone */
    uint64_t file_bytes;
    struct kvt_store_header header; /* when has_header */
    uint64_t extent_bytes, data_bytes;
    uint32_t extent_count;
    uint32_t *extent_slot_bytes; /* [extent_count], 0: no page seen */
};

struct kvt_check {
    const struct kvt_store_check_config *config;
    struct kvt_store_check_result result;
    const struct kvt_memory *mem;
    struct kvt_log log;
    char *why;
    size_t why_bytes;
    uint32_t sentences[KVT_STORE_FOUND_REPAIR + 1]; /* told */
    bool quiet;                                     /* tells nothing: a second look */

    struct kvt_check_store stores[KVT_STORE_SET_MAX];
    uint32_t store_count;
    bool has_head; /* the catalog could be opened */
    bool catalog_unreadable, catalog_cut;
    uint32_t page_tokens;
    struct kvt_catalog_head head;

    struct kvt_check_page *pages; /* rising seq */
    uint32_t page_count, page_capacity;
    struct kvt_check_namespace *namespaces;
    uint32_t namespace_count, namespace_capacity;
};

#define KVT_CHECK_WHY(check, ...) ((void)snprintf((check)->why, (check)->why_bytes, __VA_ARGS__))

/* Tells one finding, and counts leftovers. */
void kvt_check_tell(struct kvt_check *check, enum kvt_store_find kind, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The catalog's path. */
void kvt_check_catalog_path(const struct kvt_check *check, const char *suffix,
                            char out_path[KVT_CHECK_PATH_BYTES]);
kvt_status kvt_check_catalog_open(struct kvt_check *check, const char *suffix, bool read_only,
                                  bool create, struct kvt_catalog **out_catalog, char *why,
                                  size_t why_bytes) KVT_MUST_CHECK;

/* Reads all records and judges them. Requires: has_head. NOMEM, UNAVAILABLE, TIMEOUT. */
kvt_status kvt_check_records(struct kvt_check *check, struct kvt_catalog *catalog) KVT_MUST_CHECK;
/* Reads the data of the good ones. NOMEM, IO. */
kvt_status kvt_check_data(struct kvt_check *check) KVT_MUST_CHECK;
/* What hangs on a bad page, and the counts. */
void kvt_check_judge(struct kvt_check *check);

/* Takes out and makes anew. Requires: the stores are locked. */
kvt_status kvt_check_repair(struct kvt_check *check) KVT_MUST_CHECK;

#endif
