/* What the catalog knows, handed over; and what it should not know any more. */
#include "cache/tier/nvme_internal.h"

struct load {
    struct kvt_nvme *nvme;
    const struct kvt_catalog_visitor *visitor;
    kvt_status ended; /* why the caller takes no more, OK: it does */
};

static kvt_status on_namespace(void *ctx, const struct kvt_catalog_namespace *ns)
{
    struct load *load = ctx;
    if (load->ended != KVT_OK) {
        return KVT_OK;
    }
    kvt_status status = load->visitor->on_namespace(load->visitor->ctx, ns);
    if (status == KVT_ERR_NOMEM || status == KVT_ERR_LIMIT) {
        load->ended = status;
    }
    return KVT_OK;
}

/* A record that names no slot that it could have. True: and it is to be deleted. Requires: lock. */
static void record_is_stray(struct kvt_nvme *nvme, uint64_t seq, kvt_status why)
{
    /* Behind the end of the data (the store shrank), or at odds with another record: it goes, or,
     * without memory, stays for the next load to find. Where the slot could not be noted it stays
     * too: nothing is wrong with it. */
    if (why != KVT_ERR_NOMEM) {
        nvme->damaged_records += why == KVT_ERR_LIMIT;
        nvme->orphans_dropped += kvt_nvme_stray_add(nvme, seq);
    }
}

static kvt_status on_page(void *ctx, const struct kvt_catalog_page *page)
{
    struct load *load = ctx;
    struct kvt_nvme *nvme = load->nvme;
    kvt_lock_take(&nvme->lock);
    kvt_status status = kvt_nvme_slot_claim(nvme, page);
    if (status != KVT_OK) {
        record_is_stray(nvme, page->seq, status);
    } else if (load->ended != KVT_OK) {
        /* Nobody takes it, but its bytes are there: it goes when room is needed, newest first. */
        struct kvt_nvme_slot *slot = kvt_nvme_slot_at(nvme, page->place.slot);
        slot->left = true;
        slot->next = nvme->left_head;
        nvme->left_head = page->place.slot;
        nvme->pages_left++;
    }
    kvt_lock_give(&nvme->lock);
    if (status != KVT_OK || load->ended != KVT_OK) {
        return KVT_OK;
    }
    status = load->visitor->on_page(load->visitor->ctx, page);
    if (status == KVT_OK) {
        return KVT_OK;
    }
    kvt_lock_take(&nvme->lock);
    if (status == KVT_ERR_NOMEM || status == KVT_ERR_LIMIT) {
        load->ended = status;
        struct kvt_nvme_slot *slot = kvt_nvme_slot_at(nvme, page->place.slot);
        slot->left = true;
        slot->next = nvme->left_head;
        nvme->left_head = page->place.slot;
        nvme->pages_left++;
    } else {
        kvt_nvme_slot_kill(nvme, page->place.slot);
        nvme->orphans_dropped++;
    }
    kvt_lock_give(&nvme->lock);
    return KVT_OK;
}

kvt_status kvt_nvme_load(struct kvt_nvme *nvme, const struct kvt_catalog_visitor *visitor,
                         struct kvt_catalog_load *out_load)
{
    struct load load = {.nvme = nvme, .visitor = visitor, .ended = KVT_OK};
    struct kvt_catalog_visitor inner = {&load, on_namespace, on_page};
    struct kvt_catalog_load result = {0};
    kvt_status status = kvt_catalog_load(nvme->catalog, &inner, KVT_NVME_LOAD_NS, &result);
    if (status != KVT_OK) {
        /* What is not known cannot be spared, and numbers that were used are not known either: so
         * nothing is written over it. */
        kvt_log(
            nvme->log, KVT_LOG_ERROR,
            "nvme: the catalog could not be read to its end (%s): what was read is used, nothing "
            "is written; see kvtier check",
            kvt_status_text(status));
        return status;
    }
    kvt_lock_take(&nvme->lock);
    kvt_nvme_slots_loaded(nvme);
    nvme->seq_next = result.seq_last + 1;
    nvme->damaged_records += result.damaged_records;
    nvme->loaded = true;
    kvt_cond_broadcast(&nvme->cond);
    kvt_lock_give(&nvme->lock);
    *out_load = result;
    return load.ended;
}
