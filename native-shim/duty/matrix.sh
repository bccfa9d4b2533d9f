#!/bin/bash
# Runs duty with every combination of limits, shapes and numbers of tenants: matrix.sh DUTY [OPTIONS OF DUTY]. This
# takes about two minutes in virtual time, twenty in real time (--real). The last line is the worst error. Exit status
# 1: a tenant's share was off by more than 2 points.
set -u
duty=$1
shift
worst=0 failed=0 runs=0
for shape in ${SHAPES:-50us 200us 1ms 20ms mixed graph}; do
    for limits in 10 25 50 75 10,10 25,25 50,50 75,75 30,70 10,10,10,10 25,25,25,25 50,50,50,50 75,75,75,75 \
        10,20,30,40; do
        output=$("$duty" --limits "$limits" --shape "$shape" "$@" 2>&1) || failed=$((failed + 1))
        shares=$(sed -n 's/^tenant.*: *\([0-9.]*\) % of.*/\1/p' <<<"$output" | tr '\n' ' ')
        error=$(sed -n 's/.*worst error \([0-9.]*\).*/\1/p' <<<"$output")
        printf '%-6s limits %-12s shares %-24s worst error %s\n' "$shape" "$limits" "$shares" "${error:-$output}"
        worst=$(printf '%s\n%s\n' "$worst" "${error:-100}" | sort -g | tail -1)
        runs=$((runs + 1))
    done
done
echo "$runs runs, $failed failed; worst error $worst points"
[ "$failed" = 0 ]
