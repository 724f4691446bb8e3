#include "tools/generate_draw.h"

/* The step and the mixing of a counter-based generator: the state only counts. */
static uint64_t mix(uint64_t x)
{
    x ^= x >> 30;
    x *= UINT64_C(0xbf58476d1ce4e5b9);
    x ^= x >> 27;
    x *= UINT64_C(0x94d049bb133111eb);
    x ^= x >> 31;
    return x;
}

void kvt_draw_seed(struct kvt_draw *draw, uint64_t seed, uint64_t stream)
{
    draw->state = mix(mix(seed) + stream * UINT64_C(0x9e3779b97f4a7c15));
}

uint64_t kvt_draw_bits(struct kvt_draw *draw)
{
    draw->state += UINT64_C(0x9e3779b97f4a7c15);
    return mix(draw->state);
}

uint32_t kvt_draw_below(struct kvt_draw *draw, uint32_t below)
{
    /* The bias of a 32-bit product is at most below / 2^32, which no distribution here can show. */
    return (uint32_t)(((kvt_draw_bits(draw) >> 32) * below) >> 32);
}

bool kvt_draw_chance(struct kvt_draw *draw, uint64_t parts, uint64_t whole)
{
    return kvt_draw_bits(draw) % whole < parts;
}

/*
 * Von Neumann's way, which compares uniform numbers and needs no logarithm. Draw u1, then u2, u3
 * and so on for as long as they fall. Given u1, a run of odd length has probability exp(-u1): then
 * u1 is the fraction of the answer. A run of even length adds one whole mean and starts again.
 */
uint64_t kvt_draw_exponential(struct kvt_draw *draw, uint64_t mean)
{
    uint64_t wholes = 0;
    for (;;) {
        uint64_t first = kvt_draw_bits(draw) >> 32;
        uint64_t last = first;
        uint32_t length = 1;
        for (;;) {
            uint64_t next = kvt_draw_bits(draw) >> 32;
            if (next >= last) {
                break;
            }
            last = next;
            length++;
        }
        if (length % 2 == 1) {
            return wholes * mean + ((first * mean) >> 32);
        }
        wholes++;
    }
}

uint32_t kvt_draw_zipf(struct kvt_draw *draw, uint32_t count)
{
    const uint64_t one = UINT64_C(1) << 32;
    uint64_t total = one;
    for (uint32_t k = 2; k <= count; k++) {
        total += one / k;
    }
    uint64_t at = kvt_draw_bits(draw) % total;
    for (uint32_t k = 1; k < count; k++) {
        if (at < one / k) {
            return k - 1;
        }
        at -= one / k;
    }
    return count - 1;
}

uint32_t kvt_quantiles_at(const struct kvt_quantiles *quantiles, uint32_t ppm)
{
    for (uint32_t i = 1; i < quantiles->count; i++) {
        const struct kvt_quantile *low = &quantiles->points[i - 1];
        const struct kvt_quantile *high = &quantiles->points[i];
        if (ppm <= high->ppm) {
            uint64_t span = high->value - low->value;
            return low->value + (uint32_t)(span * (ppm - low->ppm) / (high->ppm - low->ppm));
        }
    }
    return quantiles->points[quantiles->count - 1].value;
}

uint32_t kvt_draw_quantiles(struct kvt_draw *draw, const struct kvt_quantiles *quantiles)
{
    return kvt_quantiles_at(quantiles, kvt_draw_below(draw, 1000000));
}

double kvt_quantiles_mean(const struct kvt_quantiles *quantiles)
{
    double sum = 0.0;
    for (uint32_t i = 1; i < quantiles->count; i++) {
        const struct kvt_quantile *low = &quantiles->points[i - 1];
        const struct kvt_quantile *high = &quantiles->points[i];
        sum += (double)(high->ppm - low->ppm) * ((double)low->value + (double)high->value) / 2.0;
    }
    return sum / 1e6;
}
