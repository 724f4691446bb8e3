/*
 * The CPU stand-in for a GPU: as asynchronous as one, so that what is ordered by luck there fails
 * here.
 *
 * Each stream is a queue with a thread of its own. Events are ordered by marks: a record makes a
 * new mark and leaves it in the event, a wait takes along the mark that the event has just then.
 * So a wait means exactly one record, whatever is recorded later and on whichever stream, and an
 * event may be destroyed while waits for it are queued.
 *
 * Nothing is held while copies, calls or the host's allocator run.
 */
#include "cache/device/device.h"
#include "kernels/kernels.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NS_PER_S UINT64_C(1000000000)
/* How often a held stream looks whether it may go on. */
#define HOLD_POLL_NS UINT64_C(1000000)
/* A whole number of them makes a range that can be protected or pinned. */
#define DEVICE_ALIGN_BYTES 4096

/* One record of an event. Owned by references: the event's, the record's and each wait's. */
struct mark {
    _Atomic uint32_t refs;
    struct kvt_lock lock; /* rank EVENT; protects: done */
    struct kvt_cond cond; /* broadcast when done becomes true */
    bool done;
};

enum entry_kind {
    ENTRY_RECORD,
    ENTRY_WAIT,
    ENTRY_GATE,
    ENTRY_COPY_PAGES,
    ENTRY_COPY_FLAT,
    ENTRY_CALL
};

struct entry {
    struct entry *next;
    enum entry_kind kind;
    union {
        struct mark *mark; /* RECORD, WAIT: one reference */
        struct {
            struct kvt_gate *gate;
            uint32_t value;
        } gate;
        struct kvt_page_copy pages;
        struct kvt_flat_copy flat;
        struct {
            void (*fn)(void *);
            void *arg;
        } call;
    } u;
};

struct cpu_device {
    struct kvt_device base; /* first: the two are cast to each other */
    const struct kvt_memory *mem;
    struct kvt_cpu_faults faults;
    _Atomic uint32_t live; /* streams and events */
};

struct kvt_stream {
    struct cpu_device *device;
    struct kvt_thread worker;
    struct kvt_lock lock; /* rank STREAM; protects: what follows */
    struct kvt_cond cond; /* broadcast when any of it changes */
    struct entry *head;
    struct entry *tail;
    uint64_t enqueued;
    uint64_t ran;
    bool stopping;
};

struct kvt_event {
    struct cpu_device *device;
    struct kvt_lock lock; /* rank EVENT; protects: latest */
    struct mark *latest;  /* one reference; NULL: never recorded */
};

struct kvt_gate {
    struct cpu_device *device;
    struct kvt_lock lock; /* rank EVENT; protects: value */
    struct kvt_cond cond; /* broadcast when it rises */
    uint32_t value;
};

/* ---- faults ---- */

/* True when this is the armed k-th; each asking counts. */
static bool fault_strikes(_Atomic uint64_t *countdown)
{
    uint64_t left = atomic_load(countdown);
    while (left > 0) {
        if (atomic_compare_exchange_weak(countdown, &left, left - 1)) {
            return left == 1;
        }
    }
    return false;
}

/* ---- marks ---- */

static struct mark *mark_create(const struct kvt_memory *mem)
{
    struct mark *mark = kvt_calloc(mem, 1, sizeof(*mark));
    if (mark != NULL) {
        atomic_init(&mark->refs, 1);
        kvt_lock_init(&mark->lock, KVT_RANK_EVENT, "cpu device: mark");
        kvt_cond_init(&mark->cond);
    }
    return mark;
}

static void mark_unref(const struct kvt_memory *mem, struct mark *mark)
{
    if (mark != NULL && atomic_fetch_sub(&mark->refs, 1) == 1) {
        kvt_cond_fini(&mark->cond);
        kvt_lock_fini(&mark->lock);
        kvt_free(mem, mark, sizeof(*mark));
    }
}

static void mark_set(struct mark *mark)
{
    kvt_lock_take(&mark->lock);
    mark->done = true;
    kvt_cond_broadcast(&mark->cond);
    kvt_lock_give(&mark->lock);
}

static bool mark_is_set(struct mark *mark)
{
    kvt_lock_take(&mark->lock);
    bool done = mark->done;
    kvt_lock_give(&mark->lock);
    return done;
}

/* Runs on a worker: the record it waits for is queued on a stream, and streams drain. */
static void mark_wait(struct mark *mark)
{
    kvt_lock_take(&mark->lock);
    while (!mark->done) {
        (void)kvt_cond_wait(&mark->cond, &mark->lock, UINT64_MAX);
    }
    kvt_lock_give(&mark->lock);
}

/* The event's latest mark with a reference for the caller; NULL when it was never recorded. */
static struct mark *event_latest(struct kvt_event *event)
{
    kvt_lock_take(&event->lock);
    struct mark *mark = event->latest;
    if (mark != NULL) {
        atomic_fetch_add(&mark->refs, 1);
    }
    kvt_lock_give(&event->lock);
    return mark;
}

/* ---- gates ---- */

static kvt_status cpu_gate_create(struct kvt_device *base, struct kvt_gate **out_gate)
{
    struct cpu_device *device = (struct cpu_device *)base;
    struct kvt_gate *gate = kvt_calloc(device->mem, 1, sizeof(*gate));
    if (gate == NULL) {
        return KVT_ERR_NOMEM;
    }
    gate->device = device;
    kvt_lock_init(&gate->lock, KVT_RANK_EVENT, "cpu device: gate");
    kvt_cond_init(&gate->cond);
    *out_gate = gate;
    return KVT_OK;
}

static void cpu_gate_destroy(struct kvt_gate *gate)
{
    if (gate != NULL) {
        kvt_cond_fini(&gate->cond);
        kvt_lock_fini(&gate->lock);
        kvt_free(gate->device->mem, gate, sizeof(*gate));
    }
}

static void cpu_gate_raise(struct kvt_gate *gate, uint32_t value)
{
    kvt_lock_take(&gate->lock);
    KVT_ASSERT(value >= gate->value);
    gate->value = value;
    kvt_cond_broadcast(&gate->cond);
    kvt_lock_give(&gate->lock);
}

/* Runs on a worker: whoever made the gate raises it, in the end, whatever failed. */
static void gate_pass(struct kvt_gate *gate, uint32_t value)
{
    kvt_lock_take(&gate->lock);
    while (gate->value < value) {
        (void)kvt_cond_wait(&gate->cond, &gate->lock, UINT64_MAX);
    }
    kvt_lock_give(&gate->lock);
}

/* ---- copies, on the worker ---- */

static void lower_pages_good(_Atomic uint32_t *pages_good, uint32_t ordinal)
{
    uint32_t now = atomic_load(pages_good);
    while (now > ordinal && !atomic_compare_exchange_weak(pages_good, &now, ordinal)) {
    }
}

/* Whether page `ordinal` is to be copied. Where not, pages_good says so, and the pages after it
 * need no copy either. */
static bool page_begins(struct cpu_device *device, uint32_t ordinal, _Atomic uint32_t *pages_good,
                        const _Atomic bool *cancelled)
{
    if (atomic_load(cancelled)) {
        lower_pages_good(pages_good, 0);
        return false;
    }
    if (ordinal >= atomic_load(pages_good)) {
        return false;
    }
    if (fault_strikes(&device->faults.fail_page_copy)) {
        lower_pages_good(pages_good, ordinal);
        return false;
    }
    return true;
}

static void run_page_copy(struct cpu_device *device, const struct kvt_page_copy *copy)
{
    struct kvt_kernel_blocks blocks = {
        .region_base = copy->region_base,
        .ids = copy->blocks,
        .count = copy->blocks_per_page,
        .stride_bytes = copy->block_stride_bytes,
        .block_bytes = copy->block_bytes,
    };
    for (uint32_t i = 0; i < copy->page_count; i++) {
        if (!page_begins(device, copy->first_ordinal + i, copy->pages_good, copy->cancelled)) {
            return;
        }
        unsigned char *page = (unsigned char *)copy->pages[i].addr + copy->page_offset_bytes;
        if (copy->direction == KVT_COPY_TO_ENGINE) {
            kvt_ref_scatter(&blocks, page);
        } else {
            kvt_ref_gather(&blocks, page);
        }
        blocks.ids += copy->blocks_per_page;
    }
}

static void run_flat_copy(struct cpu_device *device, const struct kvt_flat_copy *copy)
{
    for (uint32_t i = 0; i < copy->count; i++) {
        if (!page_begins(device, i, copy->pages_good, copy->cancelled)) {
            return;
        }
        memcpy(copy->to[i].addr, copy->from[i].addr, copy->bytes);
    }
}

static void sleep_ns(uint64_t ns)
{
    struct timespec left = {(time_t)(ns / NS_PER_S), (long)(ns % NS_PER_S)};
    while (nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
}

/* Waits as the faults say. A stream that is being destroyed is not held: its destroyer waits. */
static void copy_may_start(struct kvt_stream *stream)
{
    struct kvt_cpu_faults *faults = &stream->device->faults;
    kvt_lock_take(&stream->lock);
    while (atomic_load(&faults->hold_copies) && !stream->stopping) {
        (void)kvt_cond_wait(&stream->cond, &stream->lock, HOLD_POLL_NS);
    }
    kvt_lock_give(&stream->lock);
    uint64_t delay_ns = atomic_load(&faults->copy_delay_ns);
    if (delay_ns > 0) {
        sleep_ns(delay_ns);
    }
}

/* ---- streams ---- */

/* Gives back what the entry owns, and the entry. */
static void entry_destroy(struct cpu_device *device, struct entry *entry)
{
    if (entry->kind == ENTRY_RECORD || entry->kind == ENTRY_WAIT) {
        mark_unref(device->mem, entry->u.mark);
    }
    kvt_free(device->mem, entry, sizeof(*entry));
}

static void entry_run(struct kvt_stream *stream, struct entry *entry)
{
    switch (entry->kind) {
    case ENTRY_RECORD:
        mark_set(entry->u.mark);
        break;
    case ENTRY_WAIT:
        mark_wait(entry->u.mark);
        break;
    case ENTRY_GATE:
        gate_pass(entry->u.gate.gate, entry->u.gate.value);
        break;
    case ENTRY_COPY_PAGES:
        copy_may_start(stream);
        run_page_copy(stream->device, &entry->u.pages);
        break;
    case ENTRY_COPY_FLAT:
        copy_may_start(stream);
        run_flat_copy(stream->device, &entry->u.flat);
        break;
    case ENTRY_CALL:
        entry->u.call.fn(entry->u.call.arg);
        break;
    }
}

static void *stream_main(void *arg)
{
    struct kvt_stream *stream = arg;
    kvt_lock_take(&stream->lock);
    for (;;) {
        struct entry *entry = stream->head;
        if (entry == NULL) {
            if (stream->stopping) {
                break;
            }
            (void)kvt_cond_wait(&stream->cond, &stream->lock, UINT64_MAX);
            continue;
        }
        stream->head = entry->next;
        if (stream->head == NULL) {
            stream->tail = NULL;
        }
        kvt_lock_give(&stream->lock);
        entry_run(stream, entry);
        entry_destroy(stream->device, entry);
        kvt_lock_take(&stream->lock);
        stream->ran++;
        kvt_cond_broadcast(&stream->cond);
    }
    kvt_lock_give(&stream->lock);
    return NULL;
}

/* Requires: stream->lock. */
static void stream_append(struct kvt_stream *stream, struct entry *entry)
{
    KVT_DASSERT(kvt_lock_held(&stream->lock));
    if (stream->tail == NULL) {
        stream->head = entry;
    } else {
        stream->tail->next = entry;
    }
    stream->tail = entry;
    stream->enqueued++;
    kvt_cond_broadcast(&stream->cond);
}

/* The entry for one enqueueing call; here such calls fail when a fault is armed. */
static kvt_status entry_create(struct cpu_device *device, enum entry_kind kind,
                               struct entry **out_entry)
{
    if (fault_strikes(&device->faults.fail_call)) {
        return KVT_ERR_DEVICE;
    }
    struct entry *entry = kvt_calloc(device->mem, 1, sizeof(*entry));
    if (entry == NULL) {
        return KVT_ERR_NOMEM;
    }
    entry->kind = kind;
    *out_entry = entry;
    return KVT_OK;
}

static void entry_enqueue(struct kvt_stream *stream, struct entry *entry)
{
    kvt_lock_take(&stream->lock);
    stream_append(stream, entry);
    kvt_lock_give(&stream->lock);
}

static kvt_status cpu_stream_create(struct kvt_device *base, struct kvt_stream **out_stream)
{
    struct cpu_device *device = (struct cpu_device *)base;
    struct kvt_stream *stream = kvt_calloc(device->mem, 1, sizeof(*stream));
    if (stream == NULL) {
        return KVT_ERR_NOMEM;
    }
    stream->device = device;
    kvt_lock_init(&stream->lock, KVT_RANK_STREAM, "cpu device: stream");
    kvt_cond_init(&stream->cond);
    kvt_status status = kvt_thread_start(&stream->worker, "kvt-cpu-stream", stream_main, stream);
    if (status != KVT_OK) {
        goto undo_stream;
    }
    atomic_fetch_add(&device->live, 1);
    *out_stream = stream;
    return KVT_OK;

undo_stream:
    kvt_cond_fini(&stream->cond);
    kvt_lock_fini(&stream->lock);
    kvt_free(device->mem, stream, sizeof(*stream));
    return status;
}

static void cpu_stream_destroy(struct kvt_stream *stream)
{
    if (stream == NULL) {
        return;
    }
    struct cpu_device *device = stream->device;
    kvt_lock_take(&stream->lock);
    stream->stopping = true;
    kvt_cond_broadcast(&stream->cond);
    kvt_lock_give(&stream->lock);
    kvt_thread_join(&stream->worker);
    kvt_cond_fini(&stream->cond);
    kvt_lock_fini(&stream->lock);
    kvt_free(device->mem, stream, sizeof(*stream));
    atomic_fetch_sub(&device->live, 1);
}

static kvt_status cpu_sync(struct kvt_stream *stream, uint64_t timeout_ns)
{
    uint64_t start_ns = kvt_now_ns(&kvt_clock_monotonic);
    kvt_status status = KVT_OK;
    kvt_lock_take(&stream->lock);
    uint64_t target = stream->enqueued;
    while (stream->ran < target) {
        uint64_t waited_ns = kvt_now_ns(&kvt_clock_monotonic) - start_ns;
        if (waited_ns >= timeout_ns) {
            status = KVT_ERR_TIMEOUT;
            break;
        }
        (void)kvt_cond_wait(&stream->cond, &stream->lock, timeout_ns - waited_ns);
    }
    kvt_lock_give(&stream->lock);
    return status;
}

static kvt_status cpu_gate_wait(struct kvt_stream *stream, struct kvt_gate *gate, uint32_t value)
{
    struct entry *entry;
    kvt_status status = entry_create(stream->device, ENTRY_GATE, &entry);
    if (status == KVT_OK) {
        entry->u.gate.gate = gate;
        entry->u.gate.value = value;
        entry_enqueue(stream, entry);
    }
    return status;
}

static kvt_status cpu_copy_pages(struct kvt_stream *stream, const struct kvt_page_copy *copy)
{
    struct entry *entry;
    kvt_status status = entry_create(stream->device, ENTRY_COPY_PAGES, &entry);
    if (status == KVT_OK) {
        entry->u.pages = *copy;
        entry_enqueue(stream, entry);
    }
    return status;
}

static kvt_status cpu_copy_flat(struct kvt_stream *stream, const struct kvt_flat_copy *copy)
{
    struct entry *entry;
    kvt_status status = entry_create(stream->device, ENTRY_COPY_FLAT, &entry);
    if (status == KVT_OK) {
        entry->u.flat = *copy;
        entry_enqueue(stream, entry);
    }
    return status;
}

static kvt_status cpu_call(struct kvt_stream *stream, void (*fn)(void *), void *arg)
{
    struct entry *entry;
    kvt_status status = entry_create(stream->device, ENTRY_CALL, &entry);
    if (status == KVT_OK) {
        entry->u.call.fn = fn;
        entry->u.call.arg = arg;
        entry_enqueue(stream, entry);
    }
    return status;
}

/* ---- events ---- */

static kvt_status cpu_event_create(struct kvt_device *base, struct kvt_event **out_event)
{
    struct cpu_device *device = (struct cpu_device *)base;
    struct kvt_event *event = kvt_calloc(device->mem, 1, sizeof(*event));
    if (event == NULL) {
        return KVT_ERR_NOMEM;
    }
    event->device = device;
    kvt_lock_init(&event->lock, KVT_RANK_EVENT, "cpu device: event");
    atomic_fetch_add(&device->live, 1);
    *out_event = event;
    return KVT_OK;
}

static void cpu_event_destroy(struct kvt_event *event)
{
    if (event == NULL) {
        return;
    }
    struct cpu_device *device = event->device;
    mark_unref(device->mem, event->latest);
    kvt_lock_fini(&event->lock);
    kvt_free(device->mem, event, sizeof(*event));
    atomic_fetch_sub(&device->live, 1);
}

static kvt_status cpu_record(struct kvt_event *event, struct kvt_stream *stream)
{
    struct cpu_device *device = stream->device;
    struct entry *entry;
    kvt_status status = entry_create(device, ENTRY_RECORD, &entry);
    if (status != KVT_OK) {
        return status;
    }
    struct mark *mark = mark_create(device->mem);
    if (mark == NULL) {
        status = KVT_ERR_NOMEM;
        goto undo_entry;
    }
    atomic_fetch_add(&mark->refs, 1);
    entry->u.mark = mark;
    /* Queue and event change together: records on one stream are in the event in queue order. */
    kvt_lock_take(&stream->lock);
    stream_append(stream, entry);
    kvt_lock_take(&event->lock);
    struct mark *former = event->latest;
    event->latest = mark;
    kvt_lock_give(&event->lock);
    kvt_lock_give(&stream->lock);
    mark_unref(device->mem, former);
    return KVT_OK;

undo_entry:
    entry_destroy(device, entry);
    return status;
}

static kvt_status cpu_wait(struct kvt_stream *stream, struct kvt_event *event)
{
    struct entry *entry;
    kvt_status status = entry_create(stream->device, ENTRY_WAIT, &entry);
    if (status != KVT_OK) {
        return status;
    }
    entry->u.mark = event_latest(event);
    if (entry->u.mark == NULL) {
        entry_destroy(stream->device, entry);
        return KVT_OK;
    }
    entry_enqueue(stream, entry);
    return KVT_OK;
}

static bool cpu_event_done(struct kvt_event *event)
{
    struct mark *mark = event_latest(event);
    bool done = mark == NULL || mark_is_set(mark);
    mark_unref(event->device->mem, mark);
    return done;
}

/* ---- the device ---- */

static void *cpu_alloc(struct kvt_device *base, uint64_t bytes)
{
    struct cpu_device *device = (struct cpu_device *)base;
    if (bytes == 0 || fault_strikes(&device->faults.fail_alloc)) {
        return NULL;
    }
    /* Not the host's allocator: this stands for memory that is not its own. */
    void *ptr = NULL;
    return posix_memalign(&ptr, DEVICE_ALIGN_BYTES, bytes) == 0 ? ptr : NULL;
}

static void cpu_free(struct kvt_device *base, void *ptr, uint64_t bytes)
{
    (void)base;
    (void)bytes;
    free(ptr);
}

static void cpu_close(struct kvt_device *base)
{
    if (base == NULL) {
        return;
    }
    struct cpu_device *device = (struct cpu_device *)base;
    uint32_t live = atomic_load(&device->live);
    KVT_DASSERT(live == 0);
    /* A stream that somebody forgot still has a thread that uses the device: leak it then. */
    if (live == 0) {
        kvt_free(device->mem, device, sizeof(*device));
    }
}

static const struct kvt_device_ops cpu_ops = {
    .name = "cpu",
    .alloc = cpu_alloc,
    .free = cpu_free,
    .stream_create = cpu_stream_create,
    .stream_destroy = cpu_stream_destroy,
    .event_create = cpu_event_create,
    .event_destroy = cpu_event_destroy,
    .record = cpu_record,
    .wait = cpu_wait,
    .copy_pages = cpu_copy_pages,
    .copy_flat = cpu_copy_flat,
    .call = cpu_call,
    .sync = cpu_sync,
    .event_done = cpu_event_done,
    .gate_create = cpu_gate_create,
    .gate_destroy = cpu_gate_destroy,
    .gate_raise = cpu_gate_raise,
    .gate_wait = cpu_gate_wait,
    .close = cpu_close,
};

kvt_status kvt_cpu_device_open(const struct kvt_memory *mem, struct kvt_device **out_device)
{
    struct cpu_device *device = kvt_calloc(mem, 1, sizeof(*device));
    if (device == NULL) {
        return KVT_ERR_NOMEM;
    }
    device->base.ops = &cpu_ops;
    device->mem = mem;
    *out_device = &device->base;
    return KVT_OK;
}

struct kvt_cpu_faults *kvt_cpu_device_faults(struct kvt_device *device)
{
    return device->ops == &cpu_ops ? &((struct cpu_device *)device)->faults : NULL;
}
