#include "cache/move/account.h"

#include <string.h>

#include "cache/index/key.h"

kvt_status kvt_account_init(struct kvt_account *account, const struct kvt_memory *mem,
                            uint32_t requests_max, uint32_t page_tokens)
{
    uint32_t buckets = 1;
    while (buckets < requests_max) {
        buckets *= 2;
    }
    *account = (struct kvt_account){
        .mem = mem,
        .requests_max = requests_max,
        .bucket_count = buckets,
        .page_tokens = page_tokens,
    };
    account->requests = kvt_calloc(mem, requests_max, sizeof(*account->requests));
    account->buckets = kvt_alloc(mem, buckets * sizeof(*account->buckets));
    if (account->requests == NULL || account->buckets == NULL) {
        kvt_account_fini(account);
        return KVT_ERR_NOMEM;
    }
    for (uint32_t i = 0; i < buckets; i++) {
        account->buckets[i] = KVT_REQUEST_NONE;
    }
    for (uint32_t i = 0; i < requests_max; i++) {
        account->requests[i].next = i + 1 < requests_max ? i + 1 : KVT_REQUEST_NONE;
    }
    return KVT_OK;
}

void kvt_account_fini(struct kvt_account *account)
{
    kvt_free(account->mem, account->requests, account->requests_max * sizeof(*account->requests));
    kvt_free(account->mem, account->buckets, account->bucket_count * sizeof(*account->buckets));
    account->requests = NULL;
    account->buckets = NULL;
}

static uint32_t *bucket_of(const struct kvt_account *account, uint32_t client, uint64_t id)
{
    uint64_t name[2] = {client, id};
    return &account->buckets[kvt_hash_bytes(name, sizeof(name)) & (account->bucket_count - 1u)];
}

struct kvt_request *kvt_account_find(struct kvt_account *account, uint32_t client, uint64_t id)
{
    uint32_t number = *bucket_of(account, client, id);
    while (number != KVT_REQUEST_NONE) {
        struct kvt_request *request = &account->requests[number];
        if (request->id == id && request->client == client) {
            return request;
        }
        number = request->next;
    }
    return NULL;
}

struct kvt_request *kvt_account_open(struct kvt_account *account, uint32_t client, uint64_t id,
                                     uint64_t now_ns)
{
    uint32_t number = account->free_head;
    if (number == KVT_REQUEST_NONE) {
        return NULL;
    }
    struct kvt_request *request = &account->requests[number];
    uint32_t *bucket = bucket_of(account, client, id);
    account->free_head = request->next;
    account->open_count++;
    *request = (struct kvt_request){
        .id = id,
        .client = client,
        .generation = request->generation + 1,
        .opened_ns = now_ns,
        .next = *bucket,
        .open = true,
    };
    *bucket = number;
    return request;
}

static void request_close(struct kvt_account *account, struct kvt_request *request)
{
    uint32_t number = kvt_account_number(account, request);
    uint32_t *link = bucket_of(account, request->client, request->id);
    while (*link != number) {
        KVT_ASSERT(*link != KVT_REQUEST_NONE);
        link = &account->requests[*link].next;
    }
    *link = request->next;
    request->open = false;
    request->generation++;
    request->next = account->free_head;
    account->free_head = number;
    account->open_count--;
}

void kvt_account_delivered(struct kvt_account *account, struct kvt_request *request, uint32_t first,
                           uint32_t asked, uint32_t good, const unsigned char *tiers)
{
    request->pages_failed = asked - good;
    uint32_t begin = request->pages_first;
    uint32_t end = request->pages_delivered;
    if (good == 0 || (begin < end && first > end)) {
        return;
    }
    if (begin == end || first + good < begin) {
        memset(request->tier_tokens, 0, sizeof(request->tier_tokens));
        begin = first;
        end = first;
    }
    for (uint32_t page = first; page < first + good; page++) {
        if (page < begin || page >= end) {
            request->tier_tokens[tiers[page - first]] += account->page_tokens;
        }
    }
    request->pages_first = first < begin ? first : begin;
    request->pages_delivered = first + good > end ? first + good : end;
}

void kvt_account_restart(struct kvt_request *request)
{
    request->pages_first = 0;
    request->pages_delivered = 0;
    request->pages_failed = 0;
    request->generation++; /* what is still under way was for the former prompt */
    memset(request->tier_tokens, 0, sizeof(request->tier_tokens));
}

/* Every page of the prompt that was not the engine's own and not delivered gets one reason. */
static void count_missed(struct kvt_account *account, const struct kvt_request *request,
                         uint64_t own_tokens)
{
    uint64_t *missed = account->totals.missed_pages;
    uint32_t pages = (uint32_t)((request->tokens_asked - 1) / account->page_tokens);
    uint32_t own = (uint32_t)(own_tokens / account->page_tokens);
    uint32_t had = request->pages_delivered > own ? request->pages_delivered : own;
    had = had < pages ? had : pages;
    if (had < request->pages_matched) {
        uint32_t open = request->pages_matched - had;
        uint32_t failed = request->pages_failed < open ? request->pages_failed : open;
        missed[KVT_MISSED_FAILED] += failed;
        missed[KVT_MISSED_DECLINED] += open - failed;
    }
    /* What the engine turned out to hold behind the match is no miss: taken off, least telling
     * reason first. */
    uint32_t spare = had > request->pages_matched ? had - request->pages_matched : 0;
    for (uint32_t i = 0; i < KVT_MISSED_REASONS; i++) {
        uint32_t off = request->missing[i] < spare ? request->missing[i] : spare;
        missed[i] += request->missing[i] - off;
        spare -= off;
    }
}

kvt_status kvt_account_report(struct kvt_account *account, struct kvt_request *request,
                              uint64_t prompt_tokens, uint64_t own_tokens, uint64_t computed_tokens)
{
    if (prompt_tokens != request->tokens_asked || own_tokens > prompt_tokens ||
        computed_tokens > prompt_tokens) {
        return KVT_ERR_INVAL;
    }
    struct kvt_totals *totals = &account->totals;
    uint64_t sum = own_tokens + computed_tokens;
    if ((uint64_t)request->pages_first * account->page_tokens > own_tokens) {
        kvt_account_restart(request); /* delivered behind a gap: of no use to the engine */
    }
    for (uint32_t tier = 0; tier < KVT_TIERS; tier++) {
        totals->delivered[tier] += request->tier_tokens[tier];
        sum += request->tier_tokens[tier];
    }
    totals->asked += prompt_tokens;
    totals->own += own_tokens;
    totals->computed += computed_tokens;
    totals->reported++;
    totals->breaks += sum != prompt_tokens;
    count_missed(account, request, own_tokens);
    request_close(account, request);
    return KVT_OK;
}

void kvt_account_drop(struct kvt_account *account, struct kvt_request *request)
{
    account->totals.unreported++;
    request_close(account, request);
}
