/* What nvme needs of the index: each function by itself, on small drawings. */
#include "tests/support/index_rig.h"

#include <stdio.h>

/* ---- drawings ---- */

struct drawing {
    struct index_rig rig; /* first: what the index's callbacks are given is both */
    uint32_t strips[RIG_PAGES_MAX];
    uint32_t strip_tiers[RIG_PAGES_MAX];
    uint32_t strip_count;
    uint32_t lost_drops;
};

static void draw_on_strip(void *ctx, uint32_t tier, struct kvt_place place)
{
    struct drawing *draw = ctx;
    EXPECT(draw->strip_count < RIG_PAGES_MAX);
    EXPECT(place.generation == rig_place(&draw->rig, place.slot, 0).generation);
    draw->strips[draw->strip_count] = place.slot;
    draw->strip_tiers[draw->strip_count++] = tier;
}

/* A lost page has no place to be told by. */
static void draw_on_drop(void *ctx, const struct kvt_key *key, const struct kvt_place *places)
{
    struct drawing *draw = ctx;
    if (kvt_place_is(places[KVT_HBM]) || kvt_place_is(places[KVT_HOST]) ||
        kvt_place_is(places[KVT_NVME])) {
        rig_on_drop(&draw->rig, key, places);
    } else {
        draw->lost_drops++;
    }
}

static void draw_open(struct drawing *draw)
{
    rig_config(&draw->rig);
    draw->lost_drops = 0;
    draw->rig.config.on_drop = draw_on_drop;
    draw->strip_count = 0;
    draw->rig.config.on_strip = draw_on_strip;
    rig_start(&draw->rig);
}

/* True when exactly these pages lost their place in this tier since the last time, in order. */
static bool stripped(struct drawing *draw, uint32_t tier, const char *numbers)
{
    char got[256] = "";
    size_t at = 0;
    for (uint32_t i = 0; i < draw->strip_count; i++) {
        if (draw->strip_tiers[i] != tier) {
            return false;
        }
        at += (size_t)snprintf(got + at, sizeof(got) - at, i > 0 ? " %u" : "%u",
                               (unsigned)draw->strips[i]);
    }
    draw->strip_count = 0;
    return strcmp(got, numbers) == 0;
}

/* The record of page `at` of these letters, all of which must match. */
static uint32_t record_of(struct drawing *draw, const char *letters, uint32_t at)
{
    uint32_t records[RIG_PAGES_MAX];
    uint64_t lease = rig_lease(&draw->rig, letters);
    uint32_t pages = rig_lease_pages(&draw->rig, lease);
    EXPECT(at < pages);
    EXPECT(kvt_index_pages(draw->rig.index, lease, RIG_OWNER, 0, pages, records) == KVT_OK);
    rig_release(&draw->rig, lease);
    return records[at];
}

static uint32_t node_of(struct drawing *draw, const char *letters, uint32_t at)
{
    return kvt_page_node(draw->rig.index, record_of(draw, letters, at));
}

/* Write down pages from .. from + count - 1 of the letters, which lie in host memory. */
static void down(struct drawing *draw, const char *letters, uint32_t from, uint32_t count)
{
    struct kvt_index *index = draw->rig.index;
    for (uint32_t i = from; i < from + count; i++) {
        uint32_t record = record_of(draw, letters, i);
        kvt_page_write_begin(index, record, kvt_page_place(index, record, KVT_HOST, 0));
        kvt_page_write_end(index, record, true);
    }
    rig_check(&draw->rig);
}

static uint32_t shed(struct drawing *draw, uint32_t tier, uint32_t count)
{
    uint32_t freed = kvt_index_shed(draw->rig.index, tier, count);
    rig_check(&draw->rig);
    return freed;
}

START_TEST(written_from_the_top_down)
{
    struct drawing draw;
    draw_open(&draw);
    struct kvt_index *index = draw.rig.index;
    EXPECT(rig_put(&draw.rig, "AB CD EF GH") == 4);
    EXPECT(rig_put(&draw.rig, "AB CD XX YY") == 2);
    uint32_t pages[8];
    struct kvt_unwritten out = {.pages = pages};
    uint32_t below = node_of(&draw, "AB CD XX YY", 2);
    /* Nobody asked for EF or GH; for XX all that comes before it is written first. */
    EXPECT(kvt_page_admit(index, record_of(&draw, "AB CD XX", 2)));
    EXPECT(kvt_index_unwritten(index, below, 8, &out) == 2);
    EXPECT(out.before == KVT_PAGE_NONE && out.ns == draw.rig.ns && out.extra_count == 0);
    EXPECT(pages[0] == record_of(&draw, "AB", 0) && pages[1] == record_of(&draw, "AB CD", 1));
    EXPECT(out.tokens[0] == 'A' && out.tokens[3] == 'D');
    EXPECT(kvt_index_unwritten(index, below, 1, &out) == 1); /* no more than asked */
    down(&draw, "AB CD", 0, 2);
    EXPECT(kvt_index_unwritten(index, below, 8, &out) == 1); /* YY is not admitted */
    EXPECT(pages[0] == record_of(&draw, "AB CD XX", 2) && out.tokens[0] == 'X');
    EXPECT(out.before == record_of(&draw, "AB CD", 1));
    EXPECT(kvt_index_unwritten(index, node_of(&draw, "AB CD EF", 2), 8, &out) == 0);
    EXPECT(kvt_page_admit(index, record_of(&draw, "AB CD XX YY", 3)));
    EXPECT(kvt_index_unwritten(index, below, 8, &out) == 2); /* the control: now it is */
    /* What moves cannot be written, nor can what follows it. */
    kvt_page_set_busy(index, record_of(&draw, "AB CD XX", 2), true);
    EXPECT(kvt_index_unwritten(index, below, 8, &out) == 0);
    kvt_page_set_busy(index, record_of(&draw, "AB CD XX", 2), false);
    down(&draw, "AB CD XX YY", 2, 2);
    EXPECT(kvt_index_unwritten(index, below, 8, &out) == 0);
    EXPECT(!kvt_page_admit(index, record_of(&draw, "AB CD XX", 2)));
    rig_close(&draw.rig);
}
END_TEST

START_TEST(extra_keys_are_written)
{
    struct drawing draw;
    draw_open(&draw);
    EXPECT(rig_put(&draw.rig, "AB *1CD EF") == 3);
    uint32_t pages[8];
    struct kvt_unwritten out = {.pages = pages};
    uint32_t node = node_of(&draw, "AB *1CD EF", 2);
    EXPECT(kvt_page_admit(draw.rig.index, record_of(&draw, "AB *1CD EF", 2)));
    EXPECT(kvt_index_unwritten(draw.rig.index, node, 8, &out) == 1 && out.extra_count == 0);
    down(&draw, "AB", 0, 1);
    EXPECT(kvt_index_unwritten(draw.rig.index, node, 8, &out) == 2 && out.extra_count == 1);
    EXPECT(out.extras[0].token_index == 2 && out.extras[0].digest[7] == '1');
    down(&draw, "AB *1CD EF", 1, 1);
    EXPECT(kvt_index_unwritten(draw.rig.index, node, 8, &out) == 1 && out.extra_count == 0);
    rig_close(&draw.rig);
}
END_TEST

START_TEST(being_written)
{
    struct drawing draw;
    draw_open(&draw);
    struct kvt_index *index = draw.rig.index;
    EXPECT(rig_put(&draw.rig, "AB CD") == 2);
    uint32_t record = record_of(&draw, "AB CD", 0);
    struct kvt_place place = {.slot = 1, .generation = 1001};
    kvt_page_write_begin(index, record, place);
    rig_check(&draw.rig);
    EXPECT(!kvt_place_is(kvt_page_place(index, record, KVT_NVME, 0)));
    EXPECT(kvt_page_nvme_name(index, record).generation == 1001);
    EXPECT(!kvt_page_admit(index, record));
    EXPECT(rig_stats(&draw.rig).tier_pages[KVT_NVME] == 0);
    EXPECT(shed(&draw, KVT_HOST, 9) == 1); /* CD goes, AB is busy */
    EXPECT(RIG_DROPPED(&draw.rig, 2) && stripped(&draw, KVT_HOST, ""));
    EXPECT(kvt_index_nvme_room(index, 9) == 0);
    /* Split while it is written: the record stays what it was. */
    EXPECT(rig_put(&draw.rig, "AB CD") == 1);
    EXPECT(rig_put(&draw.rig, "AB XX") == 1);
    kvt_page_write_end(index, record, false);
    rig_check(&draw.rig);
    EXPECT(!kvt_place_is(kvt_page_nvme_name(index, record)));
    EXPECT(kvt_page_admit(index, record));
    kvt_page_write_begin(index, record, place);
    kvt_page_write_end(index, record, true);
    rig_check(&draw.rig);
    EXPECT(kvt_page_place(index, record, KVT_NVME, 0).generation == 1001);
    EXPECT(rig_stats(&draw.rig).tier_pages[KVT_NVME] == 1);
    rig_close(&draw.rig);
}
END_TEST

START_TEST(shed_strips_and_drops)
{
    struct drawing draw;
    draw_open(&draw);
    EXPECT(rig_put(&draw.rig, "AB CD EF") == 3);
    EXPECT(rig_put(&draw.rig, "QQ RR") == 2);
    down(&draw, "AB CD EF", 0, 2);
    EXPECT(shed(&draw, KVT_HBM, 9) == 0); /* nothing lies there */
    EXPECT(shed(&draw, KVT_HOST, 2) == 2);
    EXPECT(RIG_DROPPED(&draw.rig, 3) && stripped(&draw, KVT_HOST, "2"));
    struct kvt_match match = rig_match(&draw.rig, "AB CD EF");
    EXPECT(match.pages == 2 && match.tier_pages[KVT_HOST] == 1 && match.tier_pages[KVT_NVME] == 1);
    EXPECT(kvt_index_memory_pages(draw.rig.index, &match) == 1);
    /* What waits to be written goes last. */
    EXPECT(kvt_page_admit(draw.rig.index, record_of(&draw, "QQ RR", 1)));
    EXPECT(shed(&draw, KVT_HOST, 9) == 1 && stripped(&draw, KVT_HOST, "1"));
    EXPECT(RIG_DROPPED(&draw.rig, 0) == false);
    EXPECT(shed(&draw, KVT_TIERS, 9) == 2 && RIG_DROPPED(&draw.rig, 5, 4));
    EXPECT(shed(&draw, KVT_TIERS, 9) == 0);
    EXPECT(rig_match(&draw.rig, "AB CD EF").tier_pages[KVT_NVME] == 2);
    rig_close(&draw.rig);
}
END_TEST

START_TEST(shed_leaves_what_is_held)
{
    struct drawing draw;
    draw_open(&draw);
    EXPECT(rig_put(&draw.rig, "AB CD EF GH") == 4);
    down(&draw, "AB CD EF GH", 0, 2);
    uint64_t lease = rig_lease(&draw.rig, "AB CD EF");
    kvt_page_set_busy(draw.rig.index, record_of(&draw, "AB", 0), true);
    EXPECT(shed(&draw, KVT_HOST, 9) == 2); /* a lease holds a page, not its place in memory */
    EXPECT(RIG_DROPPED(&draw.rig, 4) && stripped(&draw, KVT_HOST, "2"));
    kvt_page_set_busy(draw.rig.index, record_of(&draw, "AB", 0), false);
    rig_release(&draw.rig, lease);
    EXPECT(shed(&draw, KVT_HOST, 9) == 2);
    EXPECT(RIG_DROPPED(&draw.rig, 3) && stripped(&draw, KVT_HOST, "1"));
    rig_close(&draw.rig);
}
END_TEST

START_TEST(nvme_room_from_the_leaves)
{
    struct drawing draw;
    draw_open(&draw);
    struct kvt_index *index = draw.rig.index;
    EXPECT(rig_put(&draw.rig, "AB CD EF") == 3);
    EXPECT(rig_put(&draw.rig, "AB CD GH") == 1);
    down(&draw, "AB CD EF", 0, 3);
    down(&draw, "AB CD GH", 2, 1);
    EXPECT(shed(&draw, KVT_HOST, 1) == 1 && stripped(&draw, KVT_HOST, "3"));
    EXPECT(kvt_index_nvme_room(index, 1) == 1); /* EF lies nowhere else: it leaves */
    rig_check(&draw.rig);
    EXPECT(RIG_DROPPED(&draw.rig, 3) && stripped(&draw, KVT_NVME, ""));
    EXPECT(kvt_index_nvme_room(index, 2) == 2); /* GH, then what it continued */
    rig_check(&draw.rig);
    EXPECT(stripped(&draw, KVT_NVME, "4 2"));
    EXPECT(rig_match(&draw.rig, "AB CD GH").tier_pages[KVT_HOST] == 3);
    uint32_t record = record_of(&draw, "AB CD", 1);
    kvt_page_write_begin(index, record, kvt_page_place(index, record, KVT_HOST, 0));
    EXPECT(kvt_index_nvme_room(index, 9) == 0); /* what is being written builds on AB */
    kvt_page_write_end(index, record, false);
    EXPECT(kvt_index_nvme_room(index, 9) == 1 && stripped(&draw, KVT_NVME, "1"));
    EXPECT(rig_stats(&draw.rig).tier_pages[KVT_NVME] == 0);
    rig_close(&draw.rig);
}
END_TEST

START_TEST(lost_pages)
{
    struct drawing draw;
    draw_open(&draw);
    struct kvt_index *index = draw.rig.index;
    EXPECT(rig_put(&draw.rig, "AB CD EF GH") == 4);
    EXPECT(rig_put(&draw.rig, "AB CD EF KK") == 1);
    down(&draw, "AB CD EF GH", 0, 4);
    down(&draw, "AB CD EF KK", 3, 1);
    EXPECT(shed(&draw, KVT_HOST, 2) == 2 && stripped(&draw, KVT_HOST, "4 3"));
    uint64_t lease = rig_lease(&draw.rig, "AB CD EF GH");
    uint32_t lost = record_of(&draw, "AB CD EF GH", 2);
    kvt_index_lose(index, lost);
    rig_check(&draw.rig);
    EXPECT(draw.strip_count == 3 && draw.strip_tiers[0] == KVT_NVME);
    EXPECT(draw.strips[0] == 3 && draw.strips[1] + draw.strips[2] == 9);
    draw.strip_count = 0;
    EXPECT(rig_stats(&draw.rig).lost_pages == 2); /* KK lies in memory, and cannot be reached */
    struct kvt_match match = rig_match(&draw.rig, "AB CD EF KK");
    EXPECT(match.pages == 2 && match.tier_pages[KVT_HOST] == 2);
    EXPECT(kvt_index_drop_lost(index) == 0); /* the lease, and KK, hold them */
    rig_release(&draw.rig, lease);
    EXPECT(kvt_index_drop_lost(index) == 1 && draw.lost_drops == 1); /* GH */
    rig_check(&draw.rig);
    /* Saved again: the tree has it, it only wants a place. */
    struct text text;
    uint32_t found[4];
    lease = rig_lease(&draw.rig, "AB CD");
    EXPECT(kvt_index_pages_behind(index, lease, RIG_OWNER, text_make(&text, "AB CD EF KK"), 2, 2,
                                  found) == 2);
    EXPECT(found[0] == lost);
    rig_move(&draw.rig, lost, 3, KVT_HOST, true);
    rig_release(&draw.rig, lease);
    EXPECT(rig_match(&draw.rig, "AB CD EF KK").pages == 4);
    EXPECT(rig_stats(&draw.rig).lost_pages == 0 && kvt_index_drop_lost(index) == 0);
    rig_close(&draw.rig);
}
END_TEST

/* A flush asks for the next edge until there is none: what cannot be written must not be one. */
START_TEST(nothing_to_write_behind_a_lost_page)
{
    struct drawing draw;
    draw_open(&draw);
    struct kvt_index *index = draw.rig.index;
    EXPECT(rig_put(&draw.rig, "AB CD EF") == 3);
    EXPECT(rig_put(&draw.rig, "AB CD GH") == 1);
    EXPECT(kvt_index_next_unwritten(index, 0) != KVT_NODE_NONE);
    down(&draw, "AB CD", 0, 2);
    uint32_t freed = shed(&draw, KVT_HOST, 9); /* what was asked about waits to be written */
    EXPECT(freed < 4 && freed + shed(&draw, KVT_HOST, 9) == 4 && draw.rig.drop_count == 2);
    EXPECT(rig_put(&draw.rig, "AB CD EF") == 1 && rig_put(&draw.rig, "AB CD GH") == 1);
    EXPECT(kvt_index_next_unwritten(index, 0) != KVT_NODE_NONE);
    kvt_index_lose(index, record_of(&draw, "AB CD", 1));
    rig_check(&draw.rig);
    EXPECT(rig_stats(&draw.rig).lost_pages == 1);
    EXPECT(kvt_index_next_unwritten(index, 0) == KVT_NODE_NONE);
    rig_close(&draw.rig);
}
END_TEST

START_TEST(marks_and_order)
{
    struct drawing draw;
    draw_open(&draw);
    struct kvt_index *index = draw.rig.index;
    EXPECT(rig_put(&draw.rig, "AB CD") == 2);
    EXPECT(rig_put(&draw.rig, "QQ RR") == 2);
    uint32_t nodes[4];
    uint32_t first = node_of(&draw, "AB", 0), second = node_of(&draw, "QQ", 0);
    EXPECT(kvt_index_queue(index, first) && !kvt_index_queue(index, first));
    EXPECT(kvt_index_unqueue(index, first) && !kvt_index_unqueue(index, first));
    EXPECT(kvt_index_cold_unwritten(index, 4, nodes) == 2);
    EXPECT(nodes[0] == first && nodes[1] == second);
    EXPECT(kvt_index_cold_unwritten(index, 1, nodes) == 1 && nodes[0] == first);
    down(&draw, "AB CD", 0, 2);
    EXPECT(kvt_index_cold_unwritten(index, 4, nodes) == 1 && nodes[0] == second);
    EXPECT(kvt_index_next_unwritten(index, 0) == second);
    EXPECT(kvt_index_next_unwritten(index, second) == KVT_NODE_NONE);
    uint32_t record = record_of(&draw, "QQ", 0);
    EXPECT(kvt_page_uses(index, record) == 0 && kvt_page_use(index, record) == 1);
    for (uint32_t i = 0; i < 400; i++) {
        (void)kvt_page_use(index, record);
    }
    EXPECT(kvt_page_uses(index, record) == 255);
    kvt_page_set_fetch(index, record, 7);
    EXPECT(kvt_page_fetch(index, record) == 7);
    rig_close(&draw.rig);
}
END_TEST

START_TEST(loaded_pages)
{
    struct drawing draw;
    draw_open(&draw);
    struct kvt_index *index = draw.rig.index;
    struct text text;
    text_make(&text, "AB CD EF *1GH");
    uint32_t before = KVT_PAGE_NONE, pages[4];
    for (uint32_t i = 0; i < 4; i++) {
        struct kvt_loaded_page page = {.tokens = text.tokens + 2 * (size_t)i,
                                       .extras = i == 3 ? text.extras : NULL,
                                       .extra_count = i == 3,
                                       .place = rig_place(&draw.rig, i + 1, 0)};
        EXPECT(kvt_index_load_page(index, draw.rig.ns, before, &page, &pages[i]) == KVT_OK);
        uint32_t again = 77;
        EXPECT(kvt_index_load_page(index, draw.rig.ns, before, &page, &again) == KVT_ERR_INVAL);
        EXPECT(again == 77);
        before = pages[i];
    }
    /* Another continuation inside the edge: it splits, and the numbers stay good. */
    text_make(&text, "XX");
    struct kvt_loaded_page page = {.tokens = text.tokens, .place = rig_place(&draw.rig, 5, 0)};
    uint32_t other = 0;
    EXPECT(kvt_index_load_page(index, draw.rig.ns, pages[0], &page, &other) == KVT_OK);
    kvt_index_load_end(index);
    rig_check(&draw.rig);
    EXPECT(RIG_HOLDS(&draw.rig, "AB CD EF *1GH", KVT_NVME, 1, 2, 3, 4));
    EXPECT(RIG_HOLDS(&draw.rig, "AB XX", KVT_NVME, 1, 5));
    EXPECT(!RIG_HOLDS(&draw.rig, "AB XX", KVT_NVME, 1, 4));
    EXPECT(rig_match(&draw.rig, "AB CD EF GH").pages == 3); /* without the extra key */
    EXPECT(record_of(&draw, "AB CD EF", 2) == pages[2]);
    rig_close(&draw.rig);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("index_nvme");
    tcase_set_timeout(tcase, 300);
    tcase_add_test(tcase, written_from_the_top_down);
    tcase_add_test(tcase, extra_keys_are_written);
    tcase_add_test(tcase, being_written);
    tcase_add_test(tcase, shed_strips_and_drops);
    tcase_add_test(tcase, shed_leaves_what_is_held);
    tcase_add_test(tcase, nvme_room_from_the_leaves);
    tcase_add_test(tcase, lost_pages);
    tcase_add_test(tcase, nothing_to_write_behind_a_lost_page);
    tcase_add_test(tcase, marks_and_order);
    tcase_add_test(tcase, loaded_pages);
    Suite *suite = suite_create("index_nvme");
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
