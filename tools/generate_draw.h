/*
 * Seeded draws for `kvtier generate`: whole-number arithmetic only, so that a seed gives the same
 * bytes on every machine and with every libm.
 */
#ifndef KVT_GENERATE_DRAW_H
#define KVT_GENERATE_DRAW_H

#include <stdbool.h>
#include <stdint.h>

struct kvt_draw {
    uint64_t state;
};

/* Streams of one seed that differ in `stream` are independent. */
void kvt_draw_seed(struct kvt_draw *, uint64_t seed, uint64_t stream);
uint64_t kvt_draw_bits(struct kvt_draw *);
/* 0..below-1; below > 0. */
uint32_t kvt_draw_below(struct kvt_draw *, uint32_t below);
/* True with a probability of parts in whole; whole > 0. */
bool kvt_draw_chance(struct kvt_draw *, uint64_t parts, uint64_t whole);
/* Exponentially distributed around `mean`, rounded down. */
uint64_t kvt_draw_exponential(struct kvt_draw *, uint64_t mean);
/* 0..count-1, the k-th (from 1) with a weight of 1/k: Zipf with exponent 1. count > 0. */
uint32_t kvt_draw_zipf(struct kvt_draw *, uint32_t count);

/* A distribution by its quantiles: `value` lies at `ppm` millionths; between two points the
 * distribution is uniform. Points rise from ppm 0 to 1000000. */
struct kvt_quantile {
    uint32_t ppm;
    uint32_t value;
};
struct kvt_quantiles {
    const struct kvt_quantile *points;
    uint32_t count;
};
uint32_t kvt_draw_quantiles(struct kvt_draw *, const struct kvt_quantiles *);
/* The value at `ppm`, and the mean, of the distribution. */
uint32_t kvt_quantiles_at(const struct kvt_quantiles *, uint32_t ppm);
double kvt_quantiles_mean(const struct kvt_quantiles *);

#endif
