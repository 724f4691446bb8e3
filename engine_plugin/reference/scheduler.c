/*
 * The scheduler: one thread.
 *
 * A step is one forward pass: the next chunk of one prompt, or the next token of every sequence
 * that decodes, or both. First tokens come first: while a prompt waits, sequences that decode get
 * rows in one step of KVT_REF_DECODE_EVERY only. The prompt is the one with the fewest tokens left
 * to compute, so that a short rest does not wait for a long prompt; but the oldest gets the step
 * when it was passed over often enough. Requests are admitted first come, first served.
 *
 * Where rows have their positions (aligned_rows), a chunk and the decoding sequences would want the
 * same rows: they take turns then.
 */
#include "engine_plugin/reference/engine_internal.h"

#include <string.h>

#include <xxhash.h>

#define KVT_PAUSE_NS UINT64_C(200000) /* when there is nothing to compute, but something to await */

static bool cache_on(const struct kvt_ref_engine *engine)
{
    return engine->cache && !engine->cache_off;
}

/* ---- the end of a sequence ---- */

static void hand_out(struct kvt_ref_engine *engine, struct kvt_ref_sequence *sequence)
{
    struct kvt_ref_result *result = &sequence->result;
    if (engine->cache)
        kvt_ref_cache_report(engine->cache, &sequence->transfer, result->prompt_tokens,
                             result->computed_tokens);
    if (!sequence->blocks_lost)
        kvt_ref_kv_give(&engine->kv, sequence->blocks, sequence->block_count);
    pthread_mutex_lock(&engine->lock);
    kvt_ref_list_append(&engine->results, sequence);
    pthread_cond_broadcast(&engine->finished);
    pthread_mutex_unlock(&engine->lock);
}

static void end(struct kvt_ref_engine *engine, struct kvt_ref_sequence *sequence, kvt_status status)
{
    uint32_t at = 0;
    while (engine->active[at] != sequence) at++;
    engine->active_count--;
    memmove(&engine->active[at], &engine->active[at + 1],
            (engine->active_count - at) * sizeof(*engine->active));
    sequence->result.status = status;
    sequence->result.computed_tokens =
        sequence->result.prompt_tokens - sequence->result.cached_tokens;
    sequence->result.done_ns = kvt_ref_now_ns();
    sequence->phase = KVT_REF_SAVING;
    if (sequence->transfer.saving)
        kvt_ref_list_append(&engine->saving, sequence);
    else
        hand_out(engine, sequence);
}

/* ---- the cache's failure ---- */

/* A restore that does not end may still write: the sequence gets other blocks and starts over. */
static void start_over(struct kvt_ref_engine *engine, struct kvt_ref_sequence *sequence)
{
    sequence->transfer.restoring = sequence->transfer.unsettled = false;
    sequence->computed = 0;
    if (kvt_ref_kv_take(&engine->kv, sequence->block_count, sequence->blocks)) return;
    sequence->blocks_lost = true;
    end(engine, sequence, KVT_ERR_NOMEM);
}

static void turn_cache_off(struct kvt_ref_engine *engine)
{
    if (!cache_on(engine)) return;
    engine->cache_off = true;
    kvt_ref_log(&engine->log, KVT_REF_ERROR,
                "reference engine: the cache is off from here on; every prompt is computed");
    kvt_ref_kv_open_reserve(&engine->kv);
    for (uint32_t i = engine->active_count; i-- > 0;) {
        struct kvt_ref_sequence *sequence = engine->active[i];
        if (sequence->phase == KVT_REF_LOOKUP) sequence->phase = KVT_REF_PREFILL;
        if (!sequence->transfer.restoring) continue;
        kvt_ref_cache_cancel_restore(engine->cache, &sequence->transfer);
        start_over(engine, sequence);
    }
}

/* ---- what came back from the cache ---- */

enum settled { SETTLED_WHOLE, SETTLED_SHORT, SETTLED_NOT };

/* Acts upon a restore's outcome, waiting for it if need be. When it was shorter than promised, what
 * was computed behind it is void, and the sequence goes on from where the restore was good. */
static enum settled settle(struct kvt_ref_engine *engine, struct kvt_ref_sequence *sequence)
{
    struct kvt_ref_transfer *transfer = &sequence->transfer;
    if (!transfer->unsettled) return SETTLED_WHOLE;
    if (!kvt_ref_cache_restore_end(engine->cache, transfer)) {
        turn_cache_off(engine);
        return SETTLED_NOT;
    }
    transfer->unsettled = false;
    sequence->result.cached_tokens = transfer->good_tokens;
    if (transfer->good_tokens == transfer->matched_tokens) return SETTLED_WHOLE;
    sequence->computed = transfer->good_tokens;
    return SETTLED_SHORT;
}

/* Before a chunk: a restore that has ended needs no waiting inside the pass, and a control must
 * change the page before anything reads it. False when the cache was turned off. */
static bool settle_early(struct kvt_ref_engine *engine, struct kvt_ref_sequence *sequence)
{
    if (!sequence->transfer.unsettled) return true;
    bool control = kvt_ref_cache_has_control(engine->cache);
    if (!control && !kvt_ref_cache_restored(engine->cache, &sequence->transfer, 0)) return true;
    if (settle(engine, sequence) == SETTLED_NOT) return false;
    if (control) kvt_ref_cache_apply_control(engine->cache, sequence->blocks, sequence->computed);
    return true;
}

static void look_up(struct kvt_ref_engine *engine, struct kvt_ref_sequence *sequence)
{
    struct kvt_ref_transfer *transfer = &sequence->transfer;
    sequence->phase = KVT_REF_PREFILL;
    if (!cache_on(engine)) return;
    switch (kvt_ref_cache_lookup(engine->cache, transfer, sequence->tokens,
                                 sequence->result.prompt_tokens)) {
    case KVT_REF_AGAIN:
        sequence->phase = KVT_REF_LOOKUP;
        break;
    case KVT_REF_HIT:
        if (kvt_ref_cache_restore(engine->cache, transfer, sequence->blocks))
            sequence->computed = transfer->matched_tokens;
        break;
    case KVT_REF_NOTHING:
        break;
    }
}

/* ---- steps ---- */

static uint32_t best_token(const float *logits)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < KVT_REF_VOCABULARY; i++)
        if (logits[i] > logits[best]) best = i;
    return best;
}

/* Takes the next token of a sequence from its row of logits. */
static void take_token(struct kvt_ref_engine *engine, struct kvt_ref_sequence *sequence,
                       uint32_t row)
{
    struct kvt_ref_result *result = &sequence->result;
    kvt_ref_logits_row(&engine->compute, row, engine->logits);
    uint32_t token = best_token(engine->logits);
    sequence->tokens[sequence->token_count++] = token;
    result->outputs[result->output_count++] = token;
    if (result->output_count == 1) {
        result->first_token_ns = kvt_ref_now_ns();
        XXH128_canonical_t canonical;
        XXH128_canonicalFromHash(&canonical,
                                 XXH3_128bits(engine->logits, KVT_REF_VOCABULARY * sizeof(float)));
        memcpy(result->logit_digest, canonical.digest, sizeof(result->logit_digest));
    }
    if (result->output_count == engine->config.output_tokens) end(engine, sequence, KVT_OK);
}

/* The row in which a token at this position is computed, given the first row that is free. */
static uint32_t row_for(const struct kvt_ref_engine *engine, uint32_t position, uint32_t free_row)
{
    return engine->aligned_rows ? position % KVT_REF_ROWS : free_row;
}

/* The prompt that computes next, or NULL. */
static struct kvt_ref_sequence *choose_prompt(struct kvt_ref_engine *engine)
{
    struct kvt_ref_sequence *oldest = NULL, *shortest = NULL;
    uint32_t least = UINT32_MAX;
    for (uint32_t i = 0; i < engine->active_count; i++) {
        struct kvt_ref_sequence *sequence = engine->active[i];
        if (sequence->phase != KVT_REF_PREFILL) continue;
        if (cache_on(engine) && kvt_ref_cache_waits_for_drive(engine->cache, &sequence->transfer))
            continue;
        uint32_t rest = sequence->result.prompt_tokens - sequence->computed;
        if (!oldest) oldest = sequence;
        if (rest < least) {
            least = rest;
            shortest = sequence;
        }
    }
    if (shortest == oldest || engine->passed_over == KVT_REF_PASSED_OVER_MAX) {
        engine->passed_over = 0;
        return oldest;
    }
    engine->passed_over++;
    return shortest;
}

/* What one step computes. */
struct kvt_ref_rows {
    struct kvt_ref_sequence *prompt;                 /* whose chunk, or NULL */
    uint32_t prompt_row, prompt_count;               /* its rows */
    struct kvt_ref_sequence *decoding[KVT_REF_ROWS]; /* whose token is in the row, or NULL */
};

static void add_prompt(struct kvt_ref_engine *engine, struct kvt_ref_rows *rows,
                       uint32_t decoding_count)
{
    struct kvt_ref_sequence *sequence = rows->prompt;
    const uint32_t from = sequence->computed;
    const uint32_t rest = sequence->result.prompt_tokens - from;
    rows->prompt_row = row_for(engine, from, 0);
    rows->prompt_count = KVT_REF_ROWS - rows->prompt_row;
    if (!engine->aligned_rows) rows->prompt_count -= decoding_count;
    if (rows->prompt_count > rest) rows->prompt_count = rest;
    kvt_ref_batch_add(&engine->step->batch, sequence->tokens + from, sequence->blocks,
                      rows->prompt_row, rows->prompt_count, from);
}

static void add_decoding(struct kvt_ref_engine *engine, struct kvt_ref_rows *rows)
{
    const uint32_t count = engine->active_count;
    uint32_t free_row = rows->prompt_row + rows->prompt_count;
    for (uint32_t i = 0; i < count; i++) {
        struct kvt_ref_sequence *sequence = engine->active[(engine->decode_turn + i) % count];
        if (sequence->phase != KVT_REF_DECODE) continue;
        uint32_t row = row_for(engine, sequence->computed, free_row);
        /* Where rows have their positions, two sequences can want the same one: next time. */
        if (rows->decoding[row]) continue;
        rows->decoding[row] = sequence;
        free_row++;
        kvt_ref_batch_add(&engine->step->batch, sequence->tokens + sequence->computed,
                          sequence->blocks, row, 1, sequence->computed);
    }
    engine->decode_turn++;
}

/* The chunk has run: is it good, and was it the prompt's last? */
static void end_chunk(struct kvt_ref_engine *engine, const struct kvt_ref_rows *rows)
{
    struct kvt_ref_sequence *sequence = rows->prompt;
    const uint32_t prompt_tokens = sequence->result.prompt_tokens;
    const uint32_t end_token = sequence->computed + rows->prompt_count;
    if (settle(engine, sequence) != SETTLED_WHOLE) return;
    sequence->computed = end_token;
    if (end_token < prompt_tokens) return;
    sequence->phase = KVT_REF_DECODE;
    /* The step has run and every restored page was reported good: only now may these bytes be given
     * a name. */
    if (cache_on(engine))
        kvt_ref_cache_save(engine->cache, &sequence->transfer, sequence->tokens, prompt_tokens,
                           sequence->blocks);
    take_token(engine, sequence, rows->prompt_row + rows->prompt_count - 1);
}

/* Keep the rate at which prompts are computed, and tell the cache when it has changed. */
static void count_prefill(struct kvt_ref_engine *engine, uint32_t tokens, uint64_t took_ns)
{
    if (engine->prefill_tokens > KVT_REF_PREFILL_WINDOW) {
        engine->prefill_tokens /= 2;
        engine->prefill_ns /= 2;
    }
    engine->prefill_tokens += tokens;
    engine->prefill_ns += took_ns;
    uint64_t rate = (uint64_t)((double)engine->prefill_tokens * 1e9 / (double)engine->prefill_ns);
    uint64_t change =
        rate > engine->prefill_told ? rate - engine->prefill_told : engine->prefill_told - rate;
    if (cache_on(engine) && !engine->config.load_always && change > rate / 16) {
        engine->prefill_told = rate;
        kvt_ref_cache_tell_prefill(engine->cache, rate);
    }
}

static void step(struct kvt_ref_engine *engine, struct kvt_ref_sequence *prompt,
                 uint32_t decoding_count)
{
    struct kvt_ref_rows rows = {.prompt = prompt};
    if (prompt && !settle_early(engine, prompt)) return;
    kvt_ref_batch_clear(&engine->step->batch);
    if (prompt) add_prompt(engine, &rows, decoding_count);
    if (decoding_count > 0) add_decoding(engine, &rows);
    bool last = prompt && prompt->computed + rows.prompt_count == prompt->result.prompt_tokens;
    engine->step->want_logits = last || decoding_count > 0;
    struct kvt_ref_transfer *restoring =
        prompt && prompt->transfer.restoring ? &prompt->transfer : NULL;
    uint64_t start_ns = kvt_ref_now_ns();
    if (!kvt_ref_step_run(engine, restoring)) {
        turn_cache_off(engine);
        return;
    }
    if (rows.prompt_count == KVT_REF_ROWS && !restoring)
        count_prefill(engine, rows.prompt_count, kvt_ref_now_ns() - start_ns + 1);
    /* A restore that fell short voids the chunk behind it and nothing else: the others read their
     * own blocks only. */
    for (uint32_t row = 0; row < KVT_REF_ROWS; row++)
        if (rows.decoding[row]) {
            rows.decoding[row]->computed++;
            take_token(engine, rows.decoding[row], row);
        }
    if (prompt) end_chunk(engine, &rows);
}

/* Runs one step; false when there is none to run. */
static bool run_step(struct kvt_ref_engine *engine)
{
    uint32_t decoding_count = 0;
    for (uint32_t i = 0; i < engine->active_count; i++)
        decoding_count += engine->active[i]->phase == KVT_REF_DECODE;
    struct kvt_ref_sequence *prompt = choose_prompt(engine);
    if (!prompt && decoding_count == 0) return false;
    if (prompt && decoding_count > 0) {
        bool turn = ++engine->decode_waited >= KVT_REF_DECODE_EVERY;
        if (!turn)
            decoding_count = 0;
        else if (engine->aligned_rows)
            prompt = NULL;
    }
    if (decoding_count > 0) engine->decode_waited = 0;
    step(engine, prompt, decoding_count);
    return true;
}

/* ---- the loop ---- */

/* Hands out the sequences whose saves have ended. The first is waited for, at most timeout_ns. */
static void poll_saves(struct kvt_ref_engine *engine, uint64_t timeout_ns)
{
    struct kvt_ref_list waiting = engine->saving;
    struct kvt_ref_sequence *sequence;
    engine->saving = (struct kvt_ref_list){NULL, NULL};
    while ((sequence = kvt_ref_list_take(&waiting)) != NULL) {
        bool stuck = false;
        if (!kvt_ref_cache_saved(engine->cache, &sequence->transfer, timeout_ns, &stuck) &&
            !stuck) {
            kvt_ref_list_append(&engine->saving, sequence);
        } else {
            sequence->blocks_lost = stuck;
            if (stuck) turn_cache_off(engine);
            hand_out(engine, sequence);
        }
        timeout_ns = 0;
    }
}

/* Admits the oldest requests while there are places and blocks for them. */
static void admit(struct kvt_ref_engine *engine)
{
    while (engine->active_count < engine->config.concurrency) {
        pthread_mutex_lock(&engine->lock);
        struct kvt_ref_sequence *sequence = engine->incoming.first;
        if (sequence && !kvt_ref_kv_take(&engine->kv, sequence->block_count, sequence->blocks))
            sequence = NULL;
        if (sequence) sequence = kvt_ref_list_take(&engine->incoming);
        pthread_mutex_unlock(&engine->lock);
        if (!sequence) return;
        sequence->transfer.id = ++engine->next_transfer_id;
        engine->active[engine->active_count++] = sequence;
    }
}

/* Sleeps while there is nothing to do; false when it is time to end. */
static bool wait_for_work(struct kvt_ref_engine *engine)
{
    bool idle = engine->active_count == 0 && !engine->saving.first;
    pthread_mutex_lock(&engine->lock);
    while (idle && !engine->incoming.first && !engine->closing)
        pthread_cond_wait(&engine->arrived, &engine->lock);
    bool go_on = !idle || engine->incoming.first;
    pthread_mutex_unlock(&engine->lock);
    return go_on;
}

/* Nothing can be computed now: a lookup is to be asked again, or blocks are held by saves. */
static void pause_briefly(struct kvt_ref_engine *engine)
{
    if (engine->saving.first) {
        poll_saves(engine, KVT_PAUSE_NS);
        return;
    }
    pthread_mutex_lock(&engine->lock);
    kvt_ref_cond_wait_until(&engine->arrived, &engine->lock, kvt_ref_now_ns() + KVT_PAUSE_NS);
    pthread_mutex_unlock(&engine->lock);
}

void *kvt_ref_scheduler_main(void *arg)
{
    struct kvt_ref_engine *engine = arg;
    while (wait_for_work(engine)) {
        poll_saves(engine, 0);
        admit(engine);
        for (uint32_t i = 0; i < engine->active_count; i++)
            if (engine->active[i]->phase == KVT_REF_LOOKUP) look_up(engine, engine->active[i]);
        if (!run_step(engine)) pause_briefly(engine);
    }
    return NULL;
}
