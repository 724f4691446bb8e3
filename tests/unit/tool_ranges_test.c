/*
 * Ranges: what a command's help says of a number is what its parser takes, to the last one, what
 * its sentence says when it refuses, and what its manual says; and the limits of replay are those
 * of the engine and the cache that it drives.
 *
 * The ranges are read from the help, so an option that is new is tested by itself; those of replay
 * and generate stand in a table, too.
 */
#include <ctype.h>
#include <inttypes.h>

#include "kvt_cache.h"
#include "tests/unit/tool_support.h"
#include "tools/commands.h"
#include "tools/options.h"
#include "tools/replay.h"

#define OPTIONS_MAX 64
#define NAME_BYTES 64
#define WORDS_BYTES 512

enum kind { KIND_COUNT, KIND_POWER, KIND_SIZE, KIND_PERCENT };

/* A number as the help describes it. */
struct ranged {
    char name[NAME_BYTES];
    enum kind kind;
    char least[NAME_BYTES], most[NAME_BYTES]; /* as it is written */
    uint64_t min, max;                        /* as the parsers of values have it */
};

static const struct command {
    const char *words; /* before the option */
    int (*run)(int, char **);
    const char *manual, *section;
} commands[] = {
    {"replay", kvt_cmd_replay, "man/kvtier-replay.1", ".SH OPTIONS"},
    {"generate", kvt_cmd_generate, "man/kvtier-generate.1", ".SH OPTIONS"},
    {"bench match", kvt_cmd_bench, "man/kvtier-bench.1", ".SH OPTIONS OF MATCH"},
    {"bench insert", kvt_cmd_bench, "man/kvtier-bench.1", ".SH OPTIONS OF INSERT"},
    {"bench nvme", kvt_cmd_bench, "man/kvtier-bench.1", ".SH OPTIONS OF NVME"},
    {"bench open", kvt_cmd_bench, "man/kvtier-bench.1", ".SH OPTIONS OF OPEN"},
};
#define COMMANDS (sizeof(commands) / sizeof(commands[0]))

/* ---- reading the help ---- */

static uint64_t value_of(enum kind kind, const char *text)
{
    uint64_t value = 0;
    bool good = kind == KIND_SIZE      ? kvt_parse_size(text, &value)
                : kind == KIND_PERCENT ? kvt_parse_percent(text, &value)
                                       : kvt_parse_count(text, &value);
    ck_assert_msg(good, "%s", text);
    return value;
}

/* The option whose entry is `entry`, terminated; false when it has no range. */
static bool read_entry(const char *entry, struct ranged *option)
{
    char value[NAME_BYTES] = "";
    memset(option, 0, sizeof(*option));
    ck_assert_int_ge(sscanf(entry, "  --%63[a-z-] %63s", option->name, value), 1);
    const char *open = strrchr(entry, '[');
    if (open == NULL ||
        sscanf(open, "[%63[0-9A-Z.]..%63[0-9A-Z.]]", option->least, option->most) < 1) {
        return false;
    }
    /* The two dots belong to neither. */
    char *dots = strstr(option->least, "..");
    ck_assert_msg(dots != NULL, "%s", entry);
    (void)snprintf(option->most, sizeof(option->most), "%s", dots + 2);
    *dots = '\0';
    option->kind = strcmp(value, "SIZE") == 0              ? KIND_SIZE
                   : strcmp(value, "PERCENT") == 0         ? KIND_PERCENT
                   : strstr(entry, "power of two") != NULL ? KIND_POWER
                                                           : KIND_COUNT;
    option->min = value_of(option->kind, option->least);
    option->max = value_of(option->kind, option->most);
    ck_assert_msg(option->min < option->max, "%s", entry);
    return true;
}

static struct tool_run run_command(const struct command *command, const char *words)
{
    char line[2 * WORDS_BYTES];
    /* `kvtier bench` gets its own name first, as every command does. */
    (void)snprintf(line, sizeof(line), "%s %s", command->words, words);
    return tool_command(command->run, line);
}

/* The numbers that a command takes. */
static size_t read_help(const struct command *command, struct ranged options[OPTIONS_MAX])
{
    struct tool_run run = run_command(command, "--help");
    ck_assert_int_eq(run.status, KVT_EXIT_DONE);
    size_t count = 0;
    char *entry = strstr(run.out, "\n  --");
    while (entry != NULL) {
        char *end = strstr(entry + 1, "\n  --");
        char *text =
            end != NULL ? strndup(entry + 1, (size_t)(end - entry - 1)) : strdup(entry + 1);
        ck_assert_ptr_nonnull(text);
        ck_assert_uint_lt(count, OPTIONS_MAX);
        count += read_entry(text, &options[count]) ? 1 : 0;
        free(text);
        entry = end;
    }
    tool_run_free(&run);
    return count;
}

/* ---- trying values ---- */

/* Taken: what is wrong is the option behind it, before any work. */
static void accept(const struct command *command, const struct ranged *option, const char *value)
{
    char words[WORDS_BYTES];
    (void)snprintf(words, sizeof(words), "--%s=%s --zzz", option->name, value);
    struct tool_run run = run_command(command, words);
    ck_assert_int_eq(run.status, KVT_EXIT_USAGE);
    ck_assert_msg(strstr(run.err, "unknown option --zzz") != NULL, "%s %s: %s", command->words,
                  words, run.err);
    tool_run_free(&run);
}

/* Refused, by a sentence with option, value and range. */
static void refuse(const struct command *command, const struct ranged *option, const char *value)
{
    char words[WORDS_BYTES], named[WORDS_BYTES], range[WORDS_BYTES];
    (void)snprintf(words, sizeof(words), "--%s=%s --zzz", option->name, value);
    (void)snprintf(named, sizeof(named), "--%s: \"%s\" is not a ", option->name, value);
    (void)snprintf(range, sizeof(range), " from %s to %s", option->least, option->most);
    struct tool_run run = run_command(command, words);
    ck_assert_int_eq(run.status, KVT_EXIT_USAGE);
    ck_assert_msg(strstr(run.err, named) != NULL, "%s %s: %s", command->words, words, run.err);
    ck_assert_msg(strstr(run.err, range) != NULL, "%s %s: %s", command->words, words, run.err);
    tool_run_free(&run);
}

/* A value as it is written without a unit. */
static void write_value(const struct ranged *option, uint64_t value, char out_text[NAME_BYTES])
{
    if (option->kind == KIND_PERCENT) {
        (void)snprintf(out_text, NAME_BYTES, "%" PRIu64 ".%02" PRIu64, value / 100, value % 100);
    } else {
        (void)snprintf(out_text, NAME_BYTES, "%" PRIu64, value);
    }
}

static void try_option(const struct command *command, const struct ranged *option)
{
    static const char *const never[] = {"",
                                        "-1",
                                        "+1",
                                        "1e1",
                                        "0x10",
                                        "one",
                                        "1K1",
                                        "1KB",
                                        "1k",
                                        "1.5K",
                                        "1.",
                                        ".5",
                                        "1,5",
                                        "5%",
                                        "1-2",
                                        "NaN",
                                        "1_0",
                                        "1..2",
                                        "99999999999999999999"};
    char text[NAME_BYTES];
    accept(command, option, option->least);
    accept(command, option, option->most);
    write_value(option, option->min, text);
    accept(command, option, text);
    write_value(option, option->max, text);
    accept(command, option, text);
    if (option->min > 0) {
        write_value(option, option->min - 1, text);
        refuse(command, option, text);
    }
    if (option->max < UINT64_MAX) {
        write_value(option, option->max + 1, text);
        refuse(command, option, text);
        refuse(command, option, option->kind == KIND_SIZE ? "16777215T" : "18446744073709551615");
    }
    if (option->kind == KIND_POWER) {
        write_value(option, option->min + 1, text);
        refuse(command, option, text);
        write_value(option, option->max - 1, text);
        refuse(command, option, text);
    }
    for (size_t i = 0; i < sizeof(never) / sizeof(never[0]); i++) {
        refuse(command, option, never[i]);
    }
    if (option->kind != KIND_SIZE) {
        refuse(command, option, "1K");
    }
    if (option->kind != KIND_PERCENT) {
        refuse(command, option, "1.5");
    } else {
        refuse(command, option, "1.234");
    }
}

/* ---- the manual ---- */

/* The manual's entry of an option, without its escapes; the caller frees it. NULL: none. */
static char *manual_entry(const struct command *command, const char *name)
{
    char *page = tool_read(command->manual, NULL);
    char *to = page;
    for (const char *from = page; *from != '\0'; from++) {
        if (*from != '\\') {
            *to++ = *from;
        }
    }
    *to = '\0';
    char wanted[WORDS_BYTES];
    (void)snprintf(wanted, sizeof(wanted), "--%.*s ", NAME_BYTES, name);
    char *section = strstr(page, command->section);
    char *end = section != NULL ? strstr(section + 1, "\n.SH ") : NULL;
    char *found = NULL;
    for (char *at = section; at != NULL && found == NULL; at = strstr(at + 1, "\n.TP\n")) {
        char *line = at + strlen("\n.TP\n");
        size_t length = strcspn(line, "\n");
        char *option = memmem(line, length, wanted, strlen(wanted));
        if (option != NULL && (end == NULL || option < end)) {
            char *next = strstr(line, "\n.");
            found = next != NULL ? strndup(line, (size_t)(next - line)) : strdup(line);
        }
    }
    free(page);
    return found;
}

static void check_manual(const struct command *command, const struct ranged *option)
{
    char range[2 * NAME_BYTES + 8];
    (void)snprintf(range, sizeof(range), "[%s..%s]", option->least, option->most);
    char *entry = manual_entry(command, option->name);
    ck_assert_msg(entry != NULL, "%s has no --%s", command->manual, option->name);
    ck_assert_msg(strstr(entry, range) != NULL, "%s, %s: %s is not in: %s", command->manual,
                  command->section, range, entry);
    free(entry);
}

START_TEST(test_what_the_help_says_is_taken)
{
    for (size_t i = 0; i < COMMANDS; i++) {
        struct ranged options[OPTIONS_MAX];
        size_t count = read_help(&commands[i], options);
        ck_assert_uint_gt(count, 0);
        for (size_t k = 0; k < count; k++) {
            try_option(&commands[i], &options[k]);
            check_manual(&commands[i], &options[k]);
        }
    }
}
END_TEST

/* ---- the table ---- */

static const struct {
    const char *command, *name, *least, *most;
} table[] = {
    {"replay", "sessions", "1", "4294967295"},
    {"replay", "concurrency", "1", "16"},
    {"replay", "block-tokens", "16", "256"},
    {"replay", "page-tokens", "16", "4096"},
    {"replay", "output-tokens", "1", "65536"},
    {"replay", "hbm", "0", "1024T"},
    {"replay", "host", "0", "1024T"},
    {"replay", "budget-percent", "0.01", "100000"},
    {"replay", "context", "2", "1048576"},
    {"replay", "threads", "0", "64"},
    {"replay", "seed", "0", "18446744073709551615"},
    {"generate", "seed", "0", "9223372036854775807"},
    {"generate", "sessions", "1", "100000"},
    {"generate", "turns", "1", "10000"},
    {"generate", "system-prompts", "1", "10000"},
    {"generate", "gap", "0", "1000000"},
    {"generate", "scale", "0.01", "1000"},
    {"generate", "sub-agents", "0", "10000"},
    {"generate", "forked", "0", "100"},
    {"generate", "resumed", "0", "100"},
    {"generate", "edits", "0", "100"},
    {"generate", "block-size", "1", "4096"},
};
#define ROWS (sizeof(table) / sizeof(table[0]))

START_TEST(test_the_table)
{
    size_t rows = 0;
    for (size_t i = 0; i < 2; i++) {
        struct ranged options[OPTIONS_MAX];
        size_t count = read_help(&commands[i], options);
        for (size_t k = 0; k < count; k++) {
            size_t row = 0;
            while (row < ROWS && (strcmp(table[row].command, commands[i].words) != 0 ||
                                  strcmp(table[row].name, options[k].name) != 0)) {
                row++;
            }
            ck_assert_msg(row < ROWS, "%s --%s is not in the table of this test", commands[i].words,
                          options[k].name);
            ck_assert_str_eq(options[k].least, table[row].least);
            ck_assert_str_eq(options[k].most, table[row].most);
            rows++;
        }
    }
    ck_assert_uint_eq(rows, ROWS);
}
END_TEST

/* What is not a number, and what two options say together. */
START_TEST(test_other_values)
{
    static const struct {
        const char *words, *part;
    } wrong[] = {
        {"--nvme=", "--nvme needs a value that is not empty"},
        {"--nvme=/x", "--nvme: \"/x\" is not DIR:SIZE"},
        {"--nvme=:8M", "--nvme: \":8M\" is not DIR:SIZE"},
        {"--nvme=/x:", "is not DIR:SIZE"},
        {"--nvme=/x:8388607", "a size from 8M to 1024T"},
        {"--nvme=/x:1025T", "a size from 8M to 1024T"},
        {"--nvme=/x:-1", "is not DIR:SIZE"},
        {"--nvme=/x;/y:1G", "a folder without semicolons"},
        {"--evict=", "--evict needs a value that is not empty"},
        {"--speed=fast", "--speed: \"fast\" is not one of max|trace"},
        {"--only=", "--only: \"\" is not one of with|without|both"},
        {"--page-tokens=4095", "--page-tokens 4095 is not a multiple of the engine's block of 16"},
        {"--page-tokens=128 --block-tokens=256", "give one from 256 to 4096"},
        {"--context=2", "--output-tokens 16 leaves no room for a prompt in --context 2"},
        {"--hbm=1", "--hbm 1 is smaller than one page"},
        {"--nvme=/x:8M --only=without", ": cannot be opened"}, /* the control: nothing wrong */
        {"--page-tokens=4096 --block-tokens=256 --only=without", ": cannot be opened"},
        {"--context=1048576 --threads=64 --concurrency=16 --only=without", ": cannot be opened"},
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        char words[WORDS_BYTES];
        (void)snprintf(words, sizeof(words), "replay /nonexistent/trace %s", wrong[i].words);
        struct tool_run run = tool_command(kvt_cmd_replay, words);
        ck_assert_msg(strstr(run.err, wrong[i].part) != NULL, "%s: %s", words, run.err);
        tool_run_free(&run);
    }
}
END_TEST

/* ---- what the engine and the cache take ---- */

static void engine_refuses(const struct kvt_ref_config *config, const char *part)
{
    char why[256] = "";
    struct kvt_ref_engine *engine = NULL;
    ck_assert_int_eq(kvt_ref_open(config, &engine, why, sizeof(why)), KVT_ERR_INVAL);
    ck_assert_msg(strstr(why, part) != NULL, "\"%s\" not in: %s", part, why);
}

/* One more than the most that replay takes is more than the engine takes. */
START_TEST(test_limits_are_the_engines)
{
    const struct kvt_ref_config good = {
        .context_tokens = 64, .block_tokens = 16, .concurrency = 1, .output_tokens = 1};
    struct kvt_ref_config config = good;
    config.threads = 65;
    engine_refuses(&config, "threads");
    config = good;
    config.context_tokens = (1u << 20) + 1;
    engine_refuses(&config, "context_tokens");
    config.context_tokens = 1;
    engine_refuses(&config, "context_tokens");
    static const uint32_t blocks[] = {8, 24, 48, 512};
    for (size_t i = 0; i < sizeof(blocks) / sizeof(blocks[0]); i++) {
        config = good;
        config.block_tokens = blocks[i];
        engine_refuses(&config, "block_tokens");
    }
    config = good;
    config.concurrency = 17;
    engine_refuses(&config, "concurrency");
    config = good;
    config.output_tokens = 64;
    engine_refuses(&config, "output_tokens");
    struct kvt_cache *cache = NULL;
    char why[256] = "";
    struct kvt_cache_config pages = {.page_tokens = 4097, .host_bytes = 1 << 20};
    ck_assert_int_eq(kvt_cache_create(&pages, &cache, why, sizeof(why)), KVT_ERR_INVAL);
    ck_assert_ptr_nonnull(strstr(why, "4096"));
    pages.page_tokens = 4096;
    ck_assert_msg(kvt_cache_create(&pages, &cache, why, sizeof(why)) == KVT_OK, "%s", why);
    ck_assert_int_eq(kvt_cache_destroy(cache), KVT_OK);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {test_what_the_help_says_is_taken, test_the_table,
                                  test_other_values, test_limits_are_the_engines};
    return tool_suite_run("ranges", tests, sizeof(tests) / sizeof(tests[0]), NULL, NULL);
}
