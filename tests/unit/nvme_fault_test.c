/* The NVMe tier when its drive fails, lies, is slow or is full: on every path, and back again. */
#include "cache/tier/store.h"
#include "tests/support/nvme_rig.h"
#include "tests/support/test_expect.h"
#include "tests/support/test_random.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define MIB (1024u * 1024u)
#define SECOND_NS UINT64_C(1000000000)
#define CHAIN 6u

/* A chain of pages of different sizes, so that none of them lies beside another. */
static void chain_make(struct nvme_rig *rig, uint32_t *numbers, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        numbers[i] =
            kvt_nvme_rig_page(rig, i == 0 ? NVME_RIG_NONE : numbers[i - 1], 4096 * (i + 1));
    }
}

static void pause_ms(long ms)
{
    const struct timespec pause = {ms / 1000, ms % 1000 * 1000000};
    (void)nanosleep(&pause, NULL);
}

static enum kvt_nvme_state state_of(struct nvme_rig *rig)
{
    struct kvt_nvme_stats stats;
    kvt_nvme_stats(rig->nvme, &stats);
    return stats.state;
}

/* Lets the clock run until the tier has found out that all is well. */
static void heal(struct nvme_rig *rig)
{
    for (uint32_t i = 0; i < 600 && state_of(rig) != KVT_NVME_OK; i++) {
        rig->clock_offset_ns += SECOND_NS;
        pause_ms(20);
    }
    EXPECT(state_of(rig) == KVT_NVME_OK);
}

static void small_rig(struct nvme_rig *rig)
{
    kvt_nvme_rig_init(rig, 1, 16 * MIB);
    kvt_nvme_rig_open(rig);
}

/* ---- writing ---- */

START_TEST(test_write_error)
{
    static const int errors[] = {EIO, ENOSPC, EROFS};
    struct nvme_rig rig;
    small_rig(&rig);
    bool met = false;
    for (uint64_t k = 1; k <= 2 * CHAIN; k++) {
        struct kvt_io_faults *faults = kvt_nvme_faults(rig.nvme);
        faults->write_error = errors[k % 3];
        faults->flush_error = errors[k % 3];
        faults->fail_after = k;
        uint32_t numbers[CHAIN];
        chain_make(&rig, numbers, CHAIN);
        uint32_t good;
        kvt_status status = kvt_nvme_rig_write(&rig, numbers, CHAIN, &good);
        if (status != KVT_OK) {
            ck_assert_int_eq(status, KVT_ERR_IO);
            ck_assert_uint_lt(good, CHAIN);
            met = true;
            ck_assert_int_eq(state_of(&rig), KVT_NVME_READ_ONLY);
            struct kvt_place place;
            ck_assert_int_eq(kvt_nvme_reserve(rig.nvme, 4096, &place), KVT_ERR_IO);
            ck_assert(!kvt_nvme_may_write(rig.nvme, 4096));
            ck_assert(!kvt_nvme_has_room(rig.nvme, 4096));
            kvt_nvme_rig_wait_said(&rig, "nothing is written for now");
        }
        faults->fail_after = 0;
        faults->write_error = faults->flush_error = 0;
        kvt_nvme_rig_read_all(&rig);
        heal(&rig);
        kvt_nvme_rig_check_used(&rig);
    }
    ck_assert(met);
    kvt_nvme_rig_wait_said(&rig, "writing works again");
    kvt_nvme_rig_close(&rig);
    kvt_nvme_rig_open(&rig);
    kvt_nvme_rig_read_all(&rig);
    kvt_nvme_rig_check_used(&rig);
    kvt_nvme_rig_close(&rig);
    kvt_nvme_rig_fini(&rig);
}
END_TEST

/* Pages whose parent did not make it are not written either, in later batches too. */
START_TEST(test_lost_parent)
{
    struct nvme_rig rig;
    small_rig(&rig);
    uint32_t first[3];
    uint32_t second[3];
    chain_make(&rig, first, 3);
    for (uint32_t i = 0; i < 3; i++) {
        second[i] = kvt_nvme_rig_page(&rig, i == 0 ? first[2] : second[i - 1], 20000);
    }
    struct kvt_io_faults *faults = kvt_nvme_faults(rig.nvme);
    faults->hold = true;
    kvt_status status;
    struct rig_write *one = kvt_nvme_rig_write_start(&rig, first, 3, &status);
    struct rig_write *two = kvt_nvme_rig_write_start(&rig, second, 3, &status);
    ck_assert(one != NULL && two != NULL);
    faults->flush_error = EIO;
    faults->hold = false;
    uint32_t good;
    ck_assert_int_eq(kvt_nvme_rig_write_end(one, &good), KVT_ERR_IO);
    ck_assert_uint_eq(good, 0);
    faults->flush_error = 0;
    ck_assert_int_eq(kvt_nvme_rig_write_end(two, &good), KVT_ERR_IO);
    ck_assert_uint_eq(good, 0);
    heal(&rig);
    kvt_nvme_rig_check_used(&rig);
    kvt_nvme_rig_close(&rig);
    kvt_nvme_rig_open(&rig);
    ck_assert_uint_eq(rig.load.pages, 0);
    kvt_nvme_rig_close(&rig);
    kvt_nvme_rig_fini(&rig);
}
END_TEST

START_TEST(test_flush_times_out)
{
    struct nvme_rig rig;
    small_rig(&rig);
    struct kvt_io_faults *faults = kvt_nvme_faults(rig.nvme);
    faults->hold = true;
    uint32_t numbers[2];
    chain_make(&rig, numbers, 2);
    kvt_status status;
    struct rig_write *write = kvt_nvme_rig_write_start(&rig, numbers, 2, &status);
    ck_assert_ptr_nonnull(write);
    ck_assert_int_eq(kvt_nvme_flush(rig.nvme, SECOND_NS / 20), KVT_ERR_TIMEOUT);
    /* A drive that says nothing for long is taken for one that fails. */
    rig.clock_offset_ns += 40 * SECOND_NS;
    kvt_nvme_rig_wait_said(&rig, "a write hangs");
    faults->hold = false;
    uint32_t good;
    ck_assert_int_eq(kvt_nvme_rig_write_end(write, &good), KVT_OK);
    heal(&rig);
    kvt_nvme_rig_check_used(&rig);
    kvt_nvme_rig_close(&rig);
    kvt_nvme_rig_fini(&rig);
}
END_TEST

/* ---- reading ---- */

START_TEST(test_read_error)
{
    struct nvme_rig rig;
    small_rig(&rig);
    uint32_t numbers[CHAIN];
    uint32_t good;
    chain_make(&rig, numbers, CHAIN);
    ck_assert_int_eq(kvt_nvme_rig_write(&rig, numbers, CHAIN, &good), KVT_OK);
    struct kvt_io_faults *faults = kvt_nvme_faults(rig.nvme);
    uint32_t met = 0;
    for (uint64_t k = 1; k <= 4 * CHAIN; k++) {
        /* The k-th operation may also be one of pre-writing. */
        faults->read_error = EIO;
        faults->fail_after = 1 + k % CHAIN;
        kvt_status status = kvt_nvme_rig_read(&rig, numbers, CHAIN, &good);
        ck_assert(status == KVT_OK || (status == KVT_ERR_IO && good == CHAIN - 1));
        met += status != KVT_OK;
        faults->fail_after = 0;
        faults->read_error = 0;
        ck_assert_int_eq(state_of(&rig), KVT_NVME_OK);
        ck_assert_int_eq(kvt_nvme_rig_read(&rig, numbers, CHAIN, &good), KVT_OK);
    }
    ck_assert_uint_gt(met, 0);
    /* All of them: the tier is off, and comes back by itself. */
    faults->read_error = EIO;
    for (uint32_t i = 0; i < 2 && state_of(&rig) == KVT_NVME_OK; i++) {
        ck_assert_int_eq(kvt_nvme_rig_read(&rig, numbers, CHAIN, &good), KVT_ERR_IO);
        ck_assert_uint_eq(good, 0);
    }
    ck_assert_int_eq(state_of(&rig), KVT_NVME_OFF);
    kvt_nvme_rig_wait_said(&rig, "off for now");
    ck_assert_int_eq(kvt_nvme_rig_read(&rig, numbers, CHAIN, &good), KVT_ERR_IO);
    faults->read_error = 0;
    heal(&rig);
    kvt_nvme_rig_wait_said(&rig, "reading works again");
    kvt_nvme_rig_read_all(&rig);
    kvt_nvme_rig_close(&rig);
    kvt_nvme_rig_fini(&rig);
}
END_TEST

START_TEST(test_read_late)
{
    struct nvme_rig rig;
    kvt_nvme_rig_init(&rig, 1, 16 * MIB);
    rig.config.read_late_ns = SECOND_NS / 20;
    kvt_nvme_rig_open(&rig);
    uint32_t numbers[CHAIN];
    uint32_t good;
    chain_make(&rig, numbers, CHAIN);
    ck_assert_int_eq(kvt_nvme_rig_write(&rig, numbers, CHAIN, &good), KVT_OK);
    struct kvt_io_faults *faults = kvt_nvme_faults(rig.nvme);
    faults->hold = true;
    kvt_status status;
    struct rig_read *read = kvt_nvme_rig_read_start(&rig, numbers, CHAIN, &status);
    ck_assert_ptr_nonnull(read);
    kvt_nvme_rig_read_wait_done(read);
    ck_assert(read->read.late);
    ck_assert_int_eq(read->read.status, KVT_ERR_TIMEOUT);
    ck_assert(!read->released);
    /* It is dropped while the kernel still has it: the slot stays until that is through. */
    for (uint32_t i = CHAIN; i-- > 0;) {
        kvt_nvme_rig_drop(&rig, numbers[i]);
    }
    ck_assert_int_eq(kvt_nvme_flush(rig.nvme, NVME_RIG_WAIT_NS), KVT_OK);
    struct kvt_nvme_stats stats;
    kvt_nvme_stats(rig.nvme, &stats);
    ck_assert_uint_eq(stats.slots_reading, CHAIN);
    ck_assert_uint_eq(stats.slots_dying, CHAIN);
    ck_assert_uint_gt(stats.bytes_used, 0);
    ck_assert_uint_eq(stats.pages, 0);
    faults->hold = false;
    ck_assert_int_eq(kvt_nvme_rig_read_end(read, &good), KVT_ERR_TIMEOUT);
    ck_assert_uint_eq(good, 0);
    kvt_nvme_rig_check_used(&rig);
    kvt_nvme_stats(rig.nvme, &stats);
    ck_assert_uint_eq(stats.bytes_used, 0);
    ck_assert_uint_eq(stats.reads_late, 1);
    kvt_nvme_rig_close(&rig);
    kvt_nvme_rig_fini(&rig);
}
END_TEST

START_TEST(test_reads_late_in_a_row)
{
    struct nvme_rig rig;
    kvt_nvme_rig_init(&rig, 1, 16 * MIB);
    rig.config.read_late_ns = SECOND_NS / 50;
    kvt_nvme_rig_open(&rig);
    uint32_t number = kvt_nvme_rig_page(&rig, NVME_RIG_NONE, 4096);
    uint32_t good;
    ck_assert_int_eq(kvt_nvme_rig_write(&rig, &number, 1, &good), KVT_OK);
    struct kvt_io_faults *faults = kvt_nvme_faults(rig.nvme);
    faults->hold = true;
    struct rig_read *reads[8];
    for (uint32_t i = 0; i < 8; i++) {
        kvt_status status;
        reads[i] = kvt_nvme_rig_read_start(&rig, &number, 1, &status);
        ck_assert_ptr_nonnull(reads[i]);
    }
    for (uint32_t i = 0; i < 8; i++) {
        kvt_nvme_rig_read_wait_done(reads[i]);
    }
    kvt_nvme_rig_wait_said(&rig, "do not come back in time");
    ck_assert_int_eq(state_of(&rig), KVT_NVME_OFF);
    faults->hold = false;
    for (uint32_t i = 0; i < 8; i++) {
        (void)kvt_nvme_rig_read_end(reads[i], &good);
    }
    heal(&rig);
    /* The control: in time, it reads. */
    kvt_nvme_close(rig.nvme, NVME_RIG_WAIT_NS);
    rig.config.read_late_ns = 0;
    kvt_nvme_rig_open(&rig);
    kvt_nvme_rig_read_all(&rig);
    kvt_nvme_rig_close(&rig);
    kvt_nvme_rig_fini(&rig);
}
END_TEST

/* ---- content ---- */

static void data_read(const struct nvme_rig *rig, uint32_t number, uint64_t at, void *bytes,
                      size_t count)
{
    char path[2 * NVME_RIG_PATH_BYTES];
    uint64_t offset = kvt_nvme_rig_offset(rig, number, path, sizeof(path)) + at;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    EXPECT(fd >= 0 && pread(fd, bytes, count, (off_t)offset) == (ssize_t)count);
    EXPECT(close(fd) == 0);
}

static void data_write(const struct nvme_rig *rig, uint32_t number, uint64_t at, const void *bytes,
                       size_t count)
{
    char path[2 * NVME_RIG_PATH_BYTES];
    uint64_t offset = kvt_nvme_rig_offset(rig, number, path, sizeof(path)) + at;
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    EXPECT(fd >= 0 && pwrite(fd, bytes, count, (off_t)offset) == (ssize_t)count);
    EXPECT(fdatasync(fd) == 0 && close(fd) == 0);
}

START_TEST(test_bit_flips)
{
    struct nvme_rig rig;
    kvt_nvme_rig_init(&rig, 2, 16 * MIB);
    kvt_nvme_rig_open(&rig);
    struct test_random random = test_random_start("bit flips", 77);
    uint32_t numbers[24];
    for (uint32_t i = 0; i < 24; i++) {
        numbers[i] = kvt_nvme_rig_page(&rig, NVME_RIG_NONE, 1 + test_random_below(&random, 60000));
    }
    uint32_t good;
    ck_assert_int_eq(kvt_nvme_rig_write(&rig, numbers, 24, &good), KVT_OK);
    uint32_t flips = 24 + (uint32_t)test_scaled(400);
    for (uint32_t k = 0; k < flips; k++) {
        uint32_t number = numbers[k % 24];
        uint32_t at = test_random_below(&random, rig.pages[number].bytes);
        unsigned char byte;
        data_read(&rig, number, at, &byte, 1);
        unsigned char flipped = (unsigned char)(byte ^ (1u << test_random_below(&random, 8)));
        data_write(&rig, number, at, &flipped, 1);
        ck_assert_int_eq(kvt_nvme_rig_read(&rig, &number, 1, &good), KVT_ERR_CORRUPT);
        ck_assert_uint_eq(good, 0);
        /* The control: what is as it was reads well. */
        data_write(&rig, number, at, &byte, 1);
        ck_assert_int_eq(kvt_nvme_rig_read(&rig, &number, 1, &good), KVT_OK);
    }
    kvt_nvme_rig_wait_said(&rig, "failed their check");
    struct kvt_nvme_stats stats;
    kvt_nvme_stats(rig.nvme, &stats);
    ck_assert_uint_eq(stats.checksum_failures, flips);
    ck_assert_uint_eq(stats.slots_bad, 24);
    /* Set aside: dropped, they still take their room, until the store is opened anew. */
    for (uint32_t i = 0; i < 24; i++) {
        kvt_nvme_rig_drop(&rig, numbers[i]);
    }
    ck_assert_int_eq(kvt_nvme_flush(rig.nvme, NVME_RIG_WAIT_NS), KVT_OK);
    kvt_nvme_stats(rig.nvme, &stats);
    ck_assert_uint_eq(stats.pages, 0);
    ck_assert_uint_gt(stats.bytes_used, 0);
    kvt_nvme_rig_close(&rig);
    kvt_nvme_rig_open(&rig);
    kvt_nvme_rig_check_used(&rig);
    kvt_nvme_stats(rig.nvme, &stats);
    ck_assert_uint_eq(stats.bytes_used, 0);
    kvt_nvme_rig_close(&rig);
    kvt_nvme_rig_fini(&rig);
}
END_TEST

/* Valid bytes of another page, in the wrong place: a write that went astray. */
START_TEST(test_misplaced)
{
    struct nvme_rig rig;
    small_rig(&rig);
    uint32_t numbers[2] = {kvt_nvme_rig_page(&rig, NVME_RIG_NONE, 8192),
                           kvt_nvme_rig_page(&rig, NVME_RIG_NONE, 8192)};
    uint32_t good;
    ck_assert_int_eq(kvt_nvme_rig_write(&rig, numbers, 2, &good), KVT_OK);
    unsigned char bytes[8192];
    data_read(&rig, numbers[0], 0, bytes, sizeof(bytes));
    ck_assert(kvt_nvme_rig_is(numbers[0], bytes, sizeof(bytes)));
    data_write(&rig, numbers[1], 0, bytes, sizeof(bytes));
    ck_assert_int_eq(kvt_nvme_rig_read(&rig, numbers, 2, &good), KVT_ERR_CORRUPT);
    ck_assert_uint_eq(good, 1);
    kvt_nvme_rig_close(&rig);
    kvt_nvme_rig_fini(&rig);
}
END_TEST

/* What lies behind the page in its slot is nobody's. */
START_TEST(test_padding)
{
    struct nvme_rig rig;
    small_rig(&rig);
    uint32_t number = kvt_nvme_rig_page(&rig, NVME_RIG_NONE, 5000);
    uint32_t good;
    ck_assert_int_eq(kvt_nvme_rig_write(&rig, &number, 1, &good), KVT_OK);
    data_write(&rig, number, 5000, "x", 1);
    ck_assert_int_eq(kvt_nvme_rig_read(&rig, &number, 1, &good), KVT_OK);
    data_write(&rig, number, 4999, "x", 1);
    ck_assert_int_eq(kvt_nvme_rig_read(&rig, &number, 1, &good), KVT_ERR_CORRUPT);
    kvt_nvme_rig_close(&rig);
    kvt_nvme_rig_fini(&rig);
}
END_TEST

/* A data file that somebody cuts: an error, not the end. */
START_TEST(test_cut)
{
    struct nvme_rig rig;
    small_rig(&rig);
    uint32_t numbers[CHAIN];
    uint32_t good;
    chain_make(&rig, numbers, CHAIN);
    ck_assert_int_eq(kvt_nvme_rig_write(&rig, numbers, CHAIN, &good), KVT_OK);
    char path[2 * NVME_RIG_PATH_BYTES];
    (void)kvt_nvme_rig_offset(&rig, numbers[0], path, sizeof(path));
    ck_assert_int_eq(truncate(path, 100), 0);
    kvt_status status = kvt_nvme_rig_read(&rig, numbers, CHAIN, &good);
    ck_assert(status == KVT_ERR_IO || status == KVT_ERR_CORRUPT);
    ck_assert_uint_eq(good, 0);
    kvt_nvme_rig_close(&rig);
    kvt_nvme_rig_open(&rig);
    ck_assert(kvt_nvme_rig_said(&rig, "was cut"));
    ck_assert_uint_eq(rig.load.pages, CHAIN);
    ck_assert_int_eq(kvt_nvme_rig_read(&rig, numbers, CHAIN, &good), KVT_ERR_CORRUPT);
    ck_assert_uint_eq(good, 0);
    kvt_nvme_rig_close(&rig);
    kvt_nvme_rig_fini(&rig);
}
END_TEST

/* ---- slow, short, out of order ---- */

START_TEST(test_rough_kernel)
{
    struct nvme_rig rig;
    kvt_nvme_rig_init(&rig, 2, 16 * MIB);
    rig.config.threads_only = _i % 2 != 0;
    kvt_nvme_rig_open(&rig);
    struct kvt_io_faults *faults = kvt_nvme_faults(rig.nvme);
    faults->short_bytes = 4096 * 3;
    faults->eagain_every = 3;
    faults->reorder = true;
    faults->delay_ns = 200000;
    struct test_random random = test_random_start("rough", 5 + (uint64_t)_i);
    for (uint64_t round = 0; round < test_scaled(20); round++) {
        uint32_t numbers[8];
        for (uint32_t i = 0; i < 8; i++) {
            numbers[i] = kvt_nvme_rig_page(&rig, i == 0 ? NVME_RIG_NONE : numbers[i - 1],
                                           1 + test_random_below(&random, 30000));
        }
        uint32_t good;
        ck_assert_int_eq(kvt_nvme_rig_write(&rig, numbers, 8, &good), KVT_OK);
        ck_assert_int_eq(kvt_nvme_rig_read(&rig, numbers, 8, &good), KVT_OK);
        for (uint32_t i = 8; round % 4 != 0 && i-- > 0;) {
            kvt_nvme_rig_drop(&rig, numbers[i]);
        }
    }
    kvt_nvme_rig_read_all(&rig);
    kvt_nvme_rig_check_used(&rig);
    kvt_nvme_rig_close(&rig);
    kvt_nvme_rig_open(&rig);
    kvt_nvme_rig_read_all(&rig);
    kvt_nvme_rig_close(&rig);
    kvt_nvme_rig_fini(&rig);
}
END_TEST

/* Closed while reads and writes are under way: each of them ends, once. */
START_TEST(test_close_under_way)
{
    struct nvme_rig rig;
    small_rig(&rig);
    uint32_t numbers[2];
    uint32_t good;
    chain_make(&rig, numbers, 2);
    ck_assert_int_eq(kvt_nvme_rig_write(&rig, numbers, 2, &good), KVT_OK);
    struct kvt_io_faults *faults = kvt_nvme_faults(rig.nvme);
    faults->delay_ns = SECOND_NS / 10;
    kvt_status status;
    struct rig_read *read = kvt_nvme_rig_read_start(&rig, numbers, 2, &status);
    uint32_t more = kvt_nvme_rig_page(&rig, numbers[1], 70000);
    struct rig_write *write = kvt_nvme_rig_write_start(&rig, &more, 1, &status);
    ck_assert(read != NULL && write != NULL);
    kvt_nvme_close(rig.nvme, _i == 0 ? 0 : NVME_RIG_WAIT_NS);
    rig.nvme = NULL;
    ck_assert(read->done && read->released && write->done);
    (void)kvt_nvme_rig_read_end(read, &good);
    status = kvt_nvme_rig_write_end(write, &good);
    ck_assert(_i == 0 || status == KVT_OK);
    /* Not acknowledged is not the same as not there. */
    rig.pages[more].state = good == 1 ? RIG_PAGE_HELD : RIG_PAGE_WRITING;
    kvt_nvme_rig_open(&rig);
    ck_assert_uint_ge(rig.load.pages, 2 + good);
    kvt_nvme_rig_read_all(&rig);
    kvt_nvme_rig_close(&rig);
    kvt_nvme_rig_fini(&rig);
}
END_TEST

/* ---- the catalog's process ---- */

START_TEST(test_catalog_killed)
{
    struct nvme_rig rig;
    small_rig(&rig);
    struct test_random random = test_random_start("catalog", 9);
    uint32_t before = NVME_RIG_NONE;
    for (uint64_t round = 0; round < test_scaled(4); round++) {
        uint32_t numbers[16];
        for (uint32_t i = 0; i < 16; i++) {
            numbers[i] = kvt_nvme_rig_page(&rig, i == 0 ? before : numbers[i - 1], 4096);
        }
        struct kvt_nvme_stats stats;
        kvt_nvme_stats(rig.nvme, &stats);
        kvt_status status = KVT_OK;
        struct rig_write *write = kvt_nvme_rig_write_start(&rig, numbers, 16, &status);
        ck_assert_ptr_nonnull(write);
        if (stats.catalog.pid > 0) {
            pause_ms((long)test_random_below(&random, 3));
            (void)kill(stats.catalog.pid, SIGKILL);
        }
        if (before != NVME_RIG_NONE) {
            uint32_t good;
            ck_assert_int_eq(kvt_nvme_rig_read(&rig, &before, 1, &good), KVT_OK);
        }
        uint32_t good;
        ck_assert_int_eq(kvt_nvme_rig_write_end(write, &good), KVT_OK);
        heal(&rig);
        before = numbers[15];
    }
    kvt_nvme_rig_check_used(&rig);
    kvt_nvme_rig_close(&rig);
    kvt_nvme_rig_open(&rig);
    kvt_nvme_rig_read_all(&rig);
    kvt_nvme_rig_check_used(&rig);
    kvt_nvme_rig_close(&rig);
    kvt_nvme_rig_fini(&rig);
}
END_TEST

/* ---- memory ---- */

START_TEST(test_memory_fails_in_open)
{
    struct nvme_rig rig;
    kvt_nvme_rig_init(&rig, 2, 16 * MIB);
    for (uint64_t k = 1;; k++) {
        test_memory_fail(&rig.memory.test, k, _i == 1);
        kvt_status status = kvt_nvme_rig_try_open(&rig);
        bool met = rig.memory.test.failed > 0;
        test_memory_fail(&rig.memory.test, 0, false);
        rig.memory.test.failed = 0;
        if (status != KVT_OK) {
            ck_assert_int_eq(status, KVT_ERR_NOMEM);
            ck_assert_uint_gt(strlen(rig.why), 0);
            ck_assert_uint_eq(rig.memory.test.live_blocks, 0);
            continue;
        }
        kvt_nvme_rig_load(&rig);
        kvt_nvme_rig_close(&rig);
        if (!met) {
            break;
        }
    }
    kvt_nvme_rig_fini(&rig);
}
END_TEST

START_TEST(test_memory_fails_at_work)
{
    struct nvme_rig rig;
    small_rig(&rig);
    uint32_t first = kvt_nvme_rig_page(&rig, NVME_RIG_NONE, 4096);
    uint32_t good;
    ck_assert_int_eq(kvt_nvme_rig_write(&rig, &first, 1, &good), KVT_OK);
    bool all = false;
    for (uint64_t k = 1; !all; k++) {
        uint32_t numbers[CHAIN];
        chain_make(&rig, numbers, CHAIN);
        test_memory_fail(&rig.memory.test, k, false);
        kvt_status wrote = kvt_nvme_rig_write(&rig, numbers, CHAIN, &good);
        kvt_status read = kvt_nvme_rig_read(&rig, &first, 1, &good);
        for (uint32_t i = CHAIN; i-- > 0;) {
            if (rig.pages[numbers[i]].state == RIG_PAGE_HELD) {
                kvt_nvme_rig_drop(&rig, numbers[i]);
            }
        }
        kvt_status flushed = kvt_nvme_flush(rig.nvme, NVME_RIG_WAIT_NS);
        ck_assert(flushed == KVT_OK || flushed == KVT_ERR_IO);
        all = rig.memory.test.fail_at > 0;
        test_memory_fail(&rig.memory.test, 0, false);
        ck_assert(wrote == KVT_OK || wrote == KVT_ERR_NOMEM || wrote == KVT_ERR_IO);
        ck_assert(read == KVT_OK || read == KVT_ERR_NOMEM);
        heal(&rig);
        kvt_nvme_rig_check_used(&rig);
    }
    kvt_nvme_rig_read_all(&rig);
    kvt_nvme_rig_close(&rig);
    kvt_nvme_rig_open(&rig);
    kvt_nvme_rig_read_all(&rig);
    kvt_nvme_rig_check_used(&rig);
    kvt_nvme_rig_close(&rig);
    kvt_nvme_rig_fini(&rig);
}
END_TEST

/* The load ends early, or does not find memory: nothing that is on the drive is written over. */
START_TEST(test_load_ends)
{
    struct nvme_rig rig;
    kvt_nvme_rig_init(&rig, 1, 8 * MIB);
    kvt_nvme_rig_open(&rig);
    uint32_t numbers[64];
    for (uint32_t i = 0; i < 64; i++) {
        numbers[i] = kvt_nvme_rig_page(&rig, i == 0 ? NVME_RIG_NONE : numbers[i - 1], 40000);
    }
    uint32_t good;
    ck_assert_int_eq(kvt_nvme_rig_write(&rig, numbers, 64, &good), KVT_OK);
    kvt_nvme_rig_close(&rig);
    rig.load_answer = _i == 0 ? KVT_ERR_NOMEM : KVT_ERR_LIMIT;
    rig.load_answer_at = 10;
    kvt_nvme_rig_open(&rig);
    for (uint32_t i = 10; i < 64; i++) {
        rig.pages[numbers[i]].state = RIG_PAGE_LOST;
    }
    rig.pages[numbers[9]].children = 0;
    kvt_nvme_rig_read_all(&rig);
    /* New pages until it is full, and more: those that nobody took over make room. */
    uint32_t wrote = 0;
    for (uint32_t i = 0; i < 400 && wrote < 120; i++) {
        uint32_t number = kvt_nvme_rig_page(&rig, NVME_RIG_NONE, 40000);
        kvt_status status = kvt_nvme_rig_write(&rig, &number, 1, &good);
        ck_assert(status == KVT_OK || status == KVT_ERR_LIMIT);
        if (status != KVT_OK) {
            rig.pages[number].state = RIG_PAGE_LOST;
            ck_assert_int_eq(kvt_nvme_flush(rig.nvme, NVME_RIG_WAIT_NS), KVT_OK);
        }
        wrote += good;
    }
    ck_assert_uint_eq(wrote, 120);
    kvt_nvme_rig_read_all(&rig);
    kvt_nvme_rig_close(&rig);
    rig.load_answer = KVT_OK;
    kvt_nvme_rig_open(&rig);
    kvt_nvme_rig_read_all(&rig);
    kvt_nvme_rig_check_used(&rig);
    kvt_nvme_rig_close(&rig);
    kvt_nvme_rig_fini(&rig);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("nvme faults");
    TCase *io = tcase_create("io");
    tcase_add_test(io, test_write_error);
    tcase_add_test(io, test_lost_parent);
    tcase_add_test(io, test_flush_times_out);
    tcase_add_test(io, test_read_error);
    tcase_add_test(io, test_read_late);
    tcase_add_test(io, test_reads_late_in_a_row);
    tcase_add_loop_test(io, test_rough_kernel, 0, 2);
    tcase_add_loop_test(io, test_close_under_way, 0, 2);
    suite_add_tcase(s, io);
    TCase *content = tcase_create("content");
    tcase_add_test(content, test_bit_flips);
    tcase_add_test(content, test_misplaced);
    tcase_add_test(content, test_padding);
    tcase_add_test(content, test_cut);
    suite_add_tcase(s, content);
    TCase *around = tcase_create("around");
    tcase_add_test(around, test_catalog_killed);
    tcase_add_loop_test(around, test_memory_fails_in_open, 0, 2);
    tcase_add_test(around, test_memory_fails_at_work);
    tcase_add_loop_test(around, test_load_ends, 0, 2);
    suite_add_tcase(s, around);
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
