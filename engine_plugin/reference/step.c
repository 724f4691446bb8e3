/*
 * One forward pass as tasks on a stream, and the wait for it.
 *
 * The stream is the plug-in's while there is a cache and it works, else the engine's own queue.
 * A step that cannot be enqueued whole is run again from its start: passes overwrite what they
 * wrote. A step that is stuck on the plug-in's stream is abandoned: its tasks, whenever they come
 * to run, do nothing, because running and abandoning exclude each other.
 */
#include "engine_plugin/reference/engine_internal.h"

#include <stdlib.h>

static void compute_task(struct kvt_ref_step *step, uint32_t index)
{
    if (index == 0)
        kvt_ref_pass_start(step->compute, &step->batch);
    else
        kvt_ref_pass_from_attention(step->compute, index - 1);
    if (index < KVT_REF_LAYERS)
        kvt_ref_pass_before_attention(step->compute, index);
    else if (step->want_logits)
        kvt_ref_pass_logits(step->compute);
}

static void run_task(void *arg)
{
    struct kvt_ref_task *task = arg;
    struct kvt_ref_step *step = task->step;
    pthread_mutex_lock(&step->lock);
    bool abandoned = step->abandoned;
    step->running = !abandoned;
    pthread_mutex_unlock(&step->lock);
    if (!abandoned) compute_task(step, task->index);
    pthread_mutex_lock(&step->lock);
    step->running = false;
    step->tasks_run++;
    pthread_cond_signal(&step->changed);
    pthread_mutex_unlock(&step->lock);
}

kvt_status kvt_ref_step_open(struct kvt_ref_compute *compute, struct kvt_ref_step **out_step)
{
    struct kvt_ref_step *step = calloc(1, sizeof(*step));
    if (!step) return KVT_ERR_NOMEM;
    if (!kvt_ref_cond_init(&step->changed)) {
        free(step);
        return KVT_ERR_NOMEM;
    }
    pthread_mutex_init(&step->lock, NULL);
    step->compute = compute;
    for (uint32_t i = 0; i <= KVT_REF_LAYERS; i++) step->tasks[i] = (struct kvt_ref_task){step, i};
    *out_step = step;
    return KVT_OK;
}

void kvt_ref_step_close(struct kvt_ref_step *step)
{
    if (!step) return;
    pthread_cond_destroy(&step->changed);
    pthread_mutex_destroy(&step->lock);
    free(step);
}

static bool on_plugin(const struct kvt_ref_engine *engine)
{
    return engine->cache && !engine->cache_off;
}

/* Orders the compute stream behind the two regions of a layer; where that cannot be arranged, waits
 * here for the whole restore. False: it does not end. */
static bool wait_for_layer(struct kvt_ref_engine *engine, struct kvt_ref_transfer *restoring,
                           uint32_t layer)
{
    if (!restoring || !restoring->restoring) return true;
    for (uint32_t region = 2 * layer; region < 2 * layer + 2; region++)
        if (!kvt_ref_cache_wait_region(engine->cache, restoring, region))
            return kvt_ref_cache_restore_end(engine->cache, restoring);
    return true;
}

static void reset(struct kvt_ref_step *step)
{
    pthread_mutex_lock(&step->lock);
    step->tasks_enqueued = 0;
    step->tasks_run = 0;
    pthread_mutex_unlock(&step->lock);
}

enum enqueued { ENQUEUED_ALL, ENQUEUED_PART, ENQUEUED_STUCK };

static enum enqueued enqueue(struct kvt_ref_engine *engine, struct kvt_ref_transfer *restoring)
{
    struct kvt_ref_step *step = engine->step;
    for (uint32_t i = 0; i <= KVT_REF_LAYERS; i++) {
        struct kvt_ref_task *task = &step->tasks[i];
        if (i > 0 && !wait_for_layer(engine, restoring, i - 1)) return ENQUEUED_STUCK;
        kvt_status status = on_plugin(engine) ? kvt_ref_cache_enqueue(engine->cache, run_task, task)
                                              : kvt_ref_queue_push(engine->queue, run_task, task);
        if (status != KVT_OK) {
            kvt_ref_log(&engine->log, KVT_REF_WARNING,
                        "reference engine: enqueueing answered %s; the step is run again",
                        kvt_ref_status_name(status));
            return ENQUEUED_PART;
        }
        pthread_mutex_lock(&step->lock);
        step->tasks_enqueued++;
        pthread_mutex_unlock(&step->lock);
    }
    return ENQUEUED_ALL;
}

/* Leaves a step that does not run to the stream it is on, and puts a copy of it in its place.
 * Requires: step->lock; gives it back. */
static bool abandon(struct kvt_ref_engine *engine)
{
    struct kvt_ref_step *step = engine->step, *fresh = engine->spare_step;
    step->abandoned = true;
    pthread_mutex_unlock(&step->lock);
    fresh->batch = step->batch;
    fresh->want_logits = step->want_logits;
    engine->abandoned_step = step;
    engine->step = fresh;
    engine->spare_step = NULL;
    kvt_ref_log(&engine->log, KVT_REF_ERROR,
                "reference engine: the plug-in's stream does not run; going on without the cache");
    return false;
}

/* Waits for all that was enqueued. False: abandoned. A task that computes is always waited for: it
 * ends by itself. */
static bool wait_for_step(struct kvt_ref_engine *engine, struct kvt_ref_transfer *restoring)
{
    struct kvt_ref_step *step = engine->step;
    bool cancelled = false;
    pthread_mutex_lock(&step->lock);
    uint64_t deadline = kvt_ref_now_ns() + engine->transfer_deadline_ns;
    while (step->tasks_run < step->tasks_enqueued) {
        if (kvt_ref_cond_wait_until(&step->changed, &step->lock, deadline)) continue;
        deadline = kvt_ref_now_ns() + engine->transfer_deadline_ns;
        if (step->running || !on_plugin(engine)) continue;
        if (cancelled || !restoring || !restoring->restoring) return abandon(engine);
        cancelled = true;
        pthread_mutex_unlock(&step->lock);
        kvt_ref_cache_cancel_restore(engine->cache, restoring);
        pthread_mutex_lock(&step->lock);
    }
    pthread_mutex_unlock(&step->lock);
    return true;
}

bool kvt_ref_step_run(struct kvt_ref_engine *engine, struct kvt_ref_transfer *restoring)
{
    for (int attempt = 0; attempt < KVT_REF_STEP_ATTEMPTS; attempt++) {
        reset(engine->step);
        enum enqueued enqueued = enqueue(engine, restoring);
        if (!wait_for_step(engine, restoring)) return false;
        if (enqueued == ENQUEUED_ALL) return true;
        if (enqueued == ENQUEUED_STUCK) return false;
    }
    kvt_ref_log(&engine->log, KVT_REF_ERROR,
                "reference engine: the plug-in's stream takes no work; going on without the cache");
    return false;
}
