/* Reading all of it: for the owner, in pieces, and alone, to see how long that takes. */
#include "cache/catalog/process/process.h"

#include <fcntl.h>
#include <string.h>

int kvt_process_read_begin(struct kvt_process *p, MDB_txn **out_txn)
{
    int rc = mdb_txn_begin(p->env, NULL, MDB_RDONLY, out_txn);
    if (rc == MDB_MAP_RESIZED) {
        /* Its writer made it larger: take the writer's size. */
        rc = mdb_env_set_mapsize(p->env, 0);
        rc = rc != 0 ? rc : mdb_txn_begin(p->env, NULL, MDB_RDONLY, out_txn);
    }
    return rc;
}

/* Cold, the file is read page by page in the order of the tree, which after a while is none: ask
 * for all of it beforehand. */
static void read_ahead(struct kvt_process *p)
{
    int fd;
    if (mdb_env_get_fd(p->env, &fd) == 0) {
        (void)posix_fadvise(fd, 0, (off_t)p->file_bytes, POSIX_FADV_WILLNEED);
    }
}

static bool flush_piece(struct kvt_process *p)
{
    size_t bytes = p->piece_bytes;
    p->piece_bytes = 0;
    return bytes == 0 || kvt_process_send(p, KVT_WIRE_RECORDS, p->piece, bytes);
}

static bool append(struct kvt_process *p, uint64_t key, uint32_t kind, const MDB_val *value)
{
    const struct kvt_wire_entry entry = {
        .key = key, .kind = kind, .bytes = (uint32_t)value->mv_size};
    size_t padded = (size_t)kvt_wire_padded(value->mv_size);
    if (p->piece_bytes + sizeof(entry) + padded > KVT_WIRE_PIECE_BYTES && !flush_piece(p)) {
        return false;
    }
    unsigned char *at = p->piece + p->piece_bytes;
    memcpy(at, &entry, sizeof(entry));
    at += sizeof(entry);
    if (value->mv_size > 0) {
        memcpy(at, value->mv_data, value->mv_size);
        memset(at + value->mv_size, 0, padded - value->mv_size);
    }
    p->piece_bytes += sizeof(entry) + padded;
    return true;
}

/* One table in rising keys, which also ends a tree that damage has made a circle. `kind` 0: only
 * walk. False: the owner is gone. */
static bool read_table(struct kvt_process *p, MDB_txn *txn, MDB_dbi table, uint32_t kind,
                       int *out_rc)
{
    MDB_cursor *cursor;
    int rc = mdb_cursor_open(txn, table, &cursor);
    if (rc != 0) {
        *out_rc = rc;
        return true;
    }
    uint64_t last = 0;
    bool there = true;
    MDB_val key_value, value;
    while (there && (rc = mdb_cursor_get(cursor, &key_value, &value, MDB_NEXT)) == 0) {
        uint64_t key = 0;
        if (key_value.mv_size == sizeof(key)) {
            memcpy(&key, key_value.mv_data, sizeof(key));
        }
        if (key <= last || value.mv_size > KVT_RECORD_BYTES_MAX) {
            rc = MDB_CORRUPTED;
            break;
        }
        last = key;
        p->reply.records++;
        if (kind != 0) {
            there = append(p, key, kind, &value);
        }
    }
    mdb_cursor_close(cursor);
    *out_rc = rc == MDB_NOTFOUND ? 0 : rc;
    return there;
}

bool kvt_process_load(struct kvt_process *p)
{
    MDB_txn *txn;
    read_ahead(p);
    int rc = kvt_process_read_begin(p, &txn);
    if (rc != 0) {
        p->reply.status = kvt_process_lmdb(p, rc, "reading it");
        return true;
    }
    p->piece_bytes = 0;
    bool there = read_table(p, txn, p->namespaces, KVT_WIRE_PUT_NAMESPACE, &rc);
    if (there && rc == 0) {
        there = read_table(p, txn, p->pages, KVT_WIRE_PUT_PAGE, &rc);
    }
    mdb_txn_abort(txn);
    if (!there || !flush_piece(p)) {
        return false;
    }
    p->reply.status = rc == 0 ? KVT_OK : kvt_process_lmdb(p, rc, "reading it");
    p->reply.seq_last = p->highest.seq_last;
    p->reply.namespace_last = p->highest.namespace_last;
    return true;
}

kvt_status kvt_process_walk(struct kvt_process *p)
{
    MDB_txn *txn;
    uint64_t begun_ns = kvt_now_ns(&kvt_clock_monotonic);
    int rc = kvt_process_read_begin(p, &txn);
    if (rc != 0) {
        return kvt_process_lmdb(p, rc, "reading it");
    }
    (void)read_table(p, txn, p->namespaces, 0, &rc);
    if (rc == 0) {
        (void)read_table(p, txn, p->pages, 0, &rc);
    }
    mdb_txn_abort(txn);
    if (rc != 0) {
        return kvt_process_lmdb(p, rc, "reading it");
    }
    p->reply.walk_ns = kvt_now_ns(&kvt_clock_monotonic) - begun_ns;
    return KVT_OK;
}
