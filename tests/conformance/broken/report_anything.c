/* Breaks stats.report_bad: reports of any numbers are accepted. */
#include "tests/conformance/broken/broken.h"

static kvt_status broken_report(kvt_engine *engine, const kvt_report *report)
{
    kvt_status status = kvt_broken_real->report(engine, report);
    return status == KVT_ERR_INVAL && report != NULL ? KVT_OK : status;
}

void kvt_broken_break(kvt_plugin_entry *table) { table->report = broken_report; }
