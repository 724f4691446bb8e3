/* Reads, the checksums of what came, and how long they take. */
#include "cache/tier/nvme_internal.h"

#include <string.h>

/* A read, from its submission to `released`. The io queue's thread alone changes it after that. */
struct read_op {
    struct kvt_io_op op;
    struct read_work *work;
    uint32_t first, count; /* pages */
};
struct read_work {
    struct kvt_nvme *nvme;
    struct kvt_nvme_read *read;
    size_t block_bytes;
    uint64_t *checksums; /* of each page, as the slot has it */
    uint32_t ops_left;
    bool told; /* done was called */
    bool corrupt, failed;
    struct read_op ops[];
};

/* ---- results ---- */

static void tell(struct read_work *work)
{
    struct kvt_nvme_read *read = work->read;
    kvt_status otherwise = read->late ? KVT_ERR_TIMEOUT : KVT_OK;
    otherwise = work->failed ? KVT_ERR_IO : otherwise;
    read->status = work->corrupt ? KVT_ERR_CORRUPT : otherwise;
    work->told = true;
    read->done(read);
}

/* Every operation ended. */
static void finish(struct read_work *work)
{
    struct kvt_nvme *nvme = work->nvme;
    struct kvt_nvme_read *read = work->read;
    if (!work->told) {
        tell(work);
    }
    kvt_lock_take(&nvme->lock);
    for (uint32_t i = 0; i < read->page_count; i++) {
        kvt_nvme_slot_unref(nvme, read->pages[i].place.slot);
    }
    kvt_cond_broadcast(&nvme->cond);
    kvt_lock_give(&nvme->lock);
    kvt_free(nvme->mem, work, work->block_bytes);
    read->released(read);
}

/* A slot whose bytes are not what was written is set aside. Requires: lock. */
static void page_is_corrupt(struct kvt_nvme *nvme, uint32_t name)
{
    struct kvt_nvme_slot *slot = kvt_nvme_slot_at(nvme, name);
    nvme->slots_bad += !slot->bad;
    slot->bad = true;
    nvme->checksum_failures++;
    nvme->checksum_unsaid++;
    kvt_cond_broadcast(&nvme->cond);
}

static void page_arrived(struct read_work *work, uint32_t i)
{
    struct kvt_nvme *nvme = work->nvme;
    struct kvt_nvme_read_page *page = &work->read->pages[i];
    bool good = kvt_nvme_checksum(page->buffer, page->bytes, page->seed) == work->checksums[i];
    kvt_lock_take(&nvme->lock);
    if (good) {
        nvme->read_pages++;
        nvme->read_bytes += page->bytes;
    } else {
        page_is_corrupt(nvme, page->place.slot);
    }
    kvt_lock_give(&nvme->lock);
    /* Who was told does not look again. */
    if (!work->told) {
        page->good = good;
        page->bad = !good;
        work->corrupt |= !good;
    }
}

/* Requires: lock. */
static void op_failed(struct kvt_nvme *nvme, const char *what, int error)
{
    if (++nvme->reads_failed >= KVT_NVME_READ_FAILURES_MAX) {
        kvt_nvme_read_failed(nvme, what, error);
    }
}

static void read_op_done(struct kvt_io_op *op)
{
    struct read_op *mine = op->user;
    struct read_work *work = mine->work;
    struct kvt_nvme *nvme = work->nvme;
    kvt_lock_take(&nvme->lock);
    if (op->status == KVT_OK && !work->read->late) {
        nvme->reads_failed = 0;
    } else if (op->status != KVT_OK && op->status != KVT_ERR_CANCELLED) {
        nvme->read_errors++;
        op_failed(nvme, "reads fail", op->error);
    }
    uint64_t end = 0;
    uint32_t arrived = 0;
    for (uint32_t i = 0; i < mine->count; i++) {
        end += kvt_nvme_slot_size(nvme, work->read->pages[mine->first + i].place.slot);
        arrived += end <= op->bytes_ok || op->status == KVT_OK;
    }
    kvt_lock_give(&nvme->lock);
    for (uint32_t i = 0; i < arrived; i++) {
        page_arrived(work, mine->first + i);
    }
    work->failed |= arrived < mine->count;
    if (--work->ops_left == 0) {
        finish(work);
    }
}

static void read_op_late(struct kvt_io_op *op)
{
    struct read_op *mine = op->user;
    struct read_work *work = mine->work;
    struct kvt_nvme *nvme = work->nvme;
    if (work->told) {
        return;
    }
    kvt_lock_take(&nvme->lock);
    nvme->reads_late++;
    op_failed(nvme, "reads do not come back in time", 0);
    kvt_lock_give(&nvme->lock);
    work->read->late = true;
    tell(work);
}

/* ---- starting ---- */

/* Requires: lock. */
static bool follows(const struct kvt_nvme *nvme, const struct kvt_nvme_read_page *pages, uint32_t i,
                    uint64_t op_bytes)
{
    const struct kvt_nvme_read_page *before = &pages[i - 1];
    uint64_t bytes = kvt_nvme_slot_size(nvme, before->place.slot);
    return kvt_store_of(before->place.slot) == kvt_store_of(pages[i].place.slot) &&
           kvt_nvme_slot_offset(nvme, before->place.slot) + bytes ==
               kvt_nvme_slot_offset(nvme, pages[i].place.slot) &&
           (char *)before->buffer + bytes == (char *)pages[i].buffer &&
           op_bytes + kvt_nvme_slot_size(nvme, pages[i].place.slot) <= KVT_NVME_MERGE_BYTES;
}

/* One operation for each run of adjacent slots. Requires: lock. */
static void ops_fill(struct kvt_nvme *nvme, struct read_work *work)
{
    const struct kvt_nvme_read *read = work->read;
    uint64_t late_ns = kvt_now_ns(&nvme->clock) + nvme->read_late_ns;
    struct read_op *op = NULL;
    for (uint32_t i = 0; i < read->page_count; i++) {
        const struct kvt_nvme_read_page *page = &read->pages[i];
        struct kvt_nvme_slot *slot = kvt_nvme_slot_of(nvme, page->place);
        uint64_t bytes = kvt_nvme_slot_size(nvme, page->place.slot);
        work->checksums[i] = slot->checksum;
        kvt_nvme_slot_ref(nvme, slot);
        if (op != NULL && follows(nvme, read->pages, i, op->op.bytes)) {
            op->op.bytes += bytes;
            op->count++;
            continue;
        }
        op = &work->ops[work->ops_left++];
        *op = (struct read_op){.op = {.kind = KVT_IO_READ,
                                      .file = nvme->drives[kvt_store_of(page->place.slot)].file,
                                      .buffer = page->buffer,
                                      .offset = kvt_nvme_slot_offset(nvme, page->place.slot),
                                      .bytes = bytes,
                                      .late_ns = late_ns,
                                      .done = read_op_done,
                                      .late = read_op_late,
                                      .user = op},
                               .work = work,
                               .first = i,
                               .count = 1};
    }
}

/* Requires: lock. */
static kvt_status read_check(struct kvt_nvme *nvme, const struct kvt_nvme_read *read)
{
    if (nvme->reading.bad || nvme->closing) {
        return KVT_ERR_IO;
    }
    for (uint32_t i = 0; i < read->page_count; i++) {
        const struct kvt_nvme_read_page *page = &read->pages[i];
        const struct kvt_nvme_slot *slot = kvt_nvme_slot_of(nvme, page->place);
        if (slot == NULL || slot->state != KVT_SLOT_HELD || slot->left ||
            kvt_nvme_slot_size(nvme, page->place.slot) != kvt_nvme_slot_bytes(page->bytes)) {
            return KVT_ERR_STALE;
        }
        if (slot->readers >= UINT16_MAX - KVT_NVME_BATCH_PAGES_MAX) {
            return KVT_ERR_NOMEM;
        }
    }
    return KVT_OK;
}

kvt_status kvt_nvme_read(struct kvt_nvme *nvme, struct kvt_nvme_read *read)
{
    if (read->page_count == 0 || read->page_count > KVT_NVME_BATCH_PAGES_MAX) {
        return KVT_ERR_INVAL;
    }
    size_t ops_bytes = read->page_count * sizeof(struct read_op);
    size_t bytes = sizeof(struct read_work) + ops_bytes + read->page_count * sizeof(uint64_t);
    struct read_work *work = kvt_calloc(nvme->mem, 1, bytes);
    if (work == NULL) {
        return KVT_ERR_NOMEM;
    }
    work->nvme = nvme;
    work->read = read;
    work->block_bytes = bytes;
    work->checksums = (uint64_t *)(work->ops + read->page_count);
    read->status = KVT_OK;
    read->late = false;
    for (uint32_t i = 0; i < read->page_count; i++) {
        read->pages[i].good = read->pages[i].bad = false;
    }
    struct kvt_io_op *ops[KVT_NVME_BATCH_PAGES_MAX];
    kvt_lock_take(&nvme->lock);
    kvt_status status = read_check(nvme, read);
    if (status != KVT_OK) {
        kvt_lock_give(&nvme->lock);
        kvt_free(nvme->mem, work, bytes);
        return status;
    }
    ops_fill(nvme, work);
    uint32_t op_count = work->ops_left;
    for (uint32_t i = 0; i < op_count; i++) {
        ops[i] = &work->ops[i].op;
    }
    kvt_lock_give(&nvme->lock);
    kvt_io_submit(nvme->io, ops, op_count);
    return KVT_OK;
}

/* ---- how long they take ---- */

#define NS_PER_S 1000000000.0
/* So much must have been read before it counts. */
#define BANDWIDTH_BYTES_MIN (UINT64_C(16) << 20)
#define BANDWIDTH_NEW_PART 0.25

void kvt_nvme_bandwidth_step(struct kvt_nvme *nvme, const struct kvt_io_stats *io)
{
    uint64_t bytes = io->read_bytes - nvme->measured_bytes;
    uint64_t busy_ns = io->read_busy_ns - nvme->measured_busy_ns;
    if (bytes < BANDWIDTH_BYTES_MIN || busy_ns == 0) {
        return;
    }
    double now = (double)bytes * NS_PER_S / (double)busy_ns;
    double before = (double)nvme->read_bytes_per_s;
    nvme->read_bytes_per_s =
        (uint64_t)(before > 0 ? before + (now - before) * BANDWIDTH_NEW_PART : now);
    nvme->measured_bytes = io->read_bytes;
    nvme->measured_busy_ns = io->read_busy_ns;
}

uint64_t kvt_nvme_read_estimate_ns(struct kvt_nvme *nvme, uint64_t bytes)
{
    struct kvt_io_stats io;
    kvt_io_stats(nvme->io, &io);
    kvt_lock_take(&nvme->lock);
    kvt_nvme_bandwidth_step(nvme, &io);
    uint64_t per_s =
        nvme->read_bytes_per_s > 0 ? nvme->read_bytes_per_s : KVT_NVME_READ_BYTES_PER_S_GUESS;
    kvt_lock_give(&nvme->lock);
    return (uint64_t)(((double)bytes + (double)io.queued_read_bytes) * NS_PER_S / (double)per_s);
}

/* The measurement at open: a few reads of what was written once, all at the same time. */
struct kvt_nvme_measure {
    struct kvt_nvme *nvme;
    void *block;
    size_t block_bytes;
    uint64_t start_ns, end_ns;
    uint64_t bytes; /* that came within the time */
    uint32_t ops_left;
    struct kvt_io_op ops[KVT_NVME_MEASURE_OPS];
};

static void measure_op_done(struct kvt_io_op *op)
{
    struct kvt_nvme_measure *measure = op->user;
    struct kvt_nvme *nvme = measure->nvme;
    kvt_lock_take(&nvme->lock);
    uint64_t now_ns = kvt_now_ns(&nvme->clock);
    if (op->status == KVT_OK && now_ns - measure->start_ns <= KVT_NVME_MEASURE_NS) {
        measure->bytes += op->bytes;
        measure->end_ns = now_ns;
    }
    measure->ops_left--;
    kvt_cond_broadcast(&nvme->cond);
    kvt_lock_give(&nvme->lock);
}

void kvt_nvme_measure_start(struct kvt_nvme *nvme)
{
    const struct kvt_nvme_drive *drive = &nvme->drives[0];
    uint64_t piece_bytes = KVT_NVME_ZERO_BYTES;
    uint64_t there_bytes = drive->store.header.prewritten_extents * drive->extent_bytes;
    uint64_t pieces = there_bytes / piece_bytes;
    uint32_t count = pieces < KVT_NVME_MEASURE_OPS ? (uint32_t)pieces : KVT_NVME_MEASURE_OPS;
    if (count == 0) {
        return; /* what was never written tells nothing */
    }
    struct kvt_nvme_measure *measure = kvt_calloc(nvme->mem, 1, sizeof(*measure));
    if (measure == NULL) {
        return; /* then it is learnt from the first reads */
    }
    measure->block_bytes = count * piece_bytes + KVT_NVME_ALIGN_BYTES;
    measure->block = kvt_alloc(nvme->mem, measure->block_bytes);
    if (measure->block == NULL) {
        kvt_free(nvme->mem, measure, sizeof(*measure));
        return;
    }
    uintptr_t base = ((uintptr_t)measure->block + KVT_NVME_ALIGN_BYTES - 1) / KVT_NVME_ALIGN_BYTES *
                     KVT_NVME_ALIGN_BYTES;
    char *at = (char *)measure->block + (base - (uintptr_t)measure->block);
    struct kvt_io_op *ops[KVT_NVME_MEASURE_OPS];
    measure->nvme = nvme;
    measure->start_ns = kvt_now_ns(&nvme->clock);
    measure->ops_left = count;
    for (uint32_t i = 0; i < count; i++) {
        measure->ops[i] = (struct kvt_io_op){.kind = KVT_IO_READ,
                                             .file = drive->file,
                                             .buffer = at + i * piece_bytes,
                                             .offset = i * piece_bytes,
                                             .bytes = piece_bytes,
                                             .late_ns = UINT64_MAX,
                                             .done = measure_op_done,
                                             .user = measure};
        ops[i] = &measure->ops[i];
    }
    nvme->measure = measure;
    kvt_io_submit(nvme->io, ops, count);
}

void kvt_nvme_measure_step(struct kvt_nvme *nvme)
{
    struct kvt_nvme_measure *measure = nvme->measure;
    if (measure == NULL || measure->ops_left > 0) {
        return;
    }
    if (measure->bytes > 0 && measure->end_ns > measure->start_ns && nvme->read_bytes_per_s == 0) {
        nvme->read_bytes_per_s = (uint64_t)((double)measure->bytes * NS_PER_S /
                                            (double)(measure->end_ns - measure->start_ns));
    }
    nvme->measure = NULL;
    kvt_free(nvme->mem, measure->block, measure->block_bytes);
    kvt_free(nvme->mem, measure, sizeof(*measure));
}
