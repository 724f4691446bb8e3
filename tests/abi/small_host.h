/*
 * A host in a few lines, for tests of what is compiled from another version's header: include that
 * header before, or get today's. Everything fails the test where it does not succeed.
 */
#ifndef KVT_TEST_SMALL_HOST_H
#define KVT_TEST_SMALL_HOST_H

#include <check.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kvt_engine.h"
#include "tests/support/test_expect.h"

#define SMALL_PAGE_TOKENS 16u
#define SMALL_BLOCK_TOKENS 8u
#define SMALL_PAGES 4u
#define SMALL_TOKENS (SMALL_PAGES * SMALL_PAGE_TOKENS)
#define SMALL_PROMPT_BLOCKS (SMALL_TOKENS / SMALL_BLOCK_TOKENS)
#define SMALL_BLOCKS (2 * SMALL_PROMPT_BLOCKS) /* to save from, and to restore into */
#define SMALL_REGIONS 2u
#define SMALL_BLOCK_BYTES 64u
#define SMALL_WAIT_NS UINT64_C(60000000000)

struct small_host {
    void *library;
    const kvt_plugin_entry *entry;
    kvt_engine *engine;
    const kvt_cpu_stream_ext *streams;
    void *stream;
    uint64_t binding;
    kvt_host host;
    kvt_field fields[4];
    char why[256];
    unsigned char memory[SMALL_REGIONS][SMALL_BLOCKS][SMALL_BLOCK_BYTES];
    uint32_t tokens[SMALL_TOKENS + 1];
};

/* A path, or NULL: the one that KVT_PLUGIN names, without which the test is skipped. */
static inline void small_load(struct small_host *small, const char *path)
{
    memset(small, 0, sizeof(*small));
    path = path != NULL ? path : getenv("KVT_PLUGIN");
    if (path == NULL) {
        (void)printf("KVT_PLUGIN does not name the plug-in\n");
        exit(77);
    }
    small->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (small->library == NULL) {
        ck_abort_msg("%s", dlerror());
    }
    small->entry = dlsym(small->library, KVT_PLUGIN_ENTRY_NAME);
    ck_assert_ptr_nonnull(small->entry);
    EXPECT(KVT_HAS(kvt_plugin_entry, small->entry, get_extension));
    small->host = (kvt_host)KVT_HOST_INIT;
    small->host.caps_offered = small->host.caps_required = KVT_CAP_CPU_DEVICE;
    small->fields[0] = (kvt_field){KVT_FIELD_WEIGHTS, 0, "0123456789abcdef", 16};
    small->fields[1] = (kvt_field){KVT_FIELD_KV_DTYPE, 0, "f32", 3};
    small->fields[2] = (kvt_field){KVT_FIELD_ROPE, 0, NULL, 0};
    small->fields[3] = (kvt_field){KVT_FIELD_LAYOUT, 0, "small", 5};
    for (uint32_t i = 0; i <= SMALL_TOKENS; i++) {
        small->tokens[i] = 1000 + i;
    }
}

static inline kvt_open_config small_config(const struct small_host *small)
{
    kvt_open_config config = KVT_OPEN_CONFIG_INIT;
    config.page_tokens = SMALL_PAGE_TOKENS;
    config.fields = small->fields;
    config.field_count = 4;
    config.host_bytes = 1u << 20;
    return config;
}

static inline void small_open(struct small_host *small)
{
    kvt_open_config config = small_config(small);
    kvt_status status =
        small->entry->open(&small->host, &config, &small->engine, small->why, sizeof(small->why));
    ck_assert_msg(status == KVT_OK, "open answered %d: %s", status, small->why);
    small->streams = small->entry->get_extension(small->engine, KVT_EXT_CPU_STREAM);
    ck_assert_ptr_nonnull(small->streams);
    ck_assert_int_eq(small->streams->stream_create(small->engine, &small->stream), KVT_OK);
    kvt_region regions[SMALL_REGIONS];
    memset(regions, 0, sizeof(regions));
    for (uint32_t r = 0; r < SMALL_REGIONS; r++) {
        regions[r].struct_size = (uint32_t)sizeof(kvt_region);
        regions[r].memory_kind = KVT_MEMORY_CPU;
        regions[r].base = (uint64_t)(uintptr_t)small->memory[r];
        regions[r].block_bytes = regions[r].stride_bytes = SMALL_BLOCK_BYTES;
    }
    kvt_layout layout = KVT_LAYOUT_INIT;
    layout.block_tokens = SMALL_BLOCK_TOKENS;
    layout.block_count = SMALL_BLOCKS;
    layout.regions = regions;
    layout.region_count = SMALL_REGIONS;
    status =
        small->entry->bind(small->engine, &layout, &small->binding, small->why, sizeof(small->why));
    ck_assert_msg(status == KVT_OK, "bind answered %d: %s", status, small->why);
}

static inline kvt_lookup small_lookup(const struct small_host *small, uint64_t request_id)
{
    kvt_lookup lookup = KVT_LOOKUP_INIT;
    lookup.request_id = request_id;
    lookup.tokens = small->tokens;
    lookup.token_count = SMALL_TOKENS + 1;
    return lookup;
}

static inline void small_finish(struct small_host *small, uint64_t job)
{
    kvt_job_result result = KVT_JOB_RESULT_INIT;
    ck_assert_int_eq(small->entry->poll(small->engine, job, SMALL_WAIT_NS, &result), KVT_OK);
    ck_assert_uint_eq(result.state, KVT_JOB_DONE);
    ck_assert_int_eq(result.status, KVT_OK);
    ck_assert_uint_eq(result.tokens_good, SMALL_TOKENS);
}

static inline void small_save(struct small_host *small)
{
    uint32_t blocks[SMALL_PROMPT_BLOCKS];
    for (uint32_t b = 0; b < SMALL_PROMPT_BLOCKS; b++) {
        blocks[b] = b;
        for (uint32_t r = 0; r < SMALL_REGIONS; r++) {
            memset(small->memory[r][b], (int)(1 + r * SMALL_PROMPT_BLOCKS + b), SMALL_BLOCK_BYTES);
        }
    }
    uint64_t job = 0;
    kvt_save save = KVT_SAVE_INIT;
    save.binding = small->binding;
    save.request_id = 1;
    save.tokens = small->tokens;
    save.token_count = SMALL_TOKENS;
    save.blocks = blocks;
    save.block_count = SMALL_PROMPT_BLOCKS;
    save.stream = small->stream;
    ck_assert_int_eq(small->entry->save(small->engine, &save, &job), KVT_OK);
    small_finish(small, job);
}

/* Into the second half of the blocks, which then hold what the first half held at save. */
static inline void small_restore(struct small_host *small, const kvt_lookup_result *found)
{
    uint32_t blocks[SMALL_PROMPT_BLOCKS];
    for (uint32_t b = 0; b < SMALL_PROMPT_BLOCKS; b++) {
        blocks[b] = SMALL_BLOCKS - 1 - b;
    }
    uint64_t job = 0;
    kvt_restore restore = KVT_RESTORE_INIT;
    restore.binding = small->binding;
    restore.lease = found->lease;
    restore.token_count = found->matched_tokens;
    restore.blocks = blocks;
    restore.block_count = SMALL_PROMPT_BLOCKS;
    restore.stream = small->stream;
    /* The control: the bytes are not there before. */
    EXPECT(memcmp(small->memory[0][0], small->memory[0][blocks[0]], SMALL_BLOCK_BYTES) != 0);
    ck_assert_int_eq(small->entry->restore(small->engine, &restore, &job), KVT_OK);
    small_finish(small, job);
    for (uint32_t b = 0; b < SMALL_PROMPT_BLOCKS; b++) {
        for (uint32_t r = 0; r < SMALL_REGIONS; r++) {
            EXPECT(memcmp(small->memory[r][b], small->memory[r][blocks[b]], SMALL_BLOCK_BYTES) ==
                   0);
        }
    }
}

/* Everything that an engine does: a miss, a save, a hit, its bytes, the account. */
static inline void small_course(struct small_host *small)
{
    kvt_lookup lookup = small_lookup(small, 7);
    kvt_lookup_result found = KVT_LOOKUP_RESULT_INIT;
    ck_assert_int_eq(small->entry->lookup(small->engine, &lookup, &found), KVT_OK);
    ck_assert_uint_eq(found.answer, KVT_ANSWER_MISS);
    small_save(small);
    lookup.request_id = 8;
    ck_assert_int_eq(small->entry->lookup(small->engine, &lookup, &found), KVT_OK);
    ck_assert_uint_eq(found.answer, KVT_ANSWER_HIT);
    ck_assert_uint_eq(found.matched_tokens, SMALL_TOKENS);
    small_restore(small, &found);
    for (uint64_t id = 7; id <= 8; id++) {
        kvt_report report = KVT_REPORT_INIT;
        report.request_id = id;
        report.prompt_tokens = SMALL_TOKENS + 1;
        report.computed_tokens = id == 7 ? SMALL_TOKENS + 1 : 1;
        ck_assert_int_eq(small->entry->report(small->engine, &report), KVT_OK);
    }
    kvt_stats stats;
    memset(&stats, 0xff, sizeof(stats));
    stats.struct_size = (uint32_t)sizeof(stats);
    ck_assert_int_eq(small->entry->stats(small->engine, &stats), KVT_OK);
    ck_assert_uint_eq(stats.struct_size, sizeof(stats));
    ck_assert_uint_eq(stats.requests_reported, 2);
    ck_assert_uint_eq(stats.conservation_breaks, 0);
    ck_assert_uint_eq(stats.tokens_asked, 2 * (SMALL_TOKENS + 1));
    ck_assert_uint_eq(stats.leases, 0);
}

static inline void small_close(struct small_host *small)
{
    ck_assert_int_eq(small->entry->quiesce(small->engine, SMALL_WAIT_NS), KVT_OK);
    small->streams->stream_destroy(small->engine, small->stream);
    ck_assert_int_eq(small->entry->unbind(small->engine, small->binding), KVT_OK);
    ck_assert_int_eq(small->entry->close(small->engine), KVT_OK);
    (void)dlclose(small->library);
}

/* The path of the old plug-in, which lies beside the test. */
static inline const char *small_old_plugin(void)
{
    static char path[4096];
    const char *folder = getenv("KVT_TEST_BUILD");
    if (folder == NULL) {
        (void)printf("KVT_TEST_BUILD does not name the folder of the build\n");
        exit(77);
    }
    (void)snprintf(path, sizeof(path), "%s/tests/abi/old_plugin.so", folder);
    return path;
}

static inline int small_main(const char *name, void (*add)(TCase *))
{
    Suite *suite = suite_create(name);
    TCase *tcase = tcase_create(name);
    add(tcase);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

#endif
