/* Breaks open.caps: ignores what the host requires. */
#include "tests/conformance/broken/broken.h"

static kvt_status broken_open(const kvt_host *given, const kvt_open_config *config,
                              kvt_engine **out_engine, char *why, uint64_t why_bytes)
{
    if (given == NULL || given->struct_size != sizeof(*given)) {
        return kvt_broken_real->open(given, config, out_engine, why, why_bytes);
    }
    kvt_host host = *given;
    host.caps_required = 0;
    return kvt_broken_real->open(&host, config, out_engine, why, why_bytes);
}

void kvt_broken_break(kvt_plugin_entry *table) { table->open = broken_open; }
