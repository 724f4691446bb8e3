/* The queue's outside: open and close, files and buffers, submitting, statistics. */
#include "cache/io/io_internal.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

/* The kernel takes at most 1 GiB as one registered buffer. */
#define BUFFER_PIECE_BYTES (UINT64_C(1) << 30)
/* Of bytes_in_flight, what writes get beside reads when the caller does not say. */

/* ---- open, close ---- */

struct refusal {
    int error;
    const char *cause, *remedy;
};

static const struct refusal *refusal_of(int error)
{
    static const struct refusal known[] = {
        {EPERM, "a seccomp filter, as containers have one, or sysctl kernel.io_uring_disabled",
         "allow io_uring_setup, io_uring_enter and io_uring_register in the filter"},
        {EACCES, "a security module", "allow io_uring in its policy"},
        {ENOSYS, "a kernel without it, or a seccomp filter",
         "use Linux 5.11 or later, or allow io_uring_setup in the filter"},
        {EINVAL, "a kernel that is too old", "use Linux 5.11 or later"},
        {ENOMEM, "too little memory that may be locked", "raise ulimit -l"},
        {EMFILE, "too many open files", "raise ulimit -n"},
    };
    static const struct refusal other = {0, "not known", "see what the kernel logs"};
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (known[i].error == error) {
            return &known[i];
        }
    }
    return &other;
}

static kvt_status backend_open(struct kvt_io *io, bool threads_only)
{
    const char *what = "";
    int error = 0;
    if (threads_only) {
        io->stats.backend_reason = "asked for";
    } else {
        error = kvt_io_uring_open(io, &what);
        if (error == 0) {
            return KVT_OK;
        }
        io->stats.backend_reason = refusal_of(error)->cause;
    }
    kvt_status status = kvt_io_threads_open(io);
    if (status == KVT_OK && error != 0) {
        const struct refusal *why = refusal_of(error);
        kvt_log(io->log, KVT_LOG_WARNING,
                "io_uring is refused (%s: %s), %u threads read and write instead, which is slower; "
                "cause: %s; to mend it: %s",
                what, strerror(error), KVT_IO_THREADS, why->cause, why->remedy);
    }
    return status;
}

kvt_status kvt_io_open(const struct kvt_io_config *config, struct kvt_io **out_io)
{
    uint32_t depth = config->depth != 0 ? config->depth : KVT_IO_DEPTH_DEFAULT;
    KVT_ASSERT(depth <= KVT_IO_DEPTH_MAX);
    struct kvt_io *io = kvt_calloc(config->mem, 1, sizeof(*io));
    kvt_status status = KVT_ERR_NOMEM;
    if (io == NULL) {
        return status;
    }
    io->mem = config->mem;
    io->log = config->log;
    io->clock = config->clock;
    io->depth = depth;
    io->bytes_in_flight_max =
        config->bytes_in_flight != 0 ? config->bytes_in_flight : KVT_IO_BYTES_IN_FLIGHT_DEFAULT;
    io->writes_beside_reads =
        config->writes_beside_reads != 0 ? config->writes_beside_reads : KVT_IO_WRITES_BESIDE_READS;
    io->pid = getpid();
    io->next_late_ns = UINT64_MAX;
    io->stats.backend_reason = "";
    io->stats.depth = depth;
    kvt_lock_init(&io->lock, KVT_RANK_LEAF, "io queue");
    io->pieces = kvt_calloc(io->mem, depth, sizeof(*io->pieces));
    if (io->pieces == NULL) {
        goto undo_io;
    }
    for (uint32_t i = 0; i < depth; i++) {
        kvt_io_pieces_push(&io->spare, &io->pieces[i]);
    }
    status = backend_open(io, config->threads_only);
    if (status != KVT_OK) {
        goto undo_pieces;
    }
    io->stats.backend = io->backend->name;
    io->stats.fixed_files = io->stats.fixed_buffers = io->backend->register_file != NULL;
    status = kvt_thread_start(&io->thread, "kvt-io", kvt_io_run, io);
    if (status != KVT_OK) {
        goto undo_backend;
    }
    *out_io = io;
    return KVT_OK;
undo_backend:
    io->backend->close(io);
undo_pieces:
    kvt_free(io->mem, io->pieces, depth * sizeof(*io->pieces));
undo_io:
    kvt_lock_fini(&io->lock);
    kvt_free(config->mem, io, sizeof(*io));
    return status;
}

void kvt_io_close(struct kvt_io *io)
{
    /* In a child of fork there is no thread to wait for, and the ring is the parent's. */
    if (io == NULL || getpid() != io->pid) {
        return;
    }
    kvt_lock_take(&io->lock);
    io->closing = true;
    kvt_lock_give(&io->lock);
    io->backend->wake(io);
    kvt_thread_join(&io->thread);
    io->backend->close(io);
    kvt_free(io->mem, io->pieces, io->depth * sizeof(*io->pieces));
    kvt_lock_fini(&io->lock);
    kvt_free(io->mem, io, sizeof(*io));
}

/* ---- files ---- */

static void file_refused(struct kvt_io *io, int error)
{
    kvt_lock_take(&io->lock);
    bool first = !io->files_refused;
    io->files_refused = true;
    io->stats.fixed_files = false;
    kvt_lock_give(&io->lock);
    if (first) {
        kvt_log(io->log, KVT_LOG_WARNING,
                "files cannot be registered with io_uring (%s): each operation looks its file up, "
                "which costs a little; allow io_uring_register where it is filtered",
                strerror(error));
    }
}

kvt_status kvt_io_file_add(struct kvt_io *io, int fd, uint32_t align_bytes, uint32_t *out_file)
{
    if (fd < 0 || align_bytes == 0 || (align_bytes & (align_bytes - 1)) != 0 ||
        align_bytes > KVT_IO_SPLIT_BYTES) {
        return KVT_ERR_INVAL;
    }
    uint32_t file = 0;
    kvt_lock_take(&io->lock);
    while (file < KVT_IO_FILES_MAX && io->files[file].used) {
        file++;
    }
    if (file < KVT_IO_FILES_MAX) {
        io->files[file] = (struct kvt_io_file){fd, align_bytes, true, false};
    }
    kvt_lock_give(&io->lock);
    if (file == KVT_IO_FILES_MAX) {
        return KVT_ERR_LIMIT;
    }
    if (io->backend->register_file != NULL) {
        int error = io->backend->register_file(io, file, fd);
        if (error == 0) {
            kvt_lock_take(&io->lock);
            io->files[file].fixed = true;
            kvt_lock_give(&io->lock);
        } else {
            file_refused(io, error);
        }
    }
    *out_file = file;
    return KVT_OK;
}

void kvt_io_file_remove(struct kvt_io *io, uint32_t file)
{
    KVT_ASSERT(file < KVT_IO_FILES_MAX);
    kvt_lock_take(&io->lock);
    bool fixed = io->files[file].fixed;
    KVT_ASSERT(io->files[file].used);
    io->files[file].fixed = false;
    kvt_lock_give(&io->lock);
    if (fixed) {
        /* Should it fail, the table keeps the file open until the place is used again. */
        (void)io->backend->register_file(io, file, -1);
    }
    kvt_lock_take(&io->lock);
    io->files[file].used = false;
    kvt_lock_give(&io->lock);
}

/* ---- buffers ---- */

static void buffer_refused(struct kvt_io *io, uint64_t bytes, int error)
{
    kvt_lock_take(&io->lock);
    bool first = !io->buffers_refused;
    io->buffers_refused = true;
    io->stats.fixed_buffers = false;
    kvt_lock_give(&io->lock);
    if (!first) {
        return;
    }
    const char *remedy = "only some kinds of memory can be registered";
    if (error == ENOMEM) {
        remedy = "the limit of locked memory is too low for it: raise ulimit -l";
    } else if (error == EPERM || error == ENOSYS || error == EACCES) {
        remedy = "allow io_uring_register where it is filtered";
    } else if (error == ENOSPC) {
        remedy = "there are more pieces of memory than the table has places";
    }
    kvt_log(io->log, KVT_LOG_WARNING,
            "%llu bytes of memory cannot be registered with io_uring (%s): the kernel maps them "
            "for each operation, which costs CPU time; %s",
            (unsigned long long)bytes, strerror(error), remedy);
}

/* A place of the table for one piece, KVT_IO_BUFFERS_MAX when there is none. */
static uint32_t buffer_claim(struct kvt_io *io, unsigned char *base, unsigned char *whole,
                             uint64_t bytes)
{
    uint32_t number = 0;
    kvt_lock_take(&io->lock);
    while (number < KVT_IO_BUFFERS_MAX && io->buffers[number].bytes != 0) {
        number++;
    }
    if (number < KVT_IO_BUFFERS_MAX) {
        io->buffers[number] = (struct kvt_io_buffer){base, whole, bytes, false};
        if (io->buffer_count <= number) {
            io->buffer_count = number + 1;
        }
    }
    kvt_lock_give(&io->lock);
    return number;
}

void kvt_io_buffer_add(struct kvt_io *io, void *base, uint64_t bytes)
{
    if (io->backend->register_buffer == NULL) {
        return;
    }
    unsigned char *whole = base;
    for (uint64_t at = 0; at < bytes; at += BUFFER_PIECE_BYTES) {
        uint64_t left = bytes - at;
        uint64_t piece = left < BUFFER_PIECE_BYTES ? left : BUFFER_PIECE_BYTES;
        uint32_t number = buffer_claim(io, whole + at, whole, piece);
        int error = number == KVT_IO_BUFFERS_MAX
                        ? ENOSPC
                        : io->backend->register_buffer(io, number, whole + at, piece);
        if (number < KVT_IO_BUFFERS_MAX) {
            kvt_lock_take(&io->lock);
            if (error == 0) {
                io->buffers[number].ready = true;
            } else {
                io->buffers[number] = (struct kvt_io_buffer){NULL, NULL, 0, false};
            }
            kvt_lock_give(&io->lock);
        }
        if (error != 0) {
            buffer_refused(io, left, error);
            return;
        }
    }
}

void kvt_io_buffer_remove(struct kvt_io *io, void *base)
{
    for (uint32_t i = 0; i < KVT_IO_BUFFERS_MAX; i++) {
        kvt_lock_take(&io->lock);
        bool ours = io->buffers[i].ready && io->buffers[i].whole == (unsigned char *)base;
        if (ours) {
            io->buffers[i].ready = false;
        }
        kvt_lock_give(&io->lock);
        if (ours) {
            /* Should it fail, the memory stays pinned until the place is used again. */
            (void)io->backend->register_buffer(io, i, NULL, 0);
            kvt_lock_take(&io->lock);
            io->buffers[i] = (struct kvt_io_buffer){NULL, NULL, 0, false};
            kvt_lock_give(&io->lock);
        }
    }
}

void kvt_io_place(struct kvt_io *io, struct kvt_io_piece *piece)
{
    kvt_lock_take(&io->lock);
    const struct kvt_io_file *file = &io->files[piece->op->file];
    piece->fd_fixed = file->fixed;
    piece->fd = file->fixed ? (int)piece->op->file : file->fd;
    piece->align_bytes = file->align_bytes;
    piece->fixed_buffer = KVT_IO_NO_BUFFER;
    for (uint32_t i = 0; i < io->buffer_count && piece->bytes > 0; i++) {
        const struct kvt_io_buffer *buffer = &io->buffers[i];
        if (buffer->ready && piece->buffer >= buffer->base &&
            (uint64_t)(piece->buffer - buffer->base) < buffer->bytes &&
            piece->bytes <= buffer->bytes - (uint64_t)(piece->buffer - buffer->base)) {
            piece->fixed_buffer = i;
            break;
        }
    }
    kvt_lock_give(&io->lock);
}

/* ---- submitting ---- */

void kvt_io_submit(struct kvt_io *io, struct kvt_io_op *const *ops, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        struct kvt_io_op *op = ops[i];
        op->status = KVT_OK;
        op->error = 0;
        op->bytes_ok = 0;
        op->started_ns = op->issued_bytes = 0;
        op->pieces = 0;
        op->was_late = false;
    }
    kvt_lock_take(&io->lock);
    for (uint32_t i = 0; i < count; i++) {
        struct kvt_io_op *op = ops[i];
        op->next = NULL;
        op->prev = io->incoming.tail;
        if (op->prev == NULL) {
            io->incoming.head = op;
        } else {
            op->prev->next = op;
        }
        io->incoming.tail = op;
        io->stats.queued++;
        io->stats.queued_read_bytes += op->kind == KVT_IO_READ ? op->bytes : 0;
        io->stats.queued_write_bytes += op->kind == KVT_IO_WRITE ? op->bytes : 0;
    }
    bool wake = io->asleep && count > 0;
    io->asleep = io->asleep && !wake;
    kvt_lock_give(&io->lock);
    if (wake) {
        io->backend->wake(io);
    }
}

void kvt_io_stats(struct kvt_io *io, struct kvt_io_stats *out_stats)
{
    uint64_t now_ns = kvt_now_ns(&kvt_clock_monotonic);
    kvt_lock_take(&io->lock);
    *out_stats = io->stats;
    for (uint32_t kind = KVT_IO_READ; kind <= KVT_IO_WRITE; kind++) {
        uint64_t since_ns = io->busy_since_ns[kind];
        if (since_ns != 0 && now_ns > since_ns) {
            *(kind == KVT_IO_READ ? &out_stats->read_busy_ns : &out_stats->write_busy_ns) +=
                now_ns - since_ns;
        }
    }
    kvt_lock_give(&io->lock);
}

struct kvt_io_faults *kvt_io_faults(struct kvt_io *io) { return &io->faults; }
