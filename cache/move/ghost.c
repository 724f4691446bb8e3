#include "cache/move/ghost.h"

#include <string.h>

struct kvt_ghost {
    uint64_t name; /* the first half of the page key */
    uint64_t left; /* the clock after it had left */
    uint64_t kind; /* enum kvt_ghost_kind; NONE: empty */
};

kvt_status kvt_ghosts_init(struct kvt_ghosts *ghosts, const struct kvt_memory *mem,
                           uint32_t ghosts_max)
{
    uint32_t buckets = 1;
    while (buckets < ghosts_max / KVT_GHOSTS_PER_BUCKET) {
        buckets *= 2;
    }
    *ghosts = (struct kvt_ghosts){.mem = mem, .bucket_count = buckets};
    ghosts->ghosts =
        kvt_calloc(mem, (size_t)buckets * KVT_GHOSTS_PER_BUCKET, sizeof(*ghosts->ghosts));
    return ghosts->ghosts != NULL ? KVT_OK : KVT_ERR_NOMEM;
}

void kvt_ghosts_fini(struct kvt_ghosts *ghosts)
{
    kvt_free(ghosts->mem, ghosts->ghosts,
             (size_t)ghosts->bucket_count * KVT_GHOSTS_PER_BUCKET * sizeof(*ghosts->ghosts));
    ghosts->ghosts = NULL;
}

static struct kvt_ghost *bucket_of(const struct kvt_ghosts *ghosts, uint64_t name)
{
    return &ghosts->ghosts[(size_t)(name & (ghosts->bucket_count - 1u)) * KVT_GHOSTS_PER_BUCKET];
}

static uint64_t name_of(const struct kvt_key *key)
{
    uint64_t name;
    memcpy(&name, key->bytes, sizeof(name));
    return name;
}

void kvt_ghosts_add(struct kvt_ghosts *ghosts, const struct kvt_key *key, enum kvt_ghost_kind kind,
                    uint64_t bytes)
{
    uint64_t name = name_of(key);
    struct kvt_ghost *bucket = bucket_of(ghosts, name);
    struct kvt_ghost *place = &bucket[0];
    for (uint32_t i = 0; i < KVT_GHOSTS_PER_BUCKET; i++) {
        struct kvt_ghost *ghost = &bucket[i];
        bool same = ghost->kind != KVT_GHOST_NONE && ghost->name == name;
        if (same) {
            place = ghost;
            break;
        }
        /* An empty one is older than any: its `left` is 0, and it came first. */
        bool empty = ghost->kind == KVT_GHOST_NONE && place->kind != KVT_GHOST_NONE;
        bool older = place->kind != KVT_GHOST_NONE && ghost->left < place->left;
        if (empty || older) {
            place = ghost;
        }
    }
    ghosts->clock += bytes;
    *place = (struct kvt_ghost){.name = name, .left = ghosts->clock, .kind = (uint64_t)kind};
}

enum kvt_ghost_kind kvt_ghosts_find(const struct kvt_ghosts *ghosts, const struct kvt_key *key,
                                    uint64_t *out_short_bytes)
{
    uint64_t name = name_of(key);
    const struct kvt_ghost *bucket = bucket_of(ghosts, name);
    for (uint32_t i = 0; i < KVT_GHOSTS_PER_BUCKET; i++) {
        if (bucket[i].kind != KVT_GHOST_NONE && bucket[i].name == name) {
            *out_short_bytes = ghosts->clock - bucket[i].left;
            return (enum kvt_ghost_kind)bucket[i].kind;
        }
    }
    *out_short_bytes = 0;
    return KVT_GHOST_NONE;
}
