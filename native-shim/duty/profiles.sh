#!/bin/bash
# Runs duty on profiles of the simulated GPU (fake-driver/src/gpu_profile.h): profiles.sh DUTY [OPTIONS OF DUTY].
# PROFILES names the profiles, separated by spaces (default: all, with those that the acceptance kit measured on real GPUs:
# docs/acceptance.md). This takes four minutes. The last line is the worst error. Exit status 1: a tenant's share was off
# by more than 10 points. The arbiter runs, as on a node. Where limits add up to 100, shares are parts of what two unlimited tenants reach together, as in
# the acceptance kit: a GPU whose switches cost 7 percent has no more.
set -u
duty=$1
shift
all="kind connections=8 connections=1 events=own switch=50 switch=150 drift=200 drift=-200 late=5-20 lazy=5-100 hopper
nastiest nastiest,connections=1 nastiest,drift=-200
$(sed -n 's/^ "profile": "\(.*\)",$/\1/p' "$(dirname "$0")"/../../docs/figures/measured-*.json)"
worst=0 failed=0 runs=0
for profile in ${PROFILES:-$all}; do
    whole=$("$duty" --limits 0,0 --tolerance -1 --profile "$profile" "$@" | sed -n 's/^total: \([0-9.]*\).*/\1/p')
    while read -r mix; do
        mix=${mix/WHOLE/--whole ${whole:-100}}
        # shellcheck disable=SC2086
        output=$("$duty" --arbiter --tolerance 10 --profile "$profile" $mix "$@" 2>&1) || failed=$((failed + 1))
        error=$(sed -n 's/.*worst error \([0-9.]*\).*/\1/p' <<<"$output")
        shares=$(sed -n 's/^tenant.*: *\([0-9.]*\) % of.*/\1/p' <<<"$output" | tr '\n' ' ')
        printf '%-24s %-48s %-24s worst error %s\n' "$profile" "$mix" "$shares" "${error:-$output}"
        worst=$(printf '%s\n%s\n' "$worst" "${error:-100}" | sort -g | tail -1)
        runs=$((runs + 1))
    done <<'MIXES'
--limits 30 --shape 1ms
--limits 25 --shape 50us
--limits 40 --shape 20ms
--limits 25 --shape 200us --pattern sync
--limits 30 --shape 1ms --pattern burst --expect 16.5
--limits 40 --shape 200us --pattern streams=16
--limits 30,60 --shape 1ms
--limits 60,30 --shape 50us,20ms
--limits 45,45 --shape 20ms
--limits 10,20,25,35 --shape 200us
--limits 22 --tenants 4 --shape mixed --warm-up 4
--limits 30,70 --shape 200us WHOLE
--limits 70,30 --shape 20us WHOLE
--limits 10,20,30,40 --shape 200us WHOLE
MIXES
done
echo "$runs runs, $failed failed; worst error $worst points"
[ "$failed" = 0 ]
