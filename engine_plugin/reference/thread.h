/*
 * Starting a thread of the reference engine.
 */
#ifndef KVT_REFERENCE_THREAD_H
#define KVT_REFERENCE_THREAD_H

#include <pthread.h>

#include "kvt_status.h"

/* All signals are blocked in it: they are the program's to handle. NOMEM. */
kvt_status kvt_ref_thread_start(pthread_t *out_thread, void *(*fn)(void *), void *arg)
    KVT_MUST_CHECK;

#endif
