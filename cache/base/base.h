/*
 * The leaves everything stands on: assertions, ranked locks, memory, log, clock.
 *
 * Layer 0: includes nothing of ours but kvt_status.h.
 */
#ifndef KVT_BASE_H
#define KVT_BASE_H

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cache/kvt_status.h"

/* ---- status ---- */

/* The name ("KVT_ERR_AGAIN") and the sentence of a status; never NULL, also for unknown values. */
const char *kvt_status_name(kvt_status status);
const char *kvt_status_text(kvt_status status);

/* ---- assertions ----
 * KVT_ASSERT stays in release: our own cheap invariants only, never what an engine, a disk, a
 * device or a system call gave us. KVT_DASSERT is for whole-structure walks (KVT_DEBUG builds). */

#define KVT_ASSERT(cond) ((cond) ? (void)0 : kvt_assert_failed(#cond, __FILE__, __LINE__, __func__))
#ifdef KVT_DEBUG
#define KVT_DASSERT(cond) KVT_ASSERT(cond)
#else
#define KVT_DASSERT(cond) ((void)sizeof(cond))
#endif
_Noreturn void kvt_assert_failed(const char *cond, const char *file, int line, const char *func);

/* ---- memory ----
 * Every allocation of the core goes through one of these, so that a host can bring its own, tests
 * can make the k-th fail, and the index's bytes can be counted. */

struct kvt_memory {
    void *ctx;
    /* `bytes` > 0; returns NULL when there is none. Aligned for any type. [any-thread] */
    void *(*alloc)(void *ctx, size_t bytes);
    /* `old_bytes` is what was asked for before; contents up to the smaller size are kept. On NULL
     * the old block stays valid. [any-thread] */
    void *(*resize)(void *ctx, void *ptr, size_t old_bytes, size_t new_bytes);
    /* `bytes` as asked for; ptr may be NULL. [any-thread] */
    void (*free)(void *ctx, void *ptr, size_t bytes);
};

/* libc's. Immutable. */
extern const struct kvt_memory kvt_memory_libc;

/* Thin, checked wrappers: overflow of count * bytes answers NULL; zeroed memory from kvt_calloc. */
void *kvt_alloc(const struct kvt_memory *mem, size_t bytes);
void *kvt_calloc(const struct kvt_memory *mem, size_t count, size_t bytes);
void *kvt_resize(const struct kvt_memory *mem, void *ptr, size_t old_bytes, size_t new_bytes);
void kvt_free(const struct kvt_memory *mem, void *ptr, size_t bytes);

/* What the machine has and what is left, within the cgroups (v2, v1) of this process. UINT64_MAX
 * where it cannot be read. */
struct kvt_system_memory {
    uint64_t total_bytes, available_bytes;
};
/* root: "" for this system's /proc and /sys; tests give a folder of their own. May block. */
void kvt_system_memory_read(const char *root, struct kvt_system_memory *out_memory);

/* ---- log ---- */

enum kvt_log_level { KVT_LOG_ERROR = 1, KVT_LOG_WARNING = 2, KVT_LOG_INFO = 3, KVT_LOG_DEBUG = 4 };

/* One line a fact, no newline at its end. [any-thread], called with no lock held. */
typedef void (*kvt_log_fn)(void *ctx, int32_t level, const char *line);

struct kvt_log {
    kvt_log_fn fn; /* NULL: silent */
    void *ctx;
};

#define KVT_LOG_LINE_BYTES_MAX 512
void kvt_log(const struct kvt_log *log, int32_t level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* ---- clock ---- */

struct kvt_clock {
    void *ctx;
    uint64_t (*now_ns)(void *ctx); /* monotonic; [any-thread] */
};
extern const struct kvt_clock kvt_clock_monotonic;
static inline uint64_t kvt_now_ns(const struct kvt_clock *clock)
{
    return clock->now_ns(clock->ctx);
}

/* ---- locks ----
 * Taken in rising rank only; KVT_DEBUG builds keep the held locks of each thread and abort on a
 * reversal with both names. No lock is held across a device call that may block, an I/O wait, or a
 * callback. The enum is the lock documentation. */

enum kvt_lock_rank {
    KVT_RANK_PLUGIN = 10, /* engine_plugin: table of open engines */
    KVT_RANK_CACHE = 20,  /* move/plan: index, tiers' slot tables, leases, requests, statistics */
    KVT_RANK_NVME = 25,   /* tier/nvme: slots, states, batches */
    KVT_RANK_EXEC = 30,   /* move/exec: list of finished jobs, jobs in flight */
    KVT_RANK_STREAM = 40, /* device: one stream's queue */
    KVT_RANK_EVENT = 50,  /* device: events */
    KVT_RANK_LEAF = 100
};

struct kvt_lock {
    pthread_mutex_t mutex;
    const char *name;
    int rank;
};

/* Never fails on Linux for plain mutexes; asserts if it does. `name` is borrowed for ever. */
void kvt_lock_init(struct kvt_lock *lock, enum kvt_lock_rank rank, const char *name);
void kvt_lock_fini(struct kvt_lock *lock);
void kvt_lock_take(struct kvt_lock *lock);
void kvt_lock_give(struct kvt_lock *lock);
/* True when this thread holds it; always true where KVT_DEBUG is off (use in KVT_DASSERT only). */
bool kvt_lock_held(const struct kvt_lock *lock);

struct kvt_cond {
    pthread_cond_t cond;
};
void kvt_cond_init(struct kvt_cond *cond);
void kvt_cond_fini(struct kvt_cond *cond);
void kvt_cond_broadcast(struct kvt_cond *cond);
/* Waits at most timeout_ns (UINT64_MAX: no deadline, for worker threads' idle waits only). False
 * when the time passed. Requires: lock. Drops and retakes it. */
bool kvt_cond_wait(struct kvt_cond *cond, struct kvt_lock *lock, uint64_t timeout_ns);

/* ---- threads ----
 * Through a hook so that tests can make the k-th start fail. All signals are blocked in them. */

struct kvt_thread {
    pthread_t id;
};
kvt_status kvt_thread_start(struct kvt_thread *thread, const char *name, void *(*fn)(void *),
                            void *arg) KVT_MUST_CHECK;
void kvt_thread_join(struct kvt_thread *thread);
/* NULL restores pthread_create. Not for use while threads are being started. Tests only. */
extern int (*kvt_thread_create_hook)(pthread_t *, const pthread_attr_t *, void *(*)(void *),
                                     void *);

#endif
