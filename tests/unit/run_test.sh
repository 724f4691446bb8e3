#!/bin/bash
# tests/run.sh on tests that pass, fail, skip and hang.
# shellcheck disable=SC2016 # what is in quotes is the tests' code
set -eu
unset KVT_SKIPS_ALLOWED # what this run allows says nothing about the ones below
here=$(cd "$(dirname "$0")/.." && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
wrong=0

printf 'exit 0\n' >"$folder/good_test.sh"
printf 'echo this is why; exit 3\n' >"$folder/bad_test.sh"
printf 'echo no such device; exit 77\n' >"$folder/skip_test.sh"
printf 'echo started; sleep 60\n' >"$folder/hang_test.sh"
printf '#!/bin/sh\n[ "$KVTIER" = /a/program ]\n' >"$folder/program_test"
chmod +x "$folder/program_test"

# run STATUS LAST TEST...: the exit status and the last line must be these.
run() {
    local expected=$1 last=$2 status=0
    shift 2
    (cd "$folder" && KVTIER=/a/program KVT_TEST_TIMEOUT=1 KVT_TEST_ONLY='' "$here/run.sh" "$@") \
        >"$folder/said" 2>&1 || status=$?
    if [ $status -ne "$expected" ] || [ "$(tail -n 1 "$folder/said")" != "$last" ]; then
        echo "run.sh $*: exit status $status, not $expected, or not '$last':"
        cat "$folder/said"
        wrong=$((wrong + 1))
    fi
}
says() {
    grep -qE -- "$1" "$folder/said" || {
        echo "'$1' is not in:" && cat "$folder/said"
        wrong=$((wrong + 1))
    }
}

run 0 '2 passed, 0 failed, 1 skipped' ./good_test.sh ./program_test ./skip_test.sh
says '^PASS ./good_test.sh '
says '^SKIP ./skip_test.sh: no such device$'
! grep -q 'this is why' "$folder/said" || wrong=$((wrong + 1))
run 1 '1 passed, 1 failed, 0 skipped' ./bad_test.sh ./good_test.sh
says '^FAIL ./bad_test.sh \(exit status 3\)$'
says '^ +\| this is why$'
run 1 '0 passed, 1 failed, 0 skipped' ./hang_test.sh
says '^FAIL ./hang_test.sh \(not done after 1 s\)$'
says '^ +\| started$'
run 1 '0 passed, 1 failed, 0 skipped' ./absent_test
run 1 '0 passed, 0 failed, 0 skipped'
export KVT_SKIPS_ALLOWED=''
run 1 '1 passed, 1 failed, 0 skipped' ./good_test.sh ./skip_test.sh
says '^FAIL ./skip_test.sh \(skipped, which is not allowed here\): no such device$'
export KVT_SKIPS_ALLOWED='other_test skip_test'
run 0 '1 passed, 0 failed, 1 skipped' ./good_test.sh ./skip_test.sh

[ $wrong -eq 0 ]
