/* Limits: full pools are refused by name, and everything works again when they have room. */
#include <stdlib.h>

#include "tests/conformance/conf.h"

#define PAGES 6u
#define TOKENS (PAGES * KVT_CONF_PAGE_TOKENS)
#define LEASES_TRIED_MAX (1u << 16)
#define JOBS_TRIED_MAX (1u << 14)
#define SMALL_TIER_BYTES (256u << 10)
#define PROMPTS_MAX 400u
#define TTL_NS UINT64_C(5000000000)

static uint64_t *handles_of(uint32_t count)
{
    uint64_t *handles = calloc(count, sizeof(*handles));
    NEED(handles != NULL, "no memory for handles");
    return handles;
}

static void leases(struct kvt_conf *conf)
{
    struct kvt_conf_rig rig;
    uint32_t tokens[TOKENS + 1];
    uint64_t *given = handles_of(LEASES_TRIED_MAX);
    uint32_t count = 0;
    kvt_status status = KVT_OK;
    kvt_conf_begin(conf, &rig);
    kvt_conf_tokens(tokens, TOKENS + 1, 1);
    kvt_conf_put(&rig, tokens, PAGES, 0);
    kvt_lookup lookup = kvt_conf_ask(0, tokens, TOKENS + 1);
    while (count < LEASES_TRIED_MAX) {
        kvt_lookup_result found = KVT_LOOKUP_RESULT_INIT;
        status = rig.entry->lookup(rig.engine, &lookup, &found);
        if (status != KVT_OK || found.answer == KVT_ANSWER_AGAIN) {
            NEED(found.lease == 0, "lookup wrote its output although it failed");
            break;
        }
        NEED(found.answer == KVT_ANSWER_HIT, "a lookup missed what is held");
        given[count++] = found.lease;
    }
    NEED(status == KVT_OK || status == KVT_ERR_AGAIN, "lookup answered %s with all leases taken",
         kvt_conf_name(status));
    NEED(kvt_conf_stats(&rig).leases == count, "%u leases were given, the statistics say %llu",
         count, (unsigned long long)kvt_conf_stats(&rig).leases);
    NEED(count == LEASES_TRIED_MAX || kvt_conf_stats(&rig).limit_leases_hit > 0,
         "limit_leases_hit does not count");
    for (uint32_t i = 0; i < count; i++) {
        GOOD(rig.entry->release(rig.engine, given[i]), "release");
        WANT(rig.entry->release(rig.engine, given[i]), KVT_ERR_STALE, "release of a spent lease");
    }
    NEED(kvt_conf_stats(&rig).leases == 0, "leases are left");
    uint64_t lease = kvt_conf_hit(&rig, 0, tokens, TOKENS + 1, TOKENS);
    kvt_conf_get(&rig, lease, tokens, PAGES, 100);
    GOOD(rig.entry->release(rig.engine, lease), "release");
    free(given);
    kvt_conf_end(&rig);
}

static void jobs(struct kvt_conf *conf)
{
    struct kvt_conf_rig rig;
    struct kvt_conf_gate gate = {.then = NULL};
    uint32_t tokens[TOKENS + 1], blocks[KVT_CONF_PAGE_BLOCKS];
    uint64_t *given = handles_of(JOBS_TRIED_MAX);
    uint32_t count = 0;
    kvt_status status = KVT_OK;
    kvt_conf_begin(conf, &rig);
    kvt_conf_tokens(tokens, TOKENS + 1, 1);
    kvt_conf_put(&rig, tokens, PAGES, 0);
    uint64_t lease = kvt_conf_hit(&rig, 0, tokens, TOKENS + 1, TOKENS);
    kvt_conf_blocks(blocks, 100, 1);
    kvt_conf_shut(&rig, rig.stream, &gate);
    kvt_restore restore = kvt_conf_restoring(&rig, lease, 1, blocks);
    while (count < JOBS_TRIED_MAX) {
        uint64_t job = 77;
        status = rig.entry->restore(rig.engine, &restore, &job);
        if (status != KVT_OK) {
            NEED(job == 77, "restore wrote its output although it failed");
            break;
        }
        given[count++] = job;
    }
    NEED(status == KVT_OK || status == KVT_ERR_AGAIN, "restore answered %s with all jobs taken",
         kvt_conf_name(status));
    NEED(kvt_conf_stats(&rig).jobs_running == count, "%u jobs run, the statistics say %llu", count,
         (unsigned long long)kvt_conf_stats(&rig).jobs_running);
    NEED(count == JOBS_TRIED_MAX || kvt_conf_stats(&rig).limit_jobs_hit > 0,
         "limit_jobs_hit does not count");
    kvt_conf_pass(&gate);
    for (uint32_t i = 0; i < count; i++) {
        GOOD(kvt_conf_finish(&rig, given[i]).status, "restore");
    }
    kvt_conf_get(&rig, lease, tokens, PAGES, 100);
    GOOD(rig.entry->release(rig.engine, lease), "release");
    kvt_conf_sync(&rig, rig.stream);
    free(given);
    kvt_conf_end(&rig);
}

static void small_tier(struct kvt_conf *conf)
{
    bool host = conf->config.host_bytes > 0;
    if (!host && conf->config.hbm_bytes == 0) {
        kvt_conf_skip("the plug-in offers no memory tier");
    }
    conf->config.hbm_bytes = host ? 0 : SMALL_TIER_BYTES;
    conf->config.host_bytes = host ? SMALL_TIER_BYTES : 0;
}

/* More is saved than there is room for: what is leased stays, what is promised is right. */
static void eviction(struct kvt_conf *conf)
{
    struct kvt_conf_rig rig;
    uint32_t tokens[TOKENS + 1];
    uint32_t held = 0;
    small_tier(conf);
    kvt_conf_begin(conf, &rig);
    kvt_conf_tokens(tokens, TOKENS + 1, 0);
    kvt_conf_put(&rig, tokens, PAGES, 0);
    uint64_t lease = kvt_conf_hit(&rig, 0, tokens, TOKENS + 1, TOKENS);
    for (uint32_t i = 1; i < PROMPTS_MAX; i++) {
        kvt_conf_tokens(tokens, TOKENS + 1, i);
        kvt_conf_put(&rig, tokens, PAGES, 0);
    }
    NEED(kvt_conf_stats(&rig).evicted_pages > 0, "nothing was evicted, or it is not counted");
    for (uint32_t i = 1; i < PROMPTS_MAX; i++) {
        kvt_conf_tokens(tokens, TOKENS + 1, i);
        kvt_lookup lookup = kvt_conf_ask(0, tokens, TOKENS + 1);
        kvt_lookup_result found = kvt_conf_look(&rig, &lookup);
        if (found.answer == KVT_ANSWER_HIT) {
            kvt_conf_get(&rig, found.lease, tokens,
                         (uint32_t)(found.matched_tokens / KVT_CONF_PAGE_TOKENS), 100);
            GOOD(rig.entry->release(rig.engine, found.lease), "release");
            held++;
        }
    }
    NEED(held > 0, "nothing is held after saves beyond the budget");
    kvt_conf_tokens(tokens, TOKENS + 1, 0);
    kvt_conf_get(&rig, lease, tokens, PAGES, 100);
    GOOD(rig.entry->release(rig.engine, lease), "release");
    kvt_conf_end(&rig);
}

/* A save while everything is leased: it falls short, and says so. Answers whether it did. */
static bool save_short(struct kvt_conf_rig *rig, uint32_t seed)
{
    uint32_t tokens[TOKENS + 1], blocks[PAGES * KVT_CONF_PAGE_BLOCKS];
    uint64_t job = 0;
    kvt_conf_tokens(tokens, TOKENS + 1, seed);
    kvt_conf_blocks(blocks, 0, PAGES);
    kvt_conf_paint(rig, tokens, PAGES, blocks);
    kvt_save save = kvt_conf_saving(rig, tokens, PAGES, blocks);
    GOOD(rig->entry->save(rig->engine, &save, &job), "save without room");
    kvt_job_result result = kvt_conf_finish(rig, job);
    NEED((result.status == KVT_OK) == (result.tokens_good == TOKENS),
         "the status %s does not fit %llu good tokens", kvt_conf_name(result.status),
         (unsigned long long)result.tokens_good);
    (void)kvt_conf_hit(rig, seed, tokens, TOKENS + 1, result.tokens_good);
    return result.tokens_good < TOKENS;
}

static void expiry(struct kvt_conf *conf)
{
    struct kvt_conf_rig rig;
    uint32_t tokens[TOKENS + 1];
    uint32_t seed = 1;
    small_tier(conf);
    conf->config.lease_ttl_ns = TTL_NS;
    kvt_conf_begin(conf, &rig);
    while (!save_short(&rig, seed)) {
        NEED(seed < PROMPTS_MAX, "more than the budget is leased");
        seed++;
    }
    kvt_conf_tokens(tokens, TOKENS + 1, 1);
    uint64_t lease = kvt_conf_hit(&rig, 1, tokens, TOKENS + 1, TOKENS);
    kvt_conf_get(&rig, lease, tokens, PAGES, 100);
    atomic_fetch_add(&conf->now_ns, 2 * TTL_NS);
    for (uint32_t i = 0; i < 20; i++) {
        kvt_conf_tokens(tokens, TOKENS + 1, 1000 + i);
        kvt_conf_put(&rig, tokens, PAGES, 0);
    }
    NEED(kvt_conf_stats(&rig).leases_expired > 0, "leases_expired does not count");
    kvt_conf_end(&rig);
}

const struct kvt_conf_clause kvt_conf_limit_clauses[] = {
    {"limit.leases", "leases until AGAIN; released, they are there again", leases},
    {"limit.jobs", "jobs until AGAIN; done, they are there again", jobs},
    {"limit.eviction", "beyond the budget: leases hold, promises are kept", eviction},
    {"limit.expiry", "unused leases end by the host's clock and make room", expiry},
    {NULL, NULL, NULL}};
