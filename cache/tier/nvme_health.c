/*
 * The state of the tier: what does not work is tried again, with pauses that grow; what changes is
 * said once. And pre-writing, which is as little urgent.
 */
#include "cache/base/crash_point.h"
#include "cache/tier/nvme_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* ---- what failed ---- */

static const char *remedy_of(int error)
{
    switch (error) {
    case ENOSPC:
    case EDQUOT:
        return "the file system is full: make room on it";
    case EROFS:
        return "the file system is read-only now: see the kernel's log, check the drive, remount";
    case ENODATA:
        return "the data file is shorter than it was: something cut it; make the store anew";
    default:
        return "see the kernel's log, the drive may be failing";
    }
}

/* Requires: lock. */
static void health_fail(struct kvt_nvme *nvme, struct kvt_nvme_health *health, const char *what,
                        int error, const char *remedy)
{
    if (health->bad) {
        return;
    }
    uint64_t now_ns = kvt_now_ns(&nvme->clock);
    uint64_t backoff_ns = KVT_NVME_BACKOFF_NS_MIN;
    if (health->backoff_ns > 0 && now_ns - health->cured_ns < KVT_NVME_BACKOFF_NS_MAX) {
        /* It was cured only just, and was not: the pauses go on growing, or it would flap. */
        backoff_ns = 2 * health->backoff_ns;
        backoff_ns = backoff_ns < KVT_NVME_BACKOFF_NS_MAX ? backoff_ns : KVT_NVME_BACKOFF_NS_MAX;
    }
    health->bad = true;
    health->backoff_ns = backoff_ns;
    health->probe_at_ns = now_ns + backoff_ns;
    (void)snprintf(health->why, sizeof(health->why), "%s%s%s: %s", what, error != 0 ? ": " : "",
                   error != 0 ? strerror(error) : "", remedy);
    health->say_bad = true;
    health->say_good = false;
    kvt_cond_broadcast(&nvme->cond);
}

void kvt_nvme_write_failed(struct kvt_nvme *nvme, bool by_catalog, const char *what, int error)
{
    if (!nvme->writing.bad) {
        nvme->writing.by_catalog = by_catalog;
    } else if (!by_catalog) {
        /* The catalog's answer alone does not cure it any more. */
        nvme->writing.by_catalog = false;
    }
    health_fail(nvme, &nvme->writing, what, error,
                by_catalog ? "it is started again; if that goes on, see kvtier check"
                           : remedy_of(error));
}

void kvt_nvme_read_failed(struct kvt_nvme *nvme, const char *what, int error)
{
    health_fail(nvme, &nvme->reading, what, error, remedy_of(error));
}

/* Requires: lock. */
static void health_cure(struct kvt_nvme *nvme, struct kvt_nvme_health *health)
{
    health->bad = false;
    health->cured_ns = kvt_now_ns(&nvme->clock);
    health->say_good = true;
    for (uint32_t i = 0; i < nvme->drive_count; i++) {
        nvme->drives[i].zero_failed = false;
    }
    kvt_cond_broadcast(&nvme->cond);
}

/* Requires: lock. */
static void health_postpone(struct kvt_nvme *nvme, struct kvt_nvme_health *health)
{
    uint64_t twice_ns = 2 * health->backoff_ns;
    health->backoff_ns = twice_ns < KVT_NVME_BACKOFF_NS_MAX ? twice_ns : KVT_NVME_BACKOFF_NS_MAX;
    health->probe_at_ns = kvt_now_ns(&nvme->clock) + health->backoff_ns;
}

void kvt_nvme_catalog_answered(struct kvt_nvme *nvme)
{
    if (nvme->writing.bad && nvme->writing.by_catalog) {
        health_cure(nvme, &nvme->writing);
    }
}

/* ---- saying it ---- */

struct sayings {
    bool write_bad, write_good, read_bad, read_good, catalog_full, too_large;
    char write_why[KVT_NVME_WHY_BYTES], read_why[KVT_NVME_WHY_BYTES];
    uint64_t too_large_bytes, checksums;
};

bool kvt_nvme_checksum_due(const struct kvt_nvme *nvme)
{
    return nvme->checksum_said_ns == 0 ||
           kvt_now_ns(&nvme->clock) - nvme->checksum_said_ns >= KVT_NVME_WARN_NS;
}

/* Requires: lock. */
static struct sayings sayings_take(struct kvt_nvme *nvme)
{
    struct sayings say = {.write_bad = nvme->writing.say_bad,
                          .write_good = nvme->writing.say_good,
                          .read_bad = nvme->reading.say_bad,
                          .read_good = nvme->reading.say_good,
                          .catalog_full = nvme->say_catalog_full,
                          .too_large = nvme->say_too_large,
                          .too_large_bytes = nvme->too_large_bytes};
    memcpy(say.write_why, nvme->writing.why, sizeof(say.write_why));
    memcpy(say.read_why, nvme->reading.why, sizeof(say.read_why));
    nvme->writing.say_bad = nvme->writing.say_good = false;
    nvme->reading.say_bad = nvme->reading.say_good = false;
    nvme->say_catalog_full = false;
    nvme->said_too_large |= nvme->say_too_large;
    nvme->say_too_large = false;
    if (nvme->checksum_unsaid > 0 && kvt_nvme_checksum_due(nvme)) {
        say.checksums = nvme->checksum_unsaid;
        nvme->checksum_unsaid = 0;
        nvme->checksum_said_ns = kvt_now_ns(&nvme->clock);
    }
    return say;
}

void kvt_nvme_say(struct kvt_nvme *nvme)
{
    kvt_lock_take(&nvme->lock);
    struct sayings say = sayings_take(nvme);
    kvt_lock_give(&nvme->lock);
    if (say.write_bad) {
        kvt_log(
            nvme->log, KVT_LOG_WARNING,
            "nvme: nothing is written for now, reads go on: %s. Tried again after 1, 2, 4 .. 60 s",
            say.write_why);
    }
    if (say.read_bad) {
        kvt_log(nvme->log, KVT_LOG_WARNING,
                "nvme: off for now, its pages are misses: %s. Tried again after 1, 2, 4 .. 60 s",
                say.read_why);
    }
    if (say.write_good) {
        kvt_log(nvme->log, KVT_LOG_INFO, "nvme: writing works again");
    }
    if (say.read_good) {
        kvt_log(nvme->log, KVT_LOG_INFO, "nvme: reading works again");
    }
    if (say.catalog_full) {
        kvt_log(
            nvme->log, KVT_LOG_WARNING,
            "nvme: the catalog is full before the slots are: pages are dropped to make room; give "
            "the first store more bytes, or use larger pages");
    }
    if (say.too_large) {
        kvt_log(
            nvme->log, KVT_LOG_WARNING,
            "nvme: pages of %llu bytes are not kept: the largest extent has %llu bytes; give the "
            "stores more bytes, or use fewer tokens a page",
            (unsigned long long)say.too_large_bytes, (unsigned long long)nvme->extent_bytes_max);
    }
    if (say.checksums > 0) {
        kvt_log(
            nvme->log, KVT_LOG_WARNING,
            "nvme: the bytes of %llu pages failed their check: they are misses, their slots are "
            "set aside; see kvtier check, the drive may be failing",
            (unsigned long long)say.checksums);
    }
}

/* ---- probes ---- */

static void probe_op_done(struct kvt_io_op *op)
{
    struct kvt_nvme *nvme = op->user;
    kvt_lock_take(&nvme->lock);
    nvme->probe_good &= op->status == KVT_OK;
    nvme->probes_left--;
    kvt_cond_broadcast(&nvme->cond);
    kvt_lock_give(&nvme->lock);
}

/* The same operation on the spare block of each store. Requires: lock. */
static void probe_start(struct kvt_nvme *nvme, enum kvt_nvme_probe probe)
{
    nvme->probe = probe;
    nvme->probe_good = true;
    nvme->probes_left = nvme->drive_count;
    for (uint32_t i = 0; i < nvme->drive_count; i++) {
        struct kvt_nvme_drive *drive = &nvme->drives[i];
        struct kvt_io_op *op = &drive->probe_op;
        *op = (struct kvt_io_op){.kind = KVT_IO_FLUSH,
                                 .file = drive->file,
                                 .late_ns = UINT64_MAX,
                                 .done = probe_op_done,
                                 .user = nvme};
        if (probe != KVT_PROBE_FLUSH) {
            op->kind = probe == KVT_PROBE_WRITE ? KVT_IO_WRITE : KVT_IO_READ;
            op->buffer = probe == KVT_PROBE_WRITE
                             ? nvme->zeros
                             : (char *)nvme->scratch + (size_t)i * KVT_NVME_ALIGN_BYTES;
            op->offset = drive->extent_count * drive->extent_bytes;
            op->bytes = KVT_STORE_SPARE_BYTES;
        }
        kvt_io_submit(nvme->io, &op, 1);
    }
}

/* One that ended. Requires: lock. */
static bool probe_next(struct kvt_nvme *nvme)
{
    switch (nvme->probe) {
    case KVT_PROBE_READ:
        nvme->probe = KVT_PROBE_NONE;
        if (nvme->probe_good) {
            nvme->reads_failed = 0;
            health_cure(nvme, &nvme->reading);
        } else {
            health_postpone(nvme, &nvme->reading);
        }
        return false;
    case KVT_PROBE_WRITE:
        if (nvme->probe_good) {
            probe_start(nvme, KVT_PROBE_FLUSH);
            return false;
        }
        break;
    case KVT_PROBE_FLUSH:
        if (nvme->probe_good) {
            return true; /* the catalog is the last to be asked */
        }
        break;
    case KVT_PROBE_NONE:
        return false;
    }
    kvt_nvme_probe_end(nvme, false);
    return false;
}

void kvt_nvme_probe_end(struct kvt_nvme *nvme, bool good)
{
    nvme->probe = KVT_PROBE_NONE;
    if (good) {
        health_cure(nvme, &nvme->writing);
    } else {
        health_postpone(nvme, &nvme->writing);
    }
}

bool kvt_nvme_probe_step(struct kvt_nvme *nvme)
{
    if (nvme->closing || nvme->probes_left > 0) {
        return false;
    }
    if (nvme->probe != KVT_PROBE_NONE) {
        return probe_next(nvme);
    }
    uint64_t now_ns = kvt_now_ns(&nvme->clock);
    if (nvme->reading.bad && now_ns >= nvme->reading.probe_at_ns) {
        probe_start(nvme, KVT_PROBE_READ);
    } else if (nvme->writing.bad && !nvme->writing.by_catalog &&
               now_ns >= nvme->writing.probe_at_ns) {
        probe_start(nvme, KVT_PROBE_WRITE);
    }
    return false;
}

/* ---- pre-writing ---- */

/* Requires: lock. */
static struct kvt_nvme_drive *drive_of_zero_op(struct kvt_nvme *nvme, const struct kvt_io_op *op)
{
    uint32_t i = 0;
    while (op != &nvme->drives[i].zero_op) {
        i++;
    }
    return &nvme->drives[i];
}

static void zero_op_done(struct kvt_io_op *op);

/* The next piece of the extent, from `done` bytes on; behind the last one a flush. Requires:
 * lock. */
static void zero_submit(struct kvt_nvme *nvme, struct kvt_nvme_drive *drive, uint64_t done)
{
    uint64_t left = drive->extent_bytes - done;
    struct kvt_io_op *op = &drive->zero_op;
    *op =
        (struct kvt_io_op){.kind = left > 0 ? KVT_IO_WRITE : KVT_IO_FLUSH,
                           .file = drive->file,
                           .buffer = left > 0 ? nvme->zeros : NULL,
                           .offset = left > 0 ? drive->zero_extent * drive->extent_bytes + done : 0,
                           .bytes = left < KVT_NVME_ZERO_BYTES ? left : KVT_NVME_ZERO_BYTES,
                           .late_ns = UINT64_MAX,
                           .done = zero_op_done,
                           .user = nvme};
    KVT_CRASH_POINT("prewrite");
    kvt_io_submit(nvme->io, &op, 1);
}

static void zero_op_done(struct kvt_io_op *op)
{
    struct kvt_nvme *nvme = op->user;
    kvt_lock_take(&nvme->lock);
    struct kvt_nvme_drive *drive = drive_of_zero_op(nvme, op);
    if (op->status == KVT_OK && op->kind == KVT_IO_WRITE && !nvme->closing) {
        zero_submit(nvme, drive, op->offset + op->bytes - drive->zero_extent * drive->extent_bytes);
    } else {
        bool good = op->status == KVT_OK && op->kind == KVT_IO_FLUSH;
        /* It is a help, not a need: a failure is left to the writes that matter. */
        drive->zero_failed = op->status != KVT_OK;
        kvt_nvme_extent_prepared(drive, drive->zero_extent, good);
        drive->zero_extent = KVT_NVME_NONE;
        drive->prepared_since += good;
        kvt_cond_broadcast(&nvme->cond);
    }
    kvt_lock_give(&nvme->lock);
}

void kvt_nvme_prepare_step(struct kvt_nvme *nvme)
{
    if (!nvme->loaded || nvme->closing || nvme->writing.bad) {
        return;
    }
    for (uint32_t i = 0; i < nvme->drive_count; i++) {
        struct kvt_nvme_drive *drive = &nvme->drives[i];
        if (drive->zero_extent != KVT_NVME_NONE || drive->zero_failed || drive->free_count[1] > 0) {
            continue;
        }
        uint32_t extent = kvt_nvme_extent_prepare(drive);
        if (extent != KVT_NVME_NONE) {
            drive->zero_extent = extent;
            zero_submit(nvme, drive, 0);
        }
    }
}

void kvt_nvme_headers_write(struct kvt_nvme *nvme, bool all)
{
    for (uint32_t i = 0; i < nvme->drive_count; i++) {
        struct kvt_nvme_drive *drive = &nvme->drives[i];
        kvt_lock_take(&nvme->lock);
        bool due = drive->prepared_since >= (all ? 1 : KVT_NVME_HEADER_EXTENTS);
        uint32_t prefix = 0;
        if (due) {
            drive->prepared_since = 0;
            while (prefix < drive->extent_count && drive->extents[prefix].prepared) {
                prefix++;
            }
        }
        kvt_lock_give(&nvme->lock);
        if (due && drive->store.header.prewritten_extents != prefix) {
            struct kvt_store_header header = drive->store.header;
            header.prewritten_extents = prefix;
            char why[KVT_LOG_LINE_BYTES_MAX];
            /* A hint: where it cannot be written, extents are written once more. */
            if (kvt_store_header_write(&drive->store, &header, why, sizeof(why)) != KVT_OK) {
                kvt_log(nvme->log, KVT_LOG_WARNING, "%s", why);
            }
        }
    }
}
