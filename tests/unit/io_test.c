/* The queue of file operations, on both back ends, against a model of the file. */
#include "tests/support/io_rig.h"
#include "tests/support/test_memory.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

/* ---- against a model ---- */

/* Rounds of operations of all sizes on disjoint parts of the file. */
static void model_rounds(struct rig *rig, uint32_t unit, uint32_t rounds, uint64_t seed)
{
    struct test_random random = test_random_start("io model", seed);
    unsigned char *model = buffer_make(FILE_BYTES);
    unsigned char *data = buffer_make(FILE_BYTES);
    kvt_io_buffer_add(rig->io, data, FILE_BYTES / 2); /* half of it: some are fixed, some not */
    /* Empty, as the model is. */
    EXPECT(ftruncate(rig->fd, 0) == 0 && ftruncate(rig->fd, (off_t)FILE_BYTES) == 0);
    for (uint32_t round = 0; round < rounds; round++) {
        struct kvt_io_op ops[OPS_MAX];
        struct kvt_io_op *list[OPS_MAX];
        uint32_t count = 0;
        uint64_t at = 0;
        while (count < OPS_MAX) {
            uint64_t most = test_random_below(&random, 4) == 0 ? 3 * MIB : 100000;
            uint64_t bytes = test_random_below(&random, (uint32_t)most) / unit * unit;
            if (bytes > FILE_BYTES - at) {
                break;
            }
            bool write = test_random_below(&random, 2) == 0;
            ops[count] = op_make(rig, write ? KVT_IO_WRITE : KVT_IO_READ, data + at, at, bytes);
            if (write) {
                fill(&random, data + at, bytes);
                memcpy(model + at, data + at, (size_t)bytes);
            } else {
                memset(data + at, 0xee, (size_t)bytes);
            }
            list[count] = &ops[count];
            count++;
            at += bytes;
        }
        rig->waiter.done = 0;
        kvt_io_submit(rig->io, list, count);
        wait_count(&rig->waiter.done, count);
        for (uint32_t i = 0; i < count; i++) {
            EXPECT(ops[i].status == KVT_OK && ops[i].error == 0);
            EXPECT(ops[i].bytes_ok == ops[i].bytes);
            EXPECT(memcmp(ops[i].buffer, model + ops[i].offset, (size_t)ops[i].bytes) == 0);
        }
        EXPECT(pread(rig->fd, data, FILE_BYTES, 0) == (ssize_t)FILE_BYTES);
        EXPECT(memcmp(data, model, FILE_BYTES) == 0);
    }
    model[FILE_BYTES / 2] ^= 1; /* the control */
    EXPECT(memcmp(data, model, FILE_BYTES) != 0);
    kvt_io_buffer_remove(rig->io, data);
    free(data);
    free(model);
}

static uint32_t rounds(void) { return (uint32_t)(20 / test_env_u64("KVT_TEST_SCALE", 1)) + 1; }

START_TEST(test_model)
{
    struct rig rig;
    rig_open(&rig, _i != 0);
    model_rounds(&rig, 1, rounds(), 1);
    struct kvt_io_stats stats = stats_of(&rig);
    ck_assert_uint_eq(stats.in_flight + stats.queued, 0);
    ck_assert_uint_eq(stats.queued_read_bytes + stats.queued_write_bytes, 0);
    ck_assert_uint_gt(stats.reads, 0);
    ck_assert_uint_gt(stats.write_busy_ns, 0);
    ck_assert_uint_eq(stats.errors, 0);
    rig_close(&rig);
}
END_TEST

START_TEST(test_direct)
{
    struct rig rig;
    memset(&rig, 0, sizeof(rig));
    int fd = temp_file(O_DIRECT);
    if (fd < 0) {
        (void)printf("no O_DIRECT here\n");
        return;
    }
    EXPECT(close(fd) == 0);
    struct kvt_io_config config = config_of(&rig, _i != 0);
    rig_open_with(&rig, &config, O_DIRECT, ALIGN);
    kvt_io_faults(rig.io)->short_bytes = 10000; /* ends within a unit of alignment */
    model_rounds(&rig, ALIGN, 2, 2);
    kvt_io_faults(rig.io)->short_bytes = 0;
    model_rounds(&rig, ALIGN, rounds(), 3);
    unsigned char *buffer = buffer_make(2 * ALIGN);
    struct kvt_io_op op = op_make(&rig, KVT_IO_READ, buffer, 512, ALIGN);
    op_run(&rig, &op);
    ck_assert_int_eq(op.status, KVT_ERR_IO);
    ck_assert_int_eq(op.error, EINVAL);
    op = op_make(&rig, KVT_IO_READ, buffer + 1, 0, ALIGN);
    op_run(&rig, &op);
    ck_assert_int_eq(op.error, EINVAL);
    /* A file whose end is no multiple: what there is, and its end. */
    ck_assert_int_eq(ftruncate(rig.fd, ALIGN + 100), 0);
    op = op_make(&rig, KVT_IO_READ, buffer, 0, 2 * ALIGN);
    op_run(&rig, &op);
    ck_assert_int_eq(op.error, ENODATA);
    ck_assert_uint_eq(op.bytes_ok, ALIGN + 100);
    free(buffer);
    rig_close(&rig);
}
END_TEST

START_TEST(test_rough)
{
    struct rig rig;
    rig_open(&rig, _i != 0);
    struct kvt_io_faults *faults = kvt_io_faults(rig.io);
    faults->short_bytes = 70001;
    faults->eagain_every = 3;
    faults->reorder = true;
    faults->delay_ns = 200000;
    model_rounds(&rig, 1, 2, 4);
    struct kvt_io_stats stats = stats_of(&rig);
    ck_assert_uint_gt(stats.continued, 0);
    ck_assert_uint_gt(stats.retried, 0);
    rig_close(&rig);
}
END_TEST

/* ---- many threads ---- */

struct many {
    struct rig *rig;
    uint32_t number;
    _Atomic uint32_t done;
};

static void many_done(struct kvt_io_op *op)
{
    struct many *many = op->user;
    many->done++;
}

#define MANY_THREADS 4u
#define MANY_OPS 32u
#define MANY_BYTES 5000u

static void *many_run(void *arg)
{
    struct many *many = arg;
    unsigned char *buffer = buffer_make(MANY_OPS * MANY_BYTES);
    struct kvt_io_op ops[MANY_OPS];
    for (uint32_t pass = 0; pass < 20; pass++) {
        bool write = pass % 2 == 0;
        memset(buffer, write ? (int)(many->number * 40 + pass) : 0, MANY_OPS * MANY_BYTES);
        many->done = 0;
        for (uint32_t i = 0; i < MANY_OPS; i++) {
            ops[i] = op_make(many->rig, write ? KVT_IO_WRITE : KVT_IO_READ,
                             buffer + (size_t)i * MANY_BYTES,
                             ((uint64_t)many->number * MANY_OPS + i) * MANY_BYTES, MANY_BYTES);
            ops[i].done = many_done;
            ops[i].user = many;
            struct kvt_io_op *op = &ops[i];
            kvt_io_submit(many->rig->io, &op, 1);
        }
        wait_count(&many->done, MANY_OPS);
        for (uint32_t i = 0; i < MANY_OPS * MANY_BYTES; i++) {
            EXPECT(buffer[i] == many->number * 40 + pass - (write ? 0 : 1));
        }
    }
    free(buffer);
    return NULL;
}

START_TEST(test_many_threads)
{
    struct rig rig;
    rig_open(&rig, _i != 0);
    struct many many[MANY_THREADS];
    struct kvt_thread threads[MANY_THREADS];
    for (uint32_t i = 0; i < MANY_THREADS; i++) {
        many[i].rig = &rig;
        many[i].number = i;
        many[i].done = 0;
        ck_assert_int_eq(kvt_thread_start(&threads[i], "many", many_run, &many[i]), KVT_OK);
    }
    for (uint32_t i = 0; i < MANY_THREADS; i++) {
        kvt_thread_join(&threads[i]);
    }
    struct kvt_io_stats stats = stats_of(&rig);
    ck_assert_uint_eq(stats.reads, MANY_THREADS * MANY_OPS * 10);
    ck_assert_uint_eq(stats.writes, MANY_THREADS * MANY_OPS * 10);
    rig_close(&rig);
}
END_TEST

/* ---- what fails ---- */

START_TEST(test_kth_error)
{
    struct rig rig;
    rig_open(&rig, _i != 0);
    unsigned char *buffer = buffer_make(4 * MIB);
    struct kvt_io_faults *faults = kvt_io_faults(rig.io);
    for (uint64_t k = 1; k <= 4; k++) {
        faults->write_error = k % 2 == 0 ? EIO : ENOSPC;
        faults->fail_after = k;
        for (uint64_t i = 1; i <= 4; i++) {
            /* Large ones: the first piece fails, nothing is good. */
            struct kvt_io_op op = op_make(&rig, KVT_IO_WRITE, buffer, 0, 3 * MIB + 5);
            op_run(&rig, &op);
            ck_assert_int_eq(op.status, i == k ? KVT_ERR_IO : KVT_OK);
            ck_assert_int_eq(op.error, i != k ? 0 : k % 2 == 0 ? EIO : ENOSPC);
            ck_assert_uint_eq(op.bytes_ok, i == k ? 0 : op.bytes);
        }
        ck_assert_int_eq(faults->write_error, 0);
    }
    faults->flush_error = EIO;
    struct kvt_io_op flush = op_make(&rig, KVT_IO_FLUSH, NULL, 0, 0);
    op_run(&rig, &flush);
    ck_assert_int_eq(flush.error, EIO);
    faults->flush_error = 0;
    op_run(&rig, &flush);
    ck_assert_int_eq(flush.status, KVT_OK);
    ck_assert_uint_eq(stats_of(&rig).errors, 5);
    ck_assert_uint_eq(stats_of(&rig).flushes, 1);
    free(buffer);
    rig_close(&rig);
}
END_TEST

START_TEST(test_end_of_file)
{
    struct rig rig;
    rig_open(&rig, _i != 0);
    ck_assert_int_eq(ftruncate(rig.fd, (off_t)(2 * MIB + 77)), 0);
    unsigned char *buffer = buffer_make(5 * MIB);
    struct kvt_io_op op = op_make(&rig, KVT_IO_READ, buffer, 0, 5 * MIB);
    op_run(&rig, &op);
    ck_assert_int_eq(op.status, KVT_ERR_IO);
    ck_assert_int_eq(op.error, ENODATA);
    ck_assert_uint_eq(op.bytes_ok, 2 * MIB + 77);
    op = op_make(&rig, KVT_IO_READ, buffer, 0, 2 * MIB + 77);
    op_run(&rig, &op);
    ck_assert_int_eq(op.status, KVT_OK);
    op = op_make(&rig, KVT_IO_READ, buffer, 0, 0);
    op_run(&rig, &op);
    ck_assert_int_eq(op.status, KVT_OK);
    op = op_make(&rig, KVT_IO_READ, buffer, 0, 10);
    op.file = rig.file + 1;
    op_run(&rig, &op);
    ck_assert_int_eq(op.error, EBADF);
    free(buffer);
    rig_close(&rig);
}
END_TEST

/* Refused for ever: given up by the queue's clock, which the test moves on. */
START_TEST(test_eagain_for_ever)
{
    struct rig rig;
    rig_open(&rig, _i != 0);
    unsigned char *buffer = buffer_make(MIB);
    kvt_io_faults(rig.io)->eagain_every = 1;
    struct kvt_io_op op = op_make(&rig, KVT_IO_WRITE, buffer, 0, MIB);
    struct kvt_io_op *list = &op;
    kvt_io_submit(rig.io, &list, 1);
    for (uint32_t i = 0; i < WAIT_STEPS && stats_of(&rig).retried < 3; i++) {
        nap();
    }
    ck_assert_uint_eq(rig.waiter.done, 0);
    rig.clock_offset_ns = UINT64_C(11000000000);
    wait_count(&rig.waiter.done, 1);
    ck_assert_int_eq(op.status, KVT_ERR_IO);
    ck_assert_int_eq(op.error, EAGAIN);
    ck_assert_uint_eq(op.bytes_ok, 0);
    free(buffer);
    rig_close(&rig);
}
END_TEST

/* ---- late, held, order, close ---- */

START_TEST(test_late_then_done)
{
    struct rig rig;
    rig_open(&rig, _i != 0);
    unsigned char buffer[16] = {1};
    kvt_io_faults(rig.io)->hold = true;
    struct kvt_io_op ops[2];
    struct kvt_io_op *list[2] = {&ops[0], &ops[1]};
    ops[0] = op_make(&rig, KVT_IO_WRITE, buffer, 0, sizeof(buffer));
    ops[1] = ops[0];
    ops[0].late_ns = clock_now(&rig) + UINT64_C(3600000000000);
    kvt_io_submit(rig.io, list, 2);
    rig.clock_offset_ns = UINT64_C(7200000000000);
    wait_count(&rig.waiter.late, 1);
    ck_assert_uint_eq(rig.waiter.done, 0);
    ck_assert_uint_eq(stats_of(&rig).in_flight, 2);
    kvt_io_faults(rig.io)->hold = false;
    wait_count(&rig.waiter.done, 2);
    ck_assert_int_eq(ops[0].status, KVT_OK);
    ck_assert_uint_eq(rig.waiter.late, 1);
    ck_assert_uint_eq(stats_of(&rig).late, 1);
    rig_close(&rig);
}
END_TEST

/* One at a time: reads pass writes, writes pass flushes. */
START_TEST(test_classes)
{
    struct rig rig;
    memset(&rig, 0, sizeof(rig));
    struct kvt_io_config config = config_of(&rig, _i != 0);
    config.depth = 1;
    rig_open_with(&rig, &config, 0, 1);
    ck_assert_int_eq(ftruncate(rig.fd, 4096), 0);
    unsigned char buffer[64] = {0};
    struct kvt_io_op ops[5];
    struct kvt_io_op *list[5];
    static const enum kvt_io_kind kinds[5] = {KVT_IO_FLUSH, KVT_IO_WRITE, KVT_IO_READ, KVT_IO_WRITE,
                                              KVT_IO_READ};
    for (uint32_t i = 0; i < 5; i++) {
        bool flush = kinds[i] == KVT_IO_FLUSH;
        ops[i] = op_make(&rig, kinds[i], buffer + (size_t)i * 8, i * 8, flush ? 0 : 8);
        list[i] = &ops[i];
    }
    kvt_io_submit(rig.io, list, 5);
    wait_count(&rig.waiter.done, 5);
    static const uint32_t expected[5] = {2, 4, 1, 3, 0};
    for (uint32_t i = 0; i < 5; i++) {
        ck_assert_ptr_eq(rig.order[i], &ops[expected[i]]);
    }
    ck_assert_ptr_ne(rig.order[0], &ops[0]);
    rig_close(&rig);
}
END_TEST

/* A read that comes again each time it ends, until the write is through: 1 while it does. */
static _Atomic uint32_t write_through, read_ended;

static void again_done(struct kvt_io_op *op)
{
    struct rig *rig = op->user;
    if (op->kind == KVT_IO_READ && write_through == 0) {
        kvt_io_submit(rig->io, &op, 1);
    } else {
        *(op->kind == KVT_IO_READ ? &read_ended : &write_through) += 1;
    }
}

/* Reads that never stop, in the only two places there are, do not shut out a write or a flush. */
START_TEST(test_no_starving)
{
    struct rig rig;
    memset(&rig, 0, sizeof(rig));
    write_through = read_ended = 0;
    struct kvt_io_config config = config_of(&rig, _i % 2 != 0);
    config.depth = 2;
    rig_open_with(&rig, &config, 0, 1);
    ck_assert_int_eq(ftruncate(rig.fd, 4096), 0);
    unsigned char buffer[64] = {0};
    struct kvt_io_op ops[9];
    struct kvt_io_op *list[9];
    for (uint32_t i = 0; i < 9; i++) {
        enum kvt_io_kind last = _i < 2 ? KVT_IO_WRITE : KVT_IO_FLUSH;
        bool read = i < 8;
        ops[i] = op_make(&rig, read ? KVT_IO_READ : last, buffer + (size_t)i * 4, i * 4,
                         read || last == KVT_IO_WRITE ? 4 : 0);
        ops[i].done = again_done;
        list[i] = &ops[i];
    }
    kvt_io_submit(rig.io, list, 9);
    wait_count(&write_through, 1);
    wait_count(&read_ended, 8);
    ck_assert_int_eq(ops[8].status, KVT_OK);
    ck_assert_uint_gt(stats_of(&rig).reads, 8); /* they did come again */
    rig_close(&rig);
}
END_TEST

static void *close_run(void *arg)
{
    struct rig *rig = arg;
    kvt_io_close(rig->io);
    return NULL;
}

/* Depth 2, five held back: two are in flight and end well, three never start. */
START_TEST(test_close_under_way)
{
    struct rig rig;
    memset(&rig, 0, sizeof(rig));
    struct kvt_io_config config = config_of(&rig, _i != 0);
    config.depth = 2;
    rig_open_with(&rig, &config, 0, 1);
    struct kvt_io_faults *faults = kvt_io_faults(rig.io);
    faults->hold = true;
    unsigned char buffer[64] = {0};
    struct kvt_io_op ops[5];
    struct kvt_io_op *list[5];
    for (uint32_t i = 0; i < 5; i++) {
        ops[i] = op_make(&rig, KVT_IO_WRITE, buffer + (size_t)i * 8, i * 8, 8);
        list[i] = &ops[i];
    }
    kvt_io_submit(rig.io, list, 5);
    for (uint32_t i = 0; i < WAIT_STEPS && stats_of(&rig).in_flight < 2; i++) {
        nap();
    }
    ck_assert_uint_eq(stats_of(&rig).queued, 3);
    struct kvt_thread closer;
    ck_assert_int_eq(kvt_thread_start(&closer, "closer", close_run, &rig), KVT_OK);
    wait_count(&rig.waiter.done, 3);
    faults->hold = false; /* until now the close cannot have freed it */
    kvt_thread_join(&closer);
    ck_assert_uint_eq(rig.waiter.done, 5);
    for (uint32_t i = 0; i < 5; i++) {
        ck_assert_int_eq(ops[i].status, i < 2 ? KVT_OK : KVT_ERR_CANCELLED);
        ck_assert_uint_eq(ops[i].bytes_ok, i < 2 ? 8 : 0);
    }
    ck_assert_int_eq(close(rig.fd), 0);
}
END_TEST

/* ---- open that fails ---- */

START_TEST(test_open_without_memory)
{
    struct rig rig;
    memset(&rig, 0, sizeof(rig));
    struct test_memory memory;
    test_memory_init(&memory);
    struct kvt_io_config config = config_of(&rig, _i != 0);
    config.mem = &memory.mem;
    uint32_t refused = 0;
    for (uint64_t k = 1;; k++) {
        memory.fail_at = k;
        uint64_t failed = memory.failed;
        struct kvt_io *io = NULL;
        kvt_status status = kvt_io_open(&config, &io);
        if (status == KVT_OK) {
            kvt_io_close(io);
        } else {
            ck_assert_int_eq(status, KVT_ERR_NOMEM);
            ck_assert_ptr_null(io);
            refused++;
        }
        ck_assert_uint_eq(memory.live_blocks, 0);
        if (memory.failed == failed) {
            break;
        }
    }
    ck_assert_uint_gt(refused, 0);
}
END_TEST

static uint32_t starts_left;

static int start_limited(pthread_t *id, const pthread_attr_t *attr, void *(*fn)(void *), void *arg)
{
    return starts_left-- == 0 ? EAGAIN : pthread_create(id, attr, fn, arg);
}

START_TEST(test_open_without_threads)
{
    struct rig rig;
    memset(&rig, 0, sizeof(rig));
    struct kvt_io_config config = config_of(&rig, _i != 0);
    kvt_thread_create_hook = start_limited;
    for (uint32_t k = 0; k <= KVT_IO_THREADS + 1; k++) {
        struct kvt_io *io = NULL;
        starts_left = k;
        kvt_status status = kvt_io_open(&config, &io);
        bool enough = k > (_i != 0 ? KVT_IO_THREADS : 0);
        ck_assert_int_eq(status, enough ? KVT_OK : KVT_ERR_NOMEM);
        kvt_io_close(io);
    }
    kvt_thread_create_hook = NULL;
}
END_TEST

/* ---- what a system may refuse; in children, for a filter stays ---- */

#if !defined(__SANITIZE_THREAD__)

/* The system call `number` is refused with `error` from now on. */
static void deny(long number, int error)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)number, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {(unsigned short)(sizeof(code) / sizeof(code[0])), code};
    EXPECT(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    EXPECT(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

static void wait_child(pid_t child)
{
    int status = 0;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFEXITED(status));
    ck_assert_int_eq(WEXITSTATUS(status), 0);
}

/* In a child: what is asserted there is told by the exit status. */
#define CHILD_EXPECT(cond)                                                                         \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            (void)fprintf(stderr, "child: not so: %s\n", #cond);                                   \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

static void denied_child(long number, int error)
{
    struct rig rig;
    deny(number, error);
    rig_open(&rig, false);
    struct kvt_io_stats stats = stats_of(&rig);
    unsigned char *buffer = buffer_make(3 * MIB);
    if (number == SYS_io_uring_register && strcmp(stats.backend, "uring") == 0) {
        kvt_io_buffer_add(rig.io, buffer, 3 * MIB);
        CHILD_EXPECT(rig.warnings == 2); /* files and memory, once each */
        stats = stats_of(&rig);
        CHILD_EXPECT(!stats.fixed_files && !stats.fixed_buffers);
    } else {
        CHILD_EXPECT(strcmp(stats.backend, "threads") == 0);
        CHILD_EXPECT(stats.backend_reason[0] != '\0');
        CHILD_EXPECT(rig.warnings == 1);
        CHILD_EXPECT(strstr(rig.last_warning, strerror(error)) != NULL);
    }
    free(buffer);
    model_rounds(&rig, 1, 1, 5);
    rig_close(&rig);
    _exit(0);
}

START_TEST(test_denied)
{
    static const struct {
        long number;
        int error;
    } cases[] = {{SYS_io_uring_setup, EPERM},
                 {SYS_io_uring_setup, ENOSYS},
                 {SYS_io_uring_setup, ENOMEM},
                 {SYS_io_uring_enter, EPERM},
                 {SYS_io_uring_register, EPERM}};
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        denied_child(cases[_i].number, cases[_i].error);
    }
    wait_child(child);
}
END_TEST

static void memlock_child(void)
{
    struct rig rig;
    const struct rlimit limit = {65536, 65536};
    CHILD_EXPECT(setrlimit(RLIMIT_MEMLOCK, &limit) == 0);
    if (geteuid() == 0) {
        /* Root may lock what it likes. */
        CHILD_EXPECT(setresgid(65534, 65534, 65534) == 0 && setresuid(65534, 65534, 65534) == 0);
    }
    rig_open(&rig, false);
    model_rounds(&rig, 1, 1, 6);
    struct kvt_io_stats stats = stats_of(&rig);
    if (strcmp(stats.backend, "uring") == 0) {
        CHILD_EXPECT(!stats.fixed_buffers);
        CHILD_EXPECT(rig.warnings == 1);
        CHILD_EXPECT(strstr(rig.last_warning, "ulimit -l") != NULL);
    }
    rig_close(&rig);
    _exit(0);
}

START_TEST(test_memlock)
{
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        memlock_child();
    }
    wait_child(child);
}
END_TEST

/* A child of fork closes without waiting for anything, and the parent's queue goes on. */
START_TEST(test_fork)
{
    struct rig rig;
    rig_open(&rig, _i != 0);
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        kvt_io_close(rig.io);
        _exit(0);
    }
    wait_child(child);
    model_rounds(&rig, 1, 1, 7);
    rig_close(&rig);
}
END_TEST

#endif

START_TEST(test_limits)
{
    struct rig rig;
    rig_open(&rig, _i != 0);
    uint32_t files[KVT_IO_FILES_MAX];
    for (uint32_t i = 1; i < KVT_IO_FILES_MAX; i++) {
        ck_assert_int_eq(kvt_io_file_add(rig.io, rig.fd, 1, &files[i]), KVT_OK);
    }
    uint32_t none = 99;
    ck_assert_int_eq(kvt_io_file_add(rig.io, rig.fd, 1, &none), KVT_ERR_LIMIT);
    ck_assert_uint_eq(none, 99);
    for (uint32_t i = 1; i < KVT_IO_FILES_MAX; i++) {
        kvt_io_file_remove(rig.io, files[i]);
    }
    ck_assert_int_eq(kvt_io_file_add(rig.io, rig.fd, 3, &none), KVT_ERR_INVAL);
    ck_assert_int_eq(kvt_io_file_add(rig.io, -1, 1, &none), KVT_ERR_INVAL);
    ck_assert_int_eq(kvt_io_file_add(rig.io, rig.fd, 1, &none), KVT_OK);
    kvt_io_file_remove(rig.io, none);
    kvt_io_close(NULL);
    rig_close(&rig);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("io");
    TCase *both = tcase_create("both");
    tcase_add_loop_test(both, test_model, 0, 2);
    tcase_add_loop_test(both, test_direct, 0, 2);
    tcase_add_loop_test(both, test_rough, 0, 2);
    tcase_add_loop_test(both, test_many_threads, 0, 2);
    tcase_add_loop_test(both, test_kth_error, 0, 2);
    tcase_add_loop_test(both, test_end_of_file, 0, 2);
    tcase_add_loop_test(both, test_eagain_for_ever, 0, 2);
    tcase_add_loop_test(both, test_late_then_done, 0, 2);
    tcase_add_loop_test(both, test_classes, 0, 2);
    tcase_add_loop_test(both, test_no_starving, 0, 4);
    tcase_add_loop_test(both, test_close_under_way, 0, 2);
    tcase_add_loop_test(both, test_open_without_memory, 0, 2);
    tcase_add_loop_test(both, test_open_without_threads, 0, 2);
    tcase_add_loop_test(both, test_limits, 0, 2);
    suite_add_tcase(s, both);
#if !defined(__SANITIZE_THREAD__)
    TCase *refused = tcase_create("refused");
    tcase_add_loop_test(refused, test_denied, 0, 5);
    tcase_add_test(refused, test_memlock);
    tcase_add_loop_test(refused, test_fork, 0, 2);
    suite_add_tcase(s, refused);
#endif
    return s;
}

int main(void)
{
    SRunner *runner = srunner_create(suite());
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
