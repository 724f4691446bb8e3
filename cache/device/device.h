/*
 * A device: memory, streams, events, and copies between paged engine memory and cache pages.
 *
 * One table of functions; the CPU stand-in (cpu_device.c) keeps the same asynchrony as a GPU:
 * copies really run later, on another thread, in stream order.
 *
 * Streams are ordered queues: work enqueued on one stream runs in order; streams run beside each
 * other. An event is recorded on a stream and waited for by other streams; a wait refers to the
 * latest record enqueued before it, and passes at once when there was none (CUDA's rule).
 *
 * Layer 1: includes layer 0 only.
 */
#ifndef KVT_DEVICE_H
#define KVT_DEVICE_H

#include "cache/base/base.h"

struct kvt_stream; /* opaque; what the ABI calls `void *stream` */
struct kvt_event;
struct kvt_gate; /* a number that the host raises and streams wait for */
struct kvt_device;

/* One page's place on the cache's side of a copy. */
struct kvt_page_addr {
    void *addr; /* start of this page's shard: [region][block in page][block bytes] */
};

enum kvt_copy_direction { KVT_COPY_TO_ENGINE, KVT_COPY_FROM_ENGINE };

/*
 * Copy one region of many pages between the engine's paged memory and cache pages.
 * Block j of page i lies at region_base + blocks[i * blocks_per_page + j] * block_stride_bytes on
 * the engine's side, and at pages[i].addr + page_offset_bytes + j * block_bytes on the cache's.
 * Everything pointed to is borrowed until the copy has run (the owner learns that from a call()
 * enqueued behind it).
 */
struct kvt_page_copy {
    enum kvt_copy_direction direction;
    uint32_t first_ordinal; /* of page 0 below, in what pages_good counts */
    uint32_t page_count;
    uint32_t blocks_per_page;
    const struct kvt_page_addr *pages; /* [page_count] */
    const uint32_t *blocks;            /* [page_count * blocks_per_page] engine block ids */
    unsigned char *region_base;
    uint64_t block_stride_bytes;
    uint64_t block_bytes;
    uint64_t page_offset_bytes;
    /* Lowered (atomic minimum) to the ordinal of the first page whose copy failed. */
    _Atomic uint32_t *pages_good;
    const _Atomic bool *cancelled; /* when true the copy may be skipped: pages_good goes to 0 */
};

/* Flat copies, cache page to cache page (demotion, promotion). Same ownership rules. */
struct kvt_flat_copy {
    uint32_t count;
    const struct kvt_page_addr *from; /* [count] */
    const struct kvt_page_addr *to;   /* [count] */
    uint64_t bytes;                   /* of each */
    _Atomic uint32_t *pages_good;
    const _Atomic bool *cancelled;
};

struct kvt_device_ops {
    const char *name;
    /* Device memory for the hbm tier; NULL when there is none. [any-thread] may block. */
    void *(*alloc)(struct kvt_device *, uint64_t bytes);
    void (*free)(struct kvt_device *, void *ptr, uint64_t bytes);
    /* Streams and events. create: [any-thread] may block; ERR_NOMEM. destroy: waits for what was
     * enqueued. */
    kvt_status (*stream_create)(struct kvt_device *, struct kvt_stream **out_stream);
    void (*stream_destroy)(struct kvt_stream *);
    kvt_status (*event_create)(struct kvt_device *, struct kvt_event **out_event);
    void (*event_destroy)(struct kvt_event *);
    /* The next four enqueue and return: [any-thread] no-block. ERR_NOMEM, or ERR_DEVICE when the
     * device is gone. */
    kvt_status (*record)(struct kvt_event *, struct kvt_stream *);
    kvt_status (*wait)(struct kvt_stream *, struct kvt_event *);
    kvt_status (*copy_pages)(struct kvt_stream *, const struct kvt_page_copy *);
    kvt_status (*copy_flat)(struct kvt_stream *, const struct kvt_flat_copy *);
    /* Runs fn(arg) in stream order, also when work before it failed. */
    kvt_status (*call)(struct kvt_stream *, void (*fn)(void *), void *arg);
    /* Waits until all that was enqueued has run: [any-thread] may block. ERR_TIMEOUT. */
    kvt_status (*sync)(struct kvt_stream *, uint64_t timeout_ns);
    /* A gate: 0 when made. create: [any-thread] may block; ERR_NOMEM. destroy: no stream waits for
     * it any more. raise: to a higher value, [any-thread] no-block. gate_wait enqueues, as the four
     * above: the stream goes on once the gate stands at `value` or higher. */
    kvt_status (*gate_create)(struct kvt_device *, struct kvt_gate **out_gate);
    void (*gate_destroy)(struct kvt_gate *);
    void (*gate_raise)(struct kvt_gate *, uint32_t value);
    kvt_status (*gate_wait)(struct kvt_stream *, struct kvt_gate *, uint32_t value);
    /* True when the latest record has happened. [any-thread] no-block. */
    bool (*event_done)(struct kvt_event *);
    void (*close)(struct kvt_device *); /* every stream and event must be destroyed before */
};

struct kvt_device {
    const struct kvt_device_ops *ops;
};

/* ---- the CPU stand-in ---- */

/* What tests may do to it; all fields atomic, any may change while it runs. */
struct kvt_cpu_faults {
    _Atomic uint64_t copy_delay_ns;  /* each copy operation first sleeps so long */
    _Atomic uint64_t fail_page_copy; /* k > 0: the k-th page copied from now on fails (one region
                                        of one page counts one); counts down to 0 */
    _Atomic uint64_t fail_call;      /* k > 0: the k-th enqueueing call from now on answers
                                        ERR_DEVICE; counts down to 0 */
    _Atomic bool hold_copies;        /* copies do not start while true */
    _Atomic uint64_t fail_alloc;     /* k > 0: the k-th alloc from now on answers NULL */
};

/* `mem` is borrowed until close. On success the caller owns the device: ops->close(). */
kvt_status kvt_cpu_device_open(const struct kvt_memory *mem, struct kvt_device **out_device)
    KVT_MUST_CHECK;
/* The faults of a CPU device; NULL for any other kind. Lives as long as the device. */
struct kvt_cpu_faults *kvt_cpu_device_faults(struct kvt_device *device);

#endif
