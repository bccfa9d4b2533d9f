import itertools
import os

from kit.checks import questions
from kit.report import Skip, expect, skip
from kit.shares import Shares, Tenant, has_busy_kernel

# What the model reaches (duty --profile switch=US, seed 1), by the cost of a switch as a part of a time slice. waits:
# the least rate of a program that waits for each kernel of so many ms, relative to its rate alone. surplus: error of
# the shares of two elastic tenants in points. returns: p99 of a kernel of 60 ms after idling, in time slices.
MODEL = {0.0025: {"waits": {0.2: 0.89, 1: 0.96, 5: 0.96, 20: 0.96}, "surplus": 0.9, "returns": 61},
         0.025: {"waits": {0.2: 0.88, 1: 0.90, 5: 0.92, 20: 0.91}, "surplus": 1.6, "returns": 63},
         0.075: {"waits": {0.2: 0.69, 1: 0.76, 5: 0.79, 20: 0.80}, "surplus": 4.3, "returns": 66}}
MODEL_REQUESTS = 3  # on all of these: by how many time slices p99 of requests grows beside a `low` tenant
MODEL_SLICE_US = 2000


def run(kit):
    rows, reason = Rows(kit), not_by_time(kit)
    if not reason:
        if not has_busy_kernel(kit, "sharing"):
            return
        questions.run(kit, {"nvml_utilization", *([] if kit.fake else ["time_slices"])} - kit.answers.known().keys())
        for _ in range(2):  # all shares are parts of it
            rows.baseline(1, rows.hog, again=True)

    def row(name, function, *arguments):
        """A check of a function that returns whether the targets hold, and the figures."""

        def judged():
            holds, figure = function(*arguments) if not reason else skip(f"not applicable: {reason}")
            expect(holds, figure)
            return figure

        kit.check("sharing", name, judged)

    row("what the targets rest on", rows.about_the_gpu)
    row("30 % fixed and 40 % elastic use the whole GPU, and what is lent comes back", rows.lends_and_gets_back)
    row("two elastic tenants divide the surplus by their cores", rows.divides_surplus)
    for of_hog in (1, 20):
        row(f"a kernel of 60 ms after idling, 60 %, beside an elastic tenant with kernels of {of_hog} ms", rows.returns,
            of_hog)
    for milliseconds in (10, 30, 2):
        row(f"requests of {milliseconds} ms of a `high` tenant beside a `low` one", rows.goes_first, milliseconds)
    for case in itertools.product((0.2, 1, 5, 20), (1, 3), (1, 20)):
        row("waiting for each kernel of {:g} ms, 50 %, beside {} elastic with kernels of {} ms".format(*case),
            rows.waits, *case)


def not_by_time(kit):
    """Why this GPU does not run one process at a time; None: it does."""
    if kit.nvml.is_mig():
        return "MIG divides this GPU, and NVML has no figures of processes on its instances"
    if os.path.exists(os.path.join(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"), "control")):
        return "under MPS kernels of several processes run at once, so shares of time say little"
    return None


class Rows(Shares):
    """Measures the rows. The method of a row returns whether its targets hold, and the figures."""

    def __init__(self, kit):
        super().__init__(kit)
        self.seconds, self.slack = kit.arguments.seconds, kit.arguments.tolerance / 3  # a wider one widens all targets
        self.alone = {}  # work of the program that waits, by the duration of its kernels

    @property
    def hog(self):
        """The command of a program that keeps the GPU busy."""
        return self.busy(0.2)

    def percent(self, work):
        return 100 * work / self.baseline(1, self.hog)

    def reachable(self):
        """What two unlimited programs reach together, in percent."""
        return self.whole(self.hog)

    def elastic(self, share, milliseconds, shape="kernels", seconds=None, priority="normal"):
        return Tenant(share, self.busy(milliseconds, shape, seconds), 1, "elastic", priority)

    def gpu(self):
        """Milliseconds of a time slice, the part of it that a switch costs, and the model's figures for that."""
        found = self.kit.answers.known().get("time_slices")
        if found is None and not self.kit.fake:
            raise Skip("not applicable: the kernels of two processes have not been seen to alternate (run questions), "
                       "so a launch may have to wait for another process's whole kernel")
        found = found or {"slice_us": MODEL_SLICE_US, "switch_us": MODEL_SLICE_US * (100 / self.reachable() - 1)}
        switch = found["switch_us"] / found["slice_us"]
        return found["slice_us"] / 1000, switch, MODEL[min(MODEL, key=lambda known: abs(known - switch))]

    def share(self, program, begin, end):
        """Percent of the GPU between two times, by the tenths of a second in which the program's work ended."""
        first, last = (round(10 * (at - program["start"])) for at in (begin, end))
        expect(0 <= first < last <= len(program["tenths"]) + 1, "one program did not run for as long as the other")
        return self.percent(10 * sum(program["tenths"][first:last]) / (last - first))

    def p99_of_requests(self):
        """In ms, of the first tenant."""
        took = sorted(self.outputs[0][0]["request_ms"])
        expect(took, "no request ended in the measured time")
        return took[len(took) * 99 // 100]

    def about_the_gpu(self):
        slice_ms, switch, _ = self.gpu()
        error = self.kit.answers.nvml_error()
        return True, (
            f"time slices of {slice_ms:.2f} ms{' (known, not measured)' if self.kit.fake else ''}, a switch takes "
            f"{1000 * switch * slice_ms:.0f} us, two unlimited programs reach {self.reachable():.0f} % together; "
            f"NVML's figures of processes are {'not examined' if error is None else f'up to {error:.0f} points off'}: "
            f"the arbiter gets {'them' if self.kit.answers.nvml_is_exact() else 'none'}")

    def lends_and_gets_back(self):
        part, reachable = max(1.5, self.seconds), self.reachable()
        self.run_tenants([Tenant(30, self.busy(0.2, f"burst={part}", 3 * part)),
                          self.elastic(40, 0.2, seconds=3 * part + 1)], seconds=3 * part)
        [one], [other] = self.outputs
        before, idle, after = (
            [self.share(program, one["start"] + begin, one["start"] + end - 0.1) for program in (one, other)]
            for begin, end in ((max(0, other["start"] - one["start"]), part), (part + 0.5, 2 * part),
                               (2 * part + 1, 3 * part)))
        return (max(abs(before[0] - 30), abs(after[0] - 30), 100 - idle[1]) <= self.kit.arguments.tolerance
                and min(sum(before), sum(after)) >= reachable - 3 * self.slack), (
            f"{before[0]:.1f} and {before[1]:.1f} %, {idle[1]:.1f} % while the first one idles, {after[0]:.1f} and "
            f"{after[1]:.1f} % from a second after it has work again; two unlimited reach {reachable:.0f} % together")

    def divides_surplus(self):
        most, reachable = self.slack * max(3, 1.5 * self.gpu()[2]["surplus"]), self.reachable()
        tenants = [self.elastic(30, 0.2), self.elastic(60, 0.2)]
        found = [self.percent(result["work"]) for result in self.run_tenants(tenants)]
        off = max(abs(found[0] - reachable / 3), abs(found[1] - reachable / 1.5))
        return off <= most and sum(found) >= reachable - 3 * self.slack, (
            f"{found[0]:.1f} and {found[1]:.1f} %, expected {reachable / 3:.1f} and {reachable / 1.5:.1f}; the "
            f"tolerance is {most:.1f}")

    def waits(self, milliseconds, hogs, of_hogs):
        least = 1 - self.slack * max(0.05, 1.5 * (1 - self.gpu()[2]["waits"][milliseconds]))
        waiting = Tenant(50, self.busy(milliseconds, "wait"))
        if milliseconds not in self.alone:
            self.alone[milliseconds] = self.run_tenants([waiting])[0]["work"]
        tenants = [waiting, *[self.elastic(50 if hogs == 1 else 10, of_hogs)] * hogs]
        works = [result["work"] for result in self.run_tenants(tenants)]
        rate = works[0] / self.alone[milliseconds]
        return rate >= least, (f"{rate:.2f} of its rate alone, at least {least:.2f}; all together use "
                               f"{self.percent(sum(works)):.0f} % of the GPU, two unlimited {self.reachable():.0f} %")

    def returns(self, of_hog):
        slice_ms, _, model = self.gpu()
        self.run_tenants([Tenant(60, self.busy(60, "think=0.4")), self.elastic(30, of_hog)])
        took, most = self.p99_of_requests() / slice_ms, 1.5 * model["returns"] * self.slack
        return took <= most, f"at most {took:.0f} time slices of {slice_ms:.2f} ms; the target is {most:.0f}"

    def goes_first(self, milliseconds):
        slice_ms, seconds = self.gpu()[0], 2 * self.seconds
        requests = self.elastic(30, milliseconds, "poisson=0.4", seconds, "high")
        low = self.elastic(30, 1, seconds=seconds, priority="low")
        self.run_tenants([requests], seconds=seconds)
        idle = self.p99_of_requests() / slice_ms
        used, rest = (self.percent(result["work"]) for result in self.run_tenants([requests, low], seconds=seconds))
        beside, most = self.p99_of_requests() / slice_ms, idle + self.slack * max(0.3 * idle, 1.5 * MODEL_REQUESTS)
        part, least = rest / (self.reachable() - used), 1 - 0.15 * self.slack
        return beside <= most and part >= least, (
            f"p99 is {idle:.1f} time slices alone and {beside:.1f} beside it, the target is {most:.1f}; `low` gets "
            f"{part:.2f} of the rest, at least {least:.2f}")
