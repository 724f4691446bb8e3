/* What plan's files share. Not for others. */
#ifndef KVT_PLAN_INTERNAL_H
#define KVT_PLAN_INTERNAL_H

#include "cache/move/ghost.h"
#include "cache/move/plan.h"
#include "cache/tier/nvme.h"

/* How often room is looked for before pages are not admitted. */
#define KVT_ROOM_ROUNDS_MAX 64u
/* Pages that make room in host memory for one that comes up from nvme: more will follow. */
#define KVT_HOST_ROOM_PAGES 16u
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

/* What one read brings up from nvme goes in pieces, so that the first can be used early. */
#define KVT_FETCH_BYTES (UINT64_C(8) << 20)
#define KVT_FETCH_PAGES_MAX 64u
/* ... but no restore has more pieces than this. */
#define KVT_FETCHES_PER_RESTORE 64u
#define KVT_FETCHES_MAX 1024u
/* Writes under way at the same time, and how much one of them holds. */
#define KVT_SPILLS_MAX 4u
#define KVT_SPILL_BYTES (UINT64_C(16) << 20)
/* Host slots that are made free when pages of hbm find none to go through. */
#define KVT_SPILL_ROOM_PAGES 32u
/* Edges that wait to be written. */
#define KVT_SPILL_QUEUE_MAX 8192u
/* A write that failed is tried again after this. */
#define KVT_SPILL_RETRY_NS UINT64_C(1000000000)
/* How often slots on the drive are looked for while there is something to write. */
#define KVT_SPILL_POLL_NS UINT64_C(5000000)
/* What is queued to be written has this long when the cache is destroyed. */
#define KVT_CLOSE_WRITE_NS UINT64_C(5000000000)
/* Pages leave the host tier's cold end for nvme when less than this part of it is free. */
#define KVT_HOST_FREE_LOW_DIVISOR 8u
/* Runs of a match that the plan of a restore looks at. */
#define KVT_SEGMENTS_MAX 256u

/* What a step of a restore waits for. */
struct kvt_step_wait {
    uint16_t fetch; /* 0: nothing (any more) */
    uint32_t first; /* of the fetch's pages, the step's first */
};

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
    /* restore with pages from nvme: [array_pages], owned */
    struct kvt_exec_step *steps;
    struct kvt_step_wait *waits;
    uint32_t step_count, steps_ready;
    kvt_status cut; /* why exec's page_count is smaller than page_count */
    struct kvt_plan_result result;
};

/* Something that the drive's threads tell the mover. */
struct kvt_storage_event {
    void (*take)(struct kvt_plan *, void *what); /* requires the lock */
    void *what;
    struct kvt_storage_event *next;
};

struct kvt_fetch;
struct kvt_spill;

/* What the plan keeps of nvme. */
struct kvt_plan_nvme {
    struct kvt_nvme *store; /* NULL: there is none */
    const struct kvt_admit_ops *admit;
    struct kvt_lock lock; /* rank LEAF; protects: head, tail */
    struct kvt_storage_event *head, *tail;
    struct kvt_fetch *fetches[KVT_FETCHES_MAX]; /* number n is at n - 1 */
    uint32_t fetches_running, spills_running;
    uint32_t queue[KVT_SPILL_QUEUE_MAX]; /* a ring of edges */
    uint32_t queue_head, queue_count;
    uint64_t retry_ns;                      /* not before this is written again */
    uint64_t host_short_bytes;              /* a batch found no host slot of this size; 0 */
    uint32_t ns_number[KVT_NAMESPACES_MAX]; /* in the catalog; 0: none yet */
    bool ns_durable[KVT_NAMESPACES_MAX];
    uint32_t ns_last;
};

struct kvt_plan {
    struct kvt_plan_config config;
    const struct kvt_memory *mem;
    struct kvt_lock lock; /* protects: everything below but exec */
    struct kvt_cond done; /* broadcast when a job is done */
    struct kvt_index *index;
    struct kvt_tier tiers[KVT_MEMORY_TIERS];
    uint64_t grow_retry_ns[KVT_MEMORY_TIERS];
    struct kvt_plan_nvme *nvme; /* NULL: no such tier */
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

/* plan_nvme.c: opening, loading, events */
kvt_status kvt_storage_open(struct kvt_plan *, char *why, size_t why_bytes) KVT_MUST_CHECK;
void kvt_storage_close(struct kvt_plan *);
/* Any thread: hand an event to the mover. */
void kvt_storage_tell(struct kvt_plan *, struct kvt_storage_event *);
/* The mover: take what was told. Takes the lock. */
void kvt_storage_take(struct kvt_plan *);
/* The slab that a page of this tier passes through. */
static inline struct kvt_slab *kvt_slab_of(const struct kvt_plan *plan, uint32_t tier)
{
    return plan->tiers[tier < KVT_MEMORY_TIERS ? tier : KVT_HOST].slab;
}
/* What a page's slot takes: whole blocks of the drive where there is one. */
static inline uint64_t kvt_slot_bytes(const struct kvt_plan *plan, uint64_t bytes)
{
    return plan->nvme != NULL ? kvt_nvme_slot_bytes(bytes) : bytes;
}

/* plan_fetch.c: nvme to host */
/* The restore's sources (class: of kvt_nvme_read): memory, a fetch under way, or a new one. Sets
 * exec's page_count and, when something waits, its steps. Requires: lock. Drops and retakes it.
 * NOMEM: nothing is held. */
kvt_status kvt_restore_sources(struct kvt_plan *, struct kvt_job *, uint32_t class) KVT_MUST_CHECK;
void kvt_restore_unref(struct kvt_plan *, struct kvt_job *);
/* Open the gates of what has arrived. Requires: lock, the job was submitted. */
void kvt_restore_advance(struct kvt_job *);

/* plan_spill.c: memory to nvme */
/* Pages were saved or delivered: ask the policy and queue what it admits. Requires: lock. */
void kvt_spill_offer(struct kvt_plan *, const uint32_t *pages, uint32_t count, bool delivered);
/* Start writes while there is something to write. Requires: lock. Drops and retakes it. */
void kvt_spill_some(struct kvt_plan *);
/* The pages of a batch that lay in hbm lie in host memory now. Requires: lock. */
void kvt_spill_staged(struct kvt_plan *, struct kvt_exec_job *);
/* At the end: write what is queued, until the deadline, then let what runs come to its end.
 * Requires: lock. Drops and retakes it. */
void kvt_spill_drain(struct kvt_plan *, uint64_t deadline_ns);
/* Everything that is in memory only is written. TIMEOUT, IO. Requires: lock. Drops and retakes it.
 * */
kvt_status kvt_spill_flush(struct kvt_plan *, uint64_t deadline_ns) KVT_MUST_CHECK;

/* plan_jobs.c */
bool kvt_plan_wait_until(struct kvt_plan *, uint64_t deadline_ns);

/* plan_room.c */
/* The index takes one place of a page away. */
void kvt_room_on_strip(void *plan, uint32_t tier, struct kvt_place place);
/* A slot in host memory. LIMIT. Drops and retakes the lock. */
kvt_status kvt_room_in_host(struct kvt_plan *, uint64_t slot_bytes, struct kvt_place *out_place)
    KVT_MUST_CHECK;
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
