#include "tools/trace_order.h"

#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

/* ---- order statistics ---- */

static int compare_u64(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left;
    uint64_t b = *(const uint64_t *)right;
    return a < b ? -1 : a > b ? 1 : 0;
}

void kvt_sort_u64(uint64_t *values, uint64_t count)
{
    qsort(values, (size_t)count, sizeof(*values), compare_u64);
}

uint64_t kvt_percentile(const uint64_t *values, uint64_t count, uint32_t percent)
{
    uint64_t rank = (count * percent + 99) / 100;
    return values[rank > 0 ? rank - 1 : 0];
}

/* ---- the order ---- */

/* How many turns of a session come before one that does not fit. */
static uint32_t fitting_turns(const struct kvt_trace *trace, uint32_t session,
                              uint64_t context_tokens, uint64_t output_tokens)
{
    const struct kvt_trace_session *s = &trace->sessions[session];
    for (uint32_t i = 0; i < s->turn_count; i++) {
        uint32_t turn = trace->turns_by_session[s->first_turn + i];
        if (trace->turns[turn].prompt_tokens + output_tokens > context_tokens) {
            return i;
        }
    }
    return s->turn_count;
}

static void fill_rounds(const struct kvt_trace *trace, uint32_t sessions, const uint32_t *fitting,
                        struct kvt_order *order)
{
    uint32_t at = 0;
    for (uint32_t round = 0; at < order->turn_count; round++) {
        for (uint32_t s = 0; s < sessions; s++) {
            if (round < fitting[s]) {
                order->turns[at++] = trace->turns_by_session[trace->sessions[s].first_turn + round];
            }
        }
    }
}

struct arrival_key {
    uint64_t arrival_ms;
    uint32_t turn;
};

static int compare_arrivals(const void *left, const void *right)
{
    const struct arrival_key *a = left;
    const struct arrival_key *b = right;
    if (a->arrival_ms != b->arrival_ms) {
        return a->arrival_ms < b->arrival_ms ? -1 : 1;
    }
    return a->turn < b->turn ? -1 : a->turn > b->turn ? 1 : 0;
}

static kvt_status fill_arrivals(const struct kvt_trace *trace, uint32_t sessions,
                                const uint32_t *fitting, struct kvt_order *order)
{
    struct arrival_key *keys = calloc((size_t)order->turn_count + 1, sizeof(*keys));
    if (keys == NULL) {
        return KVT_ERR_NOMEM;
    }
    uint32_t count = 0;
    for (uint32_t s = 0; s < sessions; s++) {
        for (uint32_t i = 0; i < fitting[s]; i++) {
            uint32_t turn = trace->turns_by_session[trace->sessions[s].first_turn + i];
            keys[count++] = (struct arrival_key){trace->turns[turn].arrival_ms, turn};
        }
    }
    qsort(keys, count, sizeof(*keys), compare_arrivals);
    for (uint32_t i = 0; i < count; i++) {
        order->turns[i] = keys[i].turn;
    }
    free(keys);
    return KVT_OK;
}

kvt_status kvt_order_build(const struct kvt_trace *trace, enum kvt_order_kind kind,
                           uint32_t sessions_max, uint64_t context_tokens, uint64_t output_tokens,
                           struct kvt_order *out_order)
{
    if (kind == KVT_ORDER_ARRIVAL && trace->format == KVT_TRACE_TEXT) {
        return KVT_ERR_INVAL;
    }
    uint32_t sessions = sessions_max < trace->session_count ? sessions_max : trace->session_count;
    struct kvt_order order = {0};
    kvt_status status = KVT_ERR_NOMEM;
    uint32_t *fitting = calloc((size_t)sessions + 1, sizeof(*fitting));
    if (fitting == NULL) {
        return KVT_ERR_NOMEM;
    }
    for (uint32_t s = 0; s < sessions; s++) {
        fitting[s] = fitting_turns(trace, s, context_tokens, output_tokens);
        uint32_t dropped = trace->sessions[s].turn_count - fitting[s];
        order.turn_count += fitting[s];
        order.session_count += fitting[s] > 0 ? 1 : 0;
        order.sessions_ended += dropped > 0 ? 1 : 0;
        order.turns_dropped += dropped;
    }
    order.turns = calloc((size_t)order.turn_count + 1, sizeof(*order.turns));
    if (order.turns == NULL) {
        goto undo_fitting;
    }
    if (kind == KVT_ORDER_ROUNDS) {
        fill_rounds(trace, sessions, fitting, &order);
    } else {
        status = fill_arrivals(trace, sessions, fitting, &order);
        if (status != KVT_OK) {
            goto undo_turns;
        }
    }
    free(fitting);
    *out_order = order;
    return KVT_OK;
undo_turns:
    free(order.turns);
undo_fitting:
    free(fitting);
    return status;
}

void kvt_order_destroy(struct kvt_order *order)
{
    free(order->turns);
    *order = (struct kvt_order){0};
}

/* ---- pages ---- */

/* A page that some prompt had: how many live sessions hold it now. */
struct page {
    XXH128_hash_t key;
    uint32_t holders;
    bool used;
};

struct page_set {
    struct page *slots; /* open addressing; grows, so indices move: keys are what stays */
    uint64_t slot_count, page_count, held_count;
};

static uint64_t page_find(const struct page_set *set, XXH128_hash_t key)
{
    uint64_t mask = set->slot_count - 1;
    uint64_t at = key.low64 & mask;
    while (set->slots[at].used && !XXH128_isEqual(set->slots[at].key, key)) {
        at = (at + 1) & mask;
    }
    return at;
}

/* Makes room for `more` pages at a load of at most a half. */
static kvt_status page_reserve(struct page_set *set, uint64_t more)
{
    uint64_t slots = set->slot_count > 0 ? set->slot_count : 1024;
    while ((set->page_count + more) * 2 > slots) {
        slots *= 2;
    }
    if (slots == set->slot_count) {
        return KVT_OK;
    }
    struct page_set grown = {.slots = calloc((size_t)slots, sizeof(struct page)),
                             .slot_count = slots,
                             .page_count = set->page_count,
                             .held_count = set->held_count};
    if (grown.slots == NULL) {
        return KVT_ERR_NOMEM;
    }
    for (uint64_t i = 0; i < set->slot_count; i++) {
        if (set->slots[i].used) {
            grown.slots[page_find(&grown, set->slots[i].key)] = set->slots[i];
        }
    }
    free(set->slots);
    *set = grown;
    return KVT_OK;
}

/* Adds the page when it is new. Requires: room. True when it was there. */
static bool page_see(struct page_set *set, XXH128_hash_t key)
{
    struct page *page = &set->slots[page_find(set, key)];
    if (page->used) {
        return true;
    }
    *page = (struct page){.key = key, .used = true};
    set->page_count++;
    return false;
}

static void page_hold(struct page_set *set, XXH128_hash_t key)
{
    struct page *page = &set->slots[page_find(set, key)];
    set->held_count += page->holders == 0 ? 1 : 0;
    page->holders++;
}

static void page_drop(struct page_set *set, XXH128_hash_t key)
{
    struct page *page = &set->slots[page_find(set, key)];
    page->holders--;
    set->held_count -= page->holders == 0 ? 1 : 0;
}

/* ---- the pass ---- */

/* A session's longest prompt so far. */
struct held_prompt {
    XXH128_hash_t *keys; /* [page_count] */
    uint32_t page_count;
    uint32_t tokens;
    uint32_t turns_left;
};

struct pass {
    const struct kvt_trace *trace;
    uint32_t page_tokens, vocabulary;
    uint32_t *tokens;             /* room for the longest prompt */
    XXH128_hash_t *keys;          /* room for its pages */
    unsigned char *link;          /* what one key is the hash of: the key before, and a page */
    struct held_prompt *sessions; /* [session_count of the trace] */
    struct page_set pages;
    uint64_t *prompt_lengths, *new_lengths; /* [turn_count] */
};

/* Fills pass->keys with the pages of `tokens` tokens. */
static uint32_t hash_pages(struct pass *pass, uint32_t tokens)
{
    uint32_t count = tokens / pass->page_tokens;
    size_t page_bytes = (size_t)pass->page_tokens * sizeof(*pass->tokens);
    XXH128_canonical_t before = {{0}};
    for (uint32_t i = 0; i < count; i++) {
        memcpy(pass->link, &before, sizeof(before));
        memcpy(pass->link + sizeof(before), pass->tokens + (size_t)i * pass->page_tokens,
               page_bytes);
        pass->keys[i] = XXH3_128bits(pass->link, sizeof(before) + page_bytes);
        XXH128_canonicalFromHash(&before, pass->keys[i]);
    }
    return count;
}

/* Lets go of a session's pages from the `from`-th on. */
static void drop_pages(struct pass *pass, struct held_prompt *held, uint32_t from)
{
    for (uint32_t i = from; i < held->page_count; i++) {
        page_drop(&pass->pages, held->keys[i]);
    }
}

/* Makes the prompt in pass->keys the session's longest. */
static kvt_status hold_prompt(struct pass *pass, struct held_prompt *held, uint32_t tokens,
                              uint32_t page_count)
{
    XXH128_hash_t *keys = realloc(held->keys, ((size_t)page_count + 1) * sizeof(*keys));
    if (keys == NULL) {
        return KVT_ERR_NOMEM;
    }
    held->keys = keys;
    uint32_t same = 0;
    while (same < held->page_count && same < page_count &&
           XXH128_isEqual(held->keys[same], pass->keys[same])) {
        same++;
    }
    drop_pages(pass, held, same);
    for (uint32_t i = same; i < page_count; i++) {
        page_hold(&pass->pages, pass->keys[i]);
        held->keys[i] = pass->keys[i];
    }
    held->page_count = page_count;
    held->tokens = tokens;
    return KVT_OK;
}

/* Takes turn number `at` of the order. */
static kvt_status pass_turn(struct pass *pass, uint32_t turn, uint32_t at,
                            struct kvt_order_needs *needs)
{
    const struct kvt_trace_turn *t = &pass->trace->turns[turn];
    struct held_prompt *held = &pass->sessions[t->session];
    kvt_trace_prompt(pass->trace, turn, pass->vocabulary, pass->tokens);
    uint32_t page_count = hash_pages(pass, t->prompt_tokens);
    kvt_status status = page_reserve(&pass->pages, page_count);
    if (status != KVT_OK) {
        return status;
    }
    uint32_t known = 0;
    for (uint32_t i = 0; i < page_count; i++) {
        if (page_see(&pass->pages, pass->keys[i]) && known == i) {
            known++;
        }
    }
    uint32_t findable = (t->prompt_tokens - 1) / pass->page_tokens;
    known = known < findable ? known : findable;
    pass->prompt_lengths[at] = t->prompt_tokens;
    pass->new_lengths[at] = t->prompt_tokens - known * pass->page_tokens;
    needs->prompt_tokens += t->prompt_tokens;
    needs->new_tokens += pass->new_lengths[at];
    if (t->prompt_tokens > held->tokens) {
        status = hold_prompt(pass, held, t->prompt_tokens, page_count);
        if (status != KVT_OK) {
            return status;
        }
    }
    if (pass->pages.held_count > needs->peak_live_pages) {
        needs->peak_live_pages = pass->pages.held_count;
    }
    held->turns_left--;
    if (held->turns_left == 0) {
        drop_pages(pass, held, 0);
        held->page_count = 0;
    }
    return KVT_OK;
}

static kvt_status pass_init(struct pass *pass, const struct kvt_order *order)
{
    uint32_t longest = 0;
    pass->sessions = calloc(pass->trace->session_count, sizeof(*pass->sessions));
    pass->prompt_lengths = calloc(order->turn_count, sizeof(uint64_t));
    pass->new_lengths = calloc(order->turn_count, sizeof(uint64_t));
    if (pass->sessions == NULL || pass->prompt_lengths == NULL || pass->new_lengths == NULL) {
        return KVT_ERR_NOMEM;
    }
    for (uint32_t i = 0; i < order->turn_count; i++) {
        const struct kvt_trace_turn *turn = &pass->trace->turns[order->turns[i]];
        longest = turn->prompt_tokens > longest ? turn->prompt_tokens : longest;
        pass->sessions[turn->session].turns_left++;
    }
    pass->tokens = calloc((size_t)longest + 1, sizeof(*pass->tokens));
    pass->keys = calloc((size_t)longest / pass->page_tokens + 1, sizeof(*pass->keys));
    pass->link =
        calloc(1, sizeof(XXH128_canonical_t) + (size_t)pass->page_tokens * sizeof(*pass->tokens));
    return pass->tokens != NULL && pass->keys != NULL && pass->link != NULL ? KVT_OK
                                                                            : KVT_ERR_NOMEM;
}

static void pass_fini(struct pass *pass)
{
    for (uint32_t i = 0; pass->sessions != NULL && i < pass->trace->session_count; i++) {
        free(pass->sessions[i].keys);
    }
    free(pass->sessions);
    free(pass->prompt_lengths);
    free(pass->new_lengths);
    free(pass->tokens);
    free(pass->keys);
    free(pass->link);
    free(pass->pages.slots);
}

kvt_status kvt_order_measure(const struct kvt_trace *trace, const struct kvt_order *order,
                             uint32_t page_tokens, uint32_t vocabulary,
                             struct kvt_order_needs *out_needs)
{
    struct pass pass = {.trace = trace, .page_tokens = page_tokens, .vocabulary = vocabulary};
    struct kvt_order_needs needs = {0};
    kvt_status status = pass_init(&pass, order);
    for (uint32_t i = 0; status == KVT_OK && i < order->turn_count; i++) {
        status = pass_turn(&pass, order->turns[i], i, &needs);
    }
    if (status == KVT_OK) {
        kvt_sort_u64(pass.prompt_lengths, order->turn_count);
        kvt_sort_u64(pass.new_lengths, order->turn_count);
        needs.prompt_tokens_max = pass.prompt_lengths[order->turn_count - 1];
        needs.prompt_tokens_p50 = kvt_percentile(pass.prompt_lengths, order->turn_count, 50);
        needs.new_tokens_p50 = kvt_percentile(pass.new_lengths, order->turn_count, 50);
        needs.token_bound = (double)needs.prompt_tokens_p50 / (double)needs.new_tokens_p50;
        needs.distinct_pages = pass.pages.page_count;
        *out_needs = needs;
    }
    pass_fini(&pass);
    return status;
}
