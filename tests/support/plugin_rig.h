/*
 * What tests of the plug-in share: the library as an engine loads it (dlopen of KVT_PLUGIN), a host
 * that counts memory and drives the clock, and one engine with painted memory (cache_rig.h).
 */
#ifndef KVT_TEST_PLUGIN_RIG_H
#define KVT_TEST_PLUGIN_RIG_H

#include "kvt_engine.h"
#include "tests/support/cache_rig.h"

#define KVT_PLUG_PAGE_TOKENS 16u
#define KVT_PLUG_REGIONS 2u

struct kvt_plug {
    void *library;
    const kvt_plugin_entry *entry;
    kvt_host host;               /* given to open */
    struct kvt_rig_cache memory; /* its hooks and counters, and its clock; no cache */
    _Atomic uint32_t log_lines;
    kvt_field fields[4]; /* the required ones */
    kvt_open_config config;
    char why[512];
};

/* Loads the library; exits with 77 where there is none. Called once, from main. */
void kvt_plug_load(void);
/* A host, and a config that opens. */
void kvt_plug_init(struct kvt_plug *plug);
/* Fails the test unless all memory came back. */
void kvt_plug_fini(struct kvt_plug *plug);

/* An engine that is bound, with a stream. */
struct kvt_plug_engine {
    struct kvt_plug *plug;
    const kvt_plugin_entry *entry;
    kvt_engine *engine;
    const kvt_cpu_stream_ext *streams;
    const kvt_cpu_fault_ext *faults;
    struct kvt_rig_engine memory;
    kvt_region regions[KVT_PLUG_REGIONS];
    kvt_layout layout;
    uint64_t binding;
    void *stream;
};
void kvt_plug_open(struct kvt_plug_engine *out, struct kvt_plug *plug);
void kvt_plug_close(struct kvt_plug_engine *engine);
/* The same in two steps, for tests that bind themselves. */
void kvt_plug_open_unbound(struct kvt_plug_engine *out, struct kvt_plug *plug);
void kvt_plug_close_unbound(struct kvt_plug_engine *engine);

/* Requests that are good. */
kvt_lookup kvt_plug_lookup(uint64_t request_id, const uint32_t *tokens, uint64_t token_count);
kvt_save kvt_plug_save(const struct kvt_plug_engine *engine, const uint32_t *tokens,
                       uint64_t token_count, const uint32_t *blocks);
kvt_restore kvt_plug_restore(const struct kvt_plug_engine *engine, uint64_t lease,
                             uint64_t token_count, const uint32_t *blocks);
/* Calls that must succeed. */
kvt_job_result kvt_plug_finish(struct kvt_plug_engine *engine, uint64_t job);
void kvt_plug_put(struct kvt_plug_engine *engine, const uint32_t *tokens, uint32_t pages);
/* Lookup, restore, verify, release; the pages that came back. */
uint32_t kvt_plug_get(struct kvt_plug_engine *engine, const uint32_t *tokens, uint64_t token_count);
kvt_stats kvt_plug_stats(struct kvt_plug_engine *engine);

#endif
