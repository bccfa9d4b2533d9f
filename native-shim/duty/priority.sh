#!/bin/bash
# Runs duty with a container of high priority that answers requests, alone and beside one of low priority that keeps work
# queued: priority.sh DUTY [OPTIONS OF DUTY]. SEEDS sets the number of runs (default 3). This takes about a minute in
# virtual time. Prints the 99th percentile of the requests in ms, alone and beside the other one, and which part of the
# rest of the GPU that gets. Exit status 1: requests of at least 10 ms took more than 1.3 times as long as alone, or the
# other one got less than 0.85, or shorter requests took more than 6 ms longer.
set -u
duty=$1
shift
failed=0
p99() {
    sed -n 's/^tenant 0.* p99 \([0-9.]*\),.*/\1/p'
}
while read -r request kernels hog; do
    for seed in $(seq 1 "${SEEDS:-3}"); do
        run=("$duty" --arbiter --policy elastic --tolerance -1 --seconds 20 --seed "$seed" "$@")
        alone=$("${run[@]}" --limits 30 --priority high --shape "$request" --pattern "poisson=40/$kernels" | p99)
        both=$("${run[@]}" --limits 30,70 --priority high,low --shape "$request,$hog" --pattern "poisson=40/$kernels,busy")
        shares=$(sed -n 's/^tenant.*: *\([0-9.]*\) % of.*/\1/p' <<<"$both" | tr '\n' ' ')
        awk -v row="$kernels x $request beside $hog" -v seed="$seed" -v a="$alone" -v b="$(p99 <<<"$both")" \
            -v shares="$shares" -v long="$((${kernels} * ${request%%[um]*}))" -v unit="$request" 'BEGIN {
            split(shares, of, " ")
            rest = of[2] / (100 - of[1])
            if (unit ~ /us/) long /= 1000
            good = a > 0 && b > 0 && (long < 10 ? b <= a + 6 : b <= 1.3 * a && rest >= 0.85)
            printf "%-22s seed %s: p99 %6.2f alone, %6.2f beside (%.2f), low gets %.2f of the rest%s\n", row, seed, a, b,
                b / a, rest, good ? "" : " MISSED"
            exit !good }' || failed=$((failed + 1))
    done
done <<'ROWS'
2ms 1 1ms
2ms 1 2ms
10ms 1 50us
10ms 1 1ms
10ms 1 2ms
500us 20 1ms
500us 20 2ms
30ms 1 1ms
30ms 1 2ms
1500us 20 1ms
1500us 20 2ms
ROWS
[ "$failed" = 0 ]
