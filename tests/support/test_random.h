/* Random numbers for tests: the same seed, the same numbers, on every machine. */
#ifndef KVT_TEST_RANDOM_H
#define KVT_TEST_RANDOM_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

struct test_random {
    uint64_t state;
};

/* A Weyl sequence, mixed by two multiplications. */
static inline uint64_t test_random_u64(struct test_random *random)
{
    uint64_t x = random->state += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 32)) * UINT64_C(0xd6e8feb86659fd93);
    x = (x ^ (x >> 32)) * UINT64_C(0xd6e8feb86659fd93);
    return x ^ (x >> 32);
}

/* 0 .. below - 1; below > 0. */
static inline uint32_t test_random_below(struct test_random *random, uint32_t below)
{
    return (uint32_t)(((test_random_u64(random) >> 32) * below) >> 32);
}

static inline uint64_t test_env_u64(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text != NULL && *text != '\0' ? strtoull(text, NULL, 0) : otherwise;
}

/* KVT_SEED, or the seed given here; printed, so that a failure can be repeated. */
static inline struct test_random test_random_start(const char *what, uint64_t seed)
{
    seed = test_env_u64("KVT_SEED", seed);
    (void)printf("%s: KVT_SEED=%llu\n", what, (unsigned long long)seed);
    (void)fflush(stdout);
    return (struct test_random){seed};
}

/* A count of repetitions, divided by KVT_TEST_SCALE (slow variants set it). */
static inline uint64_t test_scaled(uint64_t count)
{
    uint64_t scale = test_env_u64("KVT_TEST_SCALE", 1);
    count /= scale > 0 ? scale : 1;
    return count > 0 ? count : 1;
}

#endif
