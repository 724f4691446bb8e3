/*
 * Memory for tests: counts what is asked for, checks that blocks come back whole and with the size
 * they were asked for with, and says no where a test wants it to.
 */
#ifndef KVT_TEST_MEMORY_H
#define KVT_TEST_MEMORY_H

#include "cache/base/base.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEST_MEMORY_MAGIC UINT64_C(0x6b76742d74657374)
#define TEST_MEMORY_DEAD UINT64_C(0xdeadb10cdeadb10c)

struct test_memory {
    struct kvt_memory mem; /* what the code under test is given; must not move while it is used */
    uint64_t calls;        /* alloc and resize, those that failed included */
    uint64_t live_blocks, live_bytes;
    uint64_t fail_at;   /* k > 0: the k-th call from now on fails; counts down to 0 */
    bool fail_for_good; /* and so does every one after it */
    bool failing;
    uint64_t failed; /* calls that answered NULL */
};

/* Lies in front of each block; 32 bytes keep the block aligned for any type. */
struct test_block {
    uint64_t magic, bytes, unused[2];
};

static inline void test_memory_wrong(const char *what)
{
    (void)fprintf(stderr, "test memory: %s\n", what);
    abort();
}

static inline bool test_memory_fails(struct test_memory *memory)
{
    memory->calls++;
    bool fails = memory->failing;
    if (memory->fail_at > 0 && --memory->fail_at == 0) {
        fails = true;
        memory->failing = memory->fail_for_good;
    }
    memory->failed += fails;
    return fails;
}

static inline void *test_memory_alloc(void *ctx, size_t bytes)
{
    struct test_memory *memory = ctx;
    if (bytes == 0) {
        test_memory_wrong("an empty block was asked for");
    }
    if (test_memory_fails(memory)) {
        return NULL;
    }
    struct test_block *block = malloc(sizeof(*block) + bytes);
    if (block == NULL) {
        return NULL;
    }
    *block = (struct test_block){.magic = TEST_MEMORY_MAGIC, .bytes = bytes};
    memset(block + 1, 0xa5, bytes); /* so that nobody counts on zeroes */
    memory->live_blocks++;
    memory->live_bytes += bytes;
    return block + 1;
}

static inline void test_memory_free(void *ctx, void *ptr, size_t bytes)
{
    struct test_memory *memory = ctx;
    if (ptr == NULL) {
        return;
    }
    struct test_block *block = (struct test_block *)ptr - 1;
    if (block->magic != TEST_MEMORY_MAGIC) {
        test_memory_wrong("freed twice, or never handed out");
    }
    if (block->bytes != bytes) {
        test_memory_wrong("freed with another size than it was asked for with");
    }
    block->magic = TEST_MEMORY_DEAD;
    memory->live_blocks--;
    memory->live_bytes -= bytes;
    free(block);
}

static inline void *test_memory_resize(void *ctx, void *ptr, size_t old_bytes, size_t new_bytes)
{
    void *moved = test_memory_alloc(ctx, new_bytes);
    if (moved != NULL) {
        memcpy(moved, ptr, old_bytes < new_bytes ? old_bytes : new_bytes);
        test_memory_free(ctx, ptr, old_bytes);
    }
    return moved;
}

static inline void test_memory_init(struct test_memory *memory)
{
    *memory = (struct test_memory){0};
    memory->mem =
        (struct kvt_memory){memory, test_memory_alloc, test_memory_resize, test_memory_free};
}

/* The k-th call from now on fails (0: none does), alone or with all that follow. */
static inline void test_memory_fail(struct test_memory *memory, uint64_t k, bool for_good)
{
    memory->fail_at = k;
    memory->fail_for_good = for_good;
    memory->failing = false;
}

#endif
