/* Breaks lease.idempotent: every lookup of a request gives a new lease. */
#include "tests/conformance/broken/broken.h"

static kvt_status broken_lookup(kvt_engine *engine, const kvt_lookup *given,
                                kvt_lookup_result *out_result)
{
    if (given == NULL || given->struct_size != sizeof(*given)) {
        return kvt_broken_real->lookup(engine, given, out_result);
    }
    kvt_lookup lookup = *given;
    kvt_status status = kvt_broken_real->lookup(engine, given, out_result);
    if (status != KVT_OK || out_result->lease == 0) {
        return status;
    }
    lookup.request_id = 0;
    return kvt_broken_real->lookup(engine, &lookup, out_result);
}

void kvt_broken_break(kvt_plugin_entry *table) { table->lookup = broken_lookup; }
