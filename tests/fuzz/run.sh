#!/bin/bash
# Fuzzes one of the parsers for a while, from the kept corpus; what is new and worth keeping is
# added to it by hand.
#
#   tests/fuzz/run.sh NAME SECONDS      NAME: trace, options
#
# Exit status: 0 nothing found, 1 something found (the input is named), 77 no libFuzzer here.
set -eu
cd "$(dirname "$0")/../.."
name=$1 seconds=$2
clang=${CLANG:-clang}
command -v "$clang" >/dev/null || {
    echo "skipped: clang is missing: apt-get install clang"
    exit 77
}
out=build/fuzz
mkdir -p "$out/$name"
sources=(tests/fuzz/"$name"_fuzz.c tools/options.c tools/progress.c cache/base/*.c)
if [ "$name" = trace ]; then
    sources+=(tools/trace.c tools/trace_lines.c tools/trace_text.c tools/trace_blocks.c)
fi
"$clang" -std=c11 -D_GNU_SOURCE -g -O1 -fsanitize=fuzzer,address,undefined \
    -fno-sanitize-recover=undefined -I. -Icache -Iengine_plugin "${sources[@]}" \
    -o "$out/${name}_fuzz" -ljansson -lxxhash -lz -lpthread -lm
"$out/${name}_fuzz" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
    -artifact_prefix="$out/" "$out/$name" "tests/fuzz/corpus/$name" 2>"$out/$name.log" || {
    grep -aE 'ERROR|SUMMARY|Test unit written' "$out/$name.log"
    exit 1
}
grep -aE 'number_of_executed_units|new_units_added' "$out/$name.log"
echo "$name: nothing found in $seconds s"
