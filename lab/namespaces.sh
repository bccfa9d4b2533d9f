# shellcheck shell=bash
# The lab's namespaces and cgroups. All its processes live in one process, network and mount namespace; each node has a
# mount namespace of its own below that. Nothing is registered anywhere: killing the first process ends it all.

init= # the lab's first process, as this machine counts; set by find_world

# Processes of this checkout's lab that were started with its marker: the first one, and the `unshare` waiting for it.
marked_processes() {
    local pid line
    for pid in $(cd /proc && grep -lsaxz -e "$marker" [0-9]*/cmdline | cut -d / -f 1); do
        line=$({ tr '\0' ' ' < "/proc/$pid/cmdline"; } 2> /dev/null) || continue
        case $line in
            "bash $root/lab/init.sh $marker " | "unshare "*" $marker ") printf '%s\n' "$pid" ;;
        esac
    done
}

# Succeeds if the lab's world exists, and then sets init and how to get in.
find_world() {
    local pid
    init=
    for pid in $(marked_processes); do
        # the process that is number 1 in a namespace below ours
        if awk '/^NSpid:/ { exit !(NF >= 3 && $NF == 1) }' "/proc/$pid/status" 2> /dev/null; then init=$pid; fi
    done
    [ -n "$init" ] || return 1
    in_network=(nsenter "--net=/proc/$init/ns/net" --)
    in_lab=(nsenter --target "$init" --net --pid --mount --ipc --uts --)
}

make_world() {
    mkdir -p "$lab"/{log,run,bin}
    setsid unshare --net --pid --mount --ipc --uts --fork --kill-child=KILL --mount-proc --propagation private \
        bash "$root/lab/init.sh" "$marker" < /dev/null > "$lab/log/init.log" 2>&1 9<&- &
    disown
    await 60 find_world || die "the lab's namespaces could not be made; $lab/log/init.log says why."
    find_world
}

# Ends every process of the lab; mounts and network go with the last one.
end_world() {
    local pids pid
    pids=$(marked_processes)
    for pid in $pids; do kill -KILL "$pid" 2> /dev/null || true; done
    for pid in $pids; do
        await 30 test ! -d "/proc/$pid" || die "process $pid of the lab doesn't end." "See what it waits for: cat /proc/$pid/wchan /proc/$pid/stack"
    done
    init=
}

# --- cgroups --------------------------------------------------------------------------------------------------------

# The lab's cgroups: /<marker>/<node> in each controller's hierarchy (v1), or in the one there is (v2).
cgroup_roots() {
    if [ -f /sys/fs/cgroup/cgroup.controllers ]; then
        printf '%s\n' /sys/fs/cgroup
    else
        # links (cpu -> cpu,cpuacct) would name a hierarchy twice
        find /sys/fs/cgroup -mindepth 1 -maxdepth 1 -type d
    fi
}

make_node_cgroups() { # NODE
    local hierarchy path part file controller made=0
    for hierarchy in $(cgroup_roots); do
        path=$hierarchy
        for part in "$marker" "$1"; do
            # v2: a child has the controllers that its parent hands down; one that can't be is left out
            if [ -f "$path/cgroup.subtree_control" ]; then
                # shellcheck disable=SC2013
                for controller in $(cat "$path/cgroup.controllers"); do
                    { echo "+$controller" > "$path/cgroup.subtree_control"; } 2> /dev/null || true
                done
            fi
            path=$path/$part
            mkdir -p "$path" 2> /dev/null || continue 2
            # v1: a cpuset is unusable until it has processors and memory
            for file in cpuset.cpus cpuset.mems; do
                if [ -f "$path/$file" ] && [ ! -f "$path/cgroup.controllers" ]; then
                    cat "$path/../$file" > "$path/$file"
                fi
            done
        done
        made=$((made + 1))
    done
    [ "$made" -gt 0 ] || die "no cgroup can be made below /sys/fs/cgroup." \
        "In a container: run it with --privileged and a writable /sys/fs/cgroup."
}

lab_cgroups() { cgroup_roots | sed "s|\$|/$marker|" | xargs -r ls -d 2> /dev/null || true; }

remove_cgroups_once() {
    local group
    for group in $(lab_cgroups); do find "$group" -depth -type d -exec rmdir {} + 2> /dev/null; done
    [ -z "$(lab_cgroups)" ]
}

# An emptied cgroup can be removed a moment after its last process has ended.
remove_cgroups() {
    await 20 remove_cgroups_once || die "some cgroups of the lab still have processes: $(lab_cgroups | tr '\n' ' ')"
}

# --- programs that run in the lab -----------------------------------------------------------------------------------

# Starts a program for good. Its number (in the lab's process namespace) and the time of its start, which tells it from a
# later process of that number, are in .lab/run/NAME.pid, its output in .lab/log/NAME.log.
launch() { # NAME COMMAND...
    local name=$1
    shift
    mkdir -p "$(dirname "$lab/run/$name")" "$(dirname "$lab/log/$name")"
    rm -f "$lab/run/$name.pid"
    # shellcheck disable=SC2016
    "${in_lab[@]}" setsid --fork bash -c \
        'cd /; echo $$ "$(cut -d " " -f 22 "/proc/$$/stat")" > "$1.pid"; log=$2; shift 2; exec "$@" < /dev/null >> "$log" 2>&1' \
        - "$lab/run/$name" "$lab/log/$name.log" "$@" < /dev/null > /dev/null 2>> "$lab/log/launch.log" 9<&-
    await_or_die 30 "$name was not launched" launch.log test -s "$lab/run/$name.pid"
}

# Whether a program runs, or threads of it that still hold its ports; in the lab's process namespace.
program_runs() { # FILE: NAME.pid
    local pid began line fields
    { read -r pid began < "$1" && line=$(< "/proc/$pid/stat"); } 2> /dev/null || return 1
    read -ra fields <<< "${line##*) }" # from the third one on, see proc_pid_stat(5)
    [ "${fields[19]}" = "$began" ] && { [ "${fields[0]}" != Z ] || [ "${fields[17]}" -gt 1 ]; }
}

# Which of the named programs don't run.
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
        program_runs "$2" && read -r pid began < "$2" && kill -s "$1" "$pid"' - "$1" "$lab/run/$2.pid"
}
