/*
 * One store of the NVMe tier: a folder on one drive, with a header, a file of slots, and a lock.
 *
 *   store.kvt  the header, 4096 bytes: whose store it is, and how its data file is divided.
 *              Replaced as a whole (written beside, synced, renamed)
 *   data.kvt   `data_bytes` of extents, then one spare block: the owner writes and reads it when it
 *              wants to know whether the drive works, and nothing is ever kept there
 *   lock       the pid of the owner as text, for people. What locks is flock() on data.kvt, held by
 *              the descriptor: it lasts until the last request of a killed owner has ended
 *   catalog    in the first store: the folder of the catalog
 *
 * Other files in the folder are nobody's business here. Byte tables: cache/FORMAT.md.
 *
 * Layer 2. Not thread-safe: one thread at a time, the owner of the store.
 */
#ifndef KVT_STORE_H
#define KVT_STORE_H

#include "cache/base/base.h"
#include "cache/catalog/catalog.h"
#include "cache/tier/slab.h"

#define KVT_STORE_VERSION 1u
#define KVT_STORE_HEADER_BYTES 4096u
#define KVT_STORE_SPARE_BYTES 4096u /* at the end of the data file */
#define KVT_STORE_HEADER_FILE "store.kvt"
#define KVT_STORE_DATA_FILE "data.kvt"
#define KVT_STORE_LOCK_FILE "lock"
#define KVT_STORE_CATALOG_FOLDER "catalog"
#define KVT_STORE_CATALOG_DATA "catalog/data.mdb"
/* What a folder takes beside its data and the catalog: header (twice, while it is replaced), lock
 * file, spare block, the folders themselves, the catalog's lock files. */
#define KVT_STORE_OVERHEAD_BYTES (UINT64_C(64) << 10)
#define KVT_STORE_LOCK_WAIT_NS UINT64_C(2000000000)

/* ---- names of slots ----
 * place.slot: store (3 bits) | extent (15) | slot in it (14). */

#define KVT_STORE_SLOT_BITS 14u
#define KVT_STORE_EXTENT_BITS 15u
#define KVT_STORE_EXTENTS_MAX (1u << KVT_STORE_EXTENT_BITS)
#define KVT_STORE_EXTENT_SLOTS_MAX (1u << KVT_STORE_SLOT_BITS)

static inline uint32_t kvt_store_slot_name(uint32_t store, uint32_t extent, uint32_t slot)
{
    return (store << (KVT_STORE_EXTENT_BITS + KVT_STORE_SLOT_BITS)) |
           (extent << KVT_STORE_SLOT_BITS) | slot;
}
static inline uint32_t kvt_store_of(uint32_t name)
{
    return name >> (KVT_STORE_EXTENT_BITS + KVT_STORE_SLOT_BITS);
}
static inline uint32_t kvt_store_extent_of(uint32_t name)
{
    return (name >> KVT_STORE_SLOT_BITS) & (KVT_STORE_EXTENTS_MAX - 1u);
}
static inline uint32_t kvt_store_slot_of(uint32_t name)
{
    return name & (KVT_STORE_EXTENT_SLOTS_MAX - 1u);
}
/* Slots of slot_bytes in an extent. */
static inline uint32_t kvt_store_slots(uint64_t extent_bytes, uint64_t slot_bytes)
{
    uint64_t slots = extent_bytes / slot_bytes;
    return slots < KVT_STORE_EXTENT_SLOTS_MAX ? (uint32_t)slots : KVT_STORE_EXTENT_SLOTS_MAX;
}

/* ---- the header ---- */

struct kvt_store_header {
    unsigned char id[KVT_CATALOG_ID_BYTES];         /* of this store */
    unsigned char catalog_id[KVT_CATALOG_ID_BYTES]; /* of the catalog that speaks of it */
    uint32_t index;                                 /* its number in the catalog's list */
    uint32_t page_tokens;
    uint64_t extent_bytes;
    uint64_t data_bytes; /* a multiple of extent_bytes */
    /* So many extents from the first on have been written once; a hint, it may lag behind. */
    uint64_t prewritten_extents;
};

void kvt_store_header_encode(const struct kvt_store_header *,
                             unsigned char out_bytes[KVT_STORE_HEADER_BYTES]);
/* `bytes`: as many as the file has, up to KVT_STORE_HEADER_BYTES. VERSION, CORRUPT; out_why gets
 * the rest of a sentence that began with the file's name. */
kvt_status kvt_store_header_decode(const unsigned char *header, size_t bytes,
                                   struct kvt_store_header *out_header, char *out_why,
                                   size_t why_bytes) KVT_MUST_CHECK;
/* Of the store in `folder`, without locking it. For check. STALE: there is none. */
kvt_status kvt_store_header_read(const char *folder, struct kvt_store_header *out_header, char *why,
                                 size_t why_bytes) KVT_MUST_CHECK;

/* ---- a store that is open ---- */

struct kvt_store {
    char *folder;
    size_t folder_bytes; /* with the zero */
    int folder_fd, data_fd;
    bool data_made;                 /* by this opening */
    bool has_header;                /* else it is a new one */
    bool direct;                    /* data_fd is open with O_DIRECT */
    bool sparse;                    /* the file system allocates at each first write */
    struct kvt_store_header header; /* as on the drive, when has_header */
};

/* Every function: `why` gets a sentence that names folder, cause and remedy. */

/*
 * Make the folder when missing, look at who may write to it, lock it, read its header. May block
 * (KVT_STORE_LOCK_WAIT_NS). INVAL: no folder, or one that others may write to; BUSY, VERSION,
 * CORRUPT, IO, NOMEM.
 */
kvt_status kvt_store_open(struct kvt_store *, const struct kvt_memory *mem, const char *folder,
                          char *why, size_t why_bytes) KVT_MUST_CHECK;
void kvt_store_close(struct kvt_store *, const struct kvt_memory *mem);

/* For a store that is new or grows: is there room on the drive for a data file of data_bytes and,
 * besides, beside_bytes more than there are now? Changes nothing. IO: no. */
kvt_status kvt_store_room_check(const struct kvt_store *, uint64_t data_bytes,
                                uint64_t beside_bytes, char *why, size_t why_bytes) KVT_MUST_CHECK;

/*
 * Give the data file its size: allocated where the file system can, else sparse (one warning). A
 * new file that does not fit is removed again. Then probe O_DIRECT, unless `buffered`. May block.
 * IO.
 */
kvt_status kvt_store_data_open(struct kvt_store *, const struct kvt_log *log, uint64_t data_bytes,
                               bool buffered, char *why, size_t why_bytes) KVT_MUST_CHECK;

/* Replace the header. Durable on OK; store->header is what was written then. IO. */
kvt_status kvt_store_header_write(struct kvt_store *, const struct kvt_store_header *, char *why,
                                  size_t why_bytes) KVT_MUST_CHECK;

/* Bytes that the catalog's file takes on the drive, 0 where there is none. */
uint64_t kvt_store_catalog_bytes(const struct kvt_store *);

/* Random bytes for ids. IO. */
kvt_status kvt_store_random(void *out_bytes, size_t bytes) KVT_MUST_CHECK;

#endif
