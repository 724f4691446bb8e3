/* The verbs: ABI structs in, facade calls, ABI structs out. The table at the end is the plug-in. */
#include <string.h>

#include "engine_plugin/plugin_internal.h"

/* Named so that a lease token of another kind is never taken for one of ours. */
#define LEASE_TOKEN_KIND UINT64_C(0x6b76742d6c656173)

_Static_assert(sizeof(kvt_extra_key) == sizeof(struct kvt_cache_extra), "handed through");
_Static_assert(offsetof(kvt_extra_key, digest) == offsetof(struct kvt_cache_extra, digest),
               "handed through");
_Static_assert(KVT_MISS_REASON_COUNT >= KVT_CACHE_MISS_REASONS, "reasons fit");
_Static_assert(KVT_TIER_COUNT >= KVT_CACHE_TIERS, "tiers fit");

static kvt_status lookup(kvt_engine *engine, const kvt_lookup *given, kvt_lookup_result *out_result)
{
    kvt_lookup in;
    struct kvt_cache_field fields[KVT_FIELDS_MAX];
    if (engine == NULL || (engine->role & KVT_ROLE_SCHEDULER) == 0) {
        return KVT_ERR_INVAL;
    }
    kvt_status status = kvt_abi_take(&in, sizeof(in), given);
    if (status == KVT_OK && in.reserved0 != 0) {
        status = KVT_ERR_INVAL;
    }
    if (status == KVT_OK) {
        status = kvt_abi_can_give(out_result); /* before a lease is taken */
    }
    if (status == KVT_OK) {
        status = kvt_abi_fields(in.fields, in.field_count, fields);
    }
    if (status != KVT_OK) {
        return status;
    }
    struct kvt_cache_lookup ask = {
        .client = engine->client,
        .request_id = in.request_id,
        .tokens = in.tokens,
        .token_count = in.token_count,
        .own_tokens = in.own_tokens,
        .fields = fields,
        .field_count = (size_t)in.field_count,
        .extras = (const struct kvt_cache_extra *)in.extras,
        .extra_count = (size_t)in.extra_count,
    };
    struct kvt_cache_found found;
    status = kvt_cache_lookup(engine->cache, &ask, &found);
    if (status != KVT_OK) {
        return status;
    }
    kvt_lookup_result result = KVT_LOOKUP_RESULT_INIT;
    if (found.lease != 0) {
        result.answer = KVT_ANSWER_HIT;
        result.lease = found.lease;
        result.matched_tokens = found.matched_tokens;
        memcpy(result.tier_tokens, found.tier_tokens, sizeof(found.tier_tokens));
    }
    return kvt_abi_give(out_result, &result, sizeof(result));
}

static kvt_status release(kvt_engine *engine, uint64_t lease)
{
    return engine != NULL ? kvt_cache_release(engine->cache, engine->client, lease) : KVT_ERR_INVAL;
}

static kvt_status lease_export(kvt_engine *engine, uint64_t lease, kvt_lease_token *out_token)
{
    if (engine == NULL) {
        return KVT_ERR_INVAL;
    }
    kvt_status status = kvt_cache_lease_check(engine->cache, engine->client, lease);
    kvt_lease_token token = {
        .words = {LEASE_TOKEN_KIND, engine->instance, lease, LEASE_TOKEN_KIND ^ lease}};
    return status == KVT_OK ? kvt_abi_give(out_token, &token, sizeof(token)) : status;
}

static kvt_status lease_import(kvt_engine *engine, const kvt_lease_token *given,
                               uint64_t *out_lease)
{
    kvt_lease_token token;
    if (engine == NULL || out_lease == NULL) {
        return KVT_ERR_INVAL;
    }
    kvt_status status = kvt_abi_take(&token, sizeof(token), given);
    if (status == KVT_OK && token.reserved0 != 0) {
        status = KVT_ERR_INVAL;
    }
    if (status != KVT_OK) {
        return status;
    }
    if (token.words[0] != LEASE_TOKEN_KIND || token.words[1] != engine->instance ||
        token.words[3] != (LEASE_TOKEN_KIND ^ token.words[2])) {
        return KVT_ERR_STALE;
    }
    status = kvt_cache_lease_check(engine->cache, engine->client, token.words[2]);
    if (status == KVT_OK) {
        *out_lease = token.words[2];
    }
    return status;
}

static kvt_status restore(kvt_engine *engine, const kvt_restore *given, uint64_t *out_job)
{
    kvt_restore in;
    if (engine == NULL || (engine->role & KVT_ROLE_RANK) == 0) {
        return KVT_ERR_INVAL;
    }
    kvt_status status = kvt_abi_take(&in, sizeof(in), given);
    if (status == KVT_OK && (in.flags & ~KVT_JOB_DETACHED) != 0) {
        status = KVT_ERR_UNSUPPORTED;
    }
    if (status != KVT_OK) {
        return status;
    }
    struct kvt_cache_restore ask = {
        .client = engine->client,
        .detached = (in.flags & KVT_JOB_DETACHED) != 0,
        .lease = in.lease,
        .binding = in.binding,
        .first_token = in.first_token,
        .token_count = in.token_count,
        .blocks = in.blocks,
        .block_count = (size_t)in.block_count,
        .stream = in.stream,
    };
    return kvt_cache_restore(engine->cache, &ask, out_job);
}

static kvt_status save(kvt_engine *engine, const kvt_save *given, uint64_t *out_job)
{
    kvt_save in;
    struct kvt_cache_field fields[KVT_FIELDS_MAX];
    if (engine == NULL || (engine->role & KVT_ROLE_RANK) == 0) {
        return KVT_ERR_INVAL;
    }
    kvt_status status = kvt_abi_take(&in, sizeof(in), given);
    if (status == KVT_OK && (in.flags & ~KVT_JOB_DETACHED) != 0) {
        status = KVT_ERR_UNSUPPORTED;
    }
    if (status == KVT_OK) {
        status = kvt_abi_fields(in.fields, in.field_count, fields);
    }
    if (status != KVT_OK) {
        return status;
    }
    struct kvt_cache_save ask = {
        .client = engine->client,
        .detached = (in.flags & KVT_JOB_DETACHED) != 0,
        .binding = in.binding,
        .tokens = in.tokens,
        .token_count = in.token_count,
        .blocks = in.blocks,
        .block_count = (size_t)in.block_count,
        .valid_from_token = in.valid_from_token,
        .fields = fields,
        .field_count = (size_t)in.field_count,
        .extras = (const struct kvt_cache_extra *)in.extras,
        .extra_count = (size_t)in.extra_count,
        .stream = in.stream,
    };
    return kvt_cache_save(engine->cache, &ask, out_job);
}

static kvt_status poll_job(kvt_engine *engine, uint64_t job, uint64_t timeout_ns,
                           kvt_job_result *out_result)
{
    if (engine == NULL || kvt_abi_can_give(out_result) != KVT_OK) {
        return KVT_ERR_INVAL; /* before the handle is spent */
    }
    struct kvt_cache_result found;
    kvt_status status = kvt_cache_poll(engine->cache, engine->client, job, timeout_ns, &found);
    if (status != KVT_OK) {
        return status;
    }
    kvt_job_result result = KVT_JOB_RESULT_INIT;
    result.state = found.done != 0 ? KVT_JOB_DONE : KVT_JOB_RUNNING;
    if (found.done != 0) {
        result.status = found.status;
        result.tokens_good = found.tokens_good;
        memcpy(result.tier_tokens, found.tier_tokens, sizeof(found.tier_tokens));
        result.bytes_moved = found.bytes_moved;
    }
    return kvt_abi_give(out_result, &result, sizeof(result));
}

static kvt_status wait_region(kvt_engine *engine, uint64_t job, uint32_t region, void *stream)
{
    return engine != NULL
               ? kvt_cache_wait_region(engine->cache, engine->client, job, region, stream)
               : KVT_ERR_INVAL;
}

static kvt_status cancel(kvt_engine *engine, uint64_t job)
{
    return engine != NULL ? kvt_cache_cancel(engine->cache, engine->client, job) : KVT_ERR_INVAL;
}

static kvt_status report(kvt_engine *engine, const kvt_report *given)
{
    kvt_report in;
    if (engine == NULL || (engine->role & KVT_ROLE_SCHEDULER) == 0) {
        return KVT_ERR_INVAL;
    }
    kvt_status status = kvt_abi_take(&in, sizeof(in), given);
    if (status == KVT_OK && in.reserved0 != 0) {
        status = KVT_ERR_INVAL;
    }
    return status == KVT_OK ? kvt_cache_report(engine->cache, engine->client, in.request_id,
                                               in.prompt_tokens, in.own_tokens, in.computed_tokens)
                            : status;
}

static kvt_status hint(kvt_engine *engine, uint32_t kind, const void *data, uint64_t bytes)
{
    uint64_t value = 0;
    if (engine == NULL) {
        return KVT_ERR_INVAL;
    }
    if (kind != KVT_HINT_PREFILL_RATE && kind != KVT_HINT_PREFETCH) {
        return KVT_ERR_UNSUPPORTED;
    }
    if (data == NULL || bytes != sizeof(value)) {
        return KVT_ERR_INVAL;
    }
    memcpy(&value, data, sizeof(value));
    return kind == KVT_HINT_PREFETCH
               ? kvt_cache_prefetch(engine->cache, engine->client, value)
               : kvt_cache_client_prefill(engine->cache, engine->client, value);
}

static kvt_status flush(kvt_engine *engine, uint64_t timeout_ns)
{
    return engine != NULL ? kvt_cache_flush(engine->cache, timeout_ns) : KVT_ERR_INVAL;
}

static kvt_status quiesce(kvt_engine *engine, uint64_t timeout_ns)
{
    return engine != NULL ? kvt_cache_quiesce(engine->cache, timeout_ns) : KVT_ERR_INVAL;
}

static void stats_from(kvt_stats *out, const struct kvt_cache_stats *in)
{
    out->page_tokens = in->page_tokens;
    out->requests_reported = in->requests_reported;
    out->requests_unreported = in->requests_unreported;
    out->conservation_breaks = in->conservation_breaks;
    out->tokens_asked = in->tokens_asked;
    out->tokens_own = in->tokens_own;
    out->tokens_computed = in->tokens_computed;
    memcpy(out->tokens_delivered, in->tokens_delivered, sizeof(in->tokens_delivered));
    memcpy(out->missed_pages, in->missed_pages, sizeof(in->missed_pages));
    out->evicted_short_bytes_max = in->evicted_short_bytes_max;
    out->pages = in->pages;
    memcpy(out->tier_pages, in->tier_pages, sizeof(in->tier_pages));
    memcpy(out->tier_bytes_used, in->tier_bytes_used, sizeof(in->tier_bytes_used));
    memcpy(out->tier_bytes_mapped, in->tier_bytes_mapped, sizeof(in->tier_bytes_mapped));
    memcpy(out->tier_bytes_budget, in->tier_bytes_budget, sizeof(in->tier_bytes_budget));
    out->index_bytes = in->index_bytes;
    out->evicted_pages = in->evicted_pages;
    out->demoted_pages = in->demoted_pages;
    out->saved_pages = in->saved_pages;
    out->duplicate_pages = in->duplicate_pages;
    out->restored_pages = in->restored_pages;
    out->restored_bytes = in->restored_bytes;
    out->not_admitted_pages = in->not_admitted_pages;
    out->leases = in->leases;
    out->leased_pages = in->leased_pages;
    out->lease_age_ns_max = in->lease_age_ns_max;
    out->leases_expired = in->leases_expired;
    out->jobs_running = in->jobs_running;
    out->jobs_failed = in->jobs_failed;
    out->limit_leases_hit = in->limit_leases_hit;
    out->limit_jobs_hit = in->limit_jobs_hit;
    out->limit_requests_hit = in->limit_requests_hit;
    out->limit_pages_hit = in->limit_pages_hit;
    out->key_collisions = in->key_collisions;
    out->huge_pages = in->huge_pages;
    out->nvme_state = in->nvme_state;
    out->nvme_loaded_pages = in->nvme_loaded_pages;
    out->nvme_written_bytes = in->nvme_written_bytes;
    out->nvme_read_bytes = in->nvme_read_bytes;
    out->nvme_checksum_failures = in->nvme_checksum_failures;
    out->nvme_errors = in->nvme_read_errors + in->nvme_write_errors + in->nvme_reads_late;
    out->nvme_too_slow_pages = in->nvme_too_slow_pages;
}

static kvt_status stats(kvt_engine *engine, kvt_stats *out_stats)
{
    if (engine == NULL) {
        return KVT_ERR_INVAL;
    }
    struct kvt_cache_stats found;
    kvt_status status = kvt_cache_stats(engine->cache, &found);
    if (status != KVT_OK) {
        return status;
    }
    kvt_stats result = {.struct_size = sizeof(result)};
    stats_from(&result, &found);
    return kvt_abi_give(out_stats, &result, sizeof(result));
}

__attribute__((visibility("default"))) const kvt_plugin_entry kvt_plugin_entry_v0 = {
    .struct_size = sizeof(kvt_plugin_entry),
    .abi_minor = KVT_ABI_MINOR,
    .caps_offered = KVT_PLUGIN_CAPS,
    .caps_required = 0,
    .open = kvt_plugin_open,
    .close = kvt_plugin_close,
    .bind = kvt_plugin_bind,
    .unbind = kvt_plugin_unbind,
    .lookup = lookup,
    .release = release,
    .lease_export = lease_export,
    .lease_import = lease_import,
    .restore = restore,
    .save = save,
    .poll = poll_job,
    .wait_region = wait_region,
    .cancel = cancel,
    .report = report,
    .hint = hint,
    .flush = flush,
    .stats = stats,
    .quiesce = quiesce,
    .get_extension = kvt_plugin_extension,
};
