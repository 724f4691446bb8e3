/* The facade: life cycle, clients, bindings, statistics. The calls that move pages: calls.c. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cache/cache_internal.h"
#include "cache/index/key.h"

/* The version of the canonical form of namespaces, so that a change can never be mistaken. */
#define NAMESPACE_FORM 1u
#define NAMESPACE_HEAD_BYTES 16u
#define TENANT_BYTES_MAX 1024u

void kvt_why(char *why, size_t why_bytes, const char *format, ...)
{
    if (why == NULL || why_bytes == 0) {
        return;
    }
    va_list args;
    va_start(args, format);
    (void)vsnprintf(why, why_bytes, format, args);
    va_end(args);
}

kvt_status kvt_cache_enter(const struct kvt_cache *cache)
{
    if (cache == NULL) {
        return KVT_ERR_INVAL;
    }
    return cache->pid == getpid() ? KVT_OK : KVT_ERR_PROCESS;
}

/* ---- life cycle ---- */

/* Table sizes beyond this are mistakes; index numbers have 32 bits. */
#define TABLE_MAX (1u << 30)

static kvt_status check_limits(const struct kvt_cache_config *config, char *why, size_t why_bytes)
{
    const struct {
        const char *name;
        uint32_t value;
    } limits[] = {{"pages_max", config->pages_max},
                  {"leases_max", config->leases_max},
                  {"jobs_max", config->jobs_max},
                  {"requests_max", config->requests_max},
                  {"ghosts_max", config->ghosts_max}};
    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        if (limits[i].value > TABLE_MAX) {
            kvt_why(why, why_bytes, "%s is %u, more than the %u allowed", limits[i].name,
                    limits[i].value, TABLE_MAX);
            return KVT_ERR_INVAL;
        }
    }
    const uint64_t budgets[KVT_MEMORY_TIERS] = {config->hbm_bytes, config->host_bytes};
    for (uint32_t tier = 0; tier < KVT_MEMORY_TIERS; tier++) {
        if (budgets[tier] > 0 && budgets[tier] < KVT_CHUNK_ALIGN_BYTES) {
            kvt_why(why, why_bytes,
                    "the %s budget of %llu bytes is below the least, %u: raise it, or set it to 0 "
                    "to do without that tier",
                    tier == KVT_HBM ? "hbm" : "host", (unsigned long long)budgets[tier],
                    KVT_CHUNK_ALIGN_BYTES);
            return KVT_ERR_INVAL;
        }
    }
    return KVT_OK;
}

static kvt_status check_stores(const struct kvt_cache_config *config, char *why, size_t why_bytes)
{
    const uint32_t known =
        KVT_CACHE_NVME_OPTIONAL | KVT_CACHE_NVME_THREADS | KVT_CACHE_NVME_BUFFERED;
    if (config->store_count > KVT_CACHE_STORES_MAX ||
        (config->store_count > 0 && config->stores == NULL)) {
        kvt_why(why, why_bytes, "%u nvme stores: give at most %u, and not NULL",
                config->store_count, KVT_CACHE_STORES_MAX);
        return KVT_ERR_INVAL;
    }
    if ((config->nvme_flags & ~known) != 0) {
        kvt_why(why, why_bytes, "nvme flags 0x%x are not known", config->nvme_flags);
        return KVT_ERR_INVAL;
    }
    for (uint32_t i = 0; i < config->store_count; i++) {
        const struct kvt_cache_store *store = &config->stores[i];
        if (store->folder == NULL || store->folder[0] == '\0') {
            kvt_why(why, why_bytes, "nvme store %u has no folder", i + 1);
            return KVT_ERR_INVAL;
        }
        if (store->bytes < KVT_CACHE_STORE_BYTES_MIN) {
            kvt_why(why, why_bytes,
                    "the nvme store '%s' of %llu bytes is below the least, %llu: raise it",
                    store->folder, (unsigned long long)store->bytes,
                    (unsigned long long)KVT_CACHE_STORE_BYTES_MIN);
            return KVT_ERR_INVAL;
        }
    }
    if (config->store_count > 0 && config->host_bytes == 0) {
        kvt_why(why, why_bytes,
                "an nvme tier needs a host tier, which its pages pass through: give the host "
                "budget some bytes");
        return KVT_ERR_INVAL;
    }
    if (config->admit_policy != NULL && kvt_admit_policy_find(config->admit_policy) == NULL) {
        kvt_why(why, why_bytes,
                "there is no admission policy '%s'; try 'through', 'on-evict' or 'second-touch'",
                config->admit_policy);
        return KVT_ERR_INVAL;
    }
    return KVT_OK;
}

static bool memory_is_whole(const struct kvt_cache_memory *memory)
{
    return memory == NULL ||
           (memory->alloc != NULL && memory->resize != NULL && memory->free != NULL);
}

static kvt_status check_config(const struct kvt_cache_config *config, char *why, size_t why_bytes)
{
    if (!memory_is_whole(config->memory) || !memory_is_whole(config->index_memory)) {
        kvt_why(why, why_bytes, "memory hooks lack one of alloc, resize and free");
        return KVT_ERR_INVAL;
    }
    if (config->page_tokens > KVT_PAGE_TOKENS_MAX) {
        kvt_why(why, why_bytes, "a page of %u tokens is larger than the %u allowed",
                config->page_tokens, KVT_PAGE_TOKENS_MAX);
        return KVT_ERR_INVAL;
    }
    if (config->hbm_bytes == 0 && config->host_bytes == 0) {
        kvt_why(why, why_bytes,
                "both budgets are 0: give the hbm or the host tier at least one page");
        return KVT_ERR_INVAL;
    }
    struct kvt_system_memory memory;
    kvt_system_memory_read("", &memory);
    if (config->host_bytes > memory.total_bytes) {
        kvt_why(why, why_bytes,
                "the host budget of %llu bytes is more than the %llu that this machine or cgroup "
                "has: lower it",
                (unsigned long long)config->host_bytes, (unsigned long long)memory.total_bytes);
        return KVT_ERR_INVAL;
    }
    if (config->evict_policy != NULL && kvt_evict_policy_find(config->evict_policy) == NULL) {
        kvt_why(why, why_bytes, "there is no eviction policy '%s'; try 'lru'",
                config->evict_policy);
        return KVT_ERR_INVAL;
    }
    kvt_status status = check_limits(config, why, why_bytes);
    return status == KVT_OK ? check_stores(config, why, why_bytes) : status;
}

static struct kvt_memory memory_of(const struct kvt_cache_memory *memory)
{
    if (memory == NULL) {
        return kvt_memory_libc;
    }
    return (struct kvt_memory){memory->ctx, memory->alloc, memory->resize, memory->free};
}

static uint32_t or_default(uint32_t value, uint32_t otherwise)
{
    return value != 0 ? value : otherwise;
}

static uint64_t or_default_64(uint64_t value, uint64_t otherwise)
{
    return value != 0 ? value : otherwise;
}

static kvt_status plan_of(struct kvt_cache *cache, const struct kvt_cache_config *config, char *why,
                          size_t why_bytes)
{
    const char *policy = config->evict_policy != NULL ? config->evict_policy : "lru";
    /* Handles of different caches should not be the same numbers. */
    uint64_t seed[3] = {kvt_now_ns(&kvt_clock_monotonic), (uint64_t)getpid(),
                        (uint64_t)(uintptr_t)cache};
    struct kvt_plan_config plan = {
        .mem = &cache->mem,
        .index_mem = &cache->index_mem,
        .log = cache->log,
        .clock = cache->clock,
        .device = cache->device,
        .page_tokens = cache->page_tokens,
        .hbm_bytes = config->hbm_bytes,
        .host_bytes = config->host_bytes,
        .pages_max = or_default(config->pages_max, KVT_PAGES_MAX_DEFAULT),
        .leases_max = or_default(config->leases_max, KVT_LEASES_MAX_DEFAULT),
        .jobs_max = or_default(config->jobs_max, KVT_JOBS_MAX_DEFAULT),
        .requests_max = or_default(config->requests_max, KVT_REQUESTS_MAX_DEFAULT),
        .ghosts_max = or_default(config->ghosts_max, KVT_GHOSTS_MAX_DEFAULT),
        .lease_ttl_ns = or_default_64(config->lease_ttl_ns, KVT_LEASE_TTL_NS_DEFAULT),
        .request_ttl_ns = or_default_64(config->request_ttl_ns, KVT_REQUEST_TTL_NS_DEFAULT),
        .seed = kvt_hash_bytes(seed, sizeof(seed)),
        .evict = kvt_evict_policy_find(policy),
        .admit =
            kvt_admit_policy_find(config->admit_policy != NULL ? config->admit_policy : "through"),
        .catalog_program = config->catalog_program,
        .nvme_read_late_ns = or_default_64(config->read_late_ns, KVT_CACHE_READ_LATE_NS_DEFAULT),
        .nvme_write_bytes_per_day = config->write_bytes_per_day,
        .nvme_threads_only = (config->nvme_flags & KVT_CACHE_NVME_THREADS) != 0,
        .nvme_buffered = (config->nvme_flags & KVT_CACHE_NVME_BUFFERED) != 0,
    };
    struct kvt_nvme_store stores[KVT_CACHE_STORES_MAX];
    for (uint32_t i = 0; i < config->store_count; i++) {
        stores[i] = (struct kvt_nvme_store){config->stores[i].folder, config->stores[i].bytes};
    }
    plan.stores = stores;
    plan.store_count = config->store_count;
    char nvme_why[512] = "";
    kvt_status status = kvt_plan_create(&plan, &cache->plan, nvme_why, sizeof(nvme_why));
    if (status != KVT_OK && plan.store_count > 0 &&
        (config->nvme_flags & KVT_CACHE_NVME_OPTIONAL) != 0) {
        kvt_log(&cache->log, KVT_LOG_WARNING,
                "the nvme tier is off, and what it holds is missed: %s", nvme_why);
        plan.store_count = 0;
        status = kvt_plan_create(&plan, &cache->plan, nvme_why, sizeof(nvme_why));
    }
    if (status != KVT_OK) {
        kvt_why(why, why_bytes, "%s", nvme_why);
    }
    return status;
}

kvt_status kvt_cache_create(const struct kvt_cache_config *config, struct kvt_cache **out_cache,
                            char *why, size_t why_bytes)
{
    if (config == NULL || out_cache == NULL) {
        kvt_why(why, why_bytes, "the config, or where to put the cache, is NULL");
        return KVT_ERR_INVAL;
    }
    kvt_status status = check_config(config, why, why_bytes);
    if (status != KVT_OK) {
        return status;
    }
    struct kvt_memory mem = memory_of(config->memory);
    struct kvt_cache *cache = kvt_calloc(&mem, 1, sizeof(*cache));
    if (cache == NULL) {
        kvt_why(why, why_bytes, "no memory for the cache's own structures");
        return KVT_ERR_NOMEM;
    }
    cache->mem = mem;
    cache->index_mem = config->index_memory != NULL ? memory_of(config->index_memory) : mem;
    cache->log = (struct kvt_log){config->log, config->log_ctx};
    cache->clock = config->now_ns != NULL ? (struct kvt_clock){config->now_ctx, config->now_ns}
                                          : kvt_clock_monotonic;
    cache->page_tokens = or_default(config->page_tokens, KVT_PAGE_TOKENS_DEFAULT);
    cache->pid = getpid();
    kvt_lock_init(&cache->lock, KVT_RANK_PLUGIN, "facade");
    status = kvt_cpu_device_open(&cache->mem, &cache->device);
    if (status != KVT_OK) {
        kvt_why(why, why_bytes, "the CPU device could not be opened (%s)", kvt_status_text(status));
        goto undo_cache;
    }
    status = plan_of(cache, config, why, why_bytes);
    if (status != KVT_OK) {
        goto undo_device;
    }
    *out_cache = cache;
    return KVT_OK;

undo_device:
    cache->device->ops->close(cache->device);
undo_cache:
    kvt_lock_fini(&cache->lock);
    kvt_free(&mem, cache, sizeof(*cache));
    return status;
}

static bool still_in_use(struct kvt_cache *cache)
{
    bool bound = false;
    kvt_lock_take(&cache->lock);
    for (uint32_t i = 0; i < KVT_BINDINGS_MAX; i++) {
        bound = bound || cache->bounds[i].binding != NULL || cache->bounds[i].leaving;
    }
    kvt_lock_give(&cache->lock);
    return bound || atomic_load(&cache->streams) > 0 || atomic_load(&cache->events) > 0;
}

kvt_status kvt_cache_destroy(struct kvt_cache *cache)
{
    if (cache == NULL) {
        return KVT_OK;
    }
    kvt_status status = kvt_cache_enter(cache);
    if (status != KVT_OK) {
        return status;
    }
    if (still_in_use(cache) || kvt_plan_quiesce(cache->plan, 0) != KVT_OK) {
        return KVT_ERR_BUSY;
    }
    for (uint32_t i = 0; i < KVT_CLIENTS_MAX; i++) {
        kvt_free(&cache->mem, cache->clients[i].base, cache->clients[i].base_bytes);
        if (cache->clients[i].used) {
            kvt_plan_drop_client(cache->plan, i + 1);
        }
    }
    struct kvt_memory mem = cache->mem;
    kvt_plan_destroy(cache->plan);
    cache->device->ops->close(cache->device);
    kvt_lock_fini(&cache->lock);
    kvt_free(&mem, cache, sizeof(*cache));
    return KVT_OK;
}

/* ---- clients ---- */

static bool has_tag(const struct kvt_cache_field *fields, size_t field_count, uint32_t tag)
{
    for (size_t i = 0; i < field_count; i++) {
        if (fields[i].tag == tag) {
            return true;
        }
    }
    return false;
}

/* Whether one more client may be opened, as things are just now. */
static bool client_free(struct kvt_cache *cache)
{
    bool found = false;
    kvt_lock_take(&cache->lock);
    for (uint32_t i = 0; !found && i < KVT_CLIENTS_MAX; i++) {
        found = !cache->clients[i].used;
    }
    kvt_lock_give(&cache->lock);
    return found;
}

/* form | page tokens | tenant's length | tenant | fields. */
static kvt_status base_namespace(struct kvt_cache *cache, const char *tenant, size_t tenant_bytes,
                                 const struct kvt_cache_field *fields, size_t field_count,
                                 struct kvt_canonical *out_base, char *why, size_t why_bytes)
{
    unsigned char head[NAMESPACE_HEAD_BYTES + TENANT_BYTES_MAX];
    uint32_t words[4] = {NAMESPACE_FORM, cache->page_tokens, (uint32_t)tenant_bytes, 0};
    if (tenant_bytes > TENANT_BYTES_MAX) {
        kvt_why(why, why_bytes, "the tenant's name is longer than the %u bytes allowed",
                TENANT_BYTES_MAX);
        return KVT_ERR_INVAL;
    }
    memcpy(head, words, sizeof(words));
    if (tenant_bytes > 0) {
        memcpy(head + NAMESPACE_HEAD_BYTES, tenant, tenant_bytes);
    }
    return kvt_canonical_make(&cache->mem, head, NAMESPACE_HEAD_BYTES + tenant_bytes, fields,
                              field_count, out_base, why, why_bytes);
}

kvt_status kvt_cache_client_open(struct kvt_cache *cache, const char *tenant, size_t tenant_bytes,
                                 const struct kvt_cache_field *fields, size_t field_count,
                                 const uint32_t *required, size_t required_count,
                                 uint32_t *out_client, char *why, size_t why_bytes)
{
    kvt_status status = kvt_cache_enter(cache);
    if (status != KVT_OK) {
        return status;
    }
    if (out_client == NULL || (tenant == NULL && tenant_bytes > 0) ||
        (fields == NULL && field_count > 0) || (required == NULL && required_count > 0)) {
        kvt_why(why, why_bytes,
                "the tenant, the fields, the required tags, or where to put the "
                "client, is NULL");
        return KVT_ERR_INVAL;
    }
    for (size_t i = 0; i < required_count; i++) {
        if (!has_tag(fields, field_count, required[i])) {
            kvt_why(why, why_bytes,
                    "namespace field %u is required: what cannot be named must not be cached",
                    required[i]);
            return KVT_ERR_INVAL;
        }
    }
    /* Before the namespace is made: that one is never given back. */
    if (!client_free(cache)) {
        kvt_why(why, why_bytes, "all %u clients are open: close one", KVT_CLIENTS_MAX);
        return KVT_ERR_LIMIT;
    }
    struct kvt_canonical base;
    status =
        base_namespace(cache, tenant, tenant_bytes, fields, field_count, &base, why, why_bytes);
    if (status != KVT_OK) {
        return status;
    }
    uint64_t group = kvt_hash_bytes(tenant_bytes > 0 ? tenant : "", tenant_bytes);
    uint32_t ns = 0;
    status = kvt_plan_namespace(cache->plan, base.bytes, base.count, group, &ns);
    uint32_t free_client = KVT_CLIENTS_MAX;
    kvt_lock_take(&cache->lock);
    for (uint32_t i = 0; status == KVT_OK && i < KVT_CLIENTS_MAX; i++) {
        if (!cache->clients[i].used) {
            free_client = i;
            cache->clients[i] = (struct kvt_client){.used = true,
                                                    .ns = ns,
                                                    .group = group,
                                                    .base = base.bytes,
                                                    .base_bytes = base.count};
            break;
        }
    }
    kvt_lock_give(&cache->lock);
    if (status == KVT_OK && free_client == KVT_CLIENTS_MAX) {
        status = KVT_ERR_LIMIT;
    }
    if (status != KVT_OK) {
        kvt_why(why, why_bytes, "no more clients or namespaces (%s)", kvt_status_text(status));
        kvt_canonical_fini(&cache->mem, &base);
        return status;
    }
    *out_client = free_client + 1;
    return KVT_OK;
}

kvt_status kvt_cache_client_close(struct kvt_cache *cache, uint32_t client)
{
    kvt_status status = kvt_cache_enter(cache);
    if (status != KVT_OK) {
        return status;
    }
    kvt_lock_take(&cache->lock);
    bool known = client >= 1 && client <= KVT_CLIENTS_MAX && cache->clients[client - 1].used;
    struct kvt_client gone = {0};
    if (known) {
        gone = cache->clients[client - 1];
        cache->clients[client - 1] = (struct kvt_client){.used = false};
    }
    kvt_lock_give(&cache->lock);
    if (!known) {
        return KVT_ERR_STALE;
    }
    kvt_plan_drop_client(cache->plan, client);
    kvt_free(&cache->mem, gone.base, gone.base_bytes);
    return KVT_OK;
}

/* ---- bindings ---- */

static bool client_known(struct kvt_cache *cache, uint32_t client)
{
    kvt_lock_take(&cache->lock);
    bool known = client >= 1 && client <= KVT_CLIENTS_MAX && cache->clients[client - 1].used;
    kvt_lock_give(&cache->lock);
    return known;
}

static kvt_status check_layout(const struct kvt_cache *cache,
                               const struct kvt_cache_region *regions, size_t region_count,
                               uint32_t block_tokens, uint64_t block_count, char *why,
                               size_t why_bytes)
{
    if (block_tokens == 0 || cache->page_tokens % block_tokens != 0) {
        kvt_why(
            why, why_bytes,
            "a page of %u tokens is not a multiple of the engine's block of %u tokens: choose a "
            "page size that is",
            cache->page_tokens, block_tokens);
        return KVT_ERR_INVAL;
    }
    if (regions == NULL || region_count == 0 || region_count > KVT_CACHE_REGIONS_MAX) {
        kvt_why(why, why_bytes, "%zu regions: there must be 1 to %u",
                regions != NULL ? region_count : 0, KVT_CACHE_REGIONS_MAX);
        return KVT_ERR_INVAL;
    }
    if (block_count == 0 || block_count > UINT32_MAX) {
        kvt_why(why, why_bytes, "%llu blocks: there must be 1 to 2^32 - 1",
                (unsigned long long)block_count);
        return KVT_ERR_INVAL;
    }
    for (size_t i = 0; i < region_count; i++) {
        const struct kvt_cache_region *region = &regions[i];
        if (region->base == NULL || region->block_bytes == 0 ||
            region->stride_bytes < region->block_bytes ||
            region->stride_bytes > UINT64_MAX / 2 / block_count ||
            region->block_bytes > UINT32_MAX) {
            kvt_why(why, why_bytes,
                    "region %zu cannot be: base %p, block of %llu bytes, stride of %llu bytes", i,
                    region->base, (unsigned long long)region->block_bytes,
                    (unsigned long long)region->stride_bytes);
            return KVT_ERR_INVAL;
        }
    }
    return KVT_OK;
}

static kvt_status bind_regions(struct kvt_cache *cache, const struct kvt_cache_region *regions,
                               size_t region_count, uint32_t block_tokens, uint64_t block_count,
                               struct kvt_binding **out_binding)
{
    struct kvt_exec_region *copies = kvt_calloc(&cache->mem, region_count, sizeof(*copies));
    if (copies == NULL) {
        return KVT_ERR_NOMEM;
    }
    for (size_t i = 0; i < region_count; i++) {
        copies[i] = (struct kvt_exec_region){.base = regions[i].base,
                                             .block_bytes = regions[i].block_bytes,
                                             .stride_bytes = regions[i].stride_bytes};
    }
    kvt_status status = kvt_plan_bind(cache->plan, copies, (uint32_t)region_count, block_tokens,
                                      block_count, out_binding);
    kvt_free(&cache->mem, copies, region_count * sizeof(*copies));
    return status;
}

/* A budget that holds no page would refuse every save in silence: say so at bind. */
static kvt_status check_budgets(struct kvt_cache *cache, uint64_t page_bytes, char *why,
                                size_t why_bytes)
{
    struct kvt_plan_stats stats;
    kvt_plan_stats(cache->plan, &stats);
    for (uint32_t tier = 0; tier < KVT_MEMORY_TIERS; tier++) {
        uint64_t budget = stats.tiers[tier].bytes_budget;
        if (budget > 0 && budget < page_bytes) {
            kvt_why(why, why_bytes,
                    "the %s budget of %llu bytes does not hold one page of %llu bytes: raise it, "
                    "or set it to 0 to do without that tier",
                    tier == KVT_HBM ? "hbm" : "host", (unsigned long long)budget,
                    (unsigned long long)page_bytes);
            return KVT_ERR_INVAL;
        }
    }
    return KVT_OK;
}

/* All bindings of a namespace have pages of one size: saves and restores of another would fail. */
static kvt_status check_page_bytes(struct kvt_cache *cache, uint32_t client, uint64_t page_bytes,
                                   char *why, size_t why_bytes)
{
    kvt_lock_take(&cache->lock);
    uint32_t ns = cache->clients[client - 1].ns;
    kvt_lock_give(&cache->lock);
    kvt_status status = kvt_plan_namespace_bytes(cache->plan, ns, page_bytes);
    if (status != KVT_OK) {
        kvt_why(
            why, why_bytes,
            "a page of %llu bytes is not what earlier bindings of this namespace have: name the "
            "other layout in the namespace's fields",
            (unsigned long long)page_bytes);
    }
    return status;
}

kvt_status kvt_cache_bind(struct kvt_cache *cache, uint32_t client,
                          const struct kvt_cache_region *regions, size_t region_count,
                          uint32_t block_tokens, uint64_t block_count, uint64_t *out_binding,
                          char *why, size_t why_bytes)
{
    kvt_status status = kvt_cache_enter(cache);
    if (status == KVT_OK && out_binding == NULL) {
        kvt_why(why, why_bytes, "where to put the binding is NULL");
        status = KVT_ERR_INVAL;
    }
    if (status == KVT_OK && !client_known(cache, client)) {
        kvt_why(why, why_bytes, "client %u is not open", client);
        status = KVT_ERR_STALE;
    }
    if (status == KVT_OK) {
        status =
            check_layout(cache, regions, region_count, block_tokens, block_count, why, why_bytes);
    }
    uint64_t page_bytes = 0;
    for (size_t i = 0; status == KVT_OK && i < region_count; i++) {
        page_bytes += regions[i].block_bytes * (cache->page_tokens / block_tokens);
    }
    if (status == KVT_OK) {
        status = check_budgets(cache, page_bytes, why, why_bytes);
    }
    if (status == KVT_OK) {
        status = check_page_bytes(cache, client, page_bytes, why, why_bytes);
    }
    if (status != KVT_OK) {
        return status;
    }
    struct kvt_binding *binding = NULL;
    status = bind_regions(cache, regions, region_count, block_tokens, block_count, &binding);
    if (status != KVT_OK) {
        kvt_why(why, why_bytes, "binding failed: %s", kvt_status_text(status));
        return status;
    }
    kvt_lock_take(&cache->lock);
    uint32_t number = 0;
    while (number < KVT_BINDINGS_MAX &&
           (cache->bounds[number].binding != NULL || cache->bounds[number].leaving)) {
        number++;
    }
    if (number < KVT_BINDINGS_MAX) {
        struct kvt_bound *bound = &cache->bounds[number];
        bound->generation++;
        bound->client = client;
        bound->binding = binding;
        *out_binding = ((uint64_t)bound->generation << 32) | number;
    }
    kvt_lock_give(&cache->lock);
    if (number == KVT_BINDINGS_MAX) {
        kvt_exec_unbind(binding);
        kvt_why(why, why_bytes, "all %u bindings are in use: unbind one", KVT_BINDINGS_MAX);
        return KVT_ERR_LIMIT;
    }
    return KVT_OK;
}

kvt_status kvt_cache_unbind(struct kvt_cache *cache, uint32_t client, uint64_t handle)
{
    kvt_status status = kvt_cache_enter(cache);
    if (status != KVT_OK) {
        return status;
    }
    uint32_t number = (uint32_t)handle;
    struct kvt_binding *binding = NULL;
    kvt_lock_take(&cache->lock);
    if (number < KVT_BINDINGS_MAX) {
        struct kvt_bound *bound = &cache->bounds[number];
        if (bound->generation == (uint32_t)(handle >> 32) && bound->client == client) {
            binding = bound->binding;
        }
        if (binding != NULL && bound->calls > 0) {
            status = KVT_ERR_BUSY;
        } else if (binding != NULL) {
            bound->binding = NULL; /* taken out first: no new job finds it */
            bound->leaving = true;
        }
    }
    kvt_lock_give(&cache->lock);
    if (binding == NULL || status != KVT_OK) {
        return binding == NULL ? KVT_ERR_STALE : status;
    }
    status = kvt_plan_unbind(cache->plan, binding);
    kvt_lock_take(&cache->lock);
    cache->bounds[number].leaving = false;
    if (status != KVT_OK) {
        cache->bounds[number].binding = binding;
    }
    kvt_lock_give(&cache->lock);
    return status;
}

/* ---- policies, for help texts ---- */

const char *kvt_cache_policy_name(uint32_t index)
{
    const struct kvt_evict_ops *const *list = kvt_evict_policy_list();
    for (uint32_t i = 0; list[i] != NULL; i++) {
        if (i == index) {
            return list[i]->name;
        }
    }
    return NULL;
}

const char *kvt_cache_policy_summary(uint32_t index)
{
    const char *name = kvt_cache_policy_name(index);
    return name != NULL ? kvt_evict_policy_find(name)->summary : NULL;
}

const char *kvt_cache_admit_name(uint32_t index)
{
    const struct kvt_admit_ops *const *list = kvt_admit_policy_list();
    for (uint32_t i = 0; list[i] != NULL; i++) {
        if (i == index) {
            return list[i]->name;
        }
    }
    return NULL;
}

const char *kvt_cache_admit_summary(uint32_t index)
{
    const char *name = kvt_cache_admit_name(index);
    return name != NULL ? kvt_admit_policy_find(name)->summary : NULL;
}
