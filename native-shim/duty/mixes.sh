#!/bin/bash
# Runs duty with tenants that differ from each other, with and without the reference arbiter: mixes.sh DUTY [OPTIONS OF
# DUTY]. SEEDS sets the number of runs of each mix (default 3). This takes some minutes in virtual time. The last line
# is the worst error. Exit status 1: a tenant's share was off by more than 2 points, or the GPU was busy for less than
# 97 percent of the time although an elastic tenant had work for it.
set -u
duty=$1
shift
worst=0 failed=0 runs=0
while read -r mix; do
    [ -n "$mix" ] || continue
    errors=
    for seed in $(seq 1 "${SEEDS:-3}"); do
        # shellcheck disable=SC2086
        output=$("$duty" --seconds 6 $mix --seed "$seed" "$@" 2>&1) || failed=$((failed + 1))
        error=$(sed -n 's/.*worst error \([0-9.]*\).*/\1/p' <<<"$output")
        errors="$errors ${error:-100}"
        worst=$(printf '%s\n%s\n' "$worst" "${error:-100}" | sort -g | tail -1)
        runs=$((runs + 1))
    done
    printf '%s: worst error%s\n' "$mix" "$errors"
done <<'MIXES'
--limits 20,30,50 --shape 50us,3ms,20ms
--limits 30,70 --shape 50us,20ms
--limits 30,70 --shape 20ms,50us
--limits 33,33,33 --shape 50us,1ms,20ms
--limits 5 --shape 1ms
--limits 25 --tenants 4 --shape 50us,200us,1ms,20ms
--limits 15,25,60 --shape 7ms,100us,500us
--limits 40,60 --shape varied
--limits 30,70 --shape 50us+3ms!,1ms --warm-up 4
--limits 12 --tenants 8 --shape mixed --warm-up 4
--limits 30,50 --shape 200us --pattern streams=4
--limits 30,60 --shape 1ms,5ms --processes 2
--limits 20,40 --shape graph,50us
--limits 50,50 --shape 1ms,50us --pattern sync,busy
--limits 40,40 --shape 30us,400us
--limits 90,10 --shape 3ms,10us
--limits 35,45 --shape mixed,20ms
--limits 60 --shape 10ms
--limits 20,20,20 --shape 10us,10us,20ms
--limits 10,30,60 --shape 20ms,3ms,50us
--arbiter --limits 30,40 --policy fixed,elastic --expect 30,70 --shape 1ms --total 97
--arbiter --limits 30,40 --policy elastic,fixed --expect 60,40 --shape 20ms,50us --total 97
--arbiter --limits 30,60 --policy elastic --expect 33.3,66.7 --shape 20ms,50us --total 97
--arbiter --limits 30,60 --policy elastic --expect 33.3,66.7 --shape 50us,20ms --total 97
--arbiter --limits 20,30 --policy elastic --expect 40,60 --shape varied,1ms --total 97
--arbiter --limits 30 --policy elastic --expect 100 --shape mixed --total 97
--arbiter --limits 75,50 --shape 1ms
--arbiter --limits 75,75 --shape 50us,20ms
--arbiter --limits 60,60,60 --shape 50us,1ms,7ms
--arbiter --limits 20,30,50 --shape 50us,3ms,20ms
--arbiter --limits 25 --tenants 4 --shape mixed --warm-up 4
--arbiter --limits 25 --tenants 4 --shape 50us,200us,1ms,20ms
--arbiter --limits 10,20,30,40 --shape graph,1ms,mixed,50us
--arbiter --limits 25,25 --shape 5ms,300us
MIXES
echo "$runs runs, $failed failed; worst error $worst points"
[ "$failed" = 0 ]
