/* Leases and their misuse; what a lookup promises. */
#include <string.h>

#include "tests/conformance/conf.h"

#define PAGES 6u
#define TOKENS (PAGES * KVT_CONF_PAGE_TOKENS)

/* An engine that holds PAGES pages of one prompt, of which `tokens` has one token more. */
static void begin_with(struct kvt_conf *conf, struct kvt_conf_rig *out_rig,
                       uint32_t tokens[TOKENS + 1])
{
    kvt_conf_begin(conf, out_rig);
    kvt_conf_tokens(tokens, TOKENS + 1, 1);
    kvt_conf_put(out_rig, tokens, PAGES, 0);
}

static void miss(struct kvt_conf *conf)
{
    struct kvt_conf_rig rig;
    uint32_t tokens[TOKENS + 1], others[TOKENS + 1];
    begin_with(conf, &rig, tokens);
    kvt_conf_tokens(others, TOKENS + 1, 2);
    kvt_lookup lookup = kvt_conf_ask(0, others, TOKENS + 1);
    kvt_lookup_result found = kvt_conf_look(&rig, &lookup);
    NEED(found.answer == KVT_ANSWER_MISS && found.matched_tokens == 0, "no miss, but a match");
    kvt_conf_end(&rig);
}

static void prefixes(struct kvt_conf *conf)
{
    struct kvt_conf_rig rig;
    uint32_t tokens[TOKENS + 1];
    begin_with(conf, &rig, tokens);
    for (uint32_t i = 0; i < TOKENS; i += 5) {
        uint64_t matched = i / KVT_CONF_PAGE_TOKENS * KVT_CONF_PAGE_TOKENS;
        tokens[i] ^= 0x10000u;
        uint64_t lease = kvt_conf_hit(&rig, 0, tokens, TOKENS + 1, matched);
        if (lease != 0) {
            GOOD(rig.entry->release(rig.engine, lease), "release");
        }
        tokens[i] ^= 0x10000u;
    }
    kvt_conf_end(&rig);
}

static void partial_pages(struct kvt_conf *conf)
{
    struct kvt_conf_rig rig;
    uint32_t tokens[TOKENS + 1];
    uint32_t blocks[PAGES * KVT_CONF_PAGE_BLOCKS];
    uint64_t job = 0;
    kvt_conf_begin(conf, &rig);
    kvt_conf_tokens(tokens, TOKENS + 1, 1);
    kvt_conf_blocks(blocks, 0, PAGES);
    kvt_conf_paint(&rig, tokens, PAGES, blocks);
    kvt_save save = kvt_conf_saving(&rig, tokens, PAGES, blocks);
    save.token_count = TOKENS - 1;
    GOOD(rig.entry->save(rig.engine, &save, &job), "save of a part of a page");
    kvt_job_result result = kvt_conf_finish(&rig, job);
    NEED(result.tokens_good == TOKENS - KVT_CONF_PAGE_TOKENS,
         "a save of %u tokens says that %llu are held", TOKENS - 1,
         (unsigned long long)result.tokens_good);
    uint64_t lease =
        kvt_conf_hit(&rig, 0, tokens, TOKENS + 1, (uint64_t)TOKENS - KVT_CONF_PAGE_TOKENS);
    kvt_conf_get(&rig, lease, tokens, PAGES - 1, 100);
    GOOD(rig.entry->release(rig.engine, lease), "release");
    NEED(kvt_conf_hit(&rig, 0, tokens, KVT_CONF_PAGE_TOKENS - 1, 0) == 0, "a lease for nothing");
    kvt_conf_end(&rig);
}

static void last_token(struct kvt_conf *conf)
{
    struct kvt_conf_rig rig;
    uint32_t tokens[TOKENS + 1];
    begin_with(conf, &rig, tokens);
    for (uint32_t pages = 1; pages <= PAGES; pages++) {
        uint64_t count = (uint64_t)pages * KVT_CONF_PAGE_TOKENS;
        kvt_lookup lookup = kvt_conf_ask(0, tokens, count);
        kvt_lookup_result found = kvt_conf_look(&rig, &lookup);
        NEED(found.matched_tokens == count - KVT_CONF_PAGE_TOKENS, "%llu tokens of %llu matched",
             (unsigned long long)found.matched_tokens, (unsigned long long)count);
        if (found.lease != 0) {
            GOOD(rig.entry->release(rig.engine, found.lease), "release");
        }
    }
    kvt_conf_end(&rig);
}

static void idempotent(struct kvt_conf *conf)
{
    struct kvt_conf_rig rig;
    uint32_t tokens[TOKENS + 1];
    begin_with(conf, &rig, tokens);
    uint64_t first = kvt_conf_hit(&rig, 5, tokens, TOKENS + 1, TOKENS);
    for (int i = 0; i < 10; i++) {
        uint64_t again = kvt_conf_hit(&rig, 5, tokens, TOKENS + 1, TOKENS);
        NEED(again == first, "the same request got another lease");
    }
    uint64_t other = kvt_conf_hit(&rig, 6, tokens, TOKENS + 1, TOKENS);
    NEED(other != first, "two requests got one lease");
    NEED(kvt_conf_stats(&rig).leases == 2, "%llu leases for two requests",
         (unsigned long long)kvt_conf_stats(&rig).leases);
    GOOD(rig.entry->release(rig.engine, first), "release");
    GOOD(rig.entry->release(rig.engine, other), "release");
    kvt_conf_end(&rig);
}

static void other_tokens(struct kvt_conf *conf)
{
    struct kvt_conf_rig rig;
    uint32_t tokens[TOKENS + 1], others[TOKENS + 1];
    begin_with(conf, &rig, tokens);
    kvt_conf_tokens(others, TOKENS + 1, 2);
    kvt_conf_put(&rig, others, PAGES, 0);
    uint64_t first = kvt_conf_hit(&rig, 5, tokens, TOKENS + 1, TOKENS);
    uint64_t second = kvt_conf_hit(&rig, 5, others, TOKENS + 1, TOKENS);
    NEED(first != second, "other tokens got the former lease");
    WANT(rig.entry->release(rig.engine, first), KVT_ERR_STALE, "release of the former lease");
    kvt_conf_get(&rig, second, others, PAGES, 100);
    GOOD(rig.entry->release(rig.engine, second), "release");
    kvt_conf_end(&rig);
}

/* A handle that every call must refuse, and that changes nothing. */
static void refused_everywhere(struct kvt_conf_rig *rig, uint64_t lease, const char *what)
{
    uint32_t blocks[KVT_CONF_PAGE_BLOCKS];
    uint64_t job = 77;
    kvt_lease_token token = {.struct_size = sizeof(token), .words = {7, 7, 7, 7}};
    WANT(rig->entry->release(rig->engine, lease), KVT_ERR_STALE, what);
    WANT(rig->entry->lease_export(rig->engine, lease, &token), KVT_ERR_STALE, what);
    kvt_conf_blocks(blocks, 200, 1);
    kvt_restore restore = kvt_conf_restoring(rig, lease, 1, blocks);
    WANT(rig->entry->restore(rig->engine, &restore, &job), KVT_ERR_STALE, what);
    NEED(job == 77 && token.words[0] == 7, "an output was written on failure");
}

static void misuse(struct kvt_conf *conf)
{
    struct kvt_conf_rig rig;
    uint32_t tokens[TOKENS + 1];
    begin_with(conf, &rig, tokens);
    uint64_t lease = kvt_conf_hit(&rig, 5, tokens, TOKENS + 1, TOKENS);
    refused_everywhere(&rig, 0, "a lease of 0");
    refused_everywhere(&rig, UINT64_MAX, "a lease of all ones");
    for (uint32_t bit = 0; bit < 64; bit++) {
        refused_everywhere(&rig, lease ^ (UINT64_C(1) << bit), "a guessed lease");
    }
    NEED(kvt_conf_stats(&rig).leases == 1, "misuse changed the number of leases");
    kvt_conf_get(&rig, lease, tokens, PAGES, 100);
    GOOD(rig.entry->release(rig.engine, lease), "release");
    refused_everywhere(&rig, lease, "a spent lease");
    for (int i = 0; i < 100; i++) {
        uint64_t next = kvt_conf_hit(&rig, 0, tokens, TOKENS + 1, TOKENS);
        NEED(next != lease, "a spent lease's number came back");
        refused_everywhere(&rig, lease, "a spent lease");
        GOOD(rig.entry->release(rig.engine, next), "release");
    }
    kvt_conf_end(&rig);
}

static void foreign(struct kvt_conf *conf)
{
    struct kvt_conf_rig rig, other;
    uint32_t tokens[TOKENS + 1];
    uint64_t imported = 77;
    begin_with(conf, &rig, tokens);
    begin_with(conf, &other, tokens);
    uint64_t lease = kvt_conf_hit(&rig, 5, tokens, TOKENS + 1, TOKENS);
    uint64_t theirs = kvt_conf_hit(&other, 5, tokens, TOKENS + 1, TOKENS);
    refused_everywhere(&other, lease, "another engine's lease");
    kvt_lease_token token = {.struct_size = sizeof(token)};
    GOOD(rig.entry->lease_export(rig.engine, lease, &token), "lease_export");
    WANT(other.entry->lease_import(other.engine, &token, &imported), KVT_ERR_STALE,
         "lease_import of another engine's token");
    NEED(imported == 77, "an output was written on failure");
    kvt_conf_get(&rig, lease, tokens, PAGES, 100);
    kvt_conf_get(&other, theirs, tokens, PAGES, 100);
    GOOD(rig.entry->release(rig.engine, lease), "release");
    GOOD(other.entry->release(other.engine, theirs), "release");
    kvt_conf_end(&rig);
    kvt_conf_end(&other);
}

static void travelling(struct kvt_conf *conf)
{
    struct kvt_conf_rig rig;
    uint32_t tokens[TOKENS + 1];
    uint64_t imported = 0;
    begin_with(conf, &rig, tokens);
    uint64_t lease = kvt_conf_hit(&rig, 5, tokens, TOKENS + 1, TOKENS);
    kvt_lease_token token = {.struct_size = sizeof(token)};
    GOOD(rig.entry->lease_export(rig.engine, lease, &token), "lease_export");
    GOOD(rig.entry->lease_import(rig.engine, &token, &imported), "lease_import");
    kvt_conf_get(&rig, imported, tokens, PAGES, 100);
    for (uint32_t i = 0; i < 4; i++) {
        token.words[i] ^= 1;
        WANT(rig.entry->lease_import(rig.engine, &token, &imported), KVT_ERR_STALE,
             "lease_import of a token that was changed");
        token.words[i] ^= 1;
    }
    GOOD(rig.entry->release(rig.engine, lease), "release");
    WANT(rig.entry->lease_import(rig.engine, &token, &imported), KVT_ERR_STALE,
         "lease_import of a spent lease");
    kvt_conf_end(&rig);
}

static void report_ends(struct kvt_conf *conf)
{
    struct kvt_conf_rig rig;
    uint32_t tokens[TOKENS + 1];
    begin_with(conf, &rig, tokens);
    uint64_t lease = kvt_conf_hit(&rig, 5, tokens, TOKENS + 1, TOKENS);
    kvt_report report = KVT_REPORT_INIT;
    report.request_id = 5;
    report.prompt_tokens = TOKENS + 1;
    report.computed_tokens = TOKENS + 1;
    GOOD(rig.entry->report(rig.engine, &report), "report");
    refused_everywhere(&rig, lease, "the lease of a reported request");
    NEED(kvt_conf_stats(&rig).leases == 0, "a reported request still has a lease");
    kvt_conf_end(&rig);
}

static void held_by_job(struct kvt_conf *conf)
{
    struct kvt_conf_rig rig;
    struct kvt_conf_gate gate = {.then = NULL};
    uint32_t tokens[TOKENS + 1], blocks[PAGES * KVT_CONF_PAGE_BLOCKS];
    uint64_t job = 0;
    begin_with(conf, &rig, tokens);
    kvt_conf_blocks(blocks, 50, PAGES);
    kvt_conf_shut(&rig, rig.stream, &gate);
    uint64_t lease = kvt_conf_hit(&rig, 0, tokens, TOKENS + 1, TOKENS);
    kvt_restore restore = kvt_conf_restoring(&rig, lease, PAGES, blocks);
    GOOD(rig.entry->restore(rig.engine, &restore, &job), "restore");
    GOOD(rig.entry->release(rig.engine, lease), "release while a job uses the lease");
    kvt_conf_pass(&gate);
    kvt_job_result result = kvt_conf_finish(&rig, job);
    GOOD(result.status, "a restore whose lease was released");
    NEED(kvt_conf_right(&rig, KVT_CONF_REGIONS, tokens, 0, PAGES, blocks) == PAGES,
         "restored bytes are wrong");
    NEED(kvt_conf_stats(&rig).leases == 0, "the lease outlived its job");
    kvt_conf_sync(&rig, rig.stream);
    kvt_conf_end(&rig);
}

const struct kvt_conf_clause kvt_conf_lease_clauses[] = {
    {"match.miss", "what was never saved is a miss: KVT_OK, no lease", miss},
    {"match.prefix", "every token counts: a match ends at the page that differs", prefixes},
    {"match.partial_pages", "whole pages only, in saves and lookups", partial_pages},
    {"match.last_token", "the last token of a prompt is never promised", last_token},
    {"lease.idempotent", "the same request id and tokens answer the same lease", idempotent},
    {"lease.other_tokens", "with other tokens the former lease ends", other_tokens},
    {"lease.misuse", "guessed and spent leases: STALE everywhere, nothing changed", misuse},
    {"lease.foreign", "another engine's leases and tokens: STALE", foreign},
    {"lease.travel", "export and import; tokens that were changed: STALE", travelling},
    {"lease.report_ends", "report releases the request's lease", report_ends},
    {"lease.held_by_job", "a job keeps what it needs after release", held_by_job},
    {NULL, NULL, NULL}};
