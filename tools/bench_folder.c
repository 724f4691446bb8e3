#include "tools/bench_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/commands.h"
#include "tools/options.h"

#define FOLDER_NAME "kvtier-bench"
/* By this file a later run knows that the folder is one of ours. */
#define MARK_FILE "made-by-kvtier-bench"
#define STORE_NAME "store"
#define FOLDER_MODE 0700
#define FILE_MODE 0600

/* Everything that a run may leave, folders after what is in them. */
static const char *const files[] = {STORE_NAME "/catalog/data.mdb",
                                    STORE_NAME "/catalog/lock.mdb",
                                    STORE_NAME "/catalog/catalog.lock",
                                    STORE_NAME "/data.kvt",
                                    STORE_NAME "/store.kvt",
                                    STORE_NAME "/store.kvt.new",
                                    STORE_NAME "/lock",
                                    "file.data",
                                    "another.data"};
static const char *const folders[] = {STORE_NAME "/catalog", STORE_NAME};

static void path_of(const struct kvt_bench_folder *folder, const char *name, char *out_path)
{
    (void)snprintf(out_path, KVT_BENCH_PATH_BYTES, "%s/%s", folder->path, name);
}

/* All but the folder and its mark. */
static void contents_remove(const struct kvt_bench_folder *folder)
{
    char path[KVT_BENCH_PATH_BYTES];
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        path_of(folder, files[i], path);
        (void)unlink(path);
    }
    for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
        path_of(folder, folders[i], path);
        (void)rmdir(path);
    }
}

static int is_other(const struct dirent *entry)
{
    return strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
           strcmp(entry->d_name, MARK_FILE) != 0;
}

/* Is anything in it beside the mark? Also when it cannot be told. */
static bool has_others(const struct kvt_bench_folder *folder)
{
    struct dirent **entries = NULL;
    int count = scandir(folder->path, &entries, is_other, alphasort);
    for (int i = 0; entries != NULL && i < count; i++) {
        free(entries[i]);
    }
    free(entries);
    return count != 0;
}

static bool mark(const struct kvt_bench_folder *folder)
{
    char path[KVT_BENCH_PATH_BYTES];
    path_of(folder, MARK_FILE, path);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, FILE_MODE);
    return fd >= 0 && close(fd) == 0;
}

bool kvt_bench_folder_open(struct kvt_bench_folder *folder, const char *command, const char *in,
                           bool keep)
{
    if (strlen(in) + sizeof("/" FOLDER_NAME) > sizeof(folder->path)) {
        kvt_command_error(command, "the name of the folder is too long");
        return false;
    }
    (void)snprintf(folder->path, sizeof(folder->path), "%s/" FOLDER_NAME, in);
    path_of(folder, STORE_NAME, folder->store);
    path_of(folder, "file.data", folder->file);
    path_of(folder, "another.data", folder->another);
    folder->keep = keep;
    if (mkdir(folder->path, FOLDER_MODE) != 0) {
        if (errno != EEXIST) {
            kvt_command_error(command, "'%s' cannot be made: %s", folder->path, strerror(errno));
            return false;
        }
        char path[KVT_BENCH_PATH_BYTES];
        path_of(folder, MARK_FILE, path);
        if (access(path, F_OK) == 0) {
            contents_remove(folder);
        }
        if (has_others(folder)) {
            kvt_command_error(command,
                              "'%s' has something in it that is not of a benchmark, and is left "
                              "alone: move it away, or give another folder",
                              folder->path);
            return false;
        }
    }
    if (!mark(folder)) {
        kvt_command_error(command, "'%s' cannot be written to: %s", folder->path, strerror(errno));
        return false;
    }
    return true;
}

void kvt_bench_folder_close(struct kvt_bench_folder *folder, const char *command)
{
    char path[KVT_BENCH_PATH_BYTES];
    if (folder->keep) {
        return;
    }
    contents_remove(folder);
    path_of(folder, MARK_FILE, path);
    if (has_others(folder) || unlink(path) != 0 || rmdir(folder->path) != 0) {
        kvt_command_error(command, "'%s' could not be removed whole", folder->path);
    }
}

static int by_value(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

double kvt_bench_median(double *values, uint32_t count)
{
    if (count == 0) {
        return 0;
    }
    qsort(values, count, sizeof(*values), by_value);
    return values[count / 2];
}

int kvt_bench_print_json(struct json_t *all, const char *command)
{
    char *text = all != NULL ? json_dumps(all, JSON_COMPACT | JSON_REAL_PRECISION(6)) : NULL;
    json_decref(all);
    if (text == NULL) {
        kvt_command_error(command, "no memory for the result");
        return KVT_EXIT_FAILED;
    }
    (void)puts(text);
    free(text);
    return KVT_EXIT_DONE;
}
