/*
 * Frames to and from the child, whose turn it is, and the child's life: started when a request
 * needs it and its pause is over, ended when it does not answer in time or sends what makes no
 * sense.
 */
#include "cache/catalog/client_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

uint64_t kvt_catalog_deadline(uint64_t timeout_ns)
{
    uint64_t now_ns = kvt_now_ns(&kvt_clock_monotonic);
    return timeout_ns < UINT64_MAX - now_ns ? now_ns + timeout_ns : UINT64_MAX;
}

/* ---- the end of a child ---- */

/* It is ended and may be started again after a pause, which grows until something has been done.
 * Answers status. */
static kvt_status lose(struct kvt_catalog *catalog, kvt_status status, const char *what)
{
    int32_t pid = catalog->child.pid;
    bool had = catalog->child.socket >= 0;
    kvt_catalog_child_kill(&catalog->child);
    catalog->retry_ns = kvt_catalog_deadline(catalog->pause_ns);
    if (had) {
        kvt_log(catalog->log, KVT_LOG_WARNING,
                "catalog '%s': its process %d %s: it is started again in %u s at the earliest",
                catalog->folder, pid, what, (unsigned)(catalog->pause_ns / UINT64_C(1000000000)));
    }
    catalog->pause_ns *= 2;
    if (catalog->pause_ns > KVT_CATALOG_PAUSE_MAX_NS) {
        catalog->pause_ns = KVT_CATALOG_PAUSE_MAX_NS;
    }
    kvt_lock_take(&catalog->lock);
    catalog->stats.alive = false;
    catalog->stats.pid = 0;
    kvt_lock_give(&catalog->lock);
    return status;
}

static kvt_status lose_by(struct kvt_catalog *catalog, kvt_status status)
{
    return lose(catalog, status,
                status == KVT_ERR_TIMEOUT ? "did not answer in time and was ended" : "died");
}

kvt_status kvt_catalog_broken(struct kvt_catalog *catalog, const char *what)
{
    return lose(catalog, KVT_ERR_UNAVAILABLE, what);
}

/* ---- frames ---- */

kvt_status kvt_catalog_send(struct kvt_catalog *catalog, const void *data, size_t bytes,
                            uint64_t deadline_ns)
{
    const unsigned char *at = data;
    while (bytes > 0) {
        ssize_t sent = send(catalog->child.socket, at, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent >= 0) {
            at += sent;
            bytes -= (size_t)sent;
        } else if (errno == EAGAIN) {
            kvt_status status = kvt_catalog_wait(catalog->child.socket, true, deadline_ns);
            if (status != KVT_OK) {
                return lose_by(catalog, status);
            }
        } else if (errno != EINTR) {
            return lose_by(catalog, KVT_ERR_UNAVAILABLE);
        }
    }
    return KVT_OK;
}

static kvt_status take(struct kvt_catalog *catalog, void *buffer, size_t bytes,
                       uint64_t deadline_ns)
{
    unsigned char *at = buffer;
    while (bytes > 0) {
        ssize_t got = recv(catalog->child.socket, at, bytes, MSG_DONTWAIT);
        if (got > 0) {
            at += got;
            bytes -= (size_t)got;
        } else if (got < 0 && errno == EAGAIN) {
            kvt_status status = kvt_catalog_wait(catalog->child.socket, false, deadline_ns);
            if (status != KVT_OK) {
                return lose_by(catalog, status);
            }
        } else if (got == 0 || errno != EINTR) {
            return lose_by(catalog, KVT_ERR_UNAVAILABLE);
        }
    }
    return KVT_OK;
}

kvt_status kvt_catalog_request(struct kvt_catalog *catalog, enum kvt_wire_kind kind, uint64_t bytes,
                               uint64_t deadline_ns)
{
    const struct kvt_wire_header header = {
        .magic = KVT_WIRE_MAGIC, .kind = kind, .id = ++catalog->id, .bytes = bytes};
    return kvt_catalog_send(catalog, &header, sizeof(header), deadline_ns);
}

/* What a reply may say; everything else is no reply of ours. */
static bool reply_good(struct kvt_wire_reply *reply)
{
    reply->why[sizeof(reply->why) - 1] = '\0';
    reply->warning[sizeof(reply->warning) - 1] = '\0';
    switch (reply->status) {
    case KVT_OK:
    case KVT_ERR_INVAL:
    case KVT_ERR_NOMEM:
    case KVT_ERR_CORRUPT:
    case KVT_ERR_BUSY:
    case KVT_ERR_VERSION:
    case KVT_ERR_LIMIT:
        reply->error = 0;
        return true;
    case KVT_ERR_IO:
        reply->error = reply->error > 0 ? reply->error : EIO;
        return true;
    default:
        return false;
    }
}

kvt_status kvt_catalog_receive(struct kvt_catalog *catalog, uint64_t deadline_ns,
                               struct kvt_wire_header *out_header)
{
    struct kvt_wire_header header;
    kvt_status status = take(catalog, &header, sizeof(header), deadline_ns);
    if (status != KVT_OK) {
        return status;
    }
    if (header.magic == KVT_WIRE_MAGIC && header.id == catalog->id &&
        header.kind == KVT_WIRE_RECORDS && header.bytes <= KVT_WIRE_PIECE_BYTES) {
        status = take(catalog, catalog->buffer, (size_t)header.bytes, deadline_ns);
    } else if (header.magic == KVT_WIRE_MAGIC && header.id == catalog->id &&
               header.kind == KVT_WIRE_REPLY && header.bytes == sizeof(catalog->reply)) {
        status = take(catalog, &catalog->reply, sizeof(catalog->reply), deadline_ns);
        if (status == KVT_OK && !reply_good(&catalog->reply)) {
            status = kvt_catalog_broken(catalog, "sent a reply that makes no sense");
        }
    } else {
        status = kvt_catalog_broken(catalog, "sent what makes no sense");
    }
    if (status == KVT_OK) {
        *out_header = header;
    }
    return status;
}

kvt_status kvt_catalog_reply(struct kvt_catalog *catalog, uint64_t deadline_ns)
{
    struct kvt_wire_header header;
    kvt_status status = kvt_catalog_receive(catalog, deadline_ns, &header);
    if (status != KVT_OK) {
        return status;
    }
    if (header.kind != KVT_WIRE_REPLY) {
        return kvt_catalog_broken(catalog, "sent records that nobody asked for");
    }
    const struct kvt_wire_reply *reply = &catalog->reply;
    if (reply->warning[0] != '\0') {
        kvt_log(catalog->log, KVT_LOG_WARNING, "%s", reply->warning);
    }
    kvt_lock_take(&catalog->lock);
    catalog->stats.file_bytes = reply->file_bytes;
    catalog->stats.used_bytes = reply->used_bytes;
    kvt_lock_give(&catalog->lock);
    return reply->status;
}

/* ---- starting ---- */

static kvt_status open_request(struct kvt_catalog *catalog, bool create, uint64_t deadline_ns)
{
    struct kvt_wire_open asked = {
        .flags = (create ? KVT_WIRE_FLAG_CREATE : 0U) |
                 (catalog->read_only ? KVT_WIRE_FLAG_READ_ONLY : 0U),
        .page_tokens = catalog->page_tokens,
        .bytes_max = catalog->bytes_max,
        .owner_pid = (int32_t)catalog->owner,
    };
    uint64_t now_ns = kvt_now_ns(&kvt_clock_monotonic);
    asked.timeout_ns = deadline_ns > now_ns ? deadline_ns - now_ns : 0;
    memcpy(asked.folder, catalog->folder, catalog->folder_bytes);
    kvt_status status = kvt_catalog_request(catalog, KVT_WIRE_OPEN, sizeof(asked), deadline_ns);
    if (status == KVT_OK) {
        status = kvt_catalog_send(catalog, &asked, sizeof(asked), deadline_ns);
    }
    return status == KVT_OK ? kvt_catalog_reply(catalog, deadline_ns) : status;
}

static kvt_status head_take(struct kvt_catalog *catalog, char *why, size_t why_bytes)
{
    struct kvt_catalog_head head;
    static const unsigned char none[KVT_CATALOG_ID_BYTES];
    size_t bytes =
        catalog->reply.head_bytes <= sizeof(catalog->reply.head) ? catalog->reply.head_bytes : 0;
    kvt_status status = kvt_record_head_decode(catalog->reply.head, bytes, &head);
    if (status != KVT_OK) {
        (void)snprintf(why, why_bytes, "catalog '%s': its head is damaged", catalog->folder);
        return KVT_ERR_CORRUPT;
    }
    if (catalog->page_tokens != 0 && head.page_tokens != catalog->page_tokens) {
        (void)snprintf(why, why_bytes,
                       "catalog '%s': it was made for pages of %u tokens, not of %u: set the same, "
                       "or name another folder",
                       catalog->folder, head.page_tokens, catalog->page_tokens);
        return KVT_ERR_INVAL;
    }
    /* Set when this is not the first start. */
    if (memcmp(catalog->head.id, none, sizeof(none)) != 0 &&
        memcmp(catalog->head.id, head.id, sizeof(head.id)) != 0) {
        (void)snprintf(why, why_bytes, "catalog '%s': another catalog lies there now",
                       catalog->folder);
        return KVT_ERR_CORRUPT;
    }
    kvt_lock_take(&catalog->lock);
    catalog->head = head;
    catalog->stats.alive = true;
    catalog->stats.pid = catalog->child.pid;
    kvt_lock_give(&catalog->lock);
    return KVT_OK;
}

kvt_status kvt_catalog_start(struct kvt_catalog *catalog, bool create, uint64_t deadline_ns,
                             char *why, size_t why_bytes)
{
    kvt_status status = kvt_catalog_spawn(catalog->program, catalog->folder, deadline_ns,
                                          &catalog->child, why, why_bytes);
    if (status == KVT_OK) {
        catalog->reply.why[0] = '\0';
        status = open_request(catalog, create, deadline_ns);
        if (status == KVT_OK) {
            status = head_take(catalog, why, why_bytes);
        } else if (catalog->child.socket < 0) {
            (void)snprintf(why, why_bytes, "catalog '%s': its process %s while it was opened",
                           catalog->folder,
                           status == KVT_ERR_TIMEOUT ? "did not answer in time" : "died");
        } else {
            (void)snprintf(why, why_bytes, "%s", catalog->reply.why);
        }
    }
    if (status != KVT_OK && catalog->child.socket >= 0) {
        /* It would end by itself when the socket closes; but it is to be gone, not about to go. */
        kvt_catalog_child_kill(&catalog->child);
    }
    return status;
}

/* ---- turns ---- */

static kvt_status start_again(struct kvt_catalog *catalog, uint64_t deadline_ns)
{
    char why[KVT_WIRE_TEXT_BYTES];
    if (kvt_now_ns(&kvt_clock_monotonic) < catalog->retry_ns) {
        return KVT_ERR_UNAVAILABLE;
    }
    kvt_lock_take(&catalog->lock);
    catalog->stats.restarts++;
    kvt_lock_give(&catalog->lock);
    kvt_status status = kvt_catalog_start(catalog, false, deadline_ns, why, sizeof(why));
    if (status == KVT_OK) {
        kvt_log(catalog->log, KVT_LOG_INFO, "catalog '%s': its process was started again, as %d",
                catalog->folder, catalog->child.pid);
        return status;
    }
    if (!catalog->complained) {
        kvt_log(catalog->log, KVT_LOG_WARNING, "%s", why);
        catalog->complained = true;
    }
    return lose(catalog, status, "was refused");
}

kvt_status kvt_catalog_begin(struct kvt_catalog *catalog, uint64_t deadline_ns)
{
    if (getpid() != catalog->owner) {
        return KVT_ERR_PROCESS;
    }
    kvt_status status = KVT_OK;
    kvt_lock_take(&catalog->lock);
    while (catalog->busy && status == KVT_OK) {
        uint64_t now_ns = kvt_now_ns(&kvt_clock_monotonic);
        if (now_ns >= deadline_ns) {
            status = KVT_ERR_TIMEOUT;
        } else {
            (void)kvt_cond_wait(&catalog->cond, &catalog->lock, deadline_ns - now_ns);
        }
    }
    if (status == KVT_OK) {
        catalog->busy = true;
    }
    kvt_lock_give(&catalog->lock);
    if (status != KVT_OK) {
        return status;
    }
    if (catalog->child.socket < 0) {
        status = start_again(catalog, deadline_ns);
    }
    return status == KVT_OK ? status : kvt_catalog_end(catalog, status);
}

kvt_status kvt_catalog_end(struct kvt_catalog *catalog, kvt_status status)
{
    if (status == KVT_OK) {
        catalog->pause_ns = KVT_CATALOG_PAUSE_MIN_NS;
        catalog->complained = false;
    } else if ((status == KVT_ERR_IO || status == KVT_ERR_CORRUPT) && !catalog->complained &&
               catalog->child.socket >= 0) {
        kvt_log(catalog->log, KVT_LOG_WARNING, "%s", catalog->reply.why);
        catalog->complained = true;
    }
    kvt_lock_take(&catalog->lock);
    catalog->busy = false;
    kvt_cond_broadcast(&catalog->cond);
    kvt_lock_give(&catalog->lock);
    return status;
}
