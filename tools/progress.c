#include "tools/progress.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define BAR_COLUMNS 30
#define DRAW_EVERY_NS UINT64_C(100000000)

uint64_t kvt_tool_now_ns(void)
{
    struct timespec now = {0, 0};
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

void kvt_progress_start(struct kvt_progress *progress, const char *label, uint64_t total,
                        bool wanted)
{
    *progress = (struct kvt_progress){.on = wanted && total > 0 && isatty(STDERR_FILENO) == 1,
                                      .label = label,
                                      .total = total,
                                      .start_ns = kvt_tool_now_ns()};
}

void kvt_progress_step(struct kvt_progress *progress, uint64_t done)
{
    if (!progress->on) {
        return;
    }
    uint64_t now_ns = kvt_tool_now_ns();
    if (progress->drawn_ns != 0 && now_ns - progress->drawn_ns < DRAW_EVERY_NS) {
        return;
    }
    progress->drawn_ns = now_ns;
    char bar[BAR_COLUMNS + 1];
    uint64_t filled = done * BAR_COLUMNS / progress->total;
    for (uint64_t i = 0; i < BAR_COLUMNS; i++) {
        bar[i] = i < filled ? '#' : '.';
    }
    bar[BAR_COLUMNS] = '\0';
    (void)fprintf(stderr, "\r%-18s [%s] %" PRIu64 "/%" PRIu64 "  %" PRIu64 " s\033[K",
                  progress->label, bar, done, progress->total,
                  (now_ns - progress->start_ns) / UINT64_C(1000000000));
    (void)fflush(stderr);
}

void kvt_progress_end(struct kvt_progress *progress)
{
    if (progress->on && progress->drawn_ns != 0) {
        (void)fputs("\r\033[K", stderr);
        (void)fflush(stderr);
    }
    progress->on = false;
}
