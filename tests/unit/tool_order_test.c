/* Replay order, context limit, and the first pass against a computation without cleverness. */
#include "tools/trace_order.h"

#include <inttypes.h>

#include "tests/support/test_random.h"
#include "tests/unit/tool_support.h"

#define VOCABULARY 1009U

static struct kvt_trace trace;

static void open_text(const char *text)
{
    char why[512] = "";
    char *path = tool_write(".jsonl", text);
    kvt_status status = kvt_trace_open(path, &trace, why, sizeof(why));
    ck_assert_msg(status == KVT_OK, "%s", why);
    tool_remove(path);
}

#define HEADER "{\"kvtrace\":{\"block_size\":4,\"tail\":\"floor\"}}\n"

/* Three sessions of 3, 1 and 2 turns, in an order of their own. */
static const char three_sessions[] =
    HEADER "{\"timestamp\":10,\"input_length\":8,\"output_length\":1,\"hash_runs\":[[0,2]],"
           "\"session_id\":\"a\",\"turn\":1}\n"
           "{\"timestamp\":40,\"input_length\":12,\"output_length\":1,\"hash_runs\":[[0,3]],"
           "\"session_id\":\"a\",\"turn\":2}\n"
           "{\"timestamp\":20,\"input_length\":9,\"output_length\":1,\"hash_runs\":[[0,1],[9,1]],"
           "\"session_id\":\"b\",\"turn\":1}\n"
           "{\"timestamp\":20,\"input_length\":40,\"output_length\":1,\"hash_runs\":[[20,10]],"
           "\"session_id\":\"c\",\"turn\":1}\n"
           "{\"timestamp\":30,\"input_length\":44,\"output_length\":1,\"hash_runs\":[[20,11]],"
           "\"session_id\":\"c\",\"turn\":2}\n"
           "{\"timestamp\":50,\"input_length\":16,\"output_length\":1,\"hash_runs\":[[0,4]],"
           "\"session_id\":\"a\",\"turn\":3}\n";

static void expect_order(enum kvt_order_kind kind, uint32_t sessions, uint64_t context,
                         const char *turns, const char *counts)
{
    struct kvt_order order;
    char text[128] = "";
    ck_assert_int_eq(kvt_order_build(&trace, kind, sessions, context, 4, &order), KVT_OK);
    size_t used = 0;
    for (uint32_t i = 0; i < order.turn_count; i++) {
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%" PRIu32, order.turns[i]);
    }
    ck_assert_str_eq(text, turns);
    (void)snprintf(text, sizeof(text), "%" PRIu32 " ended %" PRIu32 " dropped %" PRIu32,
                   order.session_count, order.sessions_ended, order.turns_dropped);
    ck_assert_str_eq(text, counts);
    kvt_order_destroy(&order);
    kvt_order_destroy(&order);
}

START_TEST(test_orders)
{
    open_text(three_sessions);
    expect_order(KVT_ORDER_ROUNDS, 8, 1000, "023145", "3 ended 0 dropped 0");
    expect_order(KVT_ORDER_ROUNDS, 2, 1000, "0215", "2 ended 0 dropped 0");
    expect_order(KVT_ORDER_ROUNDS, 1, 1000, "015", "1 ended 0 dropped 0");
    expect_order(KVT_ORDER_ARRIVAL, 8, 1000, "023415", "3 ended 0 dropped 0");
    expect_order(KVT_ORDER_ARRIVAL, 2, 1000, "0215", "2 ended 0 dropped 0");
    /* Prompt and output of 4 must fit together. */
    expect_order(KVT_ORDER_ROUNDS, 8, 48, "023145", "3 ended 0 dropped 0");
    expect_order(KVT_ORDER_ROUNDS, 8, 47, "02315", "3 ended 1 dropped 1");
    expect_order(KVT_ORDER_ROUNDS, 8, 20, "0215", "2 ended 1 dropped 2");
    expect_order(KVT_ORDER_ROUNDS, 8, 15, "02", "2 ended 2 dropped 4");
    expect_order(KVT_ORDER_ROUNDS, 8, 3, "", "0 ended 3 dropped 6");
    expect_order(KVT_ORDER_ARRIVAL, 8, 20, "0215", "2 ended 1 dropped 2");
    kvt_trace_close(&trace);
}
END_TEST

START_TEST(test_text_has_no_times)
{
    struct kvt_order order;
    open_text("{\"session_id\":\"a\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"},"
              "{\"role\":\"assistant\",\"content\":\"y\"}]}\n");
    ck_assert_int_eq(kvt_order_build(&trace, KVT_ORDER_ARRIVAL, 8, 100, 4, &order), KVT_ERR_INVAL);
    expect_order(KVT_ORDER_ROUNDS, 8, 100, "0", "1 ended 0 dropped 0");
    kvt_trace_close(&trace);
}
END_TEST

START_TEST(test_needs_by_hand)
{
    struct kvt_order order;
    struct kvt_order_needs needs;
    open_text(three_sessions);
    ck_assert_int_eq(kvt_order_build(&trace, KVT_ORDER_ROUNDS, 8, 1000, 4, &order), KVT_OK);
    ck_assert_int_eq(kvt_order_measure(&trace, &order, 4, VOCABULARY, &needs), KVT_OK);
    ck_assert_uint_eq(needs.prompt_tokens, 8 + 12 + 9 + 40 + 44 + 16);
    ck_assert_uint_eq(needs.prompt_tokens_max, 44);
    /* a: 0 1 2 3; b: 0 9, gone after its turn; c: 20..30, gone before the last turn of a. */
    ck_assert_uint_eq(needs.distinct_pages, 4 + 1 + 11);
    /* After turn 2 of c: a's three pages and c's eleven. */
    ck_assert_uint_eq(needs.peak_live_pages, 14);
    /* 8 8 9-4 ... in the order: a1 8, b1 9-4, c1 40, a2 12-8, c2 44-40, a3 16-12. */
    ck_assert_uint_eq(needs.new_tokens, 8 + 5 + 40 + 4 + 4 + 4);
    ck_assert_uint_eq(needs.prompt_tokens_p50, 12);
    ck_assert_uint_eq(needs.new_tokens_p50, 4);
    ck_assert(needs.token_bound > 2.99 && needs.token_bound < 3.01);
    kvt_order_destroy(&order);
    kvt_trace_close(&trace);
}
END_TEST

/* ---- against brute force ---- */

#define SESSIONS 5
#define TURNS_MAX 6
#define PAGES_MAX 4096

/* Writes a random trace: prompts that grow, shrink, share their starts and diverge. */
static char *random_text(struct test_random *random)
{
    size_t room = 1 << 16;
    char *text = malloc(room);
    ck_assert_ptr_nonnull(text);
    size_t used = (size_t)snprintf(text, room, HEADER);
    for (uint32_t turn = 1; turn <= TURNS_MAX; turn++) {
        for (uint32_t s = 0; s < SESSIONS; s++) {
            if (turn > 1 && test_random_below(random, 4) == 0) {
                continue;
            }
            uint32_t blocks = test_random_below(random, 12) + turn;
            uint32_t length = blocks * 4 + test_random_below(random, 4);
            uint32_t shared = test_random_below(random, blocks + 1);
            uint32_t own = 100 * (s + 1) + 1000 * test_random_below(random, 2);
            used += (size_t)snprintf(
                text + used, room - used,
                "{\"timestamp\":%u,\"input_length\":%u,\"output_length\":1,\"hash_ids\":[", turn,
                length);
            for (uint32_t b = 0; b < blocks; b++) {
                used += (size_t)snprintf(text + used, room - used, "%s%u", b > 0 ? "," : "",
                                         b < shared ? b : own + b);
            }
            used += (size_t)snprintf(text + used, room - used,
                                     "],\"session_id\":\"%u\",\"turn\":%u}\n", s, turn);
        }
    }
    return text;
}

/* A page is named by the tokens up to its end. */
struct plain_page {
    const uint32_t *tokens;
    uint32_t count;
};

struct plain_set {
    struct plain_page pages[PAGES_MAX];
    uint32_t count;
};

static bool set_has(const struct plain_set *set, const uint32_t *tokens, uint32_t count)
{
    for (uint32_t i = 0; i < set->count; i++) {
        if (set->pages[i].count == count &&
            memcmp(set->pages[i].tokens, tokens, sizeof(*tokens) * count) == 0) {
            return true;
        }
    }
    return false;
}

static void set_add_prompt(struct plain_set *set, const uint32_t *tokens, uint32_t length,
                           uint32_t page_tokens)
{
    for (uint32_t end = page_tokens; end <= length; end += page_tokens) {
        if (!set_has(set, tokens, end)) {
            ck_assert_uint_lt(set->count, PAGES_MAX);
            set->pages[set->count++] = (struct plain_page){tokens, end};
        }
    }
}

/* The needs, from the words of the header. `dead_too` is the control: sessions that are over still
 * count. */
static struct kvt_order_needs plain_needs(const struct kvt_order *order, uint32_t **prompts,
                                          uint32_t page_tokens, bool dead_too)
{
    static struct plain_set seen;
    static struct plain_set live;
    struct kvt_order_needs needs = {0};
    uint64_t lengths[SESSIONS * TURNS_MAX];
    uint64_t news[SESSIONS * TURNS_MAX];
    seen.count = 0;
    for (uint32_t at = 0; at < order->turn_count; at++) {
        const struct kvt_trace_turn *turn = &trace.turns[order->turns[at]];
        uint32_t known = 0;
        while (known + page_tokens < turn->prompt_tokens &&
               set_has(&seen, prompts[at], known + page_tokens)) {
            known += page_tokens;
        }
        lengths[at] = turn->prompt_tokens;
        news[at] = turn->prompt_tokens - known;
        needs.prompt_tokens += turn->prompt_tokens;
        needs.new_tokens += news[at];
        set_add_prompt(&seen, prompts[at], turn->prompt_tokens, page_tokens);
        live.count = 0;
        for (uint32_t s = 0; s < trace.session_count; s++) {
            uint32_t longest = UINT32_MAX;
            bool later = false;
            for (uint32_t i = 0; i < order->turn_count; i++) {
                const struct kvt_trace_turn *other = &trace.turns[order->turns[i]];
                if (other->session != s) {
                    continue;
                }
                later = later || i >= at;
                if (i <= at &&
                    (longest == UINT32_MAX ||
                     other->prompt_tokens > trace.turns[order->turns[longest]].prompt_tokens)) {
                    longest = i;
                }
            }
            if (longest != UINT32_MAX && (later || dead_too)) {
                set_add_prompt(&live, prompts[longest],
                               trace.turns[order->turns[longest]].prompt_tokens, page_tokens);
            }
        }
        needs.peak_live_pages =
            live.count > needs.peak_live_pages ? live.count : needs.peak_live_pages;
    }
    needs.distinct_pages = seen.count;
    kvt_sort_u64(lengths, order->turn_count);
    kvt_sort_u64(news, order->turn_count);
    needs.prompt_tokens_p50 = lengths[(order->turn_count + 1) / 2 - 1];
    needs.new_tokens_p50 = news[(order->turn_count + 1) / 2 - 1];
    return needs;
}

START_TEST(test_needs_against_brute_force)
{
    struct test_random random = test_random_start("needs", 7);
    uint64_t rounds = test_scaled(40);
    uint32_t control_differed = 0;
    for (uint64_t round = 0; round < rounds; round++) {
        char *text = random_text(&random);
        open_text(text);
        struct kvt_order order;
        uint32_t page_tokens = 1 + test_random_below(&random, 9);
        enum kvt_order_kind kind =
            test_random_below(&random, 2) == 0 ? KVT_ORDER_ROUNDS : KVT_ORDER_ARRIVAL;
        ck_assert_int_eq(
            kvt_order_build(&trace, kind, 1 + test_random_below(&random, SESSIONS), 60, 4, &order),
            KVT_OK);
        uint32_t *prompts[SESSIONS * TURNS_MAX];
        for (uint32_t i = 0; i < order.turn_count; i++) {
            prompts[i] = calloc(trace.turns[order.turns[i]].prompt_tokens, sizeof(uint32_t));
            kvt_trace_prompt(&trace, order.turns[i], VOCABULARY, prompts[i]);
        }
        struct kvt_order_needs needs;
        ck_assert_int_eq(kvt_order_measure(&trace, &order, page_tokens, VOCABULARY, &needs),
                         KVT_OK);
        struct kvt_order_needs plain = plain_needs(&order, prompts, page_tokens, false);
        ck_assert_uint_eq(needs.prompt_tokens, plain.prompt_tokens);
        ck_assert_uint_eq(needs.new_tokens, plain.new_tokens);
        ck_assert_uint_eq(needs.distinct_pages, plain.distinct_pages);
        ck_assert_uint_eq(needs.peak_live_pages, plain.peak_live_pages);
        ck_assert_uint_eq(needs.prompt_tokens_p50, plain.prompt_tokens_p50);
        ck_assert_uint_eq(needs.new_tokens_p50, plain.new_tokens_p50);
        plain = plain_needs(&order, prompts, page_tokens, true);
        control_differed += plain.peak_live_pages != needs.peak_live_pages ? 1 : 0;
        for (uint32_t i = 0; i < order.turn_count; i++) {
            free(prompts[i]);
        }
        kvt_order_destroy(&order);
        kvt_trace_close(&trace);
        free(text);
    }
    ck_assert_uint_gt(control_differed, 0);
}
END_TEST

START_TEST(test_percentiles)
{
    const uint64_t one[] = {7};
    const uint64_t ten[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
    ck_assert_uint_eq(kvt_percentile(one, 1, 50), 7);
    ck_assert_uint_eq(kvt_percentile(one, 1, 99), 7);
    ck_assert_uint_eq(kvt_percentile(ten, 10, 50), 5);
    ck_assert_uint_eq(kvt_percentile(ten, 10, 51), 6);
    ck_assert_uint_eq(kvt_percentile(ten, 10, 95), 10);
    ck_assert_uint_eq(kvt_percentile(ten, 10, 0), 1);
    ck_assert_uint_eq(kvt_percentile(ten, 10, 100), 10);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {test_orders, test_text_has_no_times, test_needs_by_hand,
                                  test_needs_against_brute_force, test_percentiles};
    return tool_suite_run("order", tests, sizeof(tests) / sizeof(tests[0]), NULL, NULL);
}
