/* libc's memory behind the table, and the checked wrappers that everybody calls. */
#include "cache/base/base.h"

#include <stdlib.h>
#include <string.h>

static void *libc_alloc(void *ctx, size_t bytes)
{
    (void)ctx;
    return malloc(bytes);
}

static void *libc_resize(void *ctx, void *ptr, size_t old_bytes, size_t new_bytes)
{
    (void)ctx;
    (void)old_bytes;
    return realloc(ptr, new_bytes);
}

static void libc_free(void *ctx, void *ptr, size_t bytes)
{
    (void)ctx;
    (void)bytes;
    free(ptr);
}

const struct kvt_memory kvt_memory_libc = {NULL, libc_alloc, libc_resize, libc_free};

void *kvt_alloc(const struct kvt_memory *mem, size_t bytes)
{
    /* What an empty request gives differs between allocators; here it is refused. */
    return bytes == 0 ? NULL : mem->alloc(mem->ctx, bytes);
}

void *kvt_calloc(const struct kvt_memory *mem, size_t count, size_t bytes)
{
    size_t total;
    if (__builtin_mul_overflow(count, bytes, &total)) {
        return NULL;
    }
    void *ptr = kvt_alloc(mem, total);
    if (ptr != NULL) {
        memset(ptr, 0, total);
    }
    return ptr;
}

void *kvt_resize(const struct kvt_memory *mem, void *ptr, size_t old_bytes, size_t new_bytes)
{
    if (ptr == NULL) {
        return kvt_alloc(mem, new_bytes);
    }
    /* Shrinking to nothing would free the block with some allocators: that is kvt_free's task. */
    return new_bytes == 0 ? NULL : mem->resize(mem->ctx, ptr, old_bytes, new_bytes);
}

void kvt_free(const struct kvt_memory *mem, void *ptr, size_t bytes)
{
    if (ptr != NULL) {
        mem->free(mem->ctx, ptr, bytes);
    }
}
