/* Sentences, and what LMDB's errors mean to the owner. */
#include "cache/catalog/process/process.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

kvt_status kvt_process_say(struct kvt_process *p, kvt_status status, int error, const char *format,
                           ...)
{
    va_list args;
    va_start(args, format);
    (void)vsnprintf(p->reply.why, sizeof(p->reply.why), format, args);
    va_end(args);
    p->reply.status = status;
    p->reply.error = error;
    return status;
}

void kvt_process_warn(struct kvt_process *p, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)vsnprintf(p->reply.warning, sizeof(p->reply.warning), format, args);
    va_end(args);
}

static const char *remedy_of(int error)
{
    switch (error) {
    case ENOSPC:
    case EDQUOT:
        return "the file system is full: make room";
    case EROFS:
        return "the file system is read-only: remount it, or name another folder";
    case EACCES:
    case EPERM:
        return "give the folder and its files to the user that runs this";
    default:
        return "see whether the drive works";
    }
}

kvt_status kvt_process_lmdb(struct kvt_process *p, int rc, const char *doing)
{
    switch (rc) {
    case MDB_MAP_FULL:
    case MDB_TXN_FULL:
        return kvt_process_say(p, KVT_ERR_LIMIT, 0, "catalog '%s': %s: its %llu bytes are used up",
                               p->folder, doing, (unsigned long long)p->bytes_max);
    case MDB_READERS_FULL:
        return kvt_process_say(p, KVT_ERR_BUSY, 0, "catalog '%s': %s: too many readers at once",
                               p->folder, doing);
    case MDB_PANIC:
        return kvt_process_say(p, KVT_ERR_IO, EIO,
                               "catalog '%s': %s: an earlier write failed half-way", p->folder,
                               doing);
    case ENOMEM:
        return kvt_process_say(p, KVT_ERR_NOMEM, 0,
                               "catalog '%s': %s: no memory, or no address space for %llu bytes",
                               p->folder, doing, (unsigned long long)p->bytes_max);
    default:
        break;
    }
    if (rc < 0 || rc == EINVAL) {
        /* All others of LMDB's own, and what it answers where a page makes no sense. */
        return kvt_process_say(p, KVT_ERR_CORRUPT, 0, "catalog '%s': %s: the file is damaged (%s)",
                               p->folder, doing, mdb_strerror(rc));
    }
    return kvt_process_say(p, KVT_ERR_IO, rc, "catalog '%s': %s: %s: %s", p->folder, doing,
                           strerror(rc), remedy_of(rc));
}
