/*
 * The owner's end, inside: the child and its socket (spawn.c), frames over it and whose turn it is
 * (channel.c), requests (client.c).
 */
#ifndef KVT_CATALOG_CLIENT_INTERNAL_H
#define KVT_CATALOG_CLIENT_INTERNAL_H

#include <sys/types.h>

#include "cache/base/base.h"
#include "cache/catalog/catalog.h"
#include "cache/catalog/wire.h"

#define KVT_CATALOG_PROGRAM "kvtier-catalog"
#define KVT_CATALOG_PAUSE_MIN_NS UINT64_C(1000000000)
#define KVT_CATALOG_PAUSE_MAX_NS UINT64_C(60000000000)
#define KVT_CATALOG_CLOSE_WAIT_NS UINT64_C(2000000000)
#define KVT_CATALOG_BYTES_MIN (UINT64_C(1) << 20)

/* ---- spawn.c ---- */

struct kvt_catalog_child {
    int socket; /* -1: there is none */
    int pidfd;  /* -1: the kernel has none */
    int32_t pid;
};

/* Start it and hear its hello. UNAVAILABLE, VERSION, TIMEOUT; `why` gets a sentence. */
kvt_status kvt_catalog_spawn(const char *program, const char *folder, uint64_t deadline_ns,
                             struct kvt_catalog_child *out_child, char *why, size_t why_bytes)
    KVT_MUST_CHECK;
/* Ends it at once, whatever it does, and closes what is ours. */
void kvt_catalog_child_kill(struct kvt_catalog_child *child);
void kvt_catalog_child_close(struct kvt_catalog_child *child);
/* Waits until the socket may be read (or written). TIMEOUT, UNAVAILABLE. */
kvt_status kvt_catalog_wait(int socket, bool writing, uint64_t deadline_ns) KVT_MUST_CHECK;

/* ---- the client ---- */

struct kvt_catalog {
    /* immutable after open */
    const struct kvt_memory *mem;
    const struct kvt_log *log;
    char *folder, *program; /* program may be NULL */
    size_t folder_bytes, program_bytes;
    uint64_t bytes_max;
    uint32_t page_tokens;
    bool read_only;
    pid_t owner; /* the process that opened it */

    struct kvt_lock lock; /* protects: what follows */
    struct kvt_cond cond; /* the turn is free */
    bool busy;            /* a thread has the turn */
    struct kvt_catalog_stats stats;
    struct kvt_catalog_head head;

    /* of the thread that has the turn */
    struct kvt_catalog_child child;
    uint64_t id; /* of the last request */
    uint64_t pause_ns, retry_ns;
    bool complained;       /* of what fails now; said once */
    unsigned char *buffer; /* [KVT_WIRE_PIECE_BYTES], of what is sent or was received */
    size_t buffer_bytes;   /* to be sent */
    struct kvt_wire_reply reply;
};

/* ---- channel.c ---- */

uint64_t kvt_catalog_deadline(uint64_t timeout_ns);
/* Requires: the turn. A child that is open. UNAVAILABLE at once while it is paused. */
kvt_status kvt_catalog_start(struct kvt_catalog *, bool create, uint64_t deadline_ns, char *why,
                             size_t why_bytes) KVT_MUST_CHECK;
/* Takes the turn and has the child running. PROCESS, TIMEOUT, UNAVAILABLE, and what opening
 * answers. After any answer but OK the turn is not held. */
kvt_status kvt_catalog_begin(struct kvt_catalog *, uint64_t deadline_ns) KVT_MUST_CHECK;
/* Gives the turn back; `status` is the request's, and is returned. */
kvt_status kvt_catalog_end(struct kvt_catalog *, kvt_status status);
/* Requires, for all below: the turn. A child that does not do its part is ended: then TIMEOUT or
 * UNAVAILABLE. */
kvt_status kvt_catalog_request(struct kvt_catalog *, enum kvt_wire_kind kind, uint64_t bytes,
                               uint64_t deadline_ns) KVT_MUST_CHECK;
kvt_status kvt_catalog_send(struct kvt_catalog *, const void *data, size_t bytes,
                            uint64_t deadline_ns) KVT_MUST_CHECK;
/* The header of a REPLY or of RECORDS; a REPLY is taken in whole, into catalog->reply, RECORDS into
 * catalog->buffer. */
kvt_status kvt_catalog_receive(struct kvt_catalog *, uint64_t deadline_ns,
                               struct kvt_wire_header *out_header) KVT_MUST_CHECK;
/* Waits for the reply; answers what it says. */
kvt_status kvt_catalog_reply(struct kvt_catalog *, uint64_t deadline_ns) KVT_MUST_CHECK;
/* The child sent what it must not. Answers UNAVAILABLE. */
kvt_status kvt_catalog_broken(struct kvt_catalog *, const char *what);

#endif
