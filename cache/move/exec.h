/*
 * exec: runs what plan decided, where the engine's memory is.
 *
 * It knows addresses, blocks, streams and events, and nothing of tokens, trees or slots. In service
 * mode this half lives in the engine's process and the other in the daemon; what joins them is the
 * list of finished jobs.
 *
 * A job's way:  submitted -> copies enqueued behind the engine's stream -> last copy ran ->
 *               finished list -> taken by the mover, which tells plan.
 * Every job that was submitted comes out of kvt_exec_next() exactly once, whatever failed.
 *
 * Layer 4, but includes no index header.
 */
#ifndef KVT_EXEC_H
#define KVT_EXEC_H

#include "cache/base/base.h"
#include "cache/device/device.h"

struct kvt_exec;

/* One region of a binding, as the ABI's kvt_region. */
struct kvt_exec_region {
    unsigned char *base;
    uint64_t block_bytes;
    uint64_t stride_bytes;
};

/* Where a rank's KV lives, and the streams that copies of this rank run on. */
struct kvt_binding {
    struct kvt_exec *exec;
    uint32_t block_tokens;
    uint32_t blocks_per_page;
    uint64_t block_count;
    uint64_t shard_bytes; /* of one page: all regions' blocks back to back */
    uint32_t region_count;
    struct kvt_exec_region *regions;
    struct kvt_stream *restore_stream, *save_stream;
    struct kvt_stream *gated_stream; /* restores that wait for a drive hold up only each other */
    uint32_t uses;                   /* plan's: jobs that name it; guarded by plan's lock */
};

/* STAGE: a move as well, for another owner. */
enum kvt_exec_kind { KVT_EXEC_RESTORE, KVT_EXEC_SAVE, KVT_EXEC_MOVE, KVT_EXEC_STAGE };

/* A part of a restore: its pages are there once the job's gate stands at its number in the list of
 * steps plus one; the next step follows it in the prompt. */
struct kvt_exec_step {
    uint32_t page_count;
    bool gated; /* false: its pages are there already */
};

struct kvt_exec_job {
    enum kvt_exec_kind kind;
    /* filled by the submitter, borrowed until the job came out of kvt_exec_next() */
    const struct kvt_binding *binding; /* NULL for MOVE */
    uint32_t page_count;
    const struct kvt_page_addr *pages; /* cache side; MOVE: from */
    const struct kvt_page_addr *to;    /* MOVE only */
    uint64_t move_bytes;               /* MOVE only: of each page */
    const uint32_t *blocks;            /* [page_count * blocks_per_page]; not for MOVE */
    struct kvt_stream *after;          /* copies start behind what is enqueued here; not for MOVE */
    const struct kvt_exec_step *steps; /* [step_count], all pages of the job; RESTORE only */
    uint32_t step_count;               /* 0: all pages are there */
    void *user;
    /* exec's own */
    _Atomic uint32_t pages_good; /* the submitter sets it to page_count; valid once finished */
    _Atomic bool cancelled;
    kvt_status status;         /* why nothing could be enqueued; OK otherwise */
    struct kvt_event **events; /* [region_count], recorded when the region was copied */
    struct kvt_event *start;
    struct kvt_gate *gate; /* with steps */
    struct kvt_stream *stream;
    struct kvt_exec *exec;
    struct kvt_exec_job *next;
    bool unsignalled; /* the completion call could not be enqueued: wait for the stream instead */
};

/* Borrowed until close: mem, log, device. NOMEM. */
kvt_status kvt_exec_open(const struct kvt_memory *mem, const struct kvt_log *log,
                         struct kvt_device *device, struct kvt_exec **out_exec) KVT_MUST_CHECK;
/* Requires: every job came out, every binding is gone. */
void kvt_exec_close(struct kvt_exec *);

/* regions are copied. May block (streams are made). NOMEM. */
kvt_status kvt_exec_bind(struct kvt_exec *, const struct kvt_exec_region *regions,
                         uint32_t region_count, uint32_t block_tokens, uint32_t blocks_per_page,
                         uint64_t block_count, struct kvt_binding **out_binding) KVT_MUST_CHECK;
/* Requires: no job uses it. Waits for its streams. */
void kvt_exec_unbind(struct kvt_binding *);

/*
 * Enqueue a job's copies. No-block; takes KVT_RANK_EXEC, STREAM, EVENT; requires no lock.
 * An error means that nothing was enqueued and the job does not come out. After KVT_OK it always
 * comes out; what failed on the way shows in pages_good and status.
 */
kvt_status kvt_exec_submit(struct kvt_exec *, struct kvt_exec_job *) KVT_MUST_CHECK;
/* Make `stream` wait until region `region` of a submitted job has been copied. */
kvt_status kvt_exec_wait_region(struct kvt_exec_job *, uint32_t region, struct kvt_stream *stream)
    KVT_MUST_CHECK;
/* A submitted job's step number value - 1, and all before it, have their pages. */
void kvt_exec_open_gate(struct kvt_exec_job *, uint32_t value);
/* Pages from `page` on did not arrive: call before their step's gate is opened. */
void kvt_exec_fail_from(struct kvt_exec_job *, uint32_t page);
/* Copies that have not run yet are skipped. */
void kvt_exec_cancel(struct kvt_exec_job *);

/* The next finished job, or NULL when the time passed or kvt_exec_wake() was called. May block. */
struct kvt_exec_job *kvt_exec_next(struct kvt_exec *, uint64_t timeout_ns);
void kvt_exec_wake(struct kvt_exec *);
/* Give back a finished job's events. Waits that other streams enqueued stay good. */
void kvt_exec_job_fini(struct kvt_exec_job *);

#endif
