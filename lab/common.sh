# shellcheck shell=bash
# What all parts of ./aliquot share: names and paths of this checkout's lab, messages, long steps, the locks.
# Other scripts source it. Sets: root, lab, cache, id, marker, subnet, nodes, shared_nodes, other_node, cdi_node,
# vm_node, kubernetes_version.

set -euo pipefail
umask 022

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
lab=$root/.lab
export HOME=${HOME:-/root}
cache=${XDG_CACHE_HOME:-$HOME/.cache}/aliquot

# The first 8 hex digits of the SHA-256 of the checkout's path. Names that another lab on this machine could also use
# contain it.
id=$(printf %s "$root" | sha256sum | cut -c1-8)
marker=aliquot-lab-$id
# 10.<20..219>.0.0/16, in the lab's network namespace only
subnet=10.$((0x${id:0:6} % 200 + 20))
api_address=$subnet.0.1
service_cidr=$subnet.128.0/17
nodes=(node1 node2 node3)
# Aliquot shares the GPUs of these; NVIDIA's device plugin serves those of the other.
shared_nodes=(node1 node2)
other_node=node3
# The node with containerd 2, which injects CDI devices, and runc as the default runtime. The others have the machine's
# containerd, with NVIDIA's runtime as the default.
cdi_node=node2
# A virtual machine, which joins the cluster with `./aliquot vm up` (lab/vm.sh); in no list above
vm_node=node4

version_of() { sed -n "s#^\t$1 v\([^ ]*\).*#\1#p" "$root/lab/kube/${2:-go.mod}"; } # MODULE [FILE OF MODULES]
helm_version=$(version_of helm.sh/helm/v3)
nvidia_toolkit_version=1.20.1
containerd_version=2.2.0
runc_version=1.3.0
helm4_version=4.3.2
kube_score_version=1.20.0

default_kubernetes=$(version_of k8s.io/kubernetes)
# The versions of Kubernetes that a cluster can have, the oldest first
kubernetes_versions() { { echo "$default_kubernetes"; cd "$root/lab/kube/versions" && ls -- *.mod; } | sed 's/\.mod$//' | sort -V; }

# Sets the cluster's version. Of the default one lab/kube/go.mod has the modules, of the others a file in lab/kube/versions.
# The processes that this one starts inherit another version in the environment.
use_kubernetes() { # VERSION
    kubernetes_versions | grep -qxF -e "$1" || die "the lab has no Kubernetes '$1'." "The versions: $(kubernetes_versions | xargs)"
    kubernetes_version=$1
    if [ "$1" = "$default_kubernetes" ]; then
        unset ALIQUOT_KUBERNETES
        kubernetes_modules=go.mod
    else
        export ALIQUOT_KUBERNETES=$1
        kubernetes_modules=versions/$1.mod
    fi
    etcd_version=$(version_of go.etcd.io/etcd/server/v3 "$kubernetes_modules")
}

# Succeeds if the cluster's version is this minor version or later.
kubernetes_from() { # MINOR VERSION, such as 36
    local minor=${kubernetes_version#1.}
    [ "${minor%%.*}" -ge "$1" ]
}

export KUBECONFIG=$lab/admin.kubeconfig

# The path of the web page at the API server
page=/apis/gpu.aliquot.io/v1alpha1/ui/

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

# Runs a function of these files in PID and mount namespaces that end with this process, even by SIGKILL: a killed
# ./aliquot leaves no compiler running and no mount behind. Replaces the shell: call it in the background or a subshell.
contained() { # FUNCTION [ARGUMENT...]
    exec setpriv --pdeathsig KILL unshare --mount --pid --fork --kill-child=KILL --mount-proc \
        bash "$root/lab/step.sh" "$@" 8<&- 9<&-
}

# The same in the machine's namespaces, for functions that must see the lab's processes. They start no long command.
uncontained() { # FUNCTION [ARGUMENT...]
    exec setpriv --pdeathsig KILL bash "$root/lab/step.sh" "$@" 8<&- 9<&-
}

# Runs functions at the same time; fails when one fails.
together() { # FUNCTION...
    local function
    for function; do "$function" & done
    for function; do wait -n; done
}

# Runs a function with its output in a log, and reports the time that it has taken so far. Where ALIQUOT_STEPS names a
# file, the step and its seconds become a line of it.
step() { # NAME DESCRIPTION contained|uncontained FUNCTION [ARGUMENT...]
    local name=$1 what=$2 log=$lab/log/$1.log start=$SECONDS reported=0 pid status=0 tick=0
    shift 2
    mkdir -p "$lab/log"
    [ -t 1 ] || say "$what ..."
    "$@" > "$log" 2>&1 < /dev/null &
    pid=$!
    while kill -0 "$pid" 2> /dev/null; do
        if [ -t 1 ]; then
            printf '\r%s ... %s ' "$what" "$(duration $((SECONDS - start)))"
        elif [ $((SECONDS - start)) -ge $((reported + 60)) ]; then
            reported=$((SECONDS - start))
            say "  still running after $(duration "$reported")"
        fi
        # short at first: most steps have nothing to do
        if [ $((tick += 1)) -lt 20 ]; then sleep 0.05; else sleep 0.5; fi
    done
    wait "$pid" || status=$?
    [ -z "${ALIQUOT_STEPS:-}" ] || printf '%d\t%s\n' $((SECONDS - start)) "$what" >> "$ALIQUOT_STEPS"
    if [ -t 1 ]; then printf '\r\033[K%s: ' "$what"; else printf '  '; fi
    if [ "$status" -eq 0 ]; then
        say "done in $(duration $((SECONDS - start)))"
        return
    fi
    say "failed after $(duration $((SECONDS - start)))"
    printf '\n' >&2
    tail -n 25 "$log" | sed 's/^/    /' >&2
    printf '\n' >&2
    die "$what: failed." "The lines above are the end of its output; see $log for all of it."
}

# --- the locks ------------------------------------------------------------------------------------------------------

# One ./aliquot at a time changes this checkout's lab. The lock is on the folder lab/, which no command removes. The
# kernel releases it when all its holders have ended: programs that outlive the command close descriptor 9.
lock() {
    exec 9< "$root/lab"
    flock --nonblock 9 && return
    say "Another ./aliquot is changing this checkout's lab; waiting for it (at most 30 minutes) ..."
    flock --timeout 1800 9 || die "the other ./aliquot has not finished in 30 minutes." "Stop it. What holds the lock: fuser -v $root/lab"
}

# The cache is shared by all checkouts of a user.
lock_cache() {
    mkdir -p "$cache"
    exec 8< "$cache"
    flock --nonblock 8 && return
    say "Another checkout's ./aliquot is filling the build cache; waiting for it (at most 40 minutes) ..."
    flock --timeout 2400 8 || die "the other ./aliquot has not finished in 40 minutes." "Stop it. What holds the lock: fuser -v $cache"
}

unlock_cache() { exec 8<&-; }

# --- helpers --------------------------------------------------------------------------------------------------------

# One hash over the names and contents of the files below some paths, without build output.
hash_of() { # PATH...
    find "$@" \( -name target -o -name build -o -name __pycache__ -o -name .git \) -prune -o -type f -printf '%p\0' |
        LC_ALL=C sort -z | xargs -0r sha256sum | sha256sum | cut -c1-16
}

# Repeats a command until it succeeds; fails after so many seconds.
await() { # SECONDS COMMAND...
    local deadline=$((SECONDS + $1))
    shift
    until "$@" > /dev/null 2>&1; do
        [ "$SECONDS" -lt "$deadline" ] || return 1
        sleep 0.1
    done
}

# Moves a finished file to its final name in one step: a killed build leaves no incomplete file there.
publish() { # TEMPORARY FINAL
    sync -f "$1" 2> /dev/null || true
    mv -f "$1" "$2"
}

use_kubernetes "${ALIQUOT_KUBERNETES:-$default_kubernetes}"
