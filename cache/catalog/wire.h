/*
 * What goes over the socket between the owner of a catalog and its process. Both are one machine
 * and one release: the hello's version is compared, and nothing else is negotiated.
 *
 *     process -> owner   HELLO once, with a descriptor of the process itself
 *     owner -> process   OPEN, then any of COMMIT, LOAD, WALK, HEAD, one after the other
 *     process -> owner   for a LOAD any number of RECORDS; then for each request one REPLY
 *
 * A frame is a header and `bytes` of payload. Each side takes the other's bytes as input that may
 * be wrong: lengths, counts and kinds are checked before they are used.
 *
 * Layer 2.
 */
#ifndef KVT_CATALOG_WIRE_H
#define KVT_CATALOG_WIRE_H

#include "cache/base/base.h"
#include "cache/catalog/catalog.h"
#include "cache/catalog/record.h"

#define KVT_WIRE_VERSION 1u
#define KVT_WIRE_MAGIC 0x6b767463u
#define KVT_WIRE_FD 3                            /* where the process finds its end */
#define KVT_WIRE_PIECE_BYTES (UINT64_C(1) << 20) /* largest payload of RECORDS */
#define KVT_WIRE_TEXT_BYTES 512u
#define KVT_WIRE_FOLDER_BYTES 4096u

enum kvt_wire_kind {
    KVT_WIRE_HELLO = 1,
    KVT_WIRE_OPEN,
    KVT_WIRE_COMMIT, /* entries */
    KVT_WIRE_LOAD,
    KVT_WIRE_WALK,
    KVT_WIRE_HEAD,    /* KVT_RECORD_HEAD_BYTES */
    KVT_WIRE_RECORDS, /* entries */
    KVT_WIRE_REPLY
};

struct kvt_wire_header {
    uint32_t magic, kind;
    uint64_t id; /* of the request, also in its answer */
    uint64_t bytes;
};

struct kvt_wire_hello {
    uint32_t version;
    int32_t pid;
};

#define KVT_WIRE_FLAG_CREATE 1u
#define KVT_WIRE_FLAG_READ_ONLY 2u

struct kvt_wire_open {
    uint32_t flags, page_tokens;
    uint64_t bytes_max, timeout_ns;
    int32_t owner_pid;
    uint32_t reserved;
    char folder[KVT_WIRE_FOLDER_BYTES]; /* absolute, with its zero */
};

/* One record, padded to KVT_RECORD_ALIGN_BYTES. Deletes have none. */
enum kvt_wire_entry_kind {
    KVT_WIRE_PUT_NAMESPACE = 1,
    KVT_WIRE_DELETE_PAGE,
    KVT_WIRE_DELETE_NAMESPACE,
    KVT_WIRE_PUT_PAGE
};
struct kvt_wire_entry {
    uint64_t key;
    uint32_t kind, bytes;
};
#define KVT_WIRE_REQUEST_BYTES_MAX                                                                 \
    ((uint64_t)KVT_CATALOG_BATCH_MAX * (KVT_RECORD_BYTES_MAX + sizeof(struct kvt_wire_entry)))

static inline uint64_t kvt_wire_padded(uint64_t bytes)
{
    return (bytes + (KVT_RECORD_ALIGN_BYTES - 1)) & ~(uint64_t)(KVT_RECORD_ALIGN_BYTES - 1);
}

struct kvt_wire_reply {
    int32_t status, error; /* error: errno of IO */
    uint64_t file_bytes, used_bytes, bytes_max;
    uint64_t seq_last, walk_ns, records;
    uint32_t namespace_last;
    uint32_t head_bytes;                       /* OPEN only, else 0 */
    unsigned char head[KVT_RECORD_HEAD_BYTES]; /* as it is in the file */
    char why[KVT_WIRE_TEXT_BYTES];             /* "" or a sentence */
    char warning[KVT_WIRE_TEXT_BYTES];
};
_Static_assert(sizeof(struct kvt_wire_header) == 24, "no padding on the wire");
_Static_assert(sizeof(struct kvt_wire_entry) == 16, "no padding on the wire");
_Static_assert(sizeof(struct kvt_wire_reply) % 8 == 0, "no padding on the wire");

#endif
