# Completion of kvtier for bash. Commands, options and choices are read from the program's own help,
# so that they cannot fall behind it.
# shellcheck shell=bash

# _kvtier_choices OPTION HELP: the words that an option takes, where its help lists them as a|b|c.
_kvtier_choices() {
    sed -nE "s/^ +$1 ([a-z|-]*\|[a-z|-]+)( .*|)\$/\1/p" <<<"$2" | tr '|' '\n'
}

_kvtier() {
    local current=${COMP_WORDS[COMP_CWORD]} before='' program=${COMP_WORDS[0]} command=() help words
    COMPREPLY=()
    [ "$COMP_CWORD" -eq 0 ] || before=${COMP_WORDS[COMP_CWORD - 1]}
    if [ "$COMP_CWORD" -gt 1 ]; then
        command=("${COMP_WORDS[1]}")
        if [ "${command[0]}" = bench ] && [ "$COMP_CWORD" -gt 2 ]; then
            command+=("${COMP_WORDS[2]}")
        fi
    fi
    help=$("$program" "${command[@]}" --help 2>/dev/null) || return 0
    case $before in
    --plugin | --out | --store) words= ;; # a file or folder
    --*) words=$(_kvtier_choices "$before" "$help") ;;
    *)
        case $current/${command[*]} in
        -*/) words='--help --version' ;;
        -*) words=$(grep -oE '^  --[a-z-]+' <<<"$help") ;;
        */ | */bench) words=$(grep -oE '^  [a-z]+ ' <<<"$help") ;;
        *) words= ;;
        esac
        ;;
    esac
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}

complete -o default -F _kvtier kvtier
