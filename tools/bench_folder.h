/*
 * A folder that a benchmark makes, fills and removes: `kvtier-bench` in the one that it was given.
 */
#ifndef KVT_BENCH_FOLDER_H
#define KVT_BENCH_FOLDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KVT_BENCH_PATH_BYTES 4096u
#define KVT_BENCH_NAME_BYTES 64u /* of the longest name in it */

struct kvt_bench_folder {
    char path[KVT_BENCH_PATH_BYTES - KVT_BENCH_NAME_BYTES];
    char store[KVT_BENCH_PATH_BYTES];   /* the store's folder, to be made by who uses it */
    char file[KVT_BENCH_PATH_BYTES];    /* a file to compare with */
    char another[KVT_BENCH_PATH_BYTES]; /* and another one */
    bool keep;
};

/* False: a sentence was printed. What an earlier run left there goes; anything else is refused. */
bool kvt_bench_folder_open(struct kvt_bench_folder *, const char *command, const char *in,
                           bool keep);
/* Removes what is known to be ours, unless it is to be kept. */
void kvt_bench_folder_close(struct kvt_bench_folder *, const char *command);

/* The middle one; sorts. 0 of none. */
double kvt_bench_median(double *values, uint32_t count);
/* Prints, and frees; an enum kvt_exit. */
struct json_t;
int kvt_bench_print_json(struct json_t *, const char *command);

#endif
