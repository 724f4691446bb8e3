/* What plan's files share. Not for others. */
#ifndef KVT_PLAN_INTERNAL_H
#define KVT_PLAN_INTERNAL_H

#include "cache/move/ghost.h"
#include "cache/move/plan.h"

/* How often room is looked for before pages are not admitted. */
#define KVT_ROOM_ROUNDS_MAX 64u
/* A tier that could not map a chunk is asked again after this. */
#define KVT_GROW_RETRY_NS UINT64_C(1000000000)
/* Pages that one move job takes from hbm to host. */
#define KVT_DEMOTE_PAGES_MAX 128u
/* hbm begins to move down when less than 1/16 of it is free, and stops at 1/8. */
#define KVT_HBM_FREE_LOW_DIVISOR 16u
#define KVT_HBM_FREE_HIGH_DIVISOR 8u
#define KVT_HOUSEKEEPING_NS UINT64_C(100000000)

/* STARTING: taken, but not handed to exec yet; its handle is nobody's so far, and finds nothing. */
enum kvt_job_state { KVT_JOB_IS_FREE, KVT_JOB_IS_STARTING, KVT_JOB_IS_RUNNING, KVT_JOB_IS_DONE };

struct kvt_job {
    struct kvt_exec_job exec; /* user points back here */
    uint32_t generation;      /* odd: in use */
    uint32_t next_free;
    uint32_t client;
    enum kvt_job_state state;
    bool detached;
    uint64_t sequence;
    uint64_t lease; /* what this job pins */
    uint32_t lease_owner;
    uint32_t request; /* KVT_REQUEST_NONE, or whose delivery this is ... */
    uint32_t request_generation;
    uint32_t ns;
    uint32_t first_page; /* of the prompt: the job's page 0 */
    uint32_t page_count;
    uint32_t refused; /* save: pages behind page_count that found no room */
    uint64_t slot_bytes;
    struct kvt_binding *binding; /* NULL once the job is done */
    uint32_t region_count;
    /* arrays of page_count (+ refused), owned */
    uint32_t array_pages;
    uint32_t *pages;
    struct kvt_page_addr *addrs, *to_addrs;
    struct kvt_place *places, *to_places;
    unsigned char *tiers;
    uint32_t *blocks;
    size_t block_count;
    uint32_t *tokens; /* save: of its pages and the refused ones */
    struct kvt_extra *extras;
    uint32_t extra_count;
    struct kvt_plan_result result;
};

struct kvt_plan {
    struct kvt_plan_config config;
    const struct kvt_memory *mem;
    struct kvt_lock lock; /* protects: everything below but exec */
    struct kvt_cond done; /* broadcast when a job is done */
    struct kvt_index *index;
    struct kvt_tier tiers[KVT_TIERS];
    uint64_t grow_retry_ns[KVT_TIERS];
    struct kvt_ghosts ghosts;
    struct kvt_account account;
    struct kvt_exec *exec;
    struct kvt_job *jobs; /* [jobs_max] */
    uint32_t job_free;
    uint32_t running, saves_running, moves_running;
    uint64_t sequence;
    uint64_t slot_bytes; /* of the latest binding: what to keep room for */
    bool quiet;          /* quiesced: start nothing of our own */
    struct kvt_thread mover;
    _Atomic bool stopping;
    uint64_t last_housekeeping_ns;
    struct kvt_plan_stats stats; /* counters only; the rest is filled when asked for */
};

/* plan_jobs.c */
/* A free job slot with arrays for `pages` pages, running but not yet counted. AGAIN, NOMEM. */
kvt_status kvt_job_take(struct kvt_plan *, uint32_t pages, size_t blocks, struct kvt_job **out_job)
    KVT_MUST_CHECK;
void kvt_job_give(struct kvt_plan *, struct kvt_job *);
struct kvt_job *kvt_job_find(struct kvt_plan *, uint32_t client, uint64_t handle);
uint64_t kvt_job_handle(const struct kvt_plan *, const struct kvt_job *);
void kvt_job_bind(struct kvt_job *, struct kvt_binding *);
/* Hand to exec. Requires: lock. Drops and retakes it. On failure the job is not running. */
kvt_status kvt_job_submit(struct kvt_plan *, struct kvt_job *) KVT_MUST_CHECK;
/* The outcome is known: free what is not needed any more, tell who waits. */
void kvt_job_done(struct kvt_plan *, struct kvt_job *, kvt_status status);
kvt_status kvt_job_status(const struct kvt_job *, uint32_t good);

/* plan_restore.c, plan_save.c, plan_room.c: what came out of exec. Require: lock. */
void kvt_restore_finish(struct kvt_plan *, struct kvt_job *);
void kvt_save_finish(struct kvt_plan *, struct kvt_job *);
void kvt_demote_finish(struct kvt_plan *, struct kvt_job *);

/* plan_room.c */
/* A slot for one page; `wanted` more are about to be asked for. LIMIT. Drops and retakes the
 * lock. */
kvt_status kvt_room_for_page(struct kvt_plan *, uint64_t slot_bytes, uint32_t wanted,
                             unsigned char *out_tier, struct kvt_place *out_place) KVT_MUST_CHECK;
/* Map one more chunk of a tier, unless it failed a moment ago. Drops and retakes the lock. */
bool kvt_room_grow(struct kvt_plan *, uint32_t tier, uint64_t slot_bytes);
/* Start moving pages from hbm to host when hbm is nearly full and host is not. */
void kvt_demote_some(struct kvt_plan *);
/* The index drops a page. */
void kvt_room_on_drop(void *plan, const struct kvt_key *, const struct kvt_place *places);

#endif
