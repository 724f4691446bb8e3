/* Jobs: slots with generations, their arrays, waiting for them. */
#include "cache/move/plan_internal.h"

static void arrays_free(struct kvt_plan *plan, struct kvt_job *job)
{
    const struct kvt_memory *mem = plan->mem;
    size_t pages = job->array_pages;
    kvt_free(mem, job->pages, pages * sizeof(*job->pages));
    kvt_free(mem, job->addrs, pages * sizeof(*job->addrs));
    kvt_free(mem, job->to_addrs, pages * sizeof(*job->to_addrs));
    kvt_free(mem, job->places, pages * sizeof(*job->places));
    kvt_free(mem, job->to_places, pages * sizeof(*job->to_places));
    kvt_free(mem, job->tiers, pages * sizeof(*job->tiers));
    kvt_free(mem, job->blocks, job->block_count * sizeof(*job->blocks));
    kvt_free(mem, job->tokens, pages * plan->config.page_tokens * sizeof(*job->tokens));
    kvt_free(mem, job->extras, job->extra_count * sizeof(*job->extras));
    kvt_free(mem, job->steps, pages * sizeof(*job->steps));
    kvt_free(mem, job->waits, pages * sizeof(*job->waits));
    job->steps = NULL;
    job->waits = NULL;
    job->step_count = job->steps_ready = 0;
    job->pages = NULL;
    job->addrs = job->to_addrs = NULL;
    job->places = job->to_places = NULL;
    job->tiers = NULL;
    job->blocks = NULL;
    job->tokens = NULL;
    job->extras = NULL;
    job->array_pages = 0;
    job->block_count = 0;
    job->extra_count = 0;
}

static bool arrays_alloc(struct kvt_plan *plan, struct kvt_job *job, uint32_t pages, size_t blocks)
{
    const struct kvt_memory *mem = plan->mem;
    if (pages == 0) {
        return true;
    }
    job->array_pages = pages;
    job->block_count = blocks;
    job->pages = kvt_calloc(mem, pages, sizeof(*job->pages));
    job->addrs = kvt_calloc(mem, pages, sizeof(*job->addrs));
    job->to_addrs = kvt_calloc(mem, pages, sizeof(*job->to_addrs));
    job->places = kvt_calloc(mem, pages, sizeof(*job->places));
    job->to_places = kvt_calloc(mem, pages, sizeof(*job->to_places));
    job->tiers = kvt_calloc(mem, pages, sizeof(*job->tiers));
    job->blocks = blocks > 0 ? kvt_calloc(mem, blocks, sizeof(*job->blocks)) : NULL;
    return job->pages != NULL && job->addrs != NULL && job->to_addrs != NULL &&
           job->places != NULL && job->to_places != NULL && job->tiers != NULL &&
           (blocks == 0 || job->blocks != NULL);
}

kvt_status kvt_job_take(struct kvt_plan *plan, uint32_t pages, size_t blocks,
                        struct kvt_job **out_job)
{
    uint32_t number = plan->job_free;
    if (number == UINT32_MAX) {
        plan->stats.limit_jobs_hit++;
        return KVT_ERR_AGAIN;
    }
    struct kvt_job *job = &plan->jobs[number];
    uint32_t next_free = job->next_free;
    uint32_t generation = job->generation;
    *job = (struct kvt_job){
        .generation = generation + 1, .state = KVT_JOB_IS_STARTING, .request = KVT_REQUEST_NONE};
    job->exec.user = job;
    if (!arrays_alloc(plan, job, pages, blocks)) {
        arrays_free(plan, job);
        job->state = KVT_JOB_IS_FREE;
        job->generation = generation;
        job->next_free = next_free;
        return KVT_ERR_NOMEM;
    }
    plan->job_free = next_free;
    *out_job = job;
    return KVT_OK;
}

void kvt_job_bind(struct kvt_job *job, struct kvt_binding *binding)
{
    job->binding = binding;
    job->region_count = binding->region_count;
    binding->uses++;
}

static void job_unbind(struct kvt_job *job)
{
    if (job->binding != NULL) {
        job->binding->uses--;
        job->binding = NULL;
    }
}

void kvt_job_give(struct kvt_plan *plan, struct kvt_job *job)
{
    job_unbind(job);
    arrays_free(plan, job);
    job->state = KVT_JOB_IS_FREE;
    job->generation++;
    job->next_free = plan->job_free;
    plan->job_free = (uint32_t)(job - plan->jobs);
}

uint64_t kvt_job_handle(const struct kvt_plan *plan, const struct kvt_job *job)
{
    return ((uint64_t)job->generation << 32) | (uint32_t)(job - plan->jobs);
}

struct kvt_job *kvt_job_find(struct kvt_plan *plan, uint32_t client, uint64_t handle)
{
    uint32_t number = (uint32_t)handle;
    if (number >= plan->config.jobs_max) {
        return NULL;
    }
    struct kvt_job *job = &plan->jobs[number];
    bool good = (handle >> 32) == job->generation &&
                (job->state == KVT_JOB_IS_RUNNING || job->state == KVT_JOB_IS_DONE) &&
                job->client == client && !job->detached;
    return good ? job : NULL;
}

kvt_status kvt_job_submit(struct kvt_plan *plan, struct kvt_job *job)
{
    enum kvt_exec_kind kind = job->exec.kind;
    uint32_t generation = job->generation;
    job->sequence = ++plan->sequence;
    if (kind != KVT_EXEC_RESTORE) {
        atomic_store(&job->exec.pages_good, job->exec.page_count);
    }
    plan->running++;
    plan->saves_running += kind == KVT_EXEC_SAVE;
    plan->moves_running += kind == KVT_EXEC_MOVE;
    kvt_lock_give(&plan->lock);
    kvt_status status = kvt_exec_submit(plan->exec, &job->exec);
    kvt_lock_take(&plan->lock);
    if (status == KVT_OK) {
        /* It may have run to its end by now, and its place may be another job's. */
        if (job->generation == generation && job->state == KVT_JOB_IS_STARTING) {
            job->state = KVT_JOB_IS_RUNNING;
            kvt_restore_advance(job);
        }
    } else {
        plan->running--;
        plan->saves_running -= kind == KVT_EXEC_SAVE;
        plan->moves_running -= kind == KVT_EXEC_MOVE;
        kvt_cond_broadcast(&plan->done);
    }
    return status;
}

kvt_status kvt_job_status(const struct kvt_job *job, uint32_t good)
{
    if (job->exec.status != KVT_OK) {
        return job->exec.status;
    }
    if (good == job->exec.page_count && job->cut != KVT_OK) {
        return job->cut;
    }
    if (good == job->page_count) {
        return KVT_OK;
    }
    return atomic_load(&job->exec.cancelled) ? KVT_ERR_CANCELLED : KVT_ERR_IO;
}

void kvt_job_done(struct kvt_plan *plan, struct kvt_job *job, kvt_status status)
{
    job->result.done = true;
    job->result.status = status;
    job->state = KVT_JOB_IS_DONE;
    plan->stats.jobs_failed += status != KVT_OK;
    if (job->detached) {
        kvt_job_give(plan, job);
    } else {
        job_unbind(job);
        arrays_free(plan, job);
    }
    kvt_cond_broadcast(&plan->done);
}

/* ---- waiting ---- */

/* Waits for `done` until deadline_ns; false when that has passed. */
bool kvt_plan_wait_until(struct kvt_plan *plan, uint64_t deadline_ns)
{
    uint64_t now_ns = kvt_now_ns(&kvt_clock_monotonic);
    if (now_ns >= deadline_ns) {
        return false;
    }
    (void)kvt_cond_wait(&plan->done, &plan->lock, deadline_ns - now_ns);
    return true;
}

static uint64_t deadline_after(uint64_t timeout_ns)
{
    uint64_t now_ns = kvt_now_ns(&kvt_clock_monotonic);
    return timeout_ns > UINT64_MAX - now_ns ? UINT64_MAX : now_ns + timeout_ns;
}

kvt_status kvt_plan_poll(struct kvt_plan *plan, uint32_t client, uint64_t handle,
                         uint64_t timeout_ns, struct kvt_plan_result *out_result)
{
    uint64_t deadline_ns = timeout_ns > 0 ? deadline_after(timeout_ns) : 0;
    kvt_lock_take(&plan->lock);
    struct kvt_job *job = kvt_job_find(plan, client, handle);
    while (job != NULL && job->state == KVT_JOB_IS_RUNNING &&
           kvt_plan_wait_until(plan, deadline_ns)) {
        job = kvt_job_find(plan, client, handle);
    }
    kvt_status status = KVT_OK;
    if (job == NULL) {
        status = KVT_ERR_STALE;
    } else if (job->state == KVT_JOB_IS_RUNNING) {
        *out_result = (struct kvt_plan_result){.done = false};
    } else {
        *out_result = job->result;
        kvt_job_give(plan, job);
    }
    kvt_lock_give(&plan->lock);
    return status;
}

kvt_status kvt_plan_wait_region(struct kvt_plan *plan, uint32_t client, uint64_t handle,
                                uint32_t region, struct kvt_stream *stream)
{
    kvt_lock_take(&plan->lock);
    struct kvt_job *job = kvt_job_find(plan, client, handle);
    kvt_status status = KVT_ERR_STALE;
    if (job != NULL && job->state == KVT_JOB_IS_RUNNING) {
        /* Only enqueues. Under the lock, so that the job's events stay until then. */
        status = kvt_exec_wait_region(&job->exec, region, stream);
    } else if (job != NULL) {
        status = region < job->region_count ? KVT_OK : KVT_ERR_INVAL;
    }
    kvt_lock_give(&plan->lock);
    return status;
}

kvt_status kvt_plan_cancel(struct kvt_plan *plan, uint32_t client, uint64_t handle)
{
    kvt_lock_take(&plan->lock);
    struct kvt_job *job = kvt_job_find(plan, client, handle);
    if (job != NULL && job->state == KVT_JOB_IS_RUNNING) {
        kvt_exec_cancel(&job->exec);
    }
    kvt_lock_give(&plan->lock);
    return job != NULL ? KVT_OK : KVT_ERR_STALE;
}

static bool saves_before(const struct kvt_plan *plan, uint64_t sequence)
{
    for (uint32_t i = 0; plan->saves_running > 0 && i < plan->config.jobs_max; i++) {
        const struct kvt_job *job = &plan->jobs[i];
        if (job->state == KVT_JOB_IS_RUNNING && job->exec.kind == KVT_EXEC_SAVE &&
            job->sequence <= sequence) {
            return true;
        }
    }
    return false;
}

kvt_status kvt_plan_flush(struct kvt_plan *plan, uint64_t timeout_ns)
{
    uint64_t deadline_ns = deadline_after(timeout_ns);
    kvt_lock_take(&plan->lock);
    uint64_t sequence = plan->sequence;
    bool in_time = true;
    while (saves_before(plan, sequence) && in_time) {
        in_time = kvt_plan_wait_until(plan, deadline_ns);
    }
    kvt_status status = saves_before(plan, sequence) ? KVT_ERR_TIMEOUT : KVT_OK;
    if (status == KVT_OK && plan->nvme != NULL) {
        status = kvt_spill_flush(plan, deadline_ns);
    }
    kvt_lock_give(&plan->lock);
    return status;
}

kvt_status kvt_plan_quiesce(struct kvt_plan *plan, uint64_t timeout_ns)
{
    uint64_t deadline_ns = deadline_after(timeout_ns);
    kvt_lock_take(&plan->lock);
    plan->quiet = true;
    bool in_time = true;
    while (plan->running > 0 && in_time) {
        in_time = kvt_plan_wait_until(plan, deadline_ns);
    }
    kvt_status status = plan->running > 0 ? KVT_ERR_TIMEOUT : KVT_OK;
    kvt_lock_give(&plan->lock);
    return status;
}
