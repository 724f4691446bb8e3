/* Breaks fault.restore: a failed copy is told to be wholly good. */
#include "tests/conformance/broken/broken.h"

static uint64_t restored, restored_tokens;

static kvt_status broken_restore(kvt_engine *engine, const kvt_restore *given, uint64_t *out_job)
{
    kvt_status status = kvt_broken_real->restore(engine, given, out_job);
    if (status == KVT_OK && out_job != NULL) {
        restored = *out_job;
        restored_tokens = given->token_count;
    }
    return status;
}

static kvt_status broken_poll(kvt_engine *engine, uint64_t job, uint64_t timeout_ns,
                              kvt_job_result *out_result)
{
    kvt_status status = kvt_broken_real->poll(engine, job, timeout_ns, out_result);
    if (status == KVT_OK && job == restored && out_result->state == KVT_JOB_DONE &&
        out_result->status == KVT_ERR_IO) {
        out_result->status = KVT_OK;
        out_result->tokens_good = restored_tokens;
    }
    return status;
}

void kvt_broken_break(kvt_plugin_entry *table)
{
    table->restore = broken_restore;
    table->poll = broken_poll;
}
