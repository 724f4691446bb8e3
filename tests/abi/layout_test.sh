#!/bin/bash
# The headers' layout is the golden one, the next version's header is made from today's, and both
# notice a change.
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$here/../..
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
failures=0

complain() {
    echo "$*"
    failures=$((failures + 1))
}

bash "$here/golden.sh" layout >"$folder/layout" || complain 'the layout cannot be read'
if [ "$(head -n 1 "$folder/layout")" != 'pointer 8' ]; then
    echo 'skipped: the golden layout is that of 64-bit machines'
    exit 77
fi
diff "$here/layout.golden" "$folder/layout" || {
    complain 'the ABI has changed. ABI.md says what may; if it is meant: make golden-update'
}
# The kept header is what it was.
bash "$here/golden.sh" layout "$here/v0_1" | diff "$here/v0_1/layout.golden" - ||
    complain 'the kept header of 0.1 has changed: it never may'
bash "$here/golden.sh" next | diff "$here/next/kvt_engine.h" - ||
    complain 'next/kvt_engine.h is not made from kvt_engine.h of today: make golden-update'

# Every struct is in there.
while IFS= read -r word; do
    grep -q "^$word [0-9]" "$folder/layout" || complain "$word is not in the layout"
done < <(sed -nE 's/^typedef struct ([a-z_]+) \{/\1/p' "$root/engine_plugin/kvt_engine.h")

# changes FROM TO: a header with this change has another layout.
changes() {
    mkdir -p "$folder/changed"
    cp "$root/cache/kvt_status.h" "$folder/changed/"
    sed "s/$1/$2/" "$root/engine_plugin/kvt_engine.h" >"$folder/changed/kvt_engine.h"
    cmp -s "$folder/changed/kvt_engine.h" "$root/engine_plugin/kvt_engine.h" &&
        complain "'$1' is not in the header"
    bash "$here/golden.sh" layout "$folder/changed" 2>/dev/null | cmp -s - "$folder/layout" &&
        complain "a header with '$2' for '$1' has the same layout"
}
changes 'uint64_t own_tokens;' 'uint32_t own_tokens;'
changes 'int32_t device_ordinal;' 'uint32_t device_ordinal;'
changes 'uint64_t bytes_moved;' 'uint64_t bytes_moved, more;'
changes 'KVT_MISS_DIVERGED 3' 'KVT_MISS_DIVERGED 4'
changes 'kvt_status (\*cancel)(kvt_engine \*, uint64_t job);' ''
changes 'KVT_CAP_EXTRA_KEYS (UINT64_C(1) << 3)' 'KVT_CAP_EXTRA_KEYS (UINT64_C(1) << 4)'

[ $failures -eq 0 ]
