/*
 * The reference engine from inside: engine.c opens and closes it, scheduler.c decides what runs,
 * step.c runs one forward pass on the compute stream, cache_client.c speaks to the plug-in.
 *
 * A request's way:
 *
 *   submitted -> LOOKUP -> PREFILL -> DECODE -> SAVING -> handed out
 *                  |          ^  |                ^
 *                  +- again   +--+ next chunk,    +-- at once when one token was asked for
 *                     (ask at      or again from where the restore was good
 *                     the next
 *                     step)
 *
 * Locks: engine->lock alone, for the queues between callers and the scheduler. Sequences and blocks
 * belong to the scheduler's thread.
 */
#ifndef KVT_REFERENCE_ENGINE_INTERNAL_H
#define KVT_REFERENCE_ENGINE_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "engine_plugin/reference/cache_client.h"
#include "engine_plugin/reference/engine.h"
#include "engine_plugin/reference/log.h"
#include "engine_plugin/reference/model.h"
#include "engine_plugin/reference/queue.h"

#define KVT_REF_PAGE_TOKENS_DEFAULT 16u
#define KVT_REF_BLOCK_TOKENS_DEFAULT 16u
#define KVT_REF_THREADS_DEFAULT_MAX 8u
#define KVT_REF_BUILD_BYTES_MAX 448u
#define KVT_REF_PASSED_OVER_MAX 64u /* steps that shorter prompts get before the oldest one */
#define KVT_REF_DECODE_EVERY 4u     /* while a prompt waits, tokens are decoded in every 4th step */
#define KVT_REF_PREFILL_WINDOW 16384u /* tokens: older ones count for half, and so on */
#define KVT_REF_STEP_ATTEMPTS 3       /* on the plug-in's stream, before the engine leaves it */

enum kvt_ref_phase { KVT_REF_LOOKUP, KVT_REF_PREFILL, KVT_REF_DECODE, KVT_REF_SAVING };

struct kvt_ref_sequence {
    struct kvt_ref_sequence *next; /* in the list that holds it */
    enum kvt_ref_phase phase;
    uint32_t *tokens; /* [token_count]: the prompt, then what was generated */
    uint32_t token_count;
    uint32_t *blocks; /* [block_count] for the prompt and all output; NULL until admitted */
    uint32_t block_count;
    uint32_t computed; /* tokens from the start whose KV is in the blocks */
    bool blocks_lost;  /* a save that does not end reads them: never used again */
    struct kvt_ref_transfer transfer;
    struct kvt_ref_result result;
};

struct kvt_ref_list {
    struct kvt_ref_sequence *first, *last;
};

/* One forward pass on a stream: a task for each layer, and one more for the start. */
struct kvt_ref_step {
    pthread_mutex_t lock; /* protects the next six */
    pthread_cond_t changed;
    uint32_t tasks_enqueued, tasks_run;
    bool running;   /* a task computes now */
    bool abandoned; /* tasks that have not begun do nothing */
    struct kvt_ref_compute *compute;
    struct kvt_ref_batch batch;
    bool want_logits;
    struct kvt_ref_task {
        struct kvt_ref_step *step;
        uint32_t index; /* 0: start; i: from the attention of layer i - 1 on */
    } tasks[KVT_REF_LAYERS + 1];
};

struct kvt_ref_engine {
    struct kvt_ref_config config; /* its strings are not kept */
    struct kvt_ref_log log;
    uint64_t transfer_deadline_ns;
    struct kvt_ref_blas blas;
    struct kvt_ref_model model;
    struct kvt_ref_kv kv;
    struct kvt_ref_compute compute;
    struct kvt_ref_queue *queue;
    struct kvt_ref_cache *cache; /* NULL: none was asked for */
    bool cache_off;              /* it failed: no more lookups, restores, saves, streams */
    bool aligned_rows;
    struct kvt_ref_step *step, *spare_step;
    struct kvt_ref_step *abandoned_step; /* on the plug-in's stream for as long as that lives */
    float *logits;                       /* [VOCABULARY]: a row of them, in order */

    /* scheduler thread only */
    struct kvt_ref_sequence *active[KVT_REF_CONCURRENCY_MAX]; /* in order of arrival */
    uint32_t active_count;
    struct kvt_ref_list saving;
    uint32_t decode_waited; /* steps since those that decode got rows, while a prompt did */
    uint32_t passed_over;   /* steps since the oldest prompt got one, while others did */
    uint32_t decode_turn;   /* where the next decode batch starts among the active ones */
    uint64_t next_transfer_id;
    uint64_t prefill_tokens, prefill_ns; /* of late: whole chunks, and what they took */
    uint64_t prefill_told;               /* tokens a second, as the cache knows it */

    pthread_mutex_t lock;
    pthread_cond_t arrived, finished;
    struct kvt_ref_list incoming; /* guarded by lock */
    struct kvt_ref_list results;  /* guarded by lock: handed out, not yet fetched */
    bool closing;                 /* guarded by lock */

    pthread_t scheduler;
    bool scheduler_started;
};

/* ---- engine.c ---- */

void kvt_ref_sequence_free(struct kvt_ref_sequence *);
void kvt_ref_list_append(struct kvt_ref_list *, struct kvt_ref_sequence *);
struct kvt_ref_sequence *kvt_ref_list_take(struct kvt_ref_list *);
/* Waits on cond until the clock passes; cond uses CLOCK_MONOTONIC. False when it passed. */
bool kvt_ref_cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t deadline_ns);
/* A condition on CLOCK_MONOTONIC. */
bool kvt_ref_cond_init(pthread_cond_t *cond);

/* ---- step.c ---- */

kvt_status kvt_ref_step_open(struct kvt_ref_compute *, struct kvt_ref_step **out_step)
    KVT_MUST_CHECK;
void kvt_ref_step_close(struct kvt_ref_step *);
/*
 * Run engine->step->batch and wait for it. With `restoring`, each layer's attention waits for its
 * regions of that restore. False when the plug-in's stream is stuck: nothing of the step runs any
 * more, engine->step is a new one with the same batch, and the caller must turn the cache off.
 */
bool kvt_ref_step_run(struct kvt_ref_engine *, struct kvt_ref_transfer *restoring) KVT_MUST_CHECK;

/* ---- scheduler.c ---- */

void *kvt_ref_scheduler_main(void *engine);

#endif
