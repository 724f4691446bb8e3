/* One fact, one line: formats into a buffer on the stack and hands it to the listener. */
#include "cache/base/base.h"

#include <stdio.h>
#include <string.h>

void kvt_log(const struct kvt_log *log, int32_t level, const char *format, ...)
{
    if (log == NULL || log->fn == NULL) {
        return;
    }
    char line[KVT_LOG_LINE_BYTES_MAX];
    va_list args;
    va_start(args, format);
    int bytes = vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    if (bytes < 0) {
        return;
    }
    if ((size_t)bytes >= sizeof(line)) {
        /* A line that was cut says so. */
        static const char mark[] = "...";
        memcpy(line + sizeof(line) - sizeof(mark), mark, sizeof(mark));
    }
    log->fn(log->ctx, level, line);
}
