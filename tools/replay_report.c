/*
 * What a replay says: the judgement over its halves, the table, the JSON.
 */
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/options.h"
#include "tools/replay.h"

#define NS_PER_MS 1e6
#define NS_PER_HOUR 3.6e12
#define NS_PER_S 1e9

static const char *const tier_names[] = {
    [KVT_TIER_HBM] = "hbm", [KVT_TIER_HOST] = "host", [KVT_TIER_NVME] = "nvme"};
#define TIER_NAMES (sizeof(tier_names) / sizeof(tier_names[0]))

static const char *const miss_names[] = {[KVT_MISS_NEVER_SEEN] = "never_seen",
                                         [KVT_MISS_EVICTED] = "evicted",
                                         [KVT_MISS_NOT_ADMITTED] = "not_admitted",
                                         [KVT_MISS_DIVERGED] = "diverged",
                                         [KVT_MISS_OTHER_NAMESPACE] = "other_namespace",
                                         [KVT_MISS_IN_FLIGHT] = "in_flight",
                                         [KVT_MISS_TOO_SLOW] = "too_slow",
                                         [KVT_MISS_FAILED] = "failed",
                                         [KVT_MISS_DECLINED] = "declined"};
#define MISS_NAMES (sizeof(miss_names) / sizeof(miss_names[0]))

/* ---- judging ---- */

/* Times are those of the requests that went well; tokens are counted for all, as the cache does. */
static kvt_status summarise(const struct kvt_replay_half *half,
                            struct kvt_replay_summary *out_summary)
{
    struct kvt_replay_summary summary = {0};
    uint64_t *times = calloc((size_t)half->answered_count + 1, sizeof(*times));
    if (times == NULL) {
        return KVT_ERR_NOMEM;
    }
    uint32_t count = 0;
    for (uint32_t i = 0; half->ran && i < half->turn_count; i++) {
        if (!half->answered[i]) {
            continue;
        }
        summary.prompt_tokens += half->results[i].prompt_tokens;
        summary.cached_tokens += half->results[i].cached_tokens;
        summary.computed_tokens += half->results[i].computed_tokens;
        if (half->results[i].status == KVT_OK) {
            times[count++] = half->ttft_ns[i];
        }
    }
    if (count > 0) {
        kvt_sort_u64(times, count);
        summary.has_times = true;
        summary.ttft_ms_p50 = (double)kvt_percentile(times, count, 50) / NS_PER_MS;
        summary.ttft_ms_p95 = (double)kvt_percentile(times, count, 95) / NS_PER_MS;
        summary.ttft_ms_p99 = (double)kvt_percentile(times, count, 99) / NS_PER_MS;
    }
    if (count > 0 && half->wall_ns > 0) {
        summary.requests_per_hour = count * NS_PER_HOUR / (double)half->wall_ns;
    }
    free(times);
    *out_summary = summary;
    return KVT_OK;
}

static bool same_answer(const struct kvt_ref_result *a, const struct kvt_ref_result *b)
{
    return a->output_count == b->output_count &&
           (a->output_count == 0 ||
            memcmp(a->outputs, b->outputs, (size_t)a->output_count * sizeof(*a->outputs)) == 0) &&
           memcmp(a->logit_digest, b->logit_digest, sizeof(a->logit_digest)) == 0;
}

/* Turn by turn; only where both halves have an answer. */
static void compare_halves(const struct kvt_replay_half *without,
                           const struct kvt_replay_half *with, struct kvt_replay_verdict *verdict)
{
    if (!without->ran || !with->ran) {
        return;
    }
    for (uint32_t i = 0; i < with->turn_count; i++) {
        if (!without->answered[i] || !with->answered[i] || without->results[i].status != KVT_OK ||
            with->results[i].status != KVT_OK) {
            continue;
        }
        verdict->turns_compared++;
        if (!same_answer(&without->results[i], &with->results[i])) {
            verdict->first_different = verdict->turns_different == 0 ? i : verdict->first_different;
            verdict->turns_different++;
        }
    }
}

static uint64_t delivered_tokens(const kvt_stats *stats)
{
    uint64_t sum = 0;
    for (uint32_t t = 0; t < KVT_TIER_COUNT; t++) {
        sum += stats->tokens_delivered[t];
    }
    return sum;
}

/* True when `left` equals `right`; else the first broken sum is written down. */
static bool holds(struct kvt_replay_verdict *verdict, const char *what, uint64_t left,
                  uint64_t right)
{
    if (left != right && verdict->broken[0] == '\0') {
        (void)snprintf(verdict->broken, sizeof(verdict->broken), "%s: %" PRIu64 " against %" PRIu64,
                       what, left, right);
    }
    return left == right;
}

/* What the cache counted must add up, and must be what the engine counted: a restore that the cache
 * calls good and the engine computes again would show here and nowhere else. */
static void check_conservation(const struct kvt_replay_plan *plan,
                               const struct kvt_replay_half *with,
                               struct kvt_replay_verdict *verdict)
{
    if (!with->has_stats) {
        return;
    }
    const kvt_stats *stats = &with->stats;
    const struct kvt_replay_summary *engine = &verdict->with;
    uint64_t delivered = delivered_tokens(stats);
    bool good =
        holds(verdict, "requests whose numbers do not add up", stats->conservation_breaks, 0);
    good &= holds(verdict, "tokens asked against own + delivered + computed", stats->tokens_asked,
                  stats->tokens_own + delivered + stats->tokens_computed);
    good &= holds(verdict, "tokens delivered by the cache against cached as the engine says",
                  delivered, engine->cached_tokens);
    /* A request that failed may have been asked for without an end; then these cannot agree. */
    if (with->failed_count == 0) {
        good &= holds(verdict, "prompt tokens of the trace against cached + computed of the engine",
                      plan->needs.prompt_tokens, engine->cached_tokens + engine->computed_tokens);
        good &= holds(verdict, "tokens asked by the cache's account against the trace's",
                      stats->tokens_asked, plan->needs.prompt_tokens);
        good &= holds(verdict, "tokens computed by the cache's account against the engine's",
                      stats->tokens_computed, engine->computed_tokens);
    }
    verdict->conserved = good;
}

kvt_status kvt_replay_judge(const struct kvt_replay_plan *plan,
                            const struct kvt_replay_half *without,
                            const struct kvt_replay_half *with,
                            struct kvt_replay_verdict *out_verdict)
{
    struct kvt_replay_verdict verdict = {0};
    kvt_status status = summarise(without, &verdict.without);
    if (status == KVT_OK) {
        status = summarise(with, &verdict.with);
    }
    if (status != KVT_OK) {
        return status;
    }
    compare_halves(without, with, &verdict);
    check_conservation(plan, with, &verdict);
    *out_verdict = verdict;
    return KVT_OK;
}

/* ---- ratios ---- */

/* Negative: there is none. */
static double ratio_of(bool both, double over, double under)
{
    return both && under > 0.0 ? over / under : -1.0;
}

static double ttft_ratio(const struct kvt_replay_verdict *verdict, double without, double with)
{
    return ratio_of(verdict->without.has_times && verdict->with.has_times, without, with);
}

static double requests_ratio(const struct kvt_replay_verdict *verdict)
{
    return ratio_of(verdict->without.has_times && verdict->with.has_times,
                    verdict->with.requests_per_hour, verdict->without.requests_per_hour);
}

/* ---- for people ---- */

static const char *format_name(enum kvt_trace_format format)
{
    return format == KVT_TRACE_TEXT       ? "text"
           : format == KVT_TRACE_MOONCAKE ? "mooncake"
                                          : "kvtrace";
}

void kvt_replay_print_plan(const struct kvt_replay_plan *plan, FILE *out)
{
    char page[KVT_SIZE_TEXT_BYTES], hbm[KVT_SIZE_TEXT_BYTES], host[KVT_SIZE_TEXT_BYTES];
    char peak[KVT_SIZE_TEXT_BYTES];
    uint64_t page_bytes = plan->engine->page_bytes(plan->page_tokens);
    const struct kvt_order_needs *needs = &plan->needs;
    kvt_size_text(page_bytes, page);
    kvt_size_text(needs->peak_live_pages * page_bytes, peak);
    kvt_size_text(plan->hbm_bytes, hbm);
    kvt_size_text(plan->host_bytes, host);
    (void)fprintf(out,
                  "trace    %s (%s): %" PRIu32 " sessions, %" PRIu32 " turns, %" PRIu64
                  " prompt tokens\n",
                  plan->trace_name, format_name(plan->trace->format), plan->order.session_count,
                  plan->order.turn_count, needs->prompt_tokens);
    if (plan->order.sessions_ended > 0) {
        (void)fprintf(out,
                      "context  %" PRIu32 " sessions end early, %" PRIu32
                      " turns dropped: prompt and output exceed %" PRIu32 " tokens (--context)\n",
                      plan->order.sessions_ended, plan->order.turns_dropped, plan->context_tokens);
    }
    (void)fprintf(out,
                  "engine   %s, %" PRIu32 " at once, blocks of %" PRIu32 " tokens, %" PRIu32
                  " tokens generated a turn\n",
                  plan->engine->name, plan->concurrency, plan->block_tokens, plan->output_tokens);
    (void)fprintf(out,
                  "pages    %" PRIu32 " tokens, %s each; %" PRIu64 " distinct, live working set at "
                  "most %" PRIu64 " (%s)\n",
                  plan->page_tokens, page, needs->distinct_pages, needs->peak_live_pages, peak);
    (void)fprintf(out,
                  "bound    prompts of %" PRIu64 " tokens at the median, %" PRIu64
                  " of them new: by tokens alone a ratio of %.1f\n",
                  needs->prompt_tokens_p50, needs->new_tokens_p50, needs->token_bound);
    if (plan->only != KVT_REPLAY_WITHOUT) {
        char percent[48] = "default";
        if (plan->budget_hundredths != KVT_REPLAY_HUNDREDTHS) {
            (void)snprintf(percent, sizeof(percent), "default, %.2f %% of it",
                           (double)plan->budget_hundredths / 100.0);
        }
        (void)fprintf(out, "budgets  hbm %s (%s), host %s (%s)\n", hbm,
                      plan->hbm_given ? "given" : percent, host,
                      plan->host_given ? "given" : percent);
    }
    (void)fflush(out);
}

/* One row: a name, the two halves, and their ratio. A half that is not there is a dash. */
static void print_row(const char *name, bool has_without, double without, bool has_with,
                      double with, double ratio, int decimals)
{
    char left[32] = "-";
    char right[32] = "-";
    char third[32] = "";
    if (has_without) {
        (void)snprintf(left, sizeof(left), "%.*f", decimals, without);
    }
    if (has_with) {
        (void)snprintf(right, sizeof(right), "%.*f", decimals, with);
    }
    if (ratio >= 0.0) {
        (void)snprintf(third, sizeof(third), "%.2f", ratio);
    }
    printf("%-30s %14s %14s %9s\n", name, left, right, third);
}

static void print_cache(const struct kvt_replay_half *with,
                        const struct kvt_replay_verdict *verdict)
{
    const kvt_stats *stats = &with->stats;
    printf("\ndelivered tokens   ");
    for (uint32_t t = 0; t < TIER_NAMES; t++) {
        printf("%s%s %" PRIu64, t > 0 ? ", " : "", tier_names[t], stats->tokens_delivered[t]);
    }
    printf("\npages              saved %" PRIu64 ", demoted %" PRIu64 ", evicted %" PRIu64
           ", held %" PRIu64 "\n",
           stats->saved_pages, stats->demoted_pages, stats->evicted_pages, stats->pages);
    if (stats->nvme_state != 0) {
        char written[KVT_SIZE_TEXT_BYTES], read[KVT_SIZE_TEXT_BYTES];
        kvt_size_text(stats->nvme_written_bytes, written);
        kvt_size_text(stats->nvme_read_bytes, read);
        printf("nvme               written %s, restored %s, known before %" PRIu64
               " pages, too slow %" PRIu64 " pages, checksum failures %" PRIu64 ", errors %" PRIu64
               "%s\n",
               written, read, stats->nvme_loaded_pages, stats->nvme_too_slow_pages,
               stats->nvme_checksum_failures, stats->nvme_errors,
               stats->nvme_state == 1 ? "" : " (DEGRADED)");
    }
    printf("missed pages       ");
    bool any = false;
    for (uint32_t r = 0; r < MISS_NAMES; r++) {
        if (stats->missed_pages[r] > 0) {
            printf("%s%s %" PRIu64, any ? ", " : "", miss_names[r], stats->missed_pages[r]);
            any = true;
        }
    }
    printf("%s\n", any ? "" : "none");
    if (verdict->conserved) {
        printf("conservation       holds: every prompt token was delivered or computed\n");
    } else {
        printf("conservation       BROKEN: %s\n", verdict->broken);
    }
}

void kvt_replay_print_table(const struct kvt_replay_plan *plan,
                            const struct kvt_replay_half *without,
                            const struct kvt_replay_half *with,
                            const struct kvt_replay_verdict *verdict)
{
    const struct kvt_replay_summary *a = &verdict->without;
    const struct kvt_replay_summary *b = &verdict->with;
    printf("\n%-30s %14s %14s %9s\n", "",
           plan->baseline == KVT_BASELINE_MEMORY ? "without nvme" : "without", "with", "ratio");
    print_row("time to first token, p50, ms", a->has_times, a->ttft_ms_p50, b->has_times,
              b->ttft_ms_p50, ttft_ratio(verdict, a->ttft_ms_p50, b->ttft_ms_p50), 1);
    print_row("                     p95", a->has_times, a->ttft_ms_p95, b->has_times,
              b->ttft_ms_p95, ttft_ratio(verdict, a->ttft_ms_p95, b->ttft_ms_p95), 1);
    print_row("                     p99", a->has_times, a->ttft_ms_p99, b->has_times,
              b->ttft_ms_p99, ttft_ratio(verdict, a->ttft_ms_p99, b->ttft_ms_p99), 1);
    print_row("requests an hour", a->has_times, a->requests_per_hour, b->has_times,
              b->requests_per_hour, requests_ratio(verdict), 0);
    print_row(
        "prompt tokens computed", without->ran, (double)a->computed_tokens, with->ran,
        (double)b->computed_tokens,
        ratio_of(without->ran && with->ran, (double)a->computed_tokens, (double)b->computed_tokens),
        0);
    /* The halves run one after the other: where the ratio of the wall times is far from that of the
     * CPU times, the machine was busy with something else during one of them. */
    print_row("seconds", without->ran, (double)without->wall_ns / NS_PER_S, with->ran,
              (double)with->wall_ns / NS_PER_S,
              ratio_of(without->ran && with->ran, (double)without->wall_ns, (double)with->wall_ns),
              1);
    print_row("seconds of CPU", without->ran, (double)without->cpu_ns / NS_PER_S, with->ran,
              (double)with->cpu_ns / NS_PER_S,
              ratio_of(without->ran && with->ran, (double)without->cpu_ns, (double)with->cpu_ns),
              1);
    if (with->has_stats) {
        print_cache(with, verdict);
    }
    if (without->ran && with->ran) {
        if (verdict->turns_different == 0) {
            printf("outputs            identical on all %" PRIu32 " turns compared\n",
                   verdict->turns_compared);
        } else {
            printf("outputs            DIFFERENT on %" PRIu32 " of %" PRIu32
                   " turns compared, first on turn %" PRIu32 " of session %s\n",
                   verdict->turns_different, verdict->turns_compared,
                   plan->trace->turns[plan->order.turns[verdict->first_different]].turn,
                   plan->trace
                       ->sessions[plan->trace->turns[plan->order.turns[verdict->first_different]]
                                      .session]
                       .id);
        }
    }
}

/* ---- for machines ---- */

/* Sets a key; a value that could not be made makes the whole fail. */
static void put(json_t *object, const char *key, json_t *value, bool *good)
{
    if (value == NULL || json_object_set_new(object, key, value) != 0) {
        *good = false;
    }
}

static void put_number(json_t *object, const char *key, uint64_t number, bool *good)
{
    put(object, key, json_integer((json_int_t)number), good);
}

/* The bytes at `text` that are one character of UTF-8; 0: they are none. JSON takes what jansson
 * takes: no overlong forms, no surrogates, nothing above U+10FFFF. */
static size_t utf8_bytes(const unsigned char *text)
{
    static const struct {
        unsigned char first_min, first_max, second_min, second_max;
        size_t bytes;
    } forms[] = {
        {0x01, 0x7f, 0x00, 0xff, 1}, {0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3},
        {0xe1, 0xec, 0x80, 0xbf, 3}, {0xed, 0xed, 0x80, 0x9f, 3}, {0xee, 0xef, 0x80, 0xbf, 3},
        {0xf0, 0xf0, 0x90, 0xbf, 4}, {0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4}};
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        if (text[0] < forms[i].first_min || text[0] > forms[i].first_max) {
            continue;
        }
        size_t bytes = forms[i].bytes;
        if (bytes > 1 && (text[1] < forms[i].second_min || text[1] > forms[i].second_max)) {
            return 0;
        }
        for (size_t k = 2; k < bytes; k++) {
            if (text[k] < 0x80 || text[k] > 0xbf) {
                return 0;
            }
        }
        return bytes;
    }
    return 0;
}

/* A file's name is bytes, and JSON has only text: each byte that is none becomes U+FFFD. NULL: no
 * memory. */
static json_t *json_name(const char *name)
{
    static const char replacement[] = "\xef\xbf\xbd";
    const size_t replacement_bytes = sizeof(replacement) - 1;
    const unsigned char *from = (const unsigned char *)name;
    char *text = calloc(strlen(name) + 1, replacement_bytes);
    if (text == NULL) {
        return NULL;
    }
    for (size_t at = 0; *from != '\0';) {
        size_t bytes = utf8_bytes(from);
        memcpy(text + at, bytes > 0 ? (const char *)from : replacement,
               bytes > 0 ? bytes : replacement_bytes);
        at += bytes > 0 ? bytes : replacement_bytes;
        from += bytes > 0 ? bytes : 1;
    }
    json_t *value = json_string(text);
    free(text);
    return value;
}

/* Three decimals are more than any of these is measured to. Negative: null. */
static json_t *real_or_null(double value)
{
    return value >= 0.0 ? json_real(round(value * 1000.0) / 1000.0) : json_null();
}

static json_t *json_half(const struct kvt_replay_half *half,
                         const struct kvt_replay_summary *summary, bool *good)
{
    json_t *object = json_object();
    json_t *ttft = json_object();
    bool has = summary->has_times;
    put(ttft, "p50", real_or_null(has ? summary->ttft_ms_p50 : -1.0), good);
    put(ttft, "p95", real_or_null(has ? summary->ttft_ms_p95 : -1.0), good);
    put(ttft, "p99", real_or_null(has ? summary->ttft_ms_p99 : -1.0), good);
    put(object, "ttft_ms", ttft, good);
    put(object, "requests_per_hour", real_or_null(has ? summary->requests_per_hour : -1.0), good);
    put_number(object, "failed_requests", half->failed_count, good);
    put(object, "seconds", real_or_null((double)half->wall_ns / NS_PER_S), good);
    put(object, "cpu_s", real_or_null((double)half->cpu_ns / NS_PER_S), good);
    return object;
}

static void put_cache(json_t *object, const struct kvt_replay_half *with,
                      const struct kvt_replay_verdict *verdict, bool *good)
{
    const kvt_stats *stats = &with->stats;
    json_t *delivered = json_object();
    json_t *missed = json_object();
    for (uint32_t t = 0; t < TIER_NAMES; t++) {
        put_number(delivered, tier_names[t], stats->tokens_delivered[t], good);
    }
    for (uint32_t r = 0; r < MISS_NAMES; r++) {
        put_number(missed, miss_names[r], stats->missed_pages[r], good);
    }
    put(object, "delivered_tokens", delivered, good);
    put_number(object, "engine_cached_tokens", verdict->with.cached_tokens, good);
    put_number(object, "computed_tokens", verdict->with.computed_tokens, good);
    put_number(object, "evicted_pages", stats->evicted_pages, good);
    put(object, "conservation", json_boolean(verdict->conserved), good);
    put_number(object, "demoted_pages", stats->demoted_pages, good);
    put_number(object, "saved_pages", stats->saved_pages, good);
    put_number(object, "restored_pages", stats->restored_pages, good);
    put_number(object, "failed_jobs", stats->jobs_failed, good);
    put_number(object, "nvme_state", stats->nvme_state, good);
    put_number(object, "nvme_written_bytes", stats->nvme_written_bytes, good);
    put_number(object, "nvme_restored_bytes", stats->nvme_read_bytes, good);
    put_number(object, "nvme_loaded_pages", stats->nvme_loaded_pages, good);
    put_number(object, "nvme_too_slow_pages", stats->nvme_too_slow_pages, good);
    put_number(object, "nvme_checksum_failures", stats->nvme_checksum_failures, good);
    put_number(object, "nvme_errors", stats->nvme_errors, good);
    put(object, "missed_pages", missed, good);
}

static void put_plan(json_t *root, const struct kvt_replay_plan *plan, bool *good)
{
    static const char *const controls[] = {"none", "foreign-page", "same-page"};
    put(root, "format", json_string(format_name(plan->trace->format)), good);
    put(root, "engine", json_string(plan->engine->name), good);
    put(root, "speed", json_string(plan->speed == KVT_REPLAY_TRACE ? "trace" : "max"), good);
    put(root, "control", json_string(controls[plan->control]), good);
    put(root, "baseline", json_string(plan->baseline == KVT_BASELINE_MEMORY ? "memory" : "none"),
        good);
    put_number(root, "concurrency", plan->concurrency, good);
    put_number(root, "block_tokens", plan->block_tokens, good);
    put_number(root, "output_tokens", plan->output_tokens, good);
    put_number(root, "context_tokens", plan->context_tokens, good);
    put_number(root, "sessions_ended_by_context", plan->order.sessions_ended, good);
    put_number(root, "turns_dropped_by_context", plan->order.turns_dropped, good);
    json_t *pages = json_object();
    put_number(pages, "tokens", plan->page_tokens, good);
    put_number(pages, "bytes", plan->engine->page_bytes(plan->page_tokens), good);
    put_number(pages, "distinct", plan->needs.distinct_pages, good);
    put_number(pages, "peak_live", plan->needs.peak_live_pages, good);
    put(root, "pages", pages, good);
    json_t *budgets = json_object();
    put(budgets, "percent", real_or_null((double)plan->budget_hundredths / 100.0), good);
    put_number(budgets, "hbm_bytes", plan->hbm_bytes, good);
    put_number(budgets, "host_bytes", plan->host_bytes, good);
    put(root, "budgets", budgets, good);
    json_t *bound = json_object();
    put_number(bound, "prompt_p50", plan->needs.prompt_tokens_p50, good);
    put_number(bound, "new_p50", plan->needs.new_tokens_p50, good);
    put(bound, "ratio", real_or_null(plan->needs.token_bound), good);
    put(root, "token_bound", bound, good);
}

kvt_status kvt_replay_print_json(const struct kvt_replay_plan *plan,
                                 const struct kvt_replay_half *without,
                                 const struct kvt_replay_half *with,
                                 const struct kvt_replay_verdict *verdict)
{
    bool good = true;
    json_t *root = json_object();
    put(root, "trace", json_name(plan->trace_name), &good);
    put_number(root, "sessions", plan->order.session_count, &good);
    put_number(root, "turns", plan->order.turn_count, &good);
    put_number(root, "prompt_tokens", plan->needs.prompt_tokens, &good);
    if (without->ran) {
        json_t *half = json_half(without, &verdict->without, &good);
        put_number(half, "computed_tokens", verdict->without.computed_tokens, &good);
        put(root, "without", half, &good);
    }
    if (with->ran) {
        json_t *half = json_half(with, &verdict->with, &good);
        put_cache(half, with, verdict, &good);
        put(root, "with", half, &good);
    }
    put(root, "ttft_ratio_p50",
        real_or_null(ttft_ratio(verdict, verdict->without.ttft_ms_p50, verdict->with.ttft_ms_p50)),
        &good);
    put(root, "requests_ratio", real_or_null(requests_ratio(verdict)), &good);
    /* Nothing compared is neither identical nor different. */
    put(root, "outputs_identical",
        verdict->turns_compared > 0 ? json_boolean(verdict->turns_different == 0) : json_null(),
        &good);
    put_number(root, "turns_compared", verdict->turns_compared, &good);
    put_plan(root, plan, &good);
    char *text = good ? json_dumps(root, JSON_COMPACT | JSON_REAL_PRECISION(15)) : NULL;
    json_decref(root);
    if (text == NULL) {
        return KVT_ERR_NOMEM;
    }
    printf("%s\n", text);
    free(text);
    return KVT_OK;
}
