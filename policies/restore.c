#include "policies/restore.h"

uint32_t kvt_restore_pages(const struct kvt_restore_run *runs, uint32_t run_count,
                           const struct kvt_restore_cost *cost)
{
    /* Saved, less spent, behind each run; within one run both grow evenly, so its ends decide. */
    double saved = 0, best = 0;
    uint32_t pages = 0, best_pages = 0;
    bool any_slow = false;
    for (uint32_t i = 0; i < run_count; i++) {
        double each = (double)cost->compute_ns_per_page;
        if (runs[i].slow) {
            each -= (double)cost->load_ns_per_page;
            saved -= any_slow ? 0 : (double)cost->load_ns_once;
            any_slow = true;
        }
        saved += each * runs[i].pages;
        pages += runs[i].pages;
        if (saved >= best && saved > 0) {
            best = saved;
            best_pages = pages;
        }
    }
    return best_pages;
}
