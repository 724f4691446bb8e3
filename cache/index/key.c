#define XXH_INLINE_ALL
#include <xxhash.h>

#include "cache/index/key.h"

#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "token bytes are hashed in place: they must be little endian"
#endif

/* Pages of up to so many tokens, and extra keys of up to so many bytes, are hashed in one piece. */
#define KEY_INLINE_TOKENS 64u
#define KEY_INLINE_EXTRA_BYTES 256u
#define KEY_INLINE_BYTES (KVT_KEY_BYTES + KEY_INLINE_TOKENS * 4u + KEY_INLINE_EXTRA_BYTES)

static struct kvt_key canonical(XXH128_hash_t hash)
{
    XXH128_canonical_t form;
    struct kvt_key key;
    XXH128_canonicalFromHash(&form, hash);
    memcpy(key.bytes, form.digest, KVT_KEY_BYTES);
    return key;
}

struct kvt_key kvt_key_of_namespace(const void *canonical_form, size_t canonical_bytes)
{
    return canonical(XXH3_128bits(canonical_form, canonical_bytes));
}

/* A page of any size; the state lies on the stack (576 bytes) and allocates nothing. */
static struct kvt_key key_streamed(const struct kvt_key *before, const uint32_t *tokens,
                                   uint32_t page_tokens, const void *extra, size_t extra_bytes)
{
    XXH3_state_t state;
    XXH3_INITSTATE(&state);
    (void)XXH3_128bits_reset(&state);
    (void)XXH3_128bits_update(&state, before->bytes, KVT_KEY_BYTES);
    (void)XXH3_128bits_update(&state, tokens, (size_t)page_tokens * sizeof(*tokens));
    if (extra_bytes > 0) {
        (void)XXH3_128bits_update(&state, extra, extra_bytes);
    }
    return canonical(XXH3_128bits_digest(&state));
}

struct kvt_key kvt_key_next(const struct kvt_key *before, const uint32_t *tokens,
                            uint32_t page_tokens, const void *extra, size_t extra_bytes)
{
    if (page_tokens > KEY_INLINE_TOKENS || extra_bytes > KEY_INLINE_EXTRA_BYTES) {
        return key_streamed(before, tokens, page_tokens, extra, extra_bytes);
    }
    unsigned char input[KEY_INLINE_BYTES];
    size_t token_bytes = (size_t)page_tokens * sizeof(*tokens);
    memcpy(input, before->bytes, KVT_KEY_BYTES);
    memcpy(input + KVT_KEY_BYTES, tokens, token_bytes);
    if (extra_bytes > 0) {
        memcpy(input + KVT_KEY_BYTES + token_bytes, extra, extra_bytes);
    }
    return canonical(XXH3_128bits(input, KVT_KEY_BYTES + token_bytes + extra_bytes));
}

uint64_t kvt_hash_child(uint32_t parent, const uint32_t *tokens, uint32_t page_tokens,
                        const void *extra, size_t extra_bytes)
{
    uint64_t hash = XXH3_64bits_withSeed(tokens, (size_t)page_tokens * sizeof(*tokens), parent);
    if (extra_bytes > 0) {
        hash = XXH3_64bits_withSeed(extra, extra_bytes, hash);
    }
    return hash;
}

uint64_t kvt_hash_bytes(const void *bytes, size_t byte_count)
{
    return XXH3_64bits(bytes, byte_count);
}
