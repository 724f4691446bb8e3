#!/bin/bash
# The program from outside: its help, its exit statuses, and a made-up trace answered by the
# reference engine, with and without the cache, and with a cache that lies.
set -u

program=${KVTIER:-build/kvtier}
if [ ! -x "$program" ]; then
    echo "skipped: $program is not built"
    exit 77
fi
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
failures=0

# expect STATUS PART ARGUMENT...: runs the program; PART stands in what it prints. Sets `printed`.
expect() {
    local wanted=$1 part=$2 status
    shift 2
    printed=$("$program" "$@" 2>&1)
    status=$?
    if [ $status -ne "$wanted" ]; then
        echo "kvtier $*: exit status $status, not $wanted: $printed"
        failures=$((failures + 1))
    fi
    case $printed in
    *"$part"*) ;;
    *)
        echo "kvtier $*: \"$part\" not in: $printed"
        failures=$((failures + 1))
        ;;
    esac
}

expect 0 'Usage: kvtier COMMAND' --help
expect 0 'plug-in ABI 0.' --version
expect 2 'Usage: kvtier COMMAND'
expect 2 'unknown command fly (see kvtier --help)' fly
expect 2 'unknown option --fly (see kvtier --help)' --fly
for command in replay generate check bench; do
    expect 0 'sage: kvtier '$command $command --help
    expect 2 --fly $command --fly
done
expect 2 'TRACE is missing' replay
expect 3 'No such file' replay "$folder/none"
: >"$folder/empty"
expect 3 'the trace is empty' replay "$folder/empty"

"$program" generate >/dev/full 2>"$folder/err"
status=$?
if [ $status -ne 3 ] || ! grep -q 'cannot be written' "$folder/err"; then
    echo "generate to a full disk: exit status $status: $(cat "$folder/err")"
    failures=$((failures + 1))
fi

trace=$folder/small.kvt.jsonl.gz
expect 0 '2 sessions' generate --seed 3 --sessions 2 --turns 4 --scale 2 --sub-agents 0 \
    --edits 0 --out "$trace"
printed=$("$program" replay --only without --output-tokens 1 "$trace" 2>&1)
status=$?
case $printed in
*penBLAS* | *penblas*)
    if [ $status -eq 3 ]; then
        echo "the reference engine's part is left out: $printed"
        exit $((failures > 0))
    fi
    ;;
esac
expect 0 '"outputs_identical":true' replay --json "$trace"
# Both halves say how much CPU they took, and a transformer takes some.
if [ "$(grep -oE '"cpu_s":[0-9.]*[1-9]' <<<"$printed" | wc -l)" -ne 2 ]; then
    echo "replay does not tell the CPU seconds of both halves: $printed"
    failures=$((failures + 1))
fi
expect 0 '"conservation":true' replay --json --only with "$trace"
# The whole trace fits, so every page of a turn is there in the next one.
expect 0 'identical on all' replay --budget-percent 400 --control same-page "$trace"
expect 1 'outputs differ' replay --budget-percent 400 --control foreign-page "$trace"
expect 3 'no-such-plugin.so' replay --plugin "$folder/no-such-plugin.so" "$trace"

[ $failures -eq 0 ]
