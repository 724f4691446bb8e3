/*
 * A process that dies at a named step: KVT_CRASH_AT=NAME:COUNT, at the COUNTth time that it comes
 * there. KVT_CRASH_ONCE names a file that is made at the death; where it is there already nothing
 * happens, so that the next process of the same environment lives.
 */
#include "cache/base/crash_point.h"

#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void kvt_crash_point(const char *name);
void kvt_crash_point(const char *name)
{
    static _Atomic unsigned long times;
    const char *asked = getenv("KVT_CRASH_AT");
    const char *once = getenv("KVT_CRASH_ONCE");
    size_t bytes = strlen(name);
    if (asked == NULL || once == NULL || strncmp(asked, name, bytes) != 0 || asked[bytes] != ':' ||
        atomic_fetch_add(&times, 1) + 1 != strtoul(asked + bytes + 1, NULL, 10)) {
        return;
    }
    int fd = open(once, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd >= 0) {
        (void)close(fd);
        (void)kill(getpid(), SIGKILL);
    }
}
