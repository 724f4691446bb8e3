#!/bin/bash
# Signals: replay, generate and bench end at once and by the signal itself, say so in one sentence,
# and leave no half-written file. What is waited for here is always a state, never a time.
set -u
# Job control: without it, what runs in the background ignores SIGINT.
set -m

program=${KVTIER:-build/kvtier}
if [ ! -x "$program" ]; then
    echo "skipped: $program is not built"
    exit 77
fi
folder=$(mktemp -d) || exit 1
pid=
# A program that this test is stopped in the middle of would wait for ever.
trap '[ -z "$pid" ] || kill -s KILL "$pid" 2>/dev/null; rm -rf "$folder"' EXIT
failures=0

complain() {
    echo "$*"
    failures=$((failures + 1))
}

# until_true COMMAND...: waits for it to succeed; the test's own limit is the last resort.
until_true() {
    while ! "$@" 2>/dev/null; do sleep 0.02; done
}

# caught PID SIGNAL: does the process catch the signal of that number?
caught() {
    local mask
    mask=$(sed -nE 's/^SigCgt:[[:space:]]*//p' "/proc/$1/status") || return 1
    [ -n "$mask" ] && [ $((0x$mask & (1 << ($2 - 1)))) -ne 0 ]
}

# armed PID: SIGPIPE is the last that the program takes.
armed() { caught "$1" 13; }

# ends NAME PID WANTED SENTENCE: the exit status, and one sentence on standard error.
ends() {
    wait "$2"
    local status=$?
    [ $status -eq "$3" ] || complain "$1: exit status $status, not $3: $(cat "$folder/err")"
    grep -qF "$4" "$folder/err" || complain "$1: '$4' not in: $(cat "$folder/err")"
    [ "$(wc -l <"$folder/err")" -le 1 ] || complain "$1: more than a sentence: $(cat "$folder/err")"
    if grep -q Sanitizer "$folder/err"; then complain "$1: a sanitizer complains"; fi
}

# ---- replay, while it reads a trace that never ends ----

mkfifo "$folder/pipe"
for signal in INT:130:interrupted TERM:143:'told to end' HUP:129:'its terminal is gone'; do
    IFS=: read -r name status words <<<"$signal"
    "$program" replay "$folder/pipe" 2>"$folder/err" >"$folder/out" &
    pid=$!
    # Opening waits for the reader; half of a compressed line keeps it reading.
    exec 9>"$folder/pipe"
    printf '{"timestamp":0,"input_length":600,"output_length":5,"hash_ids":[0,1]}\n' |
        gzip | head -c 30 >&9
    until_true armed $pid
    kill -s "$name" $pid
    ends "replay, SIG$name" $pid "$status" "kvtier replay: $words (SIG$name)"
    [ ! -s "$folder/out" ] || complain "replay, SIG$name: a report: $(cat "$folder/out")"
    exec 9>&-
done

# ---- generate, while it writes ----

mkdir "$folder/traces"
target=$folder/traces/trace.jsonl.gz
beside() { compgen -G "$folder/traces/.kvtier-*" >/dev/null; }
beside_or_done() { beside || ! kill -0 "$pid"; }
# With an older file and without.
for old in '' older; do
    rm -f "$target"
    [ -z "$old" ] || echo "$old" >"$target"
    "$program" generate --profile coding --sessions 2000 --out "$target" 2>"$folder/err" &
    pid=$!
    until_true beside_or_done
    kill -s INT $pid 2>/dev/null
    wait $pid
    status=$?
    case $status in
    130)
        grep -qF 'kvtier generate: interrupted (SIGINT)' "$folder/err" ||
            complain "generate: $(cat "$folder/err")"
        [ "$(cat "$target" 2>/dev/null)" = "$old" ] || complain 'generate: the trace was touched'
        ;;
    # The writer may be through before the signal comes, on a machine that is busy.
    0) echo 'note: generate was through before the signal came' ;;
    *) complain "generate: exit status $status: $(cat "$folder/err")" ;;
    esac
    if beside; then complain "generate left: $(ls -A "$folder/traces")"; fi
done

# ---- nobody reads ----

{
    "$program" generate --profile coding 2>"$folder/err"
    echo $? >"$folder/status"
} | head -c 10 >/dev/null
status=$(cat "$folder/status")
[ "$status" = 141 ] || complain "generate into a closed pipe: exit status $status"
grep -qF 'kvtier generate: nobody reads its output any more (SIGPIPE)' "$folder/err" ||
    complain "generate into a closed pipe: $(cat "$folder/err")"

# ---- bench, while it works ----

"$program" bench insert --pages 100000000 2>"$folder/err" >"$folder/out" &
pid=$!
until_true armed $pid
kill -s INT $pid
ends 'bench insert, SIGINT' $pid 130 'kvtier bench insert: interrupted (SIGINT)'

# ---- a second signal, while the sentence of the first cannot be written ----

second_signal() {
    mkfifo "$folder/full"
    exec 8<>"$folder/full"
    "$program" replay "$folder/pipe" 2>"$folder/full" >/dev/null &
    pid=$!
    exec 9>"$folder/pipe"
    until_true armed $pid
    # Fills the pipe that is its standard error, to the last byte.
    timeout 1 dd if=/dev/zero of="$folder/full" oflag=nonblock bs=1 count=1000000 2>/dev/null
    kill -s INT $pid
    in_handler() { ! caught "$pid" 2; }
    until_true in_handler
    grep -q '^State:.*Z' /proc/$pid/status && complain 'the sentence was written into a full pipe'
    kill -s INT $pid
    wait $pid
    local status=$?
    [ $status -eq 130 ] || complain "a second SIGINT: exit status $status"
    exec 8>&- 9>&-
}
# The thread sanitizer's runtime blocks every signal while a handler runs.
if [ "${KVT_VARIANT:-}" = tsan ]; then
    echo 'left out under the thread sanitizer: a second signal'
else
    second_signal
fi

# ---- what was ignored stays ignored ----

(
    trap '' INT
    exec "$program" replay "$folder/pipe" 2>"$folder/err" >/dev/null
) &
pid=$!
exec 9>"$folder/pipe"
until_true armed $pid
caught "$pid" 2 && complain 'an ignored SIGINT is caught'
kill -s INT $pid
kill -s TERM $pid
ends 'an ignored SIGINT' $pid 143 'told to end (SIGTERM)'
exec 9>&-

pid=
[ $failures -eq 0 ]
