/*
 * Owners of a store that are killed in the middle of their work: what was acknowledged is there
 * afterwards, what is there verifies, and no slot is lost.
 *
 * The owner is a child; its model lies in memory that the parent shares, and says of each page what
 * the owner was told before it died.
 */
#include "tests/support/nvme_rig.h"
#include "tests/support/test_expect.h"
#include "tests/support/test_random.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MIB (1024u * 1024u)
#define PAGES_MAX 200000u
#define WRITES 3u
#define BATCH 8u

struct shared {
    _Atomic uint32_t page_count;
    _Atomic uint32_t rounds; /* of work that the owner did */
    _Atomic bool open;
    struct rig_page pages[PAGES_MAX];
};

static struct shared *shared_make(void)
{
    void *ptr = mmap(NULL, sizeof(struct shared), PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    EXPECT(ptr != MAP_FAILED);
    return ptr;
}

static uint32_t page_new(struct nvme_rig *rig, struct shared *shared, uint32_t parent,
                         uint32_t bytes)
{
    EXPECT(rig->page_count < PAGES_MAX);
    uint32_t number = kvt_nvme_rig_page(rig, parent, bytes);
    shared->page_count = rig->page_count;
    return number;
}

static uint32_t some_held(const struct nvme_rig *rig, struct test_random *random)
{
    uint32_t recent = rig->page_count < 400 ? rig->page_count : 400;
    for (uint32_t i = 0; i < 20 && recent > 0; i++) {
        uint32_t number = rig->page_count - 1 - test_random_below(random, recent);
        if (rig->pages[number].state == RIG_PAGE_HELD) {
            return number;
        }
    }
    return NVME_RIG_NONE;
}

static struct rig_write *owner_write(struct nvme_rig *rig, struct shared *shared,
                                     struct test_random *random)
{
    uint32_t numbers[BATCH];
    for (uint32_t i = 0; i < BATCH; i++) {
        uint32_t parent = i > 0 ? numbers[i - 1] : some_held(rig, random);
        numbers[i] = page_new(rig, shared, parent, 1 + test_random_below(random, 60000));
    }
    kvt_status status;
    struct rig_write *write = kvt_nvme_rig_write_start(rig, numbers, BATCH, &status);
    for (uint32_t i = write != NULL ? write->write.page_count : 0; i < BATCH; i++) {
        rig->pages[numbers[i]].state = RIG_PAGE_LOST;
    }
    return write;
}

/* What nobody continues and nobody is about to continue. */
static void owner_drop(struct nvme_rig *rig, struct test_random *random, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        uint32_t number = test_random_below(random, rig->page_count);
        if (rig->pages[number].state == RIG_PAGE_HELD && rig->pages[number].children == 0) {
            kvt_nvme_rig_drop(rig, number);
        }
    }
}

/* Works until it is killed. */
static _Noreturn void owner(struct nvme_rig *rig, struct shared *shared, uint64_t seed)
{
    struct test_random random = {seed};
    kvt_nvme_rig_open(rig);
    shared->open = true;
    for (;;) {
        struct rig_write *writes[WRITES];
        for (uint32_t i = 0; i < WRITES; i++) {
            writes[i] = owner_write(rig, shared, &random);
        }
        for (uint32_t i = 0; i < WRITES; i++) {
            uint32_t good;
            if (writes[i] != NULL) {
                (void)kvt_nvme_rig_write_end(writes[i], &good);
            }
        }
        struct kvt_nvme_stats stats;
        kvt_nvme_stats(rig->nvme, &stats);
        bool full = stats.bytes_used > stats.bytes_budget / 2;
        owner_drop(rig, &random, full ? 400 : 20);
        shared->rounds++;
    }
}

/* After the owner's death: what may have happened, did or did not. */
static void model_settle(struct nvme_rig *rig)
{
    for (uint32_t i = 0; i < rig->page_count; i++) {
        struct rig_page *page = &rig->pages[i];
        page->children = 0;
        page->state = page->seen ? RIG_PAGE_HELD : RIG_PAGE_LOST;
        if (page->seen && page->parent != NVME_RIG_NONE) {
            EXPECT(rig->pages[page->parent].seen);
            rig->pages[page->parent].children++;
        }
    }
}

static void pause_us(uint32_t us)
{
    const struct timespec pause = {us / 1000000, (long)(us % 1000000) * 1000};
    (void)nanosleep(&pause, NULL);
}

START_TEST(test_kill)
{
    struct nvme_rig rig;
    struct shared *shared = shared_make();
    struct test_random random = test_random_start("kill", 31 + (uint64_t)_i);
    kvt_nvme_rig_init(&rig, 2, 24 * MIB);
    rig.config.threads_only = _i == 1;
    rig.pages = shared->pages;
    rig.page_capacity = PAGES_MAX;
    uint64_t kills = test_scaled(50);
    uint64_t pages_found = 0;
    for (uint64_t i = 0; i < kills; i++) {
        pid_t child = fork();
        EXPECT(child >= 0);
        if (child == 0) {
            owner(&rig, shared, test_random_u64(&random) + i);
        }
        while (!shared->open) {
            pause_us(200);
        }
        pause_us(test_random_below(&random, 60000));
        EXPECT(kill(child, SIGKILL) == 0);
        EXPECT(waitpid(child, NULL, 0) == child);
        shared->open = false;
        rig.page_count = shared->page_count;
        kvt_nvme_rig_open(&rig);
        EXPECT(rig.load_refused == 0);
        model_settle(&rig);
        kvt_nvme_rig_read_all(&rig);
        kvt_nvme_rig_check_used(&rig);
        pages_found += rig.load.pages;
        kvt_nvme_rig_close(&rig);
    }
    (void)printf("%llu kills, %u rounds of work, %u pages written, %llu found\n",
                 (unsigned long long)kills, shared->rounds, rig.page_count,
                 (unsigned long long)pages_found);
    /* The control: work was done. */
    EXPECT(shared->rounds > 0 && pages_found > 0);
    rig.pages = NULL;
    kvt_nvme_rig_fini(&rig);
    EXPECT(munmap(shared, sizeof(*shared)) == 0);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("nvme crash");
    TCase *crash = tcase_create("crash");
    tcase_add_loop_test(crash, test_kill, 0, 2);
    suite_add_tcase(s, crash);
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
