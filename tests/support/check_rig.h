/*
 * Sets of two stores for the tests of kvt_store_check(): made, copied, looked at, damaged.
 */
#ifndef KVT_TEST_CHECK_RIG_H
#define KVT_TEST_CHECK_RIG_H

#include "cache/catalog/record.h"
#include "cache/kvt_store.h"
#include "cache/tier/nvme.h"
#include "cache/tier/store.h"
#include "tests/support/test_expect.h"
#include "tests/support/test_random.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define PATH_BYTES 1024
#define STORES 2u
#define PAGES 96u
#define CHAIN 64u /* as the bench makes them */
#define PAGE_BYTES 12000u
#define PAGE_TOKENS 16u
#define RECORD_BYTES_MAX 4096u
#define SAID_BYTES 16384u

struct set {
    char root[PATH_BYTES];
    char paths[STORES][PATH_BYTES + 16];
    const char *folders[STORES];
};

/* ---- sets ---- */

static inline void program_run(const char *program, const char *a, const char *b, const char *c)
{
    pid_t pid = fork();
    EXPECT(pid >= 0);
    if (pid == 0) {
        (void)execlp(program, program, a, b, c, (char *)NULL);
        _exit(127);
    }
    int how;
    EXPECT(waitpid(pid, &how, 0) == pid && WIFEXITED(how) && WEXITSTATUS(how) == 0);
}

static inline void set_name(struct set *set)
{
    const char *tmp = getenv("TMPDIR");
    (void)snprintf(set->root, sizeof(set->root), "%s/kvt check XXXXXX",
                   tmp != NULL && *tmp != '\0' ? tmp : "/tmp");
    EXPECT(mkdtemp(set->root) != NULL);
    for (uint32_t i = 0; i < STORES; i++) {
        (void)snprintf(set->paths[i], sizeof(set->paths[i]), "%s/store %u", set->root, i);
        set->folders[i] = set->paths[i];
    }
}

static inline void set_remove(const struct set *set) { program_run("rm", "-rf", "--", set->root); }

static inline struct kvt_store_bench_config bench_config(const struct set *set)
{
    return (struct kvt_store_bench_config){.folders = set->folders,
                                           .folder_count = STORES,
                                           .flags = KVT_STORE_THREADS,
                                           .bytes = (uint64_t)PAGES * PAGE_BYTES,
                                           .page_bytes = PAGE_BYTES,
                                           .batch_bytes = 20u * PAGE_BYTES,
                                           .page_tokens = PAGE_TOKENS,
                                           .depth = 4};
}

static struct set original; /* made once, then only read */

static inline void original_make(void)
{
    char why[512] = "";
    struct kvt_store_bench *bench = NULL;
    struct kvt_store_bench_rate rate;
    set_name(&original);
    const struct kvt_store_bench_config config = bench_config(&original);
    if (kvt_store_bench_open(&config, &bench, why, sizeof(why)) != KVT_OK) {
        ck_abort_msg("%s", why);
    }
    EXPECT(kvt_store_bench_write(bench, &rate) == KVT_OK && rate.pages == PAGES);
    EXPECT(kvt_store_bench_read(bench, 4, &rate) == KVT_OK && rate.pages == PAGES);
    kvt_store_bench_close(bench);
}

static inline void original_remove(void) { set_remove(&original); }

static inline void set_copy(struct set *set)
{
    set_name(set);
    for (uint32_t i = 0; i < STORES; i++) {
        char from[PATH_BYTES + 32];
        (void)snprintf(from, sizeof(from), "%s/.", original.paths[i]);
        EXPECT(mkdir(set->paths[i], 0700) == 0);
        program_run("cp", "-a", from, set->paths[i]);
    }
}

static inline void path_of(const struct set *set, uint32_t store, const char *file, char *out_path)
{
    EXPECT(snprintf(out_path, PATH_BYTES + 64, "%s/%s", set->paths[store], file) > 0);
}

/* ---- looking ---- */

struct said {
    uint32_t kinds[KVT_STORE_FOUND_REPAIR + 1];
    char text[SAID_BYTES];
    size_t bytes;
};

static inline void on_found(void *ctx, uint32_t kind, const char *sentence)
{
    struct said *said = ctx;
    EXPECT(kind >= KVT_STORE_FOUND_DAMAGE && kind <= KVT_STORE_FOUND_REPAIR);
    said->kinds[kind]++;
    int n = snprintf(said->text + said->bytes, sizeof(said->text) - said->bytes, "%s\n", sentence);
    said->bytes += n > 0 && (size_t)n < sizeof(said->text) - said->bytes ? (size_t)n : 0;
}

static char why[1024];

static inline kvt_status look(const char *const *folders, uint32_t count, uint32_t flags,
                              struct kvt_store_check_result *out_result, struct said *said)
{
    *said = (struct said){0};
    *out_result = (struct kvt_store_check_result){0};
    why[0] = '\0';
    const struct kvt_store_check_config config = {.folders = folders,
                                                  .folder_count = count,
                                                  .flags = flags | KVT_STORE_THREADS,
                                                  .found = on_found,
                                                  .ctx = said};
    kvt_status status = kvt_store_check(&config, out_result, why, sizeof(why));
    EXPECT((status == KVT_OK) == (why[0] == '\0'));
    return status;
}

static inline struct kvt_store_check_result look_good(const struct set *set, uint32_t flags)
{
    struct kvt_store_check_result result;
    struct said said;
    if (look(set->folders, STORES, flags, &result, &said) != KVT_OK) {
        ck_abort_msg("%s", why);
    }
    return result;
}

static inline void is_clean(const struct set *set, uint64_t pages)
{
    struct kvt_store_check_result result = look_good(set, KVT_STORE_VERIFY);
    ck_assert_uint_eq(result.damaged, 0);
    ck_assert_uint_eq(result.pages, pages);
    ck_assert_uint_eq(result.verified_pages, pages);
    ck_assert_uint_eq(result.leftovers, 0);
}

struct loaded {
    uint64_t pages;
    struct {
        uint64_t seq, parent;
        uint32_t slot, record_bytes;
        unsigned char record[RECORD_BYTES_MAX];
    } page[PAGES];
};

static inline kvt_status no_namespace(void *ctx, const struct kvt_catalog_namespace *ns)
{
    (void)ctx;
    (void)ns;
    return KVT_OK;
}

static inline kvt_status load_page(void *ctx, const struct kvt_catalog_page *page)
{
    struct loaded *loaded = ctx;
    EXPECT(loaded->pages < PAGES);
    size_t bytes = kvt_record_page_bytes(page);
    EXPECT(bytes > 0 && bytes <= RECORD_BYTES_MAX);
    loaded->page[loaded->pages].seq = page->seq;
    loaded->page[loaded->pages].parent = page->parent;
    loaded->page[loaded->pages].slot = page->place.slot;
    loaded->page[loaded->pages].record_bytes = (uint32_t)bytes;
    kvt_record_page_encode(page, loaded->page[loaded->pages].record);
    loaded->pages++;
    return KVT_OK;
}

/* It opens as a tier, and the tier keeps its pages: how many. */
static inline uint64_t count_page(const struct set *set)
{
    const struct kvt_log log = {0};
    struct kvt_nvme_store stores[STORES];
    struct stat is;
    for (uint32_t i = 0; i < STORES; i++) {
        char path[PATH_BYTES + 64];
        path_of(set, i, KVT_STORE_DATA_FILE, path);
        EXPECT(stat(path, &is) == 0);
        stores[i] = (struct kvt_nvme_store){set->folders[i], (uint64_t)is.st_size * 5 / 4};
    }
    const struct kvt_nvme_config config = {.mem = &kvt_memory_libc,
                                           .log = &log,
                                           .clock = kvt_clock_monotonic,
                                           .stores = stores,
                                           .store_count = STORES,
                                           .page_tokens = PAGE_TOKENS,
                                           .threads_only = true};
    struct kvt_nvme *nvme = NULL;
    static struct loaded loaded;
    loaded.pages = 0;
    const struct kvt_catalog_visitor visitor = {&loaded, no_namespace, load_page};
    struct kvt_catalog_load load;
    if (kvt_nvme_open(&config, &nvme, why, sizeof(why)) != KVT_OK) {
        ck_abort_msg("%s", why);
    }
    EXPECT(kvt_nvme_load(nvme, &visitor, &load) == KVT_OK);
    kvt_nvme_close(nvme, UINT64_C(10000000000));
    return loaded.pages;
}

static inline struct loaded *records_read(const struct set *set)
{
    static struct loaded loaded;
    const struct kvt_log log = {0};
    char path[PATH_BYTES + 64];
    path_of(set, 0, KVT_STORE_CATALOG_FOLDER, path);
    const struct kvt_catalog_config config = {.mem = &kvt_memory_libc,
                                              .log = &log,
                                              .folder = path,
                                              .bytes_max = 16u << 20,
                                              .read_only = true};
    struct kvt_catalog *catalog = NULL;
    struct kvt_catalog_load load;
    loaded.pages = 0;
    const struct kvt_catalog_visitor visitor = {&loaded, no_namespace, load_page};
    EXPECT(kvt_catalog_open(&config, UINT64_C(10000000000), &catalog, why, sizeof(why)) == KVT_OK);
    EXPECT(kvt_catalog_load(catalog, &visitor, UINT64_C(10000000000), &load) == KVT_OK);
    kvt_catalog_close(catalog);
    return &loaded;
}

/* How many pages come after this one in its chain, it not among them. */
static inline uint64_t behind(const struct loaded *loaded, uint64_t i)
{
    uint64_t count = 0;
    uint64_t seq = loaded->page[i].seq;
    for (uint64_t k = i + 1; k < loaded->pages; k++) {
        if (loaded->page[k].parent == seq) {
            seq = loaded->page[k].seq;
            count++;
        }
    }
    return count;
}

/* ---- damaging ---- */

static inline void byte_flip(const char *path, off_t at, unsigned char bits)
{
    unsigned char byte;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    EXPECT(fd >= 0 && pread(fd, &byte, 1, at) == 1);
    byte ^= bits;
    EXPECT(pwrite(fd, &byte, 1, at) == 1 && close(fd) == 0);
}

static inline unsigned char *file_read(const char *path, size_t *out_bytes)
{
    struct stat is;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    EXPECT(fd >= 0 && fstat(fd, &is) == 0);
    unsigned char *bytes = malloc((size_t)is.st_size + 1);
    EXPECT(bytes != NULL && read(fd, bytes, (size_t)is.st_size) == is.st_size && close(fd) == 0);
    *out_bytes = (size_t)is.st_size;
    return bytes;
}

/* In every copy of the record that the file has. */
static inline void record_flip(const struct set *set, const struct loaded *loaded, uint64_t i,
                               uint32_t at)
{
    char path[PATH_BYTES + 64];
    size_t bytes;
    uint32_t found = 0;
    path_of(set, 0, KVT_STORE_CATALOG_DATA, path);
    unsigned char *file = file_read(path, &bytes);
    for (size_t from = 0; from < bytes;) {
        const unsigned char *hit =
            memmem(file + from, bytes - from, loaded->page[i].record, loaded->page[i].record_bytes);
        if (hit == NULL) {
            break;
        }
        byte_flip(path, (off_t)(hit - file) + (off_t)at, 0x10);
        from = (size_t)(hit - file) + 1;
        found++;
    }
    free(file);
    EXPECT(found > 0);
}

static inline off_t page_offset(const struct set *set, const struct loaded *loaded, uint64_t i,
                                uint32_t *out_store)
{
    uint32_t slot = loaded->page[i].slot;
    struct kvt_store_header header;
    *out_store = kvt_store_of(slot);
    EXPECT(kvt_store_header_read(set->folders[*out_store], &header, why, sizeof(why)) == KVT_OK);
    return (off_t)(kvt_store_extent_of(slot) * header.extent_bytes +
                   kvt_store_slot_of(slot) * kvt_nvme_slot_bytes(PAGE_BYTES));
}

static inline void refused(const char *const *folders, uint32_t count, uint32_t flags,
                           kvt_status want, const char *says)
{
    struct said said;
    struct kvt_store_check_result result;
    kvt_status status = look(folders, count, flags, &result, &said);
    if (status != want || strstr(why, says) == NULL) {
        ck_abort_msg("wanted %s and '%s', got %s: %s", kvt_status_name(want), says,
                     kvt_status_name(status), why);
    }
}

#endif
