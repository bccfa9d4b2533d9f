#!/bin/bash
# Runs duty with containers that lend and borrow idle time: lending.sh DUTY [OPTIONS OF DUTY]. SEEDS sets the number of
# runs of each mix (default 3). This takes about two minutes in virtual time. Prints for each mix the share of each
# tenant, and how long the work of the first one takes that waits for it: median and p99 in ms. It judges nothing;
# docs/figures/compute.md has the targets.
set -u
duty=$1
shift
while read -r mix; do
    [ -n "$mix" ] || continue
    for seed in $(seq 1 "${SEEDS:-3}"); do
        # shellcheck disable=SC2086
        output=$("$duty" --arbiter --tolerance -1 --seconds 8 $mix --seed "$seed" "$@" 2>&1)
        shares=$(sed -n 's/^tenant.*: *\([0-9.]*\) % of.*/\1/p' <<<"$output" | tr '\n' ' ')
        took=$(sed -n 's/^tenant 0.*work takes \([0-9.]*\) ms.*p99 \([0-9.]*\),.*/\1 \2/p' <<<"$output")
        total=$(sed -n 's/^total: \([0-9.]*\).*/\1/p' <<<"$output")
        printf '%-78s %-22s total %-6s %s\n' "$mix" "$shares" "$total" "$took"
    done
done <<'MIXES'
--limits 30,30 --policy fixed,elastic --pattern burst,busy
--limits 30 --pattern burst
--limits 30,30 --policy fixed,elastic
--limits 30,30 --policy fixed,elastic --shape 1ms,20ms
--limits 30,30 --policy fixed,elastic --shape 20ms,1ms
--limits 30,30 --policy fixed,elastic --shape 1ms,5ms
--limits 30,30 --policy fixed,elastic --shape 1ms,8ms
--limits 30,60 --policy elastic
--limits 30,60 --policy elastic --profile nastiest
--limits 50 --shape 200us --pattern sync
--limits 50,50 --policy fixed,elastic --shape 200us,1ms --pattern sync,busy
--limits 50,50 --policy fixed,elastic --shape 200us,20ms --pattern sync,busy
--limits 50,10 --tenants 4 --policy fixed,elastic --shape 200us,20ms --pattern sync,busy
--limits 50 --shape 1ms --pattern sync
--limits 50,50 --policy fixed,elastic --shape 1ms --pattern sync,busy
--limits 50,50 --policy fixed,elastic --shape 1ms,20ms --pattern sync,busy
--limits 50,10 --tenants 4 --policy fixed,elastic --shape 1ms --pattern sync,busy
--limits 50,10 --tenants 4 --policy fixed,elastic --shape 1ms,20ms --pattern sync,busy
--limits 50 --shape 5ms --pattern sync
--limits 50,50 --policy fixed,elastic --shape 5ms,1ms --pattern sync,busy
--limits 50,50 --policy fixed,elastic --shape 5ms,20ms --pattern sync,busy
--limits 50 --shape 20ms --pattern sync
--limits 50,50 --policy fixed,elastic --shape 20ms,1ms --pattern sync,busy
--limits 50,50 --policy fixed,elastic --shape 20ms --pattern sync,busy
--limits 50,10 --tenants 4 --policy fixed,elastic --shape 20ms --pattern sync,busy
--limits 60 --shape 60ms --pattern think=400
--limits 60,30 --policy fixed,elastic --shape 60ms,1ms --pattern think=400,busy
--limits 60,30 --policy fixed,elastic --shape 60ms,20ms --pattern think=400,busy
--limits 50,50 --policy fixed,elastic --shape 1ms --pattern think=1,busy
--limits 50,50 --policy fixed,elastic --shape 1ms,20ms --pattern think=1,busy
--limits 30,30 --policy elastic --pattern think=3,busy
--limits 30,30 --policy fixed,elastic --shape 10ms,1ms --pattern poisson=25,busy
MIXES
