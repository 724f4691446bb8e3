#!/bin/bash
# The conformance program, on the real plug-in, and on plug-ins that are wrong in one place each:
# every one must be refused, for the reason that its source names in its first line.
set -u

build=${KVT_TEST_BUILD:-build/release}
plugin=${KVT_PLUGIN:-build/libkvtier_plugin.so}
program=$(dirname "$plugin")/kvt_conformance
broken=$build/tests/conformance/broken
if [ ! -x "$program" ] || [ ! -f "$plugin" ]; then
    echo "skipped: $program or $plugin is not built"
    exit 77
fi
# The thread sanitizer's shadow memory needs an address space that is not spread too widely.
wrap=()
if [ "${KVT_VARIANT:-}" = tsan ] && setarch -R true 2>/dev/null; then wrap=(setarch -R); fi
failures=0

# expect STATUS LAST ARGUMENT...: runs the program; its last line begins with LAST.
expect() {
    local wanted=$1 last=$2 printed status
    shift 2
    printed=$(${wrap[@]+"${wrap[@]}"} "$program" "$@" 2>&1)
    status=$?
    case $status:$(tail -n 1 <<<"$printed") in
    "$wanted:$last"*) return ;;
    esac
    echo "$program $*: exit status $status, not $wanted and a last line with '$last':"
    tail -n 15 <<<"$printed"
    failures=$((failures + 1))
}

expect 0 '' "$plugin"
expect 0 '' --open embedded: --stop "$plugin"
expect 1 'first broken clause: open.plain' --open no-such-scheme: --stop "$plugin"
expect 2 usage
expect 2 usage --open
expect 2 usage --no-such-option "$plugin"
expect 3 'cannot load' "$plugin.not-there"
expect 3 'cannot load' "$program"
# A library that is loaded, and is no plug-in of this major version.
expect 3 'cannot load: libc.so.6 exports no kvt_plugin_entry_v0' libc.so.6

count=0
export KVT_REAL_PLUGIN=$plugin
for source in tests/conformance/broken/*.c; do
    clause=$(sed -n '1s|^/\* Breaks \([a-z_.]*\): .*|\1|p' "$source")
    [ -n "$clause" ] || continue # what all of them have in common
    name=$(basename "$source" .c)
    expect 1 "first broken clause: $clause: " --stop "$broken/$name.so"
    count=$((count + 1))
done
if [ $count -lt 10 ]; then
    echo "$count broken plug-ins, at least 10 are wanted"
    failures=$((failures + 1))
fi
echo "$count broken plug-ins, $failures failures"
[ $failures -eq 0 ]
