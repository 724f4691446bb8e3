/*
 * The NVMe tier for tests: stores in a folder of their own, a log that remembers, memory that fails
 * where it is told to, calls that wait for their end, and a model: which pages there are, and every
 * byte of them.
 */
#ifndef KVT_TEST_NVME_RIG_H
#define KVT_TEST_NVME_RIG_H

#include "cache/tier/nvme.h"
#include "tests/support/test_memory.h"

#define NVME_RIG_PATH_BYTES 512
#define NVME_RIG_LOG_BYTES 65536
#define NVME_RIG_PAGE_TOKENS 16u
#define NVME_RIG_NONE UINT32_MAX
#define NVME_RIG_WAIT_NS UINT64_C(60000000000)

enum rig_state {
    RIG_PAGE_NEW,     /* known to the model only */
    RIG_PAGE_WRITING, /* handed in, not acknowledged: may be there after a crash, or not */
    RIG_PAGE_HELD,    /* acknowledged */
    RIG_PAGE_DROPPED, /* dropped: may be there after a crash, or not */
    RIG_PAGE_LOST     /* its write failed */
};

struct rig_page {
    enum rig_state state;
    uint32_t parent; /* number of a page, NVME_RIG_NONE: none */
    uint32_t bytes;
    uint32_t children;
    struct kvt_place place;
    uint64_t seq; /* as the last load said */
    bool seen;    /* by the last load */
};

struct rig_memory {
    pthread_mutex_t mutex;
    struct test_memory test;
    struct kvt_memory mem;
};

struct nvme_rig {
    char root[NVME_RIG_PATH_BYTES];
    char folders[KVT_NVME_STORES_MAX][NVME_RIG_PATH_BYTES + 16];
    struct kvt_nvme_store stores[KVT_NVME_STORES_MAX];
    struct kvt_nvme_config config;
    struct rig_memory memory;
    struct kvt_log log;
    pthread_mutex_t log_mutex;
    char log_text[NVME_RIG_LOG_BYTES];
    size_t log_bytes;
    _Atomic uint64_t clock_offset_ns; /* added to the system's clock */
    struct kvt_nvme *nvme;
    char why[512];
    struct rig_page *pages;
    uint32_t page_count, page_capacity;
    uint32_t base; /* page numbers of earlier lives begin below: not used */
    struct kvt_catalog_load load;
    uint64_t load_refused;  /* of the visitor: pages that the model did not want */
    kvt_status load_answer; /* for pages from load_answer_at on, when not OK */
    uint32_t load_answer_at, load_seen;
};

/* A folder of its own below $TMPDIR, stores "store 0", "store 1" .. in it. */
void kvt_nvme_rig_init(struct nvme_rig *rig, uint32_t store_count, uint64_t bytes);
/* Removes the folder. */
void kvt_nvme_rig_fini(struct nvme_rig *rig);
/* Opens and loads; EXPECTs both to work. */
void kvt_nvme_rig_open(struct nvme_rig *rig);
kvt_status kvt_nvme_rig_try_open(struct nvme_rig *rig);
/* The model against what the load hands over: every held page is there. */
void kvt_nvme_rig_load(struct nvme_rig *rig);
void kvt_nvme_rig_close(struct nvme_rig *rig);

bool kvt_nvme_rig_said(struct nvme_rig *rig, const char *text);
/* Waits for it; EXPECTs it. */
void kvt_nvme_rig_wait_said(struct nvme_rig *rig, const char *text);

/* A page of the model; its number. */
uint32_t kvt_nvme_rig_page(struct nvme_rig *rig, uint32_t parent, uint32_t bytes);
/* Its bytes, up to its slot's size; and are those bytes these? */
void kvt_nvme_rig_fill(uint32_t number, void *payload, uint64_t bytes);
bool kvt_nvme_rig_is(uint32_t number, const void *payload, uint64_t bytes);
/* Its key's seed. */
uint64_t kvt_nvme_rig_seed(uint32_t number);
void *kvt_nvme_rig_buffer(uint64_t bytes);

/* A batch under way. */
struct rig_write {
    struct nvme_rig *rig;
    struct kvt_nvme_write write;
    struct kvt_nvme_page pages[KVT_NVME_BATCH_PAGES_MAX];
    uint32_t numbers[KVT_NVME_BATCH_PAGES_MAX];
    uint32_t *tokens;
    struct kvt_catalog_namespace ns;
    void *payload;
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    bool done;
};
/* Reserves and writes; pages that find no slot are cut off. NULL: not one of them did. */
struct rig_write *kvt_nvme_rig_write_start(struct nvme_rig *rig, const uint32_t *numbers,
                                           uint32_t count, kvt_status *out_status);
/* Waits, tells the model, frees. */
kvt_status kvt_nvme_rig_write_end(struct rig_write *write, uint32_t *out_good);
/* Both. */
kvt_status kvt_nvme_rig_write(struct nvme_rig *rig, const uint32_t *numbers, uint32_t count,
                              uint32_t *out_good);

struct rig_read {
    struct nvme_rig *rig;
    struct kvt_nvme_read read;
    struct kvt_nvme_read_page pages[KVT_NVME_BATCH_PAGES_MAX];
    uint32_t numbers[KVT_NVME_BATCH_PAGES_MAX];
    void *buffer;
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    bool done, released;
};
struct rig_read *kvt_nvme_rig_read_start(struct nvme_rig *rig, const uint32_t *numbers,
                                         uint32_t count, kvt_status *out_status);
void kvt_nvme_rig_read_wait_done(struct rig_read *read);
/* Waits for its release; EXPECTs that good pages have their bytes, byte by byte. */
kvt_status kvt_nvme_rig_read_end(struct rig_read *read, uint32_t *out_good);
kvt_status kvt_nvme_rig_read(struct nvme_rig *rig, const uint32_t *numbers, uint32_t count,
                             uint32_t *out_good);
/* Every held page of the model reads well. */
void kvt_nvme_rig_read_all(struct nvme_rig *rig);

void kvt_nvme_rig_drop(struct nvme_rig *rig, uint32_t number);
/* Bytes of slots that the model's held pages take. */
uint64_t kvt_nvme_rig_held_bytes(const struct nvme_rig *rig, uint64_t *out_pages);
/* Flushes, then: what the tier says is used is what the model says. */
void kvt_nvme_rig_check_used(struct nvme_rig *rig);
/* Bytes of blocks below the folder, as du counts them. */
uint64_t kvt_nvme_rig_disk_bytes(const char *folder);
/* Where a page lies in its data file. */
uint64_t kvt_nvme_rig_offset(const struct nvme_rig *rig, uint32_t number, char *path,
                             size_t path_bytes);

#endif
