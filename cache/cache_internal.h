/* What the facade's files share. Not for others. */
#ifndef KVT_CACHE_INTERNAL_H
#define KVT_CACHE_INTERNAL_H

#include <sys/types.h>

#include "cache/base/base.h"
#include "cache/device/device.h"
#include "cache/move/plan.h"
#include "kvt_cache.h"

struct kvt_client {
    bool used;
    uint32_t ns;                   /* its base namespace */
    uint64_t group;                /* hash of the tenant */
    uint64_t prefill_tokens_per_s; /* 0: not known */
    unsigned char *base;           /* the base namespace's fields, canonical, before narrowing */
    size_t base_bytes;
};

struct kvt_bound {
    uint32_t generation; /* rises with each bind */
    uint32_t client;
    uint32_t calls; /* under way with this binding */
    bool leaving;   /* being unbound: no call finds it, and its place is not free yet */
    struct kvt_binding *binding; /* NULL: the place is free, unless leaving */
};

struct kvt_cache {
    struct kvt_memory mem, index_mem;
    struct kvt_log log;
    struct kvt_clock clock;
    uint32_t page_tokens;
    pid_t pid; /* of the process that created it */
    struct kvt_device *device;
    struct kvt_plan *plan;
    _Atomic uint32_t streams, events; /* of engines */
    _Atomic bool namespaces_warned;
    struct kvt_lock lock; /* rank PLUGIN; protects: clients, bounds */
    struct kvt_client clients[KVT_CLIENTS_MAX];
    struct kvt_bound bounds[KVT_BINDINGS_MAX];
};

/* One sentence into why; no-op when there is no room. */
void kvt_why(char *why, size_t why_bytes, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* KVT_ERR_PROCESS in a child of the process that created the cache; INVAL without a cache. */
kvt_status kvt_cache_enter(const struct kvt_cache *) KVT_MUST_CHECK;

/* namespace.c: tagged fields to canonical bytes */
struct kvt_canonical {
    unsigned char *bytes; /* owned: kvt_canonical_fini() */
    size_t count;
};
/* head: bytes that come first (NULL with 0: none). INVAL, NOMEM. */
kvt_status kvt_canonical_make(const struct kvt_memory *mem, const void *head, size_t head_bytes,
                              const struct kvt_cache_field *fields, size_t field_count,
                              struct kvt_canonical *out_canonical, char *why, size_t why_bytes)
    KVT_MUST_CHECK;
void kvt_canonical_fini(const struct kvt_memory *mem, struct kvt_canonical *);

#endif
