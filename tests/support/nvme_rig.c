#define XXH_INLINE_ALL
#include <xxhash.h>

#include "tests/support/nvme_rig.h"

#include "cache/tier/store.h"
#include "tests/support/test_expect.h"

#include <ftw.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define ALIGN KVT_NVME_ALIGN_BYTES
#define NAMESPACE_NUMBER 7u
#define NAMESPACE_FORM "a namespace"

/* ---- memory, log, clock ---- */

static void *memory_alloc(void *ctx, size_t bytes)
{
    struct rig_memory *memory = ctx;
    (void)pthread_mutex_lock(&memory->mutex);
    void *ptr = kvt_alloc(&memory->test.mem, bytes);
    (void)pthread_mutex_unlock(&memory->mutex);
    return ptr;
}

static void *memory_resize(void *ctx, void *old, size_t old_bytes, size_t new_bytes)
{
    struct rig_memory *memory = ctx;
    (void)pthread_mutex_lock(&memory->mutex);
    void *ptr = kvt_resize(&memory->test.mem, old, old_bytes, new_bytes);
    (void)pthread_mutex_unlock(&memory->mutex);
    return ptr;
}

static void memory_free(void *ctx, void *ptr, size_t bytes)
{
    struct rig_memory *memory = ctx;
    (void)pthread_mutex_lock(&memory->mutex);
    kvt_free(&memory->test.mem, ptr, bytes);
    (void)pthread_mutex_unlock(&memory->mutex);
}

static void log_line(void *ctx, int32_t level, const char *line)
{
    struct nvme_rig *rig = ctx;
    (void)level;
    (void)pthread_mutex_lock(&rig->log_mutex);
    int bytes = snprintf(rig->log_text + rig->log_bytes, sizeof(rig->log_text) - rig->log_bytes,
                         "%s\n", line);
    rig->log_bytes += (size_t)bytes;
    if (rig->log_bytes >= sizeof(rig->log_text)) {
        rig->log_bytes = 0; /* the oldest lines are not asked for any more */
    }
    (void)pthread_mutex_unlock(&rig->log_mutex);
}

bool kvt_nvme_rig_said(struct nvme_rig *rig, const char *text)
{
    (void)pthread_mutex_lock(&rig->log_mutex);
    bool said = strstr(rig->log_text, text) != NULL;
    (void)pthread_mutex_unlock(&rig->log_mutex);
    return said;
}

void kvt_nvme_rig_wait_said(struct nvme_rig *rig, const char *text)
{
    for (uint32_t i = 0; i < 6000 && !kvt_nvme_rig_said(rig, text); i++) {
        const struct timespec pause = {0, 10000000};
        (void)nanosleep(&pause, NULL);
    }
    EXPECT(kvt_nvme_rig_said(rig, text));
}

static uint64_t clock_now(void *ctx)
{
    struct nvme_rig *rig = ctx;
    return kvt_now_ns(&kvt_clock_monotonic) + rig->clock_offset_ns;
}

/* ---- life ---- */

void kvt_nvme_rig_init(struct nvme_rig *rig, uint32_t store_count, uint64_t bytes)
{
    memset(rig, 0, sizeof(*rig));
    const char *tmp = getenv("TMPDIR");
    (void)snprintf(rig->root, sizeof(rig->root), "%s/kvt nvme \xc3\xa9 XXXXXX",
                   tmp != NULL && *tmp != '\0' ? tmp : "/tmp");
    EXPECT(mkdtemp(rig->root) != NULL);
    (void)pthread_mutex_init(&rig->log_mutex, NULL);
    (void)pthread_mutex_init(&rig->memory.mutex, NULL);
    test_memory_init(&rig->memory.test);
    rig->memory.mem = (struct kvt_memory){&rig->memory, memory_alloc, memory_resize, memory_free};
    rig->log = (struct kvt_log){log_line, rig};
    for (uint32_t i = 0; i < KVT_NVME_STORES_MAX; i++) {
        (void)snprintf(rig->folders[i], sizeof(rig->folders[i]), "%s/store %u", rig->root, i);
        rig->stores[i] = (struct kvt_nvme_store){rig->folders[i], bytes};
    }
    rig->config = (struct kvt_nvme_config){.mem = &rig->memory.mem,
                                           .log = &rig->log,
                                           .clock = {rig, clock_now},
                                           .stores = rig->stores,
                                           .store_count = store_count,
                                           .page_tokens = NVME_RIG_PAGE_TOKENS};
}

static int remove_entry(const char *path, const struct stat *is, int what, struct FTW *where)
{
    (void)is;
    (void)what;
    (void)where;
    return remove(path);
}

void kvt_nvme_rig_fini(struct nvme_rig *rig)
{
    EXPECT(rig->nvme == NULL);
    EXPECT(rig->memory.test.live_blocks == 0);
    (void)nftw(rig->root, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    free(rig->pages);
    rig->pages = NULL;
    (void)pthread_mutex_destroy(&rig->log_mutex);
    (void)pthread_mutex_destroy(&rig->memory.mutex);
}

kvt_status kvt_nvme_rig_try_open(struct nvme_rig *rig)
{
    rig->why[0] = '\0';
    return kvt_nvme_open(&rig->config, &rig->nvme, rig->why, sizeof(rig->why));
}

void kvt_nvme_rig_open(struct nvme_rig *rig)
{
    kvt_status status = kvt_nvme_rig_try_open(rig);
    if (status != KVT_OK) {
        ck_abort_msg("open: %s: %s", kvt_status_name(status), rig->why);
    }
    kvt_nvme_rig_load(rig);
}

void kvt_nvme_rig_close(struct nvme_rig *rig)
{
    kvt_nvme_close(rig->nvme, NVME_RIG_WAIT_NS);
    rig->nvme = NULL;
}

/* ---- the load against the model ---- */

static kvt_status on_namespace(void *ctx, const struct kvt_catalog_namespace *ns)
{
    (void)ctx;
    EXPECT(ns->number == NAMESPACE_NUMBER);
    EXPECT(ns->canonical_bytes == strlen(NAMESPACE_FORM));
    EXPECT(memcmp(ns->canonical, NAMESPACE_FORM, ns->canonical_bytes) == 0);
    return KVT_OK;
}

static kvt_status on_page(void *ctx, const struct kvt_catalog_page *page)
{
    struct nvme_rig *rig = ctx;
    EXPECT(page->token_count == rig->config.page_tokens);
    uint32_t number = page->tokens[0];
    EXPECT(number < rig->page_count);
    struct rig_page *model = &rig->pages[number];
    if (rig->load_answer != KVT_OK && rig->load_seen++ >= rig->load_answer_at) {
        return rig->load_answer;
    }
    EXPECT(page->bytes == model->bytes && page->ns == NAMESPACE_NUMBER);
    EXPECT(!model->seen);
    if (model->parent == NVME_RIG_NONE) {
        EXPECT(page->parent == 0);
    } else if (!rig->pages[model->parent].seen) {
        rig->load_refused++;
        return KVT_ERR_STALE;
    } else {
        EXPECT(page->parent == rig->pages[model->parent].seq);
    }
    /* What was acknowledged as dropped and flushed may not come back; the tests that kill look for
     * that themselves. */
    model->state = RIG_PAGE_HELD;
    model->place = page->place;
    model->seq = page->seq;
    model->seen = true;
    return KVT_OK;
}

void kvt_nvme_rig_load(struct nvme_rig *rig)
{
    const struct kvt_catalog_visitor visitor = {rig, on_namespace, on_page};
    rig->load_refused = 0;
    rig->load_seen = 0;
    for (uint32_t i = 0; i < rig->page_count; i++) {
        rig->pages[i].seen = false;
    }
    kvt_status status = kvt_nvme_load(rig->nvme, &visitor, &rig->load);
    EXPECT(status == rig->load_answer);
    for (uint32_t i = 0; i < rig->page_count && status == KVT_OK; i++) {
        EXPECT(rig->pages[i].seen || rig->pages[i].state != RIG_PAGE_HELD);
    }
}

/* ---- pages ---- */

uint32_t kvt_nvme_rig_page(struct nvme_rig *rig, uint32_t parent, uint32_t bytes)
{
    if (rig->page_count == rig->page_capacity) {
        rig->page_capacity = rig->page_capacity > 0 ? 2 * rig->page_capacity : 64;
        rig->pages = realloc(rig->pages, rig->page_capacity * sizeof(*rig->pages));
        EXPECT(rig->pages != NULL);
    }
    rig->pages[rig->page_count] = (struct rig_page){.parent = parent, .bytes = bytes};
    return rig->page_count++;
}

void kvt_nvme_rig_fill(uint32_t number, void *payload, uint64_t bytes)
{
    uint64_t word = (uint64_t)number * UINT64_C(0x9e3779b97f4a7c15) + 1;
    unsigned char *at = payload;
    for (uint64_t i = 0; i < bytes; i += sizeof(word)) {
        word = word * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        uint64_t left = bytes - i;
        memcpy(at + i, &word, left < sizeof(word) ? (size_t)left : sizeof(word));
    }
}

bool kvt_nvme_rig_is(uint32_t number, const void *payload, uint64_t bytes)
{
    void *should = kvt_nvme_rig_buffer(bytes);
    kvt_nvme_rig_fill(number, should, bytes);
    bool same = memcmp(should, payload, bytes) == 0;
    free(should);
    return same;
}

uint64_t kvt_nvme_rig_seed(uint32_t number)
{
    unsigned char key[16] = {0};
    memcpy(key, &number, sizeof(number));
    return kvt_nvme_seed(key);
}

void *kvt_nvme_rig_buffer(uint64_t bytes)
{
    void *buffer = aligned_alloc(ALIGN, kvt_nvme_slot_bytes(bytes));
    EXPECT(buffer != NULL);
    return buffer;
}

/* ---- writing ---- */

static void write_done(struct kvt_nvme_write *write)
{
    struct rig_write *mine = write->user;
    (void)pthread_mutex_lock(&mine->mutex);
    mine->done = true;
    (void)pthread_cond_broadcast(&mine->cond);
    (void)pthread_mutex_unlock(&mine->mutex);
}

static uint32_t reserve_all(struct nvme_rig *rig, const uint32_t *numbers, uint32_t count,
                            uint64_t *out_bytes, kvt_status *out_status)
{
    uint32_t i = 0;
    *out_bytes = 0;
    *out_status = KVT_OK;
    for (; i < count; i++) {
        struct rig_page *page = &rig->pages[numbers[i]];
        *out_status = kvt_nvme_reserve(rig->nvme, page->bytes, &page->place);
        if (*out_status != KVT_OK) {
            break;
        }
        *out_bytes += kvt_nvme_slot_bytes(page->bytes);
    }
    return i;
}

struct rig_write *kvt_nvme_rig_write_start(struct nvme_rig *rig, const uint32_t *numbers,
                                           uint32_t count, kvt_status *out_status)
{
    uint64_t bytes;
    count = reserve_all(rig, numbers, count, &bytes, out_status);
    if (count == 0) {
        return NULL;
    }
    struct rig_write *mine = calloc(1, sizeof(*mine));
    EXPECT(mine != NULL);
    mine->rig = rig;
    mine->payload = kvt_nvme_rig_buffer(bytes);
    (void)pthread_mutex_init(&mine->mutex, NULL);
    (void)pthread_cond_init(&mine->cond, NULL);
    uint32_t page_tokens = rig->config.page_tokens;
    mine->tokens = calloc((size_t)count * page_tokens, sizeof(*mine->tokens));
    EXPECT(mine->tokens != NULL);
    char *at = mine->payload;
    for (uint32_t i = 0; i < count; i++) {
        struct rig_page *page = &rig->pages[numbers[i]];
        uint64_t slot_bytes = kvt_nvme_slot_bytes(page->bytes);
        kvt_nvme_rig_fill(numbers[i], at, slot_bytes);
        mine->numbers[i] = numbers[i];
        uint32_t *tokens = mine->tokens + (size_t)i * page_tokens;
        tokens[0] = numbers[i];
        mine->pages[i] = (struct kvt_nvme_page){.place = page->place,
                                                .ns = NAMESPACE_NUMBER,
                                                .seed = kvt_nvme_rig_seed(numbers[i]),
                                                .payload = at,
                                                .bytes = page->bytes,
                                                .token_count = page_tokens,
                                                .tokens = tokens};
        if (page->parent != NVME_RIG_NONE) {
            mine->pages[i].parent = rig->pages[page->parent].place;
        }
        page->state = RIG_PAGE_WRITING;
        at += slot_bytes;
    }
    mine->ns = (struct kvt_catalog_namespace){.number = NAMESPACE_NUMBER,
                                              .slot_bytes = 4096,
                                              .canonical = NAMESPACE_FORM,
                                              .canonical_bytes = (uint32_t)strlen(NAMESPACE_FORM)};
    mine->write = (struct kvt_nvme_write){
        .pages = mine->pages, .page_count = count, .done = write_done, .user = mine};
    if (numbers[0] == 0) {
        mine->write.namespaces = &mine->ns;
        mine->write.namespace_count = 1;
    }
    kvt_status status = kvt_nvme_write(rig->nvme, &mine->write);
    if (status == KVT_OK) {
        return mine;
    }
    *out_status = status;
    for (uint32_t i = 0; i < count; i++) {
        kvt_nvme_unreserve(rig->nvme, rig->pages[numbers[i]].place);
        rig->pages[numbers[i]].state = RIG_PAGE_LOST;
    }
    free(mine->tokens);
    free(mine->payload);
    free(mine);
    return NULL;
}

kvt_status kvt_nvme_rig_write_end(struct rig_write *mine, uint32_t *out_good)
{
    (void)pthread_mutex_lock(&mine->mutex);
    while (!mine->done) {
        (void)pthread_cond_wait(&mine->cond, &mine->mutex);
    }
    (void)pthread_mutex_unlock(&mine->mutex);
    kvt_status status = mine->write.status;
    uint32_t good = mine->write.pages_good;
    EXPECT((status == KVT_OK) == (good == mine->write.page_count));
    for (uint32_t i = 0; i < mine->write.page_count; i++) {
        struct rig_page *page = &mine->rig->pages[mine->numbers[i]];
        page->state = i < good ? RIG_PAGE_HELD : RIG_PAGE_LOST;
        if (i < good && page->parent != NVME_RIG_NONE) {
            mine->rig->pages[page->parent].children++;
        }
    }
    (void)pthread_mutex_destroy(&mine->mutex);
    (void)pthread_cond_destroy(&mine->cond);
    free(mine->tokens);
    free(mine->payload);
    free(mine);
    *out_good = good;
    return status;
}

kvt_status kvt_nvme_rig_write(struct nvme_rig *rig, const uint32_t *numbers, uint32_t count,
                              uint32_t *out_good)
{
    kvt_status status;
    struct rig_write *mine = kvt_nvme_rig_write_start(rig, numbers, count, &status);
    *out_good = 0;
    return mine == NULL ? status : kvt_nvme_rig_write_end(mine, out_good);
}

/* ---- reading ---- */

static void read_done(struct kvt_nvme_read *read)
{
    struct rig_read *mine = read->user;
    (void)pthread_mutex_lock(&mine->mutex);
    EXPECT(!mine->done && !mine->released);
    mine->done = true;
    (void)pthread_cond_broadcast(&mine->cond);
    (void)pthread_mutex_unlock(&mine->mutex);
}

static void read_released(struct kvt_nvme_read *read)
{
    struct rig_read *mine = read->user;
    (void)pthread_mutex_lock(&mine->mutex);
    EXPECT(mine->done && !mine->released);
    mine->released = true;
    (void)pthread_cond_broadcast(&mine->cond);
    (void)pthread_mutex_unlock(&mine->mutex);
}

struct rig_read *kvt_nvme_rig_read_start(struct nvme_rig *rig, const uint32_t *numbers,
                                         uint32_t count, kvt_status *out_status)
{
    struct rig_read *mine = calloc(1, sizeof(*mine));
    EXPECT(mine != NULL);
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < count; i++) {
        bytes += kvt_nvme_slot_bytes(rig->pages[numbers[i]].bytes);
    }
    mine->rig = rig;
    mine->buffer = kvt_nvme_rig_buffer(bytes);
    memset(mine->buffer, 0x5a, bytes);
    (void)pthread_mutex_init(&mine->mutex, NULL);
    (void)pthread_cond_init(&mine->cond, NULL);
    char *at = mine->buffer;
    for (uint32_t i = 0; i < count; i++) {
        const struct rig_page *page = &rig->pages[numbers[i]];
        mine->numbers[i] = numbers[i];
        mine->pages[i] = (struct kvt_nvme_read_page){.place = page->place,
                                                     .seed = kvt_nvme_rig_seed(numbers[i]),
                                                     .buffer = at,
                                                     .bytes = page->bytes};
        at += kvt_nvme_slot_bytes(page->bytes);
    }
    mine->read = (struct kvt_nvme_read){.pages = mine->pages,
                                        .page_count = count,
                                        .done = read_done,
                                        .released = read_released,
                                        .user = mine};
    *out_status = kvt_nvme_read(rig->nvme, &mine->read);
    if (*out_status == KVT_OK) {
        return mine;
    }
    free(mine->buffer);
    free(mine);
    return NULL;
}

void kvt_nvme_rig_read_wait_done(struct rig_read *mine)
{
    (void)pthread_mutex_lock(&mine->mutex);
    while (!mine->done) {
        (void)pthread_cond_wait(&mine->cond, &mine->mutex);
    }
    (void)pthread_mutex_unlock(&mine->mutex);
}

kvt_status kvt_nvme_rig_read_end(struct rig_read *mine, uint32_t *out_good)
{
    (void)pthread_mutex_lock(&mine->mutex);
    while (!mine->released) {
        (void)pthread_cond_wait(&mine->cond, &mine->mutex);
    }
    (void)pthread_mutex_unlock(&mine->mutex);
    kvt_status status = mine->read.status;
    uint32_t good = 0;
    for (uint32_t i = 0; i < mine->read.page_count; i++) {
        EXPECT(!(mine->pages[i].good && mine->pages[i].bad));
        EXPECT(!mine->pages[i].bad || status == KVT_ERR_CORRUPT);
        if (mine->pages[i].good) {
            good++;
            EXPECT(kvt_nvme_rig_is(mine->numbers[i], mine->pages[i].buffer, mine->pages[i].bytes));
        }
    }
    EXPECT((status == KVT_OK) == (good == mine->read.page_count));
    (void)pthread_mutex_destroy(&mine->mutex);
    (void)pthread_cond_destroy(&mine->cond);
    free(mine->buffer);
    free(mine);
    *out_good = good;
    return status;
}

kvt_status kvt_nvme_rig_read(struct nvme_rig *rig, const uint32_t *numbers, uint32_t count,
                             uint32_t *out_good)
{
    kvt_status status;
    struct rig_read *mine = kvt_nvme_rig_read_start(rig, numbers, count, &status);
    *out_good = 0;
    return mine == NULL ? status : kvt_nvme_rig_read_end(mine, out_good);
}

void kvt_nvme_rig_read_all(struct nvme_rig *rig)
{
    uint32_t numbers[32];
    uint32_t count = 0;
    for (uint32_t i = 0; i <= rig->page_count; i++) {
        if (i < rig->page_count && rig->pages[i].state == RIG_PAGE_HELD) {
            numbers[count++] = i;
        }
        if (count == 32 || (i == rig->page_count && count > 0)) {
            uint32_t good;
            EXPECT(kvt_nvme_rig_read(rig, numbers, count, &good) == KVT_OK);
            EXPECT(good == count);
            count = 0;
        }
    }
}

/* ---- what is there ---- */

void kvt_nvme_rig_drop(struct nvme_rig *rig, uint32_t number)
{
    struct rig_page *page = &rig->pages[number];
    EXPECT(page->children == 0);
    kvt_nvme_drop(rig->nvme, &page->place, 1);
    page->state = RIG_PAGE_DROPPED;
    if (page->parent != NVME_RIG_NONE) {
        rig->pages[page->parent].children--;
    }
}

uint64_t kvt_nvme_rig_held_bytes(const struct nvme_rig *rig, uint64_t *out_pages)
{
    uint64_t bytes = 0;
    *out_pages = 0;
    for (uint32_t i = 0; i < rig->page_count; i++) {
        if (rig->pages[i].state == RIG_PAGE_HELD) {
            bytes += kvt_nvme_slot_bytes(rig->pages[i].bytes);
            (*out_pages)++;
        }
    }
    return bytes;
}

void kvt_nvme_rig_check_used(struct nvme_rig *rig)
{
    EXPECT(kvt_nvme_flush(rig->nvme, NVME_RIG_WAIT_NS) == KVT_OK);
    struct kvt_nvme_stats stats;
    kvt_nvme_stats(rig->nvme, &stats);
    uint64_t pages;
    uint64_t bytes = kvt_nvme_rig_held_bytes(rig, &pages);
    EXPECT(stats.pages == pages);
    EXPECT(stats.bytes_used == bytes);
    EXPECT(stats.slots_dying == 0 && stats.slots_reading == 0);
}

static uint64_t disk_sum; /* nftw takes no context; one thread at a time */

static int add_entry(const char *path, const struct stat *is, int what, struct FTW *where)
{
    (void)path;
    (void)what;
    (void)where;
    disk_sum += (uint64_t)is->st_blocks * 512u;
    return 0;
}

uint64_t kvt_nvme_rig_disk_bytes(const char *folder)
{
    disk_sum = 0;
    EXPECT(nftw(folder, add_entry, 16, FTW_PHYS) == 0);
    return disk_sum;
}

uint64_t kvt_nvme_rig_offset(const struct nvme_rig *rig, uint32_t number, char *path,
                             size_t path_bytes)
{
    const struct rig_page *page = &rig->pages[number];
    uint32_t store = kvt_store_of(page->place.slot);
    struct kvt_store_header header;
    char why[256];
    EXPECT(kvt_store_header_read(rig->folders[store], &header, why, sizeof(why)) == KVT_OK);
    (void)snprintf(path, path_bytes, "%s/" KVT_STORE_DATA_FILE, rig->folders[store]);
    return kvt_store_extent_of(page->place.slot) * header.extent_bytes +
           kvt_store_slot_of(page->place.slot) * kvt_nvme_slot_bytes(page->bytes);
}
