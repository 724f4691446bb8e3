/*
 * kvt_conformance [--stop] [--open URI] PLUGIN.so - does it keep the contract of kvt_engine.h?
 *
 * Prints a line a clause, and on the last line the verdict, or the first broken clause; with --stop
 * nothing after that is tried. Exit status: 0 all kept, 1 a clause is broken, 2 usage, 3 the
 * plug-in could not be loaded. To compile it, kvt_engine.h and kvt_status.h are enough:
 *
 *   cc -std=c11 -D_GNU_SOURCE -pthread -I. -Icache -Iengine_plugin tests/conformance/[a-z]*.c -ldl
 */
#include <dlfcn.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/conformance/conf.h"

#define CLAUSE_SECONDS_MAX 60u
#define REASON_BYTES 400u
enum { EXIT_KEPT = 0, EXIT_BROKEN = 1, EXIT_USAGE = 2, EXIT_LOAD = 3 };
/* How a clause's process leaves. */
enum { CLAUSE_BROKEN = 41, CLAUSE_SKIPPED = 42 };

static int reason_pipe = -1; /* of the clause's process: where its reason goes */

static void leave(int status, const char *reason)
{
    ssize_t written = write(reason_pipe, reason, strlen(reason));
    _exit(written >= 0 ? status : CLAUSE_BROKEN);
}

void kvt_conf_fail(int line, const char *format, ...)
{
    char text[REASON_BYTES - 32];
    char reason[REASON_BYTES];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    (void)snprintf(reason, sizeof(reason), "%s (line %d)", text, line);
    leave(CLAUSE_BROKEN, reason);
    abort();
}

void kvt_conf_skip(const char *reason)
{
    leave(CLAUSE_SKIPPED, reason);
    abort();
}

static const struct kvt_conf_clause *const groups[] = {
    kvt_conf_open_clauses,  kvt_conf_size_clauses, kvt_conf_lease_clauses, kvt_conf_data_clauses,
    kvt_conf_order_clauses, kvt_conf_job_clauses,  kvt_conf_fault_clauses, kvt_conf_limit_clauses,
    kvt_conf_stats_clauses, kvt_conf_life_clauses};

static const kvt_plugin_entry *load(const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        (void)printf("cannot load: %s\n", dlerror());
        return NULL;
    }
    const kvt_plugin_entry *entry = dlsym(library, KVT_PLUGIN_ENTRY_NAME);
    if (entry == NULL) {
        (void)printf("cannot load: %s exports no %s: it is no plug-in of ABI version %d\n", path,
                     KVT_PLUGIN_ENTRY_NAME, KVT_ABI_MAJOR);
    }
    return entry;
}

/* In the clause's process. It leaves by exit(), so that leak checkers see it. */
static void run_here(const struct kvt_conf_clause *clause, const kvt_plugin_entry *entry,
                     const char *uri)
{
    static struct kvt_conf conf;
    (void)alarm(CLAUSE_SECONDS_MAX);
    kvt_conf_init(&conf, entry, uri);
    clause->run(&conf);
    kvt_conf_balanced(&conf);
    exit(0);
}

static void explain(int status, char reason[REASON_BYTES])
{
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM) {
        (void)snprintf(reason, REASON_BYTES, "not done after %u s", CLAUSE_SECONDS_MAX);
    } else if (WIFSIGNALED(status)) {
        (void)snprintf(reason, REASON_BYTES, "ended by signal %d", WTERMSIG(status));
    } else if (reason[0] == '\0') {
        (void)snprintf(reason, REASON_BYTES, "ended with exit status %d", WEXITSTATUS(status));
    }
}

/* KVT_CLAUSE_x as exit statuses above, 0 when kept; -1 when no process could be had. */
static int run_clause(const struct kvt_conf_clause *clause, const kvt_plugin_entry *entry,
                      const char *uri, char reason[REASON_BYTES])
{
    int ends[2];
    int status = 0;
    size_t got = 0;
    (void)fflush(stdout);
    if (pipe(ends) != 0) {
        return -1;
    }
    pid_t child = fork();
    if (child < 0) {
        (void)close(ends[0]);
        (void)close(ends[1]);
        return -1;
    }
    if (child == 0) {
        (void)close(ends[0]);
        reason_pipe = ends[1];
        run_here(clause, entry, uri);
    }
    (void)close(ends[1]);
    for (ssize_t n = 1; n > 0 && got + 1 < REASON_BYTES; got += n > 0 ? (size_t)n : 0) {
        n = read(ends[0], reason + got, REASON_BYTES - 1 - got);
    }
    reason[got] = '\0';
    (void)close(ends[0]);
    if (waitpid(child, &status, 0) != child) {
        return -1;
    }
    if (WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == CLAUSE_SKIPPED)) {
        return WEXITSTATUS(status);
    }
    explain(status, reason);
    return CLAUSE_BROKEN;
}

static int run_all(const kvt_plugin_entry *entry, const char *uri, bool stop)
{
    unsigned kept = 0, broken = 0, skipped = 0;
    char first[REASON_BYTES + 128] = "";
    for (size_t i = 0; i < sizeof(groups) / sizeof(groups[0]); i++) {
        for (const struct kvt_conf_clause *clause = groups[i];
             clause->id != NULL && !(stop && broken > 0); clause++) {
            char reason[REASON_BYTES] = "";
            int outcome = run_clause(clause, entry, uri, reason);
            if (outcome == 0) {
                kept++;
                (void)printf("%-24s %-62s PASS\n", clause->id, clause->what);
                continue;
            }
            skipped += outcome == CLAUSE_SKIPPED;
            broken += outcome != CLAUSE_SKIPPED;
            (void)printf("%-24s %-62s %s %s\n", clause->id, clause->what,
                         outcome == CLAUSE_SKIPPED ? "SKIP" : "FAIL", reason);
            if (outcome != CLAUSE_SKIPPED && first[0] == '\0') {
                (void)snprintf(first, sizeof(first), "%s: %s", clause->id, reason);
            }
        }
    }
    (void)printf("%u clauses kept, %u broken, %u skipped\n", kept, broken, skipped);
    if (broken > 0) {
        (void)printf("first broken clause: %s\n", first);
    }
    return broken > 0 ? EXIT_BROKEN : EXIT_KEPT;
}

int main(int argc, char **argv)
{
    const char *uri = "embedded:";
    const char *path = NULL;
    bool stop = false;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--open") == 0 && i + 1 < argc) {
            uri = argv[++i];
        } else if (strcmp(argv[i], "--stop") == 0) {
            stop = true;
        } else if (argv[i][0] != '-' && path == NULL) {
            path = argv[i];
        } else {
            path = NULL;
            break;
        }
    }
    if (path == NULL) {
        (void)fprintf(stderr, "usage: kvt_conformance [--stop] [--open URI] PLUGIN.so\n");
        return EXIT_USAGE;
    }
    const kvt_plugin_entry *entry = load(path);
    return entry != NULL ? run_all(entry, uri, stop) : EXIT_LOAD;
}
