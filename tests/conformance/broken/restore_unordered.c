/* Breaks order.destination: a restore does not wait for the stream that uses the blocks. */
#include "tests/conformance/broken/broken.h"

static kvt_status broken_restore(kvt_engine *engine, const kvt_restore *given, uint64_t *out_job)
{
    const kvt_cpu_stream_ext *streams = kvt_broken_real->get_extension(engine, KVT_EXT_CPU_STREAM);
    void *idle = NULL;
    if (given == NULL || given->struct_size != sizeof(*given) || given->stream == NULL ||
        streams->stream_create(engine, &idle) != KVT_OK) {
        return kvt_broken_real->restore(engine, given, out_job);
    }
    kvt_restore restore = *given;
    restore.stream = idle;
    kvt_status status = kvt_broken_real->restore(engine, &restore, out_job);
    streams->stream_destroy(engine, idle);
    return status;
}

void kvt_broken_break(kvt_plugin_entry *table) { table->restore = broken_restore; }
