/* Frames over the socket. The process waits here, and ends when its owner has. */
#include "cache/catalog/process/process.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A process that was forked from the owner may hold the owner's end open after it: so the end of
 * the owner itself counts too. False: it is gone, and nothing of it is left to be read. */
static bool wait_for(struct kvt_process *p, short events)
{
    for (;;) {
        struct pollfd polled[2] = {{.fd = p->socket, .events = events},
                                   {.fd = p->owner_fd, .events = POLLIN}};
        int got = poll(polled, p->owner_fd < 0 ? 1 : 2, -1);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return false;
        }
        if (polled[0].revents != 0) {
            return true;
        }
        if (polled[1].revents != 0) {
            return false;
        }
    }
}

static bool take(struct kvt_process *p, void *buffer, size_t bytes)
{
    unsigned char *at = buffer;
    while (bytes > 0) {
        ssize_t got = recv(p->socket, at, bytes, MSG_DONTWAIT);
        if (got > 0) {
            at += got;
            bytes -= (size_t)got;
        } else if (got < 0 && errno == EAGAIN) {
            if (!wait_for(p, POLLIN)) {
                return false;
            }
        } else if (got == 0 || errno != EINTR) {
            return false;
        }
    }
    return true;
}

static bool put(struct kvt_process *p, const void *buffer, size_t bytes)
{
    const unsigned char *at = buffer;
    while (bytes > 0) {
        ssize_t sent = send(p->socket, at, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent >= 0) {
            at += sent;
            bytes -= (size_t)sent;
        } else if (errno == EAGAIN) {
            if (!wait_for(p, POLLOUT)) {
                return false;
            }
        } else if (errno != EINTR) {
            return false;
        }
    }
    return true;
}

bool kvt_process_receive(struct kvt_process *p, struct kvt_wire_header *out_header)
{
    struct kvt_wire_header header;
    if (!take(p, &header, sizeof(header)) || header.magic != KVT_WIRE_MAGIC ||
        header.bytes > KVT_WIRE_REQUEST_BYTES_MAX) {
        return false;
    }
    if (header.bytes > p->request_capacity) {
        void *larger = realloc(p->request, (size_t)header.bytes);
        if (larger == NULL) {
            return false;
        }
        p->request = larger;
        p->request_capacity = (size_t)header.bytes;
    }
    if (!take(p, p->request, (size_t)header.bytes)) {
        return false;
    }
    *out_header = header;
    return true;
}

bool kvt_process_send(struct kvt_process *p, enum kvt_wire_kind kind, const void *payload,
                      size_t bytes)
{
    const struct kvt_wire_header header = {
        .magic = KVT_WIRE_MAGIC, .kind = kind, .id = p->id, .bytes = bytes};
    return put(p, &header, sizeof(header)) && put(p, payload, bytes);
}

bool kvt_process_hello(struct kvt_process *p)
{
    struct {
        struct kvt_wire_header header;
        struct kvt_wire_hello hello;
    } frame = {
        .header = {.magic = KVT_WIRE_MAGIC, .kind = KVT_WIRE_HELLO, .bytes = sizeof(frame.hello)},
        .hello = {.version = KVT_WIRE_VERSION, .pid = (int32_t)getpid()},
    };
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {.bytes = {0}};
    struct iovec io = {&frame, sizeof(frame)};
    struct msghdr message = {.msg_iov = &io, .msg_iovlen = 1};
    /* With it the owner ends exactly this process, whoever has its number by then. */
    int self = (int)syscall(SYS_pidfd_open, getpid(), 0);
    if (self >= 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = sizeof(control.bytes);
        struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(rights), &self, sizeof(self));
    }
    ssize_t sent = sendmsg(p->socket, &message, MSG_NOSIGNAL);
    if (self >= 0) {
        (void)close(self);
    }
    return sent == (ssize_t)sizeof(frame);
}
