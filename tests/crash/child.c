#include "tests/crash/child.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define EXIT_NOT_STARTED 125
#define SIGNAL_BASE 128
#define TEXT_BYTES 4096u
#define SHOWN_LINES 8u
#define COPY_BYTES (UINT64_C(1) << 20)

pid_t kvt_child_start(const char *const *arguments, const char *const *settings, const char *output)
{
    char *copies[CHILD_ARGUMENTS_MAX + 1] = {NULL};
    for (size_t i = 0; arguments[i] != NULL && i < CHILD_ARGUMENTS_MAX; i++) {
        copies[i] = (char *)(uintptr_t)arguments[i]; /* execv does not write */
    }
    (void)fflush(NULL);
    pid_t pid = fork();
    if (pid != 0) {
        return pid;
    }
    int fd = open(output, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || dup2(fd, STDOUT_FILENO) < 0 || dup2(fd, STDERR_FILENO) < 0) {
        _exit(EXIT_NOT_STARTED);
    }
    (void)close(fd);
    for (size_t i = 0; settings[i] != NULL; i++) {
        if (putenv((char *)(uintptr_t)settings[i]) != 0) {
            _exit(EXIT_NOT_STARTED);
        }
    }
    if (copies[0] != NULL) {
        (void)execv(copies[0], copies);
    }
    _exit(EXIT_NOT_STARTED);
}

static int status_of(int result)
{
    return WIFEXITED(result) ? WEXITSTATUS(result) : SIGNAL_BASE + WTERMSIG(result);
}

int kvt_child_wait(pid_t pid)
{
    int result;
    while (waitpid(pid, &result, 0) < 0) {
        if (errno != EINTR) {
            return -1;
        }
    }
    return status_of(result);
}

bool kvt_child_ended(pid_t pid, int *out_status)
{
    int result;
    if (waitpid(pid, &result, WNOHANG) != pid) {
        return false;
    }
    *out_status = status_of(result);
    return true;
}

/* Is the process a catalog's of that owner? */
static bool is_catalog(const char *pid, const char *owner)
{
    char path[64], line[TEXT_BYTES];
    (void)snprintf(path, sizeof(path), "/proc/%.20s/cmdline", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    ssize_t bytes = read(fd, line, sizeof(line) - 1);
    (void)close(fd);
    line[bytes > 0 ? bytes : 0] = '\0';
    size_t name = strlen(line) + 1;
    return strcmp(line, "kvtier-catalog") == 0 && bytes > (ssize_t)name &&
           strcmp(line + name, owner) == 0;
}

uint32_t kvt_child_kill_catalogs(pid_t owner)
{
    char wanted[32];
    (void)snprintf(wanted, sizeof(wanted), "--owner=%d", (int)owner);
    DIR *all = opendir("/proc");
    uint32_t killed = 0;
    for (struct dirent *entry; all != NULL && (entry = readdir(all)) != NULL;) {
        if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9' &&
            is_catalog(entry->d_name, wanted)) {
            killed += kill((pid_t)strtol(entry->d_name, NULL, 10), SIGKILL) == 0;
        }
    }
    if (all != NULL) {
        (void)closedir(all);
    }
    return killed;
}

void kvt_child_sleep_us(uint32_t us)
{
    struct timespec left = {(time_t)(us / 1000000u), (long)(us % 1000000u) * 1000};
    while (nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
}

void kvt_child_show(const char *output)
{
    char line[TEXT_BYTES];
    FILE *file = fopen(output, "re");
    for (uint32_t i = 0; file != NULL && fgets(line, sizeof(line), file) != NULL; i++) {
        if (i < SHOWN_LINES) {
            (void)printf("    | %s", line);
        }
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    (void)fflush(stdout);
}

bool kvt_child_folder(char *out_path, size_t path_bytes)
{
    static const char *const places[] = {"/dev/shm", "/tmp"};
    const char *wanted = getenv("KVT_CRASH_FOLDER");
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        (void)snprintf(out_path, path_bytes, "%s/kvt_crash_XXXXXX",
                       wanted != NULL ? wanted : places[i]);
        if (mkdtemp(out_path) != NULL) {
            return true;
        }
    }
    return false;
}

void kvt_child_remove(const char *path)
{
    DIR *folder = opendir(path);
    for (struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;) {
        char inner[TEXT_BYTES];
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            (void)snprintf(inner, sizeof(inner), "%s/%s", path, entry->d_name);
            kvt_child_remove(inner);
        }
    }
    if (folder != NULL) {
        (void)closedir(folder);
        (void)rmdir(path);
    } else {
        (void)unlink(path);
    }
}

static bool copy_file(const char *from, const char *to)
{
    static unsigned char buffer[COPY_BYTES];
    int in = open(from, O_RDONLY | O_CLOEXEC);
    int out = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    ssize_t bytes = in >= 0 && out >= 0 ? 1 : -1;
    while (bytes > 0) {
        bytes = read(in, buffer, sizeof(buffer));
        if (bytes > 0 && write(out, buffer, (size_t)bytes) != bytes) {
            bytes = -1;
        }
    }
    if (in >= 0) {
        (void)close(in);
    }
    if (out >= 0) {
        (void)close(out);
    }
    return bytes == 0;
}

bool kvt_child_copy(const char *from, const char *to)
{
    DIR *folder = opendir(from);
    if (folder == NULL) {
        return copy_file(from, to);
    }
    bool good = mkdir(to, 0700) == 0;
    for (struct dirent *entry; good && (entry = readdir(folder)) != NULL;) {
        char inner[TEXT_BYTES], beside[TEXT_BYTES];
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            (void)snprintf(inner, sizeof(inner), "%s/%s", from, entry->d_name);
            (void)snprintf(beside, sizeof(beside), "%s/%s", to, entry->d_name);
            good = kvt_child_copy(inner, beside);
        }
    }
    (void)closedir(folder);
    return good;
}

bool kvt_child_long(void)
{
    const char *wanted = getenv("KVT_CRASH");
    return wanted != NULL && strcmp(wanted, "long") == 0;
}

void kvt_child_tell(const char *format, ...)
{
    char line[TEXT_BYTES];
    va_list list;
    va_start(list, format);
    (void)vsnprintf(line, sizeof(line), format, list);
    va_end(list);
    (void)printf("%s\n", line);
    const char *table = getenv("KVT_CRASH_TABLE");
    FILE *file = table != NULL ? fopen(table, "ae") : NULL;
    if (file != NULL) {
        (void)fprintf(file, "%s\n", line);
        (void)fclose(file);
    }
}
