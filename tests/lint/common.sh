# Sourced by the checks: goes to the folder to check (first argument; else this repository's root).
# shellcheck shell=bash
set -eu
export LC_ALL=C.UTF-8
lint=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "${1:-$lint/../..}"
failures=0

# complain TEXT...: one finding.
complain() {
    echo "$*"
    failures=$((failures + 1))
}

# sources: the C files, tests included, one a line, relative to the root.
sources() {
    find . \( -path ./build -o -path ./.git \) -prune -o -type f \
        \( -name '*.c' -o -name '*.h' -o -name '*.inc' \) -print | sed 's|^\./||' | sort
}

# scripts: what bash runs.
scripts() {
    find . \( -path ./build -o -path ./.git \) -prune -o -type f \
        \( -name '*.sh' -o -path './.ci/run' \) -print | sed 's|^\./||' | sort
}

# bare FILE: its text with comments and the insides of strings blanked, line by line.
bare() {
    awk -f "$lint/bare.awk" "$1"
}

# done_here: the check's exit status.
done_here() {
    [ "$failures" -eq 0 ]
    exit
}
