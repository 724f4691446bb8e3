/*
 * What tests of the catalog share: a folder of their own, a catalog in it with counted memory, and
 * pages and namespaces that are a function of their number, so that whatever a load hands over can
 * be compared with what was written under that number.
 */
#ifndef KVT_TEST_CATALOG_RIG_H
#define KVT_TEST_CATALOG_RIG_H

#include "cache/catalog/catalog.h"
#include "tests/support/test_expect.h"
#include "tests/support/test_memory.h"
#include "tests/support/test_random.h"

#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define RIG_PAGES_MAX 65536u
#define RIG_NAMESPACES 3u
#define RIG_TOKENS_MAX 64u
#define RIG_EXTRAS_MAX 3u
#define RIG_WAIT_NS UINT64_C(60000000000)
#define RIG_BYTES_MAX (UINT64_C(8) << 20)
#define RIG_PATH_BYTES 512

struct rig {
    struct test_memory memory;
    struct kvt_log log;
    char log_text[8192];
    size_t log_bytes;
    char folder[RIG_PATH_BYTES];
    struct kvt_catalog_config config;
    struct kvt_catalog *catalog;
    char why[512];
    bool live[RIG_PAGES_MAX]; /* by number: acknowledged */
    bool seen[RIG_PAGES_MAX]; /* in the last load */
    uint64_t pages_seen, namespaces_seen, seq_before;
    kvt_status answer; /* of the visitor */
    struct kvt_catalog_load load;
};

/* A page and the memory of its tokens and extra keys. */
struct rig_page {
    uint32_t tokens[RIG_TOKENS_MAX];
    unsigned char extras[RIG_EXTRAS_MAX * KVT_CATALOG_EXTRA_BYTES];
    struct kvt_catalog_page page;
};

static inline void rig_page_make(uint64_t seq, struct rig_page *out_page)
{
    struct test_random random = {seq * 1000003};
    struct kvt_catalog_page *page = &out_page->page;
    bool odd = test_random_below(&random, 8) == 0;
    *page = (struct kvt_catalog_page){
        .seq = seq,
        .parent = test_random_below(&random, 4) == 0 ? 0 : seq - 1,
        .ns = 1 + (uint32_t)(seq % RIG_NAMESPACES),
        .place = {(uint32_t)test_random_u64(&random), (uint32_t)test_random_u64(&random)},
        .bytes = (uint32_t)test_random_u64(&random),
        .checksum = test_random_u64(&random),
        .token_count = odd ? test_random_below(&random, RIG_TOKENS_MAX + 1) : 16,
        .extra_count = odd ? test_random_below(&random, RIG_EXTRAS_MAX + 1) : 0,
        .tokens = out_page->tokens,
        .extras = out_page->extras,
    };
    for (uint32_t i = 0; i < page->token_count; i++) {
        out_page->tokens[i] = (uint32_t)test_random_u64(&random);
    }
    for (uint32_t i = 0; i < page->extra_count * KVT_CATALOG_EXTRA_BYTES; i++) {
        out_page->extras[i] = (unsigned char)test_random_u64(&random);
    }
}

static inline bool rig_page_equal(const struct kvt_catalog_page *a,
                                  const struct kvt_catalog_page *b)
{
    return a->seq == b->seq && a->parent == b->parent && a->ns == b->ns &&
           a->place.slot == b->place.slot && a->place.generation == b->place.generation &&
           a->bytes == b->bytes && a->checksum == b->checksum && a->token_count == b->token_count &&
           a->extra_count == b->extra_count &&
           memcmp(a->tokens, b->tokens, a->token_count * sizeof(*a->tokens)) == 0 &&
           memcmp(a->extras, b->extras, (size_t)a->extra_count * KVT_CATALOG_EXTRA_BYTES) == 0;
}

static inline struct kvt_catalog_namespace rig_namespace(uint32_t number, unsigned char name[300])
{
    for (uint32_t i = 0; i < 300; i++) {
        name[i] = (unsigned char)(number + 7 * i);
    }
    return (struct kvt_catalog_namespace){.number = number,
                                          .group = number * UINT64_C(0x9e3779b97f4a7c15),
                                          .slot_bytes = number * 4096,
                                          .canonical = name,
                                          .canonical_bytes = 300 - number};
}

static inline kvt_status rig_on_namespace(void *ctx, const struct kvt_catalog_namespace *ns)
{
    struct rig *rig = ctx;
    unsigned char name[300];
    struct kvt_catalog_namespace wanted = rig_namespace(ns->number, name);
    EXPECT(ns->group == wanted.group);
    EXPECT(ns->slot_bytes == wanted.slot_bytes);
    EXPECT(ns->canonical_bytes == wanted.canonical_bytes);
    EXPECT(memcmp(ns->canonical, name, ns->canonical_bytes) == 0);
    rig->namespaces_seen++;
    return rig->answer;
}

static inline kvt_status rig_on_page(void *ctx, const struct kvt_catalog_page *page)
{
    struct rig *rig = ctx;
    struct rig_page wanted;
    EXPECT(page->seq > rig->seq_before);
    EXPECT(page->seq < RIG_PAGES_MAX);
    rig->seq_before = page->seq;
    rig_page_make(page->seq, &wanted);
    EXPECT(rig_page_equal(page, &wanted.page));
    rig->seen[page->seq] = true;
    rig->pages_seen++;
    return rig->answer;
}

/* Whatever is handed over must be what was written under its number. */
static inline kvt_status rig_load_try(struct rig *rig)
{
    const struct kvt_catalog_visitor visitor = {rig, rig_on_namespace, rig_on_page};
    memset(rig->seen, 0, sizeof(rig->seen));
    rig->pages_seen = rig->namespaces_seen = rig->seq_before = 0;
    return kvt_catalog_load(rig->catalog, &visitor, RIG_WAIT_NS, &rig->load);
}

/* And what is there must be what was acknowledged. */
static inline void rig_load(struct rig *rig)
{
    ck_assert_int_eq(rig_load_try(rig), KVT_OK);
    ck_assert_uint_eq(rig->load.pages, rig->pages_seen);
    ck_assert_uint_eq(rig->load.namespaces, rig->namespaces_seen);
    ck_assert_uint_eq(rig->load.damaged_records, 0);
    for (uint32_t i = 0; i < RIG_PAGES_MAX; i++) {
        if (rig->live[i] != rig->seen[i]) {
            ck_abort_msg("page %u: acknowledged %d, there %d", i, rig->live[i], rig->seen[i]);
        }
    }
}

static inline void rig_log(void *ctx, int32_t level, const char *line)
{
    struct rig *rig = ctx;
    (void)level;
    int bytes = snprintf(rig->log_text + rig->log_bytes, sizeof(rig->log_text) - rig->log_bytes,
                         "%s\n", line);
    rig->log_bytes += (size_t)bytes;
    if (rig->log_bytes >= sizeof(rig->log_text)) {
        rig->log_bytes = sizeof(rig->log_text) - 1;
    }
}

static inline struct rig *rig_new(void)
{
    struct rig *rig = calloc(1, sizeof(*rig));
    ck_assert_ptr_nonnull(rig);
    test_memory_init(&rig->memory);
    rig->log = (struct kvt_log){rig_log, rig};
    const char *above = getenv("TMPDIR");
    (void)snprintf(rig->folder, sizeof(rig->folder), "%s/kvt_catalog_XXXXXX",
                   above != NULL && above[0] == '/' ? above : "/tmp");
    ck_assert_ptr_nonnull(mkdtemp(rig->folder));
    (void)strncat(rig->folder, "/catalog", sizeof(rig->folder) - strlen(rig->folder) - 1);
    rig->config = (struct kvt_catalog_config){.mem = &rig->memory.mem,
                                              .log = &rig->log,
                                              .folder = rig->folder,
                                              .bytes_max = RIG_BYTES_MAX,
                                              .program = getenv("KVT_CATALOG_PROGRAM"),
                                              .page_tokens = 16,
                                              .create = true};
    if (rig->config.program == NULL) {
        rig->config.program = "build/kvtier-catalog";
    }
    return rig;
}

static inline kvt_status rig_open_try(struct rig *rig)
{
    rig->why[0] = '\0';
    return kvt_catalog_open(&rig->config, RIG_WAIT_NS, &rig->catalog, rig->why, sizeof(rig->why));
}

static inline void rig_open(struct rig *rig)
{
    kvt_status status = rig_open_try(rig);
    ck_assert_msg(status == KVT_OK, "open: %s: %s", kvt_status_name(status), rig->why);
}

static inline void rig_close(struct rig *rig)
{
    kvt_catalog_close(rig->catalog);
    rig->catalog = NULL;
    ck_assert_uint_eq(rig->memory.live_blocks, 0);
}

static inline const char *rig_path(const struct rig *rig, const char *name,
                                   char out[RIG_PATH_BYTES + 32])
{
    (void)snprintf(out, RIG_PATH_BYTES + 32, "%s/%s", rig->folder, name);
    return out;
}

static inline void rig_remove_files(const struct rig *rig)
{
    static const char *const names[] = {"data.mdb", "lock.mdb", "catalog.lock"};
    char path[RIG_PATH_BYTES + 32];
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        (void)unlink(rig_path(rig, names[i], path));
    }
}

static inline void rig_end(struct rig *rig)
{
    rig_close(rig);
    rig_remove_files(rig);
    (void)rmdir(rig->folder);
    *strrchr(rig->folder, '/') = '\0';
    (void)rmdir(rig->folder);
    free(rig);
}

static inline struct kvt_catalog_stats rig_stats(struct rig *rig)
{
    struct kvt_catalog_stats stats;
    kvt_catalog_stats(rig->catalog, &stats);
    return stats;
}

/* Pages first .. first + count - 1, with all namespaces when first is 1. */
static inline kvt_status rig_put_try(struct rig *rig, uint64_t first, uint32_t count,
                                     int *out_error)
{
    static unsigned char names[RIG_NAMESPACES][300];
    struct kvt_catalog_namespace namespaces[RIG_NAMESPACES];
    struct rig_page *made = calloc(count, sizeof(*made));
    struct kvt_catalog_page *pages = calloc(count, sizeof(*pages));
    EXPECT(made != NULL && pages != NULL);
    for (uint32_t i = 0; i < RIG_NAMESPACES; i++) {
        namespaces[i] = rig_namespace(i + 1, names[i]);
    }
    for (uint32_t i = 0; i < count; i++) {
        rig_page_make(first + i, &made[i]);
        pages[i] = made[i].page;
    }
    const struct kvt_catalog_batch batch = {.namespaces = namespaces,
                                            .namespace_count = first == 1 ? RIG_NAMESPACES : 0,
                                            .pages = pages,
                                            .page_count = count};
    kvt_status status = kvt_catalog_commit(rig->catalog, &batch, RIG_WAIT_NS, out_error);
    for (uint32_t i = 0; i < count && status == KVT_OK; i++) {
        rig->live[first + i] = true;
    }
    free(made);
    free(pages);
    return status;
}

static inline void rig_put(struct rig *rig, uint64_t first, uint32_t count)
{
    int error;
    ck_assert_int_eq(rig_put_try(rig, first, count, &error), KVT_OK);
    ck_assert_int_eq(error, 0);
}

static inline kvt_status rig_delete_try(struct rig *rig, const uint64_t *numbers, uint32_t count)
{
    int error;
    const struct kvt_catalog_batch batch = {.deletes = numbers, .delete_count = count};
    kvt_status status = kvt_catalog_commit(rig->catalog, &batch, RIG_WAIT_NS, &error);
    for (uint32_t i = 0; i < count && status == KVT_OK; i++) {
        rig->live[numbers[i]] = false;
    }
    return status;
}

/* What a program's exit status says of a suite. */
static inline int rig_suite_run(Suite *suite)
{
    const char *program = getenv("KVT_CATALOG_PROGRAM");
    if (access(program != NULL ? program : "build/kvtier-catalog", X_OK) != 0) {
        (void)printf("skipped: kvtier-catalog is not built\n");
        return 77;
    }
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

#endif
