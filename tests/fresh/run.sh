#!/bin/bash
# The quick start of the README in a system that has nothing of ours installed.
#
#   tests/fresh/run.sh [SUITE] [COMMAND]     as root; default: this system's suite, and
#                                            'make demo && make test'
#
# Bootstraps a minimal Debian or Ubuntu root into a temporary folder (debootstrap, from the package
# source that this system is configured with), clones the committed state of this repository into
# it, runs there what the README says, and removes the folder. Needs about 3 GB for a quarter of an
# hour. Exit status: that of the commands; 77 where it cannot be tried, with the reason.
set -eu
cd "$(dirname "$0")/../.."

skip() {
    echo "skipped: $1"
    exit 77
}
[ "$(id -u)" -eq 0 ] || skip 'only root can make a root'
command -v debootstrap >/dev/null || skip 'debootstrap is missing: apt-get install debootstrap'

. /etc/os-release
suite=${1:-$VERSION_CODENAME}
commands=${2:-make demo && make test}
# shellcheck disable=SC2016 # apt's own placeholders
mirror=$(apt-get indextargets --format '$(SITE) $(RELEASE)' 'Created-By: Packages' |
    awk -v suite="$suite" '$2 == suite { print $1; exit }')
[ -n "$mirror" ] || skip "this system has no package source of the suite $suite"

root=$(mktemp -d)
chmod 755 "$root" # as a root is: tests become other users
cleanup() {
    umount -l "$root/proc" "$root/dev" 2>/dev/null || true
    rm -rf --one-file-system "$root"
}
trap cleanup EXIT

echo "== bootstrapping $suite"
debootstrap --variant=minbase "$suite" "$root" "$mirror" >"$root.log" 2>&1 || {
    tail -20 "$root.log"
    skip 'debootstrap failed'
}
rm -f "$root.log"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
cp /etc/resolv.conf "$root/etc/resolv.conf"
for file in /etc/apt/apt.conf.d/*; do
    # How this system reaches its package source, and nothing else of its settings.
    if grep -qs '^ *Acquire::' "$file"; then
        cp "$file" "$root/etc/apt/apt.conf.d/"
    fi
done
git clone -q --bare . "$root/srv/kvtier.git"

# The install line of the README, as it stands there.
install=$(sed -n 's/^\(apt-get install .*\)$/\1/p' README.md | head -1)
[ -n "$install" ] || {
    echo 'the README has no install line'
    exit 1
}
echo "== in the fresh root: $install; git clone; $commands"
chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
    DEBIAN_FRONTEND=noninteractive bash -eu -c "
        apt-get update -qq
        $install >/dev/null
        git clone -q /srv/kvtier.git /srv/kvtier
        cd /srv/kvtier
        $commands"
echo '== done'
