#!/bin/bash
# The acceptance kit on a fake GPU of its own, whose contexts take memory: kit_test.sh BUILD CASE.
set -u
build=$1 case=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
report=$folder/report.json
echo 'NVIDIA A100-SXM4-80GB;81920;108;256' >"$folder/gpus.txt"
"$build/fake-driver/aliquot-fake-driver" install --root "$folder" --source "$build/fake-driver" --cdi "$folder/cdi" \
    --gpus "$folder/gpus.txt" --node kit >/dev/null || exit 1
export LD_LIBRARY_PATH=$folder/lib ALIQUOT_FAKE_GPUS=$folder/gpus PATH=$folder/bin:$PATH
tests=$build/fake-driver/test # NVIDIA's own programs from PyPI, where it could be reached
installed=
for packages in clients nvcc; do
    [ ! -e "$tests/$packages/installed" ] || installed=$installed${installed:+:}$tests/$packages
done
export PYTHONPATH=$installed
kit() { "$(dirname "$0")/run" --no-build --build "$build" --json "$report" --timeout 60 "$@"; }
# Real time on a machine that may be busy: the figures are rough, but far from those without a limit.
short_duty="--seconds 1 --warm-up 0.7 --kernels 2000000 --shares 20 40+20 --tolerance 18"
# Of the checks whose name has the words: how many ended so.
count() { # STATUS WORDS
    python3 -c 'import json, sys
print(sum(check["status"] == sys.argv[2] and sys.argv[3] in check["check"] for check in json.load(open(sys.argv[1]))["checks"]))' \
        "$report" "$1" "$2"
}
must() { # NUMBER STATUS WORDS
    [ "$(count "$2" "$3")" = "$1" ] || {
        echo "$case: not $1 x $2 of \"$3\"" >&2
        exit 1
    }
}

case $case in
passes_on_the_fake_driver)
    # shellcheck disable=SC2086
    kit --only addresses memory context nvidia-smi launch duty --pairs 1 $short_duty || exit 1
    must 1 PASS "dlsym and cuGetProcAddress lead to hooks"
    must 6 PASS "memory is limited"
    must 1 PASS "four processes at once"
    must 1 PASS "first context costs"
    must 1 PASS "whole use stays within the limit"
    must 2 PASS "% with kernels"
    must 1 PASS "nvidia-smi -q is unchanged"
    [ ! -e "$tests/clients/installed" ] || must 2 PASS "libcudart"
    [ ! -e "$tests/nvcc/installed" ] || must 1 PASS "a program compiled by nvcc"
    must 2 SKIP "a loop of bare launches"
    ;;
fails_without_limits)
    # shellcheck disable=SC2086
    kit --only addresses memory nvidia-smi duty $short_duty --shim "$build/test/libprobe.so"
    [ $? = 1 ] || {
        echo "$case: a failed check must be an exit status of 1" >&2
        exit 1
    }
    must 1 FAIL "dlsym and cuGetProcAddress lead to hooks"
    must 1 FAIL "plain memory is limited"
    must 1 FAIL "nvidia-smi -q is unchanged"
    must 0 PASS "memory is limited"
    must 2 FAIL "% with kernels"
    ;;
*)
    echo "no such case" >&2
    exit 2
    ;;
esac
