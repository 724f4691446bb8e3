/*
 * Page keys: names and accelerators, never proofs. Tokens are compared besides.
 *
 *   key(-1)  = XXH3-128(canonical namespace)
 *   key(i)   = XXH3-128(key(i-1) | tokens of page i, little endian | extra key bytes of page i)
 *
 * all in xxHash's canonical (big endian) form, seed 0, so that the same prompt has the same key in
 * every process, build and year; tests/unit/key_test.c pins golden values.
 *
 * Layer 3.
 */
#ifndef KVT_KEY_H
#define KVT_KEY_H

#include "cache/base/base.h"

#define KVT_KEY_BYTES 16u

struct kvt_key {
    unsigned char bytes[KVT_KEY_BYTES];
};

/* The key that stands before a namespace's first page. */
struct kvt_key kvt_key_of_namespace(const void *canonical, size_t canonical_bytes);
/* The key of the page of `page_tokens` tokens that follows the page named `before`. extra: the
 * bytes of extra keys that begin in this page (NULL with 0: none). */
struct kvt_key kvt_key_next(const struct kvt_key *before, const uint32_t *tokens,
                            uint32_t page_tokens, const void *extra, size_t extra_bytes);
/* For tables only: 64 bits over a node number and its child's first page. */
uint64_t kvt_hash_child(uint32_t parent, const uint32_t *tokens, uint32_t page_tokens,
                        const void *extra, size_t extra_bytes);
/* A 64-bit hash of any bytes, for tables. */
uint64_t kvt_hash_bytes(const void *bytes, size_t byte_count);

#endif
