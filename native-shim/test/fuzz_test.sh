#!/bin/bash
# Runs a fuzzer from the seeds in the tree: fuzz_test.sh SOURCE_FOLDER BUILD_FOLDER NAME. ALIQUOT_FUZZ_SECONDS sets the
# duration (default 1, with ALIQUOT_LONG 60). Skipped (77) if clang with libFuzzer is missing.
set -u
source=$1 build=$2 name=$3
clang=$(compgen -c | grep -xE 'clang(-[0-9]+)?' | sort -V | head -1)
mkdir -p "$build/$name"
echo 'int LLVMFuzzerTestOneInput(const char *data) { return data == 0; }' >"$build/probe.c"
[ -n "$clang" ] &&
    "$clang" -fsanitize=fuzzer,address,undefined "$build/probe.c" -o "$build/probe" 2>"$build/probe.log" || {
    echo "skipped: clang with libFuzzer is not installed (Debian: apt-get install clang libclang-rt-dev)"
    exit 77
}
# The fuzzers of the region and of the agent's file replace the clock; the limit file's needs only the parser.
# shellcheck disable=SC2054
sources=("$source"/src/os/*.c "$source"/src/limits/{account,limits}.c "$source/src/compute/gcra.c" -Wl,--wrap=aliquot_os_clock,--wrap=aliquot_os_sleep)
[ "$name" != limits ] || sources=("$source/src/limits/limits.c")
"$clang" -std=gnu11 -g -O1 -D_GNU_SOURCE -DALIQUOT_INVARIANTS -fsanitize=fuzzer,address,undefined \
    -fno-sanitize-recover=all -I "$source/include" -iquote "$source/src" "$source/test/fuzz/$name.c" "${sources[@]}" -o "$build/$name-fuzzer" ||
    exit 1
seeds=$source/test/fuzz/$name seconds=1
[ -z "${ALIQUOT_LONG-}" ] || seconds=60
seconds=${ALIQUOT_FUZZ_SECONDS-$seconds}
[ "$name" != limits ] || seeds="$source/../api/golden/vgpu/valid $source/../api/golden/vgpu/invalid"
# New inputs and failing inputs stay in the build folder. libFuzzer also prints a failing input.
# shellcheck disable=SC2086
"$build/$name-fuzzer" -max_total_time="$seconds" -timeout=20 -max_len=4096 -print_final_stats=1 \
    -artifact_prefix="$build/$name-" "$build/$name" $seeds 2>&1 | tail -25
exit "${PIPESTATUS[0]}"
