#!/bin/bash
# cppcheck over every C file but the tests, whose macros it does not know.
. "$(dirname "$0")/common.sh"

list=$(mktemp)
trap 'rm -f "$list"' EXIT
sources | grep '\.c$' | grep -v '^tests/' >"$list" || true
if [ -s "$list" ]; then
    # Not found here means a system header: cppcheck has its own models of those.
    cppcheck --quiet -j "${LINT_JOBS:-2}" --enable=warning,performance,portability --inline-suppr \
        --std=c11 --library=posix,gnu --error-exitcode=1 --suppress=missingIncludeSystem \
        -D_GNU_SOURCE -DKVT_VERSION='"lint"' -I. -Icache -Iengine_plugin \
        --file-list="$list" || complain "cppcheck found something"
fi

done_here
