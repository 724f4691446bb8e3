/*
 * Spill: pages of memory are written down to nvme, behind what engines wait for.
 *
 * The policy admits pages (when they are saved, delivered, or about to leave memory); their edge
 * goes into a queue; a batch takes the pages of the next edges in the order of the tree, so that a
 * page is never written before what comes before it. Pages that lie in hbm only go through a host
 * slot of the batch's own first.
 *
 *   picked -(staged)-> written, flushed, in the catalog -> on nvme as well
 *                 \--------- failed ---------> as before, and tried again later
 */
#include "cache/move/plan_internal.h"

#include <string.h>

struct kvt_spill {
    struct kvt_plan *plan;
    struct kvt_nvme_write write; /* user points back here */
    struct kvt_storage_event ended;
    struct kvt_exec_job stage; /* user points back here */
    uint32_t page_count, pages_max, extra_count;
    uint64_t bytes;
    /* [pages_max] */
    uint32_t *pages, *befores;
    struct kvt_nvme_page *out;
    struct kvt_place *sources; /* slots that the bytes come from; pinned */
    unsigned char *tiers;      /* of the sources */
    struct kvt_place *temps;   /* host slots of our own, for those from hbm; generation 0: none */
    struct kvt_page_addr *from, *to;
    uint32_t *tokens; /* [pages_max * page_tokens] */
    struct kvt_extra *extras;
    uint32_t extras_max;
    struct kvt_catalog_namespace namespaces[KVT_NVME_BATCH_PAGES_MAX];
    uint32_t namespace_count;
};

static void spill_free(struct kvt_plan *plan, struct kvt_spill *spill)
{
    const struct kvt_memory *mem = plan->mem;
    size_t max = spill->pages_max;
    kvt_free(mem, spill->pages, max * sizeof(*spill->pages));
    kvt_free(mem, spill->befores, max * sizeof(*spill->befores));
    kvt_free(mem, spill->out, max * sizeof(*spill->out));
    kvt_free(mem, spill->sources, max * sizeof(*spill->sources));
    kvt_free(mem, spill->tiers, max * sizeof(*spill->tiers));
    kvt_free(mem, spill->temps, max * sizeof(*spill->temps));
    kvt_free(mem, spill->from, max * sizeof(*spill->from));
    kvt_free(mem, spill->to, max * sizeof(*spill->to));
    kvt_free(mem, spill->tokens, max * plan->config.page_tokens * sizeof(*spill->tokens));
    kvt_free(mem, spill->extras, spill->extras_max * sizeof(*spill->extras));
    kvt_free(mem, spill, sizeof(*spill));
}

static struct kvt_spill *spill_create(struct kvt_plan *plan)
{
    const struct kvt_memory *mem = plan->mem;
    struct kvt_spill *spill = kvt_calloc(mem, 1, sizeof(*spill));
    if (spill == NULL) {
        return NULL;
    }
    uint32_t max = KVT_NVME_BATCH_PAGES_MAX;
    spill->plan = plan;
    spill->pages_max = max;
    spill->pages = kvt_calloc(mem, max, sizeof(*spill->pages));
    spill->befores = kvt_calloc(mem, max, sizeof(*spill->befores));
    spill->out = kvt_calloc(mem, max, sizeof(*spill->out));
    spill->sources = kvt_calloc(mem, max, sizeof(*spill->sources));
    spill->tiers = kvt_calloc(mem, max, sizeof(*spill->tiers));
    spill->temps = kvt_calloc(mem, max, sizeof(*spill->temps));
    spill->from = kvt_calloc(mem, max, sizeof(*spill->from));
    spill->to = kvt_calloc(mem, max, sizeof(*spill->to));
    spill->tokens = kvt_calloc(mem, (size_t)max * plan->config.page_tokens, sizeof(*spill->tokens));
    if (spill->pages == NULL || spill->befores == NULL || spill->out == NULL ||
        spill->sources == NULL || spill->tiers == NULL || spill->temps == NULL ||
        spill->from == NULL || spill->to == NULL || spill->tokens == NULL) {
        spill_free(plan, spill);
        return NULL;
    }
    return spill;
}

/* ---- the queue ---- */

static void queue_put(struct kvt_plan *plan, uint32_t node)
{
    struct kvt_plan_nvme *nvme = plan->nvme;
    if (!kvt_index_queue(plan->index, node)) {
        return; /* it is in there */
    }
    if (nvme->queue_count == KVT_SPILL_QUEUE_MAX) {
        plan->stats.spill_queue_full++;
        (void)kvt_index_unqueue(plan->index, node);
        return;
    }
    nvme->queue[(nvme->queue_head + nvme->queue_count++) % KVT_SPILL_QUEUE_MAX] = node;
}

static uint32_t queue_take(struct kvt_plan *plan)
{
    struct kvt_plan_nvme *nvme = plan->nvme;
    while (nvme->queue_count > 0) {
        uint32_t node = nvme->queue[nvme->queue_head];
        nvme->queue_head = (nvme->queue_head + 1) % KVT_SPILL_QUEUE_MAX;
        nvme->queue_count--;
        if (kvt_index_unqueue(plan->index, node)) {
            return node;
        }
    }
    return KVT_NODE_NONE;
}

/* Back to the front: what it waits for will be there soon. */
static void queue_put_back(struct kvt_plan *plan, uint32_t node)
{
    struct kvt_plan_nvme *nvme = plan->nvme;
    if (nvme->queue_count < KVT_SPILL_QUEUE_MAX && kvt_index_queue(plan->index, node)) {
        nvme->queue_head = (nvme->queue_head + KVT_SPILL_QUEUE_MAX - 1) % KVT_SPILL_QUEUE_MAX;
        nvme->queue[nvme->queue_head] = node;
        nvme->queue_count++;
    }
}

void kvt_spill_offer(struct kvt_plan *plan, const uint32_t *pages, uint32_t count, bool delivered)
{
    if (plan->nvme == NULL) {
        return;
    }
    uint32_t last = KVT_NODE_NONE;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t uses =
            delivered ? kvt_page_use(plan->index, pages[i]) : kvt_page_uses(plan->index, pages[i]);
        uint32_t node = kvt_page_node(plan->index, pages[i]);
        if (plan->nvme->admit->admit(delivered ? KVT_ADMIT_DELIVERED : KVT_ADMIT_SAVED, uses) &&
            kvt_page_admit(plan->index, pages[i]) && node != last) {
            queue_put(plan, node);
            last = node;
        }
    }
}

static bool admit_leaving(void *ctx, uint32_t uses)
{
    const struct kvt_plan *plan = ctx;
    return plan->nvme->admit->admit(KVT_ADMIT_LEAVING, uses);
}

/* Host memory is nearly full: what goes next may go to nvme, if the policy lets it. */
static void offer_leaving(struct kvt_plan *plan)
{
    uint32_t nodes[KVT_SPILLS_MAX * 4];
    struct kvt_slab_stats host;
    kvt_slab_stats(plan->tiers[KVT_HOST].slab, &host);
    if (host.bytes_budget - host.bytes_used > host.bytes_budget / KVT_HOST_FREE_LOW_DIVISOR) {
        return;
    }
    uint32_t count = kvt_index_cold_unwritten(plan->index, KVT_SPILLS_MAX * 4, nodes);
    for (uint32_t i = 0; i < count; i++) {
        if (kvt_index_admit_edge(plan->index, nodes[i], admit_leaving, plan) > 0) {
            queue_put(plan, nodes[i]);
        }
    }
}

/* ---- a batch is put together ---- */

/* The namespace's number in the catalog; the first batches that use it bring its record along. */
static uint32_t catalog_namespace(struct kvt_plan *plan, struct kvt_spill *spill, uint32_t ns)
{
    struct kvt_plan_nvme *nvme = plan->nvme;
    if (nvme->ns_number[ns] == 0) {
        nvme->ns_number[ns] = ++nvme->ns_last;
    }
    for (uint32_t i = 0; i < spill->namespace_count; i++) {
        if (spill->namespaces[i].number == nvme->ns_number[ns]) {
            return nvme->ns_number[ns];
        }
    }
    if (!nvme->ns_durable[ns]) {
        struct kvt_catalog_namespace *record = &spill->namespaces[spill->namespace_count++];
        kvt_index_namespace_get(plan->index, ns, &record->canonical, &record->canonical_bytes,
                                &record->group, &record->slot_bytes);
        record->number = nvme->ns_number[ns];
    }
    return nvme->ns_number[ns];
}

/* Where the page's bytes lie, pinned; what lies in hbm gets a host slot to go through, or false. */
static bool source_take(struct kvt_plan *plan, struct kvt_spill *spill, uint32_t at, uint32_t page)
{
    struct kvt_place place = kvt_page_place(plan->index, page, KVT_HOST, 0);
    spill->temps[at] = (struct kvt_place){0, 0};
    spill->tiers[at] = KVT_HOST;
    if (!kvt_place_is(place)) {
        place = kvt_page_place(plan->index, page, KVT_HBM, 0);
        spill->tiers[at] = KVT_HBM;
        uint64_t bytes = kvt_slot_bytes(plan, kvt_page_slot_bytes(plan->index, page));
        if (kvt_slab_reserve(plan->tiers[KVT_HOST].slab, bytes, &spill->temps[at]) != KVT_OK) {
            plan->nvme->host_short_bytes = bytes; /* see host_room_make() */
            return false;
        }
    }
    struct kvt_slab *slab = plan->tiers[spill->tiers[at]].slab;
    spill->sources[at] = place;
    spill->from[at].addr = kvt_slab_addr(slab, place);
    spill->to[at].addr = kvt_place_is(spill->temps[at])
                             ? kvt_slab_addr(plan->tiers[KVT_HOST].slab, spill->temps[at])
                             : spill->from[at].addr;
    kvt_slab_ref(slab, place);
    return true;
}

static void source_give(struct kvt_plan *plan, struct kvt_spill *spill, uint32_t at)
{
    kvt_slab_unref(plan->tiers[spill->tiers[at]].slab, spill->sources[at]);
    if (kvt_place_is(spill->temps[at])) {
        (void)kvt_slab_free(plan->tiers[KVT_HOST].slab, spill->temps[at]);
    }
}

/* Extra keys of a page, copied. NULL with 0 when it has none; false: no memory. */
static bool extras_take(struct kvt_plan *plan, struct kvt_spill *spill,
                        const struct kvt_extra *extras, uint32_t count, struct kvt_nvme_page *out)
{
    if (count == 0) {
        return true;
    }
    if (spill->extras != NULL) {
        return false; /* one page of a batch: the next goes with the next batch */
    }
    spill->extras = kvt_alloc(plan->mem, count * sizeof(*extras));
    if (spill->extras == NULL) {
        return false;
    }
    spill->extras_max = count;
    memcpy(spill->extras, extras, count * sizeof(*extras));
    out->extras = spill->extras;
    out->extra_count = count;
    return true;
}

/* The slots come back when the catalog has forgotten what was in them. What this batch was about to
 * build on may be among what goes: so it is looked at again then. While some are on their way back
 * no more are taken away, or each try until then would cost a batch. */
static void room_make(struct kvt_plan *plan)
{
    struct kvt_nvme_stats stats;
    kvt_nvme_stats(plan->nvme->store, &stats);
    if (stats.slots_dying == 0) {
        (void)kvt_index_nvme_room(plan->index, KVT_NVME_BATCH_PAGES_MAX);
    }
}

enum pick { PICK_MORE, PICK_FULL, PICK_LATER };

/* Add one page. */
static enum pick pick_page(struct kvt_plan *plan, struct kvt_spill *spill,
                           const struct kvt_unwritten *from, uint32_t i)
{
    const uint32_t page_tokens = plan->config.page_tokens;
    uint32_t page = from->pages[i];
    uint32_t at = spill->page_count;
    uint64_t bytes = kvt_page_slot_bytes(plan->index, page);
    if (at == spill->pages_max || (at > 0 && spill->bytes + bytes > KVT_SPILL_BYTES) ||
        (at > 0 && spill->out[0].bytes != bytes)) {
        return PICK_FULL;
    }
    struct kvt_nvme_page *out = &spill->out[at];
    *out = (struct kvt_nvme_page){0};
    if (!kvt_nvme_may_write(plan->nvme->store, bytes) || !source_take(plan, spill, at, page)) {
        return PICK_LATER;
    }
    kvt_status status = kvt_nvme_reserve(plan->nvme->store, bytes, &out->place);
    if (status != KVT_OK) {
        source_give(plan, spill, at);
        if (status == KVT_ERR_LIMIT) {
            room_make(plan);
        }
        return PICK_LATER;
    }
    if (!extras_take(plan, spill, i == 0 ? from->extras : NULL, i == 0 ? from->extra_count : 0,
                     out)) {
        kvt_nvme_unreserve(plan->nvme->store, out->place);
        source_give(plan, spill, at);
        return PICK_FULL;
    }
    uint32_t before = i > 0 ? from->pages[i - 1] : from->before;
    uint32_t *tokens = spill->tokens + (size_t)at * page_tokens;
    memcpy(tokens, from->tokens + (size_t)i * page_tokens, page_tokens * sizeof(*tokens));
    spill->pages[at] = page;
    spill->befores[at] = before;
    if (before != KVT_PAGE_NONE) {
        out->parent = kvt_page_nvme_name(plan->index, before);
    }
    out->ns = catalog_namespace(plan, spill, from->ns);
    out->seed = kvt_nvme_seed(kvt_page_key(plan->index, page)->bytes);
    out->payload = spill->to[at].addr;
    out->bytes = (uint32_t)bytes;
    out->tokens = tokens;
    out->token_count = page_tokens;
    kvt_page_write_begin(plan->index, page, out->place);
    spill->bytes += bytes;
    spill->page_count++;
    return PICK_MORE;
}

/* All that this edge, and those above it, still need; as far as the batch holds it. */
static enum pick pick_edge(struct kvt_plan *plan, struct kvt_spill *spill, uint32_t node)
{
    uint32_t pages[KVT_NVME_BATCH_PAGES_MAX];
    enum pick pick = PICK_MORE;
    while (pick == PICK_MORE) {
        struct kvt_unwritten from = {.pages = pages};
        uint32_t count = kvt_index_unwritten(plan->index, node, KVT_NVME_BATCH_PAGES_MAX, &from);
        if (count == 0) {
            return PICK_MORE;
        }
        for (uint32_t i = 0; pick == PICK_MORE && i < count; i++) {
            pick = pick_page(plan, spill, &from, i);
        }
    }
    return pick;
}

static void on_ended(struct kvt_nvme_write *write)
{
    struct kvt_spill *spill = write->user;
    kvt_storage_tell(spill->plan, &spill->ended);
}

/* ---- what came of it. Require the lock ---- */

static bool on_nvme(const struct kvt_plan *plan, uint32_t page)
{
    return kvt_place_is(kvt_page_place(plan->index, page, KVT_NVME, 0));
}

static void take_ended(struct kvt_plan *plan, void *what)
{
    struct kvt_spill *spill = what;
    bool orphaned = false; /* the drive did nothing wrong: what a page builds on is gone */
    for (uint32_t i = 0; i < spill->page_count; i++) {
        uint32_t page = spill->pages[i], before = spill->befores[i];
        bool durable = i < spill->write.pages_good;
        bool alone = before != KVT_PAGE_NONE && !on_nvme(plan, before);
        orphaned |= alone && i <= spill->write.pages_good;
        if (durable && alone) {
            /* What comes before it was lost meanwhile: it must not outlive that there. */
            kvt_nvme_drop(plan->nvme->store, &spill->out[i].place, 1);
            durable = false;
        }
        kvt_page_write_end(plan->index, page, durable);
        source_give(plan, spill, i);
        plan->stats.spilled_pages += durable;
        plan->stats.spill_failed_pages += !durable && !orphaned;
        if (!durable && kvt_page_admit(plan->index, page)) {
            queue_put(plan, kvt_page_node(plan->index, page));
        }
    }
    for (uint32_t i = 0; spill->write.pages_good > 0 && i < spill->namespace_count; i++) {
        for (uint32_t ns = 0; ns < KVT_NAMESPACES_MAX; ns++) {
            if (plan->nvme->ns_number[ns] == spill->namespaces[i].number) {
                plan->nvme->ns_durable[ns] = true;
            }
        }
    }
    if (spill->write.status != KVT_OK && !orphaned) {
        plan->nvme->retry_ns = kvt_now_ns(&kvt_clock_monotonic) + KVT_SPILL_RETRY_NS;
    }
    plan->nvme->spills_running--;
    plan->running--;
    spill_free(plan, spill);
}

/* It never got to the drive: as if the drive had refused it. */
static void spill_fail(struct kvt_plan *plan, struct kvt_spill *spill, kvt_status status)
{
    for (uint32_t i = 0; i < spill->page_count; i++) {
        kvt_nvme_unreserve(plan->nvme->store, spill->out[i].place);
    }
    spill->write.pages_good = 0;
    spill->write.status = status;
    take_ended(plan, spill);
}

static void spill_write(struct kvt_plan *plan, struct kvt_spill *spill)
{
    spill->write = (struct kvt_nvme_write){
        .pages = spill->out,
        .page_count = spill->page_count,
        .namespaces = spill->namespaces,
        .namespace_count = spill->namespace_count,
        .done = on_ended,
        .user = spill,
    };
    spill->ended = (struct kvt_storage_event){.take = take_ended, .what = spill};
    kvt_status status = kvt_nvme_write(plan->nvme->store, &spill->write);
    if (status != KVT_OK) {
        spill_fail(plan, spill, status);
    }
}

void kvt_spill_staged(struct kvt_plan *plan, struct kvt_exec_job *stage)
{
    struct kvt_spill *spill = stage->user;
    if (stage->status != KVT_OK || atomic_load(&stage->pages_good) < stage->page_count) {
        spill_fail(plan, spill, KVT_ERR_DEVICE);
    } else {
        spill_write(plan, spill);
    }
}

/* Pages from hbm go through host memory: one copy for all of them, the others copied onto
 * themselves would be wrong, so they are moved to the end of the list. Drops and retakes the lock.
 * */
static void spill_start(struct kvt_plan *plan, struct kvt_spill *spill)
{
    uint32_t staged = 0;
    for (uint32_t i = 0; i < spill->page_count; i++) {
        if (kvt_place_is(spill->temps[i])) {
            spill->from[staged] = spill->from[i];
            spill->to[staged++] = spill->to[i];
        }
    }
    plan->nvme->spills_running++;
    plan->running++;
    if (staged == 0) {
        spill_write(plan, spill);
        return;
    }
    spill->stage = (struct kvt_exec_job){.kind = KVT_EXEC_STAGE,
                                         .page_count = staged,
                                         .pages = spill->from,
                                         .to = spill->to,
                                         .move_bytes = spill->out[0].bytes,
                                         .user = spill};
    atomic_store(&spill->stage.pages_good, staged);
    kvt_lock_give(&plan->lock);
    kvt_status status = kvt_exec_submit(plan->exec, &spill->stage);
    kvt_lock_take(&plan->lock);
    if (status != KVT_OK) {
        spill_fail(plan, spill, status);
    }
}

/* One batch from the queue. False when there is nothing to write, or it must wait. */
static bool spill_one(struct kvt_plan *plan)
{
    struct kvt_spill *spill = spill_create(plan);
    enum pick pick = PICK_MORE;
    while (spill != NULL && pick == PICK_MORE) {
        uint32_t node = queue_take(plan);
        if (node == KVT_NODE_NONE) {
            break;
        }
        pick = pick_edge(plan, spill, node);
        if (pick != PICK_MORE) {
            queue_put_back(plan, node);
        }
    }
    if (spill == NULL || spill->page_count == 0) {
        if (spill != NULL) {
            spill_free(plan, spill);
        }
        return false;
    }
    spill_start(plan, spill);
    return pick != PICK_LATER;
}

/* Pages of hbm found no host slot to go through: the tier grows, or pages that nvme has leave it.
 * Between batches, as both change what a batch stands on. May drop and retake the lock. */
static void host_room_make(struct kvt_plan *plan)
{
    uint64_t bytes = plan->nvme->host_short_bytes;
    plan->nvme->host_short_bytes = 0;
    if (bytes > 0 && !kvt_slab_has_room(plan->tiers[KVT_HOST].slab, bytes) &&
        !kvt_room_grow(plan, KVT_HOST, bytes)) {
        (void)kvt_index_strip(plan->index, KVT_HOST, KVT_SPILL_ROOM_PAGES);
    }
}

void kvt_spill_some(struct kvt_plan *plan)
{
    if (plan->nvme == NULL || plan->quiet ||
        kvt_now_ns(&kvt_clock_monotonic) < plan->nvme->retry_ns) {
        return;
    }
    offer_leaving(plan);
    host_room_make(plan);
    while (!plan->quiet && plan->nvme->spills_running < KVT_SPILLS_MAX &&
           plan->nvme->queue_count > 0 && spill_one(plan)) {
    }
}

void kvt_spill_drain(struct kvt_plan *plan, uint64_t deadline_ns)
{
    bool in_time = plan->nvme != NULL;
    plan->quiet = false;
    while (in_time && (plan->nvme->queue_count > 0 || plan->nvme->spills_running > 0) &&
           kvt_nvme_writable(plan->nvme->store)) {
        kvt_spill_some(plan);
        in_time = kvt_plan_wait_until(plan, deadline_ns);
    }
    plan->quiet = true;
    while (plan->running > 0) {
        (void)kvt_plan_wait_until(plan, UINT64_MAX);
    }
}

/* ---- flush ---- */

/* Queue all that memory has and nvme does not. The number of edges. */
static uint32_t queue_all(struct kvt_plan *plan)
{
    uint32_t missing = 0;
    uint32_t node = kvt_index_next_unwritten(plan->index, 0);
    for (; node != KVT_NODE_NONE; node = kvt_index_next_unwritten(plan->index, node)) {
        queue_put(plan, node);
        missing++;
    }
    return missing;
}

kvt_status kvt_spill_flush(struct kvt_plan *plan, uint64_t deadline_ns)
{
    uint64_t failed = plan->stats.spill_failed_pages;
    bool in_time = true;
    plan->quiet = false;
    while (in_time) {
        if (queue_all(plan) == 0 && plan->nvme->spills_running == 0) {
            break;
        }
        if (plan->stats.spill_failed_pages != failed || !kvt_nvme_writable(plan->nvme->store)) {
            return KVT_ERR_IO;
        }
        kvt_spill_some(plan);
        in_time = kvt_plan_wait_until(plan, deadline_ns);
    }
    if (!in_time) {
        return KVT_ERR_TIMEOUT;
    }
    uint64_t now_ns = kvt_now_ns(&kvt_clock_monotonic);
    kvt_lock_give(&plan->lock);
    kvt_status status =
        kvt_nvme_flush(plan->nvme->store, deadline_ns > now_ns ? deadline_ns - now_ns : 0);
    kvt_lock_take(&plan->lock);
    return status;
}
