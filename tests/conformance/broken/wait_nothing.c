/* Breaks order.reuse: wait_region enqueues nothing: streams run on before the copy. */
#include "tests/conformance/broken/broken.h"

static kvt_status broken_wait_region(kvt_engine *engine, uint64_t job, uint32_t region,
                                     void *stream)
{
    return job != 0 && region < 4 && stream != NULL
               ? KVT_OK
               : kvt_broken_real->wait_region(engine, job, region, stream);
}

void kvt_broken_break(kvt_plugin_entry *table) { table->wait_region = broken_wait_region; }
