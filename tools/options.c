#include "tools/options.h"

#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "kvt_status.h"

#define HELP_COLUMNS 96
#define HELP_INDENT 28
#define RANGE_BYTES 96
#define HELP_TEXT_BYTES 512

/* ---- values ---- */

/* Digits at the start of `text`; false when there are none or they overflow. */
static bool parse_digits(const char *text, uint64_t *out_number, const char **out_end)
{
    uint64_t number = 0;
    const char *p = text;
    for (; *p >= '0' && *p <= '9'; p++) {
        uint64_t digit = (uint64_t)(*p - '0');
        if (number > (UINT64_MAX - digit) / 10) {
            return false;
        }
        number = number * 10 + digit;
    }
    if (p == text) {
        return false;
    }
    *out_number = number;
    *out_end = p;
    return true;
}

bool kvt_parse_count(const char *text, uint64_t *out_number)
{
    uint64_t number = 0;
    const char *end = NULL;
    if (!parse_digits(text, &number, &end) || *end != '\0') {
        return false;
    }
    *out_number = number;
    return true;
}

bool kvt_parse_size(const char *text, uint64_t *out_bytes)
{
    uint64_t number = 0;
    const char *end = NULL;
    if (!parse_digits(text, &number, &end)) {
        return false;
    }
    unsigned shift = 0;
    if (*end != '\0') {
        static const char letters[] = "KMGT";
        const char *letter = strchr(letters, *end);
        if (letter == NULL || end[1] != '\0') {
            return false;
        }
        shift = 10U * (unsigned)(letter - letters + 1);
    }
    if (number > UINT64_MAX >> shift) {
        return false;
    }
    *out_bytes = number << shift;
    return true;
}

bool kvt_parse_percent(const char *text, uint64_t *out_hundredths)
{
    uint64_t whole = 0;
    const char *end = NULL;
    if (!parse_digits(text, &whole, &end) || whole > UINT64_MAX / 100 - 1) {
        return false;
    }
    uint64_t hundredths = whole * 100;
    if (*end == '.') {
        uint64_t weight = 10;
        const char *p = end + 1;
        for (; *p >= '0' && *p <= '9' && weight > 0; p++) {
            hundredths += (uint64_t)(*p - '0') * weight;
            weight /= 10;
        }
        if (p == end + 1) {
            return false;
        }
        end = p;
    }
    if (*end != '\0') {
        return false;
    }
    *out_hundredths = hundredths;
    return true;
}

void kvt_size_text(uint64_t bytes, char out_text[KVT_SIZE_TEXT_BYTES])
{
    static const char letters[] = " KMGTPE";
    unsigned unit = 0;
    double value = (double)bytes;
    while (value >= 1024.0 && unit < 6) {
        value /= 1024.0;
        unit++;
    }
    if (unit == 0) {
        (void)snprintf(out_text, KVT_SIZE_TEXT_BYTES, "%" PRIu64, bytes);
    } else {
        (void)snprintf(out_text, KVT_SIZE_TEXT_BYTES, "%.1f%c", value, letters[unit]);
    }
}

/* ---- sentences ---- */

void kvt_usage_error(const char *command, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)fprintf(stderr, "kvtier %s: ", command);
    (void)vfprintf(stderr, format, args);
    (void)fprintf(stderr, " (see kvtier %s --help)\n", command);
    va_end(args);
}

void kvt_command_error(const char *command, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)fprintf(stderr, "kvtier %s: ", command);
    (void)vfprintf(stderr, format, args);
    (void)fputc('\n', stderr);
    va_end(args);
}

const char *kvt_status_sentence(int32_t status)
{
#define SENTENCE(name, value, sentence, retry)                                                     \
    case (value):                                                                                  \
        return sentence;
    switch (status) {
        KVT_STATUS_MAP(SENTENCE)
    default:
        return "for an unknown reason";
    }
#undef SENTENCE
}

/* ---- help ---- */

/* Prints words from `column` on, broken before HELP_COLUMNS and indented by `indent`. */
static void print_wrapped(const char *text, int column, int indent)
{
    const char *word = text;
    bool first = true;
    while (*word != '\0') {
        int length = (int)strcspn(word, " ");
        if (!first && column + 1 + length > HELP_COLUMNS) {
            printf("\n%*s", indent, "");
            column = indent;
            first = true;
        }
        printf("%s%.*s", first ? "" : " ", length, word);
        column += length + (first ? 0 : 1);
        first = false;
        word += length;
        word += strspn(word, " ");
    }
    (void)putchar('\n');
}

static void value_name(const struct kvt_option *option, char *out_text, size_t bytes)
{
    static const char *const names[] = {
        [KVT_OPTION_FLAG] = "",     [KVT_OPTION_COUNT] = "N",         [KVT_OPTION_POWER] = "N",
        [KVT_OPTION_SIZE] = "SIZE", [KVT_OPTION_PERCENT] = "PERCENT", [KVT_OPTION_CHOICE] = "",
        [KVT_OPTION_TEXT] = "TEXT", [KVT_OPTION_LIST] = "TEXT"};
    if (option->value != NULL || option->kind != KVT_OPTION_CHOICE) {
        (void)snprintf(out_text, bytes, "%s",
                       option->value != NULL ? option->value : names[option->kind]);
        return;
    }
    size_t used = 0;
    out_text[0] = '\0';
    for (const char *const *choice = option->choices; *choice != NULL && used < bytes; choice++) {
        int n = snprintf(out_text + used, bytes - used, "%s%s", used > 0 ? "|" : "", *choice);
        used += n > 0 ? (size_t)n : 0;
    }
}

/* A bound as its kind is written: "64", "4K", "12.50". */
static void bound_text(const struct kvt_option *option, uint64_t bound, char *out_text,
                       size_t bytes)
{
    static const char *const letters[] = {"", "K", "M", "G", "T"};
    unsigned unit = 0;
    if (option->kind == KVT_OPTION_PERCENT && bound % 100 != 0) {
        (void)snprintf(out_text, bytes, "%" PRIu64 ".%02" PRIu64, bound / 100, bound % 100);
        return;
    }
    if (option->kind == KVT_OPTION_PERCENT) {
        bound /= 100;
    }
    while (option->kind == KVT_OPTION_SIZE && bound != 0 && bound % 1024 == 0 && unit < 4) {
        bound /= 1024;
        unit++;
    }
    (void)snprintf(out_text, bytes, "%" PRIu64 "%s", bound, letters[unit]);
}

/* The range of a number: "FROM" MIN "TO" MAX "UP"; empty for what has none. */
static void range_text(const struct kvt_option *option, const char *from, const char *to,
                       const char *up, char out_text[RANGE_BYTES])
{
    char least[32], most[32];
    bool number = option->kind == KVT_OPTION_COUNT || option->kind == KVT_OPTION_POWER ||
                  option->kind == KVT_OPTION_PERCENT ||
                  (option->kind == KVT_OPTION_SIZE && option->max != 0);
    out_text[0] = '\0';
    if (!number) {
        return;
    }
    bound_text(option, option->min, least, sizeof(least));
    bound_text(option, option->max, most, sizeof(most));
    if (option->max == 0) {
        (void)snprintf(out_text, RANGE_BYTES, "%s%s or more%s", from, least, up);
    } else {
        (void)snprintf(out_text, RANGE_BYTES, "%s%s%s%s%s", from, least, to, most, up);
    }
}

static void print_help(const struct kvt_command_line *line)
{
    printf("Usage: kvtier %s [OPTION]...%s%s\n\n", line->command, line->operands != NULL ? " " : "",
           line->operands != NULL ? line->operands : "");
    print_wrapped(line->summary, 0, 0);
    printf("\nOptions:\n");
    for (uint32_t i = 0; i < line->option_count; i++) {
        const struct kvt_option *option = &line->options[i];
        char value[160];
        char left[256];
        value_name(option, value, sizeof(value));
        int n = snprintf(left, sizeof(left), "  --%s%s%s", option->name,
                         value[0] != '\0' ? " " : "", value);
        if (n >= HELP_INDENT) {
            printf("%s\n%*s", left, HELP_INDENT, "");
        } else {
            printf("%-*s", HELP_INDENT, left);
        }
        char range[RANGE_BYTES];
        char text[HELP_TEXT_BYTES];
        range_text(option, " [", "..", "]", range);
        (void)snprintf(text, sizeof(text), "%s%s", option->help, range);
        print_wrapped(text, HELP_INDENT, HELP_INDENT);
    }
    printf("%-*sthis text\n", HELP_INDENT, "  --help");
    if (line->notes != NULL) {
        printf("\n%s", line->notes);
    }
}

/* ---- signals ---- */

static const int ending_signals[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE};
#define ENDING_SIGNALS (sizeof(ending_signals) / sizeof(ending_signals[0]))

#define SENTENCE_BYTES 128

/* Made while nothing is urgent, for a handler may not print. */
struct sentence {
    char text[SENTENCE_BYTES];
    size_t bytes;
};
static struct sentence sentences[ENDING_SIGNALS];
static _Atomic(const char *) doomed_path;

static void write_sentence(const struct sentence *sentence)
{
    size_t done = 0;
    while (done < sentence->bytes) {
        ssize_t wrote = write(STDERR_FILENO, sentence->text + done, sentence->bytes - done);
        if (wrote <= 0) {
            return; /* nobody reads it, and that changes nothing */
        }
        done += (size_t)wrote;
    }
}

/* The file goes first: writing may block, and a second signal then ends the program where it
 * stands, for its action is the default one again. */
static void on_ending_signal(int number)
{
    const char *path = atomic_exchange(&doomed_path, NULL);
    if (path != NULL) {
        (void)unlink(path);
    }
    for (size_t i = 0; i < ENDING_SIGNALS; i++) {
        if (ending_signals[i] == number) {
            write_sentence(&sentences[i]);
        }
    }
    (void)raise(number);
}

void kvt_signals_arm(const char *command)
{
    static const char *const reasons[] = {"interrupted (SIGINT)", "told to end (SIGTERM)",
                                          "its terminal is gone (SIGHUP)",
                                          "nobody reads its output any more (SIGPIPE)"};
    /* Takes a progress bar off the screen. */
    const char *clear = isatty(STDERR_FILENO) == 1 ? "\r\033[K" : "";
    for (size_t i = 0; i < ENDING_SIGNALS; i++) {
        struct sigaction now;
        /* Reset and not deferred: the one that is raised ends the program, and so does another. */
        struct sigaction action = {.sa_handler = on_ending_signal,
                                   .sa_flags = (int)(SA_RESETHAND | SA_NODEFER)};
        int n = snprintf(sentences[i].text, SENTENCE_BYTES, "%skvtier %s: %s\n", clear, command,
                         reasons[i]);
        sentences[i].bytes = n > 0 && n < SENTENCE_BYTES ? (size_t)n : 0;
        (void)sigemptyset(&action.sa_mask);
        if (sigaction(ending_signals[i], NULL, &now) == 0 && now.sa_handler != SIG_IGN) {
            (void)sigaction(ending_signals[i], &action, NULL);
        }
    }
}

void kvt_signals_remove(const char *path) { atomic_store(&doomed_path, path); }

static void change_mask(int how)
{
    sigset_t set;
    (void)sigemptyset(&set);
    for (size_t i = 0; i < ENDING_SIGNALS; i++) {
        (void)sigaddset(&set, ending_signals[i]);
    }
    (void)pthread_sigmask(how, &set, NULL);
}

void kvt_signals_hold(void) { change_mask(SIG_BLOCK); }

void kvt_signals_let_go(void) { change_mask(SIG_UNBLOCK); }

/* ---- parsing ---- */

static bool in_range(const struct kvt_option *option, uint64_t number)
{
    return number >= option->min && (option->max == 0 || number <= option->max);
}

/* A number of the option's kind, in its range. */
static bool parse_number(const struct kvt_option *option, const char *value, uint64_t *out_number)
{
    uint64_t number = 0;
    bool good = option->kind == KVT_OPTION_SIZE      ? kvt_parse_size(value, &number)
                : option->kind == KVT_OPTION_PERCENT ? kvt_parse_percent(value, &number)
                                                     : kvt_parse_count(value, &number);
    if (!good || !in_range(option, number) ||
        (option->kind == KVT_OPTION_POWER && (number & (number - 1)) != 0)) {
        return false;
    }
    *out_number = number;
    return true;
}

/* Says what a number should have been; returns false. */
static bool wrong_number(const struct kvt_command_line *line, const struct kvt_option *option,
                         const char *value)
{
    static const char *const kinds[] = {[KVT_OPTION_COUNT] = "a whole number",
                                        [KVT_OPTION_POWER] = "a power of two",
                                        [KVT_OPTION_SIZE] = "a size",
                                        [KVT_OPTION_PERCENT] = "a percentage"};
    static const char *const notes[] = {
        [KVT_OPTION_COUNT] = "",
        [KVT_OPTION_POWER] = "",
        [KVT_OPTION_SIZE] = ("; write a whole number of bytes, or one followed by K, M, G or T "
                             "(powers of 1024), such as 512M"),
        [KVT_OPTION_PERCENT] = "; write a number with at most two decimals"};
    char range[RANGE_BYTES];
    range_text(option, option->max != 0 ? " from " : " of ", " to ", "", range);
    kvt_usage_error(line->command, "--%s: \"%s\" is not %s%s%s", option->name, value,
                    kinds[option->kind], range, notes[option->kind]);
    return false;
}

static bool take_choice(const struct kvt_command_line *line, const struct kvt_option *option,
                        const char *value, void *place)
{
    for (uint64_t i = 0; option->choices[i] != NULL; i++) {
        if (strcmp(option->choices[i], value) == 0) {
            *(uint64_t *)place = i;
            return true;
        }
    }
    char allowed[160];
    struct kvt_option unnamed = *option;
    unnamed.value = NULL;
    value_name(&unnamed, allowed, sizeof(allowed));
    kvt_usage_error(line->command, "--%s: \"%s\" is not one of %s", option->name, value, allowed);
    return false;
}

static bool take_listed(const struct kvt_command_line *line, const struct kvt_option *option,
                        const char *value, struct kvt_option_list *list)
{
    if (list->count == KVT_OPTION_LIST_MAX) {
        kvt_usage_error(line->command, "--%s can be given at most %u times", option->name,
                        KVT_OPTION_LIST_MAX);
        return false;
    }
    list->texts[list->count++] = value;
    return true;
}

/* Stores a value; says what is wrong and returns false when it cannot be one. */
static bool take_value(const struct kvt_command_line *line, const struct kvt_option *option,
                       const char *value, void *values)
{
    void *place = (char *)values + option->at;
    uint64_t number = 0;
    switch (option->kind) {
    case KVT_OPTION_FLAG:
        *(bool *)place = true;
        return true;
    case KVT_OPTION_COUNT:
    case KVT_OPTION_POWER:
    case KVT_OPTION_SIZE:
    case KVT_OPTION_PERCENT:
        if (!parse_number(option, value, &number)) {
            return wrong_number(line, option, value);
        }
        *(uint64_t *)place = number;
        return true;
    case KVT_OPTION_CHOICE:
        return take_choice(line, option, value, place);
    case KVT_OPTION_TEXT:
    case KVT_OPTION_LIST:
        if (value[0] == '\0') {
            kvt_usage_error(line->command, "--%s needs a value that is not empty", option->name);
            return false;
        }
        if (option->kind == KVT_OPTION_LIST) {
            return take_listed(line, option, value, place);
        }
        *(const char **)place = value;
        return true;
    }
    return false;
}

static const struct kvt_option *find_option(const struct kvt_command_line *line, const char *name,
                                            size_t name_bytes)
{
    for (uint32_t i = 0; i < line->option_count; i++) {
        const char *candidate = line->options[i].name;
        if (strlen(candidate) == name_bytes && memcmp(candidate, name, name_bytes) == 0) {
            return &line->options[i];
        }
    }
    return NULL;
}

/* Takes the option at argv[*at], and its value from the next argument where it needs to. */
static bool take_option(const struct kvt_command_line *line, int argc, char **argv, void *values,
                        int *at)
{
    const char *name = argv[*at] + 2;
    const char *equals = strchr(name, '=');
    size_t name_bytes = equals != NULL ? (size_t)(equals - name) : strlen(name);
    const struct kvt_option *option = find_option(line, name, name_bytes);
    if (option == NULL) {
        kvt_usage_error(line->command, "unknown option --%.*s", (int)name_bytes, name);
        return false;
    }
    const char *value = equals != NULL ? equals + 1 : NULL;
    if (option->kind == KVT_OPTION_FLAG) {
        if (value != NULL) {
            kvt_usage_error(line->command, "--%s takes no value", option->name);
            return false;
        }
    } else if (value == NULL) {
        /* A value that looks like an option is more likely a forgotten value; --name=VALUE says
         * it without doubt. */
        if (*at + 1 >= argc || strncmp(argv[*at + 1], "--", 2) == 0) {
            kvt_usage_error(line->command, "--%s needs a value", option->name);
            return false;
        }
        *at += 1;
        value = argv[*at];
    }
    return take_value(line, option, value, values);
}

enum kvt_parse kvt_options_parse(const struct kvt_command_line *line, int argc, char **argv,
                                 void *values, const char **out_operands,
                                 uint32_t *out_operand_count)
{
    uint32_t operand_count = 0;
    bool options_over = false;
    for (int i = 1; i < argc; i++) {
        const char *arg = argv[i];
        if (!options_over && strcmp(arg, "--") == 0) {
            options_over = true;
        } else if (!options_over && (strcmp(arg, "--help") == 0 || strcmp(arg, "-h") == 0)) {
            print_help(line);
            return KVT_PARSE_HELP;
        } else if (!options_over && strncmp(arg, "--", 2) == 0) {
            if (!take_option(line, argc, argv, values, &i)) {
                return KVT_PARSE_WRONG;
            }
        } else if (!options_over && arg[0] == '-' && arg[1] != '\0') {
            kvt_usage_error(line->command, "unknown option %s; options start with two dashes", arg);
            return KVT_PARSE_WRONG;
        } else if (operand_count == line->operands_max) {
            kvt_usage_error(line->command, "unexpected argument \"%s\"", arg);
            return KVT_PARSE_WRONG;
        } else {
            out_operands[operand_count++] = arg;
        }
    }
    if (operand_count < line->operands_min) {
        kvt_usage_error(line->command, "%s is missing",
                        line->operands != NULL ? line->operands : "an argument");
        return KVT_PARSE_WRONG;
    }
    *out_operand_count = operand_count;
    kvt_signals_arm(line->command);
    return KVT_PARSE_DONE;
}
