/* How full the file is. Its size says little: pages that were freed stay in it, in a list. */
#include "cache/catalog/process/process.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

/* Pages in the list of free ones, and those of them from page `from` on. */
static int free_pages(MDB_txn *txn, uint64_t from, uint64_t *out_count, uint64_t *out_behind)
{
    MDB_cursor *cursor;
    int rc = mdb_cursor_open(txn, 0, &cursor); /* LMDB's own table of them */
    if (rc != 0) {
        return rc;
    }
    uint64_t count = 0, behind = 0;
    MDB_val key, value;
    while ((rc = mdb_cursor_get(cursor, &key, &value, MDB_NEXT)) == 0) {
        size_t listed;
        if (value.mv_size < sizeof(listed)) {
            rc = MDB_CORRUPTED;
            break;
        }
        memcpy(&listed, value.mv_data, sizeof(listed));
        if (listed > value.mv_size / sizeof(listed) - 1) {
            rc = MDB_CORRUPTED;
            break;
        }
        count += listed;
        for (size_t i = 1; from != UINT64_MAX && i <= listed; i++) {
            size_t page;
            memcpy(&page, (const char *)value.mv_data + i * sizeof(page), sizeof(page));
            behind += page >= from;
        }
    }
    mdb_cursor_close(cursor);
    *out_count = count;
    *out_behind = behind;
    return rc == MDB_NOTFOUND ? 0 : rc;
}

kvt_status kvt_process_usage(struct kvt_process *p)
{
    int fd;
    struct stat is;
    MDB_envinfo info;
    MDB_stat stat;
    int rc = mdb_env_get_fd(p->env, &fd);
    if (rc == 0 && fstat(fd, &is) != 0) {
        rc = errno;
    }
    MDB_txn *txn;
    rc = rc != 0 ? rc : kvt_process_read_begin(p, &txn);
    if (rc != 0) {
        return kvt_process_lmdb(p, rc, "looking at it");
    }
    rc = mdb_env_info(p->env, &info);
    rc = rc != 0 ? rc : mdb_env_stat(p->env, &stat);
    uint64_t count = 0, behind = 0, pages = 0, pages_there = 0;
    if (rc == 0) {
        p->page_bytes = stat.ms_psize;
        pages = (uint64_t)info.me_last_pgno + 1;
        pages_there = (uint64_t)is.st_size / stat.ms_psize;
        /* Pages at the end that were taken and given back within a transaction were never written:
         * a file may lack those, if it lists them as free. */
        rc = free_pages(txn, pages > pages_there ? pages_there : UINT64_MAX, &count, &behind);
    }
    mdb_txn_abort(txn);
    if (rc != 0) {
        return kvt_process_lmdb(p, rc, "looking at it");
    }
    if (count > pages || (pages > pages_there && behind < pages - pages_there)) {
        return kvt_process_say(p, KVT_ERR_CORRUPT, 0,
                               "catalog '%s': the file is damaged: it has %llu pages and speaks of "
                               "%llu, %llu of them free",
                               p->folder, (unsigned long long)pages_there,
                               (unsigned long long)pages, (unsigned long long)count);
    }
    p->file_bytes = (uint64_t)is.st_size;
    p->used_bytes = (pages - count) * p->page_bytes;
    return KVT_OK;
}
