#include "tests/support/cpu_rig.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

struct kvt_test_rig kvt_test_rig;

static void *rig_alloc(void *ctx, size_t bytes)
{
    struct kvt_test_rig *rig = ctx;
    if (atomic_load(&rig->left) >= 0 && atomic_fetch_sub(&rig->left, 1) == 0) {
        return NULL;
    }
    atomic_fetch_add(&rig->live, 1);
    return malloc(bytes);
}

static void *rig_resize(void *ctx, void *ptr, size_t old_bytes, size_t new_bytes)
{
    (void)ctx;
    (void)old_bytes;
    return realloc(ptr, new_bytes);
}

static void rig_free(void *ctx, void *ptr, size_t bytes)
{
    struct kvt_test_rig *rig = ctx;
    (void)bytes;
    atomic_fetch_sub(&rig->live, 1);
    free(ptr);
}

void kvt_test_rig_open(void)
{
    struct kvt_test_rig *rig = &kvt_test_rig;
    rig->memory = (struct kvt_memory){rig, rig_alloc, rig_resize, rig_free};
    atomic_store(&rig->live, 0);
    atomic_store(&rig->left, -1);
    ck_assert_int_eq(kvt_cpu_device_open(&rig->memory, &rig->device), KVT_OK);
    rig->ops = rig->device->ops;
    rig->faults = kvt_cpu_device_faults(rig->device);
    ck_assert_ptr_nonnull(rig->faults);
}

void kvt_test_rig_close(void)
{
    kvt_test_rig.ops->close(kvt_test_rig.device);
    ck_assert_int_eq(atomic_load(&kvt_test_rig.live), 0);
}

struct kvt_stream *kvt_test_stream(void)
{
    struct kvt_stream *stream;
    ck_assert_int_eq(kvt_test_rig.ops->stream_create(kvt_test_rig.device, &stream), KVT_OK);
    return stream;
}

struct kvt_event *kvt_test_event(void)
{
    struct kvt_event *event;
    ck_assert_int_eq(kvt_test_rig.ops->event_create(kvt_test_rig.device, &event), KVT_OK);
    return event;
}

void kvt_test_finish(struct kvt_stream *stream)
{
    ck_assert_int_eq(kvt_test_rig.ops->sync(stream, UINT64_MAX), KVT_OK);
}

void kvt_test_call(struct kvt_stream *stream, void (*fn)(void *), void *arg)
{
    ck_assert_int_eq(kvt_test_rig.ops->call(stream, fn, arg), KVT_OK);
}

void kvt_test_gate_init(struct kvt_test_gate *gate)
{
    kvt_lock_init(&gate->lock, KVT_RANK_LEAF, "gate");
    kvt_cond_init(&gate->cond);
    gate->open = false;
    gate->reached = false;
}

void kvt_test_gate_fini(struct kvt_test_gate *gate)
{
    kvt_cond_fini(&gate->cond);
    kvt_lock_fini(&gate->lock);
}

void kvt_test_gate_pass(void *arg)
{
    struct kvt_test_gate *gate = arg;
    kvt_lock_take(&gate->lock);
    gate->reached = true;
    kvt_cond_broadcast(&gate->cond);
    while (!gate->open) {
        (void)kvt_cond_wait(&gate->cond, &gate->lock, UINT64_MAX);
    }
    kvt_lock_give(&gate->lock);
}

void kvt_test_gate_open(struct kvt_test_gate *gate)
{
    kvt_lock_take(&gate->lock);
    gate->open = true;
    kvt_cond_broadcast(&gate->cond);
    kvt_lock_give(&gate->lock);
}

void kvt_test_gate_await(struct kvt_test_gate *gate)
{
    kvt_lock_take(&gate->lock);
    while (!gate->reached) {
        (void)kvt_cond_wait(&gate->cond, &gate->lock, UINT64_MAX);
    }
    kvt_lock_give(&gate->lock);
}

void kvt_test_step_run(void *arg)
{
    struct kvt_test_step *step = arg;
    step->journal->text[atomic_fetch_add(&step->journal->count, 1)] = step->letter;
}

static uint32_t next_random(uint32_t *state)
{
    *state = *state * UINT32_C(1664525) + UINT32_C(1013904223);
    return *state >> 16;
}

struct kvt_test_scene *kvt_test_scene_create(uint32_t seed)
{
    struct kvt_test_scene *scene = calloc(1, sizeof(*scene));
    ck_assert_ptr_nonnull(scene);
    unsigned char *engine = &scene->engine[0][0];
    for (size_t i = 0; i < sizeof(scene->engine); i++) {
        engine[i] = (unsigned char)next_random(&seed);
    }
    for (int i = 0; i < PAGES; i++) {
        scene->pages[i].addr = scene->cache[i];
        for (int j = 0; j < PAGE_BYTES; j++) {
            scene->cache[i][j] = (unsigned char)next_random(&seed);
        }
    }
    /* Each block once, in no order. */
    uint32_t all[ENGINE_BLOCKS];
    for (uint32_t i = 0; i < ENGINE_BLOCKS; i++) {
        uint32_t j = next_random(&seed) % (i + 1);
        all[i] = all[j];
        all[j] = i;
    }
    memcpy(scene->blocks, all, sizeof(scene->blocks));
    atomic_init(&scene->pages_good, PAGES);
    atomic_init(&scene->cancelled, false);
    return scene;
}

struct kvt_page_copy kvt_test_page_copy(struct kvt_test_scene *scene,
                                        enum kvt_copy_direction direction, uint32_t region)
{
    return (struct kvt_page_copy){
        .direction = direction,
        .page_count = PAGES,
        .blocks_per_page = BLOCKS,
        .pages = scene->pages,
        .blocks = scene->blocks,
        .region_base = scene->engine[region],
        .block_stride_bytes = STRIDE_BYTES,
        .block_bytes = BLOCK_BYTES,
        .page_offset_bytes = region * BLOCKS * BLOCK_BYTES,
        .pages_good = &scene->pages_good,
        .cancelled = &scene->cancelled,
    };
}

void kvt_test_naive_copy(struct kvt_test_scene *scene, enum kvt_copy_direction direction,
                         uint32_t region, uint32_t good)
{
    for (uint32_t i = 0; i < good; i++) {
        for (uint32_t j = 0; j < BLOCKS; j++) {
            for (uint32_t k = 0; k < BLOCK_BYTES; k++) {
                unsigned char *engine =
                    &scene->engine[region][scene->blocks[i * BLOCKS + j] * STRIDE_BYTES + k];
                unsigned char *cache = &scene->cache[i][(region * BLOCKS + j) * BLOCK_BYTES + k];
                if (direction == KVT_COPY_TO_ENGINE) {
                    *engine = *cache;
                } else {
                    *cache = *engine;
                }
            }
        }
    }
}

bool kvt_test_scenes_equal(const struct kvt_test_scene *a, const struct kvt_test_scene *b)
{
    return memcmp(a->engine, b->engine, sizeof(a->engine)) == 0 &&
           memcmp(a->cache, b->cache, sizeof(a->cache)) == 0;
}

void kvt_test_copy(struct kvt_stream *stream, struct kvt_test_scene *scene,
                   enum kvt_copy_direction direction, uint32_t region)
{
    struct kvt_page_copy copy = kvt_test_page_copy(scene, direction, region);
    ck_assert_int_eq(kvt_test_rig.ops->copy_pages(stream, &copy), KVT_OK);
}
