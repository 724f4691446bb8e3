/*
 * Kernels, each against a model that goes the other way round: for every byte of all the memory in
 * reach it asks where that byte must come from. So what a kernel must leave alone (the gaps between
 * blocks, blocks of others, the bytes before and behind) is compared like what it must write.
 *
 * A new kernel is one line in `kernels`; one for an accelerator goes there as two functions that
 * carry the memory there, run it, and carry it back.
 */
#include "kernels/kernels.h"
#include "tests/support/test_expect.h"
#include "tests/support/test_random.h"

#include <check.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>

#define BLOCKS_MAX 24u /* in the engine's memory */
#define BLOCK_BYTES_MAX 300u
#define GAP_BYTES_MAX 40u
#define MISALIGN_BYTES_MAX 64u
#define CANARY_BYTES 64u
#define MEMORY_BYTES                                                                               \
    (BLOCKS_MAX * (BLOCK_BYTES_MAX + GAP_BYTES_MAX) + MISALIGN_BYTES_MAX + 2 * CANARY_BYTES)

struct kernel {
    const char *name;
    void (*gather)(const struct kvt_kernel_blocks *blocks, unsigned char *out_page);
    void (*scatter)(const struct kvt_kernel_blocks *blocks, const unsigned char *page);
};

static const struct kernel kernels[] = {
    {"ref", kvt_ref_gather, kvt_ref_scatter},
};

/* Where things lie in two pieces of memory, as numbers. */
struct geometry {
    uint32_t ids[BLOCKS_MAX]; /* the first `count`: each at most once */
    uint32_t count;
    uint32_t engine_blocks;
    uint32_t block_bytes, stride_bytes;
    uint32_t engine_at, page_at; /* where they begin in their memory, behind the canary */
};

struct memory {
    unsigned char engine[MEMORY_BYTES];
    unsigned char page[MEMORY_BYTES];
};

static struct memory before, after, want;

static uint32_t between(struct test_random *random, uint32_t least, uint32_t most)
{
    return least + test_random_below(random, most - least + 1);
}

/* Half of the sizes are small, where a kernel's ends and its middle meet. */
static uint32_t size_up_to(struct test_random *random, uint32_t most)
{
    return test_random_below(random, 2) == 0 ? between(random, 1, 40) : between(random, 1, most);
}

static struct geometry geometry_draw(struct test_random *random)
{
    struct geometry g = {.engine_blocks = between(random, 1, BLOCKS_MAX)};
    g.count = between(random, 0, g.engine_blocks);
    g.block_bytes = size_up_to(random, BLOCK_BYTES_MAX);
    g.stride_bytes = g.block_bytes;
    if (test_random_below(random, 4) > 0) {
        g.stride_bytes += between(random, 0, GAP_BYTES_MAX);
    }
    g.engine_at = CANARY_BYTES + test_random_below(random, MISALIGN_BYTES_MAX);
    g.page_at = CANARY_BYTES + test_random_below(random, MISALIGN_BYTES_MAX);
    /* Half of them in no order, half neighbours, for kernels that copy those at once. */
    bool shuffled = test_random_below(random, 2) == 0;
    uint32_t first = test_random_below(random, g.engine_blocks);
    for (uint32_t i = 0; i < g.engine_blocks; i++) {
        uint32_t other = shuffled ? between(random, 0, i) : i;
        g.ids[i] = g.ids[other];
        g.ids[other] = (first + i) % g.engine_blocks;
    }
    return g;
}

static void memory_draw(struct test_random *random, struct memory *out)
{
    for (size_t i = 0; i < MEMORY_BYTES; i++) {
        uint64_t bits = test_random_u64(random);
        out->engine[i] = (unsigned char)bits;
        out->page[i] = (unsigned char)(bits >> 8);
    }
}

static struct kvt_kernel_blocks blocks_of(const struct geometry *g, struct memory *memory)
{
    return (struct kvt_kernel_blocks){
        .region_base = memory->engine + g->engine_at,
        .ids = g->ids,
        .count = g->count,
        .stride_bytes = g->stride_bytes,
        .block_bytes = g->block_bytes,
    };
}

/* ---- the model ---- */

/* The byte of the page that engine byte `at` belongs to; false when it is nobody's here. */
static bool page_byte_of(const struct geometry *g, size_t at, size_t *out_page_at)
{
    if (at < g->engine_at || (at - g->engine_at) % g->stride_bytes >= g->block_bytes) {
        return false;
    }
    size_t block = (at - g->engine_at) / g->stride_bytes;
    for (uint32_t j = 0; j < g->count; j++) {
        if (g->ids[j] == block) {
            *out_page_at =
                g->page_at + (size_t)j * g->block_bytes + (at - g->engine_at) % g->stride_bytes;
            return true;
        }
    }
    return false;
}

static void model(const struct geometry *g, bool gather, struct memory *memory)
{
    for (size_t at = 0; at < MEMORY_BYTES; at++) {
        size_t page_at;
        if (!page_byte_of(g, at, &page_at)) {
            continue;
        }
        if (gather) {
            memory->page[page_at] = memory->engine[at];
        } else {
            memory->engine[at] = memory->page[page_at];
        }
    }
}

/* One draw for one kernel, one direction: are all bytes as the model says? */
static bool holds(const struct kernel *kernel, struct test_random *random, bool gather)
{
    struct geometry g = geometry_draw(random);
    memory_draw(random, &before);
    memcpy(&after, &before, sizeof(after));
    memcpy(&want, &before, sizeof(want));
    struct kvt_kernel_blocks blocks = blocks_of(&g, &after);
    if (gather) {
        kernel->gather(&blocks, after.page + g.page_at);
    } else {
        kernel->scatter(&blocks, after.page + g.page_at);
    }
    model(&g, gather, &want);
    return memcmp(&after, &want, sizeof(after)) == 0;
}

START_TEST(kernels_are_the_model)
{
    uint64_t draws = test_scaled(20000);
    for (size_t k = 0; k < sizeof(kernels) / sizeof(kernels[0]); k++) {
        struct test_random random = test_random_start(kernels[k].name, 31);
        for (uint64_t i = 0; i < draws; i++) {
            EXPECT(holds(&kernels[k], &random, true));
            EXPECT(holds(&kernels[k], &random, false));
        }
    }
}
END_TEST

/* What was gathered comes back, into blocks where other bytes lay meanwhile. */
START_TEST(there_and_back)
{
    struct test_random random = test_random_start("there_and_back", 32);
    uint64_t draws = test_scaled(2000);
    for (uint64_t i = 0; i < draws; i++) {
        struct geometry g = geometry_draw(&random);
        memory_draw(&random, &before);
        memcpy(&after, &before, sizeof(after));
        struct kvt_kernel_blocks blocks = blocks_of(&g, &after);
        kvt_ref_gather(&blocks, after.page + g.page_at);
        for (uint32_t j = 0; j < g.count; j++) {
            memset(blocks.region_base + (size_t)g.ids[j] * g.stride_bytes, (int)(i & 0xff),
                   g.block_bytes);
        }
        kvt_ref_scatter(&blocks, after.page + g.page_at);
        EXPECT(memcmp(after.engine, before.engine, sizeof(after.engine)) == 0);
    }
}
END_TEST

/* Regions are larger than what 32 bits can count: most of this one is not even mapped. */
START_TEST(offsets_are_64_bits_wide)
{
    const uint32_t id = 0x20003, block_bytes = 511;
    const uint64_t stride_bytes = 0x10001;
    const size_t bytes = (size_t)(id + 1) * stride_bytes;
    unsigned char *base =
        mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    ck_assert_ptr_ne(base, MAP_FAILED);
    unsigned char *block = base + (size_t)id * stride_bytes;
    size_t from = ((size_t)(block - base)) & ~(size_t)0xffff;
    ck_assert_int_eq(mprotect(base + from, bytes - from, PROT_READ | PROT_WRITE), 0);
    struct kvt_kernel_blocks blocks = {base, &id, 1, stride_bytes, block_bytes};
    for (size_t k = 0; k < sizeof(kernels) / sizeof(kernels[0]); k++) {
        unsigned char page[512];
        memset(page, 0, sizeof(page));
        memset(block, 0xa5, block_bytes);
        kernels[k].gather(&blocks, page);
        ck_assert_mem_eq(page, block, block_bytes);
        ck_assert_uint_eq(page[block_bytes], 0);
        page[0] = 0x5a;
        ck_assert_mem_ne(page, block, block_bytes); /* the control */
        kernels[k].scatter(&blocks, page);
        ck_assert_mem_eq(page, block, block_bytes);
        ck_assert_uint_eq(block[block_bytes], 0);
    }
    ck_assert_int_eq(munmap(base, bytes), 0);
}
END_TEST

/* ---- controls: kernels with one fault each, which the model must find ---- */

enum fault { STRIDE_FORGOTTEN, ONE_BYTE_SHORT, ONE_BYTE_LONG, IDS_SORTED, LAST_BLOCK_LOST };

static void faulty(const struct kvt_kernel_blocks *blocks, enum fault fault, unsigned char *page,
                   bool gather)
{
    uint64_t stride_bytes = fault == STRIDE_FORGOTTEN ? blocks->block_bytes : blocks->stride_bytes;
    uint64_t bytes = blocks->block_bytes;
    bytes -= fault == ONE_BYTE_SHORT ? 1 : 0;
    bytes += fault == ONE_BYTE_LONG ? 1 : 0;
    uint32_t count = blocks->count;
    count -= fault == LAST_BLOCK_LOST && count > 0 ? 1 : 0;
    for (uint32_t j = 0; j < count; j++) {
        uint32_t id = fault == IDS_SORTED ? j : blocks->ids[j];
        unsigned char *block = blocks->region_base + id * stride_bytes;
        if (gather) {
            memcpy(page + j * blocks->block_bytes, block, bytes);
        } else {
            memcpy(block, page + j * blocks->block_bytes, bytes);
        }
    }
}

/* Scattering reads a copy of the page, for the two directions share what may write it. */
#define FAULTY(name, fault)                                                                        \
    static void name##_gather(const struct kvt_kernel_blocks *blocks, unsigned char *out_page)     \
    {                                                                                              \
        faulty(blocks, fault, out_page, true);                                                     \
    }                                                                                              \
    static void name##_scatter(const struct kvt_kernel_blocks *blocks, const unsigned char *page)  \
    {                                                                                              \
        unsigned char copy[MEMORY_BYTES];                                                          \
        memcpy(copy, page, (size_t)(after.page + MEMORY_BYTES - page));                            \
        faulty(blocks, fault, copy, false);                                                        \
    }
FAULTY(stride_forgotten, STRIDE_FORGOTTEN)
FAULTY(one_byte_short, ONE_BYTE_SHORT)
FAULTY(one_byte_long, ONE_BYTE_LONG)
FAULTY(ids_sorted, IDS_SORTED)
FAULTY(last_block_lost, LAST_BLOCK_LOST)

START_TEST(faulty_kernels_are_found)
{
    static const struct kernel wrong[] = {
        {"stride forgotten", stride_forgotten_gather, stride_forgotten_scatter},
        {"one byte short", one_byte_short_gather, one_byte_short_scatter},
        {"one byte long", one_byte_long_gather, one_byte_long_scatter},
        {"ids sorted", ids_sorted_gather, ids_sorted_scatter},
        {"last block lost", last_block_lost_gather, last_block_lost_scatter},
    };
    const uint32_t draws = 100;
    for (size_t k = 0; k < sizeof(wrong) / sizeof(wrong[0]); k++) {
        struct test_random random = test_random_start(wrong[k].name, 33);
        uint32_t gathers = 0, scatters = 0;
        for (uint32_t i = 0; i < draws; i++) {
            gathers += holds(&wrong[k], &random, true) ? 0 : 1;
            scatters += holds(&wrong[k], &random, false) ? 0 : 1;
        }
        ck_assert_uint_gt(gathers, draws / 4);
        ck_assert_uint_gt(scatters, draws / 4);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("kernel");
    TCase *tcase = tcase_create("kernel");
    tcase_add_test(tcase, kernels_are_the_model);
    tcase_add_test(tcase, there_and_back);
    tcase_add_test(tcase, offsets_are_64_bits_wide);
    tcase_add_test(tcase, faulty_kernels_are_found);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
