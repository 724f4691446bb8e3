/*
 * Command lines: a table of options gives both the parser and the help.
 *
 * `--name VALUE` and `--name=VALUE`; options and operands in any order; `--` ends the options; an
 * option given twice counts as given last, unless it is a list. What is wrong is one sentence on
 * standard error that names the option and says what is allowed. The help ends an option that takes
 * a number with its range in brackets, from the table: what it says is what is accepted.
 *
 * A command line that is good arms the signals that end a program: they then say so with the
 * command's name, and take the file with them that is being written (kvt_signals_remove).
 */
#ifndef KVT_OPTIONS_H
#define KVT_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum kvt_option_kind {
    KVT_OPTION_FLAG,    /* no value; the bool becomes true */
    KVT_OPTION_COUNT,   /* a whole number, min..max */
    KVT_OPTION_POWER,   /* a power of two, min..max */
    KVT_OPTION_SIZE,    /* bytes: a whole number, alone or with K, M, G or T; min..max */
    KVT_OPTION_PERCENT, /* up to two decimals; the value is hundredths of a percent, min..max */
    KVT_OPTION_CHOICE,  /* one of `choices`; the value is its index */
    KVT_OPTION_TEXT,    /* anything but nothing; borrowed from argv */
    KVT_OPTION_LIST     /* the same, and may be given again: every one counts */
};

#define KVT_OPTION_LIST_MAX 8u
struct kvt_option_list {
    const char *texts[KVT_OPTION_LIST_MAX];
    uint32_t count;
};

struct kvt_option {
    const char *name; /* without the dashes */
    enum kvt_option_kind kind;
    const char *value; /* what the help calls the value; NULL: N, SIZE, PERCENT, the choices */
    const char *help;  /* a sentence without a full stop, the default in brackets at its end */
    /* Where the value lies in the caller's struct: a bool for FLAG, a const char * for TEXT, a
     * kvt_option_list for LIST, else a uint64_t. What is not given keeps what the caller put there;
     * KVT_NOT_GIVEN is a good way to tell. */
    size_t at;
    uint64_t min, max;          /* COUNT, POWER, SIZE, PERCENT; max 0: no limit */
    const char *const *choices; /* CHOICE; NULL-terminated */
};
#define KVT_NOT_GIVEN UINT64_MAX

/* The offset of a field, which must have the type. */
/* NOLINTNEXTLINE(bugprone-macro-parentheses): types cannot stand in parentheses */
#define KVT_OPTION_AT(of, field, type) _Generic(((of *)0)->field, type : offsetof(of, field))
/* Entries of a table: name, struct, field, then what the kind needs, then the help. */
#define KVT_OPT_FLAG(n, of, field, h)                                                              \
    {                                                                                              \
        .name = (n), .kind = KVT_OPTION_FLAG, .at = KVT_OPTION_AT(of, field, bool), .help = (h)    \
    }
#define KVT_OPT_COUNT(n, of, field, least, most, h)                                                \
    {                                                                                              \
        .name = (n), .kind = KVT_OPTION_COUNT, .at = KVT_OPTION_AT(of, field, uint64_t),           \
        .min = (least), .max = (most), .help = (h)                                                 \
    }
#define KVT_OPT_POWER(n, of, field, least, most, h)                                                \
    {                                                                                              \
        .name = (n), .kind = KVT_OPTION_POWER, .at = KVT_OPTION_AT(of, field, uint64_t),           \
        .min = (least), .max = (most), .help = (h)                                                 \
    }
#define KVT_OPT_SIZE_IN(n, of, field, least, most, h)                                              \
    {                                                                                              \
        .name = (n), .kind = KVT_OPTION_SIZE, .at = KVT_OPTION_AT(of, field, uint64_t),            \
        .min = (least), .max = (most), .help = (h)                                                 \
    }
#define KVT_OPT_SIZE(n, of, field, h)                                                              \
    {                                                                                              \
        .name = (n), .kind = KVT_OPTION_SIZE, .at = KVT_OPTION_AT(of, field, uint64_t),            \
        .help = (h)                                                                                \
    }
#define KVT_OPT_PERCENT(n, of, field, least, most, h)                                              \
    {                                                                                              \
        .name = (n), .kind = KVT_OPTION_PERCENT, .at = KVT_OPTION_AT(of, field, uint64_t),         \
        .min = (least), .max = (most), .help = (h)                                                 \
    }
#define KVT_OPT_CHOICE(n, of, field, list, h)                                                      \
    {                                                                                              \
        .name = (n), .kind = KVT_OPTION_CHOICE, .at = KVT_OPTION_AT(of, field, uint64_t),          \
        .choices = (list), .help = (h)                                                             \
    }
#define KVT_OPT_TEXT(n, of, field, called, h)                                                      \
    {                                                                                              \
        .name = (n), .kind = KVT_OPTION_TEXT, .at = KVT_OPTION_AT(of, field, const char *),        \
        .value = (called), .help = (h)                                                             \
    }

#define KVT_OPT_LIST(n, of, field, called, h)                                                      \
    {                                                                                              \
        .name = (n), .kind = KVT_OPTION_LIST,                                                      \
        .at = KVT_OPTION_AT(of, field, struct kvt_option_list), .value = (called), .help = (h)     \
    }

/* What a command takes. */
struct kvt_command_line {
    const char *command;  /* "replay" */
    const char *operands; /* for the usage line: "TRACE"; NULL: none */
    const char *summary;  /* a paragraph */
    const char *notes;    /* printed after the options, lines as they are; may be NULL */
    const struct kvt_option *options;
    uint32_t option_count;
    uint32_t operands_min, operands_max;
};

enum kvt_parse {
    KVT_PARSE_DONE,
    KVT_PARSE_HELP, /* help was asked for and printed: exit with 0 */
    KVT_PARSE_WRONG /* a sentence was printed: exit with 2 */
};

/* argv[0] is the command's name; `values` is the struct that the table's offsets are of; operands
 * has room for operands_max pointers into argv. */
enum kvt_parse kvt_options_parse(const struct kvt_command_line *, int argc, char **argv,
                                 void *values, const char **out_operands,
                                 uint32_t *out_operand_count);

/* Prints "kvtier COMMAND: MESSAGE (see kvtier COMMAND --help)" to standard error. */
void kvt_usage_error(const char *command, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* The same without the pointer to the help, for what the help cannot help with. */
void kvt_command_error(const char *command, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The sentence of a status, for "...: the engine failed: SENTENCE". */
const char *kvt_status_sentence(int32_t status);

/* The three value parsers, strict: no sign, no space, no overflow. False: not such a value. */
bool kvt_parse_count(const char *text, uint64_t *out_number);
bool kvt_parse_size(const char *text, uint64_t *out_bytes);
bool kvt_parse_percent(const char *text, uint64_t *out_hundredths);

/* ---- signals ---- */

/* From now on SIGINT, SIGTERM, SIGHUP and SIGPIPE remove the file that kvt_signals_remove() named,
 * write one sentence with the command's name and end the program as they would have without us, so
 * that whoever waits for it sees which one it was. A second one ends it at once. A signal that the
 * program was told to ignore stays ignored. */
void kvt_signals_arm(const char *command);
/* The file to remove then; borrowed until the next call; NULL: none. */
void kvt_signals_remove(const char *path);
/* Keeps these signals away while a file and what is to be done with it change together. */
void kvt_signals_hold(void);
void kvt_signals_let_go(void);

/* "512", "1.5K", "20.0M": for people to read. */
#define KVT_SIZE_TEXT_BYTES 32
void kvt_size_text(uint64_t bytes, char out_text[KVT_SIZE_TEXT_BYTES]);

#endif
