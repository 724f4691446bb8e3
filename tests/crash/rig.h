/*
 * What the crash tests share: a small cache with a store, prompts whose every byte is a function of
 * namespace and tokens up to there, and the notes of what was promised about them.
 */
#ifndef KVT_TESTS_CRASH_RIG_H
#define KVT_TESTS_CRASH_RIG_H

#include "kvt_cache.h"
#include "kvt_store.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CRASH_PAGE_TOKENS 16u
#define CRASH_REGIONS 2u
#define CRASH_BLOCK_BYTES 8192u
#define CRASH_PAGE_BYTES (CRASH_REGIONS * CRASH_BLOCK_BYTES)
#define CRASH_HEAD_PAGES 4u /* that a family of prompts has in common */
#define CRASH_PAGES_MAX 13u
#define CRASH_TOKENS_MAX (CRASH_PAGES_MAX * CRASH_PAGE_TOKENS)
#define CRASH_STORE_BYTES (UINT64_C(8) << 20)
#define CRASH_NAMESPACES 2u
/* Of the slots of the smallest store, 440, a page or two may be on the move. */
#define CRASH_FILL_PAGES 430u
/* One that was larger has larger extents, and a part of one is left over. */
#define CRASH_FILL_PAGES_SHRUNK 385u
/* So many prompts fit the smallest store whole. */
#define CRASH_PROMPTS_FIT 44u
/* Prompts from this number on only fill the store. */
#define CRASH_FILL_FIRST 1000000u
#define CRASH_WAIT_NS UINT64_C(60000000000)
#define CRASH_WHY_BYTES 512u
#define CRASH_EXIT_OPEN 3 /* of the worker: it could not open the store */

struct crash_rig {
    struct kvt_cache *cache;
    uint32_t clients[CRASH_NAMESPACES];
    uint64_t bindings[CRASH_NAMESPACES];
    void *stream;
    unsigned char *memory; /* regions behind each other */
    uint64_t request;
    _Atomic uint32_t warnings;
    bool loud; /* warnings are printed */
    char why[CRASH_WHY_BYTES];
};

struct crash_prompt {
    uint32_t number, ns, pages;
    uint32_t tokens[CRASH_TOKENS_MAX + 1]; /* one more: the last token is never matched */
};

/* What an attempt to read a prompt gave. */
struct crash_read {
    uint32_t matched, good; /* pages */
    bool wrong;             /* bytes that are not the prompt's were delivered */
};

struct crash_prompt kvt_crash_prompt(uint32_t number);
/* The bytes of one page, regions behind each other, as they lie in a slot. */
void kvt_crash_page_bytes(const struct crash_prompt *prompt, uint32_t page,
                          unsigned char out_bytes[CRASH_PAGE_BYTES]);

/* flags beside THREADS and BUFFERED. */
kvt_status kvt_crash_open(struct crash_rig *rig, const char *store, uint64_t bytes, uint32_t flags);
/* Quiesces, checks, closes. False: `why` says what was wrong. */
bool kvt_crash_close(struct crash_rig *rig);
kvt_status kvt_crash_save(struct crash_rig *rig, const struct crash_prompt *prompt);
kvt_status kvt_crash_read(struct crash_rig *rig, const struct crash_prompt *prompt,
                          struct crash_read *out_read);

/*
 * Notes: a file to which the writer appends, a line each: "w N" before prompt N is saved, "a N"
 * once it is durable, "s" when the store was made smaller and nothing before is promised any more.
 */
struct crash_notes {
    uint32_t count; /* prompts that were begun: 0 .. count - 1 */
    uint32_t acked_count;
    unsigned char *acked; /* [count] */
};
bool kvt_crash_notes_read(const char *path, struct crash_notes *out_notes);
void kvt_crash_notes_free(struct crash_notes *notes);

struct crash_verify {
    const char *store;
    uint64_t bytes;
    uint32_t fill_pages; /* then it is filled: with at least so many; 0: it is not */
    bool evicts;         /* only what was acknowledged last is sure to be there */
    bool may_lack;       /* damage was done on purpose: less may be there, nothing may be wrong */
};
struct crash_verified {
    uint32_t wrong, lost, pages, short_prompts;
    uint64_t noticed; /* failed checksums, damaged records, refusals to open */
};
/* Prints what does not hold; false then. */
bool kvt_crash_verify(const struct crash_verify *asked, const struct crash_notes *notes,
                      struct crash_verified *out_verified);

#endif
