/* Every record of the catalog, and the data it speaks of. */
#include "cache/io/io.h"
#include "cache/store_check.h"
#include "cache/tier/nvme_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PAGES_FIRST 4096u
#define NAMESPACES_FIRST 64u
#define BUFFERS_BYTES (UINT64_C(64) << 20) /* of reads under way, all together */
#define OPS_MAX 256u
#define OPS_MIN 2u

/* ---- records ---- */

/* Room for one more; the array doubles. */
static void *grown(struct kvt_check *check, void *array, uint32_t count, uint32_t *capacity,
                   size_t item_bytes, uint32_t first)
{
    if (count < *capacity) {
        return array;
    }
    uint32_t wanted = *capacity > 0 ? 2 * *capacity : first;
    if (wanted <= *capacity) {
        return NULL;
    }
    void *larger =
        kvt_resize(check->mem, array, *capacity * item_bytes, (size_t)wanted * item_bytes);
    if (larger != NULL) {
        *capacity = wanted;
    }
    return larger;
}

static kvt_status on_namespace(void *ctx, const struct kvt_catalog_namespace *ns)
{
    struct kvt_check *check = ctx;
    struct kvt_check_namespace *all =
        grown(check, check->namespaces, check->namespace_count, &check->namespace_capacity,
              sizeof(*all), NAMESPACES_FIRST);
    if (all == NULL) {
        return KVT_ERR_NOMEM;
    }
    check->namespaces = all;
    all[check->namespace_count++] = (struct kvt_check_namespace){
        ns->number, kvt_key_of_namespace(ns->canonical, ns->canonical_bytes)};
    return KVT_OK;
}

static const struct kvt_check_namespace *namespace_find(const struct kvt_check *check,
                                                        uint32_t number)
{
    for (uint32_t i = 0; i < check->namespace_count; i++) {
        if (check->namespaces[i].number == number) {
            return &check->namespaces[i];
        }
    }
    return NULL;
}

/* Nearly always it is the one before. */
static uint32_t page_find(const struct kvt_check *check, uint64_t seq)
{
    uint32_t low = 0, high = check->page_count;
    if (high > 0 && check->pages[high - 1].seq == seq) {
        return high - 1;
    }
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (check->pages[middle].seq < seq) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < check->page_count && check->pages[low].seq == seq ? low : KVT_CHECK_NONE;
}

static enum kvt_check_bad page_bad(struct kvt_check *check, const struct kvt_check_page *page,
                                   enum kvt_check_bad bad, const char *reason)
{
    kvt_check_tell(check, bad == KVT_PAGE_LEFT ? KVT_STORE_FOUND_LEFTOVER : KVT_STORE_FOUND_DAMAGE,
                   "page %llu (store %u, extent %u, slot %u, %u bytes): %s",
                   (unsigned long long)page->seq, kvt_store_of(page->slot) + 1,
                   kvt_store_extent_of(page->slot), kvt_store_slot_of(page->slot), page->bytes,
                   reason);
    return bad;
}

/* Is the place one that a page of that size can have? */
static enum kvt_check_bad place_check(struct kvt_check *check, const struct kvt_check_page *page)
{
    uint32_t number = kvt_store_of(page->slot);
    if (number >= check->store_count || check->stores[number].extent_bytes == 0) {
        return page_bad(check, page, KVT_PAGE_MISPLACED, "there is no such store");
    }
    struct kvt_check_store *store = &check->stores[number];
    uint32_t extent = kvt_store_extent_of(page->slot);
    if (extent >= store->extent_count) {
        /* A record that passes its own checksum was right once. */
        return page_bad(check, page, KVT_PAGE_LEFT,
                        "it lies behind the end of the store, which was made smaller");
    }
    uint64_t slot_bytes = kvt_nvme_slot_bytes(page->bytes);
    if (page->bytes == 0 || slot_bytes > store->extent_bytes ||
        kvt_store_slot_of(page->slot) >= kvt_store_slots(store->extent_bytes, slot_bytes)) {
        return page_bad(check, page, KVT_PAGE_MISPLACED, "an extent has no such slot");
    }
    if (store->extent_slot_bytes[extent] == 0) {
        store->extent_slot_bytes[extent] = (uint32_t)slot_bytes;
    }
    if (store->extent_slot_bytes[extent] != slot_bytes) {
        return page_bad(check, page, KVT_PAGE_MISPLACED,
                        "other pages say that the slots of its extent have another size");
    }
    return KVT_PAGE_GOOD;
}

static kvt_status on_page(void *ctx, const struct kvt_catalog_page *in)
{
    struct kvt_check *check = ctx;
    if (check->page_count >= KVT_CHECK_NONE - 1) {
        return KVT_ERR_LIMIT;
    }
    struct kvt_check_page *all = grown(check, check->pages, check->page_count,
                                       &check->page_capacity, sizeof(*all), PAGES_FIRST);
    if (all == NULL) {
        return KVT_ERR_NOMEM;
    }
    check->pages = all;
    struct kvt_check_page page = {.seq = in->seq,
                                  .checksum = in->checksum,
                                  .parent = KVT_CHECK_NONE,
                                  .slot = in->place.slot,
                                  .generation = in->place.generation,
                                  .bytes = in->bytes,
                                  .ns = in->ns};
    check->result.page_bytes += in->bytes;
    const struct kvt_check_namespace *ns = namespace_find(check, in->ns);
    const struct kvt_key *before = ns != NULL ? &ns->key : NULL;
    page.parent = in->parent != 0 ? page_find(check, in->parent) : KVT_CHECK_NONE;
    page.bad = place_check(check, &page);
    if (ns == NULL) {
        page.bad = page_bad(check, &page, KVT_PAGE_ORPHANED, "its namespace is not there");
    } else if (in->parent != 0 && page.parent == KVT_CHECK_NONE) {
        page.bad = page_bad(check, &page, KVT_PAGE_ORPHANED, "the page before it is not there");
    } else if (in->token_count != check->head.page_tokens) {
        page.bad = page_bad(check, &page, KVT_PAGE_ORPHANED, "it has another number of tokens");
    } else if (in->parent != 0) {
        before = &all[page.parent].key;
        if (all[page.parent].bad == KVT_PAGE_ORPHANED ||
            all[page.parent].bad == KVT_PAGE_DEPENDENT) {
            page.bad = KVT_PAGE_DEPENDENT; /* its key cannot be known, nor its checksum */
        } else if (all[page.parent].ns != in->ns) {
            page.bad = page_bad(check, &page, KVT_PAGE_ORPHANED,
                                "the page before it is of another namespace");
        }
    }
    if (page.bad != KVT_PAGE_ORPHANED && page.bad != KVT_PAGE_DEPENDENT) {
        page.key = kvt_key_next(before, in->tokens, in->token_count,
                                in->extra_count > 0 ? in->extras : NULL,
                                (size_t)in->extra_count * KVT_CATALOG_EXTRA_BYTES);
    }
    all[check->page_count++] = page;
    return KVT_OK;
}

/* ---- two pages in one slot ---- */

static int by_place(const void *a, const void *b, void *ctx)
{
    const struct kvt_check_page *pages = ctx;
    uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;
    if (pages[left].slot != pages[right].slot) {
        return pages[left].slot < pages[right].slot ? -1 : 1;
    }
    return (left > right) - (left < right);
}

/* Indexes of the pages by place; NULL: no memory, or there are none. */
static uint32_t *sorted_by_place(struct kvt_check *check)
{
    uint32_t *order = kvt_calloc(check->mem, check->page_count, sizeof(*order));
    for (uint32_t i = 0; order != NULL && i < check->page_count; i++) {
        order[i] = i;
    }
    if (order != NULL) {
        qsort_r(order, check->page_count, sizeof(*order), by_place, check->pages);
    }
    return order;
}

static kvt_status shared_slots_check(struct kvt_check *check)
{
    if (check->page_count == 0) {
        return KVT_OK;
    }
    uint32_t *order = sorted_by_place(check);
    if (order == NULL) {
        KVT_CHECK_WHY(check, "no memory to sort the pages");
        return KVT_ERR_NOMEM;
    }
    for (uint32_t i = 1; i < check->page_count; i++) {
        struct kvt_check_page *one = &check->pages[order[i - 1]];
        struct kvt_check_page *other = &check->pages[order[i]];
        if (one->slot == other->slot) {
            /* Which of them the bytes are of is not known here: neither is trusted. */
            one->bad = one->bad != KVT_PAGE_GOOD
                           ? one->bad
                           : (uint32_t)page_bad(check, one, KVT_PAGE_MISPLACED,
                                                "another page says that it lies there");
            other->bad =
                page_bad(check, other, KVT_PAGE_MISPLACED, "another page says that it lies there");
        }
    }
    kvt_free(check->mem, order, check->page_count * sizeof(*order));
    return KVT_OK;
}

kvt_status kvt_check_records(struct kvt_check *check, struct kvt_catalog *catalog)
{
    const struct kvt_catalog_visitor visitor = {check, on_namespace, on_page};
    struct kvt_catalog_load load = {0};
    kvt_status status = kvt_catalog_load(catalog, &visitor, KVT_CHECK_CATALOG_NS, &load);
    check->result.namespaces = check->namespace_count;
    check->result.pages = check->page_count;
    if (status == KVT_ERR_CORRUPT || status == KVT_ERR_UNAVAILABLE) {
        /* Also when the catalog's process died of it. */
        check->catalog_cut = true;
        check->result.damaged_files++;
        kvt_check_tell(check, KVT_STORE_FOUND_DAMAGE,
                       "store '%s': its catalog can be read in part only: %u pages of it",
                       check->stores[0].folder, check->page_count);
        status = KVT_OK;
    }
    if (status != KVT_OK) {
        KVT_CHECK_WHY(check, "store '%s': its catalog cannot be read: %s", check->stores[0].folder,
                      kvt_status_text(status));
        return status;
    }
    check->result.damaged_records = load.damaged_records;
    if (load.damaged_records > 0) {
        kvt_check_tell(check, KVT_STORE_FOUND_DAMAGE,
                       "store '%s': %llu records of its catalog fail their checksum",
                       check->stores[0].folder, (unsigned long long)load.damaged_records);
    }
    return shared_slots_check(check);
}

/* ---- data ---- */

struct verify_op {
    struct kvt_io_op op;
    struct verify *verify;
    uint32_t page;
    struct verify_op *next;
};

struct verify {
    struct kvt_check *check;
    struct kvt_io *io;
    uint32_t files[KVT_STORE_SET_MAX];
    int fds[KVT_STORE_SET_MAX];
    uint32_t align[KVT_STORE_SET_MAX];
    uint32_t *order;
    uint32_t at;
    struct verify_op *ops; /* [op_count] */
    uint32_t op_count;
    void *buffers;
    size_t buffers_bytes;
    uint64_t op_bytes;
    uint64_t done_bytes, total_bytes;
    struct kvt_cond cond;
    struct kvt_lock lock;    /* protects what follows */
    struct verify_op *ended; /* newest first */
};

static void op_ended(struct kvt_io_op *op)
{
    struct verify_op *mine = op->user;
    struct verify *verify = mine->verify;
    kvt_lock_take(&verify->lock);
    mine->next = verify->ended;
    verify->ended = mine;
    kvt_cond_broadcast(&verify->cond);
    kvt_lock_give(&verify->lock);
}

/* A descriptor of its own: past the page cache, and without the lock. */
static kvt_status files_open(struct verify *verify)
{
    struct kvt_check *check = verify->check;
    bool buffered = (check->config->flags & KVT_STORE_BUFFERED) != 0;
    for (uint32_t i = 0; i < check->store_count; i++) {
        struct kvt_check_store *store = &check->stores[i];
        if (store->data_fd < 0) {
            continue;
        }
        const int flags = O_RDONLY | O_CLOEXEC | O_NOFOLLOW;
        verify->align[i] = KVT_NVME_ALIGN_BYTES;
        verify->fds[i] =
            buffered ? -1 : openat(store->folder_fd, KVT_STORE_DATA_FILE, flags | O_DIRECT);
        if (verify->fds[i] < 0) {
            verify->align[i] = 1;
            verify->fds[i] = openat(store->folder_fd, KVT_STORE_DATA_FILE, flags);
        }
        if (verify->fds[i] < 0) {
            KVT_CHECK_WHY(check, "store '%s': cannot open " KVT_STORE_DATA_FILE ": %s",
                          store->folder, strerror(errno));
            return KVT_ERR_IO;
        }
        kvt_status status =
            kvt_io_file_add(verify->io, verify->fds[i], verify->align[i], &verify->files[i]);
        if (status != KVT_OK) {
            KVT_CHECK_WHY(check, "store '%s': %s", store->folder, kvt_status_text(status));
            return status;
        }
    }
    return KVT_OK;
}

static kvt_status verify_init(struct verify *verify)
{
    struct kvt_check *check = verify->check;
    for (uint32_t i = 0; i < check->page_count; i++) {
        if (check->pages[i].bad == KVT_PAGE_GOOD) {
            uint64_t bytes = kvt_nvme_slot_bytes(check->pages[i].bytes);
            verify->op_bytes = bytes > verify->op_bytes ? bytes : verify->op_bytes;
            verify->total_bytes += check->pages[i].bytes;
        }
    }
    if (verify->op_bytes == 0) {
        return KVT_OK;
    }
    uint64_t count = BUFFERS_BYTES / verify->op_bytes;
    count = count < OPS_MIN ? OPS_MIN : count;
    verify->op_count = count < OPS_MAX ? (uint32_t)count : OPS_MAX;
    verify->buffers_bytes = (size_t)(verify->op_count * verify->op_bytes + KVT_NVME_ALIGN_BYTES);
    verify->order = sorted_by_place(check);
    verify->ops = kvt_calloc(check->mem, verify->op_count, sizeof(*verify->ops));
    verify->buffers = kvt_alloc(check->mem, verify->buffers_bytes);
    const struct kvt_io_config config = {
        .mem = check->mem,
        .log = &check->log,
        .clock = kvt_clock_monotonic,
        .threads_only = (check->config->flags & KVT_STORE_THREADS) != 0,
    };
    if (verify->order == NULL || verify->ops == NULL || verify->buffers == NULL ||
        kvt_io_open(&config, &verify->io) != KVT_OK) {
        KVT_CHECK_WHY(check, "no memory to read the data");
        return KVT_ERR_NOMEM;
    }
    return files_open(verify);
}

static void verify_fini(struct verify *verify)
{
    struct kvt_check *check = verify->check;
    kvt_io_close(verify->io);
    for (uint32_t i = 0; i < KVT_STORE_SET_MAX; i++) {
        if (verify->fds[i] >= 0) {
            (void)close(verify->fds[i]);
        }
    }
    if (verify->order != NULL) {
        kvt_free(check->mem, verify->order, check->page_count * sizeof(*verify->order));
    }
    kvt_free(check->mem, verify->ops, verify->op_count * sizeof(*verify->ops));
    kvt_free(check->mem, verify->buffers, verify->buffers_bytes);
    kvt_cond_fini(&verify->cond);
    kvt_lock_fini(&verify->lock);
}

/* The next page that is worth a read; false: there is none. */
static bool op_start(struct verify *verify, struct verify_op *mine)
{
    struct kvt_check *check = verify->check;
    while (verify->at < check->page_count) {
        uint32_t number = verify->order[verify->at++];
        struct kvt_check_page *page = &check->pages[number];
        uint32_t store = kvt_store_of(page->slot);
        if (page->bad != KVT_PAGE_GOOD) {
            continue;
        }
        if (verify->fds[store] < 0) {
            page->bad = page_bad(check, page, KVT_PAGE_CORRUPT, "its data file is missing");
            continue;
        }
        uint64_t slot_bytes = kvt_nvme_slot_bytes(page->bytes);
        void *buffer = mine->op.buffer;
        mine->page = number;
        mine->verify = verify;
        mine->op = (struct kvt_io_op){
            .kind = KVT_IO_READ,
            .file = verify->files[store],
            .buffer = buffer,
            .offset = kvt_store_extent_of(page->slot) * check->stores[store].extent_bytes +
                      kvt_store_slot_of(page->slot) * slot_bytes,
            .bytes = slot_bytes,
            .late_ns = UINT64_MAX,
            .done = op_ended,
            .user = mine,
        };
        struct kvt_io_op *op = &mine->op;
        kvt_io_submit(verify->io, &op, 1);
        return true;
    }
    return false;
}

static void op_judge(struct verify *verify, struct verify_op *mine)
{
    struct kvt_check *check = verify->check;
    struct kvt_check_page *page = &check->pages[mine->page];
    if (mine->op.status != KVT_OK) {
        char reason[128];
        (void)snprintf(reason, sizeof(reason), "it cannot be read: %s", strerror(mine->op.error));
        page->bad = page_bad(check, page, KVT_PAGE_CORRUPT, reason);
    } else if (kvt_nvme_checksum(mine->op.buffer, page->bytes, kvt_nvme_seed(page->key.bytes)) !=
               page->checksum) {
        page->bad = page_bad(check, page, KVT_PAGE_CORRUPT, "its bytes are not what was written");
    } else {
        check->result.verified_pages++;
        check->result.verified_bytes += page->bytes;
    }
    verify->done_bytes += page->bytes;
    if (check->config->progress != NULL && !check->quiet) {
        check->config->progress(check->config->ctx, verify->done_bytes, verify->total_bytes);
    }
}

static void verify_run(struct verify *verify)
{
    uintptr_t past = (uintptr_t)verify->buffers % KVT_NVME_ALIGN_BYTES;
    char *base = (char *)verify->buffers + (past > 0 ? KVT_NVME_ALIGN_BYTES - past : 0);
    uint32_t running = 0;
    for (uint32_t i = 0; i < verify->op_count; i++) {
        verify->ops[i].op.buffer = base + (size_t)(i * verify->op_bytes);
        running += op_start(verify, &verify->ops[i]);
    }
    while (running > 0) {
        kvt_lock_take(&verify->lock);
        while (verify->ended == NULL) {
            /* As long as the drive takes: there is nobody to go on without it. */
            (void)kvt_cond_wait(&verify->cond, &verify->lock, UINT64_MAX);
        }
        struct verify_op *ended = verify->ended;
        verify->ended = NULL;
        kvt_lock_give(&verify->lock);
        while (ended != NULL) {
            struct verify_op *next = ended->next;
            op_judge(verify, ended);
            running -= !op_start(verify, ended);
            ended = next;
        }
    }
}

/* ---- beside an owner ---- */

struct recheck {
    struct kvt_check *check;
    uint8_t *there; /* [page_count] */
};

static kvt_status recheck_namespace(void *ctx, const struct kvt_catalog_namespace *ns)
{
    (void)ctx;
    (void)ns;
    return KVT_OK;
}

static kvt_status recheck_page(void *ctx, const struct kvt_catalog_page *in)
{
    struct recheck *recheck = ctx;
    uint32_t i = page_find(recheck->check, in->seq);
    if (i != KVT_CHECK_NONE) {
        recheck->there[i] = 1;
    }
    return KVT_OK;
}

/* What an owner deleted meanwhile was not corrupt: its slot had new bytes already. */
static void forgive_deleted(struct kvt_check *check)
{
    struct kvt_catalog *catalog = NULL;
    char why[KVT_CHECK_SENTENCE_BYTES];
    uint64_t corrupt = 0;
    for (uint32_t i = 0; i < check->page_count; i++) {
        corrupt += check->pages[i].bad == KVT_PAGE_CORRUPT;
    }
    if (corrupt == 0 ||
        kvt_check_catalog_open(check, "", true, false, &catalog, why, sizeof(why)) != KVT_OK) {
        return;
    }
    struct recheck recheck = {check, kvt_calloc(check->mem, check->page_count, 1)};
    const struct kvt_catalog_visitor visitor = {&recheck, recheck_namespace, recheck_page};
    struct kvt_catalog_load load;
    if (recheck.there != NULL &&
        kvt_catalog_load(catalog, &visitor, KVT_CHECK_CATALOG_NS, &load) == KVT_OK) {
        for (uint32_t i = 0; i < check->page_count; i++) {
            if (check->pages[i].bad == KVT_PAGE_CORRUPT && recheck.there[i] == 0) {
                check->pages[i].bad = KVT_PAGE_GOOD;
            }
        }
        kvt_check_tell(check, KVT_STORE_FOUND_NOTE,
                       "of the pages with wrong bytes, those that the owner has deleted meanwhile "
                       "are not counted");
    }
    kvt_free(check->mem, recheck.there, check->page_count);
    kvt_catalog_close(catalog);
}

kvt_status kvt_check_data(struct kvt_check *check)
{
    struct verify verify = {.check = check};
    for (uint32_t i = 0; i < KVT_STORE_SET_MAX; i++) {
        verify.fds[i] = -1;
    }
    kvt_lock_init(&verify.lock, KVT_RANK_LEAF, "verify");
    kvt_cond_init(&verify.cond);
    kvt_status status = verify_init(&verify);
    if (status == KVT_OK && verify.op_bytes > 0) {
        verify_run(&verify);
    }
    verify_fini(&verify);
    check->result.verified = status == KVT_OK;
    if (status == KVT_OK && check->result.owner_pid != 0) {
        forgive_deleted(check);
    }
    return status;
}

/* ---- counting ---- */

/* Without reading: is any of it behind the end of a file that was cut? */
static void cut_files_check(struct kvt_check *check)
{
    for (uint32_t i = 0; i < check->page_count; i++) {
        struct kvt_check_page *page = &check->pages[i];
        if (page->bad != KVT_PAGE_GOOD) {
            continue;
        }
        const struct kvt_check_store *store = &check->stores[kvt_store_of(page->slot)];
        uint64_t slot_bytes = kvt_nvme_slot_bytes(page->bytes);
        uint64_t end = kvt_store_extent_of(page->slot) * store->extent_bytes +
                       (kvt_store_slot_of(page->slot) + UINT64_C(1)) * slot_bytes;
        if (end > store->file_bytes) {
            page->bad = page_bad(check, page, KVT_PAGE_CORRUPT, "its part of the file is missing");
        }
    }
}

void kvt_check_judge(struct kvt_check *check)
{
    struct kvt_store_check_result *result = &check->result;
    cut_files_check(check);
    for (uint32_t i = 0; i < check->page_count; i++) {
        struct kvt_check_page *page = &check->pages[i];
        uint32_t above =
            page->parent != KVT_CHECK_NONE ? check->pages[page->parent].bad : KVT_PAGE_GOOD;
        if (page->bad == KVT_PAGE_GOOD && above != KVT_PAGE_GOOD) {
            page->bad = above == KVT_PAGE_LEFT ? KVT_PAGE_LEFT : KVT_PAGE_DEPENDENT;
        }
        result->misplaced_pages += page->bad == KVT_PAGE_MISPLACED;
        result->orphaned_pages += page->bad == KVT_PAGE_ORPHANED;
        result->corrupt_pages += page->bad == KVT_PAGE_CORRUPT;
        result->dependent_pages += page->bad == KVT_PAGE_DEPENDENT;
    }
}
