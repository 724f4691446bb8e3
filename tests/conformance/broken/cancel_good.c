/* Breaks job.cancel_restore: a cancelled job is told to be wholly good. */
#include "tests/conformance/broken/broken.h"

static uint64_t cancelled;

static kvt_status broken_cancel(kvt_engine *engine, uint64_t job)
{
    kvt_status status = kvt_broken_real->cancel(engine, job);
    cancelled = status == KVT_OK ? job : cancelled;
    return status;
}

static kvt_status broken_poll(kvt_engine *engine, uint64_t job, uint64_t timeout_ns,
                              kvt_job_result *out_result)
{
    kvt_status status = kvt_broken_real->poll(engine, job, timeout_ns, out_result);
    if (status == KVT_OK && job == cancelled && out_result->state == KVT_JOB_DONE) {
        out_result->status = KVT_OK;
        out_result->tokens_good = 96;
    }
    return status;
}

void kvt_broken_break(kvt_plugin_entry *table)
{
    table->cancel = broken_cancel;
    table->poll = broken_poll;
}
