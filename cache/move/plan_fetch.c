/*
 * Fetch: pages that only nvme has come up to host slots, where they stay (promotion).
 *
 * A restore needs them in the order of the prompt and may start with the first before the last has
 * arrived: its pages are cut into steps, each of which waits for one fetch or for nothing, and the
 * device's gate lets the copies of a step run once its fetch has landed. Two restores that want the
 * same page share one fetch.
 *
 *   reading --landed--> published, waiters told --the kernel is through--> gone
 *      |                                                      ^
 *      +--late: waiters told that it failed, slots kept ------+
 */
#include "cache/move/plan_internal.h"

#include <string.h>

struct kvt_fetch {
    struct kvt_plan *plan;
    struct kvt_nvme_read read; /* user points back here */
    struct kvt_storage_event landed, gone;
    uint16_t number;
    uint32_t page_count, pages_max;
    uint32_t *pages;          /* [pages_max] records; busy until it landed */
    struct kvt_place *places; /* [pages_max] host slots, reserved */
    struct kvt_nvme_read_page *reads;
};

static void fetch_free(struct kvt_plan *plan, struct kvt_fetch *fetch)
{
    size_t max = fetch->pages_max;
    kvt_free(plan->mem, fetch->pages, max * sizeof(*fetch->pages));
    kvt_free(plan->mem, fetch->places, max * sizeof(*fetch->places));
    kvt_free(plan->mem, fetch->reads, max * sizeof(*fetch->reads));
    kvt_free(plan->mem, fetch, sizeof(*fetch));
}

/* ---- what came of it. All require the lock ---- */

/* The restores that wait for this fetch: a step whose pages are not all good ends the job there. */
static void tell_waiters(struct kvt_plan *plan, const struct kvt_fetch *fetch)
{
    for (uint32_t i = 0; i < plan->config.jobs_max; i++) {
        struct kvt_job *job = &plan->jobs[i];
        if (job->step_count == job->steps_ready || job->state == KVT_JOB_IS_FREE ||
            job->state == KVT_JOB_IS_DONE) {
            continue;
        }
        uint32_t first = 0;
        for (uint32_t s = 0; s < job->step_count; first += job->steps[s++].page_count) {
            struct kvt_step_wait *wait = &job->waits[s];
            if (wait->fetch != fetch->number) {
                continue;
            }
            wait->fetch = 0;
            for (uint32_t p = 0; p < job->steps[s].page_count; p++) {
                if (!fetch->reads[wait->first + p].good) {
                    kvt_exec_fail_from(&job->exec, first + p);
                    break;
                }
            }
        }
        if (job->state == KVT_JOB_IS_RUNNING) {
            kvt_restore_advance(job);
        }
    }
}

void kvt_restore_advance(struct kvt_job *job)
{
    uint32_t ready = job->steps_ready;
    while (ready < job->step_count && job->waits[ready].fetch == 0) {
        ready++;
    }
    if (ready > job->steps_ready) {
        job->steps_ready = ready;
        kvt_exec_open_gate(&job->exec, ready);
    }
}

/* A page that arrived stays in host memory, unless another way was faster. */
static void publish(struct kvt_plan *plan, struct kvt_fetch *fetch, uint32_t i)
{
    struct kvt_slab *host = plan->tiers[KVT_HOST].slab;
    uint32_t page = fetch->pages[i];
    if (kvt_place_is(kvt_page_place(plan->index, page, KVT_HBM, 0)) ||
        kvt_place_is(kvt_page_place(plan->index, page, KVT_HOST, 0))) {
        (void)kvt_slab_free(host, fetch->places[i]);
        return;
    }
    kvt_slab_commit(host, fetch->places[i]);
    kvt_page_set_places(plan->index, page, KVT_HOST, &fetch->places[i]);
    plan->stats.promoted_pages++;
}

static void take_landed(struct kvt_plan *plan, void *what)
{
    struct kvt_fetch *fetch = what;
    struct kvt_slab *host = plan->tiers[KVT_HOST].slab;
    for (uint32_t i = 0; i < fetch->page_count; i++) {
        kvt_page_set_fetch(plan->index, fetch->pages[i], 0);
        kvt_page_set_busy(plan->index, fetch->pages[i], false);
        if (fetch->reads[i].good) {
            publish(plan, fetch, i);
            plan->stats.fetched_pages++;
            continue;
        }
        (void)kvt_slab_free(host, fetch->places[i]); /* once the kernel is through with it */
        plan->stats.fetch_failed_pages++;
    }
    plan->nvme->fetches[fetch->number - 1] = NULL;
    /* Content that is wrong is gone for good; what cannot be read now may be read later. */
    for (uint32_t i = 0; i < fetch->page_count; i++) {
        if (fetch->reads[i].bad &&
            kvt_place_is(kvt_page_place(plan->index, fetch->pages[i], KVT_NVME, 0))) {
            kvt_index_lose(plan->index, fetch->pages[i]);
        }
    }
    tell_waiters(plan, fetch);
}

static void take_gone(struct kvt_plan *plan, void *what)
{
    struct kvt_fetch *fetch = what;
    for (uint32_t i = 0; i < fetch->page_count; i++) {
        kvt_slab_unref(plan->tiers[KVT_HOST].slab, fetch->places[i]);
    }
    plan->nvme->fetches_running--;
    plan->running--;
    fetch_free(plan, fetch);
}

/* On the drive's threads. */
static void on_done(struct kvt_nvme_read *read)
{
    struct kvt_fetch *fetch = read->user;
    kvt_storage_tell(fetch->plan, &fetch->landed);
}

static void on_released(struct kvt_nvme_read *read)
{
    struct kvt_fetch *fetch = read->user;
    kvt_storage_tell(fetch->plan, &fetch->gone);
}

/* ---- starting one. All require the lock ---- */

/* An empty fetch for up to `max` pages; NULL when there is no memory or number for it. */
static struct kvt_fetch *fetch_create(struct kvt_plan *plan, uint32_t max)
{
    uint32_t at = 0;
    while (at < KVT_FETCHES_MAX && plan->nvme->fetches[at] != NULL) {
        at++;
    }
    struct kvt_fetch *fetch =
        at < KVT_FETCHES_MAX ? kvt_calloc(plan->mem, 1, sizeof(*fetch)) : NULL;
    if (fetch == NULL) {
        return NULL;
    }
    fetch->plan = plan;
    fetch->pages_max = max;
    fetch->pages = kvt_calloc(plan->mem, max, sizeof(*fetch->pages));
    fetch->places = kvt_calloc(plan->mem, max, sizeof(*fetch->places));
    fetch->reads = kvt_calloc(plan->mem, max, sizeof(*fetch->reads));
    if (fetch->pages == NULL || fetch->places == NULL || fetch->reads == NULL) {
        fetch_free(plan, fetch);
        return NULL;
    }
    fetch->number = (uint16_t)(at + 1);
    fetch->landed = (struct kvt_storage_event){.take = take_landed, .what = fetch};
    fetch->gone = (struct kvt_storage_event){.take = take_gone, .what = fetch};
    plan->nvme->fetches[at] = fetch;
    return fetch;
}

static void fetch_add(struct kvt_plan *plan, struct kvt_fetch *fetch, uint32_t page,
                      struct kvt_place place)
{
    struct kvt_slab *host = plan->tiers[KVT_HOST].slab;
    uint32_t at = fetch->page_count++;
    fetch->pages[at] = page;
    fetch->places[at] = place;
    fetch->reads[at] = (struct kvt_nvme_read_page){
        .place = kvt_page_place(plan->index, page, KVT_NVME, 0),
        .seed = kvt_nvme_seed(kvt_page_key(plan->index, page)->bytes),
        .buffer = kvt_slab_addr(host, place),
        .bytes = (uint32_t)kvt_page_slot_bytes(plan->index, page),
    };
    kvt_slab_ref(host, place);
    kvt_page_set_busy(plan->index, page, true);
    kvt_page_set_fetch(plan->index, page, fetch->number);
}

/* Let it run. One that cannot be started fails as one that could not be read. */
static void fetch_start(struct kvt_plan *plan, struct kvt_fetch *fetch, uint32_t class)
{
    if (fetch->page_count == 0) {
        plan->nvme->fetches[fetch->number - 1] = NULL;
        fetch_free(plan, fetch);
        return;
    }
    fetch->read = (struct kvt_nvme_read){
        .pages = fetch->reads,
        .page_count = fetch->page_count,
        .class = class,
        .done = on_done,
        .released = on_released,
        .user = fetch,
    };
    plan->nvme->fetches_running++;
    plan->running++;
    if (kvt_nvme_read(plan->nvme->store, &fetch->read) != KVT_OK) {
        for (uint32_t i = 0; i < fetch->page_count; i++) {
            fetch->reads[i].good = false;
        }
        take_landed(plan, fetch);
        take_gone(plan, fetch);
    }
}

static uint32_t fetch_pages_max(const struct kvt_plan *plan, uint64_t bytes, uint32_t pages)
{
    uint64_t fit = KVT_FETCH_BYTES / kvt_slot_bytes(plan, bytes);
    fit = fit < 1 ? 1 : fit;
    fit = fit > KVT_FETCH_PAGES_MAX ? KVT_FETCH_PAGES_MAX : fit;
    uint32_t least = (pages + KVT_FETCHES_PER_RESTORE - 1) / KVT_FETCHES_PER_RESTORE;
    return (uint32_t)fit > least ? (uint32_t)fit : least;
}

/* ---- the sources of a restore ---- */

struct sources {
    struct kvt_job *job;
    struct kvt_fetch *building; /* not started yet */
    uint32_t fetch_max;
    uint32_t class; /* of the reads */
    bool any_fetch;
};

/* The page is in memory: true, with its place pinned. */
static bool from_memory(struct kvt_plan *plan, struct kvt_job *job, uint32_t i)
{
    for (uint32_t tier = 0; tier < KVT_MEMORY_TIERS; tier++) {
        struct kvt_place place = kvt_page_place(plan->index, job->pages[i], tier, 0);
        if (kvt_place_is(place)) {
            job->tiers[i] = (unsigned char)tier;
            job->places[i] = place;
            job->addrs[i].addr = kvt_slab_addr(plan->tiers[tier].slab, place);
            KVT_ASSERT(job->addrs[i].addr != NULL);
            kvt_slab_ref(plan->tiers[tier].slab, place);
            return true;
        }
    }
    return false;
}

/* The job's next page waits for page `at` of this fetch, or (number 0) for nothing. */
static void step_add(struct kvt_job *job, uint16_t number, uint32_t at)
{
    struct kvt_exec_step *last = job->step_count > 0 ? &job->steps[job->step_count - 1] : NULL;
    const struct kvt_step_wait *wait = last != NULL ? &job->waits[job->step_count - 1] : NULL;
    if (last != NULL && wait->fetch == number &&
        (number == 0 || wait->first + last->page_count == at)) {
        last->page_count++;
        return;
    }
    job->steps[job->step_count] = (struct kvt_exec_step){.page_count = 1, .gated = number != 0};
    job->waits[job->step_count++] = (struct kvt_step_wait){.fetch = number, .first = at};
}

/* Page i comes with a fetch that is under way, or being put together. */
static void from_fetch(struct kvt_plan *plan, struct kvt_job *job, uint32_t i)
{
    const struct kvt_fetch *fetch =
        plan->nvme->fetches[kvt_page_fetch(plan->index, job->pages[i]) - 1];
    uint32_t at = 0;
    while (fetch->pages[at] != job->pages[i]) {
        at++;
    }
    job->tiers[i] = KVT_NVME;
    job->places[i] = fetch->places[at];
    job->addrs[i].addr = fetch->reads[at].buffer;
    kvt_slab_ref(plan->tiers[KVT_HOST].slab, fetch->places[at]);
    step_add(job, fetch->number, at);
}

/* A new fetch for page i. Drops and retakes the lock. AGAIN: look at the page once more. */
static kvt_status fetch_page(struct kvt_plan *plan, struct sources *sources, uint32_t i)
{
    struct kvt_job *job = sources->job;
    uint32_t page = job->pages[i];
    if (!kvt_place_is(kvt_page_place(plan->index, page, KVT_NVME, 0))) {
        return KVT_ERR_CORRUPT; /* lost meanwhile */
    }
    if (sources->building != NULL &&
        sources->building->page_count == sources->building->pages_max) {
        fetch_start(plan, sources->building, sources->class);
        sources->building = NULL;
    }
    struct kvt_place place;
    kvt_status status = kvt_room_in_host(
        plan, kvt_slot_bytes(plan, kvt_page_slot_bytes(plan->index, page)), &place);
    if (status != KVT_OK) {
        return status;
    }
    /* The lock was dropped: somebody else may have been faster. */
    bool still = kvt_page_fetch(plan->index, page) == 0 &&
                 !kvt_place_is(kvt_page_place(plan->index, page, KVT_HBM, 0)) &&
                 !kvt_place_is(kvt_page_place(plan->index, page, KVT_HOST, 0)) &&
                 kvt_place_is(kvt_page_place(plan->index, page, KVT_NVME, 0));
    if (still && sources->building == NULL) {
        sources->building = fetch_create(plan, sources->fetch_max);
        status = sources->building != NULL ? KVT_OK : KVT_ERR_NOMEM;
    }
    if (!still || status != KVT_OK) {
        (void)kvt_slab_free(plan->tiers[KVT_HOST].slab, place);
        return still ? status : KVT_ERR_AGAIN;
    }
    fetch_add(plan, sources->building, page, place);
    return KVT_ERR_AGAIN;
}

static bool steps_alloc(struct kvt_plan *plan, struct kvt_job *job)
{
    job->steps = kvt_calloc(plan->mem, job->array_pages, sizeof(*job->steps));
    job->waits = kvt_calloc(plan->mem, job->array_pages, sizeof(*job->waits));
    return job->steps != NULL && job->waits != NULL;
}

kvt_status kvt_restore_sources(struct kvt_plan *plan, struct kvt_job *job, uint32_t class)
{
    struct sources sources = {.job = job, .class = class};
    atomic_store(&job->exec.pages_good, UINT32_MAX);
    if (plan->nvme != NULL) {
        sources.fetch_max = fetch_pages_max(plan, job->slot_bytes, job->page_count);
        if (!steps_alloc(plan, job)) {
            return KVT_ERR_NOMEM;
        }
    }
    uint32_t i = 0;
    while (i < job->page_count) {
        if (from_memory(plan, job, i)) {
            if (plan->nvme != NULL) {
                step_add(job, 0, 0);
            }
        } else if (plan->nvme == NULL) {
            KVT_ASSERT(plan->nvme != NULL); /* without nvme every page lies in memory */
        } else if (kvt_page_fetch(plan->index, job->pages[i]) != 0) {
            from_fetch(plan, job, i);
            sources.any_fetch = true;
        } else {
            kvt_status status = fetch_page(plan, &sources, i);
            if (status == KVT_ERR_AGAIN) {
                continue;
            }
            job->cut = status;
            break;
        }
        i++;
    }
    if (sources.building != NULL) {
        fetch_start(plan, sources.building, class);
    }
    kvt_exec_fail_from(&job->exec, i);
    if (!sources.any_fetch) {
        job->step_count = 0; /* nothing waits */
    }
    job->exec.page_count = i;
    job->exec.steps = job->steps;
    job->exec.step_count = job->step_count;
    return KVT_OK;
}

void kvt_restore_unref(struct kvt_plan *plan, struct kvt_job *job)
{
    for (uint32_t i = 0; i < job->exec.page_count; i++) {
        kvt_slab_unref(kvt_slab_of(plan, job->tiers[i]), job->places[i]);
    }
}

/* ---- before it is asked for ---- */

kvt_status kvt_plan_prefetch(struct kvt_plan *plan, uint32_t client, uint64_t lease)
{
    struct kvt_lease_info info;
    kvt_lock_take(&plan->lock);
    kvt_status status = kvt_lease_get(plan->index, lease, client, &info);
    uint32_t count = status == KVT_OK ? info.at.pages : 0;
    struct kvt_job *job = NULL;
    if (status == KVT_OK && plan->nvme != NULL && !plan->quiet && count > 0) {
        /* A job's arrays, for the time of this call; it never runs. */
        status = kvt_job_take(plan, count, 0, &job);
    }
    if (job != NULL) {
        status = kvt_lease_begin(plan->index, lease, client);
        KVT_ASSERT(status == KVT_OK);
        status = kvt_index_pages(plan->index, lease, client, 0, count, job->pages);
        KVT_ASSERT(status == KVT_OK);
        job->client = KVT_OWNER_INTERNAL;
        job->page_count = count;
        job->slot_bytes = kvt_page_slot_bytes(plan->index, job->pages[0]);
        status = kvt_restore_sources(plan, job, 1);
        if (status == KVT_OK) {
            kvt_restore_unref(plan, job);
        }
        kvt_lease_end(plan->index, lease);
        kvt_job_give(plan, job);
    }
    kvt_lock_give(&plan->lock);
    return status;
}
