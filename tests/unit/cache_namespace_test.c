/* What is not interchangeable is never interchanged: tenants, fields, narrowing, images. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/cache_rig.h"
#include "tests/support/test_expect.h"

#define PAGES 4u
#define TOKENS (PAGES * 16)
#define BLOCKS (PAGES * 2)
#define FIELDS_MAX 3u

static struct kvt_rig_cache rig;
static struct kvt_rig_engine engine; /* its memory and its stream; clients are the tests' own */
static uint32_t tokens[TOKENS + 1];
static uint32_t blocks[BLOCKS];

static void rig_open(void)
{
    kvt_rig_cache_init(&rig);
    kvt_rig_cache_open(&rig);
    kvt_rig_engine_open(&engine, &rig, &kvt_rig_shape_default, "tenant");
    kvt_rig_tokens(tokens, 0, TOKENS + 1, 1);
    kvt_rig_blocks(blocks, 0, BLOCKS);
}

static void rig_close(void)
{
    kvt_rig_engine_close(&engine);
    kvt_rig_cache_close(&rig);
}

/* ---- variants ---- */

struct variant {
    const char *what;
    const char *tenant;
    struct kvt_cache_field base[FIELDS_MAX], narrow[FIELDS_MAX]; /* until tag 0 */
    uint32_t same; /* variants of the same number are one namespace */
};

#define FIELD(t, text)                                                                             \
    {                                                                                              \
        .tag = (t), .data = (text), .bytes = sizeof(text) - 1                                      \
    }

static const struct variant variants[] = {
    {"plain", "a", {{0}}, {{0}}, 1},
    {"other tenant", "b", {{0}}, {{0}}, 2},
    {"no tenant", "", {{0}}, {{0}}, 3},
    {"tenant with a field's bytes", "a\x09", {{0}}, {{0}}, 4},
    {"empty salt", "a", {FIELD(9, "")}, {{0}}, 5},
    {"salt", "a", {FIELD(9, "s")}, {{0}}, 6},
    {"salt, narrowed", "a", {{0}}, {FIELD(9, "s")}, 6},
    {"empty salt, narrowed", "a", {{0}}, {FIELD(9, "")}, 5},
    {"other salt", "a", {{0}}, {FIELD(9, "t")}, 7},
    {"adapter", "a", {{0}}, {FIELD(8, "s")}, 8},
    {"two", "a", {FIELD(8, "x"), FIELD(9, "y")}, {{0}}, 9},
    {"two, the other order", "a", {FIELD(9, "y"), FIELD(8, "x")}, {{0}}, 9},
    {"two, one narrowed", "a", {FIELD(8, "x")}, {FIELD(9, "y")}, 9},
    {"two, both narrowed", "a", {{0}}, {FIELD(9, "y"), FIELD(8, "x")}, 9},
    {"two, exchanged", "a", {FIELD(8, "y"), FIELD(9, "x")}, {{0}}, 10},
    {"two, cut elsewhere", "a", {FIELD(8, "xy"), FIELD(9, "")}, {{0}}, 11},
    {"two, cut elsewhere again", "a", {FIELD(8, ""), FIELD(9, "xy")}, {{0}}, 12},
    {"one, whose bytes look like two", "a", {FIELD(8, "x\x09\0\0\0\0\0\0\0\0\0\0\0y")}, {{0}}, 20},
    {"one salt narrowed by another", "a", {FIELD(9, "s")}, {FIELD(9, "t")}, 13},
    {"and the other way round", "a", {FIELD(9, "t")}, {FIELD(9, "s")}, 14},
    {"an engine's own field", "a", {FIELD(1024, "s")}, {{0}}, 15},
    {"the same in another tenant", "b", {FIELD(1024, "s")}, {{0}}, 16},
    {"epoch", "a", {FIELD(5, "\x01\x00")}, {{0}}, 17},
    {"next epoch", "a", {FIELD(5, "\x02\x00")}, {{0}}, 18},
    {"epoch of other width", "a", {FIELD(5, "\x01\x00\x00")}, {{0}}, 19},
};
#define VARIANTS (sizeof(variants) / sizeof(variants[0]))

static size_t count_fields(const struct kvt_cache_field *fields)
{
    size_t count = 0;
    while (count < FIELDS_MAX && fields[count].tag != 0) {
        count++;
    }
    return count;
}

static uint32_t client_of(const struct variant *variant)
{
    uint32_t client = 0;
    ck_assert_int_eq(kvt_cache_client_open(rig.cache, variant->tenant, strlen(variant->tenant),
                                           variant->base, count_fields(variant->base), NULL, 0,
                                           &client, NULL, 0),
                     KVT_OK);
    return client;
}

/* A client with a binding of its own on the engine's memory. */
static struct kvt_rig_engine open_as(const struct variant *variant)
{
    struct kvt_rig_engine as = engine;
    as.client = client_of(variant);
    as.weights = variant->same;
    ck_assert_int_eq(
        kvt_cache_bind(rig.cache, as.client, as.regions, 2, 8, 256, &as.binding, NULL, 0), KVT_OK);
    return as;
}

static void close_as(struct kvt_rig_engine *as)
{
    ck_assert_int_eq(kvt_cache_unbind(rig.cache, as->client, as->binding), KVT_OK);
    ck_assert_int_eq(kvt_cache_client_close(rig.cache, as->client), KVT_OK);
}

static void save_as(struct kvt_rig_engine *as, const struct kvt_cache_field *fields,
                    const struct kvt_cache_extra *extras, size_t extra_count)
{
    uint64_t job = 0;
    struct kvt_cache_save save = {.client = as->client,
                                  .binding = as->binding,
                                  .tokens = tokens,
                                  .token_count = TOKENS,
                                  .blocks = blocks,
                                  .block_count = BLOCKS,
                                  .fields = fields,
                                  .field_count = fields != NULL ? count_fields(fields) : 0,
                                  .extras = extras,
                                  .extra_count = extra_count,
                                  .stream = as->stream};
    kvt_rig_paint(as, tokens, 0, PAGES, blocks);
    ck_assert_int_eq(kvt_cache_save(rig.cache, &save, &job), KVT_OK);
    struct kvt_cache_result result = kvt_rig_finish(as, job);
    ck_assert_int_eq(result.status, KVT_OK);
    ck_assert_uint_eq(result.tokens_good, TOKENS);
}

/* How many pages are promised; they are restored, and must be these weights' own. */
static uint32_t get_as(struct kvt_rig_engine *as, const struct kvt_cache_field *fields,
                       const struct kvt_cache_extra *extras, size_t extra_count)
{
    struct kvt_cache_found found = {0};
    struct kvt_cache_lookup lookup = {.client = as->client,
                                      .tokens = tokens,
                                      .token_count = TOKENS + 1,
                                      .fields = fields,
                                      .field_count = fields != NULL ? count_fields(fields) : 0,
                                      .extras = extras,
                                      .extra_count = extra_count};
    ck_assert_int_eq(kvt_cache_lookup(rig.cache, &lookup, &found), KVT_OK);
    if (found.lease == 0) {
        return 0;
    }
    uint32_t pages = (uint32_t)(found.matched_tokens / 16);
    kvt_rig_wipe_all(as);
    ck_assert_int_eq(kvt_rig_restore(as, found.lease, 0, pages, blocks).status, KVT_OK);
    EXPECT(kvt_rig_good_pages(as, tokens, 0, pages, blocks) == pages);
    kvt_rig_release(as, found.lease);
    return pages;
}

/* One variant alone has saved: only those that are the same see it. */
START_TEST(one_saves_all_look)
{
    const struct variant *saver = &variants[_i];
    rig_open();
    struct kvt_rig_engine as = open_as(saver);
    save_as(&as, saver->narrow, NULL, 0);
    for (size_t i = 0; i < VARIANTS; i++) {
        struct kvt_rig_engine other = open_as(&variants[i]);
        uint32_t pages = get_as(&other, variants[i].narrow, NULL, 0);
        if (pages != (variants[i].same == saver->same ? PAGES : 0)) {
            ck_abort_msg("'%s' gets %u pages of '%s'", variants[i].what, pages, saver->what);
        }
        close_as(&other);
    }
    close_as(&as);
    rig_close();
}
END_TEST

/* All have saved the same tokens, with bytes of their own: each gets its own. */
START_TEST(all_save_all_look)
{
    rig_open();
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < VARIANTS; i++) {
            struct kvt_rig_engine as = open_as(&variants[i]);
            if (round == 0) {
                save_as(&as, variants[i].narrow, NULL, 0);
            } else {
                ck_assert_uint_eq(get_as(&as, variants[i].narrow, NULL, 0), PAGES);
            }
            close_as(&as);
        }
    }
    struct kvt_cache_stats stats = kvt_rig_stats(&rig);
    ck_assert_uint_eq(stats.pages, 20 * PAGES); /* numbers 1 to 20 */
    ck_assert_uint_eq(stats.key_collisions, 0);
    rig_close();
}
END_TEST

/* A page of another size is another namespace too: it cannot be seen from here, for a cache has one
 * page size; but its keys are other keys, which the golden vectors of keys pin. */

/* ---- images ---- */

static struct kvt_cache_extra image(uint64_t token_index, unsigned char first, unsigned char last)
{
    struct kvt_cache_extra extra = {.token_index = token_index};
    memset(extra.digest, 7, sizeof(extra.digest));
    extra.digest[0] = first;
    extra.digest[31] = last;
    return extra;
}

/* Saved with `saved` as number 1; `asked` sees so many pages of it. */
static void images_case(const struct kvt_cache_extra *saved, size_t saved_count,
                        const struct kvt_cache_extra *asked, size_t asked_count, uint32_t pages)
{
    rig_open();
    engine.weights = 1;
    save_as(&engine, NULL, saved, saved_count);
    ck_assert_uint_eq(get_as(&engine, NULL, saved, saved_count), PAGES);
    ck_assert_uint_eq(get_as(&engine, NULL, asked, asked_count), pages);
    /* Saved beside it, with other bytes from the first image on that differs. */
    struct kvt_rig_engine other = engine;
    struct kvt_cache_found found = {0};
    struct kvt_cache_lookup lookup = {.client = engine.client,
                                      .tokens = tokens,
                                      .token_count = TOKENS + 1,
                                      .extras = asked,
                                      .extra_count = asked_count};
    other.weights = 2;
    if (pages == 0) {
        save_as(&other, NULL, asked, asked_count);
        ck_assert_uint_eq(get_as(&other, NULL, asked, asked_count), PAGES);
        ck_assert_uint_eq(get_as(&engine, NULL, saved, saved_count), PAGES);
    } else {
        ck_assert_int_eq(kvt_cache_lookup(rig.cache, &lookup, &found), KVT_OK);
        kvt_rig_release(&engine, found.lease);
        save_as(&engine, NULL, asked, asked_count);
        ck_assert_uint_eq(get_as(&engine, NULL, asked, asked_count), PAGES);
    }
    engine.weights = 0;
    kvt_rig_check(&rig);
    rig_close();
}

START_TEST(images)
{
    const struct kvt_cache_extra a0[1] = {image(0, 1, 1)}, b0[1] = {image(0, 1, 2)};
    const struct kvt_cache_extra a33[1] = {image(33, 1, 1)}, b33[1] = {image(33, 2, 1)};
    const struct kvt_cache_extra a34[1] = {image(34, 1, 1)}, a47[1] = {image(47, 1, 1)};
    const struct kvt_cache_extra two[2] = {image(20, 1, 1), image(21, 1, 2)};
    const struct kvt_cache_extra exchanged[2] = {image(20, 1, 2), image(21, 1, 1)};
    const struct kvt_cache_extra first[1] = {image(20, 1, 1)};
    const struct kvt_cache_extra far[2] = {image(1, 1, 1), image(60, 1, 1)};
    const struct kvt_cache_extra far_other[2] = {image(1, 1, 1), image(60, 1, 2)};
    const struct kvt_cache_extra last[1] = {image(TOKENS - 1, 1, 1)};
    images_case(a0, 1, b0, 1, 0);   /* the last bits of a digest count */
    images_case(a0, 1, NULL, 0, 0); /* a picture and none */
    images_case(NULL, 0, a0, 1, 0);
    images_case(a33, 1, b33, 1, 2); /* shared up to the page where the picture is */
    images_case(a33, 1, a34, 1, 2); /* the same picture a token later */
    images_case(a33, 1, a47, 1, 2);
    images_case(a33, 1, NULL, 0, 2);
    images_case(NULL, 0, a33, 1, 2);
    images_case(two, 2, exchanged, 2, 1);
    images_case(two, 2, first, 1, 1);
    images_case(first, 1, two, 2, 1);
    images_case(far, 2, far_other, 2, 3);
    images_case(far, 2, far, 1, 3);
    images_case(last, 1, NULL, 0, 3);
    images_case(NULL, 0, last, 1, 3);
}
END_TEST

/* A picture that begins behind the last whole page changes nothing yet. */
START_TEST(an_image_behind_the_whole_pages)
{
    const struct kvt_cache_extra extra[1] = {image(TOKENS, 1, 1)};
    rig_open();
    save_as(&engine, NULL, NULL, 0);
    ck_assert_uint_eq(get_as(&engine, NULL, extra, 1), PAGES);
    rig_close();
}
END_TEST

/* ---- more namespaces than there can be ---- */

START_TEST(as_many_as_there_are)
{
    rig_open();
    save_as(&engine, NULL, NULL, 0);
    uint32_t made = 0;
    for (; made < 5000; made++) {
        struct kvt_cache_field salt = {.tag = 9, .data = &made, .bytes = sizeof(made)};
        struct kvt_cache_lookup lookup = {.client = engine.client,
                                          .tokens = tokens,
                                          .token_count = TOKENS + 1,
                                          .fields = &salt,
                                          .field_count = 1};
        struct kvt_cache_found found = {0};
        /* What can have no namespace any more is a miss, and no error. */
        EXPECT(kvt_cache_lookup(rig.cache, &lookup, &found) == KVT_OK);
        EXPECT(found.lease == 0);
    }
    ck_assert_uint_eq(kvt_rig_stats(&rig).namespaces, 4096);
    /* Those that are there work on. */
    ck_assert_uint_eq(get_as(&engine, NULL, NULL, 0), PAGES);
    made = 17;
    const struct kvt_cache_field salt[2] = {{.tag = 9, .data = &made, .bytes = sizeof(made)}};
    save_as(&engine, salt, NULL, 0);
    ck_assert_uint_eq(get_as(&engine, salt, NULL, 0), PAGES);
    uint32_t client = 0;
    char why[256] = "";
    ck_assert_int_eq(
        kvt_cache_client_open(rig.cache, "new", 3, NULL, 0, NULL, 0, &client, why, sizeof(why)),
        KVT_ERR_LIMIT);
    ck_assert_ptr_nonnull(strstr(why, "namespaces"));
    rig_close();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cache_namespace");
    TCase *tcase = tcase_create("cache_namespace");
    tcase_set_timeout(tcase, 0);
    tcase_add_loop_test(tcase, one_saves_all_look, 0, (int)VARIANTS);
    tcase_add_test(tcase, all_save_all_look);
    tcase_add_test(tcase, images);
    tcase_add_test(tcase, an_image_behind_the_whole_pages);
    tcase_add_test(tcase, as_many_as_there_are);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
