# shellcheck shell=bash
# What every part of ./aliquot shares: names and paths of this checkout's lab, messages, long steps, the lock.
# Sourced, never run. Sets: root, lab, cache, id, marker, subnet, nodes.

set -euo pipefail
umask 022

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
lab=$root/.lab
export HOME=${HOME:-/root}
cache=${XDG_CACHE_HOME:-$HOME/.cache}/aliquot

# Everything that could meet another checkout's lab on this machine carries this: first 8 hex digits of the path's SHA-256.
id=$(printf %s "$root" | sha256sum | cut -c1-8)
marker=aliquot-lab-$id
# 10.<20..219>.0.0/16; only inside the lab's own network namespace.
subnet=10.$((0x${id:0:6} % 200 + 20))
api_address=$subnet.0.1
service_cidr=$subnet.128.0/17
nodes=(node1 node2)

kubernetes_version=1.35.4
helm_version=3.17.3
nvidia_toolkit_version=1.20.1

export KUBECONFIG=$lab/admin.kubeconfig

# --- messages -------------------------------------------------------------------------------------------------------

say() { printf '%s\n' "$*"; }

die() { # SENTENCE [WHAT TO DO]
    printf 'aliquot: %s\n' "$1" >&2
    shift
    [ $# -eq 0 ] || printf '  %s\n' "$@" >&2
    exit 1
}

duration() { # SECONDS -> "42 s", "3 min 5 s"
    if [ "$1" -lt 60 ]; then printf '%d s' "$1"; else printf '%d min %d s' $(($1 / 60)) $(($1 % 60)); fi
}

# --- long steps -----------------------------------------------------------------------------------------------------

# Runs a function of these files in process and mount namespaces of its own, which end with this process however it
# ends: a SIGKILLed ./aliquot leaves no compiler running and no mount behind.
contained() { # FUNCTION [ARGUMENT...]; call it in the background or a subshell, for it replaces the shell
    exec setpriv --pdeathsig KILL unshare --mount --pid --fork --kill-child=KILL --mount-proc \
        bash "$root/lab/step.sh" "$@" 8<&- 9<&-
}

# The same for a function that deals with the running lab and so must see all processes; it starts nothing long.
uncontained() { # FUNCTION [ARGUMENT...]
    exec setpriv --pdeathsig KILL bash "$root/lab/step.sh" "$@" 8<&- 9<&-
}

# Runs a function with its output in a log, and tells how long it has been at it.
step() { # NAME DESCRIPTION contained|uncontained FUNCTION [ARGUMENT...]
    local name=$1 what=$2 log=$lab/log/$1.log begin=$SECONDS told=0 pid status=0 tick=0
    shift 2
    mkdir -p "$lab/log"
    [ -t 1 ] || say "$what ..."
    "$@" > "$log" 2>&1 < /dev/null &
    pid=$!
    while kill -0 "$pid" 2> /dev/null; do
        if [ -t 1 ]; then
            printf '\r%s ... %s ' "$what" "$(duration $((SECONDS - begin)))"
        elif [ $((SECONDS - begin)) -ge $((told + 60)) ]; then
            told=$((SECONDS - begin))
            say "  still at it after $(duration "$told")"
        fi
        # short at first: most steps find everything done
        if [ $((tick += 1)) -lt 20 ]; then sleep 0.05; else sleep 0.5; fi
    done
    wait "$pid" || status=$?
    if [ -t 1 ]; then printf '\r\033[K%s: ' "$what"; else printf '  '; fi
    if [ "$status" -eq 0 ]; then
        say "done in $(duration $((SECONDS - begin)))"
        return
    fi
    say "failed after $(duration $((SECONDS - begin)))"
    printf '\n' >&2
    tail -n 25 "$log" | sed 's/^/    /' >&2
    printf '\n' >&2
    die "$what: failed." "The lines above end its output; all of it is in $log."
}

# --- the lock -------------------------------------------------------------------------------------------------------

# One ./aliquot at a time changes this checkout's lab. The kernel frees the lock when its holder dies. It is held on
# the folder lab/, which no command removes; whatever outlives the command must close descriptor 9.
lock() {
    exec 9< "$root/lab"
    flock --nonblock 9 && return
    say "Another ./aliquot is changing this checkout's lab; waiting for it (at most 30 minutes) ..."
    flock --timeout 1800 9 || die "the other ./aliquot still isn't done." "End it, or find out what holds it: fuser -v $root/lab"
}

# The cache is shared by all checkouts of a user.
lock_cache() {
    mkdir -p "$cache"
    exec 8< "$cache"
    flock --nonblock 8 && return
    say "Another checkout's ./aliquot is filling the build cache; waiting for it (at most 40 minutes) ..."
    flock --timeout 2400 8 || die "the other ./aliquot still isn't done." "End it, or find out what holds it: fuser -v $cache"
}

unlock_cache() { exec 8<&-; }

# --- small things ---------------------------------------------------------------------------------------------------

# One hash over the files below some paths: their names, modes and contents, build output left out.
hash_of() { # PATH...
    find "$@" \( -name target -o -name build -o -name __pycache__ -o -name .git \) -prune -o -type f -printf '%p\0' |
        LC_ALL=C sort -z | xargs -0r sha256sum | sha256sum | cut -c1-16
}

await() { # SECONDS COMMAND...: until it succeeds
    local end=$((SECONDS + $1))
    shift
    until "$@" > /dev/null 2>&1; do
        [ "$SECONDS" -lt "$end" ] || return 1
        sleep 0.1
    done
}

# Puts a finished file in place in one step, so that a killed build leaves no half file under its final name.
publish() { # TEMPORARY FINAL
    sync -f "$1" 2> /dev/null || true
    mv -f "$1" "$2"
}
