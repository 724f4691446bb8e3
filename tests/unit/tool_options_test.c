/* The option parser: every kind of value, what is refused and how, and the help. */
#include "tools/options.h"

#include "tests/unit/tool_support.h"

struct values {
    bool fast;
    uint64_t count, size, percent, choice, power, budget;
    const char *text;
};

static const char *const colours[] = {"red", "green", "blue", NULL};

static const struct kvt_option options[] = {
    KVT_OPT_FLAG("fast", struct values, fast, "go fast"),
    KVT_OPT_COUNT("count", struct values, count, 2, 9, "how many (3)"),
    KVT_OPT_SIZE("size", struct values, size, "how large"),
    KVT_OPT_PERCENT("part", struct values, percent, 50, 20000, "how much (100)"),
    KVT_OPT_CHOICE("colour", struct values, choice, colours, "which"),
    KVT_OPT_POWER("power", struct values, power, 16, 256, "a power of two (16)"),
    KVT_OPT_SIZE_IN("budget", struct values, budget, 4096, UINT64_C(3) << 40, "how much of it"),
    KVT_OPT_TEXT("name", struct values, text, "NAME", "what it is called"),
};

static const struct kvt_command_line line = {
    .command = "try",
    .operands = "FILE",
    .summary = "Tries things.",
    .notes = "A note.\n",
    .options = options,
    .option_count = sizeof(options) / sizeof(options[0]),
    .operands_min = 1,
    .operands_max = 2,
};

static struct values values;
static const char *operands[2];
static uint32_t operand_count;
static enum kvt_parse parsed;

static int try_command(int argc, char **argv)
{
    values = (struct values){.count = 3, .size = KVT_NOT_GIVEN, .percent = 10000, .choice = 99};
    operand_count = 77;
    parsed = kvt_options_parse(&line, argc, argv, &values, operands, &operand_count);
    return 0;
}

/* Parses, and frees what it printed but for the checks made here. */
static void accept(const char *words)
{
    struct tool_run run = tool_command(try_command, words);
    ck_assert_msg(parsed == KVT_PARSE_DONE, "%s: %s", words, run.err);
    ck_assert_str_eq(run.out, "");
    ck_assert_str_eq(run.err, "");
    tool_run_free(&run);
}

static void refuse(const char *words, const char *part)
{
    struct tool_run run = tool_command(try_command, words);
    ck_assert_msg(parsed == KVT_PARSE_WRONG, "%s", words);
    ck_assert_msg(strstr(run.err, part) != NULL, "\"%s\" not in: %s", part, run.err);
    ck_assert_msg(strstr(run.err, "kvtier try --help") != NULL, "%s", run.err);
    ck_assert_str_eq(run.out, "");
    /* One sentence, one line. */
    ck_assert_ptr_eq(strchr(run.err, '\n') + 1, run.err + strlen(run.err));
    ck_assert_uint_eq(operand_count, 77);
    tool_run_free(&run);
}

START_TEST(test_values_are_taken)
{
    accept("try one");
    ck_assert(!values.fast);
    ck_assert_uint_eq(values.count, 3);
    ck_assert_uint_eq(values.size, KVT_NOT_GIVEN);
    ck_assert_uint_eq(operand_count, 1);
    ck_assert_ptr_null(values.text);
    accept("try --count 9 one --fast --size=4K two --part 12.5 --colour blue --name=--odd");
    ck_assert(values.fast);
    ck_assert_uint_eq(values.count, 9);
    ck_assert_uint_eq(values.size, 4096);
    ck_assert_uint_eq(values.percent, 1250);
    ck_assert_uint_eq(values.choice, 2);
    ck_assert_str_eq(values.text, "--odd");
    ck_assert_uint_eq(operand_count, 2);
    ck_assert_str_eq(operands[0], "one");
    ck_assert_str_eq(operands[1], "two");
    accept("try one --power 64 --budget 3T");
    ck_assert_uint_eq(values.power, 64);
    ck_assert_uint_eq(values.budget, UINT64_C(3) << 40);
    accept("try --count 4 --count 5 -- --fast");
    ck_assert_uint_eq(values.count, 5);
    ck_assert(!values.fast);
    ck_assert_str_eq(operands[0], "--fast");
    accept("try -");
    ck_assert_str_eq(operands[0], "-");
}
END_TEST

START_TEST(test_wrong_words_are_refused)
{
    refuse("try", "FILE is missing");
    refuse("try a b c", "unexpected argument \"c\"");
    refuse("try a --nothing", "unknown option --nothing");
    refuse("try a --nothing=3", "unknown option --nothing");
    refuse("try a -f", "unknown option -f");
    refuse("try a --fast=yes", "--fast takes no value");
    refuse("try a --count", "--count needs a value");
    refuse("try a --count --fast", "--count needs a value");
    refuse("try a --name=", "--name needs a value");
    refuse("try a --count 1", "--count: \"1\" is not a whole number from 2 to 9");
    refuse("try a --count 10", "from 2 to 9");
    refuse("try a --count 3x", "from 2 to 9");
    refuse("try a --count -3", "from 2 to 9");
    refuse("try a --count +3", "from 2 to 9");
    refuse("try a --size 10GB", "--size: \"10GB\" is not a size");
    refuse("try a --size 1X", "K, M, G or T");
    refuse("try a --part 0.49", "--part: \"0.49\" is not a percentage");
    refuse("try a --part 200.01", "from 0.50 to 200");
    refuse("try a --power 48", "--power: \"48\" is not a power of two from 16 to 256");
    refuse("try a --power 8", "from 16 to 256");
    refuse("try a --power 512", "from 16 to 256");
    refuse("try a --budget 4095", "--budget: \"4095\" is not a size from 4K to 3T; write");
    refuse("try a --budget 4T", "from 4K to 3T");
    refuse("try a --colour pink", "--colour: \"pink\" is not one of red|green|blue");
    refuse("try a --counts 3", "unknown option --counts");
    refuse("try a --coun 3", "unknown option --coun");
}
END_TEST

START_TEST(test_help_lists_everything)
{
    struct tool_run run = tool_command(try_command, "try --count nonsense-is-not-reached --help");
    /* Wrong values before --help are still wrong. */
    ck_assert_int_eq(parsed, KVT_PARSE_WRONG);
    tool_run_free(&run);
    run = tool_command(try_command, "try --help");
    ck_assert_int_eq(parsed, KVT_PARSE_HELP);
    ck_assert_str_eq(run.err, "");
    static const char *const parts[] = {"Usage: kvtier try [OPTION]... FILE\n",
                                        "Tries things.",
                                        "--fast",
                                        "--count N",
                                        "--size SIZE",
                                        "--part PERCENT",
                                        "--colour red|green|blue",
                                        "--name NAME",
                                        "how many (3) [2..9]",
                                        "how much (100) [0.50..200]",
                                        "a power of two (16) [16..256]",
                                        "how much of it [4K..3T]",
                                        "how large\n",
                                        "--help",
                                        "A note.\n"};
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        ck_assert_msg(strstr(run.out, parts[i]) != NULL, "%s not in:\n%s", parts[i], run.out);
    }
    tool_run_free(&run);
}
END_TEST

START_TEST(test_numbers_are_strict)
{
    uint64_t n = 5;
    ck_assert(kvt_parse_count("0", &n) && n == 0);
    ck_assert(kvt_parse_count("18446744073709551615", &n) && n == UINT64_MAX);
    ck_assert(!kvt_parse_count("18446744073709551616", &n));
    static const char *const not_counts[] = {"", " 1", "1 ", "-1", "+1", "1.0", "0x10", "1e3", "K"};
    for (size_t i = 0; i < sizeof(not_counts) / sizeof(not_counts[0]); i++) {
        ck_assert_msg(!kvt_parse_count(not_counts[i], &n), "%s", not_counts[i]);
        ck_assert_msg(!kvt_parse_size(not_counts[i], &n), "%s", not_counts[i]);
    }
    ck_assert(kvt_parse_size("7", &n) && n == 7);
    ck_assert(kvt_parse_size("3K", &n) && n == UINT64_C(3) << 10);
    ck_assert(kvt_parse_size("3M", &n) && n == UINT64_C(3) << 20);
    ck_assert(kvt_parse_size("3G", &n) && n == UINT64_C(3) << 30);
    ck_assert(kvt_parse_size("16777215T", &n) && n == UINT64_C(16777215) << 40);
    static const char *const not_sizes[] = {"16777216T", "10 GB", "10GB", "1k",
                                            "1X",        "1KB",   "1.5G"};
    for (size_t i = 0; i < sizeof(not_sizes) / sizeof(not_sizes[0]); i++) {
        ck_assert_msg(!kvt_parse_size(not_sizes[i], &n), "%s", not_sizes[i]);
    }
    ck_assert(kvt_parse_percent("100", &n) && n == 10000);
    ck_assert(kvt_parse_percent("2.8", &n) && n == 280);
    ck_assert(kvt_parse_percent("0.05", &n) && n == 5);
    static const char *const not_percents[] = {"",   ".5", "5.",  "1.234",
                                               "5%", "-1", "1,5", "999999999999999999999"};
    for (size_t i = 0; i < sizeof(not_percents) / sizeof(not_percents[0]); i++) {
        ck_assert_msg(!kvt_parse_percent(not_percents[i], &n), "%s", not_percents[i]);
    }
    ck_assert_uint_eq(n, 5);
}
END_TEST

START_TEST(test_sizes_are_readable)
{
    char text[KVT_SIZE_TEXT_BYTES];
    kvt_size_text(0, text);
    ck_assert_str_eq(text, "0");
    kvt_size_text(1023, text);
    ck_assert_str_eq(text, "1023");
    kvt_size_text(1536, text);
    ck_assert_str_eq(text, "1.5K");
    kvt_size_text(UINT64_C(20) << 30, text);
    ck_assert_str_eq(text, "20.0G");
    kvt_size_text(UINT64_MAX, text);
    ck_assert_str_eq(text, "16.0E");
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {test_values_are_taken, test_wrong_words_are_refused,
                                  test_help_lists_everything, test_numbers_are_strict,
                                  test_sizes_are_readable};
    return tool_suite_run("options", tests, sizeof(tests) / sizeof(tests[0]), NULL, NULL);
}
