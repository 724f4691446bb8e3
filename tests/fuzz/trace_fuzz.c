/*
 * Fuzzes the trace readers: any bytes, plain or gzip, are either refused with a sentence or give a
 * trace whose every prompt can be made. Built with libFuzzer by `make fuzz FUZZ=trace`; the unit
 * test trace_corpus runs the kept corpus through the same function.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/fuzz/fuzz.h"
#include "tools/trace.h"

#define PATH_BYTES 64
#define WHY_BYTES 512
#define VOCABULARY 2048u
#define PROMPT_TOKENS_MAX (1u << 20) /* longer prompts cost time and find nothing new */

static void check_prompts(const struct kvt_trace *trace)
{
    for (uint32_t i = 0; i < trace->turn_count; i++) {
        uint32_t count = trace->turns[i].prompt_tokens;
        if (count > PROMPT_TOKENS_MAX) {
            continue;
        }
        uint32_t *tokens = malloc((size_t)count * sizeof(*tokens) + 1);
        if (tokens == NULL) {
            abort();
        }
        kvt_trace_prompt(trace, i, VOCABULARY, tokens);
        for (uint32_t j = 0; j < count; j++) {
            if (tokens[j] >= VOCABULARY) {
                abort();
            }
        }
        free(tokens);
    }
}

/* NOLINTNEXTLINE(readability-identifier-naming) */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int fd = memfd_create("trace", MFD_CLOEXEC);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size) {
        abort();
    }
    char path[PATH_BYTES];
    char why[WHY_BYTES] = "";
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    struct kvt_trace trace;
    kvt_status status = kvt_trace_open(path, &trace, why, sizeof(why));
    if (status == KVT_OK) {
        check_prompts(&trace);
        kvt_trace_close(&trace);
    } else if (strlen(why) == 0) {
        abort(); /* refused without a reason */
    }
    (void)close(fd);
    return 0;
}
