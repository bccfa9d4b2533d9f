#!/bin/bash
# Limits, shapes and numbers of tenants, each against each: matrix.sh DUTY [OPTIONS OF DUTY]; about two minutes in
# virtual time, twenty in real time (--real). Ends with the worst error; status 1: somebody was off by over 2 points.
set -u
duty=$1
shift
worst=0 failed=0 runs=0
for shape in ${SHAPES:-50us 200us 1ms 20ms mixed graph}; do
    for limits in 10 25 50 75 10,10 25,25 50,50 75,75 30,70 10,10,10,10 25,25,25,25 50,50,50,50 75,75,75,75 10,20,30,40; do
        line=$("$duty" --limits "$limits" --shape "$shape" "$@" 2>&1) || failed=$((failed + 1))
        shares=$(sed -n 's/^tenant.*: *\([0-9.]*\) % of.*/\1/p' <<<"$line" | tr '\n' ' ')
        error=$(sed -n 's/.*worst error \([0-9.]*\).*/\1/p' <<<"$line")
        printf '%-6s limits %-12s got %-24s worst %s\n' "$shape" "$limits" "$shares" "${error:-$line}"
        worst=$(printf '%s\n%s\n' "$worst" "${error:-100}" | sort -g | tail -1)
        runs=$((runs + 1))
    done
done
echo "$runs runs, $failed off by more than allowed; worst error $worst points"
[ "$failed" = 0 ]
