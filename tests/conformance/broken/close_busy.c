/* Breaks life.busy_job: close says that it is done while a job runs. */
#include "tests/conformance/broken/broken.h"

static kvt_status broken_close(kvt_engine *engine)
{
    kvt_status status = kvt_broken_real->close(engine);
    return status == KVT_ERR_BUSY ? KVT_OK : status;
}

void kvt_broken_break(kvt_plugin_entry *table) { table->close = broken_close; }
