/* Opening, closing, binding: the embedded back end, a cache of the engine's own process. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine_plugin/plugin_internal.h"

static const uint32_t required_tags[] = {KVT_FIELD_WEIGHTS, KVT_FIELD_KV_DTYPE, KVT_FIELD_ROPE,
                                         KVT_FIELD_LAYOUT};
#define REQUIRED_TAGS (sizeof(required_tags) / sizeof(required_tags[0]))
#define WEIGHTS_DIGEST_BYTES_MIN 16u
#define POLICY_NAME_BYTES_MAX 64u
static const char embedded_uri[] = "embedded:";

/* ---- memory and log of the host ---- */

static void *host_alloc(void *ctx, size_t bytes)
{
    const kvt_host *host = ctx;
    return host->alloc(host->ctx, bytes);
}

static void host_free(void *ctx, void *ptr, size_t bytes)
{
    const kvt_host *host = ctx;
    if (ptr != NULL) {
        host->free(host->ctx, ptr, bytes);
    }
}

/* The ABI has no resize, so that a host need not have one. */
static void *host_resize(void *ctx, void *ptr, size_t old_bytes, size_t new_bytes)
{
    void *moved = host_alloc(ctx, new_bytes);
    if (moved != NULL && ptr != NULL) {
        memcpy(moved, ptr, old_bytes < new_bytes ? old_bytes : new_bytes);
        host_free(ctx, ptr, old_bytes);
    }
    return moved;
}

static void host_log(void *ctx, int32_t level, const char *line)
{
    const kvt_host *host = ctx;
    host->log(host->ctx, level, line, strlen(line));
}

/* ---- checks ---- */

static kvt_status check_host(const kvt_host *given, kvt_host *out_host, char *why,
                             uint64_t why_bytes)
{
    if (given == NULL || given->struct_size < offsetof(kvt_host, ctx)) {
        kvt_abi_why(why, why_bytes, "the host struct is missing or too short: use KVT_HOST_INIT");
        return KVT_ERR_INVAL;
    }
    /* A table of functions: what we do not know behind it is not ours to judge. */
    memset(out_host, 0, sizeof(*out_host));
    memcpy(out_host, given,
           given->struct_size < sizeof(*out_host) ? given->struct_size : sizeof(*out_host));
    if (out_host->reserved0 != 0) {
        kvt_abi_why(why, why_bytes, "the host's reserved0 is not zero: use KVT_HOST_INIT");
        return KVT_ERR_INVAL;
    }
    uint64_t unknown = out_host->caps_required & ~KVT_PLUGIN_CAPS;
    if (unknown != 0) {
        kvt_abi_why(why, why_bytes,
                    "the host requires capability bit %d, which this plug-in does not offer",
                    __builtin_ctzll(unknown));
        return KVT_ERR_UNSUPPORTED;
    }
    if ((out_host->alloc == NULL) != (out_host->free == NULL)) {
        kvt_abi_why(why, why_bytes, "the host gives one of alloc and free: give both or none");
        return KVT_ERR_INVAL;
    }
    return KVT_OK;
}

static kvt_status check_uri(const kvt_open_config *config, char *why, uint64_t why_bytes)
{
    if (config->uri_bytes == 0 ||
        (config->uri != NULL && config->uri_bytes == sizeof(embedded_uri) - 1 &&
         memcmp(config->uri, embedded_uri, sizeof(embedded_uri) - 1) == 0)) {
        return KVT_OK;
    }
    if (config->uri == NULL) {
        kvt_abi_why(why, why_bytes, "uri is NULL but uri_bytes is not 0");
        return KVT_ERR_INVAL;
    }
    kvt_abi_why(why, why_bytes, "uri '%.*s' is not supported: this version has 'embedded:' only",
                config->uri_bytes < 200 ? (int)config->uri_bytes : 200, config->uri);
    return KVT_ERR_UNSUPPORTED;
}

static kvt_status check_group(const kvt_open_config *config, char *why, uint64_t why_bytes)
{
    uint32_t ranks = config->group_ranks == 0 ? 1 : config->group_ranks;
    if (config->role < KVT_ROLE_SCHEDULER || config->role > KVT_ROLE_BOTH) {
        kvt_abi_why(why, why_bytes, "role %u is none of scheduler, rank, both", config->role);
        return KVT_ERR_INVAL;
    }
    if (config->rank >= ranks) {
        kvt_abi_why(why, why_bytes, "rank %u is not below group_ranks %u", config->rank, ranks);
        return KVT_ERR_INVAL;
    }
    if (ranks > 1) {
        kvt_abi_why(why, why_bytes,
                    "a group of %u ranks is not supported by 'embedded:' in this version", ranks);
        return KVT_ERR_UNSUPPORTED;
    }
    return KVT_OK;
}

static kvt_status check_config(const kvt_open_config *given, kvt_open_config *out_config, char *why,
                               uint64_t why_bytes)
{
    kvt_status status = kvt_abi_take(out_config, sizeof(*out_config), given);
    if (status == KVT_ERR_UNSUPPORTED) {
        kvt_abi_why(why, why_bytes,
                    "the config sets a field that this plug-in (ABI %d.%d) does not know",
                    KVT_ABI_MAJOR, KVT_ABI_MINOR);
        return status;
    }
    if (status != KVT_OK || out_config->magic != KVT_OPEN_MAGIC) {
        kvt_abi_why(why, why_bytes,
                    "the config struct was not initialised: use KVT_OPEN_CONFIG_INIT");
        return KVT_ERR_INVAL;
    }
    if ((out_config->flags & ~KVT_OPEN_NVME_OPTIONAL) != 0) {
        kvt_abi_why(why, why_bytes, "flags 0x%llx are not known to this plug-in",
                    (unsigned long long)out_config->flags);
        return KVT_ERR_UNSUPPORTED;
    }
    status = check_uri(out_config, why, why_bytes);
    return status == KVT_OK ? check_group(out_config, why, why_bytes) : status;
}

/* ---- opening ---- */

/* A policy's name with a zero behind it; `name` holds the default before. */
static kvt_status take_policy(const char *given, uint64_t bytes, const char *kind, char *name,
                              char *why, uint64_t why_bytes)
{
    if (bytes > POLICY_NAME_BYTES_MAX || (given == NULL && bytes > 0)) {
        kvt_abi_why(why, why_bytes, "the %s policy's name is NULL or too long", kind);
        return KVT_ERR_INVAL;
    }
    if (bytes > 0) {
        memcpy(name, given, bytes);
        name[bytes] = '\0';
    }
    return KVT_OK;
}

static kvt_status create_cache(kvt_engine *engine, const kvt_open_config *config, char *why,
                               uint64_t why_bytes)
{
    char policy[POLICY_NAME_BYTES_MAX + 1] = "lru";
    char admit[POLICY_NAME_BYTES_MAX + 1] = "through";
    struct kvt_stores stores;
    kvt_status status = take_policy(config->evict_policy, config->evict_policy_bytes, "eviction",
                                    policy, why, why_bytes);
    if (status == KVT_OK) {
        status = take_policy(config->admit_policy, config->admit_policy_bytes, "admission", admit,
                             why, why_bytes);
    }
    if (status == KVT_OK) {
        status = kvt_stores_parse(config->nvme, config->nvme_bytes, &stores, why, why_bytes);
    }
    if (status != KVT_OK) {
        return status;
    }
    struct kvt_cache_config cache = {
        .page_tokens = config->page_tokens,
        .hbm_bytes = config->hbm_bytes,
        .host_bytes = config->host_bytes,
        .lease_ttl_ns = config->lease_ttl_ns,
        .evict_policy = policy,
        .memory = engine->host.alloc != NULL ? &engine->memory : NULL,
        .log = engine->host.log != NULL ? host_log : NULL,
        .log_ctx = &engine->host,
        .now_ns = engine->host.now_ns,
        .now_ctx = engine->host.ctx,
        .stores = stores.stores,
        .store_count = stores.count,
        .nvme_flags = (config->flags & KVT_OPEN_NVME_OPTIONAL) != 0 ? KVT_CACHE_NVME_OPTIONAL : 0,
        .admit_policy = admit,
        .write_bytes_per_day = config->nvme_write_bytes_per_day,
    };
    return kvt_cache_create(&cache, &engine->cache, why, (size_t)why_bytes);
}

static kvt_status open_client(kvt_engine *engine, const kvt_open_config *config, char *why,
                              uint64_t why_bytes)
{
    struct kvt_cache_field fields[KVT_FIELDS_MAX];
    if (config->tenant == NULL && config->tenant_bytes > 0) {
        kvt_abi_why(why, why_bytes, "the tenant is NULL but tenant_bytes is not 0");
        return KVT_ERR_INVAL;
    }
    kvt_status status = kvt_abi_fields(config->fields, config->field_count, fields);
    if (status != KVT_OK) {
        kvt_abi_why(why, why_bytes,
                    "%llu namespace fields: give at most %u, not NULL, with reserved0 zero",
                    (unsigned long long)config->field_count, KVT_FIELDS_MAX);
        return status;
    }
    for (uint64_t i = 0; i < config->field_count; i++) {
        if (fields[i].tag == KVT_FIELD_WEIGHTS && fields[i].bytes < WEIGHTS_DIGEST_BYTES_MIN) {
            kvt_abi_why(why, why_bytes,
                        "the weights digest has %llu bytes: give at least %u, of the bytes "
                        "themselves and not of a name",
                        (unsigned long long)fields[i].bytes, WEIGHTS_DIGEST_BYTES_MIN);
            return KVT_ERR_INVAL;
        }
    }
    return kvt_cache_client_open(engine->cache, config->tenant, (size_t)config->tenant_bytes,
                                 fields, (size_t)config->field_count, required_tags, REQUIRED_TAGS,
                                 &engine->client, why, (size_t)why_bytes);
}

/* The engine's own memory comes from the host too, where it gives some. */
static kvt_engine *engine_alloc(const kvt_host *host)
{
    kvt_engine *engine =
        host->alloc != NULL ? host->alloc(host->ctx, sizeof(*engine)) : malloc(sizeof(*engine));
    if (engine != NULL) {
        memset(engine, 0, sizeof(*engine));
        engine->host = *host;
        engine->memory =
            (struct kvt_cache_memory){&engine->host, host_alloc, host_resize, host_free};
    }
    return engine;
}

static void engine_free(kvt_engine *engine)
{
    kvt_host host = engine->host;
    if (host.free != NULL) {
        host.free(host.ctx, engine, sizeof(*engine));
    } else {
        free(engine);
    }
}

kvt_status kvt_plugin_open(const kvt_host *given_host, const kvt_open_config *given_config,
                           kvt_engine **out_engine, char *why, uint64_t why_bytes)
{
    kvt_host host;
    kvt_open_config config;
    if (out_engine == NULL) {
        kvt_abi_why(why, why_bytes, "out_engine is NULL");
        return KVT_ERR_INVAL;
    }
    kvt_status status = check_host(given_host, &host, why, why_bytes);
    if (status == KVT_OK) {
        status = check_config(given_config, &config, why, why_bytes);
    }
    if (status != KVT_OK) {
        return status;
    }
    kvt_engine *engine = engine_alloc(&host);
    if (engine == NULL) {
        kvt_abi_why(why, why_bytes, "no memory for the engine's handle");
        return KVT_ERR_NOMEM;
    }
    engine->role = config.role;
    engine->page_tokens = config.page_tokens != 0 ? config.page_tokens : KVT_PAGE_TOKENS_DEFAULT;
    engine->instance = ((uint64_t)getpid() << 32) ^ (uint64_t)(uintptr_t)engine;
    status = create_cache(engine, &config, why, why_bytes);
    if (status != KVT_OK) {
        goto undo_engine;
    }
    status = open_client(engine, &config, why, why_bytes);
    if (status != KVT_OK) {
        goto undo_cache;
    }
    *out_engine = engine;
    return KVT_OK;

undo_cache:
    if (kvt_cache_destroy(engine->cache) != KVT_OK) {
        return status; /* cannot be: nothing was submitted; leaked rather than freed under use */
    }
undo_engine:
    engine_free(engine);
    return status;
}

kvt_status kvt_plugin_close(kvt_engine *engine)
{
    if (engine == NULL) {
        return KVT_ERR_INVAL;
    }
    kvt_status status = kvt_cache_destroy(engine->cache);
    if (status == KVT_OK) {
        engine_free(engine);
    }
    return status;
}

/* ---- binding ---- */

/* The caller's regions as the cache's. Elements are as long as the first says. */
static kvt_status take_regions(const kvt_layout *layout, struct kvt_cache_region *out_regions,
                               char *why, uint64_t why_bytes)
{
    const unsigned char *at = (const unsigned char *)layout->regions;
    uint32_t step = layout->regions[0].struct_size;
    for (uint64_t i = 0; i < layout->region_count; i++, at += step) {
        kvt_region region;
        kvt_status status = kvt_abi_take(&region, sizeof(region), at);
        if (status != KVT_OK || region.struct_size != step) {
            kvt_abi_why(why, why_bytes, "region %llu has a struct_size that cannot be",
                        (unsigned long long)i);
            return status != KVT_OK ? status : KVT_ERR_INVAL;
        }
        if (region.memory_kind != KVT_MEMORY_CPU || region.group != 0) {
            kvt_abi_why(why, why_bytes,
                        "region %llu: memory kind %u, group %u: this version moves CPU memory of "
                        "one group",
                        (unsigned long long)i, region.memory_kind, region.group);
            return KVT_ERR_UNSUPPORTED;
        }
        if (region.reserved0 != 0) {
            kvt_abi_why(why, why_bytes, "region %llu: reserved0 is not zero",
                        (unsigned long long)i);
            return KVT_ERR_INVAL;
        }
        out_regions[i] = (struct kvt_cache_region){
            .base = (void *)(uintptr_t)region.base,
            .block_bytes = region.block_bytes,
            .stride_bytes = region.stride_bytes,
        };
    }
    return KVT_OK;
}

kvt_status kvt_plugin_bind(kvt_engine *engine, const kvt_layout *given, uint64_t *out_binding,
                           char *why, uint64_t why_bytes)
{
    kvt_layout layout;
    if (engine == NULL || out_binding == NULL || (engine->role & KVT_ROLE_RANK) == 0) {
        kvt_abi_why(why, why_bytes, "only an engine opened as a rank binds");
        return KVT_ERR_INVAL;
    }
    kvt_status status = kvt_abi_take(&layout, sizeof(layout), given);
    if (status != KVT_OK || layout.regions == NULL || layout.region_count == 0 ||
        layout.region_count > KVT_REGIONS_MAX) {
        kvt_abi_why(why, why_bytes,
                    "the layout is not well-formed: use KVT_LAYOUT_INIT and give 1 "
                    "to %u regions",
                    KVT_REGIONS_MAX);
        return status != KVT_OK ? status : KVT_ERR_INVAL;
    }
    if (layout.device_kind != KVT_MEMORY_CPU) {
        kvt_abi_why(why, why_bytes,
                    "device kind %u is not supported: this version has the CPU device only",
                    layout.device_kind);
        return KVT_ERR_UNSUPPORTED;
    }
    size_t bytes = (size_t)layout.region_count * sizeof(struct kvt_cache_region);
    const kvt_host *host = &engine->host;
    struct kvt_cache_region *regions =
        host->alloc != NULL ? host->alloc(host->ctx, bytes) : malloc(bytes);
    if (regions == NULL) {
        kvt_abi_why(why, why_bytes, "no memory for the layout's %llu regions",
                    (unsigned long long)layout.region_count);
        return KVT_ERR_NOMEM;
    }
    status = take_regions(&layout, regions, why, why_bytes);
    if (status == KVT_OK) {
        status = kvt_cache_bind(engine->cache, engine->client, regions, (size_t)layout.region_count,
                                layout.block_tokens, layout.block_count, out_binding, why,
                                (size_t)why_bytes);
    }
    if (host->free != NULL) {
        host->free(host->ctx, regions, bytes);
    } else {
        free(regions);
    }
    return status;
}

kvt_status kvt_plugin_unbind(kvt_engine *engine, uint64_t binding)
{
    return engine != NULL ? kvt_cache_unbind(engine->cache, engine->client, binding)
                          : KVT_ERR_INVAL;
}
