/* The owner's requests: each takes the turn, speaks to the child, gives the turn back. */
#include "cache/catalog/client_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- opening and closing ---- */

static char *copy_text(const struct kvt_memory *mem, const char *text, size_t *out_bytes)
{
    size_t bytes = strlen(text) + 1;
    char *copy = kvt_alloc(mem, bytes);
    if (copy != NULL) {
        memcpy(copy, text, bytes);
        *out_bytes = bytes;
    }
    return copy;
}

/* The folder as it is named from everywhere: the child works in no folder of the owner's. */
static kvt_status folder_whole(const char *folder, char out_folder[KVT_WIRE_FOLDER_BYTES])
{
    char here[KVT_WIRE_FOLDER_BYTES] = "";
    if (folder[0] != '/' && getcwd(here, sizeof(here)) == NULL) {
        return KVT_ERR_INVAL;
    }
    size_t here_bytes = strlen(here), bytes = strlen(folder);
    while (bytes > 1 && folder[bytes - 1] == '/') {
        bytes--;
    }
    if (bytes == 0 || here_bytes + bytes + 2 > KVT_WIRE_FOLDER_BYTES) {
        return KVT_ERR_INVAL;
    }
    memcpy(out_folder, here, here_bytes);
    if (here_bytes > 0) {
        out_folder[here_bytes++] = '/';
    }
    memcpy(out_folder + here_bytes, folder, bytes);
    out_folder[here_bytes + bytes] = '\0';
    return KVT_OK;
}

static kvt_status config_check(const struct kvt_catalog_config *config,
                               char out_folder[KVT_WIRE_FOLDER_BYTES], char *why, size_t why_bytes)
{
    const char *wrong = NULL;
    if (config->folder == NULL || folder_whole(config->folder, out_folder) != KVT_OK) {
        wrong = "no folder, or a name that is too long";
    } else if (config->bytes_max < KVT_CATALOG_BYTES_MIN) {
        wrong = "bytes_max is less than 1 MiB";
    } else if (config->page_tokens == 0 && !config->read_only) {
        wrong = "page_tokens is 0";
    }
    if (wrong != NULL) {
        (void)snprintf(why, why_bytes, "catalog '%s': %s",
                       config->folder != NULL ? config->folder : "", wrong);
        return KVT_ERR_INVAL;
    }
    return KVT_OK;
}

static void catalog_free(struct kvt_catalog *catalog)
{
    const struct kvt_memory *mem = catalog->mem;
    kvt_cond_fini(&catalog->cond);
    kvt_lock_fini(&catalog->lock);
    kvt_free(mem, catalog->buffer, KVT_WIRE_PIECE_BYTES);
    kvt_free(mem, catalog->program, catalog->program_bytes);
    kvt_free(mem, catalog->folder, catalog->folder_bytes);
    kvt_free(mem, catalog, sizeof(*catalog));
}

static kvt_status catalog_make(const struct kvt_catalog_config *config, const char *folder,
                               struct kvt_catalog **out_catalog)
{
    struct kvt_catalog *catalog = kvt_calloc(config->mem, 1, sizeof(*catalog));
    if (catalog == NULL) {
        return KVT_ERR_NOMEM;
    }
    catalog->mem = config->mem;
    catalog->log = config->log;
    catalog->bytes_max = config->bytes_max;
    catalog->page_tokens = config->page_tokens;
    catalog->read_only = config->read_only;
    catalog->owner = getpid();
    catalog->child = (struct kvt_catalog_child){.socket = -1, .pidfd = -1};
    catalog->pause_ns = KVT_CATALOG_PAUSE_MIN_NS;
    catalog->stats.bytes_max = config->bytes_max;
    kvt_lock_init(&catalog->lock, KVT_RANK_LEAF, "catalog");
    kvt_cond_init(&catalog->cond);
    catalog->folder = copy_text(config->mem, folder, &catalog->folder_bytes);
    if (config->program != NULL) {
        catalog->program = copy_text(config->mem, config->program, &catalog->program_bytes);
    }
    catalog->buffer = kvt_alloc(config->mem, KVT_WIRE_PIECE_BYTES);
    if (catalog->folder == NULL || catalog->buffer == NULL ||
        (config->program != NULL && catalog->program == NULL)) {
        catalog_free(catalog);
        return KVT_ERR_NOMEM;
    }
    *out_catalog = catalog;
    return KVT_OK;
}

kvt_status kvt_catalog_open(const struct kvt_catalog_config *config, uint64_t timeout_ns,
                            struct kvt_catalog **out_catalog, char *why, size_t why_bytes)
{
    char folder[KVT_WIRE_FOLDER_BYTES];
    struct kvt_catalog *catalog;
    uint64_t deadline_ns = kvt_catalog_deadline(timeout_ns);
    kvt_status status = config_check(config, folder, why, why_bytes);
    if (status != KVT_OK) {
        return status;
    }
    status = catalog_make(config, folder, &catalog);
    if (status != KVT_OK) {
        (void)snprintf(why, why_bytes, "catalog '%s': no memory", folder);
        return status;
    }
    status = kvt_catalog_start(catalog, config->create, deadline_ns, why, why_bytes);
    if (status != KVT_OK) {
        catalog_free(catalog);
        return status;
    }
    *out_catalog = catalog;
    return KVT_OK;
}

void kvt_catalog_close(struct kvt_catalog *catalog)
{
    if (catalog == NULL) {
        return;
    }
    /* A forked child of the owner has a copy of the socket: it must not end what is not its own. */
    bool ended = false;
    bool mine = catalog->child.socket >= 0 && getpid() == catalog->owner;
    if (mine) {
        (void)shutdown(catalog->child.socket, SHUT_WR);
        uint64_t deadline_ns = kvt_catalog_deadline(KVT_CATALOG_CLOSE_WAIT_NS);
        /* When it has closed the file and given its lock back, it closes the socket. */
        while (kvt_catalog_wait(catalog->child.socket, false, deadline_ns) == KVT_OK) {
            ssize_t got =
                recv(catalog->child.socket, catalog->buffer, KVT_WIRE_PIECE_BYTES, MSG_DONTWAIT);
            if (got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN)) {
                ended = true;
                break;
            }
        }
    }
    if (mine && !ended) {
        /* Stopped, or stuck: what it had not answered was promised to nobody, and a process that is
         * left behind would keep the store from its next owner. */
        kvt_catalog_child_kill(&catalog->child);
    } else {
        kvt_catalog_child_close(&catalog->child);
    }
    catalog_free(catalog);
}

/* ---- head and statistics ---- */

void kvt_catalog_head(const struct kvt_catalog *catalog, struct kvt_catalog_head *out_head)
{
    struct kvt_catalog *locked = (struct kvt_catalog *)(uintptr_t)catalog;
    kvt_lock_take(&locked->lock);
    *out_head = catalog->head;
    kvt_lock_give(&locked->lock);
}

void kvt_catalog_stats(struct kvt_catalog *catalog, struct kvt_catalog_stats *out_stats)
{
    kvt_lock_take(&catalog->lock);
    *out_stats = catalog->stats;
    kvt_lock_give(&catalog->lock);
}

kvt_status kvt_catalog_set_head(struct kvt_catalog *catalog, const struct kvt_catalog_head *head,
                                uint64_t timeout_ns)
{
    uint64_t deadline_ns = kvt_catalog_deadline(timeout_ns);
    struct kvt_catalog_head now;
    kvt_catalog_head(catalog, &now);
    if (catalog->read_only || head->version != now.version ||
        head->page_tokens != now.page_tokens || head->store_count > KVT_CATALOG_STORES_MAX ||
        memcmp(head->id, now.id, sizeof(now.id)) != 0) {
        return KVT_ERR_INVAL;
    }
    unsigned char record[KVT_RECORD_HEAD_BYTES];
    kvt_record_head_encode(head, record);
    kvt_status status = kvt_catalog_begin(catalog, deadline_ns);
    if (status != KVT_OK) {
        return status;
    }
    status = kvt_catalog_request(catalog, KVT_WIRE_HEAD, sizeof(record), deadline_ns);
    if (status == KVT_OK) {
        status = kvt_catalog_send(catalog, record, sizeof(record), deadline_ns);
    }
    if (status == KVT_OK) {
        status = kvt_catalog_reply(catalog, deadline_ns);
    }
    if (status == KVT_OK) {
        kvt_lock_take(&catalog->lock);
        catalog->head = *head;
        kvt_lock_give(&catalog->lock);
    }
    return kvt_catalog_end(catalog, status);
}

/* ---- committing ---- */

/* Room for an entry of `bytes` in the buffer, which is sent when it is full. */
static kvt_status entry_add(struct kvt_catalog *catalog, enum kvt_wire_entry_kind kind,
                            uint64_t key, size_t bytes, uint64_t deadline_ns, void **out_record)
{
    const struct kvt_wire_entry entry = {.key = key, .kind = kind, .bytes = (uint32_t)bytes};
    size_t padded = (size_t)kvt_wire_padded(bytes);
    if (catalog->buffer_bytes + sizeof(entry) + padded > KVT_WIRE_PIECE_BYTES) {
        kvt_status status =
            kvt_catalog_send(catalog, catalog->buffer, catalog->buffer_bytes, deadline_ns);
        if (status != KVT_OK) {
            return status;
        }
        catalog->buffer_bytes = 0;
    }
    unsigned char *at = catalog->buffer + catalog->buffer_bytes;
    memcpy(at, &entry, sizeof(entry));
    at += sizeof(entry);
    memset(at + bytes, 0, padded - bytes);
    catalog->buffer_bytes += sizeof(entry) + padded;
    *out_record = at;
    return KVT_OK;
}

static kvt_status deletes_send(struct kvt_catalog *catalog, const struct kvt_catalog_batch *batch,
                               uint64_t deadline_ns)
{
    void *none;
    kvt_status status = KVT_OK;
    for (uint32_t i = 0; status == KVT_OK && i < batch->delete_count; i++) {
        status = entry_add(catalog, KVT_WIRE_DELETE_PAGE, batch->deletes[i], 0, deadline_ns, &none);
    }
    for (uint32_t i = 0; status == KVT_OK && i < batch->namespace_delete_count; i++) {
        status = entry_add(catalog, KVT_WIRE_DELETE_NAMESPACE, batch->namespace_deletes[i], 0,
                           deadline_ns, &none);
    }
    return status;
}

static kvt_status batch_send(struct kvt_catalog *catalog, const struct kvt_catalog_batch *batch,
                             uint64_t deadline_ns)
{
    void *record;
    kvt_status status = KVT_OK;
    catalog->buffer_bytes = 0;
    for (uint32_t i = 0; status == KVT_OK && i < batch->namespace_count; i++) {
        const struct kvt_catalog_namespace *ns = &batch->namespaces[i];
        status = entry_add(catalog, KVT_WIRE_PUT_NAMESPACE, ns->number,
                           kvt_record_namespace_bytes(ns), deadline_ns, &record);
        if (status == KVT_OK) {
            kvt_record_namespace_encode(ns, record);
        }
    }
    if (status == KVT_OK) {
        status = deletes_send(catalog, batch, deadline_ns);
    }
    for (uint32_t i = 0; status == KVT_OK && i < batch->page_count; i++) {
        const struct kvt_catalog_page *page = &batch->pages[i];
        status = entry_add(catalog, KVT_WIRE_PUT_PAGE, page->seq, kvt_record_page_bytes(page),
                           deadline_ns, &record);
        if (status == KVT_OK) {
            kvt_record_page_encode(page, record);
        }
    }
    if (status == KVT_OK) {
        status = kvt_catalog_send(catalog, catalog->buffer, catalog->buffer_bytes, deadline_ns);
    }
    return status;
}

/* False: it breaks a rule of catalog.h. */
static bool batch_measure(const struct kvt_catalog_batch *batch, uint64_t *out_bytes)
{
    uint64_t records = (uint64_t)batch->namespace_count + batch->delete_count +
                       batch->namespace_delete_count + batch->page_count;
    if (records > KVT_CATALOG_BATCH_MAX) {
        return false;
    }
    uint64_t bytes = records * sizeof(struct kvt_wire_entry);
    for (uint32_t i = 0; i < batch->namespace_count; i++) {
        size_t record_bytes = kvt_record_namespace_bytes(&batch->namespaces[i]);
        bytes += kvt_wire_padded(record_bytes);
        if (record_bytes == 0) {
            return false;
        }
    }
    for (uint32_t i = 0; i < batch->page_count; i++) {
        size_t record_bytes = kvt_record_page_bytes(&batch->pages[i]);
        bytes += kvt_wire_padded(record_bytes);
        if (record_bytes == 0) {
            return false;
        }
    }
    for (uint32_t i = 0; i < batch->delete_count; i++) {
        if (batch->deletes[i] == 0) {
            return false;
        }
    }
    for (uint32_t i = 0; i < batch->namespace_delete_count; i++) {
        if (batch->namespace_deletes[i] == 0) {
            return false;
        }
    }
    *out_bytes = bytes;
    return true;
}

kvt_status kvt_catalog_commit(struct kvt_catalog *catalog, const struct kvt_catalog_batch *batch,
                              uint64_t timeout_ns, int *out_error)
{
    uint64_t deadline_ns = kvt_catalog_deadline(timeout_ns);
    uint64_t begun_ns = kvt_now_ns(&kvt_clock_monotonic);
    uint64_t bytes;
    if (out_error != NULL) {
        *out_error = 0;
    }
    if (catalog->read_only || !batch_measure(batch, &bytes)) {
        return KVT_ERR_INVAL;
    }
    if (bytes == 0) {
        return KVT_OK;
    }
    kvt_status status = kvt_catalog_begin(catalog, deadline_ns);
    if (status == KVT_OK) {
        status = kvt_catalog_request(catalog, KVT_WIRE_COMMIT, bytes, deadline_ns);
        if (status == KVT_OK) {
            status = batch_send(catalog, batch, deadline_ns);
        }
        if (status == KVT_OK) {
            status = kvt_catalog_reply(catalog, deadline_ns);
        }
        if (status == KVT_ERR_IO && out_error != NULL) {
            *out_error = catalog->reply.error;
        }
        status = kvt_catalog_end(catalog, status);
    }
    kvt_lock_take(&catalog->lock);
    catalog->stats.commits += status == KVT_OK;
    catalog->stats.commit_failures += status != KVT_OK;
    catalog->stats.commit_ns += kvt_now_ns(&kvt_clock_monotonic) - begun_ns;
    kvt_lock_give(&catalog->lock);
    return status;
}

/* ---- loading ---- */

struct loading {
    const struct kvt_catalog_visitor *visitor;
    struct kvt_catalog_load load;
    uint32_t version;
    uint32_t kind;       /* of the table at work */
    uint64_t key_last;   /* in it */
    kvt_status answered; /* by the visitor */
};

/* What passes its checksum goes to the visitor, the rest is counted. */
static void record_visit(struct loading *loading, const struct kvt_wire_entry *entry,
                         const void *record)
{
    struct kvt_catalog_load *load = &loading->load;
    if (entry->kind == KVT_WIRE_PUT_NAMESPACE) {
        struct kvt_catalog_namespace ns;
        if (kvt_record_namespace_decode(loading->version, entry->key, record, entry->bytes, &ns) !=
            KVT_OK) {
            load->damaged_records++;
            return;
        }
        load->namespaces++;
        load->namespace_last = ns.number > load->namespace_last ? ns.number : load->namespace_last;
        loading->answered = loading->visitor->on_namespace(loading->visitor->ctx, &ns);
        return;
    }
    struct kvt_catalog_page page;
    if (kvt_record_page_decode(loading->version, entry->key, record, entry->bytes, &page) !=
        KVT_OK) {
        load->damaged_records++;
        return;
    }
    load->pages++;
    load->seq_last = page.seq > load->seq_last ? page.seq : load->seq_last;
    loading->answered = loading->visitor->on_page(loading->visitor->ctx, &page);
}

/* False: the piece is not what a child of ours sends. */
static bool piece_visit(const struct kvt_catalog *catalog, uint64_t bytes, struct loading *loading)
{
    uint64_t at = 0;
    while (at < bytes) {
        struct kvt_wire_entry entry;
        if (bytes - at < sizeof(entry)) {
            return false;
        }
        memcpy(&entry, catalog->buffer + at, sizeof(entry));
        at += sizeof(entry);
        uint64_t padded = kvt_wire_padded(entry.bytes);
        if (entry.kind == KVT_WIRE_PUT_PAGE && loading->kind == KVT_WIRE_PUT_NAMESPACE) {
            loading->kind = KVT_WIRE_PUT_PAGE;
            loading->key_last = 0;
        }
        if (entry.kind != loading->kind || entry.key <= loading->key_last || padded > bytes - at) {
            return false;
        }
        loading->key_last = entry.key;
        if (loading->answered == KVT_OK) {
            record_visit(loading, &entry, catalog->buffer + at);
        }
        at += padded;
    }
    return true;
}

static kvt_status load_all(struct kvt_catalog *catalog, struct loading *loading,
                           uint64_t deadline_ns)
{
    kvt_status status = kvt_catalog_request(catalog, KVT_WIRE_LOAD, 0, deadline_ns);
    while (status == KVT_OK) {
        struct kvt_wire_header header;
        status = kvt_catalog_receive(catalog, deadline_ns, &header);
        if (status != KVT_OK) {
            break;
        }
        if (header.kind == KVT_WIRE_REPLY) {
            return catalog->reply.status;
        }
        if (!piece_visit(catalog, header.bytes, loading)) {
            status = kvt_catalog_broken(catalog, "sent records that make no sense");
        }
    }
    return status;
}

kvt_status kvt_catalog_load(struct kvt_catalog *catalog, const struct kvt_catalog_visitor *visitor,
                            uint64_t timeout_ns, struct kvt_catalog_load *out_load)
{
    uint64_t deadline_ns = kvt_catalog_deadline(timeout_ns);
    uint64_t begun_ns = kvt_now_ns(&kvt_clock_monotonic);
    kvt_status status = kvt_catalog_begin(catalog, deadline_ns);
    if (status != KVT_OK) {
        return status;
    }
    struct loading loading = {
        .visitor = visitor, .version = catalog->head.version, .kind = KVT_WIRE_PUT_NAMESPACE};
    status = load_all(catalog, &loading, deadline_ns);
    if (status == KVT_OK) {
        struct kvt_catalog_load *load = &loading.load;
        if (catalog->reply.seq_last > load->seq_last) {
            load->seq_last = catalog->reply.seq_last;
        }
        if (catalog->reply.namespace_last > load->namespace_last) {
            load->namespace_last = catalog->reply.namespace_last;
        }
        load->load_ns = kvt_now_ns(&kvt_clock_monotonic) - begun_ns;
    }
    status = kvt_catalog_end(catalog, status);
    if (status == KVT_OK) {
        status = loading.answered;
    }
    if (status == KVT_OK) {
        *out_load = loading.load;
    }
    return status;
}

kvt_status kvt_catalog_walk(struct kvt_catalog *catalog, uint64_t timeout_ns, uint64_t *out_walk_ns,
                            uint64_t *out_records)
{
    uint64_t deadline_ns = kvt_catalog_deadline(timeout_ns);
    kvt_status status = kvt_catalog_begin(catalog, deadline_ns);
    if (status != KVT_OK) {
        return status;
    }
    status = kvt_catalog_request(catalog, KVT_WIRE_WALK, 0, deadline_ns);
    if (status == KVT_OK) {
        status = kvt_catalog_reply(catalog, deadline_ns);
    }
    if (status == KVT_OK) {
        *out_walk_ns = catalog->reply.walk_ns;
        *out_records = catalog->reply.records;
    }
    return kvt_catalog_end(catalog, status);
}
