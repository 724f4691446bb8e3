/*
 * What tests of the tools share: files of their own, and what a command prints.
 *
 * A command that is run here prints into files; the test reads them back.
 */
#ifndef KVT_TOOL_SUPPORT_H
#define KVT_TOOL_SUPPORT_H

#include <check.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

/* A name in a folder of this test's own; the file is removed by tool_remove(). */
static inline char *tool_path(const char *suffix)
{
    static unsigned counter;
    const char *folder = getenv("TMPDIR");
    char *path = NULL;
    int n = asprintf(&path, "%s/kvt_tool_%ld_%u%s",
                     folder != NULL && folder[0] != '\0' ? folder : P_tmpdir, (long)getpid(),
                     counter++, suffix);
    ck_assert_int_gt(n, 0);
    return path;
}

static inline void tool_remove(char *path)
{
    (void)unlink(path);
    free(path);
}

static inline char *tool_write_bytes(const char *suffix, const char *bytes, size_t count)
{
    char *path = tool_path(suffix);
    FILE *file = fopen(path, "wb");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(bytes, 1, count, file), count);
    ck_assert_int_eq(fclose(file), 0);
    return path;
}

static inline char *tool_write(const char *suffix, const char *text)
{
    return tool_write_bytes(suffix, text, strlen(text));
}

static inline char *tool_write_gzip(const char *suffix, const char *text)
{
    char *path = tool_path(suffix);
    gzFile file = gzopen(path, "wb");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(gzwrite(file, text, (unsigned)strlen(text)), (int)strlen(text));
    ck_assert_int_eq(gzclose(file), Z_OK);
    return path;
}

/* The whole file, terminated; the caller frees it. */
static inline char *tool_read(const char *path, size_t *out_bytes)
{
    FILE *file = fopen(path, "rb");
    ck_assert_ptr_nonnull(file);
    char *text = NULL;
    size_t used = 0;
    size_t got = 0;
    do {
        char *grown = realloc(text, used + 4097);
        ck_assert_ptr_nonnull(grown);
        text = grown;
        got = fread(text + used, 1, 4096, file);
        used += got;
    } while (got > 0);
    text[used] = '\0';
    (void)fclose(file);
    if (out_bytes != NULL) {
        *out_bytes = used;
    }
    return text;
}

struct tool_run {
    int status;
    char *out, *err; /* what it printed */
};

static inline int tool_redirect(int target, const char *path)
{
    int kept = dup(target);
    FILE *file = fopen(path, "wb");
    ck_assert_int_ge(kept, 0);
    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(dup2(fileno(file), target), target);
    (void)fclose(file);
    return kept;
}

static inline void tool_restore(int target, int kept)
{
    ck_assert_int_eq(dup2(kept, target), target);
    (void)close(kept);
}

#define TOOL_ARGS_MAX 32

/* Runs a command with the words of `line`, which are parted by single spaces; what the command
 * borrows of them is good until the next call. */
static inline struct tool_run tool_command(int (*command)(int, char **), const char *line)
{
    static char words[8192];
    ck_assert_uint_lt(strlen(line), sizeof(words));
    memcpy(words, line, strlen(line) + 1);
    char *argv[TOOL_ARGS_MAX + 1] = {NULL};
    int argc = 0;
    char *rest = NULL;
    for (char *word = strtok_r(words, " ", &rest); word != NULL && argc < TOOL_ARGS_MAX;
         word = strtok_r(NULL, " ", &rest)) {
        argv[argc++] = word;
    }
    char *out_path = tool_path(".out");
    char *err_path = tool_path(".err");
    struct tool_run run = {0, NULL, NULL};
    (void)fflush(stdout);
    (void)fflush(stderr);
    int kept_out = tool_redirect(STDOUT_FILENO, out_path);
    int kept_err = tool_redirect(STDERR_FILENO, err_path);
    run.status = command(argc, argv);
    (void)fflush(stdout);
    (void)fflush(stderr);
    tool_restore(STDOUT_FILENO, kept_out);
    tool_restore(STDERR_FILENO, kept_err);
    run.out = tool_read(out_path, NULL);
    run.err = tool_read(err_path, NULL);
    tool_remove(out_path);
    tool_remove(err_path);
    return run;
}

static inline void tool_run_free(struct tool_run *run)
{
    free(run->out);
    free(run->err);
    run->out = NULL;
    run->err = NULL;
}

/* Runs a suite of one case, each test between before() and after() where there are such. Returns
 * the program's exit status. */
static inline int tool_suite_run(const char *name, const TTest *const *tests, size_t count,
                                 void (*before)(void), void (*after)(void))
{
    Suite *suite = suite_create(name);
    TCase *tcase = tcase_create(name);
    if (before != NULL) {
        tcase_add_checked_fixture(tcase, before, after);
    }
    for (size_t i = 0; i < count; i++) {
        tcase_add_test(tcase, tests[i]);
    }
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}

#endif
