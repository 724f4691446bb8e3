/* Breaks size.config: forgets to refuse members that it does not know. */
#include <string.h>

#include "tests/conformance/broken/broken.h"

static kvt_status broken_open(const kvt_host *host, const kvt_open_config *given,
                              kvt_engine **out_engine, char *why, uint64_t why_bytes)
{
    kvt_open_config config = KVT_OPEN_CONFIG_INIT;
    if (given == NULL || given->struct_size <= sizeof(config)) {
        return kvt_broken_real->open(host, given, out_engine, why, why_bytes);
    }
    memcpy(&config, given, sizeof(config));
    config.struct_size = sizeof(config);
    return kvt_broken_real->open(host, &config, out_engine, why, why_bytes);
}

void kvt_broken_break(kvt_plugin_entry *table) { table->open = broken_open; }
