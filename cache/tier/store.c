#define XXH_INLINE_ALL
#include <xxhash.h>

#include "cache/base/crash_point.h"
#include "cache/tier/store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "headers are little endian and written as they lie in memory"
#endif

#define HEADER_FILE_NEW KVT_STORE_HEADER_FILE ".new"
#define FOLDER_MODE 0700
#define FILE_MODE 0600
#define LOCK_RETRY_NS 50000000
#define PID_TEXT_BYTES 32
#define DIRECT_ALIGN 4096u
/* Of the file system, at least one part in so many, at most so many bytes, stay free. */
#define FLOOR_DIVISOR 100u
#define FLOOR_BYTES_MAX (UINT64_C(1) << 30)

#define MIB_OF(bytes) ((unsigned long long)((bytes) >> 20))

/* ---- the header's bytes ---- */

static const char magic[8] = {'k', 'v', 't', 's', 't', 'o', 'r', 'e'};

struct header_form {
    char magic[8];
    uint32_t version, header_bytes;
    unsigned char id[KVT_CATALOG_ID_BYTES];
    unsigned char catalog_id[KVT_CATALOG_ID_BYTES];
    uint32_t index, page_tokens;
    uint64_t extent_bytes, data_bytes, prewritten_extents;
};
_Static_assert(sizeof(struct header_form) == 80, "the header's form is what FORMAT.md says");

#define HEADER_CHECKSUM_AT (KVT_STORE_HEADER_BYTES - sizeof(uint64_t))

void kvt_store_header_encode(const struct kvt_store_header *header,
                             unsigned char out_bytes[KVT_STORE_HEADER_BYTES])
{
    struct header_form form = {
        .version = KVT_STORE_VERSION,
        .header_bytes = KVT_STORE_HEADER_BYTES,
        .index = header->index,
        .page_tokens = header->page_tokens,
        .extent_bytes = header->extent_bytes,
        .data_bytes = header->data_bytes,
        .prewritten_extents = header->prewritten_extents,
    };
    memcpy(form.magic, magic, sizeof(magic));
    memcpy(form.id, header->id, sizeof(form.id));
    memcpy(form.catalog_id, header->catalog_id, sizeof(form.catalog_id));
    memset(out_bytes, 0, KVT_STORE_HEADER_BYTES);
    memcpy(out_bytes, &form, sizeof(form));
    uint64_t checksum = XXH3_64bits(out_bytes, HEADER_CHECKSUM_AT);
    memcpy(out_bytes + HEADER_CHECKSUM_AT, &checksum, sizeof(checksum));
}

kvt_status kvt_store_header_decode(const unsigned char *header, size_t bytes,
                                   struct kvt_store_header *out_header, char *out_why,
                                   size_t why_bytes)
{
    struct header_form form;
    if (bytes < sizeof(form) || memcmp(header, magic, sizeof(magic)) != 0) {
        (void)snprintf(out_why, why_bytes, "is not the header of a store");
        return KVT_ERR_CORRUPT;
    }
    memcpy(&form, header, sizeof(form));
    /* The version comes first: what follows it is known only of the versions that are known. */
    if (form.version != KVT_STORE_VERSION) {
        (void)snprintf(out_why, why_bytes, "has format version %u, this program knows version %u",
                       form.version, KVT_STORE_VERSION);
        return KVT_ERR_VERSION;
    }
    uint64_t checksum = 0;
    if (bytes >= KVT_STORE_HEADER_BYTES) {
        memcpy(&checksum, header + HEADER_CHECKSUM_AT, sizeof(checksum));
    }
    if (bytes < KVT_STORE_HEADER_BYTES || form.header_bytes != KVT_STORE_HEADER_BYTES ||
        checksum != XXH3_64bits(header, HEADER_CHECKSUM_AT)) {
        (void)snprintf(out_why, why_bytes, "is damaged: its checksum does not fit");
        return KVT_ERR_CORRUPT;
    }
    if (form.extent_bytes == 0 || form.extent_bytes % KVT_STORE_HEADER_BYTES != 0 ||
        form.data_bytes % form.extent_bytes != 0 ||
        form.data_bytes / form.extent_bytes > KVT_STORE_EXTENTS_MAX ||
        form.index >= KVT_CATALOG_STORES_MAX) {
        (void)snprintf(out_why, why_bytes, "is damaged: its numbers make no sense");
        return KVT_ERR_CORRUPT;
    }
    struct kvt_store_header decoded = {.index = form.index,
                                       .page_tokens = form.page_tokens,
                                       .extent_bytes = form.extent_bytes,
                                       .data_bytes = form.data_bytes,
                                       .prewritten_extents = form.prewritten_extents};
    memcpy(decoded.id, form.id, sizeof(decoded.id));
    memcpy(decoded.catalog_id, form.catalog_id, sizeof(decoded.catalog_id));
    *out_header = decoded;
    return KVT_OK;
}

/* ---- small helpers ---- */

kvt_status kvt_store_random(void *out_bytes, size_t bytes)
{
    unsigned char *at = out_bytes;
    while (bytes > 0) {
        ssize_t got = getrandom(at, bytes, 0);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            return KVT_ERR_IO;
        }
        at += got;
        bytes -= (size_t)got;
    }
    return KVT_OK;
}

/* Up to `bytes` of the file's beginning; -1 on failure. */
static ssize_t read_whole(int fd, void *buffer, size_t bytes)
{
    size_t have = 0;
    while (have < bytes) {
        ssize_t got = pread(fd, (char *)buffer + have, bytes - have, (off_t)have);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return -1;
        }
        if (got == 0) {
            break;
        }
        have += (size_t)got;
    }
    return (ssize_t)have;
}

static bool write_whole(int fd, const void *buffer, size_t bytes, off_t offset)
{
    size_t done = 0;
    while (done < bytes) {
        ssize_t put = pwrite(fd, (const char *)buffer + done, bytes - done, offset + (off_t)done);
        if (put < 0 && errno == EINTR) {
            continue;
        }
        if (put <= 0) {
            errno = put == 0 ? ENOSPC : errno;
            return false;
        }
        done += (size_t)put;
    }
    return true;
}

/* The remedy that goes with an errno of opening or making a file. */
static const char *remedy_of(int error)
{
    switch (error) {
    case EACCES:
    case EPERM:
        return "give the folder to the user that runs this, or name another one";
    case EROFS:
        return "the file system is read-only: remount it, or name another folder";
    case ENOENT:
        return "the folder above it is missing: make it, or mount its drive";
    case ENOTDIR:
    case EEXIST:
        return "it is a file, or a part of its path is: name a folder";
    case ENOSPC:
    case EDQUOT:
        return "the file system is full: make room, or give a smaller size";
    case EMFILE:
    case ENFILE:
        return "too many files are open: raise the limit (ulimit -n)";
    default:
        return "see whether the drive works";
    }
}

static kvt_status say_errno(const char *folder, const char *doing, char *why, size_t why_bytes)
{
    int error = errno;
    (void)snprintf(why, why_bytes, "nvme store '%s': %s: %s (uid %u): %s", folder, doing,
                   strerror(error), (unsigned)geteuid(), remedy_of(error));
    return KVT_ERR_IO;
}

/* ---- folder, lock ---- */

/* The folder's name is in the one above it, which has to be durable too. */
static bool folder_name_sync(int folder_fd)
{
    int above_fd = openat(folder_fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (above_fd < 0) {
        return false;
    }
    bool synced = fsync(above_fd) == 0;
    int error = errno;
    (void)close(above_fd);
    errno = error;
    return synced;
}

static kvt_status folder_open(struct kvt_store *store, char *why, size_t why_bytes)
{
    bool made = mkdir(store->folder, FOLDER_MODE) == 0;
    if (!made && errno != EEXIST) {
        return say_errno(store->folder, "cannot make the folder", why, why_bytes);
    }
    store->folder_fd = open(store->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (store->folder_fd < 0) {
        return say_errno(store->folder, "cannot open the folder", why, why_bytes);
    }
    if (made && !folder_name_sync(store->folder_fd)) {
        return say_errno(store->folder, "cannot flush the folder above", why, why_bytes);
    }
    struct stat is;
    if (fstat(store->folder_fd, &is) != 0) {
        return say_errno(store->folder, "cannot look at the folder", why, why_bytes);
    }
    if (is.st_uid != geteuid()) {
        (void)snprintf(
            why, why_bytes,
            "nvme store '%s': the folder belongs to uid %u, this runs as uid %u: chown it, "
            "or name a folder of your own",
            store->folder, (unsigned)is.st_uid, (unsigned)geteuid());
        return KVT_ERR_INVAL;
    }
    if ((is.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
        (void)snprintf(why, why_bytes,
                       "nvme store '%s': others may write to the folder (mode %04o): chmod go-w it",
                       store->folder, (unsigned)(is.st_mode & 07777));
        return KVT_ERR_INVAL;
    }
    return KVT_OK;
}

static void lock_file_read(const struct kvt_store *store, char *pid, size_t pid_bytes)
{
    ssize_t got = -1;
    int fd = openat(store->folder_fd, KVT_STORE_LOCK_FILE, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd >= 0) {
        got = read_whole(fd, pid, pid_bytes - 1);
        (void)close(fd);
    }
    pid[got > 0 ? got : 0] = '\0';
    pid[strspn(pid, "0123456789")] = '\0';
}

/* A text for people: where it cannot be written the lock holds all the same. */
static void lock_file_write(const struct kvt_store *store)
{
    char pid[PID_TEXT_BYTES];
    int bytes = snprintf(pid, sizeof(pid), "%d\n", (int)getpid());
    int fd = openat(store->folder_fd, KVT_STORE_LOCK_FILE,
                    O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, FILE_MODE);
    if (fd >= 0) {
        (void)write_whole(fd, pid, (size_t)bytes, 0);
        (void)close(fd);
    }
}

static kvt_status lock_take(struct kvt_store *store, char *why, size_t why_bytes)
{
    uint64_t until_ns = kvt_now_ns(&kvt_clock_monotonic) + KVT_STORE_LOCK_WAIT_NS;
    while (flock(store->data_fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno == EINTR) {
            continue;
        }
        if (errno != EWOULDBLOCK) {
            return say_errno(store->folder, "cannot lock the data file", why, why_bytes);
        }
        if (kvt_now_ns(&kvt_clock_monotonic) >= until_ns) {
            char pid[PID_TEXT_BYTES];
            lock_file_read(store, pid, sizeof(pid));
            (void)snprintf(why, why_bytes,
                           "nvme store '%s': process %s has it open: end that one, or name another "
                           "folder",
                           store->folder, pid[0] != '\0' ? pid : "(unknown)");
            return KVT_ERR_BUSY;
        }
        const struct timespec pause = {0, LOCK_RETRY_NS};
        (void)nanosleep(&pause, NULL);
    }
    lock_file_write(store);
    return KVT_OK;
}

/* Reads the header of an open folder. STALE: there is none. */
static kvt_status header_load(int folder_fd, const char *folder,
                              struct kvt_store_header *out_header, char *why, size_t why_bytes)
{
    int fd = openat(folder_fd, KVT_STORE_HEADER_FILE, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) {
        if (errno == ENOENT) {
            (void)snprintf(why, why_bytes, "nvme store '%s': there is no store in this folder",
                           folder);
            return KVT_ERR_STALE;
        }
        return say_errno(folder, "cannot open " KVT_STORE_HEADER_FILE, why, why_bytes);
    }
    unsigned char bytes[KVT_STORE_HEADER_BYTES];
    ssize_t got = read_whole(fd, bytes, sizeof(bytes));
    int error = errno;
    (void)close(fd);
    if (got < 0) {
        errno = error;
        return say_errno(folder, "cannot read " KVT_STORE_HEADER_FILE, why, why_bytes);
    }
    char rest[128];
    kvt_status status = kvt_store_header_decode(bytes, (size_t)got, out_header, rest, sizeof(rest));
    if (status != KVT_OK) {
        (void)snprintf(why, why_bytes,
                       "nvme store '%s': " KVT_STORE_HEADER_FILE
                       " %s; name a new folder, or remove this one to start anew",
                       folder, rest);
    }
    return status;
}

kvt_status kvt_store_header_read(const char *folder, struct kvt_store_header *out_header, char *why,
                                 size_t why_bytes)
{
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return say_errno(folder, "cannot open the folder", why, why_bytes);
    }
    kvt_status status = header_load(fd, folder, out_header, why, why_bytes);
    (void)close(fd);
    return status;
}

kvt_status kvt_store_open(struct kvt_store *store, const struct kvt_memory *mem, const char *folder,
                          char *why, size_t why_bytes)
{
    *store = (struct kvt_store){.folder_fd = -1, .data_fd = -1};
    store->folder_bytes = strlen(folder) + 1;
    store->folder = kvt_alloc(mem, store->folder_bytes);
    if (store->folder == NULL) {
        (void)snprintf(why, why_bytes, "nvme store '%s': no memory", folder);
        return KVT_ERR_NOMEM;
    }
    memcpy(store->folder, folder, store->folder_bytes);
    kvt_status status = folder_open(store, why, why_bytes);
    if (status != KVT_OK) {
        goto undo_store;
    }
    bool made = faccessat(store->folder_fd, KVT_STORE_DATA_FILE, F_OK, AT_SYMLINK_NOFOLLOW) != 0;
    store->data_fd = openat(store->folder_fd, KVT_STORE_DATA_FILE,
                            O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, FILE_MODE);
    if (store->data_fd < 0) {
        status = say_errno(folder, "cannot open " KVT_STORE_DATA_FILE, why, why_bytes);
        goto undo_store;
    }
    status = lock_take(store, why, why_bytes);
    if (status != KVT_OK) {
        goto undo_store;
    }
    store->data_made = made; /* from here on nobody else has it */
    status = header_load(store->folder_fd, folder, &store->header, why, why_bytes);
    if (status != KVT_OK && status != KVT_ERR_STALE) {
        goto undo_store;
    }
    store->has_header = status == KVT_OK;
    return KVT_OK;

undo_store:
    kvt_store_close(store, mem);
    return status;
}

void kvt_store_close(struct kvt_store *store, const struct kvt_memory *mem)
{
    /* An opening that was refused leaves nothing: the folder may be where a drive should be
     * mounted. */
    if (store->data_made && store->data_fd >= 0 &&
        faccessat(store->folder_fd, KVT_STORE_HEADER_FILE, F_OK, AT_SYMLINK_NOFOLLOW) != 0) {
        (void)unlinkat(store->folder_fd, KVT_STORE_DATA_FILE, 0);
        (void)unlinkat(store->folder_fd, KVT_STORE_LOCK_FILE, 0);
    }
    /* Also lets go of the lock, unless the kernel still holds the file for a request. */
    if (store->data_fd >= 0) {
        (void)close(store->data_fd);
    }
    if (store->folder_fd >= 0) {
        (void)close(store->folder_fd);
    }
    kvt_free(mem, store->folder, store->folder_bytes);
    *store = (struct kvt_store){.folder_fd = -1, .data_fd = -1};
}

/* ---- the data file ---- */

kvt_status kvt_store_room_check(const struct kvt_store *store, uint64_t data_bytes,
                                uint64_t beside_bytes, char *why, size_t why_bytes)
{
    if (store->has_header && data_bytes <= store->header.data_bytes) {
        return KVT_OK; /* it had its room; what became of that is found out by using it */
    }
    struct statvfs fs;
    struct stat is;
    if (fstatvfs(store->folder_fd, &fs) != 0 || fstat(store->data_fd, &is) != 0) {
        return say_errno(store->folder, "cannot ask how much is free", why, why_bytes);
    }
    uint64_t free_bytes = (uint64_t)fs.f_bavail * fs.f_frsize;
    uint64_t floor_bytes = (uint64_t)fs.f_blocks * fs.f_frsize / FLOOR_DIVISOR;
    floor_bytes = floor_bytes < FLOOR_BYTES_MAX ? floor_bytes : FLOOR_BYTES_MAX;
    uint64_t have_bytes = (uint64_t)is.st_blocks * 512u;
    uint64_t want_bytes = data_bytes + KVT_STORE_SPARE_BYTES;
    uint64_t need_bytes = want_bytes > have_bytes ? want_bytes - have_bytes : 0;
    need_bytes += beside_bytes;
    if (need_bytes == 0 || need_bytes + floor_bytes <= free_bytes) {
        return KVT_OK;
    }
    (void)snprintf(
        why, why_bytes,
        "nvme store '%s': no space: %llu MiB more are needed, %llu MiB are free, of which "
        "%llu MiB stay so: give a smaller size, or make room",
        store->folder, MIB_OF(need_bytes), MIB_OF(free_bytes), MIB_OF(floor_bytes));
    return KVT_ERR_IO;
}

/* Claims the file's blocks, so that a full file system is an answer here and not at some write.
 * Where it cannot be done (the file system does not know how, or a file that had its size already
 * finds it full) the file is sparse. */
static kvt_status data_allocate(struct kvt_store *store, const struct kvt_log *log,
                                uint64_t file_bytes, bool grows, char *why, size_t why_bytes)
{
    int rc;
    do {
        rc = fallocate(store->data_fd, 0, 0, (off_t)file_bytes);
    } while (rc != 0 && errno == EINTR);
    if (rc == 0) {
        return KVT_OK;
    }
    int error = errno;
    bool full = error == ENOSPC || error == EDQUOT;
    if (error != EOPNOTSUPP && error != ENOSYS && (grows || !full)) {
        return say_errno(store->folder, "cannot allocate the data file", why, why_bytes);
    }
    if (ftruncate(store->data_fd, (off_t)file_bytes) != 0) {
        return say_errno(store->folder, "cannot size the data file", why, why_bytes);
    }
    store->sparse = true;
    kvt_log(
        log, KVT_LOG_WARNING,
        "nvme store '%s': its data file cannot be allocated ahead (%s): it is sparse, writes cost "
        "more and may meet a full drive; %s",
        store->folder, strerror(error),
        full ? "make room on the file system" : "use a file system that can (ext4, xfs)");
    return KVT_OK;
}

/* O_DIRECT is believed only after a read and a write of one block, the spare one. */
static bool direct_works(int fd, uint64_t spare_offset, int *out_error)
{
    static _Alignas(DIRECT_ALIGN) const unsigned char zeros[DIRECT_ALIGN];
    _Alignas(DIRECT_ALIGN) unsigned char block[DIRECT_ALIGN];
    if (pwrite(fd, zeros, sizeof(zeros), (off_t)spare_offset) != (ssize_t)sizeof(zeros) ||
        pread(fd, block, sizeof(block), (off_t)spare_offset) != (ssize_t)sizeof(block)) {
        *out_error = errno;
        return false;
    }
    return true;
}

static void direct_probe(struct kvt_store *store, const struct kvt_log *log, uint64_t spare_offset)
{
    int flags = fcntl(store->data_fd, F_GETFL);
    int error = 0;
    if (flags >= 0 && fcntl(store->data_fd, F_SETFL, flags | O_DIRECT) == 0) {
        if (direct_works(store->data_fd, spare_offset, &error)) {
            store->direct = true;
            return;
        }
        (void)fcntl(store->data_fd, F_SETFL, flags);
    } else {
        error = errno;
    }
    kvt_log(
        log, KVT_LOG_WARNING,
        "nvme store '%s': no O_DIRECT (%s): data goes through the page cache, which costs memory "
        "and time; use a file system that has it (ext4, xfs)",
        store->folder, strerror(error));
}

kvt_status kvt_store_data_open(struct kvt_store *store, const struct kvt_log *log,
                               uint64_t data_bytes, bool buffered, char *why, size_t why_bytes)
{
    struct stat is;
    if (fstat(store->data_fd, &is) != 0) {
        return say_errno(store->folder, "cannot look at the data file", why, why_bytes);
    }
    uint64_t file_bytes = data_bytes + KVT_STORE_SPARE_BYTES;
    uint64_t should_bytes = store->header.data_bytes + KVT_STORE_SPARE_BYTES;
    if (store->has_header && (uint64_t)is.st_size < should_bytes) {
        kvt_log(
            log, KVT_LOG_WARNING,
            "nvme store '%s': its data file was cut to %llu of %llu bytes: pages that lay there "
            "will be misses",
            store->folder, (unsigned long long)is.st_size, (unsigned long long)should_bytes);
    }
    if ((uint64_t)is.st_size > file_bytes) {
        KVT_CRASH_POINT("before_shrink");
        if (ftruncate(store->data_fd, (off_t)file_bytes) != 0) {
            return say_errno(store->folder, "cannot shrink the data file", why, why_bytes);
        }
        KVT_CRASH_POINT("after_shrink");
    }
    bool grows = !store->has_header || data_bytes > store->header.data_bytes;
    if (grows) {
        KVT_CRASH_POINT("before_growth");
    }
    kvt_status status = data_allocate(store, log, file_bytes, grows, why, why_bytes);
    if (status != KVT_OK) {
        /* Whatever was claimed goes back; a new file goes altogether. */
        if ((uint64_t)is.st_size < file_bytes) {
            (void)!ftruncate(store->data_fd, is.st_size);
        }
        if (!store->has_header && is.st_size == 0) {
            (void)unlinkat(store->folder_fd, KVT_STORE_DATA_FILE, 0);
        }
        return status;
    }
    if (grows) {
        /* The header will speak of this size: it must not be durable before the size is. */
        if (fsync(store->data_fd) != 0) {
            return say_errno(store->folder, "cannot flush the data file", why, why_bytes);
        }
        KVT_CRASH_POINT("after_growth");
    }
    if (!buffered) {
        direct_probe(store, log, data_bytes);
    }
    return KVT_OK;
}

kvt_status kvt_store_header_write(struct kvt_store *store, const struct kvt_store_header *header,
                                  char *why, size_t why_bytes)
{
    unsigned char bytes[KVT_STORE_HEADER_BYTES];
    kvt_store_header_encode(header, bytes);
    int fd = openat(store->folder_fd, HEADER_FILE_NEW,
                    O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, FILE_MODE);
    if (fd < 0) {
        return say_errno(store->folder, "cannot make " HEADER_FILE_NEW, why, why_bytes);
    }
    bool written = write_whole(fd, bytes, sizeof(bytes), 0) && fsync(fd) == 0;
    int error = errno;
    (void)close(fd);
    if (written) {
        KVT_CRASH_POINT("before_header_rename");
        written = renameat(store->folder_fd, HEADER_FILE_NEW, store->folder_fd,
                           KVT_STORE_HEADER_FILE) == 0 &&
                  fsync(store->folder_fd) == 0;
        error = errno;
    }
    if (!written) {
        (void)unlinkat(store->folder_fd, HEADER_FILE_NEW, 0);
        errno = error;
        return say_errno(store->folder, "cannot write " KVT_STORE_HEADER_FILE, why, why_bytes);
    }
    KVT_CRASH_POINT("after_header_rename");
    store->header = *header;
    store->has_header = true;
    return KVT_OK;
}

uint64_t kvt_store_catalog_bytes(const struct kvt_store *store)
{
    struct stat is;
    if (fstatat(store->folder_fd, KVT_STORE_CATALOG_DATA, &is, AT_SYMLINK_NOFOLLOW) != 0) {
        return 0;
    }
    uint64_t allocated = (uint64_t)is.st_blocks * 512u;
    return allocated > (uint64_t)is.st_size ? allocated : (uint64_t)is.st_size;
}
