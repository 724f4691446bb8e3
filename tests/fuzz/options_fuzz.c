/*
 * Fuzzes the parsers of option values: what they accept must be what the text says.
 * Built with libFuzzer by `make fuzz FUZZ=options`.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/fuzz.h"
#include "tools/options.h"

#define TEXT_BYTES 128

/* A count that was accepted prints as the text, leading zeros apart. */
static void check_count(const char *text)
{
    uint64_t number = 0;
    if (!kvt_parse_count(text, &number)) {
        return;
    }
    char again[TEXT_BYTES];
    (void)snprintf(again, sizeof(again), "%llu", (unsigned long long)number);
    const char *digits = text;
    while (digits[0] == '0' && digits[1] != '\0') {
        digits++;
    }
    if (strcmp(digits, again) != 0) {
        abort();
    }
}

/* NOLINTNEXTLINE(readability-identifier-naming) */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char text[TEXT_BYTES];
    if (size >= sizeof(text)) {
        return 0;
    }
    memcpy(text, data, size);
    text[size] = '\0';
    check_count(text);
    uint64_t bytes = 0, hundredths = 0;
    if (kvt_parse_size(text, &bytes) && (text[0] < '0' || text[0] > '9')) {
        abort();
    }
    if (kvt_parse_percent(text, &hundredths) && (text[0] < '0' || text[0] > '9')) {
        abort();
    }
    return 0;
}
