/*
 * The host tier: an arena of memfd chunks.
 *
 * Anonymous descriptors leave nothing behind when the process dies (F36), and can be handed to
 * other processes later. Memory is claimed when a chunk is mapped (fallocate), so that running
 * out is an answer here and not a SIGBUS at first touch. Huge pages are tried first, because
 * fewer of them cost less to pin and to walk; where they cannot be had, one warning says so and
 * names the fix.
 */
#include "cache/tier/tier.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MFD_HUGE_2MB
#define MFD_HUGE_2MB (21u << 26) /* log2 of the page's bytes, as mmap's MAP_HUGE_x */
#endif
#define CHUNK_NAME_BYTES 32

static void *map_fd(int fd, uint64_t bytes)
{
    if (ftruncate(fd, (off_t)bytes) != 0 || fallocate(fd, 0, 0, (off_t)bytes) != 0) {
        return NULL;
    }
    void *ptr = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (ptr == MAP_FAILED) {
        return NULL;
    }
    return ptr;
}

/* fallocate on a memfd takes what there is and more: the kernel's answer would be to kill
 * somebody. So what is left is looked at before. */
static bool memory_is_there(struct kvt_tier *tier, uint64_t bytes)
{
    struct kvt_system_memory memory;
    kvt_system_memory_read("", &memory);
    if (bytes <= memory.available_bytes) {
        return true;
    }
    kvt_log(
        tier->log, KVT_LOG_ERROR,
        "host tier: a chunk of %llu bytes is more than the %llu that are left in this machine or "
        "cgroup: lower the host budget or give the process more memory",
        (unsigned long long)bytes, (unsigned long long)memory.available_bytes);
    return false;
}

static void *map_chunk(const char *name, uint64_t bytes, unsigned flags, int *out_errno)
{
    int fd = memfd_create(name, MFD_CLOEXEC | flags);
    if (fd < 0) {
        *out_errno = errno;
        return NULL;
    }
    void *ptr = map_fd(fd, bytes);
    *out_errno = ptr == NULL ? errno : 0;
    /* The mapping keeps the memory; the embedded cache hands no descriptor to anybody. */
    (void)close(fd);
    return ptr;
}

static void warn_no_huge(struct kvt_tier *tier, int error)
{
    if (!atomic_exchange(&tier->huge_warned, true)) {
        kvt_log(
            tier->log, KVT_LOG_WARNING,
            "host tier: no huge pages (%s): pinning and page walks cost more; reserve some with "
            "vm.nr_hugepages (2 MiB each) to the size of the host budget",
            strerror(error));
    }
}

static void *host_map(void *ctx, uint64_t bytes)
{
    struct kvt_tier *tier = ctx;
    char name[CHUNK_NAME_BYTES];
    (void)snprintf(name, sizeof(name), "kvtier-chunk-%u", atomic_fetch_add(&tier->next_chunk, 1));
    int error = 0;
    if (!memory_is_there(tier, bytes)) {
        return NULL;
    }
    if (bytes % KVT_CHUNK_HUGE_BYTES == 0) {
        void *huge = map_chunk(name, bytes, MFD_HUGETLB | MFD_HUGE_2MB, &error);
        if (huge != NULL) {
            tier->huge_pages = true;
            return huge;
        }
        tier->huge_pages = false;
        warn_no_huge(tier, error);
    }
    void *ptr = map_chunk(name, bytes, 0, &error);
    if (ptr == NULL) {
        kvt_log(tier->log, KVT_LOG_ERROR,
                "host tier: %llu bytes could not be mapped (%s): lower the host budget or give the "
                "process more memory",
                (unsigned long long)bytes, strerror(error));
    }
    return ptr;
}

static void host_unmap(void *ctx, void *ptr, uint64_t bytes)
{
    struct kvt_tier *tier = ctx;
    if (munmap(ptr, bytes) != 0) {
        kvt_log(tier->log, KVT_LOG_ERROR, "host tier: unmapping failed (%s)", strerror(errno));
    }
}

kvt_status kvt_tier_open_host(struct kvt_tier *tier, const struct kvt_memory *mem,
                              const struct kvt_log *log, uint64_t budget_bytes)
{
    *tier = (struct kvt_tier){.name = "host", .mem = mem, .log = log};
    tier->backing = (struct kvt_backing){.ctx = tier, .map = host_map, .unmap = host_unmap};
    if (budget_bytes == 0) {
        return KVT_OK;
    }
    return kvt_slab_create(mem, &tier->backing, budget_bytes, &tier->slab);
}
