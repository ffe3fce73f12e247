#!/usr/bin/env bash
# Includes point down only: cli -> serve -> run -> compile -> {spec, hook}; hook -> nodes;
# nodes -> kernels. graph/ meets nodes/ only through the node contract, the registry and the
# media files; device headers stay inside kernels/.
set -u
cd "$(dirname "$0")/../.."
failed=0

deny() { # room, regular expression of includes that it must not have
    local hits
    hits=$(grep -rnE "^#include \"($2)" "$1" --include='*.c' --include='*.h' 2>/dev/null)
    if [ -n "$hits" ]; then
        printf '%s must not include %s:\n%s\n' "$1" "$2" "$hits"
        failed=$((failed + 1))
    fi
}

deny kernels 'nodes/|graph/'
deny kernels/base 'kernels/[^b]'
deny nodes 'graph/|kernels/(ref|cpu|cuda|backend|exec)'
deny graph/spec 'nodes/|kernels/[^b]|graph/(compile|run|hook|serve|cli)'
deny graph/hook 'graph/(spec|compile|run|serve|cli)|nodes/(ar|vocoder|encoder|blocks)/'
deny graph/compile 'graph/(run|serve|cli)|nodes/(ar|vocoder|encoder|blocks)/'
deny graph/run 'graph/(serve|cli)|nodes/(ar|vocoder|encoder|blocks)/'
deny graph/serve 'graph/cli|nodes/(ar|vocoder|encoder|blocks)/'
deny graph/cli 'nodes/(ar|vocoder|encoder|blocks)/'

hits=$(grep -rnE 'cuda_runtime|cublas|cudnn|#\s*if.*CUDA' graph nodes --include='*.c' --include='*.h')
if [ -n "$hits" ]; then
    printf 'device conditionals outside kernels/:\n%s\n' "$hits"
    failed=$((failed + 1))
fi
hits=$(grep -rnE '(^|[^a-z_.>])(printf|puts|exit|abort|perror)\(' graph nodes kernels \
    --include='*.c' --include='*.h' | grep -vE '^graph/cli/|:[0-9]+: \*')
if [ -n "$hits" ]; then
    printf 'library code prints or exits:\n%s\n' "$hits"
    failed=$((failed + 1))
fi
passed=$((failed ? 0 : 1))
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
