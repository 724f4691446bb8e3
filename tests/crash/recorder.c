/*
 * LD_PRELOAD: writes down what happens to files below KVT_RECORD_ROOT, into KVT_RECORD_LOG.
 *
 * Each call is made, and noted, while the log is locked: so the log has the order of the calls,
 * over all threads and processes. The log is opened anew each time, because the catalog's process
 * closes descriptors that it does not know.
 */
/* Its inline functions would stand in the way of the functions of the same names here. */
#undef _FORTIFY_SOURCE

#include "tests/crash/record.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define FILE_MODE 0600

/* ---- the log: plain system calls, so that nothing is noted twice ---- */

static int log_lock(void)
{
    const char *path = getenv("KVT_RECORD_LOG");
    if (path == NULL) {
        return -1;
    }
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC,
                          FILE_MODE);
    while (fd >= 0 && flock(fd, LOCK_EX) != 0 && errno == EINTR) {
    }
    return fd;
}

static void log_unlock(int fd)
{
    if (fd >= 0) {
        int error = errno;
        (void)syscall(SYS_close, fd);
        errno = error;
    }
}

static void log_bytes(int fd, const void *bytes, size_t count)
{
    if (syscall(SYS_write, fd, bytes, count) != (long)count) {
        abort(); /* an incomplete log proves nothing */
    }
}

static void log_put(int fd, struct record *record, const void *data)
{
    int error = errno;
    record->magic = RECORD_MAGIC;
    record->pid = (uint32_t)getpid();
    log_bytes(fd, record, sizeof(*record));
    if (record->kind == RECORD_WRITE && record->bytes > 0) {
        static const char zeros[8];
        log_bytes(fd, data, (size_t)record->bytes);
        log_bytes(fd, zeros, (size_t)(record_padded(record->bytes) - record->bytes));
    }
    errno = error;
}

/* Below the root? Its path from there then. */
static bool below_root(const char *path, char out[RECORD_PATH_BYTES])
{
    const char *root = getenv("KVT_RECORD_ROOT");
    size_t bytes = root != NULL ? strlen(root) : 0;
    if (bytes == 0 || strncmp(path, root, bytes) != 0 || (path[bytes] != '/' && path[bytes] != 0)) {
        return false;
    }
    (void)snprintf(out, RECORD_PATH_BYTES, "%s", path[bytes] == '/' ? path + bytes + 1 : "");
    return true;
}

static bool fd_path(int fd, char out[RECORD_PATH_BYTES])
{
    char link[64], path[1024];
    int error = errno;
    (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t bytes = readlink(link, path, sizeof(path) - 1);
    errno = error;
    if (bytes <= 0) {
        return false;
    }
    path[bytes] = '\0';
    return below_root(path, out);
}

static bool at_path(int folder, const char *name, char out[RECORD_PATH_BYTES])
{
    if (name[0] == '/') {
        return below_root(name, out);
    }
    char above[RECORD_PATH_BYTES];
    if (folder == AT_FDCWD || !fd_path(folder, above)) {
        return false;
    }
    (void)snprintf(out, RECORD_PATH_BYTES, "%.120s%s%.120s", above, above[0] != '\0' ? "/" : "",
                   name);
    return true;
}

/* ---- opening ---- */

static int open_noted(int folder, const char *name, int flags, mode_t mode)
{
    struct record record = {.kind = RECORD_CREATE};
    if (!at_path(folder, name, record.path) || (flags & (O_CREAT | O_TRUNC)) == 0) {
        return (int)syscall(SYS_openat, folder, name, flags, mode);
    }
    int log = log_lock();
    int error = errno;
    bool there = faccessat(folder, name, F_OK, 0) == 0;
    errno = error;
    int fd = (int)syscall(SYS_openat, folder, name, flags, mode);
    if (fd >= 0 && log >= 0) {
        if (!there) {
            log_put(log, &record, NULL);
        } else if ((flags & O_TRUNC) != 0) {
            record.kind = RECORD_TRUNCATE;
            log_put(log, &record, NULL);
        }
    }
    log_unlock(log);
    return fd;
}

static mode_t mode_of(int flags, va_list list)
{
    return (flags & (O_CREAT | O_TMPFILE)) != 0 ? (mode_t)va_arg(list, unsigned) : 0;
}

#define OPEN(name)                                                                                 \
    EXPORT int name(const char *path, int flags, ...);                                             \
    EXPORT int name(const char *path, int flags, ...)                                              \
    {                                                                                              \
        va_list list;                                                                              \
        va_start(list, flags);                                                                     \
        mode_t mode = mode_of(flags, list);                                                        \
        va_end(list);                                                                              \
        return open_noted(AT_FDCWD, path, flags, mode);                                            \
    }
#define OPENAT(name)                                                                               \
    EXPORT int name(int folder, const char *path, int flags, ...);                                 \
    EXPORT int name(int folder, const char *path, int flags, ...)                                  \
    {                                                                                              \
        va_list list;                                                                              \
        va_start(list, flags);                                                                     \
        mode_t mode = mode_of(flags, list);                                                        \
        va_end(list);                                                                              \
        return open_noted(folder, path, flags, mode);                                              \
    }
OPEN(open)
OPEN(open64)
OPEN(__open_2)
OPEN(__open64_2)
OPENAT(openat)
OPENAT(openat64)
OPENAT(__openat_2)
OPENAT(__openat64_2)

/* ---- writing ---- */

static ssize_t write_noted(int fd, const void *data, size_t bytes, off_t offset, bool positioned)
{
    struct record record = {.kind = RECORD_WRITE};
    if (!fd_path(fd, record.path)) {
        return positioned ? syscall(SYS_pwrite64, fd, data, bytes, offset)
                          : syscall(SYS_write, fd, data, bytes);
    }
    int log = log_lock();
    if (!positioned) {
        offset = (off_t)syscall(SYS_lseek, fd, (off_t)0, SEEK_CUR);
    }
    ssize_t put = positioned ? syscall(SYS_pwrite64, fd, data, bytes, offset)
                             : syscall(SYS_write, fd, data, bytes);
    if (put > 0 && log >= 0) {
        record.offset = (uint64_t)offset;
        record.bytes = (uint64_t)put;
        record.synced = (fcntl(fd, F_GETFL) & O_DSYNC) != 0;
        log_put(log, &record, data);
    }
    log_unlock(log);
    return put;
}

static ssize_t writev_noted(int fd, const struct iovec *parts, int count, off_t offset,
                            bool positioned)
{
    char path[RECORD_PATH_BYTES];
    if (!fd_path(fd, path)) {
        return positioned ? syscall(SYS_pwritev, fd, parts, count, offset, 0L)
                          : syscall(SYS_writev, fd, parts, count);
    }
    size_t bytes = 0;
    for (int i = 0; i < count; i++) {
        bytes += parts[i].iov_len;
    }
    char *whole = malloc(bytes > 0 ? bytes : 1);
    if (whole == NULL) {
        abort();
    }
    size_t at = 0;
    for (int i = 0; i < count; i++) {
        memcpy(whole + at, parts[i].iov_base, parts[i].iov_len);
        at += parts[i].iov_len;
    }
    ssize_t put = write_noted(fd, whole, bytes, offset, positioned);
    free(whole);
    return put;
}

EXPORT ssize_t write(int fd, const void *data, size_t bytes)
{
    return write_noted(fd, data, bytes, 0, false);
}
EXPORT ssize_t pwrite(int fd, const void *data, size_t bytes, off_t offset)
{
    return write_noted(fd, data, bytes, offset, true);
}
EXPORT ssize_t pwrite64(int fd, const void *data, size_t bytes, off_t offset)
{
    return write_noted(fd, data, bytes, offset, true);
}
EXPORT ssize_t writev(int fd, const struct iovec *parts, int count)
{
    return writev_noted(fd, parts, count, 0, false);
}
EXPORT ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t offset)
{
    return writev_noted(fd, parts, count, offset, true);
}
EXPORT ssize_t pwritev64(int fd, const struct iovec *parts, int count, off_t offset)
{
    return writev_noted(fd, parts, count, offset, true);
}

/* ---- sizes and syncs ---- */

/* sizes: the file's size after the call, where that changes it. */
static int noted(int fd, enum record_kind kind, long number, uint64_t a, uint64_t b, uint64_t c)
{
    struct record record = {.kind = (uint32_t)kind};
    if (!fd_path(fd, record.path)) {
        return (int)syscall(number, fd, a, b, c);
    }
    int log = log_lock();
    struct stat before = {0}, after = {0};
    (void)fstat(fd, &before);
    int rc = (int)syscall(number, fd, a, b, c);
    int error = errno;
    (void)fstat(fd, &after);
    errno = error;
    record.offset = (uint64_t)after.st_size;
    if (rc == 0 && log >= 0 && (kind != RECORD_TRUNCATE || before.st_size != after.st_size)) {
        log_put(log, &record, NULL);
    }
    log_unlock(log);
    return rc;
}

EXPORT int ftruncate(int fd, off_t bytes)
{
    return noted(fd, RECORD_TRUNCATE, SYS_ftruncate, (uint64_t)bytes, 0, 0);
}
EXPORT int ftruncate64(int fd, off_t bytes)
{
    return noted(fd, RECORD_TRUNCATE, SYS_ftruncate, (uint64_t)bytes, 0, 0);
}
EXPORT int fallocate(int fd, int mode, off_t offset, off_t bytes)
{
    return noted(fd, RECORD_TRUNCATE, SYS_fallocate, (uint64_t)mode, (uint64_t)offset,
                 (uint64_t)bytes);
}
EXPORT int fallocate64(int fd, int mode, off_t offset, off_t bytes)
{
    return noted(fd, RECORD_TRUNCATE, SYS_fallocate, (uint64_t)mode, (uint64_t)offset,
                 (uint64_t)bytes);
}
EXPORT int fsync(int fd) { return noted(fd, RECORD_SYNC, SYS_fsync, 0, 0, 0); }
EXPORT int fdatasync(int fd) { return noted(fd, RECORD_SYNC, SYS_fdatasync, 0, 0, 0); }

/* ---- names ---- */

EXPORT int renameat(int from_folder, const char *from, int to_folder, const char *to)
{
    struct record record = {.kind = RECORD_RENAME};
    if (!at_path(from_folder, from, record.path) || !at_path(to_folder, to, record.other)) {
        return (int)syscall(SYS_renameat, from_folder, from, to_folder, to);
    }
    int log = log_lock();
    int rc = (int)syscall(SYS_renameat, from_folder, from, to_folder, to);
    if (rc == 0 && log >= 0) {
        log_put(log, &record, NULL);
    }
    log_unlock(log);
    return rc;
}
EXPORT int rename(const char *from, const char *to)
{
    return renameat(AT_FDCWD, from, AT_FDCWD, to);
}
EXPORT int unlinkat(int folder, const char *name, int flags)
{
    struct record record = {.kind = RECORD_UNLINK};
    if (!at_path(folder, name, record.path)) {
        return (int)syscall(SYS_unlinkat, folder, name, flags);
    }
    int log = log_lock();
    int rc = (int)syscall(SYS_unlinkat, folder, name, flags);
    if (rc == 0 && log >= 0) {
        log_put(log, &record, NULL);
    }
    log_unlock(log);
    return rc;
}
EXPORT int unlink(const char *name) { return unlinkat(AT_FDCWD, name, 0); }
EXPORT int mkdirat(int folder, const char *name, mode_t mode)
{
    struct record record = {.kind = RECORD_MKDIR};
    if (!at_path(folder, name, record.path)) {
        return (int)syscall(SYS_mkdirat, folder, name, mode);
    }
    int log = log_lock();
    int rc = (int)syscall(SYS_mkdirat, folder, name, mode);
    if (rc == 0 && log >= 0) {
        log_put(log, &record, NULL);
    }
    log_unlock(log);
    return rc;
}
EXPORT int mkdir(const char *name, mode_t mode) { return mkdirat(AT_FDCWD, name, mode); }

/* What the worker was told so far: "a 7", prompt 7 is durable. */
EXPORT void kvt_record_mark(const char *line);
EXPORT void kvt_record_mark(const char *line)
{
    struct record record = {.kind = RECORD_MARK};
    (void)snprintf(record.path, sizeof(record.path), "%s", line);
    int log = log_lock();
    if (log >= 0) {
        log_put(log, &record, NULL);
    }
    log_unlock(log);
}
