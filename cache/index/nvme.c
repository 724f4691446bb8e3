/* What nvme needs of the tree: pages that are written down, that lose a place and stay, that are
 * lost. The pages of an edge that nvme has, or is writing, are its first ones: a page goes there
 * only behind all that comes before it. */
#include "cache/index/index_internal.h"

#include <string.h>

static const struct kvt_place nowhere[KVT_SHARDS_MAX];

/* nvme has it, or is about to. */
static bool page_done(const struct kvt_index *index, const struct page *page)
{
    return kvt_place_is(page->places[(size_t)KVT_NVME * index->config.shards]);
}

/* How many pages of the edge nvme has or is writing. */
static uint32_t done_pages(const struct kvt_index *index, const struct node *node)
{
    uint32_t low = 0, high = node->page_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (page_done(index, page_at(index, node->pages[middle]))) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* ---- pages behind a lease ---- */

uint32_t kvt_index_pages_behind(struct kvt_index *index, uint64_t handle, uint32_t owner,
                                const struct kvt_prompt *prompt, uint32_t from_page, uint32_t count,
                                uint32_t *out_pages)
{
    uint32_t node_number = 0, found = 0;
    found = kvt_index_walk_behind(index, handle, owner, prompt, from_page, count, &node_number);
    uint32_t end = from_page + found;
    const struct node *node = node_at(index, node_number);
    while (end > from_page) {
        uint32_t begin = node->depth > from_page ? node->depth : from_page;
        if (begin < end) {
            memcpy(out_pages + (begin - from_page), node->pages + (begin - node->depth),
                   (end - begin) * sizeof(*out_pages));
            end = begin;
        }
        node = node_at(index, node->parent);
    }
    return found;
}

uint32_t kvt_index_memory_pages(const struct kvt_index *index, const struct kvt_match *match)
{
    uint32_t first = match->pages;
    uint32_t passed = match->offset;
    for (uint32_t at = match->node; at != KVT_NODE_NONE;) {
        const struct node *node = node_at(index, at);
        if (node->fastest_pages[KVT_HBM] + node->fastest_pages[KVT_HOST] < node->page_count) {
            for (uint32_t i = 0; i < passed; i++) {
                if (!page_in_memory(index, page_at(index, node->pages[i]))) {
                    first = node->depth + i;
                    break;
                }
            }
        }
        at = node->parent;
        passed = at != KVT_NODE_NONE ? node_at(index, at)->page_count : 0;
    }
    return first;
}

uint32_t kvt_index_segments(const struct kvt_index *index, const struct kvt_match *match,
                            struct kvt_segment *out_segments, uint32_t max)
{
    /* From the deepest edge up, written from the end, then moved to the front. */
    uint32_t at = match->node, passed = match->offset, first = max;
    while (at != KVT_NODE_NONE) {
        const struct node *node = node_at(index, at);
        for (uint32_t i = passed; i > 0;) {
            bool memory = page_in_memory(index, page_at(index, node->pages[i - 1]));
            uint32_t run = 0;
            if (passed == node->page_count && node->fastest_pages[KVT_NVME] == 0) {
                run = i; /* all of it, without looking */
            }
            while (run < i &&
                   page_in_memory(index, page_at(index, node->pages[i - 1 - run])) == memory) {
                run++;
            }
            if (first < max && out_segments[first].memory == memory) {
                out_segments[first].pages += run;
            } else if (first == 0) {
                return 0; /* more than fit */
            } else {
                out_segments[--first] = (struct kvt_segment){.pages = run, .memory = memory};
            }
            i -= run;
        }
        at = node->parent;
        passed = at != KVT_NODE_NONE ? node_at(index, at)->page_count : 0;
    }
    memmove(out_segments, out_segments + first, (max - first) * sizeof(*out_segments));
    return max - first;
}

/* ---- fetches, uses, admission ---- */

uint16_t kvt_page_fetch(const struct kvt_index *index, uint32_t page)
{
    return page_at(index, page)->fetch;
}

void kvt_page_set_fetch(struct kvt_index *index, uint32_t page, uint16_t fetch)
{
    page_at(index, page)->fetch = fetch;
}

uint32_t kvt_page_use(struct kvt_index *index, uint32_t number)
{
    struct page *page = page_at(index, number);
    page->uses = (uint8_t)(page->uses + (page->uses < UINT8_MAX ? 1 : 0));
    return page->uses;
}

uint32_t kvt_page_uses(const struct kvt_index *index, uint32_t page)
{
    return page_at(index, page)->uses;
}

bool kvt_page_admit(struct kvt_index *index, uint32_t number)
{
    struct page *page = page_at(index, number);
    if (page_done(index, page)) {
        return false;
    }
    page->flags |= PAGE_ADMITTED;
    return true;
}

uint32_t kvt_page_node(const struct kvt_index *index, uint32_t page)
{
    return page_at(index, page)->node;
}

const struct kvt_key *kvt_page_key(const struct kvt_index *index, uint32_t page)
{
    return &page_at(index, page)->key;
}

bool kvt_index_queue(struct kvt_index *index, uint32_t number)
{
    struct node *node = node_at(index, number);
    bool was = node->queued;
    node->queued = true;
    return !was;
}

bool kvt_index_unqueue(struct kvt_index *index, uint32_t number)
{
    struct node *node = node_at(index, number);
    bool was = node->used && node->queued;
    node->queued = false;
    return was;
}

/* ---- writing down ---- */

uint32_t kvt_index_unwritten(struct kvt_index *index, uint32_t number, uint32_t max,
                             struct kvt_unwritten *out)
{
    /* The topmost edge on the way to the root that is not done: what follows it must wait. */
    uint32_t at = number, top = KVT_NODE_NONE;
    while (node_at(index, at)->page_count > 0) {
        const struct node *node = node_at(index, at);
        if (!page_done(index, page_at(index, node->pages[node->page_count - 1]))) {
            top = at;
        }
        at = node->parent;
    }
    if (top == KVT_NODE_NONE) {
        return 0;
    }
    const struct node *node = node_at(index, top);
    uint32_t first = done_pages(index, node);
    uint32_t end = node->page_count;
    while (top == number && end > first &&
           (page_at(index, node->pages[end - 1])->flags & PAGE_ADMITTED) == 0) {
        end--;
    }
    uint32_t count = 0;
    for (uint32_t i = first; i < end && count < max; i++, count++) {
        const struct page *page = page_at(index, node->pages[i]);
        if (page->busy > 0 || !page_in_memory(index, page)) {
            break; /* it is moving: later */
        }
        out->pages[count] = node->pages[i];
    }
    const struct node *above = node_at(index, node->parent);
    out->ns = node->ns;
    out->tokens = node->tokens + (size_t)first * index->config.page_tokens;
    out->extras = first == 0 ? node->extras : NULL;
    out->extra_count = first == 0 ? node->extra_count : 0;
    out->before = KVT_PAGE_NONE;
    if (first > 0) {
        out->before = node->pages[first - 1];
    } else if (above->page_count > 0) {
        out->before = above->pages[above->page_count - 1];
    }
    return count;
}

struct kvt_place kvt_page_nvme_name(const struct kvt_index *index, uint32_t page)
{
    return page_at(index, page)->places[(size_t)KVT_NVME * index->config.shards];
}

void kvt_page_write_begin(struct kvt_index *index, uint32_t number, struct kvt_place place)
{
    struct page *page = page_at(index, number);
    KVT_ASSERT(!page_done(index, page));
    page->flags |= PAGE_WRITING;
    page->places[(size_t)KVT_NVME * index->config.shards] = place;
    kvt_page_set_busy(index, number, true);
}

void kvt_page_write_end(struct kvt_index *index, uint32_t number, bool durable)
{
    struct page *page = page_at(index, number);
    struct kvt_place place = page->places[(size_t)KVT_NVME * index->config.shards];
    KVT_ASSERT((page->flags & PAGE_WRITING) != 0);
    page->places[(size_t)KVT_NVME * index->config.shards] = nowhere[0];
    page->flags &= (uint8_t) ~(PAGE_WRITING | PAGE_ADMITTED);
    if (durable) {
        kvt_page_set_places(index, number, KVT_NVME, &place);
    }
    kvt_page_set_busy(index, number, false);
}

/* ---- making room ---- */

/* The page loses its place in a tier and stays, or is lost. */
static void strip(struct kvt_index *index, uint32_t number, uint32_t tier)
{
    struct page *page = page_at(index, number);
    struct kvt_place place = page->places[(size_t)tier * index->config.shards];
    kvt_page_set_places(index, number, tier, nowhere);
    index->config.on_strip(index->config.ctx, tier, place);
}

/* Nobody stands on the edge's last page but the edge. */
static bool last_is_free(const struct kvt_index *index, const struct node *node)
{
    return kvt_node_pinned(index, node) < node->page_count &&
           page_at(index, node->pages[node->page_count - 1])->busy == 0;
}

/* The last page of the edge leaves the cache, and the edge with its last one. False then. */
static bool drop_last(struct kvt_index *index, uint32_t number)
{
    struct node *node = node_at(index, number);
    if (node->page_count == 1) {
        kvt_node_unlink(index, number); /* while it still has its first page's hash */
    }
    kvt_page_drop_last(index, number);
    if (node->page_count == 0) {
        kvt_node_destroy(index, number);
        return false;
    }
    return true;
}

/* What is asked of an edge when room is made. */
struct want {
    uint32_t tier;  /* whose places count; KVT_TIERS: memory's */
    uint32_t count; /* so many more */
    bool spare;     /* pages that are about to be written down are not dropped */
    bool keep;      /* no page is */
};

static bool page_counts(const struct kvt_index *index, const struct page *page,
                        const struct want *want)
{
    return want->tier < KVT_TIERS ? page_in_tier(index, page, want->tier)
                                  : page_in_memory(index, page);
}

static uint32_t shed_edge(struct kvt_index *index, uint32_t number, const struct want *want)
{
    struct node *node = node_at(index, number);
    uint32_t freed = 0;
    if (node->tier_pages[KVT_NVME] == 0 && node->first_child != KVT_NODE_NONE) {
        return 0;
    }
    for (uint32_t i = node->page_count; i > 0 && freed < want->count; i--) {
        if (node->fastest_pages[KVT_HBM] + node->fastest_pages[KVT_HOST] == 0) {
            break;
        }
        uint32_t page_number = node->pages[i - 1];
        const struct page *page = page_at(index, page_number);
        if (page->busy > 0 || !page_counts(index, page, want)) {
            continue;
        }
        if (page_in_tier(index, page, KVT_NVME)) {
            for (uint32_t tier = 0; tier < KVT_MEMORY_TIERS; tier++) {
                if (page_in_tier(index, page, tier)) {
                    strip(index, page_number, tier);
                }
            }
            freed++;
        } else if (!want->keep && i == node->page_count && last_is_free(index, node) &&
                   !(want->spare && (page->flags & PAGE_ADMITTED) != 0)) {
            freed++;
            if (!drop_last(index, number)) {
                return freed;
            }
        } else {
            uint32_t done = done_pages(index, node);
            i = done + 1 < i ? done + 1 : i; /* those before may lose a place, the others not */
        }
    }
    kvt_node_shrink(index, node);
    return freed;
}

/* Children that nvme has pages of, or is writing. */
static bool children_done(const struct kvt_index *index, const struct node *node)
{
    for (uint32_t child = node->first_child; child != KVT_NODE_NONE;
         child = node_at(index, child)->next_sibling) {
        if (page_done(index, page_at(index, node_at(index, child)->pages[0]))) {
            return true;
        }
    }
    return false;
}

static uint32_t nvme_edge(struct kvt_index *index, uint32_t number, const struct want *want)
{
    struct node *node = node_at(index, number);
    uint32_t freed = 0;
    if (node->tier_pages[KVT_NVME] == 0 || children_done(index, node)) {
        return 0;
    }
    for (uint32_t i = done_pages(index, node); i > 0 && freed < want->count; i--) {
        uint32_t page_number = node->pages[i - 1];
        const struct page *page = page_at(index, page_number);
        if (page->busy > 0) {
            break;
        }
        if (page_in_memory(index, page)) {
            strip(index, page_number, KVT_NVME);
        } else if (i == node->page_count && last_is_free(index, node)) {
            if (!drop_last(index, number)) {
                return freed + 1;
            }
        } else {
            break;
        }
        freed++;
    }
    kvt_node_shrink(index, node);
    return freed;
}

/* Ask the policy of a tier for edges, worst first, until the places wanted were taken away. */
static uint32_t take_away(struct kvt_index *index, uint32_t ranking, struct want want,
                          uint32_t (*of_edge)(struct kvt_index *, uint32_t, const struct want *))
{
    const struct kvt_evict_ops *ops = index->config.evict;
    uint32_t freed = 0, after = UINT32_MAX;
    uint32_t victims[VICTIM_BATCH];
    while (want.count > 0) {
        uint32_t found = ops->victims(index->policies[ranking].state, after, victims, VICTIM_BATCH);
        if (found == 0) {
            break;
        }
        uint32_t before = freed;
        for (uint32_t i = 0; i < found && want.count > 0; i++) {
            uint32_t now = of_edge(index, victims[i], &want);
            want.count -= now;
            freed += now;
        }
        /* Whatever went changed the ranking: begin again. */
        after = freed > before ? UINT32_MAX : victims[found - 1];
    }
    return freed;
}

uint32_t kvt_index_shed(struct kvt_index *index, uint32_t tier, uint32_t count)
{
    /* What waits to be written is only lost where nothing else can make room. */
    struct want want = {.tier = tier, .count = count, .spare = true};
    uint32_t freed = take_away(index, KVT_HOST, want, shed_edge);
    want.spare = false;
    return freed > 0 ? freed : take_away(index, KVT_HOST, want, shed_edge);
}

uint32_t kvt_index_strip(struct kvt_index *index, uint32_t tier, uint32_t count)
{
    const struct want want = {.tier = tier, .count = count, .keep = true};
    return take_away(index, KVT_HOST, want, shed_edge);
}

uint32_t kvt_index_nvme_room(struct kvt_index *index, uint32_t count)
{
    const struct want want = {.tier = KVT_NVME, .count = count};
    return take_away(index, KVT_NVME, want, nvme_edge);
}

uint32_t kvt_index_cold_unwritten(struct kvt_index *index, uint32_t max, uint32_t *out_nodes)
{
    const struct kvt_evict_ops *ops = index->config.evict;
    uint32_t victims[VICTIM_BATCH];
    uint32_t found =
        ops->victims(index->policies[KVT_HOST].state, UINT32_MAX, victims, VICTIM_BATCH);
    uint32_t count = 0;
    for (uint32_t i = 0; i < found && count < max; i++) {
        const struct node *node = node_at(index, victims[i]);
        if (!page_done(index, page_at(index, node->pages[node->page_count - 1]))) {
            out_nodes[count++] = victims[i];
        }
    }
    return count;
}

uint32_t kvt_index_admit_edge(struct kvt_index *index, uint32_t number,
                              bool (*admit)(void *ctx, uint32_t uses), void *ctx)
{
    const struct node *node = node_at(index, number);
    uint32_t admitted = 0;
    for (uint32_t i = done_pages(index, node); i < node->page_count; i++) {
        struct page *page = page_at(index, node->pages[i]);
        if ((page->flags & PAGE_ADMITTED) != 0 || admit(ctx, page->uses)) {
            page->flags |= PAGE_ADMITTED;
            admitted++;
        }
    }
    return admitted;
}

/* False where the first page that this edge, or one above it, still needs on nvme is lost: nothing
 * behind it can go there. */
static bool may_be_written(const struct kvt_index *index, uint32_t number)
{
    if (index->lost_pages == 0) {
        return true;
    }
    for (uint32_t at = number; node_at(index, at)->page_count > 0;
         at = node_at(index, at)->parent) {
        const struct node *node = node_at(index, at);
        uint32_t first = done_pages(index, node);
        if (first < node->page_count &&
            kvt_page_tiers(index, page_at(index, node->pages[first])) == 0) {
            return false;
        }
    }
    return true;
}

uint32_t kvt_index_next_unwritten(struct kvt_index *index, uint32_t after)
{
    for (uint32_t number = after + 1; number < index->nodes.used; number++) {
        struct node *node = node_at(index, number);
        uint32_t first = node->used ? done_pages(index, node) : 0;
        if (!node->used || first == node->page_count || !may_be_written(index, number)) {
            continue;
        }
        for (uint32_t i = first; i < node->page_count; i++) {
            page_at(index, node->pages[i])->flags |= PAGE_ADMITTED;
        }
        return number;
    }
    return KVT_NODE_NONE;
}

/* ---- losing ---- */

/* Take nvme's places away from pages of this edge, from `first` on, and from all below it. */
static void lose_below(struct kvt_index *index, uint32_t top, uint32_t first)
{
    uint32_t at = top;
    for (;;) {
        const struct node *node = node_at(index, at);
        for (uint32_t i = at == top ? first : 0; i < node->page_count; i++) {
            /* What is being written fails by itself: its parent is gone. */
            if (page_in_tier(index, page_at(index, node->pages[i]), KVT_NVME)) {
                strip(index, node->pages[i], KVT_NVME);
            }
        }
        if (node->first_child != KVT_NODE_NONE) {
            at = node->first_child;
            continue;
        }
        while (at != top && node_at(index, at)->next_sibling == KVT_NODE_NONE) {
            at = node_at(index, at)->parent;
        }
        if (at == top) {
            return;
        }
        at = node_at(index, at)->next_sibling;
    }
}

void kvt_index_lose(struct kvt_index *index, uint32_t page_number)
{
    uint32_t number = page_at(index, page_number)->node;
    const struct node *node = node_at(index, number);
    uint32_t at = 0;
    while (node->pages[at] != page_number) {
        at++;
    }
    lose_below(index, number, at);
}

uint32_t kvt_index_drop_lost(struct kvt_index *index)
{
    uint32_t dropped = 0;
    bool again = index->lost_pages > 0;
    while (again) {
        again = false;
        for (uint32_t i = 1; i < index->nodes.used && index->lost_pages > 0; i++) {
            struct node *node = node_at(index, i);
            while (node->used && node->page_count > 0 && last_is_free(index, node) &&
                   kvt_page_tiers(index, page_at(index, node->pages[node->page_count - 1])) == 0) {
                dropped++;
                again = true; /* its parent may be free now */
                if (!drop_last(index, i)) {
                    break;
                }
            }
        }
    }
    return dropped;
}

void kvt_index_load_end(struct kvt_index *index)
{
    for (uint32_t i = 1; i < index->nodes.used; i++) {
        struct node *node = node_at(index, i);
        if (node->used) {
            kvt_node_fit(index, node);
        }
    }
}
