/* The folder, the lock against a second owner, and LMDB's environment with its three tables. */
#include "cache/base/crash_point.h"
#include "cache/catalog/process/process.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define FOLDER_MODE 0700
#define FILE_MODE 0600
#define PATH_BYTES (KVT_WIRE_FOLDER_BYTES + 32)
#define LOCK_FILE "catalog.lock"
#define DATA_FILE "data.mdb"
#define LMDB_LOCK_FILE "lock.mdb"
#define TABLES_MAX 4u
#define LOCK_WAIT_NS_MAX UINT64_C(2000000000) /* for an owner that is about to be gone */
#define LOCK_RETRY_NS 10000000
#define PID_TEXT_BYTES 32
/* A file that is larger than what it may now have still needs room for deletes. */
#define MAP_SPARE_DIVISOR 8u
#define MAP_SPARE_BYTES (UINT64_C(1) << 20)
#define MAP_ALIGN_BYTES (UINT64_C(1) << 16)
/* A file that never had a commit is not larger. */
#define UNBORN_BYTES_MAX 65536
/* A damaged key at the end must not use up the numbers. */
#define SEQ_LAST_MAX (UINT64_MAX >> 1)

static const char *path_of(const struct kvt_process *p, const char *name, char out[PATH_BYTES])
{
    (void)snprintf(out, PATH_BYTES, "%s/%s", p->folder, name);
    return out;
}

/* ---- folder and lock ---- */

static kvt_status folder_make(struct kvt_process *p)
{
    if (mkdir(p->folder, FOLDER_MODE) == 0) {
        KVT_CRASH_POINT("catalog_folder");
        char above[KVT_WIRE_FOLDER_BYTES];
        memcpy(above, p->folder, sizeof(above));
        char *slash = strrchr(above, '/');
        slash[slash == above ? 1 : 0] = '\0';
        int fd = open(above, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        bool good = fd >= 0 && fsync(fd) == 0;
        int error = errno;
        if (fd >= 0) {
            (void)close(fd);
        }
        return good ? KVT_OK : kvt_process_lmdb(p, error, "making the folder");
    }
    return errno == EEXIST ? KVT_OK : kvt_process_lmdb(p, errno, "making the folder");
}

/* OK: free. BUSY: out_pid, 0 where the file does not say. */
static kvt_status lock_try(int fd, long *out_pid)
{
    struct flock all = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (fcntl(fd, F_OFD_SETLK, &all) == 0) {
        return KVT_OK;
    }
    if (errno != EAGAIN && errno != EACCES && errno != EINTR) {
        return KVT_ERR_IO;
    }
    char text[PID_TEXT_BYTES];
    ssize_t bytes = pread(fd, text, sizeof(text) - 1, 0);
    text[bytes > 0 ? bytes : 0] = '\0';
    *out_pid = strtol(text, NULL, 10);
    return KVT_ERR_BUSY;
}

static kvt_status lock(struct kvt_process *p)
{
    char path[PATH_BYTES];
    int fd =
        open(path_of(p, LOCK_FILE, path), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, FILE_MODE);
    if (fd < 0) {
        return kvt_process_lmdb(p, errno, "opening its lock file");
    }
    uint64_t wait_ns = p->lock_wait_ns < LOCK_WAIT_NS_MAX ? p->lock_wait_ns : LOCK_WAIT_NS_MAX;
    uint64_t until_ns = kvt_now_ns(&kvt_clock_monotonic) + wait_ns;
    long pid = 0;
    kvt_status status;
    while ((status = lock_try(fd, &pid)) == KVT_ERR_BUSY &&
           kvt_now_ns(&kvt_clock_monotonic) < until_ns) {
        (void)nanosleep(&(struct timespec){.tv_nsec = LOCK_RETRY_NS}, NULL);
    }
    if (status == KVT_ERR_BUSY) {
        (void)kvt_process_say(p, status, 0,
                              "catalog '%s': process %ld has it open: end that one first, or name "
                              "another folder",
                              p->folder, pid);
    } else if (status != KVT_OK) {
        (void)kvt_process_lmdb(p, errno, "locking it");
    } else {
        char text[PID_TEXT_BYTES];
        int bytes = snprintf(text, sizeof(text), "%d\n", p->owner_pid);
        if (ftruncate(fd, 0) != 0 || pwrite(fd, text, (size_t)bytes, 0) != bytes) {
            kvt_process_warn(p,
                             "catalog '%s': cannot write its owner's pid into its lock file (%s)",
                             p->folder, strerror(errno));
        }
        p->lock_fd = fd;
        return KVT_OK;
    }
    (void)close(fd);
    return status;
}

/* Does a live owner write to it? */
static bool writer_is_there(struct kvt_process *p)
{
    char path[PATH_BYTES];
    int fd = open(path_of(p, LOCK_FILE, path), O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    struct flock all = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    bool there = fcntl(fd, F_OFD_GETLK, &all) == 0 && all.l_type != F_UNLCK;
    (void)close(fd);
    return there;
}

/* ---- the environment ---- */

static uint64_t map_bytes(const struct kvt_process *p, uint64_t file_bytes)
{
    uint64_t spare = file_bytes + file_bytes / MAP_SPARE_DIVISOR + MAP_SPARE_BYTES;
    uint64_t bytes = p->bytes_max > spare || file_bytes < p->bytes_max ? p->bytes_max : spare;
    return (bytes + MAP_ALIGN_BYTES - 1) & ~(MAP_ALIGN_BYTES - 1);
}

static kvt_status env_open(struct kvt_process *p, uint64_t file_bytes)
{
    unsigned flags = MDB_NOTLS;
    if (p->read_only) {
        /* Beside a writer a reader must be seen in LMDB's table of readers, which is the writer's
         * file already. With none, nothing is written at all. */
        flags |= MDB_RDONLY | (writer_is_there(p) ? 0U : MDB_NOLOCK);
    }
    int rc = mdb_env_create(&p->env);
    if (rc != 0) {
        p->env = NULL;
        return kvt_process_lmdb(p, rc, "opening it");
    }
    rc = mdb_env_set_maxdbs(p->env, TABLES_MAX);
    rc = rc != 0 ? rc : mdb_env_set_mapsize(p->env, (size_t)map_bytes(p, file_bytes));
    rc = rc != 0 ? rc : mdb_env_open(p->env, p->folder, flags, FILE_MODE);
    if (rc == 0 && !p->read_only) {
        int dead;
        rc = mdb_reader_check(p->env, &dead);
    }
    if (rc != 0) {
        mdb_env_close(p->env);
        p->env = NULL;
        return kvt_process_lmdb(p, rc, "opening it");
    }
    return KVT_OK;
}

/* A file without one table, that never had a transaction: nothing was ever in it. */
static int is_blank(struct kvt_process *p, MDB_txn *txn, bool *out_blank)
{
    MDB_dbi names;
    MDB_stat stat;
    MDB_envinfo info;
    int rc = mdb_dbi_open(txn, NULL, 0, &names);
    rc = rc != 0 ? rc : mdb_stat(txn, names, &stat);
    rc = rc != 0 ? rc : mdb_env_info(p->env, &info);
    if (rc == 0) {
        *out_blank = stat.ms_entries == 0 && info.me_last_txnid == 0;
    }
    return rc;
}

static int tables_open(struct kvt_process *p, MDB_txn *txn, unsigned flags)
{
    flags |= MDB_INTEGERKEY;
    int rc = mdb_dbi_open(txn, "head", flags, &p->head);
    rc = rc != 0 ? rc : mdb_dbi_open(txn, "namespaces", flags, &p->namespaces);
    return rc != 0 ? rc : mdb_dbi_open(txn, "pages", flags, &p->pages);
}

static kvt_status tables_make(struct kvt_process *p)
{
    struct kvt_catalog_head head = {.version = KVT_CATALOG_VERSION, .page_tokens = p->page_tokens};
    unsigned char record[KVT_RECORD_HEAD_BYTES];
    if (getrandom(head.id, sizeof(head.id), 0) != (ssize_t)sizeof(head.id)) {
        return kvt_process_lmdb(p, EIO, "making an id");
    }
    kvt_record_head_encode(&head, record);
    MDB_txn *txn;
    int rc = mdb_txn_begin(p->env, NULL, 0, &txn);
    if (rc != 0) {
        return kvt_process_lmdb(p, rc, "making it");
    }
    uint64_t key = KVT_RECORD_KEY_HEAD;
    MDB_val key_value = {sizeof(key), &key}, value = {sizeof(record), record};
    rc = tables_open(p, txn, MDB_CREATE);
    rc = rc != 0 ? rc : mdb_put(txn, p->head, &key_value, &value, 0);
    if (rc != 0) {
        mdb_txn_abort(txn);
    } else {
        KVT_CRASH_POINT("catalog_before_made");
        rc = mdb_txn_commit(txn);
        KVT_CRASH_POINT("catalog_after_made");
    }
    if (rc != 0) {
        return kvt_process_lmdb(p, rc, "making it");
    }
    int fd = open(p->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    rc = fd >= 0 && fsync(fd) == 0 ? 0 : errno;
    if (fd >= 0) {
        (void)close(fd);
    }
    return rc == 0 ? KVT_OK : kvt_process_lmdb(p, rc, "making it");
}

/* The head as it lies in the file, into the reply; its version is looked at here, the owner looks
 * at all of it. */
static kvt_status head_read(struct kvt_process *p, MDB_txn *txn)
{
    uint64_t key = KVT_RECORD_KEY_HEAD;
    MDB_val key_value = {sizeof(key), &key}, value;
    int rc = mdb_get(txn, p->head, &key_value, &value);
    if (rc != 0) {
        return kvt_process_lmdb(p, rc == MDB_NOTFOUND ? MDB_CORRUPTED : rc, "reading its head");
    }
    struct kvt_catalog_head head;
    kvt_status status = kvt_record_head_decode(value.mv_data, value.mv_size, &head);
    if (status == KVT_ERR_VERSION) {
        return kvt_process_say(p, status, 0,
                               "catalog '%s': it has format version %u, this program knows version "
                               "%u: use the program that made it, or name another folder",
                               p->folder, head.version, KVT_CATALOG_VERSION);
    }
    if (status != KVT_OK || value.mv_size > sizeof(p->reply.head)) {
        return kvt_process_lmdb(p, MDB_CORRUPTED, "reading its head");
    }
    p->version = head.version;
    p->reply.head_bytes = (uint32_t)value.mv_size;
    memcpy(p->reply.head, value.mv_data, value.mv_size);
    return KVT_OK;
}

static int last_key(MDB_txn *txn, MDB_dbi table, uint64_t most, uint64_t *out_key)
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
    *out_key = last <= most ? last : 0;
    return rc == MDB_NOTFOUND ? 0 : rc;
}

/* The highest numbers ever used: those in the tables, or those that were written down. */
static int counters_read(struct kvt_process *p, MDB_txn *txn)
{
    uint64_t key = KVT_RECORD_KEY_COUNTERS;
    MDB_val key_value = {sizeof(key), &key}, value;
    p->recorded = (struct kvt_record_counters){0};
    int rc = mdb_get(txn, p->head, &key_value, &value);
    if (rc == 0) {
        struct kvt_record_counters counters;
        if (kvt_record_counters_decode(p->version, value.mv_data, value.mv_size, &counters) !=
            KVT_OK) {
            return MDB_CORRUPTED;
        }
        p->recorded = counters;
    } else if (rc != MDB_NOTFOUND) {
        return rc;
    }
    uint64_t seq, ns;
    rc = last_key(txn, p->pages, SEQ_LAST_MAX, &seq);
    rc = rc != 0 ? rc : last_key(txn, p->namespaces, UINT32_MAX, &ns);
    if (rc == 0) {
        p->highest = p->recorded;
        p->highest.seq_last = seq > p->highest.seq_last ? seq : p->highest.seq_last;
        if (ns > p->highest.namespace_last) {
            p->highest.namespace_last = (uint32_t)ns;
        }
    }
    return rc;
}

static kvt_status tables_read(struct kvt_process *p, bool create)
{
    MDB_txn *txn;
    bool blank = false;
    int rc = kvt_process_read_begin(p, &txn);
    if (rc != 0) {
        return kvt_process_lmdb(p, rc, "opening it");
    }
    kvt_status status = KVT_OK;
    rc = is_blank(p, txn, &blank);
    if (rc == 0 && !blank) {
        rc = tables_open(p, txn, 0);
        status = rc == 0 ? head_read(p, txn) : KVT_OK;
        rc = rc == 0 && status == KVT_OK ? counters_read(p, txn) : rc;
    }
    if (rc != 0 || status != KVT_OK || blank) {
        mdb_txn_abort(txn);
    } else {
        rc = mdb_txn_commit(txn); /* keeps the tables' handles */
    }
    if (rc != 0) {
        return kvt_process_lmdb(p, rc == MDB_NOTFOUND ? MDB_CORRUPTED : rc, "reading its tables");
    }
    if (status != KVT_OK || !blank) {
        return status;
    }
    if (!create) {
        return kvt_process_say(p, KVT_ERR_INVAL, 0, "catalog '%s': there is none", p->folder);
    }
    status = tables_make(p);
    return status == KVT_OK ? tables_read(p, false) : status;
}

/* Its whole size now, so that a full drive shows now. */
static void reserve_room(struct kvt_process *p)
{
    int fd;
    if (mdb_env_get_fd(p->env, &fd) == 0 &&
        fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, (off_t)p->bytes_max) != 0) {
        kvt_process_warn(p,
                         "catalog '%s': %llu bytes cannot be set aside for it (%s): it may not get "
                         "them later",
                         p->folder, (unsigned long long)p->bytes_max, strerror(errno));
    }
}

static kvt_status file_open(struct kvt_process *p, bool create)
{
    char path[PATH_BYTES];
    struct stat is = {0};
    bool there = stat(path_of(p, DATA_FILE, path), &is) == 0;
    if (!there && errno != ENOENT && errno != ENOTDIR) {
        return kvt_process_lmdb(p, errno, "opening it");
    }
    if ((!there || is.st_size == 0) && !create) {
        return kvt_process_say(p, KVT_ERR_INVAL, 0, "catalog '%s': there is none", p->folder);
    }
    kvt_status status = env_open(p, (uint64_t)is.st_size);
    if (status == KVT_ERR_CORRUPT && create && is.st_size <= UNBORN_BYTES_MAX) {
        /* A power cut before its first commit was durable: there was never anything in it. */
        if (truncate(path, 0) != 0) {
            return kvt_process_lmdb(p, errno, "making it anew");
        }
        status = env_open(p, 0);
    }
    if (status != KVT_OK) {
        return status;
    }
    status = kvt_process_usage(p);
    if (status == KVT_OK) {
        status = tables_read(p, create);
    }
    return status == KVT_OK ? kvt_process_usage(p) : status;
}

kvt_status kvt_process_open(struct kvt_process *p)
{
    bool create = p->create && !p->read_only;
    kvt_status status = create ? folder_make(p) : KVT_OK;
    if (status == KVT_OK && !p->read_only) {
        struct stat is;
        if (stat(p->folder, &is) != 0 && (errno == ENOENT || errno == ENOTDIR)) {
            return kvt_process_say(p, KVT_ERR_INVAL, 0, "catalog '%s': there is none", p->folder);
        }
        status = lock(p);
    }
    if (status == KVT_OK) {
        status = file_open(p, create);
    }
    if (status == KVT_OK && !p->read_only) {
        reserve_room(p);
    }
    return status;
}

void kvt_process_close(struct kvt_process *p)
{
    if (p->env != NULL) {
        mdb_env_close(p->env);
        p->env = NULL;
    }
    if (p->lock_fd >= 0) {
        (void)close(p->lock_fd);
        p->lock_fd = -1;
    }
    p->opened = false;
}

kvt_status kvt_process_reopen(struct kvt_process *p)
{
    if (p->env != NULL) {
        mdb_env_close(p->env);
        p->env = NULL;
    }
    kvt_status status = file_open(p, false);
    p->reply.head_bytes = 0;
    if (status != KVT_OK && p->env != NULL) {
        mdb_env_close(p->env);
        p->env = NULL;
    }
    return status;
}
