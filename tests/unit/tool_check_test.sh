#!/bin/bash
# kvtier check, bench nvme and bench open from outside: bad command lines, exit statuses, what is
# printed, and a store that is damaged, found, repaired.
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

# expect STATUS PART ARGUMENT...: runs the program; PART stands in what it prints. Sets `printed`.
expect() {
    local wanted=$1 part=$2 status
    shift 2
    printed=$("$program" "$@" 2>&1)
    status=$?
    [ $status -eq "$wanted" ] ||
        complain "kvtier $*: exit status $status, not $wanted: $printed"
    case $printed in
    *"$part"*) ;;
    *) complain "kvtier $*: \"$part\" not in: $printed" ;;
    esac
}

# ---- command lines ----

expect 0 'sage: kvtier check [OPTION]... STORE...' check --help
expect 2 'STORE... is missing' check
expect 2 'STORE... is missing' check --verify --json
expect 2 'unknown option --fix' check --fix "$folder"
expect 2 '--verify takes no value' check --verify=yes "$folder"
expect 2 'unexpected argument "9"' check 1 2 3 4 5 6 7 8 9
for options in '' --verify --repair --json '--verify --repair' \
    '--verify --repair --json --buffered'; do
    # shellcheck disable=SC2086 # a list of options
    expect 3 'No such file' check $options "$folder/none"
    # shellcheck disable=SC2086
    expect 3 'there is no store' check $options "$folder"
    # shellcheck disable=SC2086
    expect 2 'store 1 has no folder' check $options ''
    # shellcheck disable=SC2086
    expect 3 'Not a directory' check $options "$program"
done
for name in nvme open; do
    expect 0 "sage: kvtier bench $name" bench $name --help
    expect 2 '--store is missing' bench $name
    expect 2 '--store needs a value' bench $name --store
    expect 2 'unknown option --fly' bench $name --fly
    expect 2 '--rounds: "0"' bench $name --store "$folder" --rounds 0
    expect 2 '--rounds: "101"' bench $name --store "$folder" --rounds 101
    expect 2 'unexpected argument' bench $name --store "$folder" more
    expect 3 'cannot be made' bench $name --store "$folder/none"
done
expect 2 '--pages: "0"' bench open --store "$folder" --pages 0
expect 2 '--depth: "257"' bench nvme --store "$folder" --depth 257
expect 2 '--mixed-depth: "0"' bench nvme --store "$folder" --mixed-depth 0
expect 2 '--bytes: "1X"' bench nvme --store "$folder" --bytes 1X
expect 2 '--page-bytes: give' bench nvme --store "$folder" --page-bytes 1K
expect 2 '--page-bytes: give' bench nvme --store "$folder" --page-bytes 65M
expect 2 '--bytes: give' bench nvme --store "$folder" --bytes 1M --page-bytes 2M
expect 2 "there is no benchmark 'fly'" bench fly

# Without fio: a sentence that says what to install. `env` is found by its path.
printed=$(PATH=$folder "$program" bench nvme --store "$folder" --fio 2>&1)
status=$?
if [ $status -ne 3 ] || [[ $printed != *'install fio'* ]]; then
    complain "without fio: exit status $status: $printed"
fi

# A folder with something else in it is left alone.
mkdir "$folder/kvtier-bench"
: >"$folder/kvtier-bench/mine"
for name in nvme open; do
    expect 3 'is left alone' bench $name --store "$folder"
done
[ -f "$folder/kvtier-bench/mine" ] || complain 'a foreign file was removed'
rm -r "$folder/kvtier-bench"

# ---- benches ----

tiny=(--bytes 2M --page-bytes 64K --rounds 1)
expect 0 '"checksum":true' bench nvme --store "$folder" "${tiny[@]}" --mixed --json
case $printed in
*'"read_gbps":'*'"write_gbps":'*'"io":'*'"p99_ratio":'*) ;;
*) complain "bench nvme --json: $printed" ;;
esac
[ ! -e "$folder/kvtier-bench" ] || complain 'bench nvme left its folder'
expect 0 '"pages":2000' bench open --store "$folder" --pages 2000 --rounds 1 --json
expect 0 'a plain cursor over the same 2001 records' bench open --store "$folder" --pages 2000 \
    --rounds 1
[ ! -e "$folder/kvtier-bench" ] || complain 'bench open left its folder'

# ---- check ----

expect 0 'GB/s, checksums verified' bench nvme --store "$folder" "${tiny[@]}" --keep --threads
store=$folder/kvtier-bench/store
expect 0 'no damage' check "$store"
expect 0 '"verified_pages":32' check --verify --json "$store"
expect 0 'no damage' check --verify --repair "$store"
expect 0 'pages verified' check --buffered --verify "$store/"

# All that the first extents hold becomes something else.
dd if=/dev/urandom of="$store/data.kvt" bs=64K count=64 conv=notrunc status=none
expect 0 'no damage to what was looked at' check "$store"
expect 1 'its bytes are not what was written' check --verify "$store"
expect 1 '"repaired":false' check --verify --json "$store"
expect 1 'damaged, and repaired' check --verify --repair "$store"
expect 0 'no damage' check --verify "$store"

printf 'x' | dd of="$store/store.kvt" bs=1 seek=50 conv=notrunc status=none
expect 1 'store.kvt is damaged' check "$store"
expect 1 '"repaired":true' check --repair --json "$store"
expect 0 'no damage' check "$store"
# One of a later version is refused, not repaired.
printf '\x63' | dd of="$store/store.kvt" bs=1 seek=8 conv=notrunc status=none
expect 3 'format version 99' check --repair "$store"

# What was kept is known as ours, and goes.
expect 0 '"io":' bench nvme --store "$folder" "${tiny[@]}" --json
[ ! -e "$folder/kvtier-bench" ] || complain 'what an earlier run left is still there'

[ $failures -eq 0 ]
