/*
 * Everything that the reference engine says to a plug-in, and the only file that calls one.
 *
 * Whatever a call answers, the request goes on: without its hit, without its save, or, when
 * something does not end by its deadline, without the cache altogether. What a restore brought is
 * used only after its job said so.
 *
 * Scheduler thread, but for kvt_ref_cache_stats() (any) and what streams run.
 */
#ifndef KVT_REFERENCE_CACHE_CLIENT_H
#define KVT_REFERENCE_CACHE_CLIENT_H

#include <stdbool.h>
#include <stdint.h>

#include "engine_plugin/reference/engine.h"
#include "engine_plugin/reference/kv.h"
#include "engine_plugin/reference/log.h"

/* What makes this engine's KV bytes different from another's. */
struct kvt_ref_identity {
    const unsigned char *weights_digest; /* [16] */
    const char *build;                   /* compiler, instruction set, OpenBLAS */
};

/* One request's dealings with the cache. Zeroed at first. */
struct kvt_ref_transfer {
    uint64_t id;    /* towards the plug-in; ours, never 0, never used twice */
    uint64_t lease; /* 0: none */
    uint32_t matched_tokens;
    uint32_t good_tokens; /* of a restore that has ended: what may be trusted */
    uint64_t restore_job, save_job;
    bool restoring; /* restore_job runs: its blocks hold nothing that may be trusted */
    bool unsettled; /* a restore was started, and its outcome not yet acted upon */
    bool saving;    /* save_job runs: its blocks must not change */
    bool save_cancelled;
    bool from_drive;            /* some of it lies on a drive: it may take a while */
    uint64_t drive_deadline_ns; /* until when others may go first meanwhile */
    bool account_open;          /* the plug-in expects a report */
    uint64_t deadline_ns;       /* of a lookup that is to be asked again, or of the save */
};

enum kvt_ref_answer { KVT_REF_NOTHING, KVT_REF_AGAIN, KVT_REF_HIT };

struct kvt_ref_cache;

/* Loads, opens, binds. On failure `why` says what. May block. */
kvt_status kvt_ref_cache_open(const struct kvt_ref_config *, const struct kvt_ref_kv *,
                              const struct kvt_ref_identity *, struct kvt_ref_cache **out_cache,
                              char *why, uint64_t why_bytes) KVT_MUST_CHECK;
/* False when the plug-in would not end by its deadline: then it is left loaded, and neither the KV
 * memory nor anything enqueued on its streams may be freed. NULL is true. */
bool kvt_ref_cache_close(struct kvt_ref_cache *) KVT_MUST_CHECK;

/* Runs fn(arg) in the order of the compute stream. */
kvt_status kvt_ref_cache_enqueue(struct kvt_ref_cache *, void (*fn)(void *), void *arg)
    KVT_MUST_CHECK;

/* HIT fills lease and matched_tokens. AGAIN: ask at the next step. */
enum kvt_ref_answer kvt_ref_cache_lookup(struct kvt_ref_cache *, struct kvt_ref_transfer *,
                                         const uint32_t *tokens, uint32_t token_count);
/* Starts the restore of what was matched into the first blocks; false: nothing was started. */
bool kvt_ref_cache_restore(struct kvt_ref_cache *, struct kvt_ref_transfer *,
                           const uint32_t *blocks);
/* True while a restore from a drive is under way and others should compute meanwhile: a step that
 * waited for it would hold them up. */
bool kvt_ref_cache_waits_for_drive(struct kvt_ref_cache *, struct kvt_ref_transfer *);
/* How fast prompts are computed just now. */
void kvt_ref_cache_tell_prefill(struct kvt_ref_cache *, uint64_t tokens_per_s);
/* Makes the compute stream wait for a region of the restore. False: it could not be arranged, and
 * the job must be waited for before more is enqueued. */
bool kvt_ref_cache_wait_region(struct kvt_ref_cache *, struct kvt_ref_transfer *, uint32_t region);
void kvt_ref_cache_cancel_restore(struct kvt_ref_cache *, struct kvt_ref_transfer *);
/* Waits at most timeout_ns for the restore. True when it has ended: restoring is false then, and
 * good_tokens says how many tokens from the start may be trusted. */
bool kvt_ref_cache_restored(struct kvt_ref_cache *, struct kvt_ref_transfer *, uint64_t timeout_ns);
/* The same, up to the deadline; then the restore is cancelled and waited for once more. False: it
 * does not end. */
bool kvt_ref_cache_restore_end(struct kvt_ref_cache *, struct kvt_ref_transfer *);
/* Starts saving the whole pages of a prompt whose KV has been computed. */
void kvt_ref_cache_save(struct kvt_ref_cache *, struct kvt_ref_transfer *, const uint32_t *tokens,
                        uint32_t token_count, const uint32_t *blocks);
/* Waits at most timeout_ns for the save; true when it has ended (transfer->saving is false). After
 * its deadline it is cancelled, after another it is given up: *out_stuck. */
bool kvt_ref_cache_saved(struct kvt_ref_cache *, struct kvt_ref_transfer *, uint64_t timeout_ns,
                         bool *out_stuck);
/* Gives the lease back and closes the account. */
void kvt_ref_cache_report(struct kvt_ref_cache *, struct kvt_ref_transfer *, uint32_t prompt_tokens,
                          uint32_t computed_tokens);
kvt_status kvt_ref_cache_stats_of(struct kvt_ref_cache *, kvt_stats *out_stats) KVT_MUST_CHECK;

/* ---- controls (engine.h) ---- */

bool kvt_ref_cache_has_control(const struct kvt_ref_cache *);
uint32_t kvt_ref_cache_page_tokens(const struct kvt_ref_cache *);
/* Keeps a page that was computed from other tokens: the contents of `blocks`. NOMEM. */
kvt_status kvt_ref_cache_keep_foreign(struct kvt_ref_cache *, const uint32_t *blocks)
    KVT_MUST_CHECK;
/* Overwrites the last page below good_tokens with the foreign page, or with itself. */
void kvt_ref_cache_apply_control(struct kvt_ref_cache *, const uint32_t *blocks,
                                 uint32_t good_tokens);

#endif
