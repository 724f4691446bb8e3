/*
 * Admission policies: who may go down to nvme. Pure functions of values.
 *
 * A drive is worn by writing and a reader waits for writers, so not every page should go there. A
 * policy is asked when something happens to a page that nvme does not have; once it says yes the
 * page, and all that comes before it, is written when there is time.
 *
 * Includes layer 0 only.
 */
#ifndef KVT_ADMIT_H
#define KVT_ADMIT_H

#include <stdbool.h>
#include <stdint.h>

enum kvt_admit_event {
    KVT_ADMIT_SAVED,     /* it has just entered the cache */
    KVT_ADMIT_DELIVERED, /* its bytes have just reached an engine again */
    KVT_ADMIT_LEAVING    /* memory is nearly full, and it is among the next to go */
};

struct kvt_admit_ops {
    const char *name;
    const char *summary; /* one line for --help */
    /* uses: how often it was delivered so far, this time included. */
    bool (*admit)(enum kvt_admit_event event, uint32_t uses);
};

/* NULL when unknown. */
const struct kvt_admit_ops *kvt_admit_policy_find(const char *name);
/* NULL-terminated, the default first. */
const struct kvt_admit_ops *const *kvt_admit_policy_list(void);

#endif
