#!/bin/bash
# What `make install` installs is enough for a stranger: a program outside the tree builds against
# it by pkg-config, the installed program finds its plug-in, manual and completion say what the
# program's help says, and `make uninstall` leaves nothing.
set -u

case ${KVT_VARIANT:-release} in
release) ;;
*)
    echo "skipped: the release is what is installed"
    exit 77
    ;;
esac
if [ ! -x build/kvtier ] || [ ! -f build/libkvtier_plugin.so ]; then
    echo "skipped: the program or the plug-in is not built"
    exit 77
fi
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
unset MAKEFLAGS MFLAGS MAKELEVEL
version=$(cat VERSION)
failures=0

complain() {
    echo "$*"
    failures=$((failures + 1))
}

# install_to PREFIX TARGET: below the folder.
install_to() {
    make "$2" DESTDIR="$folder" PREFIX="$1" >"$folder/said" 2>&1 || {
        complain "make $2 failed"
        cat "$folder/said"
    }
}

# build NAME COMPILER...: a program against the installed library, by pkg-config.
build() {
    local name=$1 flags
    shift
    flags=$(PKG_CONFIG_SYSROOT_DIR=$folder PKG_CONFIG_PATH=$root/lib/pkgconfig \
        pkg-config --cflags --libs kvtier) || complain "pkg-config does not know kvtier"
    # shellcheck disable=SC2086 # a list of flags
    "$@" -o "$folder/$name" "$folder/$name.c" $flags || complain "$name does not build: $*"
}

# runs NAME: it must, with the installed library and no other.
runs() {
    LD_LIBRARY_PATH=$root/lib "$folder/$1" || complain "$1 does not run"
}

prefix=/opt/kvtier
root=$folder$prefix
install_to $prefix install-files

# ---- a program of ten lines ----

cat >"$folder/ten.c" <<'C'
#include <kvt_cache.h>

int main(void)
{
    char why[256];
    struct kvt_cache *cache;
    struct kvt_cache_config config = {};
    config.host_bytes = 1 << 20;
    if (kvt_cache_create(&config, &cache, why, sizeof(why)) != KVT_OK) return 1;
    return kvt_cache_destroy(cache) != KVT_OK;
}
C
cp "$folder/ten.c" "$folder/ten17.c"
printf '#include <kvt_engine.h>\nint main(void) { return KVT_ABI_MAJOR; }\n' >"$folder/engine.c"
cat >"$folder/inside.c" <<'C'
extern const char kvt_clock_monotonic;

int main(void) { return kvt_clock_monotonic == 1; }
C

cc=${CC:-gcc}
build ten "$cc" -std=c11 -Wall -Wextra -Werror
runs ten
build engine "$cc" -std=c11 -Wall -Wextra -Wpedantic -Werror
runs engine
if command -v g++ >/dev/null 2>&1; then
    build ten17 g++ -x c++ -std=c++17 -Wall -Wextra -Werror
    runs ten17
fi
needed=$(readelf -d "$folder/ten" | sed -nE 's/.*NEEDED.*\[(libkvtier.*)\]/\1/p')
[ "$needed" = "libkvtier.so.${version%%.*}" ] || complain "the program needs '$needed'"
# What the header does not declare cannot be linked, though it is in there.
if "$cc" -o "$folder/inside" "$folder/inside.c" -L"$root/lib" -lkvtier 2>/dev/null; then
    complain "an inner symbol can be linked"
fi
"$cc" -o "$folder/inside" "$folder/inside.c" "$root/lib/libkvtier.a" -luring -pthread ||
    complain "the control does not link: the symbol has another name now"
"$cc" -std=c11 -I"$root/include/kvtier" "$folder/ten.c" -o "$folder/ten" "$root/lib/libkvtier.a" \
    -luring -pthread || complain "the static library does not link"
LD_LIBRARY_PATH='' "$folder/ten" || complain "the program with the static library does not run"

# ---- the program, its manual, its completion ----

program=$root/bin/kvtier
printed=$("$program" generate --sessions 1 --turns 1 --out "$folder/trace.kvt.jsonl" 2>&1) ||
    complain "generate: $printed"
# A plug-in that is none is named in the error: so it shows which one is opened.
printf 'none\n' >"$root/lib/kvtier/libkvtier_plugin.so"
printed=$("$program" replay --only with --sessions 1 "$folder/trace.kvt.jsonl" 2>&1)
case $printed in
*"$root/bin/../lib/kvtier/libkvtier_plugin.so"*) ;;
*OpenBLAS*) ;; # it is not there: the engine does not come so far
*) complain "replay does not open the installed plug-in: $printed" ;;
esac
install -m 755 build/libkvtier_plugin.so "$root/lib/kvtier/"

# options_of FILE: what begins an entry of the manual, as the help writes it.
options_of() {
    grep -A 1 '^\.TP' "$1" | sed 's/\\-/-/g' | grep -oE -- '--[a-z-]+' | sort -u
}

# said_by COMMAND...: the options in the help.
said_by() {
    "$program" "$@" --help | grep -oE '^  --[a-z-]+' | tr -d ' ' | sort -u
}

# same WHAT A B
same() {
    if [ -z "$2" ] || [ "$2" != "$3" ]; then
        complain "$1 differs:"
        diff <(echo "$2") <(echo "$3")
    fi
}

pages=$root/share/man/man1
for command in replay generate; do
    same "the manual of $command" "$(options_of "$pages/kvtier-$command.1")" \
        "$(said_by $command)"
done
same 'the manual of bench' "$(options_of "$pages/kvtier-bench.1")" \
    "$( (said_by bench match; said_by bench insert; said_by bench nvme;
        said_by bench open) | sort -u)"
same 'the commands of the manual' \
    "$(grep -A 1 '^\.TP' "$pages/kvtier.1" | sed -nE 's/^\.B ([a-z]+)$/\1/p' | sort)" \
    "$("$program" --help | sed -nE 's/^  ([a-z]+) .*/\1/p' | sort)"
grep -qF "kvtier $version" "$pages/kvtier.1" || complain 'the manual does not tell the version'
if grep -rn '@[A-Z]*@' "$pages" "$root/lib/pkgconfig"; then
    complain 'a template is not filled in'
fi

# completes WANTED WORD...: what the completion offers for the last word.
completes() {
    local wanted=$1 got
    shift
    got=$(
        # shellcheck disable=SC1091 # made by the installation
        . "$root/share/bash-completion/completions/kvtier"
        COMP_WORDS=("$program" "$@")
        COMP_CWORD=$#
        _kvtier
        echo "${COMPREPLY[*]-}"
    )
    [ "$got" = "$wanted" ] || complain "completion of '$*': '$got', not '$wanted'"
}
completes 'replay' re
completes '--help --version' --
completes '--plugin' replay --pl
completes 'max' replay --speed m
completes 'none foreign-page same-page' replay --control ''
completes 'foreign-page' replay --control f
completes 'match insert nvme open' bench ''
completes '--rounds' bench match --ro
completes '' replay --plugin ''

# ---- nothing is left ----

install_to $prefix uninstall
left=$(cd "$root" && find . -not -type d; find . -mindepth 1 -type d -name kvtier)
[ -z "$left" ] || complain "uninstall leaves: $left"

[ $failures -eq 0 ]
