/* The NVMe tier against a model that keeps every byte: random work, restarts, sizes, limits. */
#include "cache/tier/store.h"
#include "tests/support/nvme_rig.h"
#include "tests/support/test_expect.h"
#include "tests/support/test_random.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define KIB 1024u
#define MIB (KIB * KIB)

/* Stores of a few extents, on whatever the machine has; the loop index says how. */
enum { WAY_DEFAULT, WAY_THREADS, WAY_BUFFERED, WAYS };

static void rig_way(struct nvme_rig *rig, int way)
{
    rig->config.threads_only = way == WAY_THREADS;
    rig->config.buffered = way == WAY_BUFFERED;
}

START_TEST(test_round_trip)
{
    struct nvme_rig rig;
    kvt_nvme_rig_init(&rig, 1, 64 * MIB);
    rig_way(&rig, _i);
    kvt_nvme_rig_open(&rig);
    enum { PAGES = 10 };
    uint32_t numbers[PAGES];
    const uint32_t sizes[PAGES] = {4096, 1, 100000, MIB, 4097, 511, 513, 4095, 114688, 8704};
    for (uint32_t i = 0; i < PAGES; i++) {
        numbers[i] = kvt_nvme_rig_page(&rig, i == 0 ? NVME_RIG_NONE : numbers[i - 1], sizes[i]);
    }
    uint32_t good;
    ck_assert_int_eq(kvt_nvme_rig_write(&rig, numbers, PAGES, &good), KVT_OK);
    ck_assert_uint_eq(good, PAGES);
    kvt_nvme_rig_read_all(&rig);
    kvt_nvme_rig_check_used(&rig);

    /* The control: the bytes of one page are not those of another. */
    void *bytes = kvt_nvme_rig_buffer(4096);
    kvt_nvme_rig_fill(numbers[0], bytes, 4096);
    EXPECT(kvt_nvme_rig_is(numbers[0], bytes, 4096));
    EXPECT(!kvt_nvme_rig_is(numbers[1], bytes, 4096));
    free(bytes);

    kvt_nvme_rig_close(&rig);
    kvt_nvme_rig_open(&rig);
    ck_assert_uint_eq(rig.load.pages, PAGES);
    kvt_nvme_rig_read_all(&rig);
    kvt_nvme_rig_check_used(&rig);

    /* Children first; then nothing is left, here and after a restart. */
    for (uint32_t i = PAGES; i-- > 0;) {
        kvt_nvme_rig_drop(&rig, numbers[i]);
    }
    kvt_nvme_rig_check_used(&rig);
    kvt_nvme_rig_close(&rig);
    kvt_nvme_rig_open(&rig);
    ck_assert_uint_eq(rig.load.pages, 0);
    kvt_nvme_rig_close(&rig);
    kvt_nvme_rig_fini(&rig);
}
END_TEST

/* ---- random work ---- */

#define MODEL_BATCHES_MAX 6

struct model {
    struct nvme_rig *rig;
    struct test_random random;
    struct rig_write *writes[MODEL_BATCHES_MAX];
    uint32_t write_count;
    uint32_t slot_kinds;
    bool mixed;
};

static uint32_t model_bytes(struct model *model)
{
    static const uint32_t kinds[] = {4096, 8192, 40000, 65536, 300000, MIB, 3 * MIB};
    if (model->mixed && test_random_below(&model->random, 4) == 0) {
        return 1 + test_random_below(&model->random, 200000);
    }
    /* Small ones are many, large ones few. */
    uint32_t most = 1 + test_random_below(&model->random, sizeof(kinds) / sizeof(kinds[0]));
    return kinds[test_random_below(&model->random, most)];
}

/* A held page, or one that is being written; NONE: no such luck. */
static uint32_t model_parent(struct model *model)
{
    const struct nvme_rig *rig = model->rig;
    for (uint32_t i = 0; i < 8 && rig->page_count > 0; i++) {
        uint32_t number = test_random_below(&model->random, rig->page_count);
        if (rig->pages[number].state == RIG_PAGE_HELD ||
            rig->pages[number].state == RIG_PAGE_WRITING) {
            return number;
        }
    }
    return NVME_RIG_NONE;
}

static void model_end_one(struct model *model)
{
    uint32_t good;
    kvt_status status = kvt_nvme_rig_write_end(model->writes[0], &good);
    EXPECT(status == KVT_OK);
    model->write_count--;
    memmove(model->writes, model->writes + 1, model->write_count * sizeof(model->writes[0]));
}

static void model_end_all(struct model *model)
{
    while (model->write_count > 0) {
        model_end_one(model);
    }
}

static void model_write(struct model *model)
{
    struct nvme_rig *rig = model->rig;
    uint32_t numbers[8];
    uint32_t count = 1 + test_random_below(&model->random, 8);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t parent = i > 0 && test_random_below(&model->random, 3) > 0 ? numbers[i - 1]
                                                                            : model_parent(model);
        numbers[i] = kvt_nvme_rig_page(rig, parent, model_bytes(model));
    }
    if (model->write_count == MODEL_BATCHES_MAX) {
        model_end_one(model);
    }
    kvt_status status;
    struct rig_write *write = kvt_nvme_rig_write_start(rig, numbers, count, &status);
    EXPECT(write != NULL || status == KVT_ERR_LIMIT);
    if (write != NULL) {
        model->writes[model->write_count++] = write;
    }
    for (uint32_t i = write != NULL ? write->write.page_count : 0; i < count; i++) {
        rig->pages[numbers[i]].state = RIG_PAGE_LOST;
    }
}

static void model_drop(struct model *model)
{
    struct nvme_rig *rig = model->rig;
    /* A page that is being written may be the child of any. */
    model_end_all(model);
    uint32_t drops = 1 + test_random_below(&model->random, 20);
    for (uint32_t i = 0; i < 4 * drops && rig->page_count > 0; i++) {
        uint32_t number = test_random_below(&model->random, rig->page_count);
        if (rig->pages[number].state == RIG_PAGE_HELD && rig->pages[number].children == 0) {
            kvt_nvme_rig_drop(rig, number);
        }
    }
}

static void model_read(struct model *model)
{
    struct nvme_rig *rig = model->rig;
    uint32_t numbers[16];
    uint32_t count = 0;
    for (uint32_t i = 0; i < 64 && count < 16 && rig->page_count > 0; i++) {
        uint32_t number = test_random_below(&model->random, rig->page_count);
        if (rig->pages[number].state == RIG_PAGE_HELD) {
            numbers[count++] = number;
        }
    }
    uint32_t good;
    EXPECT(count == 0 || kvt_nvme_rig_read(rig, numbers, count, &good) == KVT_OK);
}

static void model_reopen(struct model *model)
{
    model_end_all(model);
    kvt_nvme_rig_close(model->rig);
    kvt_nvme_rig_open(model->rig);
    kvt_nvme_rig_read_all(model->rig);
    kvt_nvme_rig_check_used(model->rig);
}

static void model_step(struct model *model)
{
    uint32_t dice = test_random_below(&model->random, 1000);
    if (dice < 400) {
        model_write(model);
    } else if (dice < 600) {
        model_drop(model);
    } else if (dice < 990) {
        model_read(model);
    } else {
        model_reopen(model);
    }
}

START_TEST(test_model)
{
    struct nvme_rig rig;
    kvt_nvme_rig_init(&rig, _i == WAY_DEFAULT ? 3 : 1, 48 * MIB);
    rig_way(&rig, _i);
    struct model model = {.rig = &rig, .mixed = _i != WAY_THREADS};
    model.random = test_random_start("model", 4200 + (uint64_t)_i);
    kvt_nvme_rig_open(&rig);
    uint64_t steps = test_scaled(500);
    for (uint64_t i = 0; i < steps; i++) {
        model_step(&model);
    }
    model_reopen(&model);
    kvt_nvme_rig_close(&rig);
    kvt_nvme_rig_fini(&rig);
}
END_TEST

/* ---- many threads ---- */

#define THREADS 4u
#define THREAD_PAGES 16u

struct worker {
    struct nvme_rig *rig;
    pthread_t thread;
    uint32_t numbers[THREAD_PAGES];
    uint64_t rounds;
};

static void worker_round(struct worker *worker)
{
    struct nvme_rig *rig = worker->rig;
    uint32_t good;
    kvt_status status;
    struct rig_write *first =
        kvt_nvme_rig_write_start(rig, worker->numbers, THREAD_PAGES / 2, &status);
    EXPECT(first != NULL);
    struct rig_write *second = kvt_nvme_rig_write_start(rig, worker->numbers + THREAD_PAGES / 2,
                                                        THREAD_PAGES / 2, &status);
    EXPECT(second != NULL);
    EXPECT(kvt_nvme_rig_write_end(first, &good) == KVT_OK);
    EXPECT(kvt_nvme_rig_write_end(second, &good) == KVT_OK);
    EXPECT(kvt_nvme_rig_read(rig, worker->numbers, THREAD_PAGES, &good) == KVT_OK);
    EXPECT(kvt_nvme_read_estimate_ns(rig->nvme, 4096) > 0);
    for (uint32_t i = THREAD_PAGES; i-- > 0;) {
        kvt_nvme_rig_drop(rig, worker->numbers[i]);
    }
    EXPECT(kvt_nvme_rig_read(rig, worker->numbers, 1, &good) == KVT_ERR_STALE);
}

static void *worker_main(void *arg)
{
    struct worker *worker = arg;
    for (uint64_t i = 0; i < worker->rounds; i++) {
        worker_round(worker);
    }
    return NULL;
}

START_TEST(test_threads)
{
    struct nvme_rig rig;
    kvt_nvme_rig_init(&rig, 2, 32 * MIB);
    kvt_nvme_rig_open(&rig);
    struct worker workers[THREADS];
    for (uint32_t t = 0; t < THREADS; t++) {
        workers[t] = (struct worker){.rig = &rig, .rounds = test_scaled(50)};
        for (uint32_t i = 0; i < THREAD_PAGES; i++) {
            workers[t].numbers[i] = kvt_nvme_rig_page(
                &rig, i == 0 ? NVME_RIG_NONE : workers[t].numbers[i - 1], 5000 * (1 + i % 3));
        }
    }
    for (uint32_t t = 0; t < THREADS; t++) {
        ck_assert_int_eq(pthread_create(&workers[t].thread, NULL, worker_main, &workers[t]), 0);
    }
    for (uint32_t t = 0; t < THREADS; t++) {
        ck_assert_int_eq(pthread_join(workers[t].thread, NULL), 0);
    }
    kvt_nvme_rig_check_used(&rig);
    kvt_nvme_rig_close(&rig);
    kvt_nvme_rig_open(&rig);
    ck_assert_uint_eq(rig.load.pages, 0);
    kvt_nvme_rig_close(&rig);
    kvt_nvme_rig_fini(&rig);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("nvme");
    TCase *basics = tcase_create("basics");
    tcase_add_loop_test(basics, test_round_trip, 0, WAYS);
    suite_add_tcase(s, basics);
    TCase *random = tcase_create("random");
    tcase_add_loop_test(random, test_model, 0, WAYS);
    suite_add_tcase(s, random);
    TCase *threads = tcase_create("threads");
    tcase_add_test(threads, test_threads);
    suite_add_tcase(s, threads);
    return s;
}

int main(void)
{
    SRunner *runner = srunner_create(suite());
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
