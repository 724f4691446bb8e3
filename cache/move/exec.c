#include "cache/move/exec.h"

#include <string.h>

/* How often the completion call is tried before the mover waits for the whole stream instead. */
#define SIGNAL_TRIES 3
/* One round of that wait; rounds are repeated, because a job must come out. */
#define UNSIGNALLED_WAIT_NS UINT64_C(1000000000)

struct kvt_exec {
    const struct kvt_memory *mem;
    const struct kvt_log *log;
    struct kvt_device *device;
    struct kvt_stream *move_stream;
    struct kvt_lock lock; /* protects: finished, woken */
    struct kvt_cond some;
    struct kvt_exec_job *finished_head, *finished_tail;
    bool woken;
};

kvt_status kvt_exec_open(const struct kvt_memory *mem, const struct kvt_log *log,
                         struct kvt_device *device, struct kvt_exec **out_exec)
{
    struct kvt_exec *exec = kvt_calloc(mem, 1, sizeof(*exec));
    if (exec == NULL) {
        return KVT_ERR_NOMEM;
    }
    exec->mem = mem;
    exec->log = log;
    exec->device = device;
    kvt_status status = device->ops->stream_create(device, &exec->move_stream);
    if (status != KVT_OK) {
        kvt_free(mem, exec, sizeof(*exec));
        return status;
    }
    kvt_lock_init(&exec->lock, KVT_RANK_EXEC, "exec");
    kvt_cond_init(&exec->some);
    *out_exec = exec;
    return KVT_OK;
}

void kvt_exec_close(struct kvt_exec *exec)
{
    if (exec == NULL) {
        return;
    }
    KVT_ASSERT(exec->finished_head == NULL);
    exec->device->ops->stream_destroy(exec->move_stream);
    kvt_cond_fini(&exec->some);
    kvt_lock_fini(&exec->lock);
    kvt_free(exec->mem, exec, sizeof(*exec));
}

/* ---- bindings ---- */

kvt_status kvt_exec_bind(struct kvt_exec *exec, const struct kvt_exec_region *regions,
                         uint32_t region_count, uint32_t block_tokens, uint32_t blocks_per_page,
                         uint64_t block_count, struct kvt_binding **out_binding)
{
    const struct kvt_device_ops *ops = exec->device->ops;
    struct kvt_binding *binding = kvt_calloc(exec->mem, 1, sizeof(*binding));
    if (binding == NULL) {
        return KVT_ERR_NOMEM;
    }
    kvt_status status = KVT_ERR_NOMEM;
    binding->exec = exec;
    binding->regions = kvt_calloc(exec->mem, region_count, sizeof(*regions));
    if (binding->regions == NULL) {
        goto undo_binding;
    }
    memcpy(binding->regions, regions, region_count * sizeof(*regions));
    binding->region_count = region_count;
    binding->block_tokens = block_tokens;
    binding->blocks_per_page = blocks_per_page;
    binding->block_count = block_count;
    for (uint32_t i = 0; i < region_count; i++) {
        binding->shard_bytes += regions[i].block_bytes * blocks_per_page;
    }
    status = ops->stream_create(exec->device, &binding->restore_stream);
    if (status != KVT_OK) {
        goto undo_regions;
    }
    status = ops->stream_create(exec->device, &binding->save_stream);
    if (status != KVT_OK) {
        goto undo_restore_stream;
    }
    status = ops->stream_create(exec->device, &binding->gated_stream);
    if (status != KVT_OK) {
        goto undo_save_stream;
    }
    *out_binding = binding;
    return KVT_OK;

undo_save_stream:
    ops->stream_destroy(binding->save_stream);
undo_restore_stream:
    ops->stream_destroy(binding->restore_stream);
undo_regions:
    kvt_free(exec->mem, binding->regions, region_count * sizeof(*regions));
undo_binding:
    kvt_free(exec->mem, binding, sizeof(*binding));
    return status;
}

void kvt_exec_unbind(struct kvt_binding *binding)
{
    if (binding == NULL) {
        return;
    }
    struct kvt_exec *exec = binding->exec;
    exec->device->ops->stream_destroy(binding->restore_stream);
    exec->device->ops->stream_destroy(binding->save_stream);
    exec->device->ops->stream_destroy(binding->gated_stream);
    kvt_free(exec->mem, binding->regions, binding->region_count * sizeof(*binding->regions));
    kvt_free(exec->mem, binding, sizeof(*binding));
}

/* ---- jobs ---- */

static bool is_move(const struct kvt_exec_job *job)
{
    return job->kind == KVT_EXEC_MOVE || job->kind == KVT_EXEC_STAGE;
}

static uint32_t event_count(const struct kvt_exec_job *job)
{
    return is_move(job) ? 0 : job->binding->region_count;
}

void kvt_exec_job_fini(struct kvt_exec_job *job)
{
    const struct kvt_device_ops *ops = job->exec->device->ops;
    for (uint32_t i = 0; job->events != NULL && i < event_count(job); i++) {
        if (job->events[i] != NULL) {
            ops->event_destroy(job->events[i]);
        }
    }
    if (job->start != NULL) {
        ops->event_destroy(job->start);
    }
    if (job->gate != NULL) {
        ops->gate_destroy(job->gate);
    }
    kvt_free(job->exec->mem, job->events, event_count(job) * sizeof(struct kvt_event *));
    job->events = NULL;
    job->start = NULL;
    job->gate = NULL;
}

/* Everything a job needs before its first copy is enqueued: nothing has happened if this fails. */
static kvt_status job_prepare(struct kvt_exec *exec, struct kvt_exec_job *job)
{
    const struct kvt_device_ops *ops = exec->device->ops;
    job->exec = exec;
    job->status = KVT_OK;
    job->events = NULL;
    job->start = NULL;
    job->gate = NULL;
    job->unsignalled = false;
    if (is_move(job)) {
        job->stream = exec->move_stream;
        return KVT_OK;
    }
    job->stream = job->kind == KVT_EXEC_SAVE ? job->binding->save_stream
                  : job->step_count > 0      ? job->binding->gated_stream
                                             : job->binding->restore_stream;
    job->events = kvt_calloc(exec->mem, event_count(job), sizeof(*job->events));
    kvt_status status = job->events != NULL ? KVT_OK : KVT_ERR_NOMEM;
    for (uint32_t i = 0; status == KVT_OK && i < event_count(job); i++) {
        status = ops->event_create(exec->device, &job->events[i]);
    }
    if (status == KVT_OK) {
        status = ops->event_create(exec->device, &job->start);
    }
    if (status == KVT_OK && job->step_count > 0) {
        status = ops->gate_create(exec->device, &job->gate);
    }
    if (status == KVT_OK) {
        status = ops->record(job->start, job->after);
    }
    if (status == KVT_OK) {
        status = ops->wait(job->stream, job->start);
    }
    if (status != KVT_OK) {
        kvt_exec_job_fini(job);
    }
    return status;
}

/* Copy all regions of pages first .. first + count - 1. Events are recorded with the last pages. */
static kvt_status enqueue_pages(struct kvt_exec *exec, struct kvt_exec_job *job, uint32_t first,
                                uint32_t count)
{
    const struct kvt_binding *binding = job->binding;
    struct kvt_page_copy copy = {
        .direction = job->kind == KVT_EXEC_RESTORE ? KVT_COPY_TO_ENGINE : KVT_COPY_FROM_ENGINE,
        .first_ordinal = first,
        .page_count = count,
        .blocks_per_page = binding->blocks_per_page,
        .pages = job->pages + first,
        .blocks = job->blocks + (size_t)first * binding->blocks_per_page,
        .pages_good = &job->pages_good,
        .cancelled = &job->cancelled,
    };
    bool last = first + count == job->page_count;
    for (uint32_t i = 0; i < binding->region_count; i++) {
        const struct kvt_exec_region *region = &binding->regions[i];
        copy.region_base = region->base;
        copy.block_bytes = region->block_bytes;
        copy.block_stride_bytes = region->stride_bytes;
        kvt_status status = exec->device->ops->copy_pages(job->stream, &copy);
        if (status == KVT_OK && last) {
            status = exec->device->ops->record(job->events[i], job->stream);
        }
        if (status != KVT_OK) {
            return status;
        }
        copy.page_offset_bytes += region->block_bytes * binding->blocks_per_page;
    }
    return KVT_OK;
}

static kvt_status enqueue_regions(struct kvt_exec *exec, struct kvt_exec_job *job)
{
    if (job->step_count == 0) {
        return enqueue_pages(exec, job, 0, job->page_count);
    }
    kvt_status status = KVT_OK;
    uint32_t first = 0;
    for (uint32_t i = 0; status == KVT_OK && i < job->step_count; i++) {
        if (job->steps[i].gated) {
            status = exec->device->ops->gate_wait(job->stream, job->gate, i + 1);
        }
        if (status == KVT_OK) {
            status = enqueue_pages(exec, job, first, job->steps[i].page_count);
        }
        first += job->steps[i].page_count;
    }
    return status;
}

static kvt_status enqueue_move(struct kvt_exec *exec, struct kvt_exec_job *job)
{
    struct kvt_flat_copy copy = {
        .count = job->page_count,
        .from = job->pages,
        .to = job->to,
        .bytes = job->move_bytes,
        .pages_good = &job->pages_good,
        .cancelled = &job->cancelled,
    };
    return exec->device->ops->copy_flat(job->stream, &copy);
}

static void finish(struct kvt_exec_job *job)
{
    struct kvt_exec *exec = job->exec;
    kvt_lock_take(&exec->lock);
    job->next = NULL;
    if (exec->finished_tail != NULL) {
        exec->finished_tail->next = job;
    } else {
        exec->finished_head = job;
    }
    exec->finished_tail = job;
    kvt_cond_broadcast(&exec->some);
    kvt_lock_give(&exec->lock);
}

static void on_ran(void *arg) { finish(arg); }

kvt_status kvt_exec_submit(struct kvt_exec *exec, struct kvt_exec_job *job)
{
    kvt_status status = job_prepare(exec, job);
    if (status != KVT_OK) {
        return status;
    }
    status = is_move(job) ? enqueue_move(exec, job) : enqueue_regions(exec, job);
    if (status != KVT_OK) {
        /* Some copies may be under way: the job must still come out, with nothing good in it. */
        job->status = status;
        kvt_exec_cancel(job);
        atomic_store(&job->pages_good, 0);
    }
    for (int i = 0; i < SIGNAL_TRIES; i++) {
        if (exec->device->ops->call(job->stream, on_ran, job) == KVT_OK) {
            return KVT_OK;
        }
    }
    job->unsignalled = true;
    finish(job);
    return KVT_OK;
}

kvt_status kvt_exec_wait_region(struct kvt_exec_job *job, uint32_t region,
                                struct kvt_stream *stream)
{
    if (is_move(job) || region >= job->binding->region_count) {
        return KVT_ERR_INVAL;
    }
    return job->exec->device->ops->wait(stream, job->events[region]);
}

void kvt_exec_open_gate(struct kvt_exec_job *job, uint32_t value)
{
    job->exec->device->ops->gate_raise(job->gate, value);
}

void kvt_exec_fail_from(struct kvt_exec_job *job, uint32_t page)
{
    uint32_t now = atomic_load(&job->pages_good);
    while (now > page && !atomic_compare_exchange_weak(&job->pages_good, &now, page)) {
    }
}

void kvt_exec_cancel(struct kvt_exec_job *job) { atomic_store(&job->cancelled, true); }

struct kvt_exec_job *kvt_exec_next(struct kvt_exec *exec, uint64_t timeout_ns)
{
    kvt_lock_take(&exec->lock);
    bool in_time = true;
    while (exec->finished_head == NULL && !exec->woken && in_time) {
        in_time = kvt_cond_wait(&exec->some, &exec->lock, timeout_ns);
    }
    struct kvt_exec_job *job = exec->finished_head;
    exec->woken = false;
    if (job != NULL) {
        exec->finished_head = job->next;
        if (exec->finished_head == NULL) {
            exec->finished_tail = NULL;
        }
    }
    kvt_lock_give(&exec->lock);
    if (job != NULL && job->unsignalled) {
        /* Rare: no memory for the completion call. Its memory may only be touched again when
         * nothing on its stream can still land. */
        while (exec->device->ops->sync(job->stream, UNSIGNALLED_WAIT_NS) == KVT_ERR_TIMEOUT) {
            kvt_log(exec->log, KVT_LOG_WARNING, "a copy stream has not drained for a second");
        }
    }
    return job;
}

void kvt_exec_wake(struct kvt_exec *exec)
{
    kvt_lock_take(&exec->lock);
    exec->woken = true;
    kvt_cond_broadcast(&exec->some);
    kvt_lock_give(&exec->lock);
}
