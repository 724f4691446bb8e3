#!/bin/bash
# What is visible: the plug-in exports what kvt.map and kvt_engine.h name, the shared library what
# kvtier.map and its two headers name, nothing else; everything global in the static objects has our
# prefix; the program needs what it should. Needs a build.
. "$(dirname "$0")/common.sh"

lines() { tr '\n' ' ' | sed 's/ $//'; }

# exports FILE, globals MAP: the names, sorted, in a line.
exports() { nm -D --defined-only "$1" | awk '{ print $3 }' | sort | lines; }
globals() {
    awk '/global:/ { on = 1; next } /local:/ { on = 0 }
        on { gsub(/[ \t;]/, ""); if ($0 != "") print }' "$1" | sort | lines
}

plugin=build/libkvtier_plugin.so
library=build/libkvtier.a
map=engine_plugin/kvt.map
header=engine_plugin/kvt_engine.h

if [ -f "$plugin" ]; then
    exported=$(exports "$plugin")
    mapped=$(globals "$map")
    declared=$(sed -nE 's/^extern .*[ *](kvt_[a-z0-9_]+);.*/\1/p' "$header" | sort | lines)
    [ -n "$exported" ] || complain "$plugin exports nothing"
    [ "$exported" = "$mapped" ] ||
        complain "$plugin exports '$exported', $map says '$mapped'"
    [ "$declared" = "$mapped" ] ||
        complain "$header declares '$declared', $map says '$mapped'"
    # An allocator with static TLS cannot be loaded by an engine that runs already.
    if readelf -d "$plugin" | grep -E 'NEEDED.*(jemalloc|tcmalloc|openblas|jansson)'; then
        complain "$plugin needs a library that it must not"
    fi
    if readelf -d "$plugin" | grep -q TEXTREL; then
        complain "$plugin has text relocations"
    fi
elif compgen -G 'engine_plugin/*.c' >/dev/null; then
    complain "$plugin is not built"
fi

map=cache/kvtier.map
headers=(cache/kvt_cache.h)
[ ! -f cache/kvt_store.h ] || headers+=(cache/kvt_store.h)
if [ -f "$map" ]; then
    mapped=$(globals "$map")
    declared=$(for header in "${headers[@]}"; do bare "$header"; done |
        grep -oE '\bkvt_(cache|store)_[a-z0-9_]+\(' | tr -d '(' | sort -u | lines)
    [ "$declared" = "$mapped" ] ||
        complain "${headers[*]} declare '$declared', $map says '$mapped'"
    shared=build/libkvtier.so.$(cut -d . -f 1,2 VERSION)
    if [ -f "$shared" ]; then
        exported=$(exports "$shared")
        [ "$exported" = "$mapped" ] || complain "$shared exports '$exported', $map says '$mapped'"
        name=libkvtier.so.$(cut -d . -f 1 VERSION)
        readelf -d "$shared" | grep -qF "[$name]" || complain "$shared has not the soname $name"
    else
        complain "$shared is not built"
    fi
fi

program=build/kvtier
if [ -f "$program" ]; then
    needed=$(readelf -d "$program" | grep NEEDED)
    case $needed in *jemalloc*) ;; *) complain "$program does not use jemalloc" ;; esac
    # Opened at run time by the commands that compute; the others do without.
    case $needed in *openblas*) complain "$program needs OpenBLAS to start" ;; esac
fi

if [ -f "$library" ]; then
    objects=$(find build/release/tools build/release/engine_plugin -name '*.o' 2>/dev/null || true)
    # shellcheck disable=SC2086 # a list of paths without blanks
    while read -r symbol; do
        complain "$symbol is global and lacks the prefix kvt_"
    done < <(nm -g --defined-only $library $objects |
        awk 'NF == 3 && $3 !~ /^kvt_/ && $3 != "main" { print $3 }')
else
    complain "$library is not built"
fi

done_here
