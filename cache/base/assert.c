/* What happens when one of our own invariants does not hold. */
#include "cache/base/base.h"

#include <stdio.h>
#include <stdlib.h>

void kvt_assert_failed(const char *cond, const char *file, int line, const char *func)
{
    /* One call, so that the line stays whole beside other threads' output. */
    (void)fprintf(stderr, "kvtier: %s:%d: %s: assertion failed: %s\n", file, line, func, cond);
    (void)fflush(stderr);
    abort();
}
