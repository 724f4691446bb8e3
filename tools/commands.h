/*
 * The commands of the program `kvtier`, and what their exit statuses mean.
 */
#ifndef KVT_COMMANDS_H
#define KVT_COMMANDS_H

enum kvt_exit {
    KVT_EXIT_DONE = 0,
    KVT_EXIT_BAD_NEWS = 1, /* outputs differ, conservation broken, damage found */
    KVT_EXIT_USAGE = 2,    /* the command line cannot be done by anyone */
    KVT_EXIT_FAILED = 3    /* the command line is good, but it could not be done */
};

/* Each takes the arguments after `kvtier`; argv[0] is the command's name. Results go to standard
 * output, all else to standard error. Returns an enum kvt_exit. */
int kvt_cmd_replay(int argc, char **argv);
int kvt_cmd_generate(int argc, char **argv);
int kvt_cmd_bench(int argc, char **argv);
int kvt_cmd_check(int argc, char **argv);

#endif
