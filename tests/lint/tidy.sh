#!/bin/bash
# clang-tidy over every C file, with the checks in .clang-tidy.
. "$(dirname "$0")/common.sh"

jobs=${LINT_JOBS:-2}
# One file a run: the analyser of version 14 mixes up va_lists when it is given several.
# shellcheck disable=SC2016 # $@ is for the inner shell
sources | grep '\.c$' | xargs -r -P "$jobs" -n 1 bash -c '
    clang-tidy --quiet "$@" -- -std=c11 -D_GNU_SOURCE -DKVT_DEBUG -DKVT_VERSION="\"lint\"" \
        -I. -Icache -Iengine_plugin 2>&1 |
        grep -vE "^[0-9]+ warnings? generated|^Suppressed |^Use -header-filter|^$"
    exit "${PIPESTATUS[0]}"' tidy || complain "clang-tidy found something"

done_here
