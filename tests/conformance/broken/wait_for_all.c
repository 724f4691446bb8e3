/* Breaks order.region_alone: wait_region waits for all regions of the job. */
#include "tests/conformance/broken/broken.h"

static kvt_status broken_wait_region(kvt_engine *engine, uint64_t job, uint32_t region,
                                     void *stream)
{
    kvt_status status = kvt_broken_real->wait_region(engine, job, region, stream);
    for (uint32_t i = 0; status == KVT_OK && i < 4; i++) {
        status = kvt_broken_real->wait_region(engine, job, i, stream);
    }
    return status;
}

void kvt_broken_break(kvt_plugin_entry *table) { table->wait_region = broken_wait_region; }
