/*
 * Threads of our own. They run inside somebody else's process, so that process's signals are not
 * theirs to take; only what a thread's own fault raises stays open, for crash reports need it.
 */
#include "cache/base/base.h"

#include <signal.h>

int (*kvt_thread_create_hook)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

/* Linux keeps 15 bytes and the terminating zero. */
#define THREAD_NAME_BYTES_MAX 16

static void thread_set_name(pthread_t id, const char *name)
{
    char cut[THREAD_NAME_BYTES_MAX];
    size_t i = 0;
    for (; i + 1 < sizeof(cut) && name[i] != '\0'; i++) {
        cut[i] = name[i];
    }
    cut[i] = '\0';
    /* A thread without a name works as well. */
    (void)pthread_setname_np(id, cut);
}

kvt_status kvt_thread_start(struct kvt_thread *thread, const char *name, void *(*fn)(void *),
                            void *arg)
{
    static const int own_faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS};
    sigset_t blocked;
    sigset_t before;
    (void)sigfillset(&blocked);
    for (size_t i = 0; i < sizeof(own_faults) / sizeof(own_faults[0]); i++) {
        (void)sigdelset(&blocked, own_faults[i]);
    }
    int rc = pthread_sigmask(SIG_SETMASK, &blocked, &before);
    KVT_ASSERT(rc == 0);

    pthread_t id;
    int created = kvt_thread_create_hook != NULL ? kvt_thread_create_hook(&id, NULL, fn, arg)
                                                 : pthread_create(&id, NULL, fn, arg);

    rc = pthread_sigmask(SIG_SETMASK, &before, NULL);
    KVT_ASSERT(rc == 0);
    if (created != 0) {
        return KVT_ERR_NOMEM;
    }
    thread_set_name(id, name);
    thread->id = id;
    return KVT_OK;
}

void kvt_thread_join(struct kvt_thread *thread)
{
    int rc = pthread_join(thread->id, NULL);
    KVT_ASSERT(rc == 0);
}
