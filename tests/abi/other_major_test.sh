#!/bin/bash
# A plug-in of another major version is refused, and the sentence says which version it is of; and
# what the reference engine logs of a cache's answers names them.
set -u

program=${KVTIER:-build/kvtier}
if [ ! -x "$program" ]; then
    echo "skipped: $program is not built"
    exit 77
fi
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
failures=0

complain() {
    echo "$*"
    failures=$((failures + 1))
}

words=$(printf 'word%d ' {1..400})
printf '{"session_id": "s", "messages": [{"role": "user", "content": "%s"}, %s]}\n' "$words" \
    '{"role": "assistant", "content": "yes"}' >"$folder/trace"

# plugin NAME SYMBOL...: a library that exports these.
plugin() {
    local name=$1 symbol
    shift
    for symbol in "$@"; do echo "const int $symbol = 1;"; done >"$folder/$name.c"
    "${CC:-gcc}" -shared -fPIC -o "$folder/$name.so" "$folder/$name.c" ||
        complain "$name does not compile"
}

# refused NAME PART: status 3, and PART is in what is said.
refused() {
    local printed status
    printed=$("$program" replay --plugin "$folder/$1.so" "$folder/trace" 2>&1)
    status=$?
    case $printed in
    *openblas*)
        echo "skipped: $printed"
        exit 77
        ;;
    *"$2"*) ;;
    *) complain "$1: \"$2\" not in: $printed" ;;
    esac
    [ $status -eq 3 ] || complain "$1: exit status $status, not 3"
}

for major in 1 3 9; do
    plugin "v$major" "kvt_plugin_entry_v$major"
    refused "v$major" "v$major.so is a plug-in of ABI version $major, and"
    refused "v$major" 'take a plug-in that exports kvt_plugin_entry_v0'
done
plugin none kvt_plugin_entry something_else
refused none 'none.so does not export kvt_plugin_entry_v0: it is no plug-in'

# A prompt that the host tier has no room for: the save's outcome is logged by name.
printed=$("$program" replay --only with --hbm 0 --host 64K --output-tokens 1 "$folder/trace" 2>&1)
case $printed in
*'a save ended with KVT_ERR_LIMIT'*) ;;
*) complain "no save that ended with KVT_ERR_LIMIT in: $printed" ;;
esac
case $printed in
*'answered -'* | *'ended with -'*) complain "a status without its name in: $printed" ;;
esac
[ $failures -eq 0 ]
