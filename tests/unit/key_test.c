/* Page keys: pinned values, one path like the other, and every byte counts. */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "cache/index/key.h"
#include "tests/golden/key_vectors.h"
#include "tests/support/test_random.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

#define TOKENS_MAX 1024u
#define EXTRA_BYTES_MAX 512u

static void pattern(unsigned char *out, size_t bytes, uint32_t start)
{
    for (size_t i = 0; i < bytes; i++) {
        out[i] = (unsigned char)(start + 7 * i);
    }
}

static void prompt_tokens(uint32_t *out, uint32_t first, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        out[i] = 0x9e3779b1u * (first + i) + 12345u;
    }
}

static bool keys_equal(const struct kvt_key *a, const struct kvt_key *b)
{
    return memcmp(a->bytes, b->bytes, KVT_KEY_BYTES) == 0;
}

static bool key_is(const struct kvt_key *key, const char *hex)
{
    char text[2 * KVT_KEY_BYTES + 1];
    for (size_t i = 0; i < KVT_KEY_BYTES; i++) {
        (void)snprintf(text + 2 * i, 3, "%02x", key->bytes[i]);
    }
    return strcmp(text, hex) == 0;
}

/* True when the chain has the vector's keys. */
static bool vector_holds(const struct key_vector *vector, uint32_t changed_token)
{
    static unsigned char bytes[EXTRA_BYTES_MAX];
    static uint32_t tokens[TOKENS_MAX];
    pattern(bytes, vector->namespace_bytes, 3);
    struct kvt_key key = kvt_key_of_namespace(bytes, vector->namespace_bytes);
    bool good = key_is(&key, vector->keys[0]);
    for (uint32_t page = 0; page < KEY_VECTOR_PAGES; page++) {
        prompt_tokens(tokens, page * vector->page_tokens, vector->page_tokens);
        if (changed_token / vector->page_tokens == page) {
            tokens[changed_token % vector->page_tokens] ^= 1u;
        }
        pattern(bytes, vector->extra_bytes, page);
        key = kvt_key_next(&key, tokens, vector->page_tokens,
                           vector->extra_bytes > 0 ? bytes : NULL, vector->extra_bytes);
        good = good && key_is(&key, vector->keys[page + 1]);
    }
    return good;
}

START_TEST(golden)
{
    const size_t count = sizeof(key_vectors) / sizeof(key_vectors[0]);
    for (size_t i = 0; i < count; i++) {
        const struct key_vector *vector = &key_vectors[i];
        ck_assert_msg(vector_holds(vector, UINT32_MAX), "vector %zu", i);
        /* The control: one bit of one token, first and last. */
        ck_assert(!vector_holds(vector, 0));
        ck_assert(!vector_holds(vector, KEY_VECTOR_PAGES * vector->page_tokens - 1));
    }
}
END_TEST

/* What the key's description says, in one piece. */
static struct kvt_key one_piece(const struct kvt_key *before, const uint32_t *tokens,
                                uint32_t page_tokens, const void *extra, size_t extra_bytes)
{
    static unsigned char input[KVT_KEY_BYTES + 4 * TOKENS_MAX + EXTRA_BYTES_MAX];
    size_t at = KVT_KEY_BYTES;
    memcpy(input, before->bytes, KVT_KEY_BYTES);
    memcpy(input + at, tokens, 4 * (size_t)page_tokens);
    at += 4 * (size_t)page_tokens;
    if (extra_bytes > 0) {
        memcpy(input + at, extra, extra_bytes);
    }
    XXH128_canonical_t form;
    XXH128_canonicalFromHash(&form, XXH3_128bits(input, at + extra_bytes));
    struct kvt_key key;
    memcpy(key.bytes, form.digest, KVT_KEY_BYTES);
    return key;
}

START_TEST(streamed_is_one_piece)
{
    struct test_random random = {11};
    static uint32_t tokens[TOKENS_MAX];
    static unsigned char extra[EXTRA_BYTES_MAX];
    for (uint32_t i = 0; i < TOKENS_MAX; i++) {
        tokens[i] = (uint32_t)test_random_u64(&random);
    }
    pattern(extra, sizeof(extra), 200);
    struct kvt_key before = kvt_key_of_namespace("n", 1);
    static const size_t extra_bytes[] = {0, 1, 40, 255, 256, 257, 280, 512};
    for (uint32_t page_tokens = 1; page_tokens <= TOKENS_MAX;
         page_tokens += page_tokens < 80 ? 1 : 59) {
        for (size_t e = 0; e < sizeof(extra_bytes) / sizeof(extra_bytes[0]); e++) {
            struct kvt_key key = kvt_key_next(&before, tokens, page_tokens, extra, extra_bytes[e]);
            struct kvt_key want = one_piece(&before, tokens, page_tokens, extra, extra_bytes[e]);
            ck_assert_msg(keys_equal(&key, &want), "%u tokens, %zu bytes of extra keys",
                          page_tokens, extra_bytes[e]);
            want.bytes[15] ^= 1;
            ck_assert(!keys_equal(&key, &want));
            before = key;
        }
    }
}
END_TEST

/* Every bit of the key before, of each token and of the extra keys changes the key. */
static void check_every_bit(uint32_t page_tokens, size_t extra_bytes)
{
    static uint32_t tokens[TOKENS_MAX];
    static unsigned char extra[EXTRA_BYTES_MAX];
    prompt_tokens(tokens, 0, page_tokens);
    pattern(extra, sizeof(extra), 9);
    struct kvt_key before = kvt_key_of_namespace("ns", 2);
    const struct kvt_key key = kvt_key_next(&before, tokens, page_tokens, extra, extra_bytes);
    struct {
        void *bytes;
        size_t count;
    } inputs[] = {
        {before.bytes, KVT_KEY_BYTES}, {tokens, 4 * (size_t)page_tokens}, {extra, extra_bytes}};
    for (size_t i = 0; i < 3; i++) {
        unsigned char *bytes = inputs[i].bytes;
        for (size_t bit = 0; bit < 8 * inputs[i].count; bit++) {
            bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
            struct kvt_key other = kvt_key_next(&before, tokens, page_tokens, extra, extra_bytes);
            ck_assert_msg(!keys_equal(&key, &other), "input %zu, bit %zu", i, bit);
            bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
        }
    }
    /* The control: with nothing changed it is the same again. */
    struct kvt_key again = kvt_key_next(&before, tokens, page_tokens, extra, extra_bytes);
    ck_assert(keys_equal(&key, &again));
}

START_TEST(every_bit_counts)
{
    check_every_bit(1, 0);
    check_every_bit(16, 0);
    check_every_bit(16, 40);
    check_every_bit(64, 256);
    check_every_bit(65, 0);
    check_every_bit(200, 300);
}
END_TEST

START_TEST(order_and_absence_count)
{
    const uint32_t tokens[4] = {5, 6, 7, 8};
    const uint32_t turned[4] = {7, 8, 5, 6};
    const unsigned char zero[40] = {0};
    struct kvt_key root = kvt_key_of_namespace("a", 1);
    struct kvt_key other_root = kvt_key_of_namespace("b", 1);
    struct kvt_key longer_root = kvt_key_of_namespace("a\0", 2);
    struct kvt_key ab = kvt_key_next(&root, tokens, 2, NULL, 0);
    ab = kvt_key_next(&ab, tokens + 2, 2, NULL, 0);
    struct kvt_key ba = kvt_key_next(&root, turned, 2, NULL, 0);
    ba = kvt_key_next(&ba, turned + 2, 2, NULL, 0);
    struct kvt_key elsewhere = kvt_key_next(&other_root, tokens, 2, NULL, 0);
    elsewhere = kvt_key_next(&elsewhere, tokens + 2, 2, NULL, 0);
    struct kvt_key with_zeroes = kvt_key_next(&root, tokens, 2, zero, sizeof(zero));
    struct kvt_key without = kvt_key_next(&root, tokens, 2, NULL, 0);
    ck_assert(!keys_equal(&root, &other_root));
    ck_assert(!keys_equal(&root, &longer_root));
    ck_assert(!keys_equal(&ab, &ba));
    ck_assert(!keys_equal(&ab, &elsewhere));
    ck_assert(!keys_equal(&with_zeroes, &without));
    struct kvt_key again = kvt_key_next(&root, tokens, 2, NULL, 0);
    ck_assert(keys_equal(&again, &without));
}
END_TEST

START_TEST(child_hash)
{
    uint32_t tokens[16];
    unsigned char extra[40];
    prompt_tokens(tokens, 0, 16);
    pattern(extra, sizeof(extra), 1);
    const uint64_t hash = kvt_hash_child(7, tokens, 16, NULL, 0);
    ck_assert_uint_eq(hash, kvt_hash_child(7, tokens, 16, NULL, 0));
    ck_assert_uint_ne(hash, kvt_hash_child(8, tokens, 16, NULL, 0));
    ck_assert_uint_ne(hash, kvt_hash_child(7, tokens, 15, NULL, 0));
    const uint64_t with_extra = kvt_hash_child(7, tokens, 16, extra, sizeof(extra));
    ck_assert_uint_ne(hash, with_extra);
    extra[39] ^= 1;
    ck_assert_uint_ne(with_extra, kvt_hash_child(7, tokens, 16, extra, sizeof(extra)));
    tokens[15] ^= 1;
    ck_assert_uint_ne(hash, kvt_hash_child(7, tokens, 16, NULL, 0));
    ck_assert_uint_eq(kvt_hash_bytes("abc", 3), kvt_hash_bytes("abc", 3));
    ck_assert_uint_ne(kvt_hash_bytes("abc", 3), kvt_hash_bytes("abd", 3));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("key");
    TCase *tcase = tcase_create("key");
    tcase_add_test(tcase, golden);
    tcase_add_test(tcase, streamed_is_one_piece);
    tcase_add_test(tcase, every_bit_counts);
    tcase_add_test(tcase, order_and_absence_count);
    tcase_add_test(tcase, child_hash);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
