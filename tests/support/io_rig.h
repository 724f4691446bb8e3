/* A queue of file operations, a file and what is counted, for the tests of the queue. */
#ifndef KVT_IO_RIG_H
#define KVT_IO_RIG_H

#include "cache/io/io.h"
#include "tests/support/test_expect.h"
#include "tests/support/test_random.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MIB (UINT64_C(1) << 20)
#define FILE_BYTES (8 * MIB)
#define ALIGN 4096u
#define OPS_MAX 64u
#define WAIT_STEPS 20000u

/* ---- the rig: a queue, a file, a buffer for each operation ---- */

struct waiter {
    _Atomic uint32_t done, late;
};

struct rig {
    struct kvt_io *io;
    struct kvt_log log;
    int fd;
    uint32_t file;
    _Atomic uint32_t warnings;
    _Atomic uint64_t clock_offset_ns;
    struct waiter waiter;
    char last_warning[KVT_LOG_LINE_BYTES_MAX];
    _Atomic uint32_t order_count;
    struct kvt_io_op *order[OPS_MAX]; /* in which they ended */
};

static inline void log_line(void *ctx, int32_t level, const char *line)
{
    struct rig *rig = ctx;
    if (level <= KVT_LOG_WARNING) {
        (void)snprintf(rig->last_warning, sizeof(rig->last_warning), "%s", line);
        rig->warnings++;
    }
}

static inline uint64_t clock_now(void *ctx)
{
    struct rig *rig = ctx;
    return kvt_now_ns(&kvt_clock_monotonic) + rig->clock_offset_ns;
}

static inline int temp_file(int flags)
{
    const char *tmp = getenv("TMPDIR");
    char path[256];
    (void)snprintf(path, sizeof(path), "%s/kvt_io_XXXXXX",
                   tmp != NULL && *tmp != '\0' ? tmp : "/tmp");
    int fd = mkostemp(path, O_CLOEXEC | flags);
    if (fd >= 0) {
        EXPECT(unlink(path) == 0);
    }
    return fd;
}

static inline struct kvt_io_config config_of(struct rig *rig, bool threads)
{
    rig->log = (struct kvt_log){log_line, rig};
    return (struct kvt_io_config){.mem = &kvt_memory_libc,
                                  .log = &rig->log,
                                  .clock = {rig, clock_now},
                                  .threads_only = threads};
}

static inline void rig_open_with(struct rig *rig, const struct kvt_io_config *config, int flags,
                                 uint32_t align_bytes)
{
    EXPECT(kvt_io_open(config, &rig->io) == KVT_OK);
    rig->fd = temp_file(flags);
    EXPECT(rig->fd >= 0);
    EXPECT(kvt_io_file_add(rig->io, rig->fd, align_bytes, &rig->file) == KVT_OK);
}

static inline void rig_open(struct rig *rig, bool threads)
{
    memset(rig, 0, sizeof(*rig));
    struct kvt_io_config config = config_of(rig, threads);
    rig_open_with(rig, &config, 0, 1);
}

static inline void rig_close(struct rig *rig)
{
    kvt_io_close(rig->io);
    EXPECT(close(rig->fd) == 0);
}

static inline void op_done(struct kvt_io_op *op)
{
    struct rig *rig = op->user;
    uint32_t at = rig->order_count++;
    if (at < OPS_MAX) {
        rig->order[at] = op;
    }
    rig->waiter.done++;
}

static inline void op_late(struct kvt_io_op *op)
{
    struct rig *rig = op->user;
    rig->waiter.late++;
}

static inline struct kvt_io_op op_make(struct rig *rig, enum kvt_io_kind kind, void *buffer,
                                       uint64_t offset, uint64_t bytes)
{
    return (struct kvt_io_op){.kind = kind,
                              .file = rig->file,
                              .buffer = buffer,
                              .offset = offset,
                              .bytes = bytes,
                              .late_ns = UINT64_MAX,
                              .done = op_done,
                              .late = op_late,
                              .user = rig};
}

static inline void nap(void)
{
    const struct timespec pause = {0, 1000000};
    (void)nanosleep(&pause, NULL);
}

static inline void wait_count(_Atomic uint32_t *counter, uint32_t count)
{
    for (uint32_t i = 0; i < WAIT_STEPS && *counter < count; i++) {
        nap();
    }
    EXPECT(*counter == count);
}

/* Runs one to its end. */
static inline void op_run(struct rig *rig, struct kvt_io_op *op)
{
    uint32_t before = rig->waiter.done;
    kvt_io_submit(rig->io, &op, 1);
    wait_count(&rig->waiter.done, before + 1);
}

static inline unsigned char *buffer_make(uint64_t bytes)
{
    void *buffer = NULL;
    EXPECT(posix_memalign(&buffer, ALIGN, (size_t)bytes) == 0);
    memset(buffer, 0, (size_t)bytes);
    return buffer;
}

static inline void fill(struct test_random *random, unsigned char *bytes, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        bytes[i] = (unsigned char)test_random_u64(random);
    }
}

static inline struct kvt_io_stats stats_of(struct rig *rig)
{
    struct kvt_io_stats stats;
    kvt_io_stats(rig->io, &stats);
    return stats;
}

#endif
