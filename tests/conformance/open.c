/* Finding and refusing each other; binding; extensions. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/conformance/conf.h"

#define CAPS_OF_HOST                                                                               \
    (KVT_CAP_CPU_DEVICE | KVT_CAP_CUDA_DEVICE | KVT_CAP_REGION_WAIT | KVT_CAP_EXTRA_KEYS |         \
     KVT_CAP_HBM_TIER | KVT_CAP_HOST_TIER | KVT_CAP_NVME_TIER | KVT_CAP_MULTI_RANK)
#define UNKNOWN_CAP_BIT 61
#define ALLOCATIONS_MAX 4096
#define TAIL_BYTES 8u

static void entry_whole(struct kvt_conf *conf)
{
    const kvt_plugin_entry *e = conf->entry;
    NEED(e->struct_size >= sizeof(*e) && e->struct_size % 8 == 0,
         "struct_size of the table is %u, below the %zu of version 0.1 or no multiple of 8",
         e->struct_size, sizeof(*e));
    NEED(e->open != NULL && e->close != NULL && e->bind != NULL && e->unbind != NULL, "a NULL");
    NEED(e->lookup != NULL && e->release != NULL && e->lease_export != NULL, "a NULL");
    NEED(e->lease_import != NULL && e->restore != NULL && e->save != NULL, "a NULL");
    NEED(e->poll != NULL && e->wait_region != NULL && e->cancel != NULL, "a NULL");
    NEED(e->report != NULL && e->hint != NULL && e->flush != NULL, "a NULL");
    NEED(e->stats != NULL && e->quiesce != NULL && e->get_extension != NULL, "a NULL");
}

static void entry_caps(struct kvt_conf *conf)
{
    uint64_t offered = conf->entry->caps_offered;
    NEED((conf->entry->caps_required & ~CAPS_OF_HOST) == 0, "requires what no host has: 0x%llx",
         (unsigned long long)conf->entry->caps_required);
    NEED((offered & (KVT_CAP_CPU_DEVICE | KVT_CAP_CUDA_DEVICE)) != 0, "offers no device");
    NEED((offered & (KVT_CAP_HBM_TIER | KVT_CAP_HOST_TIER | KVT_CAP_NVME_TIER)) != 0,
         "offers no tier");
}

/* open() that must answer `wanted`, say why, and leave its output and the host's memory alone. */
static void open_refused(struct kvt_conf *conf, const kvt_open_config *config, kvt_status wanted,
                         const char *what)
{
    static int unset;
    kvt_engine *engine = (kvt_engine *)(void *)&unset;
    memset(conf->why, 'x', sizeof(conf->why));
    WANT(conf->entry->open(&conf->host, config, &engine, conf->why, sizeof(conf->why)), wanted,
         what);
    NEED(engine == (kvt_engine *)(void *)&unset, "open wrote its output although it failed: %s",
         what);
    NEED(memchr(conf->why, '\0', sizeof(conf->why)) != NULL && strlen(conf->why) > 8,
         "open does not say why: %s", what);
    kvt_conf_balanced(conf);
}

static void open_close(struct kvt_conf *conf, const kvt_open_config *config, const char *what)
{
    kvt_engine *engine = NULL;
    GOOD(conf->entry->open(&conf->host, config, &engine, conf->why, sizeof(conf->why)), what);
    NEED(engine != NULL, "open gave no engine: %s", what);
    GOOD(conf->entry->quiesce(engine, KVT_CONF_WAIT_NS), "quiesce");
    GOOD(conf->entry->close(engine), "close");
}

static void open_plain(struct kvt_conf *conf)
{
    for (int i = 0; i < 3; i++) {
        open_close(conf, &conf->config, "open");
        kvt_conf_balanced(conf);
    }
    kvt_open_config config = conf->config;
    config.page_tokens = 0;
    config.group_ranks = 0;
    open_close(conf, &config, "open with defaults");
}

static void open_host_table(struct kvt_conf *conf)
{
    struct {
        kvt_host host;
        unsigned char tail[TAIL_BYTES];
    } longer = {.host = conf->host};
    kvt_engine *engine = NULL;
    longer.host.struct_size = (uint32_t)(sizeof(longer.host) + TAIL_BYTES);
    memset(longer.tail, 0xff, sizeof(longer.tail));
    GOOD(conf->entry->open(&longer.host, &conf->config, &engine, NULL, 0),
         "open with a longer host table");
    GOOD(conf->entry->quiesce(engine, KVT_CONF_WAIT_NS), "quiesce");
    GOOD(conf->entry->close(engine), "close");
    longer.host.struct_size = (uint32_t)offsetof(kvt_host, now_ns);
    longer.host.get_extension = NULL;
    GOOD(conf->entry->open(&longer.host, &conf->config, &engine, NULL, 0),
         "open with a shorter host table");
    GOOD(conf->entry->quiesce(engine, KVT_CONF_WAIT_NS), "quiesce");
    GOOD(conf->entry->close(engine), "close");
}

static void open_caps(struct kvt_conf *conf)
{
    conf->host.caps_offered = UINT64_C(1) << UNKNOWN_CAP_BIT;
    open_close(conf, &conf->config, "open by a host that offers an unknown capability");
    conf->host.caps_required = conf->entry->caps_offered;
    open_close(conf, &conf->config, "open by a host that requires what is offered");
    conf->host.caps_required = UINT64_C(1) << UNKNOWN_CAP_BIT;
    open_refused(conf, &conf->config, KVT_ERR_UNSUPPORTED, "open requiring an unknown capability");
    NEED(strstr(conf->why, "61") != NULL, "open does not name the bit: %s", conf->why);
}

static void open_config_words(struct kvt_conf *conf)
{
    kvt_open_config config = conf->config;
    config.magic = 0;
    open_refused(conf, &config, KVT_ERR_INVAL, "open with a wrong magic");
    config = conf->config;
    config.struct_size = 0;
    open_refused(conf, &config, KVT_ERR_INVAL, "open with struct_size 0");
    config = conf->config;
    config.flags = UINT64_C(1) << 40;
    open_refused(conf, &config, KVT_ERR_UNSUPPORTED, "open with an unknown flag");
    config = conf->config;
    config.uri = "no-such-scheme:";
    config.uri_bytes = strlen(config.uri);
    open_refused(conf, &config, KVT_ERR_UNSUPPORTED, "open with an unknown uri");
    config = conf->config;
    config.role = 0;
    open_refused(conf, &config, KVT_ERR_INVAL, "open with no role");
    config = conf->config;
    config.rank = 1;
    open_refused(conf, &config, KVT_ERR_INVAL, "open with a rank beyond the group");
    if ((conf->entry->caps_offered & KVT_CAP_MULTI_RANK) == 0) {
        config = conf->config;
        config.group_ranks = 2;
        open_refused(conf, &config, KVT_ERR_UNSUPPORTED, "open of a group of 2 ranks");
    }
}

static void open_fields(struct kvt_conf *conf)
{
    kvt_open_config config = conf->config;
    kvt_field fields[5];
    for (uint64_t gone = 0; gone < 4; gone++) {
        memcpy(fields, conf->fields, sizeof(conf->fields));
        fields[gone] = conf->fields[3];
        config.fields = fields;
        config.field_count = 3;
        open_refused(conf, &config, KVT_ERR_INVAL, "open without a required field");
    }
    memcpy(fields, conf->fields, sizeof(conf->fields));
    fields[4] = fields[1];
    config.field_count = 5;
    open_refused(conf, &config, KVT_ERR_INVAL, "open with a field twice");
    config.field_count = 4;
    fields[0].bytes = 4;
    open_refused(conf, &config, KVT_ERR_INVAL, "open with a digest of 4 bytes");
    config.fields = NULL;
    open_refused(conf, &config, KVT_ERR_INVAL, "open with NULL fields");
    static char large[KVT_FIELD_BYTES_MAX + 1];
    memcpy(fields, conf->fields, sizeof(conf->fields));
    fields[4] = (kvt_field){KVT_FIELD_SALT, 0, large, sizeof(large)};
    config.fields = fields;
    config.field_count = 5;
    open_refused(conf, &config, KVT_ERR_INVAL, "open with a field that is too long");
    config.field_count = KVT_FIELDS_MAX + 1u;
    open_refused(conf, &config, KVT_ERR_INVAL, "open with too many fields");
}

static void open_why(struct kvt_conf *conf)
{
    char small[16];
    kvt_engine *engine = NULL;
    kvt_open_config config = conf->config;
    config.magic = 0;
    WANT(conf->entry->open(&conf->host, &config, &engine, NULL, 0), KVT_ERR_INVAL, "open");
    memset(small, 'x', sizeof(small));
    WANT(conf->entry->open(&conf->host, &config, &engine, small, 8), KVT_ERR_INVAL, "open");
    NEED(memchr(small, '\0', 8) != NULL, "why is not terminated within its bytes");
    NEED(small[8] == 'x' && small[15] == 'x', "why was written behind its end");
}

static void open_memory(struct kvt_conf *conf)
{
    void (*given)(void *, void *, uint64_t) = conf->host.free;
    conf->host.free = NULL;
    open_refused(conf, &conf->config, KVT_ERR_INVAL, "open by a host with alloc and no free");
    conf->host.free = given;
    for (int64_t k = 1; k < ALLOCATIONS_MAX; k++) {
        kvt_engine *engine = NULL;
        atomic_store(&conf->fail_in, k);
        kvt_status status =
            conf->entry->open(&conf->host, &conf->config, &engine, conf->why, sizeof(conf->why));
        bool struck = atomic_exchange(&conf->fail_in, 0) == 0;
        if (status == KVT_OK) {
            GOOD(conf->entry->quiesce(engine, KVT_CONF_WAIT_NS), "quiesce");
            GOOD(conf->entry->close(engine), "close");
        } else {
            NEED(struck, "open answered %s with all the memory", kvt_conf_name(status));
            WANT(status, KVT_ERR_NOMEM, "open with a failing allocation");
        }
        kvt_conf_balanced(conf);
        if (!struck) {
            return;
        }
    }
    NEED(false, "open still allocates after %d allocations", ALLOCATIONS_MAX);
}

static void bind_refused(struct kvt_conf_rig *rig, const kvt_layout *layout, kvt_status wanted,
                         const char *what)
{
    uint64_t binding = 77;
    struct kvt_conf *conf = rig->conf;
    WANT(rig->entry->bind(rig->engine, layout, &binding, conf->why, sizeof(conf->why)), wanted,
         what);
    NEED(binding == 77, "bind wrote its output although it failed: %s", what);
}

static void bind_bad(struct kvt_conf *conf)
{
    struct kvt_conf_rig rig;
    kvt_conf_begin(conf, &rig);
    kvt_layout layout = rig.layout;
    layout.region_count = 0;
    bind_refused(&rig, &layout, KVT_ERR_INVAL, "bind of no regions");
    layout = rig.layout;
    layout.regions = NULL;
    bind_refused(&rig, &layout, KVT_ERR_INVAL, "bind of NULL regions");
    layout = rig.layout;
    layout.region_count = KVT_REGIONS_MAX + 1u;
    bind_refused(&rig, &layout, KVT_ERR_INVAL, "bind of too many regions");
    layout = rig.layout;
    layout.block_tokens = KVT_CONF_PAGE_TOKENS - 1;
    bind_refused(&rig, &layout, KVT_ERR_INVAL, "bind of blocks that do not divide a page");
    layout = rig.layout;
    layout.device_kind = 77;
    bind_refused(&rig, &layout, KVT_ERR_UNSUPPORTED, "bind of an unknown device");
    layout = rig.layout;
    rig.regions[1].stride_bytes = rig.regions[1].block_bytes - 1;
    bind_refused(&rig, &layout, KVT_ERR_INVAL, "bind of a stride below the block");
    WANT(rig.entry->unbind(rig.engine, rig.binding ^ (UINT64_C(1) << 40)), KVT_ERR_STALE,
         "unbind of a guessed binding");
    GOOD(rig.entry->unbind(rig.engine, rig.binding), "unbind");
    WANT(rig.entry->unbind(rig.engine, rig.binding), KVT_ERR_STALE, "unbind of a spent binding");
    rig.binding = 0;
    kvt_conf_end(&rig);
}

static void null_args(struct kvt_conf *conf)
{
    struct kvt_conf_rig rig;
    const kvt_plugin_entry *e = conf->entry;
    kvt_engine *engine = NULL;
    uint64_t handle = 0;
    uint32_t tokens[4] = {1, 2, 3, 4};
    kvt_lookup lookup = kvt_conf_ask(0, tokens, 4);
    kvt_lease_token token = {.struct_size = sizeof(token)};
    REFUSED(e->open(NULL, &conf->config, &engine, NULL, 0), "open without a host");
    REFUSED(e->open(&conf->host, NULL, &engine, NULL, 0), "open without a config");
    REFUSED(e->open(&conf->host, &conf->config, NULL, NULL, 0), "open without an output");
    kvt_conf_begin(conf, &rig);
    REFUSED(e->bind(rig.engine, NULL, &handle, NULL, 0), "bind without a layout");
    REFUSED(e->bind(rig.engine, &rig.layout, NULL, NULL, 0), "bind without an output");
    REFUSED(e->lookup(rig.engine, NULL, NULL), "lookup without anything");
    REFUSED(e->lookup(rig.engine, &lookup, NULL), "lookup without an output");
    REFUSED(e->lease_export(rig.engine, 0, NULL), "lease_export without an output");
    REFUSED(e->lease_import(rig.engine, NULL, &handle), "lease_import without a token");
    REFUSED(e->lease_import(rig.engine, &token, NULL), "lease_import without an output");
    REFUSED(e->restore(rig.engine, NULL, &handle), "restore without a request");
    REFUSED(e->save(rig.engine, NULL, &handle), "save without a request");
    REFUSED(e->report(rig.engine, NULL), "report without a report");
    REFUSED(e->stats(rig.engine, NULL), "stats without an output");
    lookup.tokens = NULL;
    kvt_lookup_result found = KVT_LOOKUP_RESULT_INIT;
    WANT(e->lookup(rig.engine, &lookup, &found), KVT_ERR_INVAL, "lookup of NULL tokens");
    lookup = kvt_conf_ask(0, tokens, 0);
    WANT(e->lookup(rig.engine, &lookup, &found), KVT_ERR_INVAL, "lookup of no tokens");
    lookup.token_count = KVT_PROMPT_TOKENS_MAX + 1;
    WANT(e->lookup(rig.engine, &lookup, &found), KVT_ERR_INVAL, "lookup of too many tokens");
    kvt_conf_end(&rig);
}

static void extensions(struct kvt_conf *conf)
{
    struct kvt_conf_rig rig;
    kvt_conf_open(conf, &rig);
    NEED(rig.entry->get_extension(rig.engine, "kvt.no_such/1") == NULL, "knows kvt.no_such/1");
    NEED(rig.entry->get_extension(rig.engine, "kvt.cpu_stream/999") == NULL,
         "takes another version of an extension for its own");
    const kvt_cpu_stream_ext *s = rig.streams;
    if ((rig.entry->caps_offered & KVT_CAP_CPU_DEVICE) != 0) {
        NEED(s != NULL, "offers the CPU device without " KVT_EXT_CPU_STREAM);
        NEED(s->struct_size >= sizeof(*s) && s->stream_create != NULL &&
                 s->stream_destroy != NULL && s->enqueue != NULL && s->event_create != NULL &&
                 s->event_destroy != NULL && s->record != NULL && s->wait != NULL &&
                 s->sync != NULL,
             KVT_EXT_CPU_STREAM " is not whole");
    }
    WANT(rig.entry->hint(rig.engine, UINT32_MAX, NULL, 0), KVT_ERR_UNSUPPORTED, "hint");
    kvt_conf_end(&rig);
}

const struct kvt_conf_clause kvt_conf_open_clauses[] = {
    {"entry.table", "the table is whole, as of version 0.1", entry_whole},
    {"entry.caps", "capabilities: a device, a tier, nothing impossible required", entry_caps},
    {"open.plain", "opens and closes, again and again, with defaults too", open_plain},
    {"open.host_table", "a longer or shorter host table is accepted", open_host_table},
    {"open.caps", "unknown required capability refused by name, offered ignored", open_caps},
    {"open.config", "magic, size, flags, uri, role and rank are checked", open_config_words},
    {"open.fields", "required fields have no default; lists are checked", open_fields},
    {"open.why", "why is terminated, within its bytes, and optional", open_why},
    {"open.memory", "each allocation of open may fail; all is given back", open_memory},
    {"bind.bad", "layouts that cannot be are refused; bindings are spent once", bind_bad},
    {"call.null", "NULL where something is needed is refused", null_args},
    {"ext.names", "extensions by name, unknown ones NULL; unknown hints too", extensions},
    {NULL, NULL, NULL}};
