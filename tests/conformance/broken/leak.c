/* Breaks open.plain: one block of the host's memory is not given back. */
#include "tests/conformance/broken/broken.h"

static kvt_status broken_open(const kvt_host *host, const kvt_open_config *config,
                              kvt_engine **out_engine, char *why, uint64_t why_bytes)
{
    kvt_status status = kvt_broken_real->open(host, config, out_engine, why, why_bytes);
    if (status == KVT_OK && host->alloc != NULL) {
        (void)host->alloc(host->ctx, 8);
    }
    return status;
}

void kvt_broken_break(kvt_plugin_entry *table) { table->open = broken_open; }
