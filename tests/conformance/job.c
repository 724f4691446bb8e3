/* Jobs: polling, cancelling, detaching. */
#include "tests/conformance/conf.h"

#define PAGES 6u
#define TOKENS (PAGES * KVT_CONF_PAGE_TOKENS)

/* A prompt that is held, and a gated restore or save of it. */
struct gated {
    struct kvt_conf_rig rig;
    struct kvt_conf_gate gate;
    uint32_t tokens[TOKENS + 1], blocks[PAGES * KVT_CONF_PAGE_BLOCKS];
    uint64_t lease, job;
};

static void gated_begin(struct kvt_conf *conf, struct gated *out)
{
    out->gate = (struct kvt_conf_gate){.then = NULL};
    kvt_conf_begin(conf, &out->rig);
    kvt_conf_tokens(out->tokens, TOKENS + 1, 1);
    kvt_conf_put(&out->rig, out->tokens, PAGES, 0);
    out->lease = kvt_conf_hit(&out->rig, 0, out->tokens, TOKENS + 1, TOKENS);
    kvt_conf_blocks(out->blocks, 100, PAGES);
    kvt_conf_wipe(&out->rig, out->blocks, PAGES);
    kvt_conf_shut(&out->rig, out->rig.stream, &out->gate);
}

static void gated_restore(struct gated *g)
{
    kvt_restore restore = kvt_conf_restoring(&g->rig, g->lease, PAGES, g->blocks);
    GOOD(g->rig.entry->restore(g->rig.engine, &restore, &g->job), "restore");
}

static void gated_end(struct gated *g)
{
    kvt_conf_sync(&g->rig, g->rig.stream);
    GOOD(g->rig.entry->release(g->rig.engine, g->lease), "release");
    kvt_conf_end(&g->rig);
}

static void polling(struct kvt_conf *conf)
{
    struct gated g;
    kvt_job_result result = KVT_JOB_RESULT_INIT;
    gated_begin(conf, &g);
    gated_restore(&g);
    GOOD(g.rig.entry->poll(g.rig.engine, g.job, 0, &result), "poll");
    NEED(result.state == KVT_JOB_RUNNING, "a job that cannot have begun is done");
    GOOD(g.rig.entry->poll(g.rig.engine, g.job, 5 * KVT_CONF_MS, &result), "poll with a timeout");
    NEED(result.state == KVT_JOB_RUNNING, "a job that cannot have begun is done");
    for (uint32_t bit = 0; bit < 64; bit++) {
        uint64_t guess = g.job ^ (UINT64_C(1) << bit);
        WANT(g.rig.entry->poll(g.rig.engine, guess, 0, &result), KVT_ERR_STALE,
             "poll of a guessed job");
        WANT(g.rig.entry->cancel(g.rig.engine, guess), KVT_ERR_STALE, "cancel of a guessed job");
        WANT(g.rig.entry->wait_region(g.rig.engine, guess, 0, g.rig.stream), KVT_ERR_STALE,
             "wait_region of a guessed job");
    }
    kvt_conf_pass(&g.gate);
    result = kvt_conf_finish(&g.rig, g.job);
    NEED(result.status == KVT_OK && result.tokens_good == TOKENS, "a restore fell short");
    WANT(g.rig.entry->poll(g.rig.engine, g.job, 0, &result), KVT_ERR_STALE, "poll of a spent job");
    WANT(g.rig.entry->cancel(g.rig.engine, g.job), KVT_ERR_STALE, "cancel of a spent job");
    WANT(g.rig.entry->wait_region(g.rig.engine, g.job, 0, g.rig.stream), KVT_ERR_STALE,
         "wait_region of a spent job");
    NEED(kvt_conf_right(&g.rig, KVT_CONF_REGIONS, g.tokens, 0, PAGES, g.blocks) == PAGES,
         "restored bytes are wrong");
    gated_end(&g);
}

static void cancel_restore(struct kvt_conf *conf)
{
    struct gated g;
    gated_begin(conf, &g);
    gated_restore(&g);
    GOOD(g.rig.entry->cancel(g.rig.engine, g.job), "cancel");
    GOOD(g.rig.entry->cancel(g.rig.engine, g.job), "cancel again");
    kvt_conf_pass(&g.gate);
    kvt_job_result result = kvt_conf_finish(&g.rig, g.job);
    uint32_t good = (uint32_t)(result.tokens_good / KVT_CONF_PAGE_TOKENS);
    NEED(good <= PAGES &&
             kvt_conf_right(&g.rig, KVT_CONF_REGIONS, g.tokens, 0, good, g.blocks) == good,
         "a cancelled restore says that %u pages are good, and they are not", good);
    WANT(result.status, good == PAGES ? KVT_OK : KVT_ERR_CANCELLED, "a cancelled restore");
    kvt_conf_sync(&g.rig, g.rig.stream);
    kvt_conf_get(&g.rig, g.lease, g.tokens, PAGES, 100);
    gated_end(&g);
}

static void cancel_save(struct kvt_conf *conf)
{
    struct gated g;
    uint32_t others[TOKENS + 1];
    gated_begin(conf, &g);
    kvt_conf_tokens(others, TOKENS + 1, 2);
    kvt_conf_paint(&g.rig, others, PAGES, g.blocks);
    kvt_save save = kvt_conf_saving(&g.rig, others, PAGES, g.blocks);
    GOOD(g.rig.entry->save(g.rig.engine, &save, &g.job), "save");
    GOOD(g.rig.entry->cancel(g.rig.engine, g.job), "cancel");
    kvt_conf_pass(&g.gate);
    kvt_job_result result = kvt_conf_finish(&g.rig, g.job);
    WANT(result.status, result.tokens_good == TOKENS ? KVT_OK : KVT_ERR_CANCELLED,
         "a cancelled save");
    kvt_conf_sync(&g.rig, g.rig.stream);
    uint64_t lease = kvt_conf_hit(&g.rig, 0, others, TOKENS + 1, result.tokens_good);
    if (lease != 0) {
        kvt_conf_get(&g.rig, lease, others, (uint32_t)(result.tokens_good / KVT_CONF_PAGE_TOKENS),
                     100);
        GOOD(g.rig.entry->release(g.rig.engine, lease), "release");
    }
    kvt_conf_put(&g.rig, others, PAGES, 150);
    gated_end(&g);
}

static void detached(struct kvt_conf *conf)
{
    struct gated g;
    kvt_job_result result = KVT_JOB_RESULT_INIT;
    gated_begin(conf, &g);
    kvt_restore restore = kvt_conf_restoring(&g.rig, g.lease, PAGES, g.blocks);
    restore.flags = KVT_JOB_DETACHED;
    GOOD(g.rig.entry->restore(g.rig.engine, &restore, NULL), "detached restore");
    WANT(g.rig.entry->quiesce(g.rig.engine, KVT_CONF_MS), KVT_ERR_TIMEOUT,
         "quiesce beside a detached job");
    kvt_conf_pass(&g.gate);
    GOOD(g.rig.entry->quiesce(g.rig.engine, KVT_CONF_WAIT_NS), "quiesce");
    NEED(kvt_conf_right(&g.rig, KVT_CONF_REGIONS, g.tokens, 0, PAGES, g.blocks) == PAGES,
         "restored bytes are wrong after quiesce");
    GOOD(g.rig.entry->restore(g.rig.engine, &restore, &g.job), "detached restore with out_job");
    GOOD(g.rig.entry->quiesce(g.rig.engine, KVT_CONF_WAIT_NS), "quiesce");
    WANT(g.rig.entry->poll(g.rig.engine, g.job, 0, &result), KVT_ERR_STALE,
         "poll of a detached job that is over");
    NEED(kvt_conf_stats(&g.rig).jobs_running == 0, "jobs run after quiesce");
    gated_end(&g);
}

static void flushing(struct kvt_conf *conf)
{
    struct gated g;
    uint32_t others[TOKENS + 1];
    gated_begin(conf, &g);
    GOOD(g.rig.entry->flush(g.rig.engine, 0), "flush with nothing to wait for");
    kvt_conf_tokens(others, TOKENS + 1, 2);
    kvt_conf_paint(&g.rig, others, PAGES, g.blocks);
    kvt_save save = kvt_conf_saving(&g.rig, others, PAGES, g.blocks);
    save.flags = KVT_JOB_DETACHED;
    GOOD(g.rig.entry->save(g.rig.engine, &save, NULL), "detached save");
    WANT(g.rig.entry->flush(g.rig.engine, KVT_CONF_MS), KVT_ERR_TIMEOUT, "flush beside a save");
    NEED(kvt_conf_hit(&g.rig, 0, others, TOKENS + 1, 0) == 0, "held before it was copied");
    kvt_conf_pass(&g.gate);
    GOOD(g.rig.entry->flush(g.rig.engine, KVT_CONF_WAIT_NS), "flush");
    uint64_t lease = kvt_conf_hit(&g.rig, 0, others, TOKENS + 1, TOKENS);
    kvt_conf_get(&g.rig, lease, others, PAGES, 150);
    GOOD(g.rig.entry->release(g.rig.engine, lease), "release");
    gated_end(&g);
}

const struct kvt_conf_clause kvt_conf_job_clauses[] = {
    {"job.poll", "RUNNING within the timeout, DONE once, STALE afterwards", polling},
    {"job.cancel_restore", "a cancelled restore tells only what is good", cancel_restore},
    {"job.cancel_save", "a cancelled save tells only what is held", cancel_save},
    {"job.detached", "a detached job ends by itself; quiesce waits for it", detached},
    {"job.flush", "flush waits for the saves before it, within its timeout", flushing},
    {NULL, NULL, NULL}};
