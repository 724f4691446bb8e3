/*
 * Repair: headers and sizes first, then the catalog.
 *
 * A catalog all of whose records can be read loses the bad ones by ordinary deletes. One with
 * damaged records, or that can be read in part only, or not at all, is copied without them into a
 * new one, which takes its place; then the headers are made to name the new one. The old one stays
 * beside it. A crash in between leaves a set that the next repair gets clean: a store is known by
 * its own id, which the catalog has.
 */
#include "cache/store_check.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DATA_FILE_MODE 0600
#define SUFFIX_NEW ".new"
#define SUFFIX_DAMAGED ".damaged"
#define COPY_BYTES_MAX (UINT64_C(8) << 20) /* of tokens and extras, held for one batch */

/* ---- files ---- */

static kvt_status say_errno(struct kvt_check *check, const char *folder, const char *doing)
{
    KVT_CHECK_WHY(check, "store '%s': %s: %s", folder, doing, strerror(errno));
    return KVT_ERR_IO;
}

static kvt_status header_make(struct kvt_check *check, uint32_t i)
{
    struct kvt_check_store *store = &check->stores[i];
    const struct kvt_catalog_store *listed = &check->head.stores[i];
    struct kvt_store_header header = {
        .index = i,
        .page_tokens = check->head.page_tokens,
        .extent_bytes = listed->extent_bytes,
        .data_bytes = listed->bytes,
        /* A hint only: of a lost header it is not known any more. */
        .prewritten_extents = store->has_header ? store->header.prewritten_extents : 0,
    };
    memcpy(header.id, listed->id, sizeof(header.id));
    memcpy(header.catalog_id, check->head.id, sizeof(header.catalog_id));
    /* What it takes of an open store: its folder. */
    char folder[KVT_CHECK_PATH_BYTES];
    (void)snprintf(folder, sizeof(folder), "%s", store->folder);
    struct kvt_store open_store = {
        .folder = folder, .folder_fd = store->folder_fd, .data_fd = store->data_fd};
    kvt_status status = kvt_store_header_write(&open_store, &header, check->why, check->why_bytes);
    if (status == KVT_OK) {
        store->header = header;
        store->has_header = true;
        store->needs_header = false;
        kvt_check_tell(check, KVT_STORE_FOUND_REPAIR,
                       "store '%s': its header was made anew from the catalog", store->folder);
    }
    return status;
}

static kvt_status data_extend(struct kvt_check *check, struct kvt_check_store *store)
{
    uint64_t file_bytes = store->data_bytes + KVT_STORE_SPARE_BYTES;
    if (store->data_fd < 0) {
        store->data_fd = openat(store->folder_fd, KVT_STORE_DATA_FILE,
                                O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, DATA_FILE_MODE);
        if (store->data_fd < 0) {
            return say_errno(check, store->folder, "cannot make " KVT_STORE_DATA_FILE);
        }
    }
    /* Opening claims the blocks. */
    if (ftruncate(store->data_fd, (off_t)file_bytes) != 0 || fsync(store->data_fd) != 0) {
        return say_errno(check, store->folder, "cannot give " KVT_STORE_DATA_FILE " its size");
    }
    kvt_check_tell(check, KVT_STORE_FOUND_REPAIR,
                   "store '%s': " KVT_STORE_DATA_FILE " was given its %llu bytes again",
                   store->folder, (unsigned long long)file_bytes);
    return KVT_OK;
}

static kvt_status files_repair(struct kvt_check *check)
{
    for (uint32_t i = 0; i < check->store_count; i++) {
        struct kvt_check_store *store = &check->stores[i];
        kvt_status status = store->needs_header ? header_make(check, i) : KVT_OK;
        if (status == KVT_OK && store->extent_bytes > 0 && store->data_bytes > 0 &&
            store->file_bytes < store->data_bytes + KVT_STORE_SPARE_BYTES) {
            status = data_extend(check, store);
        }
        if (status != KVT_OK) {
            return status;
        }
    }
    return KVT_OK;
}

/* Headers of another set, or of no set that can be told: repair cannot know what is meant. */
static kvt_status can_be_done(struct kvt_check *check)
{
    for (uint32_t i = 0; i < check->store_count; i++) {
        const struct kvt_check_store *store = &check->stores[i];
        bool listed = check->has_head && i < check->head.store_count;
        if (store->foreign) {
            KVT_CHECK_WHY(check,
                          "store '%s': it is not store %u of this set: nothing was changed; give "
                          "the right folder, or begin with new ones",
                          store->folder, i + 1);
            return KVT_ERR_INVAL;
        }
        if (!store->has_header && !listed && (store->header_damaged || i == 0)) {
            KVT_CHECK_WHY(check,
                          "store '%s': header and catalog are both damaged: nothing says what is "
                          "in it, and nothing was changed; remove the folder to start anew",
                          store->folder);
            return KVT_ERR_CORRUPT;
        }
    }
    return KVT_OK;
}

/* ---- deletes ---- */

static kvt_status deletes_commit(struct kvt_check *check, struct kvt_catalog *catalog,
                                 const uint64_t *deletes, uint32_t count)
{
    int error = 0;
    const struct kvt_catalog_batch batch = {.deletes = deletes, .delete_count = count};
    kvt_status status =
        count > 0 ? kvt_catalog_commit(catalog, &batch, KVT_CHECK_CATALOG_NS, &error) : KVT_OK;
    if (status != KVT_OK) {
        KVT_CHECK_WHY(check, "store '%s': its catalog takes no deletes: %s",
                      check->stores[0].folder,
                      error != 0 ? strerror(error) : kvt_status_text(status));
    } else {
        check->result.removed_pages += count;
    }
    return status;
}

/* Children first: what a crash leaves has no orphans. */
static kvt_status bad_pages_delete(struct kvt_check *check)
{
    uint64_t deletes[KVT_CATALOG_BATCH_MAX];
    uint32_t count = 0;
    struct kvt_catalog *catalog = NULL;
    kvt_status status =
        kvt_check_catalog_open(check, "", false, false, &catalog, check->why, check->why_bytes);
    for (uint32_t i = check->page_count; status == KVT_OK && i > 0; i--) {
        if (check->pages[i - 1].bad == KVT_PAGE_GOOD) {
            continue;
        }
        deletes[count++] = check->pages[i - 1].seq;
        if (count == KVT_CATALOG_BATCH_MAX) {
            status = deletes_commit(check, catalog, deletes, count);
            count = 0;
        }
    }
    if (status == KVT_OK) {
        status = deletes_commit(check, catalog, deletes, count);
    }
    kvt_catalog_close(catalog);
    return status;
}

/* ---- a new catalog ---- */

/* Records on their way from the old catalog to the new one. */
struct copy {
    struct kvt_check *check;
    struct kvt_catalog *to;
    kvt_status status;
    uint32_t at; /* index of the page that comes next */
    uint32_t count;
    size_t bytes_used;
    unsigned char *bytes; /* [COPY_BYTES_MAX] tokens and extras of the batch */
    struct kvt_catalog_page pages[KVT_CATALOG_BATCH_MAX];
};

static kvt_status copy_flush(struct copy *copy)
{
    int error = 0;
    const struct kvt_catalog_batch batch = {.pages = copy->pages, .page_count = copy->count};
    kvt_status status = copy->count > 0
                            ? kvt_catalog_commit(copy->to, &batch, KVT_CHECK_CATALOG_NS, &error)
                            : KVT_OK;
    copy->count = 0;
    copy->bytes_used = 0;
    copy->status = copy->status == KVT_OK ? status : copy->status;
    return status;
}

static kvt_status copy_namespace(void *ctx, const struct kvt_catalog_namespace *ns)
{
    struct copy *copy = ctx;
    int error = 0;
    const struct kvt_catalog_batch batch = {.namespaces = ns, .namespace_count = 1};
    copy->status = kvt_catalog_commit(copy->to, &batch, KVT_CHECK_CATALOG_NS, &error);
    return copy->status;
}

static kvt_status copy_page(void *ctx, const struct kvt_catalog_page *page)
{
    struct copy *copy = ctx;
    const struct kvt_check *check = copy->check;
    while (copy->at < check->page_count && check->pages[copy->at].seq < page->seq) {
        copy->at++;
    }
    if (copy->at == check->page_count || check->pages[copy->at].seq != page->seq ||
        check->pages[copy->at].bad != KVT_PAGE_GOOD) {
        return KVT_OK;
    }
    size_t token_bytes = (size_t)page->token_count * sizeof(*page->tokens);
    size_t extra_bytes = (size_t)page->extra_count * KVT_CATALOG_EXTRA_BYTES;
    size_t bytes = token_bytes + extra_bytes;
    bytes += bytes % sizeof(uint64_t) > 0 ? sizeof(uint64_t) - bytes % sizeof(uint64_t) : 0;
    if (copy->count == KVT_CATALOG_BATCH_MAX || copy->bytes_used + bytes > COPY_BYTES_MAX) {
        kvt_status status = copy_flush(copy);
        if (status != KVT_OK) {
            return status;
        }
    }
    unsigned char *at = copy->bytes + copy->bytes_used;
    memcpy(at, page->tokens, token_bytes);
    if (extra_bytes > 0) {
        memcpy(at + token_bytes, page->extras, extra_bytes);
    }
    copy->bytes_used += bytes;
    struct kvt_catalog_page *mine = &copy->pages[copy->count++];
    *mine = *page;
    mine->tokens = (const void *)at;
    mine->extras = at + token_bytes;
    return KVT_OK;
}

static kvt_status records_copy(struct kvt_check *check, struct kvt_catalog *to)
{
    struct kvt_catalog *from = NULL;
    struct copy *copy = kvt_calloc(check->mem, 1, sizeof(*copy));
    unsigned char *bytes = kvt_alloc(check->mem, COPY_BYTES_MAX);
    kvt_status status = KVT_ERR_NOMEM;
    if (copy != NULL && bytes != NULL) {
        copy->check = check;
        copy->to = to;
        copy->bytes = bytes;
        status =
            kvt_check_catalog_open(check, "", true, false, &from, check->why, check->why_bytes);
    }
    if (status == KVT_OK) {
        const struct kvt_catalog_visitor visitor = {copy, copy_namespace, copy_page};
        struct kvt_catalog_load load;
        status = kvt_catalog_load(from, &visitor, KVT_CHECK_CATALOG_NS, &load);
        /* What could not be read the first time cannot be now; what was handed over is good. */
        if (copy->status == KVT_OK &&
            (status == KVT_ERR_CORRUPT || status == KVT_ERR_UNAVAILABLE)) {
            status = KVT_OK;
        }
    }
    if (status == KVT_OK) {
        status = copy_flush(copy);
    }
    kvt_catalog_close(from);
    kvt_free(check->mem, bytes, COPY_BYTES_MAX);
    kvt_free(check->mem, copy, sizeof(*copy));
    return status;
}

/* Of a catalog that cannot be opened: what the headers say. */
static void head_from_headers(struct kvt_check *check)
{
    struct kvt_catalog_head head = {.version = KVT_CATALOG_VERSION,
                                    .page_tokens = check->page_tokens};
    for (uint32_t i = 0; i < check->store_count && check->stores[i].has_header; i++) {
        const struct kvt_store_header *header = &check->stores[i].header;
        memcpy(head.stores[i].id, header->id, sizeof(head.stores[i].id));
        head.stores[i].bytes = header->data_bytes;
        head.stores[i].extent_bytes = header->extent_bytes;
        head.store_count = i + 1;
    }
    check->head = head;
}

/* A catalog's folder with its files, and nothing else. */
static void folder_remove(const struct kvt_check *check, const char *suffix)
{
    static const char *const files[] = {"data.mdb", "lock.mdb", "catalog.lock"};
    char folder[KVT_CHECK_PATH_BYTES];
    kvt_check_catalog_path(check, suffix, folder);
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) {
        return;
    }
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        (void)unlinkat(fd, files[i], 0);
    }
    (void)close(fd);
    (void)rmdir(folder);
}

/* Both at once where the file system can, so that at no moment there is none. */
static bool folders_swap(int fd)
{
    if (renameat2(fd, KVT_STORE_CATALOG_FOLDER SUFFIX_NEW, fd, KVT_STORE_CATALOG_FOLDER,
                  RENAME_EXCHANGE) == 0) {
        return renameat(fd, KVT_STORE_CATALOG_FOLDER SUFFIX_NEW, fd,
                        KVT_STORE_CATALOG_FOLDER SUFFIX_DAMAGED) == 0;
    }
    if (renameat(fd, KVT_STORE_CATALOG_FOLDER, fd, KVT_STORE_CATALOG_FOLDER SUFFIX_DAMAGED) != 0 &&
        errno != ENOENT) {
        return false;
    }
    return renameat(fd, KVT_STORE_CATALOG_FOLDER SUFFIX_NEW, fd, KVT_STORE_CATALOG_FOLDER) == 0;
}

static kvt_status catalogs_swap(struct kvt_check *check)
{
    folder_remove(check, SUFFIX_DAMAGED);
    if (!folders_swap(check->stores[0].folder_fd) || fsync(check->stores[0].folder_fd) != 0) {
        return say_errno(check, check->stores[0].folder,
                         "cannot put the new catalog in the place of the damaged one");
    }
    return KVT_OK;
}

static kvt_status catalog_rebuild(struct kvt_check *check)
{
    const char *folder = check->stores[0].folder;
    bool lost = !check->has_head;
    if (lost) {
        head_from_headers(check);
    }
    check->page_tokens = check->head.page_tokens;
    folder_remove(check, SUFFIX_NEW);
    struct kvt_catalog *catalog = NULL;
    kvt_status status = kvt_check_catalog_open(check, SUFFIX_NEW, false, true, &catalog, check->why,
                                               check->why_bytes);
    if (status == KVT_OK) {
        struct kvt_catalog_head made;
        kvt_catalog_head(catalog, &made);
        memcpy(check->head.id, made.id, sizeof(made.id));
        check->head.version = made.version;
        status = kvt_catalog_set_head(catalog, &check->head, KVT_CHECK_CATALOG_NS);
    }
    if (status == KVT_OK && !lost) {
        status = records_copy(check, catalog);
    }
    kvt_catalog_close(catalog);
    if (status != KVT_OK) {
        folder_remove(check, SUFFIX_NEW);
        if (check->why[0] == '\0') {
            KVT_CHECK_WHY(check, "store '%s': a new catalog cannot be written: %s", folder,
                          kvt_status_text(status));
        }
        return status;
    }
    status = catalogs_swap(check);
    for (uint32_t i = 0; status == KVT_OK && i < check->head.store_count; i++) {
        status = header_make(check, i);
    }
    if (status == KVT_OK) {
        for (uint32_t i = 0; i < check->page_count; i++) {
            check->result.removed_pages += check->pages[i].bad != KVT_PAGE_GOOD;
        }
        kvt_check_tell(check, KVT_STORE_FOUND_REPAIR,
                       "store '%s': its catalog was made anew, %s; the damaged one is kept as "
                       "'" KVT_STORE_CATALOG_FOLDER SUFFIX_DAMAGED "', remove it when you like",
                       folder,
                       lost ? "empty, for nothing of it could be read"
                            : "from the records that are good");
    }
    return status;
}

kvt_status kvt_check_repair(struct kvt_check *check)
{
    bool bad = false;
    for (uint32_t i = 0; i < check->page_count; i++) {
        bad |= check->pages[i].bad != KVT_PAGE_GOOD;
    }
    kvt_status status = can_be_done(check);
    if (status == KVT_OK) {
        status = files_repair(check);
    }
    if (status == KVT_OK &&
        (!check->has_head || check->catalog_cut || check->result.damaged_records > 0)) {
        status = catalog_rebuild(check);
    } else if (status == KVT_OK && bad) {
        status = bad_pages_delete(check);
    }
    if (status == KVT_OK && check->result.removed_pages > 0) {
        kvt_check_tell(check, KVT_STORE_FOUND_REPAIR,
                       "store '%s': %llu pages were taken out of the catalog",
                       check->stores[0].folder, (unsigned long long)check->result.removed_pages);
    }
    return status;
}
