/*
 * Measuring the nvme tier by itself: pages are written in batches, as spilling does it, and read
 * one by one with many under way, as restoring does it. Nothing else of the cache runs.
 *
 * Pages are chains: page i continues page i - 1, but for every CHAIN_PAGES-th, which begins a
 * prompt. Their keys, and so the seeds of their checksums, are those that the cache would give
 * them: what is left of a bench is a store that kvt_store_check() can verify.
 *
 * One thread drives; the tier's threads only put what ended on two lists.
 */
#include "cache/index/key.h"
#include "cache/kvt_store.h"
#include "cache/tier/nvme_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define CHAIN_PAGES 64u
#define BATCHES 3u       /* writes under way */
#define SPARE_BATCHES 8u /* room for what is written while others are read */
#define DEPTH_MAX 256u
#define PAGES_MAX (UINT64_C(1) << 24)
#define PAGE_TOKENS_MAX 4096u
#define BUDGET_SPARE_BYTES (UINT64_C(32) << 20)
#define BUDGET_SPARE_SLOTS 16u
#define WAIT_NS UINT64_C(120000000000)
#define RETRY_NS UINT64_C(2000000)    /* until a slot comes back, or the pace allows more */
#define SETTLE_NS UINT64_C(300000000) /* nothing was written for so long: all is quiet */
#define NAMESPACE_NUMBER 1u
#define NS_PER_S UINT64_C(1000000000)
static const char namespace_name[] = "kvtier bench";

struct bench_page {
    struct kvt_place place; /* generation 0: not written */
    struct kvt_key key;
};

struct bench_read {
    struct kvt_nvme_read read;
    struct kvt_nvme_read_page page;
    struct kvt_store_bench *bench;
    struct bench_read *next;
    uint64_t start_ns, end_ns;
};

struct bench_batch {
    struct kvt_nvme_write write;
    struct kvt_nvme_page pages[KVT_NVME_BATCH_PAGES_MAX];
    struct kvt_store_bench *bench;
    struct bench_batch *next;
    struct kvt_catalog_namespace ns;
    uint32_t *tokens; /* [batch_pages * page_tokens] */
    char *payload;    /* [batch_pages * slot_bytes] */
};

struct kvt_store_bench {
    const struct kvt_memory *mem;
    struct kvt_log log;
    struct kvt_nvme *nvme;
    uint64_t slot_bytes, budget_bytes;
    uint32_t page_bytes, page_tokens, page_count, batch_pages, depth;
    uint32_t round; /* of writing: other tokens, other keys */
    uint64_t spare_number;
    bool namespace_known;
    struct bench_page *pages;    /* [page_count] */
    struct bench_read *reads;    /* [DEPTH_MAX] */
    uint64_t *latencies;         /* [page_count] */
    struct bench_batch *batches; /* [BATCHES] */
    char *block;                 /* buffers of all */
    size_t block_bytes;
    char io_reason[160];
    struct kvt_cond cond;
    struct kvt_lock lock; /* protects what follows */
    struct bench_read *reads_ended;
    struct bench_batch *batches_ended;
};

/* ---- pages ---- */

static uint64_t mixed_bits(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    return x ^ (x >> 31);
}

static void tokens_draw(uint64_t seed, uint32_t *out_tokens, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        out_tokens[i] = (uint32_t)mixed_bits(seed * PAGE_TOKENS_MAX + i);
    }
}

/* Bytes that no drive can make smaller. */
static void payload_draw(uint64_t seed, char *payload, uint64_t bytes)
{
    for (uint64_t i = 0; i + sizeof(uint64_t) <= bytes; i += sizeof(uint64_t)) {
        uint64_t bits = mixed_bits(seed + i);
        memcpy(payload + i, &bits, sizeof(bits));
    }
}

/* ---- opening ---- */

static kvt_status config_check(const struct kvt_store_bench_config *config, char *why,
                               size_t why_bytes)
{
    const char *wrong = NULL;
    if (config->folders == NULL || config->folder_count == 0 ||
        config->folder_count > KVT_STORE_SET_MAX) {
        wrong = "no folders, or too many";
    } else if (config->page_bytes < KVT_NVME_ALIGN_BYTES || config->page_bytes > UINT32_MAX / 2) {
        wrong = "pages of less than 4 KiB, or too large ones";
    } else if (config->bytes < config->page_bytes ||
               config->bytes / config->page_bytes > PAGES_MAX) {
        wrong = "no page fits, or there would be too many";
    } else if (config->batch_bytes < config->page_bytes) {
        wrong = "a batch is less than a page";
    } else if (config->page_tokens == 0 || config->page_tokens > PAGE_TOKENS_MAX) {
        wrong = "pages of no tokens, or of too many";
    } else if (config->depth == 0 || config->depth > DEPTH_MAX) {
        wrong = "a depth of 0, or above 256";
    }
    if (wrong != NULL) {
        (void)snprintf(why, why_bytes, "bench: %s", wrong);
        return KVT_ERR_INVAL;
    }
    return KVT_OK;
}

/* Lays the buffers out in one block, and fills the ones that are written. */
static bool buffers_make(struct kvt_store_bench *bench)
{
    uint64_t batch_bytes = bench->batch_pages * bench->slot_bytes;
    uint64_t bytes = BATCHES * batch_bytes + bench->depth * bench->slot_bytes;
    void *block =
        mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block == MAP_FAILED) {
        return false;
    }
    bench->block = block;
    bench->block_bytes = (size_t)bytes;
    for (uint32_t i = 0; i < BATCHES; i++) {
        bench->batches[i].payload = bench->block + (size_t)(i * batch_bytes);
        payload_draw(mixed_bits(i + 1), bench->batches[i].payload, batch_bytes);
    }
    for (uint32_t i = 0; i < bench->depth; i++) {
        bench->reads[i].page.buffer =
            bench->block + (size_t)(BATCHES * batch_bytes + i * bench->slot_bytes);
        memset(bench->reads[i].page.buffer, 0, (size_t)bench->slot_bytes);
    }
    return true;
}

static kvt_status memory_take(struct kvt_store_bench *bench)
{
    bench->pages = kvt_calloc(bench->mem, bench->page_count, sizeof(*bench->pages));
    bench->latencies = kvt_calloc(bench->mem, bench->page_count, sizeof(*bench->latencies));
    bench->reads = kvt_calloc(bench->mem, DEPTH_MAX, sizeof(*bench->reads));
    bench->batches = kvt_calloc(bench->mem, BATCHES, sizeof(*bench->batches));
    if (bench->pages == NULL || bench->latencies == NULL || bench->reads == NULL ||
        bench->batches == NULL) {
        return KVT_ERR_NOMEM;
    }
    for (uint32_t i = 0; i < BATCHES; i++) {
        bench->batches[i].tokens =
            kvt_calloc(bench->mem, (size_t)bench->batch_pages * bench->page_tokens,
                       sizeof(*bench->batches[i].tokens));
        if (bench->batches[i].tokens == NULL) {
            return KVT_ERR_NOMEM;
        }
    }
    return buffers_make(bench) ? KVT_OK : KVT_ERR_NOMEM;
}

static kvt_status no_namespace(void *ctx, const struct kvt_catalog_namespace *ns)
{
    (void)ctx;
    (void)ns;
    return KVT_OK;
}

/* Pages of an earlier one are not wanted. */
static kvt_status no_page(void *ctx, const struct kvt_catalog_page *page)
{
    (void)ctx;
    (void)page;
    return KVT_ERR_INVAL;
}

static kvt_status tier_open(struct kvt_store_bench *bench,
                            const struct kvt_store_bench_config *config, char *why,
                            size_t why_bytes)
{
    struct kvt_nvme_store stores[KVT_STORE_SET_MAX];
    uint64_t pages = bench->page_count + (uint64_t)SPARE_BATCHES * bench->batch_pages;
    uint64_t bytes = pages * bench->slot_bytes;
    /* A quarter more: the catalog, and what is left over at the ends of extents. */
    uint64_t each = (bytes + bytes / 4) / config->folder_count +
                    BUDGET_SPARE_SLOTS * bench->slot_bytes + BUDGET_SPARE_BYTES;
    for (uint32_t i = 0; i < config->folder_count; i++) {
        stores[i] = (struct kvt_nvme_store){config->folders[i], each};
        bench->budget_bytes += each;
    }
    const struct kvt_nvme_config tier = {
        .mem = bench->mem,
        .log = &bench->log,
        .clock = kvt_clock_monotonic,
        .stores = stores,
        .store_count = config->folder_count,
        .page_tokens = bench->page_tokens,
        .catalog_program = config->catalog_program,
        .read_late_ns = WAIT_NS,
        .threads_only = (config->flags & KVT_STORE_THREADS) != 0,
        .buffered = (config->flags & KVT_STORE_BUFFERED) != 0,
    };
    kvt_status status = kvt_nvme_open(&tier, &bench->nvme, why, why_bytes);
    if (status != KVT_OK) {
        return status;
    }
    const struct kvt_catalog_visitor visitor = {NULL, no_namespace, no_page};
    struct kvt_catalog_load load;
    status = kvt_nvme_load(bench->nvme, &visitor, &load);
    if (status != KVT_OK) {
        (void)snprintf(why, why_bytes, "bench: the new store cannot be loaded: %s",
                       kvt_status_text(status));
        return status;
    }
    kvt_nvme_buffer_add(bench->nvme, bench->block, bench->block_bytes);
    return KVT_OK;
}

kvt_status kvt_store_bench_open(const struct kvt_store_bench_config *config,
                                struct kvt_store_bench **out_bench, char *why, size_t why_bytes)
{
    kvt_status status = config_check(config, why, why_bytes);
    if (status != KVT_OK) {
        return status;
    }
    const struct kvt_memory *mem = &kvt_memory_libc;
    struct kvt_store_bench *bench = kvt_calloc(mem, 1, sizeof(*bench));
    if (bench == NULL) {
        (void)snprintf(why, why_bytes, "bench: no memory");
        return KVT_ERR_NOMEM;
    }
    uint64_t batch_pages = config->batch_bytes / config->page_bytes;
    bench->mem = mem;
    bench->log = (struct kvt_log){config->log, config->log_ctx};
    bench->page_bytes = (uint32_t)config->page_bytes;
    bench->slot_bytes = kvt_nvme_slot_bytes(config->page_bytes);
    bench->page_tokens = config->page_tokens;
    bench->page_count = (uint32_t)(config->bytes / config->page_bytes);
    bench->batch_pages =
        batch_pages < KVT_NVME_BATCH_PAGES_MAX ? (uint32_t)batch_pages : KVT_NVME_BATCH_PAGES_MAX;
    bench->depth = config->depth;
    kvt_lock_init(&bench->lock, KVT_RANK_LEAF, "bench");
    kvt_cond_init(&bench->cond);
    status = memory_take(bench);
    if (status != KVT_OK) {
        (void)snprintf(why, why_bytes, "bench: no memory for the pages");
    } else {
        status = tier_open(bench, config, why, why_bytes);
    }
    if (status != KVT_OK) {
        kvt_store_bench_close(bench);
        return status;
    }
    *out_bench = bench;
    return KVT_OK;
}

void kvt_store_bench_close(struct kvt_store_bench *bench)
{
    if (bench == NULL) {
        return;
    }
    const struct kvt_memory *mem = bench->mem;
    kvt_nvme_close(bench->nvme, WAIT_NS);
    for (uint32_t i = 0; bench->batches != NULL && i < BATCHES; i++) {
        kvt_free(mem, bench->batches[i].tokens,
                 (size_t)bench->batch_pages * bench->page_tokens * sizeof(uint32_t));
    }
    kvt_free(mem, bench->batches, BATCHES * sizeof(*bench->batches));
    kvt_free(mem, bench->reads, DEPTH_MAX * sizeof(*bench->reads));
    kvt_free(mem, bench->latencies, bench->page_count * sizeof(*bench->latencies));
    kvt_free(mem, bench->pages, bench->page_count * sizeof(*bench->pages));
    if (bench->block != NULL) {
        (void)munmap(bench->block, bench->block_bytes);
    }
    kvt_cond_fini(&bench->cond);
    kvt_lock_fini(&bench->lock);
    kvt_free(mem, bench, sizeof(*bench));
}

void kvt_store_bench_facts(struct kvt_store_bench *bench, struct kvt_store_bench_facts *out_facts)
{
    struct kvt_nvme_stats stats;
    kvt_nvme_stats(bench->nvme, &stats);
    (void)snprintf(bench->io_reason, sizeof(bench->io_reason), "%s",
                   stats.io.backend_reason != NULL ? stats.io.backend_reason : "");
    *out_facts = (struct kvt_store_bench_facts){
        .io = stats.io.backend,
        .io_reason = bench->io_reason,
        .direct = stats.direct,
        .budget_bytes = bench->budget_bytes,
        .data_bytes = (uint64_t)bench->page_count * bench->page_bytes,
    };
}

/* ---- ends ---- */

static void read_done(struct kvt_nvme_read *read)
{
    struct bench_read *mine = read->user;
    mine->end_ns = kvt_now_ns(&kvt_clock_monotonic);
}

static void read_released(struct kvt_nvme_read *read)
{
    struct bench_read *mine = read->user;
    struct kvt_store_bench *bench = mine->bench;
    kvt_lock_take(&bench->lock);
    mine->next = bench->reads_ended;
    bench->reads_ended = mine;
    kvt_cond_broadcast(&bench->cond);
    kvt_lock_give(&bench->lock);
}

static void write_done(struct kvt_nvme_write *write)
{
    struct bench_batch *mine = write->user;
    struct kvt_store_bench *bench = mine->bench;
    kvt_lock_take(&bench->lock);
    mine->next = bench->batches_ended;
    bench->batches_ended = mine;
    kvt_cond_broadcast(&bench->cond);
    kvt_lock_give(&bench->lock);
}

/* ---- one run: reads, writes, or both ---- */

struct run {
    struct kvt_store_bench *bench;
    uint32_t read_at, read_end, reads_running, depth;
    uint32_t write_at, write_end; /* of the pages */
    bool spare;                   /* write others, as long as reads run */
    uint64_t pace_bytes_per_s;
    uint32_t batches_running;
    bool waits; /* for a slot, or its pace */
    struct bench_read *reads_free;
    struct bench_batch *batches_free;
    uint32_t latency_count;
    uint64_t start_ns, written_bytes, submitted_bytes;
    kvt_status status; /* the first that was not OK */
};

static void run_failed(struct run *run, kvt_status status)
{
    run->status = run->status == KVT_OK ? status : run->status;
}

static void reads_start(struct run *run)
{
    struct kvt_store_bench *bench = run->bench;
    while (run->status == KVT_OK && run->reads_free != NULL && run->read_at < run->read_end) {
        struct bench_read *mine = run->reads_free;
        const struct bench_page *page = &bench->pages[run->read_at];
        void *buffer = mine->page.buffer;
        mine->page = (struct kvt_nvme_read_page){.place = page->place,
                                                 .seed = kvt_nvme_seed(page->key.bytes),
                                                 .buffer = buffer,
                                                 .bytes = bench->page_bytes};
        mine->read = (struct kvt_nvme_read){.pages = &mine->page,
                                            .page_count = 1,
                                            .done = read_done,
                                            .released = read_released,
                                            .user = mine};
        mine->bench = bench;
        mine->start_ns = kvt_now_ns(&kvt_clock_monotonic);
        kvt_status status = kvt_nvme_read(bench->nvme, &mine->read);
        if (status != KVT_OK) {
            run_failed(run, status);
            return;
        }
        run->reads_free = mine->next;
        run->read_at++;
        run->reads_running++;
    }
}

/* The pages of a batch get places; how many found one. */
static uint32_t batch_reserve(struct run *run, struct bench_batch *batch, uint32_t wanted)
{
    struct kvt_store_bench *bench = run->bench;
    uint32_t count = 0;
    while (count < wanted) {
        struct kvt_nvme_page *page = &batch->pages[count];
        *page =
            (struct kvt_nvme_page){.ns = NAMESPACE_NUMBER,
                                   .payload = batch->payload + (size_t)(count * bench->slot_bytes),
                                   .bytes = bench->page_bytes,
                                   .token_count = bench->page_tokens};
        kvt_status status = kvt_nvme_reserve(bench->nvme, bench->page_bytes, &page->place);
        if (status == KVT_ERR_LIMIT && run->spare) {
            break; /* those that were dropped come back soon */
        }
        if (status != KVT_OK) {
            run_failed(run, status);
            break;
        }
        count++;
    }
    return count;
}

static void batch_unreserve(struct run *run, struct bench_batch *batch, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        kvt_nvme_unreserve(run->bench->nvme, batch->pages[i].place);
    }
}

/* Tokens, keys, parents. Those of the pages are remembered, others are not. */
static void batch_name(struct run *run, struct bench_batch *batch, uint32_t count)
{
    struct kvt_store_bench *bench = run->bench;
    struct kvt_key root = kvt_key_of_namespace(namespace_name, sizeof(namespace_name) - 1);
    struct kvt_key before = root;
    struct kvt_place parent = {0};
    if (!run->spare && run->write_at % CHAIN_PAGES != 0) {
        before = bench->pages[run->write_at - 1].key;
        parent = bench->pages[run->write_at - 1].place;
    }
    for (uint32_t i = 0; i < count; i++) {
        struct kvt_nvme_page *page = &batch->pages[i];
        uint64_t number = run->spare ? PAGES_MAX + bench->spare_number++ : run->write_at + i;
        uint32_t *tokens = batch->tokens + (size_t)i * bench->page_tokens;
        if (!run->spare && number % CHAIN_PAGES == 0) {
            before = root;
            parent = (struct kvt_place){0};
        }
        tokens_draw(number + ((uint64_t)bench->round << 32), tokens, bench->page_tokens);
        before = kvt_key_next(&before, tokens, bench->page_tokens, NULL, 0);
        page->tokens = tokens;
        page->seed = kvt_nvme_seed(before.bytes);
        page->parent = parent;
        parent = page->place;
        if (!run->spare) {
            bench->pages[number] = (struct bench_page){page->place, before};
        }
    }
}

static bool pace_allows(struct run *run)
{
    if (run->pace_bytes_per_s == 0) {
        return true;
    }
    uint64_t passed_ns = kvt_now_ns(&kvt_clock_monotonic) - run->start_ns;
    double allowed = (double)run->pace_bytes_per_s * (double)passed_ns / (double)NS_PER_S;
    return (double)run->submitted_bytes <= allowed;
}

/* False: not now. */
static bool batch_start(struct run *run, struct bench_batch *batch)
{
    struct kvt_store_bench *bench = run->bench;
    uint32_t left = run->spare ? bench->batch_pages : run->write_end - run->write_at;
    uint32_t wanted = left < bench->batch_pages ? left : bench->batch_pages;
    uint32_t count = batch_reserve(run, batch, wanted);
    if (count < wanted) {
        batch_unreserve(run, batch, count);
        return false;
    }
    batch_name(run, batch, count);
    batch->bench = bench;
    batch->ns = (struct kvt_catalog_namespace){.number = NAMESPACE_NUMBER,
                                               .group = 1,
                                               .slot_bytes = bench->slot_bytes,
                                               .canonical = namespace_name,
                                               .canonical_bytes = sizeof(namespace_name) - 1};
    batch->write = (struct kvt_nvme_write){.pages = batch->pages,
                                           .page_count = count,
                                           .namespaces = &batch->ns,
                                           .namespace_count = bench->namespace_known ? 0 : 1,
                                           .done = write_done,
                                           .user = batch};
    kvt_status status = kvt_nvme_write(bench->nvme, &batch->write);
    if (status != KVT_OK) {
        batch_unreserve(run, batch, count);
        run_failed(run, status);
        return false;
    }
    bench->namespace_known = true;
    run->write_at += run->spare ? 0 : count;
    run->submitted_bytes += (uint64_t)count * bench->page_bytes;
    run->batches_running++;
    return true;
}

static void writes_start(struct run *run)
{
    run->waits = false;
    while (run->status == KVT_OK && run->batches_free != NULL &&
           (run->spare ? run->read_at < run->read_end : run->write_at < run->write_end)) {
        struct bench_batch *batch = run->batches_free;
        if (!pace_allows(run) || !batch_start(run, batch)) {
            run->waits = true;
            return;
        }
        run->batches_free = batch->next;
    }
}

static void batch_ended(struct run *run, struct bench_batch *batch)
{
    struct kvt_store_bench *bench = run->bench;
    if (batch->write.status != KVT_OK) {
        run_failed(run, batch->write.status);
    }
    run->written_bytes += (uint64_t)batch->write.pages_good * bench->page_bytes;
    if (run->spare) {
        struct kvt_place places[KVT_NVME_BATCH_PAGES_MAX];
        for (uint32_t i = 0; i < batch->write.pages_good; i++) {
            places[i] = batch->pages[batch->write.pages_good - 1 - i].place;
        }
        kvt_nvme_drop(bench->nvme, places, batch->write.pages_good);
    }
    batch->next = run->batches_free;
    run->batches_free = batch;
    run->batches_running--;
}

static void read_ended(struct run *run, struct bench_read *mine)
{
    if (mine->read.status != KVT_OK) {
        run_failed(run, mine->read.status);
    }
    run->bench->latencies[run->latency_count++] = mine->end_ns - mine->start_ns;
    mine->next = run->reads_free;
    run->reads_free = mine;
    run->reads_running--;
}

/* Waits for something to end, and takes it in. */
static void run_wait(struct run *run)
{
    struct kvt_store_bench *bench = run->bench;
    kvt_lock_take(&bench->lock);
    while (bench->reads_ended == NULL && bench->batches_ended == NULL) {
        bool told = kvt_cond_wait(&bench->cond, &bench->lock, run->waits ? RETRY_NS : UINT64_MAX);
        if (!told && run->waits) {
            break;
        }
    }
    struct bench_read *reads = bench->reads_ended;
    struct bench_batch *batches = bench->batches_ended;
    bench->reads_ended = NULL;
    bench->batches_ended = NULL;
    kvt_lock_give(&bench->lock);
    while (reads != NULL) {
        struct bench_read *next = reads->next;
        read_ended(run, reads);
        reads = next;
    }
    while (batches != NULL) {
        struct bench_batch *next = batches->next;
        batch_ended(run, batches);
        batches = next;
    }
}

static void run_free_lists(struct run *run)
{
    struct kvt_store_bench *bench = run->bench;
    for (uint32_t i = 0; i < run->depth; i++) {
        bench->reads[i].next = i + 1 < run->depth ? &bench->reads[i + 1] : NULL;
    }
    for (uint32_t i = 0; i < BATCHES; i++) {
        bench->batches[i].next = i + 1 < BATCHES ? &bench->batches[i + 1] : NULL;
    }
    run->reads_free = run->depth > 0 ? bench->reads : NULL;
    run->batches_free = bench->batches;
}

static int by_value(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return (left > right) - (left < right);
}

static uint64_t percentile(const struct run *run, uint32_t percent)
{
    uint64_t at = (uint64_t)run->latency_count * percent / 100;
    return run->latency_count > 0
               ? run->bench->latencies[at < run->latency_count ? at : run->latency_count - 1]
               : 0;
}

static kvt_status run_all(struct run *run, struct kvt_store_bench_rate *out_read,
                          struct kvt_store_bench_rate *out_write)
{
    struct kvt_store_bench *bench = run->bench;
    uint64_t read_end_ns = 0, beside_bytes = 0;
    run_free_lists(run);
    run->start_ns = kvt_now_ns(&kvt_clock_monotonic);
    for (;;) {
        reads_start(run);
        writes_start(run);
        bool reads_over =
            run->reads_running == 0 && (run->read_at == run->read_end || run->status != KVT_OK);
        if (reads_over && read_end_ns == 0) {
            read_end_ns = kvt_now_ns(&kvt_clock_monotonic);
            beside_bytes = run->written_bytes;
        }
        bool writes_over = run->batches_running == 0 &&
                           (run->spare || run->write_at == run->write_end || run->status != KVT_OK);
        if (reads_over && writes_over) {
            break;
        }
        run_wait(run);
    }
    if (!run->spare && run->write_end > 0 && run->status == KVT_OK) {
        run->status = kvt_nvme_flush(bench->nvme, WAIT_NS);
    }
    uint64_t end_ns = kvt_now_ns(&kvt_clock_monotonic);
    if (run->status != KVT_OK) {
        return run->status;
    }
    qsort(bench->latencies, run->latency_count, sizeof(*bench->latencies), by_value);
    if (out_read != NULL) {
        *out_read = (struct kvt_store_bench_rate){
            .pages = run->read_end,
            .bytes = (uint64_t)run->read_end * bench->page_bytes,
            .ns = read_end_ns - run->start_ns,
            .p50_ns = percentile(run, 50),
            .p99_ns = percentile(run, 99),
        };
    }
    if (out_write != NULL) {
        uint64_t bytes = run->spare ? beside_bytes : run->written_bytes;
        *out_write = (struct kvt_store_bench_rate){
            .pages = bytes / bench->page_bytes,
            .bytes = bytes,
            .ns = (run->spare ? read_end_ns : end_ns) - run->start_ns,
        };
    }
    return KVT_OK;
}

/* Until the tier writes nothing of its own any more: it zeroes new extents when it has time. */
static void settle(struct kvt_store_bench *bench)
{
    uint64_t start_ns = kvt_now_ns(&kvt_clock_monotonic);
    uint64_t last = UINT64_MAX;
    for (;;) {
        struct kvt_nvme_stats stats;
        kvt_nvme_stats(bench->nvme, &stats);
        if (stats.io.write_bytes == last || kvt_now_ns(&kvt_clock_monotonic) - start_ns > WAIT_NS) {
            return;
        }
        last = stats.io.write_bytes;
        const struct timespec pause = {0, (long)SETTLE_NS};
        (void)nanosleep(&pause, NULL);
    }
}

static kvt_status all_drop(struct kvt_store_bench *bench)
{
    for (uint32_t i = bench->page_count; i > 0; i--) {
        if (bench->pages[i - 1].place.generation != 0) {
            kvt_nvme_drop(bench->nvme, &bench->pages[i - 1].place, 1);
            bench->pages[i - 1].place = (struct kvt_place){0};
        }
    }
    kvt_status status = kvt_nvme_flush(bench->nvme, WAIT_NS);
    settle(bench);
    return status;
}

kvt_status kvt_store_bench_write(struct kvt_store_bench *bench,
                                 struct kvt_store_bench_rate *out_write)
{
    kvt_status status = all_drop(bench);
    if (status != KVT_OK) {
        return status;
    }
    bench->round++;
    struct run run = {.bench = bench, .write_end = bench->page_count};
    status = run_all(&run, NULL, out_write);
    settle(bench);
    return status;
}

static kvt_status readable(const struct kvt_store_bench *bench, uint32_t depth)
{
    bool written = bench->pages[bench->page_count - 1].place.generation != 0;
    return written && depth > 0 && depth <= bench->depth ? KVT_OK : KVT_ERR_INVAL;
}

kvt_status kvt_store_bench_read(struct kvt_store_bench *bench, uint32_t depth,
                                struct kvt_store_bench_rate *out_read)
{
    kvt_status status = readable(bench, depth);
    if (status != KVT_OK) {
        return status;
    }
    struct run run = {.bench = bench, .read_end = bench->page_count, .depth = depth};
    return run_all(&run, out_read, NULL);
}

kvt_status kvt_store_bench_mixed(struct kvt_store_bench *bench, uint32_t depth,
                                 uint64_t write_bytes_per_s, struct kvt_store_bench_rate *out_read,
                                 struct kvt_store_bench_rate *out_write)
{
    kvt_status status = readable(bench, depth);
    if (status != KVT_OK) {
        return status;
    }
    struct run run = {.bench = bench,
                      .read_end = bench->page_count,
                      .depth = depth,
                      .spare = true,
                      .pace_bytes_per_s = write_bytes_per_s};
    status = run_all(&run, out_read, out_write);
    if (status == KVT_OK) {
        status = kvt_nvme_flush(bench->nvme, WAIT_NS);
    }
    return status;
}

kvt_status kvt_store_bench_checksum(uint64_t bytes, uint64_t piece_bytes, uint64_t *out_ns)
{
    size_t block_bytes = (size_t)BUDGET_SPARE_BYTES;
    uint64_t piece = piece_bytes < block_bytes ? piece_bytes : block_bytes;
    if (piece == 0) {
        return KVT_ERR_INVAL;
    }
    char *block = kvt_alloc(&kvt_memory_libc, block_bytes);
    if (block == NULL) {
        return KVT_ERR_NOMEM;
    }
    payload_draw(1, block, block_bytes);
    uint64_t sum = 0;
    uint64_t start_ns = kvt_now_ns(&kvt_clock_monotonic);
    for (uint64_t done = 0, at = 0; done < bytes; done += piece) {
        sum ^= kvt_nvme_checksum(block + at, piece, done);
        at = at + 2 * piece <= block_bytes ? at + piece : 0;
    }
    uint64_t ns = kvt_now_ns(&kvt_clock_monotonic) - start_ns;
    /* So that the loop is not left out. */
    *out_ns = ns + (sum == 0);
    kvt_free(&kvt_memory_libc, block, block_bytes);
    return KVT_OK;
}
