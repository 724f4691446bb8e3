/*
 * The file that `kvtier generate` writes: whole, or not there.
 */
#ifndef KVT_GENERATE_FILE_H
#define KVT_GENERATE_FILE_H

#include <stdbool.h>
#include <stdint.h>

/* Room for a reason why a file could not be written. */
#define KVT_GENERATE_WHY_BYTES 256

/* Writes the bytes to a file beside `path` and gives it that name when they are all on the drive;
 * what fails, or is ended by a signal, leaves nothing and leaves an older file as it was. What is
 * no regular file (a pipe, a device, a descriptor's name below /dev or /proc) is written to as it
 * is. NULL is standard output. False: `why` holds the reason. */
bool kvt_generate_write(const char *path, bool gzip, const char *text, uint64_t bytes, char *why,
                        uint64_t why_bytes);

#endif
