#!/bin/bash
# The plug-in used from Python, by ctypes and nothing else.
set -u
here=$(cd "$(dirname "$0")" && pwd)

if ! python3 -c 'import ctypes' 2>/dev/null; then
    echo "skipped: python3 (with ctypes) is not there"
    exit 77
fi
plugin=${KVT_PLUGIN:-build/libkvtier_plugin.so}
if [ ! -f "$plugin" ]; then
    echo "skipped: $plugin is not built"
    exit 77
fi
case ${KVT_VARIANT:-release} in
asan | tsan)
    echo "skipped: a sanitizer must be in the program from its start, and python3 is not ours"
    exit 77
    ;;
esac

# A host that does not finish is no host that works: so nothing but the sentence is good.
printed=$(PYTHONDONTWRITEBYTECODE=1 python3 "$here/ctypes_host.py" "$plugin" 2>&1)
status=$?
echo "$printed"
[ $status -eq 0 ] && [ "$printed" = 'the plug-in works from Python' ]
