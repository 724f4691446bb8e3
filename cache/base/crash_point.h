/*
 * Named steps at which the crash tests end a process. Nothing, unless compiled with
 * -DKVT_CRASH_POINTS, which only tests/crash/ does.
 */
#ifndef KVT_BASE_CRASH_POINT_H
#define KVT_BASE_CRASH_POINT_H

#ifdef KVT_CRASH_POINTS
void kvt_crash_point(const char *name);
#define KVT_CRASH_POINT(name) kvt_crash_point(name)
#else
#define KVT_CRASH_POINT(name) ((void)0)
#endif

#endif
