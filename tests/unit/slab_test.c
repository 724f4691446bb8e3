/* The slab: states, stale names, the budget to the byte, and random operations against a model. */
#include "cache/tier/slab.h"
#include "tests/support/test_expect.h"
#include "tests/support/test_memory.h"
#include "tests/support/test_random.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define KIB UINT64_C(1024)
#define MIB (KIB * KIB)

/* ---- a backing that counts, and a fixture ---- */

struct rig {
    struct test_memory memory;
    struct kvt_backing backing;
    struct kvt_slab *slab;
    uint64_t mapped, mapped_max, chunks;
    bool no_memory; /* map answers NULL */
    bool unreal;    /* map gives addresses that nobody may touch */
    uintptr_t next_unreal;
};

static void *rig_map(void *ctx, uint64_t bytes)
{
    struct rig *rig = ctx;
    EXPECT(bytes > 0);
    EXPECT(bytes % KVT_CHUNK_ALIGN_BYTES == 0);
    if (rig->no_memory) {
        return NULL;
    }
    rig->mapped += bytes;
    rig->mapped_max = rig->mapped > rig->mapped_max ? rig->mapped : rig->mapped_max;
    rig->chunks++;
    if (rig->unreal) {
        uintptr_t base = rig->next_unreal;
        rig->next_unreal += bytes;
        return (void *)base; /* NOLINT: never dereferenced */
    }
    return aligned_alloc(KVT_CHUNK_ALIGN_BYTES, bytes);
}

static void rig_unmap(void *ctx, void *ptr, uint64_t bytes)
{
    struct rig *rig = ctx;
    rig->mapped -= bytes;
    rig->chunks--;
    if (!rig->unreal) {
        free(ptr);
    }
}

static void rig_open(struct rig *rig, uint64_t budget_bytes)
{
    *rig = (struct rig){.next_unreal = 0x100000000000};
    test_memory_init(&rig->memory);
    rig->backing = (struct kvt_backing){rig, rig_map, rig_unmap};
    ck_assert_int_eq(kvt_slab_create(&rig->memory.mem, &rig->backing, budget_bytes, &rig->slab),
                     KVT_OK);
    ck_assert_uint_eq(rig->mapped, 0);
}

static void rig_close(struct rig *rig)
{
    kvt_slab_destroy(rig->slab);
    ck_assert_uint_eq(rig->mapped, 0);
    ck_assert_uint_eq(rig->chunks, 0);
    ck_assert_uint_eq(rig->memory.live_blocks, 0);
    ck_assert_uint_eq(rig->memory.live_bytes, 0);
}

static struct kvt_slab_stats stats_of(const struct rig *rig)
{
    struct kvt_slab_stats stats;
    kvt_slab_stats(rig->slab, &stats);
    return stats;
}

/* As a tier does it: begin, map, end. False when the budget is used up or there is no memory. */
static bool grow(struct rig *rig, uint64_t slot_bytes)
{
    uint64_t bytes = kvt_slab_grow_begin(rig->slab, slot_bytes);
    if (bytes == 0) {
        return false;
    }
    void *base = rig_map(rig, bytes);
    kvt_slab_grow_end(rig->slab, base, bytes);
    return base != NULL;
}

static struct kvt_place reserve(struct rig *rig, uint64_t slot_bytes)
{
    struct kvt_place place = {0, 0};
    kvt_status status = kvt_slab_reserve(rig->slab, slot_bytes, &place);
    if (status == KVT_ERR_LIMIT && grow(rig, slot_bytes)) {
        status = kvt_slab_reserve(rig->slab, slot_bytes, &place);
    }
    ck_assert_int_eq(status, KVT_OK);
    ck_assert(kvt_place_is(place));
    return place;
}

static bool same_place(struct kvt_place a, struct kvt_place b)
{
    return a.slot == b.slot && a.generation == b.generation;
}

/* ---- states ---- */

START_TEST(states)
{
    struct rig rig;
    rig_open(&rig, MIB);
    struct kvt_place none = {0, 0};
    ck_assert(!kvt_slab_has_room(rig.slab, 1000));
    ck_assert_int_eq(kvt_slab_reserve(rig.slab, 1000, &none), KVT_ERR_LIMIT);
    ck_assert(!kvt_place_is(none)); /* written only on success */

    struct kvt_place a = reserve(&rig, 1000);
    struct kvt_place b = reserve(&rig, 1000);
    ck_assert(!same_place(a, b));
    ck_assert(kvt_slab_has_room(rig.slab, 1000));
    ck_assert_ptr_nonnull(kvt_slab_addr(rig.slab, a)); /* whoever reserved fills it */
    kvt_slab_commit(rig.slab, a);
    unsigned char *addr = kvt_slab_addr(rig.slab, a);
    ck_assert_ptr_nonnull(addr);
    struct kvt_slab_stats stats = stats_of(&rig);
    ck_assert_uint_eq(stats.slots_used, 2);
    ck_assert_uint_eq(stats.bytes_used, 2000);
    /* An eighth of the budget, made up to whole slots and then to whole memory pages. */
    ck_assert_uint_eq(stats.bytes_mapped, 132 * KIB);
    ck_assert_uint_eq(stats.bytes_budget, MIB);
    ck_assert_uint_eq(stats.slots_free, 132 * KIB / 1000 - 2);
    ck_assert_uint_eq(stats.slots_in_transfer, 0);
    ck_assert_uint_eq(stats.bytes_meta, rig.memory.live_bytes);

    ck_assert(kvt_slab_free(rig.slab, b)); /* abort */
    ck_assert(!kvt_slab_free(rig.slab, b));
    ck_assert_ptr_null(kvt_slab_addr(rig.slab, b));
    ck_assert_ptr_eq(kvt_slab_addr(rig.slab, a), addr);
    ck_assert_uint_eq(kvt_slab_slot_bytes(rig.slab, a), 1000);
    ck_assert_uint_eq(kvt_slab_slot_bytes(rig.slab, b), 0);
    ck_assert(kvt_slab_free(rig.slab, a));
    ck_assert(!kvt_slab_free(rig.slab, a));
    ck_assert_ptr_null(kvt_slab_addr(rig.slab, a));
    ck_assert_uint_eq(stats_of(&rig).slots_used, 0);
    ck_assert_uint_eq(stats_of(&rig).bytes_used, 0);
    rig_close(&rig);
    kvt_slab_destroy(NULL);
}
END_TEST

/* Both for a reserved and for a held slot. */
static void check_deferred_free(bool committed)
{
    struct rig rig;
    rig_open(&rig, 4 * KIB); /* one chunk of one slot: nothing else can be handed out */
    struct kvt_place a = reserve(&rig, 4 * KIB);
    unsigned char *addr = kvt_slab_addr(rig.slab, a);
    memset(addr, 7, 4 * KIB);
    if (committed) {
        kvt_slab_commit(rig.slab, a);
    }
    kvt_slab_ref(rig.slab, a);
    kvt_slab_ref(rig.slab, a);
    ck_assert_uint_eq(stats_of(&rig).slots_in_transfer, 2);
    ck_assert(kvt_slab_free(rig.slab, a));
    ck_assert(!kvt_slab_free(rig.slab, a)); /* once is enough */
    ck_assert_ptr_null(kvt_slab_addr(rig.slab, a));
    ck_assert_uint_eq(stats_of(&rig).slots_used, 1);
    ck_assert_uint_eq(stats_of(&rig).bytes_used, 4 * KIB);
    struct kvt_place b = {0, 0};
    ck_assert(!kvt_slab_has_room(rig.slab, 4 * KIB));
    ck_assert(!kvt_slab_has_room(rig.slab, 100)); /* nor does the chunk change its size */
    ck_assert_int_eq(kvt_slab_reserve(rig.slab, 4 * KIB, &b), KVT_ERR_LIMIT);
    ck_assert_int_eq(kvt_slab_reserve(rig.slab, 100, &b), KVT_ERR_LIMIT);
    kvt_slab_unref(rig.slab, a);
    ck_assert_int_eq(kvt_slab_reserve(rig.slab, 4 * KIB, &b), KVT_ERR_LIMIT);
    ck_assert_uint_eq(addr[0], 7);
    kvt_slab_unref(rig.slab, a);
    ck_assert_uint_eq(stats_of(&rig).slots_used, 0);
    ck_assert_uint_eq(stats_of(&rig).slots_in_transfer, 0);
    ck_assert_int_eq(kvt_slab_reserve(rig.slab, 4 * KIB, &b), KVT_OK);
    ck_assert_uint_eq(b.slot, a.slot);
    ck_assert_uint_ne(b.generation, a.generation);
    ck_assert(!kvt_slab_free(rig.slab, a));
    ck_assert_ptr_eq(kvt_slab_addr(rig.slab, b), addr);
    rig_close(&rig);
}

START_TEST(deferred_free)
{
    check_deferred_free(false);
    check_deferred_free(true);
}
END_TEST

START_TEST(transfers_without_free)
{
    struct rig rig;
    rig_open(&rig, MIB);
    struct kvt_place a = reserve(&rig, 5000);
    kvt_slab_ref(rig.slab, a); /* it is being filled */
    kvt_slab_commit(rig.slab, a);
    kvt_slab_ref(rig.slab, a);
    kvt_slab_unref(rig.slab, a);
    kvt_slab_unref(rig.slab, a);
    ck_assert_ptr_nonnull(kvt_slab_addr(rig.slab, a));
    ck_assert_uint_eq(stats_of(&rig).slots_used, 1);
    ck_assert(kvt_slab_free(rig.slab, a));
    ck_assert_uint_eq(stats_of(&rig).slots_used, 0);
    rig_close(&rig);
}
END_TEST

/* ---- stale places ---- */

static void check_stale(const struct rig *rig, struct kvt_place place)
{
    struct kvt_slab_stats before = stats_of(rig), after;
    EXPECT(kvt_slab_addr(rig->slab, place) == NULL);
    EXPECT(!kvt_slab_free(rig->slab, place));
    after = stats_of(rig);
    EXPECT(memcmp(&before, &after, sizeof(before)) == 0);
}

START_TEST(stale_places)
{
    struct rig rig;
    rig_open(&rig, MIB);
    struct kvt_place a = reserve(&rig, 4000);
    check_stale(&rig, (struct kvt_place){a.slot, 0});
    check_stale(&rig, (struct kvt_place){a.slot, a.generation + 1});
    check_stale(&rig, (struct kvt_place){a.slot, UINT32_MAX});
    check_stale(&rig, (struct kvt_place){a.slot + 1, a.generation}); /* free */
    check_stale(&rig, (struct kvt_place){a.slot + KVT_CHUNK_SLOTS_MAX - 1, a.generation});
    check_stale(&rig, (struct kvt_place){a.slot + KVT_CHUNK_SLOTS_MAX, a.generation});
    check_stale(&rig, (struct kvt_place){UINT32_MAX, a.generation});
    ck_assert_ptr_nonnull(kvt_slab_addr(rig.slab, a)); /* the control */
    struct kvt_place names[100];
    for (uint32_t i = 0; i < 100; i++) {
        names[i] = a;
        ck_assert(kvt_slab_free(rig.slab, a));
        a = reserve(&rig, 4000);
        ck_assert_uint_eq(a.slot, names[0].slot);
        for (uint32_t j = 0; j <= i; j++) {
            check_stale(&rig, names[j]);
        }
    }
    ck_assert_ptr_nonnull(kvt_slab_addr(rig.slab, a));
    rig_close(&rig);
}
END_TEST

START_TEST(stale_after_new_size)
{
    struct rig rig;
    rig_open(&rig, 4 * KIB);
    static const uint64_t sizes[] = {4096, 64, 4096, 100, 33, 4096, 1, 2048};
    struct kvt_place names[sizeof(sizes) / sizeof(sizes[0]) * 40];
    uint32_t name_count = 0;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        uint32_t fit = (uint32_t)(4096 / sizes[i]);
        uint32_t take = fit < 40 ? fit : 40;
        uint32_t first = name_count;
        for (uint32_t j = 0; j < take; j++) {
            names[name_count] = reserve(&rig, sizes[i]);
            for (uint32_t k = 0; k < name_count; k++) {
                ck_assert(!same_place(names[k], names[name_count]));
            }
            name_count++;
        }
        for (uint32_t k = 0; k < first; k++) {
            check_stale(&rig, names[k]);
        }
        for (uint32_t j = first; j < name_count; j++) {
            ck_assert_ptr_nonnull(kvt_slab_addr(rig.slab, names[j]));
            ck_assert(kvt_slab_free(rig.slab, names[j]));
        }
        /* Free slots of the new size, under old names. */
        for (uint32_t k = 0; k < name_count; k++) {
            check_stale(&rig, names[k]);
        }
        ck_assert_uint_eq(rig.chunks, 1);
    }
    rig_close(&rig);
}
END_TEST

/* ---- the budget ---- */

static void check_budget(uint64_t budget, uint64_t slot_bytes)
{
    struct rig rig;
    rig_open(&rig, budget);
    uint64_t aligned = budget - budget % KVT_CHUNK_ALIGN_BYTES;
    EXPECT(stats_of(&rig).bytes_budget == aligned);
    uint64_t slots = 0;
    struct kvt_place place;
    unsigned char *seen[2] = {NULL, NULL}; /* the latest two slots */
    for (;;) {
        if (kvt_slab_reserve(rig.slab, slot_bytes, &place) != KVT_OK) {
            EXPECT(!kvt_slab_has_room(rig.slab, slot_bytes));
            if (!grow(&rig, slot_bytes)) {
                break;
            }
            EXPECT(kvt_slab_has_room(rig.slab, slot_bytes));
            continue;
        }
        unsigned char *addr = kvt_slab_addr(rig.slab, place);
        memset(addr, (int)slots, slot_bytes); /* the sanitizer watches the chunk's ends */
        EXPECT(addr != seen[0] && addr != seen[1]);
        seen[slots % 2] = addr;
        slots++;
        EXPECT(rig.mapped <= aligned);
        EXPECT(stats_of(&rig).bytes_mapped == rig.mapped);
    }
    EXPECT(rig.mapped_max <= aligned);
    /* Nothing is left that would hold one slot more. */
    ck_assert_msg(aligned - rig.mapped < slot_bytes, "budget %llu, slots of %llu: %llu unused",
                  (unsigned long long)budget, (unsigned long long)slot_bytes,
                  (unsigned long long)(aligned - rig.mapped));
    EXPECT(stats_of(&rig).slots_used == slots);
    EXPECT(stats_of(&rig).slots_free == 0);
    EXPECT(slots > 0 || slot_bytes > aligned);
    rig_close(&rig);
}

START_TEST(budget_to_the_byte)
{
    static const uint64_t budgets[] = {4096,         4097,       8191,          8192,
                                       3 * 4096 + 5, 7 * 4096,   36865,         100 * KIB + 1,
                                       MIB,          MIB + 4096, 3 * MIB - 4096};
    static const uint64_t sizes[] = {64,    999,   4095,  4096,   4097,   5000,
                                     12288, 20480, 65537, 131072, 262144, 1000000};
    for (size_t i = 0; i < sizeof(budgets) / sizeof(budgets[0]); i++) {
        for (size_t j = 0; j < sizeof(sizes) / sizeof(sizes[0]); j++) {
            check_budget(budgets[i], sizes[j]);
        }
    }
}
END_TEST

START_TEST(budget_too_small)
{
    struct rig rig;
    rig_open(&rig, 4096);
    struct kvt_slab *slab = NULL;
    ck_assert_int_eq(kvt_slab_create(&rig.memory.mem, &rig.backing, 0, &slab), KVT_ERR_INVAL);
    ck_assert_int_eq(kvt_slab_create(&rig.memory.mem, &rig.backing, 4095, &slab), KVT_ERR_INVAL);
    ck_assert_ptr_null(slab);
    ck_assert_uint_eq(kvt_slab_grow_begin(rig.slab, 4097), 0);
    ck_assert_uint_eq(kvt_slab_grow_begin(rig.slab, UINT64_MAX), 0);
    ck_assert_uint_eq(kvt_slab_grow_begin(rig.slab, UINT64_MAX - 4095), 0);
    ck_assert_uint_eq(stats_of(&rig).bytes_mapped, 0);
    rig_close(&rig);
}
END_TEST

/* Terabytes, at addresses that nobody touches. */
START_TEST(large_budgets)
{
    static const uint64_t budgets[] = {64 * KIB * MIB, 256 * KIB * MIB, MIB * MIB, MIB * MIB - 4096,
                                       5 * MIB * MIB + 12288};
    static const uint64_t sizes[] = {MIB, 33 * MIB + 4096, 100 * MIB + 1, KIB * MIB};
    for (size_t i = 0; i < sizeof(budgets) / sizeof(budgets[0]); i++) {
        for (size_t j = 0; j < sizeof(sizes) / sizeof(sizes[0]); j++) {
            struct rig rig;
            rig_open(&rig, budgets[i]);
            rig.unreal = true;
            while (grow(&rig, sizes[j])) {
                ck_assert_uint_le(rig.mapped, budgets[i]);
            }
            ck_assert_uint_le(rig.chunks, KVT_CHUNKS_MAX);
            ck_assert_uint_lt(budgets[i] - rig.mapped, sizes[j]);
            struct kvt_place place;
            uint64_t slots = 0;
            while (kvt_slab_reserve(rig.slab, sizes[j], &place) == KVT_OK) {
                slots++;
            }
            ck_assert_uint_gt(slots, rig.mapped / sizes[j] / 2);
            ck_assert_uint_ge(rig.mapped / sizes[j], slots);
            rig_close(&rig);
        }
    }
}
END_TEST

START_TEST(slots_of_a_chunk_are_limited)
{
    struct rig rig;
    rig_open(&rig, 16 * MIB); /* chunks of 2 MiB, which would hold twice the limit */
    ck_assert(grow(&rig, 1));
    ck_assert_uint_eq(rig.mapped, 2 * MIB);
    unsigned char *first = NULL, *last = NULL;
    struct kvt_place place;
    uint32_t count = 0;
    while (kvt_slab_reserve(rig.slab, 1, &place) == KVT_OK) {
        last = kvt_slab_addr(rig.slab, place);
        first = count == 0 ? last : first;
        count++;
    }
    ck_assert_uint_eq(count, KVT_CHUNK_SLOTS_MAX);
    ck_assert_int_eq(last - first, KVT_CHUNK_SLOTS_MAX - 1);
    ck_assert_uint_eq(place.slot, KVT_CHUNK_SLOTS_MAX - 1);
    rig_close(&rig);
}
END_TEST

START_TEST(growing_counts_before_it_is_done)
{
    struct rig rig;
    rig_open(&rig, 3 * 4096);
    /* Three that map at the same time share the budget. */
    uint64_t a = kvt_slab_grow_begin(rig.slab, 4096);
    uint64_t b = kvt_slab_grow_begin(rig.slab, 4096);
    uint64_t c = kvt_slab_grow_begin(rig.slab, 4096);
    ck_assert_uint_eq(a + b + c, 3 * 4096);
    ck_assert_uint_eq(kvt_slab_grow_begin(rig.slab, 4096), 0);
    ck_assert_uint_eq(stats_of(&rig).bytes_mapped, 3 * 4096);
    ck_assert(!kvt_slab_has_room(rig.slab, 4096)); /* nothing is there yet */
    kvt_slab_grow_end(rig.slab, NULL, a);
    ck_assert_uint_eq(stats_of(&rig).bytes_mapped, 2 * 4096);
    kvt_slab_grow_end(rig.slab, rig_map(&rig, b), b);
    ck_assert(kvt_slab_has_room(rig.slab, 4096));
    /* What one of them could not have is there for the next. */
    uint64_t d = kvt_slab_grow_begin(rig.slab, 4096);
    ck_assert_uint_eq(d, 4096);
    ck_assert_uint_eq(kvt_slab_grow_begin(rig.slab, 4096), 0);
    kvt_slab_grow_end(rig.slab, rig_map(&rig, d), d);
    kvt_slab_grow_end(rig.slab, rig_map(&rig, c), c);
    struct kvt_place place[3];
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(kvt_slab_reserve(rig.slab, 4096, &place[i]), KVT_OK);
    }
    ck_assert_int_eq(kvt_slab_reserve(rig.slab, 4096, &place[0]), KVT_ERR_LIMIT);
    ck_assert_uint_eq(rig.mapped_max, 3 * 4096);
    rig_close(&rig);
}
END_TEST

START_TEST(no_memory_for_a_chunk)
{
    struct rig rig;
    rig_open(&rig, 8 * 4096);
    rig.no_memory = true;
    for (int i = 0; i < 100; i++) {
        ck_assert(!grow(&rig, 4096));
        ck_assert_uint_eq(stats_of(&rig).bytes_mapped, 0);
    }
    rig.no_memory = false;
    for (int i = 0; i < 8; i++) {
        ck_assert(grow(&rig, 4096));
    }
    ck_assert(!grow(&rig, 4096));
    rig_close(&rig);
}
END_TEST

/* ---- memory for the metadata ---- */

START_TEST(metadata_fails)
{
    struct rig rig;
    rig_open(&rig, 8 * 4096);
    for (uint64_t k = 1; k <= 2; k++) {
        struct kvt_slab *slab = NULL;
        test_memory_fail(&rig.memory, k, false);
        ck_assert_int_eq(kvt_slab_create(&rig.memory.mem, &rig.backing, 4096, &slab),
                         KVT_ERR_NOMEM);
        ck_assert_ptr_null(slab);
    }
    ck_assert(grow(&rig, 1024));
    struct kvt_place place = {0, 0};
    test_memory_fail(&rig.memory, 1, false);
    ck_assert_int_eq(kvt_slab_reserve(rig.slab, 1024, &place), KVT_ERR_NOMEM);
    ck_assert(!kvt_place_is(place));
    /* The chunk is not lost, not even when it fails while it changes its size. */
    ck_assert_int_eq(kvt_slab_reserve(rig.slab, 1024, &place), KVT_OK);
    ck_assert(kvt_slab_free(rig.slab, place));
    test_memory_fail(&rig.memory, 1, false);
    ck_assert_int_eq(kvt_slab_reserve(rig.slab, 2048, &place), KVT_ERR_NOMEM);
    ck_assert(kvt_slab_has_room(rig.slab, 2048));
    ck_assert(kvt_slab_has_room(rig.slab, 1024));
    check_stale(&rig, place);
    struct kvt_place again = {0, 0};
    ck_assert_int_eq(kvt_slab_reserve(rig.slab, 1024, &again), KVT_OK);
    ck_assert(!same_place(place, again));
    check_stale(&rig, place);
    ck_assert_uint_eq(stats_of(&rig).bytes_meta, rig.memory.live_bytes);
    rig_close(&rig);
}
END_TEST

/* ---- many sizes ---- */

#define SIZES_AT_ONCE 64u /* what the slab promises */

START_TEST(more_sizes_than_entries)
{
    struct rig rig;
    struct kvt_place places[SIZES_AT_ONCE];
    rig_open(&rig, 64 * MIB * 128); /* chunks of 64 MiB */
    rig.unreal = true;
    for (uint32_t i = 0; i < SIZES_AT_ONCE; i++) {
        places[i] = reserve(&rig, MIB + i);
    }
    ck_assert(grow(&rig, MIB));
    struct kvt_place extra = {0, 0};
    /* All are in use: one more is refused, and has_room says so, though a chunk is idle. */
    ck_assert(!kvt_slab_has_room(rig.slab, 2 * MIB));
    ck_assert_int_eq(kvt_slab_reserve(rig.slab, 2 * MIB, &extra), KVT_ERR_LIMIT);
    ck_assert(kvt_slab_has_room(rig.slab, MIB + 5));
    /* Once the slots of a size are free, its entry serves another. */
    ck_assert(kvt_slab_free(rig.slab, places[17]));
    ck_assert(kvt_slab_has_room(rig.slab, 2 * MIB));
    ck_assert_int_eq(kvt_slab_reserve(rig.slab, 2 * MIB, &extra), KVT_OK);
    check_stale(&rig, places[17]);
    ck_assert(!kvt_slab_has_room(rig.slab, MIB + 17));
    for (uint32_t i = 0; i < SIZES_AT_ONCE; i++) {
        ck_assert(kvt_slab_free(rig.slab, places[i]) == (i != 17));
    }
    ck_assert(kvt_slab_free(rig.slab, extra));
    rig_close(&rig);
}
END_TEST

/* A chunk that nobody uses serves another size; one that somebody uses does not. */
START_TEST(idle_chunks_change_their_size)
{
    struct rig rig;
    rig_open(&rig, 2 * 4096);
    struct kvt_place a = reserve(&rig, 4096);
    struct kvt_place b = reserve(&rig, 1024);
    ck_assert_uint_eq(rig.chunks, 2);
    struct kvt_place c;
    ck_assert_int_eq(kvt_slab_reserve(rig.slab, 4096, &c), KVT_ERR_LIMIT);
    ck_assert(kvt_slab_free(rig.slab, b));
    ck_assert_int_eq(kvt_slab_reserve(rig.slab, 4096, &c), KVT_OK);
    ck_assert(!kvt_slab_has_room(rig.slab, 1024));
    ck_assert(kvt_slab_free(rig.slab, a));
    ck_assert(kvt_slab_free(rig.slab, c));
    /* A slot larger than any chunk: neither of the idle ones serves. */
    ck_assert(!kvt_slab_has_room(rig.slab, 4097));
    ck_assert_int_eq(kvt_slab_reserve(rig.slab, 4097, &c), KVT_ERR_LIMIT);
    ck_assert_uint_eq(kvt_slab_grow_begin(rig.slab, 4097), 0);
    rig_close(&rig);
}
END_TEST

/* ---- random operations against a dumb model ---- */

#define LIVE_MAX 512u
#define SPENT_MAX 256u

struct live {
    struct kvt_place place;
    uint64_t bytes;
    unsigned char *addr;
    unsigned char paint;
    bool held, doomed;
    uint32_t transfers;
};

struct world {
    struct rig rig;
    struct live live[LIVE_MAX];
    uint32_t live_count;
    struct kvt_place spent[SPENT_MAX];
    uint32_t spent_count;
    unsigned char next_paint;
    struct test_random random;
};

static void paint(const struct live *live)
{
    for (uint64_t i = 0; i < live->bytes; i++) {
        live->addr[i] = (unsigned char)(live->paint + 31 * i);
    }
}

static bool painted(const struct live *live)
{
    for (uint64_t i = 0; i < live->bytes; i++) {
        if (live->addr[i] != (unsigned char)(live->paint + 31 * i)) {
            return false;
        }
    }
    return true;
}

static bool apart(const struct live *a, const struct live *b)
{
    return a->addr + a->bytes <= b->addr || b->addr + b->bytes <= a->addr;
}

static void world_reserve(struct world *world)
{
    static const uint64_t sizes[] = {1, 48, 100, 512, 1000, 4096, 5000, 12288, 20001};
    uint64_t bytes = sizes[test_random_below(&world->random, sizeof(sizes) / sizeof(sizes[0]))];
    struct live live = {.bytes = bytes, .paint = world->next_paint++};
    if (world->live_count == LIVE_MAX) {
        return;
    }
    bool room = kvt_slab_has_room(world->rig.slab, bytes);
    kvt_status status = kvt_slab_reserve(world->rig.slab, bytes, &live.place);
    EXPECT(status == (room ? KVT_OK : KVT_ERR_LIMIT));
    if (!room) {
        uint64_t rest = world->rig.mapped;
        bool grew = grow(&world->rig, bytes);
        EXPECT(grew || stats_of(&world->rig).bytes_budget - rest < bytes);
        return;
    }
    live.addr = kvt_slab_addr(world->rig.slab, live.place);
    EXPECT(live.addr != NULL);
    for (uint32_t i = 0; i < world->live_count; i++) {
        EXPECT(apart(&live, &world->live[i]));
        EXPECT(live.place.slot != world->live[i].place.slot);
    }
    for (uint32_t i = 0; i < world->spent_count; i++) {
        EXPECT(!same_place(live.place, world->spent[i]));
    }
    paint(&live);
    world->live[world->live_count++] = live;
}

/* The slot is free by now: its name is spent. */
static void world_forget(struct world *world, uint32_t number)
{
    uint32_t at = world->spent_count < SPENT_MAX ? world->spent_count++
                                                 : test_random_below(&world->random, SPENT_MAX);
    world->spent[at] = world->live[number].place;
    world->live[number] = world->live[--world->live_count];
}

static void world_free(struct world *world, uint32_t number)
{
    struct live *live = &world->live[number];
    EXPECT(painted(live));
    EXPECT(kvt_slab_free(world->rig.slab, live->place) == !live->doomed);
    if (live->transfers > 0) {
        live->doomed = true;
    } else {
        world_forget(world, number);
    }
}

static void world_unref(struct world *world, uint32_t number)
{
    struct live *live = &world->live[number];
    if (live->transfers == 0) {
        return;
    }
    EXPECT(painted(live)); /* a doomed slot keeps its bytes while somebody copies them */
    kvt_slab_unref(world->rig.slab, live->place);
    live->transfers--;
    if (live->doomed && live->transfers == 0) {
        world_forget(world, number);
    }
}

static void world_step(struct world *world)
{
    uint32_t choice = test_random_below(&world->random, 100);
    if (world->live_count == 0 || choice < 30) {
        world_reserve(world);
        return;
    }
    uint32_t number = test_random_below(&world->random, world->live_count);
    struct live *live = &world->live[number];
    struct kvt_slab *slab = world->rig.slab;
    if (choice < 45) {
        if (!live->held && !live->doomed) {
            kvt_slab_commit(slab, live->place);
            live->held = true;
        }
    } else if (choice < 55) {
        if (!live->doomed) {
            kvt_slab_ref(slab, live->place);
            live->transfers++;
        }
    } else if (choice < 68) {
        world_unref(world, number);
    } else if (choice < 94) {
        world_free(world, number);
    } else if (world->spent_count > 0) {
        check_stale(&world->rig,
                    world->spent[test_random_below(&world->random, world->spent_count)]);
    }
}

static bool world_agrees(const struct world *world)
{
    struct kvt_slab_stats stats = stats_of(&world->rig);
    uint64_t bytes = 0, transfers = 0;
    bool good = true;
    for (uint32_t i = 0; i < world->live_count; i++) {
        const struct live *live = &world->live[i];
        void *want = live->doomed ? NULL : live->addr;
        good = good && kvt_slab_addr(world->rig.slab, live->place) == want && painted(live);
        bytes += live->bytes;
        transfers += live->transfers;
    }
    return good && stats.bytes_used == bytes && stats.slots_used == world->live_count &&
           stats.slots_in_transfer == transfers && stats.bytes_mapped == world->rig.mapped &&
           stats.bytes_mapped <= stats.bytes_budget &&
           stats.bytes_meta == world->rig.memory.live_bytes;
}

static void world_run(uint64_t budget, uint64_t steps, struct test_random *random)
{
    struct world *world = calloc(1, sizeof(*world));
    ck_assert_ptr_nonnull(world);
    rig_open(&world->rig, budget);
    world->random = (struct test_random){test_random_u64(random)};
    for (uint64_t i = 0; i < steps; i++) {
        world_step(world);
        if (i % 500 == 0) {
            ck_assert(world_agrees(world));
        }
    }
    /* The controls: a painted byte that changed, a transfer that was not there. */
    while (world->live_count == 0) {
        world_reserve(world);
    }
    ck_assert(world_agrees(world));
    world->live[0].addr[0] ^= 1;
    ck_assert(!world_agrees(world));
    world->live[0].addr[0] ^= 1;
    world->live[0].transfers++;
    ck_assert(!world_agrees(world));
    world->live[0].transfers--;
    while (world->live_count > 0) {
        world_unref(world, 0);
        if (world->live_count > 0) {
            world_free(world, test_random_below(&world->random, world->live_count));
        }
    }
    ck_assert(world_agrees(world));
    ck_assert_uint_eq(stats_of(&world->rig).bytes_used, 0);
    rig_close(&world->rig);
    free(world);
}

START_TEST(random_operations)
{
    struct test_random random = test_random_start("slab random_operations", 1);
    world_run(256 * KIB, test_scaled(300000), &random);
    world_run(100 * KIB + 77, test_scaled(300000), &random);
    world_run(2 * 4096, test_scaled(300000), &random);
    world_run(2 * MIB, test_scaled(200000), &random);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("slab");
    TCase *tcase = tcase_create("slab");
    tcase_set_timeout(tcase, 0);
    tcase_add_test(tcase, states);
    tcase_add_test(tcase, deferred_free);
    tcase_add_test(tcase, transfers_without_free);
    tcase_add_test(tcase, stale_places);
    tcase_add_test(tcase, stale_after_new_size);
    tcase_add_test(tcase, budget_to_the_byte);
    tcase_add_test(tcase, budget_too_small);
    tcase_add_test(tcase, large_budgets);
    tcase_add_test(tcase, slots_of_a_chunk_are_limited);
    tcase_add_test(tcase, growing_counts_before_it_is_done);
    tcase_add_test(tcase, no_memory_for_a_chunk);
    tcase_add_test(tcase, metadata_fails);
    tcase_add_test(tcase, more_sizes_than_entries);
    tcase_add_test(tcase, idle_chunks_change_their_size);
    tcase_add_test(tcase, random_operations);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
