#!/bin/bash
# The files that are made from the ABI's headers.
#
#   tests/abi/golden.sh layout [FOLDER]   print sizes, offsets and constants of the headers there
#   tests/abi/golden.sh next              print the header of a next version with members added
#   tests/abi/golden.sh update            write both (make golden-update)
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$here/../..

layout() {
    local folders folder=${1:-} scratch
    local engine=$root/engine_plugin status=$root/cache
    if [ -n "$folder" ]; then engine=$folder status=$folder; fi
    folders=(-I"$engine" -I"$status")
    scratch=$(mktemp -d)
    # shellcheck disable=SC2064 # now, not then
    trap "rm -rf '$scratch'" EXIT
    awk -f "$here/layout.awk" "$engine/kvt_engine.h" "$status/kvt_status.h" >"$scratch/layout.c"
    "${CC:-gcc}" -std=c11 -Wno-pointer-to-int-cast -Wno-int-to-pointer-cast "${folders[@]}" \
        "$scratch/layout.c" -o "$scratch/layout"
    "$scratch/layout"
}

next() {
    awk -f "$here/next.awk" "$root/engine_plugin/kvt_engine.h"
}

case ${1:-} in
layout) layout "${2:-}" ;;
next) next ;;
update)
    new=$(layout)
    printf '%s\n' "$new" >"$here/layout.golden"
    new=$(next)
    printf '%s\n' "$new" >"$here/next/kvt_engine.h"
    ;;
*)
    sed -n '2,/^set/p' "$0" | sed '$d' >&2
    exit 2
    ;;
esac
