#!/usr/bin/env bash
# Every example of examples/ is run with the embedded voice, and says what it should.
set -u
cd "$(dirname "$0")/../.."
program=${OG_PROGRAM:-build/release/omni-graph}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0

say() { # pipeline, output, further arguments
    local pipeline=$1 out=$2
    shift 2
    "$program" run "$pipeline" --seed 7 --max-tokens 60 -q -o "$work/$out" "$@"
}

check() { # name, command...
    local name=$1
    shift
    if "$@"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "failed: $name"
    fi
}

# The first line of a dialogue is the plain request, sample for sample, and more follows.
two_speakers() {
    say examples/two_speakers.yaml both.pcm --text "$(printf 'A: Hello.\nB: Good day.')" &&
        say examples/two_speakers.yaml one.pcm --text 'A: Hello.' &&
        say qwen3_tts plain.pcm --text Hello. --voice rms --language english &&
        cmp "$work/one.pcm" "$work/plain.pcm" || return 1
    local n
    n=$(stat -c %s "$work/one.pcm")
    cmp -n "$n" "$work/both.pcm" "$work/one.pcm" || return 1
    # 0.25 s of silence at 24 kHz, 16 bits, then the second line.
    [ "$(stat -c %s "$work/both.pcm")" -gt $((n + 12000)) ] || return 1
    [ "$(tail -c +$((n + 1)) "$work/both.pcm" | head -c 12000 | tr -d '\0' | wc -c)" -eq 0 ]
}

spoken() {
    say examples/spoken.yaml written.pcm --text 'It is 9:05, Dr. Lee.' &&
        say qwen3_tts words.pcm --text 'It is nine oh five, Doctor Lee.' --voice rms \
            --language english &&
        cmp "$work/written.pcm" "$work/words.pcm"
}

two_vocoders() {
    say examples/two_vocoders.yaml first.pcm --text Hello. --tap code2wav.audio="$work/a.npy" \
        --tap whole.audio="$work/b.npy" &&
        say qwen3_tts plain.pcm --text Hello. --voice rms --language english &&
        cmp "$work/a.npy" "$work/b.npy" && cmp "$work/first.pcm" "$work/plain.pcm"
}

mentioned() { # every example has its line in the README
    local file
    for file in examples/*.yaml; do
        grep -q "$(basename "$file")" examples/README.md || return 1
    done
}

check "two speakers" two_speakers
check "spoken" spoken
check "two vocoders" two_vocoders
check "README" mentioned
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
