/* Starting: out of the owner's reach, with one descriptor; then one request after the other. */
#include "cache/catalog/process/process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef KVT_VERSION
#define KVT_VERSION "unknown"
#endif

#define EXIT_USAGE 2
#define FDS_WITHOUT_LIMIT 65536

static bool is_socket(int fd)
{
    struct stat is;
    return fstat(fd, &is) == 0 && S_ISSOCK(is.st_mode);
}

/* Whatever the owner had open without close-on-exec is none of ours. */
static void close_others(void)
{
    if (syscall(SYS_close_range, KVT_WIRE_FD + 1, ~0U, 0) == 0) {
        return;
    }
    long most = sysconf(_SC_OPEN_MAX);
    most = most < 0 || most > FDS_WITHOUT_LIMIT ? FDS_WITHOUT_LIMIT : most;
    for (int fd = KVT_WIRE_FD + 1; fd < (int)most; fd++) {
        (void)close(fd);
    }
}

/* Nothing of the owner's terminal is kept open, and nothing typed there ends this process. */
static bool leave_terminal(void)
{
    int null = open("/dev/null", O_RDWR);
    if (null < 0) {
        return false;
    }
    bool good = true;
    for (int fd = 0; fd < KVT_WIRE_FD; fd++) {
        good = good && dup2(null, fd) == fd;
    }
    if (null > KVT_WIRE_FD) {
        (void)close(null);
    }
    static const int ignored[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGQUIT, SIGXFSZ};
    for (size_t i = 0; i < sizeof(ignored) / sizeof(ignored[0]); i++) {
        good = good && signal(ignored[i], SIG_IGN) != SIG_ERR;
    }
    (void)umask(077);
    return good && chdir("/") == 0;
}

static kvt_status serve_open(struct kvt_process *p, uint64_t bytes)
{
    struct kvt_wire_open asked;
    if (bytes != sizeof(asked) || p->opened) {
        return kvt_process_say(p, KVT_ERR_INVAL, 0, "catalog: an open that makes no sense");
    }
    memcpy(&asked, p->request, sizeof(asked));
    if (asked.folder[0] != '/' || memchr(asked.folder, '\0', sizeof(asked.folder)) == NULL) {
        return kvt_process_say(p, KVT_ERR_INVAL, 0, "catalog: its folder's name makes no sense");
    }
    memcpy(p->folder, asked.folder, sizeof(p->folder));
    p->bytes_max = asked.bytes_max;
    p->lock_wait_ns = asked.timeout_ns / 2;
    p->owner_pid = asked.owner_pid;
    p->page_tokens = asked.page_tokens;
    p->create = (asked.flags & KVT_WIRE_FLAG_CREATE) != 0;
    p->read_only = (asked.flags & KVT_WIRE_FLAG_READ_ONLY) != 0;
    p->owner_fd = (int)syscall(SYS_pidfd_open, asked.owner_pid, 0);
    kvt_status status = kvt_process_open(p);
    if (status == KVT_OK) {
        p->opened = true;
    } else {
        kvt_process_close(p);
    }
    return status;
}

/* False: the owner is gone. */
static bool serve(struct kvt_process *p, const struct kvt_wire_header *header)
{
    p->id = header->id;
    memset(&p->reply, 0, sizeof(p->reply));
    kvt_status status = KVT_OK;
    if (p->opened && p->env == NULL) {
        status = kvt_process_reopen(p);
    }
    if (status != KVT_OK) {
        /* Said already. */
    } else if (header->kind == KVT_WIRE_OPEN) {
        status = serve_open(p, header->bytes);
    } else if (!p->opened) {
        status = kvt_process_say(p, KVT_ERR_INVAL, 0, "catalog: it is not open");
    } else if (header->kind == KVT_WIRE_COMMIT) {
        status = kvt_process_commit(p, header->bytes);
    } else if (header->kind == KVT_WIRE_HEAD) {
        status = kvt_process_set_head(p, header->bytes);
    } else if (header->kind == KVT_WIRE_WALK) {
        status = kvt_process_walk(p);
    } else if (header->kind == KVT_WIRE_LOAD) {
        if (!kvt_process_load(p)) {
            return false;
        }
        status = p->reply.status;
    } else {
        status = kvt_process_say(p, KVT_ERR_INVAL, 0, "catalog: a request that nobody knows");
    }
    p->reply.status = status;
    p->reply.file_bytes = p->file_bytes;
    p->reply.used_bytes = p->used_bytes;
    p->reply.bytes_max = p->bytes_max;
    return kvt_process_send(p, KVT_WIRE_REPLY, &p->reply, sizeof(p->reply));
}

static int run(void)
{
    static struct kvt_process process;
    struct kvt_process *p = &process;
    *p = (struct kvt_process){.socket = KVT_WIRE_FD, .owner_fd = -1, .lock_fd = -1};
    p->piece = malloc(KVT_WIRE_PIECE_BYTES);
    if (p->piece == NULL || !kvt_process_hello(p)) {
        free(p->piece);
        return EXIT_FAILURE;
    }
    struct kvt_wire_header header;
    while (kvt_process_receive(p, &header) && serve(p, &header)) {
    }
    /* The lock goes before the socket: who sees the end of this process may open the catalog. */
    kvt_process_close(p);
    free(p->piece);
    free(p->request);
    if (p->owner_fd >= 0) {
        (void)close(p->owner_fd);
    }
    (void)close(p->socket);
    return EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--version") == 0) {
        (void)printf("kvtier-catalog %s\n", KVT_VERSION);
        return EXIT_SUCCESS;
    }
    if (argc != 3 || strncmp(argv[1], "--owner=", strlen("--owner=")) != 0 ||
        !is_socket(KVT_WIRE_FD)) {
        (void)fprintf(stderr, "kvtier-catalog: kvtier starts this program by itself, to keep the "
                              "catalog of its NVMe tier.\n");
        return EXIT_USAGE;
    }
    close_others();
    /* The owner waits for this process, and never has to for the one that works. */
    pid_t worker = fork();
    if (worker != 0) {
        _exit(worker < 0 ? EXIT_FAILURE : EXIT_SUCCESS);
    }
    if (setsid() < 0 || !leave_terminal()) {
        return EXIT_FAILURE;
    }
    return run();
}
