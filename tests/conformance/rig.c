/* The host, engines and bytes that clauses work with. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/conformance/conf.h"

#define GAP_BYTES 32u
static const uint64_t block_bytes[KVT_CONF_REGIONS] = {96, 160, 64, 32};

/* ---- small things ---- */

const char *kvt_conf_name(kvt_status status)
{
    switch (status) {
#define NAME_OF(name, value, sentence, retry)                                                      \
    case (value):                                                                                  \
        return #name;
        KVT_STATUS_MAP(NAME_OF)
#undef NAME_OF
    default:
        return "a status that is not in kvt_status.h";
    }
}

void kvt_conf_want(int line, kvt_status got, kvt_status wanted, const char *what)
{
    if (got != wanted) {
        kvt_conf_fail(line, "%s answered %s, not %s", what, kvt_conf_name(got),
                      kvt_conf_name(wanted));
    }
}

void kvt_conf_sleep(uint64_t ns)
{
    struct timespec left = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    while (nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
}

/* ---- the host ---- */

/* The size stands in front of each block, so that free() can check what it is told. */
#define HEAD_BYTES 16u

static void *host_alloc(void *ctx, uint64_t bytes)
{
    struct kvt_conf *conf = ctx;
    int64_t left = atomic_load(&conf->fail_in);
    while (left > 0 && !atomic_compare_exchange_weak(&conf->fail_in, &left, left - 1)) {
    }
    unsigned char *block = left == 1 ? NULL : malloc((size_t)bytes + HEAD_BYTES);
    if (block == NULL) {
        return NULL;
    }
    memcpy(block, &bytes, sizeof(bytes));
    memset(block + HEAD_BYTES, 0xa5, (size_t)bytes); /* nobody may count on zeroes */
    atomic_fetch_add(&conf->live_blocks, 1);
    atomic_fetch_add(&conf->live_bytes, (int64_t)bytes);
    return block + HEAD_BYTES;
}

static void host_free(void *ctx, void *ptr, uint64_t bytes)
{
    struct kvt_conf *conf = ctx;
    uint64_t asked = 0;
    if (ptr == NULL) {
        return;
    }
    unsigned char *block = (unsigned char *)ptr - HEAD_BYTES;
    memcpy(&asked, block, sizeof(asked));
    NEED(asked == bytes, "a block of %llu bytes was freed as one of %llu",
         (unsigned long long)asked, (unsigned long long)bytes);
    atomic_fetch_sub(&conf->live_blocks, 1);
    atomic_fetch_sub(&conf->live_bytes, (int64_t)bytes);
    free(block);
}

static void host_log(void *ctx, int32_t level, const char *line, uint64_t line_bytes)
{
    struct kvt_conf *conf = ctx;
    NEED(level >= 1 && level <= 4, "a line was logged at level %d", level);
    NEED(line_bytes > 0 && memchr(line, '\n', (size_t)line_bytes) == NULL,
         "what was logged is not one line");
    atomic_fetch_add(&conf->log_lines, 1);
}

static uint64_t host_now_ns(void *ctx)
{
    struct kvt_conf *conf = ctx;
    return atomic_load(&conf->now_ns);
}

void kvt_conf_init(struct kvt_conf *conf, const kvt_plugin_entry *entry, const char *uri)
{
    static const char digest[] = "conformance weights";
    memset(conf, 0, sizeof(*conf));
    conf->entry = entry;
    atomic_store(&conf->now_ns, UINT64_C(1000000000));
    conf->host = (kvt_host)KVT_HOST_INIT;
    conf->host.ctx = conf;
    conf->host.alloc = host_alloc;
    conf->host.free = host_free;
    conf->host.log = host_log;
    conf->host.now_ns = host_now_ns;
    conf->fields[0] = (kvt_field){KVT_FIELD_WEIGHTS, 0, digest, sizeof(digest)};
    conf->fields[1] = (kvt_field){KVT_FIELD_KV_DTYPE, 0, "f32", 3};
    conf->fields[2] = (kvt_field){KVT_FIELD_ROPE, 0, NULL, 0};
    conf->fields[3] = (kvt_field){KVT_FIELD_LAYOUT, 0, "conformance", 11};
    conf->config = (kvt_open_config)KVT_OPEN_CONFIG_INIT;
    conf->config.uri = uri;
    conf->config.uri_bytes = strlen(uri);
    conf->config.page_tokens = KVT_CONF_PAGE_TOKENS;
    conf->config.fields = conf->fields;
    conf->config.field_count = 4;
    conf->config.tenant = "conformance";
    conf->config.tenant_bytes = 11;
    conf->config.hbm_bytes = (entry->caps_offered & KVT_CAP_HBM_TIER) != 0 ? 1u << 20 : 0;
    conf->config.host_bytes = (entry->caps_offered & KVT_CAP_HOST_TIER) != 0 ? 4u << 20 : 0;
}

void kvt_conf_balanced(struct kvt_conf *conf)
{
    int64_t blocks = atomic_load(&conf->live_blocks), bytes = atomic_load(&conf->live_bytes);
    NEED(blocks == 0 && bytes == 0, "%lld blocks of the host's memory were not given back",
         (long long)blocks);
}

/* ---- engines ---- */

void kvt_conf_open(struct kvt_conf *conf, struct kvt_conf_rig *out_rig)
{
    memset(out_rig, 0, sizeof(*out_rig));
    out_rig->conf = conf;
    out_rig->entry = conf->entry;
    kvt_status status = conf->entry->open(&conf->host, &conf->config, &out_rig->engine, conf->why,
                                          sizeof(conf->why));
    NEED(status == KVT_OK, "open answered %s: %s", kvt_conf_name(status), conf->why);
    NEED(out_rig->engine != NULL, "open gave no engine");
    out_rig->streams = conf->entry->get_extension(out_rig->engine, KVT_EXT_CPU_STREAM);
    out_rig->faults = conf->entry->get_extension(out_rig->engine, KVT_EXT_CPU_FAULT);
    for (uint32_t i = 0; i < KVT_CONF_REGIONS; i++) {
        uint64_t stride = block_bytes[i] + GAP_BYTES;
        out_rig->memory[i] = malloc((size_t)(stride * KVT_CONF_BLOCKS));
        NEED(out_rig->memory[i] != NULL, "no memory for the engine's blocks");
        memset(out_rig->memory[i], KVT_CONF_WIPED, (size_t)(stride * KVT_CONF_BLOCKS));
        out_rig->regions[i] = (kvt_region){
            .struct_size = sizeof(kvt_region),
            .memory_kind = KVT_MEMORY_CPU,
            .base = (uint64_t)(uintptr_t)out_rig->memory[i],
            .block_bytes = block_bytes[i],
            .stride_bytes = stride,
        };
    }
    out_rig->layout = (kvt_layout)KVT_LAYOUT_INIT;
    out_rig->layout.block_tokens = KVT_CONF_BLOCK_TOKENS;
    out_rig->layout.block_count = KVT_CONF_BLOCKS;
    out_rig->layout.regions = out_rig->regions;
    out_rig->layout.region_count = KVT_CONF_REGIONS;
}

void kvt_conf_bind(struct kvt_conf_rig *rig)
{
    if (rig->streams == NULL || (rig->entry->caps_offered & KVT_CAP_CPU_DEVICE) == 0) {
        kvt_conf_skip("the plug-in offers no CPU device with " KVT_EXT_CPU_STREAM);
    }
    kvt_status status = rig->entry->bind(rig->engine, &rig->layout, &rig->binding, rig->conf->why,
                                         sizeof(rig->conf->why));
    NEED(status == KVT_OK, "bind answered %s: %s", kvt_conf_name(status), rig->conf->why);
}

void kvt_conf_begin(struct kvt_conf *conf, struct kvt_conf_rig *out_rig)
{
    kvt_conf_open(conf, out_rig);
    kvt_conf_bind(out_rig);
    GOOD(out_rig->streams->stream_create(out_rig->engine, &out_rig->stream), "stream_create");
}

void kvt_conf_end(struct kvt_conf_rig *rig)
{
    GOOD(rig->entry->quiesce(rig->engine, KVT_CONF_WAIT_NS), "quiesce");
    if (rig->stream != NULL) {
        rig->streams->stream_destroy(rig->engine, rig->stream);
    }
    if (rig->binding != 0) {
        GOOD(rig->entry->unbind(rig->engine, rig->binding), "unbind");
    }
    GOOD(rig->entry->close(rig->engine), "close after quiesce");
    for (uint32_t i = 0; i < KVT_CONF_REGIONS; i++) {
        free(rig->memory[i]);
    }
}

/* ---- bytes ---- */

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 31)) * UINT64_C(0x7fb5d329728ea185);
    x = (x ^ (x >> 27)) * UINT64_C(0x81dadef4bc2dd44d);
    return x ^ (x >> 33);
}

void kvt_conf_tokens(uint32_t *out_tokens, uint64_t count, uint32_t seed)
{
    for (uint64_t i = 0; i < count; i++) {
        out_tokens[i] = (uint32_t)mix(((uint64_t)seed << 32) + i + 1) & 0xffffu;
    }
}

void kvt_conf_blocks(uint32_t *out_blocks, uint32_t first, uint32_t pages)
{
    /* Backwards, so that nobody takes blocks to be neighbours. */
    for (uint32_t i = 0; i < pages * KVT_CONF_PAGE_BLOCKS; i++) {
        out_blocks[i] = first + pages * KVT_CONF_PAGE_BLOCKS - 1 - i;
    }
}

static uint64_t prefix_hash(uint64_t hash, const uint32_t *tokens)
{
    for (uint32_t i = 0; i < KVT_CONF_PAGE_TOKENS; i++) {
        hash = mix(hash ^ (tokens[i] + UINT64_C(0x9e3779b97f4a7c15)));
    }
    return hash;
}

static unsigned char byte_of(uint64_t hash, uint32_t region, uint32_t block, uint64_t offset)
{
    return (unsigned char)mix(hash + region * UINT64_C(1000003) + block * UINT64_C(100003) +
                              offset);
}

static unsigned char *block_at(const struct kvt_conf_rig *rig, uint32_t region, uint32_t block)
{
    return rig->memory[region] + block * rig->regions[region].stride_bytes;
}

void kvt_conf_paint(struct kvt_conf_rig *rig, const uint32_t *tokens, uint32_t pages,
                    const uint32_t *blocks)
{
    uint64_t hash = 1;
    for (uint32_t page = 0; page < pages; page++) {
        hash = prefix_hash(hash, tokens + (size_t)page * KVT_CONF_PAGE_TOKENS);
        for (uint32_t at = 0; at < KVT_CONF_REGIONS * KVT_CONF_PAGE_BLOCKS; at++) {
            uint32_t region = at / KVT_CONF_PAGE_BLOCKS, block = at % KVT_CONF_PAGE_BLOCKS;
            unsigned char *to = block_at(rig, region, blocks[page * KVT_CONF_PAGE_BLOCKS + block]);
            for (uint64_t i = 0; i < block_bytes[region]; i++) {
                to[i] = byte_of(hash, region, block, i);
            }
        }
    }
}

void kvt_conf_wipe(struct kvt_conf_rig *rig, const uint32_t *blocks, uint32_t pages)
{
    for (uint32_t region = 0; region < KVT_CONF_REGIONS; region++) {
        for (uint32_t i = 0; i < pages * KVT_CONF_PAGE_BLOCKS; i++) {
            memset(block_at(rig, region, blocks[i]), KVT_CONF_WIPED, (size_t)block_bytes[region]);
        }
    }
}

static bool page_right(const struct kvt_conf_rig *rig, uint32_t region, uint64_t hash,
                       const uint32_t *blocks)
{
    for (uint32_t block = 0; block < KVT_CONF_PAGE_BLOCKS; block++) {
        const unsigned char *at = block_at(rig, region, blocks[block]);
        for (uint64_t i = 0; i < block_bytes[region]; i++) {
            if (at[i] != byte_of(hash, region, block, i)) {
                return false;
            }
        }
    }
    return true;
}

uint32_t kvt_conf_right(const struct kvt_conf_rig *rig, uint32_t region, const uint32_t *tokens,
                        uint32_t first, uint32_t pages, const uint32_t *blocks)
{
    uint64_t hash = 1;
    for (uint32_t page = 0; page < first + pages; page++) {
        hash = prefix_hash(hash, tokens + (size_t)page * KVT_CONF_PAGE_TOKENS);
        if (page < first) {
            continue;
        }
        for (uint32_t r = 0; r < KVT_CONF_REGIONS; r++) {
            if ((region == KVT_CONF_REGIONS || region == r) &&
                !page_right(rig, r, hash, blocks + (page - first) * KVT_CONF_PAGE_BLOCKS)) {
                return page - first;
            }
        }
    }
    return pages;
}

void kvt_conf_gaps(const struct kvt_conf_rig *rig)
{
    for (uint32_t region = 0; region < KVT_CONF_REGIONS; region++) {
        for (uint32_t block = 0; block < KVT_CONF_BLOCKS; block++) {
            const unsigned char *gap = block_at(rig, region, block) + block_bytes[region];
            for (uint32_t i = 0; i < GAP_BYTES; i++) {
                NEED(gap[i] == KVT_CONF_WIPED, "a byte between the blocks of region %u was written",
                     region);
            }
        }
    }
}

/* ---- calls ---- */

kvt_lookup kvt_conf_ask(uint64_t request_id, const uint32_t *tokens, uint64_t token_count)
{
    kvt_lookup lookup = KVT_LOOKUP_INIT;
    lookup.request_id = request_id;
    lookup.tokens = tokens;
    lookup.token_count = token_count;
    return lookup;
}

kvt_lookup_result kvt_conf_look(struct kvt_conf_rig *rig, const kvt_lookup *lookup)
{
    kvt_lookup_result found = KVT_LOOKUP_RESULT_INIT;
    GOOD(rig->entry->lookup(rig->engine, lookup, &found), "lookup");
    NEED(found.matched_tokens < lookup->token_count, "lookup promised the last token");
    NEED(found.matched_tokens % KVT_CONF_PAGE_TOKENS == 0, "lookup matched a part of a page");
    if (found.answer != KVT_ANSWER_HIT) {
        NEED(found.lease == 0, "a lease without a hit");
    } else {
        uint64_t sum = 0;
        for (uint32_t i = 0; i < KVT_TIER_COUNT; i++) {
            sum += found.tier_tokens[i];
        }
        NEED(found.lease != 0 && found.matched_tokens > 0, "a hit without a lease or tokens");
        NEED(sum == found.matched_tokens, "tier_tokens do not add up to matched_tokens");
    }
    return found;
}

uint64_t kvt_conf_hit(struct kvt_conf_rig *rig, uint64_t request_id, const uint32_t *tokens,
                      uint64_t token_count, uint64_t matched)
{
    kvt_lookup lookup = kvt_conf_ask(request_id, tokens, token_count);
    kvt_lookup_result found = kvt_conf_look(rig, &lookup);
    NEED(found.matched_tokens == matched, "lookup matched %llu tokens, not %llu",
         (unsigned long long)found.matched_tokens, (unsigned long long)matched);
    return found.lease;
}

kvt_save kvt_conf_saving(const struct kvt_conf_rig *rig, const uint32_t *tokens, uint32_t pages,
                         const uint32_t *blocks)
{
    kvt_save save = KVT_SAVE_INIT;
    save.binding = rig->binding;
    save.tokens = tokens;
    save.token_count = (uint64_t)pages * KVT_CONF_PAGE_TOKENS;
    save.blocks = blocks;
    save.block_count = (uint64_t)pages * KVT_CONF_PAGE_BLOCKS;
    save.stream = rig->stream;
    return save;
}

kvt_restore kvt_conf_restoring(const struct kvt_conf_rig *rig, uint64_t lease, uint32_t pages,
                               const uint32_t *blocks)
{
    kvt_restore restore = KVT_RESTORE_INIT;
    restore.binding = rig->binding;
    restore.lease = lease;
    restore.token_count = (uint64_t)pages * KVT_CONF_PAGE_TOKENS;
    restore.blocks = blocks;
    restore.block_count = (uint64_t)pages * KVT_CONF_PAGE_BLOCKS;
    restore.stream = rig->stream;
    return restore;
}

kvt_job_result kvt_conf_finish(struct kvt_conf_rig *rig, uint64_t job)
{
    kvt_job_result result = KVT_JOB_RESULT_INIT;
    GOOD(rig->entry->poll(rig->engine, job, KVT_CONF_WAIT_NS, &result), "poll");
    NEED(result.state == KVT_JOB_DONE, "a job did not end");
    return result;
}

void kvt_conf_put(struct kvt_conf_rig *rig, const uint32_t *tokens, uint32_t pages,
                  uint32_t first_block)
{
    uint32_t blocks[KVT_CONF_PAGES_MAX * KVT_CONF_PAGE_BLOCKS];
    uint64_t job = 0;
    NEED(pages <= KVT_CONF_PAGES_MAX, "more pages than the program has room for");
    kvt_conf_blocks(blocks, first_block, pages);
    kvt_conf_paint(rig, tokens, pages, blocks);
    kvt_save save = kvt_conf_saving(rig, tokens, pages, blocks);
    GOOD(rig->entry->save(rig->engine, &save, &job), "save");
    kvt_job_result result = kvt_conf_finish(rig, job);
    GOOD(result.status, "a save that nothing stood against");
    NEED(result.tokens_good == save.token_count, "a save held %llu of %llu tokens",
         (unsigned long long)result.tokens_good, (unsigned long long)save.token_count);
}

void kvt_conf_get(struct kvt_conf_rig *rig, uint64_t lease, const uint32_t *tokens, uint32_t pages,
                  uint32_t first_block)
{
    uint32_t blocks[KVT_CONF_PAGES_MAX * KVT_CONF_PAGE_BLOCKS];
    uint64_t job = 0;
    NEED(pages <= KVT_CONF_PAGES_MAX, "more pages than the program has room for");
    kvt_conf_blocks(blocks, first_block, pages);
    kvt_conf_wipe(rig, blocks, pages);
    kvt_restore restore = kvt_conf_restoring(rig, lease, pages, blocks);
    GOOD(rig->entry->restore(rig->engine, &restore, &job), "restore");
    kvt_job_result result = kvt_conf_finish(rig, job);
    GOOD(result.status, "a restore that nothing stood against");
    NEED(result.tokens_good == restore.token_count, "a restore brought %llu of %llu tokens",
         (unsigned long long)result.tokens_good, (unsigned long long)restore.token_count);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < KVT_TIER_COUNT; i++) {
        sum += result.tier_tokens[i];
    }
    NEED(sum == result.tokens_good, "a restore's tier_tokens do not add up to tokens_good");
    uint32_t right = kvt_conf_right(rig, KVT_CONF_REGIONS, tokens, 0, pages, blocks);
    NEED(right == pages, "restored bytes are wrong from page %u on", right);
}

kvt_stats kvt_conf_stats(struct kvt_conf_rig *rig)
{
    kvt_stats stats = {.struct_size = sizeof(stats)};
    GOOD(rig->entry->stats(rig->engine, &stats), "stats");
    return stats;
}

/* ---- gates ---- */

static void gate_run(void *arg)
{
    struct kvt_conf_gate *gate = arg;
    while (sem_wait(&gate->opened) != 0) {
    }
    if (gate->then != NULL) {
        gate->then(gate->arg);
    }
}

void kvt_conf_shut(struct kvt_conf_rig *rig, void *stream, struct kvt_conf_gate *gate)
{
    NEED(sem_init(&gate->opened, 0, 0) == 0, "no semaphore");
    GOOD(rig->streams->enqueue(rig->engine, stream, gate_run, gate), "enqueue");
}

void kvt_conf_pass(struct kvt_conf_gate *gate)
{
    NEED(sem_post(&gate->opened) == 0, "no semaphore");
}

void kvt_conf_sync(struct kvt_conf_rig *rig, void *stream)
{
    GOOD(rig->streams->sync(rig->engine, stream, KVT_CONF_WAIT_NS), "sync");
}
