/* Restore: leased pages to engine blocks, each from the fastest tier that has it. */
#include "cache/move/plan_internal.h"

#include <string.h>

static kvt_status restore_begin(struct kvt_plan *plan, const struct kvt_plan_restore *in,
                                struct kvt_job **out_job)
{
    struct kvt_lease_info lease;
    kvt_status status = kvt_lease_get(plan->index, in->lease, in->client, &lease);
    if (status != KVT_OK) {
        return status;
    }
    if (in->page_count == 0 || (uint64_t)in->first_page + in->page_count > lease.at.pages) {
        return KVT_ERR_INVAL;
    }
    status = kvt_index_namespace_bytes(plan->index, lease.at.ns, in->binding->shard_bytes);
    if (status != KVT_OK) {
        return status;
    }
    size_t blocks = (size_t)in->page_count * in->binding->blocks_per_page;
    struct kvt_job *job = NULL;
    status = kvt_job_take(plan, in->page_count, blocks, &job);
    if (status != KVT_OK) {
        return status;
    }
    job->client = in->client;
    job->detached = in->detached;
    kvt_job_bind(job, in->binding);
    job->lease = in->lease;
    job->lease_owner = in->client;
    job->first_page = in->first_page;
    job->page_count = in->page_count;
    job->slot_bytes = in->binding->shard_bytes;
    memcpy(job->blocks, in->blocks, blocks * sizeof(*job->blocks));
    if (lease.user > 0 && plan->account.requests[lease.user - 1].open &&
        plan->account.requests[lease.user - 1].lease == in->lease) {
        job->request = lease.user - 1;
        job->request_generation = plan->account.requests[job->request].generation;
    }
    status = kvt_lease_begin(plan->index, in->lease, in->client);
    KVT_ASSERT(status == KVT_OK);
    status = kvt_index_pages(plan->index, in->lease, in->client, in->first_page, in->page_count,
                             job->pages);
    KVT_ASSERT(status == KVT_OK);
    *out_job = job;
    return KVT_OK;
}

/* The request that a restore is for, while its account is open and still of the same prompt. */
static struct kvt_request *request_of_job(struct kvt_plan *plan, const struct kvt_job *job)
{
    if (job->request == KVT_REQUEST_NONE) {
        return NULL;
    }
    struct kvt_request *request = &plan->account.requests[job->request];
    return request->open && request->generation == job->request_generation ? request : NULL;
}

/* Sources, then exec. */
static kvt_status restore_start(struct kvt_plan *plan, struct kvt_job *job,
                                const struct kvt_plan_restore *in)
{
    job->exec.kind = KVT_EXEC_RESTORE;
    job->exec.binding = in->binding;
    job->exec.pages = job->addrs;
    job->exec.blocks = job->blocks;
    job->exec.after = in->after;
    kvt_status status = kvt_restore_sources(plan, job, 0);
    if (status != KVT_OK) {
        return status;
    }
    if (job->exec.page_count == 0) {
        kvt_restore_finish(plan, job); /* not even the first page can be had */
        return KVT_OK;
    }
    status = kvt_job_submit(plan, job);
    if (status != KVT_OK) {
        kvt_restore_unref(plan, job);
    }
    return status;
}

kvt_status kvt_plan_restore(struct kvt_plan *plan, const struct kvt_plan_restore *in,
                            uint64_t *out_job)
{
    kvt_lock_take(&plan->lock);
    plan->quiet = false;
    struct kvt_job *job = NULL;
    kvt_status status = restore_begin(plan, in, &job);
    if (status != KVT_OK) {
        kvt_lock_give(&plan->lock);
        return status;
    }
    uint64_t handle = kvt_job_handle(plan, job);
    status = restore_start(plan, job, in);
    if (status != KVT_OK) {
        kvt_lease_end(plan->index, job->lease);
        kvt_job_give(plan, job);
    } else if (out_job != NULL) {
        *out_job = handle;
    }
    kvt_lock_give(&plan->lock);
    return status;
}

static void account_delivery(struct kvt_plan *plan, const struct kvt_job *job, uint32_t good)
{
    struct kvt_request *request = request_of_job(plan, job);
    if (request != NULL) {
        kvt_account_delivered(&plan->account, request, job->first_page, job->page_count, good,
                              job->tiers);
    }
}

void kvt_restore_finish(struct kvt_plan *plan, struct kvt_job *job)
{
    uint32_t good = atomic_load(&job->exec.pages_good);
    KVT_ASSERT(good <= job->page_count);
    kvt_restore_unref(plan, job);
    account_delivery(plan, job, good);
    for (uint32_t i = 0; i < good; i++) {
        job->result.tier_tokens[job->tiers[i]] += plan->config.page_tokens;
    }
    job->result.tokens_good = (uint64_t)good * plan->config.page_tokens;
    job->result.bytes_moved = good * job->slot_bytes;
    plan->stats.restored_pages += good;
    plan->stats.restored_bytes += job->result.bytes_moved;
    if (good > 0) {
        kvt_spill_offer(plan, job->pages, good, true);
        /* Recency moves here, when bytes were delivered, and not at lookup (F35). */
        kvt_index_touch(plan->index, job->lease, job->lease_owner);
    }
    kvt_lease_extend(plan->index, job->lease,
                     kvt_now_ns(&plan->config.clock) + plan->config.lease_ttl_ns);
    kvt_lease_end(plan->index, job->lease);
    kvt_job_done(plan, job, kvt_job_status(job, good));
}
