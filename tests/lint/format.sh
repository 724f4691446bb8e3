#!/bin/bash
# The C files are as clang-format would write them (.clang-format). With --fix, rewrites them.
fix=0
if [ "${1:-}" = --fix ]; then
    fix=1
    shift
fi
. "$(dirname "$0")/common.sh"

if [ $fix = 1 ]; then
    sources | xargs -r clang-format -i --style=file
    exit
fi
while IFS= read -r file; do
    changed=$(clang-format --style=file "$file" | diff "$file" - | grep -c '^[<>]' || true)
    [ "$changed" -eq 0 ] || complain "$file: $changed lines differ; run make format"
done < <(sources)

done_here
