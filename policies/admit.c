/* The admission policies. */
#include "policies/admit.h"

#include <stddef.h>
#include <string.h>

/* Everything, at once: what was computed survives a crash a moment later. */
static bool through(enum kvt_admit_event event, uint32_t uses)
{
    (void)event;
    (void)uses;
    return true;
}

/* What memory is about to lose: nothing is written while memory holds all. */
static bool on_evict(enum kvt_admit_event event, uint32_t uses)
{
    (void)uses;
    return event == KVT_ADMIT_LEAVING;
}

/* What was used once more after it was saved: conversations that go on, and shared heads. */
static bool second_touch(enum kvt_admit_event event, uint32_t uses)
{
    return event != KVT_ADMIT_SAVED && uses > 0;
}

static const struct kvt_admit_ops policies[] = {
    {"through", "write everything that is saved", through},
    {"on-evict", "write what memory is about to lose", on_evict},
    {"second-touch", "write what was used again after it was saved", second_touch},
};

static const struct kvt_admit_ops *const list[] = {&policies[0], &policies[1], &policies[2], NULL};

const struct kvt_admit_ops *kvt_admit_policy_find(const char *name)
{
    for (size_t i = 0; list[i] != NULL; i++) {
        if (strcmp(list[i]->name, name) == 0) {
            return list[i];
        }
    }
    return NULL;
}

const struct kvt_admit_ops *const *kvt_admit_policy_list(void) { return list; }
