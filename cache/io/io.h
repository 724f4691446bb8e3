/*
 * A queue of reads, writes and flushes on files, served by io_uring or, where that is refused, by
 * threads. Both keep the same contract; which one serves is said once in the log and in the
 * statistics.
 *
 *   - One thread of the queue's own submits, continues short transfers, repeats EAGAIN, EINTR and
 *     EBUSY, and calls `done`. Operations are started in the order of their class (reads before
 *     writes before flushes), first come first served within one; they end in any order. A class
 *     that is passed over gets a piece every 50 ms.
 *   - What is in flight is bounded in operations and in bytes; the rest waits in the queue, which
 *     is a list through the operations themselves and so never full. Large operations are split.
 *   - An operation that was submitted ends exactly once. Its memory, and its buffer, are the
 *     queue's until then, however long that takes: nothing else knows when the kernel is done with
 *     a buffer. A caller that cannot wait asks for `late` to be called at a deadline: it may then
 *     go on without the result, but must leave the buffer alone until `done`.
 *   - Writes are throttled beside reads: while any read waits or is in flight, at most
 *     writes_beside_reads bytes of them are.
 *
 * Layer 1: includes layer 0 only.
 */
#ifndef KVT_IO_H
#define KVT_IO_H

#include "cache/base/base.h"

#define KVT_IO_FILES_MAX 64u
#define KVT_IO_BUFFERS_MAX 1024u /* registered pieces of memory */
#define KVT_IO_DEPTH_DEFAULT 64u /* operations in flight, after splitting */
#define KVT_IO_DEPTH_MAX 1024u
/* Reads fill the drive's queue: less leaves a part of its bandwidth unused. Writes do not need so
 * much, and what they have in flight is what a read that comes finds before it. */
#define KVT_IO_BYTES_IN_FLIGHT_DEFAULT (UINT64_C(64) << 20)
#define KVT_IO_WRITES_IN_FLIGHT (UINT64_C(16) << 20)
#define KVT_IO_WRITES_BESIDE_READS (UINT64_C(4) << 20)
/* Reads count as being there for so long after the last one ended: they seldom come alone. */
#define KVT_IO_READS_LINGER_NS UINT64_C(20000000)
#define KVT_IO_SPLIT_BYTES (UINT64_C(1) << 20) /* larger operations go in pieces of this */
#define KVT_IO_THREADS 8u                      /* of the thread back end */

enum kvt_io_kind { KVT_IO_READ, KVT_IO_WRITE, KVT_IO_FLUSH /* fdatasync; bytes is 0 */ };

struct kvt_io_op {
    /* filled by the caller */
    enum kvt_io_kind kind;
    uint32_t file; /* of kvt_io_file_add() */
    void *buffer;  /* aligned as the file asks for */
    uint64_t offset, bytes;
    uint64_t late_ns; /* by the queue's clock; UINT64_MAX: never */
    /* On the queue's thread, no lock held; must not block. status: OK (all bytes moved), IO (see
     * error; also for the end of the file before `bytes`: error is ENODATA), CANCELLED (the queue
     * is being closed and it had not been started). */
    void (*done)(struct kvt_io_op *);
    /* May be NULL. Called at most once, before done, when the deadline passed first. */
    void (*late)(struct kvt_io_op *);
    void *user;
    /* filled before done */
    kvt_status status;
    int error;         /* errno, 0 */
    uint64_t bytes_ok; /* from the start, without a gap */
    /* the queue's own */
    struct kvt_io_op *next, *prev;
    uint64_t started_ns, issued_bytes;
    uint32_t pieces;
    bool was_late;
};

/* What tests may do to it; all atomic, any may change while it runs. */
struct kvt_io_faults {
    _Atomic int read_error, write_error,
        flush_error; /* errno that the next ones end with, 0: none */
    /* k > 0: only the k-th operation from now on, of those that would meet an error above, does
     * (counts down to 0, and then those errors are off). */
    _Atomic uint64_t fail_after;
    _Atomic uint64_t short_bytes;  /* > 0: the kernel moves at most so many bytes at a time */
    _Atomic uint64_t delay_ns;     /* each operation ends so much later */
    _Atomic uint64_t eagain_every; /* k > 0: every k-th submission is refused with EAGAIN first */
    _Atomic bool reorder;          /* completions are handed on in reverse, batch by batch */
    _Atomic bool hold;             /* nothing ends while true */
};

struct kvt_io_config {
    const struct kvt_memory *mem; /* borrowed until close, as log and clock */
    const struct kvt_log *log;
    struct kvt_clock clock;
    uint32_t depth;               /* 0: default */
    uint64_t bytes_in_flight;     /* 0: default */
    uint64_t writes_beside_reads; /* bytes; 0: default */
    bool threads_only;            /* never try io_uring */
};

struct kvt_io;

/* May block (probes io_uring: setup, and a read and a write of its own through a memfd). Falls back
 * to threads with one warning that names the errno, its usual cause and the remedy. NOMEM. */
kvt_status kvt_io_open(const struct kvt_io_config *, struct kvt_io **out_io) KVT_MUST_CHECK;
/* Cancels what waits, waits for what is in flight, then frees. Every op came out by `done`. NULL is
 * a no-op, and so is a child of fork, which has no queue and must not submit either. May block as
 * long as the kernel holds an operation. */
void kvt_io_close(struct kvt_io *);

/* fd stays the caller's and must stay open until removed. align_bytes, a power of two of at most
 * KVT_IO_SPLIT_BYTES: offsets, lengths and buffers are multiples of it (1 for buffered files); what
 * is not ends with EINVAL. LIMIT, INVAL. */
kvt_status kvt_io_file_add(struct kvt_io *, int fd, uint32_t align_bytes, uint32_t *out_file)
    KVT_MUST_CHECK;
/* Requires: no operation on it is queued or in flight. */
void kvt_io_file_remove(struct kvt_io *, uint32_t file);

/* Memory that operations will use again and again: registered with the kernel where that works
 * (fixed buffers), else used as it is, said once in the log with the reason (memlock limit, kind of
 * memory) and what to do. Never fails. [any-thread] may block for a moment. */
void kvt_io_buffer_add(struct kvt_io *, void *base, uint64_t bytes);
/* Requires: no operation uses it. */
void kvt_io_buffer_remove(struct kvt_io *, void *base);

/* Queue `count` operations, which need not be next to each other. [any-thread] no-block, takes
 * KVT_RANK_LEAF for a moment only. */
void kvt_io_submit(struct kvt_io *, struct kvt_io_op *const *ops, uint32_t count);

struct kvt_io_stats {
    const char *backend;        /* "uring" or "threads" */
    const char *backend_reason; /* why not uring; "" */
    bool fixed_files, fixed_buffers;
    uint32_t depth;
    uint64_t reads, writes, flushes, errors, late, continued, retried;
    uint64_t read_bytes, write_bytes;
    uint64_t read_busy_ns, write_busy_ns;           /* time with at least one of them in flight */
    uint32_t in_flight, queued;                     /* operations: started, and not yet */
    uint64_t queued_read_bytes, queued_write_bytes; /* waiting or in flight */
};
void kvt_io_stats(struct kvt_io *, struct kvt_io_stats *out_stats);
/* Lives as long as the queue. */
struct kvt_io_faults *kvt_io_faults(struct kvt_io *);

#endif
