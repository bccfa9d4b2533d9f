from kit.checks import questions
from kit.laws import Laws, text_of, work_between
from kit.report import expect, skip
from kit.shares import Tenant, has_busy_kernel, not_by_time

# What the model reaches (duty --profile switch=US, seed 1), by the cost of a switch as a part of a time slice. waits:
# the rate of a program that waits for each kernel of so many ms, relative to its rate alone, beside so many elastic
# ones with kernels of so many ms. returns: p99 of a kernel of 60 ms after idling, in time slices.
MODEL = {0.0025: {"waits": {(0.2, 1, 1): 0.98, (0.2, 3, 20): 0.93, (1, 1, 20): 0.99, (5, 3, 1): 0.98}, "returns": 61},
         0.025: {"waits": {(0.2, 1, 1): 0.98, (0.2, 3, 20): 0.91, (1, 1, 20): 0.95, (5, 3, 1): 0.94}, "returns": 62},
         0.075: {"waits": {(0.2, 1, 1): 0.97, (0.2, 3, 20): 0.79, (1, 1, 20): 0.86, (5, 3, 1): 0.83}, "returns": 65}}
MODEL_REQUESTS = 3  # on all of these: by how many time slices p99 of requests grows beside a `low` tenant
CASES = tuple(MODEL[0.0025]["waits"])


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
    row("two elastic tenants of 30 and 60 % divide the surplus by their cores", rows.both_keep_work_queued,
        (30, 60), ("elastic", "elastic"), (100 / 3, 200 / 3))
    row("an elastic tenant of 30 % gets the rest beside a fixed one of 30 %", rows.both_keep_work_queued,
        (30, 30), ("elastic", "fixed"), (70, 30))
    row("a kernel of 60 ms after idling, 60 %, beside an elastic tenant with kernels of 20 ms", rows.returns)
    for milliseconds in (10, 2):
        row(f"requests of {milliseconds} ms of a `high` tenant beside a `low` one", rows.goes_first, milliseconds)
    for case in CASES:
        row("waiting for each kernel of {:g} ms, 50 %, beside {} elastic with kernels of {} ms".format(*case),
            rows.waits, *case)


class Rows(Laws):
    """Measures the rows. The method of a row returns whether its targets hold, and the figures."""

    def __init__(self, kit):
        super().__init__(kit, seconds=3)
        self.slack = kit.arguments.tolerance / 3  # a wider one widens all targets
        self.alone = {}  # work of the program that waits, by the duration of its kernels

    def elastic(self, share, milliseconds, shape="kernels", seconds=None, priority="normal"):
        return Tenant(share, self.busy(milliseconds, shape, seconds), 1, "elastic", priority)

    def model(self):
        """The model's figures at the cost of a switch that is nearest to the GPU's."""
        _, switch = self.slices()
        return MODEL[min(MODEL, key=lambda known: abs(known - switch))]

    def share(self, program, begin, end):
        """Percent of the GPU between two times."""
        return self.percent(work_between(program, begin, end))

    def p99_of_requests(self):
        """In ms, of the first tenant."""
        took = sorted(self.outputs[0][0]["request_ms"])
        expect(took, "no request ended in the measured time")
        return took[len(took) * 99 // 100]

    def about_the_gpu(self):
        error = self.kit.answers.nvml_error()
        return True, (
            f"{self.text_of_slices()}; NVML's figures of processes are "
            f"{'not examined' if error is None else f'up to {error:.0f} points off'}: the arbiter gets "
            f"{'them' if self.kit.answers.nvml_is_exact() else 'none'}")

    def lends_and_gets_back(self):
        self.measured_slices()  # or a Skip
        part = max(1.5, self.seconds)
        self.run_tenants([Tenant(30, self.busy(0.2, f"burst={part}", 3 * part)),
                          self.elastic(40, 0.2, seconds=3 * part + 1)], seconds=3 * part)
        [one], [other] = self.outputs
        before, idle, after = (
            [self.share(program, one["start"] + begin, one["start"] + end - 0.1) for program in (one, other)]
            for begin, end in ((max(0, other["start"] - one["start"]), part), (part + 0.5, 2 * part),
                               (2 * part + 1, 3 * part)))
        return (max(abs(before[0] - 30), abs(after[0] - 30), 100 - idle[1]) <= 3 * self.slack
                and min(sum(before), sum(after)) >= 100 - 3 * self.slack), (
            f"{before[0]:.1f} and {before[1]:.1f} %, {idle[1]:.1f} % while the first one idles, {after[0]:.1f} and "
            f"{after[1]:.1f} % from a second after it has work again; two unlimited reach {self.reachable():.0f} % "
            "together")

    def both_keep_work_queued(self, shares, policies, expected):
        self.measured_slices()  # or a Skip
        laws = self.compare(shares, [(0.2,)] * 2, policies, self.seconds / 2)
        found, before = ([self.percent(work) for work in law.works] for law in (laws.turns, laws.without))
        off = max(abs(got - wanted) for got, wanted in zip(found, expected))
        holds = off <= 3 * self.slack and sum(found) >= 100 - 3 * self.slack and not laws.is_void()
        return holds, "; ".join([
            f"{text_of(found)} with turns, expected {text_of(expected)}", f"{text_of(before)} without",
            f"two unlimited reach {self.reachable():.0f} % together", *([] if holds else laws.flaws(shares))])

    def waits(self, milliseconds, hogs, of_hogs):
        least = 1 - self.slack * max(0.05, 1.5 * (1 - self.model()["waits"][milliseconds, hogs, of_hogs]))
        waiting = Tenant(50, self.busy(milliseconds, "wait"))
        if milliseconds not in self.alone:
            self.alone[milliseconds] = self.run_tenants([waiting])[0]["work"]
        tenants = [waiting, *[self.elastic(50 if hogs == 1 else 10, of_hogs)] * hogs]
        works = [result["work"] for result in self.run_tenants(tenants)]
        rate = works[0] / self.alone[milliseconds]
        return rate >= least, (f"{rate:.2f} of its rate alone, at least {least:.2f}; all together use "
                               f"{self.percent(sum(works)):.0f} % of the GPU, two unlimited {self.reachable():.0f} %")

    def returns(self):
        slice_ms, _ = self.slices()
        seconds = 2 * self.seconds  # it comes twice a second
        self.run_tenants([Tenant(60, self.busy(60, "think=0.4", seconds)), self.elastic(30, 20, seconds=seconds)],
                         seconds=seconds)
        took, most = self.p99_of_requests() / slice_ms, 1.5 * self.model()["returns"] * self.slack
        return took <= most, f"at most {took:.0f} time slices of {slice_ms:.2f} ms; the target is {most:.0f}"

    def goes_first(self, milliseconds):
        slice_ms, seconds = self.slices()[0], self.seconds * (1 if milliseconds < 10 else 2)
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
