#!/usr/bin/env bash
# Measures the figures of docs/performance.md on the running lab, except the time of a cold `./aliquot up`. Prints the
# machine and a table of figure, number and command.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
cd "$root"

# shellcheck disable=SC2016
row() { printf '| %s | %s | `%s` |\n' "$1" "$2" "$3"; }

echo "Starting the lab, then timing a second start with nothing to do ..." >&2
./aliquot up >&2
start=$SECONDS
./aliquot up >&2
warm=$((SECONDS - start))

mkdir -p "$root/.lab/log"
rm -f lab/target/figures.txt scheduler/target/figures.txt
echo "Measuring on the cluster and in a browser, for some minutes ..." >&2
in_cluster='./aliquot figures'
if ! ALIQUOT_LONG=1 ./mvnw -q -B -ntp verify -pl lab -am -Dlab.asItIs=true -Dtest=WebPageScaleTest -Dsurefire.failIfNoSpecifiedTests=false \
    -Dit.test=Figures -Dfailsafe.failIfNoSpecifiedTests=false > "$root/.lab/log/figures.log" 2>&1; then
    tail -n 30 "$root/.lab/log/figures.log" >&2
    echo "aliquot: the measurements on the cluster or in the browser failed; see $root/.lab/log/figures.log" >&2
    exit 1
fi

echo "Measuring the shim ..." >&2
cmake --build native-shim/build --target bench > "$root/.lab/log/bench.log" 2>&1 || {
    tail -n 15 "$root/.lab/log/bench.log" >&2
    echo "aliquot: the shim's benchmark failed; see $root/.lab/log/bench.log" >&2
    exit 1
}

printf '\nMeasured %s on %s cores (%s), %s GiB memory, Linux %s, commit %s.\n\n' "$(date -u +%F)" "$(nproc)" \
    "$(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | head -n 1)" \
    "$(awk '/^MemTotal/ { printf "%d", $2 / 1048576 + 0.5 }' /proc/meminfo)" "$(uname -r)" "$(git rev-parse --short HEAD)"
printf '| figure | number | command |\n|---|---|---|\n'
row "\`./aliquot up\`, nothing changed" "$warm s" "./aliquot up"
while IFS='|' read -r name number; do row "$name" "$number" "$in_cluster"; done < <(cat lab/target/figures.txt scheduler/target/figures.txt)
# shellcheck disable=SC2016
printf '\nThe shim (`cmake --build native-shim/build --target bench`):\n\n'
grep -v '^\[' "$root/.lab/log/bench.log" | sed 's/^/    /'
