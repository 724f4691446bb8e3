/* The right bytes to the right request, and to no other. */
#include <string.h>

#include "tests/conformance/conf.h"

#define PAGES 6u
#define TOKENS (PAGES * KVT_CONF_PAGE_TOKENS)
#define PROMPTS 12u

/* Saves in another order than restores, all of them in flight at the same time. */
static void round_trip(struct kvt_conf *conf)
{
    static uint32_t tokens[PROMPTS][TOKENS + 1];
    uint32_t blocks[PROMPTS][PAGES * KVT_CONF_PAGE_BLOCKS];
    uint64_t jobs[PROMPTS], leases[PROMPTS];
    struct kvt_conf_rig rig;
    kvt_conf_begin(conf, &rig);
    for (uint32_t i = 0; i < PROMPTS; i++) {
        /* Pairs share half of their pages; what follows the same tokens there differs. */
        kvt_conf_tokens(tokens[i], TOKENS + 1, i / 2 + 10);
        tokens[i][TOKENS / 2] ^= i % 2 != 0 ? 0x10000u : 0;
        kvt_conf_blocks(blocks[i], i * PAGES * KVT_CONF_PAGE_BLOCKS, PAGES);
        kvt_conf_paint(&rig, tokens[i], PAGES, blocks[i]);
        kvt_save save = kvt_conf_saving(&rig, tokens[i], PAGES, blocks[i]);
        GOOD(rig.entry->save(rig.engine, &save, &jobs[i]), "save");
    }
    for (uint32_t i = 0; i < PROMPTS; i++) {
        kvt_job_result result = kvt_conf_finish(&rig, jobs[i]);
        NEED(result.status == KVT_OK && result.tokens_good == TOKENS, "a save fell short");
        kvt_conf_wipe(&rig, blocks[i], PAGES);
    }
    for (uint32_t i = PROMPTS; i-- > 0;) {
        leases[i] = kvt_conf_hit(&rig, i + 1, tokens[i], TOKENS + 1, TOKENS);
        kvt_restore restore = kvt_conf_restoring(&rig, leases[i], PAGES, blocks[PROMPTS - 1 - i]);
        GOOD(rig.entry->restore(rig.engine, &restore, &jobs[i]), "restore");
    }
    for (uint32_t i = 0; i < PROMPTS; i++) {
        kvt_job_result result = kvt_conf_finish(&rig, jobs[i]);
        NEED(result.status == KVT_OK && result.tokens_good == TOKENS, "a restore fell short");
        GOOD(rig.entry->release(rig.engine, leases[i]), "release");
    }
    for (uint32_t i = 0; i < PROMPTS; i++) {
        uint32_t right =
            kvt_conf_right(&rig, KVT_CONF_REGIONS, tokens[i], 0, PAGES, blocks[PROMPTS - 1 - i]);
        NEED(right == PAGES, "prompt %u: restored bytes are wrong from page %u on", i, right);
    }
    kvt_conf_gaps(&rig);
    kvt_conf_end(&rig);
}

static void ranges(struct kvt_conf *conf)
{
    struct kvt_conf_rig rig;
    uint32_t tokens[TOKENS + 1], blocks[PAGES * KVT_CONF_PAGE_BLOCKS];
    kvt_conf_begin(conf, &rig);
    kvt_conf_tokens(tokens, TOKENS + 1, 1);
    kvt_conf_put(&rig, tokens, PAGES, 0);
    uint64_t lease = kvt_conf_hit(&rig, 0, tokens, TOKENS + 1, TOKENS);
    kvt_conf_blocks(blocks, 100, PAGES);
    for (uint32_t first = 0; first < PAGES; first++) {
        for (uint32_t count = 1; first + count <= PAGES; count++) {
            uint64_t job = 0;
            kvt_conf_wipe(&rig, blocks, PAGES);
            kvt_restore restore = kvt_conf_restoring(&rig, lease, count, blocks);
            restore.first_token = (uint64_t)first * KVT_CONF_PAGE_TOKENS;
            GOOD(rig.entry->restore(rig.engine, &restore, &job), "restore of a range");
            kvt_job_result result = kvt_conf_finish(&rig, job);
            NEED(result.status == KVT_OK && result.tokens_good == restore.token_count,
                 "a restore fell short");
            NEED(kvt_conf_right(&rig, KVT_CONF_REGIONS, tokens, first, count, blocks) == count,
                 "restored bytes of pages %u to %u are wrong", first, first + count);
            NEED(rig.memory[0][blocks[PAGES * KVT_CONF_PAGE_BLOCKS - 1] *
                               rig.regions[0].stride_bytes] == KVT_CONF_WIPED ||
                     count == PAGES,
                 "a block that was not asked for was written");
        }
    }
    GOOD(rig.entry->release(rig.engine, lease), "release");
    kvt_conf_end(&rig);
}

static void restore_refused(struct kvt_conf_rig *rig, const kvt_restore *restore, const char *what)
{
    uint64_t job = 77;
    WANT(rig->entry->restore(rig->engine, restore, &job), KVT_ERR_INVAL, what);
    NEED(job == 77, "restore wrote its output although it failed: %s", what);
}

static void restore_bad(struct kvt_conf *conf)
{
    struct kvt_conf_rig rig;
    uint32_t tokens[TOKENS + 1], blocks[(PAGES + 1) * KVT_CONF_PAGE_BLOCKS];
    uint64_t job = 77;
    kvt_conf_begin(conf, &rig);
    kvt_conf_tokens(tokens, TOKENS + 1, 1);
    kvt_conf_put(&rig, tokens, PAGES, 0);
    uint64_t lease = kvt_conf_hit(&rig, 0, tokens, TOKENS + 1, TOKENS);
    kvt_conf_blocks(blocks, 100, PAGES + 1);
    const kvt_restore good = kvt_conf_restoring(&rig, lease, PAGES, blocks);
    kvt_restore bad = good;
    bad.first_token = 1;
    bad.token_count -= KVT_CONF_PAGE_TOKENS;
    restore_refused(&rig, &bad, "restore from inside a page");
    bad = good;
    bad.token_count -= 1;
    restore_refused(&rig, &bad, "restore of a part of a page");
    bad = good;
    bad.token_count += KVT_CONF_PAGE_TOKENS;
    bad.block_count += KVT_CONF_PAGE_BLOCKS;
    restore_refused(&rig, &bad, "restore of more than the lease covers");
    bad = good;
    bad.block_count -= 1;
    restore_refused(&rig, &bad, "restore into too few blocks");
    bad = good;
    bad.stream = NULL;
    restore_refused(&rig, &bad, "restore without a stream");
    bad = good;
    bad.blocks = NULL;
    restore_refused(&rig, &bad, "restore without blocks");
    WANT(rig.entry->restore(rig.engine, &good, NULL), KVT_ERR_INVAL, "restore without out_job");
    blocks[3] = KVT_CONF_BLOCKS;
    restore_refused(&rig, &good, "restore into a block that is not there");
    bad = good;
    bad.binding ^= UINT64_C(1) << 40;
    WANT(rig.entry->restore(rig.engine, &bad, &job), KVT_ERR_STALE,
         "restore into a guessed binding");
    kvt_conf_get(&rig, lease, tokens, PAGES, 100);
    GOOD(rig.entry->release(rig.engine, lease), "release");
    kvt_conf_gaps(&rig);
    kvt_conf_end(&rig);
}

static void save_refused(struct kvt_conf_rig *rig, const kvt_save *save, kvt_status wanted,
                         const char *what)
{
    uint64_t job = 77;
    WANT(rig->entry->save(rig->engine, save, &job), wanted, what);
    NEED(job == 77, "save wrote its output although it failed: %s", what);
}

static void save_bad(struct kvt_conf *conf)
{
    struct kvt_conf_rig rig;
    uint32_t tokens[TOKENS + 1], blocks[PAGES * KVT_CONF_PAGE_BLOCKS];
    kvt_conf_begin(conf, &rig);
    kvt_conf_tokens(tokens, TOKENS + 1, 1);
    kvt_conf_blocks(blocks, 0, PAGES);
    const kvt_save good = kvt_conf_saving(&rig, tokens, PAGES, blocks);
    kvt_save bad = good;
    bad.stream = NULL;
    save_refused(&rig, &bad, KVT_ERR_INVAL, "save without a stream");
    bad = good;
    bad.tokens = NULL;
    save_refused(&rig, &bad, KVT_ERR_INVAL, "save without tokens");
    bad = good;
    bad.blocks = NULL;
    save_refused(&rig, &bad, KVT_ERR_INVAL, "save without blocks");
    bad = good;
    bad.block_count -= 1;
    save_refused(&rig, &bad, KVT_ERR_INVAL, "save of too few blocks");
    bad = good;
    bad.binding ^= UINT64_C(1) << 40;
    save_refused(&rig, &bad, KVT_ERR_STALE, "save from a guessed binding");
    WANT(rig.entry->save(rig.engine, &good, NULL), KVT_ERR_INVAL, "save without out_job");
    blocks[3] = KVT_CONF_BLOCKS;
    save_refused(&rig, &good, KVT_ERR_INVAL, "save of a block that is not there");
    NEED(kvt_conf_hit(&rig, 0, tokens, TOKENS + 1, 0) == 0, "what was refused was saved");
    kvt_conf_end(&rig);
}

/* Pages of one namespace have one size. Which namespace a binding serves may show only when it is
 * used, so the first save and restore through it may do the refusing. */
static void page_size(struct kvt_conf *conf)
{
    struct kvt_conf_rig rig;
    uint32_t tokens[2 * KVT_CONF_PAGE_TOKENS];
    uint64_t other = 0;
    kvt_conf_begin(conf, &rig);
    kvt_conf_tokens(tokens, 2 * KVT_CONF_PAGE_TOKENS, 1);
    kvt_conf_put(&rig, tokens, 1, 0);
    uint64_t lease = kvt_conf_hit(&rig, 0, tokens, 2 * KVT_CONF_PAGE_TOKENS, KVT_CONF_PAGE_TOKENS);
    rig.regions[1].block_bytes /= 2;
    kvt_status status = rig.entry->bind(rig.engine, &rig.layout, &other, NULL, 0);
    rig.regions[1].block_bytes *= 2;
    WANT(status, KVT_ERR_INVAL, "bind of another page size");
    NEED(other == 0, "an output was written on failure");
    kvt_conf_get(&rig, lease, tokens, 1, 100);
    kvt_conf_end(&rig);
}

static void save_twice(struct kvt_conf *conf)
{
    struct kvt_conf_rig rig;
    uint32_t tokens[TOKENS + 1], blocks[PAGES * KVT_CONF_PAGE_BLOCKS];
    uint64_t job = 0;
    kvt_conf_begin(conf, &rig);
    kvt_conf_tokens(tokens, TOKENS + 1, 1);
    kvt_conf_put(&rig, tokens, PAGES - 2, 0);
    uint64_t pages = kvt_conf_stats(&rig).pages;
    kvt_conf_put(&rig, tokens, PAGES - 2, 0);
    NEED(kvt_conf_stats(&rig).pages == pages, "the same pages were kept twice");
    /* Blocks before valid_from_token are not read: they hold nothing. */
    kvt_conf_blocks(blocks, 0, PAGES);
    kvt_conf_paint(&rig, tokens, PAGES, blocks);
    kvt_conf_wipe(&rig, blocks, PAGES - 2);
    kvt_save save = kvt_conf_saving(&rig, tokens, PAGES, blocks);
    save.valid_from_token = (uint64_t)(PAGES - 2) * KVT_CONF_PAGE_TOKENS;
    GOOD(rig.entry->save(rig.engine, &save, &job), "save from a later token on");
    kvt_job_result result = kvt_conf_finish(&rig, job);
    NEED(result.status == KVT_OK && result.tokens_good == TOKENS, "a save fell short");
    uint64_t lease = kvt_conf_hit(&rig, 0, tokens, TOKENS + 1, TOKENS);
    kvt_conf_get(&rig, lease, tokens, PAGES, 100);
    GOOD(rig.entry->release(rig.engine, lease), "release");
    kvt_conf_end(&rig);
}

/* Pages behind a gap could never be matched: they must not be promised. */
static void save_gap(struct kvt_conf *conf)
{
    struct kvt_conf_rig rig;
    uint32_t tokens[TOKENS + 1], blocks[PAGES * KVT_CONF_PAGE_BLOCKS];
    uint64_t job = 0;
    kvt_conf_begin(conf, &rig);
    kvt_conf_tokens(tokens, TOKENS + 1, 1);
    kvt_conf_blocks(blocks, 0, PAGES);
    kvt_conf_paint(&rig, tokens, PAGES, blocks);
    kvt_conf_wipe(&rig, blocks, 2);
    kvt_save save = kvt_conf_saving(&rig, tokens, PAGES, blocks);
    save.valid_from_token = KVT_CONF_PAGE_TOKENS + 1u;
    GOOD(rig.entry->save(rig.engine, &save, &job), "save behind a gap");
    NEED(kvt_conf_finish(&rig, job).tokens_good == 0, "a save behind a gap says that it holds");
    NEED(kvt_conf_hit(&rig, 0, tokens, TOKENS + 1, 0) == 0, "pages behind a gap are promised");
    kvt_conf_end(&rig);
}

/* Saves under `fields`, and wants to see it there and nowhere else. */
static void namespaces(struct kvt_conf *conf)
{
    struct kvt_conf_rig rig;
    uint32_t tokens[TOKENS + 1], blocks[PAGES * KVT_CONF_PAGE_BLOCKS];
    uint64_t job = 0;
    static const kvt_field adapter_salt[] = {{KVT_FIELD_ADAPTER, 0, "adapter one", 11},
                                             {KVT_FIELD_SALT, 0, "salt", 4}};
    static const kvt_field salt_adapter[] = {{KVT_FIELD_SALT, 0, "salt", 4},
                                             {KVT_FIELD_ADAPTER, 0, "adapter one", 11}};
    static const kvt_field others[][2] = {
        {{KVT_FIELD_ADAPTER, 0, "adapter two", 11}, {KVT_FIELD_SALT, 0, "salt", 4}},
        {{KVT_FIELD_ADAPTER, 0, "adapter one", 11}, {KVT_FIELD_SALT, 0, NULL, 0}},
        {{KVT_FIELD_ADAPTER, 0, "adapter ones", 12}, {KVT_FIELD_SALT, 0, "alt", 3}},
        {{KVT_FIELD_SALT, 0, "adapter one", 11}, {KVT_FIELD_ADAPTER, 0, "salt", 4}}};
    kvt_conf_begin(conf, &rig);
    kvt_conf_tokens(tokens, TOKENS + 1, 1);
    kvt_conf_blocks(blocks, 0, PAGES);
    kvt_conf_paint(&rig, tokens, PAGES, blocks);
    kvt_save save = kvt_conf_saving(&rig, tokens, PAGES, blocks);
    save.fields = adapter_salt;
    save.field_count = 2;
    GOOD(rig.entry->save(rig.engine, &save, &job), "save in a namespace");
    GOOD(kvt_conf_finish(&rig, job).status, "save in a namespace");
    NEED(kvt_conf_hit(&rig, 0, tokens, TOKENS + 1, 0) == 0, "shared with the plain namespace");
    kvt_lookup lookup = kvt_conf_ask(0, tokens, TOKENS + 1);
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        for (uint64_t count = 1; count <= 2; count++) {
            lookup.fields = others[i];
            lookup.field_count = count;
            NEED(kvt_conf_look(&rig, &lookup).matched_tokens == 0,
                 "two namespaces share pages (case %zu, %u fields)", i, (unsigned)count);
        }
    }
    lookup.fields = adapter_salt;
    lookup.field_count = 1;
    NEED(kvt_conf_look(&rig, &lookup).matched_tokens == 0, "a field less is the same namespace");
    lookup.fields = salt_adapter;
    lookup.field_count = 2;
    kvt_lookup_result found = kvt_conf_look(&rig, &lookup);
    NEED(found.matched_tokens == TOKENS, "the order of fields matters");
    kvt_conf_get(&rig, found.lease, tokens, PAGES, 100);
    GOOD(rig.entry->release(rig.engine, found.lease), "release");
    kvt_conf_end(&rig);
}

static void extra_keys(struct kvt_conf *conf)
{
    struct kvt_conf_rig rig;
    uint32_t tokens[TOKENS + 1], blocks[PAGES * KVT_CONF_PAGE_BLOCKS];
    uint64_t job = 0;
    kvt_extra_key keys[2] = {{.token_index = 40, .digest = {1}}, {.token_index = 60}};
    if ((conf->entry->caps_offered & KVT_CAP_EXTRA_KEYS) == 0) {
        kvt_conf_skip("the plug-in offers no extra keys");
    }
    kvt_conf_begin(conf, &rig);
    kvt_conf_tokens(tokens, TOKENS + 1, 1);
    kvt_conf_blocks(blocks, 0, PAGES);
    kvt_conf_paint(&rig, tokens, PAGES, blocks);
    kvt_save save = kvt_conf_saving(&rig, tokens, PAGES, blocks);
    save.extras = keys;
    save.extra_count = 2;
    GOOD(rig.entry->save(rig.engine, &save, &job), "save with extra keys");
    GOOD(kvt_conf_finish(&rig, job).status, "save with extra keys");
    kvt_lookup lookup = kvt_conf_ask(0, tokens, TOKENS + 1);
    lookup.extras = keys;
    lookup.extra_count = 2;
    NEED(kvt_conf_look(&rig, &lookup).matched_tokens == TOKENS, "the same keys do not match");
    keys[0].digest[31] = 1;
    NEED(kvt_conf_look(&rig, &lookup).matched_tokens == 32, "another digest matches");
    keys[0].digest[31] = 0;
    keys[1].token_index = 61;
    NEED(kvt_conf_look(&rig, &lookup).matched_tokens == 48, "a key at another token matches");
    lookup.extra_count = 0;
    NEED(kvt_conf_look(&rig, &lookup).matched_tokens == 32, "without its keys it matches");
    keys[1].token_index = 40;
    lookup.extra_count = 2;
    kvt_lookup_result found = KVT_LOOKUP_RESULT_INIT;
    WANT(rig.entry->lookup(rig.engine, &lookup, &found), KVT_ERR_INVAL,
         "lookup with extra keys that do not rise");
    kvt_conf_end(&rig);
}

const struct kvt_conf_clause kvt_conf_data_clauses[] = {
    {"data.round_trip", "each request gets the bytes of its own whole prefix", round_trip},
    {"data.ranges", "any whole-page range of a lease; no other block is touched", ranges},
    {"data.restore_bad", "restores that cannot be are refused", restore_bad},
    {"data.save_bad", "saves that cannot be are refused", save_bad},
    {"data.page_size", "blocks of another size never mix with what is held", page_size},
    {"data.save_twice", "what is held is not kept twice; valid_from_token counts", save_twice},
    {"data.save_gap", "pages behind a gap are not promised", save_gap},
    {"data.namespaces", "fields narrow: no sharing, absent is not empty, any order", namespaces},
    {"data.extra_keys", "extra keys are part of the prefix, digest and place", extra_keys},
    {NULL, NULL, NULL}};
