/* Save: engine blocks to reserved slots; the pages enter the tree when their bytes have landed. */
#include "cache/move/plan_internal.h"

#include <string.h>

/* Copy what outlives the call: tokens, blocks and extra keys from the first new page on. */
static kvt_status copy_arguments(struct kvt_plan *plan, struct kvt_job *job,
                                 const struct kvt_plan_save *in)
{
    const uint32_t page_tokens = plan->config.page_tokens;
    size_t tokens = (size_t)job->array_pages * page_tokens;
    job->tokens = kvt_alloc(plan->mem, tokens * sizeof(*job->tokens));
    if (job->tokens == NULL) {
        return KVT_ERR_NOMEM;
    }
    memcpy(job->tokens, in->tokens + (size_t)job->first_page * page_tokens,
           tokens * sizeof(*job->tokens));
    memcpy(job->blocks, in->blocks + (size_t)job->first_page * in->binding->blocks_per_page,
           job->block_count * sizeof(*job->blocks));
    if (in->extra_count > 0) {
        job->extras = kvt_alloc(plan->mem, in->extra_count * sizeof(*job->extras));
        if (job->extras == NULL) {
            return KVT_ERR_NOMEM;
        }
        memcpy(job->extras, in->extras, in->extra_count * sizeof(*job->extras));
        job->extra_count = in->extra_count;
    }
    return KVT_OK;
}

/* Reserve a slot for each page, as far as room can be had; what found none is `refused`. */
static void reserve_slots(struct kvt_plan *plan, struct kvt_job *job)
{
    uint32_t wanted = job->array_pages;
    uint32_t got = 0;
    uint64_t slot_bytes = kvt_slot_bytes(plan, job->slot_bytes);
    while (got < wanted && kvt_room_for_page(plan, slot_bytes, wanted - got, &job->tiers[got],
                                             &job->places[got]) == KVT_OK) {
        struct kvt_slab *slab = plan->tiers[job->tiers[got]].slab;
        job->addrs[got].addr = kvt_slab_addr(slab, job->places[got]);
        kvt_slab_ref(slab, job->places[got]);
        got++;
    }
    job->page_count = got;
    job->refused = wanted - got;
}

/* Give back the reserved slots from `first` on. */
static void slots_free(struct kvt_plan *plan, struct kvt_job *job, uint32_t first)
{
    for (uint32_t i = first; i < job->page_count; i++) {
        (void)kvt_slab_free(plan->tiers[job->tiers[i]].slab, job->places[i]);
    }
}

static void slots_unref(struct kvt_plan *plan, struct kvt_job *job)
{
    for (uint32_t i = 0; i < job->page_count; i++) {
        kvt_slab_unref(plan->tiers[job->tiers[i]].slab, job->places[i]);
    }
}

static struct kvt_prompt job_prompt(const struct kvt_job *job)
{
    return (struct kvt_prompt){
        .tokens = job->tokens,
        .first_page = job->first_page,
        .pages = job->first_page + job->array_pages,
        .extras = job->extras,
        .extra_count = job->extra_count,
    };
}

/* Pages that did not get in, from `held` on, leave a ghost each, so that a later miss can say why.
 * `key` is the one before the job's first page. */
static void leave_ghosts(struct kvt_plan *plan, struct kvt_job *job, struct kvt_key key,
                         uint32_t held)
{
    struct kvt_prompt prompt = job_prompt(job);
    const uint32_t page_tokens = plan->config.page_tokens;
    uint32_t cursor = 0;
    for (uint32_t i = 0; i < job->array_pages; i++) {
        const struct kvt_extra *extras = NULL;
        uint32_t extra_count =
            kvt_prompt_extras(&prompt, job->first_page + i, page_tokens, &cursor, &extras);
        key = kvt_key_next(&key, job->tokens + (size_t)i * page_tokens, page_tokens, extras,
                           extra_count * sizeof(*extras));
        if (i >= held) {
            kvt_ghosts_add(&plan->ghosts, &key,
                           i < job->page_count ? KVT_GHOST_FAILED : KVT_GHOST_NOT_ADMITTED, 0);
        }
    }
}

/* Pages that the tree has, but not in memory (nvme has them, or they were lost), take the new
 * place. Sets adopted[i] for each; how many of the job's pages the tree has. */
static uint32_t adopt(struct kvt_plan *plan, struct kvt_job *job, const struct kvt_prompt *prompt,
                      uint32_t good, bool *adopted)
{
    uint32_t found = kvt_index_pages_behind(plan->index, job->lease, job->lease_owner, prompt,
                                            job->first_page, good, job->pages);
    for (uint32_t i = 0; i < found; i++) {
        bool in_memory = kvt_place_is(kvt_page_place(plan->index, job->pages[i], KVT_HBM, 0)) ||
                         kvt_place_is(kvt_page_place(plan->index, job->pages[i], KVT_HOST, 0));
        if (!in_memory) {
            kvt_page_set_places(plan->index, job->pages[i], job->tiers[i], &job->places[i]);
            adopted[i] = true;
            plan->stats.promoted_pages++;
        }
    }
    return found;
}

/* Records for `count` pages about to enter: the tree evicts where it has no more, as tiers do where
 * they have no more slots. What is leased stays, and what then finds no record is not entered. */
static void records_for(struct kvt_plan *plan, uint32_t count)
{
    struct kvt_index_stats index;
    kvt_index_stats(plan->index, &index);
    if (index.pages + count <= index.pages_max) {
        return;
    }
    uint64_t over = index.pages + count - index.pages_max;
    uint32_t wanted = over < count ? (uint32_t)over : count;
    if (kvt_index_evict(plan->index, KVT_TIERS, wanted) == 0) {
        /* Leases that nobody used in time still pin what could go. */
        plan->stats.leases_expired +=
            kvt_lease_expire(plan->index, kvt_now_ns(&plan->config.clock));
        (void)kvt_index_evict(plan->index, KVT_TIERS, wanted);
    }
}

/* Enter the pages whose bytes landed. Answers how many pages of the job the cache now holds. */
static uint32_t publish(struct kvt_plan *plan, struct kvt_job *job, uint32_t good,
                        kvt_status *out_status)
{
    *out_status = good > 0 ? KVT_ERR_NOMEM : KVT_OK;
    struct kvt_new_page *pages = good > 0 ? kvt_calloc(plan->mem, good, sizeof(*pages)) : NULL;
    bool *adopted = pages != NULL ? kvt_calloc(plan->mem, good, sizeof(*adopted)) : NULL;
    if (adopted == NULL) {
        slots_free(plan, job, 0);
        kvt_free(plan->mem, pages, good * sizeof(*pages));
        return 0;
    }
    for (uint32_t i = 0; i < good; i++) {
        pages[i] = (struct kvt_new_page){.tier = job->tiers[i], .places = &job->places[i]};
        kvt_slab_commit(plan->tiers[job->tiers[i]].slab, job->places[i]);
    }
    struct kvt_prompt prompt = job_prompt(job);
    prompt.pages = job->first_page + good;
    records_for(plan, good);
    (void)adopt(plan, job, &prompt, good, adopted);
    uint32_t duplicates = 0, inserted = 0;
    kvt_status status = kvt_index_insert(plan->index, job->lease, job->lease_owner, &prompt,
                                         job->first_page, good, pages, &duplicates, &inserted);
    *out_status = status;
    plan->stats.limit_pages_hit += status == KVT_ERR_LIMIT;
    plan->stats.saved_pages += inserted;
    for (uint32_t i = 0; i < duplicates; i++) {
        if (!adopted[i]) {
            plan->stats.duplicate_pages++;
            (void)kvt_slab_free(plan->tiers[job->tiers[i]].slab, job->places[i]);
        }
    }
    slots_free(plan, job, duplicates + inserted);
    kvt_free(plan->mem, adopted, good * sizeof(*adopted));
    kvt_free(plan->mem, pages, good * sizeof(*pages));
    uint32_t there = kvt_index_pages_behind(plan->index, job->lease, job->lease_owner, &prompt,
                                            job->first_page, good, job->pages);
    kvt_spill_offer(plan, job->pages, there, false);
    return duplicates + inserted;
}

void kvt_save_finish(struct kvt_plan *plan, struct kvt_job *job)
{
    uint32_t good = atomic_load(&job->exec.pages_good);
    KVT_ASSERT(good <= job->page_count);
    struct kvt_lease_info lease;
    kvt_status status = kvt_lease_get(plan->index, job->lease, job->lease_owner, &lease);
    KVT_ASSERT(status == KVT_OK);
    struct kvt_key key = kvt_index_match_key(plan->index, &lease.at);
    slots_unref(plan, job);
    kvt_status published = KVT_OK;
    uint32_t held = publish(plan, job, good, &published);
    if (held < job->array_pages) {
        leave_ghosts(plan, job, key, held);
        plan->stats.not_admitted_pages += job->refused;
    }
    /* The prefix was just used: it must outlive what was entered behind it. */
    kvt_index_touch(plan->index, job->lease, job->lease_owner);
    status = kvt_job_status(job, good);
    if (status == KVT_OK && held < good) {
        status = published;
    } else if (status == KVT_OK && job->refused > 0) {
        status = KVT_ERR_LIMIT;
    }
    job->result.tokens_good = (uint64_t)(job->first_page + held) * plan->config.page_tokens;
    job->result.bytes_moved = good * job->slot_bytes;
    kvt_lease_end(plan->index, job->lease);
    kvt_status released = kvt_lease_release(plan->index, job->lease, job->lease_owner);
    KVT_ASSERT(released == KVT_OK); /* a save's own lease lives as long as the save */
    kvt_job_done(plan, job, status);
}

/* Nothing to copy: the cache holds all of it, or there is a gap before what is valid, or no
 * room. */
static void finish_empty(struct kvt_plan *plan, struct kvt_job *job, uint32_t pages_held,
                         kvt_status status)
{
    job->result.tokens_good = (uint64_t)pages_held * plan->config.page_tokens;
    kvt_job_done(plan, job, status);
}

static kvt_status save_begin(struct kvt_plan *plan, const struct kvt_plan_save *in,
                             struct kvt_job **out_job)
{
    kvt_status status = kvt_index_namespace_bytes(plan->index, in->ns, in->binding->shard_bytes);
    if (status != KVT_OK) {
        return status;
    }
    struct kvt_prompt prompt = {.tokens = in->tokens,
                                .pages = in->pages,
                                .extras = in->extras,
                                .extra_count = in->extra_count};
    struct kvt_match match;
    kvt_index_match(plan->index, in->ns, &prompt, &match);
    if (match.tier_pages[KVT_NVME] > 0) {
        /* The engine has what only nvme has here: memory takes it from there, as far as it goes. */
        uint32_t memory = kvt_index_memory_pages(plan->index, &match);
        prompt.pages = memory > in->valid_from_page ? memory : in->valid_from_page;
        if (prompt.pages < match.pages) {
            kvt_index_match(plan->index, in->ns, &prompt, &match);
        }
    }
    uint32_t fresh = match.pages < in->valid_from_page ? 0 : in->pages - match.pages;
    struct kvt_job *job = NULL;
    status = kvt_job_take(plan, fresh, (size_t)fresh * in->binding->blocks_per_page, &job);
    if (status != KVT_OK) {
        return status;
    }
    job->client = in->client;
    job->detached = in->detached;
    kvt_job_bind(job, in->binding);
    job->ns = in->ns;
    job->first_page = match.pages;
    job->slot_bytes = in->binding->shard_bytes;
    job->lease_owner = KVT_OWNER_INTERNAL;
    if (fresh > 0) {
        status = copy_arguments(plan, job, in);
        if (status == KVT_OK) {
            status = kvt_lease_acquire(plan->index, &match, KVT_OWNER_INTERNAL,
                                       kvt_now_ns(&plan->config.clock), UINT64_MAX, &job->lease);
            plan->stats.limit_leases_hit += status == KVT_ERR_LIMIT;
            status = status == KVT_ERR_LIMIT ? KVT_ERR_AGAIN : status;
        }
        if (status != KVT_OK) {
            kvt_job_give(plan, job);
            return status;
        }
        status = kvt_lease_begin(plan->index, job->lease, KVT_OWNER_INTERNAL);
        KVT_ASSERT(status == KVT_OK);
    }
    *out_job = job;
    return KVT_OK;
}

static void save_undo(struct kvt_plan *plan, struct kvt_job *job)
{
    slots_unref(plan, job);
    slots_free(plan, job, 0);
    kvt_lease_end(plan->index, job->lease);
    kvt_status released = kvt_lease_release(plan->index, job->lease, KVT_OWNER_INTERNAL);
    KVT_ASSERT(released == KVT_OK);
}

/* Slots, then exec. */
static kvt_status save_start(struct kvt_plan *plan, struct kvt_job *job,
                             const struct kvt_plan_save *in)
{
    reserve_slots(plan, job);
    if (job->page_count == 0) {
        struct kvt_lease_info lease;
        kvt_status status = kvt_lease_get(plan->index, job->lease, KVT_OWNER_INTERNAL, &lease);
        KVT_ASSERT(status == KVT_OK);
        leave_ghosts(plan, job, kvt_index_match_key(plan->index, &lease.at), 0);
        plan->stats.not_admitted_pages += job->refused;
        save_undo(plan, job);
        finish_empty(plan, job, job->first_page, KVT_ERR_LIMIT);
        return KVT_OK;
    }
    job->exec.kind = KVT_EXEC_SAVE;
    job->exec.binding = in->binding;
    job->exec.page_count = job->page_count;
    job->exec.pages = job->addrs;
    job->exec.blocks = job->blocks;
    job->exec.after = in->after;
    kvt_status status = kvt_job_submit(plan, job);
    if (status != KVT_OK) {
        save_undo(plan, job);
        kvt_job_give(plan, job);
    }
    return status;
}

kvt_status kvt_plan_save(struct kvt_plan *plan, const struct kvt_plan_save *in, uint64_t *out_job)
{
    kvt_lock_take(&plan->lock);
    plan->quiet = false;
    struct kvt_job *job = NULL;
    kvt_status status = save_begin(plan, in, &job);
    if (status == KVT_OK) {
        uint64_t handle = kvt_job_handle(plan, job);
        if (job->array_pages == 0) {
            finish_empty(plan, job, job->first_page, KVT_OK);
        } else {
            status = save_start(plan, job, in);
        }
        if (status == KVT_OK && out_job != NULL) {
            *out_job = handle;
        }
    }
    kvt_lock_give(&plan->lock);
    return status;
}
