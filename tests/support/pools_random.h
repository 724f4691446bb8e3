/*
 * Calls at random on a cache whose pools are dry. Each answer must be one that the header promises
 * for what the caller knows, and what was restored is compared byte for byte.
 */
#ifndef KVT_TEST_POOLS_RANDOM_H
#define KVT_TEST_POOLS_RANDOM_H

#include "tests/support/pools_world.h"
#include "tests/support/test_random.h"

#define RANDOM_CALLS 20000u
#define RANDOM_DRAIN_EVERY 500u
#define RANDOM_PROMPTS 2u
#define RANDOM_HANDLES 8u /* more than there are leases: old ones are stale */
#define RANDOM_JOBS_MAX 2u

static struct {
    struct test_random random;
    uint32_t jobs_max;
    uint32_t prompts[RANDOM_PROMPTS][PAGE_TOKENS + 1];
    struct {
        uint64_t handle;
        uint32_t prompt;
    } leases[RANDOM_HANDLES];
    struct random_job {
        uint64_t handle; /* 0: free; its blocks are 2 * i and the next */
        uint32_t prompt;
        bool saves;
    } jobs[RANDOM_JOBS_MAX];
    bool held, faulty;
    void *event;
    uint64_t restored, saved;
    uint64_t answers[KVT_STATUS_LAST_ + 64]; /* by -status */
} chaos;

static inline uint32_t dice(uint32_t below) { return test_random_below(&chaos.random, below); }

/* Counts an answer; it must be one of these, or one that an armed fault explains. */
static inline kvt_status one_of(const char *call, kvt_status got, kvt_status a, kvt_status b,
                                kvt_status c)
{
    chaos.answers[-got]++;
    bool struck = chaos.faulty && (got == KVT_ERR_NOMEM || got == KVT_ERR_DEVICE);
    if (got != KVT_OK && got != a && got != b && got != c && !struck) {
        ck_abort_msg("%s answered %s", call, kvt_status_name(got));
    }
    return got;
}

/* A place whose lease is no more. */
static inline uint32_t random_place(void)
{
    uint32_t place = dice(RANDOM_HANDLES);
    while (kvt_cache_lease_check(rig.cache, engine.client, chaos.leases[place].handle) == KVT_OK) {
        place = (place + 1) % RANDOM_HANDLES;
    }
    return place;
}

/* One that is held, if there is any, but sometimes a spent one. */
static inline uint32_t random_lease(void)
{
    uint32_t place = dice(RANDOM_HANDLES);
    for (uint32_t i = 0; i < RANDOM_HANDLES && dice(16) > 0; i++) {
        if (kvt_cache_lease_check(rig.cache, engine.client, chaos.leases[place].handle) == KVT_OK) {
            break;
        }
        place = (place + 1) % RANDOM_HANDLES;
    }
    return place;
}

static inline void random_lookup(void)
{
    struct kvt_cache_found found = {0};
    uint32_t prompt = dice(RANDOM_PROMPTS), place = random_place();
    uint64_t request = dice(2) == 0 ? 0 : 1 + dice(3);
    kvt_status status = one_of("lookup", lookup_of(chaos.prompts[prompt], request, NULL, &found),
                               KVT_ERR_AGAIN, 0, 0);
    if (status == KVT_OK && found.lease != 0) {
        chaos.leases[place].handle = found.lease;
        chaos.leases[place].prompt = prompt;
    }
}

static inline void random_release(void)
{
    uint64_t lease = chaos.leases[dice(RANDOM_HANDLES)].handle;
    (void)one_of("release", kvt_cache_release(rig.cache, engine.client, lease), KVT_ERR_STALE, 0,
                 0);
}

static inline void random_report(void)
{
    (void)one_of("report",
                 kvt_cache_report(rig.cache, engine.client, 1 + dice(3), PAGE_TOKENS + 1, 0,
                                  1 + dice(PAGE_TOKENS + 1)),
                 KVT_ERR_STALE, KVT_ERR_INVAL, 0);
}

/* A place with blocks of its own, or NULL: then the cache must say so too. */
static inline struct random_job *random_job_free(void)
{
    for (uint32_t i = 0; i < chaos.jobs_max; i++) {
        if (chaos.jobs[i].handle == 0) {
            return &chaos.jobs[i];
        }
    }
    return NULL;
}

static inline void random_blocks(const struct random_job *job, uint32_t *blocks)
{
    kvt_rig_blocks(blocks, job != NULL ? 2 * (uint32_t)(job - chaos.jobs) : 4, 2);
}

static inline void random_move(bool saves)
{
    struct random_job *job = random_job_free();
    uint32_t from = random_lease(), blocks[2];
    uint32_t prompt = saves ? dice(RANDOM_PROMPTS) : chaos.leases[from].prompt;
    uint64_t handle = 0;
    kvt_status status;
    random_blocks(job, blocks);
    if (saves) {
        kvt_rig_paint(&engine, chaos.prompts[prompt], 0, 1, blocks);
        status = one_of("save", save_of(chaos.prompts[prompt], blocks, NULL, &handle),
                        KVT_ERR_AGAIN, 0, 0);
    } else {
        kvt_rig_wipe(&engine, blocks, 2);
        status = one_of("restore", restore_of(chaos.leases[from].handle, blocks, &handle),
                        KVT_ERR_STALE, job == NULL ? KVT_ERR_AGAIN : 0, 0);
    }
    EXPECT((handle != 0) == (status == KVT_OK));
    EXPECT(job != NULL || status != KVT_OK);
    if (status == KVT_OK) {
        *job = (struct random_job){handle, prompt, saves};
    }
}

static inline void random_poll(struct random_job *job, uint64_t timeout_ns)
{
    struct kvt_cache_result result = {0};
    uint32_t blocks[2];
    if (job->handle == 0) {
        return;
    }
    must(kvt_cache_poll(rig.cache, engine.client, job->handle, timeout_ns, &result), "poll");
    if (result.done == 0) {
        EXPECT(timeout_ns == 0);
        return;
    }
    bool good = result.status == KVT_OK;
    chaos.answers[-result.status]++;
    EXPECT(good || result.status == KVT_ERR_CANCELLED || result.status == KVT_ERR_LIMIT ||
           result.status == KVT_ERR_NOMEM || result.status == KVT_ERR_DEVICE ||
           result.status == KVT_ERR_IO);
    EXPECT(result.tokens_good == (good ? PAGE_TOKENS : 0));
    random_blocks(job, blocks);
    if (!job->saves && good) {
        EXPECT(kvt_rig_good_pages(&engine, chaos.prompts[job->prompt], 0, 1, blocks) == 1);
        EXPECT(kvt_rig_good_pages(&engine, chaos.prompts[(job->prompt + 1) % RANDOM_PROMPTS], 0, 1,
                                  blocks) == 0);
    }
    chaos.restored += !job->saves && good;
    chaos.saved += job->saves && good;
    job->handle = 0;
    struct kvt_cache_result spent;
    EXPECT(kvt_cache_poll(rig.cache, engine.client, job->handle, 0, &spent) == KVT_ERR_STALE);
}

static inline void random_job_call(uint32_t kind)
{
    uint64_t handle = chaos.jobs[dice(chaos.jobs_max)].handle;
    handle = handle != 0 ? handle : GUESS;
    if (kind == 0) {
        (void)one_of("cancel", kvt_cache_cancel(rig.cache, engine.client, handle), KVT_ERR_STALE, 0,
                     0);
    } else {
        (void)one_of(
            "wait_region",
            kvt_cache_wait_region(rig.cache, engine.client, handle, dice(shape.region_count), side),
            KVT_ERR_STALE, 0, 0);
    }
}

static inline void random_client(void)
{
    if (dice(2) == 0 && clients_held > 0) {
        give_client();
    } else if (one_of("open", open_client("tenant", 6, &held_client),
                      clients_held == KVT_CLIENTS_MAX - 1 ? KVT_ERR_LIMIT : 0, 0, 0) == KVT_OK) {
        clients[clients_held++] = held_client;
    }
}

static inline void random_binding(void)
{
    if (dice(2) == 0 && bindings_held > 0) {
        give_binding();
    } else if (one_of("bind", bind_engine(&held_binding),
                      bindings_held == KVT_BINDINGS_MAX - 1 ? KVT_ERR_LIMIT : 0, 0, 0) == KVT_OK) {
        bindings[bindings_held++] = held_binding;
    }
}

/* No namespace is left: a lookup is a miss, a save is refused. */
static inline void random_salted(void)
{
    struct kvt_cache_field field = new_salt();
    struct kvt_cache_found found = {.lease = 1};
    uint64_t job = 0;
    if (dice(2) == 0) {
        EXPECT(one_of("a salted lookup", lookup_of(chaos.prompts[0], 1, &field, &found), 0, 0, 0) ==
               KVT_OK);
        EXPECT(found.lease == 0);
    } else {
        const uint32_t blocks[2] = {4, 5};
        EXPECT(one_of("a salted save", save_of(chaos.prompts[0], blocks, &field, &job),
                      KVT_ERR_LIMIT, 0, 0) != KVT_OK);
    }
}

static inline void random_event(void)
{
    if (chaos.event == NULL) {
        (void)one_of("event_create", kvt_cache_event_create(rig.cache, &chaos.event), 0, 0, 0);
    } else if (dice(4) == 0) {
        kvt_cache_event_destroy(rig.cache, chaos.event);
        chaos.event = NULL;
    } else if (dice(2) == 0) {
        (void)one_of("record", kvt_cache_event_record(rig.cache, chaos.event, engine.stream), 0, 0,
                     0);
    } else {
        (void)one_of("wait", kvt_cache_stream_wait(rig.cache, side, chaos.event), 0, 0, 0);
    }
}

static inline void random_fault(void)
{
    switch (dice(6)) {
    case 0:
        kvt_rig_cache_fail(&rig, 1 + dice(12), false);
        chaos.faulty = true;
        break;
    case 1:
        kvt_rig_fault(&rig, KVT_RIG_FAIL_CALL, 1 + dice(12));
        chaos.faulty = true;
        break;
    case 2:
        kvt_rig_fault(&rig, KVT_RIG_FAIL_PAGE_COPY, 1 + dice(4));
        break;
    case 3:
        atomic_fetch_add(&rig.now_ns, 20 * KVT_RIG_S);
        break;
    default:
        chaos.held = true;
        kvt_rig_fault(&rig, KVT_RIG_HOLD, 1);
        break;
    }
}

static inline void random_call(void)
{
    if (chaos.held && dice(6) == 0) {
        chaos.held = false;
        kvt_rig_fault(&rig, KVT_RIG_HOLD, 0);
    }
    switch (dice(16)) {
    case 0:
    case 1:
        random_lookup();
        break;
    case 2:
        random_release();
        break;
    case 3:
        random_report();
        break;
    case 4:
    case 5:
        random_move(false);
        break;
    case 6:
    case 7:
        random_move(true);
        break;
    case 8:
    case 9:
        random_poll(&chaos.jobs[dice(chaos.jobs_max)], chaos.held ? 0 : KVT_RIG_WAIT_NS);
        break;
    case 10:
        random_job_call(dice(2));
        break;
    case 11:
        (void)one_of("flush", dice(2) == 0 ? call_flush() : call_quiesce(), KVT_ERR_TIMEOUT, 0, 0);
        break;
    case 12:
        random_client();
        break;
    case 13:
        if (dice(8) == 0) { /* the slowest call: two threads */
            random_binding();
        } else {
            random_salted();
        }
        break;
    case 14:
        random_event();
        break;
    default:
        random_fault();
        break;
    }
}

/* Everything ends, nothing is left, and the next save and restore work. */
static inline void random_drain(void)
{
    chaos.held = chaos.faulty = false;
    kvt_rig_cache_fail(&rig, 0, false);
    kvt_rig_fault(&rig, KVT_RIG_HOLD, 0);
    kvt_rig_fault(&rig, KVT_RIG_FAIL_CALL, 0);
    kvt_rig_fault(&rig, KVT_RIG_FAIL_PAGE_COPY, 0);
    for (uint32_t i = 0; i < RANDOM_JOBS_MAX; i++) {
        random_poll(&chaos.jobs[i], KVT_RIG_WAIT_NS);
    }
    for (uint64_t id = 1; id <= 3; id++) {
        kvt_status status = kvt_cache_report(rig.cache, engine.client, id, PAGE_TOKENS + 1, 0, 1);
        EXPECT(status == KVT_OK || status == KVT_ERR_STALE || status == KVT_ERR_INVAL);
    }
    for (uint32_t i = 0; i < RANDOM_HANDLES; i++) {
        kvt_status status = kvt_cache_release(rig.cache, engine.client, chaos.leases[i].handle);
        EXPECT(status == KVT_OK || status == KVT_ERR_STALE);
        chaos.leases[i].handle = GUESS;
    }
    kvt_rig_quiesce(&rig);
}

#endif
