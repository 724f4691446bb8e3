/*
 * What tests of the CPU device share: memory that counts and fails, the device, gates that hold
 * work back, a journal of what ran, and a scene of engine and cache memory to copy between.
 *
 * A test opens the rig, uses kvt_test_rig, and closes it; closing fails the test when memory leaks.
 */
#ifndef KVT_TEST_CPU_RIG_H
#define KVT_TEST_CPU_RIG_H

#include "cache/device/device.h"

#define MS UINT64_C(1000000)

struct kvt_test_rig {
    struct kvt_memory memory;
    _Atomic int64_t live; /* blocks now allocated */
    _Atomic int64_t left; /* allocations until one fails; -1: none does */
    struct kvt_device *device;
    const struct kvt_device_ops *ops;
    struct kvt_cpu_faults *faults;
};

extern struct kvt_test_rig kvt_test_rig;

void kvt_test_rig_open(void);
void kvt_test_rig_close(void);

/* Like the device's own, but they must succeed. */
struct kvt_stream *kvt_test_stream(void);
struct kvt_event *kvt_test_event(void);
void kvt_test_call(struct kvt_stream *stream, void (*fn)(void *), void *arg);
void kvt_test_finish(struct kvt_stream *stream);

/* ---- gates: work that waits until the test lets it go ---- */

struct kvt_test_gate {
    struct kvt_lock lock; /* protects: what follows */
    struct kvt_cond cond;
    bool open;
    bool reached;
};

void kvt_test_gate_init(struct kvt_test_gate *gate);
void kvt_test_gate_fini(struct kvt_test_gate *gate);
/* Reaches the gate and waits until it is open; `gate` is a struct kvt_test_gate. */
void kvt_test_gate_pass(void *gate);
void kvt_test_gate_open(struct kvt_test_gate *gate);
/* Waits until somebody has reached it. */
void kvt_test_gate_await(struct kvt_test_gate *gate);

/* ---- journal: what ran, in the order in which it did ---- */

struct kvt_test_journal {
    _Atomic uint32_t count;
    char text[16];
};

struct kvt_test_step {
    struct kvt_test_journal *journal;
    char letter;
};

/* Writes the letter; `step` is a struct kvt_test_step. */
void kvt_test_step_run(void *step);

/* ---- scene: the engine's memory and the cache's, filled with bytes from a seed ---- */

#define PAGES 7
#define BLOCKS 3 /* of a page */
#define REGIONS 2
#define BLOCK_BYTES 37
#define STRIDE_BYTES 53
#define ENGINE_BLOCKS 64
#define ENGINE_BYTES (ENGINE_BLOCKS * STRIDE_BYTES)
#define PAGE_BYTES (REGIONS * BLOCKS * BLOCK_BYTES)

struct kvt_test_scene {
    unsigned char engine[REGIONS][ENGINE_BYTES];
    unsigned char cache[PAGES][PAGE_BYTES];
    struct kvt_page_addr pages[PAGES];
    uint32_t blocks[PAGES * BLOCKS]; /* each engine block at most once, in no order */
    _Atomic uint32_t pages_good;     /* PAGES */
    _Atomic bool cancelled;          /* false */
};

/* The caller frees it. */
struct kvt_test_scene *kvt_test_scene_create(uint32_t seed);
/* A copy of one region of all pages. */
struct kvt_page_copy kvt_test_page_copy(struct kvt_test_scene *scene,
                                        enum kvt_copy_direction direction, uint32_t region);
/* Enqueues it; must succeed. */
void kvt_test_copy(struct kvt_stream *stream, struct kvt_test_scene *scene,
                   enum kvt_copy_direction direction, uint32_t region);
/* The same, here and now, byte by byte, for the pages below `good`. */
void kvt_test_naive_copy(struct kvt_test_scene *scene, enum kvt_copy_direction direction,
                         uint32_t region, uint32_t good);
bool kvt_test_scenes_equal(const struct kvt_test_scene *a, const struct kvt_test_scene *b);

#endif
