/*
 * The catalog's records as bytes: what cache/FORMAT.md shows as tables. Used by the owner, who
 * makes and reads them, and by the catalog's process, which reads the head only.
 *
 * Every record carries an XXH3-64 of its bytes, seeded with its key: a record under another's key
 * does not pass. Little endian. Decoding trusts nothing.
 *
 * Layer 2.
 */
#ifndef KVT_CATALOG_RECORD_H
#define KVT_CATALOG_RECORD_H

#include "cache/base/base.h"
#include "cache/catalog/catalog.h"

#define KVT_RECORD_BYTES_MAX (256u << 10)
#define KVT_RECORD_HEAD_BYTES 304u
#define KVT_RECORD_COUNTERS_BYTES 24u
#define KVT_RECORD_ALIGN_BYTES 8u /* of where a page is decoded */

/* Keys in the table of the head. */
#define KVT_RECORD_KEY_HEAD 1u
#define KVT_RECORD_KEY_COUNTERS 2u

/* The highest numbers that were ever used; kept where the table no longer shows them. */
struct kvt_record_counters {
    uint64_t seq_last;
    uint32_t namespace_last;
};

/* Bytes of the encoded record; 0 for one that cannot be written: its numbers break the rules of
 * catalog.h, or it is larger than KVT_RECORD_BYTES_MAX. */
size_t kvt_record_page_bytes(const struct kvt_catalog_page *page);
size_t kvt_record_namespace_bytes(const struct kvt_catalog_namespace *ns);
/* out_bytes: as many as the function above answers. */
void kvt_record_page_encode(const struct kvt_catalog_page *page, void *out_bytes);
void kvt_record_namespace_encode(const struct kvt_catalog_namespace *ns, void *out_bytes);
void kvt_record_head_encode(const struct kvt_catalog_head *head,
                            unsigned char out_bytes[KVT_RECORD_HEAD_BYTES]);
void kvt_record_counters_encode(const struct kvt_record_counters *counters,
                                unsigned char out_bytes[KVT_RECORD_COUNTERS_BYTES]);

/* CORRUPT; VERSION for a version that this program does not know. What the results point to lies in
 * `record`, which must be aligned to KVT_RECORD_ALIGN_BYTES for a page. */
kvt_status kvt_record_page_decode(uint32_t version, uint64_t seq, const void *record, size_t bytes,
                                  struct kvt_catalog_page *out_page) KVT_MUST_CHECK;
kvt_status kvt_record_namespace_decode(uint32_t version, uint64_t number, const void *record,
                                       size_t bytes, struct kvt_catalog_namespace *out_namespace)
    KVT_MUST_CHECK;
/* On VERSION, out_head->version is set, and nothing else. */
kvt_status kvt_record_head_decode(const void *record, size_t bytes,
                                  struct kvt_catalog_head *out_head) KVT_MUST_CHECK;
kvt_status kvt_record_counters_decode(uint32_t version, const void *record, size_t bytes,
                                      struct kvt_record_counters *out_counters) KVT_MUST_CHECK;

#endif
