/* Opening and closing the NVMe tier, and what is known of it. */
#include "cache/tier/nvme_internal.h"

#include <stdio.h>
#include <string.h>

void kvt_nvme_buffer_add(struct kvt_nvme *nvme, void *base, uint64_t bytes)
{
    kvt_io_buffer_add(nvme->io, base, bytes);
}

void kvt_nvme_buffer_remove(struct kvt_nvme *nvme, void *base)
{
    kvt_io_buffer_remove(nvme->io, base);
}

struct kvt_io_faults *kvt_nvme_faults(struct kvt_nvme *nvme) { return kvt_io_faults(nvme->io); }

bool kvt_nvme_readable(struct kvt_nvme *nvme)
{
    kvt_lock_take(&nvme->lock);
    bool readable = !nvme->reading.bad && !nvme->closing;
    kvt_lock_give(&nvme->lock);
    return readable;
}

bool kvt_nvme_takes_writes(const struct kvt_nvme *nvme)
{
    return nvme->loaded && !nvme->closing && !nvme->writing.bad && !nvme->reading.bad;
}

bool kvt_nvme_writable(struct kvt_nvme *nvme)
{
    kvt_lock_take(&nvme->lock);
    bool writable = kvt_nvme_takes_writes(nvme);
    kvt_lock_give(&nvme->lock);
    return writable;
}

/* Requires: lock. */
static void stats_fill(const struct kvt_nvme *nvme, struct kvt_nvme_stats *stats)
{
    stats->state = nvme->writing.bad ? KVT_NVME_READ_ONLY : KVT_NVME_OK;
    stats->state = nvme->reading.bad ? KVT_NVME_OFF : stats->state;
    if (stats->state != KVT_NVME_OK) {
        const struct kvt_nvme_health *health = nvme->reading.bad ? &nvme->reading : &nvme->writing;
        memcpy(stats->state_why, health->why, sizeof(health->why));
    }
    stats->bytes_budget = nvme->bytes_budget;
    stats->bytes_mapped = nvme->extents_bytes + stats->catalog.file_bytes;
    stats->bytes_used = nvme->bytes_used;
    stats->pages = nvme->pages;
    stats->pages_left = nvme->pages_left;
    stats->slots_free = nvme->slots_free;
    stats->slots_bad = nvme->slots_bad;
    stats->slots_dying = nvme->slots_dying;
    stats->slots_reading = nvme->slots_reading;
    stats->written_pages = nvme->written_pages;
    stats->written_bytes = nvme->written_bytes;
    stats->read_pages = nvme->read_pages;
    stats->read_bytes = nvme->read_bytes;
    stats->read_errors = nvme->read_errors;
    stats->write_errors = nvme->write_errors;
    stats->checksum_failures = nvme->checksum_failures;
    stats->reads_late = nvme->reads_late;
    stats->budget_refusals = nvme->budget_refusals;
    stats->orphans_dropped = nvme->orphans_dropped;
    stats->damaged_records = nvme->damaged_records;
    stats->read_bytes_per_s = nvme->read_bytes_per_s;
    stats->direct = nvme->direct;
}

void kvt_nvme_stats(struct kvt_nvme *nvme, struct kvt_nvme_stats *out_stats)
{
    *out_stats = (struct kvt_nvme_stats){.state = KVT_NVME_OK};
    kvt_io_stats(nvme->io, &out_stats->io);
    kvt_catalog_stats(nvme->catalog, &out_stats->catalog);
    kvt_lock_take(&nvme->lock);
    kvt_nvme_bandwidth_step(nvme, &out_stats->io);
    stats_fill(nvme, out_stats);
    kvt_lock_give(&nvme->lock);
}

void kvt_nvme_close(struct kvt_nvme *nvme, uint64_t timeout_ns)
{
    if (nvme == NULL) {
        return;
    }
    if (nvme->started) {
        uint64_t now_ns = kvt_now_ns(&kvt_clock_monotonic);
        kvt_lock_take(&nvme->lock);
        nvme->closing = true;
        nvme->close_ns = timeout_ns < UINT64_MAX - now_ns ? now_ns + timeout_ns : UINT64_MAX;
        kvt_cond_broadcast(&nvme->cond);
        kvt_lock_give(&nvme->lock);
        kvt_thread_join(&nvme->flush_thread);
    }
    /* Every operation ends here, however long the kernel takes; then nobody else is about. */
    kvt_io_close(nvme->io);
    kvt_nvme_batches_cancel(nvme);
    kvt_lock_take(&nvme->lock);
    kvt_nvme_measure_step(nvme);
    kvt_lock_give(&nvme->lock);
    kvt_catalog_close(nvme->catalog);
    if (nvme->started) {
        kvt_nvme_headers_write(nvme, true);
    }
    for (uint32_t i = 0; i < nvme->drive_count; i++) {
        kvt_nvme_drive_fini(nvme, &nvme->drives[i]);
        kvt_store_close(&nvme->drives[i].store, nvme->mem);
    }
    const struct kvt_memory *mem = nvme->mem;
    kvt_free(mem, nvme->strays, nvme->stray_capacity * sizeof(*nvme->strays));
    kvt_free(mem, nvme->commit_pages, KVT_CATALOG_BATCH_MAX * sizeof(*nvme->commit_pages));
    kvt_free(mem, nvme->commit_namespaces,
             KVT_CATALOG_BATCH_MAX * sizeof(*nvme->commit_namespaces));
    kvt_free(mem, nvme->commit_deletes, KVT_CATALOG_BATCH_MAX * sizeof(*nvme->commit_deletes));
    kvt_free(mem, nvme->commit_slots, KVT_CATALOG_BATCH_MAX * sizeof(*nvme->commit_slots));
    kvt_free(mem, nvme->blocks, nvme->blocks_bytes);
    kvt_cond_fini(&nvme->cond);
    kvt_lock_fini(&nvme->lock);
    kvt_free(mem, nvme, sizeof(*nvme));
}
