/*
 * How much memory there is: of the machine, and of the cgroups (v2 and v1) that this process is in.
 * What cannot be read does not limit.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache/base/base.h"

#define LINE_BYTES 512
#define PATH_BYTES 1024

/* The number that a file begins with; UINT64_MAX when there is none ("max" included). */
static uint64_t number_in(const char *path)
{
    char line[LINE_BYTES] = "";
    FILE *file = fopen(path, "re");
    if (file != NULL) {
        if (fgets(line, sizeof(line), file) == NULL) {
            line[0] = '\0';
        }
        (void)fclose(file);
    }
    return line[0] >= '0' && line[0] <= '9' ? strtoull(line, NULL, 10) : UINT64_MAX;
}

/* A line of meminfo, "Name:   N kB", in bytes. */
static uint64_t meminfo(const char *root, const char *name)
{
    char path[PATH_BYTES], line[LINE_BYTES];
    (void)snprintf(path, sizeof(path), "%s/proc/meminfo", root);
    uint64_t bytes = UINT64_MAX;
    FILE *file = fopen(path, "re");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        size_t length = strlen(name);
        if (strncmp(line, name, length) == 0 && line[length] == ':') {
            bytes = strtoull(line + length + 1, NULL, 10) * 1024;
            break;
        }
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    return bytes;
}

static void lower(uint64_t *value, uint64_t bound)
{
    if (bound < *value) {
        *value = bound;
    }
}

/* One cgroup's limit, and what it leaves. */
static void apply(const char *folder, const char *limit_name, const char *usage_name,
                  struct kvt_system_memory *memory)
{
    char path[PATH_BYTES + LINE_BYTES];
    (void)snprintf(path, sizeof(path), "%s/%s", folder, limit_name);
    uint64_t limit = number_in(path);
    (void)snprintf(path, sizeof(path), "%s/%s", folder, usage_name);
    uint64_t usage = number_in(path);
    if (limit != UINT64_MAX) {
        lower(&memory->total_bytes, limit);
        lower(&memory->available_bytes, usage == UINT64_MAX || usage > limit ? 0 : limit - usage);
    }
}

/* The cgroup named by a line of /proc/self/cgroup, and all above it. */
static void apply_line(const char *root, char *line, struct kvt_system_memory *memory)
{
    line[strcspn(line, "\n")] = '\0';
    char *controllers = strchr(line, ':');
    char *group = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
    if (group == NULL) {
        return;
    }
    *group++ = '\0';
    bool v2 = controllers[1] == '\0';
    if (!v2 && strstr(controllers + 1, "memory") == NULL) {
        return;
    }
    char folder[PATH_BYTES];
    for (;;) {
        (void)snprintf(folder, sizeof(folder), "%s/sys/fs/cgroup%s%s", root, v2 ? "" : "/memory",
                       group);
        if (v2) {
            apply(folder, "memory.max", "memory.current", memory);
        } else {
            apply(folder, "memory.limit_in_bytes", "memory.usage_in_bytes", memory);
        }
        char *end = strrchr(group, '/');
        if (end == NULL) {
            return;
        }
        *end = '\0';
    }
}

void kvt_system_memory_read(const char *root, struct kvt_system_memory *out_memory)
{
    struct kvt_system_memory memory = {meminfo(root, "MemTotal"), meminfo(root, "MemAvailable")};
    char path[PATH_BYTES], line[LINE_BYTES];
    (void)snprintf(path, sizeof(path), "%s/proc/self/cgroup", root);
    FILE *file = fopen(path, "re");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        apply_line(root, line, &memory);
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    *out_memory = memory;
}
