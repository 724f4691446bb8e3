/* Structs that cross the boundary: their sizes decide which fields are there. ABI.md has the
 * rules. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "engine_plugin/plugin_internal.h"

/* Every struct begins with struct_size and another 32-bit word. */
#define STRUCT_BYTES_MIN 8u
/* Larger than any struct will ever be: catches a struct_size that was never set. */
#define STRUCT_BYTES_MAX 65536u

static uint32_t struct_size_of(const void *theirs)
{
    uint32_t bytes = 0;
    memcpy(&bytes, theirs, sizeof(bytes));
    return bytes;
}

kvt_status kvt_abi_take(void *ours, uint32_t our_bytes, const void *theirs)
{
    if (theirs == NULL) {
        return KVT_ERR_INVAL;
    }
    uint32_t bytes = struct_size_of(theirs);
    if (bytes < STRUCT_BYTES_MIN || bytes > STRUCT_BYTES_MAX) {
        return KVT_ERR_INVAL;
    }
    uint32_t common = bytes < our_bytes ? bytes : our_bytes;
    memset(ours, 0, our_bytes);
    memcpy(ours, theirs, common);
    const unsigned char *tail = (const unsigned char *)theirs + common;
    for (uint32_t i = 0; i < bytes - common; i++) {
        if (tail[i] != 0) {
            return KVT_ERR_UNSUPPORTED;
        }
    }
    return KVT_OK;
}

kvt_status kvt_abi_can_give(const void *theirs)
{
    if (theirs == NULL) {
        return KVT_ERR_INVAL;
    }
    uint32_t bytes = struct_size_of(theirs);
    return bytes >= STRUCT_BYTES_MIN && bytes <= STRUCT_BYTES_MAX ? KVT_OK : KVT_ERR_INVAL;
}

kvt_status kvt_abi_give(void *theirs, const void *ours, uint32_t our_bytes)
{
    if (kvt_abi_can_give(theirs) != KVT_OK) {
        return KVT_ERR_INVAL;
    }
    uint32_t bytes = struct_size_of(theirs);
    uint32_t common = bytes < our_bytes ? bytes : our_bytes;
    unsigned char *out = theirs;
    memcpy(out + sizeof(bytes), (const unsigned char *)ours + sizeof(bytes),
           common - sizeof(bytes));
    memset(out + common, 0, bytes - common);
    return KVT_OK;
}

void kvt_abi_why(char *why, uint64_t why_bytes, const char *format, ...)
{
    if (why == NULL || why_bytes == 0) {
        return;
    }
    va_list args;
    va_start(args, format);
    (void)vsnprintf(why, (size_t)why_bytes, format, args);
    va_end(args);
}

kvt_status kvt_abi_fields(const kvt_field *fields, uint64_t field_count,
                          struct kvt_cache_field *out_fields)
{
    if (field_count > KVT_FIELDS_MAX || (fields == NULL && field_count > 0)) {
        return KVT_ERR_INVAL;
    }
    for (uint64_t i = 0; i < field_count; i++) {
        if (fields[i].reserved0 != 0) {
            return KVT_ERR_INVAL;
        }
        out_fields[i] = (struct kvt_cache_field){
            .tag = fields[i].tag, .data = fields[i].data, .bytes = fields[i].bytes};
    }
    return KVT_OK;
}
