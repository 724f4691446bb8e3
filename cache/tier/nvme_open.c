/*
 * Opening: the stores are locked and looked at, the catalog is opened, the two are held against
 * each other, and only when they belong together is anything changed.
 *
 * A new store becomes one of the set in this order: its data file gets its size, its header is
 * written and names the catalog, the catalog's list gets it. What is left behind by a crash in
 * between is taken up again by the next open.
 */
#include "cache/tier/nvme_internal.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define CATALOG_BYTES_MIN (UINT64_C(1) << 20)
#define EXTENTS_WANTED 8u /* a small store still serves several sizes */
#define PATH_BYTES_MAX 4096u
#define CATALOG_BUSY_NS UINT64_C(10000000000)
#define CATALOG_RETRY_NS 20000000

struct opening {
    struct kvt_nvme *nvme;
    const struct kvt_nvme_config *config;
    struct kvt_catalog_head head;
    uint64_t catalog_bytes; /* its maximum */
    uint64_t data_bytes[KVT_NVME_STORES_MAX];
    bool head_changed;
    char *why;
    size_t why_bytes;
};

#define SAY(opening, ...) ((void)snprintf((opening)->why, (opening)->why_bytes, __VA_ARGS__))

/* ---- arguments ---- */

static kvt_status config_check(const struct opening *o)
{
    const struct kvt_nvme_config *config = o->config;
    if (config->store_count == 0 || config->store_count > KVT_NVME_STORES_MAX ||
        config->page_tokens == 0) {
        SAY(o, "nvme: %u stores and %u tokens a page: 1 to %u stores, at least 1 token",
            config->store_count, config->page_tokens, KVT_NVME_STORES_MAX);
        return KVT_ERR_INVAL;
    }
    for (uint32_t i = 0; i < config->store_count; i++) {
        const struct kvt_nvme_store *store = &config->stores[i];
        if (store->folder == NULL || store->folder[0] == '\0' ||
            strlen(store->folder) >= PATH_BYTES_MAX / 2) {
            SAY(o, "nvme: store %u has no folder, or one whose name is too long", i + 1);
            return KVT_ERR_INVAL;
        }
        if (store->bytes < KVT_NVME_STORE_BYTES_MIN || store->bytes > (uint64_t)INT64_MAX) {
            SAY(o, "nvme store '%s': %llu bytes are too few, or too many: give at least %llu",
                store->folder, (unsigned long long)store->bytes,
                (unsigned long long)KVT_NVME_STORE_BYTES_MIN);
            return KVT_ERR_INVAL;
        }
        for (uint32_t k = 0; k < i; k++) {
            if (strcmp(config->stores[k].folder, store->folder) == 0) {
                SAY(o, "nvme store '%s': given twice", store->folder);
                return KVT_ERR_INVAL;
            }
        }
    }
    return KVT_OK;
}

static kvt_status no_memory(const struct opening *o)
{
    SAY(o, "nvme: no memory to open the stores");
    return KVT_ERR_NOMEM;
}

static kvt_status memory_take(struct opening *o)
{
    struct kvt_nvme *nvme = o->nvme;
    const struct kvt_memory *mem = nvme->mem;
    nvme->commit_pages = kvt_calloc(mem, KVT_CATALOG_BATCH_MAX, sizeof(*nvme->commit_pages));
    nvme->commit_namespaces =
        kvt_calloc(mem, KVT_CATALOG_BATCH_MAX, sizeof(*nvme->commit_namespaces));
    nvme->commit_deletes = kvt_calloc(mem, KVT_CATALOG_BATCH_MAX, sizeof(*nvme->commit_deletes));
    nvme->commit_slots = kvt_calloc(mem, KVT_CATALOG_BATCH_MAX, sizeof(*nvme->commit_slots));
    size_t scratch_bytes = (size_t)KVT_NVME_STORES_MAX * KVT_NVME_ALIGN_BYTES;
    nvme->blocks_bytes = KVT_NVME_ZERO_BYTES + scratch_bytes + KVT_NVME_ALIGN_BYTES;
    nvme->blocks = kvt_calloc(mem, 1, nvme->blocks_bytes);
    if (nvme->commit_pages == NULL || nvme->commit_namespaces == NULL ||
        nvme->commit_deletes == NULL || nvme->commit_slots == NULL || nvme->blocks == NULL) {
        return no_memory(o);
    }
    size_t past = (uintptr_t)nvme->blocks % KVT_NVME_ALIGN_BYTES;
    nvme->zeros = (char *)nvme->blocks + (past > 0 ? KVT_NVME_ALIGN_BYTES - past : 0);
    nvme->scratch = (char *)nvme->zeros + KVT_NVME_ZERO_BYTES;
    return KVT_OK;
}

/* ---- the stores ---- */

static kvt_status stores_lock(struct opening *o)
{
    struct kvt_nvme *nvme = o->nvme;
    for (uint32_t i = 0; i < o->config->store_count; i++) {
        kvt_status status = kvt_store_open(&nvme->drives[i].store, nvme->mem,
                                           o->config->stores[i].folder, o->why, o->why_bytes);
        if (status != KVT_OK) {
            return status;
        }
        nvme->drive_count = i + 1;
    }
    for (uint32_t i = 0; i < nvme->drive_count; i++) {
        const struct kvt_store *store = &nvme->drives[i].store;
        if (store->has_header && store->header.index != i) {
            SAY(o,
                "nvme store '%s': it is store %u of its set, but was given as store %u: give the "
                "folders in the order in which they were made",
                store->folder, store->header.index + 1, i + 1);
            return KVT_ERR_INVAL;
        }
        if (store->has_header && store->header.page_tokens != o->config->page_tokens) {
            SAY(o,
                "nvme store '%s': its pages have %u tokens, the configuration says %u: use the "
                "same, "
                "or name a new folder",
                store->folder, store->header.page_tokens, o->config->page_tokens);
            return KVT_ERR_INVAL;
        }
    }
    return KVT_OK;
}

static uint64_t extent_choose(uint64_t room_bytes)
{
    uint64_t bytes = room_bytes / EXTENTS_WANTED / KVT_NVME_ALIGN_BYTES * KVT_NVME_ALIGN_BYTES;
    bytes = bytes < KVT_NVME_EXTENT_BYTES ? bytes : KVT_NVME_EXTENT_BYTES;
    while (room_bytes / bytes > KVT_STORE_EXTENTS_MAX) {
        bytes *= 2;
    }
    return bytes;
}

/* How the budget of a store is divided, and whether the drive has room for it. */
static kvt_status store_size(struct opening *o, uint32_t i)
{
    struct kvt_nvme_drive *drive = &o->nvme->drives[i];
    struct kvt_store *store = &drive->store;
    uint64_t bytes = o->config->stores[i].bytes;
    uint64_t beside_bytes = 0; /* what the catalog will take and has not yet */
    uint64_t others_bytes = KVT_STORE_OVERHEAD_BYTES;
    if (i == 0) {
        uint64_t part_bytes = bytes / KVT_NVME_CATALOG_DIVISOR;
        uint64_t there_bytes = kvt_store_catalog_bytes(store);
        part_bytes = part_bytes > CATALOG_BYTES_MIN ? part_bytes : CATALOG_BYTES_MIN;
        /* A file that is larger by now stays so: it is the slots that give way. */
        o->catalog_bytes = part_bytes > there_bytes ? part_bytes : there_bytes;
        beside_bytes = o->catalog_bytes - there_bytes;
        others_bytes += o->catalog_bytes;
    }
    uint64_t room_bytes = bytes > others_bytes ? bytes - others_bytes : 0;
    if (store->has_header) {
        drive->extent_bytes = store->header.extent_bytes;
    } else if (room_bytes / KVT_NVME_ALIGN_BYTES >= EXTENTS_WANTED) {
        drive->extent_bytes = extent_choose(room_bytes);
    }
    uint64_t extents = drive->extent_bytes > 0 ? room_bytes / drive->extent_bytes : 0;
    if (extents == 0) {
        SAY(o,
            "nvme store '%s': %llu bytes are too few: catalog and headers take %llu, an extent "
            "%llu: "
            "give more, or name a new folder",
            store->folder, (unsigned long long)bytes, (unsigned long long)others_bytes,
            (unsigned long long)drive->extent_bytes);
        return KVT_ERR_INVAL;
    }
    if (extents > KVT_STORE_EXTENTS_MAX) {
        kvt_log(
            o->nvme->log, KVT_LOG_WARNING,
            "nvme store '%s': it was made with extents of %llu bytes, so only %llu bytes of its "
            "budget can be used; name a new folder to use all",
            store->folder, (unsigned long long)drive->extent_bytes,
            (unsigned long long)(KVT_STORE_EXTENTS_MAX * drive->extent_bytes));
        extents = KVT_STORE_EXTENTS_MAX;
    }
    drive->extent_count = (uint32_t)extents;
    o->data_bytes[i] = extents * drive->extent_bytes;
    return kvt_store_room_check(store, o->data_bytes[i], beside_bytes, o->why, o->why_bytes);
}

/* ---- the catalog, and whether the stores are its own ---- */

static kvt_status catalog_open(struct opening *o)
{
    const struct kvt_nvme *nvme = o->nvme;
    char folder[PATH_BYTES_MAX];
    (void)snprintf(folder, sizeof(folder), "%s/" KVT_STORE_CATALOG_FOLDER,
                   nvme->drives[0].store.folder);
    bool create = true;
    for (uint32_t i = 0; i < nvme->drive_count; i++) {
        /* A store that was made speaks of a catalog that was there. */
        create &= !nvme->drives[i].store.has_header;
    }
    struct kvt_catalog_config config = {.mem = nvme->mem,
                                        .log = nvme->log,
                                        .folder = folder,
                                        .bytes_max = o->catalog_bytes,
                                        .program = o->config->catalog_program,
                                        .page_tokens = o->config->page_tokens,
                                        .create = create};
    uint64_t until_ns = kvt_now_ns(&kvt_clock_monotonic) + CATALOG_BUSY_NS;
    kvt_status status;
    for (;;) {
        status = kvt_catalog_open(&config, KVT_NVME_CATALOG_OPEN_NS, &o->nvme->catalog, o->why,
                                  o->why_bytes);
        /* The stores are locked, so this is the process of an owner that was killed: it ends when
         * its last commit has. */
        if (status != KVT_ERR_BUSY || kvt_now_ns(&kvt_clock_monotonic) >= until_ns) {
            break;
        }
        const struct timespec pause = {0, CATALOG_RETRY_NS};
        (void)nanosleep(&pause, NULL);
    }
    if (status == KVT_OK) {
        kvt_catalog_head(nvme->catalog, &o->head);
    }
    return status;
}

static bool id_is(const unsigned char *a, const unsigned char *b)
{
    return memcmp(a, b, KVT_CATALOG_ID_BYTES) == 0;
}

static kvt_status store_bind(struct opening *o, uint32_t i)
{
    const struct kvt_store *store = &o->nvme->drives[i].store;
    if (store->has_header && !id_is(store->header.catalog_id, o->head.id)) {
        SAY(o,
            "nvme store '%s': it belongs to another set of stores than '%s': give the folders of "
            "one "
            "set, or new ones",
            store->folder, o->nvme->drives[0].store.folder);
        return KVT_ERR_CORRUPT;
    }
    if (i >= o->head.store_count) {
        return KVT_OK; /* a new one, or one that was being added */
    }
    if (!store->has_header) {
        SAY(o,
            "nvme store '%s': store %u of the set should be here, but the folder has none: mount "
            "its "
            "drive; to do without it, begin with new folders",
            store->folder, i + 1);
        return KVT_ERR_CORRUPT;
    }
    if (!id_is(store->header.id, o->head.stores[i].id)) {
        SAY(o,
            "nvme store '%s': it is not the store %u that the catalog knows: give the right "
            "folder, or "
            "begin with new ones",
            store->folder, i + 1);
        return KVT_ERR_CORRUPT;
    }
    return KVT_OK;
}

static kvt_status stores_bind(struct opening *o)
{
    if (o->head.store_count > KVT_NVME_STORES_MAX) {
        SAY(o, "nvme store '%s': the catalog's list of stores is damaged",
            o->nvme->drives[0].store.folder);
        return KVT_ERR_CORRUPT;
    }
    if (o->nvme->drive_count < o->head.store_count) {
        SAY(o,
            "nvme store '%s': its set has %u stores, %u were given; store %u is missing: pages lie "
            "on "
            "it; give all folders, or begin with new ones",
            o->nvme->drives[0].store.folder, o->head.store_count, o->nvme->drive_count,
            o->nvme->drive_count + 1);
        return KVT_ERR_INVAL;
    }
    for (uint32_t i = 0; i < o->nvme->drive_count; i++) {
        kvt_status status = store_bind(o, i);
        if (status != KVT_OK) {
            return status;
        }
    }
    return KVT_OK;
}

/* ---- making it so ---- */

static kvt_status store_data_open(struct opening *o, uint32_t i)
{
    return kvt_store_data_open(&o->nvme->drives[i].store, o->nvme->log, o->data_bytes[i],
                               o->config->buffered, o->why, o->why_bytes);
}

static kvt_status store_make(struct opening *o, uint32_t i)
{
    struct kvt_nvme_drive *drive = &o->nvme->drives[i];
    struct kvt_store *store = &drive->store;
    /* A header never speaks of more than there is: it is the first to hear of less. */
    bool shrinks = store->has_header && o->data_bytes[i] < store->header.data_bytes;
    kvt_status status = shrinks ? KVT_OK : store_data_open(o, i);
    if (status != KVT_OK) {
        return status;
    }
    struct kvt_store_header header = store->header;
    if (!store->has_header) {
        memcpy(header.catalog_id, o->head.id, sizeof(header.catalog_id));
        header.index = i;
        header.page_tokens = o->config->page_tokens;
        header.extent_bytes = drive->extent_bytes;
        if (kvt_store_random(header.id, sizeof(header.id)) != KVT_OK) {
            SAY(o, "nvme store '%s': the system gives no random numbers", store->folder);
            return KVT_ERR_IO;
        }
    }
    header.data_bytes = o->data_bytes[i];
    if (header.prewritten_extents > drive->extent_count) {
        header.prewritten_extents = drive->extent_count;
    }
    if (!store->has_header || memcmp(&header, &store->header, sizeof(header)) != 0) {
        status = kvt_store_header_write(store, &header, o->why, o->why_bytes);
    }
    if (status == KVT_OK && shrinks) {
        status = store_data_open(o, i);
    }
    struct kvt_catalog_store *listed = &o->head.stores[i];
    if (i >= o->head.store_count || listed->bytes != header.data_bytes) {
        memcpy(listed->id, header.id, sizeof(listed->id));
        listed->bytes = header.data_bytes;
        listed->extent_bytes = header.extent_bytes;
        o->head_changed = true;
    }
    return status;
}

static kvt_status stores_make(struct opening *o)
{
    struct kvt_nvme *nvme = o->nvme;
    for (uint32_t i = 0; i < nvme->drive_count; i++) {
        kvt_status status = store_make(o, i);
        if (status != KVT_OK) {
            return status;
        }
    }
    if (!o->head_changed) {
        return KVT_OK;
    }
    o->head.store_count = nvme->drive_count;
    kvt_status status = kvt_catalog_set_head(nvme->catalog, &o->head, KVT_NVME_CATALOG_OPEN_NS);
    if (status != KVT_OK) {
        SAY(o, "nvme store '%s': the catalog's list of stores could not be written: %s",
            nvme->drives[0].store.folder, kvt_status_text(status));
    }
    return status;
}

static kvt_status io_start(struct opening *o)
{
    struct kvt_nvme *nvme = o->nvme;
    struct kvt_io_config config = {.mem = nvme->mem,
                                   .log = nvme->log,
                                   .clock = nvme->clock,
                                   .threads_only = o->config->threads_only};
    kvt_status status = kvt_io_open(&config, &nvme->io);
    if (status != KVT_OK) {
        return no_memory(o);
    }
    nvme->direct = true;
    for (uint32_t i = 0; i < nvme->drive_count; i++) {
        struct kvt_nvme_drive *drive = &nvme->drives[i];
        drive->extents = kvt_calloc(nvme->mem, drive->extent_count, sizeof(*drive->extents));
        if (drive->extents == NULL ||
            kvt_io_file_add(nvme->io, drive->store.data_fd,
                            drive->store.direct ? KVT_NVME_ALIGN_BYTES : 1,
                            &drive->file) != KVT_OK) {
            return no_memory(o);
        }
        kvt_nvme_drive_init(drive, (uint32_t)drive->store.header.prewritten_extents);
        nvme->direct &= drive->store.direct;
        nvme->bytes_budget += o->config->stores[i].bytes;
        if (drive->extent_bytes > nvme->extent_bytes_max) {
            nvme->extent_bytes_max = drive->extent_bytes;
        }
    }
    status = kvt_thread_start(&nvme->flush_thread, "kvt-nvme", kvt_nvme_flush_main, nvme);
    if (status != KVT_OK) {
        return no_memory(o);
    }
    nvme->started = true;
    kvt_lock_take(&nvme->lock);
    kvt_nvme_measure_start(nvme);
    kvt_lock_give(&nvme->lock);
    return KVT_OK;
}

static kvt_status open_all(struct opening *o)
{
    kvt_status status = memory_take(o);
    if (status == KVT_OK) {
        status = stores_lock(o);
    }
    for (uint32_t i = 0; status == KVT_OK && i < o->nvme->drive_count; i++) {
        status = store_size(o, i);
    }
    if (status == KVT_OK) {
        status = catalog_open(o);
    }
    if (status == KVT_OK) {
        status = stores_bind(o);
    }
    if (status == KVT_OK) {
        status = stores_make(o);
    }
    if (status == KVT_OK) {
        status = io_start(o);
    }
    return status;
}

/* A file that may not grow so large is an error, and not the end of the process: the signal that
 * says the same is kept away. Our own threads never see it. */
static kvt_status open_unharmed(struct opening *o)
{
    const struct timespec now = {0, 0};
    sigset_t too_large, before;
    (void)sigemptyset(&too_large);
    (void)sigaddset(&too_large, SIGXFSZ);
    bool kept = pthread_sigmask(SIG_BLOCK, &too_large, &before) == 0;
    kvt_status status = open_all(o);
    if (kept && sigismember(&before, SIGXFSZ) == 0) {
        while (sigtimedwait(&too_large, NULL, &now) == SIGXFSZ) {
        }
    }
    if (kept) {
        (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    return status;
}

kvt_status kvt_nvme_open(const struct kvt_nvme_config *config, struct kvt_nvme **out_nvme,
                         char *why, size_t why_bytes)
{
    struct opening o = {.config = config, .why = why, .why_bytes = why_bytes};
    kvt_status status = config_check(&o);
    if (status != KVT_OK) {
        return status;
    }
    struct kvt_nvme *nvme = kvt_calloc(config->mem, 1, sizeof(*nvme));
    if (nvme == NULL) {
        return no_memory(&o);
    }
    o.nvme = nvme;
    nvme->mem = config->mem;
    nvme->log = config->log;
    nvme->clock = config->clock;
    nvme->read_late_ns = config->read_late_ns > 0 ? config->read_late_ns : KVT_NVME_LATE_NS_DEFAULT;
    nvme->dying_head = nvme->dying_tail = nvme->left_head = KVT_NVME_NONE;
    nvme->budget_per_day = config->write_bytes_per_day;
    nvme->budget_left = (int64_t)(nvme->budget_per_day / KVT_NVME_BUDGET_PARTS);
    nvme->budget_ns = kvt_now_ns(&nvme->clock);
    /* Names of slots must not come again after a restart: they begin somewhere else each time. */
    if (kvt_store_random(&nvme->generation_next, sizeof(nvme->generation_next)) != KVT_OK) {
        nvme->generation_next = (uint32_t)kvt_now_ns(&kvt_clock_monotonic);
    }
    kvt_lock_init(&nvme->lock, KVT_RANK_NVME, "nvme");
    kvt_cond_init(&nvme->cond);
    status = open_unharmed(&o);
    if (status != KVT_OK) {
        kvt_nvme_close(nvme, 0);
        return status;
    }
    kvt_log(nvme->log, KVT_LOG_INFO, "nvme: %u stores, %llu MiB, %s", nvme->drive_count,
            (unsigned long long)(nvme->bytes_budget >> 20),
            nvme->direct ? "O_DIRECT" : "through the page cache");
    *out_nvme = nvme;
    return KVT_OK;
}
