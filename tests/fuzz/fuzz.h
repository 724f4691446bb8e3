/* libFuzzer's entry point; each fuzz program defines it. */
#ifndef KVT_FUZZ_H
#define KVT_FUZZ_H

#include <stddef.h>
#include <stdint.h>

/* NOLINTNEXTLINE(readability-identifier-naming): the name is libFuzzer's */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
