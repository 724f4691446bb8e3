/* Which slots there are, and their states. Everything here requires the tier's lock. */
#include "cache/tier/nvme_internal.h"

#include <string.h>

#define CLASSES_FIRST 16u

/* ---- lists of extents ---- */

static void list_push(struct kvt_nvme_drive *drive, uint32_t *head, uint32_t index)
{
    struct kvt_nvme_extent *extent = &drive->extents[index];
    extent->prev = KVT_NVME_NONE;
    extent->next = *head;
    extent->listed = true;
    if (*head != KVT_NVME_NONE) {
        drive->extents[*head].prev = index;
    }
    *head = index;
}

static void list_remove(struct kvt_nvme_drive *drive, uint32_t *head, uint32_t index)
{
    struct kvt_nvme_extent *extent = &drive->extents[index];
    if (extent->prev != KVT_NVME_NONE) {
        drive->extents[extent->prev].next = extent->next;
    } else {
        *head = extent->next;
    }
    if (extent->next != KVT_NVME_NONE) {
        drive->extents[extent->next].prev = extent->prev;
    }
    extent->listed = false;
}

static void free_push(struct kvt_nvme_drive *drive, uint32_t index)
{
    struct kvt_nvme_extent *extent = &drive->extents[index];
    extent->state = KVT_EXTENT_FREE;
    list_push(drive, &drive->free_head[extent->prepared], index);
    drive->free_count[extent->prepared]++;
    drive->free_bytes += drive->extent_bytes;
}

static void free_remove(struct kvt_nvme_drive *drive, uint32_t index)
{
    struct kvt_nvme_extent *extent = &drive->extents[index];
    list_remove(drive, &drive->free_head[extent->prepared], index);
    drive->free_count[extent->prepared]--;
    drive->free_bytes -= drive->extent_bytes;
}

void kvt_nvme_drive_init(struct kvt_nvme_drive *drive, uint32_t prepared_extents)
{
    drive->free_head[0] = drive->free_head[1] = KVT_NVME_NONE;
    drive->zero_extent = KVT_NVME_NONE;
    /* From the end, so that the first ones are taken first. */
    for (uint32_t i = drive->extent_count; i-- > 0;) {
        drive->extents[i].prepared = i < prepared_extents;
        free_push(drive, i);
    }
}

void kvt_nvme_drive_fini(struct kvt_nvme *nvme, struct kvt_nvme_drive *drive)
{
    for (uint32_t i = 0; drive->extents != NULL && i < drive->extent_count; i++) {
        struct kvt_nvme_extent *extent = &drive->extents[i];
        kvt_free(nvme->mem, extent->slots, extent->slot_count * sizeof(*extent->slots));
    }
    kvt_free(nvme->mem, drive->extents, drive->extent_count * sizeof(*drive->extents));
    kvt_free(nvme->mem, drive->classes, drive->class_capacity * sizeof(*drive->classes));
    drive->extents = NULL;
    drive->classes = NULL;
}

/* ---- classes ---- */

static struct kvt_nvme_class *class_find(struct kvt_nvme_drive *drive, uint64_t slot_bytes)
{
    for (uint32_t i = 0; i < drive->class_count; i++) {
        if (drive->classes[i].slot_bytes == slot_bytes) {
            return &drive->classes[i];
        }
    }
    return NULL;
}

/* NULL: no memory. A class that has no extents gives its place to another one. */
static struct kvt_nvme_class *class_get(struct kvt_nvme *nvme, struct kvt_nvme_drive *drive,
                                        uint64_t slot_bytes)
{
    struct kvt_nvme_class *found = class_find(drive, slot_bytes);
    if (found != NULL) {
        return found;
    }
    if (drive->class_count == drive->class_capacity) {
        uint32_t capacity = drive->class_capacity > 0 ? 2 * drive->class_capacity : CLASSES_FIRST;
        struct kvt_nvme_class *classes =
            kvt_resize(nvme->mem, drive->classes, drive->class_capacity * sizeof(*classes),
                       capacity * sizeof(*classes));
        if (classes == NULL) {
            return NULL;
        }
        drive->classes = classes;
        drive->class_capacity = capacity;
    }
    found = &drive->classes[drive->class_count++];
    *found = (struct kvt_nvme_class){slot_bytes, KVT_NVME_NONE};
    return found;
}

static void class_push(struct kvt_nvme *nvme, struct kvt_nvme_drive *drive, uint32_t index)
{
    struct kvt_nvme_class *class = class_get(nvme, drive, drive->extents[index].slot_bytes);
    if (class != NULL) {
        list_push(drive, &class->head, index);
    }
    /* Without memory for its class an extent is not listed: its free slots are not handed out until
     * the next one of it becomes free and it is tried again. */
}

static void class_remove(struct kvt_nvme_drive *drive, uint32_t index)
{
    struct kvt_nvme_class *class = class_find(drive, drive->extents[index].slot_bytes);
    KVT_ASSERT(class != NULL);
    list_remove(drive, &class->head, index);
    if (class->head == KVT_NVME_NONE) {
        *class = drive->classes[--drive->class_count];
    }
}

/* ---- extents ---- */

/* A free extent becomes one of slots of that size. False: no memory, nothing changed. */
static bool extent_use(struct kvt_nvme *nvme, struct kvt_nvme_drive *drive, uint32_t index,
                       uint64_t slot_bytes)
{
    struct kvt_nvme_extent *extent = &drive->extents[index];
    uint32_t count = kvt_store_slots(drive->extent_bytes, slot_bytes);
    struct kvt_nvme_slot *slots = kvt_calloc(nvme->mem, count, sizeof(*slots));
    if (slots == NULL) {
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        slots[i].next = i + 1 < count ? i + 2 : 0;
    }
    free_remove(drive, index);
    extent->state = KVT_EXTENT_USED;
    extent->slots = slots;
    extent->slot_count = count;
    extent->slot_bytes = slot_bytes;
    extent->used = 0;
    extent->free_head = 1;
    drive->free_bytes += (uint64_t)count * slot_bytes;
    nvme->slots_free += count;
    nvme->extents_bytes += drive->extent_bytes;
    class_push(nvme, drive, index);
    return true;
}

/* The last slot of an extent became free: it may take another size. */
static void extent_unuse(struct kvt_nvme *nvme, struct kvt_nvme_drive *drive, uint32_t index)
{
    struct kvt_nvme_extent *extent = &drive->extents[index];
    if (extent->listed) {
        class_remove(drive, index);
    }
    drive->free_bytes -= (uint64_t)extent->slot_count * extent->slot_bytes;
    nvme->slots_free -= extent->slot_count;
    nvme->extents_bytes -= drive->extent_bytes;
    kvt_free(nvme->mem, extent->slots, extent->slot_count * sizeof(*extent->slots));
    extent->slots = NULL;
    extent->slot_count = 0;
    free_push(drive, index);
}

uint32_t kvt_nvme_extent_prepare(struct kvt_nvme_drive *drive)
{
    uint32_t index = drive->free_head[0];
    /* The last free one is left to those who need a slot now. */
    if (index == KVT_NVME_NONE || drive->free_count[0] + drive->free_count[1] < 2) {
        return KVT_NVME_NONE;
    }
    free_remove(drive, index);
    drive->extents[index].state = KVT_EXTENT_PREPARING;
    return index;
}

void kvt_nvme_extent_prepared(struct kvt_nvme_drive *drive, uint32_t index, bool good)
{
    drive->extents[index].prepared = good;
    free_push(drive, index);
}

/* ---- finding slots ---- */

static struct kvt_nvme_drive *drive_of(struct kvt_nvme *nvme, uint32_t name)
{
    return &nvme->drives[kvt_store_of(name)];
}

struct kvt_nvme_slot *kvt_nvme_slot_at(struct kvt_nvme *nvme, uint32_t name)
{
    if (kvt_store_of(name) >= nvme->drive_count) {
        return NULL;
    }
    struct kvt_nvme_drive *drive = drive_of(nvme, name);
    uint32_t index = kvt_store_extent_of(name);
    if (index >= drive->extent_count || drive->extents[index].state != KVT_EXTENT_USED ||
        kvt_store_slot_of(name) >= drive->extents[index].slot_count) {
        return NULL;
    }
    return &drive->extents[index].slots[kvt_store_slot_of(name)];
}

struct kvt_nvme_slot *kvt_nvme_slot_of(struct kvt_nvme *nvme, struct kvt_place place)
{
    struct kvt_nvme_slot *slot = kvt_nvme_slot_at(nvme, place.slot);
    if (slot == NULL || slot->state == KVT_SLOT_FREE || slot->generation != place.generation) {
        return NULL;
    }
    return slot;
}

uint64_t kvt_nvme_slot_size(const struct kvt_nvme *nvme, uint32_t name)
{
    return nvme->drives[kvt_store_of(name)].extents[kvt_store_extent_of(name)].slot_bytes;
}

uint64_t kvt_nvme_slot_offset(const struct kvt_nvme *nvme, uint32_t name)
{
    uint64_t extent = kvt_store_extent_of(name);
    uint64_t slot = kvt_store_slot_of(name);
    return extent * nvme->drives[kvt_store_of(name)].extent_bytes +
           slot * kvt_nvme_slot_size(nvme, name);
}

/* ---- taking slots ---- */

static bool drive_has_room(const struct kvt_nvme_drive *drive, uint64_t slot_bytes)
{
    if (slot_bytes > drive->extent_bytes) {
        return false;
    }
    if (drive->free_head[0] != KVT_NVME_NONE || drive->free_head[1] != KVT_NVME_NONE) {
        return true;
    }
    for (uint32_t i = 0; i < drive->class_count; i++) {
        if (drive->classes[i].slot_bytes == slot_bytes) {
            return true;
        }
    }
    return false;
}

/* The drive with the largest part of it free, of those that have room: so all fill up alike. */
static struct kvt_nvme_drive *drive_choose(struct kvt_nvme *nvme, uint64_t slot_bytes)
{
    struct kvt_nvme_drive *best = NULL;
    double best_part = -1.0;
    for (uint32_t i = 0; i < nvme->drive_count; i++) {
        struct kvt_nvme_drive *drive = &nvme->drives[i];
        if (!drive_has_room(drive, slot_bytes)) {
            continue;
        }
        double part =
            (double)drive->free_bytes / ((double)drive->extent_count * (double)drive->extent_bytes);
        if (part > best_part) {
            best = drive;
            best_part = part;
        }
    }
    return best;
}

bool kvt_nvme_slot_room(struct kvt_nvme *nvme, uint64_t slot_bytes)
{
    return drive_choose(nvme, slot_bytes) != NULL;
}

static uint32_t generation_new(struct kvt_nvme *nvme)
{
    if (++nvme->generation_next == 0) {
        nvme->generation_next = 1;
    }
    return nvme->generation_next;
}

/* Takes the first free slot of an extent that has one. */
static struct kvt_nvme_slot *extent_take(struct kvt_nvme *nvme, struct kvt_nvme_drive *drive,
                                         uint32_t index, uint32_t *out_slot)
{
    struct kvt_nvme_extent *extent = &drive->extents[index];
    uint32_t at = extent->free_head - 1;
    struct kvt_nvme_slot *slot = &extent->slots[at];
    extent->free_head = slot->next;
    extent->used++;
    if (extent->free_head == 0 && extent->listed) {
        class_remove(drive, index);
    }
    drive->free_bytes -= extent->slot_bytes;
    nvme->slots_free--;
    nvme->bytes_used += extent->slot_bytes;
    *out_slot = at;
    return slot;
}

kvt_status kvt_nvme_slot_take(struct kvt_nvme *nvme, uint64_t slot_bytes,
                              struct kvt_place *out_place)
{
    struct kvt_nvme_drive *drive = drive_choose(nvme, slot_bytes);
    if (drive == NULL) {
        return KVT_ERR_LIMIT;
    }
    struct kvt_nvme_class *class = class_find(drive, slot_bytes);
    if (class == NULL) {
        uint32_t index =
            drive->free_head[1] != KVT_NVME_NONE ? drive->free_head[1] : drive->free_head[0];
        if (!extent_use(nvme, drive, index, slot_bytes)) {
            return KVT_ERR_NOMEM;
        }
        class = class_find(drive, slot_bytes);
        if (class == NULL) {
            extent_unuse(nvme, drive, index);
            return KVT_ERR_NOMEM;
        }
    }
    uint32_t index = class->head;
    uint32_t at;
    struct kvt_nvme_slot *slot = extent_take(nvme, drive, index, &at);
    *slot = (struct kvt_nvme_slot){.generation = generation_new(nvme), .state = KVT_SLOT_RESERVED};
    *out_place = (struct kvt_place){
        kvt_store_slot_name((uint32_t)(drive - nvme->drives), index, at), slot->generation};
    return KVT_OK;
}

/* While loading, lists of free slots are left as they are: kvt_nvme_slots_loaded() makes them anew.
 * Records come in any order of their slots, and a list has no quick way to its middle. */
kvt_status kvt_nvme_slot_claim(struct kvt_nvme *nvme, const struct kvt_catalog_page *page)
{
    uint32_t name = page->place.slot;
    uint64_t slot_bytes = kvt_nvme_slot_bytes(page->bytes);
    if (kvt_store_of(name) >= nvme->drive_count || page->bytes == 0 ||
        page->place.generation == 0) {
        return KVT_ERR_INVAL;
    }
    struct kvt_nvme_drive *drive = drive_of(nvme, name);
    uint32_t index = kvt_store_extent_of(name);
    uint32_t at = kvt_store_slot_of(name);
    if (index >= drive->extent_count || slot_bytes > drive->extent_bytes ||
        at >= kvt_store_slots(drive->extent_bytes, slot_bytes)) {
        return KVT_ERR_INVAL;
    }
    struct kvt_nvme_extent *extent = &drive->extents[index];
    if (extent->state == KVT_EXTENT_FREE && !extent_use(nvme, drive, index, slot_bytes)) {
        free_remove(drive, index);
        extent->state = KVT_EXTENT_BLOCKED;
    }
    if (extent->state != KVT_EXTENT_USED) {
        return KVT_ERR_NOMEM;
    }
    if (extent->slot_bytes != slot_bytes) {
        return KVT_ERR_INVAL;
    }
    struct kvt_nvme_slot *slot = &extent->slots[at];
    if (slot->state != KVT_SLOT_FREE) {
        return KVT_ERR_LIMIT;
    }
    extent->used++;
    drive->free_bytes -= slot_bytes;
    nvme->slots_free--;
    nvme->bytes_used += slot_bytes;
    nvme->pages++;
    *slot = (struct kvt_nvme_slot){.seq = page->seq,
                                   .checksum = page->checksum,
                                   .generation = page->place.generation,
                                   .state = KVT_SLOT_HELD};
    return KVT_OK;
}

void kvt_nvme_slots_loaded(struct kvt_nvme *nvme)
{
    for (uint32_t d = 0; d < nvme->drive_count; d++) {
        struct kvt_nvme_drive *drive = &nvme->drives[d];
        for (uint32_t i = 0; i < drive->extent_count; i++) {
            struct kvt_nvme_extent *extent = &drive->extents[i];
            uint32_t *link = &extent->free_head;
            for (uint32_t at = 0; at < extent->slot_count; at++) {
                if (extent->slots[at].state == KVT_SLOT_FREE) {
                    *link = at + 1;
                    link = &extent->slots[at].next;
                }
            }
            *link = 0;
            if (extent->state == KVT_EXTENT_USED && extent->free_head == 0 && extent->listed) {
                class_remove(drive, i);
            }
        }
    }
}

/* ---- giving slots back ---- */

void kvt_nvme_slot_free(struct kvt_nvme *nvme, uint32_t name)
{
    struct kvt_nvme_slot *slot = kvt_nvme_slot_at(nvme, name);
    KVT_ASSERT(slot != NULL && slot->state != KVT_SLOT_FREE && slot->readers == 0);
    struct kvt_nvme_drive *drive = drive_of(nvme, name);
    uint32_t index = kvt_store_extent_of(name);
    struct kvt_nvme_extent *extent = &drive->extents[index];
    *slot = (struct kvt_nvme_slot){.next = extent->free_head, .state = KVT_SLOT_FREE};
    extent->free_head = kvt_store_slot_of(name) + 1;
    extent->used--;
    drive->free_bytes += extent->slot_bytes;
    nvme->slots_free++;
    nvme->bytes_used -= extent->slot_bytes;
    if (!extent->listed) {
        class_push(nvme, drive, index);
    }
    if (extent->used == 0) {
        extent_unuse(nvme, drive, index);
    }
}

void kvt_nvme_slot_kill(struct kvt_nvme *nvme, uint32_t name)
{
    struct kvt_nvme_slot *slot = kvt_nvme_slot_at(nvme, name);
    KVT_ASSERT(slot != NULL && (slot->state == KVT_SLOT_HELD || slot->state == KVT_SLOT_WRITING));
    if (slot->state == KVT_SLOT_HELD) {
        nvme->pages--;
    }
    slot->state = KVT_SLOT_DYING;
    slot->left = false;
    slot->next = KVT_NVME_NONE;
    if (nvme->dying_head == KVT_NVME_NONE) {
        nvme->dying_head = name;
        nvme->drop_since_ns = kvt_now_ns(&nvme->clock);
    } else {
        kvt_nvme_slot_at(nvme, nvme->dying_tail)->next = name;
    }
    nvme->dying_tail = name;
    nvme->drops_queued++;
    nvme->slots_dying++;
}

void kvt_nvme_slot_gone(struct kvt_nvme *nvme, uint32_t name)
{
    struct kvt_nvme_slot *slot = kvt_nvme_slot_at(nvme, name);
    KVT_ASSERT(slot != NULL && slot->state == KVT_SLOT_DYING);
    slot->state = KVT_SLOT_GONE;
    if (slot->readers > 0) {
        return;
    }
    nvme->slots_dying--;
    if (slot->bad) {
        slot->state = KVT_SLOT_BAD;
    } else {
        kvt_nvme_slot_free(nvme, name);
    }
}

void kvt_nvme_slot_ref(struct kvt_nvme *nvme, struct kvt_nvme_slot *slot)
{
    nvme->slots_reading += slot->readers == 0;
    slot->readers++;
}

void kvt_nvme_slot_unref(struct kvt_nvme *nvme, uint32_t name)
{
    struct kvt_nvme_slot *slot = kvt_nvme_slot_at(nvme, name);
    KVT_ASSERT(slot != NULL && slot->readers > 0);
    if (--slot->readers > 0) {
        return;
    }
    nvme->slots_reading--;
    if (slot->state == KVT_SLOT_GONE) {
        slot->state = KVT_SLOT_DYING;
        kvt_nvme_slot_gone(nvme, name);
    }
}
