#!/usr/bin/env bash
# The scheduler's benchmarks on a cluster of hollow nodes: ./aliquot bench --help
set -euo pipefail
. "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/all.sh"

usage() {
    cat <<-'END_OF_USAGE'
		./aliquot bench [OPTION...]: measures the scheduler's throughput, start and memory with a real etcd, kube-apiserver and
		kube-scheduler and with hollow nodes: Node objects without a kubelet. Does not need the lab; a running lab disturbs it.

		  (no option)          pods per second, in turns with a null extender, which accepts every node and only binds; each
		                       extender has its own kube-scheduler. Prints the ratio, API writes per pod from the audit log,
		                       and each program's CPU time per pod
		  --waiting N          instead: throughput of short-lived pods with N Pending pods that fit on no node, against none;
		                       both counted for twice podMaxBackoffSeconds, after the Pending pods' backoff has reached it
		  --start              instead: time until ready, and memory
		  --nodes N            nodes of 8 GPUs of 80 GiB (100)
		  --running N          running pods at the start (0; with --waiting one per GPU)
		  --pods N             pods counted in each turn (500), not with --waiting; with some 800 or more the API server's
		                       garbage collections can fall into the turns of one extender more often than into the other's
		  --rounds N           turns, rounds or starts of each kind (2)
		  --warm-up N          short-lived pods before Aliquot's first turn, or with --waiting before each round (500); at
		                       most 2000 of them before the null extender's first turn, which has no JIT compiler
		  --nodes-per-filter N nodes in a Filter response of either extender at most, 0 for all (100)
		  --slots N            vGPUs per GPU at most (100)
		  --heap MIB           the scheduler's maximum heap (512)
		  --max-backoff N      kube-scheduler's podMaxBackoffSeconds, if not the chart's
		  --no-build           uses the programs in target/ as they are

		The published figures:
		  ./aliquot bench --nodes 100  --rounds 30 --warm-up 40000  throughput
		  ./aliquot bench --nodes 1000 --rounds 12 --warm-up 12000
		  ./aliquot bench --nodes 100  --waiting 5000 --warm-up 4000
		  ./aliquot bench --nodes 5000 --running 50000 --start --rounds 4
		The last line is the figure. Logs are in .lab/bench.
	END_OF_USAGE
}

built=${ALIQUOT_BUILT:-}
arguments=()
values=()
while [ $# -gt 0 ]; do
    case $1 in
        -h | --help) usage; exit ;;
        --no-build) built=1; shift ;;
        --max-backoff)
            [[ ${2:-} =~ ^[0-9]{1,3}$ ]] || die "$1 takes a number of seconds, not '${2:-}'."
            values=(--set "kubeScheduler.podMaxBackoffSeconds=$2")
            shift 2
            ;;
        --start) arguments+=("$1"); shift ;;
        --waiting | --nodes | --running | --pods | --rounds | --warm-up | --nodes-per-filter | --slots | --heap)
            [[ ${2:-} =~ ^[0-9]{1,7}$ ]] || die "$1 takes a whole number, not '${2:-}'."
            arguments+=("$1" "$2")
            shift 2
            ;;
        *) die "'bench' has no option '$1'." "All of them: ./aliquot bench --help" ;;
    esac
done

check_prerequisites
folder=$lab/bench
mkdir -p "$folder"
exec 7< "$folder"
flock --nonblock 7 || die "another ./aliquot bench of this checkout runs already."
build_programs
[ -n "$built" ] || step bench-build "Building the scheduler (Maven)" contained build_scheduler
jar=scheduler/target/aliquot-scheduler.jar
[ -f "$root/$jar" ] || die "there is no $jar." "Leave --no-build away."
rm -rf "${folder:?}"/*
# as in its image
program=$folder/scheduler
java -Djarmode=tools -jar "$root/$jar" extract --destination "$program"
cp "$root/scheduler/java.options" "$program"
(cd "$root/lab/bench" && CGO_ENABLED=0 GOFLAGS=-mod=mod go build -trimpath -buildvcs=false -o "$folder/bench" .)
# kube-scheduler's settings in the chart
of_chart() { "$(cluster_programs)/helm" template aliquot "$root/charts/aliquot" --namespace aliquot "${values[@]}" --show-only "templates/scheduler/$1"; }
of_chart configmap.yaml | sed -n '/^  config.yaml: |$/,$p' | sed '1d; s/^    //' > "$folder/kube-scheduler.yaml"
grep -q urlPrefix "$folder/kube-scheduler.yaml" || die "the chart's kube-scheduler configuration was not found in what Helm made."
gogc=$(of_chart deployment.yaml | sed -n 's/.*{name: GOGC, value: "\([0-9]*\)"}.*/\1/p')
[ -n "$gogc" ] || die "kube-scheduler's GOGC was not found in what Helm made."

# New network and PID namespaces: all ports are free, and the kernel kills all programs when this one ends.
exec unshare --net --mount --pid --fork --kill-child=KILL --mount-proc bash -c 'ip link set lo up && exec "$@"' - \
    "$folder/bench" -folder "$folder" -kube "$(cluster_programs)" -program "$program" \
    -audit-policy "$root/lab/audit-policy.yaml" -config "$folder/kube-scheduler.yaml" -gogc "$gogc" "${arguments[@]/#--/-}"
