/* Records to bytes and back. The forms are structs without padding, written as they lie. */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "cache/catalog/record.h"

#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "records are little endian and written as they lie in memory"
#endif

/* Seeds of the tables: a record of one must not pass in another. A page's is its key alone. */
#define SEED_NAMESPACE (UINT64_C(1) << 56)
#define SEED_HEAD (UINT64_C(2) << 56)

struct page_form {
    uint64_t checksum; /* of all that follows */
    uint64_t parent;
    uint64_t payload_checksum;
    uint32_t ns, slot, generation, payload_bytes, token_count, extra_count;
};
struct namespace_form {
    uint64_t checksum;
    uint64_t group, slot_bytes;
    uint32_t canonical_bytes, reserved;
};
struct counters_form {
    uint64_t checksum;
    uint64_t seq_last;
    uint32_t namespace_last, reserved;
};
struct head_form {
    char magic[8];
    uint32_t version, record_bytes;
    unsigned char id[KVT_CATALOG_ID_BYTES];
    uint32_t page_tokens, store_count;
    struct kvt_catalog_store stores[KVT_CATALOG_STORES_MAX];
    uint64_t checksum; /* of all before it */
};
_Static_assert(sizeof(struct page_form) == 48, "FORMAT.md: page");
_Static_assert(sizeof(struct namespace_form) == 32, "FORMAT.md: namespace");
_Static_assert(sizeof(struct counters_form) == KVT_RECORD_COUNTERS_BYTES, "FORMAT.md: counters");
_Static_assert(sizeof(struct head_form) == KVT_RECORD_HEAD_BYTES, "FORMAT.md: head");
_Static_assert(sizeof(struct kvt_catalog_store) == 32, "FORMAT.md: store in the head");
_Static_assert(KVT_CATALOG_NAME_BYTES_MAX + sizeof(struct namespace_form) <= KVT_RECORD_BYTES_MAX,
               "every name fits");

static const char magic[8] = {'k', 'v', 't', 'c', 'a', 't', 'l', 'g'};

/* Of a record that begins with its checksum. */
static uint64_t checksum_of(const void *record, size_t bytes, uint64_t seed)
{
    return XXH3_64bits_withSeed((const char *)record + sizeof(uint64_t), bytes - sizeof(uint64_t),
                                seed);
}

static void seal(void *record, size_t bytes, uint64_t seed)
{
    uint64_t checksum = checksum_of(record, bytes, seed);
    memcpy(record, &checksum, sizeof(checksum));
}

static bool sealed(const void *record, size_t bytes, uint64_t seed)
{
    uint64_t checksum;
    memcpy(&checksum, record, sizeof(checksum));
    return checksum == checksum_of(record, bytes, seed);
}

/* ---- pages ---- */

static uint64_t page_bytes_of(uint32_t token_count, uint32_t extra_count)
{
    return sizeof(struct page_form) + (uint64_t)token_count * sizeof(uint32_t) +
           (uint64_t)extra_count * KVT_CATALOG_EXTRA_BYTES;
}

size_t kvt_record_page_bytes(const struct kvt_catalog_page *page)
{
    uint64_t bytes = page_bytes_of(page->token_count, page->extra_count);
    if (page->seq == 0 || page->parent >= page->seq || page->ns == 0 ||
        bytes > KVT_RECORD_BYTES_MAX) {
        return 0;
    }
    return (size_t)bytes;
}

void kvt_record_page_encode(const struct kvt_catalog_page *page, void *out_bytes)
{
    const struct page_form form = {
        .parent = page->parent,
        .payload_checksum = page->checksum,
        .ns = page->ns,
        .slot = page->place.slot,
        .generation = page->place.generation,
        .payload_bytes = page->bytes,
        .token_count = page->token_count,
        .extra_count = page->extra_count,
    };
    unsigned char *at = out_bytes;
    memcpy(at, &form, sizeof(form));
    size_t token_bytes = (size_t)page->token_count * sizeof(uint32_t);
    if (token_bytes > 0) {
        memcpy(at + sizeof(form), page->tokens, token_bytes);
    }
    if (page->extra_count > 0) {
        memcpy(at + sizeof(form) + token_bytes, page->extras,
               (size_t)page->extra_count * KVT_CATALOG_EXTRA_BYTES);
    }
    seal(out_bytes, kvt_record_page_bytes(page), page->seq);
}

static kvt_status page_decode_v1(uint64_t seq, const void *record, size_t bytes,
                                 struct kvt_catalog_page *out_page)
{
    struct page_form form;
    if (bytes < sizeof(form) || bytes > KVT_RECORD_BYTES_MAX || !sealed(record, bytes, seq)) {
        return KVT_ERR_CORRUPT;
    }
    memcpy(&form, record, sizeof(form));
    if (page_bytes_of(form.token_count, form.extra_count) != bytes || seq == 0 ||
        form.parent >= seq || form.ns == 0) {
        return KVT_ERR_CORRUPT;
    }
    const unsigned char *tokens = (const unsigned char *)record + sizeof(form);
    *out_page = (struct kvt_catalog_page){
        .seq = seq,
        .parent = form.parent,
        .ns = form.ns,
        .place = {form.slot, form.generation},
        .bytes = form.payload_bytes,
        .checksum = form.payload_checksum,
        .token_count = form.token_count,
        .extra_count = form.extra_count,
        .tokens = (const void *)tokens,
        .extras = tokens + (size_t)form.token_count * sizeof(uint32_t),
    };
    return KVT_OK;
}

kvt_status kvt_record_page_decode(uint32_t version, uint64_t seq, const void *record, size_t bytes,
                                  struct kvt_catalog_page *out_page)
{
    switch (version) {
    case 1:
        return page_decode_v1(seq, record, bytes, out_page);
    default:
        return KVT_ERR_VERSION;
    }
}

/* ---- namespaces ---- */

size_t kvt_record_namespace_bytes(const struct kvt_catalog_namespace *ns)
{
    if (ns->number == 0 || ns->canonical_bytes > KVT_CATALOG_NAME_BYTES_MAX) {
        return 0;
    }
    return sizeof(struct namespace_form) + ns->canonical_bytes;
}

void kvt_record_namespace_encode(const struct kvt_catalog_namespace *ns, void *out_bytes)
{
    const struct namespace_form form = {
        .group = ns->group,
        .slot_bytes = ns->slot_bytes,
        .canonical_bytes = ns->canonical_bytes,
    };
    memcpy(out_bytes, &form, sizeof(form));
    if (ns->canonical_bytes > 0) {
        memcpy((char *)out_bytes + sizeof(form), ns->canonical, ns->canonical_bytes);
    }
    seal(out_bytes, kvt_record_namespace_bytes(ns), SEED_NAMESPACE ^ ns->number);
}

static kvt_status namespace_decode_v1(uint64_t number, const void *record, size_t bytes,
                                      struct kvt_catalog_namespace *out_namespace)
{
    struct namespace_form form;
    if (number == 0 || number > UINT32_MAX || bytes < sizeof(form) ||
        bytes > KVT_RECORD_BYTES_MAX || !sealed(record, bytes, SEED_NAMESPACE ^ number)) {
        return KVT_ERR_CORRUPT;
    }
    memcpy(&form, record, sizeof(form));
    if (form.canonical_bytes > KVT_CATALOG_NAME_BYTES_MAX ||
        sizeof(form) + form.canonical_bytes != bytes) {
        return KVT_ERR_CORRUPT;
    }
    *out_namespace = (struct kvt_catalog_namespace){
        .number = (uint32_t)number,
        .group = form.group,
        .slot_bytes = form.slot_bytes,
        .canonical = (const char *)record + sizeof(form),
        .canonical_bytes = form.canonical_bytes,
    };
    return KVT_OK;
}

kvt_status kvt_record_namespace_decode(uint32_t version, uint64_t number, const void *record,
                                       size_t bytes, struct kvt_catalog_namespace *out_namespace)
{
    switch (version) {
    case 1:
        return namespace_decode_v1(number, record, bytes, out_namespace);
    default:
        return KVT_ERR_VERSION;
    }
}

/* ---- head and counters ---- */

static uint64_t head_checksum(const struct head_form *form)
{
    return XXH3_64bits_withSeed(form, offsetof(struct head_form, checksum),
                                SEED_HEAD ^ KVT_RECORD_KEY_HEAD);
}

void kvt_record_head_encode(const struct kvt_catalog_head *head,
                            unsigned char out_bytes[KVT_RECORD_HEAD_BYTES])
{
    struct head_form form = {
        .version = head->version,
        .record_bytes = sizeof(form),
        .page_tokens = head->page_tokens,
        .store_count = head->store_count,
    };
    memcpy(form.magic, magic, sizeof(magic));
    memcpy(form.id, head->id, sizeof(form.id));
    for (uint32_t i = 0; i < head->store_count && i < KVT_CATALOG_STORES_MAX; i++) {
        form.stores[i] = head->stores[i];
    }
    form.checksum = head_checksum(&form);
    memcpy(out_bytes, &form, sizeof(form));
}

static kvt_status head_decode_v1(const void *record, size_t bytes,
                                 struct kvt_catalog_head *out_head)
{
    struct head_form form;
    if (bytes != sizeof(form)) {
        return KVT_ERR_CORRUPT;
    }
    memcpy(&form, record, sizeof(form));
    if (form.checksum != head_checksum(&form) || form.record_bytes != sizeof(form) ||
        form.store_count > KVT_CATALOG_STORES_MAX) {
        return KVT_ERR_CORRUPT;
    }
    struct kvt_catalog_head head = {
        .version = form.version,
        .page_tokens = form.page_tokens,
        .store_count = form.store_count,
    };
    memcpy(head.id, form.id, sizeof(head.id));
    memcpy(head.stores, form.stores, sizeof(head.stores));
    *out_head = head;
    return KVT_OK;
}

kvt_status kvt_record_head_decode(const void *record, size_t bytes,
                                  struct kvt_catalog_head *out_head)
{
    uint32_t version;
    if (bytes < offsetof(struct head_form, id) || memcmp(record, magic, sizeof(magic)) != 0) {
        return KVT_ERR_CORRUPT;
    }
    /* Every version has it in this place; what follows is known of the known ones only. */
    memcpy(&version, (const char *)record + offsetof(struct head_form, version), sizeof(version));
    switch (version) {
    case 1:
        return head_decode_v1(record, bytes, out_head);
    default:
        out_head->version = version;
        return KVT_ERR_VERSION;
    }
}

void kvt_record_counters_encode(const struct kvt_record_counters *counters,
                                unsigned char out_bytes[KVT_RECORD_COUNTERS_BYTES])
{
    struct counters_form form = {.seq_last = counters->seq_last,
                                 .namespace_last = counters->namespace_last};
    seal(&form, sizeof(form), SEED_HEAD ^ KVT_RECORD_KEY_COUNTERS);
    memcpy(out_bytes, &form, sizeof(form));
}

kvt_status kvt_record_counters_decode(uint32_t version, const void *record, size_t bytes,
                                      struct kvt_record_counters *out_counters)
{
    struct counters_form form;
    if (version != 1) {
        return KVT_ERR_VERSION;
    }
    if (bytes != sizeof(form) || !sealed(record, bytes, SEED_HEAD ^ KVT_RECORD_KEY_COUNTERS)) {
        return KVT_ERR_CORRUPT;
    }
    memcpy(&form, record, sizeof(form));
    *out_counters = (struct kvt_record_counters){form.seq_last, form.namespace_last};
    return KVT_OK;
}
