/* Breaks match.last_token: promises the last token too. */
#include "tests/conformance/broken/broken.h"

static kvt_status broken_lookup(kvt_engine *engine, const kvt_lookup *given,
                                kvt_lookup_result *out_result)
{
    if (given == NULL || given->struct_size != sizeof(*given) || given->tokens == NULL ||
        given->token_count % 16 != 0 || given->token_count == 0 || given->token_count > 1000) {
        return kvt_broken_real->lookup(engine, given, out_result);
    }
    uint32_t tokens[1001];
    kvt_lookup lookup = *given;
    for (uint64_t i = 0; i <= given->token_count; i++) {
        tokens[i] = i < given->token_count ? given->tokens[i] : 0;
    }
    lookup.tokens = tokens;
    lookup.token_count++;
    return kvt_broken_real->lookup(engine, &lookup, out_result);
}

void kvt_broken_break(kvt_plugin_entry *table) { table->lookup = broken_lookup; }
