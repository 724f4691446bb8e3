/*
 * The back end on io_uring. One ring, used by the queue's thread alone but for registering; that is
 * a system call of its own and takes no part in the rings.
 *
 * Others wake the thread through an eventfd, of which a read is always in the ring. SQPOLL and
 * IOPOLL are not used: they burn a core, and need file systems that know them.
 */
#include "cache/io/io_internal.h"

#include <errno.h>
#include <liburing.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S UINT64_C(1000000000)
#define PROBE_BYTES 4096u
/* Pause after the kernel took nothing: it is short of something that only time gives back. */
#define REFUSED_PAUSE_NS 1000000
/* How often the queue is looked at when the eventfd cannot be read, so that nothing is lost. */
#define UNWOKEN_NS UINT64_C(5000000)

struct uring {
    struct io_uring ring;
    int wake_fd;
    uint64_t wake_value; /* the kernel writes it */
    bool wake_armed, wake_broken, said_refused;
    bool files, buffers; /* the kernel took the tables */
};

static struct uring *uring_of(struct kvt_io *io) { return io->backend_state; }

/* One operation on its own: its result. */
static int probe_one(struct uring *u, bool write, int fd, void *buffer)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);
    if (sqe == NULL) {
        return -ENOSPC;
    }
    if (write) {
        io_uring_prep_write(sqe, fd, buffer, PROBE_BYTES, 0);
    } else {
        io_uring_prep_read(sqe, fd, buffer, PROBE_BYTES, 0);
    }
    io_uring_sqe_set_data(sqe, NULL);
    struct io_uring_cqe *cqe = NULL;
    int rc = io_uring_submit(&u->ring);
    if (rc < 0) {
        return rc;
    }
    do {
        rc = io_uring_wait_cqe(&u->ring, &cqe);
    } while (rc == -EINTR);
    if (rc < 0) {
        return rc;
    }
    rc = cqe->res;
    io_uring_cqe_seen(&u->ring, cqe);
    return rc;
}

/* A ring that was set up can still refuse its operations: they are tried, on a file of memory. */
static int probe(struct kvt_io *io, struct uring *u)
{
    int error = ENOMEM;
    unsigned char *bytes = kvt_calloc(io->mem, 2, PROBE_BYTES);
    if (bytes == NULL) {
        return error;
    }
    int fd = memfd_create("kvt-io-probe", MFD_CLOEXEC);
    if (fd < 0) {
        error = errno;
        goto undo_bytes;
    }
    memset(bytes, 0x5a, PROBE_BYTES);
    int written = probe_one(u, true, fd, bytes);
    int got = written < 0 ? written : probe_one(u, false, fd, bytes + PROBE_BYTES);
    if (got < 0) {
        error = -got;
    } else if (written != (int)PROBE_BYTES || got != (int)PROBE_BYTES ||
               memcmp(bytes, bytes + PROBE_BYTES, PROBE_BYTES) != 0) {
        error = EIO;
    } else {
        error = 0;
    }
    (void)close(fd);
undo_bytes:
    kvt_free(io->mem, bytes, (size_t)2 * PROBE_BYTES);
    return error;
}

static void wake_arm(struct uring *u)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);
    if (sqe != NULL) {
        io_uring_prep_read(sqe, u->wake_fd, &u->wake_value, sizeof(u->wake_value), 0);
        io_uring_sqe_set_data(sqe, NULL);
        u->wake_armed = true;
    }
}

static void uring_issue(struct kvt_io *io, struct kvt_io_piece *piece)
{
    struct uring *u = uring_of(io);
    struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);
    if (sqe == NULL) { /* what was not taken yet fills the ring */
        piece->result = -EAGAIN;
        kvt_io_pieces_push(&io->reaped, piece);
        return;
    }
    bool fixed = piece->fixed_buffer != KVT_IO_NO_BUFFER;
    unsigned bytes = (unsigned)piece->bytes;
    switch (piece->kind) {
    case KVT_IO_READ:
        if (fixed) {
            io_uring_prep_read_fixed(sqe, piece->fd, piece->buffer, bytes, piece->offset,
                                     (int)piece->fixed_buffer);
        } else {
            io_uring_prep_read(sqe, piece->fd, piece->buffer, bytes, piece->offset);
        }
        break;
    case KVT_IO_WRITE:
        if (fixed) {
            io_uring_prep_write_fixed(sqe, piece->fd, piece->buffer, bytes, piece->offset,
                                      (int)piece->fixed_buffer);
        } else {
            io_uring_prep_write(sqe, piece->fd, piece->buffer, bytes, piece->offset);
        }
        break;
    case KVT_IO_FLUSH:
    default:
        io_uring_prep_fsync(sqe, piece->fd, IORING_FSYNC_DATASYNC);
        break;
    }
    if (piece->fd_fixed) {
        io_uring_sqe_set_flags(sqe, IOSQE_FIXED_FILE);
    }
    io_uring_sqe_set_data(sqe, piece);
}

/* Moves what has ended to io->reaped; true when there was anything. */
static bool take_ended(struct kvt_io *io, struct uring *u)
{
    struct io_uring_cqe *cqe;
    unsigned head, count = 0;
    io_uring_for_each_cqe(&u->ring, head, cqe)
    {
        count++;
        struct kvt_io_piece *piece = io_uring_cqe_get_data(cqe);
        if (piece != NULL) {
            piece->result = cqe->res;
            kvt_io_pieces_push(&io->reaped, piece);
            continue;
        }
        u->wake_armed = false;
        u->wake_broken = cqe->res < 0 && cqe->res != -EINTR && cqe->res != -EAGAIN;
    }
    io_uring_cq_advance(&u->ring, count);
    return count > 0;
}

static void uring_wait(struct kvt_io *io, uint64_t timeout_ns)
{
    struct uring *u = uring_of(io);
    if (!u->wake_armed && !u->wake_broken) {
        wake_arm(u);
    }
    if (u->wake_broken && timeout_ns > UNWOKEN_NS) {
        timeout_ns = UNWOKEN_NS;
    }
    int rc;
    if (take_ended(io, u) || timeout_ns == 0) {
        rc = io_uring_submit(&u->ring);
    } else {
        struct __kernel_timespec limit = {0, 0};
        bool endless = timeout_ns == UINT64_MAX;
        if (!endless) {
            limit.tv_sec = (long long)(timeout_ns / NS_PER_S);
            limit.tv_nsec = (long long)(timeout_ns % NS_PER_S);
        }
        struct io_uring_cqe *cqe = NULL;
        rc = io_uring_submit_and_wait_timeout(&u->ring, &cqe, 1, endless ? NULL : &limit, NULL);
    }
    if (rc < 0 && rc != -ETIME && rc != -EINTR) {
        if (!u->said_refused) {
            u->said_refused = true;
            kvt_log(io->log, KVT_LOG_WARNING,
                    "io_uring took nothing (%s); this is tried again, reads and writes are slow "
                    "meanwhile",
                    strerror(-rc));
        }
        const struct timespec pause = {0, REFUSED_PAUSE_NS};
        (void)nanosleep(&pause, NULL);
    }
    (void)take_ended(io, u);
}

static void uring_wake(struct kvt_io *io)
{
    struct uring *u = uring_of(io);
    const uint64_t one = 1;
    ssize_t written;
    do {
        written = write(u->wake_fd, &one, sizeof(one));
    } while (written < 0 && errno == EINTR);
}

static void uring_close(struct kvt_io *io)
{
    struct uring *u = uring_of(io);
    io_uring_queue_exit(&u->ring);
    (void)close(u->wake_fd);
    kvt_free(io->mem, u, sizeof(*u));
}

static int uring_register_file(struct kvt_io *io, uint32_t file, int fd)
{
    struct uring *u = uring_of(io);
    if (!u->files) {
        return EPERM;
    }
    int rc = io_uring_register_files_update(&u->ring, file, &fd, 1);
    return rc == 1 ? 0 : rc < 0 ? -rc : EIO;
}

static int uring_register_buffer(struct kvt_io *io, uint32_t number, void *base, uint64_t bytes)
{
    struct uring *u = uring_of(io);
    if (!u->buffers) {
        return EPERM;
    }
    struct iovec piece = {bytes > 0 ? base : NULL, (size_t)bytes};
    __u64 tag = 0;
    int rc = io_uring_register_buffers_update_tag(&u->ring, number, &piece, &tag, 1);
    return rc == 1 ? 0 : rc < 0 ? -rc : EIO;
}

static const struct kvt_io_backend uring_backend = {
    .name = "uring",
    .issue = uring_issue,
    .wait = uring_wait,
    .wake = uring_wake,
    .close = uring_close,
    .register_file = uring_register_file,
    .register_buffer = uring_register_buffer,
};

int kvt_io_uring_open(struct kvt_io *io, const char **out_what)
{
    struct uring *u = kvt_calloc(io->mem, 1, sizeof(*u));
    int error = ENOMEM;
    const char *what = "memory";
    if (u == NULL) {
        goto undo_nothing;
    }
    u->wake_fd = eventfd(0, EFD_CLOEXEC);
    what = "eventfd";
    if (u->wake_fd < 0) {
        error = errno;
        goto undo_state;
    }
    what = "setup";
    /* One more than pieces, for the eventfd. */
    int rc = io_uring_queue_init(io->depth + 1, &u->ring, IORING_SETUP_CLAMP);
    if (rc < 0) {
        error = -rc;
        goto undo_wake;
    }
    /* Waiting with a time limit, and completions that are never dropped. */
    const unsigned needed = IORING_FEAT_EXT_ARG | IORING_FEAT_NODROP;
    what = "an older kernel's";
    if ((u->ring.features & needed) != needed) {
        error = EINVAL;
        goto undo_ring;
    }
    what = "memory that fork leaves out";
    rc = io_uring_ring_dontfork(&u->ring);
    if (rc < 0) {
        error = -rc;
        goto undo_ring;
    }
    what = "a read and a write";
    error = probe(io, u);
    if (error != 0) {
        goto undo_ring;
    }
    u->files = io_uring_register_files_sparse(&u->ring, KVT_IO_FILES_MAX) == 0;
    u->buffers = io_uring_register_buffers_sparse(&u->ring, KVT_IO_BUFFERS_MAX) == 0;
    io->backend = &uring_backend;
    io->backend_state = u;
    return 0;
undo_ring:
    io_uring_queue_exit(&u->ring);
undo_wake:
    (void)close(u->wake_fd);
undo_state:
    kvt_free(io->mem, u, sizeof(*u));
undo_nothing:
    *out_what = what;
    return error;
}
