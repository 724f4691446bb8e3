/* A plug-in that is wrong in one place: the real one's table (its path is in KVT_REAL_PLUGIN) with
 * something put in between. Each tells in its first comment which clause must find it. */
#ifndef KVT_BROKEN_H
#define KVT_BROKEN_H

#include "kvt_engine.h"

/* The real plug-in; set before kvt_broken_break() is called, when the library is loaded. */
extern const kvt_plugin_entry *kvt_broken_real;

/* Defined by each plug-in: changes the copy of the real table. */
void kvt_broken_break(kvt_plugin_entry *table);

#endif
