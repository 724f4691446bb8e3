/*
 * An engine that is made up: it answers at once, with tokens that follow from the prompt, takes
 * half of every prompt from its cache where it has one, and does wrong what the test asks it to.
 */
#ifndef KVT_TOOL_FAKE_ENGINE_H
#define KVT_TOOL_FAKE_ENGINE_H

#include <limits.h>
#include <xxhash.h>

#include "tests/unit/tool_support.h"
#include "tools/progress.h"
#include "tools/replay.h"

#define PAGE_BYTES_OF_TOKEN 1000U
#define QUEUE_MAX 64
#define REQUESTS_MAX 64
#define MS UINT64_C(1000000)
#define OUTPUTS 3U

enum fault {
    FAULT_NONE,
    FAULT_TOKEN,        /* one generated token is another one with the cache */
    FAULT_DIGEST,       /* the logits' digest is */
    FAULT_SHORTER,      /* a token is missing */
    FAULT_BREAKS,       /* the cache counts a request that does not add up */
    FAULT_ASKED,        /* asked is more than delivered and computed */
    FAULT_UNDELIVERED,  /* the cache says delivered, the engine computed it again */
    FAULT_UNCOUNTED,    /* the cache never heard of a request */
    FAULT_REQUEST,      /* one request fails, with the cache */
    FAULT_UNKNOWN_ID,   /* an answer to something never asked */
    FAULT_TWICE,        /* an answer given two times */
    FAULT_OPEN_VERSION, /* the plug-in is of another version */
    FAULT_OPEN_INVAL,
    FAULT_SUBMIT,
    FAULT_NEXT,
    FAULT_STATS
};

struct request {
    uint64_t id, submit_ns, due_ns;
    uint32_t token_count;
    uint64_t hash;
};

struct kvt_ref_engine {
    bool with_cache;
    uint32_t page_tokens;
    struct request queue[QUEUE_MAX];
    uint32_t queued;
    kvt_stats stats;
};

/* What the test sets, and what the engine saw. */
static struct {
    enum fault fault;
    bool last_first; /* answers the newest request first */
    struct kvt_ref_config config;
    uint32_t opened, closed, live_results;
    bool first_open_had_cache;
    char plugin_path[PATH_MAX];
    uint64_t ids[2][REQUESTS_MAX]; /* [with the cache] in the order of submission */
    uint64_t dues_ns[2][REQUESTS_MAX], submits_ns[2][REQUESTS_MAX];
    uint32_t id_count[2];
    uint32_t outstanding_most;
} fake;

static uint64_t fake_page_bytes(uint32_t page_tokens)
{
    return (uint64_t)page_tokens * PAGE_BYTES_OF_TOKEN;
}

static uint32_t fake_vocabulary(void) { return 4093; }

static kvt_status fake_open(const struct kvt_ref_config *config, struct kvt_ref_engine **out_engine,
                            char *why, uint64_t why_bytes)
{
    fake.config = *config;
    if (fake.opened++ == 0) {
        fake.first_open_had_cache = config->plugin_path != NULL;
    }
    if (config->plugin_path != NULL) {
        (void)snprintf(fake.plugin_path, sizeof(fake.plugin_path), "%s", config->plugin_path);
    }
    if (config->plugin_path != NULL && fake.fault == FAULT_OPEN_VERSION) {
        (void)snprintf(why, (size_t)why_bytes, "the plug-in speaks version 7");
        return KVT_ERR_VERSION;
    }
    if (config->plugin_path != NULL && fake.fault == FAULT_OPEN_INVAL) {
        (void)snprintf(why, (size_t)why_bytes, "no policy has that name");
        return KVT_ERR_INVAL;
    }
    struct kvt_ref_engine *engine = calloc(1, sizeof(*engine));
    ck_assert_ptr_nonnull(engine);
    engine->with_cache = config->plugin_path != NULL;
    engine->page_tokens = config->page_tokens;
    engine->stats.evicted_pages = 5;
    engine->stats.demoted_pages = 2;
    *out_engine = engine;
    return KVT_OK;
}

static void fake_close(struct kvt_ref_engine *engine)
{
    fake.closed++;
    free(engine);
}

static kvt_status fake_submit(struct kvt_ref_engine *engine, uint64_t request_id,
                              const uint32_t *tokens, uint32_t token_count, uint64_t due_ns)
{
    if (fake.fault == FAULT_SUBMIT) {
        return KVT_ERR_NOMEM;
    }
    int half = engine->with_cache ? 1 : 0;
    ck_assert_uint_lt(engine->queued, QUEUE_MAX);
    ck_assert_uint_lt(fake.id_count[half], REQUESTS_MAX);
    struct request *request = &engine->queue[engine->queued++];
    *request = (struct request){.id = request_id,
                                .submit_ns = kvt_tool_now_ns(),
                                .due_ns = due_ns,
                                .token_count = token_count,
                                .hash = XXH3_64bits(tokens, sizeof(*tokens) * token_count)};
    fake.dues_ns[half][fake.id_count[half]] = due_ns;
    fake.submits_ns[half][fake.id_count[half]] = request->submit_ns;
    fake.ids[half][fake.id_count[half]++] = request_id;
    fake.outstanding_most =
        engine->queued > fake.outstanding_most ? engine->queued : fake.outstanding_most;
    return KVT_OK;
}

/* Half of the prompt's pages come from the cache. */
static void account(struct kvt_ref_engine *engine, const struct request *request,
                    struct kvt_ref_result *result)
{
    result->prompt_tokens = request->token_count;
    result->computed_tokens = request->token_count;
    if (!engine->with_cache) {
        return;
    }
    uint32_t pages = request->token_count / 2 / engine->page_tokens;
    uint32_t cached = pages * engine->page_tokens;
    result->cached_tokens = cached;
    result->computed_tokens = request->token_count - cached;
    kvt_stats *stats = &engine->stats;
    if (fake.fault == FAULT_UNCOUNTED && request->id == 2) {
        return;
    }
    stats->requests_reported++;
    stats->tokens_asked += request->token_count;
    stats->tokens_computed += result->computed_tokens;
    stats->tokens_delivered[pages > 1 ? KVT_TIER_HOST : KVT_TIER_HBM] += cached;
    stats->missed_pages[KVT_MISS_NEVER_SEEN] += 1;
    if (fake.fault == FAULT_ASKED && request->id == 2) {
        stats->tokens_asked++;
    }
    if (fake.fault == FAULT_BREAKS && request->id == 2) {
        stats->conservation_breaks++;
    }
    if (fake.fault == FAULT_UNDELIVERED && request->id == 2) {
        result->cached_tokens = 0;
        result->computed_tokens = request->token_count;
    }
}

static void answer(struct kvt_ref_engine *engine, const struct request *request,
                   struct kvt_ref_result *out_result)
{
    struct kvt_ref_result result = {.request_id = request->id,
                                    .output_count = OUTPUTS,
                                    .submit_ns = request->submit_ns,
                                    .first_token_ns = request->submit_ns + 10 * MS,
                                    .done_ns = request->submit_ns + 11 * MS};
    bool chosen = engine->with_cache && request->id == 2;
    result.outputs = calloc(OUTPUTS, sizeof(*result.outputs));
    ck_assert_ptr_nonnull(result.outputs);
    fake.live_results++;
    for (uint32_t i = 0; i < OUTPUTS; i++) {
        result.outputs[i] = (uint32_t)(request->hash >> (8 * i)) & 0xff;
    }
    memcpy(result.logit_digest, &request->hash, sizeof(request->hash));
    account(engine, request, &result);
    if (engine->with_cache) {
        result.first_token_ns = request->submit_ns + 2 * MS;
        result.done_ns = request->submit_ns + 3 * MS;
    }
    if (chosen && fake.fault == FAULT_TOKEN) {
        result.outputs[2]++;
    }
    if (chosen && fake.fault == FAULT_DIGEST) {
        result.logit_digest[15] ^= 1;
    }
    if (chosen && fake.fault == FAULT_SHORTER) {
        result.output_count--;
    }
    if (chosen && fake.fault == FAULT_REQUEST) {
        result.status = KVT_ERR_DEVICE;
    }
    if (chosen && fake.fault == FAULT_UNKNOWN_ID) {
        result.request_id = 77;
    }
    if (chosen && fake.fault == FAULT_TWICE) {
        result.request_id = 1;
    }
    *out_result = result;
}

static kvt_status fake_next(struct kvt_ref_engine *engine, uint64_t timeout_ns,
                            struct kvt_ref_result *out_result)
{
    ck_assert_uint_lt(timeout_ns, UINT64_C(10) * 1000 * MS);
    if (fake.fault == FAULT_NEXT) {
        return KVT_ERR_DEVICE;
    }
    if (engine->queued == 0) {
        return KVT_ERR_TIMEOUT;
    }
    uint32_t at = fake.last_first ? engine->queued - 1 : 0;
    struct request request = engine->queue[at];
    engine->queued--;
    memmove(&engine->queue[at], &engine->queue[at + 1],
            sizeof(engine->queue[0]) * (engine->queued - at));
    answer(engine, &request, out_result);
    return KVT_OK;
}

static void fake_result_fini(struct kvt_ref_result *result)
{
    free(result->outputs);
    fake.live_results--;
}

static kvt_status fake_cache_stats(struct kvt_ref_engine *engine, kvt_stats *out_stats)
{
    ck_assert(engine->with_cache);
    ck_assert_uint_eq(out_stats->struct_size, sizeof(kvt_stats));
    if (fake.fault == FAULT_STATS) {
        return KVT_ERR_BUSY;
    }
    *out_stats = engine->stats;
    return KVT_OK;
}

static const struct kvt_replay_engine fake_engine = {.name = "made-up",
                                                     .block_tokens = 4,
                                                     .page_bytes = fake_page_bytes,
                                                     .vocabulary = fake_vocabulary,
                                                     .open = fake_open,
                                                     .close = fake_close,
                                                     .submit = fake_submit,
                                                     .next = fake_next,
                                                     .result_fini = fake_result_fini,
                                                     .cache_stats = fake_cache_stats};

#endif
