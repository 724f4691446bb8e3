/*
 * kvt_store_check(): the stores of a set, their catalog, and whether they belong together.
 *
 * The answers of three sources are held against each other: the headers, the catalog's head, the
 * files as they are. Where one is missing or damaged the other two say what it should be; that is
 * what repair makes it from.
 */
#include "cache/store_check.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define PID_TEXT_BYTES 32
#define HEADER_FILE_NEW KVT_STORE_HEADER_FILE ".new"

/* ---- telling ---- */

void kvt_check_tell(struct kvt_check *check, enum kvt_store_find kind, const char *format, ...)
{
    check->result.leftovers += kind == KVT_STORE_FOUND_LEFTOVER;
    if (check->quiet || check->config->found == NULL ||
        check->sentences[kind]++ >= KVT_STORE_SENTENCES_MAX) {
        return;
    }
    char sentence[KVT_CHECK_SENTENCE_BYTES];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(sentence, sizeof(sentence), format, args);
    va_end(args);
    check->config->found(check->config->ctx, (uint32_t)kind, sentence);
}

/* ---- one store ---- */

static kvt_status say_errno(struct kvt_check *check, const char *folder, const char *doing)
{
    KVT_CHECK_WHY(check, "store '%s': %s: %s", folder, doing, strerror(errno));
    return KVT_ERR_IO;
}

static uint64_t lock_pid(const struct kvt_check_store *store)
{
    char text[PID_TEXT_BYTES] = "";
    int fd = openat(store->folder_fd, KVT_STORE_LOCK_FILE, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd >= 0) {
        ssize_t got = read(fd, text, sizeof(text) - 1);
        text[got > 0 ? got : 0] = '\0';
        (void)close(fd);
    }
    return strtoull(text, NULL, 10);
}

/* Repair holds the lock from here on; looking only asks whether somebody else does. */
static kvt_status store_lock(struct kvt_check *check, struct kvt_check_store *store)
{
    bool repair = (check->config->flags & KVT_STORE_REPAIR) != 0;
    int rc;
    do {
        rc = flock(store->data_fd, (repair ? LOCK_EX : LOCK_SH) | LOCK_NB);
    } while (rc != 0 && errno == EINTR);
    if (rc == 0) {
        if (!repair) {
            (void)flock(store->data_fd, LOCK_UN);
        }
        return KVT_OK;
    }
    if (errno != EWOULDBLOCK) {
        return say_errno(check, store->folder, "cannot ask for its lock");
    }
    uint64_t pid = lock_pid(store);
    if (repair) {
        KVT_CHECK_WHY(check,
                      "store '%s': process %llu has it open: nothing was changed; end that one, "
                      "then repair",
                      store->folder, (unsigned long long)pid);
        return KVT_ERR_BUSY;
    }
    /* The same owner has all of a set: one note. */
    if (check->result.owner_pid == 0) {
        check->result.owner_pid = pid > 0 ? pid : UINT64_MAX;
        kvt_check_tell(check, KVT_STORE_FOUND_NOTE,
                       "store '%s': process %llu has it open and goes on changing it: this answer "
                       "may be of a moment ago",
                       store->folder, (unsigned long long)pid);
    }
    return KVT_OK;
}

static kvt_status data_look(struct kvt_check *check, struct kvt_check_store *store)
{
    bool repair = (check->config->flags & KVT_STORE_REPAIR) != 0;
    store->data_fd = openat(store->folder_fd, KVT_STORE_DATA_FILE,
                            (repair ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NOFOLLOW);
    if (store->data_fd < 0) {
        store->data_missing = errno == ENOENT;
        return errno == ENOENT
                   ? KVT_OK
                   : say_errno(check, store->folder, "cannot open " KVT_STORE_DATA_FILE);
    }
    struct stat is;
    if (fstat(store->data_fd, &is) != 0) {
        return say_errno(check, store->folder, "cannot look at " KVT_STORE_DATA_FILE);
    }
    store->file_bytes = (uint64_t)is.st_size;
    return store_lock(check, store);
}

/* A file that only an unfinished replacement of the header leaves behind. */
static void leftovers_look(struct kvt_check *check, const struct kvt_check_store *store)
{
    struct stat is;
    if (fstatat(store->folder_fd, HEADER_FILE_NEW, &is, AT_SYMLINK_NOFOLLOW) == 0) {
        kvt_check_tell(check, KVT_STORE_FOUND_LEFTOVER,
                       "store '%s': " HEADER_FILE_NEW
                       " is of a header that was being replaced; opening replaces it",
                       store->folder);
    }
}

static kvt_status store_look(struct kvt_check *check, uint32_t i)
{
    struct kvt_check_store *store = &check->stores[i];
    store->folder = check->config->folders[i];
    store->folder_fd = open(store->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (store->folder_fd < 0) {
        return say_errno(check, store->folder, "cannot open the folder");
    }
    kvt_status status = data_look(check, store);
    if (status != KVT_OK) {
        return status;
    }
    char why[KVT_CHECK_SENTENCE_BYTES] = "";
    status = kvt_store_header_read(store->folder, &store->header, why, sizeof(why));
    store->has_header = status == KVT_OK;
    store->header_damaged = status == KVT_ERR_CORRUPT;
    leftovers_look(check, store);
    if (status == KVT_OK || status == KVT_ERR_CORRUPT || status == KVT_ERR_STALE) {
        return KVT_OK;
    }
    KVT_CHECK_WHY(check, "%s", why);
    return status;
}

/* ---- the set, by its headers ---- */

static bool id_is(const unsigned char *a, const unsigned char *b)
{
    return memcmp(a, b, KVT_CATALOG_ID_BYTES) == 0;
}

static kvt_status arguments_check(struct kvt_check *check)
{
    const struct kvt_store_check_config *config = check->config;
    const uint32_t known =
        KVT_STORE_THREADS | KVT_STORE_BUFFERED | KVT_STORE_VERIFY | KVT_STORE_REPAIR;
    if (config->folders == NULL || config->folder_count == 0 ||
        config->folder_count > KVT_STORE_SET_MAX || (config->flags & ~known) != 0) {
        KVT_CHECK_WHY(check, "%u stores, flags 0x%x: give 1 to %u stores, and known flags",
                      config->folder_count, config->flags, KVT_STORE_SET_MAX);
        return KVT_ERR_INVAL;
    }
    for (uint32_t i = 0; i < config->folder_count; i++) {
        const char *folder = config->folders[i];
        if (folder == NULL || folder[0] == '\0' || strlen(folder) >= KVT_CHECK_PATH_BYTES / 2) {
            KVT_CHECK_WHY(check, "store %u has no folder, or one whose name is too long", i + 1);
            return KVT_ERR_INVAL;
        }
    }
    return KVT_OK;
}

/* The folder is there, but is it a store? */
static kvt_status first_is_store(struct kvt_check *check, bool has_catalog)
{
    const struct kvt_check_store *first = &check->stores[0];
    if (first->has_header || first->header_damaged || has_catalog) {
        return KVT_OK;
    }
    KVT_CHECK_WHY(check, "store '%s': there is no store in this folder%s", first->folder,
                  first->data_missing
                      ? ""
                      : ", only the beginning of one that was being made; opening makes it anew");
    return KVT_ERR_STALE;
}

static kvt_status order_check(struct kvt_check *check)
{
    for (uint32_t i = 0; i < check->store_count; i++) {
        const struct kvt_check_store *store = &check->stores[i];
        if (store->has_header && store->header.index != i) {
            KVT_CHECK_WHY(check,
                          "store '%s': it is store %u of its set, but was given as number %u: give "
                          "all folders of the set in the order in which they were made%s",
                          store->folder, store->header.index + 1, i + 1,
                          i == 0 ? "; the first holds the catalog" : "");
            return KVT_ERR_INVAL;
        }
    }
    return KVT_OK;
}

/* ---- the catalog ---- */

void kvt_check_catalog_path(const struct kvt_check *check, const char *suffix,
                            char out_path[KVT_CHECK_PATH_BYTES])
{
    (void)snprintf(out_path, KVT_CHECK_PATH_BYTES, "%s/" KVT_STORE_CATALOG_FOLDER "%s",
                   check->stores[0].folder, suffix);
}

kvt_status kvt_check_catalog_open(struct kvt_check *check, const char *suffix, bool read_only,
                                  bool create, struct kvt_catalog **out_catalog, char *why,
                                  size_t why_bytes)
{
    char folder[KVT_CHECK_PATH_BYTES];
    kvt_check_catalog_path(check, suffix, folder);
    struct stat is;
    uint64_t there_bytes = 0;
    if (fstatat(check->stores[0].folder_fd, KVT_STORE_CATALOG_DATA, &is, AT_SYMLINK_NOFOLLOW) ==
        0) {
        there_bytes = (uint64_t)is.st_size;
    }
    const struct kvt_catalog_config config = {
        .mem = check->mem,
        .log = &check->log,
        .folder = folder,
        /* Deletes write pages before they give any back. */
        .bytes_max = 2 * there_bytes + KVT_CHECK_CATALOG_BYTES_MIN,
        .program = check->config->catalog_program,
        .read_only = read_only,
        .page_tokens = read_only ? 0 : check->page_tokens, /* 0: whatever it has */
        .create = create,
    };
    return kvt_catalog_open(&config, KVT_CHECK_CATALOG_NS, out_catalog, why, why_bytes);
}

static void file_damage(struct kvt_check *check, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void file_damage(struct kvt_check *check, const char *format, ...)
{
    char sentence[KVT_CHECK_SENTENCE_BYTES];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(sentence, sizeof(sentence), format, args);
    va_end(args);
    check->result.damaged_files++;
    kvt_check_tell(check, KVT_STORE_FOUND_DAMAGE, "%s", sentence);
}

/* Opens it, or says that it is damaged (*out_catalog NULL); anything else is an error. */
static kvt_status catalog_look(struct kvt_check *check, struct kvt_catalog **out_catalog)
{
    char why[KVT_CHECK_SENTENCE_BYTES] = "";
    kvt_status status =
        kvt_check_catalog_open(check, "", true, false, out_catalog, why, sizeof(why));
    if (status == KVT_OK) {
        kvt_catalog_head(*out_catalog, &check->head);
        check->has_head = true;
        return KVT_OK;
    }
    char program_why[KVT_CHECK_SENTENCE_BYTES];
    (void)snprintf(program_why, sizeof(program_why), "%s", why);
    /* A file that kills who opens it is as bad as one that says what is wrong with it. */
    bool deadly = status == KVT_ERR_UNAVAILABLE && strstr(why, "died while it was opened") != NULL;
    if (deadly || status == KVT_ERR_CORRUPT || status == KVT_ERR_INVAL) {
        check->catalog_unreadable = true;
        file_damage(check, "store '%s': its catalog cannot be opened: %s", check->stores[0].folder,
                    program_why);
        return KVT_OK;
    }
    KVT_CHECK_WHY(check, "%s", program_why);
    return status;
}

/* ---- headers and head against each other ---- */

static kvt_status head_check(struct kvt_check *check)
{
    uint32_t listed = check->head.store_count;
    if (check->store_count < listed) {
        char missing[64];
        if (listed - check->store_count == 1) {
            (void)snprintf(missing, sizeof(missing), "store %u", listed);
        } else {
            (void)snprintf(missing, sizeof(missing), "stores %u to %u", check->store_count + 1,
                           listed);
        }
        KVT_CHECK_WHY(check,
                      "store '%s': its set has %u stores: give the folder of %s too, all in the "
                      "order in which they were made",
                      check->stores[0].folder, listed, missing);
        return KVT_ERR_INVAL;
    }
    return KVT_OK;
}

static void sizes_check(struct kvt_check *check, struct kvt_check_store *store, uint32_t i)
{
    const struct kvt_catalog_store *listed =
        check->has_head && i < check->head.store_count ? &check->head.stores[i] : NULL;
    store->extent_bytes = store->has_header ? store->header.extent_bytes
                                            : (listed != NULL ? listed->extent_bytes : 0);
    store->data_bytes =
        store->has_header ? store->header.data_bytes : (listed != NULL ? listed->bytes : 0);
    if (store->has_header && listed != NULL && listed->extent_bytes != store->extent_bytes) {
        store->foreign = true;
        file_damage(check,
                    "store '%s': its header says extents of %llu bytes, the catalog %llu: they are "
                    "not of one set, or one of them is damaged",
                    store->folder, (unsigned long long)store->extent_bytes,
                    (unsigned long long)listed->extent_bytes);
    }
    if (store->has_header && listed != NULL && listed->bytes != store->data_bytes) {
        kvt_check_tell(check, KVT_STORE_FOUND_LEFTOVER,
                       "store '%s': its size was being changed; opening goes on with it",
                       store->folder);
    }
    uint64_t file_bytes = store->data_bytes + KVT_STORE_SPARE_BYTES;
    if (store->data_bytes == 0) {
        return; /* nothing says what it should be */
    }
    if (store->data_missing) {
        file_damage(check, "store '%s': " KVT_STORE_DATA_FILE " is missing: all that lay in it is",
                    store->folder);
    } else if (store->file_bytes < file_bytes) {
        file_damage(check,
                    "store '%s': " KVT_STORE_DATA_FILE " was cut to %llu of %llu bytes: what lay "
                    "behind is lost",
                    store->folder, (unsigned long long)store->file_bytes,
                    (unsigned long long)file_bytes);
    } else if (store->file_bytes > file_bytes) {
        kvt_check_tell(check, KVT_STORE_FOUND_LEFTOVER,
                       "store '%s': " KVT_STORE_DATA_FILE
                       " is longer than it should be; opening cuts it",
                       store->folder);
    }
}

/* A header that is missing or damaged, when the catalog knows what it should say. */
static kvt_status header_check(struct kvt_check *check, struct kvt_check_store *store, uint32_t i)
{
    bool listed = check->has_head && i < check->head.store_count;
    if (store->has_header) {
        if (listed && !id_is(store->header.id, check->head.stores[i].id)) {
            store->foreign = true;
            file_damage(check, "store '%s': it is not the store %u that the catalog knows",
                        store->folder, i + 1);
        } else if (listed && !id_is(store->header.catalog_id, check->head.id)) {
            /* The catalog knows it, so only what it says of the catalog is old: repair was cut
             * short. */
            store->needs_header = true;
            file_damage(check, "store '%s': its header names another catalog than the one of '%s'",
                        store->folder, check->stores[0].folder);
        } else if (check->has_head && !id_is(store->header.catalog_id, check->head.id)) {
            store->foreign = true;
            file_damage(check, "store '%s': it belongs to another set of stores than '%s'",
                        store->folder, check->stores[0].folder);
        } else if (check->has_head && !listed) {
            kvt_check_tell(check, KVT_STORE_FOUND_LEFTOVER,
                           "store '%s': it was being added to the set; opening goes on with it",
                           store->folder);
        }
        return KVT_OK;
    }
    if (store->header_damaged) {
        store->needs_header = listed;
        file_damage(check, "store '%s': " KVT_STORE_HEADER_FILE " is damaged", store->folder);
        return KVT_OK;
    }
    if (!listed) {
        kvt_check_tell(check, KVT_STORE_FOUND_LEFTOVER,
                       "store '%s': it was being made, or there is none; opening makes it",
                       store->folder);
        return KVT_OK;
    }
    if (store->data_missing) {
        KVT_CHECK_WHY(check,
                      "store '%s': store %u of the set should be here, but the folder has none: "
                      "mount its drive",
                      store->folder, i + 1);
        return KVT_ERR_STALE;
    }
    store->needs_header = true;
    file_damage(check, "store '%s': " KVT_STORE_HEADER_FILE " is missing", store->folder);
    return KVT_OK;
}

static kvt_status set_check(struct kvt_check *check)
{
    kvt_status status = check->has_head ? head_check(check) : KVT_OK;
    for (uint32_t i = 0; status == KVT_OK && i < check->store_count; i++) {
        struct kvt_check_store *store = &check->stores[i];
        status = header_check(check, store, i);
        if (status != KVT_OK) {
            break;
        }
        sizes_check(check, store, i);
        if (store->extent_bytes == 0 || store->extent_bytes % KVT_STORE_HEADER_BYTES != 0 ||
            store->data_bytes / store->extent_bytes > KVT_STORE_EXTENTS_MAX) {
            store->extent_bytes = 0; /* nothing can lie in it */
            continue;
        }
        store->extent_count = (uint32_t)(store->data_bytes / store->extent_bytes);
        store->extent_slot_bytes = kvt_calloc(
            check->mem, store->extent_count > 0 ? store->extent_count : 1, sizeof(uint32_t));
        if (store->extent_slot_bytes == NULL) {
            KVT_CHECK_WHY(check, "no memory for what is known of the extents");
            status = KVT_ERR_NOMEM;
        }
    }
    return status;
}

/* ---- all of it ---- */

static kvt_status check_all(struct kvt_check *check)
{
    check->store_count = check->config->folder_count;
    check->result.stores = check->store_count;
    for (uint32_t i = 0; i < check->store_count; i++) {
        kvt_status status = store_look(check, i);
        if (status != KVT_OK) {
            return status;
        }
    }
    struct stat is;
    bool has_catalog = fstatat(check->stores[0].folder_fd, KVT_STORE_CATALOG_FOLDER, &is, 0) == 0;
    kvt_status status = first_is_store(check, has_catalog);
    if (status == KVT_OK) {
        status = order_check(check);
    }
    for (uint32_t i = check->store_count; i > 0; i--) {
        if (check->stores[i - 1].has_header) {
            check->page_tokens = check->stores[i - 1].header.page_tokens;
        }
    }
    struct kvt_catalog *catalog = NULL;
    if (status == KVT_OK) {
        status = catalog_look(check, &catalog);
    }
    if (status == KVT_OK) {
        status = set_check(check);
    }
    if (status == KVT_OK && catalog != NULL) {
        check->page_tokens = check->head.page_tokens;
        status = kvt_check_records(check, catalog);
    }
    kvt_catalog_close(catalog);
    if (status == KVT_OK && (check->config->flags & KVT_STORE_VERIFY) != 0) {
        status = kvt_check_data(check);
    }
    if (status == KVT_OK) {
        kvt_check_judge(check);
    }
    return status;
}

static void check_free(struct kvt_check *check)
{
    const struct kvt_memory *mem = check->mem;
    for (uint32_t i = 0; i < KVT_STORE_SET_MAX; i++) {
        struct kvt_check_store *store = &check->stores[i];
        if (store->data_fd >= 0) {
            (void)close(store->data_fd);
        }
        if (store->folder_fd >= 0) {
            (void)close(store->folder_fd);
        }
        kvt_free(mem, store->extent_slot_bytes,
                 (store->extent_count > 0 ? store->extent_count : 1) * sizeof(uint32_t));
    }
    kvt_free(mem, check->pages, check->page_capacity * sizeof(*check->pages));
    kvt_free(mem, check->namespaces, check->namespace_capacity * sizeof(*check->namespaces));
    kvt_free(mem, check, sizeof(*check));
}

static struct kvt_check *check_make(const struct kvt_store_check_config *config, char *why,
                                    size_t why_bytes)
{
    struct kvt_check *check = kvt_calloc(&kvt_memory_libc, 1, sizeof(*check));
    if (check == NULL) {
        (void)snprintf(why, why_bytes, "no memory to check the stores");
        return NULL;
    }
    check->config = config;
    check->mem = &kvt_memory_libc;
    check->log = (struct kvt_log){config->log, config->ctx};
    check->why = why;
    check->why_bytes = why_bytes;
    for (uint32_t i = 0; i < KVT_STORE_SET_MAX; i++) {
        check->stores[i].folder_fd = check->stores[i].data_fd = -1;
    }
    return check;
}

static bool is_damaged(const struct kvt_store_check_result *result)
{
    return result->damaged_files > 0 || result->damaged_records > 0 ||
           result->misplaced_pages > 0 || result->orphaned_pages > 0 || result->corrupt_pages > 0;
}

/* A second look, of what is there after repair. Requires: the first one let go of its locks. */
static kvt_status look_again(const struct kvt_store_check_config *config, char *why,
                             size_t why_bytes, bool *out_clean)
{
    struct kvt_store_check_config again = *config;
    again.flags &= ~KVT_STORE_REPAIR;
    struct kvt_check *check = check_make(&again, why, why_bytes);
    if (check == NULL) {
        return KVT_ERR_NOMEM;
    }
    check->quiet = true;
    kvt_status status = check_all(check);
    *out_clean = status == KVT_OK && !is_damaged(&check->result);
    check_free(check);
    return status;
}

kvt_status kvt_store_check(const struct kvt_store_check_config *config,
                           struct kvt_store_check_result *out_result, char *why, size_t why_bytes)
{
    struct kvt_check *check = check_make(config, why, why_bytes);
    if (check == NULL) {
        return KVT_ERR_NOMEM;
    }
    kvt_status status = arguments_check(check);
    if (status == KVT_OK) {
        status = check_all(check);
    }
    bool repair =
        status == KVT_OK && (config->flags & KVT_STORE_REPAIR) != 0 && is_damaged(&check->result);
    if (repair) {
        status = kvt_check_repair(check);
    }
    struct kvt_store_check_result result = check->result;
    check_free(check);
    result.damaged = is_damaged(&result);
    if (repair && status == KVT_OK) {
        bool clean = false;
        status = look_again(config, why, why_bytes, &clean);
        if (status == KVT_OK && !clean) {
            (void)snprintf(why, why_bytes,
                           "store '%s': it is damaged still after repair: begin with a new folder",
                           config->folders[0]);
            status = KVT_ERR_CORRUPT;
        }
        result.repaired = clean;
    }
    if (status == KVT_OK) {
        *out_result = result;
    }
    return status;
}
