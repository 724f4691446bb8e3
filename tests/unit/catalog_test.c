/* The catalog: what is written comes back, the records' bytes, limits, owners and readers. */
#include "cache/catalog/catalog.h"
#include "cache/catalog/record.h"
#include "tests/golden/catalog/records_v1.h"
#include "tests/support/catalog_rig.h"

#include <check.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

/* ---- what is written comes back ---- */

START_TEST(round_trip)
{
    struct rig *rig = rig_new();
    rig_open(rig);
    rig_load(rig);
    ck_assert_uint_eq(rig->load.pages, 0);
    ck_assert_uint_eq(rig->load.seq_last, 0);
    rig_put(rig, 1, 1);
    rig_put(rig, 2, KVT_CATALOG_BATCH_MAX);
    rig_put(rig, 5000, 300);
    rig_load(rig);
    ck_assert_uint_eq(rig->load.pages, 1 + KVT_CATALOG_BATCH_MAX + 300);
    ck_assert_uint_eq(rig->load.namespaces, RIG_NAMESPACES);
    ck_assert_uint_eq(rig->load.namespace_last, RIG_NAMESPACES);
    ck_assert_uint_eq(rig->load.seq_last, 5299);
    rig_close(rig);
    rig->config.create = false;
    rig_open(rig);
    rig_load(rig);
    ck_assert_uint_eq(rig->load.pages, 1 + KVT_CATALOG_BATCH_MAX + 300);
    uint64_t walk_ns, records;
    ck_assert_int_eq(kvt_catalog_walk(rig->catalog, RIG_WAIT_NS, &walk_ns, &records), KVT_OK);
    ck_assert_uint_eq(records, rig->load.pages + RIG_NAMESPACES);
    ck_assert_uint_gt(walk_ns, 0);
    struct kvt_catalog_stats stats = rig_stats(rig);
    ck_assert(stats.alive);
    ck_assert_uint_eq(stats.restarts, 0);
    ck_assert_uint_gt(stats.used_bytes, 0);
    ck_assert_uint_le(stats.used_bytes, stats.bytes_max);
    rig_end(rig);
}
END_TEST

/* Controls: the comparison that every load goes through sees each field. */
START_TEST(comparison_sees_every_field)
{
    struct rig_page a, b;
    uint64_t seq = 1;
    do {
        rig_page_make(++seq, &a);
    } while (a.page.extra_count == 0 || a.page.token_count == 0);
    rig_page_make(seq, &b);
    ck_assert(rig_page_equal(&a.page, &b.page));
    b.tokens[0] ^= 1;
    ck_assert(!rig_page_equal(&a.page, &b.page));
    rig_page_make(seq, &b);
    b.extras[39] ^= 1;
    ck_assert(!rig_page_equal(&a.page, &b.page));
    rig_page_make(seq, &b);
    b.page.checksum ^= 1;
    ck_assert(!rig_page_equal(&a.page, &b.page));
    rig_page_make(seq, &b);
    b.page.place.generation ^= 1;
    ck_assert(!rig_page_equal(&a.page, &b.page));
    rig_page_make(seq + 1, &b);
    ck_assert(!rig_page_equal(&a.page, &b.page));
}
END_TEST

START_TEST(deletes)
{
    struct rig *rig = rig_new();
    rig_open(rig);
    rig_put(rig, 1, 1000);
    uint64_t numbers[KVT_CATALOG_BATCH_MAX];
    for (uint32_t i = 0; i < 500; i++) {
        numbers[i] = 2 * i + 1;
    }
    numbers[500] = 60000; /* never there */
    ck_assert_int_eq(rig_delete_try(rig, numbers, 501), KVT_OK);
    rig_load(rig);
    ck_assert_uint_eq(rig->load.pages, 500);
    ck_assert_int_eq(rig_delete_try(rig, numbers, 501), KVT_OK);
    rig_put(rig, 1000, 1); /* alike: fine */
    rig_load(rig);
    /* The highest number is not forgotten when its page goes, in this process or the next. */
    numbers[0] = 1000;
    numbers[1] = 998;
    ck_assert_int_eq(rig_delete_try(rig, numbers, 2), KVT_OK);
    rig_load(rig);
    ck_assert_uint_eq(rig->load.seq_last, 1000);
    rig_close(rig);
    rig_open(rig);
    rig_load(rig);
    ck_assert_uint_eq(rig->load.pages, 498);
    ck_assert_uint_eq(rig->load.seq_last, 1000);
    rig_put(rig, 1001, 5);
    rig_load(rig);
    ck_assert_uint_eq(rig->load.seq_last, 1005);
    rig_end(rig);
}
END_TEST

START_TEST(namespaces)
{
    struct rig *rig = rig_new();
    int error;
    rig_open(rig);
    rig_put(rig, 1, 1);
    const uint32_t gone[] = {3, 2, 9};
    struct kvt_catalog_batch batch = {.namespace_deletes = gone, .namespace_delete_count = 3};
    ck_assert_int_eq(kvt_catalog_commit(rig->catalog, &batch, RIG_WAIT_NS, &error), KVT_OK);
    rig_load(rig);
    ck_assert_uint_eq(rig->load.namespaces, 1);
    ck_assert_uint_eq(rig->load.namespace_last, 3);
    rig_close(rig);
    rig_open(rig);
    rig_load(rig);
    ck_assert_uint_eq(rig->load.namespaces, 1);
    ck_assert_uint_eq(rig->load.namespace_last, 3);
    /* Delete and page in one transaction: the delete comes first. */
    struct rig_page made;
    rig_page_make(1, &made);
    const uint64_t one = 1;
    batch = (struct kvt_catalog_batch){
        .deletes = &one, .delete_count = 1, .pages = &made.page, .page_count = 1};
    ck_assert_int_eq(kvt_catalog_commit(rig->catalog, &batch, RIG_WAIT_NS, &error), KVT_OK);
    rig_load(rig);
    rig_end(rig);
}
END_TEST

START_TEST(what_must_not_be_written)
{
    struct rig *rig = rig_new();
    struct rig_page made;
    int error;
    rig_open(rig);
    for (int i = 0; i < 6; i++) {
        rig_page_make(5, &made);
        uint64_t zero = 0;
        struct kvt_catalog_batch batch = {.pages = &made.page, .page_count = 1};
        made.page.seq = i == 0 ? 0 : 5;
        made.page.parent = i == 1 ? 5 : 4;
        made.page.ns = i == 2 ? 0 : 1;
        made.page.token_count = i == 3 ? KVT_RECORD_BYTES_MAX : 1;
        if (i == 4) {
            batch = (struct kvt_catalog_batch){.deletes = &zero, .delete_count = 1};
        }
        ck_assert_int_eq(kvt_catalog_commit(rig->catalog, &batch, RIG_WAIT_NS, &error),
                         i == 5 ? KVT_OK : KVT_ERR_INVAL);
    }
    ck_assert_int_eq(rig_put_try(rig, 10, KVT_CATALOG_BATCH_MAX + 1, &error), KVT_ERR_INVAL);
    const struct kvt_catalog_batch none = {.page_count = 0};
    ck_assert_int_eq(kvt_catalog_commit(rig->catalog, &none, RIG_WAIT_NS, &error), KVT_OK);
    rig_end(rig);
}
END_TEST

START_TEST(visitor_can_stop)
{
    struct rig *rig = rig_new();
    rig_open(rig);
    rig_put(rig, 1, 1000);
    rig->answer = KVT_ERR_NOMEM;
    ck_assert_int_eq(rig_load_try(rig), KVT_ERR_NOMEM);
    ck_assert_uint_eq(rig->namespaces_seen + rig->pages_seen, 1);
    rig->answer = KVT_OK;
    rig_load(rig);
    rig_end(rig);
}
END_TEST

/* ---- head ---- */

/* Every copy of the head in the file. */
static uint32_t patch_version(const struct rig *rig, uint32_t version)
{
    char path[RIG_PATH_BYTES + 32];
    uint32_t patched = 0;
    int fd = open(rig_path(rig, "data.mdb", path), O_RDWR);
    ck_assert_int_ge(fd, 0);
    static char bytes[1 << 20];
    ssize_t got = read(fd, bytes, sizeof(bytes));
    for (ssize_t i = 0; i + 12 <= got; i++) {
        if (memcmp(bytes + i, "kvtcatlg", 8) == 0) {
            ck_assert_int_eq(pwrite(fd, &version, sizeof(version), i + 8), sizeof(version));
            patched++;
        }
    }
    ck_assert_int_eq(close(fd), 0);
    return patched;
}

START_TEST(head_is_kept)
{
    struct rig *rig = rig_new();
    struct kvt_catalog_head head, again;
    rig_open(rig);
    kvt_catalog_head(rig->catalog, &head);
    ck_assert_uint_eq(head.version, KVT_CATALOG_VERSION);
    ck_assert_uint_eq(head.page_tokens, 16);
    ck_assert_uint_eq(head.store_count, 0);
    head.store_count = KVT_CATALOG_STORES_MAX;
    memset(head.stores, 0x5a, sizeof(head.stores));
    ck_assert_int_eq(kvt_catalog_set_head(rig->catalog, &head, RIG_WAIT_NS), KVT_OK);
    kvt_catalog_head(rig->catalog, &again);
    ck_assert_mem_eq(&head, &again, sizeof(head));
    again.id[3] ^= 1;
    ck_assert_int_eq(kvt_catalog_set_head(rig->catalog, &again, RIG_WAIT_NS), KVT_ERR_INVAL);
    rig_close(rig);
    rig_open(rig);
    memset(&again, 0, sizeof(again));
    kvt_catalog_head(rig->catalog, &again);
    ck_assert_mem_eq(&head, &again, sizeof(head));
    rig_close(rig);
    rig->config.page_tokens = 32;
    ck_assert_int_eq(rig_open_try(rig), KVT_ERR_INVAL);
    ck_assert_ptr_nonnull(strstr(rig->why, "pages of 16 tokens, not of 32"));
    rig->config.page_tokens = 16;
    ck_assert_uint_ge(patch_version(rig, 999), 1);
    ck_assert_int_eq(rig_open_try(rig), KVT_ERR_VERSION);
    ck_assert_ptr_nonnull(strstr(rig->why, "version 999, this program knows version 1"));
    ck_assert_uint_ge(patch_version(rig, 1), 1);
    rig_open(rig);
    rig_end(rig);
}
END_TEST

START_TEST(nothing_there)
{
    struct rig *rig = rig_new();
    rig->config.create = false;
    ck_assert_int_eq(rig_open_try(rig), KVT_ERR_INVAL);
    ck_assert_ptr_nonnull(strstr(rig->why, "there is none"));
    rig->config.read_only = true;
    ck_assert_int_eq(rig_open_try(rig), KVT_ERR_INVAL);
    ck_assert_int_ne(access(rig->folder, F_OK), 0);
    rig->config.read_only = false;
    rig->config.create = true;
    rig->config.bytes_max = 4096;
    ck_assert_int_eq(rig_open_try(rig), KVT_ERR_INVAL);
    rig->config.bytes_max = RIG_BYTES_MAX;
    rig_open(rig);
    struct stat is;
    ck_assert_int_eq(stat(rig->folder, &is), 0);
    ck_assert_uint_eq(is.st_mode & 07777, 0700);
    static const char *const names[] = {"data.mdb", "lock.mdb", "catalog.lock"};
    for (size_t i = 0; i < 3; i++) {
        char path[RIG_PATH_BYTES + 32];
        ck_assert_int_eq(stat(rig_path(rig, names[i], path), &is), 0);
        ck_assert_uint_eq(is.st_mode & 07777, 0600);
    }
    rig_end(rig);
}
END_TEST

/* ---- a full file ---- */

START_TEST(full_file)
{
    struct rig *rig = rig_new();
    int error;
    uint64_t next = 1;
    kvt_status status;
    rig->config.bytes_max = UINT64_C(1) << 20;
    rig_open(rig);
    while ((status = rig_put_try(rig, next, 64, &error)) == KVT_OK) {
        next += 64;
        ck_assert_uint_lt(next, RIG_PAGES_MAX - 64);
    }
    ck_assert_int_eq(status, KVT_ERR_LIMIT);
    ck_assert_uint_gt(next, 3000);
    rig_load(rig);
    /* All of them can be deleted, in an order that touches every page of the file each time. */
    static uint64_t numbers[RIG_PAGES_MAX];
    struct test_random random = test_random_start("full_file", 5);
    uint32_t count = (uint32_t)next - 1, kept = count / 4;
    for (uint32_t i = 0; i < count; i++) {
        numbers[i] = i + 1;
    }
    for (uint32_t i = count; i > 1; i--) {
        uint32_t other = test_random_below(&random, i);
        uint64_t swapped = numbers[i - 1];
        numbers[i - 1] = numbers[other];
        numbers[other] = swapped;
    }
    for (uint32_t at = 0; at < count - kept;) {
        uint32_t some = count - kept - at < 1000 ? count - kept - at : 1000;
        ck_assert_int_eq(rig_delete_try(rig, numbers + at, some), KVT_OK);
        at += some;
    }
    rig_load(rig);
    ck_assert_uint_eq(rig->load.pages, kept);
    for (uint32_t i = 0; i < 10; i++) {
        rig_put(rig, next, 64);
        next += 64;
    }
    rig_load(rig);
    rig_end(rig);
}
END_TEST

/* ---- owners and readers ---- */

START_TEST(second_owner)
{
    struct rig *rig = rig_new();
    rig_open(rig);
    rig_put(rig, 1, 10);
    struct kvt_catalog *first = rig->catalog;
    char pid[32];
    (void)snprintf(pid, sizeof(pid), "process %d has", (int)getpid());
    ck_assert_int_eq(rig_open_try(rig), KVT_ERR_BUSY);
    ck_assert_ptr_nonnull(strstr(rig->why, pid));
    rig->catalog = first;
    rig_load(rig);
    rig_end(rig);
}
END_TEST

START_TEST(reader_beside_writer)
{
    struct rig *rig = rig_new();
    rig_open(rig);
    rig_put(rig, 1, 100);
    struct kvt_catalog *writer = rig->catalog, *reader;
    rig->config.read_only = true;
    rig->config.create = false;
    rig->config.page_tokens = 0;
    rig->config.bytes_max = UINT64_C(1) << 20; /* smaller than the writer's: its map must grow */
    rig_open(rig);
    reader = rig->catalog;
    for (uint32_t i = 0; i < 40; i++) {
        rig->catalog = writer;
        rig_put(rig, 101 + i * 500, 500);
        rig->catalog = reader;
        rig_load(rig);
    }
    int error;
    ck_assert_int_eq(rig_put_try(rig, 60000, 1, &error), KVT_ERR_INVAL);
    kvt_catalog_close(reader);
    rig->catalog = writer;
    rig_load(rig);
    rig_end(rig);
}
END_TEST

START_TEST(reader_changes_nothing)
{
    struct rig *rig = rig_new();
    char path[RIG_PATH_BYTES + 32];
    struct stat before, after;
    rig_open(rig);
    rig_put(rig, 1, 1000);
    rig_close(rig);
    ck_assert_int_eq(unlink(rig_path(rig, "lock.mdb", path)), 0);
    ck_assert_int_eq(unlink(rig_path(rig, "catalog.lock", path)), 0);
    ck_assert_int_eq(stat(rig_path(rig, "data.mdb", path), &before), 0);
    rig->config.read_only = true;
    rig_open(rig);
    rig_load(rig);
    rig_close(rig);
    ck_assert_int_eq(stat(path, &after), 0);
    ck_assert_int_eq(before.st_mtim.tv_sec, after.st_mtim.tv_sec);
    ck_assert_int_eq(before.st_mtim.tv_nsec, after.st_mtim.tv_nsec);
    ck_assert_int_ne(access(rig_path(rig, "lock.mdb", path), F_OK), 0);
    ck_assert_int_ne(access(rig_path(rig, "catalog.lock", path), F_OK), 0);
    rig_end(rig);
}
END_TEST

START_TEST(another_process)
{
    struct rig *rig = rig_new();
    rig_open(rig);
    rig_put(rig, 1, 10);
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        bool good = rig_load_try(rig) == KVT_ERR_PROCESS;
        kvt_catalog_close(rig->catalog);
        _exit(good ? 0 : 1);
    }
    int result;
    ck_assert_int_eq(waitpid(pid, &result, 0), pid);
    ck_assert_int_eq(result, 0);
    rig_put(rig, 11, 10); /* the forked one has ended nothing */
    rig_load(rig);
    ck_assert_uint_eq(rig_stats(rig).restarts, 0);
    rig_end(rig);
}
END_TEST

#define THREADS 4u
#define THREAD_BATCHES 20u

struct worker {
    struct rig *rig;
    uint64_t first;
    kvt_status status;
};

static void *worker_run(void *arg)
{
    struct worker *worker = arg;
    for (uint32_t i = 0; i < THREAD_BATCHES && worker->status == KVT_OK; i++) {
        struct rig_page made;
        int error;
        rig_page_make(worker->first + i, &made);
        const struct kvt_catalog_batch batch = {.pages = &made.page, .page_count = 1};
        worker->status = kvt_catalog_commit(worker->rig->catalog, &batch, RIG_WAIT_NS, &error);
        (void)rig_stats(worker->rig);
    }
    return NULL;
}

START_TEST(many_threads)
{
    struct rig *rig = rig_new();
    struct worker workers[THREADS];
    pthread_t ids[THREADS];
    rig_open(rig);
    for (uint32_t i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){rig, 1 + i * 1000, KVT_OK};
        ck_assert_int_eq(pthread_create(&ids[i], NULL, worker_run, &workers[i]), 0);
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        ck_assert_int_eq(pthread_join(ids[i], NULL), 0);
        ck_assert_int_eq(workers[i].status, KVT_OK);
        memset(rig->live + workers[i].first, 1, THREAD_BATCHES);
    }
    rig_load(rig);
    ck_assert_uint_eq(rig_stats(rig).commits, THREADS * THREAD_BATCHES);
    rig_end(rig);
}
END_TEST

/* ---- the program, memory ---- */

START_TEST(program_is_missing)
{
    struct rig *rig = rig_new();
    rig->config.program = "/nowhere/kvtier-catalog";
    ck_assert_int_eq(rig_open_try(rig), KVT_ERR_UNAVAILABLE);
    ck_assert_ptr_nonnull(strstr(rig->why, "looked at /nowhere/kvtier-catalog"));
    rig->config.program = "/bin/true";
    ck_assert_int_eq(rig_open_try(rig), KVT_ERR_UNAVAILABLE);
    rig->config.program = NULL;
    char *had = getenv("KVT_CATALOG_PROGRAM");
    char *kept = had != NULL ? strdup(had) : NULL;
    const char *path_had = getenv("PATH");
    char *path = strdup(path_had != NULL ? path_had : "");
    ck_assert_int_eq(setenv("PATH", "/nowhere/bin:relative", 1), 0);
    ck_assert_int_eq(unsetenv("KVT_CATALOG_PROGRAM"), 0);
    ck_assert_int_eq(rig_open_try(rig), KVT_ERR_UNAVAILABLE);
    ck_assert_ptr_nonnull(strstr(rig->why, "/../libexec/kvtier/kvtier-catalog"));
    ck_assert_ptr_nonnull(strstr(rig->why, "/nowhere/bin/kvtier-catalog"));
    ck_assert_ptr_null(strstr(rig->why, "relative"));
    ck_assert_int_eq(setenv("PATH", path, 1), 0);
    if (kept != NULL) {
        ck_assert_int_eq(setenv("KVT_CATALOG_PROGRAM", kept, 1), 0);
        rig_open(rig); /* the control */
    }
    free(kept);
    free(path);
    rig_end(rig);
}
END_TEST

START_TEST(memory_runs_out)
{
    struct rig *rig = rig_new();
    uint64_t k = 1;
    for (;; k++) {
        test_memory_fail(&rig->memory, k, false);
        kvt_status status = rig_open_try(rig);
        test_memory_fail(&rig->memory, 0, false);
        if (status == KVT_OK) {
            break;
        }
        ck_assert_int_eq(status, KVT_ERR_NOMEM);
        ck_assert_uint_eq(rig->memory.live_blocks, 0);
        ck_assert_uint_lt(k, 100);
    }
    ck_assert_uint_gt(k, 3);
    rig_put(rig, 1, 100);
    uint64_t calls = rig->memory.calls;
    rig_load(rig);
    ck_assert_uint_eq(rig->memory.calls, calls); /* nothing is allocated after open */
    rig_end(rig);
}
END_TEST

/* ---- bytes ---- */

static void pattern(void *out_bytes, size_t count, uint64_t start)
{
    for (size_t i = 0; i < count; i++) {
        ((unsigned char *)out_bytes)[i] = (unsigned char)(start + 7 * i);
    }
}

/* As records_v1.py makes it; decoded and encoded again. */
static void golden_page(const uint64_t *record, size_t bytes, struct kvt_catalog_page wanted)
{
    static uint32_t tokens[256];
    static unsigned char extras[3 * KVT_CATALOG_EXTRA_BYTES];
    static uint64_t made[1024];
    struct kvt_catalog_page page;
    for (uint32_t i = 0; i < wanted.token_count; i++) {
        tokens[i] = (uint32_t)wanted.seq * 1000 + i;
    }
    pattern(extras, (size_t)wanted.extra_count * KVT_CATALOG_EXTRA_BYTES, wanted.seq);
    wanted.tokens = tokens;
    wanted.extras = extras;
    ck_assert_uint_eq(kvt_record_page_bytes(&wanted), bytes);
    kvt_record_page_encode(&wanted, made);
    ck_assert_mem_eq(made, record, bytes);
    ck_assert_int_eq(kvt_record_page_decode(1, wanted.seq, record, bytes, &page), KVT_OK);
    ck_assert(rig_page_equal(&page, &wanted));
    ck_assert_int_eq(kvt_record_page_decode(1, wanted.seq + 1, record, bytes, &page),
                     KVT_ERR_CORRUPT);
    ck_assert_int_eq(kvt_record_page_decode(1, wanted.seq, record, bytes - 1, &page),
                     KVT_ERR_CORRUPT);
    ck_assert_int_eq(kvt_record_page_decode(2, wanted.seq, record, bytes, &page), KVT_ERR_VERSION);
    for (size_t bit = 0; bit < bytes * 8; bit++) {
        ((unsigned char *)made)[bit / 8] ^= (unsigned char)(1u << (bit % 8));
        EXPECT(kvt_record_page_decode(1, wanted.seq, made, bytes, &page) == KVT_ERR_CORRUPT);
        ((unsigned char *)made)[bit / 8] ^= (unsigned char)(1u << (bit % 8));
    }
}

START_TEST(golden_pages)
{
    golden_page(record_v1_page_first, RECORD_V1_PAGE_FIRST_BYTES,
                (struct kvt_catalog_page){1, 0, 1, {0, 1}, 4096, 1, 16, 0, NULL, NULL});
    golden_page(record_v1_page_second, RECORD_V1_PAGE_SECOND_BYTES,
                (struct kvt_catalog_page){
                    2, 1, 1, {UINT32_MAX, UINT32_MAX}, UINT32_MAX, UINT64_MAX, 16, 2, NULL, NULL});
    golden_page(record_v1_page_empty, RECORD_V1_PAGE_EMPTY_BYTES,
                (struct kvt_catalog_page){3, 0, UINT32_MAX, {5, 6}, 0, 0, 0, 0, NULL, NULL});
    golden_page(record_v1_page_large, RECORD_V1_PAGE_LARGE_BYTES,
                (struct kvt_catalog_page){1000, 999, 7, {8, 9}, 10, 11, 256, 3, NULL, NULL});
}
END_TEST

static void golden_namespace(const uint64_t *record, size_t bytes,
                             struct kvt_catalog_namespace wanted)
{
    unsigned char name[300];
    static uint64_t made[64];
    struct kvt_catalog_namespace ns;
    pattern(name, wanted.canonical_bytes, wanted.number);
    wanted.canonical = name;
    ck_assert_uint_eq(kvt_record_namespace_bytes(&wanted), bytes);
    kvt_record_namespace_encode(&wanted, made);
    ck_assert_mem_eq(made, record, bytes);
    ck_assert_int_eq(kvt_record_namespace_decode(1, wanted.number, record, bytes, &ns), KVT_OK);
    ck_assert_uint_eq(ns.number, wanted.number);
    ck_assert_uint_eq(ns.group, wanted.group);
    ck_assert_uint_eq(ns.slot_bytes, wanted.slot_bytes);
    ck_assert_uint_eq(ns.canonical_bytes, wanted.canonical_bytes);
    ck_assert_mem_eq(ns.canonical, name, ns.canonical_bytes);
    ck_assert_int_eq(kvt_record_namespace_decode(1, wanted.number - 1, record, bytes, &ns),
                     KVT_ERR_CORRUPT);
    ((unsigned char *)made)[bytes - 1] ^= 0x80;
    ck_assert_int_eq(kvt_record_namespace_decode(1, wanted.number, made, bytes, &ns),
                     KVT_ERR_CORRUPT);
}

START_TEST(golden_others)
{
    golden_namespace(record_v1_namespace_short, RECORD_V1_NAMESPACE_SHORT_BYTES,
                     (struct kvt_catalog_namespace){1, 0, 65536, NULL, 0});
    golden_namespace(record_v1_namespace_long, RECORD_V1_NAMESPACE_LONG_BYTES,
                     (struct kvt_catalog_namespace){UINT32_MAX, UINT64_C(1) << 63,
                                                    UINT64_C(1) << 40, NULL, 300});
    struct kvt_catalog_head head, wanted = {.version = 1, .page_tokens = 16, .store_count = 3};
    pattern(wanted.id, sizeof(wanted.id), 1);
    for (uint32_t i = 0; i < wanted.store_count; i++) {
        pattern(wanted.stores[i].id, sizeof(wanted.stores[i].id), 50 + i);
        wanted.stores[i].bytes = (i + UINT64_C(1)) << 30;
        wanted.stores[i].extent_bytes = UINT64_C(1) << 26;
    }
    unsigned char made[KVT_RECORD_HEAD_BYTES];
    ck_assert_uint_eq(RECORD_V1_HEAD_BYTES, KVT_RECORD_HEAD_BYTES);
    kvt_record_head_encode(&wanted, made);
    ck_assert_mem_eq(made, record_v1_head, sizeof(made));
    ck_assert_int_eq(kvt_record_head_decode(record_v1_head, sizeof(made), &head), KVT_OK);
    ck_assert_mem_eq(&head, &wanted, sizeof(head));
    for (size_t bit = 0; bit < sizeof(made) * 8; bit++) {
        made[bit / 8] ^= (unsigned char)(1u << (bit % 8));
        EXPECT(kvt_record_head_decode(made, sizeof(made), &head) != KVT_OK);
        made[bit / 8] ^= (unsigned char)(1u << (bit % 8));
    }
    const struct kvt_record_counters counters = {UINT64_C(1) << 40, 77};
    struct kvt_record_counters again;
    ck_assert_uint_eq(RECORD_V1_COUNTERS_BYTES, KVT_RECORD_COUNTERS_BYTES);
    kvt_record_counters_encode(&counters, made);
    ck_assert_mem_eq(made, record_v1_counters, KVT_RECORD_COUNTERS_BYTES);
    ck_assert_int_eq(
        kvt_record_counters_decode(1, record_v1_counters, KVT_RECORD_COUNTERS_BYTES, &again),
        KVT_OK);
    ck_assert_uint_eq(again.seq_last, counters.seq_last);
    ck_assert_uint_eq(again.namespace_last, counters.namespace_last);
    made[8] ^= 1;
    ck_assert_int_eq(kvt_record_counters_decode(1, made, KVT_RECORD_COUNTERS_BYTES, &again),
                     KVT_ERR_CORRUPT);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("catalog");
    TCase *tcase = tcase_create("catalog");
    tcase_add_test(tcase, round_trip);
    tcase_add_test(tcase, comparison_sees_every_field);
    tcase_add_test(tcase, deletes);
    tcase_add_test(tcase, namespaces);
    tcase_add_test(tcase, what_must_not_be_written);
    tcase_add_test(tcase, visitor_can_stop);
    tcase_add_test(tcase, head_is_kept);
    tcase_add_test(tcase, nothing_there);
    tcase_add_test(tcase, full_file);
    tcase_add_test(tcase, second_owner);
    tcase_add_test(tcase, reader_beside_writer);
    tcase_add_test(tcase, reader_changes_nothing);
    tcase_add_test(tcase, another_process);
    tcase_add_test(tcase, many_threads);
    tcase_add_test(tcase, program_is_missing);
    tcase_add_test(tcase, memory_runs_out);
    tcase_add_test(tcase, golden_pages);
    tcase_add_test(tcase, golden_others);
    suite_add_tcase(suite, tcase);
    return rig_suite_run(suite);
}
