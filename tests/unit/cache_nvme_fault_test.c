/* The nvme tier while things fail: the drive, the bytes on it, the catalog's process, memory, and
 * the folder itself. Never a wrong byte, an exact count, and service when the fault is gone. */
#include "tests/support/cache_nvme_rig.h"
#include "tests/support/test_random.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>

#define VARIANTS 4

/* ---- the drive ---- */

/* After a fault: the tier probes after a second or two, and all is as before. */
static void recovers(struct nvrig *rig, uint64_t seed)
{
    kvt_status status = KVT_ERR_IO;
    for (uint32_t i = 0; i < 400 && status != KVT_OK; i++) {
        status = nvrig_flush(rig);
        if (status != KVT_OK) {
            kvt_rig_sleep(50 * KVT_RIG_MS);
        }
    }
    ck_assert_int_eq(status, KVT_OK);
    NVRIG_WAIT_FOR(rig, now.nvme_state == 1);
    nvrig_put(&rig->engine, seed, 20);
    ck_assert_int_eq(nvrig_flush(rig), KVT_OK);
    nvrig_check(rig);
    nvrig_again(rig);
    ck_assert_uint_eq(nvrig_get(&rig->engine, seed, 20).from[2], 20);
}

/* Conversation 1, of 40 pages, whose first pages only nvme has. */
static void pushed(struct nvrig *rig, int variant)
{
    nvrig_start(rig, variant);
    nvrig_put(&rig->engine, 1, 40);
    nvrig_push_out(rig, 100);
}

START_TEST(reads_fail)
{
    struct nvrig rig;
    pushed(&rig, _i);
    struct kvt_cache_found found = nvrig_lookup(&rig.engine, 0, nvrig_tokens(1), 40);
    uint32_t blocks[80];
    kvt_rig_blocks(blocks, 0, 80);
    nvrig_drive(&rig, KVT_CACHE_DRIVE_READ_ERRNO, EIO);
    uint64_t job = kvt_rig_restore_begin(&rig.engine, found.lease, 0, 40, blocks, NULL);
    struct kvt_cache_result result = kvt_rig_finish(&rig.engine, job);
    ck_assert_int_ne(result.status, KVT_OK);
    /* Exactly what lay in memory in front of the first that did not. */
    uint32_t good = (uint32_t)(result.tokens_good / NVRIG_PAGE_TOKENS);
    ck_assert_uint_eq(result.tier_tokens[2], 0);
    ck_assert_uint_eq(result.tier_tokens[1], result.tokens_good);
    ck_assert_uint_eq(kvt_rig_good_pages(&rig.engine, nvrig_tokens(1), 0, good, blocks), good);
    ck_assert_uint_lt(good, 40);
    kvt_rig_release(&rig.engine, found.lease);
    /* Others go on meanwhile. */
    nvrig_put(&rig.engine, 50, 20);
    ck_assert_uint_eq(nvrig_get(&rig.engine, 50, 20).from[1], 20);
    struct kvt_cache_stats stats = kvt_rig_stats(&rig.cache);
    ck_assert_uint_gt(stats.nvme_read_errors, 0);
    ck_assert_uint_eq(stats.nvme_checksum_failures, 0);
    ck_assert_uint_eq(stats.nvme_lost_pages, 0); /* what cannot be read now may be read later */
    nvrig_drive(&rig, KVT_CACHE_DRIVE_READ_ERRNO, 0);
    NVRIG_WAIT_FOR(&rig, now.nvme_state == 1);
    ck_assert_uint_eq(nvrig_get(&rig.engine, 1, 40).good, 40);
    recovers(&rig, 51);
    nvrig_stop(&rig);
}
END_TEST

START_TEST(reads_off_and_back)
{
    struct nvrig rig;
    pushed(&rig, _i);
    nvrig_drive(&rig, KVT_CACHE_DRIVE_READ_ERRNO, EIO);
    struct kvt_cache_stats stats = kvt_rig_stats(&rig.cache);
    for (uint32_t i = 0; i < 40 && stats.nvme_state != 3; i++) {
        (void)nvrig_get(&rig.engine, 1, 40);
        stats = kvt_rig_stats(&rig.cache);
    }
    ck_assert_uint_eq(stats.nvme_state, 3);
    /* Off: its pages are not promised. */
    struct nvrig_got got = nvrig_get(&rig.engine, 1, 40);
    ck_assert_int_eq(got.status, KVT_OK);
    ck_assert_uint_lt(got.good, 40);
    ck_assert_uint_eq(got.from[2], 0);
    nvrig_drive(&rig, KVT_CACHE_DRIVE_READ_ERRNO, 0);
    NVRIG_WAIT_FOR(&rig, now.nvme_state == 1);
    ck_assert_uint_eq(nvrig_get(&rig.engine, 1, 40).good, 40);
    ck_assert_uint_eq(nvrig_said(&rig, "off for now"), 1);
    recovers(&rig, 51);
    nvrig_stop(&rig);
}
END_TEST

static const struct {
    uint32_t kind;
    uint64_t value;
} write_faults[] = {
    {KVT_CACHE_DRIVE_WRITE_ERRNO, EIO},
    {KVT_CACHE_DRIVE_WRITE_ERRNO, ENOSPC},
    {KVT_CACHE_DRIVE_WRITE_ERRNO, EROFS},
    {KVT_CACHE_DRIVE_FLUSH_ERRNO, EIO},
};

START_TEST(writes_fail)
{
    struct nvrig rig;
    nvrig_start(&rig, _i);
    nvrig_put(&rig.engine, 1, 20);
    ck_assert_int_eq(nvrig_flush(&rig), KVT_OK);
    nvrig_drive(&rig, write_faults[_i].kind, write_faults[_i].value);
    nvrig_put(&rig.engine, 2, 20); /* a save does not see the drive */
    ck_assert_int_eq(nvrig_flush(&rig), KVT_ERR_IO);
    struct kvt_cache_stats stats = kvt_rig_stats(&rig.cache);
    ck_assert_uint_eq(stats.nvme_state, 2);
    ck_assert_uint_gt(stats.nvme_write_errors, 0);
    ck_assert_uint_eq(stats.tier_pages[2], 20);
    ck_assert_uint_eq(nvrig_get(&rig.engine, 2, 20).from[1], 20);
    ck_assert_uint_eq(nvrig_get(&rig.engine, 1, 20).good, 20);
    ck_assert_uint_eq(nvrig_said(&rig, "nothing is written for now"), 1);
    nvrig_check(&rig);
    nvrig_drive(&rig, write_faults[_i].kind, 0);
    recovers(&rig, 3);
    ck_assert_uint_eq(nvrig_get(&rig.engine, 2, 20).from[2], 20); /* it went down later */
    nvrig_stop(&rig);
}
END_TEST

/* Destroyed while nothing can be written: soon, and without what was not. */
START_TEST(destroyed_while_writes_fail)
{
    struct nvrig rig;
    nvrig_start(&rig, _i);
    nvrig_put(&rig.engine, 1, 20);
    ck_assert_int_eq(nvrig_flush(&rig), KVT_OK);
    nvrig_drive(&rig, KVT_CACHE_DRIVE_WRITE_ERRNO, EIO);
    nvrig_put(&rig.engine, 2, 20);
    nvrig_again(&rig);
    ck_assert_uint_eq(nvrig_probe(&rig.engine, 2, 20), 0);
    ck_assert_uint_eq(nvrig_get(&rig.engine, 1, 20).from[2], 20);
    nvrig_stop(&rig);
}
END_TEST

START_TEST(reads_late)
{
    struct nvrig rig;
    nvrig_init(&rig, 1, _i);
    rig.cache.config.read_late_ns = 50 * KVT_RIG_MS;
    nvrig_open(&rig);
    nvrig_put(&rig.engine, 1, 40);
    nvrig_push_out(&rig, 100);
    nvrig_drive(&rig, KVT_CACHE_DRIVE_HOLD, 1);
    struct nvrig_got got = nvrig_get(&rig.engine, 1, 40); /* ends, although nothing does */
    ck_assert_int_ne(got.status, KVT_OK);
    ck_assert_uint_lt(got.good, 40);
    ck_assert_uint_eq(got.from[2], 0);
    ck_assert_uint_gt(kvt_rig_stats(&rig.cache).nvme_reads_late, 0);
    nvrig_put(&rig.engine, 50, 20);
    ck_assert_uint_eq(nvrig_get(&rig.engine, 50, 20).from[1], 20);
    nvrig_drive(&rig, KVT_CACHE_DRIVE_HOLD, 0);
    NVRIG_WAIT_FOR(&rig, now.nvme_state == 1);
    nvrig_check(&rig);
    got = nvrig_get(&rig.engine, 1, 40);
    ck_assert_uint_eq(got.good, 40);
    recovers(&rig, 51);
    nvrig_stop(&rig);
}
END_TEST

static const struct {
    uint32_t kind;
    uint64_t value;
} faults[] = {
    {KVT_CACHE_DRIVE_READ_ERRNO, EIO},       {KVT_CACHE_DRIVE_WRITE_ERRNO, ENOSPC},
    {KVT_CACHE_DRIVE_FLUSH_ERRNO, EIO},      {KVT_CACHE_DRIVE_SHORT_BYTES, 4096},
    {KVT_CACHE_DRIVE_DELAY_NS, 2 * 1000000}, {KVT_CACHE_DRIVE_REORDER, 1},
};
#define FAULTS (sizeof(faults) / sizeof(faults[0]))

/* Each pair (and each by itself) under saves and restores: whatever comes back is right. */
START_TEST(faults_in_pairs)
{
    struct nvrig rig;
    uint32_t a = (uint32_t)_i / FAULTS, b = (uint32_t)_i % FAULTS;
    if (a > b) {
        return;
    }
    pushed(&rig, _i % VARIANTS);
    struct test_random random = test_random_start("faults_in_pairs", (uint64_t)_i + 1);
    nvrig_drive(&rig, faults[a].kind, faults[a].value);
    nvrig_drive(&rig, faults[b].kind, faults[b].value);
    for (uint32_t i = 0; i < 12; i++) {
        uint64_t seed = 100 + test_random_below(&random, 6);
        if (test_random_below(&random, 2) == 0) {
            uint32_t blocks[40];
            const uint32_t *tokens = nvrig_tokens(seed);
            kvt_rig_blocks(blocks, 0, 40);
            kvt_rig_paint(&rig.engine, tokens, 0, 20, blocks);
            struct kvt_cache_result result = kvt_rig_save(&rig.engine, tokens, 320, blocks);
            ck_assert_uint_le(result.tokens_good, 320); /* memory may be full of unwritten pages */
        } else {
            (void)nvrig_get(&rig.engine, seed, 40);
        }
        if (i % 4 == 0) {
            (void)nvrig_flush(&rig);
        }
    }
    nvrig_check(&rig);
    nvrig_drive(&rig, faults[a].kind, 0);
    nvrig_drive(&rig, faults[b].kind, 0);
    recovers(&rig, 51);
    ck_assert_uint_eq(kvt_rig_stats(&rig.cache).nvme_checksum_failures, 0);
    nvrig_stop(&rig);
}
END_TEST

/* ---- the bytes on it ---- */

/* Where a page's first block lies in the data file. */
static off_t find_page(struct nvrig *rig, uint64_t seed, uint32_t page, char *path,
                       size_t path_bytes)
{
    static unsigned char data[NVRIG_STORE_BYTES];
    uint32_t blocks[2] = {0, 1};
    kvt_rig_paint(&rig->engine, nvrig_tokens(seed), page, 1, blocks);
    (void)snprintf(path, path_bytes, "%s/data.kvt", rig->folders[0]);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    EXPECT(fd >= 0);
    size_t bytes = 0;
    ssize_t got = 0;
    while (bytes < sizeof(data) && (got = read(fd, data + bytes, sizeof(data) - bytes)) > 0) {
        bytes += (size_t)got;
    }
    EXPECT(close(fd) == 0);
    for (size_t at = 0; at + 4096 <= bytes; at += 4096) {
        if (memcmp(data + at, rig->engine.memory[0], 1800) == 0) {
            return (off_t)at;
        }
    }
    ck_abort_msg("the page is not in the data file");
    return 0;
}

static void overwrite(const char *path, off_t at, const void *bytes, size_t count)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    EXPECT(fd >= 0 && pwrite(fd, bytes, count, at) == (ssize_t)count);
    EXPECT(fsync(fd) == 0 && close(fd) == 0);
}

/* The page is lost from there on, the rest is good, and saving it again heals. */
static void damaged_at(struct nvrig *rig, uint32_t page)
{
    struct nvrig_got got = nvrig_get(&rig->engine, 1, 40);
    ck_assert_int_ne(got.status, KVT_OK);
    ck_assert_uint_eq(got.good, page);
    struct kvt_cache_stats stats = kvt_rig_stats(&rig->cache);
    ck_assert_uint_ge(stats.nvme_checksum_failures, 1);
    nvrig_check(rig);
    ck_assert_uint_eq(nvrig_probe(&rig->engine, 1, 40), page); /* promised no more */
    ck_assert_int_eq(nvrig_flush(rig), KVT_OK);
    nvrig_put(&rig->engine, 1, 40);
    ck_assert_uint_eq(nvrig_get(&rig->engine, 1, 40).good, 40);
    ck_assert_int_eq(nvrig_flush(rig), KVT_OK);
    nvrig_again(rig);
    ck_assert_uint_eq(nvrig_get(&rig->engine, 1, 40).from[2], 40);
    ck_assert_uint_eq(kvt_rig_stats(&rig->cache).nvme_checksum_failures, 0);
}

START_TEST(flipped_bit)
{
    struct nvrig rig;
    char path[NVRIG_PATH_BYTES + 32];
    nvrig_start(&rig, _i);
    nvrig_put(&rig.engine, 1, 40);
    ck_assert_int_eq(nvrig_flush(&rig), KVT_OK);
    nvrig_again(&rig);
    off_t at = find_page(&rig, 1, 17, path, sizeof(path)) + 5599;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    unsigned char byte = 0;
    ck_assert(fd >= 0 && pread(fd, &byte, 1, at) == 1 && close(fd) == 0);
    byte ^= 0x10;
    overwrite(path, at, &byte, 1);
    damaged_at(&rig, 17);
    nvrig_stop(&rig);
}
END_TEST

START_TEST(another_pages_bytes)
{
    struct nvrig rig;
    char path[NVRIG_PATH_BYTES + 32];
    nvrig_start(&rig, _i);
    nvrig_put(&rig.engine, 1, 40);
    nvrig_put(&rig.engine, 2, 40);
    ck_assert_int_eq(nvrig_flush(&rig), KVT_OK);
    nvrig_again(&rig);
    off_t from = find_page(&rig, 2, 5, path, sizeof(path));
    off_t to = find_page(&rig, 1, 5, path, sizeof(path));
    unsigned char slot[8192];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ck_assert(fd >= 0 && pread(fd, slot, sizeof(slot), from) == (ssize_t)sizeof(slot));
    ck_assert_int_eq(close(fd), 0);
    overwrite(path, to, slot, sizeof(slot));
    ck_assert_uint_eq(nvrig_get(&rig.engine, 2, 40).good, 40); /* the control */
    damaged_at(&rig, 5);
    nvrig_stop(&rig);
}
END_TEST

/* A flush behind a lost page, with other conversations that build on what is before and behind. */
START_TEST(flush_behind_a_lost_page)
{
    struct nvrig rig;
    char path[NVRIG_PATH_BYTES + 32];
    nvrig_start(&rig, _i);
    nvrig_put(&rig.engine, 1, 20);
    ck_assert_int_eq(nvrig_flush(&rig), KVT_OK);
    nvrig_again(&rig);
    unsigned char wrong[64] = {1};
    overwrite(path, find_page(&rig, 1, 10, path, sizeof(path)), wrong, sizeof(wrong));
    /* Pages behind it in two edges, in memory only; what comes before is not computed again. */
    uint32_t blocks[60], tokens[30 * NVRIG_PAGE_TOKENS];
    kvt_rig_blocks(blocks, 0, 60);
    for (uint32_t other = 0; other < 2; other++) {
        memcpy(tokens, nvrig_tokens(1), sizeof(tokens));
        tokens[25 * NVRIG_PAGE_TOKENS] += other;
        kvt_rig_paint(&rig.engine, tokens, 0, 30, blocks);
        struct kvt_cache_save save = {.client = rig.engine.client,
                                      .binding = rig.engine.binding,
                                      .tokens = tokens,
                                      .token_count = 30 * NVRIG_PAGE_TOKENS,
                                      .blocks = blocks,
                                      .block_count = 60,
                                      .valid_from_token = 20 * NVRIG_PAGE_TOKENS,
                                      .stream = rig.engine.stream};
        uint64_t job = 0;
        ck_assert_int_eq(kvt_cache_save(rig.cache.cache, &save, &job), KVT_OK);
        ck_assert_uint_eq(kvt_rig_finish(&rig.engine, job).tokens_good, 480);
    }
    struct nvrig_got got = nvrig_get(&rig.engine, 1, 30);
    ck_assert_uint_eq(got.good, 10);
    ck_assert_int_eq(nvrig_flush(&rig), KVT_OK);
    nvrig_put(&rig.engine, 1, 30);
    ck_assert_int_eq(nvrig_flush(&rig), KVT_OK);
    nvrig_again(&rig);
    ck_assert_uint_eq(nvrig_get(&rig.engine, 1, 30).from[2], 30);
    nvrig_stop(&rig);
}
END_TEST

/* ---- the catalog's process, and the folder ---- */

/* The catalog's process of ours: its pid, 0 when it is not there just now. */
static pid_t catalog_pid(void)
{
    char owner[32];
    (void)snprintf(owner, sizeof(owner), "--owner=%d", (int)getpid());
    DIR *proc = opendir("/proc");
    EXPECT(proc != NULL);
    pid_t found = 0;
    for (struct dirent *entry = readdir(proc); entry != NULL && found == 0; entry = readdir(proc)) {
        char path[64], line[256] = "";
        if (!isdigit((unsigned char)entry->d_name[0])) {
            continue;
        }
        (void)snprintf(path, sizeof(path), "/proc/%.16s/cmdline", entry->d_name);
        FILE *file = fopen(path, "re");
        size_t bytes = file != NULL ? fread(line, 1, sizeof(line) - 1, file) : 0;
        size_t name = strlen(line) + 1; /* the arguments end with a zero each */
        if (name < bytes && strcmp(line + name, owner) == 0) {
            found = (pid_t)strtol(entry->d_name, NULL, 10);
        }
        if (file != NULL) {
            (void)fclose(file);
        }
    }
    (void)closedir(proc);
    return found;
}

START_TEST(catalog_killed)
{
    struct nvrig rig;
    nvrig_start(&rig, _i);
    struct test_random random = test_random_start("catalog_killed", (uint64_t)_i + 1);
    uint32_t kills = 0;
    for (uint32_t i = 0; i < 12; i++) {
        uint64_t seed = 100 + test_random_below(&random, 8);
        uint32_t blocks[40];
        const uint32_t *tokens = nvrig_tokens(seed);
        kvt_rig_blocks(blocks, 0, 40);
        kvt_rig_paint(&rig.engine, tokens, 0, 20, blocks);
        uint64_t job = kvt_rig_save_begin(&rig.engine, tokens, 320, blocks, NULL);
        if (i % 3 == 0) {
            kvt_rig_sleep(test_random_below(&random, 3000000));
            pid_t pid = catalog_pid();
            kills += pid > 0 && kill(pid, SIGKILL) == 0;
        }
        ck_assert_uint_le(kvt_rig_finish(&rig.engine, job).tokens_good, 320);
        (void)nvrig_get(&rig.engine, 100 + test_random_below(&random, 8), 20);
    }
    ck_assert_uint_gt(kills, 0);
    recovers(&rig, 51);
    for (uint64_t seed = 100; seed < 108; seed++) {
        struct nvrig_got got = nvrig_get(&rig.engine, seed, 20);
        ck_assert_int_eq(got.status, KVT_OK);
    }
    nvrig_check(&rig);
    nvrig_stop(&rig);
}
END_TEST

START_TEST(folder_removed)
{
    struct nvrig rig;
    pushed(&rig, _i);
    nvrig_remove(rig.folders[0]);
    for (uint64_t seed = 1; seed < 4; seed++) {
        (void)nvrig_get(&rig.engine, seed, 40);
        uint32_t blocks[40];
        kvt_rig_blocks(blocks, 0, 40);
        kvt_rig_paint(&rig.engine, nvrig_tokens(seed), 0, 20, blocks);
        (void)kvt_rig_save(&rig.engine, nvrig_tokens(seed), 320, blocks);
    }
    nvrig_check(&rig);
    nvrig_close(&rig); /* ends, and leaves nothing behind */
    nvrig_open(&rig);
    ck_assert_uint_eq(kvt_rig_stats(&rig.cache).nvme_loaded_pages, 0);
    nvrig_put(&rig.engine, 1, 10);
    ck_assert_int_eq(nvrig_flush(&rig), KVT_OK);
    nvrig_stop(&rig);
}
END_TEST

/* ---- memory, and fork ---- */

/* A life in which any call may find no memory. True when none did. */
static bool short_life(struct nvrig *rig, uint64_t k)
{
    char why[512] = "";
    kvt_rig_cache_fail(&rig->cache, k, false);
    kvt_status status = kvt_cache_create(&rig->cache.config, &rig->cache.cache, why, sizeof(why));
    bool spent = atomic_load(&rig->cache.fail_at) == 0;
    if (status != KVT_OK) {
        ck_assert_msg(spent, "create answered %s: %s", kvt_status_name(status), why);
        ck_assert_int_eq(atomic_load(&rig->cache.live_blocks), 0);
        return false;
    }
    /* The engine's own calls must succeed: what it needs is not counted. */
    uint64_t left = atomic_load(&rig->cache.fail_at);
    kvt_rig_cache_fail(&rig->cache, 0, false);
    kvt_rig_engine_open(&rig->engine, &rig->cache, &nvrig_shape, "tenant");
    kvt_rig_cache_fail(&rig->cache, left, false);
    uint32_t blocks[40];
    kvt_rig_blocks(blocks, 0, 40);
    for (uint64_t seed = 1; seed < 4; seed++) {
        kvt_rig_paint(&rig->engine, nvrig_tokens(seed), 0, 20, blocks);
        struct kvt_cache_save save = {.client = rig->engine.client,
                                      .binding = rig->engine.binding,
                                      .tokens = nvrig_tokens(seed),
                                      .token_count = 320,
                                      .blocks = blocks,
                                      .block_count = 40,
                                      .stream = rig->engine.stream};
        uint64_t job = 0;
        if (kvt_cache_save(rig->cache.cache, &save, &job) == KVT_OK) {
            (void)kvt_rig_finish(&rig->engine, job);
        }
        struct kvt_cache_found found = nvrig_lookup(&rig->engine, 0, nvrig_tokens(seed), 20);
        uint32_t pages = (uint32_t)(found.matched_tokens / NVRIG_PAGE_TOKENS);
        struct kvt_cache_restore restore = {.client = rig->engine.client,
                                            .binding = rig->engine.binding,
                                            .lease = found.lease,
                                            .token_count = found.matched_tokens,
                                            .blocks = blocks,
                                            .block_count = 2 * (size_t)pages,
                                            .stream = rig->engine.stream};
        kvt_rig_wipe_all(&rig->engine);
        if (pages > 0 && kvt_cache_restore(rig->cache.cache, &restore, &job) == KVT_OK) {
            uint32_t good = (uint32_t)(kvt_rig_finish(&rig->engine, job).tokens_good / 16);
            ck_assert_uint_eq(kvt_rig_good_pages(&rig->engine, nvrig_tokens(seed), 0, good, blocks),
                              good);
        }
        if (found.lease != 0) {
            kvt_rig_release(&rig->engine, found.lease);
        }
        kvt_status flushed = nvrig_flush(rig);
        ck_assert_int_ne(flushed, KVT_ERR_TIMEOUT);
    }
    spent = atomic_load(&rig->cache.fail_at) == 0;
    nvrig_close(rig); /* all memory comes back */
    return !spent;
}

START_TEST(memory_runs_out)
{
    struct nvrig rig;
    nvrig_init(&rig, 1, _i);
    uint64_t k = 1;
    while (!short_life(&rig, k)) {
        k += 1 + k / 16 * test_env_u64("KVT_TEST_SCALE", 1);
        ck_assert_uint_lt(k, 1000000);
    }
    ck_assert_uint_gt(k, 50);
    kvt_rig_cache_fail(&rig.cache, 0, false);
    nvrig_open(&rig);
    ck_assert_uint_eq(nvrig_get(&rig.engine, 1, 20).from[2], 20); /* nothing was harmed by it */
    nvrig_stop(&rig);
}
END_TEST

/* A load that ends early has not seen every namespace: none of their numbers may be given away, or
 * one tenant's pages would be another's after the next start. */
START_TEST(numbers_after_a_short_load)
{
    struct nvrig rig;
    struct kvt_rig_engine other;
    char why[512] = "";
    uint32_t short_loads = 0;
    nvrig_start(&rig, _i);
    nvrig_put(&rig.engine, 1, 20);
    ck_assert_int_eq(nvrig_flush(&rig), KVT_OK);
    nvrig_close(&rig);
    for (uint64_t k = 1; k < 400 && short_loads < 6; k++) {
        kvt_rig_cache_fail(&rig.cache, k, false);
        kvt_status status = kvt_cache_create(&rig.cache.config, &rig.cache.cache, why, sizeof(why));
        kvt_rig_cache_fail(&rig.cache, 0, false);
        if (status != KVT_OK) {
            continue;
        }
        if (kvt_rig_stats(&rig.cache).nvme_loaded_pages == 0) {
            short_loads++;
            nvrig_check(&rig);
            kvt_rig_engine_open(&other, &rig.cache, &nvrig_shape, "other");
            nvrig_put(&other, 2, 10);
            (void)nvrig_flush(&rig);
            kvt_rig_engine_close(&other);
            kvt_rig_cache_close(&rig.cache);
            kvt_rig_cache_open(&rig.cache);
            kvt_rig_engine_open(&other, &rig.cache, &nvrig_shape, "other");
            ck_assert_uint_eq(nvrig_probe(&other, 1, 20), 0);
            kvt_rig_engine_close(&other);
        }
        kvt_rig_cache_close(&rig.cache);
    }
    ck_assert_uint_gt(short_loads, 0);
    nvrig_fini(&rig);
}
END_TEST

START_TEST(forked)
{
    struct nvrig rig;
    pushed(&rig, _i);
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        struct kvt_cache_lookup lookup = {
            .client = rig.engine.client, .tokens = nvrig_tokens(1), .token_count = 641};
        struct kvt_cache_found found;
        kvt_status status = kvt_cache_lookup(rig.cache.cache, &lookup, &found);
        kvt_status flushed = kvt_cache_flush(rig.cache.cache, KVT_RIG_S);
        _exit(status == KVT_ERR_PROCESS && flushed == KVT_ERR_PROCESS ? 0 : 1);
    }
    int status = 0;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    ck_assert_uint_eq(nvrig_get(&rig.engine, 1, 40).good, 40);
    recovers(&rig, 51);
    nvrig_stop(&rig);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("cache_nvme_fault");
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, reads_fail, 0, VARIANTS);
    tcase_add_loop_test(tcase, reads_off_and_back, 0, 2);
    tcase_add_loop_test(tcase, writes_fail, 0,
                        (int)(sizeof(write_faults) / sizeof(write_faults[0])));
    tcase_add_loop_test(tcase, destroyed_while_writes_fail, 0, 2);
    tcase_add_loop_test(tcase, reads_late, 0, VARIANTS);
    tcase_add_loop_test(tcase, faults_in_pairs, 0, (int)(FAULTS * FAULTS));
    tcase_add_loop_test(tcase, flipped_bit, 0, VARIANTS);
    tcase_add_loop_test(tcase, another_pages_bytes, 0, VARIANTS);
    tcase_add_loop_test(tcase, flush_behind_a_lost_page, 0, VARIANTS);
    tcase_add_loop_test(tcase, catalog_killed, 0, VARIANTS);
    tcase_add_loop_test(tcase, folder_removed, 0, VARIANTS);
    tcase_add_loop_test(tcase, memory_runs_out, 0, 2);
    tcase_add_test(tcase, numbers_after_a_short_load);
    tcase_add_loop_test(tcase, forked, 0, 2);
    Suite *suite = suite_create("cache_nvme_fault");
    suite_add_tcase(suite, tcase);
    return nvrig_suite_run(suite);
}
