#!/bin/bash
# Installs the Debian or Ubuntu packages that this project needs and this machine lacks.
#
#   tests/setup.sh [build|run|test|lint|sanitize]...     (default: build run test)
#
# Says what is missing and the command, then runs it without asking. It only installs: no upgrade,
# no new package source, no kernel setting, nothing of CUDA. Where it must not (KVT_NO_INSTALL=1)
# or cannot (no root, no apt-get) install, it prints the line to run and exits 3.
set -eu

[ $# -gt 0 ] || set -- build run test

missing=()

lack() {
    case " ${missing[*]-} " in
    *" $1 "*) ;;
    *) missing+=("$1") ;;
    esac
}

# tool PACKAGE COMMAND...: the package is missing unless one of the commands is there.
tool() {
    local package=$1 command
    shift
    for command in "$@"; do
        if command -v "$command" >/dev/null 2>&1; then return; fi
    done
    lack "$package"
}

# libraries PACKAGE=PKG_CONFIG_NAME...: headers and libraries to build against. One that was not
# installed as a package counts too where pkg-config finds it.
libraries() {
    local pair have=""
    if command -v dpkg-query >/dev/null 2>&1; then
        have=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' "${@%%=*}" 2>/dev/null || true)
    fi
    for pair in "$@"; do
        case $'\n'"$have"$'\n' in
        *$'\n'"installed ${pair%%=*}"$'\n'*) ;;
        *) pkg-config --exists "${pair#*=}" 2>/dev/null || lack "${pair%%=*}" ;;
        esac
    done
}

# headers PACKAGE FILE: a package that shows only by a header.
headers() {
    [ -e "$2" ] || lack "$1"
}

# shared PACKAGE FILE: a library that is opened at run time.
shared() {
    if ! PATH=$PATH:/sbin:/usr/sbin ldconfig -p 2>/dev/null | grep -q "[[:space:]]$2 "; then
        lack "$1"
    fi
}

for want in "$@"; do
    case $want in
    build)
        tool gcc gcc
        tool make make
        tool pkg-config pkg-config pkgconf
        headers libc6-dev /usr/include/stdio.h
        libraries libxxhash-dev=libxxhash libjemalloc-dev=jemalloc libjansson-dev=jansson \
            zlib1g-dev=zlib liburing-dev=liburing liblmdb-dev=lmdb
        ;;
    run) shared libopenblas0-pthread libopenblas.so.0 ;;
    test)
        libraries check=check
        tool g++ g++
        # Its minimal package has no ctypes.
        python3 -c 'import ctypes' 2>/dev/null || lack python3
        ;;
    sanitize) ;; # the sanitizers come with gcc
    lint)
        tool clang clang
        tool clang-tidy clang-tidy
        tool clang-format clang-format
        tool cppcheck cppcheck
        tool shellcheck shellcheck
        tool g++ g++
        ;;
    *)
        echo "setup: unknown part '$want' (build, run, test, lint, sanitize)" >&2
        exit 2
        ;;
    esac
done

[ ${#missing[@]} -gt 0 ] || exit 0

command="apt-get install -y --no-install-recommends ${missing[*]}"
echo "setup: missing: ${missing[*]}"

refuse() {
    echo "setup: $1; run this, then try again:"
    echo "    ${2-}$command"
    exit 3
} >&2

command -v apt-get >/dev/null 2>&1 || refuse "there is no apt-get here (names are Debian's)"
[ "${KVT_NO_INSTALL:-0}" != 1 ] || refuse "not installing (KVT_NO_INSTALL=1)"
as_root=()
if [ "$(id -u)" != 0 ]; then
    if sudo -n true 2>/dev/null; then
        as_root=(sudo -n)
    else
        refuse "installing needs root" "sudo "
    fi
fi

apt() {
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive NEEDRESTART_MODE=l apt-get "$@" </dev/null
}

echo "setup: ${as_root[*]-} $command"
if ! apt install -s "${missing[@]}" >/dev/null 2>&1; then
    echo "setup: the package lists do not know them: apt-get update"
    apt update
fi
if ! apt install -y --no-install-recommends "${missing[@]}"; then
    echo "setup: the package lists may be too old: apt-get update, then once more"
    apt update
    apt install -y --no-install-recommends "${missing[@]}"
fi
