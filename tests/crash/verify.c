/* What must hold of a store after whatever was done to it. */
#include "tests/crash/rig.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#define SLOT_BYTES CRASH_PAGE_BYTES /* a multiple of the alignment */
#define FILL_PAGES_TIMES 2u
/* With eviction: what so many pages after it were saved is sure to be there still. */
#define SURE_PAGES 100u

static bool complain(const char *format, ...) __attribute__((format(printf, 1, 2)));
static bool complain(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    (void)vprintf(format, list);
    va_end(list);
    (void)printf("\n");
    (void)fflush(stdout);
    return false;
}

static void found(void *ctx, uint32_t kind, const char *sentence)
{
    (void)ctx;
    if (kind == KVT_STORE_FOUND_DAMAGE) {
        (void)complain("  found: %s", sentence);
    }
}

/* What `kvtier check --verify` says, before anybody opened the store. */
static bool looks_good(const struct crash_verify *asked)
{
    struct kvt_store_check_config config = {.folders = &asked->store,
                                            .folder_count = 1,
                                            .flags = KVT_STORE_THREADS | KVT_STORE_BUFFERED |
                                                     KVT_STORE_VERIFY,
                                            .found = found};
    struct kvt_store_check_result result = {.damaged = 0};
    char why[CRASH_WHY_BYTES] = "";
    kvt_status status = kvt_store_check(&config, &result, why, sizeof(why));
    if (status == KVT_OK && result.damaged) {
        return complain(
            "check: damage: %llu files, %llu records, %llu misplaced, %llu orphans, "
            "%llu corrupt",
            (unsigned long long)result.damaged_files, (unsigned long long)result.damaged_records,
            (unsigned long long)result.misplaced_pages, (unsigned long long)result.orphaned_pages,
            (unsigned long long)result.corrupt_pages);
    }
    return true;
}

/* A store gets its header when it is all there. */
static bool was_made(const struct crash_verify *asked)
{
    char path[CRASH_WHY_BYTES];
    (void)snprintf(path, sizeof(path), "%.480s/store.kvt", asked->store);
    return access(path, F_OK) == 0;
}

/* Must this prompt be there whole? */
static bool is_sure(const struct crash_verify *asked, const struct crash_notes *notes,
                    uint32_t number)
{
    if (!notes->acked[number] || asked->may_lack) {
        return false;
    }
    uint32_t pages = 0;
    for (uint32_t i = number; asked->evicts && i < notes->count; i++) {
        pages += kvt_crash_prompt(i).pages;
        if (pages > SURE_PAGES) {
            return false;
        }
    }
    return true;
}

static bool prompts_verify(struct crash_rig *rig, const struct crash_verify *asked,
                           const struct crash_notes *notes, struct crash_verified *verified)
{
    bool good = true;
    for (uint32_t i = 0; i < notes->count; i++) {
        struct crash_prompt prompt = kvt_crash_prompt(i);
        struct crash_read read;
        kvt_status status = kvt_crash_read(rig, &prompt, &read);
        if (status != KVT_OK) {
            return complain("prompt %u: reading it: status %d", i, (int)status);
        }
        verified->pages += read.good;
        verified->short_prompts += read.good < prompt.pages;
        if (read.wrong) {
            verified->wrong++;
            good = complain("prompt %u: %u pages delivered, and not all are its own", i, read.good);
        }
        if (read.good < read.matched && !asked->may_lack) {
            good =
                complain("prompt %u: %u pages offered, %u delivered", i, read.matched, read.good);
        }
        if (read.good < prompt.pages && is_sure(asked, notes, i)) {
            verified->lost++;
            good = complain("prompt %u: acknowledged, %u of its %u pages are there", i, read.good,
                            prompt.pages);
        }
    }
    return good;
}

static bool stats_verify(struct crash_rig *rig, const struct crash_verify *asked,
                         struct crash_verified *verified)
{
    struct kvt_cache_stats stats;
    kvt_status status = kvt_cache_flush(rig->cache, CRASH_WAIT_NS);
    if (status != KVT_OK && !asked->may_lack) {
        return complain("flush: status %d", (int)status);
    }
    if (kvt_cache_quiesce(rig->cache, CRASH_WAIT_NS) != KVT_OK ||
        kvt_cache_stats(rig->cache, &stats) != KVT_OK) {
        return complain("quiesce, or statistics");
    }
    verified->noticed += stats.nvme_checksum_failures + stats.nvme_damaged_records +
                         stats.nvme_orphans_dropped + stats.nvme_read_errors +
                         (stats.nvme_state != 1);
    if (stats.nvme_state != 1 && !asked->may_lack) {
        return complain("the tier's state is %u", stats.nvme_state);
    }
    if (!asked->may_lack && (stats.nvme_checksum_failures | stats.nvme_damaged_records) != 0) {
        return complain("%llu checksums failed, %llu records are damaged",
                        (unsigned long long)stats.nvme_checksum_failures,
                        (unsigned long long)stats.nvme_damaged_records);
    }
    if (stats.nvme_state == 1 && !asked->may_lack &&
        stats.tier_bytes_used[2] != stats.tier_pages[2] * SLOT_BYTES) {
        return complain("%llu bytes are used by %llu pages",
                        (unsigned long long)stats.tier_bytes_used[2],
                        (unsigned long long)stats.tier_pages[2]);
    }
    return true;
}

static bool fill(struct crash_rig *rig, uint32_t wanted)
{
    uint32_t pages = 0;
    struct kvt_cache_stats stats = {.pages = 0};
    uint64_t most = 0;
    for (uint32_t i = CRASH_FILL_FIRST; pages < FILL_PAGES_TIMES * wanted; i++) {
        struct crash_prompt prompt = kvt_crash_prompt(i);
        pages += prompt.pages;
        kvt_status status = kvt_crash_save(rig, &prompt);
        if (status == KVT_OK || status == KVT_ERR_LIMIT) {
            status = kvt_cache_flush(rig->cache, CRASH_WAIT_NS);
        }
        if (status != KVT_OK || kvt_cache_stats(rig->cache, &stats) != KVT_OK) {
            return complain("filling: status %d", (int)status);
        }
        most = stats.tier_pages[2] > most ? stats.tier_pages[2] : most;
    }
    if (most < wanted) {
        return complain("filled with %llu pages, there is room for %u", (unsigned long long)most,
                        wanted);
    }
    return true;
}

bool kvt_crash_verify(const struct crash_verify *asked, const struct crash_notes *notes,
                      struct crash_verified *out_verified)
{
    *out_verified = (struct crash_verified){.wrong = 0};
    struct crash_rig rig = {.loud = false};
    if (!asked->may_lack && was_made(asked) && !looks_good(asked)) {
        return false;
    }
    kvt_status status = kvt_crash_open(&rig, asked->store, asked->bytes, 0);
    if (status != KVT_OK) {
        out_verified->noticed++;
        out_verified->short_prompts = notes->count;
        return asked->may_lack || complain("open: status %d: %s", (int)status, rig.why);
    }
    bool good = prompts_verify(&rig, asked, notes, out_verified);
    good = stats_verify(&rig, asked, out_verified) && good;
    if (asked->fill_pages > 0) {
        good = fill(&rig, asked->fill_pages) && good;
    }
    return (kvt_crash_close(&rig) || complain("close: %s", rig.why)) && good;
}
