#!/bin/bash
# tests/setup.sh against a machine made of stubs: what it says, what it installs, when it refuses.
# shellcheck disable=SC2016 # what is in quotes is the stubs' code
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
stubs=$(mktemp -d)
trap 'rm -rf "$stubs"' EXIT
PATH=$stubs:$PATH
wrong=0

# stub NAME BODY: a command that notes its call and runs the body.
stub() {
    printf '#!/bin/bash\necho "%s $*" >>"%s/calls"\n%s\n' "$1" "$stubs" "$2" >"$stubs/$1"
    chmod +x "$stubs/$1"
}

# machine: nothing is installed, root is at work, the package lists are good.
machine() {
    stub dpkg-query 'exit 1'
    stub pkg-config 'exit 1'
    stub ldconfig ':'
    stub id 'echo 0'
    stub sudo 'exit 1'
    stub apt-get ':'
}

# setup STATUS PART...: runs it with empty notes; the exit status must be this.
setup() {
    local expected=$1 status=0
    shift
    : >"$stubs/calls"
    "$here/setup.sh" "$@" >"$stubs/said" 2>&1 || status=$?
    [ $status -eq "$expected" ] || {
        echo "setup.sh $*: exit status $status, not $expected"
        cat "$stubs/said"
        wrong=$((wrong + 1))
    }
}

# has FILE TEXT, lacks FILE TEXT
has() {
    grep -qF -- "$2" "$stubs/$1" || {
        echo "line ${BASH_LINENO[0]}: '$2' is not in:" && cat "$stubs/$1"
        wrong=$((wrong + 1))
    }
}
lacks() {
    ! grep -qF -- "$2" "$stubs/$1" || {
        echo "line ${BASH_LINENO[0]}: '$2' is in:" && cat "$stubs/$1"
        wrong=$((wrong + 1))
    }
}

export KVT_NO_INSTALL=0
machine
setup 0 run test
has said 'missing: libopenblas0-pthread check'
has calls 'apt-get install -y --no-install-recommends libopenblas0-pthread check'
lacks calls 'apt-get update'
lacks calls 'sudo'
lacks calls 'upgrade'

# Nothing is missing: not a word, and nobody is asked to install.
stub dpkg-query 'printf "installed %s\n" check libxxhash-dev libjemalloc-dev libjansson-dev \
    zlib1g-dev liburing-dev liblmdb-dev'
stub ldconfig 'printf " libopenblas.so.0 (libc6,x86-64) => /lib/libopenblas.so.0\n"'
setup 0 build run test sanitize
[ ! -s "$stubs/said" ] || has said 'nothing'
lacks calls 'apt-get'

# What pkg-config knows need not be a package; a package that was removed is none.
machine
stub pkg-config '[ "$2" = check ]'
setup 0 test
lacks calls 'apt-get'
machine
stub dpkg-query 'echo "config-files check"'
setup 0 test
has calls 'apt-get install -y --no-install-recommends check'

# Lists that do not know a package are brought up to date first.
machine
stub apt-get '[ "$1 $2" != "install -s" ]'
setup 0 test
has calls 'apt-get update'
# And lists that are too old for an install, after it failed.
machine
stub apt-get 'case $1$2 in install-y) [ -e '"$stubs"'/new ] ;; update) : >'"$stubs"'/new ;; esac'
setup 0 test
has calls 'apt-get update'
stub apt-get '[ "$1 $2" != "install -y" ]'
setup 1 test

# Refusals name the line to run.
machine
KVT_NO_INSTALL=1 setup 3 test
has said '    apt-get install -y --no-install-recommends check'
lacks calls 'apt-get'
stub id 'echo 1000'
setup 3 test
has said '    sudo apt-get install -y --no-install-recommends check'
lacks calls 'apt-get'
stub sudo 'shift; exec "$@"'
setup 0 test
has calls 'sudo -n env'
has calls 'apt-get install -y --no-install-recommends check'

setup 2 nonsense
[ $wrong -eq 0 ]
