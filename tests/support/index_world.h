/*
 * A world for the index and its model: agents' sessions, leases, transfers, evictions. Each do_x is
 * one random operation on both sides, whose answers are compared; the first that differ is kept in
 * `wrong`.
 */
#ifndef KVT_INDEX_WORLD_H
#define KVT_INDEX_WORLD_H

#include "tests/support/prefix_model.h"
#include "tests/support/test_memory.h"
#include "tests/support/test_random.h"

#include <stdio.h>

#define SESSIONS 100u
#define HEADS 4u
#define ALPHABET 3u
#define PAGES_MAX 2500u /* of the index, so that its limit is met */
#define OWNERS 3u
#define BUSY_MAX 16u
#define SPENT_MAX 64u
#define TOKENS_MAX (MODEL_DEPTH_MAX * MODEL_PAGE_TOKENS_MAX)

struct session {
    uint32_t ns, token_count, extra_count;
    uint32_t tokens[TOKENS_MAX];
    struct kvt_extra extras[MODEL_EXTRAS_MAX];
};

struct world {
    struct test_memory memory;
    struct kvt_index *index;
    struct model model;
    struct test_random random;
    struct session sessions[SESSIONS], heads[HEADS];
    uint64_t spent[SPENT_MAX];
    uint32_t spent_count;
    struct {
        uint32_t page, record;
    } busy[BUSY_MAX];
    uint32_t busy_count;
    uint64_t now_ns, operation;
    uint32_t evict_tier, dropped; /* of the eviction that runs */
    char wrong[160];              /* the first answer that was not the model's */
    uint64_t met_limit, met_nomem, met_partly, met_duplicates, met_deferred;
};

/* Both sides agree; if not, the first disagreement is kept. */
#define SAME(world, cond) same_at(world, cond, #cond, __LINE__)

static inline void same_at(struct world *world, bool good, const char *what, int line)
{
    if (!good && world->wrong[0] == '\0') {
        (void)snprintf(world->wrong, sizeof(world->wrong), "operation %llu, line %d: not so: %s",
                       (unsigned long long)world->operation, line, what);
    }
}

static inline uint32_t below(struct world *world, uint32_t count)
{
    return test_random_below(&world->random, count);
}

static inline bool chance(struct world *world, uint32_t percent)
{
    return below(world, 100) < percent;
}

/* ---- pages that leave ---- */

static inline void on_drop(void *ctx, const struct kvt_key *key, const struct kvt_place *places)
{
    struct world *world = ctx;
    struct model *model = &world->model;
    uint32_t page = MODEL_NONE;
    for (uint32_t tier = 0; tier < KVT_TIERS; tier++) {
        page =
            kvt_place_is(places[tier * model->shards]) ? places[tier * model->shards].slot : page;
    }
    SAME(world, page < MODEL_PAGES && page >= MODEL_NAMESPACES && model->pages[page].live);
    if (world->wrong[0] != '\0') {
        return;
    }
    for (uint32_t tier = 0; tier < KVT_TIERS; tier++) {
        for (uint32_t shard = 0; shard < model->shards; shard++) {
            SAME(world,
                 model_place_is(model, page, tier, shard, places[tier * model->shards + shard]));
        }
    }
    SAME(world, model_evictable(model, page, world->evict_tier));
    SAME(world, memcmp(key, &model->pages[page].key, sizeof(*key)) == 0);
    if (world->wrong[0] == '\0') {
        model_leave(model, page);
        model->evicted_pages++;
        world->dropped++;
    }
}

static inline void do_evict(struct world *world, uint32_t count)
{
    struct model *model = &world->model;
    world->evict_tier = below(world, KVT_TIERS + 1);
    world->dropped = 0;
    if (chance(world, 10)) {
        test_memory_fail(&world->memory, 1, true); /* giving back needs no memory */
    }
    uint32_t gone = kvt_index_evict(world->index, world->evict_tier, count);
    test_memory_fail(&world->memory, 0, false);
    SAME(world, gone == world->dropped && gone <= count);
    for (uint32_t page = MODEL_NAMESPACES; gone < count && page < MODEL_PAGES; page++) {
        SAME(world, !model_evictable(model, page, world->evict_tier));
    }
}

/* ---- prompts ---- */

static inline void session_append(struct world *world, struct session *session, uint32_t tokens)
{
    uint32_t max = MODEL_DEPTH_MAX * world->model.page_tokens;
    for (uint32_t i = 0; i < tokens && session->token_count < max; i++) {
        session->tokens[session->token_count++] = below(world, ALPHABET);
    }
}

static inline void session_cut(struct session *session, uint32_t tokens)
{
    session->token_count = tokens;
    while (session->extra_count > 0 &&
           session->extras[session->extra_count - 1].token_index >= tokens) {
        session->extra_count--;
    }
}

/* An image begins at the next token. */
static inline void session_image(struct world *world, struct session *session)
{
    if (session->extra_count < MODEL_EXTRAS_MAX) {
        struct kvt_extra *extra = &session->extras[session->extra_count++];
        extra->token_index = session->token_count;
        memset(extra->digest, (int)below(world, 2), sizeof(extra->digest));
    }
}

/* One more turn of an agent's conversation, in one of the ways they go. */
static inline struct session *session_turn(struct world *world)
{
    struct session *session = &world->sessions[below(world, SESSIONS)];
    uint32_t max = MODEL_DEPTH_MAX * world->model.page_tokens;
    uint32_t choice = below(world, 100);
    if (session->token_count + 8 > max || choice < 8) {
        *session = world->heads[below(world, HEADS)];
        session->ns = below(world, MODEL_NAMESPACES);
        session_append(world, session, below(world, 12));
    } else if (choice < 60) {
        if (chance(world, 10)) {
            session_image(world, session);
        }
        session_append(world, session, 1 + below(world, 12));
    } else if (choice < 72) {
        *session = world->sessions[below(world, SESSIONS)];
        session_cut(session, below(world, session->token_count + 1));
        session_append(world, session, below(world, 12));
    } else if (choice < 82 && session->token_count > 0) {
        session->tokens[below(world, session->token_count)] = below(world, ALPHABET);
    } else if (choice < 86) {
        session_cut(session, below(world, session->token_count + 1));
    }
    return session;
}

static inline struct kvt_prompt session_prompt(const struct world *world,
                                               const struct session *session)
{
    return (struct kvt_prompt){.tokens = session->tokens,
                               .pages = session->token_count / world->model.page_tokens,
                               .extra_count = session->extra_count,
                               .extras = session->extras};
}

/* ---- matching and leasing ---- */

static inline struct model_answer do_match(struct world *world, uint32_t ns,
                                           const struct kvt_prompt *prompt,
                                           struct kvt_match *out_match)
{
    struct model *model = &world->model;
    uint64_t calls = world->memory.calls;
    struct model_answer answer = model_match(model, ns, prompt);
    kvt_index_match(world->index, ns, prompt, out_match);
    SAME(world, out_match->ns == ns);
    SAME(world, out_match->pages == answer.pages);
    SAME(world, out_match->diverged == answer.diverged);
    for (uint32_t tier = 0; tier < KVT_TIERS; tier++) {
        SAME(world, out_match->tier_pages[tier] == answer.tier_pages[tier]);
    }
    struct kvt_key key = kvt_index_match_key(world->index, out_match);
    SAME(world, memcmp(&key, &model->pages[answer.page].key, sizeof(key)) == 0);
    SAME(world, world->memory.calls == calls);
    return answer;
}

/* A lease on the match; NULL when all are in use. */
static inline struct model_lease *do_acquire(struct world *world, const struct kvt_match *match,
                                             uint32_t page)
{
    uint64_t handle = 0;
    uint32_t owner = below(world, OWNERS);
    uint64_t expires_ns = world->now_ns + below(world, 2000);
    kvt_status status =
        kvt_lease_acquire(world->index, match, owner, world->now_ns, expires_ns, &handle);
    struct model_lease *lease = model_lease_take(&world->model, page);
    SAME(world, status == (lease != NULL ? KVT_OK : KVT_ERR_LIMIT));
    if (lease != NULL) {
        lease->handle = handle;
        lease->owner = owner;
        lease->taken_ns = world->now_ns;
        lease->expires_ns = expires_ns;
    }
    return lease;
}

static inline void spend(struct world *world, uint64_t handle)
{
    uint32_t at = world->spent_count < SPENT_MAX ? world->spent_count++ : below(world, SPENT_MAX);
    world->spent[at] = handle;
}

static inline void do_release(struct world *world, struct model_lease *lease)
{
    SAME(world, kvt_lease_release(world->index, lease->handle, lease->owner) == KVT_OK);
    spend(world, lease->handle);
    world->met_deferred += !model_lease_give_up(&world->model, lease);
}

/* One of the leases in use, for its owner or (any) also one that he gave up; NULL. */
static inline struct model_lease *pick_lease(struct world *world, bool any)
{
    uint32_t start = below(world, MODEL_LEASES_MAX);
    for (uint32_t i = 0; i < MODEL_LEASES_MAX; i++) {
        struct model_lease *lease = &world->model.leases[(start + i) % MODEL_LEASES_MAX];
        if (lease->used && (any || !lease->released)) {
            return lease;
        }
    }
    return NULL;
}

/* Handles that were guessed, are spent, or belong to others: refused, and nothing changes. */
static inline void do_refused(struct world *world)
{
    struct kvt_lease_info info;
    uint32_t record, duplicates = 7, inserted = 7, owner = below(world, OWNERS);
    uint64_t handle = test_random_u64(&world->random);
    struct kvt_prompt prompt = {.tokens = world->heads[0].tokens};
    struct model_lease *lease = pick_lease(world, false);
    if (chance(world, 30) && world->spent_count > 0) {
        handle = world->spent[below(world, world->spent_count)];
    } else if (chance(world, 50) && lease != NULL) {
        handle = lease->handle;
        owner = lease->owner + 1;
    } else if (chance(world, 50) && lease != NULL) {
        handle = lease->handle ^ (UINT64_C(1) << below(world, 64));
        for (uint32_t i = 0; i < MODEL_LEASES_MAX; i++) {
            owner += world->model.leases[i].handle == handle ? OWNERS : 0;
        }
    }
    SAME(world, kvt_lease_get(world->index, handle, owner, &info) == KVT_ERR_STALE);
    SAME(world, kvt_lease_begin(world->index, handle, owner) == KVT_ERR_STALE);
    SAME(world, kvt_index_pages(world->index, handle, owner, 0, 1, &record) == KVT_ERR_STALE);
    SAME(world, kvt_index_insert(world->index, handle, owner, &prompt, 0, 0, NULL, &duplicates,
                                 &inserted) == KVT_ERR_STALE);
    SAME(world, duplicates == 0 && inserted == 0);
    kvt_index_touch(world->index, handle, owner);
    SAME(world, kvt_lease_release(world->index, handle, owner) == KVT_ERR_STALE);
}

static inline void do_transfer(struct world *world)
{
    struct model_lease *lease = pick_lease(world, true);
    if (lease == NULL) {
        return;
    }
    if (!lease->released && chance(world, 50)) {
        SAME(world, kvt_lease_begin(world->index, lease->handle, lease->owner) == KVT_OK);
        lease->transfers++;
    } else if (lease->transfers > 0) {
        kvt_lease_end(world->index, lease->handle);
        lease->transfers--;
        if (lease->released && lease->transfers == 0) {
            model_lease_free(&world->model, lease);
        }
    }
}

static inline void do_take_back(struct world *world)
{
    uint32_t want = 0, got;
    uint32_t owner = below(world, OWNERS);
    bool expire = chance(world, 80);
    if (expire && chance(world, 50)) {
        struct model_lease *lease = pick_lease(world, true);
        uint64_t expires_ns = world->now_ns + below(world, 3000);
        if (lease != NULL) {
            kvt_lease_extend(world->index, lease->handle, expires_ns);
            lease->expires_ns = expires_ns > lease->expires_ns ? expires_ns : lease->expires_ns;
        }
    }
    got = expire ? kvt_lease_expire(world->index, world->now_ns)
                 : kvt_lease_drop_owner(world->index, owner);
    for (uint32_t i = 0; i < MODEL_LEASES_MAX; i++) {
        struct model_lease *lease = &world->model.leases[i];
        bool goes = lease->used && !lease->released &&
                    (expire ? lease->transfers == 0 && lease->expires_ns <= world->now_ns
                            : lease->owner == owner);
        if (goes) {
            want++;
            spend(world, lease->handle);
            (void)model_lease_give_up(&world->model, lease);
        }
    }
    SAME(world, got == want);
}

/* ---- inserting ---- */

struct batch {
    uint32_t count;
    uint32_t numbers[MODEL_DEPTH_MAX];
    struct kvt_new_page pages[MODEL_DEPTH_MAX];
    struct kvt_place places[MODEL_DEPTH_MAX * MODEL_SHARDS_MAX];
};

/* Numbers and places for up to `count` pages; fewer when the model has no more. */
static inline void batch_take(struct world *world, uint32_t count, struct batch *batch)
{
    struct model *model = &world->model;
    uint32_t tier = below(world, KVT_TIERS);
    batch->count = 0;
    while (batch->count < count) {
        uint32_t i = batch->count;
        uint32_t number = model_take(model);
        if (number == MODEL_NONE) {
            break;
        }
        tier = chance(world, 15) ? below(world, KVT_TIERS) : tier;
        model_set_tier(model, number, tier, true);
        for (uint32_t shard = 0; shard < model->shards; shard++) {
            batch->places[i * model->shards + shard] = model_place(model, number, tier, shard);
        }
        batch->numbers[i] = number;
        batch->pages[i] = (struct kvt_new_page){tier, &batch->places[i * model->shards]};
        batch->count++;
    }
}

static inline void batch_give(struct world *world, const struct batch *batch, uint32_t i)
{
    for (uint32_t tier = 0; tier < KVT_TIERS; tier++) {
        model_set_tier(&world->model, batch->numbers[i], tier, false);
    }
    model_give(&world->model, batch->numbers[i]);
}

/* Insert what the prompt has behind the lease, sometimes without memory for all of it. */
static inline void do_insert_behind(struct world *world, const struct model_lease *lease,
                                    struct kvt_prompt prompt)
{
    static struct batch batch;
    struct model *model = &world->model;
    uint32_t from = model->pages[lease->page].depth;
    uint32_t ns = model->pages[lease->page].ns;
    uint32_t duplicates = 77, inserted = 77;
    batch_take(world, prompt.pages - from, &batch);
    prompt.pages = from + batch.count;
    struct model_answer before = model_match(model, ns, &prompt);
    uint32_t want_new = prompt.pages - before.pages;
    uint64_t failed = world->memory.failed;
    if (chance(world, 12)) {
        test_memory_fail(&world->memory, 1 + below(world, 6), chance(world, 50));
    }
    if (chance(world, 30)) {
        /* Those who save know only the tokens from their first page on. */
        prompt.first_page = below(world, from + 1);
        prompt.tokens += prompt.first_page * model->page_tokens;
    }
    kvt_status status = kvt_index_insert(world->index, lease->handle, lease->owner, &prompt, from,
                                         batch.count, batch.pages, &duplicates, &inserted);
    failed = world->memory.failed - failed;
    test_memory_fail(&world->memory, 0, false);
    uint64_t room = PAGES_MAX - model->page_count;
    uint32_t may = want_new < room ? want_new : (uint32_t)room;
    SAME(world, duplicates == before.pages - from);
    SAME(world, failed > 0 ? inserted <= may : inserted == may);
    SAME(world, (status == KVT_OK) == (inserted == want_new));
    SAME(world, status == KVT_OK || status == KVT_ERR_LIMIT || status == KVT_ERR_NOMEM);
    SAME(world, status != KVT_ERR_LIMIT || inserted == may);
    SAME(world, status != KVT_ERR_NOMEM || failed > 0);
    world->met_limit += status == KVT_ERR_LIMIT;
    world->met_nomem += status == KVT_ERR_NOMEM;
    world->met_partly += status != KVT_OK && inserted > 0;
    world->met_duplicates += duplicates > 0;
    uint32_t parent = before.page;
    for (uint32_t i = 0; i < batch.count && world->wrong[0] == '\0'; i++) {
        if (i < duplicates || i >= duplicates + inserted) {
            batch_give(world, &batch, i);
        } else {
            model_enter(model, batch.numbers[i], parent, &prompt, from + i);
            parent = batch.numbers[i];
        }
    }
}

/* A prompt comes in: match, lease, save what is new; the lease stays for a while, or goes. */
static inline void do_prompt(struct world *world)
{
    struct session *session = session_turn(world);
    struct kvt_prompt prompt = session_prompt(world, session);
    struct kvt_match match;
    struct model_answer answer = do_match(world, session->ns, &prompt, &match);
    struct model_lease *lease = do_acquire(world, &match, answer.page);
    if (lease == NULL) {
        return;
    }
    if (chance(world, 60)) {
        do_insert_behind(world, lease, prompt);
    }
    if (chance(world, 85)) {
        do_release(world, lease);
    }
}

/* Save behind a lease taken long ago: along what others entered meanwhile, then away from it. */
static inline void do_late_insert(struct world *world)
{
    static uint32_t tokens[TOKENS_MAX];
    struct kvt_extra extras[MODEL_EXTRAS_MAX];
    struct model *model = &world->model;
    const struct model_lease *lease = pick_lease(world, false);
    if (lease == NULL) {
        return;
    }
    uint32_t page = lease->page;
    while (model->pages[page].first_child != MODEL_NONE && chance(world, 70)) {
        page = model->pages[page].first_child;
    }
    struct kvt_prompt prompt = model_prompt(model, page, tokens, extras);
    uint32_t more = below(world, 5);
    for (uint32_t i = 0; i < more && prompt.pages < MODEL_DEPTH_MAX; i++, prompt.pages++) {
        for (uint32_t j = 0; j < model->page_tokens; j++) {
            tokens[prompt.pages * model->page_tokens + j] = below(world, ALPHABET);
        }
    }
    do_insert_behind(world, lease, prompt);
}

static inline void do_elsewhere(struct world *world)
{
    const struct session *session = &world->sessions[below(world, SESSIONS)];
    struct kvt_prompt prompt = session_prompt(world, session);
    uint32_t want = 0;
    /* Namespaces 0 and 1 are one group, 2 is alone. */
    if (session->ns < 2) {
        want = model_match(&world->model, 1 - session->ns, &prompt).pages;
    }
    SAME(world, kvt_index_match_elsewhere(world->index, session->ns, &prompt) == want);
}

/* Does a lease pin a prefix of what this prompt matches? */
static inline void do_covers(struct world *world)
{
    const struct session *session = &world->sessions[below(world, SESSIONS)];
    const struct model_lease *lease = pick_lease(world, true);
    struct kvt_prompt prompt = session_prompt(world, session);
    struct kvt_match match;
    struct model_answer answer = do_match(world, session->ns, &prompt, &match);
    if (lease == NULL) {
        return;
    }
    uint32_t page = answer.page;
    while (page != MODEL_NONE && page != lease->page) {
        page = world->model.pages[page].parent;
    }
    bool covers = kvt_lease_covers(world->index, lease->handle, lease->owner, &match);
    SAME(world, covers == (page != MODEL_NONE && !lease->released));
    SAME(world, !kvt_lease_covers(world->index, lease->handle, lease->owner + 1, &match));
}

/* ---- pages under a lease ---- */

/* The records of a leased prefix, each compared with the model. The lease's path is written too. */
static inline uint32_t do_pages(struct world *world, const struct model_lease *lease,
                                uint32_t *out_records, uint32_t *out_path)
{
    struct model *model = &world->model;
    uint32_t depth = model->pages[lease->page].depth;
    SAME(world, kvt_index_pages(world->index, lease->handle, lease->owner, 0, depth, out_records) ==
                    KVT_OK);
    SAME(world, kvt_index_pages(world->index, lease->handle, lease->owner, depth, 1, out_records) ==
                    KVT_ERR_INVAL);
    uint32_t page = lease->page;
    for (uint32_t i = depth; i > 0 && world->wrong[0] == '\0'; i--) {
        for (uint32_t tier = 0; tier < KVT_TIERS; tier++) {
            for (uint32_t shard = 0; shard < model->shards; shard++) {
                struct kvt_place place =
                    kvt_page_place(world->index, out_records[i - 1], tier, shard);
                SAME(world, model_place_is(model, page, tier, shard, place));
            }
        }
        out_path[i - 1] = page;
        page = model->pages[page].parent;
    }
    if (depth > 1) {
        uint32_t first = below(world, depth), part[MODEL_DEPTH_MAX];
        uint32_t count = below(world, depth - first + 1);
        SAME(world, kvt_index_pages(world->index, lease->handle, lease->owner, first, count,
                                    part) == KVT_OK);
        SAME(world, memcmp(part, out_records + first, count * sizeof(*part)) == 0);
    }
    return depth;
}

static inline void do_move(struct world *world)
{
    uint32_t records[MODEL_DEPTH_MAX], path[MODEL_DEPTH_MAX];
    struct model *model = &world->model;
    const struct model_lease *lease = pick_lease(world, false);
    uint32_t depth = lease != NULL ? do_pages(world, lease, records, path) : 0;
    if (depth == 0 || world->wrong[0] != '\0') {
        return;
    }
    for (uint32_t moves = 1 + below(world, 3); moves > 0; moves--) {
        uint32_t at = below(world, depth);
        uint32_t tier = below(world, KVT_TIERS);
        bool there = model->pages[path[at]].serial[tier] != 0;
        bool alone = model->pages[path[at]].serial[0] == 0 || model->pages[path[at]].serial[1] == 0;
        struct kvt_place places[MODEL_SHARDS_MAX];
        /* Down, up, or to another slot of the same tier; never out of the last. */
        model_set_tier(model, path[at], tier, !there || alone || chance(world, 20));
        for (uint32_t shard = 0; shard < model->shards; shard++) {
            places[shard] = model_place(model, path[at], tier, shard);
        }
        kvt_page_set_places(world->index, records[at], tier, places);
    }
}

static inline void do_busy(struct world *world)
{
    uint32_t records[MODEL_DEPTH_MAX], path[MODEL_DEPTH_MAX];
    struct model *model = &world->model;
    if (world->busy_count > 0 && chance(world, 55)) {
        uint32_t at = below(world, world->busy_count);
        kvt_page_set_busy(world->index, world->busy[at].record, false);
        model->pages[world->busy[at].page].busy--;
        world->busy[at] = world->busy[--world->busy_count];
        return;
    }
    const struct model_lease *lease = pick_lease(world, false);
    if (lease == NULL || world->busy_count == BUSY_MAX) {
        return;
    }
    uint32_t depth = do_pages(world, lease, records, path);
    if (depth > 0 && world->wrong[0] == '\0') {
        uint32_t at = below(world, depth);
        kvt_page_set_busy(world->index, records[at], true);
        model->pages[path[at]].busy++;
        world->busy[world->busy_count].page = path[at];
        world->busy[world->busy_count++].record = records[at];
    }
}

static inline void do_demotable(struct world *world)
{
    static bool seen[MODEL_PAGES];
    uint32_t records[8];
    struct model *model = &world->model;
    uint32_t tier = below(world, KVT_TIERS), want = 0, count = 1 + below(world, 8);
    memset(seen, 0, sizeof(seen));
    uint32_t found = kvt_index_demotable(world->index, tier, count, records);
    for (uint32_t page = MODEL_NAMESPACES; want < count && page < MODEL_PAGES; page++) {
        const struct model_page *at = &model->pages[page];
        want += at->live && at->serial[tier] != 0 && at->busy == 0;
    }
    SAME(world, found == want);
    for (uint32_t i = 0; i < found && world->wrong[0] == '\0'; i++) {
        struct kvt_place place = kvt_page_place(world->index, records[i], tier, 0);
        SAME(world, place.slot < MODEL_PAGES && model->pages[place.slot].live);
        SAME(world, model_place_is(model, place.slot, tier, 0, place));
        SAME(world, model->pages[place.slot].busy == 0 && !seen[place.slot]);
        seen[place.slot] = true;
    }
}

#endif
