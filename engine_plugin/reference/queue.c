#include "engine_plugin/reference/queue.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "engine_plugin/reference/thread.h"

struct task {
    void (*fn)(void *);
    void *arg;
};

struct kvt_ref_queue {
    pthread_mutex_t lock; /* protects everything below but the thread */
    pthread_cond_t changed;
    struct task tasks[KVT_REF_QUEUE_MAX]; /* a ring */
    uint32_t first, count;
    bool closing;
    pthread_t thread;
};

static void *queue_main(void *arg)
{
    struct kvt_ref_queue *queue = arg;
    pthread_mutex_lock(&queue->lock);
    for (;;) {
        while (queue->count == 0 && !queue->closing)
            pthread_cond_wait(&queue->changed, &queue->lock);
        if (queue->count == 0) break;
        struct task task = queue->tasks[queue->first];
        queue->first = (queue->first + 1) % KVT_REF_QUEUE_MAX;
        queue->count--;
        pthread_mutex_unlock(&queue->lock);
        task.fn(task.arg);
        pthread_mutex_lock(&queue->lock);
    }
    pthread_mutex_unlock(&queue->lock);
    return NULL;
}

kvt_status kvt_ref_queue_open(struct kvt_ref_queue **out_queue)
{
    struct kvt_ref_queue *queue = calloc(1, sizeof(*queue));
    if (!queue) return KVT_ERR_NOMEM;
    pthread_mutex_init(&queue->lock, NULL);
    pthread_cond_init(&queue->changed, NULL);
    if (kvt_ref_thread_start(&queue->thread, queue_main, queue) != KVT_OK) {
        pthread_cond_destroy(&queue->changed);
        pthread_mutex_destroy(&queue->lock);
        free(queue);
        return KVT_ERR_NOMEM;
    }
    *out_queue = queue;
    return KVT_OK;
}

void kvt_ref_queue_close(struct kvt_ref_queue *queue)
{
    if (!queue) return;
    pthread_mutex_lock(&queue->lock);
    queue->closing = true;
    pthread_cond_signal(&queue->changed);
    pthread_mutex_unlock(&queue->lock);
    pthread_join(queue->thread, NULL);
    pthread_cond_destroy(&queue->changed);
    pthread_mutex_destroy(&queue->lock);
    free(queue);
}

kvt_status kvt_ref_queue_push(struct kvt_ref_queue *queue, void (*fn)(void *), void *arg)
{
    pthread_mutex_lock(&queue->lock);
    bool full = queue->count == KVT_REF_QUEUE_MAX;
    if (!full) {
        queue->tasks[(queue->first + queue->count) % KVT_REF_QUEUE_MAX] = (struct task){fn, arg};
        queue->count++;
        pthread_cond_signal(&queue->changed);
    }
    pthread_mutex_unlock(&queue->lock);
    return full ? KVT_ERR_AGAIN : KVT_OK;
}
