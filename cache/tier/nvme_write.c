/* Slots for writes, batches up to the queue of the flush thread, drops, the write budget. */
#include "cache/base/crash_point.h"
#include "cache/tier/nvme_internal.h"

#include <string.h>

#define NS_PER_DAY UINT64_C(86400000000000)

/* ---- the write budget ---- */

static int64_t budget_capacity(const struct kvt_nvme *nvme)
{
    uint64_t capacity = nvme->budget_per_day / KVT_NVME_BUDGET_PARTS;
    return capacity < INT64_MAX ? (int64_t)capacity : INT64_MAX;
}

/* What came in since the last time. Requires: lock. */
static void budget_fill(struct kvt_nvme *nvme)
{
    uint64_t now_ns = kvt_now_ns(&nvme->clock);
    uint64_t passed_ns = now_ns > nvme->budget_ns ? now_ns - nvme->budget_ns : 0;
    double income = (double)nvme->budget_per_day * (double)passed_ns / (double)NS_PER_DAY;
    /* Too little to count yet: the time goes on counting. */
    if (income < 1.0) {
        return;
    }
    double left = (double)nvme->budget_left + income;
    int64_t capacity = budget_capacity(nvme);
    nvme->budget_left = left < (double)capacity ? (int64_t)left : capacity;
    nvme->budget_ns = now_ns;
}

bool kvt_nvme_may_write(struct kvt_nvme *nvme, uint64_t bytes)
{
    kvt_lock_take(&nvme->lock);
    bool may = kvt_nvme_takes_writes(nvme);
    if (may && nvme->budget_per_day > 0) {
        budget_fill(nvme);
        int64_t capacity = budget_capacity(nvme);
        /* What is larger than the bucket goes when the bucket is full, and leaves a debt. */
        int64_t need = bytes < (uint64_t)capacity ? (int64_t)bytes : capacity;
        may = nvme->budget_left >= need;
    }
    nvme->budget_refusals += !may;
    kvt_lock_give(&nvme->lock);
    return may;
}

/* Requires: lock. */
static void budget_spend(struct kvt_nvme *nvme, uint64_t bytes)
{
    if (nvme->budget_per_day > 0) {
        budget_fill(nvme);
        nvme->budget_left -= (int64_t)bytes;
    }
}

/* ---- reserving ---- */

/* Pages that nobody took over at load make room now. Requires: lock. */
static void left_drop(struct kvt_nvme *nvme)
{
    for (uint32_t i = 0; i < KVT_NVME_LEFT_DROPS && nvme->left_head != KVT_NVME_NONE; i++) {
        uint32_t name = nvme->left_head;
        nvme->left_head = kvt_nvme_slot_at(nvme, name)->next;
        nvme->pages_left--;
        kvt_nvme_slot_kill(nvme, name);
        nvme->orphans_dropped++;
    }
    kvt_cond_broadcast(&nvme->cond);
}

/* A catalog that said it was full is asked again after a while. Requires: lock. */
static bool catalog_full(struct kvt_nvme *nvme)
{
    if (nvme->catalog_full &&
        kvt_now_ns(&nvme->clock) - nvme->catalog_full_ns >= KVT_NVME_FULL_NS) {
        nvme->catalog_full = false;
    }
    return nvme->catalog_full;
}

kvt_status kvt_nvme_reserve(struct kvt_nvme *nvme, uint64_t bytes, struct kvt_place *out_place)
{
    if (bytes == 0 || bytes > UINT32_MAX) {
        return KVT_ERR_INVAL;
    }
    uint64_t slot_bytes = kvt_nvme_slot_bytes(bytes);
    kvt_status status;
    kvt_lock_take(&nvme->lock);
    if (!kvt_nvme_takes_writes(nvme)) {
        status = KVT_ERR_IO;
    } else if (slot_bytes > nvme->extent_bytes_max) {
        status = KVT_ERR_LIMIT;
        nvme->say_too_large = !nvme->said_too_large;
        nvme->too_large_bytes = slot_bytes;
        kvt_cond_broadcast(&nvme->cond);
    } else if (catalog_full(nvme)) {
        status = KVT_ERR_LIMIT;
    } else {
        status = kvt_nvme_slot_take(nvme, slot_bytes, out_place);
    }
    if (status == KVT_ERR_LIMIT && nvme->left_head != KVT_NVME_NONE) {
        left_drop(nvme);
    }
    kvt_lock_give(&nvme->lock);
    return status;
}

void kvt_nvme_unreserve(struct kvt_nvme *nvme, struct kvt_place place)
{
    kvt_lock_take(&nvme->lock);
    struct kvt_nvme_slot *slot = kvt_nvme_slot_of(nvme, place);
    if (slot != NULL && slot->state == KVT_SLOT_RESERVED) {
        kvt_nvme_slot_free(nvme, place.slot);
    }
    kvt_lock_give(&nvme->lock);
}

bool kvt_nvme_has_room(struct kvt_nvme *nvme, uint64_t bytes)
{
    kvt_lock_take(&nvme->lock);
    bool room = kvt_nvme_takes_writes(nvme) && !catalog_full(nvme) &&
                kvt_nvme_slot_room(nvme, kvt_nvme_slot_bytes(bytes));
    kvt_lock_give(&nvme->lock);
    return room;
}

/* ---- a batch ---- */

/* On the io queue's thread. */
static void write_op_done(struct kvt_io_op *op)
{
    struct kvt_nvme_batch_op *mine = op->user;
    struct kvt_nvme_batch *batch = mine->batch;
    batch->nvme->write_moved_ns = kvt_now_ns(&batch->nvme->clock);
    if (atomic_fetch_sub_explicit(&batch->ops_left, 1, memory_order_acq_rel) != 1) {
        return;
    }
    /* The last one of the batch: from here the flush thread goes on. */
    struct kvt_nvme *nvme = batch->nvme;
    KVT_CRASH_POINT("after_data_write");
    kvt_lock_take(&nvme->lock);
    batch->landed = true;
    kvt_cond_broadcast(&nvme->cond);
    kvt_lock_give(&nvme->lock);
}

/* Does page i lie right behind the one before it, here and there? Requires: lock. */
static bool follows(const struct kvt_nvme *nvme, const struct kvt_nvme_page *pages, uint32_t i,
                    uint64_t op_bytes)
{
    const struct kvt_nvme_page *before = &pages[i - 1];
    uint64_t bytes = kvt_nvme_slot_size(nvme, before->place.slot);
    return kvt_store_of(before->place.slot) == kvt_store_of(pages[i].place.slot) &&
           kvt_nvme_slot_offset(nvme, before->place.slot) + bytes ==
               kvt_nvme_slot_offset(nvme, pages[i].place.slot) &&
           (const char *)before->payload + bytes == (const char *)pages[i].payload &&
           op_bytes + kvt_nvme_slot_size(nvme, pages[i].place.slot) <= KVT_NVME_MERGE_BYTES;
}

/* One operation for each run of adjacent slots. Requires: lock. */
static void batch_ops_fill(struct kvt_nvme *nvme, struct kvt_nvme_batch *batch)
{
    const struct kvt_nvme_write *write = batch->write;
    struct kvt_nvme_batch_op *op = NULL;
    for (uint32_t i = 0; i < write->page_count; i++) {
        const struct kvt_nvme_page *page = &write->pages[i];
        uint64_t bytes = kvt_nvme_slot_size(nvme, page->place.slot);
        if (op != NULL && follows(nvme, write->pages, i, op->op.bytes)) {
            op->op.bytes += bytes;
            op->count++;
            continue;
        }
        op = &batch->ops[batch->op_count++];
        *op = (struct kvt_nvme_batch_op){
            .op = {.kind = KVT_IO_WRITE,
                   .file = nvme->drives[kvt_store_of(page->place.slot)].file,
                   .buffer = (void *)(uintptr_t)page->payload, /* it is only read */
                   .offset = kvt_nvme_slot_offset(nvme, page->place.slot),
                   .bytes = bytes,
                   .late_ns = UINT64_MAX,
                   .done = write_op_done,
                   .user = op},
            .batch = batch,
            .first = i,
            .count = 1};
    }
    atomic_store_explicit(&batch->ops_left, batch->op_count, memory_order_relaxed);
}

/* Are all places reserved, for pages of that size? Requires: lock. */
static bool batch_is_valid(struct kvt_nvme *nvme, const struct kvt_nvme_write *write)
{
    for (uint32_t i = 0; i < write->page_count; i++) {
        const struct kvt_nvme_page *page = &write->pages[i];
        const struct kvt_nvme_slot *slot = kvt_nvme_slot_of(nvme, page->place);
        if (slot == NULL || slot->state != KVT_SLOT_RESERVED || page->bytes == 0 ||
            kvt_nvme_slot_size(nvme, page->place.slot) != kvt_nvme_slot_bytes(page->bytes)) {
            return false;
        }
    }
    return true;
}

/* Numbers the pages, notes their parents' numbers, enters the queue. Requires: lock. */
static void batch_enter(struct kvt_nvme *nvme, struct kvt_nvme_batch *batch)
{
    const struct kvt_nvme_write *write = batch->write;
    for (uint32_t i = 0; i < write->page_count; i++) {
        const struct kvt_nvme_page *page = &write->pages[i];
        struct kvt_nvme_slot *slot = kvt_nvme_slot_of(nvme, page->place);
        const struct kvt_nvme_slot *parent = kvt_nvme_slot_of(nvme, page->parent);
        slot->state = KVT_SLOT_WRITING;
        slot->seq = nvme->seq_next++;
        batch->pages[i].seq = slot->seq;
        batch->pages[i].parent_seq = parent != NULL ? parent->seq : 0;
        batch->pages[i].landed = true; /* until the kernel says otherwise */
        budget_spend(nvme, kvt_nvme_slot_size(nvme, page->place.slot));
    }
    batch->submitted_ns = kvt_now_ns(&nvme->clock);
    if (nvme->batch_tail != NULL) {
        nvme->batch_tail->next = batch;
    } else {
        nvme->batch_head = batch;
    }
    nvme->batch_tail = batch;
    nvme->batches_submitted++;
    kvt_cond_broadcast(&nvme->cond);
}

static struct kvt_nvme_batch *batch_alloc(struct kvt_nvme *nvme, struct kvt_nvme_write *write)
{
    size_t ops_bytes = write->page_count * sizeof(struct kvt_nvme_batch_op);
    size_t pages_bytes = write->page_count * sizeof(struct kvt_nvme_batch_page);
    size_t bytes = sizeof(struct kvt_nvme_batch) + ops_bytes + pages_bytes;
    struct kvt_nvme_batch *batch = kvt_calloc(nvme->mem, 1, bytes);
    if (batch != NULL) {
        batch->nvme = nvme;
        batch->write = write;
        batch->ops = (struct kvt_nvme_batch_op *)(batch + 1);
        batch->pages = (struct kvt_nvme_batch_page *)(batch->ops + write->page_count);
        batch->block_bytes = bytes;
    }
    return batch;
}

kvt_status kvt_nvme_write(struct kvt_nvme *nvme, struct kvt_nvme_write *write)
{
    if (write->page_count == 0 || write->page_count > KVT_NVME_BATCH_PAGES_MAX ||
        write->namespace_count > KVT_NVME_BATCH_PAGES_MAX) {
        return KVT_ERR_INVAL;
    }
    write->pages_good = 0;
    write->status = KVT_OK;
    struct kvt_nvme_batch *batch = batch_alloc(nvme, write);
    if (batch == NULL) {
        return KVT_ERR_NOMEM;
    }
    struct kvt_io_op *ops[KVT_NVME_BATCH_PAGES_MAX];
    kvt_lock_take(&nvme->lock);
    if (!batch_is_valid(nvme, write)) {
        kvt_lock_give(&nvme->lock);
        kvt_free(nvme->mem, batch, batch->block_bytes);
        return KVT_ERR_INVAL;
    }
    batch_ops_fill(nvme, batch);
    batch_enter(nvme, batch);
    /* The flush thread leaves a batch alone until its last operation ended, so it is still there
     * when the list of them is made. */
    uint32_t op_count = batch->op_count;
    for (uint32_t i = 0; i < op_count; i++) {
        ops[i] = &batch->ops[i].op;
    }
    kvt_lock_give(&nvme->lock);
    KVT_CRASH_POINT("before_data_write");
    kvt_io_submit(nvme->io, ops, op_count);
    return KVT_OK;
}

/* ---- drops ---- */

void kvt_nvme_drop(struct kvt_nvme *nvme, const struct kvt_place *places, uint32_t count)
{
    kvt_lock_take(&nvme->lock);
    for (uint32_t i = 0; i < count; i++) {
        const struct kvt_nvme_slot *slot = kvt_nvme_slot_of(nvme, places[i]);
        if (slot != NULL && slot->state == KVT_SLOT_HELD && !slot->left) {
            kvt_nvme_slot_kill(nvme, places[i].slot);
        }
    }
    kvt_cond_broadcast(&nvme->cond);
    kvt_lock_give(&nvme->lock);
}

kvt_status kvt_nvme_flush(struct kvt_nvme *nvme, uint64_t timeout_ns)
{
    kvt_status status = KVT_OK;
    uint64_t start_ns = kvt_now_ns(&kvt_clock_monotonic);
    kvt_lock_take(&nvme->lock);
    uint64_t batches = nvme->batches_submitted;
    uint64_t drops = nvme->drops_queued;
    nvme->flush_waiters++;
    kvt_cond_broadcast(&nvme->cond);
    while (nvme->batches_finished < batches || nvme->drops_done < drops) {
        uint64_t passed_ns = kvt_now_ns(&kvt_clock_monotonic) - start_ns;
        if (passed_ns >= timeout_ns || nvme->closing) {
            status = nvme->writing.bad ? KVT_ERR_IO : KVT_ERR_TIMEOUT;
            break;
        }
        (void)kvt_cond_wait(&nvme->cond, &nvme->lock, timeout_ns - passed_ns);
    }
    nvme->flush_waiters--;
    kvt_lock_give(&nvme->lock);
    return status;
}
