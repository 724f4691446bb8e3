/*
 * A cache whose pools are to run dry: one call of each kind, which gives back what it took, and
 * ways to take all of a pool and to give one entry back. For one test program; its state is here.
 */
#ifndef KVT_TEST_POOLS_WORLD_H
#define KVT_TEST_POOLS_WORLD_H

#include <check.h>
#include <string.h>

#include "kvt_engine.h"
#include "tests/support/cache_rig.h"
#include "tests/support/test_expect.h"

#define PAGE_TOKENS 16u
#define PAGE_BYTES 4096u /* of the shape below: a slot is one whole chunk */
#define NAMESPACES 4096u /* as the caveats of README.md have it */
#define GUESS UINT64_C(0x0123456700000000)
#define NO_CLIENT 77u
#define HELD_REQUEST 1u
#define OTHER_REQUEST 2u

static struct kvt_rig_cache rig;
static struct kvt_rig_engine engine;
static void *side; /* a stream that nothing else waits for */
static uint32_t known[PAGE_TOKENS + 1];
static uint32_t next_name; /* of conversations, salts and tenants not used before */
static const uint32_t restore_blocks[2] = {0, 1};
static const uint32_t save_blocks[2] = {2, 3};
static const uint32_t held_blocks[2] = {4, 5};

/* What drained the pool, and what gives an entry of it back. */
static uint64_t held_lease, held_job, held_binding;
static bool held_delivered; /* a restore of the held lease brought its page */
static uint32_t held_client;
static uint32_t held_tokens[PAGE_TOKENS + 1];
static uint64_t clients_held, bindings_held;
static uint32_t clients[KVT_CLIENTS_MAX];
static uint64_t bindings[KVT_BINDINGS_MAX];

static const struct kvt_rig_shape shape = {
    .block_tokens = 8,
    .block_count = 6,
    .region_count = 2,
    .block_bytes = {1030, 1018},
    .stride_bytes = {1031, 1100},
};

/* ---- one call of each kind; what it took it gives back ---- */

static inline void must(kvt_status status, const char *what)
{
    if (status != KVT_OK) {
        ck_abort_msg("%s answered %s", what, kvt_status_name(status));
    }
}

static inline kvt_status lookup_of(const uint32_t *tokens, uint64_t request_id,
                                   const struct kvt_cache_field *field,
                                   struct kvt_cache_found *out_found)
{
    struct kvt_cache_lookup lookup = {.client = engine.client,
                                      .request_id = request_id,
                                      .tokens = tokens,
                                      .token_count = PAGE_TOKENS + 1,
                                      .fields = field,
                                      .field_count = field != NULL};
    return kvt_cache_lookup(rig.cache, &lookup, out_found);
}

static inline kvt_status release_of(kvt_status status, uint64_t lease)
{
    if (status == KVT_OK && lease != 0) {
        kvt_rig_release(&engine, lease);
    }
    return status;
}

static inline kvt_status save_of(const uint32_t *tokens, const uint32_t *blocks,
                                 const struct kvt_cache_field *field, uint64_t *out_job)
{
    struct kvt_cache_save save = {.client = engine.client,
                                  .binding = engine.binding,
                                  .tokens = tokens,
                                  .token_count = PAGE_TOKENS,
                                  .blocks = blocks,
                                  .block_count = 2,
                                  .fields = field,
                                  .field_count = field != NULL,
                                  .stream = engine.stream};
    return kvt_cache_save(rig.cache, &save, out_job);
}

static inline kvt_status restore_of(uint64_t lease, const uint32_t *blocks, uint64_t *out_job)
{
    struct kvt_cache_restore restore = {.client = engine.client,
                                        .lease = lease,
                                        .binding = engine.binding,
                                        .token_count = PAGE_TOKENS,
                                        .blocks = blocks,
                                        .block_count = 2,
                                        .stream = engine.stream};
    return kvt_cache_restore(rig.cache, &restore, out_job);
}

static inline kvt_status call_lookup(void)
{
    struct kvt_cache_found found = {0};
    kvt_status status = lookup_of(known, 0, NULL, &found);
    EXPECT((found.lease != 0) == (status == KVT_OK));
    return release_of(status, found.lease);
}

static uint64_t named_lease;

static inline kvt_status call_lookup_named(void)
{
    struct kvt_cache_found found = {0};
    kvt_status status = lookup_of(known, OTHER_REQUEST, NULL, &found);
    EXPECT((found.lease != 0) == (status == KVT_OK));
    named_lease = found.lease;
    return status;
}

/* Of the request before; where its account could not be opened, its lease is given back by hand. */
static inline kvt_status call_report(void)
{
    kvt_status status = kvt_cache_report(rig.cache, engine.client, OTHER_REQUEST, PAGE_TOKENS + 1,
                                         0, PAGE_TOKENS + 1);
    if (named_lease != 0) {
        kvt_status left = kvt_cache_lease_check(rig.cache, engine.client, named_lease);
        EXPECT(left == (status == KVT_OK ? KVT_ERR_STALE : KVT_OK));
        (void)release_of(left, named_lease);
    }
    return status;
}

static inline struct kvt_cache_field new_salt(void)
{
    static uint32_t salt;
    salt = ++next_name;
    return (struct kvt_cache_field){.tag = KVT_FIELD_SALT, .data = &salt, .bytes = sizeof(salt)};
}

static inline kvt_status call_lookup_salted(void)
{
    struct kvt_cache_field field = new_salt();
    struct kvt_cache_found found = {.lease = 1};
    kvt_status status = lookup_of(known, 0, &field, &found);
    EXPECT(status != KVT_OK || (found.lease == 0 && found.matched_tokens == 0));
    return status;
}

static inline kvt_status call_restore(void)
{
    struct kvt_cache_found found = {.lease = held_lease};
    uint64_t job = 0;
    kvt_status status = held_lease != 0 ? KVT_OK : lookup_of(known, 0, NULL, &found);
    if (status != KVT_OK) {
        return status;
    }
    kvt_rig_wipe(&engine, restore_blocks, 2);
    status = restore_of(found.lease, restore_blocks, &job);
    EXPECT((job != 0) == (status == KVT_OK));
    if (status == KVT_OK) {
        struct kvt_cache_result result = kvt_rig_finish(&engine, job);
        status = result.status;
        EXPECT(result.tokens_good == (status == KVT_OK ? PAGE_TOKENS : 0));
        /* Of a job that fell short the bytes may be there all the same. */
        EXPECT(status != KVT_OK || kvt_rig_good_pages(&engine, known, 0, 1, restore_blocks) == 1);
        held_delivered = held_delivered || (held_lease != 0 && status == KVT_OK);
    } else {
        EXPECT(kvt_rig_untouched(&engine, restore_blocks, 2));
    }
    if (held_lease == 0) {
        kvt_rig_release(&engine, found.lease);
    }
    return status;
}

/* A refusal, or what became of the job. */
static inline kvt_status save_result(const uint32_t *tokens, const struct kvt_cache_field *field)
{
    uint64_t job = 0;
    kvt_rig_paint(&engine, tokens, 0, 1, save_blocks);
    kvt_status status = save_of(tokens, save_blocks, field, &job);
    EXPECT((job != 0) == (status == KVT_OK));
    if (status == KVT_OK) {
        struct kvt_cache_result result = kvt_rig_finish(&engine, job);
        status = result.status;
        EXPECT(result.tokens_good == (status == KVT_OK ? PAGE_TOKENS : 0));
    }
    return status;
}

static inline kvt_status call_save(void)
{
    uint32_t fresh[PAGE_TOKENS + 1];
    kvt_rig_tokens(fresh, 0, PAGE_TOKENS + 1, ++next_name);
    return save_result(fresh, NULL);
}

static inline kvt_status call_save_known(void) { return save_result(known, NULL); }

static inline kvt_status call_save_salted(void)
{
    struct kvt_cache_field field = new_salt();
    return save_result(known, &field);
}

static inline kvt_status call_poll(void)
{
    struct kvt_cache_result result = {.done = 7};
    kvt_status status =
        kvt_cache_poll(rig.cache, engine.client, held_job != 0 ? held_job : GUESS, 0, &result);
    EXPECT(result.done == (status == KVT_OK ? 0 : 7));
    return status;
}

static inline kvt_status call_wait_region(void)
{
    return kvt_cache_wait_region(rig.cache, engine.client, held_job != 0 ? held_job : GUESS, 1,
                                 side);
}

static inline kvt_status call_cancel(void)
{
    return kvt_cache_cancel(rig.cache, engine.client, held_job != 0 ? held_job : GUESS);
}

static inline kvt_status call_release(void)
{
    return kvt_cache_release(rig.cache, engine.client, GUESS);
}

static inline kvt_status call_flush(void) { return kvt_cache_flush(rig.cache, 0); }
static inline kvt_status call_quiesce(void) { return kvt_cache_quiesce(rig.cache, 0); }

static inline kvt_status open_client(const void *tenant, size_t tenant_bytes, uint32_t *out_client)
{
    char why[256] = "";
    kvt_status status = kvt_cache_client_open(rig.cache, tenant, tenant_bytes, NULL, 0, NULL, 0,
                                              out_client, why, sizeof(why));
    EXPECT((why[0] != '\0') == (status != KVT_OK));
    return status;
}

static inline kvt_status call_open(void)
{
    uint32_t client = 0;
    kvt_status status = open_client("tenant", 6, &client);
    if (status == KVT_OK) {
        must(kvt_cache_client_close(rig.cache, client), "client_close");
    }
    return status;
}

static inline kvt_status call_open_tenant(void)
{
    uint32_t client = 0;
    uint32_t name = ++next_name;
    kvt_status status = open_client(&name, sizeof(name), &client);
    if (status == KVT_OK) {
        must(kvt_cache_client_close(rig.cache, client), "client_close");
    }
    return status;
}

static inline kvt_status call_close(void) { return kvt_cache_client_close(rig.cache, NO_CLIENT); }

static inline kvt_status bind_engine(uint64_t *out_binding)
{
    char why[256] = "";
    kvt_status status =
        kvt_cache_bind(rig.cache, engine.client, engine.regions, shape.region_count,
                       shape.block_tokens, shape.block_count, out_binding, why, sizeof(why));
    EXPECT((why[0] != '\0') == (status != KVT_OK));
    return status;
}

static inline kvt_status call_bind(void)
{
    uint64_t binding = 0;
    kvt_status status = bind_engine(&binding);
    if (status == KVT_OK) {
        must(kvt_cache_unbind(rig.cache, engine.client, binding), "unbind");
    }
    return status;
}

/* With a job that runs, of the binding that it uses. */
static inline kvt_status call_unbind(void)
{
    return kvt_cache_unbind(rig.cache, engine.client, held_job != 0 ? engine.binding : GUESS);
}

static inline kvt_status call_destroy(void) { return kvt_cache_destroy(rig.cache); }

static inline kvt_status call_stream(void)
{
    void *stream = NULL;
    kvt_status status = kvt_cache_stream_create(rig.cache, &stream);
    if (status == KVT_OK) {
        kvt_cache_stream_destroy(rig.cache, stream);
    }
    return status;
}

static inline void count_one(void *count) { atomic_fetch_add((_Atomic uint32_t *)count, 1); }

static inline kvt_status call_enqueue(void)
{
    _Atomic uint32_t count = 0;
    kvt_status status = kvt_cache_stream_enqueue(rig.cache, engine.stream, count_one, &count);
    kvt_rig_sync(&rig, engine.stream);
    EXPECT(atomic_load(&count) == (status == KVT_OK));
    return status;
}

static inline kvt_status call_event(void)
{
    void *event = NULL;
    kvt_status status = kvt_cache_event_create(rig.cache, &event);
    if (status == KVT_OK) {
        status = kvt_cache_event_record(rig.cache, event, engine.stream);
        if (status == KVT_OK) {
            status = kvt_cache_stream_wait(rig.cache, engine.stream, event);
        }
        kvt_cache_event_destroy(rig.cache, event);
    }
    return status;
}

/* In the order in which they are made; cancel ends the job that others ask about. */
enum call {
    OPEN,
    OPEN_TENANT,
    BIND,
    LOOKUP,
    LOOKUP_NAMED,
    REPORT,
    LOOKUP_SALTED,
    RESTORE,
    SAVE,
    SAVE_KNOWN,
    SAVE_SALTED,
    POLL,
    WAIT_REGION,
    RELEASE,
    FLUSH,
    QUIESCE,
    STREAM,
    ENQUEUE,
    EVENT,
    UNBIND,
    CLOSE,
    DESTROY,
    CANCEL,
    CALLS
};

static const struct {
    const char *name;
    kvt_status (*run)(void);
    kvt_status answer; /* while no pool is dry, and no job runs */
} calls[CALLS] = {
    [OPEN] = {"open", call_open, KVT_OK},
    [OPEN_TENANT] = {"open a new tenant", call_open_tenant, KVT_OK},
    [BIND] = {"bind", call_bind, KVT_OK},
    [LOOKUP] = {"lookup", call_lookup, KVT_OK},
    [LOOKUP_NAMED] = {"lookup with a request id", call_lookup_named, KVT_OK},
    [REPORT] = {"report", call_report, KVT_OK},
    [LOOKUP_SALTED] = {"lookup with a new salt", call_lookup_salted, KVT_OK},
    [RESTORE] = {"restore", call_restore, KVT_OK},
    [SAVE] = {"save", call_save, KVT_OK},
    [SAVE_KNOWN] = {"save what is known", call_save_known, KVT_OK},
    [SAVE_SALTED] = {"save with a new salt", call_save_salted, KVT_OK},
    [POLL] = {"poll", call_poll, KVT_ERR_STALE},
    [WAIT_REGION] = {"wait_region", call_wait_region, KVT_ERR_STALE},
    [RELEASE] = {"release", call_release, KVT_ERR_STALE},
    [FLUSH] = {"flush", call_flush, KVT_OK},
    [QUIESCE] = {"quiesce", call_quiesce, KVT_OK},
    [STREAM] = {"stream_create", call_stream, KVT_OK},
    [ENQUEUE] = {"stream_enqueue", call_enqueue, KVT_OK},
    [EVENT] = {"event_create, record, wait", call_event, KVT_OK},
    [UNBIND] = {"unbind", call_unbind, KVT_ERR_STALE},
    [CLOSE] = {"close", call_close, KVT_ERR_STALE},
    [DESTROY] = {"destroy", call_destroy, KVT_ERR_BUSY},
    [CANCEL] = {"cancel", call_cancel, KVT_ERR_STALE},
};

/* ---- draining, and giving one entry back ---- */

static inline void hold_lease(void)
{
    struct kvt_cache_found found = {0};
    must(lookup_of(known, 0, NULL, &found), "lookup");
    held_lease = found.lease;
}

static inline void give_lease(void)
{
    kvt_rig_release(&engine, held_lease);
    held_lease = 0;
}

static inline void hold_request(void)
{
    struct kvt_cache_found found = {0};
    must(lookup_of(known, HELD_REQUEST, NULL, &found), "lookup");
    held_lease = found.lease;
}

static inline void give_request(void)
{
    uint64_t computed = held_delivered ? 1 : PAGE_TOKENS + 1;
    kvt_rig_report(&engine, HELD_REQUEST, PAGE_TOKENS + 1, 0, computed);
    held_lease = 0;
}

static inline void hold_restore(void)
{
    if (held_lease == 0) {
        hold_lease();
    }
    kvt_rig_fault(&rig, KVT_RIG_HOLD, 1);
    must(restore_of(held_lease, held_blocks, &held_job), "restore");
}

static inline void hold_save(void)
{
    kvt_rig_tokens(held_tokens, 0, PAGE_TOKENS + 1, ++next_name);
    kvt_rig_paint(&engine, held_tokens, 0, 1, held_blocks);
    kvt_rig_fault(&rig, KVT_RIG_HOLD, 1);
    must(save_of(held_tokens, held_blocks, NULL, &held_job), "save");
}

static inline void give_job(void)
{
    kvt_rig_fault(&rig, KVT_RIG_HOLD, 0);
    struct kvt_cache_result result = kvt_rig_finish(&engine, held_job);
    ck_assert_int_eq(result.status, KVT_ERR_CANCELLED); /* the last call of the table */
    held_job = 0;
    if (held_lease != 0) {
        give_lease();
    }
}

static inline void hold_clients(void)
{
    while (open_client("tenant", 6, &held_client) == KVT_OK) {
        clients[clients_held++] = held_client;
    }
    ck_assert_uint_eq(clients_held, KVT_CLIENTS_MAX - 1);
}

static inline void give_client(void)
{
    must(kvt_cache_client_close(rig.cache, clients[--clients_held]), "client_close");
}

static inline void hold_bindings(void)
{
    while (bind_engine(&held_binding) == KVT_OK) {
        bindings[bindings_held++] = held_binding;
    }
    ck_assert_uint_eq(bindings_held, KVT_BINDINGS_MAX - 1);
}

static inline void give_binding(void)
{
    must(kvt_cache_unbind(rig.cache, engine.client, bindings[--bindings_held]), "unbind");
}

static inline void hold_namespaces(void)
{
    uint32_t lines = atomic_load(&rig.log_lines);
    for (uint32_t i = 0; i < NAMESPACES; i++) {
        must(call_lookup_salted(), "lookup");
    }
    ck_assert_uint_eq(kvt_rig_stats(&rig).namespaces, NAMESPACES);
    ck_assert_uint_eq(atomic_load(&rig.log_lines), lines + 1); /* one warning for all misses */
}

static inline void hold_memory(void)
{
    hold_restore();
    kvt_rig_cache_fail(&rig, 1, true);
}

static inline void give_memory(void)
{
    kvt_rig_cache_fail(&rig, 0, false);
    give_job();
}

static inline void hold_all(void)
{
    hold_request();
    hold_clients();
    hold_bindings();
    hold_namespaces();
    hold_restore();
}

static inline void give_all(void)
{
    kvt_rig_fault(&rig, KVT_RIG_HOLD, 0);
    ck_assert_int_eq(kvt_rig_finish(&engine, held_job).status, KVT_ERR_CANCELLED);
    held_job = 0;
    give_request();
    give_client();
    give_binding();
}

#endif
