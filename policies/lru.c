/*
 * Least recently used: what was delivered longest ago goes first.
 *
 * A doubly linked list through an array, head = next victim. Because the cache touches the deepest
 * edge of a path first and its head last, and evicts leaves only, leaf-first order falls out of it.
 */
#include "policies/policy.h"

#define LRU_NONE UINT32_MAX

struct lru_link {
    uint32_t prev, next; /* towards the victims; towards the recent */
};

struct lru {
    uint32_t oldest, newest;
    struct lru_link links[];
};

static size_t lru_state_bytes(uint32_t slots_max)
{
    return sizeof(struct lru) + (size_t)slots_max * sizeof(struct lru_link);
}

static void lru_init(void *state, uint32_t slots_max, uint64_t seed)
{
    struct lru *lru = state;
    (void)slots_max;
    (void)seed;
    lru->oldest = LRU_NONE;
    lru->newest = LRU_NONE;
}

static void lru_grow(void *state, uint32_t slots_max)
{
    (void)state;
    (void)slots_max;
}

/* Put `slot` behind `prev` (LRU_NONE: make it the oldest). */
static void lru_link_after(struct lru *lru, uint32_t slot, uint32_t prev)
{
    uint32_t next = prev == LRU_NONE ? lru->oldest : lru->links[prev].next;
    lru->links[slot] = (struct lru_link){prev, next};
    if (prev == LRU_NONE) {
        lru->oldest = slot;
    } else {
        lru->links[prev].next = slot;
    }
    if (next == LRU_NONE) {
        lru->newest = slot;
    } else {
        lru->links[next].prev = slot;
    }
}

static void lru_on_insert(void *state, uint32_t slot)
{
    struct lru *lru = state;
    lru_link_after(lru, slot, lru->newest);
}

static void lru_on_split(void *state, uint32_t upper, uint32_t lower)
{
    lru_link_after(state, upper, lower);
}

static void lru_on_remove(void *state, uint32_t slot)
{
    struct lru *lru = state;
    struct lru_link link = lru->links[slot];
    if (link.prev == LRU_NONE) {
        lru->oldest = link.next;
    } else {
        lru->links[link.prev].next = link.next;
    }
    if (link.next == LRU_NONE) {
        lru->newest = link.prev;
    } else {
        lru->links[link.next].prev = link.prev;
    }
}

static void lru_on_hit(void *state, uint32_t slot)
{
    lru_on_remove(state, slot);
    lru_on_insert(state, slot);
}

static uint32_t lru_victims(const void *state, uint32_t after, uint32_t *out_slots, uint32_t max)
{
    const struct lru *lru = state;
    uint32_t slot = after == UINT32_MAX ? lru->oldest : lru->links[after].next;
    uint32_t count = 0;
    while (slot != LRU_NONE && count < max) {
        out_slots[count++] = slot;
        slot = lru->links[slot].next;
    }
    return count;
}

const struct kvt_evict_ops kvt_policy_lru = {
    .name = "lru",
    .summary = "least recently delivered first",
    .state_bytes = lru_state_bytes,
    .init = lru_init,
    .grow = lru_grow,
    .on_insert = lru_on_insert,
    .on_split = lru_on_split,
    .on_hit = lru_on_hit,
    .on_remove = lru_on_remove,
    .victims = lru_victims,
};
