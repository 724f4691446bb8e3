/* The text that names the stores of the nvme tier. */
#include <string.h>

#include "engine_plugin/plugin_internal.h"

/* Digits with K, M, G or T (powers of 1024) behind them; 0 for anything else, or too much. */
static uint64_t size_of(const char *text)
{
    uint64_t value = 0;
    const char *at = text;
    for (; *at >= '0' && *at <= '9'; at++) {
        uint64_t digit = (uint64_t)(*at - '0');
        if (value > (UINT64_MAX - digit) / 10) {
            return 0;
        }
        value = value * 10 + digit;
    }
    static const char units[] = "KMGT";
    const char *unit = *at != '\0' ? strchr(units, *at) : NULL;
    if (at == text || (*at != '\0' && (unit == NULL || at[1] != '\0'))) {
        return 0;
    }
    unsigned shift = unit != NULL ? 10u * (unsigned)(unit - units + 1) : 0;
    return value > UINT64_MAX >> shift ? 0 : value << shift;
}

/* One "FOLDER:SIZE", which ends with a zero. The folder may contain colons. */
static kvt_status parse_one(char *text, struct kvt_stores *stores, char *why, uint64_t why_bytes)
{
    char *colon = strrchr(text, ':');
    uint64_t bytes = colon != NULL ? size_of(colon + 1) : 0;
    if (colon == NULL || colon == text || bytes == 0) {
        kvt_abi_why(why, why_bytes, "nvme store '%.200s': write FOLDER:SIZE, with a size like 100G",
                    text);
        return KVT_ERR_INVAL;
    }
    if (stores->count == KVT_CACHE_STORES_MAX) {
        kvt_abi_why(why, why_bytes, "more nvme stores than the %u allowed", KVT_CACHE_STORES_MAX);
        return KVT_ERR_INVAL;
    }
    *colon = '\0';
    stores->stores[stores->count++] = (struct kvt_cache_store){.folder = text, .bytes = bytes};
    return KVT_OK;
}

kvt_status kvt_stores_parse(const char *text, uint64_t bytes, struct kvt_stores *out_stores,
                            char *why, uint64_t why_bytes)
{
    out_stores->count = 0;
    if (bytes == 0) {
        return KVT_OK;
    }
    if (text == NULL || bytes >= KVT_STORES_TEXT_BYTES_MAX) {
        kvt_abi_why(why, why_bytes, "the text of the nvme stores is NULL, or longer than %u bytes",
                    KVT_STORES_TEXT_BYTES_MAX - 1);
        return KVT_ERR_INVAL;
    }
    if (memchr(text, '\0', (size_t)bytes) != NULL) {
        kvt_abi_why(why, why_bytes, "the text of the nvme stores has a zero byte in it");
        return KVT_ERR_INVAL;
    }
    memcpy(out_stores->text, text, (size_t)bytes);
    out_stores->text[bytes] = '\0';
    char *at = out_stores->text;
    kvt_status status = KVT_OK;
    while (status == KVT_OK && at != NULL) {
        char *end = strchr(at, ';');
        if (end != NULL) {
            *end = '\0';
        }
        status = parse_one(at, out_stores, why, why_bytes);
        at = end != NULL ? end + 1 : NULL;
    }
    return status;
}
