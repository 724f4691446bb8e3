/*
 * What the queue and its two back ends share.
 *
 * A piece is a part of an operation in flight. Pieces are made once, as many as the queue is deep,
 * and belong to the queue's thread; a back end has those that it was given until it puts them on
 * `reaped` with their result.
 */
#ifndef KVT_IO_INTERNAL_H
#define KVT_IO_INTERNAL_H

#include "cache/io/io.h"

#include <sys/types.h>

#define KVT_IO_NO_BUFFER UINT32_MAX

struct kvt_io_piece {
    struct kvt_io_piece *next;
    struct kvt_io_op *op;
    enum kvt_io_kind kind;
    int fd; /* of the file, or its number in the fixed table */
    bool fd_fixed;
    uint32_t align_bytes;
    uint32_t fixed_buffer; /* number in the kernel's table, or KVT_IO_NO_BUFFER */
    unsigned char *buffer; /* what is left of the piece */
    uint64_t offset, bytes;
    uint64_t all_bytes;      /* of the piece; what the budget counts */
    uint64_t start;          /* of what is left, from the operation's start */
    uint64_t tail_bytes;     /* moved behind `start`, but not a whole unit of alignment */
    int fault;               /* errno that it ends with instead of being issued, 0 */
    int64_t result;          /* bytes, or -errno */
    uint64_t ready_ns;       /* not to be handled (ended) or issued (again) before; monotonic */
    uint64_t retry_since_ns; /* by the queue's clock; 0: not being repeated */
};

struct kvt_io_pieces {
    struct kvt_io_piece *head, *tail;
};

static inline void kvt_io_pieces_push(struct kvt_io_pieces *list, struct kvt_io_piece *piece)
{
    piece->next = NULL;
    if (list->tail == NULL) {
        list->head = piece;
    } else {
        list->tail->next = piece;
    }
    list->tail = piece;
}

static inline struct kvt_io_piece *kvt_io_pieces_pop(struct kvt_io_pieces *list)
{
    struct kvt_io_piece *piece = list->head;
    if (piece != NULL) {
        list->head = piece->next;
        if (list->head == NULL) {
            list->tail = NULL;
        }
        piece->next = NULL;
    }
    return piece;
}

struct kvt_io_backend {
    const char *name;
    /* Takes the piece. There is room: no more than `depth` are issued at a time. */
    void (*issue)(struct kvt_io *, struct kvt_io_piece *);
    /* Starts what was issued and moves what has ended to io->reaped. Waits until something has, or
     * wake was called, or timeout_ns have passed (0: does not wait, UINT64_MAX: no end). */
    void (*wait)(struct kvt_io *, uint64_t timeout_ns);
    /* [any-thread] Ends one wait, the present or the next. */
    void (*wake)(struct kvt_io *);
    /* Nothing is in flight and the queue's thread has ended. */
    void (*close)(struct kvt_io *);
    /* The file's and the buffer's places in the kernel's tables: 0, or an errno. bytes 0 empties
     * the buffer's, fd -1 the file's. NULL where there are no such tables. [any-thread] */
    int (*register_file)(struct kvt_io *, uint32_t file, int fd);
    int (*register_buffer)(struct kvt_io *, uint32_t number, void *base, uint64_t bytes);
};

struct kvt_io_list {
    struct kvt_io_op *head, *tail;
};

struct kvt_io_file {
    int fd;
    uint32_t align_bytes;
    bool used, fixed;
};

/* A piece of memory in the kernel's table; memory larger than the kernel takes has several. */
struct kvt_io_buffer {
    unsigned char *base, *whole; /* of this piece, of what was added */
    uint64_t bytes;              /* 0: free */
    bool ready;                  /* registered */
};

#define KVT_IO_CLASSES 3u /* the kinds, in the order they are served */

struct kvt_io {
    const struct kvt_memory *mem;
    const struct kvt_log *log;
    struct kvt_clock clock;
    uint32_t depth;
    uint64_t bytes_in_flight_max, writes_beside_reads;
    pid_t pid; /* a child of fork has no queue's thread */
    const struct kvt_io_backend *backend;
    void *backend_state;
    struct kvt_thread thread;
    struct kvt_io_faults faults;

    struct kvt_lock lock; /* protects: from here to `bytes of what is queued` */
    struct kvt_io_list incoming;
    bool asleep, closing;
    bool buffers_refused, files_refused;
    struct kvt_io_file files[KVT_IO_FILES_MAX];
    struct kvt_io_buffer buffers[KVT_IO_BUFFERS_MAX];
    uint32_t buffer_count; /* slots up to the last one ever used */
    struct kvt_io_stats stats;
    uint64_t busy_since_ns[KVT_IO_CLASSES]; /* monotonic; 0: none of that kind in flight */
    /* bytes of what is queued */

    /* the queue's thread only */
    struct kvt_io_list waiting[KVT_IO_CLASSES];
    struct kvt_io_list active; /* wholly issued, or failed: waits for its pieces */
    struct kvt_io_piece *pieces;
    struct kvt_io_pieces spare, reaped, ended, again;
    uint32_t pieces_in_flight;
    uint64_t bytes_in_flight, kind_bytes[KVT_IO_CLASSES];
    uint32_t kind_pieces[KVT_IO_CLASSES];
    uint64_t read_ended_ns;                  /* the last one; 0: none yet */
    uint64_t passed_over_ns[KVT_IO_CLASSES]; /* since when that class has waited without an issue */
    uint64_t next_late_ns;                   /* never after the first deadline */
    uint64_t submissions;                    /* for the fault of every k-th one */
};

/* io_uring: 0, or the errno of what was refused with *out_what saying what that was. */
int kvt_io_uring_open(struct kvt_io *io, const char **out_what) KVT_MUST_CHECK;
kvt_status kvt_io_threads_open(struct kvt_io *io) KVT_MUST_CHECK;

/* The thread of the queue. */
void *kvt_io_run(void *io);
/* Fills the places of a piece's file and buffer. Takes io->lock. */
void kvt_io_place(struct kvt_io *io, struct kvt_io_piece *piece);

#endif
