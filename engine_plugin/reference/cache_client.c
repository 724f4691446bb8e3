#include "engine_plugin/reference/cache_client.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine_plugin/reference/memory.h"

#define KVT_LOOKUP_DEADLINE_NS UINT64_C(2000000000) /* asked again for so long, then a miss */
#define KVT_QUIESCE_SLICE_NS UINT64_C(1000000000)
#define KVT_CLOSE_PAUSE_NS 1000000
#define KVT_DEFAULT_PAGE_TOKENS 16u
#define KVT_FIELD_COUNT 5u
#define KVT_MAJOR_MAX 9 /* the newest version of the ABI that is looked for by name */

struct kvt_ref_cache {
    struct kvt_ref_log log;
    const struct kvt_ref_kv *kv;
    void *library;
    const kvt_plugin_entry *plugin;
    kvt_host host;
    kvt_engine *engine;
    const kvt_cpu_stream_ext *streams;
    const kvt_cpu_fault_ext *faults; /* NULL unless a fault is to be armed */
    void *stream;
    uint64_t binding;
    bool bound;
    bool region_wait; /* the plug-in offers it */
    uint32_t page_tokens, page_blocks;
    uint64_t transfer_deadline_ns;
    uint32_t fault_kind, fault_from_request;
    uint64_t fault_value;
    bool control_foreign, control_same;
    unsigned char *kept; /* [region][block of page][block bytes]: a foreign page, or scratch */
    char layout_text[128], rope_text[64], build_text[512];
};

/* ---- opening ---- */

static void log_from_plugin(void *ctx, int32_t level, const char *line, uint64_t line_bytes)
{
    const struct kvt_ref_cache *cache = ctx;
    int bytes =
        line_bytes < KVT_REF_LOG_LINE_BYTES_MAX ? (int)line_bytes : KVT_REF_LOG_LINE_BYTES_MAX;
    kvt_ref_log(&cache->log, level, "%.*s", bytes, line);
}

static bool entry_complete(const kvt_plugin_entry *e)
{
    return KVT_HAS(kvt_plugin_entry, e, get_extension) && e->open && e->close && e->bind &&
           e->unbind && e->lookup && e->release && e->restore && e->save && e->poll &&
           e->wait_region && e->cancel && e->report && e->stats && e->quiesce && e->get_extension;
}

/* The major version whose entry the library has, for one that lacks ours; -1: none. */
static int other_major(void *library)
{
    char name[] = KVT_PLUGIN_ENTRY_NAME;
    char *digit = name + sizeof(name) - 2; /* the name ends in one */
    for (int major = 0; major <= KVT_MAJOR_MAX; major++) {
        *digit = (char)('0' + major);
        if (dlsym(library, name)) return major;
    }
    return -1;
}

static kvt_status load(struct kvt_ref_cache *cache, const char *path, char *why, uint64_t why_bytes)
{
    cache->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!cache->library) {
        snprintf(why, why_bytes, "the plug-in cannot be loaded: %s", dlerror());
        return KVT_ERR_UNSUPPORTED;
    }
    cache->plugin = dlsym(cache->library, KVT_PLUGIN_ENTRY_NAME);
    if (!cache->plugin) {
        int other = other_major(cache->library);
        if (other >= 0)
            snprintf(why, why_bytes,
                     "%s is a plug-in of ABI version %d, and this engine speaks version %d: take a "
                     "plug-in that exports %s",
                     path, other, KVT_ABI_MAJOR, KVT_PLUGIN_ENTRY_NAME);
        else
            snprintf(why, why_bytes, "%s does not export %s: it is no plug-in", path,
                     KVT_PLUGIN_ENTRY_NAME);
        return KVT_ERR_VERSION;
    }
    return KVT_OK;
}

static kvt_status check_entry(struct kvt_ref_cache *cache, char *why, uint64_t why_bytes)
{
    if (!entry_complete(cache->plugin)) {
        snprintf(why, why_bytes, "the plug-in lacks functions that this engine needs");
        return KVT_ERR_VERSION;
    }
    uint64_t unknown = cache->plugin->caps_required & ~cache->host.caps_offered;
    if (unknown != 0) {
        snprintf(why, why_bytes,
                 "the plug-in requires capabilities 0x%llx, which this engine does not offer",
                 (unsigned long long)unknown);
        return KVT_ERR_UNSUPPORTED;
    }
    cache->region_wait = (cache->plugin->caps_offered & KVT_CAP_REGION_WAIT) != 0;
    return KVT_OK;
}

static kvt_field text_field(uint32_t tag, const char *text)
{
    return (kvt_field){tag, 0, text, strlen(text)};
}

static kvt_status open_engine(struct kvt_ref_cache *cache, const struct kvt_ref_config *config,
                              const struct kvt_ref_identity *identity, char *why,
                              uint64_t why_bytes)
{
    snprintf(cache->layout_text, sizeof(cache->layout_text),
             "layers=%d kv_heads=%d head=%d block=%u k=head,dim,token v=head,token,dim",
             KVT_REF_LAYERS, KVT_REF_KV_HEADS, KVT_REF_HEAD, cache->kv->block_tokens);
    snprintf(cache->rope_text, sizeof(cache->rope_text), "base=%d head=%d halves",
             KVT_REF_ROPE_BASE, KVT_REF_HEAD);
    snprintf(cache->build_text, sizeof(cache->build_text), "kvtier-reference/1; %s",
             identity->build);
    const kvt_field fields[KVT_FIELD_COUNT] = {
        {KVT_FIELD_WEIGHTS, 0, identity->weights_digest, 16},
        text_field(KVT_FIELD_KV_DTYPE, "f32"),
        text_field(KVT_FIELD_ROPE, cache->rope_text),
        text_field(KVT_FIELD_LAYOUT, cache->layout_text),
        text_field(KVT_FIELD_ENGINE_BUILD, cache->build_text),
    };
    kvt_open_config open = KVT_OPEN_CONFIG_INIT;
    if (config->plugin_uri) {
        open.uri = config->plugin_uri;
        open.uri_bytes = strlen(config->plugin_uri);
    }
    open.page_tokens = cache->page_tokens;
    open.fields = fields;
    open.field_count = KVT_FIELD_COUNT;
    open.hbm_bytes = config->hbm_bytes;
    open.host_bytes = config->host_bytes;
    if (config->evict_policy) {
        open.evict_policy = config->evict_policy;
        open.evict_policy_bytes = strlen(config->evict_policy);
    }
    if (config->nvme) {
        open.nvme = config->nvme;
        open.nvme_bytes = strlen(config->nvme);
    }
    if (config->admit_policy) {
        open.admit_policy = config->admit_policy;
        open.admit_policy_bytes = strlen(config->admit_policy);
    }
    return cache->plugin->open(&cache->host, &open, &cache->engine, why, why_bytes);
}

static kvt_status open_stream(struct kvt_ref_cache *cache, char *why, uint64_t why_bytes)
{
    cache->streams = cache->plugin->get_extension(cache->engine, KVT_EXT_CPU_STREAM);
    if (!cache->streams || !KVT_HAS(kvt_cpu_stream_ext, cache->streams, sync)) {
        snprintf(why, why_bytes, "the plug-in does not offer %s", KVT_EXT_CPU_STREAM);
        return KVT_ERR_UNSUPPORTED;
    }
    if (cache->fault_kind != 0) {
        cache->faults = cache->plugin->get_extension(cache->engine, KVT_EXT_CPU_FAULT);
        if (!cache->faults) {
            snprintf(why, why_bytes, "the plug-in does not offer %s", KVT_EXT_CPU_FAULT);
            return KVT_ERR_UNSUPPORTED;
        }
    }
    kvt_status status = cache->streams->stream_create(cache->engine, &cache->stream);
    if (status != KVT_OK) snprintf(why, why_bytes, "the plug-in gives no stream");
    return status;
}

static kvt_status bind_kv(struct kvt_ref_cache *cache, char *why, uint64_t why_bytes)
{
    kvt_region regions[KVT_REF_REGIONS];
    for (uint32_t i = 0; i < KVT_REF_REGIONS; i++)
        regions[i] = (kvt_region){
            .struct_size = sizeof(kvt_region),
            .memory_kind = KVT_MEMORY_CPU,
            .base = (uint64_t)(uintptr_t)cache->kv->regions[i],
            .block_bytes = cache->kv->block_bytes,
            .stride_bytes = cache->kv->block_bytes,
        };
    kvt_layout layout = KVT_LAYOUT_INIT;
    layout.block_tokens = cache->kv->block_tokens;
    layout.block_count = cache->kv->bound_blocks;
    layout.regions = regions;
    layout.region_count = KVT_REF_REGIONS;
    kvt_status status =
        cache->plugin->bind(cache->engine, &layout, &cache->binding, why, why_bytes);
    cache->bound = status == KVT_OK;
    return status;
}

static kvt_status check_config(const struct kvt_ref_cache *cache, char *why, uint64_t why_bytes)
{
    if (cache->page_tokens % cache->kv->block_tokens != 0) {
        snprintf(why, why_bytes, "page_tokens %u is not a multiple of block_tokens %u",
                 cache->page_tokens, cache->kv->block_tokens);
        return KVT_ERR_INVAL;
    }
    if (cache->control_foreign && cache->control_same) {
        snprintf(why, why_bytes, "only one control can be on");
        return KVT_ERR_INVAL;
    }
    return KVT_OK;
}

kvt_status kvt_ref_cache_open(const struct kvt_ref_config *config, const struct kvt_ref_kv *kv,
                              const struct kvt_ref_identity *identity,
                              struct kvt_ref_cache **out_cache, char *why, uint64_t why_bytes)
{
    struct kvt_ref_cache *cache = calloc(1, sizeof(*cache));
    if (!cache) return KVT_ERR_NOMEM;
    cache->log = (struct kvt_ref_log){config->log, config->log_ctx};
    cache->kv = kv;
    cache->page_tokens = config->page_tokens ? config->page_tokens : KVT_DEFAULT_PAGE_TOKENS;
    cache->page_blocks = cache->page_tokens / kv->block_tokens;
    cache->transfer_deadline_ns =
        config->transfer_deadline_ns ? config->transfer_deadline_ns : KVT_REF_TRANSFER_DEADLINE_NS;
    cache->fault_kind = config->fault_kind;
    cache->fault_from_request = config->fault_from_request;
    cache->fault_value = config->fault_value;
    cache->control_foreign = config->control_foreign_page;
    cache->control_same = config->control_same_page;
    cache->host = (kvt_host)KVT_HOST_INIT;
    cache->host.caps_offered = KVT_CAP_CPU_DEVICE | KVT_CAP_REGION_WAIT;
    cache->host.caps_required = KVT_CAP_CPU_DEVICE;
    cache->host.ctx = cache;
    cache->host.log = log_from_plugin;
    kvt_status status = check_config(cache, why, why_bytes);
    cache->plugin = config->plugin_entry;
    if (status == KVT_OK && !cache->plugin)
        status = load(cache, config->plugin_path, why, why_bytes);
    if (status == KVT_OK) status = check_entry(cache, why, why_bytes);
    if (status == KVT_OK) status = open_engine(cache, config, identity, why, why_bytes);
    if (status == KVT_OK) status = open_stream(cache, why, why_bytes);
    if (status == KVT_OK) status = bind_kv(cache, why, why_bytes);
    if (status != KVT_OK) {
        if (!kvt_ref_cache_close(cache))
            kvt_ref_log(&cache->log, KVT_REF_ERROR, "reference engine: the plug-in does not close");
        return status;
    }
    *out_cache = cache;
    return KVT_OK;
}

/* ---- closing ---- */

/* One try to end it all; a plug-in that has work in flight answers TIMEOUT or BUSY. */
static kvt_status try_to_close(struct kvt_ref_cache *cache)
{
    kvt_status status = cache->plugin->quiesce(cache->engine, KVT_QUIESCE_SLICE_NS);
    if (status != KVT_OK) return status;
    if (cache->stream) cache->streams->stream_destroy(cache->engine, cache->stream);
    cache->stream = NULL;
    if (cache->bound) status = cache->plugin->unbind(cache->engine, cache->binding);
    if (status != KVT_OK) return status;
    cache->bound = false;
    return cache->plugin->close(cache->engine);
}

static bool close_engine(struct kvt_ref_cache *cache)
{
    const struct timespec pause = {0, KVT_CLOSE_PAUSE_NS};
    const uint64_t deadline = kvt_ref_now_ns() + cache->transfer_deadline_ns;
    while (try_to_close(cache) != KVT_OK) {
        if (kvt_ref_now_ns() >= deadline) return false;
        nanosleep(&pause, NULL);
    }
    return true;
}

bool kvt_ref_cache_close(struct kvt_ref_cache *cache)
{
    if (!cache) return true;
    /* What a test holds back must be let go, or nothing could end. */
    if (cache->faults && cache->faults->set(cache->engine, cache->fault_kind, 0) != KVT_OK)
        kvt_ref_log(&cache->log, KVT_REF_WARNING, "reference engine: a fault cannot be disarmed");
    if (cache->engine && !close_engine(cache)) {
        kvt_ref_log(
            &cache->log, KVT_REF_ERROR,
            "reference engine: the plug-in has work in flight that does not end; it and the "
            "memory it may touch stay until the process ends");
        return false;
    }
    if (cache->library) dlclose(cache->library);
    free(cache->kept);
    free(cache);
    return true;
}

/* ---- a request ---- */

kvt_status kvt_ref_cache_enqueue(struct kvt_ref_cache *cache, void (*fn)(void *), void *arg)
{
    return cache->streams->enqueue(cache->engine, cache->stream, fn, arg);
}

static void arm_fault(struct kvt_ref_cache *cache, uint64_t request)
{
    if (cache->faults && request >= cache->fault_from_request &&
        cache->faults->set(cache->engine, cache->fault_kind, cache->fault_value) != KVT_OK)
        kvt_ref_log(&cache->log, KVT_REF_WARNING, "reference engine: a fault cannot be armed");
}

enum kvt_ref_answer kvt_ref_cache_lookup(struct kvt_ref_cache *cache,
                                         struct kvt_ref_transfer *transfer, const uint32_t *tokens,
                                         uint32_t token_count)
{
    if (transfer->deadline_ns == 0) {
        transfer->deadline_ns = kvt_ref_now_ns() + KVT_LOOKUP_DEADLINE_NS;
        arm_fault(cache, transfer->id);
    }
    kvt_lookup lookup = KVT_LOOKUP_INIT;
    kvt_lookup_result result = KVT_LOOKUP_RESULT_INIT;
    lookup.request_id = transfer->id;
    lookup.tokens = tokens;
    lookup.token_count = token_count;
    kvt_status status = cache->plugin->lookup(cache->engine, &lookup, &result);
    bool again = status == KVT_ERR_AGAIN || (status == KVT_OK && result.answer == KVT_ANSWER_AGAIN);
    if (status == KVT_OK) transfer->account_open = true;
    if (again && kvt_ref_now_ns() < transfer->deadline_ns) return KVT_REF_AGAIN;
    if (status != KVT_OK)
        kvt_ref_log(&cache->log, KVT_REF_WARNING,
                    "reference engine: lookup answered %s; the prompt is computed",
                    kvt_ref_status_name(status));
    if (status != KVT_OK || result.answer != KVT_ANSWER_HIT) return KVT_REF_NOTHING;
    transfer->lease = result.lease;
    transfer->from_drive = result.tier_tokens[KVT_TIER_NVME] > 0;
    /* What could not be, whoever answered it, is not a hit. */
    if (result.matched_tokens == 0 || result.matched_tokens >= token_count ||
        result.matched_tokens % cache->page_tokens != 0)
        return KVT_REF_NOTHING;
    transfer->matched_tokens = (uint32_t)result.matched_tokens;
    return KVT_REF_HIT;
}

bool kvt_ref_cache_restore(struct kvt_ref_cache *cache, struct kvt_ref_transfer *transfer,
                           const uint32_t *blocks)
{
    kvt_restore restore = KVT_RESTORE_INIT;
    restore.binding = cache->binding;
    restore.lease = transfer->lease;
    restore.token_count = transfer->matched_tokens;
    restore.blocks = blocks;
    restore.block_count = transfer->matched_tokens / cache->kv->block_tokens;
    restore.stream = cache->stream;
    kvt_status status = cache->plugin->restore(cache->engine, &restore, &transfer->restore_job);
    if (status != KVT_OK)
        kvt_ref_log(&cache->log, KVT_REF_WARNING,
                    "reference engine: restore answered %s; the prompt is computed",
                    kvt_ref_status_name(status));
    transfer->restoring = transfer->unsettled = status == KVT_OK;
    transfer->drive_deadline_ns = kvt_ref_now_ns() + cache->transfer_deadline_ns;
    return transfer->restoring;
}

bool kvt_ref_cache_waits_for_drive(struct kvt_ref_cache *cache, struct kvt_ref_transfer *transfer)
{
    return transfer->from_drive && transfer->restoring &&
           kvt_ref_now_ns() < transfer->drive_deadline_ns &&
           !kvt_ref_cache_restored(cache, transfer, 0);
}

void kvt_ref_cache_tell_prefill(struct kvt_ref_cache *cache, uint64_t tokens_per_s)
{
    kvt_status status = cache->plugin->hint(cache->engine, KVT_HINT_PREFILL_RATE, &tokens_per_s,
                                            sizeof(tokens_per_s));
    if (status != KVT_OK && status != KVT_ERR_UNSUPPORTED)
        kvt_ref_log(&cache->log, KVT_REF_WARNING, "reference engine: a hint answered %s",
                    kvt_ref_status_name(status));
}

bool kvt_ref_cache_wait_region(struct kvt_ref_cache *cache, struct kvt_ref_transfer *transfer,
                               uint32_t region)
{
    if (!cache->region_wait) return false;
    return cache->plugin->wait_region(cache->engine, transfer->restore_job, region,
                                      cache->stream) == KVT_OK;
}

void kvt_ref_cache_cancel_restore(struct kvt_ref_cache *cache, struct kvt_ref_transfer *transfer)
{
    kvt_status status = cache->plugin->cancel(cache->engine, transfer->restore_job);
    kvt_ref_log(&cache->log, KVT_REF_WARNING,
                "reference engine: a restore did not end by its deadline; cancelling it answered "
                "%s",
                kvt_ref_status_name(status));
}

bool kvt_ref_cache_restored(struct kvt_ref_cache *cache, struct kvt_ref_transfer *transfer,
                            uint64_t timeout_ns)
{
    if (!transfer->restoring) return true;
    kvt_job_result result = KVT_JOB_RESULT_INIT;
    kvt_status status =
        cache->plugin->poll(cache->engine, transfer->restore_job, timeout_ns, &result);
    if (status == KVT_ERR_STALE) {
        /* Spent, and nobody knows with what outcome: nothing of it is good. */
        transfer->restoring = false;
        transfer->good_tokens = 0;
        return true;
    }
    if (status != KVT_OK || result.state != KVT_JOB_DONE) return false;
    uint64_t good = result.tokens_good < transfer->matched_tokens ? result.tokens_good
                                                                  : transfer->matched_tokens;
    transfer->restoring = false;
    transfer->good_tokens = (uint32_t)(good - good % cache->page_tokens);
    if (transfer->good_tokens < transfer->matched_tokens)
        kvt_ref_log(&cache->log, KVT_REF_WARNING,
                    "reference engine: a restore ended with %s: %u of %u tokens are good; the rest "
                    "is computed",
                    kvt_ref_status_name(result.status), transfer->good_tokens,
                    transfer->matched_tokens);
    return true;
}

bool kvt_ref_cache_restore_end(struct kvt_ref_cache *cache, struct kvt_ref_transfer *transfer)
{
    if (kvt_ref_cache_restored(cache, transfer, cache->transfer_deadline_ns)) return true;
    kvt_ref_cache_cancel_restore(cache, transfer);
    return kvt_ref_cache_restored(cache, transfer, cache->transfer_deadline_ns);
}

void kvt_ref_cache_save(struct kvt_ref_cache *cache, struct kvt_ref_transfer *transfer,
                        const uint32_t *tokens, uint32_t token_count, const uint32_t *blocks)
{
    uint32_t whole = token_count - token_count % cache->page_tokens;
    if (whole == 0) return;
    kvt_save save = KVT_SAVE_INIT;
    save.binding = cache->binding;
    save.request_id = transfer->id;
    save.tokens = tokens;
    save.token_count = whole;
    save.blocks = blocks;
    save.block_count = whole / cache->kv->block_tokens;
    save.stream = cache->stream;
    kvt_status status = cache->plugin->save(cache->engine, &save, &transfer->save_job);
    if (status != KVT_OK)
        kvt_ref_log(&cache->log, KVT_REF_WARNING,
                    "reference engine: save answered %s; the prompt is not kept",
                    kvt_ref_status_name(status));
    transfer->saving = status == KVT_OK;
    transfer->deadline_ns = kvt_ref_now_ns() + cache->transfer_deadline_ns;
}

bool kvt_ref_cache_saved(struct kvt_ref_cache *cache, struct kvt_ref_transfer *transfer,
                         uint64_t timeout_ns, bool *out_stuck)
{
    kvt_job_result result = KVT_JOB_RESULT_INIT;
    kvt_status status = cache->plugin->poll(cache->engine, transfer->save_job, timeout_ns, &result);
    *out_stuck = false;
    if (status == KVT_ERR_STALE || (status == KVT_OK && result.state == KVT_JOB_DONE)) {
        transfer->saving = false;
        if (status == KVT_OK && result.status != KVT_OK)
            kvt_ref_log(&cache->log, KVT_REF_WARNING, "reference engine: a save ended with %s",
                        kvt_ref_status_name(result.status));
        return true;
    }
    if (kvt_ref_now_ns() < transfer->deadline_ns) return false;
    if (transfer->save_cancelled) {
        *out_stuck = true;
        return false;
    }
    status = cache->plugin->cancel(cache->engine, transfer->save_job);
    kvt_ref_log(&cache->log, KVT_REF_WARNING,
                "reference engine: a save did not end by its deadline; cancelling it answered %s",
                kvt_ref_status_name(status));
    transfer->save_cancelled = true;
    transfer->deadline_ns = kvt_ref_now_ns() + cache->transfer_deadline_ns;
    return false;
}

void kvt_ref_cache_report(struct kvt_ref_cache *cache, struct kvt_ref_transfer *transfer,
                          uint32_t prompt_tokens, uint32_t computed_tokens)
{
    if (transfer->lease != 0) {
        /* STALE is an answer too: an unused lease may have expired. */
        kvt_status status = cache->plugin->release(cache->engine, transfer->lease);
        if (status != KVT_OK && status != KVT_ERR_STALE)
            kvt_ref_log(&cache->log, KVT_REF_WARNING, "reference engine: release answered %s",
                        kvt_ref_status_name(status));
        transfer->lease = 0;
    }
    if (!transfer->account_open) return;
    transfer->account_open = false;
    kvt_report report = KVT_REPORT_INIT;
    report.request_id = transfer->id;
    report.prompt_tokens = prompt_tokens;
    report.computed_tokens = computed_tokens;
    kvt_status status = cache->plugin->report(cache->engine, &report);
    if (status != KVT_OK)
        kvt_ref_log(&cache->log, KVT_REF_WARNING, "reference engine: report answered %s",
                    kvt_ref_status_name(status));
}

kvt_status kvt_ref_cache_stats_of(struct kvt_ref_cache *cache, kvt_stats *out_stats)
{
    kvt_stats stats;
    memset(&stats, 0, sizeof(stats));
    stats.struct_size = sizeof(stats);
    kvt_status status = cache->plugin->stats(cache->engine, &stats);
    if (status == KVT_OK) *out_stats = stats;
    return status;
}

/* ---- controls ---- */

bool kvt_ref_cache_has_control(const struct kvt_ref_cache *cache)
{
    return cache->control_foreign || cache->control_same;
}

uint32_t kvt_ref_cache_page_tokens(const struct kvt_ref_cache *cache) { return cache->page_tokens; }

/* Copies one page between its blocks and cache->kept. */
static void copy_page(struct kvt_ref_cache *cache, const uint32_t *blocks, bool to_kept)
{
    unsigned char *kept = cache->kept;
    for (uint32_t region = 0; region < KVT_REF_REGIONS; region++)
        for (uint32_t i = 0; i < cache->page_blocks; i++) {
            unsigned char *block = kvt_ref_kv_block(cache->kv, region, blocks[i]);
            memcpy(to_kept ? kept : block, to_kept ? block : kept, cache->kv->block_bytes);
            kept += cache->kv->block_bytes;
        }
}

kvt_status kvt_ref_cache_keep_foreign(struct kvt_ref_cache *cache, const uint32_t *blocks)
{
    cache->kept = malloc((size_t)KVT_REF_REGIONS * cache->page_blocks * cache->kv->block_bytes);
    if (!cache->kept) return KVT_ERR_NOMEM;
    copy_page(cache, blocks, true);
    return KVT_OK;
}

void kvt_ref_cache_apply_control(struct kvt_ref_cache *cache, const uint32_t *blocks,
                                 uint32_t good_tokens)
{
    if (good_tokens < cache->page_tokens || !cache->kept) return;
    const uint32_t *page =
        blocks + (size_t)(good_tokens / cache->page_tokens - 1) * cache->page_blocks;
    if (cache->control_same) copy_page(cache, page, true);
    copy_page(cache, page, false);
}
