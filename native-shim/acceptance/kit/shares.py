"""Measures shares of GPU time, for several sections."""
import contextlib
import os
import statistics
import time
import typing

from kit.container import Container
from kit.report import Fail, expect


class Tenant(typing.NamedTuple):
    """Programs in one container."""
    share: typing.Optional[float]  # percent; None: no limit
    command: list
    count: int = 1  # processes
    policy: str = "fixed"
    priority: str = "normal"


class Shares:
    """A program's work counts in seconds of GPU time per second, and a share is this work compared with that of one
    program alone without a limit. Switches between processes cost GPU time: where the limits add up to more than what
    as many unlimited programs reach together, each tenant should get its part of that."""

    def __init__(self, kit, seconds=5, warm_up=2, container_of=None):
        """seconds: of a measurement, and those before it, unless the call's options name others. container_of: makes a
        tenant's container in place of the kit's own."""
        self.kit, given, self.container_of = kit, kit.arguments, container_of
        self.seconds = seconds if given.seconds is None else given.seconds
        self.warm_up = warm_up if given.warm_up is None else given.warm_up
        self.baselines = {}
        self.demands = {}  # NVML's utilization of the whole GPU during each baseline, in percent

    def busy(self, milliseconds, shape="kernels", seconds=None):
        """The command of a tenant with kernels of so many milliseconds."""
        return [self.kit.program("busy"), self.kit.rate, round(milliseconds * 1e6), self.warm_up,
                seconds or self.seconds, shape]

    @contextlib.contextmanager
    def running(self, tenants, environment=None, gpus=None, arbiter=True):
        """Tenants that run at the same time, and whose warm-up has ended: their containers, None unless one of the
        tenants has a limit, and their processes. gpus: the processes of a tenant use these in turn."""
        kit, limited = self.kit, any(tenant.share is not None for tenant in tenants)
        with contextlib.ExitStack() as stack:
            make = self.container_of or (lambda tenant: Container(
                kit, tenant.share or 0, "none" if tenant.share is None else tenant.policy, gpus=gpus,
                priority=tenant.priority, arbiter=arbiter))
            containers = [stack.enter_context(make(tenant)) if limited else None for tenant in tenants]
            processes = [[] for _ in tenants]
            for mine, container, tenant in zip(processes, containers, tenants):
                for i in range(tenant.count):
                    visible = {"CUDA_VISIBLE_DEVICES": gpus[i % len(gpus)]} if gpus else {}
                    mine.append(kit.start(tenant.command, container, {**visible, **(environment or {})}))
            for mine in processes:
                for process in mine:
                    process.read_line()  # its warm-up has ended
            yield containers, processes

    def run_tenants(self, tenants, environment=None, gpus=None, arbiter=True, seconds=None):
        """Runs tenants at the same time, in containers unless none of them has a limit. Returns for each its work,
        NVML's mean SM utilization (None: no sample), the GPU time that the shim charged and the time for which it
        throttled (both in percent of the time; None without a container), and what it learned by process;
        self.outputs has the output of each process. seconds: of the measurement."""
        kit, seconds = self.kit, seconds or self.seconds
        limited = any(tenant.share is not None for tenant in tenants)
        with self.running(tenants, environment, gpus, arbiter) as (containers, processes):
            running = [process for mine in processes for process in mine]
            start = time.monotonic()
            since = int(time.time() * 1e6)

            def counters():
                return [(0, 0) if container is None else container.times() for container in containers]

            before, utilization, of_gpu = counters(), {}, []
            while time.monotonic() < start + seconds - 0.1 and all(process.poll() is None for process in running):
                time.sleep(0.1)
                # Read while the tenants run: NVML drops the samples of processes that have ended.
                utilization.update(kit.nvml.process_utilization(since))
                of_gpu.append(kit.nvml.utilization())
            known = [each for each in of_gpu[len(of_gpu) // 4:] if each is not None]
            self.utilization = statistics.mean(known or [100])
            after, elapsed = counters(), (time.monotonic() - start) * 1e9 * len(gpus or [None])
            results = []
            self.outputs = [[process.finish() for process in mine] for mine in processes]
            for i, mine in enumerate(processes):
                nvml = [utilization[process.pid] for process in mine if process.pid in utilization]
                charged, throttled = (100 * (now - then) / elapsed if limited else None
                                      for now, then in zip(after[i], before[i]))
                results.append({"work": sum(output["work"] for output in self.outputs[i]),
                                "nvml": sum(nvml) if nvml else None, "charged": charged, "throttled": throttled,
                                "learned": containers[i].learned() if limited else []})
            return results

    def baseline(self, count, command, environment=None, again=False):
        """Work of unlimited tenants together. again: the higher of the known figure and a new one, since the GPU's
        clock may change and other load may slow down a measurement."""
        key = self.key(count, command, environment)
        if key not in self.baselines or again:
            found = sum(result["work"] for result in self.run_tenants([Tenant(None, command)] * count, environment))
            self.baselines[key] = max(found, self.baselines.get(key, 0))
            self.demands[key] = self.utilization
        return self.baselines[key]

    def key(self, count, command, environment):
        return count, tuple(map(str, command)), tuple((environment or {}).items())

    def demand(self, command, reference, environment, again):
        """Percent of the GPU that a tenant alone can use: its work compared with the reference's, or without one NVML's
        utilization of the GPU."""
        alone = self.baseline(1, command, environment, again)
        if reference is not None:
            return 100 * alone / self.baseline(1, reference, environment, again)
        return self.demands[self.key(1, command, environment)]

    def whole(self, command, environment=None, again=False):
        """What two unlimited tenants reach together, in percent of one alone."""
        return min(100, 100 * self.baseline(2, command, environment, again)
                   / self.baseline(1, command, environment, again))

    def shares_hold(self, tenants, reference=None, environment=None, tolerance=None, busy=True, arbiter=True):
        """Expects that each of some tenants with the same command gets its share, or as much as it can use. An
        unlimited one gets the rest. reference: a command that keeps the GPU busy, if this one does not. busy: whether
        this or the reference does; if not, the work is compared with the program's own without a limit."""
        kit, tolerance, command = self.kit, tolerance or self.kit.arguments.tolerance, tenants[0].command
        results = self.run_tenants(tenants, environment, arbiter=arbiter)
        limited = sum(tenant.share or 0 for tenant in tenants)

        def compare(again):
            alone = self.baseline(1, reference or command, environment, again)
            expect(alone > 0, "an unlimited tenant finished no work in the measured time")
            whole = self.whole(reference or command, environment, again) if len(tenants) > 1 else 100
            demand = 100
            if reference is not None or not busy:
                demand = self.demand(command, reference, environment, again)
            measured = [result["work"] / alone * (100 if busy else demand) for result in results]
            most = [min(max(0, whole - limited) if tenant.share is None else tenant.share, demand * tenant.count)
                    for tenant in tenants]
            least = [each * min(1, whole / limited) for each in most]
            # What is out of the range between the two, above (positive) or below it
            errors = [max(0, found - high) - max(0, low - found) for found, low, high in zip(measured, least, most)]
            return measured, most, errors, whole

        measured, expected, errors, whole = compare(False)
        if max(map(abs, errors)) > tolerance:
            measured, expected, errors, whole = compare(True)
        error = max(map(abs, errors))
        kit.report.details["whole"] = whole
        shares = [tenant.share for tenant in tenants]
        kit.report.details["tenants"] = [
            {"limit": share, "expected": wanted, "measured": found, **result}
            for share, wanted, found, result in zip(shares, expected, measured, results)]
        figures, reasons = [], []
        for share, wanted, found, off, result in zip(shares, expected, measured, errors, results):
            details = [] if result["nvml"] is None else [f"NVML {result['nvml']:.0f} %"]
            if share is not None:
                details.append(f"charged {result['charged']:.1f} %, throttled {result['throttled']:.0f} %")
                reason = diagnosis(off, found, result["charged"], tolerance)
                if reason:
                    reasons += [reason, *map(text_of_learned, result["learned"])]
            figures.append(("unlimited" if share is None else f"limit {share} %")
                           + ("" if abs(wanted - (share or wanted)) < 1 else f", can use {wanted:.0f} %")
                           + f", measured {found:.1f} %" + (f" ({'; '.join(details)})" if details else ""))
        figure = ", ".join(figures) + (f"; two unlimited reach {whole:.0f} % together" if len(tenants) > 1 else "")
        expect(error <= tolerance, f"{figure}: off by {error:.1f} points, the tolerance is {tolerance:g}"
               + (f". {'; '.join(dict.fromkeys(reasons))}" if reasons else ""))
        return figure


def text_of_learned(process):
    late = sum(context["late_probes"] for context in process["contexts"])
    probes = sum(context["probes"] for context in process["contexts"])
    costs = ", ".join(f"{cost['ns'] / 1000:.1f} us from {cost['samples']} samples" for cost in process["costs"][:3])
    return f"learned: {late} of {probes} probes late; a launch costs {costs or 'a guess'}"


def diagnosis(off, measured, charged, tolerance):
    """What probably is wrong if a tenant with a limit is that many points off. All in percent of the GPU's time."""
    if abs(off) <= tolerance:
        return None
    if charged == 0:
        return "Nothing was charged: the calls bypass the hooks, or do not count"
    if charged < measured - tolerance:
        return "Charged less than used: costs are learned too low (too much of the time counts as other processes')"
    if charged > measured + tolerance:
        return "Charged more than used: costs are learned too high (other processes' time or gaps are in them)"
    if off > 0:
        return "Charged as used, but not throttled enough: the limiter is wrong"
    return "Charged as used, but throttled too much, or the GPU did not give the process its turns"


def not_by_time(kit):
    """Why this GPU does not run one process at a time; None: it does."""
    if kit.nvml.is_mig():
        return "MIG divides this GPU, and NVML has no figures of processes on its instances"
    if os.path.exists(os.path.join(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"), "control")):
        return "under MPS kernels of several processes run at once, so shares of time say little"
    return None


def has_busy_kernel(kit, section):
    try:
        return kit.rate > 0
    except Fail as failure:
        kit.check(section, "the busy kernel runs", expect, False, str(failure))
