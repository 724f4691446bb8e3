/* Breaks size.stats: statistics are not zeroed to the caller's size. */
#include <string.h>

#include "tests/conformance/broken/broken.h"

static kvt_status broken_stats(kvt_engine *engine, kvt_stats *out_stats)
{
    kvt_stats stats = {.struct_size = sizeof(stats)};
    if (out_stats == NULL || out_stats->struct_size <= sizeof(stats)) {
        return kvt_broken_real->stats(engine, out_stats);
    }
    kvt_status status = kvt_broken_real->stats(engine, &stats);
    if (status == KVT_OK) {
        memcpy((char *)out_stats + 4, (char *)&stats + 4, sizeof(stats) - 4);
    }
    return status;
}

void kvt_broken_break(kvt_plugin_entry *table) { table->stats = broken_stats; }
