/*
 * A progress bar on standard error, where that is a terminal.
 */
#ifndef KVT_PROGRESS_H
#define KVT_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct kvt_progress {
    bool on;
    const char *label; /* borrowed */
    uint64_t total;
    uint64_t start_ns, drawn_ns;
};

/* `wanted` false: never draw. */
void kvt_progress_start(struct kvt_progress *, const char *label, uint64_t total, bool wanted);
/* Draws a few times a second at most. */
void kvt_progress_step(struct kvt_progress *, uint64_t done);
/* Takes the bar off the screen. */
void kvt_progress_end(struct kvt_progress *);

/* CLOCK_MONOTONIC. */
uint64_t kvt_tool_now_ns(void);

#endif
