/* Processes that the crash tests start, kill and listen to. */
#ifndef KVT_TESTS_CRASH_CHILD_H
#define KVT_TESTS_CRASH_CHILD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define CHILD_ARGUMENTS_MAX 12u

/* What it prints goes to `output`, a file. settings: "NAME=VALUE" strings, NULL-terminated. -1: it
 * could not be started. */
pid_t kvt_child_start(const char *const *arguments, const char *const *settings,
                      const char *output);
/* Its exit status, or 128 + the signal that ended it. */
int kvt_child_wait(pid_t pid);
/* Has it ended? Its status then. */
bool kvt_child_ended(pid_t pid, int *out_status);
/* The catalog's processes of an owner: killed; how many there were. */
uint32_t kvt_child_kill_catalogs(pid_t owner);
void kvt_child_sleep_us(uint32_t us);
void kvt_child_show(const char *output);

/* A new folder of this test's own, in memory where there is such a file system. */
bool kvt_child_folder(char *out_path, size_t path_bytes);
void kvt_child_remove(const char *path);
bool kvt_child_copy(const char *from, const char *to);

/* Full or short, as KVT_CRASH=long says. */
bool kvt_child_long(void);
/* A line for the table that `make test-crash` prints last. */
void kvt_child_tell(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
