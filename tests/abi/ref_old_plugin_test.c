/* The reference engine on a plug-in that was compiled from the kept header of ABI 0.1: its answers
 * are those it gives without a cache, and it takes tokens from the plug-in. */
#include <check.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine_plugin/reference/engine.h"
#include "tests/abi/small_host.h"

#define PROMPT_TOKENS 100u
#define TURNS 2u
#define OUTPUTS 2u

struct answers {
    uint32_t cached[TURNS];
    unsigned char digest[TURNS][16];
    uint32_t outputs[TURNS][OUTPUTS];
};

static struct kvt_ref_config config_of(const char *plugin_path, uint64_t seed)
{
    return (struct kvt_ref_config){.seed = seed,
                                   .threads = 1,
                                   .context_tokens = 2 * PROMPT_TOKENS,
                                   .concurrency = 1,
                                   .output_tokens = OUTPUTS,
                                   .plugin_path = plugin_path,
                                   .host_bytes = plugin_path != NULL ? 1u << 20 : 0};
}

/* The same prompt twice. */
static void ask(const char *plugin_path, uint64_t seed, struct answers *out)
{
    char why[512] = "";
    uint32_t tokens[PROMPT_TOKENS];
    struct kvt_ref_engine *engine = NULL;
    struct kvt_ref_config config = config_of(plugin_path, seed);
    kvt_status status = kvt_ref_open(&config, &engine, why, sizeof(why));
    ck_assert_msg(status == KVT_OK, "%d: %s", status, why);
    for (uint32_t i = 0; i < PROMPT_TOKENS; i++) {
        tokens[i] = i * 7 + 1;
    }
    for (uint32_t turn = 0; turn < TURNS; turn++) {
        struct kvt_ref_result result;
        ck_assert_int_eq(kvt_ref_submit(engine, turn + 1, tokens, PROMPT_TOKENS, 0), KVT_OK);
        ck_assert_int_eq(kvt_ref_next(engine, SMALL_WAIT_NS, &result), KVT_OK);
        ck_assert_int_eq(result.status, KVT_OK);
        ck_assert_uint_eq(result.output_count, OUTPUTS);
        memcpy(out->outputs[turn], result.outputs, sizeof(out->outputs[turn]));
        memcpy(out->digest[turn], result.logit_digest, sizeof(out->digest[turn]));
        out->cached[turn] = result.cached_tokens;
        kvt_ref_result_fini(&result);
    }
    kvt_ref_close(engine);
}

START_TEST(old_plugin_serves_the_reference_engine)
{
    struct answers without, with, other;
    ask(NULL, 3, &without);
    ask(small_old_plugin(), 3, &with);
    ck_assert_uint_eq(with.cached[0], 0);
    ck_assert_uint_eq(with.cached[1], 96);
    ck_assert_mem_eq(with.digest, without.digest, sizeof(with.digest));
    ck_assert_mem_eq(with.outputs, without.outputs, sizeof(with.outputs));
    ask(NULL, 4, &other); /* the control */
    ck_assert_mem_ne(other.digest, without.digest, sizeof(other.digest));
}
END_TEST

static void add(TCase *tcase) { tcase_add_test(tcase, old_plugin_serves_the_reference_engine); }

int main(void)
{
    void *openblas = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
    if (openblas == NULL) {
        (void)printf("libopenblas.so.0 is not there (Debian and Ubuntu: libopenblas0)\n");
        return 77;
    }
    (void)dlclose(openblas);
    (void)small_old_plugin();
    return small_main("ref_old_plugin", add);
}
