/*
 * The account of requests: what was asked, what the engine had, what was delivered, what it
 * computed, and why the rest was missing. It opens at the first lookup and closes at the report.
 *
 * conservation, over reported requests:  asked = own + delivered (by tier) + computed
 * where own and computed are what the engine reported, never a remainder.
 *
 * Requires: KVT_RANK_CACHE held. Layer 4.
 */
#ifndef KVT_ACCOUNT_H
#define KVT_ACCOUNT_H

#include "cache/base/base.h"
#include "cache/tier/tier.h"

/* Numbers as KVT_MISS_x of the plug-in ABI. */
enum kvt_miss {
    KVT_MISSED_NEVER_SEEN,
    KVT_MISSED_EVICTED,
    KVT_MISSED_NOT_ADMITTED,
    KVT_MISSED_DIVERGED,
    KVT_MISSED_OTHER_NAMESPACE,
    KVT_MISSED_IN_FLIGHT,
    KVT_MISSED_TOO_SLOW,
    KVT_MISSED_FAILED,
    KVT_MISSED_DECLINED,
    KVT_MISSED_REASONS
};

#define KVT_REQUEST_NONE UINT32_MAX

struct kvt_request {
    uint64_t id;
    uint64_t lease; /* 0: none */
    uint64_t tokens_asked;
    uint64_t prompt_hash; /* of the tokens asked for: the same id may come with others */
    uint64_t opened_ns;
    uint32_t client;
    uint32_t generation;
    uint32_t next; /* of its bucket, or of the free ones */
    bool open;
    uint32_t pages_matched; /* or held by the engine: what lies behind is in `missing` */
    uint32_t pages_first, pages_delivered; /* pages first .. delivered - 1 were, without a gap */
    uint32_t pages_failed;                 /* asked of a restore and not delivered */
    uint64_t tier_tokens[KVT_TIERS];
    uint32_t cut_pages;                   /* behind its lease: nvme has them, not worth loading */
    uint32_t missing[KVT_MISSED_REASONS]; /* of the pages behind the match */
};

struct kvt_totals {
    uint64_t reported, unreported, breaks;
    uint64_t asked, own, computed;
    uint64_t delivered[KVT_TIERS];
    uint64_t missed_pages[KVT_MISSED_REASONS];
};

struct kvt_account {
    const struct kvt_memory *mem;
    struct kvt_request *requests; /* [requests_max] */
    uint32_t *buckets;
    uint32_t requests_max, bucket_count, free_head, open_count;
    uint32_t page_tokens;
    struct kvt_totals totals;
};

kvt_status kvt_account_init(struct kvt_account *, const struct kvt_memory *mem,
                            uint32_t requests_max, uint32_t page_tokens) KVT_MUST_CHECK;
void kvt_account_fini(struct kvt_account *);

/* The open request of this client and id, or NULL. */
struct kvt_request *kvt_account_find(struct kvt_account *, uint32_t client, uint64_t id);
/* Open one; NULL when all are in use. Requires: not open yet. */
struct kvt_request *kvt_account_open(struct kvt_account *, uint32_t client, uint64_t id,
                                     uint64_t now_ns);
static inline uint32_t kvt_account_number(const struct kvt_account *account,
                                          const struct kvt_request *request)
{
    return (uint32_t)(request - account->requests);
}

/*
 * Pages first .. first + asked - 1 were to be restored and the first `good` of them were; tiers[i]
 * says where page i of them came from. What was delivered before (a request that was preempted
 * restores again) counts once, and what lies behind a gap is no part of a prefix and does not
 * count.
 */
void kvt_account_delivered(struct kvt_account *, struct kvt_request *, uint32_t first,
                           uint32_t asked, uint32_t good, const unsigned char *tiers);

/* The request asks for other tokens now: what was delivered before was for those. */
void kvt_account_restart(struct kvt_request *);

/* Close with what the engine reports. INVAL when the numbers are not this request's. */
kvt_status kvt_account_report(struct kvt_account *, struct kvt_request *, uint64_t prompt_tokens,
                              uint64_t own_tokens, uint64_t computed_tokens) KVT_MUST_CHECK;
/* Give up without a report (counted). */
void kvt_account_drop(struct kvt_account *, struct kvt_request *);

#endif
