/* Life cycle, the mover thread, bindings and statistics. */
#include "cache/move/plan_internal.h"

#include <stdio.h>
#include <string.h>

/* ---- the mover: takes what exec finished, and keeps house ---- */

static void take_finished(struct kvt_plan *plan, struct kvt_exec_job *finished)
{
    kvt_lock_take(&plan->lock);
    /* Under the lock: wait_region() may be looking at the job's events. */
    kvt_exec_job_fini(finished);
    enum kvt_exec_kind kind = finished->kind;
    plan->running -= kind != KVT_EXEC_STAGE; /* the batch of a stage runs on */
    plan->saves_running -= kind == KVT_EXEC_SAVE;
    plan->moves_running -= kind == KVT_EXEC_MOVE;
    switch (kind) {
    case KVT_EXEC_RESTORE:
        kvt_restore_finish(plan, finished->user);
        break;
    case KVT_EXEC_SAVE:
        kvt_save_finish(plan, finished->user);
        break;
    case KVT_EXEC_MOVE:
        kvt_demote_finish(plan, finished->user);
        break;
    case KVT_EXEC_STAGE:
        kvt_spill_staged(plan, finished);
        break;
    }
    kvt_demote_some(plan);
    kvt_spill_some(plan);
    kvt_lock_give(&plan->lock);
}

static void requests_expire(struct kvt_plan *plan, uint64_t now_ns)
{
    for (uint32_t i = 0; plan->account.open_count > 0 && i < plan->account.requests_max; i++) {
        struct kvt_request *request = &plan->account.requests[i];
        if (request->open && request->opened_ns < now_ns &&
            now_ns - request->opened_ns > plan->config.request_ttl_ns) {
            kvt_account_drop(&plan->account, request);
        }
    }
}

/* A chunk ahead of need, so that a save seldom has to map one itself. */
static void grow_ahead(struct kvt_plan *plan)
{
    for (uint32_t tier = 0; tier < KVT_MEMORY_TIERS && plan->slot_bytes > 0; tier++) {
        struct kvt_slab_stats stats;
        if (plan->tiers[tier].slab == NULL) {
            continue;
        }
        kvt_slab_stats(plan->tiers[tier].slab, &stats);
        if (stats.bytes_used * 2 > stats.bytes_mapped) {
            (void)kvt_room_grow(plan, tier, plan->slot_bytes);
        }
    }
}

static void keep_house(struct kvt_plan *plan)
{
    kvt_lock_take(&plan->lock);
    /* Read under the lock: what was opened meanwhile must not look older than it is. */
    uint64_t now_ns = kvt_now_ns(&plan->config.clock);
    if (now_ns - plan->last_housekeeping_ns >= KVT_HOUSEKEEPING_NS) {
        plan->last_housekeeping_ns = now_ns;
        plan->stats.leases_expired += kvt_lease_expire(plan->index, now_ns);
        requests_expire(plan, now_ns);
        grow_ahead(plan);
        (void)kvt_index_drop_lost(plan->index);
        kvt_spill_some(plan);
    }
    kvt_lock_give(&plan->lock);
}

/* What waits to be written may wait for slots, which come back without a word. */
static uint64_t idle_ns(struct kvt_plan *plan)
{
    if (plan->nvme == NULL) {
        return KVT_HOUSEKEEPING_NS;
    }
    kvt_lock_take(&plan->lock);
    bool waiting = plan->nvme->queue_count > 0 && plan->nvme->spills_running == 0 && !plan->quiet;
    if (waiting) {
        kvt_spill_some(plan);
    }
    kvt_lock_give(&plan->lock);
    return waiting ? KVT_SPILL_POLL_NS : KVT_HOUSEKEEPING_NS;
}

static void *mover_main(void *arg)
{
    struct kvt_plan *plan = arg;
    while (!atomic_load(&plan->stopping)) {
        struct kvt_exec_job *job = kvt_exec_next(plan->exec, idle_ns(plan));
        if (job != NULL) {
            take_finished(plan, job);
        }
        kvt_storage_take(plan);
        keep_house(plan);
    }
    return NULL;
}

/* ---- life cycle ---- */

static void say(char *why, size_t why_bytes, const char *sentence)
{
    if (why != NULL && why_bytes > 0) {
        (void)snprintf(why, why_bytes, "%s", sentence);
    }
}

static kvt_status jobs_init(struct kvt_plan *plan)
{
    plan->jobs = kvt_calloc(plan->mem, plan->config.jobs_max, sizeof(*plan->jobs));
    if (plan->jobs == NULL) {
        return KVT_ERR_NOMEM;
    }
    for (uint32_t i = 0; i < plan->config.jobs_max; i++) {
        plan->jobs[i].next_free = i + 1 < plan->config.jobs_max ? i + 1 : UINT32_MAX;
        uint64_t seed[2] = {plan->config.seed, ~(uint64_t)i};
        plan->jobs[i].generation = (uint32_t)kvt_hash_bytes(seed, sizeof(seed)) & ~1u;
    }
    return KVT_OK;
}

static kvt_status index_init(struct kvt_plan *plan)
{
    struct kvt_index_config config = {
        .mem = plan->config.index_mem,
        .page_tokens = plan->config.page_tokens,
        .shards = 1,
        .pages_max = plan->config.pages_max,
        .leases_max = plan->config.leases_max,
        .seed = plan->config.seed,
        .evict = plan->config.evict,
        .on_drop = kvt_room_on_drop,
        .on_strip = kvt_room_on_strip,
        .ctx = plan,
    };
    return kvt_index_create(&config, &plan->index);
}

/* Everything but the mover. What was made is undone by parts_fini(). */
static kvt_status parts_init(struct kvt_plan *plan, char *why, size_t why_bytes)
{
    const struct kvt_plan_config *config = &plan->config;
    kvt_status status = kvt_tier_open_hbm(&plan->tiers[KVT_HBM], plan->mem, &plan->config.log,
                                          config->device, config->hbm_bytes);
    if (status == KVT_OK) {
        status = kvt_tier_open_host(&plan->tiers[KVT_HOST], plan->mem, &plan->config.log,
                                    config->host_bytes);
    }
    if (status == KVT_OK) {
        status = index_init(plan);
    }
    if (status == KVT_OK) {
        status = kvt_ghosts_init(&plan->ghosts, plan->mem, config->ghosts_max);
    }
    if (status == KVT_OK) {
        status =
            kvt_account_init(&plan->account, plan->mem, config->requests_max, config->page_tokens);
    }
    if (status == KVT_OK) {
        status = jobs_init(plan);
    }
    if (status == KVT_OK) {
        status = kvt_exec_open(plan->mem, &plan->config.log, config->device, &plan->exec);
    }
    if (status != KVT_OK) {
        say(why, why_bytes,
            status == KVT_ERR_INVAL ? "a limit of the cache is out of range"
                                    : "no memory, or no thread, for the cache's own structures");
        return status;
    }
    return kvt_storage_open(plan, why, why_bytes);
}

static void parts_fini(struct kvt_plan *plan)
{
    kvt_storage_close(plan);
    kvt_exec_close(plan->exec);
    kvt_free(plan->mem, plan->jobs, plan->config.jobs_max * sizeof(*plan->jobs));
    if (plan->account.mem != NULL) {
        kvt_account_fini(&plan->account);
    }
    if (plan->ghosts.mem != NULL) {
        kvt_ghosts_fini(&plan->ghosts);
    }
    kvt_index_destroy(plan->index);
    for (uint32_t tier = 0; tier < KVT_MEMORY_TIERS; tier++) {
        kvt_tier_close(&plan->tiers[tier]);
    }
}

kvt_status kvt_plan_create(const struct kvt_plan_config *config, struct kvt_plan **out_plan,
                           char *why, size_t why_bytes)
{
    struct kvt_plan *plan = kvt_calloc(config->mem, 1, sizeof(*plan));
    if (plan == NULL) {
        say(why, why_bytes, "no memory for the cache's own structures");
        return KVT_ERR_NOMEM;
    }
    plan->config = *config;
    plan->mem = config->mem;
    plan->last_housekeeping_ns = kvt_now_ns(&config->clock);
    kvt_lock_init(&plan->lock, KVT_RANK_CACHE, "cache");
    kvt_cond_init(&plan->done);
    kvt_status status = parts_init(plan, why, why_bytes);
    if (status != KVT_OK) {
        goto undo_parts;
    }
    status = kvt_thread_start(&plan->mover, "kvt-mover", mover_main, plan);
    if (status != KVT_OK) {
        say(why, why_bytes, "the mover thread could not be started: raise the limit on threads");
        goto undo_parts;
    }
    *out_plan = plan;
    return KVT_OK;

undo_parts:
    parts_fini(plan);
    kvt_cond_fini(&plan->done);
    kvt_lock_fini(&plan->lock);
    kvt_free(config->mem, plan, sizeof(*plan));
    return status;
}

void kvt_plan_destroy(struct kvt_plan *plan)
{
    if (plan == NULL) {
        return;
    }
    kvt_lock_take(&plan->lock);
    kvt_spill_drain(plan, kvt_now_ns(&kvt_clock_monotonic) + KVT_CLOSE_WRITE_NS);
    kvt_lock_give(&plan->lock);
    atomic_store(&plan->stopping, true);
    kvt_exec_wake(plan->exec);
    kvt_thread_join(&plan->mover);
    KVT_ASSERT(plan->running == 0);
    parts_fini(plan);
    kvt_cond_fini(&plan->done);
    kvt_lock_fini(&plan->lock);
    kvt_free(plan->mem, plan, sizeof(*plan));
}

/* ---- who asks ---- */

kvt_status kvt_plan_namespace(struct kvt_plan *plan, const void *canonical, size_t canonical_bytes,
                              uint64_t group, uint32_t *out_ns)
{
    kvt_lock_take(&plan->lock);
    kvt_status status = kvt_index_namespace(plan->index, canonical, canonical_bytes, group, out_ns);
    kvt_lock_give(&plan->lock);
    return status;
}

kvt_status kvt_plan_namespace_bytes(struct kvt_plan *plan, uint32_t ns, uint64_t slot_bytes)
{
    kvt_lock_take(&plan->lock);
    kvt_status status = kvt_index_namespace_bytes(plan->index, ns, slot_bytes);
    kvt_lock_give(&plan->lock);
    return status;
}

kvt_status kvt_plan_bind(struct kvt_plan *plan, const struct kvt_exec_region *regions,
                         uint32_t region_count, uint32_t block_tokens, uint64_t block_count,
                         struct kvt_binding **out_binding)
{
    struct kvt_binding *binding = NULL;
    kvt_status status =
        kvt_exec_bind(plan->exec, regions, region_count, block_tokens,
                      plan->config.page_tokens / block_tokens, block_count, &binding);
    if (status != KVT_OK) {
        return status;
    }
    kvt_lock_take(&plan->lock);
    plan->slot_bytes = kvt_slot_bytes(plan, binding->shard_bytes);
    for (uint32_t tier = 0; tier < KVT_MEMORY_TIERS; tier++) {
        struct kvt_slab *slab = plan->tiers[tier].slab;
        if (slab != NULL && !kvt_slab_has_room(slab, plan->slot_bytes)) {
            (void)kvt_room_grow(plan, tier, plan->slot_bytes);
        }
    }
    kvt_lock_give(&plan->lock);
    *out_binding = binding;
    return KVT_OK;
}

kvt_status kvt_plan_unbind(struct kvt_plan *plan, struct kvt_binding *binding)
{
    kvt_lock_take(&plan->lock);
    bool busy = binding->uses > 0;
    kvt_lock_give(&plan->lock);
    if (busy) {
        return KVT_ERR_BUSY;
    }
    kvt_exec_unbind(binding);
    return KVT_OK;
}

void kvt_plan_drop_client(struct kvt_plan *plan, uint32_t client)
{
    kvt_lock_take(&plan->lock);
    (void)kvt_lease_drop_owner(plan->index, client);
    for (uint32_t i = 0; i < plan->account.requests_max; i++) {
        struct kvt_request *request = &plan->account.requests[i];
        if (request->open && request->client == client) {
            kvt_account_drop(&plan->account, request);
        }
    }
    for (uint32_t i = 0; i < plan->config.jobs_max; i++) {
        struct kvt_job *job = &plan->jobs[i];
        if (job->state != KVT_JOB_IS_FREE && job->client == client) {
            if (job->state == KVT_JOB_IS_DONE) {
                kvt_job_give(plan, job);
            } else {
                job->detached = true; /* nobody will ask: it ends by itself */
            }
        }
    }
    kvt_lock_give(&plan->lock);
}

/* ---- what is visible ---- */

void kvt_plan_stats(struct kvt_plan *plan, struct kvt_plan_stats *out_stats)
{
    kvt_lock_take(&plan->lock);
    *out_stats = plan->stats;
    out_stats->totals = plan->account.totals;
    out_stats->jobs_running = plan->running;
    out_stats->now_ns = kvt_now_ns(&plan->config.clock);
    kvt_index_stats(plan->index, &out_stats->index);
    kvt_lease_stats(plan->index, &out_stats->leases);
    for (uint32_t tier = 0; tier < KVT_MEMORY_TIERS; tier++) {
        if (plan->tiers[tier].slab != NULL) {
            kvt_slab_stats(plan->tiers[tier].slab, &out_stats->tiers[tier]);
        }
    }
    if (plan->nvme != NULL) {
        out_stats->nvme_there = true;
        out_stats->spill_queue = plan->nvme->queue_count;
        kvt_nvme_stats(plan->nvme->store, &out_stats->nvme);
    }
    out_stats->huge_pages = atomic_load(&plan->tiers[KVT_HOST].huge_pages);
    kvt_lock_give(&plan->lock);
}

struct kvt_io_faults *kvt_plan_drive_faults(struct kvt_plan *plan)
{
    return plan->nvme != NULL ? kvt_nvme_faults(plan->nvme->store) : NULL;
}

bool kvt_plan_check(struct kvt_plan *plan, char *why, size_t why_bytes)
{
    kvt_lock_take(&plan->lock);
    bool good = kvt_index_check(plan->index, why, why_bytes);
    struct kvt_index_stats index;
    kvt_index_stats(plan->index, &index);
    for (uint32_t tier = 0; good && plan->running == 0 && tier < KVT_MEMORY_TIERS; tier++) {
        struct kvt_slab_stats slab = {0};
        if (plan->tiers[tier].slab != NULL) {
            kvt_slab_stats(plan->tiers[tier].slab, &slab);
        }
        if (slab.slots_used != index.tier_pages[tier] || slab.slots_in_transfer != 0) {
            (void)snprintf(why, why_bytes,
                           "%s: %llu slots used and %llu in transfer, but %llu pages",
                           plan->tiers[tier].name, (unsigned long long)slab.slots_used,
                           (unsigned long long)slab.slots_in_transfer,
                           (unsigned long long)index.tier_pages[tier]);
            good = false;
        }
    }
    if (good && plan->running == 0 && plan->nvme != NULL) {
        struct kvt_nvme_stats nvme;
        kvt_nvme_stats(plan->nvme->store, &nvme);
        if (nvme.pages - nvme.pages_left != index.tier_pages[KVT_NVME]) {
            (void)snprintf(why, why_bytes, "nvme: %llu slots held, but %llu pages",
                           (unsigned long long)nvme.pages,
                           (unsigned long long)index.tier_pages[KVT_NVME]);
            good = false;
        }
    }
    kvt_lock_give(&plan->lock);
    return good;
}
