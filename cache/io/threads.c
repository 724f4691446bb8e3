/*
 * The back end on threads, for where io_uring is refused: each takes one piece at a time and makes
 * the plain system call. All that is harder is the queue's.
 */
#include "cache/io/io_internal.h"

#include <errno.h>
#include <unistd.h>

struct threads {
    struct kvt_lock lock; /* protects everything below but `pool` and `count` */
    struct kvt_cond work; /* something was issued, or the end has come */
    struct kvt_cond news; /* something has ended, or wake was called */
    struct kvt_io_pieces issued, ended;
    bool woken, closing;
    struct kvt_thread pool[KVT_IO_THREADS];
    uint32_t count;
};

static struct threads *threads_of(struct kvt_io *io) { return io->backend_state; }

static int64_t piece_run(const struct kvt_io_piece *piece)
{
    ssize_t rc;
    switch (piece->kind) {
    case KVT_IO_READ:
        rc = pread(piece->fd, piece->buffer, (size_t)piece->bytes, (off_t)piece->offset);
        break;
    case KVT_IO_WRITE:
        rc = pwrite(piece->fd, piece->buffer, (size_t)piece->bytes, (off_t)piece->offset);
        break;
    case KVT_IO_FLUSH:
    default:
        rc = fdatasync(piece->fd);
        break;
    }
    return rc < 0 ? -(int64_t)errno : rc;
}

static void *worker(void *arg)
{
    struct threads *t = arg;
    kvt_lock_take(&t->lock);
    for (;;) {
        struct kvt_io_piece *piece = kvt_io_pieces_pop(&t->issued);
        if (piece == NULL) {
            if (t->closing) {
                break;
            }
            (void)kvt_cond_wait(&t->work, &t->lock, UINT64_MAX);
            continue;
        }
        kvt_lock_give(&t->lock);
        piece->result = piece_run(piece);
        kvt_lock_take(&t->lock);
        kvt_io_pieces_push(&t->ended, piece);
        kvt_cond_broadcast(&t->news);
    }
    kvt_lock_give(&t->lock);
    return NULL;
}

static void threads_issue(struct kvt_io *io, struct kvt_io_piece *piece)
{
    struct threads *t = threads_of(io);
    kvt_lock_take(&t->lock);
    kvt_io_pieces_push(&t->issued, piece);
    kvt_cond_broadcast(&t->work);
    kvt_lock_give(&t->lock);
}

static void threads_wait(struct kvt_io *io, uint64_t timeout_ns)
{
    struct threads *t = threads_of(io);
    kvt_lock_take(&t->lock);
    while (t->ended.head == NULL && !t->woken && timeout_ns > 0) {
        if (!kvt_cond_wait(&t->news, &t->lock, timeout_ns)) {
            break;
        }
    }
    t->woken = false;
    struct kvt_io_pieces ended = t->ended;
    t->ended = (struct kvt_io_pieces){NULL, NULL};
    kvt_lock_give(&t->lock);
    struct kvt_io_piece *piece;
    while ((piece = kvt_io_pieces_pop(&ended)) != NULL) {
        kvt_io_pieces_push(&io->reaped, piece);
    }
}

static void threads_wake(struct kvt_io *io)
{
    struct threads *t = threads_of(io);
    kvt_lock_take(&t->lock);
    t->woken = true;
    kvt_cond_broadcast(&t->news);
    kvt_lock_give(&t->lock);
}

static void threads_close(struct kvt_io *io)
{
    struct threads *t = threads_of(io);
    kvt_lock_take(&t->lock);
    t->closing = true;
    kvt_cond_broadcast(&t->work);
    kvt_lock_give(&t->lock);
    for (uint32_t i = 0; i < t->count; i++) {
        kvt_thread_join(&t->pool[i]);
    }
    kvt_cond_fini(&t->news);
    kvt_cond_fini(&t->work);
    kvt_lock_fini(&t->lock);
    kvt_free(io->mem, t, sizeof(*t));
}

static const struct kvt_io_backend threads_backend = {
    .name = "threads",
    .issue = threads_issue,
    .wait = threads_wait,
    .wake = threads_wake,
    .close = threads_close,
};

kvt_status kvt_io_threads_open(struct kvt_io *io)
{
    struct threads *t = kvt_calloc(io->mem, 1, sizeof(*t));
    if (t == NULL) {
        return KVT_ERR_NOMEM;
    }
    kvt_lock_init(&t->lock, KVT_RANK_LEAF, "io threads");
    kvt_cond_init(&t->work);
    kvt_cond_init(&t->news);
    io->backend_state = t;
    for (; t->count < KVT_IO_THREADS; t->count++) {
        kvt_status status = kvt_thread_start(&t->pool[t->count], "kvt-io-file", worker, t);
        if (status != KVT_OK) {
            threads_close(io);
            return status;
        }
    }
    io->backend = &threads_backend;
    return KVT_OK;
}
