/* The CPU device: delays, holds, failing copies and calls, and too little memory. */
#include "tests/support/cpu_rig.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

/* ---- faults ---- */

START_TEST(delayed_copies_take_their_time)
{
    struct kvt_stream *stream = kvt_test_stream();
    struct kvt_test_scene *scene = kvt_test_scene_create(3);
    atomic_store(&kvt_test_rig.faults->copy_delay_ns, 2 * MS);
    uint64_t start_ns = kvt_now_ns(&kvt_clock_monotonic);
    kvt_test_copy(stream, scene, KVT_COPY_TO_ENGINE, 0);
    kvt_test_copy(stream, scene, KVT_COPY_TO_ENGINE, 1);
    kvt_test_finish(stream);
    ck_assert_uint_ge(kvt_now_ns(&kvt_clock_monotonic) - start_ns, 4 * MS);
    kvt_test_rig.ops->stream_destroy(stream);
    free(scene);
}
END_TEST

START_TEST(held_copies_do_not_start)
{
    struct kvt_test_gate gate;
    kvt_test_gate_init(&gate);
    struct kvt_stream *stream = kvt_test_stream(), *other = kvt_test_stream();
    struct kvt_test_scene *scene = kvt_test_scene_create(3), *before = kvt_test_scene_create(3),
                          *expected = kvt_test_scene_create(3);
    kvt_test_naive_copy(expected, KVT_COPY_TO_ENGINE, 0, PAGES);
    atomic_store(&kvt_test_rig.faults->hold_copies, true);
    kvt_test_call(stream, kvt_test_gate_pass, &gate);
    kvt_test_copy(stream, scene, KVT_COPY_TO_ENGINE, 0);
    /* What is no copy goes on. */
    kvt_test_gate_await(&gate);
    kvt_test_gate_open(&gate);
    kvt_test_finish(other);
    ck_assert_int_eq(kvt_test_rig.ops->sync(stream, 5 * MS), KVT_ERR_TIMEOUT);
    ck_assert(kvt_test_scenes_equal(scene, before));
    atomic_store(&kvt_test_rig.faults->hold_copies, false);
    kvt_test_finish(stream);
    ck_assert(kvt_test_scenes_equal(scene, expected));
    ck_assert(!kvt_test_scenes_equal(scene, before));

    /* Destroying a held stream ends, and its work was done. */
    atomic_store(&kvt_test_rig.faults->hold_copies, true);
    kvt_test_copy(stream, before, KVT_COPY_TO_ENGINE, 0);
    kvt_test_rig.ops->stream_destroy(stream);
    ck_assert(kvt_test_scenes_equal(before, expected));
    kvt_test_rig.ops->stream_destroy(other);
    free(expected);
    free(before);
    free(scene);
    kvt_test_gate_fini(&gate);
}
END_TEST

START_TEST(failed_page_lowers_pages_good)
{
    /* One region of one page counts one: the k-th is in region (k - 1) / PAGES. */
    uint32_t fail_at = (uint32_t)_i;
    uint32_t good = (fail_at - 1) % PAGES;
    struct kvt_stream *stream = kvt_test_stream();
    struct kvt_test_scene *scene = kvt_test_scene_create(9), *expected = kvt_test_scene_create(9);
    atomic_store(&kvt_test_rig.faults->fail_page_copy, fail_at);
    for (uint32_t region = 0; region < REGIONS; region++) {
        kvt_test_copy(stream, scene, KVT_COPY_FROM_ENGINE, region);
    }
    kvt_test_finish(stream);
    ck_assert_uint_eq(atomic_load(&scene->pages_good), good);
    ck_assert_uint_eq(atomic_load(&kvt_test_rig.faults->fail_page_copy), 0);
    bool in_first = fail_at <= PAGES;
    kvt_test_naive_copy(expected, KVT_COPY_FROM_ENGINE, 0, in_first ? good : PAGES);
    kvt_test_naive_copy(expected, KVT_COPY_FROM_ENGINE, 1, good);
    /* The failed page and those behind it are as they were. */
    ck_assert(kvt_test_scenes_equal(scene, expected));
    kvt_test_naive_copy(expected, KVT_COPY_FROM_ENGINE, 1, good + 1);
    ck_assert(!kvt_test_scenes_equal(scene, expected));

    /* It struck once. */
    atomic_store(&scene->pages_good, PAGES);
    for (uint32_t region = 0; region < REGIONS; region++) {
        kvt_test_copy(stream, scene, KVT_COPY_FROM_ENGINE, region);
        kvt_test_naive_copy(expected, KVT_COPY_FROM_ENGINE, region, PAGES);
    }
    kvt_test_finish(stream);
    ck_assert_uint_eq(atomic_load(&scene->pages_good), PAGES);
    ck_assert(kvt_test_scenes_equal(scene, expected));
    kvt_test_rig.ops->stream_destroy(stream);
    free(expected);
    free(scene);
}
END_TEST

START_TEST(cancelled_copies_are_skipped)
{
    struct kvt_test_journal journal = {0, ""};
    struct kvt_test_step step = {&journal, 'a'};
    struct kvt_test_gate gate;
    kvt_test_gate_init(&gate);
    struct kvt_stream *stream = kvt_test_stream();
    struct kvt_test_scene *scene = kvt_test_scene_create(4), *before = kvt_test_scene_create(4);
    kvt_test_call(stream, kvt_test_gate_pass, &gate);
    kvt_test_copy(stream, scene, KVT_COPY_TO_ENGINE, 0);
    kvt_test_call(stream, kvt_test_step_run, &step);
    atomic_store(&scene->cancelled, true);
    kvt_test_gate_open(&gate);
    kvt_test_finish(stream);
    ck_assert_uint_eq(atomic_load(&scene->pages_good), 0);
    ck_assert(kvt_test_scenes_equal(scene, before));
    /* Calls run also when work before them failed. */
    ck_assert_str_eq(journal.text, "a");
    kvt_test_rig.ops->stream_destroy(stream);
    free(before);
    free(scene);
    kvt_test_gate_fini(&gate);
}
END_TEST

/* The enqueueing call number `which` on a scene of its own. */
static kvt_status enqueue_one(int which, struct kvt_stream *stream, struct kvt_event *event,
                              struct kvt_test_scene *scene, struct kvt_test_step *step)
{
    struct kvt_page_copy pages = kvt_test_page_copy(scene, KVT_COPY_TO_ENGINE, 0);
    struct kvt_flat_copy flat = {1, scene->pages,       scene->pages + 1,
                                 8, &scene->pages_good, &scene->cancelled};
    switch (which) {
    case 0:
        return kvt_test_rig.ops->record(event, stream);
    case 1:
        return kvt_test_rig.ops->wait(stream, event);
    case 2:
        return kvt_test_rig.ops->copy_pages(stream, &pages);
    case 3:
        return kvt_test_rig.ops->copy_flat(stream, &flat);
    default:
        return kvt_test_rig.ops->call(stream, kvt_test_step_run, step);
    }
}
#define ENQUEUEING_CALLS 5

START_TEST(calls_can_fail)
{
    struct kvt_test_journal journal = {0, ""};
    struct kvt_test_step step = {&journal, 'a'};
    struct kvt_test_gate gate;
    kvt_test_gate_init(&gate);
    struct kvt_stream *stream = kvt_test_stream(), *other = kvt_test_stream();
    struct kvt_event *event = kvt_test_event();
    struct kvt_test_scene *scene = kvt_test_scene_create(6), *before = kvt_test_scene_create(6);
    for (int which = 0; which < ENQUEUEING_CALLS; which++) {
        atomic_store(&kvt_test_rig.faults->fail_call, 2);
        kvt_test_call(other, kvt_test_gate_pass, &gate);
        ck_assert_int_eq(enqueue_one(which, stream, event, scene, &step), KVT_ERR_DEVICE);
        kvt_test_finish(stream);
        ck_assert(kvt_test_rig.ops->event_done(event));
        ck_assert_uint_eq(atomic_load(&journal.count), 0);
        ck_assert(kvt_test_scenes_equal(scene, before));
    }
    kvt_test_gate_open(&gate);
    kvt_test_finish(other);
    for (int which = 0; which < ENQUEUEING_CALLS; which++) {
        ck_assert_int_eq(enqueue_one(which, stream, event, scene, &step), KVT_OK);
    }
    kvt_test_finish(stream);
    ck_assert_str_eq(journal.text, "a");
    ck_assert(!kvt_test_scenes_equal(scene, before));
    kvt_test_rig.ops->event_destroy(event);
    kvt_test_rig.ops->stream_destroy(stream);
    kvt_test_rig.ops->stream_destroy(other);
    free(before);
    free(scene);
    kvt_test_gate_fini(&gate);
}
END_TEST

START_TEST(gate_calls_can_fail)
{
    struct kvt_test_journal journal = {0, ""};
    struct kvt_test_step step = {&journal, 'a'};
    struct kvt_gate *gate = NULL;
    struct kvt_stream *stream = kvt_test_stream();
    ck_assert_int_eq(kvt_test_rig.ops->gate_create(kvt_test_rig.device, &gate), KVT_OK);
    for (uint32_t k = 1; k <= 3; k++) {
        atomic_store(&kvt_test_rig.faults->fail_call, k);
        for (uint32_t call = 1; call <= 3; call++) {
            ck_assert_int_eq(kvt_test_rig.ops->gate_wait(stream, gate, 1),
                             call == k ? KVT_ERR_DEVICE : KVT_OK);
        }
    }
    kvt_test_call(stream, kvt_test_step_run, &step);
    ck_assert_int_eq(kvt_test_rig.ops->sync(stream, 5 * MS), KVT_ERR_TIMEOUT);
    ck_assert_uint_eq(atomic_load(&journal.count), 0);
    kvt_test_rig.ops->gate_raise(gate, 1);
    kvt_test_finish(stream);
    ck_assert_str_eq(journal.text, "a");
    /* One that failed is not waited for: the gate stays down, and the stream goes on. */
    atomic_store(&kvt_test_rig.faults->fail_call, 1);
    ck_assert_int_eq(kvt_test_rig.ops->gate_wait(stream, gate, 9), KVT_ERR_DEVICE);
    kvt_test_finish(stream);
    kvt_test_rig.ops->stream_destroy(stream);
    kvt_test_rig.ops->gate_destroy(gate);
}
END_TEST

START_TEST(memory_can_be_short)
{
    struct kvt_test_journal journal = {0, ""};
    struct kvt_test_step step = {&journal, 'a'};
    struct kvt_test_scene *scene = kvt_test_scene_create(6);
    struct kvt_stream *stream = NULL;
    struct kvt_event *event = NULL;
    int64_t k = 0;
    /* Every allocation in turn, until none is left to fail. */
    for (bool whole = false; !whole; k++) {
        atomic_store(&kvt_test_rig.left, k);
        whole = kvt_test_rig.ops->stream_create(kvt_test_rig.device, &stream) == KVT_OK;
        if (whole) {
            whole = kvt_test_rig.ops->event_create(kvt_test_rig.device, &event) == KVT_OK;
            for (int which = 0; whole && which < ENQUEUEING_CALLS; which++) {
                kvt_status status = enqueue_one(which, stream, event, scene, &step);
                ck_assert(status == KVT_OK || status == KVT_ERR_NOMEM);
                whole = status == KVT_OK;
            }
            atomic_store(&kvt_test_rig.left, -1);
            kvt_test_finish(stream);
            kvt_test_rig.ops->stream_destroy(stream);
            kvt_test_rig.ops->event_destroy(event);
            event = NULL;
        }
        /* The device itself stays. */
        ck_assert_int_eq(atomic_load(&kvt_test_rig.live), 1);
    }
    ck_assert_int_ge(k, 2 + ENQUEUEING_CALLS);
    ck_assert_str_eq(journal.text, "a");
    free(scene);

    struct kvt_device *never = NULL;
    atomic_store(&kvt_test_rig.left, 0);
    ck_assert_int_eq(kvt_cpu_device_open(&kvt_test_rig.memory, &never), KVT_ERR_NOMEM);
    ck_assert_ptr_null(never);
}
END_TEST

static int refuse_thread(pthread_t *id, const pthread_attr_t *attr, void *(*fn)(void *), void *arg)
{
    (void)id;
    (void)attr;
    (void)fn;
    (void)arg;
    return 11;
}

START_TEST(threads_can_be_short)
{
    struct kvt_stream *stream = NULL;
    kvt_thread_create_hook = refuse_thread;
    ck_assert_int_eq(kvt_test_rig.ops->stream_create(kvt_test_rig.device, &stream), KVT_ERR_NOMEM);
    kvt_thread_create_hook = NULL;
    ck_assert_ptr_null(stream);
    ck_assert_int_eq(atomic_load(&kvt_test_rig.live), 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cpu_device_fault");
    TCase *tcase = tcase_create("cpu_device_fault");
    tcase_add_checked_fixture(tcase, kvt_test_rig_open, kvt_test_rig_close);
    tcase_add_test(tcase, delayed_copies_take_their_time);
    tcase_add_test(tcase, held_copies_do_not_start);
    tcase_add_loop_test(tcase, failed_page_lowers_pages_good, 1, REGIONS * PAGES + 1);
    tcase_add_test(tcase, cancelled_copies_are_skipped);
    tcase_add_test(tcase, calls_can_fail);
    tcase_add_test(tcase, gate_calls_can_fail);
    tcase_add_test(tcase, memory_can_be_short);
    tcase_add_test(tcase, threads_can_be_short);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
