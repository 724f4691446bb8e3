/*
 * Namespaces: everything that makes KV bytes interchangeable, in one canonical form.
 *
 *   head | for each field, in rising tag order: tag (4 bytes, little endian) | length (8) | bytes
 *
 * Lengths stand before contents, so that no two different lists have the same form; an absent field
 * leaves no trace and differs from an empty one.
 */
#include <stdio.h>
#include <string.h>

#include "cache/cache_internal.h"

#define FIELD_HEAD_BYTES 12u

static void put_le(unsigned char *out, uint64_t value, size_t byte_count)
{
    for (size_t i = 0; i < byte_count; i++) {
        out[i] = (unsigned char)(value >> (8 * i));
    }
}

static kvt_status check_fields(const struct kvt_cache_field *fields, size_t field_count,
                               size_t *out_bytes, char *why, size_t why_bytes)
{
    size_t bytes = 0;
    if (field_count > KVT_CACHE_FIELDS_MAX) {
        kvt_why(why, why_bytes, "%zu namespace fields are more than the %u allowed", field_count,
                KVT_CACHE_FIELDS_MAX);
        return KVT_ERR_INVAL;
    }
    if (fields == NULL && field_count > 0) {
        kvt_why(why, why_bytes, "the namespace fields are NULL");
        return KVT_ERR_INVAL;
    }
    for (size_t i = 0; i < field_count; i++) {
        if (fields[i].bytes > KVT_CACHE_FIELD_BYTES_MAX) {
            kvt_why(why, why_bytes,
                    "namespace field %u has %llu bytes, more than the %u allowed: pass a digest",
                    fields[i].tag, (unsigned long long)fields[i].bytes, KVT_CACHE_FIELD_BYTES_MAX);
            return KVT_ERR_INVAL;
        }
        if (fields[i].tag == 0 || (fields[i].data == NULL && fields[i].bytes > 0)) {
            kvt_why(why, why_bytes, "namespace field %zu has no tag or no data", i);
            return KVT_ERR_INVAL;
        }
        for (size_t j = 0; j < i; j++) {
            if (fields[j].tag == fields[i].tag) {
                kvt_why(why, why_bytes, "namespace field %u is given twice", fields[i].tag);
                return KVT_ERR_INVAL;
            }
        }
        bytes += FIELD_HEAD_BYTES + (size_t)fields[i].bytes;
    }
    *out_bytes = bytes;
    return KVT_OK;
}

kvt_status kvt_canonical_make(const struct kvt_memory *mem, const void *head, size_t head_bytes,
                              const struct kvt_cache_field *fields, size_t field_count,
                              struct kvt_canonical *out_canonical, char *why, size_t why_bytes)
{
    size_t field_bytes = 0;
    kvt_status status = check_fields(fields, field_count, &field_bytes, why, why_bytes);
    if (status != KVT_OK) {
        return status;
    }
    size_t count = head_bytes + field_bytes;
    unsigned char *bytes = kvt_alloc(mem, count > 0 ? count : 1);
    if (bytes == NULL) {
        kvt_why(why, why_bytes, "no memory for a namespace");
        return KVT_ERR_NOMEM;
    }
    if (head_bytes > 0) {
        memcpy(bytes, head, head_bytes);
    }
    unsigned char *at = bytes + head_bytes;
    uint32_t last_tag = 0;
    for (size_t done = 0; done < field_count; done++) {
        size_t least = field_count;
        for (size_t i = 0; i < field_count; i++) {
            if (fields[i].tag > last_tag &&
                (least == field_count || fields[i].tag < fields[least].tag)) {
                least = i;
            }
        }
        KVT_ASSERT(least < field_count);
        const struct kvt_cache_field *next = &fields[least];
        last_tag = next->tag;
        put_le(at, next->tag, 4);
        put_le(at + 4, next->bytes, 8);
        if (next->bytes > 0) {
            memcpy(at + FIELD_HEAD_BYTES, next->data, next->bytes);
        }
        at += FIELD_HEAD_BYTES + next->bytes;
    }
    *out_canonical = (struct kvt_canonical){.bytes = bytes, .count = count};
    return KVT_OK;
}

void kvt_canonical_fini(const struct kvt_memory *mem, struct kvt_canonical *canonical)
{
    kvt_free(mem, canonical->bytes, canonical->count > 0 ? canonical->count : 1);
    canonical->bytes = NULL;
}
