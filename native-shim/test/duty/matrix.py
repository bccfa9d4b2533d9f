#!/usr/bin/env python3
"""
Runs duty with mixes of one to four tenants, and judges each tenant's share: matrix.py DUTY [SET...] [OPTIONS].

Sets (default: sample; with ALIQUOT_LONG in the environment, all that are judged):
  sample    each kind of program under each policy, and most pairs of them, for 2 s each; 10 s of CPU time
  all       every tenant alone, every pair, and all pairs among three and four tenants; a quarter of an hour
  mixes     kernels of many lengths, without and with the arbiter
  lending   programs that wait, compute or come in bursts, beside those that borrow
  profiles  14 mixes, on each profile of a GPU that is known (fake-driver/src/gpu_profile.h, docs/figures/measured-*)
  agentless each program alone and beside each other one, without the arbiter: within 10 points, 20 on other profiles
  frontier  prints the rate of programs that compute between kernels against the use of the GPU, beside the ideal
  priority  requests of a container of high priority, alone and beside one of low priority that keeps work queued, with
            three seeds, for 20 s each

A tenant that keeps work queued must get its cores less 2 points, one that waits for each kernel 0.95 of them. A fixed
one gets at most its cores plus 2 points. While an elastic one keeps work queued, the GPU is in use for 0.97 of what the
ideal arbiter reaches at the rates of those that compute between kernels, or of what the programs reach without limits.
Elastic tenants divide the surplus by their cores within 3 points. No share exceeds the ideal arbiter's bound.
Where switches between processes cost time, shares are parts of what two tenants without limits reach together. Profiles
other than `kind` may be 8 points beyond these bounds, and so may programs without the arbiter. A mix that misses is run
again with two other seeds, and judged by the median. Of `priority` each run is judged: the 99th percentile of requests
of at least 10 ms is at most 1.3 times that alone, and the other container gets at least 0.85 of the rest of the GPU;
shorter requests take at most 6 ms longer. Exit status 1: one misses.
"""
import argparse
import csv
import itertools
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import ideal

PROGRAMS = {  # shape, pattern, processes
    "busy": ("1ms", "busy", 1), "long": ("20ms", "busy", 1), "waits": ("1ms", "sync", 1),
    "computes": ("1ms", "think=1", 1), "bursts": ("1ms", "burst", 1), "poisson": ("10ms", "poisson=25", 1),
    "copies": ("200us", "copies=256", 1), "streams": ("200us", "streams=16", 1), "processes": ("1ms", "busy", 2),
    "graphs": ("graph", "busy", 1)}
POLICIES = ("fixed", "elastic", "none")
CORES = {1: (30,), 2: (30, 60), 3: (20, 30, 45), 4: (10, 20, 25, 40)}
HERE = Path(__file__).resolve().parent


def options(kinds):
    """The options of duty for tenants, each a program and a policy."""
    shapes, patterns, processes = zip(*(PROGRAMS[program] for program, _ in kinds))
    return (f"--arbiter --limits {','.join(map(str, CORES[len(kinds)]))} --policy {','.join(p for _, p in kinds)}"
            f" --shape {','.join(shapes)} --pattern {','.join(patterns)} --processes {','.join(map(str, processes))}")


def pairwise(sizes, seed=1):
    """Mixes in which each program has each policy, and meets each program and each policy."""
    kinds = list(itertools.product(PROGRAMS, POLICIES))
    pairs = lambda mix: set(mix) | {pair for a, b in itertools.permutations(mix, 2) for pair in
                                    ((min(a[0], b[0]), "meets", max(a[0], b[0])), (a[0], "meets", b[1]))}
    missing, chance, mixes = set().union(*(pairs(p) for p in itertools.product(kinds, kinds))), random.Random(seed), []
    while missing:
        size = sizes[len(mixes) % len(sizes)]
        tries = (tuple(chance.choice(kinds) for _ in range(size)) for _ in range(300))
        best = max(tries, key=lambda mix: len(pairs(mix) & missing))
        missing -= pairs(best)
        mixes.append(options(best))
    return mixes


def listed(name):
    """A set of mixes in mixes.txt."""
    text = (HERE / "mixes.txt").read_text()
    section = re.search(rf"^# {name}\b.*\n((?:(?!#).*\n)*)", text, re.M).group(1)
    return [line for line in section.splitlines() if line]


def profiles():
    kit = (HERE / "../../../docs/figures").glob("measured-*.json")
    measured = [re.search(r'^ "profile": "(.*)",$', path.read_text(), re.M).group(1) for path in sorted(kit)]
    return listed("of profiles") + [profile + ("" if "warps=" in profile else ",warps=16") for profile in measured]


class Duty:
    def __init__(self, program, seconds):
        self.program, self.seconds, self.wholes = program, seconds, {}

    def run(self, mix, seed=1):
        """The tenants' shares of the GPU, from 0 to 1."""
        return self.measure(f"--warm-up 3 {mix}", seed)[0]

    def measure(self, mix, seed):
        """The same, and the 99th percentiles in ms of the work that tenants wait for."""
        command = [self.program, "--tolerance", "-1", "--seconds", str(self.seconds), "--seed", str(seed), *mix.split()]
        output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        return ([float(share) / 100 for share in re.findall(r"^tenant.*: *([\d.]+) % of", output, re.M)],
                [float(ms) for ms in re.findall(r"^tenant.* p99 ([\d.]+),", output, re.M)])

    def whole(self, mix):
        """What two tenants without limits reach together on the mix's profile."""
        profile = re.search(r"--profile \S+|$", mix).group()
        if profile not in self.wholes:
            self.wholes[profile] = sum(self.run(f"--limits 0,0 {profile}")) if profile else 1.0
        return self.wholes[profile]


def series(duty, mix, warm_up, seconds):
    """For each 20 ms: the time in seconds, and the part of the GPU that each tenant used."""
    with tempfile.NamedTemporaryFile("r") as file:
        command = [duty, *mix.split(), "--series", file.name, "--warm-up", str(warm_up), "--seconds", str(seconds)]
        if subprocess.run([*command, "--tolerance", "-1"], stdout=subprocess.DEVNULL).returncode == 2:
            sys.exit(2)
        return [[float(number) for number in line] for line in csv.reader(file)]


def misses(mix, shares, whole, arbiter, tolerance, known, unlimited=1.0):
    """By how much the mix misses each bound, as (points, what); negative: it does not."""
    tenants, points = ideal.parse(mix.split()), lambda part: 100 * part
    lent = arbiter and any(tenant.policy == "elastic" and tenant.queues for tenant in tenants)
    slack = 2 + tolerance
    for i, (tenant, share) in enumerate(zip(tenants, shares)):
        own = ideal.guarantee(tenant, tenants) * (whole if sum(t.cores for t in tenants) > 0.99 else 1)
        least = own if tenant.queues else 0.95 * own + 0.02 if tenant.name == "sync" else 0
        if tenant.limited and (arbiter or tenant.policy == "fixed"):
            yield points(least - share) - slack, f"tenant {i} gets {points(share):.1f} of {points(own):.1f}"
        most = ideal.bound(tenant, tenants)
        yield points(share - most) - slack, f"tenant {i} gets {points(share):.1f}, at most {points(most):.1f}"
    elastic = [i for i, tenant in enumerate(tenants) if tenant.policy == "elastic"]
    if arbiter and len(elastic) > 1 and all(tenant.queues and tenant.limited for tenant in tenants):
        for i, fair in enumerate(ideal.shares(tenants)):
            off = points(abs(shares[i] - fair * whole))
            yield off - 3 - tolerance, f"tenant {i} gets {points(shares[i]):.1f}, its part is {points(fair):.1f}"
    bound = ideal.use(tenants, shares)
    if lent:
        most = min(bound * whole, unlimited)
        returns = any(tenant.limited and tenant.name in ("poisson", "burst", "think") for tenant in tenants)
        yield (points(0.97 * most - sum(shares)) - tolerance - returns * known,
               f"in use {points(sum(shares)):.1f} of {points(most):.1f}")
    yield points(sum(shares) - bound) - slack, f"in use {points(sum(shares)):.1f}, the bound is {points(bound):.1f}"


def judge(duty, mix, tolerance, known):
    """The shares, the worst miss in points, and what it is. What the programs reach without limits is measured only if
    the mix would miss what the ideal arbiter reaches."""
    results, unlimited = [], 1.0
    for seed in (1, 2, 3):
        results.append(duty.run(mix, seed))
        if len(results) == 2:
            continue
        shares = [statistics.median(of) for of in zip(*results)]
        judged = lambda: max(misses(mix, shares, duty.whole(mix), "--arbiter" in mix, tolerance, known, unlimited))
        if judged()[1].startswith("in use") and unlimited == 1.0:
            unlimited = sum(duty.run(re.sub(r"--policy \S+", "--policy none", mix).replace("--arbiter ", "")))
        if judged()[0] <= 0:
            break
    return shares, *judged()


def frontier(duty):
    """Prints the rate of a program of 50 % that computes between kernels, and the use of the GPU, beside the ideal.
    Returns whether the bound is exceeded, which would be an error of ideal.py."""
    exceeded = False
    for think, kernel in (("1", "1ms"), ("1", "3ms"), ("1", "20ms"), ("3", "20ms")):
        for cores, policy in ((0, "none"), (54, "fixed"), (40, "fixed"), (20, "fixed"), (5, "fixed"), (50, "elastic")):
            mix = f"--limits 50,{cores} --policy fixed,{policy} --shape 1ms,{kernel} --pattern think={think},busy"
            shares = duty.run(mix + (" --arbiter" if policy == "elastic" else ""))
            best = ideal.use(ideal.parse(mix.split()), shares)
            exceeded |= sum(shares) > best + 0.01
            print(f"computes for {think} ms, beside {cores} % {policy} of {kernel}: {100 * shares[0]:.1f} % of the "
                  f"GPU, in use {100 * sum(shares):.1f} %, ideal {100 * best:.1f} %", flush=True)
    return exceeded


def priority(duty, profile):
    """Runs the requests of mixes.txt. Returns whether one misses."""
    missed = False
    for mix, seed in itertools.product(listed("priority"), (1, 2, 3)):
        both = f"{mix} --arbiter --limits 30,70 --policy elastic --priority high,low --profile {profile}"
        kernel, unit, kernels = re.search(r"--shape (\d+)([um])s\S* --pattern poisson=40/(\d+)", mix).groups()
        _, [alone] = duty.measure(f"{both} --limits 30", seed)
        shares, [beside] = duty.measure(both, seed)
        rest = shares[1] / (1 - shares[0])
        if int(kernel) * int(kernels) * (1 if unit == "m" else 0.001) >= 10:
            holds = beside <= 1.3 * alone and rest >= 0.85
        else:
            holds = beside <= alone + 6
        missed |= not holds
        print(f"{mix:<43} seed {seed}: p99 {alone:.2f} ms alone, {beside:.2f} beside ({beside / alone:.2f}), low gets "
              f"{rest:.2f} of the rest{'' if holds else ' MISSED'}", flush=True)
    return missed


def main():
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("duty")
    long = ["all", "mixes", "lending", "agentless", "profiles"]
    words.add_argument("sets", nargs="*", default=long if os.environ.get("ALIQUOT_LONG") else ["sample"])
    words.add_argument("--seconds", type=float)
    words.add_argument("--tolerance", type=float, default=0, help="points beyond these bounds that are not a miss")
    words.add_argument("--known", type=float, default=0, help="points by which the GPU may be in use less beside "
                       "limited tenants whose work comes and goes: a known miss")
    words.add_argument("--profile", action="append", help="only on this profile of the GPU")
    given = words.parse_args()
    duty = Duty(given.duty, given.seconds or (20 if "priority" in given.sets else 6))
    worst, runs, missed = {}, 0, 0
    if "frontier" in given.sets:
        return frontier(duty)
    if "priority" in given.sets:
        return any([priority(duty, profile) for profile in given.profile or ["kind"]])
    pairs = itertools.combinations_with_replacement(itertools.product(PROGRAMS, POLICIES), 2)
    sets = {"sample": lambda: [f"{mix} --seconds 2" for mix in pairwise((4, 3))[:10]],
            "all": lambda: [options([kind]) for kind in itertools.product(PROGRAMS, POLICIES)] +
                           [options(pair) for pair in pairs] + pairwise((3, 4), 2) + pairwise((4,), 3),
            "agentless": lambda: [options([(program, "fixed") for program in mix]).replace("--arbiter ", "")
                                  for size in (1, 2) for mix in
                                  itertools.combinations_with_replacement(PROGRAMS, size)]}
    for name in given.sets:
        mixes = sets.get(name, lambda: listed(name))()
        for profile in given.profile or (profiles() if name == "profiles" else ["kind"]):
            for mix in mixes:
                mix += "" if profile == "kind" else f" --profile {profile}"
                tolerance = given.tolerance + 8 * (profile != "kind") + 8 * (name == "agentless")
                shares, miss, what = judge(duty, mix, tolerance, given.known)
                runs, missed = runs + 1, missed + (miss > 0)
                worst[profile] = max(worst.get(profile, (-100, "", "")), (miss + tolerance, mix, what))
                print(f"{mix:<130} {' '.join(f'{100 * share:.1f}' for share in shares):<22}"
                      f"{f'MISSED by {miss:.1f}: ' if miss > 0 else ''}{what}", flush=True)
    for profile, (miss, mix, what) in worst.items():
        print(f"worst on {profile}: {miss:+.1f} points beyond the bounds for `kind`: {mix}: {what}")
    print(f"{runs} mixes, {missed} missed")
    return missed > 0


if __name__ == "__main__":
    sys.exit(main())
