/*
 * fio, run as a program, for comparing with.
 */
#ifndef KVT_BENCH_FIO_H
#define KVT_BENCH_FIO_H

#include <stdbool.h>
#include <stdint.h>

struct kvt_fio_job {
    const char *command; /* for messages */
    const char *file;
    bool write;
    bool direct;
    uint64_t file_bytes;
    uint64_t io_bytes; /* moved in all */
    uint64_t block_bytes;
    uint32_t depth;
    uint64_t sync_bytes; /* writes: between two fdatasyncs; 0: one at the end */
    /* A second file that is written meanwhile, at most so fast; NULL: none. */
    const char *beside_file;
    uint64_t beside_file_bytes, beside_block_bytes, beside_bytes_per_s;
    uint32_t beside_depth;
};

struct kvt_fio_result {
    double gbps; /* of the job */
    double p99_ns;
    double beside_gbps;
};

/* Is fio there? A sentence is printed when not. */
bool kvt_fio_is_there(const char *command);
/* False: a sentence was printed. */
bool kvt_fio_run(const struct kvt_fio_job *job, struct kvt_fio_result *out_result);

#endif
