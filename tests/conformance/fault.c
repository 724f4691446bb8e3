/* Transfers that fail in the middle: what is told to be good is good, and nothing else is. */
#include "tests/conformance/conf.h"

#define PAGES 4u
#define TOKENS (PAGES * KVT_CONF_PAGE_TOKENS)
#define COPIES_MAX 400u
#define CALLS_MAX 400u
/* More device calls than a restore of a few pages and regions can need. */
#define DEVICE_CALLS 60u

static void begin_faulty(struct kvt_conf *conf, struct kvt_conf_rig *out_rig)
{
    kvt_conf_begin(conf, out_rig);
    if (out_rig->faults == NULL) {
        kvt_conf_skip("the plug-in offers no " KVT_EXT_CPU_FAULT);
    }
}

static void arm(struct kvt_conf_rig *rig, uint32_t kind, uint64_t value)
{
    GOOD(rig->faults->set(rig->engine, kind, value), "kvt.cpu_fault/1 set");
}

static void restore_copies(struct kvt_conf *conf)
{
    struct kvt_conf_rig rig;
    uint32_t tokens[TOKENS + 1], blocks[PAGES * KVT_CONF_PAGE_BLOCKS];
    begin_faulty(conf, &rig);
    kvt_conf_tokens(tokens, TOKENS + 1, 1);
    kvt_conf_put(&rig, tokens, PAGES, 0);
    kvt_conf_blocks(blocks, 100, PAGES);
    bool whole = false;
    uint32_t partial = 0;
    uint64_t lease = kvt_conf_hit(&rig, 0, tokens, TOKENS + 1, TOKENS);
    for (uint64_t k = 1; !whole && k <= COPIES_MAX; k++) {
        uint64_t job = 0;
        kvt_conf_wipe(&rig, blocks, PAGES);
        arm(&rig, KVT_FAULT_FAIL_PAGE_COPY, k);
        kvt_restore restore = kvt_conf_restoring(&rig, lease, PAGES, blocks);
        GOOD(rig.entry->restore(rig.engine, &restore, &job), "restore");
        kvt_job_result result = kvt_conf_finish(&rig, job);
        arm(&rig, KVT_FAULT_FAIL_PAGE_COPY, 0);
        uint32_t right = kvt_conf_right(&rig, KVT_CONF_REGIONS, tokens, 0, PAGES, blocks);
        NEED(result.tokens_good == (uint64_t)right * KVT_CONF_PAGE_TOKENS,
             "copy %u failed: %u pages are right, but tokens_good is %llu", (unsigned)k, right,
             (unsigned long long)result.tokens_good);
        whole = result.status == KVT_OK;
        NEED(whole == (right == PAGES), "the status %s does not fit %u good pages",
             kvt_conf_name(result.status), right);
        partial += right > 0 && right < PAGES;
    }
    NEED(whole && partial > 0, "a failed page costs the pages before it, or never strikes");
    kvt_conf_get(&rig, lease, tokens, PAGES, 100);
    GOOD(rig.entry->release(rig.engine, lease), "release");
    kvt_conf_gaps(&rig);
    kvt_conf_end(&rig);
}

static void save_copies(struct kvt_conf *conf)
{
    struct kvt_conf_rig rig;
    uint32_t tokens[TOKENS + 1], blocks[PAGES * KVT_CONF_PAGE_BLOCKS];
    begin_faulty(conf, &rig);
    bool whole = false;
    for (uint32_t k = 1; !whole && k <= COPIES_MAX; k++) {
        uint64_t job = 0;
        kvt_conf_tokens(tokens, TOKENS + 1, k);
        kvt_conf_blocks(blocks, 100, PAGES);
        kvt_conf_paint(&rig, tokens, PAGES, blocks);
        arm(&rig, KVT_FAULT_FAIL_PAGE_COPY, k);
        kvt_save save = kvt_conf_saving(&rig, tokens, PAGES, blocks);
        GOOD(rig.entry->save(rig.engine, &save, &job), "save");
        kvt_job_result result = kvt_conf_finish(&rig, job);
        arm(&rig, KVT_FAULT_FAIL_PAGE_COPY, 0);
        whole = result.status == KVT_OK;
        NEED(whole == (result.tokens_good == TOKENS), "the status %s does not fit %llu good tokens",
             kvt_conf_name(result.status), (unsigned long long)result.tokens_good);
        uint64_t lease = kvt_conf_hit(&rig, 0, tokens, TOKENS + 1, result.tokens_good);
        if (lease != 0) {
            kvt_conf_get(&rig, lease, tokens, (uint32_t)(result.tokens_good / KVT_CONF_PAGE_TOKENS),
                         0);
            GOOD(rig.entry->release(rig.engine, lease), "release");
        }
        kvt_conf_put(&rig, tokens, PAGES, 0); /* what failed may be saved again */
    }
    NEED(whole, "a fault that comes after the last copy still strikes");
    kvt_conf_end(&rig);
}

/* A restore whose k-th device call fails. */
static void restore_with_call(struct kvt_conf_rig *rig, const uint32_t *tokens, uint64_t lease,
                              uint64_t k)
{
    uint32_t blocks[PAGES * KVT_CONF_PAGE_BLOCKS];
    uint64_t job = 77;
    kvt_conf_blocks(blocks, 100, PAGES);
    kvt_conf_wipe(rig, blocks, PAGES);
    arm(rig, KVT_FAULT_FAIL_CALL, k);
    kvt_restore restore = kvt_conf_restoring(rig, lease, PAGES, blocks);
    kvt_status status = rig->entry->restore(rig->engine, &restore, &job);
    if (status != KVT_OK) {
        arm(rig, KVT_FAULT_FAIL_CALL, 0);
        NEED(status == KVT_ERR_DEVICE || status == KVT_ERR_NOMEM || status == KVT_ERR_AGAIN,
             "restore answered %s when a device call failed", kvt_conf_name(status));
        NEED(job == 77, "restore wrote its output although it failed");
        return;
    }
    kvt_job_result result = kvt_conf_finish(rig, job);
    arm(rig, KVT_FAULT_FAIL_CALL, 0);
    uint32_t good = (uint32_t)(result.tokens_good / KVT_CONF_PAGE_TOKENS);
    NEED(kvt_conf_right(rig, KVT_CONF_REGIONS, tokens, 0, good, blocks) == good,
         "device call %u failed: pages that are told to be good are not", (unsigned)k);
    NEED((result.status == KVT_OK) == (good == PAGES), "the status %s does not fit %u good pages",
         kvt_conf_name(result.status), good);
}

static void device_calls(struct kvt_conf *conf)
{
    struct kvt_conf_rig rig;
    uint32_t tokens[TOKENS + 1], more[TOKENS + 1];
    begin_faulty(conf, &rig);
    kvt_conf_tokens(tokens, TOKENS + 1, 1);
    kvt_conf_put(&rig, tokens, PAGES, 0);
    uint64_t lease = kvt_conf_hit(&rig, 0, tokens, TOKENS + 1, TOKENS);
    for (uint64_t k = 1; k <= DEVICE_CALLS; k++) {
        restore_with_call(&rig, tokens, lease, k);
        GOOD(rig.entry->quiesce(rig.engine, KVT_CONF_WAIT_NS), "quiesce after a failure");
    }
    kvt_conf_get(&rig, lease, tokens, PAGES, 100);
    GOOD(rig.entry->release(rig.engine, lease), "release");
    kvt_conf_tokens(more, TOKENS + 1, 2);
    kvt_conf_put(&rig, more, PAGES, 0);
    NEED(kvt_conf_stats(&rig).jobs_running == 0, "a failed job is still running");
    kvt_conf_end(&rig);
}

/* An allocation that fails inside a call costs that call, no more. */
static void memory(struct kvt_conf *conf)
{
    struct kvt_conf_rig rig;
    uint32_t tokens[TOKENS + 1], blocks[PAGES * KVT_CONF_PAGE_BLOCKS];
    kvt_conf_begin(conf, &rig);
    bool struck = true;
    for (uint32_t k = 1; struck && k <= CALLS_MAX; k++) {
        uint64_t job = 77, lease = 0, good = 0;
        kvt_lookup_result found = KVT_LOOKUP_RESULT_INIT;
        kvt_conf_tokens(tokens, TOKENS + 1, k);
        kvt_conf_blocks(blocks, 0, PAGES);
        kvt_conf_paint(&rig, tokens, PAGES, blocks);
        kvt_save save = kvt_conf_saving(&rig, tokens, PAGES, blocks);
        kvt_lookup lookup = kvt_conf_ask(k, tokens, TOKENS + 1);
        atomic_store(&conf->fail_in, k);
        kvt_status status = rig.entry->save(rig.engine, &save, &job);
        if (status == KVT_OK) {
            kvt_job_result result = kvt_conf_finish(&rig, job);
            good = result.tokens_good;
            NEED(result.status == KVT_OK || good < TOKENS, "good, but the status is not");
        } else {
            NEED(job == 77, "save wrote its output although it failed");
        }
        status = rig.entry->lookup(rig.engine, &lookup, &found);
        struck = atomic_exchange(&conf->fail_in, 0) == 0;
        NEED(status == KVT_OK || found.lease == 0, "lookup wrote its output although it failed");
        lease = kvt_conf_hit(&rig, k, tokens, TOKENS + 1, good);
        if (lease != 0) {
            kvt_conf_get(&rig, lease, tokens, (uint32_t)(good / KVT_CONF_PAGE_TOKENS), 100);
            GOOD(rig.entry->release(rig.engine, lease), "release");
        }
        kvt_conf_put(&rig, tokens, PAGES, 0);
    }
    NEED(!struck, "save and lookup still allocate after %u allocations", CALLS_MAX);
    kvt_conf_end(&rig);
}

const struct kvt_conf_clause kvt_conf_fault_clauses[] = {
    {"fault.restore", "a failed page: tokens_good is exactly what is right", restore_copies},
    {"fault.save", "a failed page: tokens_good is exactly what is held", save_copies},
    {"fault.device_call", "failed device calls: only good pages are told, then on", device_calls},
    {"fault.memory", "failed allocations cost their call, no more", memory},
    {NULL, NULL, NULL}};
