/*
 * The flush thread: checksums, syncs, commits, and whatever else takes its time.
 *
 * One round takes the batches at the head of the queue that have landed whole, as many as fit one
 * commit, and the deletes that wait. It flushes the data files once for all of them, finds out
 * which pages may go in - those that landed, whose file was flushed, and whose parent is in or goes
 * in before them - and commits. Only then does anybody hear of it.
 */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "cache/base/crash_point.h"
#include "cache/tier/nvme_internal.h"

/* So many records of a commit are for deletes, as long as pages wait for the others. */
#define DELETES_BESIDE_PAGES (KVT_CATALOG_BATCH_MAX / 2)
_Static_assert(2 * KVT_NVME_BATCH_PAGES_MAX <= KVT_CATALOG_BATCH_MAX - DELETES_BESIDE_PAGES,
               "one batch with its namespaces fits beside the deletes");

#define POLL_NS UINT64_C(100000000) /* while something is wrong, or being measured */
#define LANDING_NS UINT64_C(1000000000)

uint64_t kvt_nvme_checksum(const void *payload, uint64_t bytes, uint64_t seed)
{
    return XXH3_64bits_withSeed(payload, bytes, seed);
}

uint64_t kvt_nvme_seed(const unsigned char key[16]) { return XXH3_64bits(key, 16); }

bool kvt_nvme_stray_add(struct kvt_nvme *nvme, uint64_t seq)
{
    if (nvme->stray_count == nvme->stray_capacity) {
        uint64_t capacity = nvme->stray_capacity > 0 ? 2 * nvme->stray_capacity : 64;
        uint64_t *strays =
            kvt_resize(nvme->mem, nvme->strays, nvme->stray_capacity * sizeof(*strays),
                       capacity * sizeof(*strays));
        if (strays == NULL) {
            return false;
        }
        nvme->strays = strays;
        nvme->stray_capacity = capacity;
    }
    if (nvme->stray_count == 0 && nvme->dying_head == KVT_NVME_NONE) {
        nvme->drop_since_ns = kvt_now_ns(&nvme->clock);
    }
    nvme->strays[nvme->stray_count++] = seq;
    return true;
}

/* ---- what is due ---- */

/* One round of commits: lives on the flush thread's stack. */
struct round {
    uint32_t batches; /* from the head of the queue */
    uint32_t pages, namespaces, deletes;
    uint32_t slots; /* of the deletes, those with a slot; strays come behind them */
    bool probe;     /* whether the catalog works is asked, also with nothing to commit */
};

static bool drops_wait(const struct kvt_nvme *nvme)
{
    return nvme->loaded && (nvme->dying_head != KVT_NVME_NONE || nvme->stray_count > 0);
}

static bool batch_is_ready(const struct kvt_nvme_batch *batch)
{
    return batch != NULL && batch->landed && batch->hashed;
}

/* How long until the drops that wait are due; 0: now. Requires: lock. */
static uint64_t drops_due_ns(const struct kvt_nvme *nvme)
{
    if (!drops_wait(nvme)) {
        return UINT64_MAX;
    }
    if (nvme->closing) {
        return nvme->close_tried && nvme->writing.bad ? UINT64_MAX : 0;
    }
    if (nvme->writing.bad) {
        return UINT64_MAX; /* with the next probe */
    }
    if (nvme->flush_waiters > 0 || nvme->drops_queued - nvme->drops_done >= KVT_CATALOG_BATCH_MAX) {
        return 0;
    }
    uint64_t age_ns = kvt_now_ns(&nvme->clock) - nvme->drop_since_ns;
    return age_ns >= KVT_NVME_DROP_NS ? 0 : KVT_NVME_DROP_NS - age_ns;
}

static struct kvt_nvme_batch *batch_unhashed(const struct kvt_nvme *nvme)
{
    struct kvt_nvme_batch *batch = nvme->batch_head;
    while (batch != NULL && batch->hashed) {
        batch = batch->next;
    }
    return batch;
}

static void batch_hash(struct kvt_nvme_batch *batch)
{
    const struct kvt_nvme_write *write = batch->write;
    for (uint32_t i = 0; i < write->page_count; i++) {
        const struct kvt_nvme_page *page = &write->pages[i];
        batch->pages[i].checksum = kvt_nvme_checksum(page->payload, page->bytes, page->seed);
    }
    batch->hashed = true;
}

/* Requires: lock. Drops and retakes it. False: there was none. */
static bool hash_one(struct kvt_nvme *nvme)
{
    struct kvt_nvme_batch *batch = batch_unhashed(nvme);
    if (batch == NULL) {
        return false;
    }
    kvt_lock_give(&nvme->lock);
    batch_hash(batch);
    kvt_lock_take(&nvme->lock);
    return true;
}

/* ---- choosing ---- */

/* Which batches and deletes go into this round. Requires: lock. */
static struct round round_choose(const struct kvt_nvme *nvme, bool probe)
{
    struct round round = {.probe = probe};
    bool pages_wait = batch_is_ready(nvme->batch_head);
    if (drops_wait(nvme)) {
        uint64_t waiting = nvme->drops_queued - nvme->drops_done;
        uint64_t most = pages_wait ? DELETES_BESIDE_PAGES : KVT_CATALOG_BATCH_MAX;
        round.slots = (uint32_t)(waiting < most ? waiting : most);
        uint64_t strays = most - round.slots;
        strays = strays < nvme->stray_count ? strays : nvme->stray_count;
        round.deletes = round.slots + (uint32_t)strays;
    }
    uint32_t records = round.deletes;
    for (const struct kvt_nvme_batch *batch = nvme->batch_head; batch_is_ready(batch);
         batch = batch->next) {
        uint32_t more = batch->write->page_count + batch->write->namespace_count;
        if (records + more > KVT_CATALOG_BATCH_MAX) {
            break;
        }
        records += more;
        round.batches++;
    }
    return round;
}

/* ---- syncing ---- */

static void sync_op_done(struct kvt_io_op *op)
{
    struct kvt_nvme *nvme = op->user;
    kvt_lock_take(&nvme->lock);
    for (uint32_t i = 0; i < nvme->drive_count; i++) {
        if (op == &nvme->drives[i].sync_op) {
            nvme->drives[i].sync_good = op->status == KVT_OK;
        }
    }
    if (op->status != KVT_OK && op->status != KVT_ERR_CANCELLED) {
        nvme->write_errors++;
        kvt_nvme_write_failed(nvme, false, "a data file could not be flushed", op->error);
    }
    nvme->syncs_left--;
    kvt_cond_broadcast(&nvme->cond);
    kvt_lock_give(&nvme->lock);
}

/* What the kernel said of a batch's operations: pages that did not land. Requires: lock. */
static void batch_results(struct kvt_nvme *nvme, struct kvt_nvme_batch *batch)
{
    for (uint32_t i = 0; i < batch->op_count; i++) {
        const struct kvt_nvme_batch_op *mine = &batch->ops[i];
        struct kvt_nvme_drive *drive =
            &nvme->drives[kvt_store_of(batch->write->pages[mine->first].place.slot)];
        drive->sync_wanted = true;
        if (mine->op.status == KVT_OK) {
            continue;
        }
        uint64_t end = 0;
        for (uint32_t k = mine->first; k < mine->first + mine->count; k++) {
            end += kvt_nvme_slot_size(nvme, batch->write->pages[k].place.slot);
            batch->pages[k].landed = end <= mine->op.bytes_ok;
        }
        batch->status = KVT_ERR_IO;
        if (mine->op.status != KVT_ERR_CANCELLED) {
            nvme->write_errors++;
            kvt_nvme_write_failed(nvme, false, "a write failed", mine->op.error);
        }
    }
}

/* True: every file that has pages of the round was flushed or said that it could not. False: the
 * tier closes and gave up waiting. Requires: lock. Drops and retakes it. */
static bool round_sync(struct kvt_nvme *nvme, const struct round *round)
{
    for (uint32_t i = 0; i < nvme->drive_count; i++) {
        nvme->drives[i].sync_wanted = nvme->drives[i].sync_good = false;
    }
    struct kvt_nvme_batch *batch = nvme->batch_head;
    for (uint32_t i = 0; i < round->batches; i++, batch = batch->next) {
        batch_results(nvme, batch);
    }
    KVT_CRASH_POINT("before_data_sync");
    for (uint32_t i = 0; i < nvme->drive_count; i++) {
        struct kvt_nvme_drive *drive = &nvme->drives[i];
        if (drive->sync_wanted) {
            drive->sync_op = (struct kvt_io_op){.kind = KVT_IO_FLUSH,
                                                .file = drive->file,
                                                .late_ns = UINT64_MAX,
                                                .done = sync_op_done,
                                                .user = nvme};
            struct kvt_io_op *op = &drive->sync_op;
            nvme->syncs_left++;
            kvt_io_submit(nvme->io, &op, 1);
        }
    }
    while (nvme->syncs_left > 0) {
        uint64_t now_ns = kvt_now_ns(&kvt_clock_monotonic);
        if (nvme->closing && now_ns >= nvme->close_ns) {
            return false;
        }
        if (hash_one(nvme)) {
            continue; /* the time is there, and a later round's batches need it */
        }
        (void)kvt_cond_wait(&nvme->cond, &nvme->lock,
                            nvme->closing ? nvme->close_ns - now_ns : UINT64_MAX);
    }
    KVT_CRASH_POINT("after_data_sync");
    return true;
}

/* ---- what goes in ---- */

/* Is the page's parent in the catalog, or in this commit before it? Requires: lock. */
static bool parent_is_in(struct kvt_nvme *nvme, const struct kvt_nvme_batch *batch, uint32_t i)
{
    struct kvt_place place = batch->write->pages[i].parent;
    if (!kvt_place_is(place)) {
        return true;
    }
    const struct kvt_nvme_slot *parent = kvt_nvme_slot_of(nvme, place);
    /* A parent that is still being written was submitted before, and batches end in order: so it is
     * in this round, and whatever of that did not make it is free again already. */
    return parent != NULL && parent->seq == batch->pages[i].parent_seq &&
           parent->seq < batch->pages[i].seq &&
           (parent->state == KVT_SLOT_HELD || parent->state == KVT_SLOT_WRITING);
}

static void page_fill(const struct kvt_nvme_batch *batch, uint32_t i,
                      struct kvt_catalog_page *out_page)
{
    const struct kvt_nvme_page *page = &batch->write->pages[i];
    *out_page = (struct kvt_catalog_page){.seq = batch->pages[i].seq,
                                          .parent = batch->pages[i].parent_seq,
                                          .ns = page->ns,
                                          .place = page->place,
                                          .bytes = page->bytes,
                                          .checksum = batch->pages[i].checksum,
                                          .token_count = page->token_count,
                                          .extra_count = page->extra_count,
                                          .tokens = page->tokens,
                                          .extras = page->extras};
}

/* Adds a batch's good pages to the commit, frees the slots of the others. Requires: lock. */
static void batch_gather(struct kvt_nvme *nvme, struct kvt_nvme_batch *batch, struct round *round)
{
    const struct kvt_nvme_write *write = batch->write;
    uint32_t i = 0;
    for (; i < write->page_count; i++) {
        struct kvt_place place = write->pages[i].place;
        if (!batch->pages[i].landed || !nvme->drives[kvt_store_of(place.slot)].sync_good ||
            !parent_is_in(nvme, batch, i)) {
            break;
        }
        kvt_nvme_slot_at(nvme, place.slot)->checksum = batch->pages[i].checksum;
        page_fill(batch, i, &nvme->commit_pages[round->pages++]);
    }
    batch->good = i;
    for (; i < write->page_count; i++) {
        kvt_nvme_slot_free(nvme, write->pages[i].place.slot);
        batch->status = KVT_ERR_IO;
    }
    for (uint32_t k = 0; k < write->namespace_count; k++) {
        nvme->commit_namespaces[round->namespaces++] = write->namespaces[k];
    }
}

/* Requires: lock. */
static void round_gather(struct kvt_nvme *nvme, struct round *round)
{
    struct kvt_nvme_batch *batch = nvme->batch_head;
    for (uint32_t i = 0; i < round->batches; i++, batch = batch->next) {
        batch_gather(nvme, batch, round);
    }
    uint32_t name = nvme->dying_head;
    for (uint32_t i = 0; i < round->slots; i++) {
        const struct kvt_nvme_slot *slot = kvt_nvme_slot_at(nvme, name);
        nvme->commit_deletes[i] = slot->seq;
        nvme->commit_slots[i] = name;
        name = slot->next;
    }
    for (uint32_t i = round->slots; i < round->deletes; i++) {
        nvme->commit_deletes[i] = nvme->strays[nvme->stray_count - 1 - (i - round->slots)];
    }
}

/* ---- committing ---- */

/* Until the catalog answers, or the tier closes and gives up. Requires: no lock. */
static kvt_status commit_answered(struct kvt_nvme *nvme, const struct kvt_catalog_batch *batch,
                                  int *out_error)
{
    for (;;) {
        kvt_lock_take(&nvme->lock);
        uint64_t now_ns = kvt_now_ns(&kvt_clock_monotonic);
        uint64_t timeout_ns = KVT_NVME_COMMIT_NS;
        if (nvme->closing) {
            uint64_t left_ns = nvme->close_ns > now_ns ? nvme->close_ns - now_ns : 0;
            timeout_ns = left_ns < timeout_ns ? left_ns : timeout_ns;
        }
        kvt_lock_give(&nvme->lock);
        KVT_CRASH_POINT("before_commit");
        kvt_status status = kvt_catalog_commit(nvme->catalog, batch, timeout_ns, out_error);
        KVT_CRASH_POINT("after_commit");
        bool answered = status != KVT_ERR_UNAVAILABLE && status != KVT_ERR_TIMEOUT;
        kvt_lock_take(&nvme->lock);
        bool give_up = false;
        if (answered) {
            kvt_nvme_catalog_answered(nvme);
        } else {
            kvt_nvme_write_failed(nvme, true,
                                  status == KVT_ERR_TIMEOUT
                                      ? "the catalog's process did not answer in time"
                                      : "the catalog's process is not there",
                                  0);
            now_ns = kvt_now_ns(&kvt_clock_monotonic);
            uint64_t until_ns = now_ns + KVT_NVME_RETRY_NS;
            while (now_ns < until_ns && !(nvme->closing && now_ns >= nvme->close_ns)) {
                (void)kvt_cond_wait(&nvme->cond, &nvme->lock, until_ns - now_ns);
                now_ns = kvt_now_ns(&kvt_clock_monotonic);
            }
            give_up = nvme->closing && now_ns >= nvme->close_ns;
        }
        kvt_lock_give(&nvme->lock);
        kvt_nvme_say(nvme);
        if (answered || give_up) {
            return status;
        }
    }
}

/* The catalog has forgotten them: their slots are free again. Requires: lock. */
static void deletes_done(struct kvt_nvme *nvme, struct round *round)
{
    if (round->deletes > 0) {
        KVT_CRASH_POINT("before_slot_reuse");
    }
    for (uint32_t i = 0; i < round->slots; i++) {
        uint32_t name = nvme->commit_slots[i];
        nvme->dying_head = kvt_nvme_slot_at(nvme, name)->next;
        if (nvme->dying_head == KVT_NVME_NONE) {
            nvme->dying_tail = KVT_NVME_NONE;
        }
        kvt_nvme_slot_gone(nvme, name);
    }
    nvme->drops_done += round->slots;
    nvme->stray_count -= round->deletes - round->slots;
    nvme->drop_since_ns = kvt_now_ns(&nvme->clock);
    if (round->deletes > 0) {
        nvme->catalog_full = false;
    }
    round->deletes = round->slots = 0;
    kvt_cond_broadcast(&nvme->cond);
}

/* Pages whose commit failed may be in the catalog all the same: so a delete must be durable before
 * their slots are used again. Requires: lock. */
static void batch_settle(struct kvt_nvme *nvme, struct kvt_nvme_batch *batch, kvt_status status)
{
    const struct kvt_nvme_write *write = batch->write;
    for (uint32_t i = 0; i < batch->good; i++) {
        uint32_t name = write->pages[i].place.slot;
        struct kvt_nvme_slot *slot = kvt_nvme_slot_at(nvme, name);
        if (status == KVT_OK) {
            slot->state = KVT_SLOT_HELD;
            nvme->pages++;
            nvme->written_pages++;
            nvme->written_bytes += write->pages[i].bytes;
        } else if (status == KVT_ERR_LIMIT) {
            kvt_nvme_slot_free(nvme, name);
        } else {
            kvt_nvme_slot_kill(nvme, name);
        }
    }
    if (status != KVT_OK) {
        batch->good = 0;
        batch->status = status;
    }
}

static kvt_status round_commit(struct kvt_nvme *nvme, struct round *round)
{
    struct kvt_catalog_batch all = {.namespaces = nvme->commit_namespaces,
                                    .namespace_count = round->namespaces,
                                    .deletes = nvme->commit_deletes,
                                    .delete_count = round->deletes,
                                    .pages = nvme->commit_pages,
                                    .page_count = round->pages};
    struct kvt_catalog_batch deletes = {.deletes = nvme->commit_deletes,
                                        .delete_count = round->deletes};
    int error = 0;
    kvt_status status = commit_answered(nvme, &all, &error);
    if (status == KVT_ERR_LIMIT && round->deletes > 0) {
        /* No room for records: what goes makes some. */
        status = commit_answered(nvme, &deletes, &error);
        if (status == KVT_OK) {
            kvt_lock_take(&nvme->lock);
            deletes_done(nvme, round);
            kvt_lock_give(&nvme->lock);
            all.delete_count = 0;
            status = commit_answered(nvme, &all, &error);
        }
    }
    kvt_lock_take(&nvme->lock);
    switch (status) {
    case KVT_OK:
        deletes_done(nvme, round);
        break;
    case KVT_ERR_LIMIT:
        nvme->say_catalog_full = !nvme->catalog_full;
        nvme->catalog_full = true;
        nvme->catalog_full_ns = kvt_now_ns(&nvme->clock);
        break;
    case KVT_ERR_UNAVAILABLE:
    case KVT_ERR_TIMEOUT:
        break;
    default:
        nvme->write_errors++;
        kvt_nvme_write_failed(nvme, false,
                              status == KVT_ERR_CORRUPT ? "the catalog is damaged, see kvtier check"
                                                        : "the catalog could not be written",
                              error);
    }
    kvt_lock_give(&nvme->lock);
    return status;
}

/* Takes the round's batches off the queue and tells whose they are. Requires: lock. Drops and
 * retakes it. */
static void round_tell(struct kvt_nvme *nvme, const struct round *round)
{
    for (uint32_t i = 0; i < round->batches; i++) {
        struct kvt_nvme_batch *batch = nvme->batch_head;
        nvme->batch_head = batch->next;
        if (nvme->batch_head == NULL) {
            nvme->batch_tail = NULL;
        }
        struct kvt_nvme_write *write = batch->write;
        write->pages_good = batch->good;
        write->status = batch->status;
        kvt_lock_give(&nvme->lock);
        kvt_free(nvme->mem, batch, batch->block_bytes);
        write->done(write);
        kvt_lock_take(&nvme->lock);
        nvme->batches_finished++;
        kvt_cond_broadcast(&nvme->cond);
    }
}

void kvt_nvme_batches_cancel(struct kvt_nvme *nvme)
{
    while (nvme->batch_head != NULL) {
        struct kvt_nvme_batch *batch = nvme->batch_head;
        struct kvt_nvme_write *write = batch->write;
        nvme->batch_head = batch->next;
        write->pages_good = 0;
        write->status = KVT_ERR_CANCELLED;
        kvt_free(nvme->mem, batch, batch->block_bytes);
        write->done(write);
    }
    nvme->batch_tail = NULL;
}

/* One round. Requires: lock. Drops and retakes it. False: the tier closes and gave up. */
static bool round_run(struct kvt_nvme *nvme, bool probe)
{
    struct round round = round_choose(nvme, probe);
    if (round.batches > 0 && !round_sync(nvme, &round)) {
        return false;
    }
    round_gather(nvme, &round);
    kvt_status status = KVT_OK;
    if (round.pages + round.namespaces + round.deletes > 0 || probe) {
        kvt_lock_give(&nvme->lock);
        status = round_commit(nvme, &round);
        kvt_lock_take(&nvme->lock);
    }
    if (status == KVT_ERR_UNAVAILABLE || status == KVT_ERR_TIMEOUT) {
        return false;
    }
    struct kvt_nvme_batch *batch = nvme->batch_head;
    for (uint32_t i = 0; i < round.batches; i++, batch = batch->next) {
        batch_settle(nvme, batch, status);
    }
    if (probe) {
        kvt_nvme_probe_end(nvme, status == KVT_OK || status == KVT_ERR_LIMIT);
    }
    round_tell(nvme, &round);
    return true;
}

/* ---- the thread ---- */

/* How long to wait when nothing is due. Requires: lock. */
static uint64_t wait_ns(const struct kvt_nvme *nvme, uint64_t drops_ns)
{
    uint64_t wait = drops_ns;
    if (nvme->writing.bad || nvme->reading.bad || nvme->measure != NULL) {
        wait = wait < POLL_NS ? wait : POLL_NS;
    }
    if (nvme->batch_head != NULL) {
        wait = wait < LANDING_NS ? wait : LANDING_NS;
    }
    return wait;
}

/* A drive that hangs says nothing: the clock does. Requires: lock. */
static void hang_check(struct kvt_nvme *nvme)
{
    const struct kvt_nvme_batch *batch = nvme->batch_head;
    if (batch == NULL || batch->landed) {
        return;
    }
    uint64_t moved_ns = nvme->write_moved_ns;
    moved_ns = moved_ns > batch->submitted_ns ? moved_ns : batch->submitted_ns;
    uint64_t now_ns = kvt_now_ns(&nvme->clock);
    if (now_ns > moved_ns && now_ns - moved_ns >= KVT_NVME_WRITE_LATE_NS) {
        kvt_nvme_write_failed(nvme, false, "a write hangs", 0);
    }
}

static bool something_to_say(const struct kvt_nvme *nvme)
{
    return nvme->writing.say_bad || nvme->writing.say_good || nvme->reading.say_bad ||
           nvme->reading.say_good || nvme->say_catalog_full || nvme->say_too_large ||
           (nvme->checksum_unsaid > 0 && kvt_nvme_checksum_due(nvme));
}

/* Is closing done with, or given up? Requires: lock. */
static bool may_end(const struct kvt_nvme *nvme)
{
    if (!nvme->closing) {
        return false;
    }
    bool drops_left = drops_wait(nvme) && !(nvme->close_tried && nvme->writing.bad);
    return (nvme->batch_head == NULL && !drops_left) ||
           kvt_now_ns(&kvt_clock_monotonic) >= nvme->close_ns;
}

void *kvt_nvme_flush_main(void *arg)
{
    struct kvt_nvme *nvme = arg;
    kvt_lock_take(&nvme->lock);
    while (!may_end(nvme)) {
        kvt_nvme_measure_step(nvme);
        kvt_nvme_prepare_step(nvme);
        hang_check(nvme);
        bool probe = kvt_nvme_probe_step(nvme);
        if (something_to_say(nvme)) {
            kvt_lock_give(&nvme->lock);
            kvt_nvme_say(nvme);
            kvt_lock_take(&nvme->lock);
        }
        uint64_t drops_ns = drops_due_ns(nvme);
        if (probe || drops_ns == 0 || batch_is_ready(nvme->batch_head)) {
            nvme->close_tried = nvme->closing;
            (void)round_run(nvme, probe);
            continue;
        }
        if (hash_one(nvme)) {
            continue;
        }
        kvt_lock_give(&nvme->lock);
        kvt_nvme_headers_write(nvme, false);
        kvt_lock_take(&nvme->lock);
        if (!batch_is_ready(nvme->batch_head) && batch_unhashed(nvme) == NULL &&
            !something_to_say(nvme) && !may_end(nvme)) {
            (void)kvt_cond_wait(&nvme->cond, &nvme->lock,
                                nvme->closing ? POLL_NS : wait_ns(nvme, drops_due_ns(nvme)));
        }
    }
    kvt_lock_give(&nvme->lock);
    kvt_nvme_say(nvme);
    return NULL;
}
