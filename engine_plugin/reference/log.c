#include "engine_plugin/reference/log.h"

#include <stdarg.h>
#include <stdio.h>

void kvt_ref_log(const struct kvt_ref_log *log, int32_t level, const char *format, ...)
{
    char line[KVT_REF_LOG_LINE_BYTES_MAX];
    if (!log->fn) return;
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    log->fn(log->ctx, level, line);
}

const char *kvt_ref_status_name(kvt_status status)
{
    switch (status) {
#define STATUS_NAME(name, value, sentence, retry)                                                  \
    case (value):                                                                                  \
        return "KVT_" #name;
        KVT_STATUS_MAP(STATUS_NAME)
#undef STATUS_NAME
    default:
        return "a status that is not known here";
    }
}
