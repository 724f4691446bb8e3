/*
 * Finding and starting kvtier-catalog. posix_spawn, because the owner has threads; the program
 * forks itself once more and ends, so that the process that works is nobody's child here: no
 * SIGCHLD later on, nothing to reap.
 */
#include "cache/catalog/client_internal.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_MS UINT64_C(1000000)
#define POLL_MS_MAX 60000u
#define OWNER_TEXT_BYTES 32
#define REAP_RETRY_NS 200000

/* ---- finding ---- */

/* Where was looked, for the sentence when it is nowhere. */
struct search {
    char path[PATH_MAX]; /* the one found */
    char places[1024];
    size_t places_bytes;
};

static bool look_at(struct search *search, const char *folder, const char *name)
{
    const char *slash = name[0] == '\0' ? "" : "/";
    int bytes = snprintf(search->path, sizeof(search->path), "%s%s%s", folder, slash, name);
    if (bytes < 0 || (size_t)bytes >= sizeof(search->path)) {
        return false;
    }
    struct stat is;
    if (stat(search->path, &is) == 0 && S_ISREG(is.st_mode) && access(search->path, X_OK) == 0) {
        return true;
    }
    size_t left = sizeof(search->places) - search->places_bytes;
    int said = snprintf(search->places + search->places_bytes, left, "%s%s",
                        search->places_bytes > 0 ? ", " : "", search->path);
    if (said > 0) {
        search->places_bytes += (size_t)said < left ? (size_t)said : left - 1;
    }
    return false;
}

/* The folder of the file that this code was loaded from: the library's, or the program's. */
static bool own_folder(char out_folder[PATH_MAX])
{
    char path[PATH_MAX];
    Dl_info ours;
    union {
        bool (*function)(char *);
        const void *address;
    } here = {.function = own_folder};
    /* A program's name is what it was called by, which may be no path from here. */
    if (dladdr(here.address, &ours) == 0 || ours.dli_fname == NULL ||
        strchr(ours.dli_fname, '/') == NULL || realpath(ours.dli_fname, path) == NULL) {
        ssize_t bytes = readlink("/proc/self/exe", path, sizeof(path) - 1);
        if (bytes <= 0) {
            return false;
        }
        path[bytes] = '\0';
    }
    char *slash = strrchr(path, '/');
    if (slash == NULL) {
        return false;
    }
    *slash = '\0';
    memcpy(out_folder, path, (size_t)(slash - path) + 1);
    return true;
}

static bool look_in_path(struct search *search)
{
    const char *at = getenv("PATH");
    while (at != NULL && *at != '\0') {
        const char *end = strchrnul(at, ':');
        char folder[PATH_MAX];
        size_t bytes = (size_t)(end - at);
        /* An empty part means the current folder: what lies there is not to be started. */
        if (bytes > 0 && bytes < sizeof(folder) && *at == '/') {
            memcpy(folder, at, bytes);
            folder[bytes] = '\0';
            if (look_at(search, folder, KVT_CATALOG_PROGRAM)) {
                return true;
            }
        }
        at = *end == ':' ? end + 1 : end;
    }
    return false;
}

static bool find_program(struct search *search, const char *program)
{
    if (program == NULL) {
        program = secure_getenv("KVT_CATALOG_PROGRAM");
    }
    if (program != NULL && *program != '\0') {
        return look_at(search, program, "");
    }
    char folder[PATH_MAX], beside[PATH_MAX + 32];
    static const char *const places[] = {"", "/../libexec/kvtier", "/../../libexec/kvtier"};
    for (size_t i = 0; own_folder(folder) && i < sizeof(places) / sizeof(places[0]); i++) {
        (void)snprintf(beside, sizeof(beside), "%s%s", folder, places[i]);
        if (look_at(search, beside, KVT_CATALOG_PROGRAM)) {
            return true;
        }
    }
    return look_in_path(search);
}

/* ---- the child ---- */

void kvt_catalog_child_close(struct kvt_catalog_child *child)
{
    if (child->socket >= 0) {
        (void)close(child->socket);
    }
    if (child->pidfd >= 0) {
        (void)close(child->pidfd);
    }
    *child = (struct kvt_catalog_child){.socket = -1, .pidfd = -1};
}

void kvt_catalog_child_kill(struct kvt_catalog_child *child)
{
    if (child->pidfd >= 0) {
        (void)syscall(SYS_pidfd_send_signal, child->pidfd, SIGKILL, NULL, 0);
    } else if (child->pid > 1) {
        (void)kill(child->pid, SIGKILL);
    }
    kvt_catalog_child_close(child);
}

kvt_status kvt_catalog_wait(int socket, bool writing, uint64_t deadline_ns)
{
    for (;;) {
        uint64_t now_ns = kvt_now_ns(&kvt_clock_monotonic);
        if (now_ns >= deadline_ns) {
            return KVT_ERR_TIMEOUT;
        }
        uint64_t ms = (deadline_ns - now_ns + NS_PER_MS - 1) / NS_PER_MS;
        struct pollfd polled = {.fd = socket, .events = writing ? POLLOUT : POLLIN};
        int got = poll(&polled, 1, ms < POLL_MS_MAX ? (int)ms : (int)POLL_MS_MAX);
        if (got > 0) {
            return KVT_OK;
        }
        if (got < 0 && errno != EINTR) {
            return KVT_ERR_UNAVAILABLE;
        }
    }
}

static kvt_status hello_receive(int socket, uint64_t deadline_ns, struct kvt_catalog_child *child,
                                struct kvt_wire_hello *out_hello)
{
    struct {
        struct kvt_wire_header header;
        struct kvt_wire_hello hello;
    } frame;
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec io = {&frame, sizeof(frame)};
    struct msghdr message = {.msg_iov = &io,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof(control.bytes)};
    ssize_t got;
    do {
        kvt_status status = kvt_catalog_wait(socket, false, deadline_ns);
        if (status != KVT_OK) {
            return status;
        }
        got = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    } while (got < 0 && (errno == EAGAIN || errno == EINTR));
    if (got < 0) {
        return KVT_ERR_UNAVAILABLE;
    }
    struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
    if (rights != NULL && rights->cmsg_level == SOL_SOCKET && rights->cmsg_type == SCM_RIGHTS &&
        rights->cmsg_len == CMSG_LEN(sizeof(int))) {
        memcpy(&child->pidfd, CMSG_DATA(rights), sizeof(child->pidfd));
    }
    if (got != (ssize_t)sizeof(frame) || frame.header.magic != KVT_WIRE_MAGIC ||
        frame.header.kind != KVT_WIRE_HELLO || frame.header.bytes != sizeof(frame.hello) ||
        frame.hello.pid <= 1) {
        return KVT_ERR_UNAVAILABLE;
    }
    child->pid = frame.hello.pid;
    *out_hello = frame.hello;
    return KVT_OK;
}

/* The signals as a program expects them, whatever the owner blocks or ignores. */
static int spawn_attributes(posix_spawnattr_t *attributes)
{
    sigset_t all, none;
    (void)sigfillset(&all);
    (void)sigemptyset(&none);
    int rc = posix_spawnattr_setsigdefault(attributes, &all);
    rc = rc != 0 ? rc : posix_spawnattr_setsigmask(attributes, &none);
    return rc != 0 ? rc
                   : posix_spawnattr_setflags(attributes,
                                              POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
}

static int spawn_with(int socket, const char *path, const char *folder, pid_t *out_pid)
{
    char owner[OWNER_TEXT_BYTES];
    char name[] = KVT_CATALOG_PROGRAM;
    (void)snprintf(owner, sizeof(owner), "--owner=%d", (int)getpid());
    /* posix_spawn asks for pointers that are not const, and does not write. */
    char *folder_text = strdup(folder);
    if (folder_text == NULL) {
        return ENOMEM;
    }
    char *arguments[] = {name, owner, folder_text, NULL};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    int rc = posix_spawn_file_actions_init(&actions);
    if (rc != 0) {
        goto undo_text;
    }
    rc = posix_spawnattr_init(&attributes);
    if (rc != 0) {
        goto undo_actions;
    }
    rc = posix_spawn_file_actions_adddup2(&actions, socket, KVT_WIRE_FD);
    rc = rc != 0 ? rc : spawn_attributes(&attributes);
    rc = rc != 0 ? rc : posix_spawn(out_pid, path, &actions, &attributes, arguments, environ);
    (void)posix_spawnattr_destroy(&attributes);
undo_actions:
    (void)posix_spawn_file_actions_destroy(&actions);
undo_text:
    free(folder_text);
    return rc;
}

/* The program that was started, which ends as soon as it has forked; one that is something else may
 * never end. */
static void reap(pid_t pid, bool heard, uint64_t deadline_ns)
{
    int result;
    pid_t ended;
    while ((ended = waitpid(pid, &result, WNOHANG)) == 0 && heard &&
           kvt_now_ns(&kvt_clock_monotonic) < deadline_ns) {
        (void)nanosleep(&(struct timespec){.tv_nsec = REAP_RETRY_NS}, NULL);
    }
    if (ended != 0) {
        return; /* or somebody else in this process was told of its end */
    }
    (void)kill(pid, SIGKILL);
    while (waitpid(pid, &result, 0) < 0 && errno == EINTR) {
    }
}

static kvt_status spawn_at(const char *path, const char *folder, uint64_t deadline_ns,
                           struct kvt_catalog_child *out_child, char *why, size_t why_bytes)
{
    int sockets[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0) {
        (void)snprintf(why, why_bytes, "catalog: no socket for its process: %s", strerror(errno));
        return KVT_ERR_UNAVAILABLE;
    }
    struct kvt_catalog_child child = {.socket = sockets[0], .pidfd = -1};
    pid_t pid;
    int rc = spawn_with(sockets[1], path, folder, &pid);
    (void)close(sockets[1]);
    if (rc != 0) {
        (void)snprintf(why, why_bytes, "catalog: %s cannot be started: %s", path, strerror(rc));
        kvt_catalog_child_close(&child);
        return KVT_ERR_UNAVAILABLE;
    }
    struct kvt_wire_hello hello = {.version = 0};
    kvt_status status = hello_receive(child.socket, deadline_ns, &child, &hello);
    reap(pid, status == KVT_OK, deadline_ns);
    if (status == KVT_OK && hello.version != KVT_WIRE_VERSION) {
        (void)snprintf(
            why, why_bytes,
            "catalog: %s speaks version %u, this library speaks version %u: install both "
            "of one release",
            path, hello.version, KVT_WIRE_VERSION);
        status = KVT_ERR_VERSION;
    } else if (status != KVT_OK) {
        (void)snprintf(why, why_bytes, "catalog: %s was started and %s", path,
                       status == KVT_ERR_TIMEOUT ? "said nothing in time"
                                                 : "ended, or is not that program");
    }
    if (status != KVT_OK) {
        kvt_catalog_child_kill(&child);
        return status;
    }
    *out_child = child;
    return KVT_OK;
}

kvt_status kvt_catalog_spawn(const char *program, const char *folder, uint64_t deadline_ns,
                             struct kvt_catalog_child *out_child, char *why, size_t why_bytes)
{
    struct search search = {.places_bytes = 0};
    if (!find_program(&search, program)) {
        (void)snprintf(why, why_bytes,
                       "catalog: the program " KVT_CATALOG_PROGRAM " is not there (looked at %s): "
                       "install it, or give its path in KVT_CATALOG_PROGRAM",
                       search.places);
        return KVT_ERR_UNAVAILABLE;
    }
    return spawn_at(search.path, folder, deadline_ns, out_child, why, why_bytes);
}
