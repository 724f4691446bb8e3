/* Struct sizes: a caller may be older (shorter structs) or newer (longer ones). */
#include <string.h>

#include "tests/conformance/conf.h"

#define TAIL_BYTES 16u
#define PAGES 3u
#define TOKENS (PAGES * KVT_CONF_PAGE_TOKENS)

/* A struct with room for members of a newer version behind it. */
union longer {
    uint32_t struct_size;
    kvt_open_config config;
    kvt_layout layout;
    kvt_lookup lookup;
    kvt_lookup_result found;
    kvt_lease_token token;
    kvt_restore restore;
    kvt_save save;
    kvt_job_result result;
    kvt_report report;
    kvt_stats stats;
    unsigned char bytes[sizeof(kvt_stats) + TAIL_BYTES];
};

/* `bytes` of a struct, and a tail that is zero or not. */
static void lengthen(union longer *out, const void *from, size_t bytes, unsigned char tail)
{
    memset(out, 0, sizeof(*out));
    memcpy(out, from, bytes);
    out->bytes[bytes + TAIL_BYTES - 1] = tail;
    out->struct_size = (uint32_t)(bytes + TAIL_BYTES);
}

static void config_tail(struct kvt_conf *conf)
{
    union longer in;
    kvt_engine *engine = NULL;
    lengthen(&in, &conf->config, sizeof(conf->config), 1);
    WANT(conf->entry->open(&conf->host, &in.config, &engine, conf->why, sizeof(conf->why)),
         KVT_ERR_UNSUPPORTED, "open with a member that it does not know");
    lengthen(&in, &conf->config, sizeof(conf->config), 0);
    GOOD(conf->entry->open(&conf->host, &in.config, &engine, conf->why, sizeof(conf->why)),
         "open with a longer config");
    GOOD(conf->entry->quiesce(engine, KVT_CONF_WAIT_NS), "quiesce");
    GOOD(conf->entry->close(engine), "close");
    /* An older host: what it does not have is 0, whatever lies behind. */
    in.config = conf->config;
    in.config.struct_size = (uint32_t)offsetof(kvt_open_config, evict_policy);
    memset(in.bytes + in.config.struct_size, 0xff, sizeof(in) - in.config.struct_size);
    GOOD(conf->entry->open(&conf->host, &in.config, &engine, conf->why, sizeof(conf->why)),
         "open with a shorter config");
    GOOD(conf->entry->quiesce(engine, KVT_CONF_WAIT_NS), "quiesce");
    GOOD(conf->entry->close(engine), "close");
}

static void layout_tail(struct kvt_conf *conf)
{
    struct kvt_conf_rig rig;
    union longer in;
    uint64_t binding = 0;
    struct {
        kvt_region region;
        unsigned char tail[8];
    } regions[KVT_CONF_REGIONS];
    kvt_conf_begin(conf, &rig);
    lengthen(&in, &rig.layout, sizeof(rig.layout), 1);
    WANT(rig.entry->bind(rig.engine, &in.layout, &binding, NULL, 0), KVT_ERR_UNSUPPORTED,
         "bind with a member that it does not know");
    lengthen(&in, &rig.layout, sizeof(rig.layout), 0);
    memset(regions, 0, sizeof(regions));
    for (uint32_t i = 0; i < KVT_CONF_REGIONS; i++) {
        regions[i].region = rig.regions[i];
        regions[i].region.struct_size = (uint32_t)sizeof(regions[i]);
    }
    in.layout.regions = &regions[0].region;
    GOOD(rig.entry->bind(rig.engine, &in.layout, &binding, NULL, 0),
         "bind with a longer layout and longer regions");
    GOOD(rig.entry->unbind(rig.engine, binding), "unbind");
    regions[2].tail[0] = 1;
    WANT(rig.entry->bind(rig.engine, &in.layout, &binding, NULL, 0), KVT_ERR_UNSUPPORTED,
         "bind with a member of a region that it does not know");
    kvt_conf_end(&rig);
}

static void lookup_sizes(struct kvt_conf *conf)
{
    struct kvt_conf_rig rig;
    union longer in, out;
    uint32_t tokens[TOKENS + 1];
    kvt_conf_begin(conf, &rig);
    kvt_conf_tokens(tokens, TOKENS + 1, 1);
    kvt_conf_put(&rig, tokens, PAGES, 0);
    kvt_lookup lookup = kvt_conf_ask(0, tokens, TOKENS + 1);
    lengthen(&in, &lookup, sizeof(lookup), 1);
    memset(&out, 0x77, sizeof(out));
    out.struct_size = sizeof(kvt_lookup_result);
    WANT(rig.entry->lookup(rig.engine, &in.lookup, &out.found), KVT_ERR_UNSUPPORTED,
         "lookup with a member that it does not know");
    NEED(out.bytes[8] == 0x77, "lookup wrote its output although it failed");
    lengthen(&in, &lookup, sizeof(lookup), 0);
    out.struct_size = sizeof(kvt_lookup_result) + TAIL_BYTES;
    GOOD(rig.entry->lookup(rig.engine, &in.lookup, &out.found), "lookup with longer structs");
    NEED(out.found.matched_tokens == TOKENS, "lookup with longer structs found nothing");
    NEED(out.struct_size == sizeof(kvt_lookup_result) + TAIL_BYTES,
         "the caller's struct_size was changed");
    for (uint32_t i = 0; i < TAIL_BYTES; i++) {
        NEED(out.bytes[sizeof(kvt_lookup_result) + i] == 0, "the unknown rest is not zero");
    }
    NEED(out.bytes[sizeof(kvt_lookup_result) + TAIL_BYTES] == 0x77, "written behind the end");
    GOOD(rig.entry->release(rig.engine, out.found.lease), "release");
    memset(&out, 0x77, sizeof(out));
    out.struct_size = (uint32_t)offsetof(kvt_lookup_result, tier_tokens);
    lookup.struct_size = (uint32_t)offsetof(kvt_lookup, fields);
    lookup.field_count = 99;
    GOOD(rig.entry->lookup(rig.engine, &lookup, &out.found), "lookup with shorter structs");
    NEED(out.found.matched_tokens == TOKENS, "lookup with shorter structs found nothing");
    NEED(out.bytes[offsetof(kvt_lookup_result, tier_tokens)] == 0x77, "written behind the end");
    GOOD(rig.entry->release(rig.engine, out.found.lease), "release");
    kvt_conf_end(&rig);
}

static void request_tails(struct kvt_conf *conf)
{
    struct kvt_conf_rig rig;
    union longer in;
    uint32_t tokens[TOKENS + 1], blocks[PAGES * KVT_CONF_PAGE_BLOCKS];
    uint64_t job = 0, lease;
    kvt_conf_begin(conf, &rig);
    kvt_conf_tokens(tokens, TOKENS + 1, 1);
    kvt_conf_blocks(blocks, 0, PAGES);
    kvt_conf_paint(&rig, tokens, PAGES, blocks);
    kvt_save save = kvt_conf_saving(&rig, tokens, PAGES, blocks);
    lengthen(&in, &save, sizeof(save), 1);
    WANT(rig.entry->save(rig.engine, &in.save, &job), KVT_ERR_UNSUPPORTED, "save with a tail");
    lengthen(&in, &save, sizeof(save), 0);
    GOOD(rig.entry->save(rig.engine, &in.save, &job), "save with a longer struct");
    GOOD(kvt_conf_finish(&rig, job).status, "save");
    lease = kvt_conf_hit(&rig, 9, tokens, TOKENS + 1, TOKENS);
    kvt_restore restore = kvt_conf_restoring(&rig, lease, PAGES, blocks);
    lengthen(&in, &restore, sizeof(restore), 1);
    WANT(rig.entry->restore(rig.engine, &in.restore, &job), KVT_ERR_UNSUPPORTED,
         "restore with a tail");
    lengthen(&in, &restore, sizeof(restore), 0);
    GOOD(rig.entry->restore(rig.engine, &in.restore, &job), "restore with a longer struct");
    GOOD(kvt_conf_finish(&rig, job).status, "restore");
    kvt_lease_token token = {.struct_size = sizeof(token)};
    GOOD(rig.entry->lease_export(rig.engine, lease, &token), "lease_export");
    lengthen(&in, &token, sizeof(token), 1);
    WANT(rig.entry->lease_import(rig.engine, &in.token, &job), KVT_ERR_UNSUPPORTED,
         "lease_import with a tail");
    kvt_report report = KVT_REPORT_INIT;
    report.request_id = 9;
    report.prompt_tokens = TOKENS + 1;
    report.computed_tokens = 1;
    lengthen(&in, &report, sizeof(report), 1);
    WANT(rig.entry->report(rig.engine, &in.report), KVT_ERR_UNSUPPORTED, "report with a tail");
    lengthen(&in, &report, sizeof(report), 0);
    GOOD(rig.entry->report(rig.engine, &in.report), "report with a longer struct");
    kvt_conf_end(&rig);
}

static void job_result_size(struct kvt_conf *conf)
{
    struct kvt_conf_rig rig;
    union longer out;
    uint32_t tokens[TOKENS], blocks[PAGES * KVT_CONF_PAGE_BLOCKS];
    uint64_t job = 0;
    kvt_conf_begin(conf, &rig);
    kvt_conf_tokens(tokens, TOKENS, 1);
    kvt_conf_blocks(blocks, 0, PAGES);
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t size = i == 0 ? (uint32_t)offsetof(kvt_job_result, tier_tokens)
                               : (uint32_t)(sizeof(kvt_job_result) + TAIL_BYTES);
        kvt_save save = kvt_conf_saving(&rig, tokens, PAGES, blocks);
        GOOD(rig.entry->save(rig.engine, &save, &job), "save");
        memset(&out, 0x77, sizeof(out));
        out.struct_size = 0;
        REFUSED(rig.entry->poll(rig.engine, job, KVT_CONF_WAIT_NS, &out.result),
                "poll with struct_size 0");
        out.struct_size = size;
        GOOD(rig.entry->poll(rig.engine, job, KVT_CONF_WAIT_NS, &out.result),
             "poll with another struct_size, after one that was refused");
        NEED(out.result.state == KVT_JOB_DONE && out.result.tokens_good == TOKENS,
             "the result of another size is wrong");
        NEED(out.bytes[size] == 0x77, "written behind the end");
        NEED(i == 0 || out.bytes[size - 1] == 0, "the unknown rest is not zero");
    }
    kvt_conf_end(&rig);
}

static void stats_size(struct kvt_conf *conf)
{
    struct kvt_conf_rig rig;
    union longer out;
    kvt_conf_open(conf, &rig);
    memset(&out, 0x77, sizeof(out));
    out.struct_size = (uint32_t)offsetof(kvt_stats, requests_unreported);
    GOOD(rig.entry->stats(rig.engine, &out.stats), "stats into a shorter struct");
    NEED(out.stats.page_tokens == KVT_CONF_PAGE_TOKENS, "page_tokens is %u", out.stats.page_tokens);
    NEED(out.stats.requests_reported == 0, "a member within the size was not filled");
    NEED(out.bytes[offsetof(kvt_stats, requests_unreported)] == 0x77, "written behind the end");
    memset(&out, 0x77, sizeof(out));
    out.struct_size = sizeof(out);
    GOOD(rig.entry->stats(rig.engine, &out.stats), "stats into a longer struct");
    NEED(out.stats.requests_unreported == 0 && out.stats.key_collisions == 0,
         "a member within the size was not filled");
    for (uint32_t i = 0; i < TAIL_BYTES; i++) {
        NEED(out.bytes[sizeof(kvt_stats) + i] == 0, "the unknown rest is not zero");
    }
    kvt_conf_end(&rig);
}

const struct kvt_conf_clause kvt_conf_size_clauses[] = {
    {"size.config", "open: longer config only with a zero tail, shorter accepted", config_tail},
    {"size.layout", "bind: the same; regions are stepped by their size", layout_tail},
    {"size.lookup", "lookup: the same; the result is filled to its size", lookup_sizes},
    {"size.requests", "save, restore, import, report: unknown members refused", request_tails},
    {"size.job_result", "poll: filled to its size; refused before it is spent", job_result_size},
    {"size.stats", "stats: filled to its size, the unknown rest zero", stats_size},
    {NULL, NULL, NULL}};
