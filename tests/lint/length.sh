#!/bin/bash
# Sizes that can be read: a function at most 70 lines, a file at most 800, a line at most 100
# columns, and no tabs but in the Makefile.
. "$(dirname "$0")/common.sh"

function_lines_max=70
file_lines_max=800
columns_max=100

while IFS= read -r file; do
    lines=$(wc -l <"$file")
    [ "$lines" -le $file_lines_max ] || complain "$file: $lines lines (at most $file_lines_max)"
    while IFS= read -r found; do
        complain "$file:$found"
    done < <(bare "$file" | awk -v max=$function_lines_max '
        /^[A-Za-z_]/ && !inside { if (!start) { start = NR; name = $0 } }
        /^\{/ { inside = 1 }
        /^\}/ {
            if (inside && NR - start + 1 > max)
                printf "%d: %d lines (at most %d): %s\n", start, NR - start + 1, max, name
            inside = 0
            start = 0
        }
        /^$|;$/ && !inside { start = 0 }')
done < <(sources)

while IFS= read -r file; do
    while IFS= read -r found; do
        complain "$file:${found%%:*}: more than $columns_max columns"
    done < <(grep -nE "^.{$((columns_max + 1)),}\$" "$file" || true)
    while IFS= read -r found; do
        complain "$file:${found%%:*}: a tab"
    done < <(grep -nF "$(printf '\t')" "$file" || true)
done < <(sources && scripts)

done_here
