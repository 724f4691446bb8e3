/*
 * The queue's thread: what starts when, what becomes of a piece that has ended, and who is told.
 *
 * An operation lies in one list: of those of its class that wait (its front one may be issued in
 * part), or of the active ones, which are wholly issued or have failed and wait for their pieces.
 */
#include "cache/io/io_internal.h"

#include <errno.h>
#include <string.h>

#define NS_PER_MS UINT64_C(1000000)
/* A class that waits while others are served gets one piece in so long. */
#define STARVED_NS (50 * NS_PER_MS)
/* What the kernel refuses for a while is asked for again after a pause, and given up in the end.
 * What tests hold back is looked at as often. */
#define RETRY_PAUSE_NS NS_PER_MS
#define RETRY_NS_MAX UINT64_C(10000000000)
/* How often deadlines are looked at: the queue's clock need not be the one that waits. */
#define LATE_TICK_NS (20 * NS_PER_MS)

static uint64_t monotonic_ns(void) { return kvt_now_ns(&kvt_clock_monotonic); }
static uint64_t min_u64(uint64_t a, uint64_t b) { return a < b ? a : b; }
static uint64_t max_u64(uint64_t a, uint64_t b) { return a > b ? a : b; }

static void list_push(struct kvt_io_list *list, struct kvt_io_op *op)
{
    op->next = NULL;
    op->prev = list->tail;
    if (list->tail == NULL) {
        list->head = op;
    } else {
        list->tail->next = op;
    }
    list->tail = op;
}

static void list_remove(struct kvt_io_list *list, struct kvt_io_op *op)
{
    if (op->prev == NULL) {
        list->head = op->next;
    } else {
        op->prev->next = op->next;
    }
    if (op->next == NULL) {
        list->tail = op->prev;
    } else {
        op->next->prev = op->prev;
    }
    op->next = op->prev = NULL;
}

/* ---- operations ---- */

static void op_late(struct kvt_io *io, struct kvt_io_op *op)
{
    op->was_late = true;
    kvt_lock_take(&io->lock);
    io->stats.late++;
    kvt_lock_give(&io->lock);
    if (op->late != NULL) {
        op->late(op);
    }
}

/* The operation is in no list. It is the caller's again when this returns. */
static void op_end(struct kvt_io *io, struct kvt_io_op *op, bool started)
{
    if (!op->was_late && op->late_ns != UINT64_MAX && kvt_now_ns(&io->clock) >= op->late_ns) {
        op_late(io, op);
    }
    bool good = op->status == KVT_OK;
    kvt_lock_take(&io->lock);
    struct kvt_io_stats *stats = &io->stats;
    *(started ? &stats->in_flight : &stats->queued) -= 1;
    switch (op->kind) {
    case KVT_IO_READ:
        stats->reads += good;
        stats->read_bytes += op->bytes_ok;
        stats->queued_read_bytes -= op->bytes;
        break;
    case KVT_IO_WRITE:
        stats->writes += good;
        stats->write_bytes += op->bytes_ok;
        stats->queued_write_bytes -= op->bytes;
        break;
    case KVT_IO_FLUSH:
    default:
        stats->flushes += good;
        break;
    }
    stats->errors += op->status == KVT_ERR_IO;
    kvt_lock_give(&io->lock);
    op->done(op);
}

/* Ends an operation that was never started. */
static void op_refuse(struct kvt_io *io, struct kvt_io_op *op, kvt_status status, int error)
{
    op->status = status;
    op->error = error;
    op->bytes_ok = 0;
    op_end(io, op, false);
}

/* What is wrong with it: an errno, or 0. */
static int op_wrong(struct kvt_io *io, const struct kvt_io_op *op)
{
    if (op->file >= KVT_IO_FILES_MAX) {
        return EBADF;
    }
    kvt_lock_take(&io->lock);
    struct kvt_io_file file = io->files[op->file];
    kvt_lock_give(&io->lock);
    if (!file.used) {
        return EBADF;
    }
    if (op->kind == KVT_IO_FLUSH) {
        return op->bytes == 0 ? 0 : EINVAL;
    }
    bool aligned =
        ((op->offset | op->bytes | (uint64_t)(uintptr_t)op->buffer) & (file.align_bytes - 1)) == 0;
    bool fits = op->offset <= INT64_MAX && op->bytes <= INT64_MAX - op->offset;
    return aligned && fits ? 0 : EINVAL;
}

/* Takes what was submitted into the lists of the classes. */
static bool take_incoming(struct kvt_io *io)
{
    kvt_lock_take(&io->lock);
    io->asleep = false;
    struct kvt_io_op *op = io->incoming.head;
    io->incoming = (struct kvt_io_list){NULL, NULL};
    bool closing = io->closing;
    kvt_lock_give(&io->lock);
    while (op != NULL) {
        struct kvt_io_op *next = op->next;
        int wrong = op_wrong(io, op);
        if (wrong != 0) {
            op_refuse(io, op, KVT_ERR_IO, wrong);
        } else if (closing) {
            op_refuse(io, op, KVT_ERR_CANCELLED, 0);
        } else if (op->bytes == 0 && op->kind != KVT_IO_FLUSH) {
            op_end(io, op, false);
        } else {
            list_push(&io->waiting[op->kind], op);
            io->next_late_ns = min_u64(io->next_late_ns, op->late_ns);
        }
        op = next;
    }
    return closing;
}

static void cancel_waiting(struct kvt_io *io)
{
    for (uint32_t kind = 0; kind < KVT_IO_CLASSES; kind++) {
        struct kvt_io_op *op = io->waiting[kind].head;
        while (op != NULL) {
            struct kvt_io_op *next = op->next;
            if (op->started_ns == 0) {
                list_remove(&io->waiting[kind], op);
                op_refuse(io, op, KVT_ERR_CANCELLED, 0);
            }
            op = next;
        }
    }
}

static void late_scan_list(struct kvt_io *io, struct kvt_io_list *list, uint64_t now_ns)
{
    for (struct kvt_io_op *op = list->head; op != NULL; op = op->next) {
        if (op->was_late || op->late_ns == UINT64_MAX) {
            continue;
        }
        if (now_ns >= op->late_ns) {
            op_late(io, op);
        } else {
            io->next_late_ns = min_u64(io->next_late_ns, op->late_ns);
        }
    }
}

static void late_scan(struct kvt_io *io)
{
    if (io->next_late_ns == UINT64_MAX) {
        return;
    }
    uint64_t now_ns = kvt_now_ns(&io->clock);
    if (now_ns < io->next_late_ns) {
        return;
    }
    io->next_late_ns = UINT64_MAX;
    for (uint32_t kind = 0; kind < KVT_IO_CLASSES; kind++) {
        late_scan_list(io, &io->waiting[kind], now_ns);
    }
    late_scan_list(io, &io->active, now_ns);
}

/* ---- starting ---- */

/* Hands the piece to the back end, unless a test wants it to fail. */
static void piece_issue(struct kvt_io *io, struct kvt_io_piece *piece)
{
    uint64_t every = atomic_load_explicit(&io->faults.eagain_every, memory_order_relaxed);
    io->submissions++;
    if (every > 0 && io->submissions % every == 0) {
        piece->result = -EAGAIN;
    } else if (piece->fault != 0) {
        piece->result = -piece->fault;
        piece->fault = 0;
    } else {
        kvt_io_place(io, piece);
        io->backend->issue(io, piece);
        return;
    }
    kvt_io_pieces_push(&io->reaped, piece);
}

/* Does the operation that starts now meet an error of the tests' making? Its errno, or 0. */
static int fault_of(struct kvt_io *io, enum kvt_io_kind kind)
{
    struct kvt_io_faults *faults = &io->faults;
    _Atomic int *const of_kind[KVT_IO_CLASSES] = {&faults->read_error, &faults->write_error,
                                                  &faults->flush_error};
    int error = atomic_load(of_kind[kind]);
    uint64_t left = atomic_load(&faults->fail_after);
    if (error == 0 || left == 0) {
        return error;
    }
    if (left > 1) {
        atomic_store(&faults->fail_after, left - 1);
        return 0;
    }
    for (uint32_t i = 0; i < KVT_IO_CLASSES; i++) {
        atomic_store(of_kind[i], 0);
    }
    atomic_store(&faults->fail_after, 0);
    return error;
}

/* The first waiting operation of a class goes on by one piece. Requires: one, and a spare piece. */
static void issue_front(struct kvt_io *io, enum kvt_io_kind kind, uint64_t now_ns)
{
    struct kvt_io_op *op = io->waiting[kind].head;
    struct kvt_io_piece *piece = kvt_io_pieces_pop(&io->spare);
    KVT_ASSERT(op != NULL && piece != NULL);
    uint64_t bytes = min_u64(op->bytes - op->issued_bytes, KVT_IO_SPLIT_BYTES);
    *piece = (struct kvt_io_piece){.op = op,
                                   .kind = kind,
                                   .buffer = (unsigned char *)op->buffer + op->issued_bytes,
                                   .offset = op->offset + op->issued_bytes,
                                   .bytes = bytes,
                                   .all_bytes = bytes,
                                   .start = op->issued_bytes};
    bool first = op->started_ns == 0;
    if (first) {
        op->started_ns = now_ns;
        op->bytes_ok = op->bytes; /* lowered by what fails */
        piece->fault = fault_of(io, kind);
    }
    op->issued_bytes += bytes;
    op->pieces++;
    io->pieces_in_flight++;
    io->bytes_in_flight += bytes;
    io->kind_bytes[kind] += bytes;
    bool was_idle = io->kind_pieces[kind]++ == 0;
    io->passed_over_ns[kind] = 0;
    if (op->issued_bytes == op->bytes) {
        list_remove(&io->waiting[kind], op);
        list_push(&io->active, op);
    }
    if (first || was_idle) {
        kvt_lock_take(&io->lock);
        if (first) {
            io->stats.queued--;
            io->stats.in_flight++;
        }
        if (was_idle) {
            io->busy_since_ns[kind] = now_ns;
        }
        kvt_lock_give(&io->lock);
    }
    piece_issue(io, piece);
}

/* May the class's next piece go now, as far as bytes are concerned? */
static bool fits(const struct kvt_io *io, enum kvt_io_kind kind)
{
    const struct kvt_io_op *op = io->waiting[kind].head;
    uint64_t bytes = min_u64(op->bytes - op->issued_bytes, KVT_IO_SPLIT_BYTES);
    if (io->bytes_in_flight > 0 && io->bytes_in_flight + bytes > io->bytes_in_flight_max) {
        return false;
    }
    if (kind != KVT_IO_WRITE || io->kind_bytes[kind] == 0) {
        return true;
    }
    bool reads =
        io->waiting[KVT_IO_READ].head != NULL || io->kind_pieces[KVT_IO_READ] > 0 ||
        (io->read_ended_ns != 0 && monotonic_ns() - io->read_ended_ns < KVT_IO_READS_LINGER_NS);
    uint64_t writes_max = KVT_IO_WRITES_IN_FLIGHT < io->bytes_in_flight_max
                              ? KVT_IO_WRITES_IN_FLIGHT
                              : io->bytes_in_flight_max;
    return io->kind_bytes[kind] + bytes <= (reads ? io->writes_beside_reads : writes_max);
}

static void start_waiting(struct kvt_io *io)
{
    uint64_t now_ns = monotonic_ns();
    for (uint32_t kind = 1; kind < KVT_IO_CLASSES; kind++) {
        bool starved =
            io->passed_over_ns[kind] != 0 && now_ns - io->passed_over_ns[kind] >= STARVED_NS;
        /* Above the budget by one piece of each class at most. */
        bool room = io->kind_pieces[kind] == 0 ||
                    io->bytes_in_flight + KVT_IO_SPLIT_BYTES <= io->bytes_in_flight_max;
        if (starved && room && io->waiting[kind].head != NULL && io->spare.head != NULL) {
            issue_front(io, (enum kvt_io_kind)kind, now_ns);
        }
    }
    for (uint32_t kind = 0; kind < KVT_IO_CLASSES; kind++) {
        while (io->waiting[kind].head != NULL && io->spare.head != NULL &&
               fits(io, (enum kvt_io_kind)kind)) {
            issue_front(io, (enum kvt_io_kind)kind, now_ns);
        }
        if (io->waiting[kind].head == NULL) {
            io->passed_over_ns[kind] = 0;
        } else if (io->passed_over_ns[kind] == 0) {
            io->passed_over_ns[kind] = now_ns;
        }
    }
}

/* What ended short or was refused for a while goes on. */
static void start_again(struct kvt_io *io)
{
    uint64_t now_ns = monotonic_ns();
    struct kvt_io_pieces again = io->again;
    io->again = (struct kvt_io_pieces){NULL, NULL};
    struct kvt_io_piece *piece;
    while ((piece = kvt_io_pieces_pop(&again)) != NULL) {
        if (piece->ready_ns > now_ns) {
            kvt_io_pieces_push(&io->again, piece);
        } else {
            piece_issue(io, piece);
        }
    }
}

/* ---- ending ---- */

/* The piece is through, with the bytes up to `good` from the operation's start. */
static void piece_end(struct kvt_io *io, struct kvt_io_piece *piece, int error, uint64_t good)
{
    struct kvt_io_op *op = piece->op;
    enum kvt_io_kind kind = piece->kind;
    io->pieces_in_flight--;
    io->bytes_in_flight -= piece->all_bytes;
    io->kind_bytes[kind] -= piece->all_bytes;
    io->read_ended_ns = kind == KVT_IO_READ ? monotonic_ns() : io->read_ended_ns;
    if (--io->kind_pieces[kind] == 0) {
        uint64_t now_ns = monotonic_ns();
        kvt_lock_take(&io->lock);
        uint64_t busy_ns = now_ns - io->busy_since_ns[kind];
        io->busy_since_ns[kind] = 0;
        io->stats.read_busy_ns += kind == KVT_IO_READ ? busy_ns : 0;
        io->stats.write_busy_ns += kind == KVT_IO_WRITE ? busy_ns : 0;
        kvt_lock_give(&io->lock);
    }
    kvt_io_pieces_push(&io->spare, piece);
    op->pieces--;
    if (error != 0) {
        if (op->status == KVT_OK && op->issued_bytes < op->bytes) {
            /* The rest of it is not issued. */
            list_remove(&io->waiting[kind], op);
            list_push(&io->active, op);
        }
        if (op->status == KVT_OK || good < op->bytes_ok) {
            op->bytes_ok = good;
            op->error = error;
        }
        op->status = KVT_ERR_IO;
    }
    if (op->pieces == 0 && (op->status != KVT_OK || op->issued_bytes == op->bytes)) {
        list_remove(&io->active, op);
        op_end(io, op, true);
    }
}

static void count_one(struct kvt_io *io, uint64_t *counter)
{
    kvt_lock_take(&io->lock);
    (*counter)++;
    kvt_lock_give(&io->lock);
}

/* The kernel could not now, or moved nothing: again after a pause, until it has lasted too long. */
static void piece_retry(struct kvt_io *io, struct kvt_io_piece *piece, int error)
{
    uint64_t now_ns = kvt_now_ns(&io->clock);
    if (piece->retry_since_ns == 0) {
        piece->retry_since_ns = max_u64(now_ns, 1);
    } else if (now_ns - piece->retry_since_ns >= RETRY_NS_MAX) {
        piece_end(io, piece, error, piece->start + piece->tail_bytes);
        return;
    }
    count_one(io, &io->stats.retried);
    piece->ready_ns = monotonic_ns() + RETRY_PAUSE_NS;
    kvt_io_pieces_push(&io->again, piece);
}

/* The kernel moved `moved` > 0 bytes, fewer than asked for. */
static void piece_continue(struct kvt_io *io, struct kvt_io_piece *piece, uint64_t moved)
{
    uint64_t whole = moved & ~((uint64_t)piece->align_bytes - 1);
    uint64_t tail = moved - whole;
    if (whole == 0 && tail <= piece->tail_bytes) {
        /* Asked twice, the same part of a unit: a read has come to the file's end. */
        if (piece->kind == KVT_IO_READ) {
            piece_end(io, piece, ENODATA, piece->start + piece->tail_bytes);
        } else {
            piece_retry(io, piece, EIO);
        }
        return;
    }
    piece->start += whole;
    piece->buffer += whole;
    piece->offset += whole;
    piece->bytes -= whole;
    piece->tail_bytes = tail;
    piece->retry_since_ns = 0;
    piece->ready_ns = 0;
    count_one(io, &io->stats.continued);
    kvt_io_pieces_push(&io->again, piece);
}

static void piece_handle(struct kvt_io *io, struct kvt_io_piece *piece)
{
    int64_t result = piece->result;
    uint64_t limit = atomic_load_explicit(&io->faults.short_bytes, memory_order_relaxed);
    if (limit > 0 && result > 0) {
        /* Less than a unit would look like the file's end. */
        result = (int64_t)min_u64((uint64_t)result, max_u64(limit, piece->align_bytes));
    }
    if (result == -EAGAIN || result == -EINTR || result == -EBUSY) {
        piece_retry(io, piece, (int)-result);
    } else if (result < 0) {
        piece_end(io, piece, (int)-result, piece->start);
    } else if (piece->kind == KVT_IO_FLUSH || (uint64_t)result >= piece->bytes) {
        piece_end(io, piece, 0, 0);
    } else if (result > 0) {
        piece_continue(io, piece, (uint64_t)result);
    } else if (piece->kind == KVT_IO_READ) {
        piece_end(io, piece, ENODATA, piece->start + piece->tail_bytes);
    } else {
        piece_retry(io, piece, EIO);
    }
}

/* Hands on what the back end has brought; what tests hold back stays in io->ended. */
static void handle_ended(struct kvt_io *io)
{
    struct kvt_io_faults *faults = &io->faults;
    uint64_t delay_ns = atomic_load_explicit(&faults->delay_ns, memory_order_relaxed);
    bool reorder = atomic_load_explicit(&faults->reorder, memory_order_relaxed);
    struct kvt_io_pieces batch = {NULL, NULL};
    struct kvt_io_piece *piece;
    uint64_t now_ns = monotonic_ns();
    while ((piece = kvt_io_pieces_pop(&io->reaped)) != NULL) {
        piece->ready_ns = delay_ns > 0 ? now_ns + delay_ns : 0;
        if (reorder && batch.head != NULL) {
            piece->next = batch.head;
            batch.head = piece;
        } else {
            kvt_io_pieces_push(&batch, piece);
        }
    }
    struct kvt_io_pieces held = io->ended;
    io->ended = (struct kvt_io_pieces){NULL, NULL};
    while ((piece = kvt_io_pieces_pop(&batch)) != NULL) {
        kvt_io_pieces_push(&held, piece);
    }
    while ((piece = kvt_io_pieces_pop(&held)) != NULL) {
        if (atomic_load(&faults->hold) || piece->ready_ns > now_ns) {
            kvt_io_pieces_push(&io->ended, piece);
        } else {
            piece_handle(io, piece);
        }
    }
}

/* ---- the loop ---- */

static bool waits_any(const struct kvt_io *io)
{
    for (uint32_t kind = 0; kind < KVT_IO_CLASSES; kind++) {
        if (io->waiting[kind].head != NULL) {
            return true;
        }
    }
    return io->pieces_in_flight > 0;
}

/* How long there is nothing to do but wait for the kernel or for callers. */
static uint64_t wait_ns(struct kvt_io *io)
{
    if (io->reaped.head != NULL) {
        return 0;
    }
    uint64_t limit_ns = UINT64_MAX;
    if (waits_any(io)) {
        if (io->ended.head != NULL || io->again.head != NULL) {
            limit_ns = RETRY_PAUSE_NS;
        } else if (io->next_late_ns != UINT64_MAX) {
            limit_ns = LATE_TICK_NS;
        }
    } else {
        io->next_late_ns = UINT64_MAX;
    }
    kvt_lock_take(&io->lock);
    if (io->incoming.head != NULL || (io->closing && !waits_any(io))) {
        limit_ns = 0;
    } else {
        io->asleep = true;
    }
    kvt_lock_give(&io->lock);
    return limit_ns;
}

void *kvt_io_run(void *arg)
{
    struct kvt_io *io = arg;
    for (;;) {
        bool closing = take_incoming(io);
        if (closing) {
            cancel_waiting(io);
        }
        start_again(io);
        start_waiting(io);
        if (closing && !waits_any(io)) {
            kvt_lock_take(&io->lock);
            bool more = io->incoming.head != NULL;
            kvt_lock_give(&io->lock);
            if (!more) {
                return NULL;
            }
        }
        io->backend->wait(io, wait_ns(io));
        handle_ended(io);
        late_scan(io);
    }
}
