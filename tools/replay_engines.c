/*
 * The engines that `kvtier replay` can drive.
 */
#include "tools/commands.h"
#include "tools/replay.h"

static const struct kvt_replay_engine reference = {
    .name = "reference",
    .block_tokens = 16,
    .page_bytes = kvt_ref_page_bytes,
    .vocabulary = kvt_ref_vocabulary,
    .open = kvt_ref_open,
    .close = kvt_ref_close,
    .submit = kvt_ref_submit,
    .next = kvt_ref_next,
    .result_fini = kvt_ref_result_fini,
    .cache_stats = kvt_ref_cache_stats,
};

int kvt_cmd_replay(int argc, char **argv)
{
    static const struct kvt_replay_engine *const engines[] = {&reference, NULL};
    return kvt_replay_main(engines, argc, argv);
}
