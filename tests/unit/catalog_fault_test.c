/*
 * The catalog when things fail: its process killed, stopped, lying; its file cut, flipped, on a
 * full or read-only file system; its owner gone. Nothing but the process may die, nothing may be
 * handed over that was not written, and what was acknowledged is there.
 */
#include "cache/catalog/catalog.h"
#include "cache/catalog/wire.h"
#include "tests/support/catalog_rig.h"

#include <check.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>

#define SOON_NS UINT64_C(300000000)

static void pause_us(uint32_t us)
{
    const struct timespec wait = {.tv_sec = us / 1000000, .tv_nsec = (long)(us % 1000000) * 1000};
    (void)nanosleep(&wait, NULL);
}

/* ---- the process dies ---- */

struct killer {
    int32_t pid;
    uint32_t after_us;
};

static void *killer_run(void *arg)
{
    const struct killer *killer = arg;
    pause_us(killer->after_us);
    (void)kill(killer->pid, SIGKILL);
    return NULL;
}

START_TEST(killed_while_committing)
{
    struct rig *rig = rig_new();
    struct test_random random = test_random_start("killed_while_committing", 11);
    uint64_t rounds = test_scaled(100), next = 1, unsure = 0;
    for (uint64_t round = 0; round < rounds; round++) {
        rig_open(rig);
        /* What the last commit of the round before did is not known: all of it, or nothing. */
        ck_assert_int_eq(rig_load_try(rig), KVT_OK);
        for (uint64_t seq = next; seq < next + unsure; seq++) {
            rig->live[seq] = rig->seen[next];
        }
        rig_load(rig);
        next += unsure;
        unsure = 0;
        struct killer killer = {rig_stats(rig).pid, 100 + test_random_below(&random, 8000)};
        pthread_t id;
        ck_assert_int_eq(pthread_create(&id, NULL, killer_run, &killer), 0);
        int error;
        while (unsure == 0) {
            uint32_t count = 1 + test_random_below(&random, 30);
            kvt_status status = rig_put_try(rig, next, count, &error);
            if (status == KVT_OK) {
                next += count;
                const uint64_t old = 1 + test_random_below(&random, (uint32_t)next - 1);
                status = rig_delete_try(rig, &old, 1);
                if (status != KVT_OK) {
                    rig->live[old] = false;
                    (void)rig_delete_try(rig, &old, 1);
                    /* Put it in a known state: this one is told again after the restart below. */
                    rig_close(rig);
                    rig_open(rig);
                    ck_assert_int_eq(rig_delete_try(rig, &old, 1), KVT_OK);
                    break;
                }
            } else {
                ck_assert_int_eq(status, KVT_ERR_UNAVAILABLE);
                unsure = count;
            }
        }
        ck_assert_int_eq(pthread_join(id, NULL), 0);
        rig_close(rig);
        ck_assert_uint_lt(next, RIG_PAGES_MAX / 2);
        /* Not a fresh map each time would fill up: start over now and then. */
        if (next > RIG_PAGES_MAX / 4) {
            memset(rig->live, 0, sizeof(rig->live));
            rig_remove_files(rig);
            next = 1;
            unsure = 0;
        }
    }
    rig_end(rig);
}
END_TEST

START_TEST(started_again_after_a_pause)
{
    struct rig *rig = rig_new();
    rig_open(rig);
    rig_put(rig, 1, 100);
    ck_assert_int_eq(kill(rig_stats(rig).pid, SIGKILL), 0);
    ck_assert_int_eq(rig_load_try(rig), KVT_ERR_UNAVAILABLE);
    ck_assert(!rig_stats(rig).alive);
    ck_assert_int_eq(rig_load_try(rig), KVT_ERR_UNAVAILABLE); /* in its pause */
    ck_assert_uint_eq(rig_stats(rig).restarts, 0);
    int error;
    kvt_status status;
    while ((status = rig_put_try(rig, 101, 50, &error)) == KVT_ERR_UNAVAILABLE) {
        pause_us(20000);
    }
    ck_assert_int_eq(status, KVT_OK);
    ck_assert_uint_eq(rig_stats(rig).restarts, 1);
    ck_assert(rig_stats(rig).alive);
    rig_load(rig);
    ck_assert_ptr_nonnull(strstr(rig->log_text, "died"));
    ck_assert_ptr_nonnull(strstr(rig->log_text, "started again, as"));
    rig_end(rig);
}
END_TEST

START_TEST(stopped)
{
    struct rig *rig = rig_new();
    rig_open(rig);
    rig_put(rig, 1, 100);
    int32_t pid = rig_stats(rig).pid;
    ck_assert_int_eq(kill(pid, SIGSTOP), 0);
    uint64_t walk_ns, records;
    ck_assert_int_eq(kvt_catalog_walk(rig->catalog, SOON_NS, &walk_ns, &records), KVT_ERR_TIMEOUT);
    ck_assert(!rig_stats(rig).alive);
    rig_close(rig);
    rig_open(rig);
    ck_assert_int_ne(rig_stats(rig).pid, pid);
    rig_load(rig);
    /* It has left the terminal's group, and what is typed there is not for it. */
    pid = rig_stats(rig).pid;
    ck_assert_int_eq(getsid(pid), pid);
    ck_assert_int_eq(kill(pid, SIGINT), 0);
    ck_assert_int_eq(kill(pid, SIGTERM), 0);
    ck_assert_int_eq(kill(pid, SIGHUP), 0);
    rig_load(rig);
    ck_assert_int_eq(rig_stats(rig).pid, pid);
    rig_end(rig);
}
END_TEST

/* ---- the owner dies ---- */

START_TEST(owner_is_killed)
{
    struct rig *rig = rig_new();
    int pipes[2];
    ck_assert_int_eq(pipe(pipes), 0);
    pid_t owner = fork();
    ck_assert_int_ge(owner, 0);
    if (owner == 0) {
        int32_t pids[2] = {0, 0};
        if (rig_open_try(rig) == KVT_OK) {
            pids[0] = rig_stats(rig).pid;
        }
        /* Something that was forked from the owner keeps the socket open after it. */
        pids[1] = fork();
        if (pids[1] != 0) {
            (void)!write(pipes[1], pids, sizeof(pids));
        }
        for (;;) {
            (void)pause();
        }
    }
    int32_t pids[2] = {0, 0};
    ck_assert_int_eq(read(pipes[0], pids, sizeof(pids)), sizeof(pids));
    ck_assert_int_gt(pids[0], 1);
    ck_assert_int_gt(pids[1], 1);
    ck_assert_int_eq(rig_open_try(rig), KVT_ERR_BUSY);
    ck_assert_int_eq(kill(owner, SIGKILL), 0);
    ck_assert_int_eq(waitpid(owner, NULL, 0), owner);
    rig_open(rig);
    rig_put(rig, 1, 10);
    rig_load(rig);
    ck_assert_int_eq(kill(pids[1], SIGKILL), 0);
    (void)close(pipes[0]);
    (void)close(pipes[1]);
    rig_end(rig);
}
END_TEST

/* ---- the file is damaged ---- */

static unsigned char *file_read(const char *path, size_t *out_bytes)
{
    struct stat is;
    int fd = open(path, O_RDONLY);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(fstat(fd, &is), 0);
    unsigned char *bytes = malloc((size_t)is.st_size);
    ck_assert_ptr_nonnull(bytes);
    ck_assert_int_eq(read(fd, bytes, (size_t)is.st_size), is.st_size);
    ck_assert_int_eq(close(fd), 0);
    *out_bytes = (size_t)is.st_size;
    return bytes;
}

static void file_write(const char *path, const unsigned char *bytes, size_t count)
{
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, bytes, count), (ssize_t)count);
    ck_assert_int_eq(close(fd), 0);
}

START_TEST(file_is_cut)
{
    struct rig *rig = rig_new();
    char path[RIG_PATH_BYTES + 32];
    size_t bytes;
    rig_open(rig);
    for (uint32_t i = 0; i < 10; i++) {
        rig_put(rig, 1 + i * 500, 500);
    }
    rig_close(rig);
    unsigned char *whole = file_read(rig_path(rig, "data.mdb", path), &bytes);
    static const size_t kept[] = {0, 100, 4096, 8192, 12288, 40960, 204800};
    for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++) {
        file_write(path, whole, bytes);
        rig_open(rig);
        ck_assert_int_eq(truncate(path, (off_t)kept[i]), 0);
        kvt_status status = rig_load_try(rig);
        ck_assert(status == KVT_ERR_UNAVAILABLE || status == KVT_ERR_CORRUPT);
        rig_close(rig);
        rig->config.create = false;
        ck_assert_int_ne(rig_open_try(rig), KVT_OK);
        ck_assert_uint_gt(strlen(rig->why), 0);
        rig->config.create = true;
    }
    file_write(path, whole, bytes);
    rig_open(rig);
    rig_load(rig); /* the control */
    free(whole);
    rig_end(rig);
}
END_TEST

START_TEST(bits_flip)
{
    struct rig *rig = rig_new();
    struct test_random random = test_random_start("bits_flip", 17);
    char path[RIG_PATH_BYTES + 32];
    size_t bytes;
    uint32_t opened = 0, loaded = 0, damaged = 0, refused = 0, died = 0;
    rig_open(rig);
    for (uint32_t i = 0; i < 10; i++) {
        rig_put(rig, 1 + i * 300, 300);
        const uint64_t old[] = {5 + i * 100, 6 + i * 100, 7 + i * 100};
        ck_assert_int_eq(rig_delete_try(rig, old, 3), KVT_OK);
    }
    rig_close(rig);
    unsigned char *whole = file_read(rig_path(rig, "data.mdb", path), &bytes);
    uint64_t rounds = test_scaled(300);
    for (uint64_t round = 0; round < rounds; round++) {
        /* Anywhere; in the two pages that say where the rest is; in the beginning of some page. */
        size_t at = test_random_below(&random, (uint32_t)bytes);
        if (round % 3 == 1) {
            at = (at % 2) * 4096 + at / 2 % 160;
        } else if (round % 3 == 2) {
            at = at / 4096 * 4096 + at % 40;
        }
        unsigned char bit = (unsigned char)(1u << (round % 8));
        whole[at] ^= bit;
        file_write(path, whole, bytes);
        whole[at] ^= bit;
        kvt_status status = rig_open_try(rig);
        if (status != KVT_OK) {
            refused++;
            ck_assert_uint_gt(strlen(rig->why), 0);
            continue;
        }
        opened++;
        status = rig_load_try(rig);
        loaded += status == KVT_OK;
        damaged += status == KVT_OK && rig->load.damaged_records > 0;
        died += status == KVT_ERR_UNAVAILABLE;
        ck_assert(status == KVT_OK || status == KVT_ERR_CORRUPT || status == KVT_ERR_UNAVAILABLE);
        /* Writing on top of it may make it worse, and still hands over nothing wrong. */
        int error;
        (void)rig_put_try(rig, 4000, 20, &error);
        (void)rig_load_try(rig);
        rig_close(rig);
    }
    (void)printf("bits_flip: %u opened, %u loaded, %u of them with damaged records, %u refused, "
                 "the process died in %u loads\n",
                 opened, loaded, damaged, refused, died);
    ck_assert_uint_gt(damaged, 0);
    ck_assert_uint_gt(refused, 0);
    free(whole);
    rig_end(rig);
}
END_TEST

/* ---- the file system refuses ---- */

static bool small_mount(const struct rig *rig)
{
    ck_assert_int_eq(mkdir(rig->folder, 0700), 0);
    if (mount("none", rig->folder, "tmpfs", 0, "size=2m") != 0) {
        (void)printf("left out: no file system can be mounted here (%s)\n", strerror(errno));
        return false;
    }
    return true;
}

START_TEST(file_system_is_full)
{
    struct rig *rig = rig_new();
    if (small_mount(rig)) {
        int error = 0;
        uint64_t next = 1;
        kvt_status status;
        rig_open(rig);
        ck_assert_ptr_nonnull(strstr(rig->log_text, "cannot be set aside"));
        while ((status = rig_put_try(rig, next, 64, &error)) == KVT_OK) {
            next += 64;
            ck_assert_uint_lt(next, RIG_PAGES_MAX - 64);
        }
        ck_assert_int_eq(status, KVT_ERR_IO);
        ck_assert_int_eq(error, ENOSPC);
        rig_load(rig);
        ck_assert_int_eq(rig_put_try(rig, next, 64, &error), KVT_ERR_IO);
        ck_assert_int_eq(mount("none", rig->folder, "tmpfs", MS_REMOUNT, "size=16m"), 0);
        rig_put(rig, next, 64);
        rig_load(rig);
        ck_assert_uint_eq(rig_stats(rig).restarts, 0);
        rig_close(rig);
        ck_assert_int_eq(mount("none", rig->folder, "tmpfs", MS_REMOUNT | MS_RDONLY, NULL), 0);
        ck_assert_int_eq(rig_open_try(rig), KVT_ERR_IO);
        ck_assert_ptr_nonnull(strstr(rig->why, strerror(EROFS)));
        rig->config.read_only = true;
        rig_open(rig);
        rig_load(rig);
        rig_close(rig);
        ck_assert_int_eq(umount(rig->folder), 0);
    }
    rig_end(rig);
}
END_TEST

/* ---- a process that lies: this program, started as one ---- */

enum lie {
    LIE_NONE,
    LIE_MAGIC,
    LIE_ID,
    LIE_KIND,
    LIE_PIECE_TOO_LARGE,
    LIE_STATUS,
    LIE_ENTRY_TOO_LARGE,
    LIE_ENTRY_CUT,
    LIE_KEY_FALLS,
    LIE_ENTRY_KIND,
    LIE_PAGE_BEFORE_NAMESPACE,
    LIE_ENDS,
    LIE_NOISE,
    LIE_HEAD,
    LIE_VERSION,
    LIE_GARBAGE_RECORD,
    LIES
};

static bool liar_send(uint64_t id, uint32_t kind, const void *payload, size_t bytes)
{
    const struct kvt_wire_header header = {KVT_WIRE_MAGIC, kind, id, bytes};
    return send(KVT_WIRE_FD, &header, sizeof(header), MSG_NOSIGNAL) == (ssize_t)sizeof(header) &&
           send(KVT_WIRE_FD, payload, bytes, MSG_NOSIGNAL) == (ssize_t)bytes;
}

static void liar_load(enum lie lie, uint64_t id)
{
    struct {
        struct kvt_wire_entry entry;
        uint64_t record[8];
    } entries[2] = {{.entry = {1, KVT_WIRE_PUT_PAGE, 64}}, {.entry = {2, KVT_WIRE_PUT_PAGE, 64}}};
    struct kvt_wire_header header = {KVT_WIRE_MAGIC, KVT_WIRE_RECORDS, id, sizeof(entries)};
    struct test_random random = {id};
    header.magic ^= lie == LIE_MAGIC;
    header.id += lie == LIE_ID;
    header.kind += lie == LIE_KIND ? 100 : 0;
    header.bytes = lie == LIE_PIECE_TOO_LARGE ? UINT64_MAX : header.bytes;
    entries[1].entry.bytes = lie == LIE_ENTRY_TOO_LARGE ? UINT32_MAX : 64;
    header.bytes -= lie == LIE_ENTRY_CUT ? 70 : 0;
    entries[1].entry.key = lie == LIE_KEY_FALLS ? 1 : 2;
    entries[1].entry.kind = lie == LIE_ENTRY_KIND ? 77 : entries[1].entry.kind;
    entries[1].entry.kind =
        lie == LIE_PAGE_BEFORE_NAMESPACE ? KVT_WIRE_PUT_NAMESPACE : entries[1].entry.kind;
    if (lie == LIE_NOISE) {
        for (size_t i = 0; i < sizeof(entries) / 8; i++) {
            uint64_t word = test_random_u64(&random);
            memcpy((char *)entries + i * 8, &word, 8);
        }
    }
    (void)send(KVT_WIRE_FD, &header, sizeof(header), MSG_NOSIGNAL);
    (void)send(KVT_WIRE_FD, entries, lie == LIE_ENDS ? 50 : sizeof(entries), MSG_NOSIGNAL);
}

static int liar_main(enum lie lie)
{
    if (fork() != 0) {
        _exit(0);
    }
    const struct kvt_wire_hello hello = {KVT_WIRE_VERSION + (lie == LIE_VERSION), getpid()};
    struct {
        struct kvt_wire_header header;
        struct kvt_wire_hello hello;
    } first = {{KVT_WIRE_MAGIC, KVT_WIRE_HELLO, 0, sizeof(hello)}, hello};
    (void)send(KVT_WIRE_FD, &first, sizeof(first), MSG_NOSIGNAL);
    struct kvt_wire_header header;
    static char payload[1 << 20];
    while (recv(KVT_WIRE_FD, &header, sizeof(header), MSG_WAITALL) == (ssize_t)sizeof(header) &&
           header.bytes <= sizeof(payload) &&
           (header.bytes == 0 || recv(KVT_WIRE_FD, payload, header.bytes, MSG_WAITALL) > 0)) {
        static struct kvt_wire_reply reply;
        if (header.kind == KVT_WIRE_OPEN) {
            struct kvt_catalog_head head = {.id = {1}, .version = 1, .page_tokens = 16};
            kvt_record_head_encode(&head, reply.head);
            reply.head_bytes = lie == LIE_HEAD ? UINT32_MAX : KVT_RECORD_HEAD_BYTES;
            memset(reply.why, 'x', sizeof(reply.why)); /* without an end */
        } else if (header.kind == KVT_WIRE_LOAD && lie != LIE_NONE) {
            liar_load(lie, header.id);
            reply.status = lie == LIE_STATUS ? 5 : 0;
            if (lie == LIE_ENDS) {
                return 0;
            }
        }
        if (!liar_send(header.id, KVT_WIRE_REPLY, &reply, sizeof(reply))) {
            break;
        }
    }
    return 0;
}

START_TEST(process_lies)
{
    struct rig *rig = rig_new();
    char self[RIG_PATH_BYTES];
    ssize_t bytes = readlink("/proc/self/exe", self, sizeof(self) - 1);
    ck_assert_int_gt(bytes, 0);
    self[bytes] = '\0';
    rig->config.program = self;
    for (int lie = LIE_NONE; lie < LIES; lie++) {
        char text[16];
        (void)snprintf(text, sizeof(text), "%d", lie);
        ck_assert_int_eq(setenv("KVT_TEST_LIE", text, 1), 0);
        kvt_status status = rig_open_try(rig);
        if (lie == LIE_HEAD || lie == LIE_VERSION) {
            ck_assert_int_eq(status, lie == LIE_HEAD ? KVT_ERR_CORRUPT : KVT_ERR_VERSION);
            continue;
        }
        ck_assert_msg(status == KVT_OK, "lie %d: %s", lie, rig->why);
        status = rig_load_try(rig);
        if (lie == LIE_NONE || lie == LIE_GARBAGE_RECORD) {
            ck_assert_int_eq(status, KVT_OK);
            ck_assert_uint_eq(rig->load.damaged_records, lie == LIE_NONE ? 0 : 2);
            ck_assert_uint_eq(rig->load.pages, 0);
        } else {
            ck_assert_msg(status == KVT_ERR_UNAVAILABLE, "lie %d: %d", lie, status);
            ck_assert(!rig_stats(rig).alive);
        }
        rig_close(rig);
    }
    ck_assert_int_eq(unsetenv("KVT_TEST_LIE"), 0);
    rig_end(rig);
}
END_TEST

int main(int argc, char **argv)
{
    if (argc == 3 && strncmp(argv[1], "--owner=", 8) == 0) {
        return liar_main((enum lie)test_env_u64("KVT_TEST_LIE", 0));
    }
    Suite *suite = suite_create("catalog_fault");
    TCase *tcase = tcase_create("catalog_fault");
    tcase_add_test(tcase, killed_while_committing);
    tcase_add_test(tcase, started_again_after_a_pause);
    tcase_add_test(tcase, stopped);
    tcase_add_test(tcase, owner_is_killed);
    tcase_add_test(tcase, file_is_cut);
    tcase_add_test(tcase, bits_flip);
    tcase_add_test(tcase, file_system_is_full);
    tcase_add_test(tcase, process_lies);
    suite_add_tcase(suite, tcase);
    return rig_suite_run(suite);
}
