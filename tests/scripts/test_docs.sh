#!/usr/bin/env bash
# Documents that say what the code says: keys of overlays, error codes, names of tests and
# files, links.
# Usage: tests/scripts/test_docs.sh [--update]     --update writes the generated part anew
set -u
cd "$(dirname "$0")/../.."
program=${OG_PROGRAM:-build/release/omni-graph}
passed=0 failed=0

mark='<!-- from here on: '
if [ "${1:-}" = --update ]; then
    new=$(mktemp)
    { sed "/^$mark/q" docs/overlays.md && "$program" schema overlay --markdown; } >"$new" &&
        cat "$new" >docs/overlays.md
    rm -f "$new"
fi

check() { # name, what is wrong (nothing: passed)
    if [ -z "$2" ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        printf '%s:\n%s\n' "$1" "$2"
    fi
}

# docs/overlays.md ends with what the program prints.
overlays() {
    diff <(sed "1,/^$mark/d" docs/overlays.md) <("$program" schema overlay --markdown) |
        head -20
}

codes() {
    local code
    for code in $(sed -n 's/^ *X(\(OG_E[A-Z]*\),.*/\1/p' kernels/base/err.h); do
        grep -q "^| \`$code\` " docs/errors.md || echo "docs/errors.md lacks $code"
    done
    for code in $(sed -n 's/^| `\(OG_E[A-Z]*\)` .*/\1/p' docs/errors.md); do
        grep -q "X($code," kernels/base/err.h || echo "there is no $code"
    done
}

# `folder/file: test` of docs/traps.md.
traps() {
    local ref file
    grep -o '`[a-z]*/test_[a-z0-9_]*: test_[a-z0-9_]*`' docs/traps.md | tr -d '`' |
        while IFS= read -r ref; do
            file=tests/${ref%%:*}.c
            grep -q "${ref##*: }(void \*\*state)" "$file" 2>/dev/null || echo "no $ref"
        done
}

# Files named in backquotes or linked from a document of docs/.
files() {
    local doc target
    for doc in docs/*.md README.md examples/README.md; do
        grep -o '](\([^)#]*\)' "$doc" | sed 's/^](//' | grep -v '^http' | sort -u |
            while IFS= read -r target; do
                [ -z "$target" ] || [ -e "$(dirname "$doc")/$target" ] ||
                    echo "$doc: no $target"
            done
    done
    grep -oh '`tests/[a-z_/.-]*\.\(c\|sh\)`' docs/*.md | tr -d '`' | sort -u |
        while IFS= read -r target; do
            [ -e "$target" ] || echo "no $target"
        done
}

check "docs/overlays.md is not current ($0 --update)" "$(overlays)"
check "docs/errors.md" "$(codes)"
check "docs/traps.md" "$(traps)"
check "files" "$(files)"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
