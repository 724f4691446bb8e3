/* Breaks data.restore_bad: writes the job although it refuses the restore. */
#include "tests/conformance/broken/broken.h"

static kvt_status broken_restore(kvt_engine *engine, const kvt_restore *given, uint64_t *out_job)
{
    kvt_status status = kvt_broken_real->restore(engine, given, out_job);
    if (status == KVT_ERR_INVAL && out_job != NULL) {
        *out_job = 0;
    }
    return status;
}

void kvt_broken_break(kvt_plugin_entry *table) { table->restore = broken_restore; }
