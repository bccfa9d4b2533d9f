# shellcheck shell=bash
# The lab's namespaces and cgroups. All processes of the lab run in one PID, network and mount namespace; each node has
# a mount namespace of its own inside them. No file refers to the namespaces: killing their first process ends the lab.

init= # the PID of the lab's first process on this machine; set by find_lab

# PIDs of the processes with the marker of this checkout's lab: its first process, and the `unshare` waiting for it.
marked_processes() {
    local pid line
    for pid in $(cd /proc && grep -lsaxz -e "$marker" [0-9]*/cmdline | cut -d / -f 1); do
        line=$({ tr '\0' ' ' < "/proc/$pid/cmdline"; } 2> /dev/null) || continue
        case $line in
            "bash $root/lab/init.sh $marker " | "unshare "*" $marker ") printf '%s\n' "$pid" ;;
        esac
    done
}

# Succeeds if the lab's namespaces exist; sets init and the command prefixes in_network and in_lab.
find_lab() {
    local pid
    init=
    for pid in $(marked_processes); do
        # PID 1 of a PID namespace below this one
        if awk '/^NSpid:/ { exit !(NF >= 3 && $NF == 1) }' "/proc/$pid/status" 2> /dev/null; then init=$pid; fi
    done
    [ -n "$init" ] || return 1
    in_network=(nsenter "--net=/proc/$init/ns/net" --)
    in_lab=(nsenter --target "$init" --net --pid --mount --ipc --uts --)
}

make_namespaces() {
    mkdir -p "$lab"/{log,run,bin}
    setsid unshare --net --pid --mount --ipc --uts --fork --kill-child=KILL --mount-proc --propagation private \
        bash "$root/lab/init.sh" "$marker" < /dev/null > "$lab/log/init.log" 2>&1 9<&- &
    disown
    await 60 find_lab || die "unshare could not make the lab's namespaces." "See $lab/log/init.log."
    find_lab
}

# Kills every process of the lab. The kernel removes the mounts and the network with the last one.
end_namespaces() {
    local pids pid
    pids=$(marked_processes)
    for pid in $pids; do kill -KILL "$pid" 2> /dev/null || true; done
    for pid in $pids; do
        await 30 test ! -d "/proc/$pid" || die "process $pid of the lab has not ended within 30 s of SIGKILL." "See what it waits for: cat /proc/$pid/wchan /proc/$pid/stack"
    done
    init=
}

# --- cgroups --------------------------------------------------------------------------------------------------------

# The mount points of the cgroup hierarchies: one for each controller (v1), or a single one (v2). The lab's cgroups are
# /<marker>/<node> in each.
cgroup_roots() {
    if [ -f /sys/fs/cgroup/cgroup.controllers ]; then
        printf '%s\n' /sys/fs/cgroup
    else
        # -type d skips links (cpu -> cpu,cpuacct), which name a hierarchy a second time
        find /sys/fs/cgroup -mindepth 1 -maxdepth 1 -type d
    fi
}

make_node_cgroups() { # NODE
    local hierarchy path part file controller made=0
    for hierarchy in $(cgroup_roots); do
        path=$hierarchy
        for part in "$marker" "$1"; do
            # v2: a child has the controllers that its parent delegates; skip those that cannot be delegated
            if [ -f "$path/cgroup.subtree_control" ]; then
                # shellcheck disable=SC2013
                for controller in $(cat "$path/cgroup.controllers"); do
                    { echo "+$controller" > "$path/cgroup.subtree_control"; } 2> /dev/null || true
                done
            fi
            path=$path/$part
            mkdir -p "$path" 2> /dev/null || continue 2
            # v1: no process can join a cpuset without processors and memory nodes
            for file in cpuset.cpus cpuset.mems; do
                if [ -f "$path/$file" ] && [ ! -f "$path/cgroup.controllers" ]; then
                    cat "$path/../$file" > "$path/$file"
                fi
            done
        done
        made=$((made + 1))
    done
    [ "$made" -gt 0 ] || die "the lab cannot make a cgroup below /sys/fs/cgroup." \
        "In a container: run it with --privileged and a writable /sys/fs/cgroup."
}

lab_cgroups() { cgroup_roots | sed "s|\$|/$marker|" | xargs -r ls -d 2> /dev/null || true; }

remove_cgroups_once() {
    local group
    for group in $(lab_cgroups); do find "$group" -depth -type d -exec rmdir {} + 2> /dev/null; done
    [ -z "$(lab_cgroups)" ]
}

# The kernel refuses to remove a cgroup until shortly after its last process has ended.
remove_cgroups() {
    await 20 remove_cgroups_once || die "some cgroups of the lab still have processes: $(lab_cgroups | tr '\n' ' ')"
}

# --- the lab's programs ---------------------------------------------------------------------------------------------

# Starts a program in the background. .lab/run/NAME.pid gets its PID in the lab's PID namespace and its start time,
# which distinguishes it from a later process with the same PID. Its output goes to .lab/log/NAME.log.
launch() { # NAME COMMAND...
    local name=$1
    shift
    mkdir -p "$(dirname "$lab/run/$name")" "$(dirname "$lab/log/$name")"
    rm -f "$lab/run/$name.pid"
    # shellcheck disable=SC2016
    "${in_lab[@]}" setsid --fork bash -c \
        'cd /; echo $$ "$(cut -d " " -f 22 "/proc/$$/stat")" > "$1.pid"; log=$2; shift 2; exec "$@" < /dev/null >> "$log" 2>&1' \
        - "$lab/run/$name" "$lab/log/$name.log" "$@" < /dev/null > /dev/null 2>> "$lab/log/launch.log" 9<&-
    await_or_die 30 "$name did not start" launch.log test -s "$lab/run/$name.pid"
}

# Succeeds if a program or any of its threads, which can still hold its ports, runs; in the lab's PID namespace.
program_runs() { # FILE: NAME.pid
    local pid start line fields
    { read -r pid start < "$1" && line=$(< "/proc/$pid/stat"); } 2> /dev/null || return 1
    read -ra fields <<< "${line##*) }" # from the third field on, see proc_pid_stat(5)
    [ "${fields[19]}" = "$start" ] && { [ "${fields[0]}" != Z ] || [ "${fields[17]}" -gt 1 ]; }
}

# Prints which of the named programs do not run.
dead_programs() { # NAME...
    # shellcheck disable=SC2016
    "${in_lab[@]}" bash -c "$(declare -f program_runs)"'
        run=$1; shift
        for name in "$@"; do program_runs "$run/$name.pid" || echo "$name"; done' - "$lab/run" "$@"
}

is_dead() { [ -n "$(dead_programs "$1")" ]; }

signal_program() { # SIGNAL NAME
    # shellcheck disable=SC2016
    "${in_lab[@]}" bash -c "$(declare -f program_runs)"'
        program_runs "$2" && read -r pid start < "$2" && kill -s "$1" "$pid"' - "$1" "$lab/run/$2.pid"
}
