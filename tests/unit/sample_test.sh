#!/bin/bash
# The sample trace that the project ships is what its own generator makes, byte for byte; another
# seed makes another one.
set -eu
cd "$(dirname "$0")/../.."
made=$(mktemp)
trap 'rm -f "$made"' EXIT
"$KVTIER" generate --seed 1 --sessions 4 --scale 15 --out "$made" >/dev/null
cmp tests/golden/sample.kvt.jsonl "$made"
"$KVTIER" generate --seed 2 --sessions 4 --scale 15 --out "$made" >/dev/null
! cmp -s tests/golden/sample.kvt.jsonl "$made"
