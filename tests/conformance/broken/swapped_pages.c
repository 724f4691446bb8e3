/* Breaks data.round_trip: two requests get each other's pages. */
#include <string.h>

#include "tests/conformance/broken/broken.h"

/* The blocks of the restore before. */
static uint32_t blocks[4096];
static uint64_t block_count;

static kvt_status broken_restore(kvt_engine *engine, const kvt_restore *given, uint64_t *out_job)
{
    if (given == NULL || given->struct_size != sizeof(*given) || given->blocks == NULL ||
        given->block_count > 4096) {
        return kvt_broken_real->restore(engine, given, out_job);
    }
    kvt_restore restore = *given;
    if (block_count == restore.block_count) {
        restore.blocks = blocks;
    }
    kvt_status status = kvt_broken_real->restore(engine, &restore, out_job);
    if (status == KVT_OK) {
        memcpy(blocks, given->blocks, given->block_count * sizeof(*blocks));
        block_count = given->block_count;
    }
    return status;
}

void kvt_broken_break(kvt_plugin_entry *table) { table->restore = broken_restore; }
