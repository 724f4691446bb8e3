/* What the plug-in's files share. Not for others. */
#ifndef KVT_PLUGIN_INTERNAL_H
#define KVT_PLUGIN_INTERNAL_H

#include "kvt_cache.h"
#include "kvt_engine.h"

#define KVT_PLUGIN_CAPS                                                                            \
    (KVT_CAP_CPU_DEVICE | KVT_CAP_REGION_WAIT | KVT_CAP_EXTRA_KEYS | KVT_CAP_HBM_TIER |            \
     KVT_CAP_HOST_TIER | KVT_CAP_NVME_TIER)

struct kvt_engine {
    kvt_host host; /* a copy, zero where the host's is shorter */
    struct kvt_cache_memory memory;
    struct kvt_cache *cache;
    uint32_t client;
    uint32_t role;
    uint32_t page_tokens;
    uint32_t reserved0;
    uint64_t instance; /* told apart from other engines in lease tokens */
};

/* abi.c: structs that cross the boundary */

/* Copy a caller's request into ours, zero where theirs is shorter. INVAL for a struct_size that
 * cannot be, UNSUPPORTED when theirs is longer and what we do not know is not zero. */
kvt_status kvt_abi_take(void *ours, uint32_t our_bytes, const void *theirs) KVT_MUST_CHECK;
/* Fill a caller's result: as much of ours as fits, zero what we do not know; struct_size is the
 * caller's and stays. INVAL for a struct_size that cannot be. */
kvt_status kvt_abi_give(void *theirs, const void *ours, uint32_t our_bytes) KVT_MUST_CHECK;
/* INVAL when kvt_abi_give() would be: to be asked before anything is done that cannot be undone. */
kvt_status kvt_abi_can_give(const void *theirs) KVT_MUST_CHECK;
/* One sentence into why; no-op when there is no room. */
void kvt_abi_why(char *why, uint64_t why_bytes, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The ABI's fields as the cache's; `out` has room for KVT_FIELDS_MAX. INVAL. */
kvt_status kvt_abi_fields(const kvt_field *fields, uint64_t field_count,
                          struct kvt_cache_field *out_fields) KVT_MUST_CHECK;

/* stores.c: "FOLDER:SIZE;FOLDER:SIZE". INVAL, with a sentence. */
#define KVT_STORES_TEXT_BYTES_MAX 8192u
struct kvt_stores {
    struct kvt_cache_store stores[KVT_CACHE_STORES_MAX]; /* point into text */
    uint32_t count;
    char text[KVT_STORES_TEXT_BYTES_MAX];
};
kvt_status kvt_stores_parse(const char *text, uint64_t bytes, struct kvt_stores *out_stores,
                            char *why, uint64_t why_bytes) KVT_MUST_CHECK;

/* open.c */
kvt_status kvt_plugin_open(const kvt_host *, const kvt_open_config *, kvt_engine **, char *why,
                           uint64_t why_bytes);
kvt_status kvt_plugin_close(kvt_engine *);
kvt_status kvt_plugin_bind(kvt_engine *, const kvt_layout *, uint64_t *out_binding, char *why,
                           uint64_t why_bytes);
kvt_status kvt_plugin_unbind(kvt_engine *, uint64_t binding);

/* extensions.c */
const void *kvt_plugin_extension(kvt_engine *, const char *id);

#endif
