/* What callers get wrong: a status, a sentence that names it, and nothing changed. */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/cache_rig.h"
#include "tests/support/test_expect.h"

#define BLOCKS 8u
#define TOKENS 64u

static struct kvt_rig_cache rig;
static struct kvt_rig_engine engine;
static uint32_t tokens[TOKENS + 1];
static uint32_t blocks[BLOCKS];
static char why[512];

static void rig_open(void)
{
    kvt_rig_cache_init(&rig);
    kvt_rig_cache_open(&rig);
    kvt_rig_engine_open(&engine, &rig, &kvt_rig_shape_default, "tenant");
    kvt_rig_tokens(tokens, 0, TOKENS + 1, 1);
    kvt_rig_blocks(blocks, 0, BLOCKS);
}

static void rig_close(void)
{
    kvt_rig_engine_close(&engine);
    kvt_rig_cache_close(&rig);
}

/* The sentence names what was wrong. */
static void said(kvt_status got, kvt_status want, const char *name)
{
    if (got != want || strstr(why, name) == NULL) {
        ck_abort_msg("%s and not %s; '%s' does not name '%s'", kvt_status_name(got),
                     kvt_status_name(want), why, name);
    }
    why[0] = '\0';
}

/* ---- create ---- */

static void create_refused(struct kvt_rig_cache *bad, const char *name)
{
    struct kvt_cache *none = NULL;
    said(kvt_cache_create(&bad->config, &none, why, sizeof(why)), KVT_ERR_INVAL, name);
    ck_assert_ptr_null(none);
    ck_assert_int_eq(kvt_cache_create(&bad->config, &none, NULL, 0), KVT_ERR_INVAL);
    ck_assert_int_eq(atomic_load(&bad->live_blocks), 0);
    kvt_rig_cache_init(bad);
}

START_TEST(bad_configs)
{
    struct kvt_rig_cache bad;
    struct kvt_cache *none = NULL;
    kvt_rig_cache_init(&bad);
    said(kvt_cache_create(NULL, &none, why, sizeof(why)), KVT_ERR_INVAL, "config");
    said(kvt_cache_create(&bad.config, NULL, why, sizeof(why)), KVT_ERR_INVAL, "NULL");
    bad.config.page_tokens = KVT_PAGE_TOKENS_MAX + 1;
    create_refused(&bad, "4097");
    bad.config.hbm_bytes = bad.config.host_bytes = 0;
    create_refused(&bad, "budgets");
    bad.config.hbm_bytes = 4095;
    create_refused(&bad, "hbm");
    bad.config.host_bytes = 1;
    create_refused(&bad, "host");
    bad.config.evict_policy = "mru";
    create_refused(&bad, "mru");
    bad.config.pages_max = (1u << 30) + 1;
    create_refused(&bad, "pages_max");
    bad.config.leases_max = UINT32_MAX;
    create_refused(&bad, "leases_max");
    bad.config.jobs_max = UINT32_MAX;
    create_refused(&bad, "jobs_max");
    bad.config.requests_max = UINT32_MAX;
    create_refused(&bad, "requests_max");
    bad.config.ghosts_max = UINT32_MAX;
    create_refused(&bad, "ghosts_max");
    bad.hooks.resize = NULL;
    create_refused(&bad, "memory");
    struct kvt_cache_memory nothing = {0};
    bad.config.index_memory = &nothing;
    create_refused(&bad, "memory");
    /* A sentence that does not fit is cut, and terminated. */
    char few[8];
    memset(few, 'x', sizeof(few));
    bad.config.evict_policy = "mru";
    ck_assert_int_eq(kvt_cache_create(&bad.config, &none, few, sizeof(few)), KVT_ERR_INVAL);
    ck_assert_uint_eq(strlen(few), sizeof(few) - 1);
    /* The control, and everything left to its default. */
    struct kvt_cache_config least = {.hbm_bytes = 4096};
    ck_assert_int_eq(kvt_cache_create(&least, &none, why, sizeof(why)), KVT_OK);
    ck_assert_int_eq(kvt_cache_destroy(none), KVT_OK);
    ck_assert_int_eq(kvt_cache_destroy(NULL), KVT_OK);
}
END_TEST

/* The smallest of everything still works. */
START_TEST(the_smallest_cache)
{
    static const struct kvt_rig_shape one = {1, 4, 1, {4096}, {4096}};
    kvt_rig_cache_init(&rig);
    rig.config.page_tokens = 1;
    rig.config.hbm_bytes = 4096;
    rig.config.host_bytes = 0;
    rig.config.leases_max = 2; /* a request's, and its save's */
    rig.config.pages_max = rig.config.jobs_max = 1;
    rig.config.requests_max = rig.config.ghosts_max = 1;
    kvt_rig_cache_open(&rig);
    kvt_rig_engine_open(&engine, &rig, &one, "");
    for (uint32_t i = 0; i < 10; i++) {
        kvt_rig_tokens(tokens, 0, 2, i);
        kvt_rig_put(&engine, tokens, 1);
        ck_assert_uint_eq(kvt_rig_serve(&engine, 1 + i, tokens, 2, 0), 1);
    }
    ck_assert_uint_eq(kvt_rig_stats(&rig).pages, 1);
    ck_assert_uint_eq(kvt_rig_stats(&rig).pages_max, 1);
    rig_close();
}
END_TEST

/* ---- clients ---- */

START_TEST(bad_clients)
{
    uint32_t client = 77;
    char long_tenant[1025];
    unsigned char long_field[KVT_CACHE_FIELD_BYTES_MAX + 1] = {0};
    const uint32_t required[2] = {1, 4};
    struct kvt_cache_field fields[KVT_CACHE_FIELDS_MAX + 1];
    rig_open();
    struct kvt_cache *cache = rig.cache;
    memset(long_tenant, 't', sizeof(long_tenant));
    memset(fields, 0, sizeof(fields));
    for (uint32_t i = 0; i <= KVT_CACHE_FIELDS_MAX; i++) {
        fields[i].tag = i + 1;
    }
#define OPEN(t, tb, f, fc, r, rc)                                                                  \
    kvt_cache_client_open(cache, t, tb, f, fc, r, rc, &client, why, sizeof(why))
    said(OPEN(long_tenant, 1025, NULL, 0, NULL, 0), KVT_ERR_INVAL, "tenant");
    said(OPEN(NULL, 1, NULL, 0, NULL, 0), KVT_ERR_INVAL, "tenant");
    said(OPEN("t", 1, NULL, 1, NULL, 0), KVT_ERR_INVAL, "fields");
    said(OPEN("t", 1, fields, 4, NULL, 1), KVT_ERR_INVAL, "required");
    said(OPEN("t", 1, fields, 3, required, 2), KVT_ERR_INVAL, "field 4");
    said(OPEN("t", 1, NULL, 0, required, 2), KVT_ERR_INVAL, "field 1");
    said(OPEN("t", 1, fields, KVT_CACHE_FIELDS_MAX + 1, NULL, 0), KVT_ERR_INVAL, "65");
    fields[1].data = long_field;
    fields[1].bytes = sizeof(long_field);
    said(OPEN("t", 1, fields, 4, NULL, 0), KVT_ERR_INVAL, "field 2");
    fields[1].data = NULL;
    fields[1].bytes = 1;
    said(OPEN("t", 1, fields, 4, NULL, 0), KVT_ERR_INVAL, "field 1");
    fields[1].bytes = 0;
    fields[2].tag = 0;
    said(OPEN("t", 1, fields, 4, NULL, 0), KVT_ERR_INVAL, "field 2");
    fields[2].tag = 4;
    said(OPEN("t", 1, fields, 4, NULL, 0), KVT_ERR_INVAL, "twice");
    ck_assert_uint_eq(client, 77);
    said(kvt_cache_client_open(cache, "t", 1, NULL, 0, NULL, 0, NULL, why, sizeof(why)),
         KVT_ERR_INVAL, "client");
    said(kvt_cache_client_open(NULL, "t", 1, NULL, 0, NULL, 0, &client, why, sizeof(why)),
         KVT_ERR_INVAL, "");
    /* As many as there are places. */
    fields[2].tag = 3;
    uint32_t clients[KVT_CLIENTS_MAX];
    for (uint32_t i = 0; i + 1 < KVT_CLIENTS_MAX; i++) {
        ck_assert_int_eq(OPEN(long_tenant, 1024, fields, KVT_CACHE_FIELDS_MAX, required, 2),
                         KVT_OK);
        clients[i] = client;
    }
    said(OPEN("t", 1, NULL, 0, NULL, 0), KVT_ERR_LIMIT, "clients");
    for (uint32_t i = 0; i + 1 < KVT_CLIENTS_MAX; i++) {
        ck_assert_int_eq(kvt_cache_client_close(cache, clients[i]), KVT_OK);
    }
    ck_assert_int_eq(kvt_cache_client_close(cache, clients[0]), KVT_ERR_STALE);
    ck_assert_int_eq(kvt_cache_client_close(cache, 0), KVT_ERR_STALE);
    ck_assert_int_eq(kvt_cache_client_close(cache, UINT32_MAX), KVT_ERR_STALE);
    ck_assert_int_eq(kvt_cache_client_close(NULL, 1), KVT_ERR_INVAL);
#undef OPEN
    rig_close();
}
END_TEST

/* ---- bind ---- */

static void bind_refused(const struct kvt_cache_region *regions, size_t count,
                         uint32_t block_tokens, uint64_t block_count, const char *name)
{
    uint64_t binding = 77;
    said(kvt_cache_bind(rig.cache, engine.client, regions, count, block_tokens, block_count,
                        &binding, why, sizeof(why)),
         KVT_ERR_INVAL, name);
    ck_assert_int_eq(kvt_cache_bind(rig.cache, engine.client, regions, count, block_tokens,
                                    block_count, &binding, NULL, 0),
                     KVT_ERR_INVAL);
    ck_assert_uint_eq(binding, 77);
}

START_TEST(bad_binds)
{
    unsigned char memory[64];
    uint64_t binding = 77;
    const struct kvt_cache_region good = {memory, 8, 8};
    rig_open();
    struct kvt_cache *cache = rig.cache;
    struct kvt_cache_region region = good;
    bind_refused(NULL, 1, 8, 4, "0 regions");
    bind_refused(&region, 0, 8, 4, "0 regions");
    bind_refused(&region, KVT_CACHE_REGIONS_MAX + 1, 8, 4, "4097 regions");
    bind_refused(&region, 1, 0, 4, "block of 0");
    bind_refused(&region, 1, 5, 4, "block of 5");
    bind_refused(&region, 1, 32, 4, "block of 32");
    bind_refused(&region, 1, 8, 0, "0 blocks");
    bind_refused(&region, 1, 8, UINT64_C(1) << 32, "4294967296 blocks");
    region.base = NULL;
    bind_refused(&region, 1, 8, 4, "region 0");
    region = (struct kvt_cache_region){memory, 0, 8};
    bind_refused(&region, 1, 8, 4, "region 0");
    region = (struct kvt_cache_region){memory, 9, 8};
    bind_refused(&region, 1, 8, 4, "region 0");
    region = (struct kvt_cache_region){memory, UINT64_C(1) << 33, UINT64_C(1) << 33};
    bind_refused(&region, 1, 8, 4, "region 0");
    region = (struct kvt_cache_region){memory, 8, UINT64_MAX / 2};
    bind_refused(&region, 1, 8, 4, "region 0");
    const struct kvt_cache_region two[2] = {good, {memory, 8, 7}};
    bind_refused(two, 2, 8, 4, "region 1");
    region = (struct kvt_cache_region){memory, 1u << 20, 1u << 20};
    bind_refused(&region, 1, 8, 4, "hbm budget");
    said(kvt_cache_bind(cache, engine.client, &good, 1, 8, 4, NULL, why, sizeof(why)),
         KVT_ERR_INVAL, "binding");
    said(kvt_cache_bind(cache, 60, &good, 1, 8, 4, &binding, why, sizeof(why)), KVT_ERR_STALE,
         "client 60");
    said(kvt_cache_bind(cache, 0, &good, 1, 8, 4, &binding, why, sizeof(why)), KVT_ERR_STALE,
         "client 0");
    said(kvt_cache_bind(NULL, 1, &good, 1, 8, 4, &binding, why, sizeof(why)), KVT_ERR_INVAL, "");
    /* As many as there are places; each unbound once. */
    uint64_t bindings[KVT_BINDINGS_MAX];
    uint32_t client = 0;
    ck_assert_int_eq(kvt_cache_client_open(cache, "binds", 5, NULL, 0, NULL, 0, &client, NULL, 0),
                     KVT_OK);
    for (uint32_t i = 0; i + 1 < KVT_BINDINGS_MAX; i++) {
        ck_assert_int_eq(kvt_cache_bind(cache, client, &good, 1, 8, 4, &bindings[i], NULL, 0),
                         KVT_OK);
    }
    said(kvt_cache_bind(cache, client, &good, 1, 8, 4, &binding, why, sizeof(why)), KVT_ERR_LIMIT,
         "64 bindings");
    ck_assert_int_eq(kvt_cache_unbind(cache, client + 1, bindings[0]), KVT_ERR_STALE);
    for (uint32_t i = 0; i + 1 < KVT_BINDINGS_MAX; i++) {
        ck_assert_int_eq(kvt_cache_unbind(cache, client, bindings[i]), KVT_OK);
        ck_assert_int_eq(kvt_cache_unbind(cache, client, bindings[i]), KVT_ERR_STALE);
    }
    ck_assert_int_eq(kvt_cache_unbind(NULL, 1, 1), KVT_ERR_INVAL);
    rig_close();
}
END_TEST

/* A budget that holds no page is told at bind, tier by tier. */
START_TEST(budgets_below_a_page)
{
    static const struct kvt_rig_shape big = {16, 4, 1, {5000}, {5000}};
    uint64_t binding = 0;
    for (uint32_t tier = 0; tier < 2; tier++) {
        kvt_rig_cache_init(&rig);
        rig.config.hbm_bytes = tier == 0 ? 4999 : 1u << 20;
        rig.config.host_bytes = tier == 1 ? 4999 : 1u << 20;
        kvt_rig_cache_open(&rig);
        kvt_rig_memory_open(&engine, &rig, &big);
        ck_assert_int_eq(
            kvt_cache_client_open(rig.cache, "t", 1, NULL, 0, NULL, 0, &engine.client, NULL, 0),
            KVT_OK);
        said(kvt_cache_bind(rig.cache, engine.client, engine.regions, 1, 16, 4, &binding, why,
                            sizeof(why)),
             KVT_ERR_INVAL, tier == 0 ? "the hbm budget" : "the host budget");
        ck_assert_int_eq(kvt_cache_client_close(rig.cache, engine.client), KVT_OK);
        kvt_rig_memory_close(&engine);
        kvt_rig_cache_close(&rig);
    }
}
END_TEST

/* ---- lookup, save, restore ---- */

static void lookup_answers(const struct kvt_cache_lookup *lookup, kvt_status want)
{
    struct kvt_cache_found found = {.lease = 77};
    kvt_status got = kvt_cache_lookup(rig.cache, lookup, &found);
    if (got != want || found.lease != 77) {
        ck_abort_msg("%s and not %s", kvt_status_name(got), kvt_status_name(want));
    }
}

START_TEST(bad_lookups)
{
    rig_open();
    kvt_rig_put(&engine, tokens, 4);
    const struct kvt_cache_lookup good = {
        .client = engine.client, .request_id = 1, .tokens = tokens, .token_count = TOKENS + 1};
    struct kvt_cache_extra extras[2] = {{.token_index = 3}, {.token_index = 3}};
    struct kvt_cache_field fields[2] = {{.tag = 9}, {.tag = 9}};
    struct kvt_cache_lookup bad = good;
    lookup_answers(NULL, KVT_ERR_INVAL);
    ck_assert_int_eq(kvt_cache_lookup(rig.cache, &good, NULL), KVT_ERR_INVAL);
    bad.client = 0;
    lookup_answers(&bad, KVT_ERR_STALE);
    bad.client = 50;
    lookup_answers(&bad, KVT_ERR_STALE);
    bad = good, bad.tokens = NULL;
    lookup_answers(&bad, KVT_ERR_INVAL);
    bad = good, bad.token_count = 0;
    lookup_answers(&bad, KVT_ERR_INVAL);
    bad = good, bad.token_count = KVT_TOKENS_MAX + 1;
    lookup_answers(&bad, KVT_ERR_INVAL);
    bad = good, bad.own_tokens = TOKENS + 2;
    lookup_answers(&bad, KVT_ERR_INVAL);
    bad = good, bad.extra_count = 1;
    lookup_answers(&bad, KVT_ERR_INVAL);
    bad = good, bad.extras = extras, bad.extra_count = 2;
    lookup_answers(&bad, KVT_ERR_INVAL); /* not rising */
    extras[1].token_index = TOKENS + 1;
    lookup_answers(&bad, KVT_ERR_INVAL); /* behind the end */
    bad.extra_count = KVT_EXTRAS_MAX + 1;
    lookup_answers(&bad, KVT_ERR_INVAL);
    bad = good, bad.field_count = 1;
    lookup_answers(&bad, KVT_ERR_INVAL);
    bad.fields = fields, bad.field_count = 2;
    lookup_answers(&bad, KVT_ERR_INVAL); /* twice the same */
    ck_assert_uint_eq(kvt_rig_stats(&rig).leases, 0);
    rig_close();
}
END_TEST

static void save_answers(const struct kvt_cache_save *save, kvt_status want)
{
    uint64_t job = 77;
    kvt_status got = kvt_cache_save(rig.cache, save, &job);
    if (got != want || job != 77) {
        ck_abort_msg("%s and not %s", kvt_status_name(got), kvt_status_name(want));
    }
}

START_TEST(bad_saves)
{
    rig_open();
    const struct kvt_cache_save good = {.client = engine.client,
                                        .binding = engine.binding,
                                        .tokens = tokens,
                                        .token_count = TOKENS,
                                        .blocks = blocks,
                                        .block_count = BLOCKS,
                                        .stream = engine.stream};
    struct kvt_cache_save bad = good;
    save_answers(NULL, KVT_ERR_INVAL);
    ck_assert_int_eq(kvt_cache_save(rig.cache, &good, NULL), KVT_ERR_INVAL);
    bad = good, bad.stream = NULL;
    save_answers(&bad, KVT_ERR_INVAL); /* F02: no save without the stream that produces */
    bad = good, bad.blocks = NULL;
    save_answers(&bad, KVT_ERR_INVAL);
    bad = good, bad.tokens = NULL;
    save_answers(&bad, KVT_ERR_INVAL);
    bad = good, bad.token_count = 0;
    save_answers(&bad, KVT_ERR_INVAL);
    bad = good, bad.token_count = KVT_TOKENS_MAX + 1;
    save_answers(&bad, KVT_ERR_INVAL);
    bad = good, bad.block_count = BLOCKS - 1;
    save_answers(&bad, KVT_ERR_INVAL);
    bad = good, bad.valid_from_token = TOKENS + 1;
    save_answers(&bad, KVT_ERR_INVAL);
    bad = good, bad.valid_from_token = UINT64_MAX;
    save_answers(&bad, KVT_ERR_INVAL);
    bad = good, bad.client = 9;
    save_answers(&bad, KVT_ERR_STALE);
    bad = good, bad.binding++;
    save_answers(&bad, KVT_ERR_STALE);
    for (uint32_t i = 0; i < BLOCKS; i++) {
        blocks[i] = engine.shape.block_count;
        save_answers(&good, KVT_ERR_INVAL);
        blocks[i] = i;
    }
    /* Another page size in the same namespace: refused when it is declared. */
    static unsigned char memory[64 * 100];
    const struct kvt_cache_region wide = {memory, 100, 100};
    uint64_t binding = 77;
    said(kvt_cache_bind(rig.cache, engine.client, &wide, 1, 8, 64, &binding, why, sizeof(why)),
         KVT_ERR_INVAL, "200 bytes");
    ck_assert_uint_eq(binding, 77);
    rig_close();
}
END_TEST

static void restore_answers(const struct kvt_cache_restore *restore, kvt_status want)
{
    uint64_t job = 77;
    kvt_status got = kvt_cache_restore(rig.cache, restore, &job);
    if (got != want || job != 77) {
        ck_abort_msg("%s and not %s", kvt_status_name(got), kvt_status_name(want));
    }
}

START_TEST(bad_restores)
{
    rig_open();
    kvt_rig_put(&engine, tokens, 4);
    struct kvt_cache_found found = kvt_rig_lookup(&engine, 0, tokens, TOKENS + 1, 0);
    const struct kvt_cache_restore good = {.client = engine.client,
                                           .lease = found.lease,
                                           .binding = engine.binding,
                                           .token_count = TOKENS,
                                           .blocks = blocks,
                                           .block_count = BLOCKS,
                                           .stream = engine.stream};
    struct kvt_cache_restore bad = good;
    restore_answers(NULL, KVT_ERR_INVAL);
    ck_assert_int_eq(kvt_cache_restore(rig.cache, &good, NULL), KVT_ERR_INVAL);
    bad = good, bad.stream = NULL;
    restore_answers(&bad, KVT_ERR_INVAL);
    bad = good, bad.blocks = NULL;
    restore_answers(&bad, KVT_ERR_INVAL);
    bad = good, bad.token_count = 0;
    restore_answers(&bad, KVT_ERR_INVAL);
    bad = good, bad.token_count = TOKENS - 1;
    restore_answers(&bad, KVT_ERR_INVAL);
    bad = good, bad.first_token = 8;
    restore_answers(&bad, KVT_ERR_INVAL);
    bad = good, bad.first_token = UINT64_MAX - 15;
    restore_answers(&bad, KVT_ERR_INVAL);
    bad = good, bad.token_count = UINT64_MAX - 15;
    restore_answers(&bad, KVT_ERR_INVAL);
    bad = good, bad.block_count = BLOCKS + 1;
    restore_answers(&bad, KVT_ERR_INVAL);
    bad = good, bad.block_count = BLOCKS - 1;
    restore_answers(&bad, KVT_ERR_INVAL);
    bad = good, bad.lease = 0;
    restore_answers(&bad, KVT_ERR_STALE);
    bad = good, bad.binding = 0;
    restore_answers(&bad, KVT_ERR_STALE);
    for (uint32_t i = 0; i < BLOCKS; i++) {
        blocks[i] = UINT32_MAX;
        restore_answers(&good, KVT_ERR_INVAL);
        blocks[i] = i;
    }
    ck_assert_uint_eq(kvt_rig_stats(&rig).jobs_running, 0);
    kvt_rig_release(&engine, found.lease);
    rig_close();
}
END_TEST

START_TEST(the_rest)
{
    rig_open();
    struct kvt_cache *cache = rig.cache;
    void *out = NULL;
    kvt_rig_paint(&engine, tokens, 0, 4, blocks);
    uint64_t job = kvt_rig_save_begin(&engine, tokens, TOKENS, blocks, NULL);
    /* A poll with nowhere to put the answer does not spend the handle. */
    kvt_rig_quiesce(&rig);
    ck_assert_int_eq(kvt_cache_poll(cache, engine.client, job, 0, NULL), KVT_ERR_INVAL);
    ck_assert_uint_eq(kvt_rig_finish(&engine, job).tokens_good, TOKENS);
    ck_assert_int_eq(kvt_cache_stats(cache, NULL), KVT_ERR_INVAL);
    ck_assert_int_eq(kvt_cache_stats(NULL, NULL), KVT_ERR_INVAL);
    ck_assert_int_eq(kvt_cache_check(NULL, why, sizeof(why)), KVT_ERR_INVAL);
    ck_assert_int_eq(kvt_cache_check(cache, NULL, 0), KVT_OK);
    ck_assert_int_eq(kvt_cache_fault_set(cache, 0, 1), KVT_ERR_INVAL);
    ck_assert_int_eq(kvt_cache_fault_set(cache, 99, 1), KVT_ERR_INVAL);
    ck_assert_int_eq(kvt_cache_fault_set(NULL, 1, 1), KVT_ERR_INVAL);
    ck_assert_int_eq(kvt_cache_release(NULL, 1, 1), KVT_ERR_INVAL);
    ck_assert_int_eq(kvt_cache_lease_check(NULL, 1, 1), KVT_ERR_INVAL);
    ck_assert_int_eq(kvt_cache_report(NULL, 1, 1, 1, 1, 1), KVT_ERR_INVAL);
    ck_assert_int_eq(kvt_cache_cancel(NULL, 1, 1), KVT_ERR_INVAL);
    ck_assert_int_eq(kvt_cache_flush(NULL, 1), KVT_ERR_INVAL);
    ck_assert_int_eq(kvt_cache_quiesce(NULL, 1), KVT_ERR_INVAL);
    ck_assert_int_eq(kvt_cache_stream_create(cache, NULL), KVT_ERR_INVAL);
    ck_assert_int_eq(kvt_cache_stream_create(NULL, &out), KVT_ERR_INVAL);
    ck_assert_int_eq(kvt_cache_stream_enqueue(cache, NULL, kvt_rig_gate_pass, NULL), KVT_ERR_INVAL);
    ck_assert_int_eq(kvt_cache_stream_enqueue(cache, engine.stream, NULL, NULL), KVT_ERR_INVAL);
    ck_assert_int_eq(kvt_cache_event_create(cache, NULL), KVT_ERR_INVAL);
    ck_assert_int_eq(kvt_cache_event_record(cache, NULL, engine.stream), KVT_ERR_INVAL);
    ck_assert_int_eq(kvt_cache_stream_wait(cache, engine.stream, NULL), KVT_ERR_INVAL);
    ck_assert_int_eq(kvt_cache_stream_sync(cache, NULL, 0), KVT_ERR_INVAL);
    kvt_cache_stream_destroy(NULL, NULL);
    kvt_cache_event_destroy(NULL, NULL);
    ck_assert_ptr_null(out);
    ck_assert_str_eq(kvt_cache_policy_name(0), "lru");
    ck_assert_ptr_nonnull(kvt_cache_policy_summary(0));
    ck_assert_ptr_null(kvt_cache_policy_name(1000));
    ck_assert_ptr_null(kvt_cache_policy_summary(1000));
    rig_close();
}
END_TEST

/* ---- after a fork (F87) ---- */

/* How many calls of the child did not answer PROCESS. */
static int in_the_child(struct kvt_cache *cache, uint64_t lease, uint64_t job)
{
    struct kvt_cache_lookup lookup = {
        .client = engine.client, .tokens = tokens, .token_count = TOKENS + 1};
    struct kvt_cache_save save = {.client = engine.client,
                                  .binding = engine.binding,
                                  .tokens = tokens,
                                  .token_count = TOKENS,
                                  .blocks = blocks,
                                  .block_count = BLOCKS,
                                  .stream = engine.stream};
    struct kvt_cache_restore restore = {.client = engine.client,
                                        .lease = lease,
                                        .binding = engine.binding,
                                        .token_count = TOKENS,
                                        .blocks = blocks,
                                        .block_count = BLOCKS,
                                        .stream = engine.stream};
    struct kvt_cache_found found;
    struct kvt_cache_result result;
    struct kvt_cache_stats stats;
    uint64_t out = 0;
    uint32_t client = 0;
    void *object = NULL;
    const kvt_status answers[] = {
        kvt_cache_lookup(cache, &lookup, &found),
        kvt_cache_save(cache, &save, &out),
        kvt_cache_restore(cache, &restore, &out),
        kvt_cache_release(cache, engine.client, lease),
        kvt_cache_lease_check(cache, engine.client, lease),
        kvt_cache_report(cache, engine.client, 1, 1, 1, 1),
        kvt_cache_poll(cache, engine.client, job, 1000, &result),
        kvt_cache_wait_region(cache, engine.client, job, 0, engine.stream),
        kvt_cache_cancel(cache, engine.client, job),
        kvt_cache_flush(cache, 1000),
        kvt_cache_quiesce(cache, 1000),
        kvt_cache_stats(cache, &stats),
        kvt_cache_check(cache, NULL, 0),
        kvt_cache_fault_set(cache, KVT_RIG_HOLD, 0),
        kvt_cache_client_open(cache, "t", 1, NULL, 0, NULL, 0, &client, NULL, 0),
        kvt_cache_client_close(cache, engine.client),
        kvt_cache_bind(cache, engine.client, engine.regions, 2, 8, 256, &out, NULL, 0),
        kvt_cache_unbind(cache, engine.client, engine.binding),
        kvt_cache_stream_create(cache, &object),
        kvt_cache_stream_enqueue(cache, engine.stream, kvt_rig_gate_pass, NULL),
        kvt_cache_stream_sync(cache, engine.stream, 1000),
        kvt_cache_event_create(cache, &object),
        kvt_cache_event_record(cache, engine.stream, engine.stream),
        kvt_cache_stream_wait(cache, engine.stream, engine.stream),
        kvt_cache_destroy(cache),
    };
    int wrong = 0;
    for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
        wrong += answers[i] != KVT_ERR_PROCESS;
    }
    kvt_cache_stream_destroy(cache, engine.stream);
    kvt_cache_event_destroy(cache, engine.stream);
    return wrong;
}

START_TEST(after_a_fork)
{
    rig_open();
    kvt_rig_put(&engine, tokens, 4);
    for (uint32_t i = 0; i < 5; i++) {
        struct kvt_cache_found found = kvt_rig_lookup(&engine, 1, tokens, TOKENS + 1, 0);
        kvt_rig_wipe_all(&engine);
        kvt_rig_fault(&rig, KVT_RIG_HOLD, 1);
        uint64_t job = kvt_rig_restore_begin(&engine, found.lease, 0, 4, blocks, NULL);
        pid_t child = fork();
        ck_assert_int_ge(child, 0);
        if (child == 0) {
            (void)alarm(20); /* a child that hangs is a failure too */
            _exit(in_the_child(rig.cache, found.lease, job));
        }
        int status = 0;
        ck_assert_int_eq(waitpid(child, &status, 0), child);
        ck_assert(WIFEXITED(status));
        ck_assert_int_eq(WEXITSTATUS(status), 0);
        kvt_rig_fault(&rig, KVT_RIG_HOLD, 0);
        ck_assert_uint_eq(kvt_rig_finish(&engine, job).tokens_good, TOKENS);
        ck_assert_uint_eq(kvt_rig_good_pages(&engine, tokens, 0, 4, blocks), 4);
        kvt_rig_report(&engine, 1, TOKENS + 1, 0, 1);
    }
    rig_close();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cache_input");
    TCase *tcase = tcase_create("cache_input");
    tcase_set_timeout(tcase, 0);
    tcase_add_test(tcase, bad_configs);
    tcase_add_test(tcase, the_smallest_cache);
    tcase_add_test(tcase, bad_clients);
    tcase_add_test(tcase, bad_binds);
    tcase_add_test(tcase, budgets_below_a_page);
    tcase_add_test(tcase, bad_lookups);
    tcase_add_test(tcase, bad_saves);
    tcase_add_test(tcase, bad_restores);
    tcase_add_test(tcase, the_rest);
    const char *variant = getenv("KVT_VARIANT");
    if (variant == NULL || strcmp(variant, "tsan") != 0) {
        /* Forking a program with threads is what the thread sanitizer cannot do. */
        tcase_add_test(tcase, after_a_fork);
    }
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
