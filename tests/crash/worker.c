/*
 * The worker: a process to be killed, recorded, and asked what is left.
 *
 *   crash_worker write STORE NOTES BYTES FIRST COUNT SEED
 *   crash_worker verify STORE NOTES BYTES [evicts] [fill=PAGES] [lack]
 *
 * write saves COUNT prompts, and flushes now and then; what is durable goes into NOTES. With
 * SIGTERM it ends early, in order.
 */
#include "tests/crash/rig.h"
#include "tests/support/test_random.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXIT_USAGE 2
#define FLUSH_ONE_IN 3u
#define READ_ONE_IN 2u
#define READ_BACK 20u

static volatile sig_atomic_t ending;

static void on_term(int number)
{
    (void)number;
    ending = 1;
}

/* The recorder's mark, where there is a recorder. */
static void mark(const char *line)
{
    union {
        void *address;
        void (*call)(const char *);
    } recorder = {.address = dlsym(RTLD_DEFAULT, "kvt_record_mark")};
    if (recorder.address != NULL) {
        recorder.call(line);
    }
}

static bool note(int fd, char kind, uint32_t number)
{
    char line[32];
    int bytes = snprintf(line, sizeof(line), "%c %u\n", kind, number);
    mark(line);
    return write(fd, line, (size_t)bytes) == bytes;
}

struct work {
    struct crash_rig rig;
    struct test_random random;
    int notes;
    uint32_t first_unflushed;
};

/* Durable, and still there: then it is a promise. */
static bool flush(struct work *work, uint32_t next)
{
    if (kvt_cache_flush(work->rig.cache, CRASH_WAIT_NS) != KVT_OK) {
        return true; /* the catalog is being killed, say: nothing is promised */
    }
    struct kvt_cache_stats stats;
    if (kvt_cache_stats(work->rig.cache, &stats) != KVT_OK || stats.nvme_state != 1) {
        return true;
    }
    for (uint32_t i = work->first_unflushed; i < next; i++) {
        struct crash_prompt prompt = kvt_crash_prompt(i);
        struct crash_read read;
        kvt_status status = kvt_crash_read(&work->rig, &prompt, &read);
        if (status != KVT_OK || read.wrong) {
            (void)printf("prompt %u: status %d, wrong %d\n", i, (int)status, read.wrong);
            return false;
        }
        if (read.good == prompt.pages && !note(work->notes, 'a', i)) {
            return false;
        }
    }
    work->first_unflushed = next;
    return true;
}

static bool read_back(struct work *work, uint32_t next)
{
    uint32_t back = next < READ_BACK ? next : READ_BACK;
    struct crash_prompt prompt =
        kvt_crash_prompt(next - 1 - test_random_below(&work->random, back));
    struct crash_read read;
    kvt_status status = kvt_crash_read(&work->rig, &prompt, &read);
    if (status != KVT_OK || read.wrong) {
        (void)printf("prompt %u: status %d, or wrong bytes\n", prompt.number, (int)status);
        return false;
    }
    return true;
}

static bool work_on(struct work *work, uint32_t first, uint32_t count)
{
    work->first_unflushed = first;
    for (uint32_t i = first; i < first + count && !ending; i++) {
        struct crash_prompt prompt = kvt_crash_prompt(i);
        if (!note(work->notes, 'w', i)) {
            return false;
        }
        kvt_status status = kvt_crash_save(&work->rig, &prompt);
        /* LIMIT: host memory is full of what waits for the drive. */
        if (status != KVT_OK && status != KVT_ERR_LIMIT) {
            (void)printf("prompt %u: save: status %d\n", i, (int)status);
            return false;
        }
        if (test_random_below(&work->random, FLUSH_ONE_IN) == 0 && !flush(work, i + 1)) {
            return false;
        }
        if (test_random_below(&work->random, READ_ONE_IN) == 0 && !read_back(work, i + 1)) {
            return false;
        }
    }
    return true;
}

static int write_mode(char **argv)
{
    struct work work = {.random = {strtoull(argv[7], NULL, 0)}};
    (void)signal(SIGTERM, on_term);
    work.notes = open(argv[3], O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (work.notes < 0) {
        perror(argv[3]);
        return EXIT_FAILURE;
    }
    kvt_status status = kvt_crash_open(&work.rig, argv[2], strtoull(argv[4], NULL, 0), 0);
    if (status != KVT_OK) {
        (void)printf("open: status %d: %s\n", (int)status, work.rig.why);
        return CRASH_EXIT_OPEN;
    }
    bool good =
        work_on(&work, (uint32_t)strtoul(argv[5], NULL, 0), (uint32_t)strtoul(argv[6], NULL, 0));
    if (!kvt_crash_close(&work.rig)) {
        (void)printf("close: %s\n", work.rig.why);
        good = false;
    }
    (void)close(work.notes);
    return good ? EXIT_SUCCESS : EXIT_FAILURE;
}

static int verify_mode(int argc, char **argv)
{
    struct crash_verify asked = {.store = argv[2], .bytes = strtoull(argv[4], NULL, 0)};
    for (int i = 5; i < argc; i++) {
        asked.evicts |= strcmp(argv[i], "evicts") == 0;
        if (strncmp(argv[i], "fill=", strlen("fill=")) == 0) {
            asked.fill_pages = (uint32_t)strtoul(argv[i] + strlen("fill="), NULL, 10);
        }
        asked.may_lack |= strcmp(argv[i], "lack") == 0;
    }
    struct crash_notes notes;
    if (!kvt_crash_notes_read(argv[3], &notes)) {
        return EXIT_FAILURE;
    }
    struct crash_verified verified;
    bool good = kvt_crash_verify(&asked, &notes, &verified);
    (void)printf("prompts %u acknowledged %u pages %u wrong %u lost %u short %u noticed %llu\n",
                 notes.count, notes.acked_count, verified.pages, verified.wrong, verified.lost,
                 verified.short_prompts, (unsigned long long)verified.noticed);
    kvt_crash_notes_free(&notes);
    return good ? EXIT_SUCCESS : EXIT_FAILURE;
}

int main(int argc, char **argv)
{
    if (argc == 8 && strcmp(argv[1], "write") == 0) {
        return write_mode(argv);
    }
    if (argc >= 5 && strcmp(argv[1], "verify") == 0) {
        return verify_mode(argc, argv);
    }
    (void)fprintf(stderr,
                  "usage: crash_worker write STORE NOTES BYTES FIRST COUNT SEED\n"
                  "       crash_worker verify STORE NOTES BYTES [evicts] [fill=PAGES] [lack]\n");
    return EXIT_USAGE;
}
