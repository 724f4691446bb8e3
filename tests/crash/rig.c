#include "tests/crash/rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCKS 16u
#define HOST_BYTES (UINT64_C(1) << 20)
#define TAIL_PAGES_MIN 2u
#define TAIL_PAGES_VARY 8u
#define FAMILY_PROMPTS 8u
#define TENANT_BYTES 1u

/* ---- prompts ---- */

static uint64_t mixed(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 32)) * UINT64_C(0xd6e8feb86659fd93);
    x = (x ^ (x >> 32)) * UINT64_C(0xd6e8feb86659fd93);
    return x ^ (x >> 32);
}

/* Prompts 2n and 2n + 1 have the same tokens, in different namespaces. */
struct crash_prompt kvt_crash_prompt(uint32_t number)
{
    struct crash_prompt prompt = {.number = number, .ns = number % CRASH_NAMESPACES};
    uint64_t own = mixed(number / CRASH_NAMESPACES);
    uint64_t family = mixed(UINT64_C(1) << 40 | number / FAMILY_PROMPTS);
    prompt.pages = CRASH_HEAD_PAGES + TAIL_PAGES_MIN + (uint32_t)(own % TAIL_PAGES_VARY);
    for (uint32_t i = 0; i <= prompt.pages * CRASH_PAGE_TOKENS; i++) {
        bool head = i < CRASH_HEAD_PAGES * CRASH_PAGE_TOKENS;
        prompt.tokens[i] = (uint32_t)(mixed((head ? family : own) + i) >> 33);
    }
    return prompt;
}

static uint64_t page_seed(const struct crash_prompt *prompt, uint32_t page)
{
    uint64_t seed = mixed(prompt->ns);
    for (uint32_t i = 0; i < (page + 1) * CRASH_PAGE_TOKENS; i++) {
        seed = mixed(seed ^ prompt->tokens[i]);
    }
    return seed;
}

void kvt_crash_page_bytes(const struct crash_prompt *prompt, uint32_t page,
                          unsigned char out_bytes[CRASH_PAGE_BYTES])
{
    uint64_t seed = page_seed(prompt, page);
    for (size_t at = 0; at < CRASH_PAGE_BYTES; at += sizeof(uint64_t)) {
        uint64_t word = mixed(seed + at);
        memcpy(out_bytes + at, &word, sizeof(word));
    }
}

static unsigned char *block_at(const struct crash_rig *rig, uint32_t region, uint32_t block)
{
    return rig->memory + ((size_t)region * BLOCKS + block) * CRASH_BLOCK_BYTES;
}

static void blocks_fill(const struct crash_rig *rig, const struct crash_prompt *prompt)
{
    unsigned char page[CRASH_PAGE_BYTES];
    for (uint32_t i = 0; i < prompt->pages; i++) {
        kvt_crash_page_bytes(prompt, i, page);
        for (uint32_t region = 0; region < CRASH_REGIONS; region++) {
            memcpy(block_at(rig, region, i), page + (size_t)region * CRASH_BLOCK_BYTES,
                   CRASH_BLOCK_BYTES);
        }
    }
}

static bool blocks_are(const struct crash_rig *rig, const struct crash_prompt *prompt,
                       uint32_t pages)
{
    unsigned char page[CRASH_PAGE_BYTES];
    for (uint32_t i = 0; i < pages; i++) {
        kvt_crash_page_bytes(prompt, i, page);
        for (uint32_t region = 0; region < CRASH_REGIONS; region++) {
            if (memcmp(block_at(rig, region, i), page + (size_t)region * CRASH_BLOCK_BYTES,
                       CRASH_BLOCK_BYTES) != 0) {
                return false;
            }
        }
    }
    return true;
}

/* ---- the cache ---- */

static void on_log(void *ctx, int32_t level, const char *line)
{
    struct crash_rig *rig = ctx;
    if (level <= 1) {
        rig->warnings++;
        if (rig->loud) {
            (void)fprintf(stderr, "log %d: %s\n", level, line);
        }
    }
}

static kvt_status clients_open(struct crash_rig *rig)
{
    struct kvt_cache_region regions[CRASH_REGIONS];
    for (uint32_t region = 0; region < CRASH_REGIONS; region++) {
        regions[region] = (struct kvt_cache_region){block_at(rig, region, 0), CRASH_BLOCK_BYTES,
                                                    CRASH_BLOCK_BYTES};
    }
    kvt_status status = kvt_cache_stream_create(rig->cache, &rig->stream);
    for (uint32_t i = 0; status == KVT_OK && i < CRASH_NAMESPACES; i++) {
        const char tenant = (char)('a' + (char)i);
        status = kvt_cache_client_open(rig->cache, &tenant, TENANT_BYTES, NULL, 0, NULL, 0,
                                       &rig->clients[i], rig->why, sizeof(rig->why));
        if (status == KVT_OK) {
            status = kvt_cache_bind(rig->cache, rig->clients[i], regions, CRASH_REGIONS,
                                    CRASH_PAGE_TOKENS, BLOCKS, &rig->bindings[i], rig->why,
                                    sizeof(rig->why));
        }
    }
    return status;
}

kvt_status kvt_crash_open(struct crash_rig *rig, const char *store, uint64_t bytes, uint32_t flags)
{
    struct kvt_cache_store stores[1] = {{store, bytes}};
    struct kvt_cache_config config = {
        .page_tokens = CRASH_PAGE_TOKENS,
        .host_bytes = HOST_BYTES,
        .log = on_log,
        .log_ctx = rig,
        .stores = stores,
        .store_count = 1,
        .nvme_flags = KVT_CACHE_NVME_THREADS | KVT_CACHE_NVME_BUFFERED | flags,
    };
    bool loud = rig->loud || getenv("KVT_CRASH_LOUD") != NULL;
    *rig = (struct crash_rig){.loud = loud};
    rig->memory = calloc(CRASH_REGIONS * (size_t)BLOCKS, CRASH_BLOCK_BYTES);
    if (rig->memory == NULL) {
        return KVT_ERR_NOMEM;
    }
    kvt_status status = kvt_cache_create(&config, &rig->cache, rig->why, sizeof(rig->why));
    if (status != KVT_OK) {
        free(rig->memory);
        rig->memory = NULL;
        return status;
    }
    return clients_open(rig);
}

static bool close_step(struct crash_rig *rig, const char *what, kvt_status status)
{
    if (status == KVT_OK) {
        return true;
    }
    char cause[CRASH_WHY_BYTES];
    memcpy(cause, rig->why, sizeof(cause));
    (void)snprintf(rig->why, sizeof(rig->why), "%s: status %d: %.300s", what, (int)status, cause);
    return false;
}

bool kvt_crash_close(struct crash_rig *rig)
{
    bool good = close_step(rig, "quiesce", kvt_cache_quiesce(rig->cache, CRASH_WAIT_NS));
    good =
        good && close_step(rig, "check", kvt_cache_check(rig->cache, rig->why, sizeof(rig->why)));
    for (uint32_t i = 0; good && i < CRASH_NAMESPACES; i++) {
        good = close_step(rig, "unbind",
                          kvt_cache_unbind(rig->cache, rig->clients[i], rig->bindings[i])) &&
               close_step(rig, "client_close", kvt_cache_client_close(rig->cache, rig->clients[i]));
    }
    if (good) {
        kvt_cache_stream_destroy(rig->cache, rig->stream);
        good = close_step(rig, "destroy", kvt_cache_destroy(rig->cache));
    }
    free(rig->memory);
    rig->memory = NULL;
    return good;
}

/* ---- saving and reading ---- */

static kvt_status job_wait(struct crash_rig *rig, uint32_t client, uint64_t job,
                           struct kvt_cache_result *out_result)
{
    struct kvt_cache_result result = {.done = 0};
    while (!result.done) {
        kvt_status status = kvt_cache_poll(rig->cache, client, job, CRASH_WAIT_NS, &result);
        if (status != KVT_OK) {
            return status;
        }
    }
    *out_result = result;
    return KVT_OK;
}

static void block_names(uint32_t out_blocks[BLOCKS])
{
    for (uint32_t i = 0; i < BLOCKS; i++) {
        out_blocks[i] = i;
    }
}

kvt_status kvt_crash_save(struct crash_rig *rig, const struct crash_prompt *prompt)
{
    uint32_t blocks[BLOCKS];
    block_names(blocks);
    blocks_fill(rig, prompt);
    struct kvt_cache_save save = {.client = rig->clients[prompt->ns],
                                  .binding = rig->bindings[prompt->ns],
                                  .tokens = prompt->tokens,
                                  .token_count = (uint64_t)prompt->pages * CRASH_PAGE_TOKENS,
                                  .blocks = blocks,
                                  .block_count = prompt->pages,
                                  .stream = rig->stream};
    uint64_t job;
    kvt_status status = kvt_cache_save(rig->cache, &save, &job);
    struct kvt_cache_result result;
    if (status == KVT_OK) {
        status = job_wait(rig, save.client, job, &result);
    }
    return status == KVT_OK ? result.status : status;
}

static kvt_status lease_restore(struct crash_rig *rig, const struct crash_prompt *prompt,
                                const struct kvt_cache_found *found, struct crash_read *read)
{
    uint32_t blocks[BLOCKS];
    block_names(blocks);
    memset(rig->memory, 0xee, CRASH_REGIONS * (size_t)BLOCKS * CRASH_BLOCK_BYTES);
    struct kvt_cache_restore restore = {.client = rig->clients[prompt->ns],
                                        .lease = found->lease,
                                        .binding = rig->bindings[prompt->ns],
                                        .token_count = found->matched_tokens,
                                        .blocks = blocks,
                                        .block_count = read->matched,
                                        .stream = rig->stream};
    uint64_t job;
    kvt_status status = kvt_cache_restore(rig->cache, &restore, &job);
    if (status != KVT_OK) {
        return status;
    }
    struct kvt_cache_result result;
    status = job_wait(rig, restore.client, job, &result);
    if (status == KVT_OK) {
        read->good = (uint32_t)(result.tokens_good / CRASH_PAGE_TOKENS);
        read->wrong = !blocks_are(rig, prompt, read->good);
    }
    return status;
}

kvt_status kvt_crash_read(struct crash_rig *rig, const struct crash_prompt *prompt,
                          struct crash_read *out_read)
{
    struct kvt_cache_lookup lookup = {.client = rig->clients[prompt->ns],
                                      .request_id = ++rig->request,
                                      .tokens = prompt->tokens,
                                      .token_count =
                                          (uint64_t)prompt->pages * CRASH_PAGE_TOKENS + 1};
    struct kvt_cache_found found;
    struct crash_read read = {.matched = 0};
    kvt_status status = kvt_cache_lookup(rig->cache, &lookup, &found);
    if (status != KVT_OK) {
        return status;
    }
    if (found.lease != 0) {
        read.matched = (uint32_t)(found.matched_tokens / CRASH_PAGE_TOKENS);
        status = lease_restore(rig, prompt, &found, &read);
    }
    kvt_status reported =
        kvt_cache_report(rig->cache, lookup.client, lookup.request_id, lookup.token_count, 0,
                         lookup.token_count - (uint64_t)read.good * CRASH_PAGE_TOKENS);
    if (status == KVT_OK) {
        status = reported;
    }
    if (status == KVT_OK) {
        *out_read = read;
    }
    return status;
}

/* ---- notes ---- */

static bool notes_line(struct crash_notes *notes, const char *line)
{
    char *end;
    if (line[0] == 's') {
        if (notes->acked != NULL) {
            memset(notes->acked, 0, notes->count);
        }
        notes->acked_count = 0;
        return true;
    }
    uint32_t number = (uint32_t)strtoul(line + 1, &end, 10);
    if (*end != '\n') {
        return true; /* the writer was killed in the middle of it */
    }
    if (line[0] == 'a' && number < notes->count) {
        notes->acked_count += !notes->acked[number];
        notes->acked[number] = 1;
    } else if (line[0] == 'w' && number >= notes->count) {
        unsigned char *acked = realloc(notes->acked, (size_t)number + 1);
        if (acked == NULL) {
            return false;
        }
        memset(acked + notes->count, 0, (size_t)number + 1 - notes->count);
        notes->acked = acked;
        notes->count = number + 1;
    }
    return true;
}

bool kvt_crash_notes_read(const char *path, struct crash_notes *out_notes)
{
    struct crash_notes notes = {.count = 0};
    char line[64];
    bool good = true;
    FILE *file = fopen(path, "re");
    while (file != NULL && good && fgets(line, sizeof(line), file) != NULL) {
        good = notes_line(&notes, line);
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    *out_notes = notes;
    return good;
}

void kvt_crash_notes_free(struct crash_notes *notes)
{
    free(notes->acked);
    *notes = (struct crash_notes){.count = 0};
}
