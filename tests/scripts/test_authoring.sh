#!/usr/bin/env bash
# docs/authoring.md, run as it stands: its file blocks are written into an empty folder, its
# console commands run there in order; each line below a command must stand in what it prints.
set -u
cd "$(dirname "$0")/../.."
root=$PWD
doc=${1:-docs/authoring.md}
program=$(realpath "${OG_PROGRAM:-build/release/omni-graph}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/bin" "$work/empty"
ln -s "$program" "$work/bin/omni-graph"
PATH=$work/bin:$PATH
passed=0 failed=0 command='' output=''

fail() {
    failed=$((failed + 1))
    printf '%s: %s\n' "$doc" "$*"
}

run() {
    command=$1
    output=$(bash -c "$command" 2>&1 </dev/null)
    if [ $? -eq 0 ]; then
        passed=$((passed + 1))
    else
        fail "exit code of: $command"$'\n'"$output"
    fi
}

expect() {
    case "$output" in *"$1"*) passed=$((passed + 1)) ;; *)
        fail "'$1' is not in what '$command' prints:"$'\n'"$output"
        ;;
    esac
}

cd "$work/empty" || exit 1
kind='' file='' text=''
while IFS= read -r line; do
    case "$line" in
    '```')
        [ -n "$file" ] && printf '%s' "$text" >"$file"
        kind='' file='' text=''
        ;;
    '```'*) kind=${line#'```'} ;;
    '# file: '* | '-- file: '*)
        [ -n "$kind" ] && file=$(basename "${line#*file: }")
        ;;
    *)
        if [ -n "$file" ]; then
            text+=$line$'\n'
        elif [ "$kind" = console ]; then
            case "$line" in '$ '*) run "${line#'$ '}" ;; *) expect "$line" ;; esac
        fi
        ;;
    esac
done <"$root/$doc"

[ "$passed" -gt 20 ] || fail "only $passed things were checked"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
