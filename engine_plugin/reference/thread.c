#include "engine_plugin/reference/thread.h"

#include <signal.h>

kvt_status kvt_ref_thread_start(pthread_t *out_thread, void *(*fn)(void *), void *arg)
{
    sigset_t all, before;
    pthread_t thread;
    sigfillset(&all);
    if (pthread_sigmask(SIG_BLOCK, &all, &before) != 0) return KVT_ERR_NOMEM;
    int failed = pthread_create(&thread, NULL, fn, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed) return KVT_ERR_NOMEM;
    *out_thread = thread;
    return KVT_OK;
}
