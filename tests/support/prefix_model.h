/*
 * What the index should be, without its edges: one entry a page, found by comparing the children of
 * the page before, one after the other. Slow, and short enough to be believed.
 *
 * A page's slot is its number here; the generation says which of its places it is and when it was
 * given, so that a place that is old, swapped or of another shard is told at once.
 */
#ifndef KVT_PREFIX_MODEL_H
#define KVT_PREFIX_MODEL_H

#include "cache/index/index.h"

#include <string.h>

#define MODEL_NAMESPACES 3u
#define MODEL_PAGE_TOKENS_MAX 4u
#define MODEL_SHARDS_MAX 3u
#define MODEL_EXTRAS_MAX 4u /* of a prompt */
#define MODEL_DEPTH_MAX 40u
#define MODEL_PAGES 4096u
#define MODEL_LEASES_MAX 48u
#define MODEL_NONE UINT32_MAX

struct model_page {
    bool live;
    uint32_t ns, parent, depth; /* depth: pages from the root, this one too */
    uint32_t first_child, next_sibling;
    uint32_t leases; /* that end here */
    uint32_t busy;
    uint32_t serial[KVT_TIERS]; /* 0: no place in this tier */
    uint32_t extra_count;
    struct kvt_extra extras[MODEL_EXTRAS_MAX];
    uint32_t tokens[MODEL_PAGE_TOKENS_MAX];
    struct kvt_key key;
};

struct model_lease {
    bool used, released;
    uint64_t handle, taken_ns, expires_ns;
    uint32_t owner, transfers, page;
};

struct model {
    uint32_t page_tokens, shards;
    struct model_page pages[MODEL_PAGES]; /* the first MODEL_NAMESPACES are the roots */
    uint32_t free_head;
    uint32_t next_serial;
    uint64_t page_count, evicted_pages, tier_pages[KVT_TIERS];
    struct model_lease leases[MODEL_LEASES_MAX];
    uint32_t lease_count;
    uint64_t leased_pages;
};

struct model_answer {
    uint32_t page; /* where it ended */
    uint32_t pages;
    uint32_t tier_pages[KVT_TIERS];
    bool diverged;
};

static inline void model_init(struct model *model, uint32_t page_tokens, uint32_t shards)
{
    memset(model, 0, sizeof(*model));
    model->page_tokens = page_tokens;
    model->shards = shards;
    for (uint32_t i = 0; i < MODEL_PAGES; i++) {
        model->pages[i].first_child = MODEL_NONE;
        model->pages[i].next_sibling = i + 1 < MODEL_PAGES ? i + 1 : MODEL_NONE;
    }
    for (uint32_t ns = 0; ns < MODEL_NAMESPACES; ns++) {
        model->pages[ns].next_sibling = MODEL_NONE;
        model->pages[ns].parent = MODEL_NONE;
        model->pages[ns].ns = ns;
    }
    model->free_head = MODEL_NAMESPACES;
}

/* ---- places ---- */

static inline struct kvt_place model_place(const struct model *model, uint32_t page, uint32_t tier,
                                           uint32_t shard)
{
    uint32_t serial = model->pages[page].serial[tier];
    return serial == 0 ? (struct kvt_place){0, 0}
                       : (struct kvt_place){page, (serial << 3) | (shard << 1) | tier};
}

static inline bool model_place_is(const struct model *model, uint32_t page, uint32_t tier,
                                  uint32_t shard, struct kvt_place place)
{
    struct kvt_place want = model_place(model, page, tier, shard);
    return want.slot == place.slot && want.generation == place.generation;
}

static inline void model_set_tier(struct model *model, uint32_t page, uint32_t tier, bool there)
{
    struct model_page *at = &model->pages[page];
    model->tier_pages[tier] -= at->serial[tier] != 0;
    at->serial[tier] = there ? ++model->next_serial : 0;
    model->tier_pages[tier] += there;
}

static inline uint32_t model_fastest(const struct model *model, uint32_t page)
{
    uint32_t tier = 0;
    while (model->pages[page].serial[tier] == 0) {
        tier++;
    }
    return tier;
}

/* ---- pages ---- */

/* The extra keys of one page of a prompt. */
static inline uint32_t model_extras(const struct model *model, const struct kvt_prompt *prompt,
                                    uint32_t page, const struct kvt_extra **out_extras)
{
    uint32_t count = 0;
    *out_extras = NULL;
    for (uint32_t i = 0; i < prompt->extra_count; i++) {
        if (prompt->extras[i].token_index / model->page_tokens == page) {
            *out_extras = count == 0 ? &prompt->extras[i] : *out_extras;
            count++;
        }
    }
    return count;
}

static inline uint32_t model_child(const struct model *model, uint32_t parent,
                                   const struct kvt_prompt *prompt, uint32_t page)
{
    const struct kvt_extra *extras = NULL;
    uint32_t extra_count = model_extras(model, prompt, page, &extras);
    const uint32_t *tokens = prompt->tokens + (page - prompt->first_page) * model->page_tokens;
    uint32_t child = model->pages[parent].first_child;
    for (; child != MODEL_NONE; child = model->pages[child].next_sibling) {
        const struct model_page *at = &model->pages[child];
        if (memcmp(at->tokens, tokens, model->page_tokens * sizeof(*tokens)) == 0 &&
            at->extra_count == extra_count &&
            (extra_count == 0 || memcmp(at->extras, extras, extra_count * sizeof(*extras)) == 0)) {
            break;
        }
    }
    return child;
}

static inline struct model_answer model_match(const struct model *model, uint32_t ns,
                                              const struct kvt_prompt *prompt)
{
    struct model_answer answer = {.page = ns};
    while (answer.pages < prompt->pages) {
        uint32_t child = model_child(model, answer.page, prompt, answer.pages);
        if (child == MODEL_NONE) {
            answer.diverged = model->pages[answer.page].first_child != MODEL_NONE;
            break;
        }
        answer.page = child;
        answer.pages++;
        answer.tier_pages[model_fastest(model, child)]++;
    }
    return answer;
}

/* A number for a page that may enter; MODEL_NONE when there is none left. */
static inline uint32_t model_take(struct model *model)
{
    uint32_t page = model->free_head;
    if (page != MODEL_NONE) {
        model->free_head = model->pages[page].next_sibling;
        memset(&model->pages[page], 0, sizeof(model->pages[page]));
    }
    return page;
}

static inline void model_give(struct model *model, uint32_t page)
{
    model->pages[page].live = false;
    model->pages[page].next_sibling = model->free_head;
    model->free_head = page;
}

/* Page `at` of the prompt enters behind `parent`; its places are set already. */
static inline void model_enter(struct model *model, uint32_t page, uint32_t parent,
                               const struct kvt_prompt *prompt, uint32_t at)
{
    struct model_page *entry = &model->pages[page];
    struct model_page *above = &model->pages[parent];
    const struct kvt_extra *extras = NULL;
    entry->live = true;
    entry->ns = above->ns;
    entry->parent = parent;
    entry->depth = above->depth + 1;
    entry->first_child = MODEL_NONE;
    entry->next_sibling = above->first_child;
    above->first_child = page;
    entry->extra_count = model_extras(model, prompt, at, &extras);
    if (entry->extra_count > 0) {
        memcpy(entry->extras, extras, entry->extra_count * sizeof(*extras));
    }
    memcpy(entry->tokens, prompt->tokens + (at - prompt->first_page) * model->page_tokens,
           model->page_tokens * sizeof(*entry->tokens));
    entry->key = kvt_key_next(&above->key, entry->tokens, model->page_tokens, extras,
                              entry->extra_count * sizeof(*extras));
    model->page_count++;
}

/* A leaf leaves. */
static inline void model_leave(struct model *model, uint32_t page)
{
    uint32_t *link = &model->pages[model->pages[page].parent].first_child;
    while (*link != page) {
        link = &model->pages[*link].next_sibling;
    }
    *link = model->pages[page].next_sibling;
    for (uint32_t tier = 0; tier < KVT_TIERS; tier++) {
        model_set_tier(model, page, tier, false);
    }
    model->page_count--;
    model_give(model, page);
}

/* May this page leave, and does that help `tier` (KVT_TIERS: any)? */
static inline bool model_evictable(const struct model *model, uint32_t page, uint32_t tier)
{
    const struct model_page *at = &model->pages[page];
    return at->live && at->first_child == MODEL_NONE && at->leases == 0 && at->busy == 0 &&
           (tier == KVT_TIERS || at->serial[tier] != 0);
}

/* The prompt that ends with this page. tokens: [MODEL_DEPTH_MAX * page_tokens], extras: one page's
 * worth for each page. */
static inline struct kvt_prompt model_prompt(const struct model *model, uint32_t page,
                                             uint32_t *tokens, struct kvt_extra *extras)
{
    struct kvt_prompt prompt = {.tokens = tokens, .pages = model->pages[page].depth};
    uint32_t path[MODEL_DEPTH_MAX] = {0};
    for (uint32_t at = page; model->pages[at].parent != MODEL_NONE; at = model->pages[at].parent) {
        path[model->pages[at].depth - 1] = at;
    }
    for (uint32_t i = 0; i < prompt.pages; i++) {
        const struct model_page *at = &model->pages[path[i]];
        memcpy(tokens + i * model->page_tokens, at->tokens, model->page_tokens * sizeof(*tokens));
        if (at->extra_count > 0) {
            memcpy(extras + prompt.extra_count, at->extras, at->extra_count * sizeof(*extras));
            prompt.extra_count += at->extra_count;
        }
    }
    prompt.extras = extras;
    return prompt;
}

/* ---- leases ---- */

/* An unused entry, or NULL: the index should answer LIMIT. */
static inline struct model_lease *model_lease_take(struct model *model, uint32_t page)
{
    for (uint32_t i = 0; i < MODEL_LEASES_MAX; i++) {
        struct model_lease *lease = &model->leases[i];
        if (!lease->used) {
            *lease = (struct model_lease){.used = true, .page = page};
            model->pages[page].leases++;
            model->lease_count++;
            model->leased_pages += model->pages[page].depth;
            return lease;
        }
    }
    return NULL;
}

static inline void model_lease_free(struct model *model, struct model_lease *lease)
{
    lease->used = false;
    model->pages[lease->page].leases--;
    model->lease_count--;
    model->leased_pages -= model->pages[lease->page].depth;
}

/* Given up by its owner; true when that frees it. */
static inline bool model_lease_give_up(struct model *model, struct model_lease *lease)
{
    lease->released = true;
    if (lease->transfers > 0) {
        return false;
    }
    model_lease_free(model, lease);
    return true;
}

#endif
