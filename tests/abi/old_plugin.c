/*
 * A plug-in that was compiled from the kept header of ABI 0.1: a cache of one prompt, whose streams
 * run everything at once. It is as old as its header, and keeps the rules of ABI.md: what is longer
 * than it knows must be zero, and is zeroed in results. For one thread at a time.
 */
#include "tests/abi/v0_1/kvt_engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OLD_CAPS KVT_CAP_CPU_DEVICE
#define OLD_BINDING UINT64_C(0x101)
#define OLD_PAGE_TOKENS 16u

struct kvt_engine {
    uint32_t page_tokens, block_tokens;
    kvt_region *regions; /* NULL: not bound */
    uint64_t region_count;
    uint32_t *tokens; /* of the prompt that is held; NULL: none */
    uint64_t token_count;
    unsigned char *bytes; /* its blocks: [block][region][block bytes] */
    uint64_t block_sum;   /* bytes of one block in all regions */
    uint64_t lease;       /* of the prompt; 0: not leased */
    uint64_t lease_request, lease_tokens;
    uint64_t handles;       /* the last one given */
    kvt_job_result outcome; /* of the last job */
    uint64_t job;           /* the last job; 0: told */
    kvt_stats stats;
};

/* Copies what both know; what we do not know must be zero. */
static kvt_status take(void *ours, uint32_t our_bytes, const void *theirs)
{
    uint32_t bytes = 0;
    memcpy(&bytes, theirs, sizeof(bytes));
    memset(ours, 0, our_bytes);
    memcpy(ours, theirs, bytes < our_bytes ? bytes : our_bytes);
    for (uint32_t i = our_bytes; i < bytes; i++) {
        if (((const unsigned char *)theirs)[i] != 0) {
            return KVT_ERR_UNSUPPORTED;
        }
    }
    return KVT_OK;
}

/* Fills as much as theirs holds, and zeroes the rest of it. */
static kvt_status give(void *theirs, const void *ours, uint32_t our_bytes)
{
    uint32_t bytes = 0;
    memcpy(&bytes, theirs, sizeof(bytes));
    uint32_t common = bytes < our_bytes ? bytes : our_bytes;
    memcpy((char *)theirs + sizeof(bytes), (const char *)ours + sizeof(bytes),
           common - sizeof(bytes));
    memset((char *)theirs + common, 0, bytes - common);
    return KVT_OK;
}

static kvt_status old_open(const kvt_host *host, const kvt_open_config *given,
                           kvt_engine **out_engine, char *why, uint64_t why_bytes)
{
    kvt_open_config config;
    kvt_status status = take(&config, sizeof(config), given);
    if (status == KVT_OK && (host->caps_required & ~OLD_CAPS) != 0) {
        status = KVT_ERR_UNSUPPORTED;
    }
    if (status == KVT_OK && config.magic != KVT_OPEN_MAGIC) {
        status = KVT_ERR_INVAL;
    }
    kvt_engine *engine = status == KVT_OK ? calloc(1, sizeof(*engine)) : NULL;
    if (status == KVT_OK && engine == NULL) {
        status = KVT_ERR_NOMEM;
    }
    if (status != KVT_OK) {
        (void)snprintf(why, (size_t)why_bytes, "the old plug-in does not do that: %d", status);
        return status;
    }
    engine->page_tokens = config.page_tokens != 0 ? config.page_tokens : OLD_PAGE_TOKENS;
    engine->stats.page_tokens = engine->page_tokens;
    *out_engine = engine;
    return KVT_OK;
}

static kvt_status old_close(kvt_engine *engine)
{
    if (engine->regions != NULL) {
        return KVT_ERR_BUSY;
    }
    free(engine->tokens);
    free(engine->bytes);
    free(engine);
    return KVT_OK;
}

static kvt_status old_bind(kvt_engine *engine, const kvt_layout *given, uint64_t *out_binding,
                           char *why, uint64_t why_bytes)
{
    kvt_layout layout;
    kvt_status status = take(&layout, sizeof(layout), given);
    if (status == KVT_OK && (engine->regions != NULL || layout.region_count == 0)) {
        status = KVT_ERR_LIMIT;
    }
    if (status == KVT_OK) {
        engine->regions = calloc(layout.region_count, sizeof(*engine->regions));
        status = engine->regions != NULL ? KVT_OK : KVT_ERR_NOMEM;
    }
    if (status != KVT_OK) {
        (void)snprintf(why, (size_t)why_bytes, "the old plug-in does not bind that: %d", status);
        return status;
    }
    engine->block_tokens = layout.block_tokens;
    engine->region_count = layout.region_count;
    engine->block_sum = 0;
    const char *at = (const char *)layout.regions;
    for (uint64_t r = 0; r < layout.region_count && status == KVT_OK; r++) {
        status = take(&engine->regions[r], sizeof(kvt_region), at);
        at += engine->regions[0].struct_size;
        engine->block_sum += engine->regions[r].block_bytes;
    }
    if (status != KVT_OK) {
        free(engine->regions);
        engine->regions = NULL;
        return status;
    }
    *out_binding = OLD_BINDING;
    return KVT_OK;
}

static kvt_status old_unbind(kvt_engine *engine, uint64_t binding)
{
    if (binding != OLD_BINDING || engine->regions == NULL) {
        return KVT_ERR_STALE;
    }
    free(engine->regions);
    engine->regions = NULL;
    return KVT_OK;
}

static kvt_status old_lookup(kvt_engine *engine, const kvt_lookup *given,
                             kvt_lookup_result *out_result)
{
    kvt_lookup in;
    kvt_lookup_result result = KVT_LOOKUP_RESULT_INIT;
    kvt_status status = take(&in, sizeof(in), given);
    if (status != KVT_OK) {
        return status;
    }
    uint64_t same = 0;
    while (same < in.token_count - 1 && same < engine->token_count &&
           in.tokens[same] == engine->tokens[same]) {
        same++;
    }
    same -= same % engine->page_tokens;
    if (same > 0) {
        engine->lease = ++engine->handles;
        engine->lease_request = in.request_id;
        engine->lease_tokens = same;
        result.answer = KVT_ANSWER_HIT;
        result.lease = engine->lease;
        result.matched_tokens = result.tier_tokens[KVT_TIER_HOST] = same;
    }
    return give(out_result, &result, sizeof(result));
}

static kvt_status old_release(kvt_engine *engine, uint64_t lease)
{
    if (lease == 0 || lease != engine->lease) {
        return KVT_ERR_STALE;
    }
    engine->lease = 0;
    return KVT_OK;
}

/* Copies blocks between the engine's memory and ours, from our block `first` on. */
static void copy(kvt_engine *engine, const uint32_t *blocks, uint64_t first, uint64_t count,
                 int into_engine)
{
    for (uint64_t b = 0; b < count; b++) {
        unsigned char *held = engine->bytes + (first + b) * engine->block_sum;
        for (uint64_t r = 0; r < engine->region_count; r++) {
            const kvt_region *region = &engine->regions[r];
            void *theirs = (void *)(uintptr_t)(region->base + blocks[b] * region->stride_bytes);
            memcpy(into_engine ? theirs : held, into_engine ? held : theirs, region->block_bytes);
            held += region->block_bytes;
        }
    }
}

static void finish(kvt_engine *engine, uint64_t tokens_good, uint64_t *out_job)
{
    engine->job = ++engine->handles;
    engine->outcome = (kvt_job_result)KVT_JOB_RESULT_INIT;
    engine->outcome.state = KVT_JOB_DONE;
    engine->outcome.tokens_good = tokens_good;
    engine->outcome.bytes_moved = tokens_good / engine->block_tokens * engine->block_sum;
    if (out_job != NULL) {
        *out_job = engine->job;
    }
}

static kvt_status old_restore(kvt_engine *engine, const kvt_restore *given, uint64_t *out_job)
{
    kvt_restore in;
    kvt_status status = take(&in, sizeof(in), given);
    if (status != KVT_OK) {
        return status;
    }
    if (in.lease == 0 || in.lease != engine->lease || in.binding != OLD_BINDING ||
        in.first_token + in.token_count > engine->lease_tokens) {
        return KVT_ERR_STALE;
    }
    copy(engine, in.blocks, in.first_token / engine->block_tokens, in.block_count, 1);
    engine->stats.tokens_delivered[KVT_TIER_HOST] += in.token_count;
    finish(engine, in.token_count, out_job);
    return KVT_OK;
}

static kvt_status old_save(kvt_engine *engine, const kvt_save *given, uint64_t *out_job)
{
    kvt_save in;
    kvt_status status = take(&in, sizeof(in), given);
    if (status != KVT_OK) {
        return status;
    }
    if (engine->lease != 0 || in.valid_from_token != 0) {
        return KVT_ERR_AGAIN; /* what is held is in use, and there is room for one prompt only */
    }
    uint64_t count = in.token_count - in.token_count % engine->page_tokens;
    uint64_t block_count = count / engine->block_tokens;
    uint32_t *tokens = malloc((count + 1) * sizeof(*tokens));
    unsigned char *bytes = malloc(block_count * engine->block_sum + 1);
    if (tokens == NULL || bytes == NULL) {
        free(tokens);
        free(bytes);
        return KVT_ERR_NOMEM;
    }
    free(engine->tokens);
    free(engine->bytes);
    memcpy(tokens, in.tokens, count * sizeof(*tokens));
    engine->tokens = tokens;
    engine->bytes = bytes;
    engine->token_count = count;
    copy(engine, in.blocks, 0, block_count, 0);
    finish(engine, count, out_job);
    return KVT_OK;
}

static kvt_status old_poll(kvt_engine *engine, uint64_t job, uint64_t timeout_ns,
                           kvt_job_result *out_result)
{
    (void)timeout_ns;
    if (job == 0 || job != engine->job) {
        return KVT_ERR_STALE;
    }
    engine->job = 0;
    return give(out_result, &engine->outcome, sizeof(engine->outcome));
}

static kvt_status old_wait_region(kvt_engine *engine, uint64_t job, uint32_t region, void *stream)
{
    (void)region, (void)stream;
    return job != 0 && job == engine->job ? KVT_OK : KVT_ERR_STALE;
}

static kvt_status old_cancel(kvt_engine *engine, uint64_t job)
{
    return job != 0 && job == engine->job ? KVT_OK : KVT_ERR_STALE;
}

static kvt_status old_report(kvt_engine *engine, const kvt_report *given)
{
    kvt_report in;
    kvt_status status = take(&in, sizeof(in), given);
    if (status != KVT_OK) {
        return status;
    }
    if (engine->lease_request == in.request_id) {
        engine->lease = 0;
    }
    engine->stats.requests_reported++;
    engine->stats.tokens_asked += in.prompt_tokens;
    engine->stats.tokens_own += in.own_tokens;
    engine->stats.tokens_computed += in.computed_tokens;
    return KVT_OK;
}

static kvt_status old_stats(kvt_engine *engine, kvt_stats *out_stats)
{
    engine->stats.leases = engine->lease != 0;
    return give(out_stats, &engine->stats, sizeof(engine->stats));
}

static kvt_status old_wait(kvt_engine *engine, uint64_t timeout_ns)
{
    (void)engine, (void)timeout_ns;
    return KVT_OK;
}

/* ---- what it does not offer ---- */

static kvt_status old_lease_export(kvt_engine *engine, uint64_t lease, kvt_lease_token *out_token)
{
    (void)engine, (void)lease, (void)out_token;
    return KVT_ERR_UNSUPPORTED;
}

static kvt_status old_lease_import(kvt_engine *engine, const kvt_lease_token *token,
                                   uint64_t *out_lease)
{
    (void)engine, (void)token, (void)out_lease;
    return KVT_ERR_UNSUPPORTED;
}

static kvt_status old_hint(kvt_engine *engine, uint32_t kind, const void *data, uint64_t bytes)
{
    (void)engine, (void)kind, (void)data, (void)bytes;
    return KVT_ERR_UNSUPPORTED;
}

/* ---- streams: what is enqueued runs at once ---- */

static char a_stream;

static kvt_status stream_create(kvt_engine *engine, void **out_stream)
{
    (void)engine;
    *out_stream = &a_stream;
    return KVT_OK;
}

static void stream_destroy(kvt_engine *engine, void *stream) { (void)engine, (void)stream; }

static kvt_status enqueue(kvt_engine *engine, void *stream, void (*fn)(void *), void *arg)
{
    (void)engine, (void)stream;
    fn(arg);
    return KVT_OK;
}

static kvt_status two_handles(kvt_engine *engine, void *one, void *other)
{
    (void)engine, (void)one, (void)other;
    return KVT_OK;
}

static kvt_status stream_sync(kvt_engine *engine, void *stream, uint64_t timeout_ns)
{
    (void)engine, (void)stream, (void)timeout_ns;
    return KVT_OK;
}

static const kvt_cpu_stream_ext streams = {
    .struct_size = sizeof(streams),
    .stream_create = stream_create,
    .stream_destroy = stream_destroy,
    .enqueue = enqueue,
    .event_create = stream_create,
    .event_destroy = stream_destroy,
    .record = two_handles,
    .wait = two_handles,
    .sync = stream_sync,
};

static const void *old_extension(kvt_engine *engine, const char *id)
{
    (void)engine;
    return strcmp(id, KVT_EXT_CPU_STREAM) == 0 ? &streams : NULL;
}

const kvt_plugin_entry kvt_plugin_entry_v0 = {
    .struct_size = sizeof(kvt_plugin_entry_v0),
    .abi_minor = KVT_ABI_MINOR,
    .caps_offered = OLD_CAPS,
    .open = old_open,
    .close = old_close,
    .bind = old_bind,
    .unbind = old_unbind,
    .lookup = old_lookup,
    .release = old_release,
    .lease_export = old_lease_export,
    .lease_import = old_lease_import,
    .restore = old_restore,
    .save = old_save,
    .poll = old_poll,
    .wait_region = old_wait_region,
    .cancel = old_cancel,
    .report = old_report,
    .hint = old_hint,
    .flush = old_wait,
    .stats = old_stats,
    .quiesce = old_wait,
    .get_extension = old_extension,
};
