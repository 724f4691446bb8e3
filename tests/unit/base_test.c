/* The leaves: status, memory, log, clock, locks, threads. */
#include "cache/base/base.h"

#include <check.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- status ---- */

START_TEST(status_names)
{
#define COUNT(name, value, sentence, retry) +1
    static const kvt_status all[] = {
#define VALUE(name, value, sentence, retry) KVT_##name,
        KVT_STATUS_MAP(VALUE)
#undef VALUE
    };
    ck_assert_uint_eq(sizeof(all) / sizeof(all[0]), 0 KVT_STATUS_MAP(COUNT));
#undef COUNT
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        ck_assert_str_ne(kvt_status_name(all[i]), kvt_status_name(1));
        ck_assert_str_ne(kvt_status_text(all[i]), kvt_status_text(1));
        for (size_t j = 0; j < i; j++) {
            ck_assert_int_ne(all[i], all[j]);
            ck_assert_str_ne(kvt_status_name(all[i]), kvt_status_name(all[j]));
            ck_assert_str_ne(kvt_status_text(all[i]), kvt_status_text(all[j]));
        }
    }
    ck_assert_str_eq(kvt_status_name(KVT_OK), "KVT_OK");
    ck_assert_str_eq(kvt_status_name(KVT_ERR_AGAIN), "KVT_ERR_AGAIN");
    ck_assert_ptr_nonnull(kvt_status_name(INT32_MIN));
    ck_assert_ptr_nonnull(kvt_status_text(INT32_MAX));
}
END_TEST

/* ---- memory ---- */

struct counted {
    int allocs, resizes, frees;
    bool dry;
};

static void *counted_alloc(void *ctx, size_t bytes)
{
    struct counted *counted = ctx;
    counted->allocs++;
    return counted->dry ? NULL : malloc(bytes);
}

static void *counted_resize(void *ctx, void *ptr, size_t old_bytes, size_t new_bytes)
{
    struct counted *counted = ctx;
    (void)old_bytes;
    counted->resizes++;
    return counted->dry ? NULL : realloc(ptr, new_bytes);
}

static void counted_free(void *ctx, void *ptr, size_t bytes)
{
    struct counted *counted = ctx;
    (void)bytes;
    counted->frees++;
    free(ptr);
}

START_TEST(memory_wrappers)
{
    struct counted counted = {0, 0, 0, false};
    const struct kvt_memory mem = {&counted, counted_alloc, counted_resize, counted_free};
    static const unsigned char zeroes[64];

    unsigned char *ptr = kvt_calloc(&mem, 8, 8);
    ck_assert_ptr_nonnull(ptr);
    ck_assert_mem_eq(ptr, zeroes, 64);
    memset(ptr, 7, 64);
    ck_assert_mem_ne(ptr, zeroes, 64);

    ptr = kvt_resize(&mem, ptr, 64, 4096);
    ck_assert_ptr_nonnull(ptr);
    for (int i = 0; i < 64; i++) {
        ck_assert_uint_eq(ptr[i], 7);
    }
    /* A resize that fails leaves the block. */
    counted.dry = true;
    ck_assert_ptr_null(kvt_resize(&mem, ptr, 4096, 8192));
    ck_assert_uint_eq(ptr[63], 7);
    ck_assert_ptr_null(kvt_alloc(&mem, 1));
    ck_assert_ptr_null(kvt_calloc(&mem, 1, 1));
    counted.dry = false;
    kvt_free(&mem, ptr, 4096);
    ck_assert_int_eq(counted.frees, 1);

    /* What cannot be never reaches the allocator. */
    int allocs = counted.allocs;
    ck_assert_ptr_null(kvt_calloc(&mem, SIZE_MAX / 2, 3));
    ck_assert_ptr_null(kvt_calloc(&mem, 0, 8));
    ck_assert_ptr_null(kvt_alloc(&mem, 0));
    kvt_free(&mem, NULL, 8);
    ck_assert_int_eq(counted.allocs, allocs);
    ck_assert_int_eq(counted.frees, 1);

    ptr = kvt_resize(&mem, NULL, 0, 16);
    ck_assert_ptr_nonnull(ptr);
    ck_assert_int_eq(counted.resizes, 2);
    kvt_free(&mem, ptr, 16);

    ptr = kvt_alloc(&kvt_memory_libc, 100);
    ck_assert_ptr_nonnull(ptr);
    ptr = kvt_resize(&kvt_memory_libc, ptr, 100, 200);
    ck_assert_ptr_nonnull(ptr);
    kvt_free(&kvt_memory_libc, ptr, 200);
}
END_TEST

/* ---- log ---- */

struct heard {
    int lines;
    int32_t level;
    char line[2 * KVT_LOG_LINE_BYTES_MAX];
};

static void hear(void *ctx, int32_t level, const char *line)
{
    struct heard *heard = ctx;
    heard->lines++;
    heard->level = level;
    size_t bytes = strlen(line) + 1;
    ck_assert_uint_le(bytes, sizeof(heard->line));
    memcpy(heard->line, line, bytes);
}

START_TEST(log_lines)
{
    struct heard heard = {0, 0, ""};
    const struct kvt_log log = {hear, &heard};
    kvt_log(&log, KVT_LOG_WARNING, "%s: %d", "pages", 12);
    ck_assert_int_eq(heard.lines, 1);
    ck_assert_int_eq(heard.level, KVT_LOG_WARNING);
    ck_assert_str_eq(heard.line, "pages: 12");

    /* One byte below the limit is whole, at the limit it is cut and says so. */
    char text[KVT_LOG_LINE_BYTES_MAX + 1];
    memset(text, 'x', sizeof(text));
    text[KVT_LOG_LINE_BYTES_MAX - 1] = '\0';
    kvt_log(&log, KVT_LOG_INFO, "%s", text);
    ck_assert_str_eq(heard.line, text);
    text[KVT_LOG_LINE_BYTES_MAX - 1] = 'x';
    text[KVT_LOG_LINE_BYTES_MAX] = '\0';
    kvt_log(&log, KVT_LOG_INFO, "%s", text);
    ck_assert_uint_eq(strlen(heard.line), KVT_LOG_LINE_BYTES_MAX - 1);
    ck_assert_str_eq(heard.line + KVT_LOG_LINE_BYTES_MAX - 4, "...");
    ck_assert_int_eq(heard.lines, 3);

    const struct kvt_log silent = {NULL, &heard};
    kvt_log(&silent, KVT_LOG_ERROR, "nobody hears this");
    kvt_log(NULL, KVT_LOG_ERROR, "nor this");
    ck_assert_int_eq(heard.lines, 3);
}
END_TEST

START_TEST(clock_never_goes_back)
{
    uint64_t last = kvt_now_ns(&kvt_clock_monotonic);
    ck_assert_uint_gt(last, 0);
    for (int i = 0; i < 1000; i++) {
        uint64_t now = kvt_now_ns(&kvt_clock_monotonic);
        ck_assert_uint_ge(now, last);
        last = now;
    }
}
END_TEST

/* ---- locks ---- */

/* Runs fn in a child; returns its wait status and what it wrote to standard error. */
static int in_child(void (*fn)(void), char *out_text, size_t text_bytes)
{
    int ends[2];
    ck_assert_int_eq(pipe(ends), 0);
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        (void)dup2(ends[1], STDERR_FILENO);
        (void)close(ends[0]);
        (void)close(ends[1]);
        (void)signal(SIGABRT, SIG_DFL);
        fn();
        _exit(0);
    }
    ck_assert_int_eq(close(ends[1]), 0);
    size_t have = 0;
    ssize_t got;
    while ((got = read(ends[0], out_text + have, text_bytes - 1 - have)) > 0) {
        have += (size_t)got;
    }
    out_text[have] = '\0';
    ck_assert_int_eq(close(ends[0]), 0);
    int status = 0;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    return status;
}

static bool aborted(int status) { return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT; }

static void take_rising(void)
{
    struct kvt_lock low, high;
    kvt_lock_init(&low, KVT_RANK_CACHE, "the low one");
    kvt_lock_init(&high, KVT_RANK_STREAM, "the high one");
    for (int i = 0; i < 3; i++) {
        kvt_lock_take(&low);
        kvt_lock_take(&high);
        /* Giving has no order. */
        kvt_lock_give(i == 1 ? &high : &low);
        kvt_lock_give(i == 1 ? &low : &high);
    }
    kvt_lock_fini(&high);
    kvt_lock_fini(&low);
}

static void assert_false(void) { KVT_ASSERT(1 + 1 == 3); }

START_TEST(assertions_abort)
{
    char text[1024];
    ck_assert(aborted(in_child(assert_false, text, sizeof(text))));
    ck_assert_ptr_nonnull(strstr(text, "1 + 1 == 3"));
    ck_assert_ptr_nonnull(strstr(text, "assert_false"));
    ck_assert_int_eq(in_child(take_rising, text, sizeof(text)), 0);
    ck_assert_str_eq(text, "");
}
END_TEST

#ifdef KVT_DEBUG
static void take_falling(void)
{
    struct kvt_lock low, high;
    kvt_lock_init(&low, KVT_RANK_CACHE, "the low one");
    kvt_lock_init(&high, KVT_RANK_STREAM, "the high one");
    kvt_lock_take(&high);
    kvt_lock_take(&low);
}

static void take_equal(void)
{
    struct kvt_lock one, other;
    kvt_lock_init(&one, KVT_RANK_STREAM, "the low one");
    kvt_lock_init(&other, KVT_RANK_STREAM, "the high one");
    kvt_lock_take(&one);
    kvt_lock_take(&other);
}

static void give_unheld(void)
{
    struct kvt_lock lock;
    kvt_lock_init(&lock, KVT_RANK_STREAM, "the low one");
    kvt_lock_give(&lock);
}

START_TEST(lock_order_is_checked)
{
    char text[1024];
    ck_assert(aborted(in_child(take_falling, text, sizeof(text))));
    ck_assert_ptr_nonnull(strstr(text, "the low one"));
    ck_assert_ptr_nonnull(strstr(text, "the high one"));
    ck_assert(aborted(in_child(take_equal, text, sizeof(text))));
    ck_assert_ptr_nonnull(strstr(text, "the low one"));
    ck_assert_ptr_nonnull(strstr(text, "the high one"));
    ck_assert(aborted(in_child(give_unheld, text, sizeof(text))));
    ck_assert_ptr_nonnull(strstr(text, "the low one"));

    struct kvt_lock lock;
    kvt_lock_init(&lock, KVT_RANK_LEAF, "leaf");
    ck_assert(!kvt_lock_held(&lock));
    kvt_lock_take(&lock);
    ck_assert(kvt_lock_held(&lock));
    kvt_lock_give(&lock);
    ck_assert(!kvt_lock_held(&lock));
    kvt_lock_fini(&lock);
}
END_TEST
#endif

/* ---- conditions and threads ---- */

struct meeting {
    struct kvt_lock lock;
    struct kvt_cond cond;
    bool here;
    sigset_t blocked;
    char name[16];
};

static void *meet(void *arg)
{
    struct meeting *meeting = arg;
    kvt_lock_take(&meeting->lock);
    (void)pthread_sigmask(SIG_SETMASK, NULL, &meeting->blocked);
    meeting->here = true;
    kvt_cond_broadcast(&meeting->cond);
    /* The name is given by the starter; wait until it had the time to do so. */
    while (meeting->here) {
        (void)kvt_cond_wait(&meeting->cond, &meeting->lock, UINT64_MAX);
    }
    (void)pthread_getname_np(pthread_self(), meeting->name, sizeof(meeting->name));
    kvt_lock_give(&meeting->lock);
    return NULL;
}

START_TEST(threads_meet)
{
    struct meeting meeting;
    memset(&meeting, 0, sizeof(meeting));
    kvt_lock_init(&meeting.lock, KVT_RANK_LEAF, "meeting");
    kvt_cond_init(&meeting.cond);

    /* Nobody comes: the time passes. */
    kvt_lock_take(&meeting.lock);
    uint64_t start_ns = kvt_now_ns(&kvt_clock_monotonic);
    while (kvt_cond_wait(&meeting.cond, &meeting.lock, 3000000)) {
        /* woken for nothing, which is allowed */
    }
    ck_assert_uint_ge(kvt_now_ns(&kvt_clock_monotonic) - start_ns, 3000000);
    ck_assert(!kvt_cond_wait(&meeting.cond, &meeting.lock, 0));
    kvt_lock_give(&meeting.lock);

    struct kvt_thread thread;
    ck_assert_int_eq(kvt_thread_start(&thread, "a name that is too long", meet, &meeting), KVT_OK);
    kvt_lock_take(&meeting.lock);
    while (!meeting.here) {
        (void)kvt_cond_wait(&meeting.cond, &meeting.lock, UINT64_MAX - 1);
    }
    meeting.here = false;
    kvt_cond_broadcast(&meeting.cond);
    kvt_lock_give(&meeting.lock);
    kvt_thread_join(&thread);

    ck_assert_str_eq(meeting.name, "a name that is ");
    ck_assert_int_eq(sigismember(&meeting.blocked, SIGINT), 1);
    ck_assert_int_eq(sigismember(&meeting.blocked, SIGTERM), 1);
    ck_assert_int_eq(sigismember(&meeting.blocked, SIGUSR1), 1);
    ck_assert_int_eq(sigismember(&meeting.blocked, SIGSEGV), 0);
    sigset_t mine;
    ck_assert_int_eq(pthread_sigmask(SIG_SETMASK, NULL, &mine), 0);
    ck_assert_int_eq(sigismember(&mine, SIGTERM), 0);

    kvt_cond_fini(&meeting.cond);
    kvt_lock_fini(&meeting.lock);
}
END_TEST

static int refuse_thread(pthread_t *id, const pthread_attr_t *attr, void *(*fn)(void *), void *arg)
{
    (void)id;
    (void)attr;
    (void)fn;
    (void)arg;
    return 11;
}

static void *count_one(void *arg)
{
    ++*(int *)arg;
    return NULL;
}

START_TEST(thread_start_can_fail)
{
    int ran = 0;
    struct kvt_thread thread;
    kvt_thread_create_hook = refuse_thread;
    ck_assert_int_eq(kvt_thread_start(&thread, "never", count_one, &ran), KVT_ERR_NOMEM);
    ck_assert_int_eq(ran, 0);
    kvt_thread_create_hook = NULL;
    ck_assert_int_eq(kvt_thread_start(&thread, "once", count_one, &ran), KVT_OK);
    kvt_thread_join(&thread);
    ck_assert_int_eq(ran, 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("base");
    TCase *tcase = tcase_create("base");
    tcase_add_test(tcase, status_names);
    tcase_add_test(tcase, memory_wrappers);
    tcase_add_test(tcase, log_lines);
    tcase_add_test(tcase, clock_never_goes_back);
    tcase_add_test(tcase, assertions_abort);
#ifdef KVT_DEBUG
    tcase_add_test(tcase, lock_order_is_checked);
#endif
    tcase_add_test(tcase, threads_meet);
    tcase_add_test(tcase, thread_start_can_fail);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
