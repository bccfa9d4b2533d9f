#!/bin/bash
# Runs the acceptance kit on its own fake GPUs, on which contexts use memory: kit_test.sh BUILD CASE.
set -u
build=$1 case=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
results=$folder/results.jsonl
fail() {
    echo "$case: $*" >&2
    exit 1
}
need_long_tier() {
    [ -n "${ALIQUOT_LONG-}" ] && return
    echo "skipped: this test takes minutes; set ALIQUOT_LONG, as ./aliquot test --long native does"
    exit 77
}
printf '%s\n' 'NVIDIA A100-SXM4-80GB;81920;108;256' 'NVIDIA A100-SXM4-80GB;81920;108;256' >"$folder/gpus.txt"
"$build/fake-driver/aliquot-fake-driver" install --root "$folder" --source "$build/fake-driver" --cdi "$folder/cdi" \
    --gpus "$folder/gpus.txt" --node kit >/dev/null || exit 1
export LD_LIBRARY_PATH=$folder/lib ALIQUOT_FAKE_GPUS=$folder/gpus PATH=$folder/bin:$PATH
tests=$build/fake-driver/test # NVIDIA's packages from PyPI, if the tests could download them
installed=
for packages in clients nvcc; do
    [ ! -e "$tests/$packages/installed" ] || installed=$installed${installed:+:}$tests/$packages
done
export PYTHONPATH=$installed
kit() { "$(dirname "$0")/run" --no-build --build "$build" --results "$results" --timeout 60 "$@"; }
# The tolerance is wide: this test runs in real time on a machine that may be busy. Without a limit the error is larger.
duty() {
    kit duty --seconds 1 --warm-up 0.7 --tolerance 18 \
        --match '( 25 % gets its share|25 % and 25 % get their shares) with kernels of 2 ms' "$@"
}
# Prints the number of checks with this status whose name contains WORDS.
count() { # STATUS WORDS
    python3 -c 'import json, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
print(sum(line.get("status") == sys.argv[2] and sys.argv[3] in line["check"] for line in lines))' "$results" "$1" "$2"
}
expect() { # NUMBER STATUS WORDS
    [ "$(count "$2" "$3")" = "$1" ] ||
        fail "expected $1 checks named \"$3\" with status $2, found $(count "$2" "$3")"
}

case $case in
passes_on_the_fake_driver)
    kit limits || exit 1
    expect 1 PASS "dlsym and cuGetProcAddress return the shim's hooks"
    expect 7 PASS "memory is limited"
    expect 1 PASS "four processes that allocate at once"
    expect 1 PASS "the memory of a process's first context"
    expect 1 PASS "context included, stays within the limit"
    expect 1 PASS "nvidia-smi -q differs only"
    [ ! -e "$tests/clients/installed" ] || expect 2 PASS "libcudart"
    [ ! -e "$tests/nvcc/installed" ] || expect 1 PASS "a program compiled by nvcc"
    kit launches --pairs 1 --processes 60 || exit 1
    expect 2 SKIP "a loop of kernel launches"
    expect 1 PASS "short processes end"
    duty || exit 1
    expect 2 PASS " with kernels of 2 ms"
    grep -q '"costs": \[{"ns": ' "$results" || fail "the results do not contain what the shim learned"
    mkdir "$folder/mps" && : >"$folder/mps/control"
    CUDA_MPS_PIPE_DIRECTORY=$folder/mps kit sharing turns || exit 1
    grep -q 'lent comes back.*not applicable: under MPS' "$results" || fail "a row of shares applies under MPS"
    grep -q '75 + 25.*not applicable: under MPS' "$results" || fail "a row of turns applies under MPS"
    kit questions --drift 1 --match 'busy|slices|context|handle|memory does NVML|clocks' || exit 1
    expect 1 SKIP "how long are time slices"
    expect 1 PASS "work without a current context"
    expect 1 PASS "which memory does NVML show"
    expect 1 PASS "clocks of GPU and host"
    grep -q '"nvml_bytes"' "$folder/measured-NVIDIA-A100-SXM4-80GB.json" || fail "no profile of the GPU"
    ptxas=$tests/nvcc/nvidia/cu13/bin/ptxas
    [ ! -x "$ptxas" ] || "$build/acceptance/accept-questions" ptx | "$ptxas" -arch=sm_90 -o /dev/null - ||
        fail "ptxas does not compile the kernel of the time slices"
    ;;
compares_turns)
    set -- --seconds 0.8 --warm-up 0.5 --match '75 . 25 % with kernels of 2 ms'
    # A program that waits for short kernels, or fills 16 streams, needs a CPU at once: not here.
    [ -z "${ALIQUOT_LONG-}" ] || set -- --match 'rest on|% with'
    # A program that waits long for a CPU does not always have work, and gets no turn: then the next try counts.
    for _ in 1 2 3; do
        rm -f "$results"
        ALIQUOT_FAKE_PROFILE=hopper,switch=150 kit turns --tolerance 18 "$@" || continue
        python3 -c 'import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
rows = [row for row in rows if row.get("limits") == [75, 25]]
assert rows, "no row of 75 + 25"
for row in rows:
    assert min(row["turns"]["had"]) > 0.5 and max(row["without"]["had"]) < 0.1, row
    assert [round(length) for length in row["turns"]["turns"]] == [75, 25], row' "$results" && exit 0
    done
    fail "75 + 25 % miss their shares, have no turns, or have turns beside a container without a limit"
    ;;
fails_without_limits)
    kit addresses memory context nvidia-smi --shim "$build/test/libprobe.so"
    [ $? = 1 ] || fail "expected exit status 1 after a failed check"
    expect 1 FAIL "dlsym and cuGetProcAddress return the shim's hooks"
    expect 1 FAIL "plain memory is limited"
    expect 1 FAIL "context included, stays within the limit"
    expect 1 FAIL "nvidia-smi -q differs only"
    expect 0 PASS "memory is limited"
    [ -n "${ALIQUOT_LONG-}" ] || exit 0
    duty --shim "$build/test/libprobe.so"
    expect 2 FAIL " with kernels of "
    grep -q 'Nothing was charged' "$results" || fail "no diagnosis"
    ;;
fails_if_processes_crash)
    kit processes --processes 8 --shim "$build/acceptance/libcrash-at-exit.so"
    expect 1 FAIL "short processes end"
    ;;
recovers_a_profile)
    # The questions find what the profile of the simulated GPU says.
    profile() { # ITEM: its value in the answers
        python3 -c 'import json, sys
items = dict(item.split("=") for item in json.load(open(sys.argv[1]))["profile"].split(","))
print(items.get(sys.argv[2], "none"))' "$folder/measured-NVIDIA-A100-SXM4-80GB.json" "$1"
    }
    ask() { # ITEMS WORDS: answers the questions whose names match WORDS
        ALIQUOT_FAKE_PROFILE=$1 kit questions --drift 2 --match "$2" || exit 1
    }
    ask drift=200,lazy=20-30,pages=2,context=300,import=same 'clocks|first launch|memory does NVML|same handle'
    [ "$(profile context) $(profile pages) $(profile import)" = "300 2 same" ] || fail "memory is wrong"
    # Answers of earlier calls stay, with their dates.
    answers=$folder/measured-NVIDIA-A100-SXM4-80GB.json
    sed -i 's/"20[0-9-]*T/"1999-01-01T/' "$answers"
    ask drift=200,lazy=20-30,pages=2,context=300,import=same 'same handle'
    [ "$(grep -c 1999-01-01 "$answers")" = 3 ] || fail "the answers have wrong dates"
    python3 -c 'import sys
drift, lazy = float(sys.argv[1]), float(sys.argv[2].split("-")[0])
sys.exit(not (195 < drift < 205 and 20 <= lazy < 60))' "$(profile drift)" "$(profile lazy)" || fail "times are wrong"
    [ -n "${ALIQUOT_LONG-}" ] || exit 0
    ask kind 'kernels of one process overlap'
    [ "$(profile warps)" = none ] || fail "kernels overlap that do not"
    for item in events=own connections=8; do # each takes half a minute
        rm "$folder"/measured-*
        ask $item 'event on an idle stream'
        [ "$(profile "${item%=*}")" = "${item#*=}" ] || fail "$item is not found"
    done
    ;;
computes_time_slices_and_warps)
    # The simulated GPU runs no kernel that could report its time slices: two processes that alternate every 2 ms, where
    # a switch takes 50 us; the second one begins 10 ms later.
    PYTHONPATH=$(dirname "$0") python3 -B - <<'PYTHON' || exit 1
from kit.answers import profile_of, warps_of
from kit.checks.questions import time_slices_of


def timeline(first, runs):
    starts = [first + 4_100_000 * i for i in range(runs)]
    return {"start": starts[0], "end": starts[-1] + 2_000_000, "step_ns": 32,
            "gaps": [[start + 2_000_000, start + 4_100_000] for start in starts[:-1]]}


found = time_slices_of(timeline(0, 100), timeline(2_050_000 + 2 * 4_100_000, 100))
assert (found["slice_us"], found["switch_us"], found["clock_step_ns"]) == (2000, 50, 32), found
never = {"start": 0, "end": 10**9, "step_ns": 32, "gaps": []}
assert time_slices_of(never, never) is None

# 16 kernels of 4 warps each use 1 - (3/4)^16 of multiprocessors that 16 warps keep busy, one uses 1/4.
assert warps_of({"1": 1, "16": 4 * (1 - 0.75 ** 16)}) == 16
assert profile_of({"overlap": {"1": 1, "16": 4 * (1 - 0.75 ** 16)}}) == "warps=16"
assert warps_of({"1": 1, "16": 0.98}) == 4 and profile_of({"overlap": {"1": 1, "16": 0.98}}) == ""
assert warps_of({"1": 1, "16": 12}) == 64
PYTHON
    ;;
keeps_results_when_killed)
    mkfifo "$folder/output"
    kit limits >"$folder/output" 2>&1 &
    while read -r line; do
        case $line in PASS*memory:*) break ;; esac
    done <"$folder/output"
    kill -KILL $!
    wait $! 2>/dev/null
    expect 1 PASS "dlsym and cuGetProcAddress return the shim's hooks"
    expect 1 PASS "plain memory is limited"
    kit limits --time-limit 0 || fail "a check that did not start counts as failed"
    grep -q 'not run: the time limit' "$results" || fail "a check started after the time limit"
    ;;
runs_unpacked_with_glibc_2.17)
    tar -xf "$build/aliquot-acceptance.tar.gz" -C "$folder" || exit 1
    for program in "$folder"/aliquot-acceptance/libaliquot.so "$folder"/aliquot-acceptance/acceptance/accept-[^a]* \
        "$folder"/aliquot-acceptance/acceptance/accept-addresses; do
        newest=$(objdump -T "$program" | grep -oE 'GLIBC_[0-9.]+' | sed 's/GLIBC_//' | sort -uV | tail -1)
        [ -n "$newest" ] || fail "objdump shows no GLIBC version of $program"
        [ "$(printf '%s\n2.17\n' "$newest" | sort -V | tail -1)" = 2.17 ] ||
            fail "$(basename "$program"): $(objdump -T "$program" | grep "GLIBC_$newest")"
    done
    ! objdump -p "$folder/aliquot-acceptance/acceptance/accept-arbiter" | grep NEEDED || fail "the arbiter is not static"
    "$folder/aliquot-acceptance/run" addresses context processes --processes 4 --results "$results" || exit 1
    expect 2 PASS "hook"
    expect 1 PASS "short processes end"
    ;;
passes_in_full_on_the_fake_driver)
    need_long_tier
    PATH=$build/test/real-programs/bin:$PATH # a Python with PyTorch, if the tests of real programs have installed it
    kit questions limits duty launches --tolerance 12 --drift 20 || exit 1
    expect 0 FAIL ""
    ;;
lends_and_takes_back_on_the_fake_driver)
    need_long_tier
    # A program that waits for short kernels, or for requests, needs a CPU at once: not here.
    kit sharing --tolerance 18 --match 'rest on|lent comes|surplus|rest beside|idling|kernel of 5 ms' || exit 1
    expect 6 PASS ""
    ;;
fails_in_full_without_limits)
    need_long_tier
    # Two tenants of 50 % get their shares without limits, too.
    kit duty --seconds 1 --warm-up 0.5 --tolerance 8 --match '^((?!50 % and 50 %).)*$' --shim "$build/test/libprobe.so"
    kit sharing --seconds 1 --warm-up 0.5 --tolerance 8 --match 'lent comes|surplus' --shim "$build/test/libprobe.so"
    kit turns --tolerance 8 --match '75 . 25|waits' --shim "$build/test/libprobe.so"
    expect 0 PASS ""
    ;;
runs_the_node_agent)
    need_long_tier
    [ -x "$build/agent-kit/java/bin/java" ] || {
        echo "skipped: the node agent is not in $build/agent-kit, where ./aliquot acceptance-kit puts it"
        exit 77
    }
    kit agent --tolerance 18 || exit 1
    expect 14 PASS ""
    rm "$results"
    kit agent --tolerance 12 --shim "$build/test/libprobe.so" --match 'starts|by their IDs|charged or|30 % and 70 %|outlive'
    expect 2 PASS ""
    expect 3 FAIL ""
    ;;
*)
    fail "unknown case"
    ;;
esac
