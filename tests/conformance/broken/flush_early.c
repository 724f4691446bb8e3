/* Breaks job.flush: flush does not wait for saves. */
#include "tests/conformance/broken/broken.h"

static kvt_status broken_flush(kvt_engine *engine, uint64_t timeout_ns)
{
    (void)timeout_ns;
    kvt_status status = kvt_broken_real->flush(engine, 0);
    return status == KVT_ERR_TIMEOUT ? KVT_OK : status;
}

void kvt_broken_break(kvt_plugin_entry *table) { table->flush = broken_flush; }
