/* The recorder's log: one record behind the other, in the order in which things happened. */
#ifndef KVT_TESTS_CRASH_RECORD_H
#define KVT_TESTS_CRASH_RECORD_H

#include <stdint.h>

#define RECORD_MAGIC 0x6b767472u
#define RECORD_PATH_BYTES 256u

enum record_kind {
    RECORD_CREATE = 1, /* a file was made */
    RECORD_MKDIR,
    RECORD_WRITE,    /* its bytes follow */
    RECORD_TRUNCATE, /* offset: the new size */
    RECORD_SYNC,     /* of a file or a folder */
    RECORD_RENAME,
    RECORD_UNLINK,
    RECORD_MARK /* path: the line */
};

/* Bytes in the log of a write of so many. */
static inline uint64_t record_padded(uint64_t bytes) { return (bytes + 7) & ~UINT64_C(7); }

/* Paths are relative to the recorder's root. */
struct record {
    uint32_t magic, kind;
    uint32_t synced; /* a write that was durable when it returned */
    uint32_t pid;
    uint64_t offset, bytes;
    char path[RECORD_PATH_BYTES], other[RECORD_PATH_BYTES];
};

#endif
