/*
 * Power cuts: a worker is recorded, and for prefixes of what it did the folder is built as a drive
 * could have it after a cut at that moment: what was synced is there; of what was not, any part,
 * the last write torn at a sector. Then all that must hold of a store must hold of that one.
 *
 * KVT_CRASH=long: every prefix, several choices each. KVT_CRASH_RECORDER is the recorder.
 */
#include "tests/crash/child.h"
#include "tests/crash/record.h"
#include "tests/crash/rig.h"
#include "tests/support/test_random.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define EXIT_SKIPPED 77
#define PATH_BYTES 512u
#define SETTING_BYTES 600u
#define SECTOR_BYTES 512u
#define FILES_MAX 64u
#define NAMES_MAX 32u
#define PENDING_MAX 4096u
#define FILE_BYTES_MAX (UINT64_C(16) << 20)
#define CHOICES_LONG 4u
#define SHORT_STATES 60u
#define FILL_ONE_IN 8u
#define FILL_ONE_IN_LONG 16u

/* A file or a folder. */
struct file {
    bool folder;
    unsigned char *bytes; /* as it lies on the drive for sure */
    uint64_t size;
    uint32_t pending[PENDING_MAX]; /* records since the last sync */
    uint32_t pending_count;
};

/* A name in a folder: what it stands for, now and for sure. */
struct name {
    char path[RECORD_PATH_BYTES];
    int now, sure; /* of files; -1: none */
};

/* A change of a folder that is not synced. */
struct change {
    char folder[RECORD_PATH_BYTES];
    uint32_t name, other; /* of names; other: the new one of a rename */
    int file;             /* what `name` stands for after it, or `other` */
    bool renames;
};

struct model {
    struct file files[FILES_MAX];
    uint32_t file_count;
    struct name names[NAMES_MAX];
    uint32_t name_count;
    struct change changes[PENDING_MAX];
    uint32_t change_count;
};

struct power_test {
    struct test_random random;
    struct model model;
    unsigned char *log;
    uint64_t log_bytes;
    const struct record **records;
    uint32_t record_count;
    char folder[PATH_BYTES], store[PATH_BYTES], notes[PATH_BYTES], output[PATH_BYTES];
    const char *worker;
    uint32_t states, prefixes;
    bool evicts, failed;
};

static _Noreturn void die(const char *what)
{
    perror(what);
    exit(EXIT_FAILURE);
}

/* ---- the model: what is sure, what is not ---- */

static uint32_t name_find(struct model *model, const char *path)
{
    for (uint32_t i = 0; i < model->name_count; i++) {
        if (strcmp(model->names[i].path, path) == 0) {
            return i;
        }
    }
    if (model->name_count == NAMES_MAX) {
        die("too many names");
    }
    struct name *name = &model->names[model->name_count];
    (void)snprintf(name->path, sizeof(name->path), "%s", path);
    name->now = name->sure = -1;
    return model->name_count++;
}

static void folder_of(const char *path, char out[RECORD_PATH_BYTES])
{
    memcpy(out, path, strlen(path) + 1);
    char *slash = strrchr(out, '/');
    *(slash != NULL ? slash : out) = '\0';
}

static void change_add(struct model *model, uint32_t name, uint32_t other, int file, bool renames)
{
    if (model->change_count == PENDING_MAX) {
        die("too many changes");
    }
    struct change *change = &model->changes[model->change_count++];
    *change = (struct change){.name = name, .other = other, .file = file, .renames = renames};
    folder_of(model->names[name].path, change->folder);
}

static int file_new(struct model *model, bool folder)
{
    if (model->file_count == FILES_MAX) {
        die("too many files");
    }
    struct file *file = &model->files[model->file_count];
    *file = (struct file){.folder = folder};
    if (!folder && (file->bytes = calloc(1, FILE_BYTES_MAX)) == NULL) {
        die("a file");
    }
    return (int)model->file_count++;
}

static void image_size(unsigned char *bytes, uint64_t *size, uint64_t now)
{
    if (now < *size) {
        memset(bytes + now, 0, (size_t)(*size - now));
    }
    *size = now;
}

/* Sectors `from` .. `to` of a write. */
static void image_write(unsigned char *bytes, uint64_t *size, const struct record *record,
                        uint64_t most)
{
    uint64_t end = record->offset + most;
    if (record->offset + record->bytes > FILE_BYTES_MAX) {
        die("a file that is too large");
    }
    memcpy(bytes + record->offset, record + 1, (size_t)most);
    *size = end > *size ? end : *size;
}

static void image_apply(unsigned char *bytes, uint64_t *size, const struct record *record)
{
    if (record->kind == RECORD_TRUNCATE) {
        image_size(bytes, size, record->offset);
    } else {
        image_write(bytes, size, record, record->bytes);
    }
}

static void change_apply(int bound[NAMES_MAX], const struct change *change)
{
    bound[change->name] = change->renames ? -1 : change->file;
    if (change->renames) {
        bound[change->other] = change->file;
    }
}

static void folder_synced(struct model *model, const char *path)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < model->change_count; i++) {
        struct change *change = &model->changes[i];
        if (strcmp(change->folder, path) != 0) {
            model->changes[kept++] = *change;
            continue;
        }
        model->names[change->name].sure = change->renames ? -1 : change->file;
        if (change->renames) {
            model->names[change->other].sure = change->file;
        }
    }
    model->change_count = kept;
}

static void file_synced(struct power_test *t, struct file *file)
{
    for (uint32_t i = 0; i < file->pending_count; i++) {
        image_apply(file->bytes, &file->size, t->records[file->pending[i]]);
    }
    file->pending_count = 0;
}

static void file_pending(struct file *file, uint32_t record)
{
    if (file->pending_count == PENDING_MAX) {
        die("too many writes without a sync");
    }
    file->pending[file->pending_count++] = record;
}

/* One record of the log happened. */
static void happen(struct power_test *t, uint32_t at)
{
    struct model *model = &t->model;
    const struct record *record = t->records[at];
    enum record_kind kind = (enum record_kind)record->kind;
    if (kind == RECORD_MARK) {
        return;
    }
    if (kind == RECORD_SYNC && record->path[0] == '\0') {
        folder_synced(model, "");
        return;
    }
    uint32_t name = name_find(model, record->path);
    int number = model->names[name].now;
    struct file *file = number >= 0 ? &model->files[number] : NULL;
    if (kind == RECORD_CREATE || kind == RECORD_MKDIR) {
        model->names[name].now = file_new(model, kind == RECORD_MKDIR);
        change_add(model, name, 0, model->names[name].now, false);
    } else if (file == NULL) {
        die("a file that was not made");
    } else if (kind == RECORD_RENAME) {
        uint32_t other = name_find(model, record->other);
        model->names[other].now = number;
        model->names[name].now = -1;
        change_add(model, name, other, number, true);
    } else if (kind == RECORD_UNLINK) {
        model->names[name].now = -1;
        change_add(model, name, 0, -1, false);
    } else if (kind == RECORD_SYNC && file->folder) {
        folder_synced(model, record->path);
    } else if (kind == RECORD_SYNC) {
        file_synced(t, file);
    } else {
        file_pending(file, at);
    }
}

/* ---- a state ---- */

enum choice { CHOICE_NOTHING, CHOICE_ALL, CHOICE_SOME };

static bool chance(struct power_test *t, enum choice choice)
{
    return choice == CHOICE_ALL || (choice == CHOICE_SOME && test_random_below(&t->random, 2) == 0);
}

static void file_build(struct power_test *t, const struct file *file, const char *path,
                       enum choice choice)
{
    static unsigned char bytes[FILE_BYTES_MAX];
    uint64_t size = file->size;
    memset(bytes, 0, sizeof(bytes));
    memcpy(bytes, file->bytes, (size_t)size);
    for (uint32_t i = 0; i < file->pending_count; i++) {
        const struct record *record = t->records[file->pending[i]];
        bool last = i + 1 == file->pending_count;
        if (!record->synced && last && choice == CHOICE_SOME && record->kind == RECORD_WRITE) {
            uint64_t sectors = record->bytes / SECTOR_BYTES;
            uint64_t most =
                SECTOR_BYTES * (uint64_t)test_random_below(&t->random, (uint32_t)sectors + 1);
            image_write(bytes, &size, record, most);
        } else if (record->synced || chance(t, choice)) {
            image_apply(bytes, &size, record);
        }
    }
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, bytes, (size_t)size) != (ssize_t)size || close(fd) != 0) {
        die(path);
    }
}

static void state_build(struct power_test *t, enum choice choice)
{
    const struct model *model = &t->model;
    int bound[NAMES_MAX] = {0};
    for (uint32_t i = 0; i < model->name_count; i++) {
        bound[i] = model->names[i].sure;
    }
    /* Of each folder the first so many changes. */
    bool stopped[PENDING_MAX] = {false};
    for (uint32_t i = 0; i < model->change_count; i++) {
        for (uint32_t k = 0; k < i && !stopped[i]; k++) {
            stopped[i] =
                stopped[k] && strcmp(model->changes[k].folder, model->changes[i].folder) == 0;
        }
        stopped[i] = stopped[i] || !chance(t, choice);
        if (!stopped[i]) {
            change_apply(bound, &model->changes[i]);
        }
    }
    kvt_child_remove(t->store);
    for (uint32_t i = 0; i < model->name_count; i++) {
        char path[PATH_BYTES + RECORD_PATH_BYTES], above[RECORD_PATH_BYTES];
        folder_of(model->names[i].path, above);
        (void)snprintf(path, sizeof(path), "%s/%s", t->folder, above);
        if (bound[i] < 0 || access(path, F_OK) != 0) {
            continue;
        }
        (void)snprintf(path, sizeof(path), "%s/%s", t->folder, model->names[i].path);
        if (!model->files[bound[i]].folder) {
            file_build(t, &model->files[bound[i]], path, choice);
        } else if (mkdir(path, 0700) != 0) {
            die(path);
        }
    }
}

static void notes_build(struct power_test *t, uint32_t count)
{
    FILE *file = fopen(t->notes, "we");
    if (file == NULL) {
        die(t->notes);
    }
    for (uint32_t i = 0; i < count; i++) {
        if (t->records[i]->kind == RECORD_MARK) {
            (void)fputs(t->records[i]->path, file);
        }
    }
    (void)fclose(file);
}

static int state_verify(struct power_test *t, bool fill)
{
    char bytes[32], filled[32];
    (void)snprintf(bytes, sizeof(bytes), "%llu", (unsigned long long)CRASH_STORE_BYTES);
    (void)snprintf(filled, sizeof(filled), "fill=%u", CRASH_FILL_PAGES);
    const char *arguments[] = {t->worker,
                               "verify",
                               t->store,
                               t->notes,
                               bytes,
                               t->evicts ? "evicts" : "all",
                               fill ? filled : "leave",
                               NULL};
    const char *settings[] = {NULL};
    pid_t pid = kvt_child_start(arguments, settings, t->output);
    return pid > 0 ? kvt_child_wait(pid) : -1;
}

static void state_try(struct power_test *t, uint32_t count, enum choice choice)
{
    bool fill =
        test_random_below(&t->random, kvt_child_long() ? FILL_ONE_IN_LONG : FILL_ONE_IN) == 0;
    state_build(t, choice);
    notes_build(t, count);
    t->states++;
    int status = state_verify(t, fill);
    if (status != 0) {
        const struct record *last = t->records[count > 0 ? count - 1 : 0];
        (void)printf("after %u of %u records, the last of kind %u of '%s', choice %d: exit status "
                     "%d\n",
                     count, t->record_count, last->kind, last->path, (int)choice, status);
        kvt_child_show(t->output);
        t->failed = true;
    }
}

/* ---- recording ---- */

static void record(struct power_test *t, const char *recorder, uint32_t first, uint32_t prompts)
{
    char log[PATH_BYTES], preload[SETTING_BYTES], log_setting[SETTING_BYTES];
    char root[SETTING_BYTES], bytes[32], from[32], count[32];
    (void)snprintf(log, sizeof(log), "%.480s/log", t->folder);
    (void)snprintf(preload, sizeof(preload), "LD_PRELOAD=%.500s", recorder);
    (void)snprintf(log_setting, sizeof(log_setting), "KVT_RECORD_LOG=%.500s", log);
    (void)snprintf(root, sizeof(root), "KVT_RECORD_ROOT=%.500s/root", t->folder);
    (void)snprintf(bytes, sizeof(bytes), "%llu", (unsigned long long)CRASH_STORE_BYTES);
    (void)snprintf(from, sizeof(from), "%u", first);
    (void)snprintf(count, sizeof(count), "%u", prompts);
    const char *arguments[] = {t->worker, "write", t->store, t->notes, bytes,
                               from,      count,   "1",      NULL};
    const char *settings[] = {preload, log_setting, root, NULL};
    pid_t pid = kvt_child_start(arguments, settings, t->output);
    int status = pid > 0 ? kvt_child_wait(pid) : -1;
    if (status != 0) {
        (void)printf("the recorded worker: exit status %d\n", status);
        kvt_child_show(t->output);
        t->failed = true;
    }
}

static void log_read(struct power_test *t)
{
    char path[PATH_BYTES];
    (void)snprintf(path, sizeof(path), "%.480s/log", t->folder);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat is;
    if (fd < 0 || fstat(fd, &is) != 0) {
        die(path);
    }
    t->log_bytes = (uint64_t)is.st_size;
    t->log = malloc((size_t)t->log_bytes + 1);
    t->records = calloc((size_t)(t->log_bytes / sizeof(struct record)) + 1, sizeof(*t->records));
    if (t->log == NULL || t->records == NULL ||
        read(fd, t->log, (size_t)t->log_bytes) != (ssize_t)t->log_bytes || close(fd) != 0) {
        die(path);
    }
    for (uint64_t at = 0; at + sizeof(struct record) <= t->log_bytes;) {
        const struct record *one = (const void *)(t->log + at);
        if (one->magic != RECORD_MAGIC) {
            die("the log is not whole");
        }
        t->records[t->record_count++] = one;
        at += sizeof(*one) + (one->kind == RECORD_WRITE ? record_padded(one->bytes) : 0);
    }
}

static void log_free(struct power_test *t)
{
    for (uint32_t i = 0; i < t->model.file_count; i++) {
        free(t->model.files[i].bytes);
    }
    memset(&t->model, 0, sizeof(t->model));
    free(t->records);
    free(t->log);
    t->records = NULL;
    t->log = NULL;
    t->record_count = 0;
}

/* A drive that forgets what it said was synced must be noticed. */
static void control(struct power_test *t)
{
    for (uint32_t i = 0; i < t->model.file_count; i++) {
        struct file *file = &t->model.files[i];
        if (!file->folder && file->size > CRASH_STORE_BYTES / 2) {
            memset(file->bytes, 0, (size_t)file->size);
        }
    }
    (void)printf("control, which must fail:\n");
    state_try(t, t->record_count, CHOICE_NOTHING);
    if (!t->failed) {
        (void)printf("the control was not noticed\n");
    }
    t->failed = !t->failed;
}

static void replay(struct power_test *t, uint32_t states)
{
    bool full = kvt_child_long();
    /* The store's folder lies below the root of the record, as here. */
    (void)snprintf(t->store, sizeof(t->store), "%.480s/store", t->folder);
    for (uint32_t i = 0; i <= t->record_count && !t->failed; i++) {
        if (i > 0) {
            happen(t, i - 1);
        }
        uint32_t choices =
            full ? CHOICES_LONG : test_random_below(&t->random, t->record_count + 1) < states;
        t->prefixes += choices > 0;
        for (uint32_t k = 0; k < choices && !t->failed; k++) {
            uint32_t choice = full ? k : test_random_below(&t->random, CHOICES_LONG);
            state_try(t, i, choice < CHOICE_SOME ? (enum choice)choice : CHOICE_SOME);
        }
    }
    if (!t->failed) {
        control(t);
    }
}

static void session(struct power_test *t, const char *recorder, bool evicts, uint32_t prompts)
{
    char root[PATH_BYTES];
    (void)snprintf(root, sizeof(root), "%.480s/root", t->folder);
    if (mkdir(root, 0700) != 0) {
        die(root);
    }
    (void)snprintf(t->store, sizeof(t->store), "%.480s/root/store", t->folder);
    t->evicts = evicts;
    record(t, recorder, 0, prompts);
    if (!t->failed) {
        record(t, recorder, prompts, evicts ? prompts / 4 : 3);
    }
    kvt_child_remove(root);
    if (!t->failed) {
        log_read(t);
        (void)printf("%u records, %s eviction\n", t->record_count, evicts ? "with" : "without");
        replay(t, SHORT_STATES / 2);
        log_free(t);
    }
    char log[PATH_BYTES];
    (void)snprintf(log, sizeof(log), "%.480s/log", t->folder);
    (void)unlink(log);
}

int main(void)
{
    static struct power_test test;
    struct power_test *t = &test;
    const char *recorder = getenv("KVT_CRASH_RECORDER");
    t->worker = getenv("KVT_CRASH_WORKER");
    if (t->worker == NULL || recorder == NULL || access(recorder, R_OK) != 0) {
        (void)printf("skipped: KVT_CRASH_WORKER and KVT_CRASH_RECORDER name no files\n");
        return EXIT_SKIPPED;
    }
    const char *variant = getenv("KVT_VARIANT");
    if (variant != NULL && (strcmp(variant, "asan") == 0 || strcmp(variant, "tsan") == 0)) {
        (void)printf("skipped: a recorder cannot be preloaded before a sanitizer\n");
        return EXIT_SKIPPED;
    }
    t->random = test_random_start("power cuts", (uint64_t)getpid());
    if (!kvt_child_folder(t->folder, sizeof(t->folder) - 32)) {
        die("a folder");
    }
    (void)snprintf(t->notes, sizeof(t->notes), "%.480s/notes", t->folder);
    (void)snprintf(t->output, sizeof(t->output), "%.480s/output", t->folder);
    bool full = kvt_child_long();
    session(t, recorder, false, full ? 24 : 12);
    if (!t->failed) {
        session(t, recorder, true, full ? 100 : 80);
    }
    kvt_child_tell("prefixes   %6u of the record, %u states of the drive after a power cut; %s",
                   t->prefixes, t->states, t->failed ? "FAILED" : "losses 0");
    if (t->failed && getenv("KVT_CRASH_KEEP") != NULL) {
        (void)printf("kept: %s\n", t->folder);
    } else {
        kvt_child_remove(t->folder);
    }
    return t->failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
