#!/usr/bin/env bash
# The test_* functions of tests/lua/*_test.lua: hooks and libraries that we ship.
set -u
cd "$(dirname "$0")/../.."
program=${OG_PROGRAM:-build/release/omni-graph}
passed=0 failed=0
for file in tests/lua/*_test.lua; do
    if out=$("$program" hook test "$file"); then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        printf '%s\n' "$out"
    fi
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
