/*
 * The NVMe tier when its catalog says no. A catalog in memory stands in here for the real one: its
 * functions are defined in this file, so the library's are not linked. It outlives the tier, as a
 * file would, and answers what a test tells it to.
 */
#include "tests/support/nvme_rig.h"
#include "tests/support/test_expect.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#define MIB (1024u * 1024u)
#define SECOND_NS UINT64_C(1000000000)
#define CHAIN 6u
#define RECORDS_MAX 1024u

/* ---- the catalog ---- */

struct record {
    struct kvt_catalog_page page;
    uint32_t tokens[NVME_RIG_PAGE_TOKENS];
};

struct kvt_catalog {
    pthread_mutex_t mutex;
    bool made, named;
    struct kvt_catalog_head head;
    struct record records[RECORDS_MAX];
    uint32_t record_count;
    uint64_t seq_last;
    /* What the next commits answer. */
    kvt_status answer;
    uint32_t answers;
    bool done_all_the_same; /* and was carried out nevertheless */
};

static struct kvt_catalog the_catalog = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static void catalog_reset(void)
{
    the_catalog.made = the_catalog.named = false;
    the_catalog.record_count = 0;
    the_catalog.seq_last = 0;
    the_catalog.answers = 0;
    the_catalog.done_all_the_same = false;
}

static void catalog_answers(kvt_status answer, uint32_t times)
{
    (void)pthread_mutex_lock(&the_catalog.mutex);
    the_catalog.answer = answer;
    the_catalog.answers = times;
    (void)pthread_mutex_unlock(&the_catalog.mutex);
}

kvt_status kvt_catalog_open(const struct kvt_catalog_config *config, uint64_t timeout_ns,
                            struct kvt_catalog **out_catalog, char *why, size_t why_bytes)
{
    (void)timeout_ns;
    (void)why;
    (void)why_bytes;
    if (!the_catalog.made) {
        the_catalog.made = true;
        the_catalog.head =
            (struct kvt_catalog_head){.version = 1, .page_tokens = config->page_tokens};
        memset(the_catalog.head.id, 0x77, sizeof(the_catalog.head.id));
    }
    *out_catalog = &the_catalog;
    return KVT_OK;
}

void kvt_catalog_close(struct kvt_catalog *catalog) { (void)catalog; }

void kvt_catalog_head(const struct kvt_catalog *catalog, struct kvt_catalog_head *out_head)
{
    *out_head = catalog->head;
}

kvt_status kvt_catalog_set_head(struct kvt_catalog *catalog, const struct kvt_catalog_head *head,
                                uint64_t timeout_ns)
{
    (void)timeout_ns;
    catalog->head = *head;
    return KVT_OK;
}

kvt_status kvt_catalog_load(struct kvt_catalog *catalog, const struct kvt_catalog_visitor *visitor,
                            uint64_t timeout_ns, struct kvt_catalog_load *out_load)
{
    (void)timeout_ns;
    kvt_status status = KVT_OK;
    for (uint32_t i = 0; status == KVT_OK && i < catalog->record_count; i++) {
        status = visitor->on_page(visitor->ctx, &catalog->records[i].page);
    }
    *out_load =
        (struct kvt_catalog_load){.pages = catalog->record_count, .seq_last = catalog->seq_last};
    return status;
}

static void record_delete(struct kvt_catalog *catalog, uint64_t seq)
{
    for (uint32_t i = 0; i < catalog->record_count; i++) {
        if (catalog->records[i].page.seq == seq) {
            catalog->record_count--;
            for (; i < catalog->record_count; i++) {
                catalog->records[i] = catalog->records[i + 1];
                catalog->records[i].page.tokens = catalog->records[i].tokens;
            }
        }
    }
}

static void record_put(struct kvt_catalog *catalog, const struct kvt_catalog_page *page)
{
    EXPECT(page->seq > catalog->seq_last && page->parent < page->seq);
    EXPECT(catalog->record_count < RECORDS_MAX);
    /* A slot is named by one record only, at every time. */
    bool parent_is_in = page->parent == 0;
    for (uint32_t i = 0; i < catalog->record_count; i++) {
        EXPECT(catalog->records[i].page.place.slot != page->place.slot);
        parent_is_in |= catalog->records[i].page.seq == page->parent;
    }
    EXPECT(parent_is_in);
    struct record *record = &catalog->records[catalog->record_count++];
    record->page = *page;
    memcpy(record->tokens, page->tokens, sizeof(record->tokens));
    record->page.tokens = record->tokens;
    catalog->seq_last = page->seq;
}

static void apply(struct kvt_catalog *catalog, const struct kvt_catalog_batch *batch)
{
    for (uint32_t i = 0; i < batch->delete_count; i++) {
        record_delete(catalog, batch->deletes[i]);
    }
    for (uint32_t i = 0; i < batch->page_count; i++) {
        record_put(catalog, &batch->pages[i]);
    }
}

kvt_status kvt_catalog_commit(struct kvt_catalog *catalog, const struct kvt_catalog_batch *batch,
                              uint64_t timeout_ns, int *out_error)
{
    (void)timeout_ns;
    kvt_status status = KVT_OK;
    (void)pthread_mutex_lock(&catalog->mutex);
    bool deletes_only = batch->page_count == 0 && batch->namespace_count == 0;
    if (catalog->answers > 0 && !(catalog->answer == KVT_ERR_LIMIT && deletes_only)) {
        catalog->answers--;
        status = catalog->answer;
        *out_error = status == KVT_ERR_IO ? ENOSPC : 0;
    }
    if (status == KVT_OK || catalog->done_all_the_same) {
        apply(catalog, batch);
    }
    (void)pthread_mutex_unlock(&catalog->mutex);
    return status;
}

void kvt_catalog_stats(struct kvt_catalog *catalog, struct kvt_catalog_stats *out_stats)
{
    (void)catalog;
    *out_stats = (struct kvt_catalog_stats){.alive = true};
}

kvt_status kvt_catalog_walk(struct kvt_catalog *catalog, uint64_t timeout_ns, uint64_t *out_walk_ns,
                            uint64_t *out_records)
{
    (void)timeout_ns;
    *out_walk_ns = 0;
    *out_records = catalog->record_count;
    return KVT_OK;
}

/* ---- what is tested ---- */

static enum kvt_nvme_state state_of(struct nvme_rig *rig)
{
    struct kvt_nvme_stats stats;
    kvt_nvme_stats(rig->nvme, &stats);
    return stats.state;
}

static void pause_ms(long ms)
{
    const struct timespec pause = {ms / 1000, ms % 1000 * 1000000};
    (void)nanosleep(&pause, NULL);
}

static void heal(struct nvme_rig *rig)
{
    for (uint32_t i = 0; i < 600 && state_of(rig) != KVT_NVME_OK; i++) {
        rig->clock_offset_ns += SECOND_NS;
        pause_ms(20);
    }
    EXPECT(state_of(rig) == KVT_NVME_OK);
}

static void start(struct nvme_rig *rig)
{
    catalog_reset();
    kvt_nvme_rig_init(rig, 1, 16 * MIB);
    kvt_nvme_rig_open(rig);
}

/* What the catalog holds is what the model holds, and what the tier says it uses. */
static void finish(struct nvme_rig *rig)
{
    kvt_nvme_rig_check_used(rig);
    uint64_t pages;
    (void)kvt_nvme_rig_held_bytes(rig, &pages);
    ck_assert_uint_eq(the_catalog.record_count, pages);
    kvt_nvme_rig_read_all(rig);
    kvt_nvme_rig_close(rig);
    kvt_nvme_rig_open(rig);
    ck_assert_uint_eq(rig->load.pages, pages);
    kvt_nvme_rig_read_all(rig);
    kvt_nvme_rig_check_used(rig);
    kvt_nvme_rig_close(rig);
    kvt_nvme_rig_fini(rig);
}

static kvt_status chain_write(struct nvme_rig *rig, uint32_t *out_good)
{
    uint32_t numbers[CHAIN];
    for (uint32_t i = 0; i < CHAIN; i++) {
        numbers[i] =
            kvt_nvme_rig_page(rig, i == 0 ? NVME_RIG_NONE : numbers[i - 1], 4096 * (i + 1));
    }
    return kvt_nvme_rig_write(rig, numbers, CHAIN, out_good);
}

/* A commit that failed may have been done: the slots wait until its records are surely gone. */
START_TEST(test_commit_fails)
{
    struct nvme_rig rig;
    uint32_t good;
    start(&rig);
    ck_assert_int_eq(chain_write(&rig, &good), KVT_OK);
    const kvt_status answer = _i % 2 == 0 ? KVT_ERR_IO : KVT_ERR_CORRUPT;
    the_catalog.done_all_the_same = _i >= 2;
    catalog_answers(answer, 1);
    ck_assert_int_eq(chain_write(&rig, &good), answer);
    ck_assert_uint_eq(good, 0);
    ck_assert_int_eq(state_of(&rig), KVT_NVME_READ_ONLY);
    struct kvt_nvme_stats stats;
    kvt_nvme_stats(rig.nvme, &stats);
    ck_assert_uint_eq(stats.slots_dying, CHAIN);
    kvt_nvme_rig_wait_said(&rig, _i % 2 == 0 ? "No space left" : "the catalog is damaged");
    kvt_nvme_rig_read_all(&rig);
    heal(&rig);
    the_catalog.done_all_the_same = false;
    ck_assert_int_eq(chain_write(&rig, &good), KVT_OK);
    finish(&rig);
}
END_TEST

START_TEST(test_catalog_is_full)
{
    struct nvme_rig rig;
    uint32_t good;
    start(&rig);
    ck_assert_int_eq(chain_write(&rig, &good), KVT_OK);
    catalog_answers(KVT_ERR_LIMIT, 1);
    ck_assert_int_eq(chain_write(&rig, &good), KVT_ERR_LIMIT);
    ck_assert_int_eq(state_of(&rig), KVT_NVME_OK);
    struct kvt_place place;
    ck_assert_int_eq(kvt_nvme_reserve(rig.nvme, 4096, &place), KVT_ERR_LIMIT);
    /* With deletes in the same commit, they go first and it is tried once more. */
    kvt_nvme_rig_drop(&rig, CHAIN - 1);
    ck_assert_int_eq(kvt_nvme_flush(rig.nvme, NVME_RIG_WAIT_NS), KVT_OK);
    kvt_nvme_rig_drop(&rig, CHAIN - 2);
    catalog_answers(KVT_ERR_LIMIT, 1);
    kvt_status status = chain_write(&rig, &good);
    ck_assert(status == KVT_OK || status == KVT_ERR_LIMIT);
    catalog_answers(KVT_OK, 0);
    finish(&rig);
}
END_TEST

/* A catalog that does not answer is asked until it does: nothing is lost, reads go on. */
START_TEST(test_catalog_is_away)
{
    struct nvme_rig rig;
    uint32_t good;
    start(&rig);
    ck_assert_int_eq(chain_write(&rig, &good), KVT_OK);
    catalog_answers(_i == 0 ? KVT_ERR_UNAVAILABLE : KVT_ERR_TIMEOUT, UINT32_MAX);
    uint32_t number = kvt_nvme_rig_page(&rig, CHAIN - 1, 5000);
    kvt_status status;
    struct rig_write *write = kvt_nvme_rig_write_start(&rig, &number, 1, &status);
    ck_assert_ptr_nonnull(write);
    kvt_nvme_rig_wait_said(&rig, "nothing is written for now");
    ck_assert_int_eq(state_of(&rig), KVT_NVME_READ_ONLY);
    ck_assert(kvt_nvme_readable(rig.nvme));
    ck_assert(!kvt_nvme_writable(rig.nvme));
    kvt_nvme_rig_read_all(&rig);
    ck_assert_int_eq(kvt_nvme_flush(rig.nvme, SECOND_NS / 20), KVT_ERR_IO);
    catalog_answers(KVT_OK, 0);
    ck_assert_int_eq(kvt_nvme_rig_write_end(write, &good), KVT_OK);
    kvt_nvme_rig_wait_said(&rig, "writing works again");
    finish(&rig);
}
END_TEST

/* Nor does it hold up the end. */
START_TEST(test_close_without_catalog)
{
    struct nvme_rig rig;
    uint32_t good;
    start(&rig);
    ck_assert_int_eq(chain_write(&rig, &good), KVT_OK);
    catalog_answers(KVT_ERR_UNAVAILABLE, UINT32_MAX);
    uint32_t number = kvt_nvme_rig_page(&rig, CHAIN - 1, 5000);
    kvt_status status;
    struct rig_write *write = kvt_nvme_rig_write_start(&rig, &number, 1, &status);
    ck_assert_ptr_nonnull(write);
    kvt_nvme_rig_wait_said(&rig, "nothing is written for now");
    kvt_nvme_close(rig.nvme, SECOND_NS / 10);
    rig.nvme = NULL;
    ck_assert_int_ne(kvt_nvme_rig_write_end(write, &good), KVT_OK);
    catalog_answers(KVT_OK, 0);
    kvt_nvme_rig_open(&rig);
    finish(&rig);
}
END_TEST

START_TEST(test_drop_fails)
{
    struct nvme_rig rig;
    uint32_t good;
    start(&rig);
    ck_assert_int_eq(chain_write(&rig, &good), KVT_OK);
    catalog_answers(KVT_ERR_IO, 1);
    kvt_nvme_rig_drop(&rig, CHAIN - 1);
    ck_assert_int_eq(kvt_nvme_flush(rig.nvme, SECOND_NS / 10), KVT_ERR_IO);
    ck_assert_uint_eq(the_catalog.record_count, CHAIN);
    heal(&rig);
    finish(&rig);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("nvme commits");
    TCase *commits = tcase_create("commits");
    tcase_add_loop_test(commits, test_commit_fails, 0, 4);
    tcase_add_test(commits, test_catalog_is_full);
    tcase_add_loop_test(commits, test_catalog_is_away, 0, 2);
    tcase_add_test(commits, test_close_without_catalog);
    tcase_add_test(commits, test_drop_fails);
    suite_add_tcase(s, commits);
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
