/* Names and sentences of the status codes, made from the one list in kvt_status.h. */
#include "cache/base/base.h"

const char *kvt_status_name(kvt_status status)
{
    switch (status) {
#define STATUS_NAME(name, value, sentence, retry)                                                  \
    case (value):                                                                                  \
        return "KVT_" #name;
        KVT_STATUS_MAP(STATUS_NAME)
#undef STATUS_NAME
    default:
        return "KVT_ERR_UNKNOWN";
    }
}

const char *kvt_status_text(kvt_status status)
{
    switch (status) {
#define STATUS_TEXT(name, value, sentence, retry)                                                  \
    case (value):                                                                                  \
        return sentence;
        KVT_STATUS_MAP(STATUS_TEXT)
#undef STATUS_TEXT
    default:
        return "a status that this build does not know";
    }
}
