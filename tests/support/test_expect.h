/*
 * An assertion for hot loops: Check's own write a record to a file each time they hold, which makes
 * a million of them take minutes.
 */
#ifndef KVT_TEST_EXPECT_H
#define KVT_TEST_EXPECT_H

#include <check.h>

#define EXPECT(cond)                                                                               \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            ck_abort_msg("not so: %s", #cond);                                                     \
        }                                                                                          \
    } while (0)

#endif
