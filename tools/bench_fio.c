#include "tools/bench_fio.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/options.h"

#define ARGS_MAX 40u
#define ARG_BYTES 4160u
#define OUTPUT_BYTES_MAX (4u << 20)
#define OUTPUT_BYTES_FIRST (64u << 10)

struct args {
    uint32_t count;
    bool cut; /* something did not fit */
    char text[ARGS_MAX][ARG_BYTES];
    char *list[ARGS_MAX + 1];
};

static void add(struct args *args, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void add(struct args *args, const char *format, ...)
{
    if (args->count == ARGS_MAX) {
        args->cut = true;
        return;
    }
    va_list list;
    va_start(list, format);
    int length = vsnprintf(args->text[args->count], ARG_BYTES, format, list);
    va_end(list);
    args->cut |= length < 0 || (size_t)length >= ARG_BYTES;
    args->list[args->count] = args->text[args->count];
    args->count++;
    args->list[args->count] = NULL;
}

/* ---- a program's output ---- */

/* False: no memory. */
static bool output_read(int fd, char **out_text)
{
    size_t capacity = OUTPUT_BYTES_FIRST, bytes = 0;
    char *text = malloc(capacity);
    while (text != NULL) {
        ssize_t got = read(fd, text + bytes, capacity - 1 - bytes);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            break;
        }
        bytes += (size_t)got;
        if (bytes + 1 == capacity) {
            char *larger = capacity < OUTPUT_BYTES_MAX ? realloc(text, 2 * capacity) : NULL;
            if (larger == NULL) {
                free(text);
                return false;
            }
            text = larger;
            capacity *= 2;
        }
    }
    if (text == NULL) {
        return false;
    }
    text[bytes] = '\0';
    *out_text = text;
    return true;
}

/* Runs fio. out_text is to be freed. False: it could not be started, or read. */
static bool program_run(struct args *args, char **out_text, int *out_exit)
{
    int pipe_fds[2];
    if (args->cut || pipe2(pipe_fds, O_CLOEXEC) != 0) {
        return false;
    }
    posix_spawn_file_actions_t actions;
    int rc = posix_spawn_file_actions_init(&actions);
    if (rc != 0) {
        (void)close(pipe_fds[0]);
        (void)close(pipe_fds[1]);
        return false;
    }
    pid_t pid = -1;
    rc = posix_spawn_file_actions_adddup2(&actions, pipe_fds[1], STDOUT_FILENO);
    if (rc == 0) {
        rc = posix_spawnp(&pid, "fio", &actions, NULL, args->list, environ);
    }
    (void)posix_spawn_file_actions_destroy(&actions);
    (void)close(pipe_fds[1]);
    bool good = rc == 0 && output_read(pipe_fds[0], out_text);
    (void)close(pipe_fds[0]);
    int how = 0;
    pid_t waited = -1;
    while (rc == 0 && (waited = waitpid(pid, &how, 0)) < 0 && errno == EINTR) {
    }
    *out_exit = waited == pid && WIFEXITED(how) ? WEXITSTATUS(how) : -1;
    return good;
}

bool kvt_fio_is_there(const char *command)
{
    struct args args = {0};
    char *text = NULL;
    int code = -1;
    add(&args, "fio");
    add(&args, "--version");
    bool there = program_run(&args, &text, &code) && code == 0;
    free(text);
    if (!there) {
        kvt_command_error(command, "there is no fio to compare with: install fio");
    }
    return there;
}

/* ---- a run ---- */

static void job_args(struct args *args, const struct kvt_fio_job *job)
{
    add(args, "fio");
    add(args, "--output-format=json");
    add(args, "--ioengine=io_uring");
    add(args, "--direct=%d", job->direct ? 1 : 0);
    add(args, "--allow_file_create=1");
    add(args, "--fallocate=none");
    add(args, "--exitall");
    add(args, "--name=job");
    add(args, "--filename=%s", job->file);
    add(args, "--rw=%s", job->write ? "write" : "read");
    add(args, "--size=%" PRIu64, job->file_bytes);
    add(args, "--io_size=%" PRIu64, job->io_bytes);
    add(args, "--bs=%" PRIu64, job->block_bytes);
    add(args, "--iodepth=%" PRIu32, job->depth);
    if (job->write) {
        uint64_t blocks = job->sync_bytes / job->block_bytes;
        add(args, "--end_fsync=1");
        if (job->sync_bytes > 0) {
            add(args, "--fdatasync=%" PRIu64, blocks > 0 ? blocks : 1);
        }
    }
    if (job->beside_file != NULL) {
        uint64_t blocks = job->sync_bytes / job->beside_block_bytes;
        add(args, "--name=beside");
        add(args, "--filename=%s", job->beside_file);
        add(args, "--rw=write");
        add(args, "--size=%" PRIu64, job->beside_file_bytes);
        add(args, "--io_size=%" PRIu64, 1000 * job->beside_file_bytes);
        add(args, "--bs=%" PRIu64, job->beside_block_bytes);
        add(args, "--iodepth=%" PRIu32, job->beside_depth);
        add(args, "--fdatasync=%" PRIu64, blocks > 0 ? blocks : 1);
        if (job->beside_bytes_per_s > 0) {
            add(args, "--rate=%" PRIu64, job->beside_bytes_per_s);
        }
    }
}

static double number_of(const json_t *job, const char *side, const char *name)
{
    return json_number_value(json_object_get(json_object_get(job, side), name));
}

static bool result_take(const struct kvt_fio_job *job, const char *text,
                        struct kvt_fio_result *out_result)
{
    /* Warnings may stand before it. */
    const char *begin = strchr(text, '{');
    json_t *all = begin != NULL ? json_loads(begin, JSON_DISABLE_EOF_CHECK, NULL) : NULL;
    json_t *jobs = json_object_get(all, "jobs");
    const json_t *mine = json_array_get(jobs, 0);
    const char *side = job->write ? "write" : "read";
    const json_t *latency = json_object_get(json_object_get(mine, side), "clat_ns");
    const json_t *p99 = json_object_get(json_object_get(latency, "percentile"), "99.000000");
    *out_result = (struct kvt_fio_result){
        .gbps = number_of(mine, side, "bw_bytes") / 1e9,
        .p99_ns = json_number_value(p99),
        .beside_gbps = number_of(json_array_get(jobs, 1), "write", "bw_bytes") / 1e9,
    };
    json_decref(all);
    return out_result->gbps > 0;
}

bool kvt_fio_run(const struct kvt_fio_job *job, struct kvt_fio_result *out_result)
{
    struct args *args = calloc(1, sizeof(*args));
    char *text = NULL;
    int code = -1;
    bool good = args != NULL;
    if (good) {
        job_args(args, job);
        good = program_run(args, &text, &code) && code == 0 && result_take(job, text, out_result);
    }
    if (!good) {
        kvt_command_error(job->command, "fio could not %s '%s' (exit status %d)",
                          job->write ? "write" : "read", job->file, code);
    }
    free(text);
    free(args);
    return good;
}
