/* Life cycle: busy, quiesce, several engines, threads, fork. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/conformance/conf.h"

#define PAGES 6u
#define TOKENS (PAGES * KVT_CONF_PAGE_TOKENS)
#define THREADS 4u
#define ROUNDS 25u
#define THREAD_BLOCKS (KVT_CONF_BLOCKS / THREADS)

static void busy_job(struct kvt_conf *conf)
{
    struct kvt_conf_rig rig;
    struct kvt_conf_gate gate = {.then = NULL};
    uint32_t tokens[TOKENS + 1], blocks[PAGES * KVT_CONF_PAGE_BLOCKS];
    uint64_t job = 0;
    kvt_conf_begin(conf, &rig);
    kvt_conf_tokens(tokens, TOKENS + 1, 1);
    kvt_conf_blocks(blocks, 0, PAGES);
    kvt_conf_paint(&rig, tokens, PAGES, blocks);
    kvt_conf_shut(&rig, rig.stream, &gate);
    kvt_save save = kvt_conf_saving(&rig, tokens, PAGES, blocks);
    GOOD(rig.entry->save(rig.engine, &save, &job), "save");
    WANT(rig.entry->unbind(rig.engine, rig.binding), KVT_ERR_BUSY, "unbind while a job uses it");
    WANT(rig.entry->quiesce(rig.engine, KVT_CONF_MS), KVT_ERR_TIMEOUT, "quiesce beside a job");
    WANT(rig.entry->close(rig.engine), KVT_ERR_BUSY, "close while a job runs");
    kvt_conf_pass(&gate);
    GOOD(kvt_conf_finish(&rig, job).status, "a save beside a close that was refused");
    uint64_t lease = kvt_conf_hit(&rig, 0, tokens, TOKENS + 1, TOKENS);
    kvt_conf_get(&rig, lease, tokens, PAGES, 100);
    kvt_conf_sync(&rig, rig.stream);
    kvt_conf_end(&rig); /* with a lease: close ends it */
}

static void busy_things(struct kvt_conf *conf)
{
    struct kvt_conf_rig rig;
    void *event = NULL;
    uint32_t tokens[TOKENS + 1];
    kvt_conf_begin(conf, &rig);
    GOOD(rig.streams->event_create(rig.engine, &event), "event_create");
    GOOD(rig.entry->quiesce(rig.engine, KVT_CONF_WAIT_NS), "quiesce");
    WANT(rig.entry->close(rig.engine), KVT_ERR_BUSY, "close with a binding");
    kvt_conf_tokens(tokens, TOKENS + 1, 1);
    kvt_conf_put(&rig, tokens, PAGES, 0);
    GOOD(rig.entry->unbind(rig.engine, rig.binding), "unbind");
    rig.binding = 0;
    GOOD(rig.entry->quiesce(rig.engine, KVT_CONF_WAIT_NS), "quiesce");
    WANT(rig.entry->close(rig.engine), KVT_ERR_BUSY, "close with a stream");
    rig.streams->stream_destroy(rig.engine, rig.stream);
    rig.stream = NULL;
    WANT(rig.entry->close(rig.engine), KVT_ERR_BUSY, "close with an event");
    rig.streams->event_destroy(rig.engine, event);
    kvt_conf_end(&rig);
}

static void two_engines(struct kvt_conf *conf)
{
    struct kvt_conf_rig one, two;
    uint32_t tokens[TOKENS + 1], others[TOKENS + 1];
    kvt_conf_begin(conf, &one);
    kvt_conf_begin(conf, &two);
    kvt_conf_tokens(tokens, TOKENS + 1, 1);
    kvt_conf_tokens(others, TOKENS + 1, 2);
    kvt_conf_put(&one, tokens, PAGES, 0);
    kvt_conf_put(&two, others, PAGES, 0);
    uint64_t lease = kvt_conf_hit(&one, 0, tokens, TOKENS + 1, TOKENS);
    kvt_conf_get(&one, lease, tokens, PAGES, 100);
    kvt_conf_end(&one);
    lease = kvt_conf_hit(&two, 0, others, TOKENS + 1, TOKENS);
    kvt_conf_get(&two, lease, others, PAGES, 100);
    kvt_conf_end(&two);
}

/* In the forked child: nothing may be touched, everything says PROCESS. */
static void in_child(struct kvt_conf_rig *rig, uint64_t lease, const kvt_lease_token *token)
{
    const kvt_plugin_entry *e = rig->entry;
    uint32_t tokens[TOKENS + 1], blocks[KVT_CONF_PAGE_BLOCKS];
    uint64_t handle = 0;
    kvt_conf_tokens(tokens, TOKENS + 1, 1);
    kvt_conf_blocks(blocks, 0, 1);
    kvt_lookup lookup = kvt_conf_ask(0, tokens, TOKENS + 1);
    kvt_lookup_result found = KVT_LOOKUP_RESULT_INIT;
    kvt_restore restore = kvt_conf_restoring(rig, lease, 1, blocks);
    kvt_save save = kvt_conf_saving(rig, tokens, 1, blocks);
    kvt_job_result result = KVT_JOB_RESULT_INIT;
    kvt_report report = KVT_REPORT_INIT;
    kvt_stats stats = {.struct_size = sizeof(stats)};
    WANT(e->lookup(rig->engine, &lookup, &found), KVT_ERR_PROCESS, "lookup after fork");
    WANT(e->release(rig->engine, lease), KVT_ERR_PROCESS, "release after fork");
    WANT(e->lease_import(rig->engine, token, &handle), KVT_ERR_PROCESS, "import after fork");
    WANT(e->restore(rig->engine, &restore, &handle), KVT_ERR_PROCESS, "restore after fork");
    WANT(e->save(rig->engine, &save, &handle), KVT_ERR_PROCESS, "save after fork");
    WANT(e->poll(rig->engine, 1, 0, &result), KVT_ERR_PROCESS, "poll after fork");
    WANT(e->cancel(rig->engine, 1), KVT_ERR_PROCESS, "cancel after fork");
    WANT(e->wait_region(rig->engine, 1, 0, rig->stream), KVT_ERR_PROCESS, "wait after fork");
    WANT(e->report(rig->engine, &report), KVT_ERR_PROCESS, "report after fork");
    WANT(e->flush(rig->engine, 0), KVT_ERR_PROCESS, "flush after fork");
    WANT(e->stats(rig->engine, &stats), KVT_ERR_PROCESS, "stats after fork");
    WANT(e->unbind(rig->engine, rig->binding), KVT_ERR_PROCESS, "unbind after fork");
    WANT(e->quiesce(rig->engine, 0), KVT_ERR_PROCESS, "quiesce after fork");
    WANT(e->close(rig->engine), KVT_ERR_PROCESS, "close after fork");
}

static void forked(struct kvt_conf *conf)
{
    struct kvt_conf_rig rig;
    uint32_t tokens[TOKENS + 1];
    int status = 0;
    kvt_lease_token token = {.struct_size = sizeof(token)};
    kvt_conf_begin(conf, &rig);
    kvt_conf_tokens(tokens, TOKENS + 1, 1);
    kvt_conf_put(&rig, tokens, PAGES, 0);
    uint64_t lease = kvt_conf_hit(&rig, 0, tokens, TOKENS + 1, TOKENS);
    GOOD(rig.entry->lease_export(rig.engine, lease, &token), "lease_export");
    pid_t child = fork();
    NEED(child >= 0, "no process");
    if (child == 0) {
        in_child(&rig, lease, &token);
        _exit(0);
    }
    NEED(waitpid(child, &status, 0) == child, "no child");
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1); /* the child said why */
    }
    kvt_conf_get(&rig, lease, tokens, PAGES, 100);
    kvt_conf_end(&rig);
}

/* ---- threads ---- */

struct worker {
    struct kvt_conf_rig *rig;
    uint32_t number;
    pthread_t thread;
    uint64_t handle;
    _Atomic uint32_t *winners;
};

static void run_threads(struct kvt_conf_rig *rig, void *(*body)(void *), uint64_t handle,
                        _Atomic uint32_t *winners)
{
    struct worker workers[THREADS];
    for (uint32_t i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.rig = rig, .number = i, .handle = handle, .winners = winners};
        NEED(pthread_create(&workers[i].thread, NULL, body, &workers[i]) == 0, "no thread");
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        NEED(pthread_join(workers[i].thread, NULL) == 0, "no thread");
    }
}

/* Each thread its own prompts, whose first half all have in common. */
static void *mixed_body(void *arg)
{
    struct worker *w = arg;
    uint32_t tokens[TOKENS + 1];
    for (uint32_t round = 0; round < ROUNDS; round++) {
        uint64_t id = (uint64_t)w->number * 1000 + round + 1;
        kvt_conf_tokens(tokens, TOKENS + 1, 7);
        kvt_conf_tokens(tokens + TOKENS / 2, TOKENS / 2 + 1, w->number * 100 + round / 2 + 10);
        kvt_conf_put(w->rig, tokens, PAGES, w->number * THREAD_BLOCKS);
        uint64_t lease = kvt_conf_hit(w->rig, id, tokens, TOKENS + 1, TOKENS);
        kvt_conf_get(w->rig, lease, tokens, PAGES,
                     w->number * THREAD_BLOCKS + PAGES * KVT_CONF_PAGE_BLOCKS);
        if (round % 2 != 0) {
            GOOD(w->rig->entry->release(w->rig->engine, lease), "release");
        }
        kvt_report report = KVT_REPORT_INIT;
        report.request_id = id;
        report.prompt_tokens = TOKENS + 1;
        report.computed_tokens = 1;
        GOOD(w->rig->entry->report(w->rig->engine, &report), "report");
        (void)kvt_conf_stats(w->rig);
    }
    return NULL;
}

static void mixed(struct kvt_conf *conf)
{
    struct kvt_conf_rig rig;
    kvt_conf_begin(conf, &rig);
    run_threads(&rig, mixed_body, 0, NULL);
    kvt_stats stats = kvt_conf_stats(&rig);
    NEED(stats.requests_reported == THREADS * ROUNDS, "requests got lost");
    NEED(stats.conservation_breaks == 0, "numbers do not add up with several threads");
    NEED(stats.leases == 0 && stats.jobs_running == 0, "a gauge did not come down");
    kvt_conf_gaps(&rig);
    kvt_conf_end(&rig);
}

static void *same_body(void *arg)
{
    struct worker *w = arg;
    uint32_t tokens[TOKENS + 1];
    for (uint32_t round = 0; round < ROUNDS; round++) {
        kvt_conf_tokens(tokens, TOKENS + 1, round);
        kvt_conf_put(w->rig, tokens, PAGES, w->number * THREAD_BLOCKS);
    }
    return NULL;
}

static void same_prompt(struct kvt_conf *conf)
{
    struct kvt_conf_rig rig;
    uint32_t tokens[TOKENS + 1];
    kvt_conf_begin(conf, &rig);
    run_threads(&rig, same_body, 0, NULL);
    NEED(kvt_conf_stats(&rig).pages == (uint64_t)ROUNDS * PAGES, "pages are kept more than once");
    for (uint32_t round = 0; round < ROUNDS; round++) {
        kvt_conf_tokens(tokens, TOKENS + 1, round);
        uint64_t lease = kvt_conf_hit(&rig, 0, tokens, TOKENS + 1, TOKENS);
        kvt_conf_get(&rig, lease, tokens, PAGES, 0);
        GOOD(rig.entry->release(rig.engine, lease), "release");
    }
    kvt_conf_end(&rig);
}

static void *release_body(void *arg)
{
    struct worker *w = arg;
    kvt_status status = w->rig->entry->release(w->rig->engine, w->handle);
    NEED(status == KVT_OK || status == KVT_ERR_STALE, "release answered %s", kvt_conf_name(status));
    atomic_fetch_add(w->winners, status == KVT_OK);
    return NULL;
}

static void *poll_body(void *arg)
{
    struct worker *w = arg;
    kvt_job_result result = KVT_JOB_RESULT_INIT;
    kvt_status status = w->rig->entry->poll(w->rig->engine, w->handle, KVT_CONF_WAIT_NS, &result);
    NEED(status == KVT_OK || status == KVT_ERR_STALE, "poll answered %s", kvt_conf_name(status));
    atomic_fetch_add(w->winners, status == KVT_OK && result.state == KVT_JOB_DONE);
    return NULL;
}

static void races(struct kvt_conf *conf)
{
    struct kvt_conf_rig rig;
    uint32_t tokens[TOKENS + 1], blocks[PAGES * KVT_CONF_PAGE_BLOCKS];
    kvt_conf_begin(conf, &rig);
    kvt_conf_tokens(tokens, TOKENS + 1, 1);
    kvt_conf_put(&rig, tokens, PAGES, 0);
    kvt_conf_blocks(blocks, 100, PAGES);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        _Atomic uint32_t winners = 0;
        uint64_t job = 0;
        uint64_t lease = kvt_conf_hit(&rig, 0, tokens, TOKENS + 1, TOKENS);
        kvt_restore restore = kvt_conf_restoring(&rig, lease, PAGES, blocks);
        GOOD(rig.entry->restore(rig.engine, &restore, &job), "restore");
        run_threads(&rig, poll_body, job, &winners);
        NEED(atomic_load(&winners) == 1, "%u threads were told of the same end",
             atomic_load(&winners));
        atomic_store(&winners, 0);
        run_threads(&rig, release_body, lease, &winners);
        NEED(atomic_load(&winners) == 1, "%u threads released the same lease",
             atomic_load(&winners));
    }
    kvt_conf_end(&rig);
}

const struct kvt_conf_clause kvt_conf_life_clauses[] = {
    {"life.busy_job", "unbind and close are BUSY, quiesce times out, beside a job", busy_job},
    {"life.busy_things", "close is BUSY with bindings, streams, events; frees nothing",
     busy_things},
    {"life.two_engines", "several engines in one process stand by themselves", two_engines},
    {"life.fork", "after fork every call in the child answers PROCESS", forked},
    {"thread.mixed", "several threads save, look up, restore and report at once", mixed},
    {"thread.same_prompt", "several threads save the same: it is kept once", same_prompt},
    {"thread.races", "a lease is released once, an end told once, to one thread", races},
    {NULL, NULL, NULL}};
