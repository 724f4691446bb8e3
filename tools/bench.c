/*
 * kvtier bench: the measured numbers. Those of the index:
 *
 * match   A tree of a million pages over at least a hundred sessions with shared heads and branches
 *         (every session grew turn by turn; sub-agents forked from it and split its edges). In
 *         turn, each session's whole prompt is looked up and its lease given back; and, over the
 *         same rotation, the same tokens are compared with a copy by memcmp. The ratio of the
 *         medians is the figure: both read the same bytes from the same kind of memory.
 * insert  A million pages over a thousand branching sessions; what the index takes of the allocator
 *         (a jemalloc arena of its own, counted by jemalloc), tokens taken off at four bytes each.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kvt_cache.h"
#include "tools/bench.h"
#include "tools/commands.h"
#include "tools/options.h"

#define COMMAND "bench"

#define SYSTEM_PROMPTS 8u
#define HEAD_PAGES KVT_BENCH_HEAD_PAGES
#define TURN_PAGES 108u     /* 1,738 tokens, what real coding agents grow by in a turn */
#define FORK_EVERY_TURNS 8u /* a sub-agent forks somewhere in the session so far */
#define FORK_PAGES 6u
#define TURN_WAIT_NS UINT64_C(60000000000)

/* ---- a cache whose pages are as small as can be: the index is what is measured ---- */

#define PAGE_TOKENS KVT_BENCH_PAGE_TOKENS
#define BLOCK_BYTES 8u

kvt_status kvt_bench_open(struct kvt_bench *bench, uint64_t pages, char *why, size_t why_bytes)
{
    memset(bench, 0, sizeof(*bench));
    kvt_bench_memory_open(&bench->index_memory);
    struct kvt_cache_config config = {
        .page_tokens = PAGE_TOKENS,
        .host_bytes = (pages + pages / 8) * BLOCK_BYTES + (UINT64_C(1) << 20),
        .index_memory = &bench->index_memory.hooks,
        .lease_ttl_ns = TURN_WAIT_NS,
    };
    kvt_status status = kvt_cache_create(&config, &bench->cache, why, why_bytes);
    if (status != KVT_OK) {
        return status;
    }
    status = kvt_cache_client_open(bench->cache, NULL, 0, NULL, 0, NULL, 0, &bench->client, why,
                                   why_bytes);
    struct kvt_cache_region region = {bench->block, BLOCK_BYTES, BLOCK_BYTES};
    if (status == KVT_OK) {
        status = kvt_cache_bind(bench->cache, bench->client, &region, 1, PAGE_TOKENS, 1,
                                &bench->binding, why, why_bytes);
    }
    if (status == KVT_OK) {
        status = kvt_cache_stream_create(bench->cache, &bench->stream);
    }
    if (status != KVT_OK) {
        kvt_bench_close(bench);
    }
    return status;
}

void kvt_bench_close(struct kvt_bench *bench)
{
    if (bench->cache == NULL) {
        return;
    }
    kvt_status status = kvt_cache_quiesce(bench->cache, TURN_WAIT_NS);
    kvt_cache_stream_destroy(bench->cache, bench->stream);
    if (status == KVT_OK && bench->binding != 0) {
        status = kvt_cache_unbind(bench->cache, bench->client, bench->binding);
    }
    if (status == KVT_OK) {
        status = kvt_cache_destroy(bench->cache);
    }
    if (status != KVT_OK) {
        kvt_command_error(COMMAND, "closing failed: %s", kvt_status_sentence(status));
    }
    bench->cache = NULL;
    kvt_bench_memory_close(&bench->index_memory);
}

/* Save a prompt's pages; all of its blocks are block 0, for the bytes do not matter here. */
static kvt_status save_prompt(struct kvt_bench *bench, const uint32_t *tokens, uint32_t pages)
{
    uint32_t *blocks = calloc(pages, sizeof(*blocks));
    if (blocks == NULL) {
        return KVT_ERR_NOMEM;
    }
    struct kvt_cache_save save = {
        .client = bench->client,
        .binding = bench->binding,
        .tokens = tokens,
        .token_count = (uint64_t)pages * PAGE_TOKENS,
        .blocks = blocks,
        .block_count = pages,
        .stream = bench->stream,
    };
    uint64_t job = 0;
    struct kvt_cache_result result = {0};
    kvt_status status = kvt_cache_save(bench->cache, &save, &job);
    if (status == KVT_OK) {
        status = kvt_cache_poll(bench->cache, bench->client, job, TURN_WAIT_NS, &result);
    }
    if (status == KVT_OK) {
        status = result.done != 0 ? result.status : KVT_ERR_TIMEOUT;
    }
    free(blocks);
    return status;
}

/* ---- sessions ---- */

static uint32_t draw(uint64_t *state)
{
    /* xorshift64*: fast, and the same everywhere. */
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return (uint32_t)((*state * UINT64_C(0x2545F4914F6CDD1D)) >> 32);
}

void kvt_bench_prompt(uint32_t session, uint32_t *out_tokens, uint64_t token_count)
{
    uint64_t head_state = 0x9E3779B97F4A7C15u + session % SYSTEM_PROMPTS;
    uint64_t own_state = 0xD1B54A32D192ED03u + ((uint64_t)session << 20);
    for (uint64_t i = 0; i < token_count; i++) {
        bool head = i < (uint64_t)HEAD_PAGES * PAGE_TOKENS;
        out_tokens[i] = draw(head ? &head_state : &own_state);
    }
}

/* A sub-agent: goes along with the session for a while, then says something of its own. */
static kvt_status save_fork(struct kvt_bench *bench, uint32_t *tokens, uint32_t pages,
                            uint64_t *state)
{
    uint32_t own = FORK_PAGES * PAGE_TOKENS;
    uint32_t *kept = malloc(own * sizeof(*kept));
    if (kept == NULL || pages <= FORK_PAGES + 1) {
        free(kept);
        return kept == NULL ? KVT_ERR_NOMEM : KVT_OK;
    }
    uint32_t at = 1 + draw(state) % (pages - FORK_PAGES - 1);
    uint32_t *branch = tokens + (size_t)at * PAGE_TOKENS;
    memcpy(kept, branch, own * sizeof(*kept));
    for (uint32_t i = 0; i < own; i++) {
        branch[i] = draw(state);
    }
    kvt_status status = save_prompt(bench, tokens, at + FORK_PAGES);
    memcpy(branch, kept, own * sizeof(*kept));
    free(kept);
    return status;
}

kvt_status kvt_bench_session(struct kvt_bench *bench, uint32_t session, uint32_t *tokens,
                             uint32_t pages)
{
    uint64_t state = 0xA0761D6478BD642Fu + session;
    uint32_t turn = 0;
    for (uint32_t done = 0; done < pages;) {
        uint32_t grow = TURN_PAGES / 2 + draw(&state) % TURN_PAGES;
        done = pages - done < grow ? pages : done + grow;
        kvt_status status = save_prompt(bench, tokens, done);
        if (status == KVT_OK && ++turn % FORK_EVERY_TURNS == 0) {
            status = save_fork(bench, tokens, done, &state);
        }
        if (status != KVT_OK) {
            return status;
        }
    }
    return KVT_OK;
}

/* ---- the command ---- */

static int help(void)
{
    (void)printf("Usage: kvtier bench NAME [OPTION]...\n\n"
                 "  match   looking up a long prompt, against memcmp of its tokens\n"
                 "  insert  what the index takes of memory a page\n"
                 "  nvme    reading and writing pages on a drive, against fio\n"
                 "  open    opening a store of a million pages, against a walk over them\n\n"
                 "kvtier bench NAME --help says more.\n\n"
                 "Exit status: 0 done; 2 wrong usage; 3 could not do it.\n");
    return KVT_EXIT_DONE;
}

struct bench {
    const char *name;
    int (*run)(int argc, char **argv);
};

static const struct bench benches[] = {
    {"match", kvt_bench_match},
    {"insert", kvt_bench_insert},
    {"nvme", kvt_bench_nvme},
    {"open", kvt_bench_open_store},
};
#define NAMES "'match', 'insert', 'nvme' or 'open'"

int kvt_cmd_bench(int argc, char **argv)
{
    if (argc < 2) {
        kvt_usage_error(COMMAND, "which one? " NAMES);
        return KVT_EXIT_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0) {
        return help();
    }
    for (size_t i = 0; i < sizeof(benches) / sizeof(benches[0]); i++) {
        if (strcmp(argv[1], benches[i].name) == 0) {
            return benches[i].run(argc - 1, argv + 1);
        }
    }
    kvt_usage_error(COMMAND, "there is no benchmark '%s'; give " NAMES, argv[1]);
    return KVT_EXIT_USAGE;
}
