/* Every pool of the cache as small as it can be, and dry: each call answers what is promised,
 * nothing leaks, the limit is counted, and when one entry comes back the next call works. One pool
 * at a time, all of them together, and 20,000 calls at random. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/plugin_rig.h"
#include "tests/support/pools_random.h"
#include "tests/support/pools_world.h"

/* ---- the table ---- */

static void small_leases(void) { rig.config.leases_max = 1; }
static void small_jobs(void) { rig.config.jobs_max = 1; }
static void small_requests(void) { rig.config.requests_max = 1; }
static void small_ghosts(void) { rig.config.ghosts_max = 1; }
static void small_pages(void) { rig.config.pages_max = 1; }
static void small_hbm(void) { rig.config.hbm_bytes = PAGE_BYTES, rig.config.host_bytes = 0; }
static void small_host(void) { rig.config.hbm_bytes = 0, rig.config.host_bytes = PAGE_BYTES; }
static void small_nothing(void) {}
static void small_all(void)
{
    small_leases();
    small_jobs();
    small_requests();
    small_ghosts();
    small_pages();
    small_hbm();
}

/* Two of each, in host memory: jobs beside each other. */
static void small_twos(void)
{
    rig.config.leases_max = 2;
    rig.config.jobs_max = 2;
    rig.config.requests_max = 2;
    rig.config.pages_max = 2;
    rig.config.hbm_bytes = 0;
    rig.config.host_bytes = (uint64_t)2 * PAGE_BYTES;
    small_ghosts();
}

#define DIFFERS_MAX 16u
struct pool {
    const char *name;
    void (*make_small)(void);
    void (*drain)(void);
    void (*refill)(void); /* NULL: nothing comes back, or nothing ran dry */
    size_t counter;       /* in struct kvt_cache_stats, of how often the limit was hit */
    struct {
        enum call call;
        kvt_status answer;
        bool counts;
    } differs[DIFFERS_MAX]; /* from `calls`; ends where the same call comes again */
    uint32_t differ_count;
};

#define COUNTER(member) offsetof(struct kvt_cache_stats, member)
#define NO_COUNTER SIZE_MAX
#define ALL_COUNTERS (SIZE_MAX - 1)

#define OF_A_JOB                                                                                   \
    {POLL, KVT_OK, false}, {WAIT_REGION, KVT_OK, false}, {CANCEL, KVT_OK, false},                  \
        {QUIESCE, KVT_ERR_TIMEOUT, false},                                                         \
    {                                                                                              \
        UNBIND, KVT_ERR_BUSY, false                                                                \
    }
#define NO_MORE_JOBS                                                                               \
    {RESTORE, KVT_ERR_AGAIN, true}, {SAVE, KVT_ERR_AGAIN, true},                                   \
        {SAVE_KNOWN, KVT_ERR_AGAIN, true},                                                         \
    {                                                                                              \
        SAVE_SALTED, KVT_ERR_AGAIN, true                                                           \
    }
#define NO_MORE_ROOM                                                                               \
    {SAVE, KVT_ERR_LIMIT, true}, { SAVE_SALTED, KVT_ERR_LIMIT, true }

static const struct pool pools[] = {
    {"nothing dry", small_nothing, small_nothing, NULL, ALL_COUNTERS, {{0}}, 0},
    {"leases",
     small_leases,
     hold_lease,
     give_lease,
     COUNTER(limit_leases_hit),
     {{LOOKUP, KVT_ERR_AGAIN, true},
      {LOOKUP_NAMED, KVT_ERR_AGAIN, true},
      {SAVE, KVT_ERR_AGAIN, true},
      {SAVE_SALTED, KVT_ERR_AGAIN, true}},
     4},
    {"jobs, by a restore",
     small_jobs,
     hold_restore,
     give_job,
     COUNTER(limit_jobs_hit),
     {OF_A_JOB, NO_MORE_JOBS},
     9},
    {"jobs, by a save",
     small_jobs,
     hold_save,
     give_job,
     COUNTER(limit_jobs_hit),
     {OF_A_JOB, NO_MORE_JOBS, {FLUSH, KVT_ERR_TIMEOUT, false}},
     10},
    {"requests",
     small_requests,
     hold_request,
     give_request,
     COUNTER(limit_requests_hit),
     {{LOOKUP_NAMED, KVT_OK, true}, {REPORT, KVT_ERR_STALE, false}},
     2},
    {"clients",
     small_nothing,
     hold_clients,
     give_client,
     NO_COUNTER,
     {{OPEN, KVT_ERR_LIMIT, false}, {OPEN_TENANT, KVT_ERR_LIMIT, false}},
     2},
    {"bindings",
     small_nothing,
     hold_bindings,
     give_binding,
     NO_COUNTER,
     {{BIND, KVT_ERR_LIMIT, false}},
     1},
    {"namespaces",
     small_nothing,
     hold_namespaces,
     NULL,
     NO_COUNTER,
     {{OPEN_TENANT, KVT_ERR_LIMIT, false}, {SAVE_SALTED, KVT_ERR_LIMIT, false}},
     2},
    {"index pages",
     small_pages,
     hold_lease,
     give_lease,
     COUNTER(limit_pages_hit),
     {NO_MORE_ROOM},
     2},
    {"hbm slots",
     small_hbm,
     hold_lease,
     give_lease,
     COUNTER(not_admitted_pages),
     {NO_MORE_ROOM},
     2},
    {"host slots",
     small_host,
     hold_lease,
     give_lease,
     COUNTER(not_admitted_pages),
     {NO_MORE_ROOM},
     2},
    {"ghosts", small_ghosts, small_nothing, NULL, ALL_COUNTERS, {{0}}, 0},
    /* Streams, events and the entries of their queues are as many as there is memory for. */
    {"memory: streams, events, queue entries",
     small_nothing,
     hold_memory,
     give_memory,
     NO_COUNTER,
     {{OPEN, KVT_ERR_NOMEM, false},
      {OPEN_TENANT, KVT_ERR_NOMEM, false},
      {BIND, KVT_ERR_NOMEM, false},
      {RESTORE, KVT_ERR_NOMEM, false},
      {SAVE, KVT_ERR_NOMEM, false},
      {SAVE_SALTED, KVT_ERR_NOMEM, false},
      {POLL, KVT_OK, false},
      {WAIT_REGION, KVT_ERR_NOMEM, false},
      {QUIESCE, KVT_ERR_TIMEOUT, false},
      {STREAM, KVT_ERR_NOMEM, false},
      {ENQUEUE, KVT_ERR_NOMEM, false},
      {EVENT, KVT_ERR_NOMEM, false},
      {UNBIND, KVT_ERR_BUSY, false},
      {CANCEL, KVT_OK, false}},
     14},
    {"all of them",
     small_all,
     hold_all,
     give_all,
     ALL_COUNTERS,
     {OF_A_JOB,
      {OPEN, KVT_ERR_LIMIT, false},
      {OPEN_TENANT, KVT_ERR_LIMIT, false},
      {BIND, KVT_ERR_LIMIT, false},
      {LOOKUP, KVT_ERR_AGAIN, true},
      {LOOKUP_NAMED, KVT_ERR_AGAIN, true},
      {REPORT, KVT_ERR_STALE, false},
      {RESTORE, KVT_ERR_AGAIN, true},
      {SAVE, KVT_ERR_AGAIN, true},
      {SAVE_KNOWN, KVT_ERR_AGAIN, true},
      {SAVE_SALTED, KVT_ERR_LIMIT, false}},
     15},
};
#define POOLS ((int)(sizeof(pools) / sizeof(pools[0])))
/* For calls at random, which drain it themselves. */
static const struct pool twos = {.name = "two of each", .make_small = small_twos};

static uint64_t hits(const struct pool *pool)
{
    struct kvt_cache_stats stats = kvt_rig_stats(&rig);
    if (pool->counter == NO_COUNTER || pool->counter == ALL_COUNTERS) {
        return stats.limit_leases_hit + stats.limit_jobs_hit + stats.limit_requests_hit +
               stats.limit_pages_hit + stats.not_admitted_pages;
    }
    uint64_t count = 0;
    memcpy(&count, (const unsigned char *)&stats + pool->counter, sizeof(count));
    return count;
}

static void world_open(const struct pool *pool)
{
    kvt_rig_cache_init(&rig);
    pool->make_small();
    kvt_rig_cache_open(&rig);
    kvt_rig_engine_open(&engine, &rig, &shape, "tenant");
    side = kvt_rig_stream(&rig);
    held_lease = held_job = 0;
    held_delivered = false;
    clients_held = bindings_held = 0;
    next_name = 1000;
    kvt_rig_tokens(known, 0, PAGE_TOKENS + 1, 1);
    kvt_rig_put(&engine, known, 1);
}

/* Whatever is held is left to the cache's own ends: of its job, its client, itself. */
static void world_close(void)
{
    kvt_rig_fault(&rig, KVT_RIG_HOLD, 0);
    kvt_rig_quiesce(&rig);
    while (bindings_held > 0) {
        give_binding();
    }
    while (clients_held > 0) {
        give_client();
    }
    kvt_cache_stream_destroy(rig.cache, side);
    kvt_rig_engine_close(&engine);
    kvt_rig_cache_close(&rig);
}

/* A refusal keeps nothing; but a namespace, once named, stays. A stream gives an entry back a
 * moment after it has run. */
static void expect_no_leak(const char *pool, const char *call, int64_t blocks, int64_t bytes)
{
    for (uint32_t i = 0; i < 10000 && atomic_load(&rig.live_blocks) > blocks; i++) {
        kvt_rig_sleep(KVT_RIG_MS);
    }
    if (atomic_load(&rig.live_blocks) > blocks || atomic_load(&rig.live_bytes) > bytes) {
        ck_abort_msg("%s: %s keeps %lld blocks, %lld bytes", pool, call,
                     (long long)(atomic_load(&rig.live_blocks) - blocks),
                     (long long)(atomic_load(&rig.live_bytes) - bytes));
    }
}

static void drive(const struct pool *pool)
{
    for (uint32_t i = 0; i < CALLS; i++) {
        kvt_status answer = calls[i].answer;
        bool counts = false;
        for (uint32_t k = 0; k < pool->differ_count; k++) {
            if (pool->differs[k].call == (enum call)i) {
                answer = pool->differs[k].answer;
                counts = pool->differs[k].counts;
            }
        }
        int64_t blocks = atomic_load(&rig.live_blocks), bytes = atomic_load(&rig.live_bytes);
        uint64_t before = hits(pool), namespaces = kvt_rig_stats(&rig).namespaces;
        kvt_status got = calls[i].run();
        if (got != answer) {
            ck_abort_msg("%s: %s answered %s and not %s", pool->name, calls[i].name,
                         kvt_status_name(got), kvt_status_name(answer));
        }
        if ((hits(pool) > before) != counts) {
            ck_abort_msg("%s: after %s the counter is %llu, and was %llu", pool->name,
                         calls[i].name, (unsigned long long)hits(pool), (unsigned long long)before);
        }
        if (got != KVT_OK && kvt_rig_stats(&rig).namespaces == namespaces) {
            expect_no_leak(pool->name, calls[i].name, blocks, bytes);
        }
        kvt_rig_check(&rig);
    }
}

/* The next save and restore work, byte for byte; and a wrong page would be noticed. */
static void moves_again(void)
{
    uint32_t fresh[PAGE_TOKENS + 1], other[PAGE_TOKENS + 1];
    kvt_rig_tokens(fresh, 0, PAGE_TOKENS + 1, ++next_name);
    kvt_rig_tokens(other, 0, PAGE_TOKENS + 1, ++next_name);
    ck_assert_int_eq(save_result(fresh, NULL), KVT_OK);
    ck_assert_uint_eq(kvt_rig_get(&engine, fresh, PAGE_TOKENS + 1), 1);
    EXPECT(kvt_rig_good_pages(&engine, fresh, 0, 1, restore_blocks) == 1);
    EXPECT(kvt_rig_good_pages(&engine, other, 0, 1, restore_blocks) == 0);
    engine.memory[1][shape.stride_bytes[1] + shape.block_bytes[1] - 1] ^= 1;
    EXPECT(kvt_rig_good_pages(&engine, fresh, 0, 1, restore_blocks) == 0);
    (void)kvt_rig_lookup(&engine, OTHER_REQUEST, fresh, PAGE_TOKENS + 1, 0);
    kvt_rig_report(&engine, OTHER_REQUEST, PAGE_TOKENS + 1, 0, PAGE_TOKENS + 1);
}

static void works_again(void)
{
    moves_again();
    ck_assert_int_eq(call_open(), KVT_OK);
    ck_assert_int_eq(call_bind(), KVT_OK);
    ck_assert_int_eq(call_stream(), KVT_OK);
    ck_assert_int_eq(call_event(), KVT_OK);
}

START_TEST(dry_and_back)
{
    const struct pool *pool = &pools[_i];
    world_open(pool);
    pool->drain();
    drive(pool);
    if (pool->refill != NULL) {
        pool->refill();
    }
    works_again();
    ck_assert_uint_eq(kvt_rig_stats(&rig).conservation_breaks, 0);
    world_close();
}
END_TEST

/* The last ends too while the pool is dry. */
START_TEST(closed_while_dry)
{
    const struct pool *pool = &pools[_i];
    world_open(pool);
    pool->drain();
    drive(pool);
    world_close();
}
END_TEST

/* ---- the k-th entry that cannot be had ---- */

#define STRIKES_MAX 200u

/* Queue entries of the device come from memory and have no limit of their own. So: the k-th
 * allocation of a call fails, then the k-th enqueueing, for every k that the call gets to. */
START_TEST(the_kth_entry)
{
    static const enum call struck[] = {OPEN, BIND, LOOKUP, RESTORE, SAVE, STREAM, ENQUEUE, EVENT};
    bool of_memory = _i % 2 == 0;
    enum call call = struck[_i / 2];
    const kvt_status refusal = of_memory ? KVT_ERR_NOMEM : KVT_ERR_DEVICE;
    uint32_t refused = 0, spared = 0;
    world_open(&pools[0]);
    for (uint32_t k = 1; k < STRIKES_MAX && spared < 3; k++) {
        kvt_rig_quiesce(&rig);
        if (of_memory) {
            kvt_rig_cache_fail(&rig, k, false);
        } else {
            kvt_rig_fault(&rig, KVT_RIG_FAIL_CALL, k);
        }
        kvt_status status = calls[call].run();
        kvt_rig_cache_fail(&rig, 0, false);
        kvt_rig_fault(&rig, KVT_RIG_FAIL_CALL, 0);
        if (status != KVT_OK && status != refusal) {
            ck_abort_msg("%s, k = %u: %s", calls[call].name, k, kvt_status_name(status));
        }
        refused += status != KVT_OK;
        spared += status == KVT_OK;
        kvt_rig_quiesce(&rig);
        kvt_rig_idle(&rig);
        kvt_rig_check(&rig);
        moves_again();
    }
    ck_assert_uint_eq(spared, 3);
    bool enqueues = call == RESTORE || call == SAVE || call == ENQUEUE || call == EVENT;
    ck_assert_int_eq(refused > 0, call != LOOKUP && (of_memory || enqueues));
    world_close();
}
END_TEST

/* ---- streams and events, as engines get them ---- */

#define STREAMS 64u
#define EVENTS 256u

static struct kvt_plug plug;
static struct kvt_plug_engine bound;

static kvt_status abi_stream(void)
{
    void *stream = NULL;
    kvt_status status = bound.streams->stream_create(bound.engine, &stream);
    EXPECT((stream != NULL) == (status == KVT_OK));
    if (status == KVT_OK) {
        bound.streams->stream_destroy(bound.engine, stream);
    }
    return status;
}

static kvt_status abi_event(void)
{
    void *event = NULL;
    kvt_status status = bound.streams->event_create(bound.engine, &event);
    EXPECT((event != NULL) == (status == KVT_OK));
    if (status == KVT_OK) {
        status = bound.streams->record(bound.engine, event, bound.stream);
        if (status == KVT_OK) {
            status = bound.streams->wait(bound.engine, bound.stream, event);
        }
        bound.streams->event_destroy(bound.engine, event);
    }
    return status;
}

static kvt_status abi_enqueue(void)
{
    _Atomic uint32_t count = 0;
    kvt_status status = bound.streams->enqueue(bound.engine, bound.stream, count_one, &count);
    EXPECT(bound.streams->sync(bound.engine, bound.stream, KVT_RIG_WAIT_NS) == KVT_OK);
    EXPECT(atomic_load(&count) == (status == KVT_OK));
    return status;
}

static void abi_strike(kvt_status (*call)(void))
{
    uint64_t k = 1;
    for (;; k++) {
        kvt_rig_cache_fail(&plug.memory, k, false);
        kvt_status status = call();
        kvt_rig_cache_fail(&plug.memory, 0, false);
        if (status == KVT_OK) {
            break;
        }
        ck_assert_int_eq(status, KVT_ERR_NOMEM);
        ck_assert_uint_lt(k, STRIKES_MAX);
    }
    ck_assert_uint_gt(k, 1); /* something was refused */
    kvt_rig_cache_fail(&plug.memory, 1, true);
    ck_assert_int_eq(call(), KVT_ERR_NOMEM);
    kvt_rig_cache_fail(&plug.memory, 0, false);
    ck_assert_int_eq(call(), KVT_OK);
}

START_TEST(streams_and_events)
{
    uint32_t tokens[PAGE_TOKENS + 1];
    void *streams[STREAMS], *events[EVENTS];
    _Atomic uint32_t count = 0;
    kvt_plug_init(&plug);
    kvt_plug_open(&bound, &plug);
    kvt_engine *e = bound.engine;
    abi_strike(abi_stream);
    abi_strike(abi_event);
    abi_strike(abi_enqueue);
    for (uint32_t i = 0; i < STREAMS; i++) {
        ck_assert_int_eq(bound.streams->stream_create(e, &streams[i]), KVT_OK);
    }
    for (uint32_t i = 0; i < EVENTS; i++) {
        void *from = streams[i % STREAMS], *to = streams[(i + 1) % STREAMS];
        ck_assert_int_eq(bound.streams->event_create(e, &events[i]), KVT_OK);
        ck_assert_int_eq(bound.streams->enqueue(e, from, count_one, &count), KVT_OK);
        ck_assert_int_eq(bound.streams->record(e, events[i], from), KVT_OK);
        ck_assert_int_eq(bound.streams->wait(e, to, events[i]), KVT_OK);
    }
    ck_assert_int_eq(bound.streams->sync(e, streams[EVENTS % STREAMS], KVT_RIG_WAIT_NS), KVT_OK);
    ck_assert_int_eq(plug.entry->quiesce(e, KVT_RIG_WAIT_NS), KVT_OK);
    ck_assert_int_eq(plug.entry->close(e), KVT_ERR_BUSY);
    for (uint32_t i = 0; i < EVENTS; i++) {
        bound.streams->event_destroy(e, events[i]);
    }
    for (uint32_t i = 0; i < STREAMS; i++) {
        bound.streams->stream_destroy(e, streams[i]);
    }
    ck_assert_uint_eq(atomic_load(&count), EVENTS);
    kvt_rig_tokens(tokens, 0, PAGE_TOKENS + 1, 1);
    kvt_plug_put(&bound, tokens, 1);
    ck_assert_uint_eq(kvt_plug_get(&bound, tokens, PAGE_TOKENS + 1), 1);
    kvt_plug_close(&bound);
    kvt_plug_fini(&plug);
}
END_TEST

/* ---- at random ---- */

START_TEST(at_random)
{
    memset(&chaos, 0, sizeof(chaos));
    chaos.random = test_random_start("pools", 20261201);
    chaos.jobs_max = 1 + (uint32_t)_i;
    world_open(_i == 0 ? &pools[POOLS - 1] : &twos);
    for (uint32_t i = 0; i < RANDOM_PROMPTS; i++) {
        kvt_rig_tokens(chaos.prompts[i], 0, PAGE_TOKENS + 1, 1 + i);
    }
    hold_clients();
    hold_bindings();
    hold_namespaces();
    for (uint32_t i = 1; i <= RANDOM_CALLS; i++) {
        random_call();
        if (i % RANDOM_DRAIN_EVERY == 0) {
            random_drain();
            kvt_rig_idle(&rig);
            kvt_rig_check(&rig);
            moves_again();
        }
    }
    random_drain();
    (void)printf("%llu restored, %llu saved;", (unsigned long long)chaos.restored,
                 (unsigned long long)chaos.saved);
    static const kvt_status seen[] = {KVT_OK,          KVT_ERR_AGAIN,     KVT_ERR_STALE,
                                      KVT_ERR_LIMIT,   KVT_ERR_NOMEM,     KVT_ERR_DEVICE,
                                      KVT_ERR_TIMEOUT, KVT_ERR_CANCELLED, KVT_ERR_IO};
    for (size_t i = 0; i < sizeof(seen) / sizeof(seen[0]); i++) {
        (void)printf(" %s %llu", kvt_status_name(seen[i]),
                     (unsigned long long)chaos.answers[-seen[i]]);
        ck_assert_uint_gt(chaos.answers[-seen[i]], 0);
    }
    (void)printf("\n");
    ck_assert_uint_gt(chaos.restored, 0);
    ck_assert_uint_gt(chaos.saved, 0);
    if (chaos.event != NULL) {
        kvt_cache_event_destroy(rig.cache, chaos.event);
    }
    world_close();
}
END_TEST

int main(void)
{
    kvt_plug_load();
    Suite *suite = suite_create("pools");
    TCase *tcase = tcase_create("pools");
    tcase_set_timeout(tcase, 0);
    tcase_add_loop_test(tcase, dry_and_back, 0, POOLS);
    tcase_add_loop_test(tcase, closed_while_dry, 0, POOLS);
    tcase_add_loop_test(tcase, the_kth_entry, 0, 16);
    tcase_add_test(tcase, streams_and_events);
    tcase_add_loop_test(tcase, at_random, 0, 2);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
