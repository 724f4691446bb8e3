/*
 * Ranked locks and the condition that goes with them.
 *
 * KVT_DEBUG builds keep, for each thread, the locks it holds in the order of their taking, and
 * abort with both names when a lock is taken whose rank is not above those of all the locks held.
 * In release a lock is its mutex.
 */
#include "cache/base/base.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define NS_PER_S UINT64_C(1000000000)
/* Deadlines further away than this are none: no process lives so long. */
#define WAIT_S_MAX UINT64_C(1000000000)

#ifdef KVT_DEBUG

/* More than there are ranks, which is as many as a thread can hold. */
#define HELD_LOCKS_MAX 16

static _Thread_local const struct kvt_lock *held[HELD_LOCKS_MAX];
static _Thread_local unsigned held_count;

static void held_check(const struct kvt_lock *lock)
{
    for (unsigned i = 0; i < held_count; i++) {
        if (held[i]->rank >= lock->rank) {
            (void)fprintf(stderr,
                          "kvtier: lock order: '%s' (rank %d) taken while '%s' (rank %d) is held\n",
                          lock->name, lock->rank, held[i]->name, held[i]->rank);
            (void)fflush(stderr);
            abort();
        }
    }
}

static void held_add(const struct kvt_lock *lock)
{
    KVT_ASSERT(held_count < HELD_LOCKS_MAX);
    held[held_count++] = lock;
}

static void held_remove(const struct kvt_lock *lock)
{
    unsigned i = 0;
    while (i < held_count && held[i] != lock) {
        i++;
    }
    if (i == held_count) {
        (void)fprintf(stderr, "kvtier: lock '%s' given by a thread that does not hold it\n",
                      lock->name);
        (void)fflush(stderr);
        abort();
    }
    held_count--;
    for (; i < held_count; i++) {
        held[i] = held[i + 1];
    }
}

bool kvt_lock_held(const struct kvt_lock *lock)
{
    for (unsigned i = 0; i < held_count; i++) {
        if (held[i] == lock) {
            return true;
        }
    }
    return false;
}

#else

static void held_check(const struct kvt_lock *lock) { (void)lock; }
static void held_add(const struct kvt_lock *lock) { (void)lock; }
static void held_remove(const struct kvt_lock *lock) { (void)lock; }

bool kvt_lock_held(const struct kvt_lock *lock)
{
    (void)lock;
    return true;
}

#endif

void kvt_lock_init(struct kvt_lock *lock, enum kvt_lock_rank rank, const char *name)
{
    int rc = pthread_mutex_init(&lock->mutex, NULL);
    KVT_ASSERT(rc == 0);
    lock->name = name;
    lock->rank = (int)rank;
}

void kvt_lock_fini(struct kvt_lock *lock)
{
    int rc = pthread_mutex_destroy(&lock->mutex);
    KVT_ASSERT(rc == 0);
}

void kvt_lock_take(struct kvt_lock *lock)
{
    /* Before the mutex is asked for: a reversal is told even when it would not block today. */
    held_check(lock);
    int rc = pthread_mutex_lock(&lock->mutex);
    KVT_ASSERT(rc == 0);
    held_add(lock);
}

void kvt_lock_give(struct kvt_lock *lock)
{
    held_remove(lock);
    int rc = pthread_mutex_unlock(&lock->mutex);
    KVT_ASSERT(rc == 0);
}

void kvt_cond_init(struct kvt_cond *cond)
{
    pthread_condattr_t attr;
    int rc = pthread_condattr_init(&attr);
    KVT_ASSERT(rc == 0);
    /* A deadline must not move when somebody sets the wall clock. */
    rc = pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    KVT_ASSERT(rc == 0);
    rc = pthread_cond_init(&cond->cond, &attr);
    KVT_ASSERT(rc == 0);
    rc = pthread_condattr_destroy(&attr);
    KVT_ASSERT(rc == 0);
}

void kvt_cond_fini(struct kvt_cond *cond)
{
    int rc = pthread_cond_destroy(&cond->cond);
    KVT_ASSERT(rc == 0);
}

void kvt_cond_broadcast(struct kvt_cond *cond)
{
    int rc = pthread_cond_broadcast(&cond->cond);
    KVT_ASSERT(rc == 0);
}

bool kvt_cond_wait(struct kvt_cond *cond, struct kvt_lock *lock, uint64_t timeout_ns)
{
    int rc;
    held_remove(lock);
    if (timeout_ns / NS_PER_S >= WAIT_S_MAX) {
        rc = pthread_cond_wait(&cond->cond, &lock->mutex);
    } else {
        uint64_t deadline_ns = kvt_now_ns(&kvt_clock_monotonic) + timeout_ns;
        struct timespec deadline;
        deadline.tv_sec = (time_t)(deadline_ns / NS_PER_S);
        deadline.tv_nsec = (long)(deadline_ns % NS_PER_S);
        rc = pthread_cond_timedwait(&cond->cond, &lock->mutex, &deadline);
    }
    held_check(lock);
    held_add(lock);
    KVT_ASSERT(rc == 0 || rc == ETIMEDOUT);
    return rc == 0;
}
