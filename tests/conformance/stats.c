/* Accounts: reports, conservation, reasons. */
#include "tests/conformance/conf.h"

#define PAGES 6u
#define TOKENS (PAGES * KVT_CONF_PAGE_TOKENS)
#define PROMPT (TOKENS + 5u)

static kvt_report reporting(uint64_t id, uint64_t prompt, uint64_t own, uint64_t computed)
{
    kvt_report report = KVT_REPORT_INIT;
    report.request_id = id;
    report.prompt_tokens = prompt;
    report.own_tokens = own;
    report.computed_tokens = computed;
    return report;
}

static uint64_t delivered(const kvt_stats *stats)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < KVT_TIER_COUNT; i++) {
        sum += stats->tokens_delivered[i];
    }
    return sum;
}

static uint64_t missed(const kvt_stats *stats)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < KVT_MISS_REASON_COUNT; i++) {
        sum += stats->missed_pages[i];
    }
    return sum;
}

static void conservation(struct kvt_conf *conf)
{
    struct kvt_conf_rig rig;
    uint32_t tokens[PROMPT];
    kvt_conf_begin(conf, &rig);
    kvt_conf_tokens(tokens, PROMPT, 1);
    (void)kvt_conf_hit(&rig, 1, tokens, PROMPT, 0);
    kvt_report report = reporting(1, PROMPT, 0, PROMPT);
    GOOD(rig.entry->report(rig.engine, &report), "report of a miss");
    kvt_conf_put(&rig, tokens, PAGES, 0);
    uint64_t lease = kvt_conf_hit(&rig, 2, tokens, PROMPT, TOKENS);
    kvt_conf_get(&rig, lease, tokens, PAGES, 100);
    report = reporting(2, PROMPT, 0, PROMPT - TOKENS);
    GOOD(rig.entry->report(rig.engine, &report), "report of a hit");
    kvt_stats stats = kvt_conf_stats(&rig);
    NEED(stats.requests_reported == 2, "%llu requests reported, not 2",
         (unsigned long long)stats.requests_reported);
    NEED(stats.tokens_asked == 2u * PROMPT && stats.tokens_computed == 2u * PROMPT - TOKENS,
         "tokens asked or computed are not what was reported");
    NEED(delivered(&stats) == TOKENS, "%llu tokens delivered, not %u",
         (unsigned long long)delivered(&stats), TOKENS);
    NEED(stats.tokens_asked == stats.tokens_own + stats.tokens_computed + delivered(&stats),
         "asked is not own + delivered + computed");
    NEED(stats.conservation_breaks == 0, "a break is counted where none is");
    (void)kvt_conf_hit(&rig, 3, tokens, PROMPT, TOKENS);
    report = reporting(3, PROMPT, 0, 1);
    GOOD(rig.entry->report(rig.engine, &report), "report that does not add up");
    NEED(kvt_conf_stats(&rig).conservation_breaks == 1, "a break is not counted");
    kvt_conf_end(&rig);
}

static void report_bad(struct kvt_conf *conf)
{
    struct kvt_conf_rig rig;
    uint32_t tokens[PROMPT];
    kvt_conf_begin(conf, &rig);
    kvt_conf_tokens(tokens, PROMPT, 1);
    (void)kvt_conf_hit(&rig, 1, tokens, PROMPT, 0);
    const kvt_report bad[] = {reporting(1, PROMPT + 1, 0, PROMPT), reporting(1, 0, 0, 0),
                              reporting(1, PROMPT, PROMPT + 1, 0),
                              reporting(1, PROMPT, 0, PROMPT + 1)};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        WANT(rig.entry->report(rig.engine, &bad[i]), KVT_ERR_INVAL,
             "report of numbers that cannot be");
    }
    kvt_report report = reporting(2, PROMPT, 0, PROMPT);
    WANT(rig.entry->report(rig.engine, &report), KVT_ERR_STALE, "report of an unknown id");
    NEED(kvt_conf_stats(&rig).requests_reported == 0, "a refused report was counted");
    report.request_id = 1;
    GOOD(rig.entry->report(rig.engine, &report), "report");
    WANT(rig.entry->report(rig.engine, &report), KVT_ERR_STALE, "report a second time");
    kvt_stats stats = kvt_conf_stats(&rig);
    NEED(stats.requests_reported == 1 && stats.tokens_asked == PROMPT, "counted wrongly");
    kvt_conf_end(&rig);
}

static void reasons(struct kvt_conf *conf)
{
    struct kvt_conf_rig rig;
    uint32_t tokens[PROMPT], other[PROMPT];
    kvt_conf_begin(conf, &rig);
    kvt_conf_tokens(tokens, PROMPT, 1);
    kvt_conf_tokens(other, PROMPT, 1);
    other[2 * KVT_CONF_PAGE_TOKENS] ^= 0x10000u;
    (void)kvt_conf_hit(&rig, 1, tokens, PROMPT, 0);
    kvt_report report = reporting(1, PROMPT, 0, PROMPT);
    GOOD(rig.entry->report(rig.engine, &report), "report");
    kvt_stats stats = kvt_conf_stats(&rig);
    NEED(missed(&stats) == PAGES, "%llu reasons for %u missed pages",
         (unsigned long long)missed(&stats), PAGES);
    NEED(stats.missed_pages[KVT_MISS_NEVER_SEEN] == PAGES, "never seen, but otherwise explained");
    kvt_conf_put(&rig, tokens, PAGES, 0);
    uint64_t lease = kvt_conf_hit(&rig, 2, other, PROMPT, 2u * KVT_CONF_PAGE_TOKENS);
    NEED(lease != 0, "no lease");
    report = reporting(2, PROMPT, 0, PROMPT);
    GOOD(rig.entry->report(rig.engine, &report), "report of a hit that was not restored");
    stats = kvt_conf_stats(&rig);
    NEED(missed(&stats) == 2u * PAGES, "%llu reasons for %u missed pages",
         (unsigned long long)missed(&stats), 2u * PAGES);
    NEED(stats.missed_pages[KVT_MISS_DECLINED] == 2, "what was not restored is not DECLINED");
    NEED(stats.missed_pages[KVT_MISS_DIVERGED] == PAGES - 2, "what differs is not DIVERGED");
    kvt_conf_end(&rig);
}

static void gauges(struct kvt_conf *conf)
{
    struct kvt_conf_rig rig;
    struct kvt_conf_gate gate = {.then = NULL};
    uint32_t tokens[PROMPT], blocks[PAGES * KVT_CONF_PAGE_BLOCKS];
    uint64_t job = 0;
    kvt_conf_begin(conf, &rig);
    kvt_conf_tokens(tokens, PROMPT, 1);
    kvt_conf_put(&rig, tokens, PAGES, 0);
    kvt_stats stats = kvt_conf_stats(&rig);
    NEED(stats.struct_size == sizeof(stats), "the caller's struct_size was changed");
    NEED(stats.pages == PAGES && stats.saved_pages == PAGES, "pages are not counted");
    NEED(stats.leases == 0 && stats.jobs_running == 0, "a gauge is not 0 when nothing runs");
    uint64_t lease = kvt_conf_hit(&rig, 0, tokens, PROMPT, TOKENS);
    kvt_conf_blocks(blocks, 100, PAGES);
    kvt_conf_shut(&rig, rig.stream, &gate);
    kvt_restore restore = kvt_conf_restoring(&rig, lease, PAGES, blocks);
    GOOD(rig.entry->restore(rig.engine, &restore, &job), "restore");
    stats = kvt_conf_stats(&rig);
    NEED(stats.leases == 1 && stats.leased_pages == PAGES, "leases or their pages not counted");
    NEED(stats.jobs_running == 1, "a running job is not counted");
    kvt_conf_pass(&gate);
    kvt_job_result result = kvt_conf_finish(&rig, job);
    GOOD(result.status, "restore");
    NEED(result.bytes_moved > 0, "bytes_moved is 0");
    GOOD(rig.entry->release(rig.engine, lease), "release");
    stats = kvt_conf_stats(&rig);
    NEED(stats.leases == 0 && stats.leased_pages == 0 && stats.jobs_running == 0,
         "a gauge did not come down");
    NEED(stats.restored_pages == PAGES && stats.restored_bytes == result.bytes_moved,
         "restored pages or bytes are not counted");
    kvt_conf_sync(&rig, rig.stream);
    kvt_conf_end(&rig);
}

const struct kvt_conf_clause kvt_conf_stats_clauses[] = {
    {"stats.conservation", "asked = own + delivered + computed; breaks are counted", conservation},
    {"stats.report_bad", "reports of unknown ids or impossible numbers are refused", report_bad},
    {"stats.reasons", "every missed page has one reason, the right one", reasons},
    {"stats.gauges", "leases, jobs, pages and bytes are counted, up and down", gauges},
    {NULL, NULL, NULL}};
