#!/bin/bash
# Every header stands by itself and may be included twice: all in C11, the public ones pedantically
# and in C++17 too.
. "$(dirname "$0")/common.sh"

cc=${CC:-gcc}
cxx=${CXX:-g++}
warnings='-Wall -Wextra -Wundef -Wconversion -Wstrict-prototypes -Werror'
folders='-I. -Icache -Iengine_plugin'

# twice NAME COMPILER FLAG...: compiles a file that includes it two times.
twice() {
    local name=$1
    shift
    printf '#include "%s"\n#include "%s"\n' "$name" "$name" | "$@" -fsyntax-only - ||
        complain "$name: does not stand by itself: $*"
}

while IFS= read -r file; do
    # shellcheck disable=SC2086 # lists of flags
    twice "$file" "$cc" -x c -std=c11 -D_GNU_SOURCE $warnings $folders
done < <(sources | grep '\.h$')

for name in kvt_status.h kvt_cache.h kvt_store.h kvt_engine.h; do
    [ -f "cache/$name" ] || [ -f "engine_plugin/$name" ] || continue
    # An engine has our two folders only, and flags of its own.
    twice "$name" "$cc" -x c -std=c11 -Wpedantic -Wall -Wextra -Wundef -Wpadded -Werror \
        -Icache -Iengine_plugin
    twice "$name" "$cxx" -x c++ -std=c++17 -Wpedantic -Wall -Wextra -Wundef -Werror \
        -Icache -Iengine_plugin
done

done_here
