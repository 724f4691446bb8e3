/* Room: growing the tiers, evicting, and moving pages down from hbm to host. */
#include "cache/move/plan_internal.h"

void kvt_room_on_drop(void *ctx, const struct kvt_key *key, const struct kvt_place *places)
{
    struct kvt_plan *plan = ctx;
    uint64_t bytes = 0;
    for (uint32_t tier = 0; tier < KVT_MEMORY_TIERS; tier++) {
        if (kvt_place_is(places[tier])) {
            bytes += kvt_slab_slot_bytes(plan->tiers[tier].slab, places[tier]);
            (void)kvt_slab_free(plan->tiers[tier].slab, places[tier]);
        }
    }
    if (kvt_place_is(places[KVT_NVME])) {
        kvt_nvme_drop(plan->nvme->store, &places[KVT_NVME], 1);
        bytes += KVT_NVME_ALIGN_BYTES; /* what it took there is not what memory is short of */
    }
    kvt_ghosts_add(&plan->ghosts, key, KVT_GHOST_EVICTED, bytes);
}

void kvt_room_on_strip(void *ctx, uint32_t tier, struct kvt_place place)
{
    struct kvt_plan *plan = ctx;
    if (tier == KVT_NVME) {
        kvt_nvme_drop(plan->nvme->store, &place, 1);
    } else {
        (void)kvt_slab_free(plan->tiers[tier].slab, place);
        plan->stats.demoted_pages++; /* nvme has it still */
    }
}

bool kvt_room_grow(struct kvt_plan *plan, uint32_t tier, uint64_t slot_bytes)
{
    uint64_t now_ns = kvt_now_ns(&plan->config.clock);
    if (plan->tiers[tier].slab == NULL || now_ns < plan->grow_retry_ns[tier]) {
        return false;
    }
    kvt_status status = kvt_tier_grow(&plan->tiers[tier], &plan->lock, slot_bytes);
    if (status == KVT_ERR_NOMEM) {
        plan->grow_retry_ns[tier] = now_ns + KVT_GROW_RETRY_NS;
    }
    return status == KVT_OK;
}

/* A slot in this tier, growing it where the budget allows. */
static kvt_status reserve_in(struct kvt_plan *plan, uint32_t tier, uint64_t slot_bytes,
                             struct kvt_place *out_place)
{
    if (plan->tiers[tier].slab == NULL) {
        return KVT_ERR_LIMIT;
    }
    kvt_status status = kvt_slab_reserve(plan->tiers[tier].slab, slot_bytes, out_place);
    if (status == KVT_ERR_LIMIT && kvt_room_grow(plan, tier, slot_bytes)) {
        status = kvt_slab_reserve(plan->tiers[tier].slab, slot_bytes, out_place);
    }
    return status;
}

/* A slot in one of the tiers from `first` on. */
static kvt_status room_from(struct kvt_plan *plan, uint32_t first, uint64_t slot_bytes,
                            uint32_t wanted, unsigned char *out_tier, struct kvt_place *out_place)
{
    for (uint32_t round = 0; round < KVT_ROOM_ROUNDS_MAX; round++) {
        for (uint32_t tier = first; tier < KVT_MEMORY_TIERS; tier++) {
            if (reserve_in(plan, tier, slot_bytes, out_place) == KVT_OK) {
                *out_tier = (unsigned char)tier;
                return KVT_OK;
            }
        }
        if (kvt_index_shed(plan->index, first == 0 ? KVT_TIERS : first, wanted) == 0) {
            /* Leases that nobody used in time still pin what could go. */
            uint32_t expired = kvt_lease_expire(plan->index, kvt_now_ns(&plan->config.clock));
            plan->stats.leases_expired += expired;
            if (expired == 0) {
                return KVT_ERR_LIMIT;
            }
        }
    }
    return KVT_ERR_LIMIT;
}

kvt_status kvt_room_for_page(struct kvt_plan *plan, uint64_t slot_bytes, uint32_t wanted,
                             unsigned char *out_tier, struct kvt_place *out_place)
{
    return room_from(plan, 0, slot_bytes, wanted, out_tier, out_place);
}

kvt_status kvt_room_in_host(struct kvt_plan *plan, uint64_t slot_bytes, struct kvt_place *out_place)
{
    unsigned char tier = KVT_HOST;
    return room_from(plan, KVT_HOST, slot_bytes, KVT_HOST_ROOM_PAGES, &tier, out_place);
}

/* ---- demotion ---- */

/* Pages that should move down now, 0 while hbm has room enough. */
static uint32_t demote_wanted(struct kvt_plan *plan)
{
    if (plan->quiet || plan->moves_running > 0 || plan->slot_bytes == 0 ||
        plan->tiers[KVT_HBM].slab == NULL || plan->tiers[KVT_HOST].slab == NULL) {
        return 0;
    }
    struct kvt_slab_stats hbm;
    kvt_slab_stats(plan->tiers[KVT_HBM].slab, &hbm);
    /* Counted in slots: what a chunk leaves over behind its last slot is no room. */
    uint64_t free_slots = hbm.slots_free + (hbm.bytes_budget - hbm.bytes_mapped) / plan->slot_bytes;
    uint64_t slots = hbm.slots_used + free_slots;
    if (free_slots > slots / KVT_HBM_FREE_LOW_DIVISOR) {
        return 0;
    }
    uint64_t wanted = slots / KVT_HBM_FREE_HIGH_DIVISOR + 1 - free_slots;
    return wanted < KVT_DEMOTE_PAGES_MAX ? (uint32_t)wanted : KVT_DEMOTE_PAGES_MAX;
}

/* Reserve a host slot for each page; a page without one stays. Host pages are not evicted for it:
 * while host is full, hbm is simply the other half of one full cache. */
static void reserve_targets(struct kvt_plan *plan, struct kvt_job *job, uint32_t found)
{
    for (uint32_t i = 0; i < found; i++) {
        uint32_t page = job->pages[i];
        uint32_t at = job->page_count;
        if (kvt_slot_bytes(plan, kvt_page_slot_bytes(plan->index, page)) != job->slot_bytes ||
            kvt_slab_reserve(plan->tiers[KVT_HOST].slab, job->slot_bytes, &job->to_places[at]) !=
                KVT_OK) {
            continue;
        }
        job->pages[at] = page;
        job->places[at] = kvt_page_place(plan->index, page, KVT_HBM, 0);
        job->addrs[at].addr = kvt_slab_addr(plan->tiers[KVT_HBM].slab, job->places[at]);
        job->to_addrs[at].addr = kvt_slab_addr(plan->tiers[KVT_HOST].slab, job->to_places[at]);
        kvt_slab_ref(plan->tiers[KVT_HBM].slab, job->places[at]);
        kvt_slab_ref(plan->tiers[KVT_HOST].slab, job->to_places[at]);
        kvt_page_set_busy(plan->index, page, true);
        job->page_count++;
    }
}

/* The transfer is over (or never began): pages may be evicted again. */
static void release_pages(struct kvt_plan *plan, struct kvt_job *job)
{
    for (uint32_t i = 0; i < job->page_count; i++) {
        kvt_slab_unref(plan->tiers[KVT_HBM].slab, job->places[i]);
        kvt_slab_unref(plan->tiers[KVT_HOST].slab, job->to_places[i]);
        kvt_page_set_busy(plan->index, job->pages[i], false);
    }
}

void kvt_demote_some(struct kvt_plan *plan)
{
    uint32_t wanted = demote_wanted(plan);
    if (wanted == 0) {
        return;
    }
    if (!kvt_slab_has_room(plan->tiers[KVT_HOST].slab, plan->slot_bytes)) {
        if (!kvt_room_grow(plan, KVT_HOST, plan->slot_bytes)) {
            return;
        }
        /* The lock was dropped: somebody may have quiesced, and must be left in peace. */
        wanted = demote_wanted(plan);
        if (wanted == 0) {
            return;
        }
    }
    struct kvt_job *job = NULL;
    if (kvt_job_take(plan, wanted, 0, &job) != KVT_OK) {
        return; /* later: nothing depends on it */
    }
    job->client = KVT_OWNER_INTERNAL;
    job->detached = true;
    job->slot_bytes = plan->slot_bytes;
    uint32_t found = kvt_index_demotable(plan->index, KVT_HBM, wanted, job->pages);
    reserve_targets(plan, job, found);
    if (job->page_count == 0) {
        kvt_job_give(plan, job);
        return;
    }
    job->exec.kind = KVT_EXEC_MOVE;
    job->exec.page_count = job->page_count;
    job->exec.pages = job->addrs;
    job->exec.to = job->to_addrs;
    job->exec.move_bytes = job->slot_bytes;
    if (kvt_job_submit(plan, job) != KVT_OK) {
        release_pages(plan, job);
        for (uint32_t i = 0; i < job->page_count; i++) {
            (void)kvt_slab_free(plan->tiers[KVT_HOST].slab, job->to_places[i]);
        }
        kvt_job_give(plan, job);
    }
}

void kvt_demote_finish(struct kvt_plan *plan, struct kvt_job *job)
{
    const struct kvt_place nowhere = {0, 0};
    uint32_t good = atomic_load(&job->exec.pages_good);
    release_pages(plan, job);
    for (uint32_t i = 0; i < job->page_count; i++) {
        if (i >= good) {
            /* The page stays where it was: one that was not copied is not elsewhere (F29). */
            (void)kvt_slab_free(plan->tiers[KVT_HOST].slab, job->to_places[i]);
            continue;
        }
        kvt_slab_commit(plan->tiers[KVT_HOST].slab, job->to_places[i]);
        kvt_page_set_places(plan->index, job->pages[i], KVT_HOST, &job->to_places[i]);
        kvt_page_set_places(plan->index, job->pages[i], KVT_HBM, &nowhere);
        (void)kvt_slab_free(plan->tiers[KVT_HBM].slab, job->places[i]);
        plan->stats.demoted_pages++;
    }
    kvt_job_done(plan, job, kvt_job_status(job, good));
}
