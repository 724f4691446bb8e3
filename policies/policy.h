/*
 * Eviction policies: pure modules. No locks, no clock, no I/O, no allocation; same calls, same
 * victims. A slot is an edge of the radix tree (a run of pages) that may lose pages in the tier
 * which this instance serves. The cache decides what may really go (leaves, unleased); a policy
 * only ranks.
 *
 * One file per policy, one `const` table, one registry (policies.c).
 * Includes layer 0 only.
 */
#ifndef KVT_POLICY_H
#define KVT_POLICY_H

#include <stddef.h>
#include <stdint.h>

struct kvt_evict_ops {
    const char *name;
    const char *summary; /* one line for --help */
    /* Bytes of state for slots 0..slots_max-1. The caller provides the memory, and may move the
     * state to a larger one between calls: a state holds no pointers into itself. */
    size_t (*state_bytes)(uint32_t slots_max);
    void (*init)(void *state, uint32_t slots_max, uint64_t seed);
    /* The state was moved into memory for slots_max slots; what is new is zero. */
    void (*grow)(void *state, uint32_t slots_max);
    /* A slot begins to hold pages in this tier or a faster one (they may come down, and must then
     * stand where their last use puts them); it is not in the state yet. It is the most recent. */
    void (*on_insert)(void *state, uint32_t slot);
    /* `upper` (not in the state) was cut from the head of `lower` (in the state): it inherits its
     * standing and must come out after it in victims(). */
    void (*on_split)(void *state, uint32_t upper, uint32_t lower);
    /* Bytes of this slot were delivered to an engine. For one delivery the cache calls this for the
     * deepest edge first and the head last, so that heads outlive tails. */
    void (*on_hit)(void *state, uint32_t slot);
    /* The slot holds nothing in this tier or a faster one any more, whatever the reason. */
    void (*on_remove)(void *state, uint32_t slot);
    /* Walk the ranking, worst first: writes up to `max` slots that follow `after`, a slot in the
     * state (UINT32_MAX: from the start), and returns how many. Does not change the state. */
    uint32_t (*victims)(const void *state, uint32_t after, uint32_t *out_slots, uint32_t max);
};

extern const struct kvt_evict_ops kvt_policy_lru;

/* NULL when unknown. */
const struct kvt_evict_ops *kvt_evict_policy_find(const char *name);
/* NULL-terminated, for --help. */
const struct kvt_evict_ops *const *kvt_evict_policy_list(void);

#endif
