/* Extensions: streams of the CPU device, and the faults that tests set. */
#include <string.h>

#include "engine_plugin/plugin_internal.h"

static kvt_status stream_create(kvt_engine *engine, void **out_stream)
{
    return engine != NULL && out_stream != NULL ? kvt_cache_stream_create(engine->cache, out_stream)
                                                : KVT_ERR_INVAL;
}

static void stream_destroy(kvt_engine *engine, void *stream)
{
    if (engine != NULL) {
        kvt_cache_stream_destroy(engine->cache, stream);
    }
}

static kvt_status enqueue(kvt_engine *engine, void *stream, void (*fn)(void *), void *arg)
{
    return engine != NULL && stream != NULL && fn != NULL
               ? kvt_cache_stream_enqueue(engine->cache, stream, fn, arg)
               : KVT_ERR_INVAL;
}

static kvt_status event_create(kvt_engine *engine, void **out_event)
{
    return engine != NULL && out_event != NULL ? kvt_cache_event_create(engine->cache, out_event)
                                               : KVT_ERR_INVAL;
}

static void event_destroy(kvt_engine *engine, void *event)
{
    if (engine != NULL) {
        kvt_cache_event_destroy(engine->cache, event);
    }
}

static kvt_status record(kvt_engine *engine, void *event, void *stream)
{
    return engine != NULL && event != NULL && stream != NULL
               ? kvt_cache_event_record(engine->cache, event, stream)
               : KVT_ERR_INVAL;
}

static kvt_status wait(kvt_engine *engine, void *stream, void *event)
{
    return engine != NULL && event != NULL && stream != NULL
               ? kvt_cache_stream_wait(engine->cache, stream, event)
               : KVT_ERR_INVAL;
}

static kvt_status sync(kvt_engine *engine, void *stream, uint64_t timeout_ns)
{
    return engine != NULL && stream != NULL
               ? kvt_cache_stream_sync(engine->cache, stream, timeout_ns)
               : KVT_ERR_INVAL;
}

static const kvt_cpu_stream_ext cpu_stream = {
    .struct_size = sizeof(cpu_stream),
    .stream_create = stream_create,
    .stream_destroy = stream_destroy,
    .enqueue = enqueue,
    .event_create = event_create,
    .event_destroy = event_destroy,
    .record = record,
    .wait = wait,
    .sync = sync,
};

static kvt_status fault_set(kvt_engine *engine, uint32_t kind, uint64_t value)
{
    return engine != NULL ? kvt_cache_fault_set(engine->cache, kind, value) : KVT_ERR_INVAL;
}

static const kvt_cpu_fault_ext cpu_fault = {.struct_size = sizeof(cpu_fault), .set = fault_set};

const void *kvt_plugin_extension(kvt_engine *engine, const char *id)
{
    (void)engine;
    if (id != NULL && strcmp(id, KVT_EXT_CPU_STREAM) == 0) {
        return &cpu_stream;
    }
    if (id != NULL && strcmp(id, KVT_EXT_CPU_FAULT) == 0) {
        return &cpu_fault;
    }
    return NULL;
}
