/*
 * One half of a replay: feed the turns to an engine, collect its answers.
 *
 * At most `concurrency` requests are out at a time, and never two of one session: a conversation's
 * next turn exists only when the last one was answered.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tools/options.h"
#include "tools/progress.h"
#include "tools/replay.h"

/* How long to wait for an answer before looking at the clock again. */
#define POLL_NS UINT64_C(200000000)
/* An engine that answers nothing for so long is given up. */
#define STALL_NS (UINT64_C(600) * 1000000000)
#define NS_PER_MS UINT64_C(1000000)

/* A session on its way. */
struct lane {
    uint32_t *places; /* [place_count] its turns' places in the order, in the session's order */
    uint32_t place_count, next;
    bool out;        /* a request of it is with the engine */
    uint64_t due_ns; /* speed trace: when its next turn arrives */
};

struct feeder {
    const struct kvt_replay_plan *plan;
    struct lane *lanes; /* [session_count of the trace] */
    uint32_t *places;   /* the lanes' */
    uint32_t *prompt;   /* room for the longest prompt */
    uint64_t *due_ns;   /* [turn_count] as submitted; 0: at once */
    uint32_t next;      /* speed max: place of the next turn */
    uint32_t outstanding, done;
    uint64_t start_ns, arrival_first_ms;
    uint64_t start_cpu_ns;
    uint64_t answered_ns; /* when the last answer came, or the start */
};

static const struct kvt_trace_turn *turn_at(const struct kvt_replay_plan *plan, uint32_t place)
{
    return &plan->trace->turns[plan->order.turns[place]];
}

/* Processor time of all threads of the process. */
static uint64_t cpu_now_ns(void)
{
    struct timespec now = {0, 0};
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/* ---- the feeder ---- */

/* Speed trace: when the turn at the head of a lane arrives. `done_ns`: the end of the turn before,
 * 0 for a session's first. A turn without a delay comes at its timestamp, but no conversation goes
 * on before its last answer. */
static void set_due(struct feeder *feeder, struct lane *lane, uint64_t done_ns)
{
    if (lane->next == lane->place_count) {
        return;
    }
    const struct kvt_trace_turn *turn = turn_at(feeder->plan, lane->places[lane->next]);
    if (done_ns != 0 && turn->delay_ms != UINT64_MAX) {
        lane->due_ns = done_ns + turn->delay_ms * NS_PER_MS;
        return;
    }
    uint64_t since_ms = turn->arrival_ms > feeder->arrival_first_ms
                            ? turn->arrival_ms - feeder->arrival_first_ms
                            : 0;
    uint64_t due_ns = feeder->start_ns + since_ms * NS_PER_MS;
    lane->due_ns = due_ns > done_ns ? due_ns : done_ns;
}

/* Gives each session the places of its turns, in the order of its turn numbers: timestamps that go
 * back do not turn a conversation round. */
static kvt_status fill_lanes(struct feeder *feeder)
{
    const struct kvt_replay_plan *plan = feeder->plan;
    const struct kvt_trace *trace = plan->trace;
    uint32_t *place_of = malloc(sizeof(*place_of) * trace->turn_count);
    if (place_of == NULL) {
        return KVT_ERR_NOMEM;
    }
    for (uint32_t i = 0; i < trace->turn_count; i++) {
        place_of[i] = UINT32_MAX;
    }
    for (uint32_t i = 0; i < plan->order.turn_count; i++) {
        place_of[plan->order.turns[i]] = i;
    }
    uint32_t *at = feeder->places;
    for (uint32_t s = 0; s < trace->session_count; s++) {
        struct lane *lane = &feeder->lanes[s];
        lane->places = at;
        for (uint32_t i = 0; i < trace->sessions[s].turn_count; i++) {
            uint32_t place = place_of[trace->turns_by_session[trace->sessions[s].first_turn + i]];
            if (place != UINT32_MAX) {
                lane->places[lane->place_count++] = place;
            }
        }
        at += lane->place_count;
    }
    free(place_of);
    return KVT_OK;
}

static kvt_status feeder_init(struct feeder *feeder, const struct kvt_replay_plan *plan)
{
    *feeder = (struct feeder){.plan = plan, .arrival_first_ms = UINT64_MAX};
    uint32_t turns = plan->order.turn_count;
    feeder->lanes = calloc(plan->trace->session_count, sizeof(*feeder->lanes));
    feeder->places = calloc(turns, sizeof(*feeder->places));
    feeder->prompt = calloc((size_t)plan->needs.prompt_tokens_max, sizeof(*feeder->prompt));
    feeder->due_ns = calloc(turns, sizeof(*feeder->due_ns));
    if (feeder->lanes == NULL || feeder->places == NULL || feeder->prompt == NULL ||
        feeder->due_ns == NULL) {
        return KVT_ERR_NOMEM;
    }
    kvt_status status = fill_lanes(feeder);
    if (status != KVT_OK) {
        return status;
    }
    for (uint32_t i = 0; i < turns; i++) {
        uint64_t arrival_ms = turn_at(plan, i)->arrival_ms;
        feeder->arrival_first_ms =
            arrival_ms < feeder->arrival_first_ms ? arrival_ms : feeder->arrival_first_ms;
    }
    feeder->start_cpu_ns = cpu_now_ns();
    feeder->start_ns = kvt_tool_now_ns();
    feeder->answered_ns = feeder->start_ns;
    for (uint32_t s = 0; plan->speed == KVT_REPLAY_TRACE && s < plan->trace->session_count; s++) {
        set_due(feeder, &feeder->lanes[s], 0);
    }
    return KVT_OK;
}

static void feeder_fini(struct feeder *feeder)
{
    free(feeder->lanes);
    free(feeder->places);
    free(feeder->prompt);
    free(feeder->due_ns);
}

/* The place of a turn that may be submitted now. False: none; then *out_wait_ns is shortened to the
 * time until one may be. */
static bool feeder_ready(struct feeder *feeder, uint64_t now_ns, uint32_t *out_place,
                         uint64_t *out_wait_ns)
{
    const struct kvt_replay_plan *plan = feeder->plan;
    if (feeder->outstanding >= plan->concurrency) {
        return false;
    }
    if (plan->speed == KVT_REPLAY_MAX) {
        if (feeder->next == plan->order.turn_count ||
            feeder->lanes[turn_at(plan, feeder->next)->session].out) {
            return false;
        }
        *out_place = feeder->next;
        return true;
    }
    const struct lane *best = NULL;
    for (uint32_t s = 0; s < plan->trace->session_count; s++) {
        const struct lane *lane = &feeder->lanes[s];
        if (lane->out || lane->next == lane->place_count) {
            continue;
        }
        /* Ties go to the one that is earlier in the order. */
        if (best == NULL || lane->due_ns < best->due_ns ||
            (lane->due_ns == best->due_ns && lane->places[lane->next] < best->places[best->next])) {
            best = lane;
        }
    }
    if (best == NULL) {
        return false;
    }
    if (best->due_ns > now_ns) {
        uint64_t wait_ns = best->due_ns - now_ns;
        *out_wait_ns = wait_ns < *out_wait_ns ? wait_ns : *out_wait_ns;
        return false;
    }
    *out_place = best->places[best->next];
    return true;
}

/* Hands the turn at `place` to the engine. Its request id is its place + 1. */
static kvt_status feeder_submit(struct feeder *feeder, struct kvt_ref_engine *engine,
                                uint32_t place)
{
    const struct kvt_replay_plan *plan = feeder->plan;
    const struct kvt_trace_turn *turn = turn_at(plan, place);
    struct lane *lane = &feeder->lanes[turn->session];
    uint64_t due_ns = plan->speed == KVT_REPLAY_TRACE ? lane->due_ns : 0;
    kvt_trace_prompt(plan->trace, plan->order.turns[place], plan->engine->vocabulary(),
                     feeder->prompt);
    kvt_status status = plan->engine->submit(engine, (uint64_t)place + 1, feeder->prompt,
                                             turn->prompt_tokens, due_ns);
    if (status != KVT_OK) {
        return status;
    }
    feeder->due_ns[place] = due_ns;
    feeder->next++;
    feeder->outstanding++;
    lane->next++;
    lane->out = true;
    return KVT_OK;
}

/* ---- answers ---- */

static kvt_status half_init(struct kvt_replay_half *half, uint32_t turn_count)
{
    *half = (struct kvt_replay_half){.turn_count = turn_count};
    half->results = calloc(turn_count, sizeof(*half->results));
    half->ttft_ns = calloc(turn_count, sizeof(*half->ttft_ns));
    half->answered = calloc(turn_count, sizeof(*half->answered));
    return half->results != NULL && half->ttft_ns != NULL && half->answered != NULL ? KVT_OK
                                                                                    : KVT_ERR_NOMEM;
}

void kvt_replay_half_fini(const struct kvt_replay_plan *plan, struct kvt_replay_half *half)
{
    for (uint32_t i = 0; half->answered != NULL && i < half->turn_count; i++) {
        if (half->answered[i]) {
            plan->engine->result_fini(&half->results[i]);
        }
    }
    free(half->results);
    free(half->ttft_ns);
    free(half->answered);
    *half = (struct kvt_replay_half){0};
}

/* Takes an answer, which the half then owns. INVAL: to a question that was not asked. */
static kvt_status take_answer(struct feeder *feeder, struct kvt_replay_half *half,
                              struct kvt_ref_result *result)
{
    const struct kvt_replay_plan *plan = feeder->plan;
    uint64_t place = result->request_id - 1;
    if (result->request_id == 0 || place >= half->turn_count || half->answered[place] ||
        !feeder->lanes[turn_at(plan, (uint32_t)place)->session].out) {
        plan->engine->result_fini(result);
        return KVT_ERR_INVAL;
    }
    struct lane *lane = &feeder->lanes[turn_at(plan, (uint32_t)place)->session];
    half->results[place] = *result;
    half->answered[place] = true;
    if (result->status == KVT_OK) {
        uint64_t due_ns = feeder->due_ns[place];
        uint64_t asked_ns = due_ns != 0 ? due_ns : result->submit_ns;
        half->ttft_ns[place] =
            result->first_token_ns > asked_ns ? result->first_token_ns - asked_ns : 0;
        half->answered_count++;
    } else {
        half->failed_first = half->failed_count == 0 ? (uint32_t)place : half->failed_first;
        half->failed_count++;
    }
    feeder->answered_ns = kvt_tool_now_ns();
    feeder->outstanding--;
    feeder->done++;
    lane->out = false;
    if (plan->speed == KVT_REPLAY_TRACE) {
        /* A request that failed has no end; the conversation goes on from now. */
        set_due(feeder, lane, result->done_ns != 0 ? result->done_ns : feeder->answered_ns);
    }
    return KVT_OK;
}

static void sleep_ns(uint64_t ns)
{
    struct timespec wait = {(time_t)(ns / UINT64_C(1000000000)), (long)(ns % UINT64_C(1000000000))};
    (void)nanosleep(&wait, NULL);
}

/* Submits what may be, then waits for one answer or until the next turn is due. */
static kvt_status feeder_step(struct feeder *feeder, struct kvt_ref_engine *engine,
                              struct kvt_replay_half *half, char *why, uint64_t why_bytes)
{
    const struct kvt_replay_engine *ops = feeder->plan->engine;
    uint64_t wait_ns = POLL_NS;
    uint32_t place = 0;
    while (feeder_ready(feeder, kvt_tool_now_ns(), &place, &wait_ns)) {
        kvt_status status = feeder_submit(feeder, engine, place);
        if (status != KVT_OK) {
            (void)snprintf(why, (size_t)why_bytes, "the engine refused request %" PRIu32 ": %s",
                           place + 1, kvt_status_sentence(status));
            return status;
        }
    }
    if (feeder->outstanding == 0) {
        sleep_ns(wait_ns);
        feeder->answered_ns = kvt_tool_now_ns();
        return KVT_OK;
    }
    struct kvt_ref_result result = {0};
    kvt_status status = ops->next(engine, wait_ns, &result);
    if (status == KVT_OK) {
        status = take_answer(feeder, half, &result);
        if (status != KVT_OK) {
            (void)snprintf(why, (size_t)why_bytes,
                           "the engine answered request %" PRIu64 ", which was not asked",
                           result.request_id);
        }
        return status;
    }
    if (status == KVT_ERR_TIMEOUT) {
        if (kvt_tool_now_ns() - feeder->answered_ns < STALL_NS) {
            return KVT_OK;
        }
        (void)snprintf(why, (size_t)why_bytes, "the engine answered nothing for %" PRIu64 " s",
                       STALL_NS / UINT64_C(1000000000));
        return status;
    }
    (void)snprintf(why, (size_t)why_bytes, "the engine failed while answering: %s",
                   kvt_status_sentence(status));
    return status;
}

/* ---- a half ---- */

static void print_log(void *ctx, int32_t level, const char *line)
{
    (void)ctx;
    /* Errors and warnings; the rest is for debugging an engine. */
    if (level <= 2) {
        (void)fprintf(stderr, "kvtier replay: %s\n", line);
    }
}

static void fill_config(const struct kvt_replay_plan *plan, bool with_cache,
                        struct kvt_ref_config *out_config)
{
    *out_config = (struct kvt_ref_config){.seed = plan->seed,
                                          .threads = plan->threads,
                                          .context_tokens = plan->context_tokens,
                                          .block_tokens = plan->block_tokens,
                                          .concurrency = plan->concurrency,
                                          .output_tokens = plan->output_tokens,
                                          .page_tokens = plan->page_tokens,
                                          .log = plan->quiet ? NULL : print_log};
    if (with_cache || plan->baseline == KVT_BASELINE_MEMORY) {
        out_config->plugin_path = plan->plugin_path;
        out_config->hbm_bytes = plan->hbm_bytes;
        out_config->host_bytes = plan->host_bytes;
        out_config->evict_policy = plan->evict_policy;
    }
    if (with_cache) {
        out_config->nvme = plan->nvme;
        out_config->admit_policy = plan->admit_policy;
        out_config->load_always = plan->load_always;
        out_config->control_foreign_page = plan->control == KVT_CONTROL_FOREIGN_PAGE;
        out_config->control_same_page = plan->control == KVT_CONTROL_SAME_PAGE;
    }
}

/* Answers every turn, then reads the cache's statistics. */
static kvt_status run_turns(const struct kvt_replay_plan *plan, struct kvt_ref_engine *engine,
                            bool with_cache, struct kvt_replay_half *half, char *why,
                            uint64_t why_bytes)
{
    struct feeder feeder;
    struct kvt_progress progress;
    kvt_status status = feeder_init(&feeder, plan);
    if (status != KVT_OK) {
        (void)snprintf(why, (size_t)why_bytes, "memory could not be had");
        feeder_fini(&feeder);
        return status;
    }
    kvt_progress_start(&progress, with_cache ? "with the cache" : "without a cache",
                       plan->order.turn_count, !plan->quiet);
    while (status == KVT_OK && feeder.done < plan->order.turn_count) {
        kvt_progress_step(&progress, feeder.done);
        status = feeder_step(&feeder, engine, half, why, why_bytes);
    }
    kvt_progress_end(&progress);
    half->wall_ns = feeder.answered_ns - feeder.start_ns;
    half->cpu_ns = cpu_now_ns() - feeder.start_cpu_ns;
    feeder_fini(&feeder);
    if (status == KVT_OK && with_cache) {
        half->stats = (kvt_stats){.struct_size = (uint32_t)sizeof(kvt_stats)};
        status = plan->engine->cache_stats(engine, &half->stats);
        half->has_stats = status == KVT_OK;
        if (status != KVT_OK) {
            (void)snprintf(why, (size_t)why_bytes, "the cache's statistics cannot be had: %s",
                           kvt_status_sentence(status));
        }
    }
    return status;
}

kvt_status kvt_replay_run(const struct kvt_replay_plan *plan, bool with_cache,
                          struct kvt_replay_half *out_half, char *why, uint64_t why_bytes)
{
    struct kvt_ref_config config;
    struct kvt_ref_engine *engine = NULL;
    why[0] = '\0';
    kvt_status status = half_init(out_half, plan->order.turn_count);
    if (status != KVT_OK) {
        (void)snprintf(why, (size_t)why_bytes, "memory could not be had");
        return status;
    }
    fill_config(plan, with_cache, &config);
    status = plan->engine->open(&config, &engine, why, why_bytes);
    if (status != KVT_OK) {
        if (why[0] == '\0') {
            (void)snprintf(why, (size_t)why_bytes, "the engine cannot be opened: %s",
                           kvt_status_sentence(status));
        }
        return status;
    }
    out_half->ran = true;
    status = run_turns(plan, engine, with_cache, out_half, why, why_bytes);
    /* Closing waits for what was submitted. A stalled engine would never come back from that, so it
     * is left as it is: the program ends with this error. */
    if (status != KVT_ERR_TIMEOUT) {
        plan->engine->close(engine);
    }
    return status;
}
