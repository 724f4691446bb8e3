#!/bin/bash
# Line coverage by folder, from what gcov counted in a build with VARIANT=cover.
#
#   tests/cover.sh [BUILD_FOLDER]      (default: build/cover)
#
# One line a file with KVT_COVER_FILES=1. Tests themselves are left out; a file that no test ran
# counts with none of its lines.
set -euo pipefail
export LC_ALL=C.UTF-8
build=${1:-build/cover}

command -v gcov >/dev/null 2>&1 || {
    echo "cover: gcov is not there; it comes with gcc"
    exit 3
}
[ -d "$build" ] || {
    echo "cover: $build is not there: make cover builds it"
    exit 3
}

# gcov tells of headers that a file includes, too: only the file itself is counted.
find "$build" -name '*.gcno' -not -path "$build/tests/*" | sort |
    while IFS= read -r notes; do
        source=${notes#"$build"/}
        source=${source%.gcno}.c
        [ -f "$source" ] || continue
        gcov --no-output "$notes" 2>/dev/null | awk -v source="$source" '
            /^File / { mine = $0 == "File '\''" source "'\''" }
            mine && /^Lines executed:/ {
                sub(/^Lines executed:/, "")
                split($0, part, "% of ")
                printf "%s %d %d\n", source, part[1] * part[2] / 100 + 0.5, part[2]
                mine = 0
            }'
    done |
    awk -v files="${KVT_COVER_FILES:-0}" '
        function row(name, ran, lines) {
            printf "%-34s %6d of %6d lines  %5.1f %%\n", name, ran, lines, 100 * ran / lines
        }
        {
            folder = $1
            sub(/\/[^\/]*$/, "", folder)
            if (!(folder in lines)) order[++folders] = folder
            ran[folder] += $2
            lines[folder] += $3
            top = folder
            sub(/\/.*/, "", top)
            if (!(top in top_lines)) top_order[++tops] = top
            top_ran[top] += $2
            top_lines[top] += $3
            all_ran += $2
            all_lines += $3
            if (files && $3) row($1, $2, $3)
        }
        END {
            if (!all_lines) {
                print "cover: nothing was counted"
                exit 1
            }
            if (files) print ""
            for (i = 1; i <= folders; i++) row(order[i], ran[order[i]], lines[order[i]])
            print ""
            for (i = 1; i <= tops; i++)
                row(top_order[i] "/ altogether", top_ran[top_order[i]], top_lines[top_order[i]])
            row("everything", all_ran, all_lines)
        }'
