/*
 * Bits that turn over, and pages that come to lie in another's slot: in the data, in the catalog.
 * Whatever is damaged is a miss and is counted; nothing wrong is ever delivered; nobody dies but
 * the catalog's process.
 */
#include "tests/crash/child.h"
#include "tests/crash/rig.h"

#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/test_random.h"

#define PROMPTS CRASH_PROMPTS_FIT
#define SLOT_ALIGN 4096u
#define FLIPS_A_ROUND 20u
#define PATH_BYTES 400

struct where {
    off_t at[CRASH_PAGES_MAX]; /* of each page in the data file */
};

struct damage {
    off_t at[FLIPS_A_ROUND]; /* slots */
    uint32_t count;
};

static char folder[256], store[PATH_BYTES], copy[PATH_BYTES];
static struct where pages_at[PROMPTS];
static struct test_random seed = {20261201};

static void path_in(char out[PATH_BYTES + 32], const char *name)
{
    (void)snprintf(out, PATH_BYTES + 32, "%s/%s", copy, name);
}

/* ---- the store that everything is done to copies of ---- */

static off_t find_page(const unsigned char *data, size_t bytes, const unsigned char *page)
{
    for (size_t at = 0; at + CRASH_PAGE_BYTES <= bytes; at += SLOT_ALIGN) {
        if (memcmp(data + at, page, CRASH_PAGE_BYTES) == 0) {
            return (off_t)at;
        }
    }
    return -1;
}

static void find_pages(void)
{
    char path[PATH_BYTES + 32];
    (void)snprintf(path, sizeof(path), "%s/data.kvt", store);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat info;
    ck_assert(fd >= 0 && fstat(fd, &info) == 0);
    unsigned char *data = malloc((size_t)info.st_size);
    ck_assert_ptr_nonnull(data);
    ck_assert_int_eq(pread(fd, data, (size_t)info.st_size, 0), info.st_size);
    (void)close(fd);
    for (uint32_t i = 0; i < PROMPTS; i++) {
        struct crash_prompt prompt = kvt_crash_prompt(i);
        for (uint32_t p = 0; p < prompt.pages; p++) {
            unsigned char page[CRASH_PAGE_BYTES];
            kvt_crash_page_bytes(&prompt, p, page);
            pages_at[i].at[p] = find_page(data, (size_t)info.st_size, page);
            ck_assert_msg(pages_at[i].at[p] >= 0, "prompt %u, page %u is not in the store", i, p);
        }
    }
    free(data);
}

static void make_store(void)
{
    ck_assert(kvt_child_folder(folder, sizeof(folder)));
    (void)snprintf(store, sizeof(store), "%s/store", folder);
    (void)snprintf(copy, sizeof(copy), "%s/copy", folder);
    struct crash_rig rig = {.loud = true};
    ck_assert_int_eq(kvt_crash_open(&rig, store, CRASH_STORE_BYTES, 0), KVT_OK);
    for (uint32_t i = 0; i < PROMPTS; i++) {
        struct crash_prompt prompt = kvt_crash_prompt(i);
        kvt_status status = kvt_crash_save(&rig, &prompt);
        ck_assert(status == KVT_OK || status == KVT_ERR_LIMIT);
        ck_assert_int_eq(kvt_cache_flush(rig.cache, CRASH_WAIT_NS), KVT_OK);
    }
    ck_assert_msg(kvt_crash_close(&rig), "%s", rig.why);
    find_pages();
}

static void remove_store(void) { kvt_child_remove(folder); }

static void copy_store(void)
{
    kvt_child_remove(copy);
    ck_assert(kvt_child_copy(store, copy));
}

/* ---- damage ---- */

static bool is_damaged(const struct damage *damage, off_t at)
{
    for (uint32_t i = 0; i < damage->count; i++) {
        if (damage->at[i] == at) {
            return true;
        }
    }
    return false;
}

static off_t any_page(void)
{
    uint32_t number = (uint32_t)(test_random_u64(&seed) % PROMPTS);
    struct crash_prompt prompt = kvt_crash_prompt(number);
    return pages_at[number].at[test_random_u64(&seed) % prompt.pages];
}

static int data_open(void)
{
    char path[PATH_BYTES + 32];
    path_in(path, "data.kvt");
    int fd = open(path, O_RDWR | O_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    return fd;
}

static void flip_bit(int fd, off_t at)
{
    unsigned char byte;
    ck_assert_int_eq(pread(fd, &byte, 1, at), 1);
    byte ^= (unsigned char)(1u << (test_random_u64(&seed) % 8));
    ck_assert_int_eq(pwrite(fd, &byte, 1, at), 1);
}

/* Single bits in `count` different live pages. */
static void flip_pages(uint32_t count, struct damage *damage)
{
    int fd = data_open();
    damage->count = 0;
    while (damage->count < count) {
        off_t at = any_page();
        if (!is_damaged(damage, at)) {
            damage->at[damage->count++] = at;
            flip_bit(fd, at + (off_t)(test_random_u64(&seed) % CRASH_PAGE_BYTES));
        }
    }
    (void)close(fd);
}

/* `count` slots get the valid bytes of another page. */
static void overwrite_pages(uint32_t count, struct damage *damage)
{
    int fd = data_open();
    damage->count = 0;
    while (damage->count < count) {
        unsigned char page[CRASH_PAGE_BYTES];
        off_t at = any_page(), other = any_page();
        if (at == other || is_damaged(damage, at) || is_damaged(damage, other)) {
            continue;
        }
        ck_assert_int_eq(pread(fd, page, sizeof(page), other), sizeof(page));
        ck_assert_int_eq(pwrite(fd, page, sizeof(page), at), sizeof(page));
        damage->at[damage->count++] = at;
    }
    (void)close(fd);
}

/* ---- what is delivered ---- */

/* Every prompt is good up to its first damaged page, to the page; each damaged page that was read
 * is counted. The number of prompts of which that is not so. */
static uint32_t judge(const struct damage *damage)
{
    struct crash_rig rig = {.loud = false};
    uint32_t wrong = 0;
    off_t met[FLIPS_A_ROUND];
    uint32_t met_count = 0;
    ck_assert_msg(kvt_crash_open(&rig, copy, CRASH_STORE_BYTES, 0) == KVT_OK, "%s", rig.why);
    for (uint32_t i = 0; i < PROMPTS; i++) {
        struct crash_prompt prompt = kvt_crash_prompt(i);
        struct crash_read read;
        uint32_t whole = 0;
        while (whole < prompt.pages && !is_damaged(damage, pages_at[i].at[whole])) {
            whole++;
        }
        ck_assert_int_eq(kvt_crash_read(&rig, &prompt, &read), KVT_OK);
        wrong += read.wrong || read.good != whole;
        for (uint32_t p = whole; p < whole + 1 && p < prompt.pages; p++) {
            struct damage seen = {.count = met_count};
            memcpy(seen.at, met, sizeof(met));
            if (!is_damaged(&seen, pages_at[i].at[p])) {
                met[met_count++] = pages_at[i].at[p];
            }
        }
    }
    struct kvt_cache_stats stats;
    ck_assert_int_eq(kvt_cache_stats(rig.cache, &stats), KVT_OK);
    wrong += stats.nvme_checksum_failures < met_count;
    wrong += stats.nvme_checksum_failures > damage->count;
    ck_assert_msg(kvt_crash_close(&rig), "%s", rig.why);
    return wrong;
}

static uint32_t rounds(uint32_t total, void (*harm)(uint32_t, struct damage *))
{
    uint32_t wrong = 0;
    for (uint32_t done = 0; done < total; done += FLIPS_A_ROUND) {
        struct damage damage;
        copy_store();
        harm(FLIPS_A_ROUND, &damage);
        wrong += judge(&damage);
    }
    return wrong;
}

/* Nothing was done: all is there. Something was, and nobody knows: that is noticed. */
START_TEST(the_control)
{
    struct damage none = {.count = 0}, damage;
    copy_store();
    ck_assert_uint_eq(judge(&none), 0);
    copy_store();
    flip_pages(1, &damage);
    ck_assert_uint_gt(judge(&none), 0);
    copy_store();
    overwrite_pages(1, &damage);
    ck_assert_uint_gt(judge(&none), 0);
}
END_TEST

START_TEST(bits_of_payloads)
{
    uint32_t total = kvt_child_long() ? 10000 : 300;
    uint32_t wrong = rounds(total, flip_pages);
    kvt_child_tell("flips      %6u single bits in payloads; not caught, or not exactly: %u", total,
                   wrong);
    ck_assert_uint_eq(wrong, 0);
}
END_TEST

START_TEST(pages_of_others)
{
    uint32_t total = kvt_child_long() ? 1000 : 60;
    uint32_t wrong = rounds(total, overwrite_pages);
    kvt_child_tell("overwrites %6u slots with another page's valid bytes; not caught: %u", total,
                   wrong);
    ck_assert_uint_eq(wrong, 0);
}
END_TEST

/* The owner lives, and nothing wrong comes out; what is missing was said, or is a plain miss. */
START_TEST(bits_of_the_catalog)
{
    uint32_t total = kvt_child_long() ? 2000 : 60;
    uint32_t wrong = 0, refused_or_counted = 0, harmless = 0, silent = 0;
    unsigned char acked[PROMPTS] = {0};
    const struct crash_notes notes = {.count = PROMPTS, .acked = acked};
    for (uint32_t i = 0; i < total; i++) {
        char path[PATH_BYTES + 32];
        struct stat info;
        copy_store();
        path_in(path, "catalog/data.mdb");
        int fd = open(path, O_RDWR | O_CLOEXEC);
        ck_assert(fd >= 0 && fstat(fd, &info) == 0 && info.st_size > 0);
        flip_bit(fd, (off_t)(test_random_u64(&seed) % (uint64_t)info.st_size));
        (void)close(fd);
        const struct crash_verify asked = {
            .store = copy, .bytes = CRASH_STORE_BYTES, .may_lack = true};
        struct crash_verified verified;
        bool good = kvt_crash_verify(&asked, &notes, &verified);
        wrong += !good || verified.wrong > 0;
        harmless += verified.short_prompts == 0;
        refused_or_counted += verified.short_prompts > 0 && verified.noticed > 0;
        silent += verified.short_prompts > 0 && verified.noticed == 0;
    }
    kvt_child_tell("flips      %6u single bits in the catalog; harmless %u, refused or counted %u, "
                   "plain misses %u; wrong %u",
                   total, harmless, refused_or_counted, silent, wrong);
    ck_assert_uint_eq(wrong, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("crash flips");
    TCase *tests = tcase_create("flips");
    tcase_set_timeout(tests, 3600);
    tcase_add_unchecked_fixture(tests, make_store, remove_store);
    tcase_add_test(tests, the_control);
    tcase_add_test(tests, bits_of_payloads);
    tcase_add_test(tests, pages_of_others);
    tcase_add_test(tests, bits_of_the_catalog);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
