#!/bin/bash
# Every C file compiles with clang too, as a release and with KVT_DEBUG, without a warning.
. "$(dirname "$0")/common.sh"

warnings=$(make -s -C "$lint/../.." print-warnings)
while IFS= read -r file; do
    for debug in '' -DKVT_DEBUG; do
        # shellcheck disable=SC2086 # a list of flags
        clang -std=c11 -D_GNU_SOURCE -DKVT_VERSION='"lint"' -fsyntax-only $warnings $debug \
            -I. -Icache -Iengine_plugin "$file" || complain "$file: clang $debug"
    done
done < <(sources | grep '\.c$')

done_here
