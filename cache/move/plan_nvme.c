/* nvme as the plan sees it: opening, what the catalog knows, and what the drive's threads tell. */
#include "cache/move/plan_internal.h"

#include <stdio.h>
#include <string.h>

/* ---- events ---- */

void kvt_storage_tell(struct kvt_plan *plan, struct kvt_storage_event *event)
{
    struct kvt_plan_nvme *nvme = plan->nvme;
    kvt_lock_take(&nvme->lock);
    event->next = NULL;
    if (nvme->tail != NULL) {
        nvme->tail->next = event;
    } else {
        nvme->head = event;
    }
    nvme->tail = event;
    kvt_lock_give(&nvme->lock);
    kvt_exec_wake(plan->exec);
}

void kvt_storage_take(struct kvt_plan *plan)
{
    struct kvt_plan_nvme *nvme = plan->nvme;
    if (nvme == NULL) {
        return;
    }
    kvt_lock_take(&nvme->lock);
    struct kvt_storage_event *event = nvme->head;
    nvme->head = nvme->tail = NULL;
    kvt_lock_give(&nvme->lock);
    if (event == NULL) {
        return;
    }
    kvt_lock_take(&plan->lock);
    while (event != NULL) {
        struct kvt_storage_event *next = event->next;
        event->take(plan, event->what); /* may free the event */
        event = next;
    }
    kvt_cond_broadcast(&plan->done);
    kvt_lock_give(&plan->lock);
}

/* ---- loading ---- */

struct numbered {
    uint64_t seq;
    uint32_t page;
};

struct load {
    struct kvt_plan *plan;
    struct numbered *pages; /* rising seq */
    size_t count, cap;
    struct {
        uint32_t number, ns;
    } known[KVT_NAMESPACES_MAX];
    uint32_t known_count;
};

static kvt_status load_namespace(void *ctx, const struct kvt_catalog_namespace *in)
{
    struct load *load = ctx;
    struct kvt_plan *plan = load->plan;
    uint32_t ns = 0;
    kvt_status status =
        kvt_index_namespace(plan->index, in->canonical, in->canonical_bytes, in->group, &ns);
    if (status == KVT_OK) {
        status = kvt_index_namespace_bytes(plan->index, ns, in->slot_bytes);
    }
    if (status != KVT_OK) {
        return status;
    }
    plan->nvme->ns_number[ns] = in->number;
    plan->nvme->ns_durable[ns] = true;
    if (in->number > plan->nvme->ns_last) {
        plan->nvme->ns_last = in->number;
    }
    load->known[load->known_count].number = in->number;
    load->known[load->known_count++].ns = ns;
    return KVT_OK;
}

/* The index's number of a catalog's namespace. */
static bool ns_find(const struct load *load, uint32_t number, uint32_t *out_ns)
{
    for (uint32_t i = 0; i < load->known_count; i++) {
        if (load->known[i].number == number) {
            *out_ns = load->known[i].ns;
            return true;
        }
    }
    return false;
}

/* The page with this number, KVT_PAGE_NONE. Nearly always it is the latest. */
static uint32_t page_find(const struct load *load, uint64_t seq)
{
    size_t low = 0, high = load->count;
    if (high > 0 && load->pages[high - 1].seq == seq) {
        return load->pages[high - 1].page;
    }
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (load->pages[middle].seq < seq) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < load->count && load->pages[low].seq == seq ? load->pages[low].page : KVT_PAGE_NONE;
}

static kvt_status load_grow(struct load *load)
{
    if (load->count < load->cap) {
        return KVT_OK;
    }
    size_t cap = load->cap > 0 ? load->cap * 2 : 4096;
    struct numbered *pages =
        kvt_resize(load->plan->mem, load->pages, load->cap * sizeof(*pages), cap * sizeof(*pages));
    if (pages == NULL) {
        return KVT_ERR_NOMEM;
    }
    load->pages = pages;
    load->cap = cap;
    return KVT_OK;
}

static kvt_status load_page(void *ctx, const struct kvt_catalog_page *in)
{
    struct load *load = ctx;
    struct kvt_plan *plan = load->plan;
    uint32_t ns = 0;
    uint32_t before = in->parent != 0 ? page_find(load, in->parent) : KVT_PAGE_NONE;
    if (!ns_find(load, in->ns, &ns) || (in->parent != 0 && before == KVT_PAGE_NONE) ||
        in->token_count != plan->config.page_tokens) {
        return KVT_ERR_INVAL; /* an orphan */
    }
    kvt_status status = load_grow(load);
    if (status != KVT_OK) {
        return status;
    }
    struct kvt_loaded_page page = {
        .tokens = in->tokens,
        .extras = in->extras,
        .extra_count = in->extra_count,
        .place = in->place,
    };
    uint32_t number = KVT_PAGE_NONE;
    status = kvt_index_load_page(plan->index, ns, before, &page, &number);
    if (status == KVT_OK) {
        load->pages[load->count++] = (struct numbered){in->seq, number};
        plan->stats.loaded_pages++;
    }
    return status;
}

static kvt_status load_all(struct kvt_plan *plan, char *why, size_t why_bytes)
{
    struct load *load = kvt_calloc(plan->mem, 1, sizeof(*load));
    if (load == NULL) {
        (void)snprintf(why, why_bytes, "no memory to load the catalog");
        return KVT_ERR_NOMEM;
    }
    load->plan = plan;
    const struct kvt_catalog_visitor visitor = {
        .ctx = load, .on_namespace = load_namespace, .on_page = load_page};
    struct kvt_catalog_load out = {0};
    kvt_status status = kvt_nvme_load(plan->nvme->store, &visitor, &out);
    kvt_index_load_end(plan->index);
    kvt_free(plan->mem, load->pages, load->cap * sizeof(*load->pages));
    kvt_free(plan->mem, load, sizeof(*load));
    /* No number is given twice: pages that were not taken over, or whose namespace's record is
     * damaged, would be another's. */
    if (out.namespace_last > plan->nvme->ns_last) {
        plan->nvme->ns_last = out.namespace_last;
    }
    if (status != KVT_OK) {
        /* What was loaded is good; the rest is misses. */
        kvt_log(&plan->config.log, KVT_LOG_WARNING,
                "nvme: the catalog was read in part only (%s): %llu pages are known, the others "
                "are misses",
                kvt_status_text(status), (unsigned long long)plan->stats.loaded_pages);
    } else {
        kvt_log(&plan->config.log, KVT_LOG_INFO, "nvme: %llu pages known after %llu ms",
                (unsigned long long)plan->stats.loaded_pages,
                (unsigned long long)(out.load_ns / 1000000u));
    }
    return KVT_OK;
}

/* ---- life cycle ---- */

static void on_map(void *ctx, void *base, uint64_t bytes)
{
    struct kvt_plan *plan = ctx;
    kvt_nvme_buffer_add(plan->nvme->store, base, bytes);
}

kvt_status kvt_storage_open(struct kvt_plan *plan, char *why, size_t why_bytes)
{
    const struct kvt_plan_config *config = &plan->config;
    if (config->store_count == 0) {
        return KVT_OK;
    }
    struct kvt_plan_nvme *nvme = kvt_calloc(plan->mem, 1, sizeof(*nvme));
    if (nvme == NULL) {
        (void)snprintf(why, why_bytes, "no memory for the nvme tier");
        return KVT_ERR_NOMEM;
    }
    const struct kvt_nvme_config store = {
        .mem = plan->mem,
        .log = &plan->config.log,
        .clock = kvt_clock_monotonic,
        .stores = config->stores,
        .store_count = config->store_count,
        .page_tokens = config->page_tokens,
        .catalog_program = config->catalog_program,
        .read_late_ns = config->nvme_read_late_ns,
        .write_bytes_per_day = config->nvme_write_bytes_per_day,
        .threads_only = config->nvme_threads_only,
        .buffered = config->nvme_buffered,
    };
    nvme->admit = config->admit;
    kvt_status status = kvt_nvme_open(&store, &nvme->store, why, why_bytes);
    if (status != KVT_OK) {
        kvt_free(plan->mem, nvme, sizeof(*nvme));
        return status;
    }
    kvt_lock_init(&nvme->lock, KVT_RANK_LEAF, "nvme events");
    plan->nvme = nvme;
    plan->tiers[KVT_HOST].on_map = on_map;
    plan->tiers[KVT_HOST].on_map_ctx = plan;
    return load_all(plan, why, why_bytes);
}

void kvt_storage_close(struct kvt_plan *plan)
{
    struct kvt_plan_nvme *nvme = plan->nvme;
    if (nvme == NULL) {
        return;
    }
    plan->tiers[KVT_HOST].on_map = NULL;
    kvt_nvme_close(nvme->store, UINT64_C(5000000000));
    kvt_lock_fini(&nvme->lock);
    kvt_free(plan->mem, nvme, sizeof(*nvme));
    plan->nvme = NULL;
}
