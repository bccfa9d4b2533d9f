#!/usr/bin/env bash
# The tour of `./aliquot demo`: what a user tries first. It shows each command, explains its output and checks it. Each
# tour recreates the namespace `tour` and runs in it.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
cd "$root"

output= # of the last command that `run` showed
start=$SECONDS

if [ -t 1 ]; then bold=$'\033[1m' plain=$'\033[0m'; else bold='' plain=''; fi

title() { printf '\n%s--- %s ---%s\n' "$bold" "$*" "$plain"; }

explain() { printf '%s\n' "$@"; }

# Prints an argument as a shell needs it typed.
quoted() {
    case $1 in
        '' | *[!a-zA-Z0-9_.,:/=@%+-]*) printf "'%s'" "${1//\'/\'\\\'\'}" ;;
        *) printf '%s' "$1" ;;
    esac
}

# Prints a command, runs it and prints its output.
run() { # ARGUMENTS of ./aliquot
    local argument
    printf '  %s$ ./aliquot' "$bold"
    for argument; do printf ' %s' "$(quoted "$argument")"; done
    printf '%s\n' "$plain"
    output=$(./aliquot "$@" 2>&1) || true
    [ -z "$output" ] || printf '%s\n' "$output" | sed 's/^/  /'
    printf '\n'
}

# Ends the tour unless the last output contains a text.
expect() { # TEXT
    case $output in *"$1"*) ;; *) fail "in the output: $1" ;; esac
}

# Ends the tour unless a command prints a text within 10 s.
await_output() { # TEXT ARGUMENTS of ./aliquot
    local text=$1 deadline=$((SECONDS + 10))
    shift
    until output=$(./aliquot "$@" 2>&1) && [[ $output == *"$text"* ]]; do
        [ "$SECONDS" -lt "$deadline" ] || fail "in the output: $text"
        sleep 0.2
    done
}

# Ends the tour unless the second column of the last output has this mean, within 10 percent of a GPU.
expect_about() { # NUMBER
    local mean
    mean=$(printf '%s\n' "$output" | awk '$1 == "busy:" { sum += $2; lines++ } END { printf "%d", lines ? sum / lines : 0 }')
    [ "$mean" -ge $(($1 - 100)) ] && [ "$mean" -le $(($1 + 100)) ] || fail "about $1, but found $mean"
}

expect_equal() { # WHAT EXPECTED FOUND
    [ "$2" = "$3" ] || fail "$1: $2, but found $3"
}

fail() {
    printf '\n%sThe tour failed.%s It expected %s\n' "$bold" "$plain" "$1" >&2
    printf 'See docs/troubleshooting.md, ./aliquot ps, and\n' >&2
    printf '  ./aliquot kubectl -n tour describe pods\n  ./aliquot kubectl -n aliquot logs deployment/aliquot-scheduler -c extender\n' >&2
    exit 1
}

quietly() { ./aliquot "$@" > /dev/null 2>&1; }

clean_up() {
    quietly kubectl delete namespace tour --ignore-not-found --force --grace-period=0 --wait --timeout=60s ||
        fail "the namespace 'tour' to be deleted within 60 s"
    quietly kubectl annotate node node1 'aliquot.io/slots-'
}

# Shows each GPU, and ends the tour unless these are the numbers of pods on the GPUs that have any.
show_gpus() { # NUMBER... in ascending order
    run kubectl get gpus
    # A model's name has spaces; the numbers of pods are in the column before the last.
    expect_equal "pods per GPU" "$*" "$(printf '%s\n' "$output" | awk 'NR > 1 && $(NF - 1) > 0 { print $(NF - 1) }' | sort -n | xargs)"
}

trap 'printf "\nThe tour was interrupted. ./aliquot demo starts it from the beginning.\n" >&2; exit 130' INT TERM

title "A tour of Aliquot"
explain "This is a complete Kubernetes cluster: three nodes, each with two GPUs of 81920 MiB. The GPUs and their driver" \
    "are simulated; all other programs are those of a production cluster. You can repeat each command below in this folder."
clean_up
quietly kubectl create namespace tour || fail "to create the namespace 'tour'"
run kubectl get gpunodes
expect 0/163840Mi
run kubectl get gpus
expect Healthy
explain "These are objects of Aliquot's API; memory and cores are allocated/total. Up to 10 pods share a GPU. node3 is not" \
    "Aliquot's: NVIDIA's own device plugin serves its GPUs, in four time slices each."

title "1. A pod requests 3000 MiB and 30 % of a GPU"
explain "The limits in lab/tour/first-pod.yaml:"
sed -n '/limits:/,$p' lab/tour/first-pod.yaml | sed 's/^/  /'
run kubectl -n tour apply -f lab/tour/first-pod.yaml
run kubectl -n tour wait --for=condition=Ready pod/first --timeout=30s
expect "condition met"
explain "Its gpushare has the pod's name and says what it holds; memory and cores are used/allocated. What it uses is shown" \
    "once the node agent has measured it:"
run kubectl -n tour get gpushares
expect "/3000Mi"
expect "/30%"
explain "In the container the GPU has 3000 MiB:"
run kubectl -n tour exec first -- nvidia-smi
expect "0MiB / 3000MiB"
explain "A program that uses CUDA's driver API allocates 2700 MiB. Another 200 MiB fail with CUDA's usual out-of-memory" \
    "error. The program frees its memory, and then can allocate 200 MiB:"
run kubectl -n tour exec first -- vgpu-sample alloc 2700 alloc 200 free alloc 200
expect "alloc 200 MiB: CUDA_ERROR_OUT_OF_MEMORY"
expect "alloc 200 MiB: CUDA_SUCCESS"
explain "The limit applies to the whole container. One program holds 2000 MiB while another allocates 1500, then 400:"
run kubectl -n tour exec first -- sh -c 'vgpu-sample alloc 2000 sleep 3 & sleep 1; vgpu-sample alloc 1500 alloc 400; wait'
expect "alloc 1500 MiB: CUDA_ERROR_OUT_OF_MEMORY"
expect "alloc 400 MiB: CUDA_SUCCESS"
explain "A running pod is resized by a patch of its gpushare ('kubectl edit' does it too):"
run kubectl -n tour patch gpushare first --type merge --patch '{"spec": {"containers": [{"name": "main", "memoryMiB": 4000}]}}'
expect patched
await_output "0MiB / 4000MiB" kubectl -n tour exec first -- nvidia-smi
explain "No process restarts, and the GPU has 4000 MiB:"
run kubectl -n tour exec first -- vgpu-sample alloc 3600
expect "alloc 3600 MiB: CUDA_SUCCESS"
explain "More than the GPU has is refused, and nothing changes:"
run kubectl -n tour patch gpushare first --type merge --patch '{"spec": {"containers": [{"name": "main", "memoryMiB": 90000}]}}'
expect "90000 MiB"
quietly kubectl -n tour delete pod first --now

title "2. 30 and 70 percent of one GPU's time"
explain "Two programs run kernels on one GPU without a pause (lab/tour/compute.yaml). A GPU runs 1000 of these kernels" \
    "per second. Each program prints once a second how many of its own have run:"
run kubectl -n tour apply -f lab/tour/compute.yaml
run kubectl -n tour wait --for=condition=Ready pod/thirty pod/seventy --timeout=30s
sleep 8
run kubectl -n tour logs thirty --tail=3
expect_about 300
run kubectl -n tour logs seventy --tail=3
expect_about 700
explain "The node's nvidia-smi shows the same (sm: percent of the GPU's time) and each program's memory: only the 256" \
    "MiB that CUDA takes for a process on this GPU. The pods' nvidia-smi shows them once the node agent has measured them:"
node=$(./aliquot kubectl -n tour get gpushare thirty --no-headers | awk '{ print $3 }')
smi='cd /var/lib/aliquot/fake-driver && LD_LIBRARY_PATH=lib ALIQUOT_FAKE_GPUS=gpus bin/nvidia-smi'
run node "$node" sh -c "$smi pmon -d 5 -c 1; $smi --query-compute-apps=pid,used_memory --format=csv"
expect ", 256 MiB"
explain "A pod with the core policy elastic (lab/tour/elastic.yaml) takes the place of the second. Its cores are 30 %, too, but it may" \
    "also use what others leave idle, some seconds after its start, when the node agent knows its limits:"
quietly kubectl -n tour delete pod seventy --now
run kubectl -n tour apply -f lab/tour/elastic.yaml
run kubectl -n tour wait --for=condition=Ready pod/elastic --timeout=30s
sleep 14
run kubectl -n tour logs thirty --tail=3
expect_about 300
run kubectl -n tour logs elastic --tail=3
expect_about 700
run kubectl -n tour get gpushares -o wide
explain "The other pod ends, and all of the GPU is idle time:"
quietly kubectl -n tour delete pod thirty --now
sleep 5
run kubectl -n tour logs elastic --tail=3
expect_about 1000
quietly kubectl -n tour delete pod elastic --now

title "3. Placement: binpack fills one GPU after the other"
explain "Eleven pods of 8000 MiB each; ten fit on a GPU:"
run kubectl -n tour apply -f lab/tour/binpack.yaml
run kubectl -n tour wait '--for=jsonpath={.status.availableReplicas}=11' deployment/binpack --timeout=90s
expect "condition met"
show_gpus 1 10
explain "Ten are on one GPU, the eleventh on the next. Two annotations spread the pods instead (lab/tour/spread.yaml):"
run kubectl -n tour delete deployment binpack --cascade=foreground --wait
run kubectl -n tour apply -f lab/tour/spread.yaml
run kubectl -n tour wait '--for=jsonpath={.status.availableReplicas}=11' deployment/spread --timeout=90s
expect "condition met"
show_gpus 2 3 3 3
explain "Each of the four GPUs has two or three."
run kubectl -n tour delete deployment spread --cascade=foreground --wait
explain "Ten slots per GPU are a node's default. An annotation of the node raises their number, so that only memory limits" \
    "the pods. The kubelet reports the new number within 10 s:"
run kubectl annotate node node1 --overwrite 'aliquot.io/slots=20'
run kubectl wait '--for=jsonpath={.status.allocatable.aliquot\.io/vgpu}=40' node/node1 --timeout=30s
expect "condition met"
run kubectl -n tour apply -f lab/tour/slots.yaml
run kubectl -n tour wait '--for=jsonpath={.status.availableReplicas}=16' deployment/slots --timeout=90s
expect "condition met"
show_gpus 16
explain "One GPU of 81920 MiB has sixteen pods of 5000 MiB."
run kubectl -n tour delete deployment slots --cascade=foreground --wait
run kubectl annotate node node1 'aliquot.io/slots-'

title "4. Several vGPUs"
explain "The two vGPUs of a container are always on two different GPUs of one node:"
run kubectl -n tour apply -f lab/tour/two-gpus.yaml
run kubectl -n tour wait --for=condition=Ready pod/two --timeout=30s
run kubectl -n tour exec two -- nvidia-smi -L
expect "GPU 1:"
explain "No node has three GPUs. A pod that requests three stays Pending, and its gpushare says why:"
run kubectl -n tour apply -f lab/tour/three-gpus.yaml
quietly kubectl -n tour wait '--for=jsonpath={.status.conditions[?(@.type=="PodScheduled")].reason}=Unschedulable' pod/three --timeout=30s
run kubectl -n tour describe gpushare three
expect "Pending"
expect "3 vGPUs"
quietly kubectl -n tour delete pods two three --now

title "5. A Pending pod is bound when capacity becomes free"
explain "A pod that requests a vGPU without memory or cores gets the whole card. Four such pods take all GPUs of the cluster:"
run kubectl -n tour apply -f lab/tour/whole-cards.yaml
run kubectl -n tour wait '--for=jsonpath={.status.availableReplicas}=4' deployment/whole --timeout=60s
expect "condition met"
run kubectl -n tour apply -f lab/tour/waiting.yaml
quietly kubectl -n tour wait '--for=jsonpath={.status.conditions[?(@.type=="PodScheduled")].reason}=Unschedulable' pod/waiting --timeout=30s
run kubectl -n tour get gpushares -o wide
expect "Pending"
explain "One of the four ends, and the Pending pod is bound at once:"
run kubectl -n tour scale deployment whole --replicas=3
run kubectl -n tour wait --for=condition=Ready pod/waiting --timeout=15s
expect "condition met"
explain "Its allocation is half of a card:"
run kubectl -n tour get gpushare waiting
expect "/40960Mi"

title "6. A pod that requests no GPU gets none"
explain "This pod (lab/tour/no-gpu.yaml) requests no GPU. Its image says NVIDIA_VISIBLE_DEVICES=all, as every CUDA base" \
    "image does, and NVIDIA's runtime would give it all GPUs of the node:"
run kubectl -n tour apply -f lab/tour/no-gpu.yaml
run kubectl -n tour wait --for=condition=Ready pod/nosy --timeout=30s
# shellcheck disable=SC2016
run kubectl -n tour exec nosy -- sh -c 'echo "NVIDIA_VISIBLE_DEVICES=$NVIDIA_VISIBLE_DEVICES"; command -v nvidia-smi || echo "no nvidia-smi, no driver, no GPU"'
expect "NVIDIA_VISIBLE_DEVICES=void"
expect "no nvidia-smi"

quietly kubectl -n tour delete deployment whole --cascade=foreground --wait
quietly kubectl -n tour delete pods waiting nosy --now

title "7. NVIDIA's device plugin goes on as before"
explain "A pod that requests nvidia.com/gpu stays as it is (lab/tour/nvidia-gpu.yaml). The default scheduler places it on node3:"
run kubectl -n tour apply -f lab/tour/nvidia-gpu.yaml
run kubectl -n tour wait --for=condition=Ready pod/nvidia --timeout=30s
run kubectl -n tour get pod nvidia -o wide
expect "node3"
run kubectl -n tour exec nvidia -- nvidia-smi -L
expect "GPU 0:"
quietly kubectl -n tour delete pod nvidia --now
explain "With a label, new pods of the namespace are Aliquot's. The same pod becomes a whole card of another node:"
run kubectl label namespace tour 'aliquot.io/gpu=on'
sleep 1
run kubectl -n tour apply -f lab/tour/nvidia-gpu.yaml
run kubectl -n tour wait --for=condition=Ready pod/nvidia --timeout=30s
expect "condition met"
run kubectl -n tour get gpushare nvidia
expect "81920Mi"

title "8. Invalid requests are refused with a correction"
explain "nvidia.com/gpumem counts MiB, but lab/tour/gigabytes.yaml requests 3Gi:"
run kubectl -n tour apply -f lab/tour/gigabytes.yaml
expect "write 3072 instead of 3Gi"
clean_up

title "End of the tour after $((SECONDS - start)) s"
quietly kubectl get --raw "$page" || fail "the web page at $page"
explain "The cluster keeps running, and its web page shows what you have just seen. This command serves it:" \
    "  ./aliquot proxy" \
    "Then open this address in a browser on this machine:" \
    "  http://127.0.0.1:8001$page" \
    "What else to try:" \
    "  ./aliquot kubectl apply -f lab/tour/first-pod.yaml     edit the file first: other amounts, another placement" \
    "  ./aliquot kubectl describe node node1                  a node's allocatable and allocated resources" \
    "  ./aliquot kill node1/kubelet; ./aliquot start node1/kubelet     running pods continue" \
    "  lab/gpus.yaml                                          other simulated GPUs; then ./aliquot up" \
    "  docs/first-pod.md, docs/architecture.md                how to use Aliquot, and how it works" \
    "To clean up:" \
    "  ./aliquot down             removes the cluster; 'down --purge' removes the build cache too"
