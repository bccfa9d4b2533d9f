#!/bin/bash
# Runs the acceptance kit on its own fake GPU, on which contexts use memory: kit_test.sh BUILD CASE.
set -u
build=$1 case=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
report=$folder/report.json
echo 'NVIDIA A100-SXM4-80GB;81920;108;256' >"$folder/gpus.txt"
"$build/fake-driver/aliquot-fake-driver" install --root "$folder" --source "$build/fake-driver" --cdi "$folder/cdi" \
    --gpus "$folder/gpus.txt" --node kit >/dev/null || exit 1
export LD_LIBRARY_PATH=$folder/lib ALIQUOT_FAKE_GPUS=$folder/gpus PATH=$folder/bin:$PATH
tests=$build/fake-driver/test # NVIDIA's packages from PyPI, if the tests could download them
installed=
for packages in clients nvcc; do
    [ ! -e "$tests/$packages/installed" ] || installed=$installed${installed:+:}$tests/$packages
done
export PYTHONPATH=$installed
kit() { "$(dirname "$0")/run" --no-build --build "$build" --json "$report" --timeout 60 "$@"; }
# The tolerance is wide: this test runs in real time on a machine that may be busy. Without a limit the error is larger.
short_duty="--seconds 1 --warm-up 0.7 --kernels 2000000 --shares 20 40+20 --tolerance 18"
# Prints the number of checks with this status whose name contains WORDS.
count() { # STATUS WORDS
    python3 -c 'import json, sys
checks = json.load(open(sys.argv[1]))["checks"]
print(sum(check["status"] == sys.argv[2] and sys.argv[3] in check["check"] for check in checks))' "$report" "$1" "$2"
}
expect() { # NUMBER STATUS WORDS
    [ "$(count "$2" "$3")" = "$1" ] || {
        echo "$case: expected $1 checks named \"$3\" with status $2, found $(count "$2" "$3")" >&2
        exit 1
    }
}

case $case in
passes_on_the_fake_driver)
    # shellcheck disable=SC2086
    kit --only addresses memory context nvidia-smi launch duty --pairs 1 $short_duty || exit 1
    expect 1 PASS "dlsym and cuGetProcAddress return the shim's hooks"
    expect 6 PASS "memory is limited"
    expect 1 PASS "four processes that allocate at once"
    expect 1 PASS "the memory of a process's first context"
    expect 1 PASS "context included, stays within the limit"
    expect 2 PASS " with kernels of "
    expect 1 PASS "nvidia-smi -q differs only"
    [ ! -e "$tests/clients/installed" ] || expect 2 PASS "libcudart"
    [ ! -e "$tests/nvcc/installed" ] || expect 1 PASS "a program compiled by nvcc"
    expect 2 SKIP "a loop of kernel launches"
    ;;
fails_without_limits)
    # shellcheck disable=SC2086
    kit --only addresses memory nvidia-smi duty $short_duty --shim "$build/test/libprobe.so"
    [ $? = 1 ] || {
        echo "$case: expected exit status 1 after a failed check" >&2
        exit 1
    }
    expect 1 FAIL "dlsym and cuGetProcAddress return the shim's hooks"
    expect 1 FAIL "plain memory is limited"
    expect 1 FAIL "nvidia-smi -q differs only"
    expect 0 PASS "memory is limited"
    expect 2 FAIL " with kernels of "
    ;;
*)
    echo "kit_test.sh: unknown case $case" >&2
    exit 2
    ;;
esac
