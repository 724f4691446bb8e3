/* Lookup, release, report; and why pages were missing. */
#include "cache/move/plan_internal.h"

#include "policies/restore.h"

#include <string.h>

/* Keys of missing pages are made in batches outside the lock. */
#define MISSING_BATCH 64u

/* What a running save is about to bring: how many of the prompt's pages from `from` on. */
static uint32_t in_flight_from(const struct kvt_plan *plan, uint32_t ns,
                               const struct kvt_plan_lookup *in, uint32_t from, uint32_t pages)
{
    const uint32_t page_tokens = plan->config.page_tokens;
    uint32_t best = 0;
    for (uint32_t i = 0; plan->saves_running > 0 && i < plan->config.jobs_max; i++) {
        const struct kvt_job *job = &plan->jobs[i];
        if (job->state != KVT_JOB_IS_RUNNING || job->exec.kind != KVT_EXEC_SAVE || job->ns != ns ||
            job->first_page > from) {
            continue;
        }
        /* From the job's first page on: the same page behind another one is another page. */
        uint32_t page = job->first_page;
        while (page < pages && page < job->first_page + job->page_count &&
               memcmp(in->tokens + (size_t)page * page_tokens,
                      job->tokens + (size_t)(page - job->first_page) * page_tokens,
                      page_tokens * sizeof(*in->tokens)) == 0) {
            page++;
        }
        best = page > from && page - from > best ? page - from : best;
    }
    return best;
}

static enum kvt_miss reason_of(struct kvt_plan *plan, const struct kvt_key *key,
                               enum kvt_miss otherwise)
{
    uint64_t short_bytes = 0;
    switch (kvt_ghosts_find(&plan->ghosts, key, &short_bytes)) {
    case KVT_GHOST_EVICTED:
        if (short_bytes > plan->stats.evicted_short_bytes_max) {
            plan->stats.evicted_short_bytes_max = short_bytes;
        }
        return KVT_MISSED_EVICTED;
    case KVT_GHOST_NOT_ADMITTED:
        return KVT_MISSED_NOT_ADMITTED;
    case KVT_GHOST_FAILED:
        return KVT_MISSED_FAILED;
    case KVT_GHOST_NONE:
    default:
        return otherwise;
    }
}

/* What is to be explained: the pages behind a match, but for those that the engine holds itself. */
struct missing {
    uint32_t request, generation;
    uint32_t first, pages; /* first page behind the match; pages of the prompt */
    uint32_t own;          /* pages before this one are the engine's own */
    uint32_t in_flight;    /* the first so many are being saved just now, or have just arrived */
    uint32_t cut;          /* the first so many are on nvme and are left there ... */
    enum kvt_miss cut_why; /* ... for this reason */
    uint32_t elsewhere;    /* pages that another namespace of the tenant has, from the start */
    bool diverged;
    struct kvt_key key; /* of the last page matched */
};

/* One reason for each missing page. Takes and drops the lock batch by batch: a cold prompt of
 * thousands of pages must not hold up the others. */
static void explain_missing(struct kvt_plan *plan, const struct kvt_plan_lookup *in,
                            struct missing *missing)
{
    const uint32_t page_tokens = plan->config.page_tokens;
    struct kvt_prompt prompt = {.tokens = in->tokens,
                                .pages = missing->pages,
                                .extras = in->extras,
                                .extra_count = in->extra_count};
    uint32_t counts[KVT_MISSED_REASONS] = {0};
    struct kvt_key keys[MISSING_BATCH];
    uint32_t cursor = 0;
    enum kvt_miss otherwise = missing->diverged ? KVT_MISSED_DIVERGED : KVT_MISSED_NEVER_SEEN;
    for (uint32_t page = missing->first; page < missing->pages;) {
        uint32_t count = 0;
        for (; count < MISSING_BATCH && page + count < missing->pages; count++) {
            const struct kvt_extra *extras = NULL;
            uint32_t extra_count =
                kvt_prompt_extras(&prompt, page + count, page_tokens, &cursor, &extras);
            missing->key =
                kvt_key_next(&missing->key, in->tokens + (size_t)(page + count) * page_tokens,
                             page_tokens, extras, extra_count * sizeof(*extras));
            keys[count] = missing->key;
        }
        kvt_lock_take(&plan->lock);
        for (uint32_t i = 0; i < count; i++, page++) {
            if (page < missing->own) {
                continue; /* its key was needed for those that follow */
            }
            if (page < missing->first + missing->cut) {
                counts[missing->cut_why]++;
            } else if (page < missing->first + missing->cut + missing->in_flight) {
                counts[KVT_MISSED_IN_FLIGHT]++;
            } else {
                counts[reason_of(plan, &keys[i],
                                 page < missing->elsewhere ? KVT_MISSED_OTHER_NAMESPACE
                                                           : otherwise)]++;
            }
        }
        kvt_lock_give(&plan->lock);
    }
    kvt_lock_take(&plan->lock);
    struct kvt_request *request = &plan->account.requests[missing->request];
    if (request->open && request->generation == missing->generation) {
        memcpy(request->missing, counts, sizeof(counts));
    }
    kvt_lock_give(&plan->lock);
}

/* The account of this lookup, opened if need be; NULL when it is not accounted. */
static struct kvt_request *request_of(struct kvt_plan *plan, const struct kvt_plan_lookup *in,
                                      uint64_t now_ns)
{
    if (in->request_id == 0) {
        return NULL;
    }
    struct kvt_request *request = kvt_account_find(&plan->account, in->client, in->request_id);
    if (request == NULL) {
        request = kvt_account_open(&plan->account, in->client, in->request_id, now_ns);
        plan->stats.limit_requests_hit += request == NULL;
    }
    return request;
}

/* A request that asks again: when it asks for other tokens, its former lease ends, and what was
 * delivered under it was for those. */
static void ask_again(struct kvt_plan *plan, const struct kvt_plan_lookup *in,
                      const struct kvt_match *match, uint64_t prompt_hash,
                      struct kvt_request *request)
{
    struct kvt_lease_info info;
    bool leased = request->lease != 0 &&
                  kvt_lease_get(plan->index, request->lease, in->client, &info) == KVT_OK;
    bool same = request->tokens_asked == 0 ||
                (request->tokens_asked == in->token_count && request->prompt_hash == prompt_hash);
    if (leased && !(same && kvt_lease_covers(plan->index, request->lease, in->client, match))) {
        kvt_status released = kvt_lease_release(plan->index, request->lease, in->client);
        KVT_ASSERT(released == KVT_OK); /* it was just found */
        leased = false;
        same = false;
    }
    if (!leased) {
        request->lease = 0; /* it may have expired */
    }
    if (!same) {
        kvt_account_restart(request);
    }
}

/* The lease for a match: the one that the request has already, else a new one. */
static kvt_status lease_for(struct kvt_plan *plan, const struct kvt_plan_lookup *in,
                            const struct kvt_match *match, struct kvt_request *request,
                            uint64_t now_ns, struct kvt_plan_found *found)
{
    uint64_t expires_ns = now_ns + plan->config.lease_ttl_ns;
    struct kvt_lease_info info;
    if (request != NULL && request->lease != 0 &&
        kvt_lease_get(plan->index, request->lease, in->client, &info) == KVT_OK) {
        kvt_lease_extend(plan->index, request->lease, expires_ns);
        found->lease = request->lease;
        found->pages = info.at.pages;
        return KVT_OK;
    }
    kvt_status status =
        kvt_lease_acquire(plan->index, match, in->client, now_ns, expires_ns, &found->lease);
    if (status == KVT_ERR_LIMIT) {
        plan->stats.leases_expired += kvt_lease_expire(plan->index, now_ns);
        status =
            kvt_lease_acquire(plan->index, match, in->client, now_ns, expires_ns, &found->lease);
    }
    if (status != KVT_OK) {
        plan->stats.limit_leases_hit++;
        return KVT_ERR_AGAIN;
    }
    if (request != NULL) {
        request->lease = found->lease;
        kvt_lease_set_user(plan->index, found->lease,
                           kvt_account_number(&plan->account, request) + 1);
    }
    found->pages = match->pages;
    return KVT_OK;
}

/*
 * How many pages of a match are worth restoring: all, unless some lie on nvme only. Those are
 * loaded as far as that beats computing them, by what the drive does just now and what the engine
 * says it computes; and not at all while the drive cannot be read.
 */
static uint32_t worth_restoring(struct kvt_plan *plan, const struct kvt_plan_lookup *in,
                                const struct kvt_match *match, enum kvt_miss *out_why)
{
    uint32_t memory = kvt_index_memory_pages(plan->index, match);
    *out_why = KVT_MISSED_FAILED;
    if (!kvt_nvme_readable(plan->nvme->store)) {
        return memory;
    }
    struct kvt_segment runs[KVT_SEGMENTS_MAX];
    uint32_t count = kvt_index_segments(plan->index, match, runs, KVT_SEGMENTS_MAX);
    if (in->prefill_tokens_per_s == 0 || count == 0) {
        return match->pages;
    }
    uint64_t bytes = kvt_slot_bytes(plan, kvt_index_slot_bytes(plan->index, in->ns));
    uint64_t slow = match->tier_pages[KVT_NVME];
    uint64_t once_ns = kvt_nvme_read_estimate_ns(plan->nvme->store, 0);
    uint64_t all_ns = kvt_nvme_read_estimate_ns(plan->nvme->store, slow * bytes);
    const struct kvt_restore_cost cost = {
        .compute_ns_per_page =
            plan->config.page_tokens * UINT64_C(1000000000) / in->prefill_tokens_per_s,
        .load_ns_once = once_ns,
        .load_ns_per_page = all_ns > once_ns ? (all_ns - once_ns) / slow : 0,
    };
    *out_why = KVT_MISSED_TOO_SLOW;
    struct kvt_restore_run costs[KVT_SEGMENTS_MAX];
    for (uint32_t i = 0; i < count; i++) {
        costs[i] = (struct kvt_restore_run){.pages = runs[i].pages, .slow = !runs[i].memory};
    }
    return kvt_restore_pages(costs, count, &cost);
}

/* Which pages remain to be explained, and what only the lock lets us know about them. */
static void missing_of(struct kvt_plan *plan, const struct kvt_plan_lookup *in,
                       const struct kvt_prompt *prompt, const struct kvt_match *match,
                       uint32_t arrived, const struct kvt_request *request, struct missing *missing)
{
    uint32_t own = (uint32_t)(in->own_tokens / plan->config.page_tokens);
    *missing = (struct missing){
        .request = kvt_account_number(&plan->account, request),
        .generation = request->generation,
        .first = match->pages,
        .pages = prompt->pages,
        .own = own < prompt->pages ? own : prompt->pages,
        .in_flight = in_flight_from(plan, in->ns, in, match->pages, prompt->pages),
        /* That others begin otherwise says nothing about a prompt of which nothing is known. */
        .diverged = match->diverged && match->pages > 0,
        .key = kvt_index_match_key(plan->index, match),
    };
    missing->in_flight = arrived > missing->in_flight ? arrived : missing->in_flight;
    if (match->pages == 0) {
        missing->elsewhere = kvt_index_match_elsewhere(plan->index, in->ns, prompt);
    }
}

kvt_status kvt_plan_lookup(struct kvt_plan *plan, const struct kvt_plan_lookup *in,
                           struct kvt_plan_found *out_found)
{
    /* The last token must be computed for its logits, so it is never promised (F22). */
    struct kvt_prompt prompt = {
        .tokens = in->tokens,
        .pages = (uint32_t)((in->token_count - 1) / plan->config.page_tokens),
        .extras = in->extras,
        .extra_count = in->extra_count,
    };
    struct kvt_plan_found found = {0};
    struct kvt_match match;
    struct missing missing = {0};
    kvt_status status = KVT_OK;
    uint64_t now_ns = kvt_now_ns(&plan->config.clock);
    uint64_t prompt_hash =
        in->request_id != 0
            ? kvt_hash_bytes(in->tokens, (size_t)in->token_count * sizeof(*in->tokens))
            : 0;
    kvt_lock_take(&plan->lock);
    kvt_index_match(plan->index, in->ns, &prompt, &match);
    uint32_t arrived = 0, cut = 0;
    enum kvt_miss cut_why = KVT_MISSED_TOO_SLOW;
    struct kvt_request *request = request_of(plan, in, now_ns);
    if (request != NULL) {
        ask_again(plan, in, &match, prompt_hash, request);
        request->prompt_hash = prompt_hash;
    }
    if (request != NULL && request->lease != 0) {
        cut = request->cut_pages; /* as it was promised */
    } else if (match.tier_pages[KVT_NVME] > 0) {
        uint32_t pages = worth_restoring(plan, in, &match, &cut_why);
        cut = match.pages - pages;
        plan->stats.too_slow_pages += cut_why == KVT_MISSED_TOO_SLOW ? cut : 0;
        prompt.pages = pages;
        kvt_index_match(plan->index, in->ns, &prompt, &match);
        prompt.pages = (uint32_t)((in->token_count - 1) / plan->config.page_tokens);
    }
    if ((uint64_t)match.pages * plan->config.page_tokens > in->own_tokens) {
        status = lease_for(plan, in, &match, request, now_ns, &found);
        if (status == KVT_OK && found.pages < match.pages) {
            /* More has arrived since the lease was taken; the promise is the lease's. */
            arrived = match.pages - found.pages;
            arrived -= cut < arrived ? cut : arrived;
            prompt.pages = found.pages;
            kvt_index_match(plan->index, in->ns, &prompt, &match);
            prompt.pages = (uint32_t)((in->token_count - 1) / plan->config.page_tokens);
        }
        memcpy(found.tier_pages, match.tier_pages, sizeof(found.tier_pages));
    }
    if (request != NULL) {
        request->tokens_asked = in->token_count;
        memset(request->missing, 0, sizeof(request->missing));
        missing_of(plan, in, &prompt, &match, arrived, request, &missing);
        request->cut_pages = cut;
        missing.cut = cut;
        missing.cut_why = cut_why;
        request->pages_matched = missing.own > match.pages ? missing.own : match.pages;
    }
    kvt_lock_give(&plan->lock);
    if (missing.first < missing.pages) {
        explain_missing(plan, in, &missing);
    }
    if (status == KVT_OK) {
        *out_found = found;
    }
    return status;
}

kvt_status kvt_plan_release(struct kvt_plan *plan, uint32_t client, uint64_t lease)
{
    if (client == KVT_OWNER_INTERNAL) {
        return KVT_ERR_STALE; /* our own are nobody's to release */
    }
    kvt_lock_take(&plan->lock);
    struct kvt_lease_info info;
    kvt_status status = kvt_lease_get(plan->index, lease, client, &info);
    if (status == KVT_OK && info.user > 0) {
        struct kvt_request *request = &plan->account.requests[info.user - 1];
        if (request->open && request->lease == lease) {
            request->lease = 0;
        }
    }
    if (status == KVT_OK) {
        status = kvt_lease_release(plan->index, lease, client);
    }
    kvt_lock_give(&plan->lock);
    return status;
}

kvt_status kvt_plan_lease_check(struct kvt_plan *plan, uint32_t client, uint64_t lease)
{
    struct kvt_lease_info info;
    kvt_lock_take(&plan->lock);
    kvt_status status = kvt_lease_get(plan->index, lease, client, &info);
    kvt_lock_give(&plan->lock);
    return status;
}

kvt_status kvt_plan_report(struct kvt_plan *plan, uint32_t client, uint64_t request_id,
                           uint64_t prompt_tokens, uint64_t own_tokens, uint64_t computed_tokens)
{
    kvt_lock_take(&plan->lock);
    struct kvt_request *request = kvt_account_find(&plan->account, client, request_id);
    kvt_status status = request != NULL ? KVT_OK : KVT_ERR_STALE;
    uint64_t lease = request != NULL ? request->lease : 0;
    if (status == KVT_OK) {
        status =
            kvt_account_report(&plan->account, request, prompt_tokens, own_tokens, computed_tokens);
    }
    struct kvt_lease_info info;
    if (status == KVT_OK && lease != 0 &&
        kvt_lease_get(plan->index, lease, client, &info) == KVT_OK) {
        /* The request is over, and with it its lease (which may have expired before). */
        status = kvt_lease_release(plan->index, lease, client);
    }
    kvt_lock_give(&plan->lock);
    return status;
}
