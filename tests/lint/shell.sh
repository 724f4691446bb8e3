#!/bin/bash
# Every script passes shellcheck.
. "$(dirname "$0")/common.sh"

scripts | xargs -r shellcheck -x --source-path=SCRIPTDIR || complain "shellcheck found something"

done_here
