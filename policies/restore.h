/*
 * How much of a hit to load, and how much to compute: a hit is worth what computing it would take,
 * and costs what loading it takes. Pure.
 *
 * A prefix is loaded whole or cut: of all lengths the one that saves most is taken. Pages in memory
 * cost nothing next to computing them; pages on nvme cost a fixed time once (what waits before
 * them) and a time each. Computing costs the same for each token, which is too little for late ones
 * of a long prompt: so the plan errs on the side of computing.
 *
 * Includes layer 0 only.
 */
#ifndef KVT_RESTORE_POLICY_H
#define KVT_RESTORE_POLICY_H

#include <stdbool.h>
#include <stdint.h>

struct kvt_restore_run {
    uint32_t pages;
    bool slow; /* on nvme */
};

struct kvt_restore_cost {
    uint64_t compute_ns_per_page;
    uint64_t load_ns_once; /* before the first slow page arrives */
    uint64_t load_ns_per_page;
};

/* How many pages, from the start, are worth loading. */
uint32_t kvt_restore_pages(const struct kvt_restore_run *runs, uint32_t run_count,
                           const struct kvt_restore_cost *cost);

#endif
