/* The facade's calls: arguments are checked here, then handed to plan. */
#include <string.h>

#include "cache/cache_internal.h"

/* Fault kinds, as KVT_FAULT_x of kvt_engine.h. */
enum { FAULT_COPY_DELAY_NS = 1, FAULT_FAIL_PAGE_COPY = 2, FAULT_FAIL_CALL = 3, FAULT_HOLD = 4 };

_Static_assert(sizeof(struct kvt_cache_extra) == sizeof(struct kvt_extra) &&
                   offsetof(struct kvt_cache_extra, digest) == offsetof(struct kvt_extra, digest),
               "extra keys are handed through as they are");
_Static_assert(KVT_CACHE_TIERS == KVT_TIERS, "the public tiers are the cache's");
_Static_assert(KVT_CACHE_MISS_REASONS == KVT_MISSED_REASONS, "and so are the reasons");

/* ---- arguments ---- */

/* The namespace that a client's request is in: its base, narrowed by the request's fields. */
static kvt_status namespace_of(struct kvt_cache *cache, uint32_t client,
                               const struct kvt_cache_field *fields, size_t field_count,
                               uint32_t *out_ns)
{
    struct kvt_canonical narrowed = {0};
    uint64_t group = 0;
    kvt_status status = KVT_ERR_STALE;
    kvt_lock_take(&cache->lock);
    if (client >= 1 && client <= KVT_CLIENTS_MAX && cache->clients[client - 1].used) {
        const struct kvt_client *known = &cache->clients[client - 1];
        *out_ns = known->ns;
        group = known->group;
        status = KVT_OK;
        if (field_count > 0) {
            status = kvt_canonical_make(&cache->mem, known->base, known->base_bytes, fields,
                                        field_count, &narrowed, NULL, 0);
        }
    }
    kvt_lock_give(&cache->lock);
    if (status == KVT_OK && field_count > 0) {
        status = kvt_plan_namespace(cache->plan, narrowed.bytes, narrowed.count, group, out_ns);
        kvt_canonical_fini(&cache->mem, &narrowed);
    }
    return status;
}

static kvt_status check_tokens(const uint32_t *tokens, uint64_t token_count,
                               const struct kvt_cache_extra *extras, size_t extra_count)
{
    if (tokens == NULL || token_count == 0 || token_count > KVT_TOKENS_MAX ||
        extra_count > KVT_EXTRAS_MAX || (extras == NULL && extra_count > 0)) {
        return KVT_ERR_INVAL;
    }
    for (size_t i = 0; i < extra_count; i++) {
        if (extras[i].token_index >= token_count ||
            (i > 0 && extras[i].token_index <= extras[i - 1].token_index)) {
            return KVT_ERR_INVAL;
        }
    }
    return KVT_OK;
}

/* A binding by its handle; it cannot be unbound until binding_leave(). STALE. */
static kvt_status binding_enter(struct kvt_cache *cache, uint32_t client, uint64_t handle,
                                struct kvt_binding **out_binding)
{
    uint32_t number = (uint32_t)handle;
    kvt_status status = KVT_ERR_STALE;
    kvt_lock_take(&cache->lock);
    if (number < KVT_BINDINGS_MAX) {
        struct kvt_bound *bound = &cache->bounds[number];
        if (bound->generation == (uint32_t)(handle >> 32) && bound->client == client &&
            bound->binding != NULL) {
            bound->calls++;
            *out_binding = bound->binding;
            status = KVT_OK;
        }
    }
    kvt_lock_give(&cache->lock);
    return status;
}

static void binding_leave(struct kvt_cache *cache, uint64_t handle)
{
    kvt_lock_take(&cache->lock);
    cache->bounds[(uint32_t)handle].calls--;
    kvt_lock_give(&cache->lock);
}

static kvt_status check_blocks(const struct kvt_binding *binding, const uint32_t *blocks,
                               size_t first, size_t count)
{
    for (size_t i = first; i < count; i++) {
        if (blocks[i] >= binding->block_count) {
            return KVT_ERR_INVAL;
        }
    }
    return KVT_OK;
}

/* ---- lookup ---- */

static uint64_t prefill_of(struct kvt_cache *cache, uint32_t client)
{
    kvt_lock_take(&cache->lock);
    uint64_t rate = cache->clients[client - 1].prefill_tokens_per_s;
    kvt_lock_give(&cache->lock);
    return rate;
}

kvt_status kvt_cache_client_prefill(struct kvt_cache *cache, uint32_t client, uint64_t tokens_per_s)
{
    kvt_status status = kvt_cache_enter(cache);
    if (status != KVT_OK) {
        return status;
    }
    kvt_lock_take(&cache->lock);
    if (client == 0 || client > KVT_CLIENTS_MAX || !cache->clients[client - 1].used) {
        status = KVT_ERR_STALE;
    } else {
        cache->clients[client - 1].prefill_tokens_per_s = tokens_per_s;
    }
    kvt_lock_give(&cache->lock);
    return status;
}

kvt_status kvt_cache_prefetch(struct kvt_cache *cache, uint32_t client, uint64_t lease)
{
    kvt_status status = kvt_cache_enter(cache);
    return status == KVT_OK ? kvt_plan_prefetch(cache->plan, client, lease) : status;
}

kvt_status kvt_cache_lookup(struct kvt_cache *cache, const struct kvt_cache_lookup *in,
                            struct kvt_cache_found *out_found)
{
    kvt_status status = kvt_cache_enter(cache);
    if (status == KVT_OK && (in == NULL || out_found == NULL)) {
        status = KVT_ERR_INVAL;
    }
    if (status == KVT_OK) {
        status = check_tokens(in->tokens, in->token_count, in->extras, in->extra_count);
    }
    if (status == KVT_OK && in->own_tokens > in->token_count) {
        status = KVT_ERR_INVAL;
    }
    uint32_t ns = 0;
    if (status == KVT_OK) {
        status = namespace_of(cache, in->client, in->fields, in->field_count, &ns);
        if (status == KVT_ERR_LIMIT || status == KVT_ERR_NOMEM) {
            /* Room for no more namespaces: what cannot be named is not cached, so it is a miss. */
            if (!atomic_exchange(&cache->namespaces_warned, true)) {
                kvt_log(&cache->log, KVT_LOG_WARNING,
                        "all %u namespaces are in use: requests with new adapters or salts are not "
                        "cached until the cache is opened anew",
                        KVT_NAMESPACES_MAX);
            }
            *out_found = (struct kvt_cache_found){0};
            return KVT_OK;
        }
    }
    if (status != KVT_OK) {
        return status;
    }
    struct kvt_plan_lookup lookup = {
        .client = in->client,
        .ns = ns,
        .request_id = in->request_id,
        .tokens = in->tokens,
        .token_count = in->token_count,
        .own_tokens = in->own_tokens,
        .extras = (const struct kvt_extra *)in->extras,
        .extra_count = (uint32_t)in->extra_count,
        .prefill_tokens_per_s = prefill_of(cache, in->client),
    };
    struct kvt_plan_found found;
    status = kvt_plan_lookup(cache->plan, &lookup, &found);
    if (status == KVT_OK) {
        *out_found = (struct kvt_cache_found){
            .lease = found.lease,
            .matched_tokens = (uint64_t)found.pages * cache->page_tokens,
        };
        for (uint32_t tier = 0; tier < KVT_TIERS; tier++) {
            out_found->tier_tokens[tier] = (uint64_t)found.tier_pages[tier] * cache->page_tokens;
        }
    }
    return status;
}

kvt_status kvt_cache_release(struct kvt_cache *cache, uint32_t client, uint64_t lease)
{
    kvt_status status = kvt_cache_enter(cache);
    return status == KVT_OK ? kvt_plan_release(cache->plan, client, lease) : status;
}

kvt_status kvt_cache_lease_check(struct kvt_cache *cache, uint32_t client, uint64_t lease)
{
    kvt_status status = kvt_cache_enter(cache);
    return status == KVT_OK ? kvt_plan_lease_check(cache->plan, client, lease) : status;
}

kvt_status kvt_cache_report(struct kvt_cache *cache, uint32_t client, uint64_t request_id,
                            uint64_t prompt_tokens, uint64_t own_tokens, uint64_t computed_tokens)
{
    kvt_status status = kvt_cache_enter(cache);
    return status == KVT_OK ? kvt_plan_report(cache->plan, client, request_id, prompt_tokens,
                                              own_tokens, computed_tokens)
                            : status;
}

/* ---- moving ---- */

static kvt_status restore_bound(struct kvt_cache *cache, const struct kvt_cache_restore *in,
                                struct kvt_binding *binding, uint64_t *out_job)
{
    if (in->token_count / binding->block_tokens != in->block_count) {
        return KVT_ERR_INVAL;
    }
    kvt_status status = check_blocks(binding, in->blocks, 0, in->block_count);
    if (status != KVT_OK) {
        return status;
    }
    struct kvt_plan_restore restore = {
        .client = in->client,
        .detached = in->detached != 0,
        .lease = in->lease,
        .binding = binding,
        .first_page = (uint32_t)(in->first_token / cache->page_tokens),
        .page_count = (uint32_t)(in->token_count / cache->page_tokens),
        .blocks = in->blocks,
        .after = in->stream,
    };
    return kvt_plan_restore(cache->plan, &restore, out_job);
}

kvt_status kvt_cache_restore(struct kvt_cache *cache, const struct kvt_cache_restore *in,
                             uint64_t *out_job)
{
    kvt_status status = kvt_cache_enter(cache);
    if (status != KVT_OK) {
        return status;
    }
    if (in == NULL || in->stream == NULL || in->blocks == NULL || in->token_count == 0 ||
        in->token_count > KVT_TOKENS_MAX || in->first_token > KVT_TOKENS_MAX ||
        in->first_token % cache->page_tokens != 0 || in->token_count % cache->page_tokens != 0 ||
        (out_job == NULL && in->detached == 0)) {
        return KVT_ERR_INVAL;
    }
    struct kvt_binding *binding = NULL;
    status = binding_enter(cache, in->client, in->binding, &binding);
    if (status == KVT_OK) {
        status = restore_bound(cache, in, binding, out_job);
        binding_leave(cache, in->binding);
    }
    return status;
}

static kvt_status save_bound(struct kvt_cache *cache, const struct kvt_cache_save *in,
                             struct kvt_binding *binding, uint32_t ns, uint64_t *out_job)
{
    uint32_t pages = (uint32_t)(in->token_count / cache->page_tokens);
    size_t blocks = (size_t)pages * binding->blocks_per_page;
    uint64_t valid_page = (in->valid_from_token + cache->page_tokens - 1) / cache->page_tokens;
    if (in->block_count < blocks) {
        return KVT_ERR_INVAL;
    }
    /* Valid from inside the last page, which is not whole: no page is to be saved. */
    valid_page = valid_page < pages ? valid_page : pages;
    kvt_status status =
        check_blocks(binding, in->blocks, (size_t)valid_page * binding->blocks_per_page, blocks);
    if (status != KVT_OK) {
        return status;
    }
    struct kvt_plan_save save = {
        .client = in->client,
        .ns = ns,
        .detached = in->detached != 0,
        .binding = binding,
        .tokens = in->tokens,
        .pages = pages,
        .valid_from_page = (uint32_t)valid_page,
        .blocks = in->blocks,
        .extras = (const struct kvt_extra *)in->extras,
        .extra_count = (uint32_t)in->extra_count,
        .after = in->stream,
    };
    return kvt_plan_save(cache->plan, &save, out_job);
}

kvt_status kvt_cache_save(struct kvt_cache *cache, const struct kvt_cache_save *in,
                          uint64_t *out_job)
{
    kvt_status status = kvt_cache_enter(cache);
    if (status == KVT_OK && in == NULL) {
        status = KVT_ERR_INVAL;
    }
    if (status == KVT_OK) {
        status = check_tokens(in->tokens, in->token_count, in->extras, in->extra_count);
    }
    if (status == KVT_OK &&
        (in->stream == NULL || in->blocks == NULL || in->valid_from_token > in->token_count ||
         (out_job == NULL && in->detached == 0))) {
        status = KVT_ERR_INVAL;
    }
    uint32_t ns = 0;
    if (status == KVT_OK) {
        status = namespace_of(cache, in->client, in->fields, in->field_count, &ns);
    }
    struct kvt_binding *binding = NULL;
    if (status == KVT_OK) {
        status = binding_enter(cache, in->client, in->binding, &binding);
    }
    if (status == KVT_OK) {
        status = save_bound(cache, in, binding, ns, out_job);
        binding_leave(cache, in->binding);
    }
    return status;
}

kvt_status kvt_cache_poll(struct kvt_cache *cache, uint32_t client, uint64_t job,
                          uint64_t timeout_ns, struct kvt_cache_result *out_result)
{
    kvt_status status = kvt_cache_enter(cache);
    struct kvt_plan_result result;
    if (status == KVT_OK && out_result == NULL) {
        status = KVT_ERR_INVAL; /* before the handle is spent */
    }
    if (status == KVT_OK) {
        status = kvt_plan_poll(cache->plan, client, job, timeout_ns, &result);
    }
    if (status == KVT_OK) {
        *out_result = (struct kvt_cache_result){
            .done = result.done,
            .status = result.status,
            .tokens_good = result.tokens_good,
            .bytes_moved = result.bytes_moved,
        };
        memcpy(out_result->tier_tokens, result.tier_tokens, sizeof(out_result->tier_tokens));
    }
    return status;
}

kvt_status kvt_cache_wait_region(struct kvt_cache *cache, uint32_t client, uint64_t job,
                                 uint32_t region, void *stream)
{
    kvt_status status = kvt_cache_enter(cache);
    if (status == KVT_OK && stream == NULL) {
        status = KVT_ERR_INVAL;
    }
    return status == KVT_OK ? kvt_plan_wait_region(cache->plan, client, job, region, stream)
                            : status;
}

kvt_status kvt_cache_cancel(struct kvt_cache *cache, uint32_t client, uint64_t job)
{
    kvt_status status = kvt_cache_enter(cache);
    return status == KVT_OK ? kvt_plan_cancel(cache->plan, client, job) : status;
}

kvt_status kvt_cache_flush(struct kvt_cache *cache, uint64_t timeout_ns)
{
    kvt_status status = kvt_cache_enter(cache);
    return status == KVT_OK ? kvt_plan_flush(cache->plan, timeout_ns) : status;
}

kvt_status kvt_cache_quiesce(struct kvt_cache *cache, uint64_t timeout_ns)
{
    kvt_status status = kvt_cache_enter(cache);
    return status == KVT_OK ? kvt_plan_quiesce(cache->plan, timeout_ns) : status;
}

/* ---- streams ---- */

/* What every call on a stream or an event checks first. */
static kvt_status enter_with(const struct kvt_cache *cache, const void *a, const void *b)
{
    kvt_status status = kvt_cache_enter(cache);
    return status == KVT_OK && (a == NULL || b == NULL) ? KVT_ERR_INVAL : status;
}

kvt_status kvt_cache_stream_create(struct kvt_cache *cache, void **out_stream)
{
    struct kvt_stream *stream = NULL;
    kvt_status status = enter_with(cache, out_stream, out_stream);
    if (status == KVT_OK) {
        status = cache->device->ops->stream_create(cache->device, &stream);
    }
    if (status == KVT_OK) {
        atomic_fetch_add(&cache->streams, 1);
        *out_stream = stream;
    }
    return status;
}

void kvt_cache_stream_destroy(struct kvt_cache *cache, void *stream)
{
    if (enter_with(cache, stream, stream) == KVT_OK) {
        cache->device->ops->stream_destroy(stream);
        atomic_fetch_sub(&cache->streams, 1);
    }
}

kvt_status kvt_cache_stream_enqueue(struct kvt_cache *cache, void *stream, void (*fn)(void *),
                                    void *arg)
{
    kvt_status status = enter_with(cache, stream, stream);
    if (status == KVT_OK && fn == NULL) {
        status = KVT_ERR_INVAL;
    }
    return status == KVT_OK ? cache->device->ops->call(stream, fn, arg) : status;
}

kvt_status kvt_cache_event_create(struct kvt_cache *cache, void **out_event)
{
    struct kvt_event *event = NULL;
    kvt_status status = enter_with(cache, out_event, out_event);
    if (status == KVT_OK) {
        status = cache->device->ops->event_create(cache->device, &event);
    }
    if (status == KVT_OK) {
        atomic_fetch_add(&cache->events, 1);
        *out_event = event;
    }
    return status;
}

void kvt_cache_event_destroy(struct kvt_cache *cache, void *event)
{
    if (enter_with(cache, event, event) == KVT_OK) {
        cache->device->ops->event_destroy(event);
        atomic_fetch_sub(&cache->events, 1);
    }
}

kvt_status kvt_cache_event_record(struct kvt_cache *cache, void *event, void *stream)
{
    kvt_status status = enter_with(cache, event, stream);
    return status == KVT_OK ? cache->device->ops->record(event, stream) : status;
}

kvt_status kvt_cache_stream_wait(struct kvt_cache *cache, void *stream, void *event)
{
    kvt_status status = enter_with(cache, stream, event);
    return status == KVT_OK ? cache->device->ops->wait(stream, event) : status;
}

kvt_status kvt_cache_stream_sync(struct kvt_cache *cache, void *stream, uint64_t timeout_ns)
{
    kvt_status status = enter_with(cache, stream, stream);
    return status == KVT_OK ? cache->device->ops->sync(stream, timeout_ns) : status;
}

kvt_status kvt_cache_fault_set(struct kvt_cache *cache, uint32_t kind, uint64_t value)
{
    kvt_status status = kvt_cache_enter(cache);
    if (status != KVT_OK) {
        return status;
    }
    struct kvt_cpu_faults *faults = kvt_cpu_device_faults(cache->device);
    if (faults == NULL) {
        return KVT_ERR_UNSUPPORTED;
    }
    switch (kind) {
    case FAULT_COPY_DELAY_NS:
        atomic_store(&faults->copy_delay_ns, value);
        return KVT_OK;
    case FAULT_FAIL_PAGE_COPY:
        atomic_store(&faults->fail_page_copy, value);
        return KVT_OK;
    case FAULT_FAIL_CALL:
        atomic_store(&faults->fail_call, value);
        return KVT_OK;
    case FAULT_HOLD:
        atomic_store(&faults->hold_copies, value != 0);
        return KVT_OK;
    default:
        return KVT_ERR_INVAL;
    }
}

kvt_status kvt_cache_drive_fault(struct kvt_cache *cache, uint32_t kind, uint64_t value)
{
    kvt_status status = kvt_cache_enter(cache);
    struct kvt_io_faults *faults = status == KVT_OK ? kvt_plan_drive_faults(cache->plan) : NULL;
    if (status != KVT_OK || faults == NULL) {
        return status != KVT_OK ? status : KVT_ERR_UNSUPPORTED;
    }
    switch (kind) {
    case KVT_CACHE_DRIVE_READ_ERRNO:
        atomic_store(&faults->read_error, (int)value);
        return KVT_OK;
    case KVT_CACHE_DRIVE_WRITE_ERRNO:
        atomic_store(&faults->write_error, (int)value);
        return KVT_OK;
    case KVT_CACHE_DRIVE_FLUSH_ERRNO:
        atomic_store(&faults->flush_error, (int)value);
        return KVT_OK;
    case KVT_CACHE_DRIVE_FAIL_AFTER:
        atomic_store(&faults->fail_after, value);
        return KVT_OK;
    case KVT_CACHE_DRIVE_SHORT_BYTES:
        atomic_store(&faults->short_bytes, value);
        return KVT_OK;
    case KVT_CACHE_DRIVE_DELAY_NS:
        atomic_store(&faults->delay_ns, value);
        return KVT_OK;
    case KVT_CACHE_DRIVE_REORDER:
        atomic_store(&faults->reorder, value != 0);
        return KVT_OK;
    case KVT_CACHE_DRIVE_HOLD:
        atomic_store(&faults->hold, value != 0);
        return KVT_OK;
    default:
        return KVT_ERR_INVAL;
    }
}

/* ---- what is visible ---- */

static void fill_tiers(struct kvt_cache_stats *out, const struct kvt_plan_stats *in)
{
    for (uint32_t tier = 0; tier < KVT_TIERS; tier++) {
        out->tokens_delivered[tier] = in->totals.delivered[tier];
        out->tier_pages[tier] = in->index.tier_pages[tier];
    }
    for (uint32_t tier = 0; tier < KVT_MEMORY_TIERS; tier++) {
        out->tier_bytes_used[tier] = in->tiers[tier].bytes_used;
        out->tier_bytes_mapped[tier] = in->tiers[tier].bytes_mapped;
        out->tier_bytes_budget[tier] = in->tiers[tier].bytes_budget;
        out->tier_slots_in_transfer[tier] = in->tiers[tier].slots_in_transfer;
    }
    memcpy(out->missed_pages, in->totals.missed_pages, sizeof(out->missed_pages));
}

static void fill_nvme(struct kvt_cache_stats *out, const struct kvt_plan_stats *in)
{
    const struct kvt_nvme_stats *nvme = &in->nvme;
    if (!in->nvme_there) {
        return;
    }
    out->tier_bytes_used[KVT_NVME] = nvme->bytes_used;
    out->tier_bytes_mapped[KVT_NVME] = nvme->bytes_mapped;
    out->tier_bytes_budget[KVT_NVME] = nvme->bytes_budget;
    out->tier_slots_in_transfer[KVT_NVME] = nvme->slots_reading;
    out->nvme_state = (uint32_t)nvme->state + 1;
    out->nvme_uring = strcmp(nvme->io.backend, "uring") == 0;
    out->nvme_direct = nvme->direct;
    out->nvme_spill_queue = in->spill_queue;
    out->nvme_loaded_pages = in->loaded_pages;
    out->nvme_written_pages = in->spilled_pages;
    out->nvme_written_bytes = nvme->written_bytes;
    out->nvme_write_failed_pages = in->spill_failed_pages;
    out->nvme_read_pages = in->fetched_pages;
    out->nvme_read_bytes = nvme->read_bytes;
    out->nvme_read_failed_pages = in->fetch_failed_pages;
    out->nvme_checksum_failures = nvme->checksum_failures;
    out->nvme_read_errors = nvme->read_errors;
    out->nvme_write_errors = nvme->write_errors;
    out->nvme_reads_late = nvme->reads_late;
    out->nvme_slots_bad = nvme->slots_bad;
    out->nvme_lost_pages = in->index.lost_pages;
    out->nvme_budget_refusals = nvme->budget_refusals;
    out->nvme_damaged_records = nvme->damaged_records;
    out->nvme_orphans_dropped = nvme->orphans_dropped;
    out->nvme_catalog_restarts = nvme->catalog.restarts;
    out->nvme_read_bytes_per_s = nvme->read_bytes_per_s;
    out->nvme_too_slow_pages = in->too_slow_pages;
    out->nvme_promoted_pages = in->promoted_pages;
}

kvt_status kvt_cache_stats(struct kvt_cache *cache, struct kvt_cache_stats *out_stats)
{
    kvt_status status = enter_with(cache, out_stats, out_stats);
    if (status != KVT_OK) {
        return status;
    }
    struct kvt_plan_stats in;
    kvt_plan_stats(cache->plan, &in);
    bool leased = in.leases.oldest_ns != UINT64_MAX && in.leases.oldest_ns < in.now_ns;
    *out_stats = (struct kvt_cache_stats){
        .page_tokens = cache->page_tokens,
        .huge_pages = in.huge_pages,
        .requests_reported = in.totals.reported,
        .requests_unreported = in.totals.unreported,
        .conservation_breaks = in.totals.breaks,
        .tokens_asked = in.totals.asked,
        .tokens_own = in.totals.own,
        .tokens_computed = in.totals.computed,
        .evicted_short_bytes_max = in.evicted_short_bytes_max,
        .pages = in.index.pages,
        .pages_max = in.index.pages_max,
        .nodes = in.index.nodes,
        .namespaces = in.index.namespaces,
        .index_bytes = in.index.bytes,
        .index_token_bytes = in.index.token_bytes,
        .evicted_pages = in.index.evicted_pages,
        .demoted_pages = in.demoted_pages,
        .saved_pages = in.saved_pages,
        .duplicate_pages = in.duplicate_pages,
        .restored_pages = in.restored_pages,
        .restored_bytes = in.restored_bytes,
        .not_admitted_pages = in.not_admitted_pages,
        .leases = in.leases.leases,
        .leased_pages = in.leases.leased_pages,
        .lease_age_ns_max = leased ? in.now_ns - in.leases.oldest_ns : 0,
        .leases_expired = in.leases_expired,
        .jobs_running = in.jobs_running,
        .jobs_failed = in.jobs_failed,
        .limit_leases_hit = in.limit_leases_hit,
        .limit_jobs_hit = in.limit_jobs_hit,
        .limit_requests_hit = in.limit_requests_hit,
        .limit_pages_hit = in.limit_pages_hit,
        .key_collisions = in.index.key_collisions,
    };
    fill_tiers(out_stats, &in);
    fill_nvme(out_stats, &in);
    return KVT_OK;
}

kvt_status kvt_cache_check(struct kvt_cache *cache, char *why, size_t why_bytes)
{
    kvt_status status = kvt_cache_enter(cache);
    if (status != KVT_OK) {
        return status;
    }
    char own_why[256]; /* for callers that do not want to know */
    bool mute = why == NULL || why_bytes == 0;
    return kvt_plan_check(cache->plan, mute ? own_why : why, mute ? sizeof(own_why) : why_bytes)
               ? KVT_OK
               : KVT_ERR_CORRUPT;
}
