/* Leases: what they pin, where they stand after splits, and handles that are not theirs. */
#include "tests/support/index_rig.h"
#include "tests/support/test_random.h"

#include <stdio.h>

static struct kvt_lease_stats lease_stats(const struct index_rig *rig)
{
    struct kvt_lease_stats stats;
    kvt_lease_stats(rig->index, &stats);
    return stats;
}

/* A lease on each prefix of the letters, the empty one too. */
static uint32_t lease_prefixes(struct index_rig *rig, const char *letters, uint64_t *out_leases)
{
    uint32_t count = 0;
    char prefix[RIG_TOKENS_MAX];
    for (size_t at = 0; at <= strlen(letters) + 1; at += 3) {
        (void)snprintf(prefix, sizeof(prefix), "%.*s", (int)at, letters);
        out_leases[count++] = rig_lease(rig, prefix);
    }
    return count;
}

/* Leases end on both sides of a split, and at it: all keep their pages. */
static void check_split(uint32_t at)
{
    static const char letters[] = "AB CD EF GH IJ";
    struct index_rig rig;
    uint64_t leases[6];
    uint32_t numbers[RIG_PAGES_MAX] = {0};
    char branch[32];
    rig_open(&rig);
    ck_assert_uint_eq(rig_put(&rig, letters), 5);
    ck_assert_uint_eq(lease_prefixes(&rig, letters, leases), 6);
    ck_assert_uint_eq(lease_stats(&rig).leased_pages, 1 + 2 + 3 + 4 + 5);
    (void)snprintf(branch, sizeof(branch), "%.*sXX", (int)(3 * at), letters);
    ck_assert_uint_eq(rig_put(&rig, branch), 1);
    ck_assert_uint_eq(rig_stats(&rig).nodes, 4);
    for (uint32_t i = 0; i < 6; i++) {
        ck_assert_uint_eq(rig_lease_pages(&rig, leases[i]), i);
        rig_numbers(&rig, leases[i], KVT_HOST, numbers);
        for (uint32_t page = 0; page < i; page++) {
            ck_assert_uint_eq(numbers[page], page + 1);
        }
    }
    ck_assert_uint_eq(lease_stats(&rig).leased_pages, 1 + 2 + 3 + 4 + 5);
    /* Deepest first or last: what is still leased stays. */
    static const uint32_t orders[2][6] = {{5, 3, 4, 0, 2, 1}, {0, 1, 2, 3, 4, 5}};
    static const uint32_t left[2][6] = {{4, 4, 2, 2, 1, 0}, {5, 5, 5, 5, 5, 0}};
    const uint32_t *order = orders[at % 2];
    for (uint32_t i = 0; i < 6; i++) {
        rig_release(&rig, leases[order[i]]);
        (void)kvt_index_evict(rig.index, KVT_HOST, 100);
        rig_check(&rig);
        ck_assert_uint_eq(rig_match(&rig, letters).pages, left[at % 2][i]);
    }
    ck_assert_uint_eq(rig_stats(&rig).pages, 0);
    ck_assert_uint_eq(lease_stats(&rig).leases, 0);
    ck_assert_uint_eq(lease_stats(&rig).leased_pages, 0);
    rig_close(&rig);
}

START_TEST(split_between_leases)
{
    for (uint32_t at = 1; at <= 4; at++) {
        check_split(at);
    }
}
END_TEST

/* The lease under which pages are entered stays where it was, also when its edge is split. */
START_TEST(insert_under_lease)
{
    struct index_rig rig;
    uint32_t duplicates, inserted;
    rig_open(&rig);
    ck_assert_uint_eq(rig_put(&rig, "AB CD EF"), 3);
    uint64_t lease = rig_lease(&rig, "AB CD");
    ck_assert_int_eq(rig_insert(&rig, lease, "AB CD XX YY", KVT_HOST, &duplicates, &inserted),
                     KVT_OK);
    ck_assert_uint_eq(inserted, 2);
    ck_assert_uint_eq(rig_lease_pages(&rig, lease), 2);
    ck_assert_uint_eq(rig_match(&rig, "AB CD XX YY").pages, 4);
    ck_assert_uint_eq(kvt_index_evict(rig.index, KVT_HOST, 100), 3);
    ck_assert_uint_eq(rig_match(&rig, "AB CD").pages, 2);
    rig_release(&rig, lease);
    rig_close(&rig);
}
END_TEST

/* ---- handles ---- */

/* No call takes this handle from this owner, and nothing changes. */
static void check_refused(struct index_rig *rig, uint64_t handle, uint32_t owner)
{
    struct kvt_lease_info info = {.owner = 77};
    uint32_t records[4] = {77};
    struct kvt_index_stats before = rig_stats(rig);
    struct kvt_lease_stats leases_before = lease_stats(rig);
    EXPECT(kvt_lease_get(rig->index, handle, owner, &info) == KVT_ERR_STALE);
    EXPECT(info.owner == 77); /* written only on success */
    EXPECT(kvt_lease_begin(rig->index, handle, owner) == KVT_ERR_STALE);
    EXPECT(kvt_index_pages(rig->index, handle, owner, 0, 1, records) == KVT_ERR_STALE);
    EXPECT(records[0] == 77);
    kvt_index_touch(rig->index, handle, owner);
    EXPECT(kvt_lease_release(rig->index, handle, owner) == KVT_ERR_STALE);
    struct kvt_index_stats after = rig_stats(rig);
    struct kvt_lease_stats leases_after = lease_stats(rig);
    EXPECT(memcmp(&before, &after, sizeof(before)) == 0);
    EXPECT(leases_before.leases == leases_after.leases);
    EXPECT(leases_before.leased_pages == leases_after.leased_pages);
    EXPECT(leases_before.oldest_ns == leases_after.oldest_ns);
}

START_TEST(handles_refused)
{
    struct index_rig rig;
    rig_open(&rig);
    ck_assert_uint_eq(rig_put(&rig, "AB CD"), 2);
    uint64_t spent = rig_lease(&rig, "AB CD");
    rig_release(&rig, spent);
    check_refused(&rig, spent, RIG_OWNER);
    uint64_t lease = rig_lease(&rig, "AB CD"); /* the same number in the pool */
    ck_assert_uint_eq((uint32_t)lease, (uint32_t)spent);
    ck_assert_uint_ne(lease, spent);
    ck_assert_uint_ne(lease, 0);
    check_refused(&rig, spent, RIG_OWNER);
    check_refused(&rig, lease, RIG_OWNER + 1);
    check_refused(&rig, 0, RIG_OWNER);
    check_refused(&rig, UINT64_MAX, RIG_OWNER);
    check_refused(&rig, lease + 1, RIG_OWNER);
    check_refused(&rig, lease + rig.config.leases_max, RIG_OWNER);
    check_refused(&rig, lease + (UINT64_C(1) << 32), RIG_OWNER);
    check_refused(&rig, lease + (UINT64_C(2) << 32), RIG_OWNER);
    check_refused(&rig, lease & UINT32_MAX, RIG_OWNER);
    struct test_random random = {4};
    for (uint32_t i = 0; i < 100000; i++) {
        uint64_t guess = test_random_u64(&random);
        check_refused(&rig, i % 2 ? guess : (guess << 32) | (uint32_t)lease, RIG_OWNER);
    }
    ck_assert_uint_eq(rig_lease_pages(&rig, lease), 2); /* the control */
    rig_release(&rig, lease);
    rig_close(&rig);
}
END_TEST

/* Another seed, other handles: one cannot be made from another process's. */
START_TEST(handles_differ_by_seed)
{
    uint64_t handles[2];
    for (uint32_t i = 0; i < 2; i++) {
        struct index_rig rig;
        rig_config(&rig);
        rig.config.seed = i;
        rig_start(&rig);
        handles[i] = rig_lease(&rig, "");
        rig_release(&rig, handles[i]);
        rig_close(&rig);
    }
    ck_assert_uint_ne(handles[0], handles[1]);
}
END_TEST

START_TEST(leases_are_limited)
{
    struct index_rig rig;
    uint64_t leases[32], more = 77;
    rig_open(&rig);
    ck_assert_uint_eq(rig_put(&rig, "AB CD"), 2);
    for (uint32_t round = 0; round < 3; round++) {
        for (uint32_t i = 0; i < 32; i++) {
            leases[i] = rig_lease(&rig, i % 2 ? "AB" : "AB CD");
            for (uint32_t j = 0; j < i; j++) {
                ck_assert_uint_ne(leases[i], leases[j]);
            }
        }
        struct kvt_match match = rig_match(&rig, "AB");
        ck_assert_int_eq(kvt_lease_acquire(rig.index, &match, RIG_OWNER, 1, RIG_NEVER, &more),
                         KVT_ERR_LIMIT);
        ck_assert_uint_eq(more, 77);
        ck_assert_uint_eq(lease_stats(&rig).leases, 32);
        ck_assert_uint_eq(lease_stats(&rig).leases_max, 32);
        ck_assert_uint_eq(lease_stats(&rig).leased_pages, 48);
        for (uint32_t i = 0; i < 32; i++) {
            rig_release(&rig, leases[(i * 7 + round) % 32]);
            rig_check(&rig);
        }
    }
    ck_assert_uint_eq(lease_stats(&rig).oldest_ns, UINT64_MAX);
    rig_close(&rig);
}
END_TEST

/* ---- transfers, expiry, owners ---- */

START_TEST(release_while_transfers_run)
{
    struct index_rig rig;
    struct kvt_lease_info info;
    rig_open(&rig);
    ck_assert_uint_eq(rig_put(&rig, "AB CD"), 2);
    uint64_t lease = rig_lease(&rig, "AB CD");
    ck_assert_int_eq(kvt_lease_begin(rig.index, lease, RIG_OWNER), KVT_OK);
    ck_assert_int_eq(kvt_lease_begin(rig.index, lease, RIG_OWNER), KVT_OK);
    ck_assert_int_eq(kvt_lease_get(rig.index, lease, RIG_OWNER, &info), KVT_OK);
    ck_assert_uint_eq(info.transfers, 2);
    ck_assert_uint_eq(info.owner, RIG_OWNER);
    rig_release(&rig, lease);
    check_refused(&rig, lease, RIG_OWNER); /* its owner has given it up ... */
    ck_assert_uint_eq(kvt_index_evict(rig.index, KVT_HOST, 9), 0); /* ... it pins all the same */
    ck_assert_uint_eq(kvt_lease_expire(rig.index, RIG_NEVER), 0);
    ck_assert_uint_eq(kvt_lease_drop_owner(rig.index, RIG_OWNER), 0);
    ck_assert_uint_eq(lease_stats(&rig).leases, 1);
    kvt_lease_end(rig.index, lease);
    ck_assert_uint_eq(kvt_index_evict(rig.index, KVT_HOST, 9), 0);
    kvt_lease_end(rig.index, lease);
    ck_assert_uint_eq(lease_stats(&rig).leases, 0);
    ck_assert_uint_eq(kvt_index_evict(rig.index, KVT_HOST, 9), 2);
    check_refused(&rig, lease, RIG_OWNER);
    rig_close(&rig);
}
END_TEST

START_TEST(transfer_ends_first)
{
    struct index_rig rig;
    rig_open(&rig);
    ck_assert_uint_eq(rig_put(&rig, "AB CD"), 2);
    uint64_t lease = rig_lease(&rig, "AB CD");
    ck_assert_int_eq(kvt_lease_begin(rig.index, lease, RIG_OWNER), KVT_OK);
    kvt_lease_end(rig.index, lease);
    ck_assert_uint_eq(rig_lease_pages(&rig, lease), 2); /* still the owner's */
    ck_assert_uint_eq(kvt_index_evict(rig.index, KVT_HOST, 9), 0);
    rig_release(&rig, lease);
    ck_assert_uint_eq(kvt_index_evict(rig.index, KVT_HOST, 9), 2);
    rig_close(&rig);
}
END_TEST

static uint64_t lease_until(struct index_rig *rig, uint32_t owner, uint64_t now_ns,
                            uint64_t expires_ns)
{
    uint64_t lease = 0;
    struct kvt_match match = rig_match(rig, "AB CD");
    ck_assert_int_eq(kvt_lease_acquire(rig->index, &match, owner, now_ns, expires_ns, &lease),
                     KVT_OK);
    return lease;
}

START_TEST(expiry)
{
    struct index_rig rig;
    rig_open(&rig);
    ck_assert_uint_eq(rig_put(&rig, "AB CD"), 2);
    uint64_t a = lease_until(&rig, RIG_OWNER, 50, 100);
    uint64_t b = lease_until(&rig, RIG_OWNER, 40, 200);
    uint64_t c = lease_until(&rig, RIG_OWNER, 60, 100);
    uint64_t d = lease_until(&rig, RIG_OWNER, 70, 100);
    ck_assert_uint_eq(lease_stats(&rig).oldest_ns, 40);
    ck_assert_int_eq(kvt_lease_begin(rig.index, c, RIG_OWNER),
                     KVT_OK); /* in use: does not expire */
    kvt_lease_extend(rig.index, d, 300);
    kvt_lease_extend(rig.index, d, 10); /* never back */
    kvt_lease_extend(rig.index, a + 1, 999);
    kvt_lease_extend(rig.index, 0, 999);
    ck_assert_uint_eq(kvt_lease_expire(rig.index, 99), 0);
    ck_assert_uint_eq(kvt_lease_expire(rig.index, 100), 1);
    check_refused(&rig, a, RIG_OWNER);
    ck_assert_uint_eq(kvt_lease_expire(rig.index, 199), 0);
    ck_assert_uint_eq(kvt_lease_expire(rig.index, 200), 1);
    check_refused(&rig, b, RIG_OWNER);
    ck_assert_uint_eq(lease_stats(&rig).oldest_ns, 60);
    kvt_lease_end(rig.index, c); /* unused again, and long expired */
    ck_assert_uint_eq(kvt_lease_expire(rig.index, 201), 1);
    check_refused(&rig, c, RIG_OWNER);
    ck_assert_uint_eq(rig_lease_pages(&rig, d), 2);
    ck_assert_uint_eq(kvt_lease_expire(rig.index, 300), 1);
    ck_assert_uint_eq(lease_stats(&rig).leases, 0);
    rig_close(&rig);
}
END_TEST

START_TEST(owners)
{
    struct index_rig rig;
    rig_open(&rig);
    ck_assert_uint_eq(rig_put(&rig, "AB CD"), 2);
    uint64_t mine = lease_until(&rig, 5, 1, RIG_NEVER);
    uint64_t idle = lease_until(&rig, 6, 1, RIG_NEVER);
    uint64_t busy = lease_until(&rig, 6, 1, RIG_NEVER);
    uint64_t released = lease_until(&rig, 6, 1, RIG_NEVER);
    ck_assert_int_eq(kvt_lease_begin(rig.index, busy, 6), KVT_OK);
    ck_assert_int_eq(kvt_lease_begin(rig.index, released, 6), KVT_OK);
    ck_assert_int_eq(kvt_lease_release(rig.index, released, 6), KVT_OK);
    ck_assert_uint_eq(kvt_lease_drop_owner(rig.index, 7), 0);
    ck_assert_uint_eq(kvt_lease_drop_owner(rig.index, 6), 2);
    ck_assert_uint_eq(kvt_lease_drop_owner(rig.index, 6), 0);
    check_refused(&rig, idle, 6);
    check_refused(&rig, busy, 6);
    ck_assert_uint_eq(lease_stats(&rig).leases, 3);
    kvt_lease_end(rig.index, busy);
    kvt_lease_end(rig.index, released);
    ck_assert_uint_eq(lease_stats(&rig).leases, 1);
    ck_assert_int_eq(kvt_lease_release(rig.index, mine, 5), KVT_OK);
    rig_close(&rig);
}
END_TEST

START_TEST(covers)
{
    struct index_rig rig;
    uint32_t other;
    rig_open(&rig);
    ck_assert_int_eq(kvt_index_namespace(rig.index, "other", 5, 7, &other), KVT_OK);
    ck_assert_uint_eq(rig_put_in(&rig, other, "AB CD EF", KVT_HOST), 3);
    ck_assert_uint_eq(rig_put(&rig, "AB CD EF GH"), 4);
    ck_assert_uint_eq(rig_put(&rig, "AB CD XX"), 1);
    uint64_t lease = rig_lease(&rig, "AB CD EF");
    static const struct {
        const char *letters;
        bool covered;
    } cases[] = {
        {"AB CD EF", true},  {"AB CD EF GH", true}, {"AB CD EF ZZ", true}, {"AB CD", false},
        {"AB CD XX", false}, {"AB", false},         {"QQ", false},         {"", false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct kvt_match match = rig_match(&rig, cases[i].letters);
        ck_assert_msg(kvt_lease_covers(rig.index, lease, RIG_OWNER, &match) == cases[i].covered,
                      "'%s'", cases[i].letters);
        ck_assert(!kvt_lease_covers(rig.index, lease, RIG_OWNER + 1, &match));
        ck_assert(!kvt_lease_covers(rig.index, lease + 1, RIG_OWNER, &match));
    }
    struct kvt_match elsewhere = rig_match_in(&rig, other, "AB CD EF");
    ck_assert(!kvt_lease_covers(rig.index, lease, RIG_OWNER, &elsewhere));
    uint64_t nothing =
        rig_lease(&rig, ""); /* the empty prefix is a prefix of all in its namespace */
    struct kvt_match match = rig_match(&rig, "AB CD XX");
    ck_assert(kvt_lease_covers(rig.index, nothing, RIG_OWNER, &match));
    ck_assert(!kvt_lease_covers(rig.index, nothing, RIG_OWNER, &elsewhere));
    rig_release(&rig, nothing);
    rig_release(&rig, lease);
    match = rig_match(&rig, "AB CD EF");
    ck_assert(!kvt_lease_covers(rig.index, lease, RIG_OWNER, &match)); /* spent */
    rig_close(&rig);
}
END_TEST

START_TEST(user_number)
{
    struct index_rig rig;
    struct kvt_lease_info info;
    rig_open(&rig);
    uint64_t lease = rig_lease(&rig, "");
    ck_assert_int_eq(kvt_lease_get(rig.index, lease, RIG_OWNER, &info), KVT_OK);
    ck_assert_uint_eq(info.user, 0);
    kvt_lease_set_user(rig.index, lease, 17);
    ck_assert_int_eq(kvt_lease_get(rig.index, lease, RIG_OWNER, &info), KVT_OK);
    ck_assert_uint_eq(info.user, 17);
    rig_release(&rig, lease);
    uint64_t next = rig_lease(&rig, ""); /* the same place in the pool */
    ck_assert_int_eq(kvt_lease_get(rig.index, next, RIG_OWNER, &info), KVT_OK);
    ck_assert_uint_eq(info.user, 0);
    rig_release(&rig, next);
    rig_close(&rig);
}
END_TEST

/* ---- nothing is allocated where prompts are looked up ---- */

START_TEST(no_allocation_on_the_way)
{
    struct index_rig rig;
    struct text text;
    uint32_t record;
    rig_open(&rig);
    ck_assert_uint_eq(rig_put(&rig, "AB CD EF GH *1IJ KL"), 6);
    ck_assert_uint_eq(rig_put(&rig, "AB CD XX"), 1);
    const struct kvt_prompt *prompt = text_make(&text, "AB CD EF GH *1IJ KL MN");
    uint64_t before = rig.memory.calls;
    for (uint32_t i = 0; i < 100; i++) {
        struct kvt_match match;
        struct kvt_lease_info info;
        uint64_t lease = 0;
        kvt_index_match(rig.index, rig.ns, prompt, &match);
        (void)kvt_index_match_key(rig.index, &match);
        EXPECT(kvt_lease_acquire(rig.index, &match, RIG_OWNER, 1, 2, &lease) == KVT_OK);
        EXPECT(kvt_lease_get(rig.index, lease, RIG_OWNER, &info) == KVT_OK);
        EXPECT(kvt_index_pages(rig.index, lease, RIG_OWNER, 5, 1, &record) == KVT_OK);
        EXPECT(kvt_lease_begin(rig.index, lease, RIG_OWNER) == KVT_OK);
        kvt_page_set_busy(rig.index, record, true);
        rig_move(&rig, record, 6, KVT_HBM, true);
        kvt_index_touch(rig.index, lease, RIG_OWNER);
        rig_move(&rig, record, 6, KVT_HBM, false);
        kvt_page_set_busy(rig.index, record, false);
        EXPECT(kvt_index_demotable(rig.index, KVT_HOST, 1, &record) == 1);
        kvt_lease_end(rig.index, lease);
        EXPECT(kvt_lease_release(rig.index, lease, RIG_OWNER) == KVT_OK);
        (void)kvt_lease_expire(rig.index, 3);
        (void)kvt_index_match_elsewhere(rig.index, rig.ns, prompt);
    }
    ck_assert_uint_eq(rig.memory.calls, before);
    ck_assert_uint_eq(rig_put(&rig, "AB CD YY"), 1);
    ck_assert_uint_gt(rig.memory.calls, before); /* the control */
    rig_close(&rig);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("index_lease");
    TCase *tcase = tcase_create("index_lease");
    tcase_set_timeout(tcase, 0);
    tcase_add_test(tcase, split_between_leases);
    tcase_add_test(tcase, insert_under_lease);
    tcase_add_test(tcase, handles_refused);
    tcase_add_test(tcase, handles_differ_by_seed);
    tcase_add_test(tcase, leases_are_limited);
    tcase_add_test(tcase, release_while_transfers_run);
    tcase_add_test(tcase, transfer_ends_first);
    tcase_add_test(tcase, expiry);
    tcase_add_test(tcase, owners);
    tcase_add_test(tcase, covers);
    tcase_add_test(tcase, user_number);
    tcase_add_test(tcase, no_allocation_on_the_way);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
