/*
 * Owners and catalogs that are killed: at random instants, and at every named step. After each the
 * store opens, all that it offers verifies, and what was acknowledged is there.
 *
 * KVT_CRASH=long: more than a thousand kills. KVT_CRASH_WORKER and KVT_CRASH_CATALOG are the
 * programs with the named steps compiled in.
 */
#include "tests/crash/child.h"
#include "tests/crash/rig.h"
#include "tests/support/test_random.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXIT_SKIPPED 77
#define KILLED (128 + SIGKILL)
#define PATH_BYTES 512u
#define SETTING_BYTES 600u
#define RANDOM_KILLS_LONG 700u
#define RANDOM_KILLS_SHORT 20u
#define STEP_TIMES_LONG 20u
#define STEP_TIMES_SHORT 1u
#define INSTANT_US_MAX 90000u
#define EVICT_PROMPTS 400u
#define SMALLER_BYTES CRASH_STORE_BYTES
#define LARGER_BYTES (CRASH_STORE_BYTES + (UINT64_C(3) << 20))

struct step {
    const char *name;
    uint32_t count_max; /* it is come to at least so often */
    bool fresh;         /* while the store is made */
    bool resized;       /* while it grows or shrinks */
    bool catalog;       /* it is the catalog's process that dies: the owner goes on */
};
static const struct step steps[] = {
    {"before_data_write", 20, false, false, false},
    {"after_data_write", 20, false, false, false},
    {"before_data_sync", 15, false, false, false},
    {"after_data_sync", 15, false, false, false},
    {"before_commit", 15, false, false, false},
    {"after_commit", 15, false, false, false},
    {"before_slot_reuse", 3, false, false, false},
    {"prewrite", 3, true, false, false},
    {"before_header_rename", 1, true, false, false},
    {"after_header_rename", 1, true, false, false},
    {"before_growth", 1, true, false, false},
    {"after_growth", 1, true, false, false},
    {"before_growth", 1, false, true, false},
    {"after_growth", 1, false, true, false},
    {"before_header_rename", 1, false, true, false},
    {"before_shrink", 1, false, true, false},
    {"after_shrink", 1, false, true, false},
    {"catalog_folder", 1, true, false, true},
    {"catalog_before_made", 1, true, false, true},
    {"catalog_after_made", 1, true, false, true},
    {"catalog_before_head", 1, true, false, true},
    {"catalog_after_head", 1, true, false, true},
    {"catalog_before_commit", 15, false, false, true},
    {"catalog_after_commit", 15, false, false, true},
};
#define STEPS (sizeof(steps) / sizeof(steps[0]))

struct kill_test {
    struct test_random random;
    char folder[PATH_BYTES];
    char store[PATH_BYTES], notes[PATH_BYTES], once[PATH_BYTES], output[PATH_BYTES];
    char catalog_setting[SETTING_BYTES], once_setting[SETTING_BYTES];
    const char *worker;
    uint64_t bytes; /* the store's budget */
    bool evicts, shrunk;
    uint32_t kills, catalog_kills, acknowledged, lost, wrong, stores, never_reached;
    bool failed;
};

static void fail(struct kill_test *t, const char *what, int status)
{
    (void)printf("store %u, %s: exit status %d, after %u kills (KVT_SEED as above)\n", t->stores,
                 what, status, t->kills + t->catalog_kills);
    kvt_child_show(t->output);
    t->failed = true;
}

static void store_new(struct kill_test *t, bool evicts)
{
    kvt_child_remove(t->store);
    (void)unlink(t->notes);
    t->evicts = evicts;
    t->shrunk = false;
    t->bytes = SMALLER_BYTES;
    t->stores++;
}

static uint32_t prompts_begun(struct kill_test *t)
{
    struct crash_notes notes;
    if (!kvt_crash_notes_read(t->notes, &notes)) {
        return 0;
    }
    uint32_t count = notes.count;
    kvt_crash_notes_free(&notes);
    return count;
}

static pid_t writer_start(struct kill_test *t, uint32_t count, const char *step_setting)
{
    char bytes[32], first[32], prompts[32], seed[32];
    (void)snprintf(bytes, sizeof(bytes), "%llu", (unsigned long long)t->bytes);
    (void)snprintf(first, sizeof(first), "%u", prompts_begun(t));
    (void)snprintf(prompts, sizeof(prompts), "%u", count);
    (void)snprintf(seed, sizeof(seed), "%llu", (unsigned long long)test_random_u64(&t->random));
    (void)unlink(t->once);
    const char *arguments[] = {t->worker, "write", t->store, t->notes, bytes,
                               first,     prompts, seed,     NULL};
    const char *settings[] = {t->catalog_setting, t->once_setting, step_setting, NULL};
    return kvt_child_start(arguments, settings, t->output);
}

static void verify(struct kill_test *t, bool fill)
{
    char bytes[32], filled[32];
    (void)snprintf(bytes, sizeof(bytes), "%llu", (unsigned long long)t->bytes);
    (void)snprintf(filled, sizeof(filled), "fill=%u",
                   t->shrunk ? CRASH_FILL_PAGES_SHRUNK : CRASH_FILL_PAGES);
    const char *arguments[] = {t->worker,
                               "verify",
                               t->store,
                               t->notes,
                               bytes,
                               t->evicts ? "evicts" : "all",
                               fill ? filled : "leave",
                               NULL};
    const char *settings[] = {t->catalog_setting, NULL};
    pid_t pid = kvt_child_start(arguments, settings, t->output);
    int status = pid > 0 ? kvt_child_wait(pid) : -1;
    struct crash_notes notes;
    if (kvt_crash_notes_read(t->notes, &notes)) {
        t->acknowledged += notes.acked_count;
        kvt_crash_notes_free(&notes);
    }
    if (status != 0) {
        fail(t, "verify", status);
    }
}

/* Is there room for more without eviction? */
static uint32_t prompts_left(struct kill_test *t)
{
    uint32_t begun = prompts_begun(t);
    uint32_t most = t->evicts ? EVICT_PROMPTS : CRASH_PROMPTS_FIT;
    return begun < most ? most - begun : 0;
}

/* ---- at random instants ---- */

/* The catalog's process alone: its owner goes on, and ends in order. */
static void catalog_only(struct kill_test *t, pid_t pid)
{
    kvt_child_sleep_us(test_random_below(&t->random, INSTANT_US_MAX / 2));
    t->catalog_kills += kvt_child_kill_catalogs(pid);
    kvt_child_sleep_us(test_random_below(&t->random, INSTANT_US_MAX / 2));
    (void)kill(pid, SIGTERM);
    int status = kvt_child_wait(pid);
    /* Before it listens to SIGTERM, and while it makes or opens the catalog, it may fail; but of
     * nothing else may it die. */
    if (status != 0 && status != CRASH_EXIT_OPEN && status != 128 + SIGTERM) {
        fail(t, "the owner of a killed catalog", status);
    }
}

static void random_kill(struct kill_test *t)
{
    uint32_t left = prompts_left(t);
    pid_t pid = writer_start(t, left, NULL);
    if (pid <= 0) {
        fail(t, "starting the worker", -1);
        return;
    }
    uint32_t kind = test_random_below(&t->random, 4);
    if (kind == 0) {
        catalog_only(t, pid);
        return;
    }
    kvt_child_sleep_us(test_random_below(&t->random, INSTANT_US_MAX));
    if (kind == 1) {
        t->catalog_kills += kvt_child_kill_catalogs(pid);
    }
    (void)kill(pid, SIGKILL);
    int status = kvt_child_wait(pid);
    t->kills += status == KILLED;
    bool unopened = kind == 1 && status == CRASH_EXIT_OPEN; /* its catalog died before it did */
    if (status != KILLED && status != 0 && !unopened) {
        fail(t, "the worker", status);
    }
}

static void random_kills(struct kill_test *t, uint32_t wanted)
{
    uint32_t start = t->kills + t->catalog_kills;
    while (t->kills + t->catalog_kills - start < wanted && !t->failed) {
        store_new(t, t->stores % 2 == 1);
        do {
            random_kill(t);
            if (!t->failed) {
                verify(t, false);
            }
        } while (!t->failed && prompts_left(t) > 0 && t->kills + t->catalog_kills - start < wanted);
        if (!t->failed) {
            verify(t, true);
        }
    }
}

/* ---- at named steps ---- */

/* The store has its pages, and is opened with another size. */
static void resize(struct kill_test *t, bool shrinks)
{
    t->bytes = shrinks ? LARGER_BYTES : SMALLER_BYTES;
    pid_t pid = writer_start(t, CRASH_PROMPTS_FIT / 2, NULL);
    int status = pid > 0 ? kvt_child_wait(pid) : -1;
    if (status != 0) {
        fail(t, "the worker before a resize", status);
    }
    t->bytes = shrinks ? SMALLER_BYTES : LARGER_BYTES;
    t->shrunk = shrinks;
    FILE *notes = shrinks ? fopen(t->notes, "ae") : NULL;
    if (notes != NULL) {
        (void)fprintf(notes, "s\n");
        (void)fclose(notes);
    }
}

static void step_kill(struct kill_test *t, const struct step *step)
{
    char setting[SETTING_BYTES];
    bool reuses = strcmp(step->name, "before_slot_reuse") == 0;
    store_new(t, reuses || test_random_below(&t->random, 2) == 0);
    if (step->resized) {
        resize(t, strstr(step->name, "shrink") != NULL);
    } else if (!step->fresh) {
        pid_t first = writer_start(t, 4, NULL);
        int status = first > 0 ? kvt_child_wait(first) : -1;
        if (status != 0) {
            fail(t, "the worker before a step", status);
        }
    }
    (void)snprintf(setting, sizeof(setting), "KVT_CRASH_AT=%s:%u", step->name,
                   1 + test_random_below(&t->random, step->count_max));
    pid_t pid = t->failed ? -1 : writer_start(t, prompts_left(t), setting);
    int status = pid > 0 ? kvt_child_wait(pid) : -1;
    bool reached = access(t->once, F_OK) == 0;
    t->never_reached += !reached;
    if (step->catalog) {
        t->catalog_kills += reached;
        if (status != 0 && !(step->fresh && status == CRASH_EXIT_OPEN)) {
            fail(t, setting, status);
        }
    } else {
        t->kills += reached;
        if (status != (reached ? KILLED : 0)) {
            fail(t, setting, status);
        }
    }
    if (!t->failed) {
        verify(t, true);
        if (t->failed) {
            (void)printf("    that was %s\n", setting);
        }
    }
}

/* A promise that was never kept must be noticed. */
static void control(struct kill_test *t)
{
    store_new(t, false);
    pid_t pid = writer_start(t, 6, NULL);
    if (pid <= 0 || kvt_child_wait(pid) != 0) {
        fail(t, "the worker of the control", -1);
        return;
    }
    verify(t, false);
    FILE *notes = fopen(t->notes, "ae");
    if (notes != NULL) {
        (void)fprintf(notes, "w 6\na 6\n");
        (void)fclose(notes);
    }
    bool before = t->failed;
    t->failed = false;
    (void)printf("control, which must fail:\n");
    verify(t, false);
    bool noticed = t->failed;
    t->failed = before;
    if (!noticed) {
        fail(t, "the control", 0);
    }
}

int main(void)
{
    static struct kill_test test;
    struct kill_test *t = &test;
    const char *catalog = getenv("KVT_CRASH_CATALOG");
    t->worker = getenv("KVT_CRASH_WORKER");
    if (t->worker == NULL || catalog == NULL || access(t->worker, X_OK) != 0) {
        (void)printf("skipped: KVT_CRASH_WORKER and KVT_CRASH_CATALOG name no programs\n");
        return EXIT_SKIPPED;
    }
    t->random = test_random_start("kills", (uint64_t)getpid());
    if (!kvt_child_folder(t->folder, sizeof(t->folder) - 32)) {
        perror("a folder");
        return EXIT_FAILURE;
    }
    (void)snprintf(t->store, sizeof(t->store), "%.480s/store", t->folder);
    (void)snprintf(t->notes, sizeof(t->notes), "%.480s/notes", t->folder);
    (void)snprintf(t->once, sizeof(t->once), "%.480s/once", t->folder);
    (void)snprintf(t->output, sizeof(t->output), "%.480s/output", t->folder);
    (void)snprintf(t->catalog_setting, sizeof(t->catalog_setting), "KVT_CATALOG_PROGRAM=%.500s",
                   catalog);
    (void)snprintf(t->once_setting, sizeof(t->once_setting), "KVT_CRASH_ONCE=%.500s", t->once);
    bool full = kvt_child_long();
    control(t);
    for (size_t i = 0; i < STEPS && !t->failed; i++) {
        for (uint32_t k = 0; k < (full ? STEP_TIMES_LONG : STEP_TIMES_SHORT) && !t->failed; k++) {
            step_kill(t, &steps[i]);
        }
    }
    uint32_t at_steps = t->kills + t->catalog_kills;
    random_kills(t, full ? RANDOM_KILLS_LONG : RANDOM_KILLS_SHORT);
    kvt_child_tell("kills      %6u at named steps, %u at random; %u of the owner, %u of the "
                   "catalog; steps not reached %u; %s",
                   at_steps, t->kills + t->catalog_kills - at_steps, t->kills, t->catalog_kills,
                   t->never_reached, t->failed ? "FAILED" : "losses 0");
    if (t->failed && getenv("KVT_CRASH_KEEP") != NULL) {
        (void)printf("kept: %s\n", t->folder);
    } else {
        kvt_child_remove(t->folder);
    }
    return t->failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
