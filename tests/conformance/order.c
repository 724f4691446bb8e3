/* Ordering by streams, per-region waits. */
#include "tests/conformance/conf.h"

_Static_assert(KVT_CONF_REGIONS == 4, "a first region, and three more");
#define PAGES 6u
#define TOKENS (PAGES * KVT_CONF_PAGE_TOKENS)

struct scene {
    struct kvt_conf_rig rig;
    struct kvt_conf_gate gate;
    uint32_t tokens[TOKENS + 1], blocks[PAGES * KVT_CONF_PAGE_BLOCKS];
    uint64_t job;
    void *other; /* a second stream */
    uint32_t region;
    _Atomic uint32_t seen;
};

static void scene_begin(struct kvt_conf *conf, struct scene *out)
{
    out->gate = (struct kvt_conf_gate){.then = NULL, .arg = out};
    atomic_init(&out->seen, UINT32_MAX);
    kvt_conf_begin(conf, &out->rig);
    GOOD(out->rig.streams->stream_create(out->rig.engine, &out->other), "stream_create");
    kvt_conf_tokens(out->tokens, TOKENS + 1, 1);
    kvt_conf_blocks(out->blocks, 100, PAGES);
    kvt_conf_wipe(&out->rig, out->blocks, PAGES);
}

static void scene_end(struct scene *s)
{
    kvt_conf_sync(&s->rig, s->rig.stream);
    kvt_conf_sync(&s->rig, s->other);
    s->rig.streams->stream_destroy(s->rig.engine, s->other);
    kvt_conf_end(&s->rig);
}

static void verify_held(struct scene *s)
{
    uint64_t lease = kvt_conf_hit(&s->rig, 0, s->tokens, TOKENS + 1, TOKENS);
    kvt_conf_get(&s->rig, lease, s->tokens, PAGES, 150);
    GOOD(s->rig.entry->release(s->rig.engine, lease), "release");
}

static void paint_all(void *arg)
{
    struct scene *s = arg;
    kvt_conf_paint(&s->rig, s->tokens, PAGES, s->blocks);
}

static void wipe_all(void *arg)
{
    struct scene *s = arg;
    kvt_conf_wipe(&s->rig, s->blocks, PAGES);
}

/* How many pages of the region are right when this runs. */
static void look_at_region(void *arg)
{
    struct scene *s = arg;
    atomic_store(&s->seen, kvt_conf_right(&s->rig, s->region, s->tokens, 0, PAGES, s->blocks));
}

static void producer(struct kvt_conf *conf)
{
    struct scene s;
    scene_begin(conf, &s);
    s.gate.then = paint_all;
    kvt_conf_shut(&s.rig, s.rig.stream, &s.gate);
    kvt_save save = kvt_conf_saving(&s.rig, s.tokens, PAGES, s.blocks);
    GOOD(s.rig.entry->save(s.rig.engine, &save, &s.job), "save");
    kvt_conf_sleep(KVT_CONF_HASTE_NS);
    kvt_conf_pass(&s.gate);
    GOOD(kvt_conf_finish(&s.rig, s.job).status, "save");
    verify_held(&s);
    scene_end(&s);
}

static void destination(struct kvt_conf *conf)
{
    struct scene s;
    scene_begin(conf, &s);
    kvt_conf_put(&s.rig, s.tokens, PAGES, 0);
    uint64_t lease = kvt_conf_hit(&s.rig, 0, s.tokens, TOKENS + 1, TOKENS);
    s.region = 0;
    s.gate.then = look_at_region;
    kvt_conf_shut(&s.rig, s.rig.stream, &s.gate);
    kvt_restore restore = kvt_conf_restoring(&s.rig, lease, PAGES, s.blocks);
    GOOD(s.rig.entry->restore(s.rig.engine, &restore, &s.job), "restore");
    kvt_conf_sleep(KVT_CONF_HASTE_NS);
    kvt_conf_pass(&s.gate);
    GOOD(kvt_conf_finish(&s.rig, s.job).status, "restore");
    NEED(atomic_load(&s.seen) == 0, "blocks were written while the stream's work used them");
    NEED(kvt_conf_right(&s.rig, KVT_CONF_REGIONS, s.tokens, 0, PAGES, s.blocks) == PAGES,
         "restored bytes are wrong");
    GOOD(s.rig.entry->release(s.rig.engine, lease), "release");
    scene_end(&s);
}

/* Blocks are written anew behind wait_region() on every region: the save has the old bytes. */
static void reuse(struct kvt_conf *conf)
{
    struct scene s;
    scene_begin(conf, &s);
    kvt_conf_paint(&s.rig, s.tokens, PAGES, s.blocks);
    kvt_conf_shut(&s.rig, s.rig.stream, &s.gate);
    kvt_save save = kvt_conf_saving(&s.rig, s.tokens, PAGES, s.blocks);
    GOOD(s.rig.entry->save(s.rig.engine, &save, &s.job), "save");
    for (uint32_t region = 0; region < KVT_CONF_REGIONS; region++) {
        GOOD(s.rig.entry->wait_region(s.rig.engine, s.job, region, s.other), "wait_region");
    }
    WANT(s.rig.entry->wait_region(s.rig.engine, s.job, KVT_CONF_REGIONS, s.other), KVT_ERR_INVAL,
         "wait_region on a region that is not there");
    GOOD(s.rig.streams->enqueue(s.rig.engine, s.other, wipe_all, &s), "enqueue");
    kvt_conf_sleep(KVT_CONF_HASTE_NS);
    kvt_conf_pass(&s.gate);
    GOOD(kvt_conf_finish(&s.rig, s.job).status, "save");
    kvt_conf_sync(&s.rig, s.other);
    verify_held(&s);
    scene_end(&s);
}

static void region_wait(struct kvt_conf *conf)
{
    struct scene s;
    scene_begin(conf, &s);
    kvt_conf_put(&s.rig, s.tokens, PAGES, 0);
    uint64_t lease = kvt_conf_hit(&s.rig, 0, s.tokens, TOKENS + 1, TOKENS);
    for (s.region = 0; s.region < KVT_CONF_REGIONS; s.region++) {
        kvt_conf_wipe(&s.rig, s.blocks, PAGES);
        kvt_conf_shut(&s.rig, s.rig.stream, &s.gate);
        kvt_restore restore = kvt_conf_restoring(&s.rig, lease, PAGES, s.blocks);
        GOOD(s.rig.entry->restore(s.rig.engine, &restore, &s.job), "restore");
        GOOD(s.rig.entry->wait_region(s.rig.engine, s.job, s.region, s.other), "wait_region");
        GOOD(s.rig.streams->enqueue(s.rig.engine, s.other, look_at_region, &s), "enqueue");
        kvt_conf_sleep(KVT_CONF_HASTE_NS / 3);
        kvt_conf_pass(&s.gate);
        kvt_conf_sync(&s.rig, s.other);
        NEED(atomic_load(&s.seen) == PAGES, "a stream that waited for region %u ran before it",
             s.region);
        GOOD(kvt_conf_finish(&s.rig, s.job).status, "restore");
        kvt_conf_sync(&s.rig, s.rig.stream);
    }
    GOOD(s.rig.entry->release(s.rig.engine, lease), "release");
    scene_end(&s);
}

/* The first region's wait ends while three more are to be copied, so that the job goes on for three
 * delays more. A machine that is busy may be late to look: slower copies are tried too. */
static void region_alone(struct kvt_conf *conf)
{
    struct scene s;
    bool alone = false;
    if ((conf->entry->caps_offered & KVT_CAP_REGION_WAIT) == 0) {
        kvt_conf_skip("the plug-in offers no per-region waits");
    }
    scene_begin(conf, &s);
    if (s.rig.faults == NULL) {
        kvt_conf_skip("the plug-in offers no " KVT_EXT_CPU_FAULT);
    }
    kvt_conf_put(&s.rig, s.tokens, PAGES, 0);
    uint64_t lease = kvt_conf_hit(&s.rig, 0, s.tokens, TOKENS + 1, TOKENS);
    for (uint64_t delay_ns = 40 * KVT_CONF_MS; !alone && delay_ns <= 1000 * KVT_CONF_MS;
         delay_ns *= 5) {
        kvt_job_result result = KVT_JOB_RESULT_INIT;
        GOOD(s.rig.faults->set(s.rig.engine, KVT_FAULT_COPY_DELAY_NS, delay_ns), "set");
        kvt_restore restore = kvt_conf_restoring(&s.rig, lease, PAGES, s.blocks);
        GOOD(s.rig.entry->restore(s.rig.engine, &restore, &s.job), "restore");
        GOOD(s.rig.entry->wait_region(s.rig.engine, s.job, 0, s.other), "wait_region");
        kvt_conf_sync(&s.rig, s.other);
        GOOD(s.rig.entry->poll(s.rig.engine, s.job, 2 * delay_ns, &result), "poll");
        alone = result.state == KVT_JOB_RUNNING;
        if (alone) {
            GOOD(kvt_conf_finish(&s.rig, s.job).status, "restore");
        }
    }
    NEED(alone, "wait_region on the first region ends only when the whole job is done");
    GOOD(s.rig.faults->set(s.rig.engine, KVT_FAULT_COPY_DELAY_NS, 0), "set");
    GOOD(s.rig.entry->release(s.rig.engine, lease), "release");
    scene_end(&s);
}

static void count_up(void *arg)
{
    struct scene *s = arg;
    atomic_fetch_add(&s->seen, 1);
}

static void streams(struct kvt_conf *conf)
{
    struct scene s;
    void *event = NULL;
    scene_begin(conf, &s);
    atomic_store(&s.seen, 0);
    GOOD(s.rig.streams->event_create(s.rig.engine, &event), "event_create");
    kvt_conf_shut(&s.rig, s.rig.stream, &s.gate);
    GOOD(s.rig.streams->enqueue(s.rig.engine, s.rig.stream, count_up, &s), "enqueue");
    GOOD(s.rig.streams->record(s.rig.engine, event, s.rig.stream), "record");
    GOOD(s.rig.streams->wait(s.rig.engine, s.other, event), "wait");
    GOOD(s.rig.streams->enqueue(s.rig.engine, s.other, count_up, &s), "enqueue");
    WANT(s.rig.streams->sync(s.rig.engine, s.other, 5 * KVT_CONF_MS), KVT_ERR_TIMEOUT,
         "sync of a stream that waits for another");
    NEED(atomic_load(&s.seen) == 0, "work ran before what stands in front of it");
    kvt_conf_pass(&s.gate);
    kvt_conf_sync(&s.rig, s.other);
    NEED(atomic_load(&s.seen) == 2, "a stream did not wait for an event");
    s.rig.streams->event_destroy(s.rig.engine, event);
    scene_end(&s);
}

const struct kvt_conf_clause kvt_conf_order_clauses[] = {
    {"order.streams", "streams run in order; events order one behind another", streams},
    {"order.producer", "save waits for the stream that produces the bytes", producer},
    {"order.destination", "restore waits for the stream that still uses the blocks", destination},
    {"order.reuse", "blocks may be reused behind wait_region on every region", reuse},
    {"order.region_wait", "a stream that waited for a region finds it copied", region_wait},
    {"order.region_alone", "wait_region waits for one region only", region_alone},
    {NULL, NULL, NULL}};
