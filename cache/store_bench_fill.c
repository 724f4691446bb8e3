/*
 * A catalog alone: a store whose catalog knows many pages that nobody wrote, for measuring how
 * long opening takes. Written as a cache would: in batches, with chains of pages, and with a part
 * deleted and written anew several times, so that the records of neighbours do not lie side by
 * side any more.
 */
#include "cache/catalog/catalog.h"
#include "cache/kvt_store.h"
#include "cache/tier/nvme.h"
#include "cache/tier/store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHAIN_PAGES 64u
#define CHURN_CHAINS 4u /* one chain in so many loses its end, in each round */
#define CATALOG_NS UINT64_C(600000000000)
#define PATH_BYTES 4096u
#define PAGES_MAX (UINT64_C(1) << 26)
#define PAGE_TOKENS_MAX 4096u
#define NAMESPACE_NUMBER 1u
/* What a record takes beside its tokens, with room for pages that are half empty after churn. */
#define RECORD_BESIDE_BYTES 96u
#define CATALOG_ROOM 3u
#define BATCH_PAGES (KVT_CATALOG_BATCH_MAX - 1u) /* the first one has the namespace too */
static const char namespace_name[] = "kvtier bench open";

struct fill {
    const struct kvt_store_fill_config *config;
    struct kvt_catalog *catalog;
    struct kvt_store_header header;
    uint64_t slot_bytes;
    uint32_t slots; /* of an extent */
    uint64_t *seqs; /* [pages]; 0: not there */
    uint64_t seq_last;
    uint32_t generation;
    uint64_t done, total; /* records */
    uint32_t page_count, delete_count;
    uint64_t deletes[KVT_CATALOG_BATCH_MAX];
    struct kvt_catalog_page pages[KVT_CATALOG_BATCH_MAX];
    uint32_t *tokens; /* [KVT_CATALOG_BATCH_MAX * page_tokens] */
    char *why;
    size_t why_bytes;
};

static uint64_t draw(uint64_t x)
{
    x += UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    return x ^ (x >> 31);
}

static kvt_status batch_commit(struct fill *fill)
{
    if (fill->page_count == 0 && fill->delete_count == 0) {
        return KVT_OK;
    }
    const struct kvt_catalog_namespace ns = {.number = NAMESPACE_NUMBER,
                                             .group = 1,
                                             .slot_bytes = fill->config->page_bytes,
                                             .canonical = namespace_name,
                                             .canonical_bytes = sizeof(namespace_name) - 1};
    const struct kvt_catalog_batch batch = {.namespaces = &ns,
                                            .namespace_count = fill->done == 0 ? 1 : 0,
                                            .deletes = fill->deletes,
                                            .delete_count = fill->delete_count,
                                            .pages = fill->pages,
                                            .page_count = fill->page_count};
    int error = 0;
    kvt_status status = kvt_catalog_commit(fill->catalog, &batch, CATALOG_NS, &error);
    if (status != KVT_OK) {
        (void)snprintf(fill->why, fill->why_bytes, "store '%s': the catalog took no records: %s",
                       fill->config->folder,
                       error != 0 ? strerror(error) : kvt_status_text(status));
        return status;
    }
    fill->done += fill->page_count + fill->delete_count;
    fill->page_count = fill->delete_count = 0;
    if (fill->config->progress != NULL) {
        fill->config->progress(fill->config->ctx, fill->done, fill->total);
    }
    return KVT_OK;
}

static void page_put(struct fill *fill, uint64_t number)
{
    uint32_t page_tokens = fill->config->page_tokens;
    uint32_t *tokens = fill->tokens + (size_t)fill->page_count * page_tokens;
    uint64_t seq = ++fill->seq_last;
    for (uint32_t i = 0; i < page_tokens; i++) {
        tokens[i] = (uint32_t)draw(fill->config->seed ^ (seq * PAGE_TOKENS_MAX + i));
    }
    fill->seqs[number] = seq;
    fill->pages[fill->page_count++] = (struct kvt_catalog_page){
        .seq = seq,
        .parent = number % CHAIN_PAGES != 0 ? fill->seqs[number - 1] : 0,
        .ns = NAMESPACE_NUMBER,
        .place = {kvt_store_slot_name(0, (uint32_t)(number / fill->slots),
                                      (uint32_t)(number % fill->slots)),
                  ++fill->generation},
        .bytes = (uint32_t)fill->config->page_bytes,
        .checksum = draw(seq),
        .token_count = page_tokens,
        .tokens = tokens,
    };
}

static kvt_status first_fill(struct fill *fill)
{
    kvt_status status = KVT_OK;
    for (uint64_t i = 0; status == KVT_OK && i < fill->config->pages; i++) {
        page_put(fill, i);
        if (fill->page_count == BATCH_PAGES) {
            status = batch_commit(fill);
        }
    }
    return status == KVT_OK ? batch_commit(fill) : status;
}

/* A chain loses its end and gets another one. */
static void chain_churn(struct fill *fill, uint64_t first, uint64_t bits)
{
    uint64_t end = first + CHAIN_PAGES;
    end = end < fill->config->pages ? end : fill->config->pages;
    uint64_t from = first + bits % CHAIN_PAGES;
    for (uint64_t i = end; i > from; i--) {
        fill->deletes[fill->delete_count++] = fill->seqs[i - 1];
    }
    for (uint64_t i = from; i < end; i++) {
        page_put(fill, i);
    }
}

static kvt_status churn(struct fill *fill, uint32_t round)
{
    kvt_status status = KVT_OK;
    for (uint64_t i = 0; status == KVT_OK && i < fill->config->pages; i += CHAIN_PAGES) {
        uint64_t bits = draw(fill->config->seed + draw(i + round));
        if (bits % CHURN_CHAINS != 0) {
            continue;
        }
        chain_churn(fill, i, bits / CHURN_CHAINS);
        if (fill->delete_count + fill->page_count + 2 * CHAIN_PAGES > BATCH_PAGES) {
            status = batch_commit(fill);
        }
    }
    return status == KVT_OK ? batch_commit(fill) : status;
}

/* ---- the store around it ---- */

static uint64_t budget_of(const struct kvt_store_fill_config *config)
{
    uint64_t data_bytes = config->pages * kvt_nvme_slot_bytes(config->page_bytes);
    uint64_t record_bytes = RECORD_BESIDE_BYTES + (uint64_t)config->page_tokens * sizeof(uint32_t);
    uint64_t for_data = data_bytes + data_bytes / 8 + 8 * KVT_NVME_STORE_BYTES_MIN;
    uint64_t for_catalog = config->pages * record_bytes * CATALOG_ROOM * KVT_NVME_CATALOG_DIVISOR;
    return for_data > for_catalog ? for_data : for_catalog;
}

static kvt_status store_make(struct fill *fill, uint64_t budget_bytes)
{
    const struct kvt_store_fill_config *config = fill->config;
    const struct kvt_log log = {config->log, config->ctx};
    const struct kvt_nvme_store store = {config->folder, budget_bytes};
    const struct kvt_nvme_config tier = {.mem = &kvt_memory_libc,
                                         .log = &log,
                                         .clock = kvt_clock_monotonic,
                                         .stores = &store,
                                         .store_count = 1,
                                         .page_tokens = config->page_tokens,
                                         .catalog_program = config->catalog_program,
                                         .threads_only = true};
    struct kvt_nvme *nvme = NULL;
    kvt_status status = kvt_nvme_open(&tier, &nvme, fill->why, fill->why_bytes);
    kvt_nvme_close(nvme, CATALOG_NS);
    return status == KVT_OK
               ? kvt_store_header_read(config->folder, &fill->header, fill->why, fill->why_bytes)
               : status;
}

static kvt_status catalog_open(const char *folder, const char *program, uint64_t bytes_max,
                               uint32_t page_tokens, const struct kvt_log *log,
                               struct kvt_catalog **out_catalog, char *why, size_t why_bytes)
{
    char path[PATH_BYTES];
    int length = snprintf(path, sizeof(path), "%s/" KVT_STORE_CATALOG_FOLDER, folder);
    if (length < 0 || (size_t)length >= sizeof(path)) {
        (void)snprintf(why, why_bytes, "store '%s': its name is too long", folder);
        return KVT_ERR_INVAL;
    }
    const struct kvt_catalog_config config = {.mem = &kvt_memory_libc,
                                              .log = log,
                                              .folder = path,
                                              .bytes_max = bytes_max,
                                              .program = program,
                                              .read_only = page_tokens == 0,
                                              .page_tokens = page_tokens};
    return kvt_catalog_open(&config, CATALOG_NS, out_catalog, why, why_bytes);
}

static kvt_status fill_run(struct fill *fill, uint64_t budget_bytes)
{
    const struct kvt_store_fill_config *config = fill->config;
    const struct kvt_log log = {config->log, config->ctx};
    fill->slot_bytes = kvt_nvme_slot_bytes(config->page_bytes);
    fill->slots = kvt_store_slots(fill->header.extent_bytes, fill->slot_bytes);
    if (fill->slots == 0 ||
        config->pages / fill->slots >= fill->header.data_bytes / fill->header.extent_bytes) {
        (void)snprintf(fill->why, fill->why_bytes, "store '%s': the pages do not fit",
                       config->folder);
        return KVT_ERR_LIMIT;
    }
    kvt_status status = catalog_open(config->folder, config->catalog_program,
                                     budget_bytes / KVT_NVME_CATALOG_DIVISOR, config->page_tokens,
                                     &log, &fill->catalog, fill->why, fill->why_bytes);
    if (status == KVT_OK) {
        status = first_fill(fill);
    }
    for (uint32_t i = 0; status == KVT_OK && i < config->churn_rounds; i++) {
        status = churn(fill, i + 1);
    }
    kvt_catalog_close(fill->catalog);
    return status;
}

kvt_status kvt_store_fill(const struct kvt_store_fill_config *config, uint64_t *out_store_bytes,
                          char *why, size_t why_bytes)
{
    if (config->folder == NULL || config->pages == 0 || config->pages > PAGES_MAX ||
        config->page_bytes == 0 || config->page_bytes > KVT_NVME_STORE_BYTES_MIN ||
        config->page_tokens == 0 || config->page_tokens > PAGE_TOKENS_MAX) {
        (void)snprintf(why, why_bytes, "fill: no folder, or no or too many pages, bytes or tokens");
        return KVT_ERR_INVAL;
    }
    const struct kvt_memory *mem = &kvt_memory_libc;
    size_t tokens_bytes = (size_t)KVT_CATALOG_BATCH_MAX * config->page_tokens * sizeof(uint32_t);
    struct fill *fill = kvt_calloc(mem, 1, sizeof(*fill));
    uint64_t *seqs = kvt_calloc(mem, (size_t)config->pages, sizeof(*seqs));
    uint32_t *tokens = kvt_alloc(mem, tokens_bytes);
    uint64_t budget_bytes = budget_of(config);
    kvt_status status = KVT_ERR_NOMEM;
    if (fill != NULL && seqs != NULL && tokens != NULL) {
        fill->config = config;
        fill->seqs = seqs;
        fill->tokens = tokens;
        fill->why = why;
        fill->why_bytes = why_bytes;
        /* A chain in so many, on average half of it, is deleted and written. */
        fill->total = config->pages + config->churn_rounds * (config->pages / CHURN_CHAINS);
        status = store_make(fill, budget_bytes);
        if (status == KVT_OK) {
            status = fill_run(fill, budget_bytes);
        }
    } else {
        (void)snprintf(why, why_bytes, "store '%s': no memory to fill it", config->folder);
    }
    kvt_free(mem, tokens, tokens_bytes);
    kvt_free(mem, seqs, (size_t)config->pages * sizeof(*seqs));
    kvt_free(mem, fill, sizeof(*fill));
    if (status == KVT_OK) {
        *out_store_bytes = budget_bytes;
    }
    return status;
}

kvt_status kvt_store_uncache(const char *folder, char *why, size_t why_bytes)
{
    static const char *const files[] = {KVT_STORE_CATALOG_DATA, KVT_STORE_DATA_FILE,
                                        KVT_STORE_HEADER_FILE};
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        char path[PATH_BYTES];
        (void)snprintf(path, sizeof(path), "%s/%s", folder, files[i]);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        int error = fd < 0 || fdatasync(fd) != 0 ? errno : 0;
        error = error == 0 ? posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) : error;
        if (fd >= 0) {
            (void)close(fd);
        }
        if (error != 0) {
            (void)snprintf(why, why_bytes, "'%s': cannot be dropped from the page cache: %s", path,
                           strerror(error));
            return KVT_ERR_IO;
        }
    }
    return KVT_OK;
}

kvt_status kvt_store_walk(const char *folder, const char *catalog_program, uint64_t *out_ns,
                          uint64_t *out_records, char *why, size_t why_bytes)
{
    const struct kvt_log log = {0};
    struct kvt_catalog *catalog = NULL;
    struct stat is = {0};
    char path[PATH_BYTES];
    (void)snprintf(path, sizeof(path), "%s/" KVT_STORE_CATALOG_DATA, folder);
    (void)stat(path, &is); /* what is not there is said by the catalog */
    kvt_status status =
        catalog_open(folder, catalog_program, (uint64_t)is.st_size + KVT_NVME_STORE_BYTES_MIN, 0,
                     &log, &catalog, why, why_bytes);
    if (status != KVT_OK) {
        return status;
    }
    status = kvt_catalog_walk(catalog, CATALOG_NS, out_ns, out_records);
    if (status != KVT_OK) {
        (void)snprintf(why, why_bytes, "store '%s': its catalog cannot be walked: %s", folder,
                       kvt_status_text(status));
    }
    kvt_catalog_close(catalog);
    return status;
}
