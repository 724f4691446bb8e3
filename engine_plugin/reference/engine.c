#include "engine_plugin/reference/engine_internal.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine_plugin/reference/memory.h"
#include "engine_plugin/reference/thread.h"

#define KVT_FOREIGN_SEED UINT64_C(0x666f726569676e) /* of the tokens of the foreign page */

/* ---- small parts ---- */

uint64_t kvt_ref_page_bytes(uint32_t page_tokens)
{
    return (uint64_t)KVT_REF_REGIONS * KVT_REF_KV_WIDTH * sizeof(float) * page_tokens;
}

uint32_t kvt_ref_vocabulary(void) { return KVT_REF_VOCABULARY; }

void kvt_ref_sequence_free(struct kvt_ref_sequence *sequence)
{
    if (!sequence) return;
    free(sequence->tokens);
    free(sequence->blocks);
    kvt_ref_result_fini(&sequence->result);
    free(sequence);
}

void kvt_ref_list_append(struct kvt_ref_list *list, struct kvt_ref_sequence *sequence)
{
    sequence->next = NULL;
    if (list->last)
        list->last->next = sequence;
    else
        list->first = sequence;
    list->last = sequence;
}

struct kvt_ref_sequence *kvt_ref_list_take(struct kvt_ref_list *list)
{
    struct kvt_ref_sequence *sequence = list->first;
    if (!sequence) return NULL;
    list->first = sequence->next;
    if (!list->first) list->last = NULL;
    sequence->next = NULL;
    return sequence;
}

bool kvt_ref_cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t attr;
    if (pthread_condattr_init(&attr) != 0) return false;
    bool done = pthread_condattr_setclock(&attr, CLOCK_MONOTONIC) == 0 &&
                pthread_cond_init(cond, &attr) == 0;
    pthread_condattr_destroy(&attr);
    return done;
}

bool kvt_ref_cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t deadline_ns)
{
    struct timespec deadline = {.tv_sec = (time_t)(deadline_ns / UINT64_C(1000000000)),
                                .tv_nsec = (long)(deadline_ns % UINT64_C(1000000000))};
    return pthread_cond_timedwait(cond, lock, &deadline) == 0;
}

static uint32_t default_threads(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
    int count = CPU_COUNT(&set);
    if (count < 1) return 1;
    return (uint32_t)count < KVT_REF_THREADS_DEFAULT_MAX ? (uint32_t)count
                                                         : KVT_REF_THREADS_DEFAULT_MAX;
}

/* ---- opening ---- */

static bool wants_cache(const struct kvt_ref_config *config)
{
    return config->plugin_path || config->plugin_entry;
}

/* Fills in defaults and refuses what cannot be; what the cache takes is checked there. */
static kvt_status check_config(struct kvt_ref_config *config, char *why, uint64_t why_bytes)
{
    if (config->threads == 0) config->threads = default_threads();
    if (config->block_tokens == 0) config->block_tokens = KVT_REF_BLOCK_TOKENS_DEFAULT;
    if (config->page_tokens == 0) config->page_tokens = KVT_REF_PAGE_TOKENS_DEFAULT;
    const char *wrong = NULL;
    if (config->threads > KVT_REF_THREADS_MAX)
        wrong = "threads must be at most 64";
    else if (config->context_tokens < 2 || config->context_tokens > KVT_REF_CONTEXT_MAX)
        wrong = "context_tokens must be 2 to 1048576";
    else if (!kvt_ref_block_tokens_valid(config->block_tokens))
        wrong = "block_tokens must be 16, 32, 64, 128 or 256";
    else if (config->concurrency < 1 || config->concurrency > KVT_REF_CONCURRENCY_MAX)
        wrong = "concurrency must be 1 to 16";
    else if (config->output_tokens < 1 || config->output_tokens >= config->context_tokens)
        wrong = "output_tokens must be at least 1 and leave room for a prompt";
    else if (wants_cache(config) && config->page_tokens > config->context_tokens)
        wrong = "page_tokens must not exceed context_tokens";
    if (!wrong) return KVT_OK;
    snprintf(why, why_bytes, "%s", wrong);
    return KVT_ERR_INVAL;
}

static kvt_status open_model(struct kvt_ref_engine *engine, char *why, uint64_t why_bytes)
{
    const struct kvt_ref_config *config = &engine->config;
    uint32_t sequence_blocks =
        (config->context_tokens + config->block_tokens - 1) / config->block_tokens;
    /* One sequence more than can run at once: its blocks are held by a save as a rule. */
    uint32_t bound_blocks = (config->concurrency + 1) * sequence_blocks;
    uint32_t reserve_blocks = wants_cache(config) ? config->concurrency * sequence_blocks : 0;
    kvt_status status = kvt_ref_blas_open(&engine->blas, why, why_bytes);
    if (status != KVT_OK) return status;
    status = kvt_ref_model_open(config->seed, &engine->model);
    if (status == KVT_OK)
        status = kvt_ref_kv_open(config->block_tokens, bound_blocks, reserve_blocks, &engine->kv);
    if (status == KVT_OK)
        status = kvt_ref_compute_open(&engine->model, &engine->blas, &engine->kv, config->threads,
                                      config->context_tokens, &engine->compute);
    if (status == KVT_OK) status = kvt_ref_queue_open(&engine->queue);
    if (status == KVT_OK) status = kvt_ref_step_open(&engine->compute, &engine->step);
    if (status == KVT_OK) status = kvt_ref_step_open(&engine->compute, &engine->spare_step);
    if (status == KVT_OK) {
        engine->logits = calloc(KVT_REF_VOCABULARY, sizeof(*engine->logits));
        if (!engine->logits) status = KVT_ERR_NOMEM;
    }
    return status;
}

/* Computes a page of tokens that no request has, for the control. Runs before the scheduler. */
static kvt_status make_foreign_page(struct kvt_ref_engine *engine)
{
    uint32_t page_tokens = engine->config.page_tokens;
    uint32_t block_count = page_tokens / engine->config.block_tokens;
    uint32_t *tokens = calloc(page_tokens, sizeof(*tokens));
    uint32_t *blocks = calloc(block_count, sizeof(*blocks));
    kvt_status status = KVT_ERR_NOMEM;
    if (!tokens || !blocks || !kvt_ref_kv_take(&engine->kv, block_count, blocks)) goto undo_memory;
    uint64_t random = KVT_FOREIGN_SEED;
    for (uint32_t i = 0; i < page_tokens; i++)
        tokens[i] = (uint32_t)(kvt_ref_random(&random) % KVT_REF_VOCABULARY);
    for (uint32_t from = 0; from < page_tokens; from += KVT_REF_ROWS) {
        uint32_t count = page_tokens - from < KVT_REF_ROWS ? page_tokens - from : KVT_REF_ROWS;
        struct kvt_ref_batch *batch = &engine->step->batch;
        kvt_ref_batch_clear(batch);
        kvt_ref_batch_add(batch, tokens + from, blocks, 0, count, from);
        kvt_ref_pass(&engine->compute, batch, false);
    }
    status = kvt_ref_cache_keep_foreign(engine->cache, blocks);
    kvt_ref_kv_give(&engine->kv, blocks, block_count);
undo_memory:
    free(tokens);
    free(blocks);
    return status;
}

static kvt_status open_cache(struct kvt_ref_engine *engine, char *why, uint64_t why_bytes)
{
    char build[KVT_REF_BUILD_BYTES_MAX];
    snprintf(build, sizeof(build), "%s; %s; %s; rows %s", __VERSION__, engine->compute.vec->isa,
             engine->blas.build, engine->aligned_rows ? "aligned" : "anywhere");
    struct kvt_ref_identity identity = {engine->model.digest, build};
    kvt_status status =
        kvt_ref_cache_open(&engine->config, &engine->kv, &identity, &engine->cache, why, why_bytes);
    if (status == KVT_OK && kvt_ref_cache_has_control(engine->cache))
        status = make_foreign_page(engine);
    return status;
}

static void choose_rows(struct kvt_ref_engine *engine)
{
    engine->aligned_rows = engine->config.aligned_rows || !engine->blas.rows_anywhere;
    if (engine->aligned_rows)
        kvt_ref_log(
            &engine->log, KVT_REF_WARNING,
            "reference engine: %s; tokens are computed in the row of their position modulo "
            "%d, so the first chunk behind a hit is shorter and sequences at like positions "
            "decode in separate steps",
            engine->blas.rows_anywhere
                ? "aligned rows were asked for"
                : "this OpenBLAS gives a row's product other bits in other rows",
            KVT_REF_ROWS);
}

static kvt_status start_scheduler(struct kvt_ref_engine *engine)
{
    kvt_status status = kvt_ref_thread_start(&engine->scheduler, kvt_ref_scheduler_main, engine);
    engine->scheduler_started = status == KVT_OK;
    return status;
}

kvt_status kvt_ref_open(const struct kvt_ref_config *config, struct kvt_ref_engine **out_engine,
                        char *why, uint64_t why_bytes)
{
    struct kvt_ref_engine *engine = calloc(1, sizeof(*engine));
    char sentence[256] = "memory or threads could not be had";
    kvt_status status = KVT_ERR_NOMEM;
    if (!engine) goto undo_engine;
    engine->config = *config;
    engine->log = (struct kvt_ref_log){config->log, config->log_ctx};
    engine->transfer_deadline_ns =
        config->transfer_deadline_ns ? config->transfer_deadline_ns : KVT_REF_TRANSFER_DEADLINE_NS;
    if (!kvt_ref_cond_init(&engine->arrived)) goto undo_engine;
    if (!kvt_ref_cond_init(&engine->finished)) goto undo_arrived;
    pthread_mutex_init(&engine->lock, NULL);
    status = check_config(&engine->config, sentence, sizeof(sentence));
    if (status == KVT_OK) status = open_model(engine, sentence, sizeof(sentence));
    if (status == KVT_OK) choose_rows(engine);
    if (status == KVT_OK && wants_cache(config))
        status = open_cache(engine, sentence, sizeof(sentence));
    if (status == KVT_OK) status = start_scheduler(engine);
    if (status == KVT_OK) {
        engine->config.plugin_path = engine->config.plugin_uri = NULL;
        engine->config.evict_policy = NULL;
        *out_engine = engine;
        return KVT_OK;
    }
    if (why_bytes > 0) snprintf(why, why_bytes, "%s", sentence);
    kvt_ref_close(engine);
    return status;
undo_arrived:
    pthread_cond_destroy(&engine->arrived);
undo_engine:
    if (why_bytes > 0) snprintf(why, why_bytes, "%s", sentence);
    free(engine);
    return status;
}

/* ---- closing ---- */

static void free_results(struct kvt_ref_list *list)
{
    struct kvt_ref_sequence *sequence;
    while ((sequence = kvt_ref_list_take(list)) != NULL) kvt_ref_sequence_free(sequence);
}

void kvt_ref_close(struct kvt_ref_engine *engine)
{
    if (!engine) return;
    if (engine->scheduler_started) {
        pthread_mutex_lock(&engine->lock);
        engine->closing = true;
        pthread_cond_broadcast(&engine->arrived);
        pthread_mutex_unlock(&engine->lock);
        pthread_join(engine->scheduler, NULL);
    }
    bool plugin_closed = kvt_ref_cache_close(engine->cache);
    kvt_ref_queue_close(engine->queue);
    kvt_ref_compute_close(&engine->compute);
    /* What a plug-in that does not end may still touch stays. */
    if (plugin_closed) {
        kvt_ref_step_close(engine->abandoned_step);
        kvt_ref_kv_close(&engine->kv);
    }
    kvt_ref_step_close(engine->step);
    kvt_ref_step_close(engine->spare_step);
    kvt_ref_model_close(&engine->model);
    kvt_ref_blas_close(&engine->blas);
    free_results(&engine->results);
    free(engine->logits);
    pthread_mutex_destroy(&engine->lock);
    pthread_cond_destroy(&engine->arrived);
    pthread_cond_destroy(&engine->finished);
    free(engine);
}

/* ---- requests ---- */

static struct kvt_ref_sequence *make_sequence(const struct kvt_ref_engine *engine,
                                              const uint32_t *tokens, uint32_t token_count)
{
    const uint32_t block_tokens = engine->config.block_tokens;
    uint64_t all_tokens = (uint64_t)token_count + engine->config.output_tokens;
    struct kvt_ref_sequence *sequence = calloc(1, sizeof(*sequence));
    if (!sequence) return NULL;
    sequence->block_count = (uint32_t)((all_tokens + block_tokens - 1) / block_tokens);
    sequence->tokens = calloc(all_tokens, sizeof(*sequence->tokens));
    sequence->blocks = calloc(sequence->block_count, sizeof(*sequence->blocks));
    sequence->result.outputs = calloc(engine->config.output_tokens, sizeof(uint32_t));
    if (!sequence->tokens || !sequence->blocks || !sequence->result.outputs) {
        kvt_ref_sequence_free(sequence);
        return NULL;
    }
    for (uint32_t i = 0; i < token_count; i++) sequence->tokens[i] = tokens[i] % KVT_REF_VOCABULARY;
    sequence->token_count = token_count;
    sequence->result.prompt_tokens = token_count;
    return sequence;
}

kvt_status kvt_ref_submit(struct kvt_ref_engine *engine, uint64_t request_id,
                          const uint32_t *tokens, uint32_t token_count, uint64_t due_ns)
{
    if (!tokens || token_count == 0) return KVT_ERR_INVAL;
    const uint64_t now_ns = kvt_ref_now_ns();
    bool too_long =
        (uint64_t)token_count + engine->config.output_tokens > engine->config.context_tokens;
    struct kvt_ref_sequence *sequence = make_sequence(engine, tokens, token_count);
    if (!sequence) return KVT_ERR_NOMEM;
    sequence->result.request_id = request_id;
    sequence->result.submit_ns = due_ns ? due_ns : now_ns;
    pthread_mutex_lock(&engine->lock);
    if (too_long) {
        sequence->result.status = KVT_ERR_LIMIT;
        sequence->result.first_token_ns = sequence->result.done_ns = now_ns;
        kvt_ref_list_append(&engine->results, sequence);
        pthread_cond_broadcast(&engine->finished);
    } else {
        kvt_ref_list_append(&engine->incoming, sequence);
        pthread_cond_broadcast(&engine->arrived);
    }
    pthread_mutex_unlock(&engine->lock);
    return KVT_OK;
}

kvt_status kvt_ref_next(struct kvt_ref_engine *engine, uint64_t timeout_ns,
                        struct kvt_ref_result *out_result)
{
    const uint64_t now_ns = kvt_ref_now_ns();
    const uint64_t deadline_ns =
        timeout_ns < UINT64_MAX - now_ns ? now_ns + timeout_ns : UINT64_MAX;
    pthread_mutex_lock(&engine->lock);
    bool waiting = true;
    while (!engine->results.first && waiting)
        waiting = kvt_ref_cond_wait_until(&engine->finished, &engine->lock, deadline_ns);
    struct kvt_ref_sequence *sequence = kvt_ref_list_take(&engine->results);
    pthread_mutex_unlock(&engine->lock);
    if (!sequence) return KVT_ERR_TIMEOUT;
    *out_result = sequence->result;
    sequence->result.outputs = NULL;
    kvt_ref_sequence_free(sequence);
    return KVT_OK;
}

void kvt_ref_result_fini(struct kvt_ref_result *result)
{
    free(result->outputs);
    result->outputs = NULL;
}

kvt_status kvt_ref_cache_stats(struct kvt_ref_engine *engine, kvt_stats *out_stats)
{
    if (!engine->cache) return KVT_ERR_UNSUPPORTED;
    return kvt_ref_cache_stats_of(engine->cache, out_stats);
}
