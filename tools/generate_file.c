#include "tools/generate_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "tools/options.h"

#define WRITE_BYTES_MAX (1U << 20)
#define NAME_TRIES 100U
#define MODE_NEW 0666 /* the umask takes from it */
#define MODE_KEPT 0777

/* ---- bytes ---- */

static bool write_plain(int fd, const char *text, uint64_t bytes)
{
    for (uint64_t at = 0; at < bytes;) {
        uint64_t left = bytes - at;
        ssize_t wrote =
            write(fd, text + at, (size_t)(left < WRITE_BYTES_MAX ? left : WRITE_BYTES_MAX));
        if (wrote < 0 && errno != EINTR) {
            return false;
        }
        at += wrote > 0 ? (uint64_t)wrote : 0;
    }
    return true;
}

static bool write_gzip(int fd, const char *text, uint64_t bytes)
{
    /* gzclose() closes its descriptor, and this one has still to be synced. */
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    gzFile file = copy >= 0 ? gzdopen(copy, "wb9") : NULL;
    if (file == NULL) {
        int kept = copy >= 0 ? ENOMEM : errno;
        if (copy >= 0) {
            (void)close(copy);
        }
        errno = kept;
        return false;
    }
    bool good = true;
    for (uint64_t at = 0; good && at < bytes;) {
        uint64_t left = bytes - at;
        unsigned step = left < WRITE_BYTES_MAX ? (unsigned)left : WRITE_BYTES_MAX;
        good = gzwrite(file, text + at, step) == (int)step;
        at += step;
    }
    int kept = errno;
    bool closed = gzclose(file) == Z_OK;
    if (!good) {
        errno = kept;
    }
    return closed && good;
}

static bool write_bytes(int fd, bool gzip, const char *text, uint64_t bytes)
{
    errno = 0;
    return gzip ? write_gzip(fd, text, bytes) : write_plain(fd, text, bytes);
}

static bool say(char *why, uint64_t why_bytes, const char *reason)
{
    (void)snprintf(why, (size_t)why_bytes, "%s", reason);
    return false;
}

/* The reason that errno gives. */
static bool say_errno(char *why, uint64_t why_bytes)
{
    return say(why, why_bytes, errno != 0 ? strerror(errno) : "the compressor failed");
}

/* ---- in place ---- */

static bool write_direct(const char *path, bool gzip, const char *text, uint64_t bytes, char *why,
                         uint64_t why_bytes)
{
    int fd = path != NULL ? open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, MODE_NEW)
                          : STDOUT_FILENO;
    if (fd < 0) {
        return say_errno(why, why_bytes);
    }
    bool good = write_bytes(fd, gzip, text, bytes) || say_errno(why, why_bytes);
    if (path != NULL && close(fd) != 0 && good) {
        good = say_errno(why, why_bytes);
    }
    return good;
}

/* ---- beside, then renamed ---- */

/* A new file in the folder of `target`, its name in `name`, removed by a signal from now on. -1
 * with errno: none. */
static int open_beside(const char *target, char name[PATH_MAX])
{
    const char *slash = strrchr(target, '/');
    int folder_bytes = slash != NULL ? (int)(slash - target) + 1 : 0;
    int fd = -1;
    for (unsigned i = 0; fd < 0 && i < NAME_TRIES; i++) {
        int n = snprintf(name, PATH_MAX, "%.*s.kvtier-%ld-%u.tmp", folder_bytes, target,
                         (long)getpid(), i);
        if (n < 0 || n >= PATH_MAX) {
            errno = ENAMETOOLONG;
            return -1;
        }
        kvt_signals_hold();
        fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, MODE_NEW);
        int kept = errno;
        if (fd >= 0) {
            kvt_signals_remove(name);
        }
        kvt_signals_let_go();
        errno = kept;
        if (fd < 0 && errno != EEXIST) {
            return -1;
        }
    }
    return fd;
}

/* Gives the file its name, or takes it away; either way a signal has nothing to remove then. */
static bool settle(const char *name, const char *target, bool good)
{
    kvt_signals_hold();
    bool renamed = good && rename(name, target) == 0;
    int kept = errno;
    if (!renamed) {
        (void)unlink(name);
    }
    kvt_signals_remove(NULL);
    kvt_signals_let_go();
    errno = kept;
    return renamed;
}

/* `old`: the file that is there now, whose owner and mode the new one takes over; NULL: none. */
static bool write_beside(const char *target, const struct stat *old, bool gzip, const char *text,
                         uint64_t bytes, char *why, uint64_t why_bytes)
{
    char name[PATH_MAX];
    int fd = open_beside(target, name);
    if (fd < 0) {
        return say_errno(why, why_bytes);
    }
    if (old != NULL) {
        /* Only root may give a file away; for others it is theirs, or becomes theirs. */
        int given = fchown(fd, old->st_uid, old->st_gid);
        (void)given;
    }
    bool good = (old == NULL || fchmod(fd, old->st_mode & MODE_KEPT) == 0) &&
                write_bytes(fd, gzip, text, bytes) && fsync(fd) == 0;
    int kept = errno;
    if (close(fd) != 0 && good) {
        kept = errno;
        good = false;
    }
    errno = kept;
    return settle(name, target, good) || say_errno(why, why_bytes);
}

/* The name that a symbolic link stands for, so that the link stays one. False: errno. */
static bool resolve(const char *path, char target[PATH_MAX])
{
    if (realpath(path, target) != NULL) {
        return true;
    }
    struct stat link;
    size_t bytes = strlen(path);
    /* Not there yet: as it was given. A link to nothing is one, too: the folder of what it names is
     * not known, and it is written through. */
    if (errno != ENOENT || lstat(path, &link) == 0) {
        return false;
    }
    if (bytes >= PATH_MAX) {
        errno = ENAMETOOLONG;
        return false;
    }
    memcpy(target, path, bytes + 1);
    return true;
}

static bool names_a_descriptor(const char *path)
{
    return strncmp(path, "/dev/", 5) == 0 || strncmp(path, "/proc/", 6) == 0;
}

bool kvt_generate_write(const char *path, bool gzip, const char *text, uint64_t bytes, char *why,
                        uint64_t why_bytes)
{
    char target[PATH_MAX];
    struct stat old;
    if (path == NULL) {
        return write_direct(NULL, false, text, bytes, why, why_bytes);
    }
    bool there = stat(path, &old) == 0;
    if (names_a_descriptor(path) || (there && !S_ISREG(old.st_mode))) {
        return write_direct(path, gzip, text, bytes, why, why_bytes);
    }
    if (!resolve(path, target)) {
        struct stat link;
        if (errno == ENOENT && lstat(path, &link) == 0) {
            return write_direct(path, gzip, text, bytes, why, why_bytes);
        }
        return say_errno(why, why_bytes);
    }
    /* A rename asks the folder; that this file is not to be written is asked here. */
    if (there && faccessat(AT_FDCWD, target, W_OK, AT_EACCESS) != 0) {
        return say_errno(why, why_bytes);
    }
    return write_beside(target, there ? &old : NULL, gzip, text, bytes, why, why_bytes);
}
