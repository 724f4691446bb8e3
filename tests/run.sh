#!/bin/bash
# Runs tests, one after the other: programs, and scripts whose name ends in .sh.
#
#   tests/run.sh TEST...
#
# Prints one line a test, PASS, FAIL or SKIP (exit status 77), shows what a failed test printed, and
# closes with `N passed, N failed, N skipped`. Exit status 1 when one failed, or when none ran.
# Environment: KVT_TEST_TIMEOUT (seconds a test may take; 240), KVT_TEST_ONLY (run those whose path
# contains it), KVT_VARIANT, KVT_SKIPS_ALLOWED (where it is set, a test that skips itself and is not
# in this list of names, separated by spaces, has failed).
set -u

limit=${KVT_TEST_TIMEOUT:-240}
only=${KVT_TEST_ONLY:-}
passed=0 failed=0 skipped=0
output=$(mktemp) || exit 1
trap 'rm -f "$output"' EXIT

# Check gives a test four seconds, which a busy machine or a sanitizer can use up; the limit above
# is the one that counts.
export CK_DEFAULT_TIMEOUT=${CK_DEFAULT_TIMEOUT:-$limit}
export CK_VERBOSITY=${CK_VERBOSITY:-normal}
export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_stack_use_after_return=1:strict_string_checks=1}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1}
export TSAN_OPTIONS=${TSAN_OPTIONS:-halt_on_error=1:second_deadlock_stack=1}

may_skip() {
    [ -n "${KVT_SKIPS_ALLOWED+set}" ] || return 0
    local name
    name=$(basename "$1" .sh)
    case " $KVT_SKIPS_ALLOWED " in
    *" $name "*) return 0 ;;
    esac
    return 1
}

wrap=()
if [ "${KVT_VARIANT:-}" = tsan ]; then
    # A forked child of a threaded program is no place for the thread sanitizer.
    export CK_FORK=no
    # Its shadow memory needs an address space that is not spread too widely.
    if setarch -R true 2>/dev/null; then wrap=(setarch -R); fi
fi

for test in "$@"; do
    case $test in
    *"$only"*) ;;
    *) continue ;;
    esac
    start=$SECONDS
    if [ "${test%.sh}" != "$test" ]; then
        timeout -k 10 "$limit" bash "$test" >"$output" 2>&1 </dev/null
    else
        timeout -k 10 "$limit" ${wrap[@]+"${wrap[@]}"} "$test" >"$output" 2>&1 </dev/null
    fi
    status=$?
    case $status in
    0)
        passed=$((passed + 1))
        echo "PASS $test ($((SECONDS - start)) s)"
        ;;
    77)
        if may_skip "$test"; then
            skipped=$((skipped + 1))
            echo "SKIP $test: $(tail -n 1 "$output")"
        else
            failed=$((failed + 1))
            echo "FAIL $test (skipped, which is not allowed here): $(tail -n 1 "$output")"
        fi
        ;;
    *)
        failed=$((failed + 1))
        reason="exit status $status"
        [ $status -ne 124 ] && [ $status -ne 137 ] || reason="not done after $limit s"
        echo "FAIL $test ($reason)"
        sed 's/^/    | /' "$output"
        ;;
    esac
done

echo "$passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ] && [ $((passed + skipped)) -gt 0 ]
