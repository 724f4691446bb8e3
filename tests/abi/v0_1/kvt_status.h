/*
 * Status codes of kvtier: one list makes the numbers, the names, the sentences and the retry rule.
 *
 * A miss is a result (KVT_OK with nothing matched), not an error. 0 is good, negative is not.
 * Values are part of the plug-in ABI: they are never renumbered, new ones go at the end.
 */
#ifndef KVT_STATUS_H
#define KVT_STATUS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef int32_t kvt_status;

#if defined(__GNUC__)
#define KVT_MUST_CHECK __attribute__((warn_unused_result))
#else
#define KVT_MUST_CHECK
#endif

/* X(name, value, sentence, retrying the same call may help) */
/* clang-format off */
#define KVT_STATUS_MAP(X)                                                                         \
    X(OK, 0, "done", 0)                                                                           \
    X(ERR_INVAL, -1, "the caller passed something it must not", 0)                                \
    X(ERR_NOMEM, -2, "memory could not be had", 1)                                                \
    X(ERR_AGAIN, -3, "a queue or pool is full; try again later", 1)                               \
    X(ERR_STALE, -4, "the handle is unknown, spent or expired", 0)                                \
    X(ERR_CORRUPT, -5, "stored bytes failed their check", 0)                                      \
    X(ERR_DEVICE, -6, "the device failed; its tier is off", 0)                                    \
    X(ERR_UNSUPPORTED, -7, "this build or plug-in does not offer that", 0)                        \
    X(ERR_TIMEOUT, -8, "the deadline passed first", 1)                                            \
    X(ERR_CANCELLED, -9, "the job was cancelled", 0)                                              \
    X(ERR_BUSY, -10, "work is still in flight", 1)                                                \
    X(ERR_UNAVAILABLE, -11, "the service cannot be reached", 1)                                   \
    X(ERR_VERSION, -12, "the two sides were built for different versions", 0)                     \
    X(ERR_PROCESS, -13, "the handle belongs to another process (after a fork)", 0)                \
    X(ERR_LIMIT, -14, "a named limit was reached", 0)                                             \
    X(ERR_IO, -15, "reading or writing failed", 0)
/* clang-format on */

#define KVT_STATUS_ENUM(name, value, sentence, retry) KVT_##name = (value),
enum { KVT_STATUS_MAP(KVT_STATUS_ENUM) KVT_STATUS_LAST_ };
#undef KVT_STATUS_ENUM

#ifdef __cplusplus
}
#endif
#endif
