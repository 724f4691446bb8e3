/* Opening stores: what belongs together, what is refused and by which sentence, and every byte of
 * the budget. */
#include "cache/tier/store.h"
#include "tests/support/nvme_rig.h"
#include "tests/support/test_expect.h"
#include "tests/support/test_random.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (1024u * 1024u)
#define PATH_BYTES (NVME_RIG_PATH_BYTES + 64)

static void refused(struct nvme_rig *rig, kvt_status want, const char *says)
{
    kvt_status status = kvt_nvme_rig_try_open(rig);
    if (status != want || strstr(rig->why, says) == NULL) {
        ck_abort_msg("wanted %s and '%s', got %s: %s", kvt_status_name(want), says,
                     kvt_status_name(status), rig->why);
    }
    ck_assert_uint_eq(rig->memory.test.live_blocks, 0);
}

static void path_of(const struct nvme_rig *rig, uint32_t store, const char *file, char *out_path)
{
    (void)snprintf(out_path, PATH_BYTES, "%s/%s", rig->folders[store], file);
}

static void some_pages(struct nvme_rig *rig, uint32_t count)
{
    uint32_t numbers[64];
    EXPECT(count <= 64);
    for (uint32_t i = 0; i < count; i++) {
        numbers[i] = kvt_nvme_rig_page(rig, i == 0 ? NVME_RIG_NONE : numbers[i - 1], 20000);
    }
    uint32_t good;
    EXPECT(kvt_nvme_rig_write(rig, numbers, count, &good) == KVT_OK && good == count);
}

static void file_change(const char *path, off_t at, unsigned char flip)
{
    unsigned char byte;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    EXPECT(fd >= 0 && pread(fd, &byte, 1, at) == 1);
    byte ^= flip;
    EXPECT(pwrite(fd, &byte, 1, at) == 1 && close(fd) == 0);
}

/* ---- folders ---- */

START_TEST(test_arguments)
{
    struct nvme_rig rig;
    kvt_nvme_rig_init(&rig, 1, 16 * MIB);
    rig.config.store_count = 0;
    refused(&rig, KVT_ERR_INVAL, "0 stores");
    rig.config.store_count = KVT_NVME_STORES_MAX + 1;
    refused(&rig, KVT_ERR_INVAL, "stores");
    rig.config.store_count = 1;
    rig.config.page_tokens = 0;
    refused(&rig, KVT_ERR_INVAL, "0 tokens");
    rig.config.page_tokens = NVME_RIG_PAGE_TOKENS;
    rig.stores[0].bytes = KVT_NVME_STORE_BYTES_MIN - 1;
    refused(&rig, KVT_ERR_INVAL, "too few");
    rig.stores[0].bytes = 16 * MIB;
    rig.stores[0].folder = "";
    refused(&rig, KVT_ERR_INVAL, "no folder");
    rig.stores[0].folder = rig.folders[0];
    rig.stores[1].folder = rig.folders[0];
    rig.config.store_count = 2;
    refused(&rig, KVT_ERR_INVAL, "given twice");
    kvt_nvme_rig_fini(&rig);
}
END_TEST

START_TEST(test_folders)
{
    struct nvme_rig rig;
    char path[PATH_BYTES];
    kvt_nvme_rig_init(&rig, 1, 16 * MIB);
    /* A file in its place. */
    int fd = open(rig.folders[0], O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    ck_assert(fd >= 0 && close(fd) == 0);
    refused(&rig, KVT_ERR_IO, "name a folder");
    ck_assert_int_eq(unlink(rig.folders[0]), 0);
    /* Nothing above it. */
    (void)snprintf(path, sizeof(path), "%s/none/store", rig.root);
    rig.stores[0].folder = path;
    refused(&rig, KVT_ERR_IO, "the folder above it is missing");
    rig.stores[0].folder = rig.folders[0];
    /* Others may write to it. */
    ck_assert(mkdir(rig.folders[0], 0700) == 0 && chmod(rig.folders[0], 0770) == 0);
    refused(&rig, KVT_ERR_INVAL, "others may write");
    ck_assert_int_eq(chmod(rig.folders[0], 0700), 0);
    /* Somebody else's. Only root can make one. */
    if (geteuid() == 0) {
        ck_assert_int_eq(chown(rig.folders[0], 12345, 0), 0);
        refused(&rig, KVT_ERR_INVAL, "belongs to uid 12345");
        ck_assert_int_eq(chown(rig.folders[0], 0, 0), 0);
    }
    kvt_nvme_rig_open(&rig);
    kvt_nvme_rig_close(&rig);
    /* For its owner alone. */
    struct stat is;
    ck_assert(stat(rig.folders[0], &is) == 0 && (is.st_mode & 07777) == 0700);
    static const char *const files[] = {KVT_STORE_HEADER_FILE, KVT_STORE_DATA_FILE,
                                        KVT_STORE_LOCK_FILE};
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        path_of(&rig, 0, files[i], path);
        ck_assert(stat(path, &is) == 0 && (is.st_mode & 07777) == 0600);
    }
    kvt_nvme_rig_fini(&rig);
}
END_TEST

/* As another user, where this is root: a folder above that cannot be written. */
START_TEST(test_not_writable)
{
    struct nvme_rig rig;
    kvt_nvme_rig_init(&rig, 1, 16 * MIB);
    ck_assert_int_eq(chmod(rig.root, 0555), 0);
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        bool fine = geteuid() != 0 || (setgid(12345) == 0 && setuid(12345) == 0);
        kvt_status status = kvt_nvme_rig_try_open(&rig);
        _exit(fine && status == KVT_ERR_IO && strstr(rig.why, "cannot make the folder") != NULL &&
                      strstr(rig.why, "uid") != NULL
                  ? 0
                  : 1);
    }
    int how;
    ck_assert_int_eq(waitpid(child, &how, 0), child);
    ck_assert(WIFEXITED(how) && WEXITSTATUS(how) == 0);
    ck_assert_int_eq(chmod(rig.root, 0755), 0);
    kvt_nvme_rig_fini(&rig);
}
END_TEST

START_TEST(test_foreign_files)
{
    struct nvme_rig rig;
    char path[PATH_BYTES];
    kvt_nvme_rig_init(&rig, 1, 16 * MIB);
    ck_assert_int_eq(mkdir(rig.folders[0], 0700), 0);
    path_of(&rig, 0, "somebody else's", path);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    ck_assert(fd >= 0 && write(fd, "text", 4) == 4 && close(fd) == 0);
    kvt_nvme_rig_open(&rig);
    some_pages(&rig, 10);
    kvt_nvme_rig_close(&rig);
    rig.stores[0].bytes = 10 * MIB;
    kvt_nvme_rig_open(&rig);
    kvt_nvme_rig_close(&rig);
    struct stat is;
    ck_assert(stat(path, &is) == 0 && is.st_size == 4);
    kvt_nvme_rig_fini(&rig);
}
END_TEST

START_TEST(test_second_owner)
{
    struct nvme_rig rig;
    kvt_nvme_rig_init(&rig, 2, 16 * MIB);
    kvt_nvme_rig_open(&rig);
    some_pages(&rig, 10);
    struct nvme_rig other = rig;
    other.nvme = NULL;
    char pid[32];
    (void)snprintf(pid, sizeof(pid), "process %d has it", (int)getpid());
    ck_assert_int_eq(kvt_nvme_rig_try_open(&other), KVT_ERR_BUSY);
    ck_assert_ptr_nonnull(strstr(other.why, pid));
    ck_assert_ptr_nonnull(strstr(other.why, rig.folders[0]));
    /* The owner did not notice. */
    kvt_nvme_rig_read_all(&rig);
    kvt_nvme_rig_close(&rig);
    kvt_nvme_rig_open(&rig);
    kvt_nvme_rig_close(&rig);
    kvt_nvme_rig_fini(&rig);
}
END_TEST

/* ---- headers ---- */

START_TEST(test_header_form)
{
    struct kvt_store_header header = {.index = 3,
                                      .page_tokens = 16,
                                      .extent_bytes = 4096 * 5,
                                      .data_bytes = UINT64_C(4096) * 5 * 9,
                                      .prewritten_extents = 4};
    memset(header.id, 0xa1, sizeof(header.id));
    memset(header.catalog_id, 0xb2, sizeof(header.catalog_id));
    unsigned char bytes[KVT_STORE_HEADER_BYTES];
    kvt_store_header_encode(&header, bytes);
    static const unsigned char begin[20] = {'k', 'v', 't', 's', 't', 'o', 'r',  'e',  1,    0,
                                            0,   0,   0,   16,  0,   0,   0xa1, 0xa1, 0xa1, 0xa1};
    ck_assert_mem_eq(bytes, begin, sizeof(begin));
    ck_assert_uint_eq(bytes[48], 3);
    ck_assert_uint_eq(bytes[52], 16);
    struct kvt_store_header back;
    char why[128];
    ck_assert_int_eq(kvt_store_header_decode(bytes, sizeof(bytes), &back, why, sizeof(why)),
                     KVT_OK);
    ck_assert_mem_eq(&back, &header, sizeof(header));
    for (size_t i = 0; i < sizeof(bytes); i++) {
        bytes[i] ^= 0x10;
        EXPECT(kvt_store_header_decode(bytes, sizeof(bytes), &back, why, sizeof(why)) != KVT_OK);
        bytes[i] ^= 0x10;
    }
    for (size_t i = 0; i < sizeof(bytes); i++) {
        EXPECT(kvt_store_header_decode(bytes, i, &back, why, sizeof(why)) == KVT_ERR_CORRUPT);
    }
}
END_TEST

START_TEST(test_header_on_disk)
{
    struct nvme_rig rig;
    char path[PATH_BYTES];
    kvt_nvme_rig_init(&rig, 1, 16 * MIB);
    kvt_nvme_rig_open(&rig);
    some_pages(&rig, 10);
    kvt_nvme_rig_close(&rig);
    path_of(&rig, 0, KVT_STORE_HEADER_FILE, path);
    file_change(path, 0, 1);
    refused(&rig, KVT_ERR_CORRUPT, "is not the header of a store");
    file_change(path, 0, 1);
    file_change(path, 8, 2);
    refused(&rig, KVT_ERR_VERSION, "version 3, this program knows version 1");
    file_change(path, 8, 2);
    file_change(path, 2000, 1);
    refused(&rig, KVT_ERR_CORRUPT, "is damaged");
    file_change(path, 2000, 1);
    rig.config.page_tokens = 32;
    refused(&rig, KVT_ERR_INVAL, "16 tokens, the configuration says 32");
    rig.config.page_tokens = NVME_RIG_PAGE_TOKENS;
    ck_assert_int_eq(truncate(path, 60), 0);
    refused(&rig, KVT_ERR_CORRUPT, "is not the header of a store");
    /* No header at all, beside a catalog that knows one. */
    ck_assert_int_eq(unlink(path), 0);
    refused(&rig, KVT_ERR_CORRUPT, "the folder has none");
    kvt_nvme_rig_fini(&rig);
}
END_TEST

START_TEST(test_sets)
{
    struct nvme_rig rig;
    struct nvme_rig other;
    kvt_nvme_rig_init(&rig, 3, 16 * MIB);
    kvt_nvme_rig_init(&other, 2, 16 * MIB);
    kvt_nvme_rig_open(&rig);
    some_pages(&rig, 30);
    kvt_nvme_rig_close(&rig);
    kvt_nvme_rig_open(&other);
    kvt_nvme_rig_close(&other);
    /* In another order. */
    rig.stores[1].folder = rig.folders[2];
    rig.stores[2].folder = rig.folders[1];
    refused(&rig, KVT_ERR_INVAL, "it is store 3 of its set, but was given as store 2");
    rig.stores[1].folder = rig.folders[1];
    /* One is missing. */
    rig.config.store_count = 2;
    refused(&rig, KVT_ERR_INVAL, "its set has 3 stores, 2 were given; store 3 is missing");
    rig.config.store_count = 3;
    /* Its drive is not mounted: an empty folder. */
    rig.stores[2].folder = rig.folders[5];
    refused(&rig, KVT_ERR_CORRUPT, "the folder has none: mount its drive");
    /* One of another set. */
    rig.stores[2].folder = rig.folders[2];
    rig.stores[1].folder = other.folders[1];
    refused(&rig, KVT_ERR_CORRUPT, "belongs to another set");
    rig.stores[1].folder = rig.folders[1];
    /* One more. */
    rig.config.store_count = 4;
    kvt_nvme_rig_open(&rig);
    ck_assert_uint_eq(rig.load.pages, 30);
    kvt_nvme_rig_read_all(&rig);
    some_pages(&rig, 60);
    kvt_nvme_rig_close(&rig);
    kvt_nvme_rig_open(&rig);
    kvt_nvme_rig_read_all(&rig);
    kvt_nvme_rig_check_used(&rig);
    struct stat is;
    char path[PATH_BYTES];
    path_of(&rig, 3, KVT_STORE_DATA_FILE, path);
    ck_assert(stat(path, &is) == 0 && is.st_size > 15 * (off_t)MIB);
    kvt_nvme_rig_close(&rig);
    /* It belongs to it from now on. */
    rig.config.store_count = 3;
    refused(&rig, KVT_ERR_INVAL, "store 4 is missing");
    kvt_nvme_rig_fini(&other);
    kvt_nvme_rig_fini(&rig);
}
END_TEST

/* ---- what a catalog may say ---- */

static struct kvt_catalog *catalog_open(struct nvme_rig *rig)
{
    char folder[PATH_BYTES];
    char why[512];
    path_of(rig, 0, KVT_STORE_CATALOG_FOLDER, folder);
    const struct kvt_catalog_config config = {.mem = &kvt_memory_libc,
                                              .log = &rig->log,
                                              .folder = folder,
                                              .bytes_max = 2 * MIB,
                                              .page_tokens = NVME_RIG_PAGE_TOKENS};
    struct kvt_catalog *catalog = NULL;
    kvt_status status = kvt_catalog_open(&config, NVME_RIG_WAIT_NS, &catalog, why, sizeof(why));
    if (status != KVT_OK) {
        ck_abort_msg("catalog: %s", why);
    }
    return catalog;
}

/* Records that no owner wrote: each is left out, and gone after the next load. */
START_TEST(test_bad_records)
{
    struct nvme_rig rig;
    kvt_nvme_rig_init(&rig, 1, 16 * MIB);
    kvt_nvme_rig_open(&rig);
    some_pages(&rig, 10);
    struct kvt_place held = rig.pages[3].place;
    kvt_nvme_rig_close(&rig);
    kvt_nvme_rig_open(&rig);
    uint64_t seq = rig.load.seq_last;
    kvt_nvme_rig_close(&rig);
    const uint32_t tokens[NVME_RIG_PAGE_TOKENS] = {5};
    const struct kvt_place places[] = {
        held,                                                            /* taken already */
        {kvt_store_slot_name(5, 0, 0), 9},                               /* no such store */
        {kvt_store_slot_name(0, 4000, 0), 9},                            /* no such extent */
        {kvt_store_slot_name(0, 7, 16000), 9},                           /* no such slot */
        {kvt_store_slot_name(0, kvt_store_extent_of(held.slot), 60), 9}, /* of another size */
    };
    enum { BAD = sizeof(places) / sizeof(places[0]) };
    struct kvt_catalog_page pages[BAD];
    for (uint32_t i = 0; i < BAD; i++) {
        pages[i] = (struct kvt_catalog_page){.seq = seq + 1 + i,
                                             .ns = 7,
                                             .place = places[i],
                                             .bytes = i == BAD - 1 ? 4096 : 20000,
                                             .token_count = NVME_RIG_PAGE_TOKENS,
                                             .tokens = tokens};
    }
    const struct kvt_catalog_batch batch = {.pages = pages, .page_count = BAD};
    struct kvt_catalog *catalog = catalog_open(&rig);
    int error;
    ck_assert_int_eq(kvt_catalog_commit(catalog, &batch, NVME_RIG_WAIT_NS, &error), KVT_OK);
    kvt_catalog_close(catalog);
    kvt_nvme_rig_open(&rig);
    ck_assert_uint_eq(rig.load.pages, 10 + BAD);
    struct kvt_nvme_stats stats;
    kvt_nvme_stats(rig.nvme, &stats);
    ck_assert_uint_eq(stats.pages, 10);
    ck_assert_uint_eq(stats.orphans_dropped, BAD);
    kvt_nvme_rig_read_all(&rig);
    kvt_nvme_rig_check_used(&rig);
    kvt_nvme_rig_close(&rig);
    kvt_nvme_rig_open(&rig);
    ck_assert_uint_eq(rig.load.pages, 10);
    kvt_nvme_rig_check_used(&rig);
    kvt_nvme_rig_close(&rig);
    kvt_nvme_rig_fini(&rig);
}
END_TEST

/* Long records: the catalog is full before the slots are. Deletes make room. */
START_TEST(test_catalog_full)
{
    struct nvme_rig rig;
    kvt_nvme_rig_init(&rig, 1, KVT_NVME_STORE_BYTES_MIN);
    rig.config.page_tokens = 4096;
    kvt_nvme_rig_open(&rig);
    uint32_t wrote = 0;
    kvt_status status = KVT_OK;
    for (uint32_t i = 0; i < 600 && status == KVT_OK; i++) {
        uint32_t number = kvt_nvme_rig_page(&rig, NVME_RIG_NONE, 4096);
        uint32_t good;
        status = kvt_nvme_rig_write(&rig, &number, 1, &good);
        rig.pages[number].state = good == 1 ? RIG_PAGE_HELD : RIG_PAGE_LOST;
        wrote += good;
    }
    ck_assert_int_eq(status, KVT_ERR_LIMIT);
    ck_assert_uint_gt(wrote, 10);
    ck_assert(!kvt_nvme_has_room(rig.nvme, 4096));
    kvt_nvme_rig_wait_said(&rig, "the catalog is full before the slots are");
    kvt_nvme_rig_read_all(&rig);
    for (uint32_t i = 0; i < wrote / 2; i++) {
        kvt_nvme_rig_drop(&rig, i);
    }
    kvt_nvme_rig_check_used(&rig);
    ck_assert(kvt_nvme_has_room(rig.nvme, 4096));
    uint32_t number = kvt_nvme_rig_page(&rig, NVME_RIG_NONE, 4096);
    uint32_t good;
    ck_assert_int_eq(kvt_nvme_rig_write(&rig, &number, 1, &good), KVT_OK);
    kvt_nvme_rig_check_used(&rig);
    kvt_nvme_rig_close(&rig);
    kvt_nvme_rig_open(&rig);
    kvt_nvme_rig_read_all(&rig);
    kvt_nvme_rig_check_used(&rig);
    kvt_nvme_rig_close(&rig);
    kvt_nvme_rig_fini(&rig);
}
END_TEST

/* ---- the budget ---- */

/* Pages until there is no room. */
static uint32_t fill(struct nvme_rig *rig, uint32_t bytes)
{
    uint32_t wrote = 0;
    for (;;) {
        uint32_t numbers[32];
        for (uint32_t i = 0; i < 32; i++) {
            numbers[i] = kvt_nvme_rig_page(rig, NVME_RIG_NONE, bytes);
        }
        uint32_t good;
        kvt_status status = kvt_nvme_rig_write(rig, numbers, 32, &good);
        EXPECT(status == KVT_OK || (status == KVT_ERR_LIMIT && good == 0));
        for (uint32_t i = good; i < 32; i++) {
            rig->pages[numbers[i]].state = RIG_PAGE_LOST;
        }
        wrote += good;
        if (good < 32) {
            return wrote; /* has_room() may be true again: a full catalog is asked again later */
        }
    }
}

static void within_budget(struct nvme_rig *rig)
{
    for (uint32_t i = 0; i < rig->config.store_count; i++) {
        uint64_t bytes = kvt_nvme_rig_disk_bytes(rig->folders[i]);
        if (bytes > rig->stores[i].bytes) {
            ck_abort_msg("store %u takes %llu of %llu bytes", i, (unsigned long long)bytes,
                         (unsigned long long)rig->stores[i].bytes);
        }
    }
    struct kvt_nvme_stats stats;
    kvt_nvme_stats(rig->nvme, &stats);
    EXPECT(stats.bytes_used <= stats.bytes_mapped && stats.bytes_mapped <= stats.bytes_budget);
}

START_TEST(test_budget)
{
    static const uint64_t sizes[] = {24 * MIB, 12 * MIB, 48 * MIB, KVT_NVME_STORE_BYTES_MIN};
    struct nvme_rig rig;
    kvt_nvme_rig_init(&rig, 2, 24 * MIB);
    for (uint32_t i = 0; i < 4; i++) {
        rig.stores[0].bytes = rig.stores[1].bytes = sizes[i];
        for (uint32_t k = 0; k < rig.page_count; k++) {
            /* Of a store that shrinks, what lay at its end is gone. */
            rig.pages[k].state =
                rig.pages[k].state == RIG_PAGE_HELD ? RIG_PAGE_WRITING : rig.pages[k].state;
        }
        kvt_nvme_rig_open(&rig);
        for (uint32_t k = 0; k < rig.page_count; k++) {
            rig.pages[k].state = rig.pages[k].seen ? RIG_PAGE_HELD : RIG_PAGE_LOST;
        }
        within_budget(&rig);
        kvt_nvme_rig_check_used(&rig);
        kvt_nvme_rig_read_all(&rig);
        uint32_t wrote = fill(&rig, 65536);
        /* Most of the growth is for pages. */
        ck_assert(i != 2 || wrote * UINT64_C(65536) > 2 * 30 * UINT64_C(1048576));
        within_budget(&rig);
        kvt_nvme_rig_close(&rig);
        kvt_nvme_rig_open(&rig);
        within_budget(&rig);
        kvt_nvme_rig_read_all(&rig);
        kvt_nvme_rig_check_used(&rig);
        kvt_nvme_rig_close(&rig);
    }
    kvt_nvme_rig_fini(&rig);
}
END_TEST

START_TEST(test_too_large_for_the_drive)
{
    struct nvme_rig rig;
    char path[PATH_BYTES];
    kvt_nvme_rig_init(&rig, 1, UINT64_C(1) << 50);
    refused(&rig, KVT_ERR_IO, "no space");
    path_of(&rig, 0, KVT_STORE_DATA_FILE, path);
    struct stat is;
    ck_assert(stat(path, &is) != 0 || is.st_blocks == 0);
    ck_assert_uint_lt(kvt_nvme_rig_disk_bytes(rig.folders[0]), 65536);
    /* The same folder, with a size that fits. */
    rig.stores[0].bytes = 16 * MIB;
    kvt_nvme_rig_open(&rig);
    some_pages(&rig, 4);
    kvt_nvme_rig_close(&rig);
    /* And it cannot grow so far, but stays as it is. */
    rig.stores[0].bytes = UINT64_C(1) << 45;
    ck_assert_int_ne(kvt_nvme_rig_try_open(&rig), KVT_OK);
    rig.stores[0].bytes = 16 * MIB;
    kvt_nvme_rig_open(&rig);
    ck_assert_uint_eq(rig.load.pages, 4);
    kvt_nvme_rig_read_all(&rig);
    kvt_nvme_rig_close(&rig);
    kvt_nvme_rig_fini(&rig);
}
END_TEST

static void junk_write(const char *path)
{
    static const char block[65536];
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    EXPECT(fd >= 0);
    while (write(fd, block, sizeof(block)) > 0) {
    }
    EXPECT(errno == ENOSPC && close(fd) == 0);
}

/* A drive of 14 MiB: what does not fit, and what happens when it fills up. Needs root. */
START_TEST(test_small_drive)
{
    struct nvme_rig rig;
    char path[PATH_BYTES];
    kvt_nvme_rig_init(&rig, 1, 24 * MIB);
    if (mount("tmpfs", rig.root, "tmpfs", 0, "size=14m,mode=0755") != 0) {
        (void)printf("small drive: left out, a file system cannot be mounted here (%s)\n",
                     strerror(errno));
        kvt_nvme_rig_fini(&rig);
        return;
    }
    refused(&rig, KVT_ERR_IO, "no space");
    rig.stores[0].bytes = 8 * MIB;
    kvt_nvme_rig_open(&rig);
    some_pages(&rig, 10);
    kvt_nvme_rig_close(&rig);
    path_of(&rig, 0, KVT_STORE_DATA_FILE, path);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    ck_assert(fd >= 0);
    ck_assert_int_eq(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 3 * MIB, 3 * MIB),
                     0);
    ck_assert_int_eq(close(fd), 0);
    (void)snprintf(path, sizeof(path), "%s/junk", rig.root);
    junk_write(path);
    kvt_nvme_rig_open(&rig);
    ck_assert(kvt_nvme_rig_said(&rig, "cannot be allocated ahead (No space left on device)"));
    kvt_nvme_rig_read_all(&rig);
    kvt_nvme_rig_close(&rig);
    ck_assert_int_eq(unlink(path), 0);
    kvt_nvme_rig_open(&rig);
    kvt_nvme_rig_read_all(&rig);
    (void)fill(&rig, 65536);
    kvt_nvme_rig_read_all(&rig);
    within_budget(&rig);
    kvt_nvme_rig_close(&rig);
    /* The catalog's process may be about to end: then the folder goes from sight only. */
    ck_assert_int_eq(umount2(rig.root, MNT_DETACH), 0);
    kvt_nvme_rig_fini(&rig);
}
END_TEST

/* Extents go from one size to another, as often as one likes. */
START_TEST(test_extents_go_back)
{
    static const uint32_t sizes[] = {4096, 65536, 300000, 1000000};
    struct nvme_rig rig;
    kvt_nvme_rig_init(&rig, 1, 12 * MIB);
    kvt_nvme_rig_open(&rig);
    uint32_t before[4] = {0};
    for (uint32_t round = 0; round < 8; round++) {
        uint32_t first = rig.page_count;
        uint32_t wrote = fill(&rig, sizes[round % 4]);
        ck_assert_uint_gt(wrote, 0);
        ck_assert(round < 4 || wrote == before[round % 4]);
        before[round % 4] = wrote;
        ck_assert_uint_gt(wrote * (uint64_t)sizes[round % 4], 5 * UINT64_C(1048576));
        /* No room for another size either, for every extent has this one. */
        struct kvt_place place;
        ck_assert_int_eq(kvt_nvme_reserve(rig.nvme, sizes[(round + 1) % 4], &place), KVT_ERR_LIMIT);
        for (uint32_t i = first; i < rig.page_count; i++) {
            if (rig.pages[i].state == RIG_PAGE_HELD) {
                kvt_nvme_rig_drop(&rig, i);
            }
        }
        kvt_nvme_rig_check_used(&rig);
        struct kvt_nvme_stats stats;
        kvt_nvme_stats(rig.nvme, &stats);
        ck_assert_uint_eq(stats.bytes_used, 0);
        ck_assert_uint_eq(stats.slots_free, 0);
    }
    kvt_nvme_rig_close(&rig);
    kvt_nvme_rig_fini(&rig);
}
END_TEST

START_TEST(test_page_larger_than_extents)
{
    struct nvme_rig rig;
    kvt_nvme_rig_init(&rig, 1, 8 * MIB);
    kvt_nvme_rig_open(&rig);
    struct kvt_place place;
    ck_assert_int_eq(kvt_nvme_reserve(rig.nvme, 3 * MIB, &place), KVT_ERR_LIMIT);
    kvt_nvme_rig_wait_said(&rig, "pages of 3145728 bytes are not kept");
    ck_assert(!kvt_nvme_has_room(rig.nvme, 3 * MIB));
    ck_assert_int_eq(kvt_nvme_reserve(rig.nvme, 0, &place), KVT_ERR_INVAL);
    ck_assert_int_eq(kvt_nvme_reserve(rig.nvme, 4096, &place), KVT_OK);
    kvt_nvme_unreserve(rig.nvme, place);
    kvt_nvme_unreserve(rig.nvme, place); /* stale by now */
    kvt_nvme_rig_check_used(&rig);
    kvt_nvme_rig_close(&rig);
    kvt_nvme_rig_fini(&rig);
}
END_TEST

START_TEST(test_names)
{
    struct nvme_rig rig;
    kvt_nvme_rig_init(&rig, 2, 16 * MIB);
    kvt_nvme_rig_open(&rig);
    struct kvt_place last = {0, 0};
    for (uint32_t i = 0; i < 1000; i++) {
        struct kvt_place place;
        ck_assert_int_eq(kvt_nvme_reserve(rig.nvme, 4096, &place), KVT_OK);
        EXPECT(place.generation != 0);
        EXPECT(place.slot != last.slot || place.generation != last.generation);
        last = place;
        kvt_nvme_unreserve(rig.nvme, place);
    }
    /* What is not held is not read, and dropping it is nothing. */
    uint32_t number = kvt_nvme_rig_page(&rig, NVME_RIG_NONE, 4096);
    uint32_t good;
    rig.pages[number].place = last;
    ck_assert_int_eq(kvt_nvme_rig_read(&rig, &number, 1, &good), KVT_ERR_STALE);
    kvt_nvme_drop(rig.nvme, &last, 1);
    rig.pages[number].place = (struct kvt_place){UINT32_MAX, 1};
    ck_assert_int_eq(kvt_nvme_rig_read(&rig, &number, 1, &good), KVT_ERR_STALE);
    rig.pages[number].state = RIG_PAGE_LOST;
    kvt_nvme_rig_check_used(&rig);
    kvt_nvme_rig_close(&rig);
    kvt_nvme_rig_fini(&rig);
}
END_TEST

START_TEST(test_write_budget)
{
    struct nvme_rig rig;
    kvt_nvme_rig_init(&rig, 1, 16 * MIB);
    rig.config.write_bytes_per_day = UINT64_C(96) * MIB; /* a quarter of an hour: 1 MiB */
    kvt_nvme_rig_open(&rig);
    ck_assert(kvt_nvme_may_write(rig.nvme, MIB));
    ck_assert(kvt_nvme_may_write(rig.nvme, 2 * MIB)); /* a full bucket takes what is larger */
    uint32_t number = kvt_nvme_rig_page(&rig, NVME_RIG_NONE, 600 * 1024);
    uint32_t good;
    ck_assert_int_eq(kvt_nvme_rig_write(&rig, &number, 1, &good), KVT_OK);
    ck_assert(kvt_nvme_may_write(rig.nvme, 400 * 1024));
    ck_assert(!kvt_nvme_may_write(rig.nvme, 600 * 1024));
    struct kvt_nvme_stats stats;
    kvt_nvme_stats(rig.nvme, &stats);
    ck_assert_uint_eq(stats.budget_refusals, 1);
    rig.clock_offset_ns += UINT64_C(450) * 1000000000; /* half of the bucket */
    ck_assert(kvt_nvme_may_write(rig.nvme, 900 * 1024));
    rig.clock_offset_ns += UINT64_C(86400) * 1000000000; /* no more than a bucket */
    ck_assert(kvt_nvme_may_write(rig.nvme, MIB));
    number = kvt_nvme_rig_page(&rig, NVME_RIG_NONE, MIB);
    ck_assert_int_eq(kvt_nvme_rig_write(&rig, &number, 1, &good), KVT_OK);
    ck_assert(!kvt_nvme_may_write(rig.nvme, 64 * 1024));
    kvt_nvme_rig_close(&rig);
    kvt_nvme_rig_fini(&rig);
}
END_TEST

START_TEST(test_estimate)
{
    struct nvme_rig rig;
    kvt_nvme_rig_init(&rig, 1, 16 * MIB);
    kvt_nvme_rig_open(&rig);
    uint64_t one_ns = kvt_nvme_read_estimate_ns(rig.nvme, MIB);
    ck_assert_uint_gt(one_ns, 0);
    ck_assert_uint_ge(kvt_nvme_read_estimate_ns(rig.nvme, 4 * MIB), 3 * one_ns);
    kvt_nvme_rig_close(&rig);
    kvt_nvme_rig_fini(&rig);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("nvme open");
    TCase *folders = tcase_create("folders");
    tcase_add_test(folders, test_arguments);
    tcase_add_test(folders, test_folders);
    tcase_add_test(folders, test_not_writable);
    tcase_add_test(folders, test_foreign_files);
    tcase_add_test(folders, test_second_owner);
    suite_add_tcase(s, folders);
    TCase *headers = tcase_create("headers");
    tcase_add_test(headers, test_header_form);
    tcase_add_test(headers, test_header_on_disk);
    tcase_add_test(headers, test_sets);
    tcase_add_test(headers, test_bad_records);
    tcase_add_test(headers, test_catalog_full);
    suite_add_tcase(s, headers);
    TCase *budget = tcase_create("budget");
    tcase_add_test(budget, test_budget);
    tcase_add_test(budget, test_too_large_for_the_drive);
    tcase_add_test(budget, test_small_drive);
    tcase_add_test(budget, test_extents_go_back);
    tcase_add_test(budget, test_page_larger_than_extents);
    tcase_add_test(budget, test_names);
    tcase_add_test(budget, test_write_budget);
    tcase_add_test(budget, test_estimate);
    suite_add_tcase(s, budget);
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
