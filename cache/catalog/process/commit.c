/*
 * Writing: one transaction a batch. New records are refused before the file is full, because a
 * delete needs pages too (LMDB never writes over a page that the last transaction can see), and a
 * full file from which nothing can be deleted would stay full for ever.
 */
#include "cache/base/crash_point.h"
#include "cache/catalog/process/process.h"

#include <string.h>

#define FULL_PERCENT 85u       /* used before a batch that has new records */
#define FULL_AFTER_PERCENT 95u /* guessed after it */
#define GROWTH 2u              /* pages are filled by half at worst */
#define DELETES_MAX 1000u      /* of one transaction */

/* An entry and the bytes after it. */
struct item {
    struct kvt_wire_entry entry;
    unsigned char *record;
};

static bool item_at(const struct kvt_process *p, uint64_t bytes, uint64_t *at,
                    struct item *out_item)
{
    if (bytes - *at < sizeof(out_item->entry)) {
        return false;
    }
    memcpy(&out_item->entry, p->request + *at, sizeof(out_item->entry));
    uint64_t padded = kvt_wire_padded(out_item->entry.bytes);
    if (out_item->entry.bytes > KVT_RECORD_BYTES_MAX ||
        padded > bytes - *at - sizeof(out_item->entry)) {
        return false;
    }
    out_item->record = p->request + *at + sizeof(out_item->entry);
    *at += sizeof(out_item->entry) + padded;
    return true;
}

struct batch {
    uint64_t puts, deletes, put_bytes;
    uint64_t bytes;
};

static bool batch_check(const struct kvt_process *p, uint64_t bytes, struct batch *out_batch)
{
    struct batch batch = {.bytes = bytes};
    struct item item;
    for (uint64_t at = 0; at < bytes;) {
        if (!item_at(p, bytes, &at, &item) || item.entry.key == 0 ||
            batch.puts + batch.deletes >= KVT_CATALOG_BATCH_MAX) {
            return false;
        }
        switch ((enum kvt_wire_entry_kind)item.entry.kind) {
        case KVT_WIRE_PUT_NAMESPACE:
        case KVT_WIRE_PUT_PAGE:
            batch.puts++;
            batch.put_bytes += sizeof(item.entry) + item.entry.bytes;
            break;
        case KVT_WIRE_DELETE_PAGE:
        case KVT_WIRE_DELETE_NAMESPACE:
            batch.deletes++;
            break;
        default:
            return false;
        }
    }
    *out_batch = batch;
    return true;
}

static int put(MDB_txn *txn, MDB_dbi table, const struct item *item)
{
    uint64_t key = item->entry.key;
    MDB_val key_value = {sizeof(key), &key}, value = {item->entry.bytes, item->record};
    /* Numbers rise, so most go to the end; one that is sent again does not. */
    int rc = mdb_put(txn, table, &key_value, &value, MDB_APPEND);
    return rc == MDB_KEYEXIST ? mdb_put(txn, table, &key_value, &value, 0) : rc;
}

static int drop(MDB_txn *txn, MDB_dbi table, uint64_t key)
{
    MDB_val key_value = {sizeof(key), &key};
    int rc = mdb_del(txn, table, &key_value, NULL);
    return rc == MDB_NOTFOUND ? 0 : rc;
}

static int item_apply(struct kvt_process *p, MDB_txn *txn, const struct item *item,
                      struct kvt_record_counters *highest)
{
    switch ((enum kvt_wire_entry_kind)item->entry.kind) {
    case KVT_WIRE_PUT_NAMESPACE:
        if (item->entry.key > highest->namespace_last) {
            highest->namespace_last = (uint32_t)item->entry.key;
        }
        return put(txn, p->namespaces, item);
    case KVT_WIRE_PUT_PAGE:
        if (item->entry.key > highest->seq_last) {
            highest->seq_last = item->entry.key;
        }
        return put(txn, p->pages, item);
    case KVT_WIRE_DELETE_PAGE:
        return drop(txn, p->pages, item->entry.key);
    case KVT_WIRE_DELETE_NAMESPACE:
        return drop(txn, p->namespaces, item->entry.key);
    default:
        return 0;
    }
}

static int table_last(MDB_txn *txn, MDB_dbi table, uint64_t *out_last)
{
    MDB_cursor *cursor;
    MDB_val key, value;
    int rc = mdb_cursor_open(txn, table, &cursor);
    if (rc != 0) {
        return rc;
    }
    uint64_t last = 0;
    rc = mdb_cursor_get(cursor, &key, &value, MDB_LAST);
    if (rc == 0 && key.mv_size == sizeof(last)) {
        memcpy(&last, key.mv_data, sizeof(last));
    }
    mdb_cursor_close(cursor);
    *out_last = last;
    return rc == MDB_NOTFOUND ? 0 : rc;
}

/* Numbers are never used again: the highest is written down when its record goes, and only then. */
static int counters_keep(struct kvt_process *p, MDB_txn *txn,
                         const struct kvt_record_counters *highest, bool *out_kept)
{
    uint64_t seq, ns;
    int rc = table_last(txn, p->pages, &seq);
    rc = rc != 0 ? rc : table_last(txn, p->namespaces, &ns);
    if (rc != 0) {
        return rc;
    }
    bool seq_shows = seq >= highest->seq_last || highest->seq_last <= p->recorded.seq_last;
    bool ns_shows =
        ns >= highest->namespace_last || highest->namespace_last <= p->recorded.namespace_last;
    *out_kept = !seq_shows || !ns_shows;
    if (!*out_kept) {
        return 0;
    }
    unsigned char record[KVT_RECORD_COUNTERS_BYTES];
    uint64_t key = KVT_RECORD_KEY_COUNTERS;
    kvt_record_counters_encode(highest, record);
    MDB_val key_value = {sizeof(key), &key}, value = {sizeof(record), record};
    return mdb_put(txn, p->head, &key_value, &value, 0);
}

/* Applies items from *at on, at most `most` of them, durably; moves *at behind them on success. */
static int apply(struct kvt_process *p, const struct batch *batch, uint64_t *at, uint64_t most)
{
    MDB_txn *txn;
    int rc = mdb_txn_begin(p->env, NULL, 0, &txn);
    if (rc != 0) {
        return rc;
    }
    uint64_t next = *at;
    struct kvt_record_counters highest = p->highest;
    for (uint64_t i = 0; rc == 0 && i < most && next < batch->bytes; i++) {
        struct item item;
        rc = item_at(p, batch->bytes, &next, &item) ? item_apply(p, txn, &item, &highest)
                                                    : MDB_CORRUPTED;
    }
    bool kept = false;
    if (rc == 0 && batch->deletes > 0) {
        rc = counters_keep(p, txn, &highest, &kept);
    }
    if (rc != 0) {
        mdb_txn_abort(txn);
        return rc;
    }
    KVT_CRASH_POINT("catalog_before_commit");
    rc = mdb_txn_commit(txn);
    KVT_CRASH_POINT("catalog_after_commit");
    if (rc == 0) {
        p->highest = highest;
        p->recorded = kept ? highest : p->recorded;
        *at = next;
    }
    return rc;
}

static kvt_status refuse_when_full(struct kvt_process *p, const struct batch *batch)
{
    uint64_t percent = p->bytes_max / 100;
    if (batch->puts == 0 ||
        (p->used_bytes < FULL_PERCENT * percent &&
         p->used_bytes + GROWTH * batch->put_bytes < FULL_AFTER_PERCENT * percent)) {
        return KVT_OK;
    }
    return kvt_process_say(
        p, KVT_ERR_LIMIT, 0,
        "catalog '%s': %llu of %llu bytes are used; the rest is kept for deletes", p->folder,
        (unsigned long long)p->used_bytes, (unsigned long long)p->bytes_max);
}

/* A transaction of deletes alone that does not fit is done in smaller ones: they may be repeated,
 * and what they give back the next but one can use. */
static int apply_all(struct kvt_process *p, const struct batch *batch)
{
    uint64_t at = 0;
    uint64_t most = batch->puts > 0 ? UINT64_MAX : DELETES_MAX;
    int rc = 0;
    while (rc == 0 && at < batch->bytes) {
        rc = apply(p, batch, &at, most);
        if ((rc == MDB_MAP_FULL || rc == MDB_TXN_FULL) && batch->puts == 0 && most > 1) {
            most /= 2;
            rc = 0;
        }
    }
    return rc;
}

kvt_status kvt_process_commit(struct kvt_process *p, uint64_t bytes)
{
    struct batch batch;
    if (p->read_only || !batch_check(p, bytes, &batch)) {
        return kvt_process_say(p, KVT_ERR_INVAL, 0, "catalog '%s': a batch that makes no sense",
                               p->folder);
    }
    kvt_status status = refuse_when_full(p, &batch);
    if (status != KVT_OK) {
        return status;
    }
    int rc = apply_all(p, &batch);
    if (rc == MDB_PANIC || rc == MDB_BAD_TXN) {
        status = kvt_process_reopen(p);
        if (status != KVT_OK) {
            return status;
        }
        rc = apply_all(p, &batch);
    }
    return rc == 0 ? kvt_process_usage(p) : kvt_process_lmdb(p, rc, "writing to it");
}

kvt_status kvt_process_set_head(struct kvt_process *p, uint64_t bytes)
{
    struct kvt_catalog_head head;
    if (p->read_only || bytes != KVT_RECORD_HEAD_BYTES ||
        kvt_record_head_decode(p->request, (size_t)bytes, &head) != KVT_OK) {
        return kvt_process_say(p, KVT_ERR_INVAL, 0, "catalog '%s': a head that makes no sense",
                               p->folder);
    }
    MDB_txn *txn;
    int rc = mdb_txn_begin(p->env, NULL, 0, &txn);
    if (rc == 0) {
        uint64_t key = KVT_RECORD_KEY_HEAD;
        MDB_val key_value = {sizeof(key), &key}, value = {(size_t)bytes, p->request};
        rc = mdb_put(txn, p->head, &key_value, &value, 0);
        if (rc != 0) {
            mdb_txn_abort(txn);
        } else {
            KVT_CRASH_POINT("catalog_before_head");
            rc = mdb_txn_commit(txn);
            KVT_CRASH_POINT("catalog_after_head");
        }
    }
    return rc == 0 ? kvt_process_usage(p) : kvt_process_lmdb(p, rc, "writing its head");
}
