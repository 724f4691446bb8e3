/*
 * What nvme needs of the index against a model that knows pages only: saves, writes that end in any
 * order, pages that lose a place, that are lost, that leave, and all of it dumped and loaded again.
 */
#include "cache/index/index.h"
#include "tests/support/test_expect.h"
#include "tests/support/test_memory.h"
#include "tests/support/test_random.h"

#include <stdlib.h>
#include <string.h>

/* ---- the model ---- */

#define M_PAGES 400u
#define M_DEPTH 12u
#define M_KINDS 5u /* of pages; the last one carries an extra key */
#define M_BATCHES 6u
#define M_BATCH_PAGES 6u
#define M_LEASES 8u
#define M_NONE UINT32_MAX
#define M_PAGE_TOKENS 2u

enum m_doing { M_NOTHING, M_SHED, M_ROOM, M_LOSE, M_DROP_LOST, M_EVICT };

struct m_page {
    bool live, admitted;
    uint32_t parent, kind, record, busy, leases;
    struct kvt_place places[KVT_TIERS]; /* generation 0: none; of nvme also while it is written */
    bool writing;
    struct kvt_key key;
};

struct m_prompt {
    uint32_t pages, kinds[M_DEPTH], tokens[M_DEPTH * M_PAGE_TOKENS];
    struct kvt_extra extras[M_DEPTH];
    struct kvt_prompt prompt;
};

struct m_world {
    struct test_memory memory;
    struct test_random random;
    struct kvt_index_config config;
    struct kvt_index *index;
    uint32_t ns, serial;
    struct m_page pages[M_PAGES];
    struct {
        uint32_t count, pages[M_BATCH_PAGES];
    } batches[M_BATCHES];
    struct {
        uint64_t handle;
        uint32_t page;
    } leases[M_LEASES];
    enum m_doing doing;
    uint32_t want_tier, freed;
    uint32_t lost; /* the page that kvt_index_lose() was called for */
    uint64_t met[12];
};

static bool m_has(const struct m_page *page, uint32_t tier)
{
    return kvt_place_is(page->places[tier]) && !(tier == KVT_NVME && page->writing);
}

static bool m_in_memory(const struct m_page *page)
{
    return m_has(page, KVT_HBM) || m_has(page, KVT_HOST);
}

static bool m_placed(const struct m_page *page)
{
    return m_in_memory(page) || m_has(page, KVT_NVME);
}

static bool m_done(const struct m_page *page) { return kvt_place_is(page->places[KVT_NVME]); }

static bool m_children(const struct m_world *world, uint32_t number, bool done)
{
    for (uint32_t i = 0; i < M_PAGES; i++) {
        const struct m_page *page = &world->pages[i];
        if (page->live && page->parent == number && (!done || m_done(page))) {
            return true;
        }
    }
    return false;
}

/* Nothing that must keep it stands on the page. */
static bool m_free(const struct m_world *world, uint32_t number)
{
    const struct m_page *page = &world->pages[number];
    return page->live && page->busy == 0 && !page->writing && page->leases == 0 &&
           !m_children(world, number, false);
}

static bool m_below(const struct m_world *world, uint32_t number, uint32_t top)
{
    while (number != M_NONE && number != top) {
        number = world->pages[number].parent;
    }
    return number == top;
}

/* Something that continues the page is being written. */
static bool m_writing_below(const struct m_world *world, uint32_t number)
{
    for (uint32_t i = 0; i < M_PAGES; i++) {
        if (world->pages[i].live && world->pages[i].writing && m_below(world, i, number)) {
            return true;
        }
    }
    return false;
}

static uint32_t m_find_place(const struct m_world *world, uint32_t tier, struct kvt_place place)
{
    for (uint32_t i = 0; i < M_PAGES; i++) {
        const struct m_page *page = &world->pages[i];
        if (page->live && m_has(page, tier) && page->places[tier].slot == place.slot &&
            page->places[tier].generation == place.generation) {
            return i;
        }
    }
    return M_NONE;
}

static void m_on_drop(void *ctx, const struct kvt_key *key, const struct kvt_place *places)
{
    struct m_world *world = ctx;
    uint32_t at = 0;
    while (at < M_PAGES &&
           !(world->pages[at].live && memcmp(&world->pages[at].key, key, sizeof(*key)) == 0)) {
        at++;
    }
    EXPECT(at < M_PAGES && m_free(world, at));
    struct m_page *page = &world->pages[at];
    for (uint32_t tier = 0; tier < KVT_TIERS; tier++) {
        EXPECT(places[tier].generation == page->places[tier].generation);
    }
    EXPECT(world->doing != M_NOTHING && world->doing != M_LOSE);
    if (world->doing == M_SHED) {
        EXPECT(!m_done(page) && m_in_memory(page));
        EXPECT(world->want_tier == KVT_TIERS || m_has(page, world->want_tier));
    } else if (world->doing == M_ROOM) {
        EXPECT(m_has(page, KVT_NVME) && !m_in_memory(page));
    } else if (world->doing == M_DROP_LOST) {
        EXPECT(!m_placed(page));
    }
    page->live = false;
    world->freed++;
    world->met[world->doing]++;
}

static void m_on_strip(void *ctx, uint32_t tier, struct kvt_place place)
{
    struct m_world *world = ctx;
    uint32_t at = m_find_place(world, tier, place);
    EXPECT(at != M_NONE);
    struct m_page *page = &world->pages[at];
    if (world->doing == M_SHED) {
        EXPECT(tier != KVT_NVME && m_has(page, KVT_NVME) && page->busy == 0);
        /* One of two places in memory is not the page's last. */
        world->freed += !(m_has(page, KVT_HBM) && m_has(page, KVT_HOST));
    } else if (world->doing == M_ROOM) {
        EXPECT(tier == KVT_NVME && m_in_memory(page) && page->busy == 0);
        EXPECT(!m_children(world, at, true));
        world->freed++;
    } else {
        EXPECT(world->doing == M_LOSE && tier == KVT_NVME && m_below(world, at, world->lost));
    }
    page->places[tier] = (struct kvt_place){0, 0};
    world->met[6 + (tier == KVT_NVME)]++;
}

/* ---- prompts ---- */

static uint32_t m_below_n(struct m_world *world, uint32_t n)
{
    return test_random_below(&world->random, n);
}

static void m_set(struct m_prompt *prompt, uint32_t page, uint32_t kind)
{
    prompt->kinds[page] = kind;
    prompt->tokens[2 * page] = kind;
    prompt->tokens[2 * page + 1] = kind == M_KINDS - 1 ? 0 : kind;
}

static void m_finish(struct m_prompt *prompt, uint32_t pages)
{
    uint32_t extras = 0;
    prompt->pages = pages;
    for (uint32_t i = 0; i < pages; i++) {
        if (prompt->kinds[i] == M_KINDS - 1) {
            prompt->extras[extras] = (struct kvt_extra){.token_index = i * M_PAGE_TOKENS};
            memset(prompt->extras[extras++].digest, 9, 32);
        }
    }
    prompt->prompt = (struct kvt_prompt){
        .tokens = prompt->tokens, .pages = pages, .extras = prompt->extras, .extra_count = extras};
}

static void m_random_prompt(struct m_world *world, struct m_prompt *prompt)
{
    uint32_t pages = 1 + m_below_n(world, M_DEPTH);
    for (uint32_t i = 0; i < pages; i++) {
        /* Mostly the same kinds, so that edges are long and often split. */
        uint32_t kind = m_below_n(world, 4) > 0 ? i % 3 : m_below_n(world, M_KINDS);
        m_set(prompt, i, kind);
    }
    m_finish(prompt, pages);
}

static uint32_t m_child(const struct m_world *world, uint32_t parent, uint32_t kind)
{
    for (uint32_t i = 0; i < M_PAGES; i++) {
        const struct m_page *page = &world->pages[i];
        if (page->live && page->parent == parent && page->kind == kind) {
            return i;
        }
    }
    return M_NONE;
}

/* The pages of the prompt that the model has, lost ones too; and how many before the first lost. */
static uint32_t m_path(const struct m_world *world, const struct m_prompt *prompt, uint32_t *path,
                       uint32_t *out_match)
{
    uint32_t at = M_NONE, count = 0;
    *out_match = 0;
    while (count < prompt->pages) {
        at = m_child(world, at, prompt->kinds[count]);
        if (at == M_NONE) {
            break;
        }
        *out_match += *out_match == count && m_placed(&world->pages[at]);
        path[count++] = at;
    }
    return count;
}

static void m_match(struct m_world *world, const struct m_prompt *prompt, struct kvt_match *match)
{
    uint32_t path[M_DEPTH] = {0}, want = 0, tiers[KVT_TIERS] = {0}, memory = 0, runs = 0;
    struct kvt_segment segments[M_DEPTH];
    (void)m_path(world, prompt, path, &want);
    kvt_index_match(world->index, world->ns, &prompt->prompt, match);
    EXPECT(match->pages == want);
    for (uint32_t i = 0; i < want; i++) {
        const struct m_page *page = &world->pages[path[i]];
        tiers[m_has(page, KVT_HBM) ? KVT_HBM : m_has(page, KVT_HOST) ? KVT_HOST : KVT_NVME]++;
        memory += memory == i && m_in_memory(page);
        runs += i == 0 || m_in_memory(page) != m_in_memory(&world->pages[path[i - 1]]);
    }
    EXPECT(memcmp(tiers, match->tier_pages, sizeof(tiers)) == 0);
    EXPECT(kvt_index_memory_pages(world->index, match) == memory);
    EXPECT(kvt_index_segments(world->index, match, segments, M_DEPTH) == runs);
    for (uint32_t i = 0, at = 0; i < runs; at += segments[i++].pages) {
        EXPECT(segments[i].pages > 0 && at + segments[i].pages <= want);
        for (uint32_t p = 0; p < segments[i].pages; p++) {
            EXPECT(m_in_memory(&world->pages[path[at + p]]) == segments[i].memory);
        }
    }
    if (runs > 1) {
        EXPECT(kvt_index_segments(world->index, match, segments, runs - 1) == 0);
        world->met[8]++;
    }
}

/* ---- operations ---- */

static struct kvt_place m_new_place(struct m_world *world)
{
    world->serial++;
    return (struct kvt_place){.slot = world->serial, .generation = world->serial};
}

static uint64_t m_lease(struct m_world *world, const struct kvt_match *match)
{
    uint64_t lease = 0;
    EXPECT(kvt_lease_acquire(world->index, match, 1, 1, UINT64_MAX, &lease) == KVT_OK);
    return lease;
}

static uint32_t m_live(const struct m_world *world)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < M_PAGES; i++) {
        count += world->pages[i].live;
    }
    return count;
}

static void m_enter(struct m_world *world, const struct m_prompt *prompt, uint32_t at,
                    uint32_t parent, uint32_t tier, struct kvt_place place, uint32_t *out_number)
{
    uint32_t number = 0;
    while (world->pages[number].live) {
        number++;
        EXPECT(number < M_PAGES);
    }
    struct m_page *page = &world->pages[number];
    *page = (struct m_page){.live = true, .parent = parent, .kind = prompt->kinds[at]};
    page->places[tier] = place;
    *out_number = number;
}

/* As a save does it: what the tree has and memory has not is given a place, the rest enters. */
static void m_save(struct m_world *world)
{
    struct m_prompt prompt;
    struct kvt_match match;
    uint32_t path[M_DEPTH], unused = 0, records[M_DEPTH];
    m_random_prompt(world, &prompt);
    m_match(world, &prompt, &match);
    uint32_t have = m_path(world, &prompt, path, &unused), from = match.pages;
    if (m_live(world) + prompt.pages > M_PAGES) {
        return;
    }
    uint64_t lease = m_lease(world, &match);
    uint32_t tier = m_below_n(world, 3) == 0 ? KVT_HBM : KVT_HOST, duplicates = 0, inserted = 0;
    struct kvt_place places[M_DEPTH];
    struct kvt_new_page pages[M_DEPTH];
    EXPECT(kvt_index_pages_behind(world->index, lease, 1, &prompt.prompt, from, prompt.pages - from,
                                  records) == have - from);
    for (uint32_t i = from; i < prompt.pages; i++) {
        places[i - from] = m_new_place(world);
        pages[i - from] = (struct kvt_new_page){tier, &places[i - from]};
        if (i < have) {
            EXPECT(records[i - from] == world->pages[path[i]].record);
            world->met[9]++;
            if (!m_in_memory(&world->pages[path[i]])) {
                kvt_page_set_places(world->index, records[i - from], tier, &places[i - from]);
                world->pages[path[i]].places[tier] = places[i - from];
            }
        }
    }
    EXPECT(kvt_index_insert(world->index, lease, 1, &prompt.prompt, from, prompt.pages - from,
                            pages, &duplicates, &inserted) == KVT_OK);
    EXPECT(duplicates == have - from && inserted == prompt.pages - have);
    EXPECT(kvt_index_pages_behind(world->index, lease, 1, &prompt.prompt, from, prompt.pages - from,
                                  records) == prompt.pages - from);
    uint32_t before = have > 0 ? path[have - 1] : M_NONE;
    for (uint32_t i = have; i < prompt.pages; i++) {
        m_enter(world, &prompt, i, before, tier, places[i - from], &before);
        world->pages[before].record = records[i - from];
        world->pages[before].key = *kvt_page_key(world->index, records[i - from]);
    }
    EXPECT(kvt_lease_release(world->index, lease, 1) == KVT_OK);
}

static uint32_t m_pick(struct m_world *world)
{
    for (uint32_t i = 0; i < 20; i++) {
        uint32_t at = m_below_n(world, M_PAGES);
        if (world->pages[at].live) {
            return at;
        }
    }
    return M_NONE;
}

static uint32_t m_of_record(const struct m_world *world, uint32_t record)
{
    for (uint32_t i = 0; i < M_PAGES; i++) {
        if (world->pages[i].live && world->pages[i].record == record) {
            return i;
        }
    }
    ck_abort_msg("no page has this record");
    return M_NONE;
}

/* The topmost page above this one, or itself, that nvme lacks. M_NONE: the pages that it has are
 * not the first ones, which is so only behind a lost one. */
static uint32_t m_first_undone(const struct m_world *world, uint32_t number)
{
    uint32_t first = number;
    bool gap = false;
    for (uint32_t at = number; at != M_NONE; at = world->pages[at].parent) {
        if (m_done(&world->pages[at])) {
            continue;
        }
        for (uint32_t p = number; p != at; p = world->pages[p].parent) {
            gap |= m_done(&world->pages[p]);
        }
        first = at;
    }
    return gap ? M_NONE : first;
}

static void m_begin(struct m_world *world)
{
    uint32_t batch = m_below_n(world, M_BATCHES), at = m_pick(world), pages[M_BATCH_PAGES];
    if (world->batches[batch].count > 0 || at == M_NONE) {
        return;
    }
    bool may = kvt_page_admit(world->index, world->pages[at].record);
    EXPECT(may == !m_done(&world->pages[at]));
    uint32_t first = m_first_undone(world, at);
    struct kvt_unwritten out = {.pages = pages};
    uint32_t max = 1 + m_below_n(world, M_BATCH_PAGES);
    uint32_t node = kvt_page_node(world->index, world->pages[at].record);
    uint32_t count = kvt_index_unwritten(world->index, node, max, &out);
    EXPECT(count <= max);
    if (may && first != M_NONE && m_in_memory(&world->pages[first]) &&
        world->pages[first].busy == 0) {
        EXPECT(count > 0 && m_of_record(world, pages[0]) == first);
    }
    uint32_t before = M_NONE;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t number = m_of_record(world, pages[i]);
        struct m_page *page = &world->pages[number];
        EXPECT(m_in_memory(page) && !m_done(page) && page->busy == 0);
        EXPECT(i == 0 || page->parent == before);
        EXPECT(out.tokens[2 * i] == page->kind);
        EXPECT(i > 0 || (out.extra_count > 0) == (page->kind == M_KINDS - 1));
        EXPECT(i > 0 || (out.before == KVT_PAGE_NONE) == (page->parent == M_NONE));
        EXPECT(i > 0 || page->parent == M_NONE || out.before == world->pages[page->parent].record);
        EXPECT(i > 0 || page->parent == M_NONE || m_done(&world->pages[page->parent]));
        page->places[KVT_NVME] = m_new_place(world);
        page->writing = true;
        kvt_page_write_begin(world->index, page->record, page->places[KVT_NVME]);
        world->batches[batch].pages[i] = before = number;
    }
    world->batches[batch].count = count;
    world->met[10] += count > 0;
}

static void m_end(struct m_world *world)
{
    uint32_t batch = m_below_n(world, M_BATCHES), count = world->batches[batch].count;
    uint32_t good = m_below_n(world, 3) > 0 ? count : m_below_n(world, count + 1);
    for (uint32_t i = 0; i < count; i++) {
        struct m_page *page = &world->pages[world->batches[batch].pages[i]];
        bool durable =
            i < good && (page->parent == M_NONE || m_has(&world->pages[page->parent], KVT_NVME));
        kvt_page_write_end(world->index, page->record, durable);
        page->writing = false;
        if (!durable) {
            page->places[KVT_NVME] = (struct kvt_place){0, 0};
        }
        world->met[11] += !durable;
    }
    world->batches[batch].count = 0;
}

static void m_take_away(struct m_world *world)
{
    uint32_t which = m_below_n(world, 8), want = 1 + m_below_n(world, 10), freed = 0;
    world->freed = 0;
    world->want_tier = m_below_n(world, 3) == 0 ? KVT_TIERS : m_below_n(world, KVT_MEMORY_TIERS);
    if (which < 4) {
        world->doing = M_SHED;
        freed = kvt_index_shed(world->index, world->want_tier, want);
    } else if (which < 6) {
        world->doing = M_ROOM;
        freed = kvt_index_nvme_room(world->index, want);
    } else if (which == 6 && m_live(world) > M_PAGES / 2) {
        world->doing = M_EVICT;
        freed = kvt_index_evict(world->index, KVT_TIERS, want);
    } else {
        world->doing = M_DROP_LOST;
        freed = kvt_index_drop_lost(world->index);
        want = UINT32_MAX;
    }
    EXPECT(freed == world->freed && freed <= want);
    for (uint32_t i = 0; freed == 0 && i < M_PAGES; i++) {
        const struct m_page *page = &world->pages[i];
        if (!page->live || page->busy > 0 || page->writing) {
            continue;
        }
        if (world->doing == M_SHED &&
            (world->want_tier == KVT_TIERS ? m_in_memory(page) : m_has(page, world->want_tier))) {
            EXPECT(!m_has(page, KVT_NVME) && !m_free(world, i));
        } else if (world->doing == M_ROOM && m_has(page, KVT_NVME) && !m_writing_below(world, i)) {
            EXPECT(!m_free(world, i) && (!m_in_memory(page) || m_children(world, i, true)));
        } else if (world->doing == M_DROP_LOST) {
            EXPECT(m_placed(page) || !m_free(world, i));
        }
    }
    world->doing = M_NOTHING;
}

static void m_lose(struct m_world *world)
{
    uint32_t at = m_pick(world);
    if (at == M_NONE || !m_has(&world->pages[at], KVT_NVME) || m_below_n(world, 4) > 0) {
        return;
    }
    world->doing = M_LOSE;
    world->lost = at;
    kvt_index_lose(world->index, world->pages[at].record);
    world->doing = M_NOTHING;
    for (uint32_t i = 0; i < M_PAGES; i++) {
        EXPECT(!world->pages[i].live || !m_below(world, i, at) ||
               !m_has(&world->pages[i], KVT_NVME));
    }
}

static void m_lease_or_release(struct m_world *world)
{
    uint32_t at = m_below_n(world, M_LEASES), path[M_DEPTH], found = 0;
    if (world->leases[at].handle != 0) {
        EXPECT(kvt_lease_release(world->index, world->leases[at].handle, 1) == KVT_OK);
        world->pages[world->leases[at].page].leases--;
        world->leases[at].handle = 0;
        return;
    }
    struct m_prompt prompt;
    struct kvt_match match;
    m_random_prompt(world, &prompt);
    m_match(world, &prompt, &match);
    (void)m_path(world, &prompt, path, &found);
    if (found > 0) {
        world->leases[at].handle = m_lease(world, &match);
        world->leases[at].page = path[found - 1];
        world->pages[path[found - 1]].leases++;
        kvt_index_touch(world->index, world->leases[at].handle, 1);
    }
}

static void m_busy(struct m_world *world)
{
    uint32_t at = m_pick(world);
    if (at == M_NONE) {
        return;
    }
    struct m_page *page = &world->pages[at];
    bool busy = page->busy == 0 && m_below_n(world, 3) == 0;
    if (busy || page->busy > 0) {
        kvt_page_set_busy(world->index, page->record, busy);
        page->busy = busy;
    }
}

/* What must hold between any two steps. */
static void m_check(struct m_world *world)
{
    char why[200] = "";
    if (!kvt_index_check(world->index, why, sizeof(why))) {
        ck_abort_msg("%s", why);
    }
    struct kvt_index_stats stats;
    kvt_index_stats(world->index, &stats);
    uint64_t tiers[KVT_TIERS] = {0}, pages = 0, lost = 0;
    for (uint32_t i = 0; i < M_PAGES; i++) {
        const struct m_page *page = &world->pages[i];
        if (!page->live) {
            continue;
        }
        pages++;
        lost += !m_placed(page);
        for (uint32_t tier = 0; tier < KVT_TIERS; tier++) {
            tiers[tier] += m_has(page, tier);
            EXPECT(kvt_page_place(world->index, page->record, tier, 0).generation ==
                   (m_has(page, tier) ? page->places[tier].generation : 0));
        }
        EXPECT(!m_has(page, KVT_NVME) || page->parent == M_NONE ||
               m_has(&world->pages[page->parent], KVT_NVME));
    }
    EXPECT(stats.pages == pages && stats.lost_pages == lost);
    EXPECT(memcmp(stats.tier_pages, tiers, sizeof(tiers)) == 0);
}

/* ---- dumped and loaded ---- */

/* Enter a page and all that continues it on nvme into another index. */
static void m_load_below(struct m_world *world, struct kvt_index *into, uint32_t ns,
                         uint32_t number, uint32_t depth, uint32_t before)
{
    const struct m_page *page = &world->pages[number];
    struct m_prompt prompt;
    for (uint32_t i = 0; i <= depth; i++) {
        m_set(&prompt, i, i == depth ? page->kind : 0);
    }
    m_finish(&prompt, depth + 1);
    struct kvt_loaded_page loaded = {.tokens = prompt.tokens + 2 * (size_t)depth,
                                     .extras = prompt.extras,
                                     .extra_count = prompt.prompt.extra_count,
                                     .place = page->places[KVT_NVME]};
    uint32_t record = 0, again = 0;
    EXPECT(kvt_index_load_page(into, ns, before, &loaded, &record) == KVT_OK);
    EXPECT(kvt_index_load_page(into, ns, before, &loaded, &again) == KVT_ERR_INVAL);
    for (uint32_t i = 0; i < M_PAGES; i++) {
        const struct m_page *child = &world->pages[i];
        if (child->live && child->parent == number && m_has(child, KVT_NVME)) {
            m_load_below(world, into, ns, i, depth + 1, record);
        }
    }
}

static void m_reload(struct m_world *world)
{
    struct kvt_index *into = NULL;
    uint32_t ns = 0;
    uint64_t pages = 0;
    char why[200] = "";
    EXPECT(kvt_index_create(&world->config, &into) == KVT_OK);
    EXPECT(kvt_index_namespace(into, "ns", 2, 7, &ns) == KVT_OK);
    for (uint32_t i = 0; i < M_PAGES; i++) {
        const struct m_page *page = &world->pages[i];
        pages += page->live && m_has(page, KVT_NVME);
        if (page->live && page->parent == M_NONE && m_has(page, KVT_NVME)) {
            m_load_below(world, into, ns, i, 0, KVT_PAGE_NONE);
        }
    }
    kvt_index_load_end(into);
    EXPECT(kvt_index_check(into, why, sizeof(why)));
    struct kvt_index_stats stats;
    kvt_index_stats(into, &stats);
    EXPECT(stats.pages == pages && stats.tier_pages[KVT_NVME] == pages);
    for (uint32_t n = 0; n < 200; n++) {
        struct m_prompt prompt;
        struct kvt_match match;
        uint32_t path[M_DEPTH], unused = 0, want = 0;
        m_random_prompt(world, &prompt);
        uint32_t have = m_path(world, &prompt, path, &unused);
        while (want < have && m_has(&world->pages[path[want]], KVT_NVME)) {
            want++;
        }
        kvt_index_match(into, ns, &prompt.prompt, &match);
        EXPECT(match.pages == want && match.tier_pages[KVT_NVME] == want);
    }
    kvt_index_destroy(into);
}

static void m_step(struct m_world *world)
{
    switch (m_below_n(world, 10)) {
    case 0:
    case 1:
        m_save(world);
        break;
    case 2:
    case 3:
        m_begin(world);
        break;
    case 4:
    case 5:
        m_end(world);
        break;
    case 6:
    case 7:
        m_take_away(world);
        break;
    case 8:
        m_busy(world);
        m_lose(world);
        break;
    default:
        m_lease_or_release(world);
        break;
    }
}

START_TEST(against_a_model)
{
    struct m_world *world = calloc(1, sizeof(*world));
    EXPECT(world != NULL);
    world->random = test_random_start("index_nvme", 20261201);
    test_memory_init(&world->memory);
    world->config = (struct kvt_index_config){.mem = &world->memory.mem,
                                              .page_tokens = M_PAGE_TOKENS,
                                              .shards = 1,
                                              .pages_max = 1u << 20,
                                              .leases_max = 32,
                                              .hash_bits = 5,
                                              .seed = 3,
                                              .evict = &kvt_policy_lru,
                                              .on_drop = m_on_drop,
                                              .on_strip = m_on_strip,
                                              .ctx = world};
    EXPECT(kvt_index_create(&world->config, &world->index) == KVT_OK);
    EXPECT(kvt_index_namespace(world->index, "ns", 2, 7, &world->ns) == KVT_OK);
    uint64_t steps = test_scaled(200000);
    for (uint64_t i = 0; i < steps; i++) {
        m_step(world);
        m_check(world);
        if (i % 4096 == 4095) {
            m_reload(world);
        }
    }
    for (uint32_t i = M_SHED; i < 12 && steps >= 20000; i++) {
        ck_assert_msg(i == M_LOSE || world->met[i] > 0, "case %u was never met", i);
    }
    kvt_index_destroy(world->index);
    ck_assert_uint_eq(world->memory.live_blocks, 0);
    free(world);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("index_nvme_model");
    tcase_set_timeout(tcase, 300);
    tcase_add_test(tcase, against_a_model);
    Suite *suite = suite_create("index_nvme_model");
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
