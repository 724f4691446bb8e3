/*
 * The CPU device: order within and across streams, copies against a naive loop.
 *
 * Nothing here depends on how fast anything is: work is held back by gates, a deadline that must
 * pass is one for work behind a closed gate, and what must happen is waited for.
 */
#include "tests/support/cpu_rig.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

/* ---- order ---- */

START_TEST(stream_runs_in_order)
{
    struct kvt_test_journal journal = {0, ""};
    struct kvt_test_step steps[4];
    struct kvt_stream *stream = kvt_test_stream();
    for (int i = 0; i < 4; i++) {
        steps[i] = (struct kvt_test_step){&journal, (char)('a' + i)};
        kvt_test_call(stream, kvt_test_step_run, &steps[i]);
    }
    kvt_test_finish(stream);
    ck_assert_str_eq(journal.text, "abcd");
    /* The calling thread is not the one that works. */
    struct kvt_test_gate gate;
    kvt_test_gate_init(&gate);
    kvt_test_call(stream, kvt_test_gate_pass, &gate);
    ck_assert_int_eq(kvt_test_rig.ops->sync(stream, 0), KVT_ERR_TIMEOUT);
    ck_assert_int_eq(kvt_test_rig.ops->sync(stream, 5 * MS), KVT_ERR_TIMEOUT);
    kvt_test_gate_open(&gate);
    kvt_test_finish(stream);
    ck_assert_int_eq(kvt_test_rig.ops->sync(stream, 0), KVT_OK);
    kvt_test_rig.ops->stream_destroy(stream);
    kvt_test_gate_fini(&gate);
}
END_TEST

/* With `ordered` the second stream waits for the first one's event; without, it does not: the
 * control, where the order is the other way round. */
static void two_streams(bool ordered, const char *expected)
{
    struct kvt_test_journal journal = {0, ""};
    struct kvt_test_step first = {&journal, 'a'}, second = {&journal, 'b'};
    struct kvt_test_gate gate;
    kvt_test_gate_init(&gate);
    struct kvt_stream *a = kvt_test_stream(), *b = kvt_test_stream();
    struct kvt_event *event = kvt_test_event();
    ck_assert(kvt_test_rig.ops->event_done(event));

    kvt_test_call(a, kvt_test_gate_pass, &gate);
    kvt_test_call(a, kvt_test_step_run, &first);
    ck_assert_int_eq(kvt_test_rig.ops->record(event, a), KVT_OK);
    ck_assert(!kvt_test_rig.ops->event_done(event));
    if (ordered) {
        ck_assert_int_eq(kvt_test_rig.ops->wait(b, event), KVT_OK);
    }
    kvt_test_call(b, kvt_test_step_run, &second);
    if (ordered) {
        ck_assert_int_eq(kvt_test_rig.ops->sync(b, 5 * MS), KVT_ERR_TIMEOUT);
    } else {
        kvt_test_finish(b);
    }
    kvt_test_gate_open(&gate);
    kvt_test_finish(b);
    kvt_test_finish(a);
    ck_assert(kvt_test_rig.ops->event_done(event));
    ck_assert_str_eq(journal.text, expected);

    kvt_test_rig.ops->event_destroy(event);
    kvt_test_rig.ops->stream_destroy(b);
    kvt_test_rig.ops->stream_destroy(a);
    kvt_test_gate_fini(&gate);
}

START_TEST(events_order_streams)
{
    two_streams(true, "ab");
    two_streams(false, "ba");
}
END_TEST

START_TEST(wait_on_unrecorded_event_passes)
{
    struct kvt_stream *stream = kvt_test_stream();
    struct kvt_event *event = kvt_test_event();
    ck_assert_int_eq(kvt_test_rig.ops->wait(stream, event), KVT_OK);
    kvt_test_finish(stream);
    kvt_test_rig.ops->event_destroy(event);
    kvt_test_rig.ops->stream_destroy(stream);
    kvt_test_rig.ops->event_destroy(NULL);
    kvt_test_rig.ops->stream_destroy(NULL);
}
END_TEST

START_TEST(wait_means_the_record_before_it)
{
    struct kvt_test_gate first, second, late;
    kvt_test_gate_init(&first);
    kvt_test_gate_init(&second);
    kvt_test_gate_init(&late);
    struct kvt_stream *a = kvt_test_stream(), *b = kvt_test_stream(), *c = kvt_test_stream(),
                      *d = kvt_test_stream();
    struct kvt_event *event = kvt_test_event();

    /* c waits for the record on a, d for the one on b, which happens first. */
    kvt_test_call(a, kvt_test_gate_pass, &first);
    ck_assert_int_eq(kvt_test_rig.ops->record(event, a), KVT_OK);
    ck_assert_int_eq(kvt_test_rig.ops->wait(c, event), KVT_OK);
    ck_assert_int_eq(kvt_test_rig.ops->record(event, b), KVT_OK);
    ck_assert_int_eq(kvt_test_rig.ops->wait(d, event), KVT_OK);
    kvt_test_finish(b);
    kvt_test_finish(d);
    ck_assert(kvt_test_rig.ops->event_done(event));
    ck_assert_int_eq(kvt_test_rig.ops->sync(c, 5 * MS), KVT_ERR_TIMEOUT);
    kvt_test_gate_open(&first);
    kvt_test_finish(c);

    /* A wait that is still queued does not take over a record that comes later. */
    kvt_test_call(c, kvt_test_gate_pass, &late);
    ck_assert_int_eq(kvt_test_rig.ops->wait(c, event), KVT_OK);
    kvt_test_call(a, kvt_test_gate_pass, &second);
    ck_assert_int_eq(kvt_test_rig.ops->record(event, a), KVT_OK);
    kvt_test_gate_open(&late);
    kvt_test_finish(c);
    ck_assert(!kvt_test_rig.ops->event_done(event));
    ck_assert_int_eq(kvt_test_rig.ops->wait(c, event), KVT_OK);
    ck_assert_int_eq(kvt_test_rig.ops->sync(c, 5 * MS), KVT_ERR_TIMEOUT);
    kvt_test_gate_open(&second);
    kvt_test_finish(c);

    kvt_test_rig.ops->event_destroy(event);
    kvt_test_rig.ops->stream_destroy(a);
    kvt_test_rig.ops->stream_destroy(b);
    kvt_test_rig.ops->stream_destroy(c);
    kvt_test_rig.ops->stream_destroy(d);
    kvt_test_gate_fini(&first);
    kvt_test_gate_fini(&second);
    kvt_test_gate_fini(&late);
}
END_TEST

START_TEST(event_destroyed_under_a_wait)
{
    struct kvt_test_journal journal = {0, ""};
    struct kvt_test_step first = {&journal, 'a'}, second = {&journal, 'b'};
    struct kvt_test_gate gate;
    kvt_test_gate_init(&gate);
    struct kvt_stream *a = kvt_test_stream(), *b = kvt_test_stream();
    struct kvt_event *event = kvt_test_event();
    kvt_test_call(a, kvt_test_gate_pass, &gate);
    kvt_test_call(a, kvt_test_step_run, &first);
    ck_assert_int_eq(kvt_test_rig.ops->record(event, a), KVT_OK);
    ck_assert_int_eq(kvt_test_rig.ops->wait(b, event), KVT_OK);
    kvt_test_call(b, kvt_test_step_run, &second);
    kvt_test_rig.ops->event_destroy(event);
    ck_assert_int_eq(kvt_test_rig.ops->sync(b, 5 * MS), KVT_ERR_TIMEOUT);
    kvt_test_gate_open(&gate);
    /* Destroying waits for what was enqueued. */
    kvt_test_rig.ops->stream_destroy(b);
    ck_assert_str_eq(journal.text, "ab");
    kvt_test_rig.ops->stream_destroy(a);
    kvt_test_gate_fini(&gate);
}
END_TEST

START_TEST(page_copies_match_a_naive_loop)
{
    enum kvt_copy_direction direction = _i == 0 ? KVT_COPY_TO_ENGINE : KVT_COPY_FROM_ENGINE;
    struct kvt_stream *stream = kvt_test_stream();
    struct kvt_test_scene *scene = kvt_test_scene_create(5), *expected = kvt_test_scene_create(5);
    ck_assert(kvt_test_scenes_equal(scene, expected));
    for (uint32_t region = 0; region < REGIONS; region++) {
        kvt_test_copy(stream, scene, direction, region);
        kvt_test_naive_copy(expected, direction, region, PAGES);
    }
    kvt_test_finish(stream);
    ck_assert(kvt_test_scenes_equal(scene, expected));
    ck_assert_uint_eq(atomic_load(&scene->pages_good), PAGES);

    /* Control: two blocks changed places, so the bytes differ. */
    struct kvt_test_scene *control = kvt_test_scene_create(5);
    uint32_t block = control->blocks[BLOCKS];
    control->blocks[BLOCKS] = control->blocks[PAGES * BLOCKS - 1];
    control->blocks[PAGES * BLOCKS - 1] = block;
    for (uint32_t region = 0; region < REGIONS; region++) {
        kvt_test_copy(stream, control, direction, region);
    }
    kvt_test_rig.ops->stream_destroy(stream);
    ck_assert(!kvt_test_scenes_equal(control, expected));
    free(control);
    free(expected);
    free(scene);
}
END_TEST

START_TEST(flat_copies)
{
    struct kvt_stream *stream = kvt_test_stream();
    struct kvt_test_scene *from = kvt_test_scene_create(1), *to = kvt_test_scene_create(2),
                          *before = kvt_test_scene_create(2);
    struct kvt_flat_copy copy = {PAGES,      from->pages,     to->pages,
                                 PAGE_BYTES, &to->pages_good, &to->cancelled};
    ck_assert_mem_ne(to->cache, from->cache, sizeof(to->cache));
    atomic_store(&kvt_test_rig.faults->fail_page_copy, 4);
    ck_assert_int_eq(kvt_test_rig.ops->copy_flat(stream, &copy), KVT_OK);
    kvt_test_finish(stream);
    ck_assert_uint_eq(atomic_load(&to->pages_good), 3);
    ck_assert_mem_eq(to->cache, from->cache, 3 * PAGE_BYTES);
    ck_assert_mem_eq(to->cache[3], before->cache[3], PAGE_BYTES);
    atomic_store(&to->pages_good, PAGES);
    ck_assert_int_eq(kvt_test_rig.ops->copy_flat(stream, &copy), KVT_OK);
    kvt_test_finish(stream);
    ck_assert_mem_eq(to->cache, from->cache, sizeof(to->cache));
    ck_assert_mem_ne(to->cache, before->cache, sizeof(to->cache));

    atomic_store(&before->cancelled, true);
    copy.to = before->pages;
    copy.pages_good = &before->pages_good;
    copy.cancelled = &before->cancelled;
    ck_assert_int_eq(kvt_test_rig.ops->copy_flat(stream, &copy), KVT_OK);
    kvt_test_rig.ops->stream_destroy(stream);
    ck_assert_uint_eq(atomic_load(&before->pages_good), 0);
    ck_assert_mem_ne(before->cache, from->cache, sizeof(to->cache));
    free(before);
    free(to);
    free(from);
}
END_TEST

START_TEST(device_memory)
{
    atomic_store(&kvt_test_rig.faults->fail_alloc, 2);
    unsigned char *ptr = kvt_test_rig.ops->alloc(kvt_test_rig.device, 10000);
    ck_assert_ptr_nonnull(ptr);
    ck_assert_uint_eq((uintptr_t)ptr % 4096, 0);
    memset(ptr, 1, 10000);
    ck_assert_ptr_null(kvt_test_rig.ops->alloc(kvt_test_rig.device, 10000));
    ck_assert_ptr_null(kvt_test_rig.ops->alloc(kvt_test_rig.device, 0));
    kvt_test_rig.ops->free(kvt_test_rig.device, ptr, 10000);
    kvt_test_rig.ops->free(kvt_test_rig.device, NULL, 0);

    struct kvt_device_ops foreign_ops = *kvt_test_rig.ops;
    struct kvt_device foreign = {&foreign_ops};
    ck_assert_ptr_null(kvt_cpu_device_faults(&foreign));
}
END_TEST

/* ---- many streams at once ---- */

#define LANES 4

struct lane {
    struct kvt_thread thread;
    struct kvt_stream *stream;
    struct kvt_event *event; /* "this round's copy is done" */
    struct kvt_stream *next; /* the lane that reads after it */
    struct kvt_test_scene *scene;
    unsigned rounds;
    unsigned failures;
};

/* Copies into the engine's memory, tells the next lane's stream, and reads it back there. */
static void *lane_main(void *arg)
{
    struct lane *lane = arg;
    for (unsigned i = 0; i < lane->rounds; i++) {
        struct kvt_page_copy up = kvt_test_page_copy(lane->scene, KVT_COPY_TO_ENGINE, i % REGIONS);
        struct kvt_page_copy down =
            kvt_test_page_copy(lane->scene, KVT_COPY_FROM_ENGINE, i % REGIONS);
        kvt_status status = kvt_test_rig.ops->copy_pages(lane->stream, &up);
        status = status != KVT_OK ? status : kvt_test_rig.ops->record(lane->event, lane->stream);
        status = status != KVT_OK ? status : kvt_test_rig.ops->wait(lane->next, lane->event);
        status = status != KVT_OK ? status : kvt_test_rig.ops->copy_pages(lane->next, &down);
        status = status != KVT_OK ? status : kvt_test_rig.ops->record(lane->event, lane->next);
        status = status != KVT_OK ? status : kvt_test_rig.ops->wait(lane->stream, lane->event);
        status = status != KVT_OK || i % 8 != 0 ? status
                                                : kvt_test_rig.ops->sync(lane->stream, UINT64_MAX);
        lane->failures += status != KVT_OK;
    }
    return NULL;
}

START_TEST(streams_beside_each_other)
{
    const char *scale_text = getenv("KVT_TEST_SCALE");
    unsigned scale = scale_text == NULL ? 1 : (unsigned)strtoul(scale_text, NULL, 10);
    struct lane lanes[LANES];
    memset(lanes, 0, sizeof(lanes));
    for (int i = 0; i < LANES; i++) {
        lanes[i].stream = kvt_test_stream();
        lanes[i].event = kvt_test_event();
        lanes[i].scene = kvt_test_scene_create((uint32_t)i);
        lanes[i].rounds = 2000 / (scale > 0 ? scale : 1) + REGIONS;
    }
    for (int i = 0; i < LANES; i++) {
        lanes[i].next = lanes[(i + 1) % LANES].stream;
        ck_assert_int_eq(kvt_thread_start(&lanes[i].thread, "lane", lane_main, &lanes[i]), KVT_OK);
    }
    for (int i = 0; i < LANES; i++) {
        kvt_thread_join(&lanes[i].thread);
        ck_assert_uint_eq(lanes[i].failures, 0);
    }
    for (int i = 0; i < LANES; i++) {
        kvt_test_finish(lanes[i].stream);
    }
    for (int i = 0; i < LANES; i++) {
        kvt_test_rig.ops->stream_destroy(lanes[i].stream);
        kvt_test_rig.ops->event_destroy(lanes[i].event);
        struct kvt_test_scene *expected = kvt_test_scene_create((uint32_t)i);
        ck_assert(!kvt_test_scenes_equal(lanes[i].scene, expected));
        for (uint32_t region = 0; region < REGIONS; region++) {
            kvt_test_naive_copy(expected, KVT_COPY_TO_ENGINE, region, PAGES);
        }
        ck_assert(kvt_test_scenes_equal(lanes[i].scene, expected));
        ck_assert_uint_eq(atomic_load(&lanes[i].scene->pages_good), PAGES);
        free(expected);
        free(lanes[i].scene);
    }
}
END_TEST

/* ---- gates: steps that wait for the host ---- */

/* Pages `first` .. `first + count - 1` of region 0, behind a gate at `value`. */
static void copy_behind(struct kvt_stream *stream, struct kvt_gate *gate, uint32_t value,
                        struct kvt_test_scene *scene, uint32_t first, uint32_t count)
{
    struct kvt_page_copy copy = kvt_test_page_copy(scene, KVT_COPY_TO_ENGINE, 0);
    copy.first_ordinal = first;
    copy.page_count = count;
    copy.pages += first;
    copy.blocks += (size_t)first * BLOCKS;
    ck_assert_int_eq(kvt_test_rig.ops->gate_wait(stream, gate, value), KVT_OK);
    ck_assert_int_eq(kvt_test_rig.ops->copy_pages(stream, &copy), KVT_OK);
}

#define FIRST_STEP 3 /* pages of it; the second has the rest */

START_TEST(steps_wait_and_go_in_order)
{
    struct kvt_test_journal journal = {0, ""};
    struct kvt_test_step steps[] = {{&journal, 'a'}, {&journal, 'b'}, {&journal, 'c'}};
    struct kvt_gate *gate = NULL;
    struct kvt_stream *stream = kvt_test_stream(), *other = kvt_test_stream();
    struct kvt_test_scene *scene = kvt_test_scene_create(3), *before = kvt_test_scene_create(3),
                          *half = kvt_test_scene_create(3), *whole = kvt_test_scene_create(3);
    kvt_test_naive_copy(half, KVT_COPY_TO_ENGINE, 0, FIRST_STEP);
    kvt_test_naive_copy(whole, KVT_COPY_TO_ENGINE, 0, PAGES);
    ck_assert_int_eq(kvt_test_rig.ops->gate_create(kvt_test_rig.device, &gate), KVT_OK);
    copy_behind(stream, gate, 1, scene, 0, FIRST_STEP);
    struct kvt_event *first_copied = kvt_test_event();
    ck_assert_int_eq(kvt_test_rig.ops->record(first_copied, stream), KVT_OK);
    kvt_test_call(stream, kvt_test_step_run, &steps[0]);
    copy_behind(stream, gate, 2, scene, FIRST_STEP, PAGES - FIRST_STEP);
    kvt_test_call(stream, kvt_test_step_run, &steps[1]);
    /* Another stream is not held up by it. */
    kvt_test_call(other, kvt_test_step_run, &steps[2]);
    kvt_test_finish(other);
    ck_assert_str_eq(journal.text, "c");
    ck_assert(kvt_test_scenes_equal(scene, before));
    kvt_test_rig.ops->gate_raise(gate, 1);
    ck_assert_int_eq(kvt_test_rig.ops->wait(other, first_copied), KVT_OK);
    kvt_test_finish(other);
    ck_assert(kvt_test_scenes_equal(scene, half));
    ck_assert(!kvt_test_scenes_equal(scene, before));
    ck_assert_int_eq(kvt_test_rig.ops->sync(stream, 5 * MS), KVT_ERR_TIMEOUT);
    ck_assert_str_eq(journal.text, "ca");
    kvt_test_rig.ops->gate_raise(gate, 2);
    kvt_test_finish(stream);
    ck_assert(kvt_test_scenes_equal(scene, whole));
    ck_assert_str_eq(journal.text, "cab");
    ck_assert_uint_eq(atomic_load(&scene->pages_good), PAGES);
    /* What it passed already it does not wait for. */
    copy_behind(stream, gate, 1, before, 0, PAGES);
    kvt_test_finish(stream);
    ck_assert(kvt_test_scenes_equal(before, whole));
    kvt_test_rig.ops->stream_destroy(stream);
    kvt_test_rig.ops->stream_destroy(other);
    kvt_test_rig.ops->event_destroy(first_copied);
    kvt_test_rig.ops->gate_destroy(gate);
    free(whole);
    free(half);
    free(before);
    free(scene);
}
END_TEST

/* A page that did not arrive lowers pages_good before its step goes: it is not copied, nor is what
 * follows it. */
START_TEST(what_failed_is_not_copied)
{
    struct kvt_gate *gate = NULL;
    struct kvt_stream *stream = kvt_test_stream();
    struct kvt_test_scene *scene = kvt_test_scene_create(5), *expected = kvt_test_scene_create(5);
    const uint32_t good = (uint32_t)_i;
    kvt_test_naive_copy(expected, KVT_COPY_TO_ENGINE, 0, good);
    ck_assert_int_eq(kvt_test_rig.ops->gate_create(kvt_test_rig.device, &gate), KVT_OK);
    copy_behind(stream, gate, 1, scene, 0, FIRST_STEP);
    copy_behind(stream, gate, 2, scene, FIRST_STEP, PAGES - FIRST_STEP);
    atomic_store(&scene->pages_good, good);
    kvt_test_rig.ops->gate_raise(gate, 2); /* both at once */
    /* Destroying a stream waits for what it waits for. */
    kvt_test_rig.ops->stream_destroy(stream);
    kvt_test_rig.ops->gate_destroy(gate);
    ck_assert(kvt_test_scenes_equal(scene, expected));
    ck_assert_uint_eq(atomic_load(&scene->pages_good), good);
    if (good < PAGES) {
        kvt_test_naive_copy(expected, KVT_COPY_TO_ENGINE, 0, good + 1);
        ck_assert(!kvt_test_scenes_equal(scene, expected));
    }
    kvt_test_rig.ops->gate_destroy(NULL);
    free(expected);
    free(scene);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cpu_device");
    TCase *tcase = tcase_create("cpu_device");
    tcase_add_checked_fixture(tcase, kvt_test_rig_open, kvt_test_rig_close);
    tcase_add_test(tcase, stream_runs_in_order);
    tcase_add_test(tcase, events_order_streams);
    tcase_add_test(tcase, wait_on_unrecorded_event_passes);
    tcase_add_test(tcase, wait_means_the_record_before_it);
    tcase_add_test(tcase, event_destroyed_under_a_wait);
    tcase_add_loop_test(tcase, page_copies_match_a_naive_loop, 0, 2);
    tcase_add_test(tcase, flat_copies);
    tcase_add_test(tcase, device_memory);
    tcase_add_test(tcase, streams_beside_each_other);
    tcase_add_test(tcase, steps_wait_and_go_in_order);
    tcase_add_loop_test(tcase, what_failed_is_not_copied, 0, PAGES + 1);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
