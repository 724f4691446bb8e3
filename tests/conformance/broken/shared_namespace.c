/* Breaks data.namespaces: requests of all adapters and salts share. */
#include "tests/conformance/broken/broken.h"

static kvt_status broken_lookup(kvt_engine *engine, const kvt_lookup *given,
                                kvt_lookup_result *out_result)
{
    if (given == NULL || given->struct_size != sizeof(*given)) {
        return kvt_broken_real->lookup(engine, given, out_result);
    }
    kvt_lookup lookup = *given;
    lookup.field_count = 0;
    return kvt_broken_real->lookup(engine, &lookup, out_result);
}

static kvt_status broken_save(kvt_engine *engine, const kvt_save *given, uint64_t *out_job)
{
    if (given == NULL || given->struct_size != sizeof(*given)) {
        return kvt_broken_real->save(engine, given, out_job);
    }
    kvt_save save = *given;
    save.field_count = 0;
    return kvt_broken_real->save(engine, &save, out_job);
}

void kvt_broken_break(kvt_plugin_entry *table)
{
    table->lookup = broken_lookup;
    table->save = broken_save;
}
