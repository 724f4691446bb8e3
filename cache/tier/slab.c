#include "cache/tier/slab.h"

/* A slot's word: its state in the top two bits; below, the next free slot (free) or the number of
 * transfers (otherwise). */
enum slot_state { SLOT_FREE = 0, SLOT_RESERVED = 1, SLOT_HELD = 2, SLOT_DOOMED = 3 };
#define SLOT_STATE_SHIFT 30u
#define SLOT_LOW_MASK ((1u << SLOT_STATE_SHIFT) - 1u)
#define SLOT_NONE SLOT_LOW_MASK
#define SLOT_INDEX_BITS 20u
#define CHUNK_NONE UINT32_MAX
#define SIZES_MAX 64u

struct slot {
    uint32_t generation;
    uint32_t word;
};

struct chunk {
    unsigned char *base;
    uint64_t bytes;
    uint64_t slot_bytes; /* 0: no size assigned */
    struct slot *slots;
    uint32_t slot_count;
    uint32_t free_head;
    uint32_t free_count;
    uint32_t next_with_room; /* chunks of one size that have a free slot */
    uint32_t prev_with_room;
    uint32_t generation_max; /* survives a change of size, so old names stay stale */
};

struct size_class {
    uint64_t slot_bytes; /* 0: unused entry */
    uint32_t with_room;
    uint32_t chunk_count;
    uint64_t slots_used;
};

struct kvt_slab {
    const struct kvt_memory *mem;
    const struct kvt_backing *backing;
    uint64_t budget, chunk_bytes, mapped, used, slots_used, in_transfer, meta_bytes;
    uint32_t chunk_count;
    uint32_t growing; /* grow_begin without its grow_end */
    struct size_class sizes[SIZES_MAX];
    struct chunk *chunks; /* [KVT_CHUNKS_MAX] */
};

static enum slot_state state_of(const struct slot *slot)
{
    return (enum slot_state)(slot->word >> SLOT_STATE_SHIFT);
}

static void set_word(struct slot *slot, enum slot_state state, uint32_t low)
{
    slot->word = ((uint32_t)state << SLOT_STATE_SHIFT) | low;
}

static uint64_t align_down(uint64_t bytes, uint64_t to) { return bytes - bytes % to; }

kvt_status kvt_slab_create(const struct kvt_memory *mem, const struct kvt_backing *backing,
                           uint64_t budget_bytes, struct kvt_slab **out_slab)
{
    budget_bytes = align_down(budget_bytes, KVT_CHUNK_ALIGN_BYTES);
    if (budget_bytes == 0) {
        return KVT_ERR_INVAL;
    }
    struct kvt_slab *slab = kvt_calloc(mem, 1, sizeof(*slab));
    if (slab == NULL) {
        return KVT_ERR_NOMEM;
    }
    slab->chunks = kvt_calloc(mem, KVT_CHUNKS_MAX, sizeof(*slab->chunks));
    if (slab->chunks == NULL) {
        kvt_free(mem, slab, sizeof(*slab));
        return KVT_ERR_NOMEM;
    }
    slab->mem = mem;
    slab->backing = backing;
    slab->budget = budget_bytes;
    uint64_t chunk = budget_bytes / KVT_CHUNKS_PER_BUDGET_MIN;
    if (chunk > KVT_CHUNK_BYTES_MAX) {
        chunk = KVT_CHUNK_BYTES_MAX;
    }
    /* A budget beyond KVT_CHUNKS_MAX chunks of the usual size gets larger ones. */
    while (budget_bytes / chunk >= KVT_CHUNKS_MAX) {
        chunk *= 2;
    }
    chunk = align_down(chunk, KVT_CHUNK_ALIGN_BYTES);
    slab->chunk_bytes = chunk > 0 ? chunk : KVT_CHUNK_ALIGN_BYTES;
    slab->meta_bytes = sizeof(*slab) + KVT_CHUNKS_MAX * sizeof(*slab->chunks);
    *out_slab = slab;
    return KVT_OK;
}

static void chunk_drop_slots(struct kvt_slab *slab, struct chunk *chunk)
{
    size_t bytes = chunk->slot_count * sizeof(*chunk->slots);
    kvt_free(slab->mem, chunk->slots, bytes);
    slab->meta_bytes -= bytes;
    chunk->slots = NULL;
    chunk->slot_count = 0;
    chunk->free_count = 0;
    chunk->slot_bytes = 0;
}

void kvt_slab_destroy(struct kvt_slab *slab)
{
    if (slab == NULL) {
        return;
    }
    for (uint32_t i = 0; i < slab->chunk_count; i++) {
        chunk_drop_slots(slab, &slab->chunks[i]);
        slab->backing->unmap(slab->backing->ctx, slab->chunks[i].base, slab->chunks[i].bytes);
    }
    kvt_free(slab->mem, slab->chunks, KVT_CHUNKS_MAX * sizeof(*slab->chunks));
    kvt_free(slab->mem, slab, sizeof(*slab));
}

/* The number of the entry that this size has, or could have: one without chunks, else one whose
 * chunks are all idle. SIZES_MAX when so many sizes are in use. */
static uint32_t size_find(const struct kvt_slab *slab, uint64_t slot_bytes)
{
    uint32_t unused = SIZES_MAX;
    uint32_t idle = SIZES_MAX;
    for (uint32_t i = 0; i < SIZES_MAX; i++) {
        const struct size_class *size = &slab->sizes[i];
        if (size->slot_bytes == slot_bytes) {
            return i;
        }
        if (unused == SIZES_MAX && size->chunk_count == 0) {
            unused = i;
        } else if (idle == SIZES_MAX && size->slots_used == 0) {
            idle = i;
        }
    }
    return unused != SIZES_MAX ? unused : idle;
}

static void room_link(struct kvt_slab *slab, struct size_class *size, uint32_t number)
{
    struct chunk *chunk = &slab->chunks[number];
    chunk->prev_with_room = CHUNK_NONE;
    chunk->next_with_room = size->with_room;
    if (size->with_room != CHUNK_NONE) {
        slab->chunks[size->with_room].prev_with_room = number;
    }
    size->with_room = number;
}

static void room_unlink(struct kvt_slab *slab, struct size_class *size, uint32_t number)
{
    struct chunk *chunk = &slab->chunks[number];
    if (chunk->prev_with_room != CHUNK_NONE) {
        slab->chunks[chunk->prev_with_room].next_with_room = chunk->next_with_room;
    } else {
        size->with_room = chunk->next_with_room;
    }
    if (chunk->next_with_room != CHUNK_NONE) {
        slab->chunks[chunk->next_with_room].prev_with_room = chunk->prev_with_room;
    }
}

static uint32_t slots_that_fit(uint64_t chunk_bytes, uint64_t slot_bytes)
{
    uint64_t count = chunk_bytes / slot_bytes;
    return count < KVT_CHUNK_SLOTS_MAX ? (uint32_t)count : KVT_CHUNK_SLOTS_MAX;
}

static uint64_t align_up(uint64_t bytes, uint64_t to) { return align_down(bytes + to - 1, to); }

/* How large the next chunk would be; 0 when the budget holds none. The usual size, made up to whole
 * slots: what is left over at a chunk's end would be mapped for nothing. And to whole huge pages,
 * unless much would be left over then: a chunk of anything else could not lie in some. */
static uint64_t next_chunk_bytes(const struct kvt_slab *slab, uint64_t slot_bytes)
{
    uint64_t rest = slab->budget - slab->mapped;
    uint64_t slots = (slab->chunk_bytes + slot_bytes - 1) / slot_bytes;
    uint64_t want = align_up(slots * slot_bytes, KVT_CHUNK_ALIGN_BYTES);
    uint64_t huge = align_up(want, KVT_CHUNK_HUGE_BYTES);
    if (want >= KVT_CHUNK_HUGE_BYTES && huge <= rest &&
        huge % slot_bytes <= huge / KVT_CHUNK_WASTE_DIVISOR) {
        want = huge;
    }
    if (want > rest) {
        want = rest;
    }
    return want < slot_bytes || slab->chunk_count + slab->growing >= KVT_CHUNKS_MAX ? 0 : want;
}

/* Give a mapped chunk without a size the size slot_bytes. */
static kvt_status chunk_assign(struct kvt_slab *slab, struct size_class *size, uint32_t number)
{
    struct chunk *chunk = &slab->chunks[number];
    uint32_t count = slots_that_fit(chunk->bytes, size->slot_bytes);
    struct slot *slots = kvt_alloc(slab->mem, count * sizeof(*slots));
    if (slots == NULL) {
        return KVT_ERR_NOMEM;
    }
    for (uint32_t i = 0; i < count; i++) {
        slots[i].generation = chunk->generation_max;
        set_word(&slots[i], SLOT_FREE, i + 1 < count ? i + 1 : SLOT_NONE);
    }
    slab->meta_bytes += count * sizeof(*slots);
    chunk->slots = slots;
    chunk->slot_count = count;
    chunk->slot_bytes = size->slot_bytes;
    chunk->free_head = 0;
    chunk->free_count = count;
    size->chunk_count++;
    room_link(slab, size, number);
    return KVT_OK;
}

/* A mapped chunk that holds a slot so large and that nobody uses, whatever its size was;
 * CHUNK_NONE when there is none. */
static uint32_t idle_find(const struct kvt_slab *slab, uint64_t slot_bytes)
{
    for (uint32_t i = 0; i < slab->chunk_count; i++) {
        const struct chunk *chunk = &slab->chunks[i];
        if (chunk->bytes >= slot_bytes && chunk->free_count == chunk->slot_count &&
            chunk->slot_bytes != slot_bytes) {
            return i;
        }
    }
    return CHUNK_NONE;
}

/* Take an idle chunk's size away. */
static void idle_take(struct kvt_slab *slab, uint32_t number)
{
    struct chunk *chunk = &slab->chunks[number];
    if (chunk->slot_count > 0) {
        struct size_class *size = &slab->sizes[size_find(slab, chunk->slot_bytes)];
        KVT_ASSERT(size->slot_bytes == chunk->slot_bytes);
        room_unlink(slab, size, number);
        size->chunk_count--;
        chunk_drop_slots(slab, chunk);
    }
}

/* The entry of this size, made when it is new; NULL when SIZES_MAX sizes are in use. */
static struct size_class *size_get(struct kvt_slab *slab, uint64_t slot_bytes)
{
    uint32_t entry = size_find(slab, slot_bytes);
    if (entry == SIZES_MAX) {
        return NULL;
    }
    struct size_class *size = &slab->sizes[entry];
    if (size->slot_bytes == slot_bytes) {
        return size;
    }
    for (uint32_t i = 0; size->chunk_count > 0 && i < slab->chunk_count; i++) {
        if (slab->chunks[i].slot_bytes == size->slot_bytes) {
            idle_take(slab, i);
        }
    }
    *size = (struct size_class){.slot_bytes = slot_bytes, .with_room = CHUNK_NONE};
    return size;
}

uint64_t kvt_slab_grow_begin(struct kvt_slab *slab, uint64_t slot_bytes)
{
    uint64_t bytes = next_chunk_bytes(slab, slot_bytes);
    slab->mapped += bytes;
    slab->growing += bytes > 0;
    return bytes;
}

void kvt_slab_grow_end(struct kvt_slab *slab, void *base, uint64_t bytes)
{
    KVT_ASSERT(slab->growing > 0);
    slab->growing--;
    if (base == NULL) {
        slab->mapped -= bytes;
        return;
    }
    KVT_ASSERT(slab->chunk_count < KVT_CHUNKS_MAX);
    slab->chunks[slab->chunk_count++] = (struct chunk){.base = base, .bytes = bytes};
}

/* One more chunk for this size, out of those that are mapped and that nobody uses. */
static kvt_status chunk_add(struct kvt_slab *slab, struct size_class *size)
{
    uint32_t number = idle_find(slab, size->slot_bytes);
    if (number == CHUNK_NONE) {
        return KVT_ERR_LIMIT;
    }
    idle_take(slab, number);
    return chunk_assign(slab, size, number);
}

kvt_status kvt_slab_reserve(struct kvt_slab *slab, uint64_t slot_bytes, struct kvt_place *out_place)
{
    KVT_ASSERT(slot_bytes > 0);
    struct size_class *size = size_get(slab, slot_bytes);
    if (size == NULL) {
        return KVT_ERR_LIMIT;
    }
    if (size->with_room == CHUNK_NONE) {
        kvt_status status = chunk_add(slab, size);
        if (status != KVT_OK) {
            return status;
        }
    }
    uint32_t number = size->with_room;
    struct chunk *chunk = &slab->chunks[number];
    uint32_t index = chunk->free_head;
    struct slot *slot = &chunk->slots[index];
    KVT_ASSERT(state_of(slot) == SLOT_FREE);
    chunk->free_head = slot->word & SLOT_LOW_MASK;
    chunk->free_count--;
    if (chunk->free_count == 0) {
        room_unlink(slab, size, number);
    }
    slot->generation = slot->generation == UINT32_MAX ? 1 : slot->generation + 1;
    if (slot->generation > chunk->generation_max) {
        chunk->generation_max = slot->generation;
    }
    set_word(slot, SLOT_RESERVED, 0);
    slab->used += slot_bytes;
    slab->slots_used++;
    size->slots_used++;
    out_place->slot = (number << SLOT_INDEX_BITS) | index;
    out_place->generation = slot->generation;
    return KVT_OK;
}

/* The slot that a place names, NULL when the place is stale or never was. */
static struct slot *slot_find(const struct kvt_slab *slab, struct kvt_place place,
                              struct chunk **out_chunk)
{
    uint32_t number = place.slot >> SLOT_INDEX_BITS;
    uint32_t index = place.slot & (KVT_CHUNK_SLOTS_MAX - 1u);
    if (place.generation == 0 || number >= slab->chunk_count) {
        return NULL;
    }
    struct chunk *chunk = &slab->chunks[number];
    if (index >= chunk->slot_count) {
        return NULL;
    }
    struct slot *slot = &chunk->slots[index];
    if (slot->generation != place.generation || state_of(slot) == SLOT_FREE) {
        return NULL;
    }
    *out_chunk = chunk;
    return slot;
}

void kvt_slab_commit(struct kvt_slab *slab, struct kvt_place place)
{
    struct chunk *chunk = NULL;
    struct slot *slot = slot_find(slab, place, &chunk);
    KVT_ASSERT(slot != NULL && state_of(slot) == SLOT_RESERVED);
    set_word(slot, SLOT_HELD, slot->word & SLOT_LOW_MASK);
}

static void slot_release(struct kvt_slab *slab, struct chunk *chunk, struct slot *slot)
{
    uint32_t number = (uint32_t)(chunk - slab->chunks);
    struct size_class *size = size_get(slab, chunk->slot_bytes);
    KVT_ASSERT(size != NULL);
    set_word(slot, SLOT_FREE, chunk->free_count > 0 ? chunk->free_head : SLOT_NONE);
    chunk->free_head = (uint32_t)(slot - chunk->slots);
    chunk->free_count++;
    slab->used -= chunk->slot_bytes;
    slab->slots_used--;
    size->slots_used--;
    if (chunk->free_count == 1) {
        room_link(slab, size, number);
    }
}

bool kvt_slab_free(struct kvt_slab *slab, struct kvt_place place)
{
    struct chunk *chunk = NULL;
    struct slot *slot = slot_find(slab, place, &chunk);
    if (slot == NULL || state_of(slot) == SLOT_DOOMED) {
        return false;
    }
    if ((slot->word & SLOT_LOW_MASK) > 0) {
        set_word(slot, SLOT_DOOMED, slot->word & SLOT_LOW_MASK);
    } else {
        slot_release(slab, chunk, slot);
    }
    return true;
}

void kvt_slab_ref(struct kvt_slab *slab, struct kvt_place place)
{
    struct chunk *chunk = NULL;
    struct slot *slot = slot_find(slab, place, &chunk);
    KVT_ASSERT(slot != NULL && state_of(slot) != SLOT_DOOMED);
    KVT_ASSERT((slot->word & SLOT_LOW_MASK) < SLOT_NONE);
    slot->word++;
    slab->in_transfer++;
}

void kvt_slab_unref(struct kvt_slab *slab, struct kvt_place place)
{
    struct chunk *chunk = NULL;
    struct slot *slot = slot_find(slab, place, &chunk);
    KVT_ASSERT(slot != NULL && (slot->word & SLOT_LOW_MASK) > 0);
    slot->word--;
    slab->in_transfer--;
    if (state_of(slot) == SLOT_DOOMED && (slot->word & SLOT_LOW_MASK) == 0) {
        slot_release(slab, chunk, slot);
    }
}

void *kvt_slab_addr(const struct kvt_slab *slab, struct kvt_place place)
{
    struct chunk *chunk = NULL;
    const struct slot *slot = slot_find(slab, place, &chunk);
    if (slot == NULL || state_of(slot) == SLOT_DOOMED) {
        return NULL;
    }
    return chunk->base + (uint64_t)(slot - chunk->slots) * chunk->slot_bytes;
}

uint64_t kvt_slab_slot_bytes(const struct kvt_slab *slab, struct kvt_place place)
{
    struct chunk *chunk = NULL;
    return slot_find(slab, place, &chunk) != NULL ? chunk->slot_bytes : 0;
}

bool kvt_slab_has_room(const struct kvt_slab *slab, uint64_t slot_bytes)
{
    uint32_t entry = size_find(slab, slot_bytes);
    if (entry == SIZES_MAX) {
        return false;
    }
    const struct size_class *size = &slab->sizes[entry];
    return (size->slot_bytes == slot_bytes && size->with_room != CHUNK_NONE) ||
           idle_find(slab, slot_bytes) != CHUNK_NONE;
}

void kvt_slab_stats(const struct kvt_slab *slab, struct kvt_slab_stats *out_stats)
{
    uint64_t slots_free = 0;
    for (uint32_t i = 0; i < slab->chunk_count; i++) {
        slots_free += slab->chunks[i].free_count;
    }
    *out_stats = (struct kvt_slab_stats){
        .slots_free = slots_free,
        .bytes_budget = slab->budget,
        .bytes_mapped = slab->mapped,
        .bytes_used = slab->used,
        .slots_used = slab->slots_used,
        .slots_in_transfer = slab->in_transfer,
        .bytes_meta = slab->meta_bytes,
    };
}
