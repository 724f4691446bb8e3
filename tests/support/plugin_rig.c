#include "tests/support/plugin_rig.h"

#include <check.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/test_expect.h"

static void *plug_library;
static const kvt_plugin_entry *plug_entry;

void kvt_plug_load(void)
{
    const char *path = getenv("KVT_PLUGIN");
    if (path == NULL) {
        (void)printf("KVT_PLUGIN does not name the plug-in\n");
        exit(77);
    }
    plug_library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (plug_library == NULL) {
        (void)fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    plug_entry = dlsym(plug_library, KVT_PLUGIN_ENTRY_NAME);
    if (plug_entry == NULL) {
        (void)fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
}

/* ---- the host ---- */

static void *plug_alloc(void *ctx, uint64_t bytes)
{
    struct kvt_plug *plug = ctx;
    return plug->memory.hooks.alloc(plug->memory.hooks.ctx, bytes);
}

static void plug_free(void *ctx, void *ptr, uint64_t bytes)
{
    struct kvt_plug *plug = ctx;
    plug->memory.hooks.free(plug->memory.hooks.ctx, ptr, bytes);
}

static void plug_log(void *ctx, int32_t level, const char *line, uint64_t line_bytes)
{
    struct kvt_plug *plug = ctx;
    EXPECT(level >= 1 && level <= 4 && line_bytes > 0 && line[line_bytes - 1] != '\n');
    atomic_fetch_add(&plug->log_lines, 1);
}

static uint64_t plug_now_ns(void *ctx)
{
    struct kvt_plug *plug = ctx;
    return atomic_load(&plug->memory.now_ns);
}

void kvt_plug_init(struct kvt_plug *plug)
{
    static const char digest[] = "0123456789abcdef";
    memset(plug, 0, sizeof(*plug));
    plug->library = plug_library;
    plug->entry = plug_entry;
    kvt_rig_cache_init(&plug->memory);
    plug->host = (kvt_host)KVT_HOST_INIT;
    plug->host.ctx = plug;
    plug->host.alloc = plug_alloc;
    plug->host.free = plug_free;
    plug->host.log = plug_log;
    plug->host.now_ns = plug_now_ns;
    plug->fields[0] = (kvt_field){KVT_FIELD_WEIGHTS, 0, digest, sizeof(digest) - 1};
    plug->fields[1] = (kvt_field){KVT_FIELD_KV_DTYPE, 0, "f32", 3};
    plug->fields[2] = (kvt_field){KVT_FIELD_ROPE, 0, NULL, 0};
    plug->fields[3] = (kvt_field){KVT_FIELD_LAYOUT, 0, "layout", 6};
    plug->config = (kvt_open_config)KVT_OPEN_CONFIG_INIT;
    plug->config.page_tokens = KVT_PLUG_PAGE_TOKENS;
    plug->config.fields = plug->fields;
    plug->config.field_count = 4;
    plug->config.tenant = "tenant";
    plug->config.tenant_bytes = 6;
    plug->config.hbm_bytes = 1u << 20;
    plug->config.host_bytes = 1u << 20;
}

void kvt_plug_fini(struct kvt_plug *plug)
{
    ck_assert_int_eq(atomic_load(&plug->memory.live_blocks), 0);
    ck_assert_int_eq(atomic_load(&plug->memory.live_bytes), 0);
}

/* ---- the engine ---- */

void kvt_plug_open_unbound(struct kvt_plug_engine *out, struct kvt_plug *plug)
{
    memset(out, 0, sizeof(*out));
    out->plug = plug;
    out->entry = plug->entry;
    kvt_status status =
        out->entry->open(&plug->host, &plug->config, &out->engine, plug->why, sizeof(plug->why));
    if (status != KVT_OK) {
        ck_abort_msg("open answered %s: %s", kvt_status_name(status), plug->why);
    }
    out->streams = out->entry->get_extension(out->engine, KVT_EXT_CPU_STREAM);
    out->faults = out->entry->get_extension(out->engine, KVT_EXT_CPU_FAULT);
    ck_assert_ptr_nonnull(out->streams);
    ck_assert_ptr_nonnull(out->faults);
    kvt_rig_memory_open(&out->memory, &plug->memory, &kvt_rig_shape_default);
    for (uint32_t i = 0; i < KVT_PLUG_REGIONS; i++) {
        out->regions[i] = (kvt_region){.struct_size = sizeof(kvt_region),
                                       .memory_kind = KVT_MEMORY_CPU,
                                       .base = (uint64_t)(uintptr_t)out->memory.memory[i],
                                       .block_bytes = kvt_rig_shape_default.block_bytes[i],
                                       .stride_bytes = kvt_rig_shape_default.stride_bytes[i]};
    }
    out->layout = (kvt_layout)KVT_LAYOUT_INIT;
    out->layout.block_tokens = kvt_rig_shape_default.block_tokens;
    out->layout.block_count = kvt_rig_shape_default.block_count;
    out->layout.regions = out->regions;
    out->layout.region_count = KVT_PLUG_REGIONS;
}

void kvt_plug_open(struct kvt_plug_engine *out, struct kvt_plug *plug)
{
    kvt_plug_open_unbound(out, plug);
    kvt_status status =
        out->entry->bind(out->engine, &out->layout, &out->binding, plug->why, sizeof(plug->why));
    if (status != KVT_OK) {
        ck_abort_msg("bind answered %s: %s", kvt_status_name(status), plug->why);
    }
    ck_assert_int_eq(out->streams->stream_create(out->engine, &out->stream), KVT_OK);
}

void kvt_plug_close_unbound(struct kvt_plug_engine *engine)
{
    ck_assert_int_eq(engine->entry->quiesce(engine->engine, KVT_RIG_WAIT_NS), KVT_OK);
    ck_assert_int_eq(engine->entry->close(engine->engine), KVT_OK);
    kvt_rig_memory_close(&engine->memory);
}

void kvt_plug_close(struct kvt_plug_engine *engine)
{
    ck_assert_int_eq(engine->entry->quiesce(engine->engine, KVT_RIG_WAIT_NS), KVT_OK);
    kvt_stats stats = kvt_plug_stats(engine);
    ck_assert_uint_eq(stats.leases, 0);
    ck_assert_uint_eq(stats.jobs_running, 0);
    engine->streams->stream_destroy(engine->engine, engine->stream);
    ck_assert_int_eq(engine->entry->unbind(engine->engine, engine->binding), KVT_OK);
    kvt_plug_close_unbound(engine);
}

/* ---- calls ---- */

kvt_lookup kvt_plug_lookup(uint64_t request_id, const uint32_t *tokens, uint64_t token_count)
{
    kvt_lookup lookup = KVT_LOOKUP_INIT;
    lookup.request_id = request_id;
    lookup.tokens = tokens;
    lookup.token_count = token_count;
    return lookup;
}

kvt_save kvt_plug_save(const struct kvt_plug_engine *engine, const uint32_t *tokens,
                       uint64_t token_count, const uint32_t *blocks)
{
    kvt_save save = KVT_SAVE_INIT;
    save.binding = engine->binding;
    save.tokens = tokens;
    save.token_count = token_count;
    save.blocks = blocks;
    save.block_count = token_count / kvt_rig_shape_default.block_tokens;
    save.stream = engine->stream;
    return save;
}

kvt_restore kvt_plug_restore(const struct kvt_plug_engine *engine, uint64_t lease,
                             uint64_t token_count, const uint32_t *blocks)
{
    kvt_restore restore = KVT_RESTORE_INIT;
    restore.binding = engine->binding;
    restore.lease = lease;
    restore.token_count = token_count;
    restore.blocks = blocks;
    restore.block_count = token_count / kvt_rig_shape_default.block_tokens;
    restore.stream = engine->stream;
    return restore;
}

kvt_job_result kvt_plug_finish(struct kvt_plug_engine *engine, uint64_t job)
{
    kvt_job_result result = KVT_JOB_RESULT_INIT;
    EXPECT(engine->entry->poll(engine->engine, job, KVT_RIG_WAIT_NS, &result) == KVT_OK);
    EXPECT(result.state == KVT_JOB_DONE);
    return result;
}

#define PLUG_BLOCKS_MAX 256u

void kvt_plug_put(struct kvt_plug_engine *engine, const uint32_t *tokens, uint32_t pages)
{
    uint32_t blocks[PLUG_BLOCKS_MAX];
    uint64_t job = 0;
    EXPECT(pages * 2 <= PLUG_BLOCKS_MAX);
    kvt_rig_blocks(blocks, 0, pages * 2);
    kvt_rig_paint(&engine->memory, tokens, 0, pages, blocks);
    kvt_save save = kvt_plug_save(engine, tokens, (uint64_t)pages * KVT_PLUG_PAGE_TOKENS, blocks);
    EXPECT(engine->entry->save(engine->engine, &save, &job) == KVT_OK);
    kvt_job_result result = kvt_plug_finish(engine, job);
    EXPECT(result.status == KVT_OK);
    EXPECT(result.tokens_good == (uint64_t)pages * KVT_PLUG_PAGE_TOKENS);
}

uint32_t kvt_plug_get(struct kvt_plug_engine *engine, const uint32_t *tokens, uint64_t token_count)
{
    uint32_t blocks[PLUG_BLOCKS_MAX];
    uint64_t job = 0;
    kvt_lookup lookup = kvt_plug_lookup(0, tokens, token_count);
    kvt_lookup_result found = KVT_LOOKUP_RESULT_INIT;
    EXPECT(engine->entry->lookup(engine->engine, &lookup, &found) == KVT_OK);
    kvt_rig_wipe_all(&engine->memory);
    if (found.answer != KVT_ANSWER_HIT) {
        EXPECT(found.answer == KVT_ANSWER_MISS && found.lease == 0 && found.matched_tokens == 0);
        return 0;
    }
    uint32_t pages = (uint32_t)(found.matched_tokens / KVT_PLUG_PAGE_TOKENS);
    EXPECT(pages > 0 && pages * 2 <= PLUG_BLOCKS_MAX);
    kvt_rig_blocks(blocks, 0, pages * 2);
    kvt_restore restore = kvt_plug_restore(engine, found.lease, found.matched_tokens, blocks);
    EXPECT(engine->entry->restore(engine->engine, &restore, &job) == KVT_OK);
    kvt_job_result result = kvt_plug_finish(engine, job);
    EXPECT(result.status == KVT_OK && result.tokens_good == found.matched_tokens);
    EXPECT(kvt_rig_good_pages(&engine->memory, tokens, 0, pages, blocks) == pages);
    EXPECT(kvt_rig_gaps_untouched(&engine->memory));
    EXPECT(engine->entry->release(engine->engine, found.lease) == KVT_OK);
    return pages;
}

kvt_stats kvt_plug_stats(struct kvt_plug_engine *engine)
{
    kvt_stats stats = {.struct_size = sizeof(stats)};
    EXPECT(engine->entry->stats(engine->engine, &stats) == KVT_OK);
    EXPECT(stats.struct_size == sizeof(stats));
    return stats;
}
