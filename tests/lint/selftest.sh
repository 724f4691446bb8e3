#!/bin/bash
# Every check can fail: each is run on a tiny folder that is good, where it must pass, and on one
# with a single fault, where it must fail.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
wrong=0

# good: a folder with nothing to complain about.
good() {
    rm -rf "${scratch:?}"/*
    cd "$scratch"
    mkdir -p cache/base cache/device cache/tier cache/index cache/move policies tools tests/unit \
        engine_plugin/reference build/release
    cp "$here/../../.clang-format" "$here/../../.clang-tidy" .
    printf 'int kvt_status_good(void);\n' >cache/kvt_status.h
    printf '#include "cache/kvt_status.h"\nint kvt_base(void);\n' >cache/base/base.h
    printf '#include "cache/base/base.h"\n' >cache/device/device.h
    printf '#include "cache/device/device.h"\n' >cache/tier/tier.h
    printf '#include "cache/base/base.h"\n' >policies/policy.h
    printf '#include "cache/tier/tier.h"\n#include "policies/policy.h"\n' >cache/index/index.h
    printf '#include "cache/device/device.h"\n' >cache/move/exec.h
    printf '#include "cache/move/exec.h"\n' >cache/move/exec.c
    printf '#include "cache/index/index.h"\n#include "cache/move/exec.h"\n' >cache/move/plan.h
    printf '#include "kvt_status.h"\nextern const int kvt_entry;\n' >engine_plugin/kvt_engine.h
    printf '#include "kvt_engine.h"\n' >engine_plugin/reference/engine.h
    printf '#include "engine_plugin/reference/engine.h"\n' >tools/tool.h
    cat >cache/base/base.c <<'C'
#include "cache/base/base.h"

int kvt_base(void)
{
    const char *text = "strcpy(a, \"system(b)"; /* gets( in a comment */
    return text != 0;
}
C
    printf '{ global:\n    kvt_entry;\nlocal:\n    *;\n};\n' >engine_plugin/kvt.map
    printf '#!/bin/bash\necho good\n' >tests/unit/good_test.sh
}

# expect pass|fail CHECK WHAT: runs it on the folder as it is.
expect() {
    local result=fail
    if bash "$here/$2.sh" "$scratch" >"$scratch/build/output" 2>&1; then result=pass; fi
    if [ $result != "$1" ]; then
        echo "$2 must $1: $3"
        cat "$scratch/build/output"
        wrong=$((wrong + 1))
    fi
}

# bad CHECK FILE TEXT: a good folder with one line more.
bad() {
    good
    printf '%b\n' "$3" >>"$2"
    expect fail "$1" "$2 with: ${3:0:70}"
}

# plugin TEXT: builds what symbols.sh looks at.
plugin() {
    printf '%s\n' "$1" | gcc -x c -shared -fPIC -o build/libkvtier_plugin.so -
    printf '%s\n' "$2" | gcc -x c -c -o build/object.o -
    rm -f build/libkvtier.a
    ar rcs build/libkvtier.a build/object.o
}

good
for check in layers banned length headers marks format shell clang cppcheck tidy; do
    expect pass $check 'the good folder'
done

bad layers cache/base/base.h '#include "cache/device/device.h"'
bad layers cache/tier/tier.h '#include "cache/index/index.h"'
bad layers cache/tier/tier.h '#include "policies/policy.h"'
bad layers cache/index/index.h '#include "cache/move/plan.h"'
bad layers cache/move/plan.h '#include "kvt_engine.h"'
bad layers policies/policy.h '#include "cache/index/index.h"'
bad layers policies/policy.h '#include "cache/device/device.h"'
bad layers tools/tool.h '#include "cache/base/base.h"'
bad layers tools/tool.h '#include "engine_plugin/reference/model.h"'
bad layers engine_plugin/reference/engine.h '#include "cache/tier/tier.h"'
bad layers engine_plugin/kvt_engine.h '#include "engine_plugin/reference/engine.h"'
bad layers cache/move/exec.c '#include "cache/index/index.h"'
bad layers cache/move/exec.c '#include "cache/move/plan.h"'
bad layers cache/base/base.h '#include "nowhere.h"'
bad layers cache/base/base.h '#include <cache/kvt_status.h>'

for call in 'strcpy(a, b)' 'sprintf(a, b)' 'atoi (a)' 'rand()' 'system("x")' 'x = strtok(a, b)'; do
    bad banned cache/base/base.c "    $call;"
done

long=$(printf 'x%.0s' {1..101})
bad length cache/base/base.c "/* $long */"
bad length cache/base/base.c '\tint tab;'
bad length cache/base/base.c "int kvt_long(void)\n{$(printf '\\n    // line%.0s' {1..70})\n}"
bad length cache/base/base.c "$(printf '\\n%.0s' {1..800})"

bad headers cache/index/index.h 'int kvt_index(size_t bytes);'
bad headers cache/index/index.h 'struct kvt_twice { int field; };'
bad headers engine_plugin/kvt_engine.h '#ifndef ONCE\n#define ONCE\nextern int class;\n#endif'

bad marks cache/base/base.c '/* TO''DO */'
bad marks tests/unit/good_test.sh '# FIX''ME'

bad format cache/base/base.c 'int   kvt_spaces( void );'
# shellcheck disable=SC2016 # what is in quotes is the bad script
bad shell tests/unit/good_test.sh 'rm $1'
bad clang cache/base/base.c 'int kvt_unknown(void) { return 0; }'
bad cppcheck cache/base/base.c \
    'int kvt_past(void);\nint kvt_past(void)\n{\n    int a[2] = {0, 0};\n    return a[2];\n}'
bad tidy cache/base/base.c \
    'int kvt_null(void);\nint kvt_null(void)\n{\n    int *p = 0;\n    return *p;\n}'

good
plugin 'const int kvt_entry = 1;' 'int kvt_good(void) { return 0; }'
expect pass symbols 'one export, one prefix'
plugin 'const int kvt_entry = 1; int kvt_more(void) { return 0; }' ''
expect fail symbols 'an export that the map does not name'
plugin 'const int kvt_other = 1;' ''
expect fail symbols 'another export'
plugin 'const int kvt_entry = 1;' 'int bad(void) { return 0; }'
expect fail symbols 'a global symbol without the prefix'
plugin 'const int kvt_entry = 1;' ''
# shared TEXT FLAG...: the shared library, with a map and a header that name one function.
shared() {
    local text=$1
    shift
    echo 0.7.2 >VERSION
    printf '{ global:\n    kvt_cache_go;\nlocal:\n    *;\n};\n' >cache/kvtier.map
    printf 'int kvt_cache_go(void);\n' >cache/kvt_cache.h
    printf '%s\n' "$text" | gcc -x c -shared -fPIC "$@" -o build/libkvtier.so.0.7 -
}
shared 'int kvt_cache_go(void) { return 0; }' -Wl,-soname,libkvtier.so.0
expect pass symbols 'a shared library that is as its map and header'
printf 'int kvt_cache_stop(void);\n' >>cache/kvt_cache.h
expect fail symbols 'a function of the header that the map does not name'
shared 'int kvt_cache_go(void) { return 0; } int kvt_more(void) { return 0; }' \
    -Wl,-soname,libkvtier.so.0
expect fail symbols 'a shared library that exports more'
shared 'int kvt_cache_go(void) { return 0; }' -Wl,-soname,libkvtier.so.0.7
expect fail symbols 'another soname'
rm -f build/libkvtier.so.0.7
expect fail symbols 'no shared library'
rm -f cache/kvtier.map
printf 'int main(void) { return 0; }' | gcc -x c -o build/kvtier -
expect fail symbols 'a program without jemalloc'
rm -f build/kvtier
printf 'extern const int kvt_second;\n' >>engine_plugin/kvt_engine.h
expect fail symbols 'a declared symbol that is not exported'
rm -f build/libkvtier.a
expect fail symbols 'no build'

[ $wrong -eq 0 ]
