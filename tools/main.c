/*
 * kvtier: one program, a table of commands.
 */
#include <stdio.h>
#include <string.h>

#include "kvt_engine.h"
#include "tools/commands.h"

#ifndef KVT_VERSION
#define KVT_VERSION "unknown"
#endif

struct command {
    const char *name;
    const char *summary;
    int (*run)(int argc, char **argv);
};

static const struct command commands[] = {
    {"replay", "answer a trace with an engine, without and with the cache, and compare",
     kvt_cmd_replay},
    {"generate", "make a multi-turn agent trace", kvt_cmd_generate},
    {"check", "look at the stores of the nvme tier, repair them on request", kvt_cmd_check},
    {"bench", "measure a part of the cache", kvt_cmd_bench},
};
#define COMMAND_COUNT (sizeof(commands) / sizeof(commands[0]))

static void print_usage(FILE *out)
{
    (void)fprintf(out, "Usage: kvtier COMMAND [OPTION]...\n\n"
                       "A tiered KV and prefix cache for inference engines.\n\n"
                       "Commands:\n");
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        (void)fprintf(out, "  %-10s %s\n", commands[i].name, commands[i].summary);
    }
    (void)fprintf(out,
                  "\nkvtier COMMAND --help says what a command takes; kvtier --version which this "
                  "is.\nExit status: 0 done, 1 the answer is bad news, 2 wrong usage, 3 could not "
                  "do it.\n");
}

static int dispatch(int argc, char **argv)
{
    if (argc < 2) {
        print_usage(stderr);
        return KVT_EXIT_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        print_usage(stdout);
        return KVT_EXIT_DONE;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("kvtier %s (plug-in ABI %d.%d)\n", KVT_VERSION, KVT_ABI_MAJOR, KVT_ABI_MINOR);
        return KVT_EXIT_DONE;
    }
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        if (strcmp(argv[1], commands[i].name) == 0) {
            return commands[i].run(argc - 1, argv + 1);
        }
    }
    (void)fprintf(stderr, "kvtier: unknown %s %s (see kvtier --help)\n",
                  argv[1][0] == '-' ? "option" : "command", argv[1]);
    return KVT_EXIT_USAGE;
}

int main(int argc, char **argv)
{
    int status = dispatch(argc, argv);
    /* A result that did not reach its reader is not a result. */
    if (fflush(stdout) != 0 || ferror(stdout) != 0) {
        (void)fprintf(stderr, "kvtier: writing to standard output failed\n");
        return KVT_EXIT_FAILED;
    }
    return status;
}
