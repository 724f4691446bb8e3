#include "engine_plugin/reference/pool.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#include "engine_plugin/reference/geometry.h"
#include "engine_plugin/reference/thread.h"

#define KVT_SPIN_ROUNDS 2000

/*
 * The ticket says which piece of work is open and which unit is next: (piece << 32) | unit. A
 * worker reads the ticket, then the piece's fields, then takes the unit with a compare-and-swap of
 * the whole ticket. run() closes the ticket (its unit becomes KVT_CLOSED) before it replaces the
 * fields and opens it again after, so a swap that succeeds saw the fields of its own piece.
 */
#define KVT_CLOSED UINT32_MAX

struct kvt_ref_pool {
    _Atomic uint64_t ticket;
    /* Fields of the open piece: written by run() only, while the ticket is closed. */
    _Atomic(kvt_ref_unit_fn *) fn;
    _Atomic(void *) ctx;
    _Atomic uint32_t unit_count;
    _Atomic uint32_t units_left; /* not done yet */

    pthread_mutex_t lock;
    pthread_cond_t work;       /* a new piece, or closing */
    pthread_cond_t finished;   /* units_left became 0 */
    _Atomic uint32_t sleepers; /* workers in, or about to enter, a wait for work; under lock */
    _Atomic bool caller_sleeps;
    _Atomic bool closing;

    uint32_t threads;
    struct worker {
        struct kvt_ref_pool *pool;
        uint32_t index;
        pthread_t thread;
    } workers[KVT_REF_THREADS_MAX];
};

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#else
    atomic_signal_fence(memory_order_seq_cst);
#endif
}

static void unit_done(struct kvt_ref_pool *pool)
{
    if (atomic_fetch_sub(&pool->units_left, 1) != 1) return;
    if (!atomic_load(&pool->caller_sleeps)) return;
    pthread_mutex_lock(&pool->lock);
    pthread_cond_signal(&pool->finished);
    pthread_mutex_unlock(&pool->lock);
}

/* Takes and runs units until none is left of the open piece; true when it ran any. */
static bool work(struct kvt_ref_pool *pool, uint32_t worker)
{
    bool any = false;
    uint64_t ticket = atomic_load(&pool->ticket);
    for (;;) {
        kvt_ref_unit_fn *fn = atomic_load(&pool->fn);
        void *ctx = atomic_load(&pool->ctx);
        uint32_t count = atomic_load(&pool->unit_count);
        uint32_t unit = (uint32_t)ticket;
        if (unit >= count) {
            /* Nothing left of this piece; a newer one may have been opened since. */
            uint64_t now = atomic_load(&pool->ticket);
            if (now == ticket) return any;
            ticket = now;
            continue;
        }
        if (!atomic_compare_exchange_weak(&pool->ticket, &ticket, ticket + 1)) continue;
        fn(ctx, unit, worker);
        unit_done(pool);
        any = true;
        ticket = atomic_load(&pool->ticket);
    }
}

static uint32_t open_piece(struct kvt_ref_pool *pool)
{
    return (uint32_t)(atomic_load(&pool->ticket) >> 32);
}

static void wait_for_work(struct kvt_ref_pool *pool, uint32_t seen)
{
    for (int i = 0; i < KVT_SPIN_ROUNDS; i++) {
        if (open_piece(pool) != seen || atomic_load(&pool->closing)) return;
        relax();
    }
    pthread_mutex_lock(&pool->lock);
    atomic_fetch_add(&pool->sleepers, 1);
    while (open_piece(pool) == seen && !atomic_load(&pool->closing))
        pthread_cond_wait(&pool->work, &pool->lock);
    atomic_fetch_sub(&pool->sleepers, 1);
    pthread_mutex_unlock(&pool->lock);
}

static void *worker_main(void *arg)
{
    struct worker *worker = arg;
    struct kvt_ref_pool *pool = worker->pool;
    while (!atomic_load(&pool->closing)) {
        uint32_t seen = open_piece(pool);
        if (!work(pool, worker->index)) wait_for_work(pool, seen);
    }
    return NULL;
}

void kvt_ref_pool_run(struct kvt_ref_pool *pool, kvt_ref_unit_fn *fn, void *ctx,
                      uint32_t unit_count)
{
    if (unit_count == 0) return;
    uint32_t piece = open_piece(pool);
    atomic_store(&pool->ticket, ((uint64_t)piece << 32) | KVT_CLOSED);
    piece++;
    atomic_store(&pool->fn, fn);
    atomic_store(&pool->ctx, ctx);
    atomic_store(&pool->unit_count, unit_count);
    atomic_store(&pool->units_left, unit_count);
    atomic_store(&pool->ticket, (uint64_t)piece << 32);
    /* A worker counts itself as a sleeper and then looks at the ticket; here it is the other way
     * round. So either it sees the ticket, or it is seen. */
    if (atomic_load(&pool->sleepers) > 0) {
        pthread_mutex_lock(&pool->lock);
        pthread_cond_broadcast(&pool->work);
        pthread_mutex_unlock(&pool->lock);
    }
    work(pool, 0);
    for (int i = 0; i < KVT_SPIN_ROUNDS; i++) {
        if (atomic_load(&pool->units_left) == 0) return;
        relax();
    }
    pthread_mutex_lock(&pool->lock);
    atomic_store(&pool->caller_sleeps, true);
    while (atomic_load(&pool->units_left) != 0) pthread_cond_wait(&pool->finished, &pool->lock);
    atomic_store(&pool->caller_sleeps, false);
    pthread_mutex_unlock(&pool->lock);
}

kvt_status kvt_ref_pool_open(uint32_t threads, struct kvt_ref_pool **out_pool)
{
    if (threads == 0 || threads > KVT_REF_THREADS_MAX) return KVT_ERR_INVAL;
    struct kvt_ref_pool *pool = calloc(1, sizeof(*pool));
    if (!pool) return KVT_ERR_NOMEM;
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->work, NULL);
    pthread_cond_init(&pool->finished, NULL);
    for (pool->threads = 1; pool->threads < threads; pool->threads++) {
        struct worker *worker = &pool->workers[pool->threads];
        worker->pool = pool;
        worker->index = pool->threads;
        if (kvt_ref_thread_start(&worker->thread, worker_main, worker) != KVT_OK) {
            kvt_ref_pool_close(pool);
            return KVT_ERR_NOMEM;
        }
    }
    *out_pool = pool;
    return KVT_OK;
}

void kvt_ref_pool_close(struct kvt_ref_pool *pool)
{
    if (!pool) return;
    pthread_mutex_lock(&pool->lock);
    atomic_store(&pool->closing, true);
    pthread_cond_broadcast(&pool->work);
    pthread_mutex_unlock(&pool->lock);
    for (uint32_t i = 1; i < pool->threads; i++) pthread_join(pool->workers[i].thread, NULL);
    pthread_cond_destroy(&pool->finished);
    pthread_cond_destroy(&pool->work);
    pthread_mutex_destroy(&pool->lock);
    free(pool);
}

uint32_t kvt_ref_pool_threads(const struct kvt_ref_pool *pool) { return pool->threads; }
