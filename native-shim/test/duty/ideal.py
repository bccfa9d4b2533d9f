"""
What an ideal arbiter could reach for the tenants of a run of duty. Each figure is an upper bound: it assumes an arbiter
that knows every launch in advance and decides when each one starts.

It shares no code with the arbiter and the simulated GPU. It knows of both: processes take turns of SLICE ms, in a fixed
order; a turn ends early when the process has nothing to run; a kernel cannot be withdrawn once it is launched; and a
program that waits for a kernel launches the next one only THINK ms after the end of it. In that gap others can run
without a delay what fits in it; longer kernels end the turn at a multiple of SLICE, and the program waits until then.
"""
import argparse
import re

SLICE, JITTER = 2.0, 0.97  # ms; a kernel may be that much shorter


class Program:
    def __init__(self, shape, pattern, processes=1):
        shape = {"graph": "1ms", "mixed": "50us+200us+1ms+20ms", "varied": "50us+200us+1ms+20ms"}.get(shape, shape)
        unit = {"us": 1e-3, "ms": 1, "s": 1e3}
        parts = [re.fullmatch(r"([\d.]+)(us|ms|s)", part).groups() for part in shape.rstrip("!").split("+")]
        self.kernels = [float(value) * unit[name] for value, name in parts]
        self.mean = sum(self.kernels) / len(self.kernels)
        name, _, value = pattern.partition("=")
        self.name, self.processes = name, processes
        self.think = {"sync": 0.0, "think": float(value) if name == "think" else 0.0}.get(name)  # None: no closed loop
        self.queues = name not in ("sync", "think", "poisson", "burst")  # always has work that waits
        self.demand = self.worst = 1.0  # what it uses of an idle GPU at most, and of its cores at least
        if self.think is not None:
            self.demand = min(1.0, processes * self.mean / (self.mean + self.think))
        elif name == "poisson":
            self.demand = min(1.0, processes * float(value) / 100)
        elif name == "burst":
            busy, idle = map(float, value.split("/")) if value else (200.0, 300.0)
            self.worst = busy / (busy + idle)  # at most all: at the end of a burst it waits for what it has launched
        elif name == "copies":  # in its turns; the copies start in 2 us and run at 25 GB/s
            self.worst = self.mean / (self.mean + 0.002 + float(value) * 1024 / 25e6)


class Tenant(Program):
    def __init__(self, cores, policy, shape, pattern, processes=1):
        super().__init__(shape, pattern, processes)
        self.cores, self.policy = cores / 100, policy
        self.limited = policy == "elastic" or (policy == "fixed" and cores > 0)


def delay(kernel, think):
    """By how much a program is delayed at least for a kernel of another one, in ms of delay per ms of its work.

    A kernel that is longer than the gap is cut at the ends of turns, one per gap. Only its first part can begin late in
    a gap, so that its turn ends when the program is ready. Each part in the middle begins with a gap; its turn lasts
    until the first multiple of SLICE at which the program is ready. Kernels in a row are one long kernel."""
    turn = -(-think // SLICE) * SLICE or SLICE
    least = (turn - think) / turn
    for length in (kernel * count * part for count in range(1, 9) for part in (JITTER, 1, 2 - JITTER)):
        for first in range(int(think / SLICE) + 1):
            middle, last = divmod(length - first * SLICE, turn)
            if length >= first * SLICE:
                least = min(least, (middle * (turn - think) + max(0.0, last - think)) / length)
    return 0.0 if kernel * JITTER <= think else least


def beside(program, others, rate):
    """The largest part of the GPU that others can use while a program in a closed loop gets `rate` of it."""
    if program.think is None or rate <= 0 or program.processes > 1 or (len(others) > 1 and program.think >= SLICE):
        return 1 - rate
    cycle = program.mean / rate
    wait = max(0.0, cycle - program.mean - program.think)  # in each cycle
    least = min(delay(kernel, program.think) for other in others for kernel in other.kernels)
    return min(1 - rate, (program.think + wait if least == 0 else min(program.think + wait, wait / least)) / cycle)


def bound(tenant, tenants):
    """The largest part of the GPU that a tenant can get."""
    hogs = sum(other.processes for other in tenants if other is not tenant and other.queues and not other.limited)
    if tenant.think is not None and tenant.processes == 1:
        turns = max(1.0, -(-tenant.mean // SLICE)) if tenant.mean > 0 else 1.0
        hardware = tenant.mean / (tenant.mean + max(tenant.think, turns * hogs * SLICE))
    else:
        hardware = tenant.processes / (tenant.processes + hogs)
    alone = tenant.demand if tenant.think is not None else 1.0  # a queue of requests may be worked off
    return min(tenant.cores if tenant.limited and tenant.policy == "fixed" else 1.0, alone, hardware)


def guarantee(tenant, tenants):
    """The tenant's cores, or what it can use of them; beside tenants without a limit, its part of the turns."""
    if not tenant.limited:
        return 0.0
    cores = tenant.cores / max(1.0, sum(other.cores for other in tenants if other.limited))
    if any(not other.limited for other in tenants):
        others = SLICE * sum(other.processes for other in tenants if other is not tenant)
        turn = SLICE * tenant.processes if tenant.think is None else min(tenant.mean, SLICE)
        cores = min(cores, turn / (turn + others))
    return min(cores * tenant.worst, tenant.demand)


def use(tenants, rates):
    """The largest part of the GPU in use, if programs in closed loops get these rates."""
    most = min(1.0, sum(bound(tenant, tenants) for tenant in tenants))
    for tenant, rate in zip(tenants, rates):
        others = [other for other in tenants if other is not tenant]
        if tenant.think is not None and others:
            most = min(most, rate + beside(tenant, others, rate))
    return most


def shares(tenants):
    """The guarantees, and the surplus among elastic tenants by their cores, if all of them always want more."""
    result = [guarantee(tenant, tenants) for tenant in tenants]
    open_ = {i for i, tenant in enumerate(tenants) if tenant.policy == "elastic"}
    left = 1 - sum(result)
    while open_ and left > 1e-9:
        weights = sum(max(tenants[i].cores, 0.01) for i in open_)
        step = {i: left * max(tenants[i].cores, 0.01) / weights for i in open_}
        for i, more in step.items():
            given = min(more, bound(tenants[i], tenants) - result[i])
            result[i], left = result[i] + given, left - given
        open_ = {i for i in open_ if bound(tenants[i], tenants) - result[i] > 1e-9}
    return result


def parse(words):
    """The tenants of these options of duty."""
    options = argparse.ArgumentParser()
    for name, default in dict(limits="25", policy="fixed", shape="1ms", pattern="busy", processes="1").items():
        options.add_argument("--" + name, default=default)
    options.add_argument("--tenants", type=int)
    found = vars(options.parse_known_args(words)[0])
    lists = {name: value.split(",") for name, value in found.items() if name != "tenants"}
    item = lambda name, i: lists[name][min(i, len(lists[name]) - 1)]
    return [Tenant(float(item("limits", i)), item("policy", i), item("shape", i), item("pattern", i),
                   int(item("processes", i))) for i in range(found["tenants"] or len(lists["limits"]))]
