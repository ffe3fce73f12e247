#!/usr/bin/env bash
# Every deploy file of the public vllm-omni wheel through `omni-graph check --overlay-only`.
# Usage: tests/compat/vllm-omni.sh [WHEEL or FOLDER of deploy files]
# Without an argument the wheel is fetched by name (pip, network); where that cannot be done
# the test is skipped. Exit code 1 if a file fails. Not part of scripts/test.
set -u
cd "$(dirname "$0")/../.."
version=0.30.0
program=${OG_PROGRAM:-build/release/omni-graph}
case "${1:-}" in
-h | --help)
    sed -n '2,5s/^# //p' "$0"
    exit 0
    ;;
esac

skip() {
    echo "skipped: $*"
    exit 0
}

[ -x "$program" ] || { echo "there is no $program; scripts/build makes it" >&2; exit 2; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
source=${1:-}
if [ -z "$source" ]; then
    command -v python3 >/dev/null || skip "there is no python3 (apt-get install python3-pip)"
    python3 -m pip --version >/dev/null 2>&1 ||
        skip "there is no pip (apt-get install python3-pip)"
    python3 -m pip download -q --no-deps -d "$work" "vllm-omni==$version" >"$work/log" 2>&1 ||
        skip "vllm-omni==$version could not be fetched: $(tail -1 "$work/log")"
    source=$(ls "$work"/*.whl)
fi
if [ -f "$source" ]; then
    command -v python3 >/dev/null || skip "there is no python3 to unpack the wheel"
    python3 -m zipfile -e "$source" "$work/wheel" || exit 2
    source=$work/wheel/vllm_omni/deploy
fi
files=("$source"/*.yaml)
[ -f "${files[0]}" ] || { echo "no .yaml in $source" >&2; exit 2; }

"$program" check --overlay-only "${files[@]}" >"$work/status" 2>"$work/messages"

count() { grep -c "^$1 " "$work/status"; }
failed=$(count fail)
echo "${#files[@]} files: $(count 'ok  ') ok, $(count warn) with warnings, $failed failed"
[ "$((failed + $(count warn) + $(count 'ok  ')))" -eq "${#files[@]}" ] ||
    { echo "not every file was checked"; failed=$((failed + 1)); }

echo
echo "known keys that have no effect yet, and in how many places they stand:"
sort -u "$work/messages" | sed -n "s/^[^ ]*: warning: '\([^']*\)' is known but has no effect.*/\1/p" |
    sort | uniq -c | sort -k1,1nr -k2
echo
echo "other warnings:"
sort -u "$work/messages" | sed -n 's/^[^ ]*: warning: //p' | grep -v 'is known but has no effect' |
    sort | uniq -c | sort -k1,1nr -k2
if [ "$failed" -gt 0 ]; then
    echo
    echo "failed:"
    sed -n "s|^fail $source/||p" "$work/status"
    grep -A3 ': error: ' "$work/messages"
fi
echo
echo "$((${#files[@]} - failed)) passed, $failed failed"
[ "$failed" -eq 0 ]
