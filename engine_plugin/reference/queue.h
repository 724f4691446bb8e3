/*
 * A run queue with one thread of its own: what the engine uses as its compute stream when there is
 * no cache, or when the cache's streams have failed.
 */
#ifndef KVT_REFERENCE_QUEUE_H
#define KVT_REFERENCE_QUEUE_H

#include "kvt_status.h"

struct kvt_ref_queue;

/* NOMEM. */
kvt_status kvt_ref_queue_open(struct kvt_ref_queue **out_queue) KVT_MUST_CHECK;
/* Runs what was pushed, then ends. NULL is a no-op. */
void kvt_ref_queue_close(struct kvt_ref_queue *);
/* Runs fn(arg) later, in order. [any-thread] no-block. AGAIN when KVT_REF_QUEUE_MAX wait. */
kvt_status kvt_ref_queue_push(struct kvt_ref_queue *, void (*fn)(void *), void *arg) KVT_MUST_CHECK;
#define KVT_REF_QUEUE_MAX 64u

#endif
