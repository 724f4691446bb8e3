/* The registry: a new policy is one file and one line here. */
#include "policies/policy.h"

#include <string.h>

static const struct kvt_evict_ops *const evict_policies[] = {&kvt_policy_lru, NULL};

const struct kvt_evict_ops *const *kvt_evict_policy_list(void) { return evict_policies; }

const struct kvt_evict_ops *kvt_evict_policy_find(const char *name)
{
    for (size_t i = 0; evict_policies[i] != NULL; i++) {
        if (strcmp(evict_policies[i]->name, name) == 0) {
            return evict_policies[i];
        }
    }
    return NULL;
}
