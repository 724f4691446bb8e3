/* Pages after they entered: places in tiers, recency, and in which order they leave. */
#include "tests/support/index_rig.h"

#include <stdio.h>

/* The record of page `at` of the letters. A number stays good while a lease, or a busy mark, holds
 * the page; here nothing else is evicted meanwhile. */
static uint32_t record_of(struct index_rig *rig, const char *letters, uint32_t at)
{
    uint32_t record = KVT_PAGE_NONE;
    uint64_t lease = rig_lease(rig, letters);
    ck_assert_int_eq(kvt_index_pages(rig->index, lease, RIG_OWNER, at, 1, &record), KVT_OK);
    rig_release(rig, lease);
    return record;
}

static void touch(struct index_rig *rig, const char *letters)
{
    uint64_t lease = rig_lease(rig, letters);
    kvt_index_touch(rig->index, lease, RIG_OWNER);
    rig_release(rig, lease);
}

static uint32_t evict(struct index_rig *rig, uint32_t tier, uint32_t count)
{
    uint64_t before = rig_stats(rig).evicted_pages;
    uint32_t gone = kvt_index_evict(rig->index, tier, count);
    rig_check(rig);
    ck_assert_uint_eq(gone, rig->drop_count);
    ck_assert_uint_eq(rig_stats(rig).evicted_pages, before + gone);
    return gone;
}

static void check_tiers(struct index_rig *rig, const char *letters, uint32_t hbm, uint32_t host)
{
    struct kvt_match match = rig_match(rig, letters);
    ck_assert_msg(match.tier_pages[KVT_HBM] == hbm && match.tier_pages[KVT_HOST] == host,
                  "'%s': %u in hbm, %u in host", letters, match.tier_pages[KVT_HBM],
                  match.tier_pages[KVT_HOST]);
}

/* ---- places ---- */

START_TEST(match_counts_tiers)
{
    struct index_rig rig;
    rig_open(&rig);
    ck_assert_uint_eq(rig_put_in(&rig, rig.ns, "AB CD", KVT_HBM), 2);
    ck_assert_uint_eq(rig_put_in(&rig, rig.ns, "AB CD EF GH", KVT_HOST), 2); /* in one edge */
    ck_assert_uint_eq(rig_put_in(&rig, rig.ns, "AB CD EF GH *1IJ KL", KVT_HBM), 2);
    ck_assert_uint_eq(rig_stats(&rig).nodes, 3);
    check_tiers(&rig, "AB CD EF GH *1IJ KL", 4, 2); /* every edge whole */
    check_tiers(&rig, "AB CD EF GH *1IJ", 3, 2);    /* the last in part */
    check_tiers(&rig, "AB CD EF GH *1IJ XX", 3, 2);
    check_tiers(&rig, "AB CD EF GH", 2, 2); /* one edge, whole */
    check_tiers(&rig, "AB CD EF", 2, 1);    /* and in part */
    check_tiers(&rig, "AB CD", 2, 0);
    check_tiers(&rig, "AB", 1, 0);
    check_tiers(&rig, "XX", 0, 0);
    ck_assert_uint_eq(rig_stats(&rig).tier_pages[KVT_HBM], 4);
    ck_assert_uint_eq(rig_stats(&rig).tier_pages[KVT_HOST], 2);
    ck_assert_uint_eq(rig_put(&rig, "AB CD EF YY"), 1); /* split between the tiers' pages */
    check_tiers(&rig, "AB CD EF GH *1IJ KL", 4, 2);
    check_tiers(&rig, "AB CD EF YY", 2, 2);
    rig_close(&rig);
}
END_TEST

START_TEST(places_move)
{
    struct index_rig rig;
    rig_open(&rig);
    ck_assert_uint_eq(rig_put(&rig, "AB CD EF"), 3);
    uint64_t lease = rig_lease(&rig, "AB CD EF");
    uint32_t record = record_of(&rig, "AB CD EF", 1);
    ck_assert(!kvt_place_is(kvt_page_place(rig.index, record, KVT_HBM, 0)));
    rig_move(&rig, record, 2, KVT_HBM, true); /* up, and host keeps it */
    rig_check(&rig);
    check_tiers(&rig, "AB CD EF", 1, 2);
    ck_assert_uint_eq(rig_stats(&rig).tier_pages[KVT_HBM], 1);
    ck_assert_uint_eq(rig_stats(&rig).tier_pages[KVT_HOST], 3);
    ck_assert_uint_eq(kvt_page_place(rig.index, record, KVT_HBM, 0).slot, 2);
    rig_move(&rig, record, 2, KVT_HOST, false); /* host lets it go */
    rig_check(&rig);
    check_tiers(&rig, "AB CD EF", 1, 2);
    ck_assert_uint_eq(rig_stats(&rig).tier_pages[KVT_HOST], 2);
    rig_move(&rig, record, 2, KVT_HOST, true); /* down again */
    rig_move(&rig, record, 2, KVT_HBM, false);
    rig_check(&rig);
    check_tiers(&rig, "AB CD EF", 0, 3);
    ck_assert_uint_eq(rig_stats(&rig).tier_pages[KVT_HBM], 0);
    rig_move(&rig, record, 2, KVT_HOST, true); /* the same again changes nothing */
    rig_check(&rig);
    check_tiers(&rig, "AB CD EF", 0, 3);
    rig_release(&rig, lease);
    rig_close(&rig);
}
END_TEST

/* Records of three shards: all of them move, are told and leave together. */
START_TEST(three_shards)
{
    struct index_rig rig;
    rig_config(&rig);
    rig.config.shards = 3;
    rig_start(&rig);
    ck_assert_uint_eq(rig_put(&rig, "AB CD EF"), 3);
    ck_assert_uint_eq(rig_put(&rig, "AB XX"), 1);
    uint32_t record = record_of(&rig, "AB CD EF", 1);
    rig_move(&rig, record, 2, KVT_HBM, true);
    rig_check(&rig);
    for (uint32_t tier = 0; tier < KVT_MEMORY_TIERS; tier++) {
        for (uint32_t shard = 0; shard < 3; shard++) {
            struct kvt_place place = kvt_page_place(rig.index, record, tier, shard);
            struct kvt_place want = rig_place(&rig, 2, shard);
            ck_assert_uint_eq(place.slot, want.slot);
            ck_assert_uint_eq(place.generation, want.generation);
        }
    }
    struct kvt_place next = kvt_page_place(rig.index, record_of(&rig, "AB CD EF", 2), KVT_HBM, 0);
    ck_assert(!kvt_place_is(next));
    check_tiers(&rig, "AB CD EF", 1, 2);
    ck_assert_uint_eq(evict(&rig, KVT_HOST, 9), 4); /* on_drop looks at every place */
    ck_assert(RIG_DROPPED(&rig, 3, 2, 4, 1));
    rig_close(&rig);
}
END_TEST

/* ---- who leaves ---- */

START_TEST(evict_leaves_first)
{
    struct index_rig rig;
    rig_open(&rig);
    ck_assert_uint_eq(rig_put(&rig, "AB CD EF GH IJ"), 5);
    ck_assert_uint_eq(rig_put(&rig, "AB CD EF GK"), 1);
    ck_assert_uint_eq(rig_put(&rig, "QQ RR"), 2);
    ck_assert_uint_eq(evict(&rig, KVT_HOST, 0), 0);
    ck_assert_uint_eq(evict(&rig, KVT_HOST, 1), 1); /* the tail of the oldest leaf */
    ck_assert(RIG_DROPPED(&rig, 5));
    ck_assert_uint_eq(rig_match(&rig, "AB CD EF GH IJ").pages, 4);
    ck_assert_uint_eq(evict(&rig, KVT_HOST, 2), 2); /* its head, then the next oldest leaf */
    ck_assert(RIG_DROPPED(&rig, 4, 6));
    ck_assert_uint_eq(rig_stats(&rig).nodes, 3);
    ck_assert_uint_eq(evict(&rig, KVT_HOST, 2), 2); /* their parent is a leaf now, and older */
    ck_assert(RIG_DROPPED(&rig, 3, 2));
    ck_assert_uint_eq(evict(&rig, KVT_HOST, 9), 3);
    ck_assert(RIG_DROPPED(&rig, 1, 8, 7));
    ck_assert_uint_eq(evict(&rig, KVT_HOST, 9), 0);
    ck_assert_uint_eq(rig_stats(&rig).nodes, 1);
    ck_assert_uint_eq(rig_stats(&rig).token_bytes, 0);
    ck_assert_uint_eq(rig_put(&rig, "AB CD EF GK"), 4); /* and all can come again */
    rig_close(&rig);
}
END_TEST

START_TEST(touch_moves_recency)
{
    struct index_rig rig;
    rig_open(&rig);
    ck_assert_uint_eq(rig_put(&rig, "AA 11"), 2);
    ck_assert_uint_eq(rig_put(&rig, "BB 22"), 2);
    ck_assert_uint_eq(rig_put(&rig, "CC 33"), 2);
    (void)rig_match(&rig, "AA 11"); /* a match does not, nor does a lease */
    rig_release(&rig, rig_lease(&rig, "AA 11"));
    touch(&rig, "BB"); /* the whole edge, though only half of it was delivered */
    ck_assert_uint_eq(evict(&rig, KVT_HOST, 9), 6);
    ck_assert(RIG_DROPPED(&rig, 2, 1, 6, 5, 4, 3));
    rig_close(&rig);
}
END_TEST

/* A head that is touched with one of its tails outlives the other tails, and the tail. */
START_TEST(touch_goes_up_the_path)
{
    struct index_rig rig;
    rig_open(&rig);
    ck_assert_uint_eq(rig_put(&rig, "AB CD 11"), 3);
    ck_assert_uint_eq(rig_put(&rig, "AB CD 22"), 1);
    ck_assert_uint_eq(rig_put(&rig, "AB XX"), 1);
    ck_assert_uint_eq(rig_put(&rig, "QQ"), 1);
    touch(&rig, "AB CD 11"); /* pages 3, 2, 1 in this order */
    ck_assert_uint_eq(evict(&rig, KVT_HOST, 9), 6);
    ck_assert(RIG_DROPPED(&rig, 4, 5, 6, 3, 2, 1));
    rig_close(&rig);

    rig_open(&rig);
    ck_assert_uint_eq(rig_put(&rig, "AB CD 11"), 3);
    ck_assert_uint_eq(rig_put(&rig, "AB CD 22"), 1);
    ck_assert_uint_eq(rig_put(&rig, "QQ"), 1);
    touch(&rig, "AB CD 11");
    uint64_t lease = rig_lease(&rig, "QQ");
    ck_assert_uint_eq(evict(&rig, KVT_HOST, 2), 2);
    ck_assert(RIG_DROPPED(&rig, 4, 3));
    rig_release(&rig, lease);
    ck_assert_uint_eq(evict(&rig, KVT_HOST, 9), 3);
    ck_assert(RIG_DROPPED(&rig, 5, 2, 1)); /* the head is younger than QQ, also alone */
    rig_close(&rig);
}
END_TEST

/* The upper part of a split edge stands where the edge stood. */
START_TEST(split_keeps_recency)
{
    struct index_rig rig;
    rig_open(&rig);
    ck_assert_uint_eq(rig_put(&rig, "AB CD EF"), 3);
    ck_assert_uint_eq(rig_put(&rig, "QQ"), 1);
    ck_assert_uint_eq(rig_put(&rig, "AB XX"), 1); /* splits the oldest edge; 5 is the newest */
    ck_assert_uint_eq(evict(&rig, KVT_HOST, 3), 3);
    ck_assert(RIG_DROPPED(&rig, 3, 2, 4));
    ck_assert_uint_eq(evict(&rig, KVT_HOST, 9), 2);
    ck_assert(RIG_DROPPED(&rig, 5, 1));
    rig_close(&rig);

    rig_open(&rig);
    ck_assert_uint_eq(rig_put(&rig, "AB CD EF"), 3);
    ck_assert_uint_eq(rig_put(&rig, "QQ"), 1);
    ck_assert_uint_eq(rig_put(&rig, "AB XX"), 1);
    uint64_t lease = rig_lease(&rig, "QQ");
    ck_assert_uint_eq(evict(&rig, KVT_HOST, 3), 3);
    ck_assert(RIG_DROPPED(&rig, 3, 2, 5));
    rig_release(&rig, lease);
    ck_assert_uint_eq(evict(&rig, KVT_HOST, 1), 1);
    ck_assert(RIG_DROPPED(&rig, 1)); /* older than QQ, as the edge was that it was cut from */
    rig_close(&rig);
}
END_TEST

START_TEST(leased_pages_stay)
{
    struct index_rig rig;
    rig_open(&rig);
    ck_assert_uint_eq(rig_put(&rig, "AB CD EF GH"), 4);
    ck_assert_uint_eq(rig_put(&rig, "AB XX YY"), 2);
    uint64_t lease = rig_lease(&rig, "AB CD"); /* inside an edge */
    ck_assert_uint_eq(evict(&rig, KVT_HOST, 9), 4);
    ck_assert(RIG_DROPPED(&rig, 4, 3, 6, 5));
    ck_assert_uint_eq(rig_match(&rig, "AB CD EF").pages, 2);
    ck_assert_uint_eq(evict(&rig, KVT_HOST, 9), 0);
    uint64_t second = rig_lease(&rig, "AB");
    rig_release(&rig, lease);
    ck_assert_uint_eq(evict(&rig, KVT_HOST, 9), 1);
    ck_assert(RIG_DROPPED(&rig, 2));
    rig_release(&rig, second);
    ck_assert_uint_eq(evict(&rig, KVT_HOST, 9), 1);
    ck_assert(RIG_DROPPED(&rig, 1));
    rig_close(&rig);
}
END_TEST

START_TEST(busy_pages_stay)
{
    struct index_rig rig;
    rig_open(&rig);
    ck_assert_uint_eq(rig_put(&rig, "AB CD EF GH"), 4);
    uint32_t record = record_of(&rig, "AB CD EF GH", 1);
    kvt_page_set_busy(rig.index, record, true);
    kvt_page_set_busy(rig.index, record, true);
    ck_assert_uint_eq(evict(&rig, KVT_HOST, 9), 2); /* what follows may go, what it follows not */
    ck_assert(RIG_DROPPED(&rig, 4, 3));
    kvt_page_set_busy(rig.index, record, false);
    ck_assert_uint_eq(evict(&rig, KVT_HOST, 9), 0);
    kvt_page_set_busy(rig.index, record, false);
    ck_assert_uint_eq(evict(&rig, KVT_HOST, 9), 2);
    ck_assert(RIG_DROPPED(&rig, 2, 1));
    rig_close(&rig);
}
END_TEST

/* A page counts where it has a place; a tail that lies elsewhere keeps its edge. */
START_TEST(evict_one_tier)
{
    struct index_rig rig;
    rig_open(&rig);
    ck_assert_uint_eq(rig_put_in(&rig, rig.ns, "AB CD", KVT_HOST), 2);
    ck_assert_uint_eq(rig_put_in(&rig, rig.ns, "AB CD EF", KVT_HBM), 1);
    ck_assert_uint_eq(rig_put_in(&rig, rig.ns, "QQ RR", KVT_HBM), 2);
    rig_move(&rig, record_of(&rig, "QQ RR", 1), 5, KVT_HOST, true); /* in both */
    ck_assert_uint_eq(evict(&rig, KVT_HOST, 9), 1);
    ck_assert(RIG_DROPPED(&rig, 5));
    ck_assert_uint_eq(rig_stats(&rig).tier_pages[KVT_HBM], 2);
    ck_assert_uint_eq(evict(&rig, KVT_HBM, 9), 2);
    ck_assert(RIG_DROPPED(&rig, 3, 4));
    ck_assert_uint_eq(evict(&rig, KVT_HBM, 9), 0);
    ck_assert_uint_eq(evict(&rig, KVT_HOST, 9), 2);
    ck_assert(RIG_DROPPED(&rig, 2, 1));
    rig_close(&rig);
}
END_TEST

START_TEST(evict_any_tier)
{
    struct index_rig rig;
    rig_open(&rig);
    ck_assert_uint_eq(rig_put_in(&rig, rig.ns, "AB CD", KVT_HOST), 2);
    ck_assert_uint_eq(rig_put_in(&rig, rig.ns, "AB CD EF", KVT_HBM), 1);
    ck_assert_uint_eq(rig_put_in(&rig, rig.ns, "QQ RR", KVT_HBM), 2);
    touch(&rig, "AB CD EF");
    ck_assert_uint_eq(evict(&rig, KVT_TIERS, 3), 3);
    ck_assert(RIG_DROPPED(&rig, 5, 4, 3));
    ck_assert_uint_eq(evict(&rig, KVT_TIERS, 9), 2);
    ck_assert(RIG_DROPPED(&rig, 2, 1));
    rig_close(&rig);
}
END_TEST

/* More edges than the index asks its policy for at a time, most of them pinned. */
START_TEST(evict_behind_many_pinned)
{
    struct index_rig rig;
    rig_config(&rig);
    rig.config.leases_max = 400;
    rig_start(&rig);
    static uint64_t leases[300];
    char letters[16];
    for (uint32_t i = 0; i < 300; i++) {
        (void)snprintf(letters, sizeof(letters), "%c%c", 'A' + i % 20, 'A' + i / 20);
        ck_assert_uint_eq(rig_put(&rig, letters), 1);
        leases[i] = i % 100 == 99 ? 0 : rig_lease(&rig, letters);
    }
    ck_assert_uint_eq(evict(&rig, KVT_HOST, 2), 2);
    ck_assert(RIG_DROPPED(&rig, 100, 200));
    ck_assert_uint_eq(evict(&rig, KVT_HOST, 9), 1);
    ck_assert(RIG_DROPPED(&rig, 300));
    for (uint32_t i = 0; i < 300; i++) {
        if (leases[i] != 0) {
            rig_release(&rig, leases[i]);
        }
    }
    ck_assert_uint_eq(evict(&rig, KVT_HOST, 1000), 297);
    for (uint32_t i = 1, at = 0; i < 300; i++) {
        at += i % 100 != 0;
        ck_assert(i % 100 == 0 || rig.drops[at - 1] == i);
    }
    rig_close(&rig);
}
END_TEST

/* ---- who may move down ---- */

START_TEST(demotable_pages)
{
    struct index_rig rig;
    uint32_t records[8];
    rig_open(&rig);
    ck_assert_uint_eq(rig_put_in(&rig, rig.ns, "AB CD", KVT_HBM), 2);
    ck_assert_uint_eq(rig_put_in(&rig, rig.ns, "QQ", KVT_HBM), 1);
    ck_assert_uint_eq(rig_put_in(&rig, rig.ns, "RR", KVT_HOST), 1);
    ck_assert_uint_eq(rig_put_in(&rig, rig.ns, "AB CD EF", KVT_HOST), 1);
    uint64_t lease = rig_lease(&rig, "AB CD"); /* a lease pins existence, not the tier */
    const uint32_t want[] = {record_of(&rig, "AB CD", 1), record_of(&rig, "AB CD", 0),
                             record_of(&rig, "QQ", 0)};
    ck_assert_uint_eq(kvt_index_demotable(rig.index, KVT_HBM, 8, records), 3);
    ck_assert_mem_eq(records, want, sizeof(want));
    ck_assert_uint_eq(kvt_index_demotable(rig.index, KVT_HBM, 2, records), 2);
    ck_assert_mem_eq(records, want, 2 * sizeof(want[0]));
    ck_assert_uint_eq(kvt_index_demotable(rig.index, KVT_HBM, 0, records), 0);
    kvt_page_set_busy(rig.index, want[1], true);
    ck_assert_uint_eq(kvt_index_demotable(rig.index, KVT_HBM, 8, records), 2);
    ck_assert_uint_eq(records[0], want[0]);
    ck_assert_uint_eq(records[1], want[2]);
    kvt_page_set_busy(rig.index, want[1], false);
    touch(&rig, "AB");
    ck_assert_uint_eq(kvt_index_demotable(rig.index, KVT_HBM, 1, records), 1);
    ck_assert_uint_eq(records[0], want[2]);
    rig_move(&rig, want[2], 3, KVT_HOST, true); /* demoted */
    rig_move(&rig, want[2], 3, KVT_HBM, false);
    ck_assert_uint_eq(kvt_index_demotable(rig.index, KVT_HBM, 8, records), 2);
    rig_release(&rig, lease);
    rig_close(&rig);
}
END_TEST

/* What comes down from hbm stands in host's ranking where its last use puts it. */
START_TEST(demoted_pages_keep_their_rank)
{
    struct index_rig rig;
    rig_open(&rig);
    ck_assert_uint_eq(rig_put_in(&rig, rig.ns, "AA", KVT_HBM), 1);
    ck_assert_uint_eq(rig_put_in(&rig, rig.ns, "BB", KVT_HOST), 1);
    ck_assert_uint_eq(rig_put_in(&rig, rig.ns, "CC", KVT_HBM), 1);
    touch(&rig, "AA"); /* while it is in hbm only */
    static const struct {
        const char *letters;
        uint32_t number;
    } down[] = {{"AA", 1}, {"CC", 3}};
    for (size_t i = 0; i < 2; i++) {
        uint32_t record = record_of(&rig, down[i].letters, 0);
        rig_move(&rig, record, down[i].number, KVT_HOST, true);
        rig_move(&rig, record, down[i].number, KVT_HBM, false);
        rig_check(&rig);
    }
    ck_assert_uint_eq(evict(&rig, KVT_HOST, 9), 3);
    ck_assert(RIG_DROPPED(&rig, 2, 3, 1)); /* not 2 1 3, the order in which they came to host */
    rig_close(&rig);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("index_evict");
    TCase *tcase = tcase_create("index_evict");
    tcase_set_timeout(tcase, 0);
    tcase_add_test(tcase, match_counts_tiers);
    tcase_add_test(tcase, places_move);
    tcase_add_test(tcase, three_shards);
    tcase_add_test(tcase, evict_leaves_first);
    tcase_add_test(tcase, touch_moves_recency);
    tcase_add_test(tcase, touch_goes_up_the_path);
    tcase_add_test(tcase, split_keeps_recency);
    tcase_add_test(tcase, leased_pages_stay);
    tcase_add_test(tcase, busy_pages_stay);
    tcase_add_test(tcase, evict_one_tier);
    tcase_add_test(tcase, evict_any_tier);
    tcase_add_test(tcase, evict_behind_many_pinned);
    tcase_add_test(tcase, demotable_pages);
    tcase_add_test(tcase, demoted_pages_keep_their_rank);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
