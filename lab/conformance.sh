# shellcheck shell=bash
# Kubernetes' own conformance tests of its node, apps, api-machinery, auth and scheduling groups on the lab's cluster: without
# Aliquot and with it, and those of the scheduler also with pods that hold a share of a GPU.

conformance_programs() { printf '%s/programs/conformance-%s' "$cache" "$(lab_modules)"; }

# e2e.test has the tests, ginkgo runs them in parallel, and agnhost is the program of their images. lab/kube/go.mod does not
# name all of their modules, since each change of it would rebuild the cluster's programs; a copy of it does.
build_conformance_programs() {
    local out
    local -a options
    out=$(conformance_programs)
    go_environment
    cd "$root/lab/kube"
    rm -rf "$out.tmp"
    mkdir "$out.tmp"
    cp go.mod go.sum "$out.tmp"
    options=(-mod=mod "-modfile=$out.tmp/go.mod" -buildvcs=false "${go_flags[@]}" -ldflags "-s -w" -o "$out.tmp/")
    export CGO_ENABLED=0
    go build "${options[@]}" k8s.io/kubernetes/test/images/agnhost github.com/onsi/ginkgo/v2/ginkgo
    go test -c "${options[@]}" k8s.io/kubernetes/test/e2e
    cp "$(go list -m -f '{{.Dir}}' k8s.io/kubernetes)"/test/images/agnhost/porter/localhost.{crt,key} "$out.tmp"
    publish "$out.tmp" "$out"
}

# The images under each name that the tests use.
load_conformance_images() {
    find_lab
    load_images conformance-busybox conformance-agnhost
    tag_in_nodes conformance-busybox busybox
    tag_in_nodes conformance-agnhost 'agnhost|nginx|pause'
}

tag_in_nodes() { # IMAGE REGULAR EXPRESSION OF THE LAST PART OF NAMES
    local node names
    names=$("$(conformance_programs)/e2e.test" --list-images 2> /dev/null | grep -E "/($2):")
    for node in "${nodes[@]}"; do
        # shellcheck disable=SC2086
        in_node "$node" ctr --namespace k8s.io images tag --force "$(image_name "$1")" $names
    done
}

# Twelve tests at a time: most of them wait. Those that need the cluster for themselves follow one by one.
run_conformance_tests() { # NAME REGULAR EXPRESSION [REPORT OF A FORMER RUN [PART OF A NAME THAT IS SKIPPED]]
    local status=0 skips report=$lab/reports/junit_conformance-$1-01.xml
    skips=$(sed -e '/^#/d' -e 's/\t.*//' "$root/lab/conformance-skips" | python3 -c 'import re, sys; print("|".join(re.escape(l.strip()) for l in sys.stdin))')${4:+|$4}
    say "Conformance tests, $1"
    setpriv --pdeathsig KILL "${in_network[@]}" "$(conformance_programs)/ginkgo" --procs=12 --no-color --silence-skips --timeout=30m \
        --focus="$2.*\[Conformance\]" --skip="$skips" "$(conformance_programs)/e2e.test" -- --provider=skeleton \
        --kubeconfig="$KUBECONFIG" --kubectl-path="$bin/kubectl" --non-blocking-taints=nvidia.com/gpu \
        --report-dir="$lab/reports" --report-prefix="conformance-$1-" --dump-logs-on-failure=false --disable-log-dump \
        < /dev/null > "$lab/log/conformance-$1.log" 2>&1 || status=$?
    python3 "$root/lab/conformance.py" "$report" ${3:+"$3"} && [ "$status" -eq 0 ]
}

# Gives each pod of the scheduler's tests a share, by a LimitRange in each of their namespaces.
give_shares() {
    local namespace
    setpriv --pdeathsig KILL "${in_network[@]}" "$bin/kubectl" --kubeconfig "$KUBECONFIG" \
        get namespaces --watch-only --no-headers --output custom-columns=:.metadata.name |
        while read -r namespace; do
            case $namespace in sched-*) ;; *) continue ;; esac
            kubectl --namespace "$namespace" create --filename - <<-'END' || true
				{"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "shares"}, "spec": {"limits": [
				  {"type": "Container", "default": {"aliquot.io/vgpu": 1, "nvidia.com/gpumem": 100}}]}}
			END
        done > /dev/null 2>&1
}

run_conformance() {
    local status=0 all='\[sig-(node|apps|api-machinery|auth|scheduling)\]' before shares
    setpriv --pdeathsig KILL "$root/aliquot" down < /dev/null
    setpriv --pdeathsig KILL "$root/aliquot" up --without-aliquot < /dev/null
    find_lab
    build_images conformance-busybox conformance-agnhost
    step load-conformance "Loading the conformance tests' images into the nodes" uncontained load_conformance_images
    run_conformance_tests without "$all" || status=1
    setpriv --pdeathsig KILL "$root/aliquot" up < /dev/null
    run_conformance_tests with "$all" "$lab/reports/junit_conformance-without-01.xml" || status=1

    before=$(wc -l < "$lab/log/audit.log")
    give_shares &
    # This one creates the share of its pod in kube-system, where Aliquot's webhooks are never called.
    run_conformance_tests shares '\[sig-scheduling\] Scheduler' '' 'preemption by critical pod' || status=1
    kill $!
    shares=$(tail -n "+$before" "$lab/log/audit.log" | grep -c '"subresource":"binding".*aliquot:aliquot-scheduler\|aliquot:aliquot-scheduler.*"subresource":"binding"' || true)
    say "$shares pods of the last tests had a share."
    [ "$shares" -gt 0 ] && [ "$status" -eq 0 ]
}
