#!/bin/bash
# Runs every check of the source, and first the check of the checks.
#
#   tests/lint/run.sh [NAME]...     (default: all)
set -u
cd "$(dirname "$0")/../.." || exit 1

if [ $# -eq 0 ]; then
    set -- selftest layers banned length headers marks symbols format shell clang cppcheck \
        tidy
fi
passed=0 failed=0
output=$(mktemp) || exit 1
trap 'rm -f "$output"' EXIT
for name in "$@"; do
    if bash "tests/lint/$name.sh" >"$output" 2>&1; then
        passed=$((passed + 1))
        echo "PASS lint/$name"
    else
        failed=$((failed + 1))
        echo "FAIL lint/$name"
        sed 's/^/    | /' "$output"
    fi
done
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
