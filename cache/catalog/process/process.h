/*
 * kvtier-catalog: the one process that opens the catalog's LMDB. One thread, one owner, one request
 * at a time. It may be killed, or die of a failing drive, at any instant.
 */
#ifndef KVT_CATALOG_PROCESS_H
#define KVT_CATALOG_PROCESS_H

#include <lmdb.h>
#include <sys/types.h>

#include "cache/base/base.h"
#include "cache/catalog/wire.h"

struct kvt_process {
    int socket;
    int owner_fd; /* a descriptor of the owner's process, -1 where the kernel has none */

    /* what was asked for at OPEN */
    char folder[KVT_WIRE_FOLDER_BYTES];
    uint64_t bytes_max, lock_wait_ns;
    int32_t owner_pid;
    uint32_t page_tokens;
    bool create, read_only;

    int lock_fd; /* -1: none */
    bool opened;
    MDB_env *env; /* NULL: not open */
    MDB_dbi pages, namespaces, head;
    uint32_t version;
    uint64_t page_bytes;                 /* of the file */
    uint64_t file_bytes, used_bytes;     /* as of the last transaction */
    struct kvt_record_counters highest;  /* ever used */
    struct kvt_record_counters recorded; /* as in the file */

    unsigned char *request; /* payload of the request at work */
    size_t request_capacity;
    unsigned char *piece; /* [KVT_WIRE_PIECE_BYTES] of RECORDS being filled */
    size_t piece_bytes;
    uint64_t id;                 /* of the request at work */
    struct kvt_wire_reply reply; /* to it */
};

/* ---- channel.c: frames, and the end of the owner ---- */

/* False: the owner is gone, or sends what makes no sense. */
bool kvt_process_receive(struct kvt_process *p, struct kvt_wire_header *out_header) KVT_MUST_CHECK;
bool kvt_process_send(struct kvt_process *p, enum kvt_wire_kind kind, const void *payload,
                      size_t bytes) KVT_MUST_CHECK;
bool kvt_process_hello(struct kvt_process *p) KVT_MUST_CHECK;

/* ---- file.c: the folder, its lock, and LMDB's environment ---- */

kvt_status kvt_process_open(struct kvt_process *p) KVT_MUST_CHECK;
void kvt_process_close(struct kvt_process *p);
/* The environment again, after an error that LMDB does not come back from. */
kvt_status kvt_process_reopen(struct kvt_process *p) KVT_MUST_CHECK;

/* ---- usage.c: how full the file is ---- */

/* Brings file_bytes and used_bytes up to date. CORRUPT: the file is shorter than what it says. */
kvt_status kvt_process_usage(struct kvt_process *p) KVT_MUST_CHECK;

/* ---- commit.c ---- */

kvt_status kvt_process_commit(struct kvt_process *p, uint64_t bytes) KVT_MUST_CHECK;
kvt_status kvt_process_set_head(struct kvt_process *p, uint64_t bytes) KVT_MUST_CHECK;

/* ---- load.c ---- */

/* A transaction that only reads, also where the file has grown under it. */
int kvt_process_read_begin(struct kvt_process *p, MDB_txn **out_txn);
/* False: the owner is gone. The status lies in p->reply. */
bool kvt_process_load(struct kvt_process *p) KVT_MUST_CHECK;
kvt_status kvt_process_walk(struct kvt_process *p) KVT_MUST_CHECK;

/* ---- say.c ---- */

/* A sentence and an errno into the reply; answers `status`. */
kvt_status kvt_process_say(struct kvt_process *p, kvt_status status, int error, const char *format,
                           ...) __attribute__((format(printf, 4, 5)));
/* A sentence for the owner's log, whatever the answer is. */
void kvt_process_warn(struct kvt_process *p, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* What an error of LMDB (or an errno) means, with a sentence. */
kvt_status kvt_process_lmdb(struct kvt_process *p, int rc, const char *doing);

#endif
