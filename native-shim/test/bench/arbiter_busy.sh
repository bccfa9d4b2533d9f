#!/bin/bash
# Runs bench-arbiter on a node with every CPU busy: arbiter_busy.sh BUILD [SECONDS]. For CPU requests of 20m to 1 of the
# node agent, in whose container the arbiter runs, beside containers that request all CPUs and keep them busy with two
# loops each. A group above both keeps the rest of the machine from mattering much. Needs root and cgroup v1 or v2.
set -eu
build=$1
if [ -d /sys/fs/cgroup/cpu ]; then
    groups=/sys/fs/cgroup/cpu/bench-arbiter file=cpu.shares
    weight() { echo "$1"; }
else # as the kubelet converts them
    groups=/sys/fs/cgroup/bench-arbiter file=cpu.weight
    weight() { echo $((1 + ($1 - 2) * 9999 / 262142)); }
fi
mkdir -p "$groups"
[ $file = cpu.shares ] || echo +cpu >"$groups/cgroup.subtree_control"
mkdir -p "$groups/busy" "$groups/agent"
weight 20480 >"$groups/$file"
weight $((1024 * $(nproc))) >"$groups/busy/$file"
arbiter=$(mktemp)
loops=()
end() {
    kill "${loops[@]}" && wait "${loops[@]}" || true
    rm "$arbiter"
    rmdir "$groups/busy" "$groups/agent" "$groups"
}
trap end EXIT
printf '#!/bin/sh\necho $$ >%s/cgroup.procs\nexec %s "$@"\n' "$groups/agent" "$build/arbiter/aliquot-arbiter" >"$arbiter"
chmod +x "$arbiter"
for _ in $(seq $((2 * $(nproc)))); do
    sh -c "echo \$\$ >$groups/busy/cgroup.procs; while :; do :; done" &
    loops+=($!)
done
for milli in 20 100 1000; do
    weight $((milli * 1024 / 1000)) >"$groups/agent/$file"
    echo "CPU request ${milli}m:"
    "$build/test/bench/bench-arbiter" "$arbiter" "${2:-10}"
done 2>&1
