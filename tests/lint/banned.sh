#!/bin/bash
# Functions that have a safer sister, or that no library should call.
. "$(dirname "$0")/common.sh"

banned='strcpy|strcat|stpcpy|sprintf|vsprintf|gets|strtok|atoi|atol|atoll|atof|alloca|system|popen'
banned+='|rand|srand|tmpnam|mktemp'
while IFS= read -r file; do
    while IFS= read -r found; do
        complain "$file:$found"
    done < <(bare "$file" | grep -nE "(^|[^A-Za-z0-9_.>])($banned)[[:space:]]*\(" || true)
done < <(sources)

done_here
