/* Breaks order.producer: a save does not wait for the stream that produces the bytes. */
#include "tests/conformance/broken/broken.h"

static kvt_status broken_save(kvt_engine *engine, const kvt_save *given, uint64_t *out_job)
{
    const kvt_cpu_stream_ext *streams = kvt_broken_real->get_extension(engine, KVT_EXT_CPU_STREAM);
    void *idle = NULL;
    if (given == NULL || given->struct_size != sizeof(*given) || given->stream == NULL ||
        streams->stream_create(engine, &idle) != KVT_OK) {
        return kvt_broken_real->save(engine, given, out_job);
    }
    kvt_save save = *given;
    save.stream = idle;
    kvt_status status = kvt_broken_real->save(engine, &save, out_job);
    streams->stream_destroy(engine, idle);
    return status;
}

void kvt_broken_break(kvt_plugin_entry *table) { table->save = broken_save; }
