/* The index's memory, counted by the allocator. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/bench.h"

/* jemalloc's own entry points, where the program is linked with it. */
extern int mallctl(const char *name, void *old_value, size_t *old_bytes, void *new_value,
                   size_t new_bytes) __attribute__((weak));
extern void *mallocx(size_t bytes, int flags) __attribute__((weak));
extern void *rallocx(void *ptr, size_t bytes, int flags) __attribute__((weak));
extern void dallocx(void *ptr, int flags) __attribute__((weak));

/* As MALLOCX_ARENA(arena) | MALLOCX_TCACHE_NONE of jemalloc's header: cached blocks would count as
 * given out. */
static int arena_flags(const struct kvt_bench_memory *memory)
{
    return (int)((memory->arena + 1u) << 20) | (1 << 8);
}

static void *arena_alloc(void *ctx, size_t bytes) { return mallocx(bytes, arena_flags(ctx)); }

static void *arena_resize(void *ctx, void *ptr, size_t old_bytes, size_t new_bytes)
{
    (void)old_bytes;
    return ptr == NULL ? arena_alloc(ctx, new_bytes) : rallocx(ptr, new_bytes, arena_flags(ctx));
}

static void arena_free(void *ctx, void *ptr, size_t bytes)
{
    (void)bytes;
    if (ptr != NULL) {
        dallocx(ptr, arena_flags(ctx));
    }
}

static void *libc_alloc(void *ctx, size_t bytes)
{
    struct kvt_bench_memory *memory = ctx;
    memory->asked_bytes += bytes;
    return malloc(bytes);
}

static void *libc_resize(void *ctx, void *ptr, size_t old_bytes, size_t new_bytes)
{
    struct kvt_bench_memory *memory = ctx;
    memory->asked_bytes += new_bytes - (ptr != NULL ? old_bytes : 0);
    return realloc(ptr, new_bytes);
}

static void libc_free(void *ctx, void *ptr, size_t bytes)
{
    struct kvt_bench_memory *memory = ctx;
    memory->asked_bytes -= ptr != NULL ? bytes : 0;
    free(ptr);
}

void kvt_bench_memory_open(struct kvt_bench_memory *memory)
{
    unsigned arena = 0;
    size_t bytes = sizeof(arena);
    memset(memory, 0, sizeof(*memory));
    if (mallctl != NULL && mallocx != NULL && rallocx != NULL && dallocx != NULL &&
        mallctl("arenas.create", &arena, &bytes, NULL, 0) == 0) {
        memory->arena_used = true;
        memory->arena = arena;
        memory->hooks = (struct kvt_cache_memory){memory, arena_alloc, arena_resize, arena_free};
    } else {
        memory->hooks = (struct kvt_cache_memory){memory, libc_alloc, libc_resize, libc_free};
    }
}

/* "stats.arenas.<arena>.<kind>.allocated" */
static uint64_t arena_stat(const struct kvt_bench_memory *memory, const char *kind)
{
    char name[64];
    size_t value = 0, bytes = sizeof(value);
    int length = snprintf(name, sizeof(name), "stats.arenas.%u.%s.allocated", memory->arena, kind);
    if (length < 0 || (size_t)length >= sizeof(name)) {
        return 0;
    }
    return mallctl(name, &value, &bytes, NULL, 0) == 0 ? value : 0;
}

uint64_t kvt_bench_memory_bytes(const struct kvt_bench_memory *memory)
{
    if (!memory->arena_used) {
        return memory->asked_bytes;
    }
    uint64_t epoch = 1;
    size_t bytes = sizeof(epoch);
    if (mallctl("epoch", &epoch, &bytes, &epoch, sizeof(epoch)) != 0) {
        return 0;
    }
    return arena_stat(memory, "small") + arena_stat(memory, "large");
}

const char *kvt_bench_memory_source(const struct kvt_bench_memory *memory)
{
    return memory->arena_used ? "jemalloc arena" : "bytes asked of libc";
}

void kvt_bench_memory_close(struct kvt_bench_memory *memory)
{
    memory->hooks = (struct kvt_cache_memory){0};
}

bool kvt_bench_thread_allocated(uint64_t *out_bytes)
{
    size_t bytes = sizeof(*out_bytes);
    return mallctl != NULL && mallctl("thread.allocated", out_bytes, &bytes, NULL, 0) == 0;
}
