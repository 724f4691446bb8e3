#!/bin/bash
# Includes follow the order of the house: what a file includes lies in its own layer or below.
#
#   base < device, io, kernels < tier < index < move < cache (facade) < engine_plugin
#
# Policies stand beside index: they include base only, and index and what is above it may include
# them. Clients (tools, engine_plugin/reference and its sisters) see public headers only. And
# cache/move/exec.* runs where the engine's memory is: it reaches no index header, however far.
. "$(dirname "$0")/common.sh"

public='kvt_status.h kvt_cache.h kvt_store.h kvt_engine.h'

# layer FILE: sets `layer`.
layer() {
    case $1 in
    cache/kvt_status.h | cache/base/*) layer=0 ;;
    cache/device/* | cache/io/* | kernels/*) layer=1 ;;
    cache/tier/* | cache/catalog/*) layer=2 ;;
    policies/*) layer=policies ;;
    cache/index/*) layer=3 ;;
    cache/move/*) layer=4 ;;
    cache/*) layer=5 ;;
    engine_plugin/*/* | tools/*) layer=client ;;
    engine_plugin/*) layer=6 ;;
    tests/*) layer=tests ;;
    *) layer=none ;;
    esac
}

# allowed FROM TO NAME: may FROM include TO, which it calls NAME?
allowed() {
    local from to
    layer "$1" && from=$layer
    layer "$2" && to=$layer
    case $from/$to in
    tests/*) ;;
    none/* | */none | */tests) return 1 ;;
    client/*)
        case " $public " in *" $3 "*) return 0 ;; esac
        [ "$(dirname "$1")" = "$(dirname "$2")" ] || [ "$2" = engine_plugin/reference/engine.h ]
        ;;
    */client) return 1 ;;
    policies/policies | policies/0) ;;
    policies/*) return 1 ;;
    */policies) [ "$from" -ge 3 ] ;;
    *) [ "$from" -ge "$to" ] ;;
    esac
}

# place NAME: where an include lies; a bare name is a public header's. Sets `file`, empty when
# it lies nowhere.
place() {
    file=
    case $1 in
    kvt_status.h | kvt_cache.h | kvt_store.h) file=cache/$1 ;;
    kvt_engine.h) file=engine_plugin/$1 ;;
    */*) if [ -f "$1" ]; then file=$1; fi ;;
    esac
}

declare -A includes_of
while IFS=: read -r from line text; do
    name=${text#*\"}
    name=${name%%\"*}
    place "$name"
    if [ -z "$file" ]; then
        complain "$from:$line: \"$name\" is not a path from the root of the repository"
        continue
    fi
    includes_of[$from]="${includes_of[$from]-} $file"
    allowed "$from" "$file" "$name" ||
        complain "$from:$line: includes \"$name\", which is not its to see"
done < <(sources | xargs -r grep -nHE '^[[:space:]]*#[[:space:]]*include[[:space:]]*"')

# reach FILE PATH: everything that FILE includes, and so on; complains of index headers.
reach() {
    local next
    for next in ${includes_of[$1]-}; do
        case $seen in *" $next "*) continue ;; esac
        seen+="$next "
        case $next in cache/index/*) complain "$2 -> $next: exec must not see the index" ;; esac
        reach "$next" "$2 -> $next"
    done
}
for file in cache/move/exec*; do
    seen=" "
    reach "$file" "$file"
done

while IFS= read -r found; do
    complain "$found: our headers are included with quotes"
done < <(sources | xargs -r grep -nHE '#[[:space:]]*include[[:space:]]*<(kvt_|[a-z_]+/kvt|cache/)')

done_here
