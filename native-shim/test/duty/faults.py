#!/usr/bin/env python3
"""
Runs duty with faults that begin at 4 s and end at 7 s, or never: faults.py DUTY [FAULT...] (default: four; with
ALIQUOT_LONG in the environment all, half a minute of CPU time).

Each has the same outcome. From 2 s on, over any second, no tenant that has work falls more than 5 points below its
static share. None that does not borrow exceeds its cores by more than 10 points for longer than 3 s. From 3 s after the
end of the fault, or after its begin if it stays, all bounds of matrix.py hold again, except that nothing is lent
without an arbiter, and that a container that claims to have work keeps its own share.
"""
import os
import re
import statistics
import sys

import ideal
import matrix

SECOND = 50  # lines of the series
MIX = "--arbiter --limits 20,30,30 --policy fixed,elastic,fixed --shape 1ms,5ms,1ms --pattern busy,busy,sync"
IDLE = MIX.replace("busy,busy,sync", "burst=1/60000,busy,busy").replace("fixed,elastic,fixed", "elastic,elastic,fixed")
NONE = MIX.replace("fixed,elastic,fixed", "none,elastic,fixed")
FAULTS = {
    "killed": ("killed@4", MIX), "restarted": ("killed@4-4.1", MIX), "down": ("killed@4-7", MIX),
    "hung": ("hung@4-7", MIX), "paused": ("paused@4-7", MIX), "silent": ("silent@4", MIX), "high": ("high@4-7", MIX),
    "low": ("low@4-7", MIX), "late": ("late@4", MIX), "silent-none": ("silent@4", NONE), "high-none": ("high@4", NONE),
    "claims": ("claims@4", IDLE), "used": ("used@4", IDLE), "used-none": ("used@4-7", NONE),
    "drift": ("", MIX + " --profile drift=500"), "drift-back": ("", MIX + " --profile drift=-500")}

QUICK = ("restarted", "paused", "low", "claims")


def judge(duty, fault, mix):
    lines = matrix.series(duty, f"{mix} --fault {fault}" if fault else mix, 2, 12)
    tenants = ideal.parse(mix.split())
    begin, end = map(float, re.search(r"@([\d.]+)-?([\d.]*)|$", fault).group(1, 2)) if "-" in fault else (4.0, 4.0)
    over = lambda i, at, length: 100 * statistics.mean(line[i + 1] for line in lines[at:at + length])
    for i, tenant in enumerate(tenants):
        own, away = 100 * ideal.guarantee(tenant, tenants), fault.startswith("paused") and i == 0
        seconds = {at: over(i, at, SECOND) for at in range(2 * SECOND, len(lines) - SECOND, 5)}
        if away:
            most = max(over(i, at, SECOND // 2) for at in range(int((begin + 1) * SECOND), int((end - 1) * SECOND), 5))
            yield most - 1, f"tenant {i} gets {most:.1f} although it is paused"
        if tenant.queues or tenant.name == "sync":
            at, least = min(((at, share) for at, share in seconds.items()
                             if not (away and (begin - 1) * SECOND < at < (end + 1) * SECOND)), key=lambda of: of[1])
            yield own - 5 - least, f"tenant {i} gets {least:.1f} of {own:.1f} in the second from {at / SECOND:.1f} s"
        if tenant.policy == "fixed":
            most = max(min(over(i, at + k * SECOND, SECOND) for k in range(3)) for at in seconds
                       if at + 3 * SECOND <= len(lines))
            yield most - own - 10, f"tenant {i} gets at least {most:.1f} of {own:.1f} for 3 s"
    settled = int((end + 3) * SECOND)
    shares = [over(i, settled, len(lines) - settled) / 100 for i in range(len(tenants))]
    lends = fault != "killed@4" and not fault.startswith("claims")
    for miss, what in matrix.misses(mix, shares, 1.0, lends, 1.0, 0.0):
        if not (what.startswith("tenant 0") and "burst" in mix):
            yield miss, what + " after the fault"


def main():
    missed = 0
    for name in sys.argv[2:] or (FAULTS if os.environ.get("ALIQUOT_LONG") else QUICK):
        miss, what = max(judge(sys.argv[1], *FAULTS[name]))
        missed += miss > 0
        print(f"{name:<12} {f'MISSED by {miss:.1f}: ' if miss > 0 else f'{-miss:.1f} points left: '}{what}", flush=True)
    return missed > 0


if __name__ == "__main__":
    sys.exit(main())
