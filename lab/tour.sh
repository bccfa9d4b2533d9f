#!/usr/bin/env bash
# The tour of `./aliquot demo`: what a user would try first, each command shown, its output explained. It checks what it
# shows. Everything happens in the namespace `tour`, made anew each time.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
cd "$root"

output= # what the last command shown has printed
began=$SECONDS

if [ -t 1 ]; then bold=$'\033[1m' plain=$'\033[0m'; else bold='' plain=''; fi

title() { printf '\n%s--- %s ---%s\n' "$bold" "$*" "$plain"; }

tell() { printf '%s\n' "$@"; }

# An argument as one would type it.
typed() {
    case $1 in
        '' | *[!a-zA-Z0-9_.,:/=@%+-]*) printf "'%s'" "${1//\'/\'\\\'\'}" ;;
        *) printf '%s' "$1" ;;
    esac
}

# Shows a command as it can be typed again, runs it and shows what it prints.
try() { # ARGUMENTS of ./aliquot
    local argument
    printf '  %s$ ./aliquot' "$bold"
    for argument; do printf ' %s' "$(typed "$argument")"; done
    printf '%s\n' "$plain"
    output=$(./aliquot "$@" 2>&1) || true
    [ -z "$output" ] || printf '%s\n' "$output" | sed 's/^/  /'
    printf '\n'
}

# The last output must contain a text, or the tour ends.
expect() { # TEXT
    case $output in *"$1"*) ;; *) fail "to see: $1" ;; esac
}

# The numbers in the last output's second column are this on the average, give or take 10 percent of a GPU.
expect_about() { # NUMBER
    local found
    found=$(printf '%s\n' "$output" | awk '$1 == "busy:" { sum += $2; lines++ } END { printf "%d", lines ? sum / lines : 0 }')
    [ "$found" -ge $(($1 - 100)) ] && [ "$found" -le $(($1 + 100)) ] || fail "about $1, but found: $found"
}

expect_equal() { # WHAT EXPECTED FOUND
    [ "$2" = "$3" ] || fail "$1: $2, but found: $3"
}

fail() {
    printf '\n%sThis is not what was expected.%s The tour expected %s\n' "$bold" "$plain" "$1" >&2
    printf 'Where to look: docs/troubleshooting.md, ./aliquot ps, and\n' >&2
    printf '  ./aliquot kubectl -n tour describe pods\n  ./aliquot kubectl -n aliquot logs deployment/aliquot-scheduler -c extender\n' >&2
    exit 1
}

quietly() { ./aliquot "$@" > /dev/null 2>&1; }

clean_up() {
    quietly kubectl delete namespace tour --ignore-not-found --force --grace-period=0 --wait --timeout=60s ||
        fail "the namespace 'tour' to go within 60 s"
    quietly kubectl annotate node node1 'aliquot.io/slots-'
}

# One line for each GPU: how many pods it has.
pods_per_gpu() { # APP
    ./aliquot kubectl -n tour get pods -l "app=$1" \
        -o 'jsonpath={range .items[*]}{.metadata.annotations.aliquot\.io/visible-devices\.main}{"\n"}{end}' | sort | uniq -c | awk '{ print $1 }' | sort -n | tr '\n' ' '
}

# The command that shows where pods are.
where() { # APP
    try kubectl -n tour get pods -l "app=$1" -o 'custom-columns=POD:.metadata.name,NODE:.spec.nodeName,GPU:.metadata.annotations.aliquot\.io/visible-devices\.main'
}

trap 'printf "\nThe tour was interrupted; ./aliquot demo begins it anew.\n" >&2; exit 130' INT TERM

title "A tour of Aliquot"
tell "This is a whole Kubernetes of its own: two nodes, each with two GPUs of 81920 MiB. The GPUs are make-believe;" \
    "all else is what runs in a data centre. What you see below you can type again, in this folder."
clean_up
quietly kubectl create namespace tour || fail "to make the namespace 'tour'"
try kubectl get nodes -o 'custom-columns=NODE:.metadata.name,VGPUS:.status.allocatable.nvidia\.com/gpu,GPU-MEMORY-MIB:.status.allocatable.nvidia\.com/gpumem,GPU-CORES-%:.status.allocatable.nvidia\.com/gpucores'
expect 163840
tell "Each GPU may be shared by 10 pods (20 vGPUs a node); the sums of memory and of cores are there for all to see."

title "1. A pod asks for 3000 MiB and 30 % of a GPU"
tell "lab/tour/first-pod.yaml says so in its limits:"
sed -n '/limits:/,$p' lab/tour/first-pod.yaml | sed 's/^/  /'
try kubectl -n tour apply -f lab/tour/first-pod.yaml
try kubectl -n tour wait --for=condition=Ready pod/first --timeout=30s
expect "condition met"
tell "What the pod holds was written on it in the same step that bound it to its node:"
try kubectl -n tour get pod first -o 'jsonpath={.spec.nodeName}: {.metadata.annotations.aliquot\.io/vgpu\.main}'
expect "memory=3000Mi cores=30"
tell "Inside, the GPU has 3000 MiB:"
try kubectl -n tour exec first -- nvidia-smi
expect "0MiB / 3000MiB"
tell "A program that uses CUDA's driver API takes 2900 MiB. The next 200 are refused with CUDA's ordinary out-of-memory" \
    "error; it goes on, frees what it has, and gets 200 after all:"
try kubectl -n tour exec first -- vgpu-sample alloc 2900 alloc 200 free alloc 200
expect "alloc 200 MiB: CUDA_ERROR_OUT_OF_MEMORY"
expect "alloc 200 MiB: CUDA_SUCCESS"
tell "The limit is the container's, not each program's. Here one program holds 2000 MiB while another asks for 1500:"
try kubectl -n tour exec first -- sh -c 'vgpu-sample alloc 2000 sleep 3 & sleep 1; vgpu-sample alloc 1500 alloc 1000; wait'
expect "alloc 1500 MiB: CUDA_ERROR_OUT_OF_MEMORY"
expect "alloc 1000 MiB: CUDA_SUCCESS"
quietly kubectl -n tour delete pod first --now

title "2. 30 and 70 percent of one GPU's time"
tell "Two programs on one GPU, both with always something to do (lab/tour/compute.yaml). A GPU takes 1000 of their kernels a" \
    "second; how many of its own it took, each says once a second:"
try kubectl -n tour apply -f lab/tour/compute.yaml
try kubectl -n tour wait --for=condition=Ready pod/thirty pod/seventy --timeout=30s
sleep 8
try kubectl -n tour logs thirty --tail=3
expect_about 300
try kubectl -n tour logs seventy --tail=3
expect_about 700
tell "The node's own nvidia-smi says the same (sm: percent of the GPU's time), and what each takes of its memory: nothing but" \
    "the 256 MiB that CUDA needs for a program on this GPU. In the pods it counts nothing until the node agent measures it:"
node=$(./aliquot kubectl -n tour get pod thirty -o 'jsonpath={.spec.nodeName}')
smi='cd /var/lib/aliquot/fake-driver && LD_LIBRARY_PATH=lib ALIQUOT_FAKE_GPUS=gpus bin/nvidia-smi'
try node "$node" sh -c "$smi pmon -d 5 -c 1; $smi --query-compute-apps=pid,used_memory --format=csv"
expect ", 256 MiB"
quietly kubectl -n tour delete pods thirty seventy --now

title "3. Which GPU? Binpack fills one after the other"
tell "Eleven pods of 8000 MiB each; a GPU has room for ten:"
try kubectl -n tour apply -f lab/tour/binpack.yaml
try kubectl -n tour wait '--for=jsonpath={.status.availableReplicas}=11' deployment/binpack --timeout=90s
expect "condition met"
where binpack
expect_equal "how many pods each GPU has" "1 10 " "$(pods_per_gpu binpack)"
tell "Ten on one GPU, the eleventh on the next. Two annotations on the pods turn that round (lab/tour/spread.yaml):"
try kubectl -n tour delete deployment binpack --cascade=foreground --wait
try kubectl -n tour apply -f lab/tour/spread.yaml
try kubectl -n tour wait '--for=jsonpath={.status.availableReplicas}=11' deployment/spread --timeout=90s
expect "condition met"
where spread
expect_equal "how many pods each GPU has" "2 3 3 3 " "$(pods_per_gpu spread)"
tell "All four GPUs have two or three."
try kubectl -n tour delete deployment spread --cascade=foreground --wait
tell "Ten pods a GPU is only where a node begins. With an annotation of the node memory alone decides; the kubelet tells of" \
    "the new slots within 10 s:"
try kubectl annotate node node1 --overwrite 'aliquot.io/slots=20'
try kubectl wait '--for=jsonpath={.status.allocatable.nvidia\.com/gpu}=40' node/node1 --timeout=30s
expect "condition met"
try kubectl -n tour apply -f lab/tour/slots.yaml
try kubectl -n tour wait '--for=jsonpath={.status.availableReplicas}=16' deployment/slots --timeout=90s
expect "condition met"
where slots
expect_equal "how many pods each GPU has" "16 " "$(pods_per_gpu slots)"
tell "Sixteen pods of 5000 MiB on one GPU of 81920."
try kubectl -n tour delete deployment slots --cascade=foreground --wait
try kubectl annotate node node1 'aliquot.io/slots-'

title "4. Several vGPUs"
tell "Two vGPUs are always parts of two different GPUs of one node:"
try kubectl -n tour apply -f lab/tour/two-gpus.yaml
try kubectl -n tour wait --for=condition=Ready pod/two --timeout=30s
try kubectl -n tour exec two -- nvidia-smi -L
expect "GPU 1:"
tell "No node has three GPUs. A pod that wants three waits, and says why:"
try kubectl -n tour apply -f lab/tour/three-gpus.yaml
try kubectl -n tour wait '--for=jsonpath={.status.conditions[?(@.type=="PodScheduled")].reason}=Unschedulable' pod/three --timeout=30s
try kubectl -n tour get pod three -o 'jsonpath={.status.phase}: {.status.conditions[?(@.type=="PodScheduled")].message}'
expect "Pending"
expect "3 vGPUs"
tell "('./aliquot kubectl -n tour describe pod three' shows the same sentence as an event.)"
quietly kubectl -n tour delete pods two three --now

title "5. A pod waits for room, and gets it"
tell "Whoever asks for a GPU without saying how much gets all of it, alone. Four such pods take all there is:"
try kubectl -n tour apply -f lab/tour/whole-cards.yaml
try kubectl -n tour wait '--for=jsonpath={.status.availableReplicas}=4' deployment/whole --timeout=60s
expect "condition met"
try kubectl -n tour apply -f lab/tour/waiting.yaml
try kubectl -n tour wait '--for=jsonpath={.status.conditions[?(@.type=="PodScheduled")].reason}=Unschedulable' pod/waiting --timeout=30s
try kubectl -n tour get pod waiting -o 'jsonpath={.status.phase}: {.status.conditions[?(@.type=="PodScheduled")].message}'
expect "Pending"
tell "One of the four goes, and the pod that waited is bound at once:"
try kubectl -n tour scale deployment whole --replicas=3
try kubectl -n tour wait --for=condition=Ready pod/waiting --timeout=15s
expect "condition met"
tell "It holds half of a card:"
try kubectl -n tour get pod waiting -o 'jsonpath={.metadata.annotations.aliquot\.io/vgpu\.main}'
expect "memory=40960Mi"

title "6. Who asks for nothing gets nothing"
tell "This pod asks for no GPU, but its spec tells NVIDIA's runtime to give it all of them:"
sed -n '/env:/,$p' lab/tour/no-gpu.yaml | sed 's/^/  /'
try kubectl -n tour apply -f lab/tour/no-gpu.yaml
try kubectl -n tour wait --for=condition=Ready pod/nosy --timeout=30s
# shellcheck disable=SC2016
try kubectl -n tour exec nosy -- sh -c 'echo "NVIDIA_VISIBLE_DEVICES=$NVIDIA_VISIBLE_DEVICES"; command -v nvidia-smi || echo "no nvidia-smi, no driver, no GPU"'
expect "NVIDIA_VISIBLE_DEVICES=void"
expect "no nvidia-smi"

title "7. What makes no sense is refused, with what to write instead"
tell "3Gi where MiB are meant (lab/tour/gigabytes.yaml):"
try kubectl -n tour apply -f lab/tour/gigabytes.yaml
expect "write 3072 instead of 3Gi"
clean_up

title "The tour is over after $((SECONDS - began)) s"
tell "The cluster stays up. What to try next:" \
    "  ./aliquot kubectl apply -f lab/tour/first-pod.yaml     edit the file first: other amounts, other placements" \
    "  ./aliquot kubectl describe node node1                  what a node offers, and what is taken" \
    "  ./aliquot kill node1/kubelet; ./aliquot start node1/kubelet     what runs goes on" \
    "  lab/gpus.yaml                                          other GPUs; then ./aliquot up" \
    "  docs/first-pod.md, docs/architecture.md                how to use it, and how it works" \
    "To clean up:" \
    "  ./aliquot down             the cluster; 'down --purge' takes the build cache too"
