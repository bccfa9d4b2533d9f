import typing

from kit.checks import questions
from kit.laws import Laws, text_of
from kit.report import expect, skip
from kit.shares import Tenant, diagnosis, has_busy_kernel, not_by_time, text_of_learned


class Mix(typing.NamedTuple):
    """Programs that run together, and by how many points each may miss its share; None: any."""
    name: str
    shares: tuple
    loads: tuple  # milliseconds of each program's kernels, and their shape
    off: tuple
    total: typing.Optional[float] = None  # by how many points all together may miss the whole GPU

    @property
    def alone(self):
        """The program that keeps the GPU busy, and that shares are parts of."""
        milliseconds, shape = self.loads[0]
        return milliseconds, "kernels" if shape in ("wait", "copies") else shape


def queued(shares, milliseconds):
    """Programs that keep work queued."""
    return Mix(f"{' + '.join(map(str, shares))} % with kernels of {milliseconds:g} ms", shares,
               ((milliseconds, "kernels"),) * len(shares), (2,) * len(shares), 3)


MIXES = (*(queued(shares, milliseconds) for milliseconds in (0.2, 2)
           for shares in ((50, 50), (75, 25), (70, 30), (10, 20, 30, 40))),
         queued((70, 30), 0.02),
         Mix("30 % that waits for each kernel of 0.2 ms, beside a busy 70 %", (30, 70),
             ((0.2, "wait"), (0.2, "kernels")), (3, None)),
         Mix("70 + 30 % on 16 streams", (70, 30), ((0.2, "streams=16"),) * 2, (None, 2)),
         Mix("30 + 30 % with copies from the host", (30, 30), ((0.2, "copies"),) * 2, (1.5, 1.5)))


def run(kit):
    turns, reason = Turns(kit), not_by_time(kit)
    if not reason:
        if not has_busy_kernel(kit, "turns"):
            return
        questions.run(kit, set() if kit.fake else {"time_slices"} - kit.answers.known().keys())

    def row(name, function, *arguments):
        kit.check("turns", name, lambda: skip(f"not applicable: {reason}") if reason else function(*arguments))

    row("what the targets rest on", turns.text_of_slices)
    for mix in MIXES:
        row(mix.name, turns.hold, mix)


class Turns(Laws):
    def __init__(self, kit):
        super().__init__(kit, seconds=1.6, warm_up=1)
        self.slack = kit.arguments.tolerance / 3  # a wider one widens all targets
        self.unlimited = {}  # works of programs without limits, by their loads

    def hold(self, mix):
        """Expects that the shares of a mix hold with turns, and also says what it gets without, and without limits."""
        self.measured_slices()  # or a Skip
        unlimited = self.without_limits(mix.loads)
        laws = self.compare(mix.shares, mix.loads, ("fixed",) * len(mix.shares), self.seconds)
        found = self.percents(mix, laws.turns.works)
        missed = self.missed(mix, found)
        if missed and not laws.flaws(mix.shares):  # the GPU's clocks may have changed
            self.baselines.clear()
            found = self.percents(mix, laws.turns.works)
            missed = self.missed(mix, found)
        before, free = self.percents(mix, laws.without.works), self.percents(mix, unlimited)
        self.kit.report.details.update(limits=mix.shares, turns=laws.turns._asdict(), without=laws.without._asdict(),
                                       percent_with_turns=found, percent_without=before, percent_without_limits=free)
        figure = f"{text_of(found)} with turns, {text_of(before)} without, {text_of(free)} without limits"
        expect(not missed and not laws.is_void(),
               "; ".join([figure, *missed, *laws.flaws(mix.shares), *self.reasons(mix, laws, found)]))
        return figure

    def without_limits(self, loads):
        """The works of programs without limits that run together."""
        if loads not in self.unlimited:
            results = self.run_tenants([Tenant(None, self.busy(*load)) for load in loads])
            self.unlimited[loads] = [result["work"] for result in results]
        return self.unlimited[loads]

    def percents(self, mix, works):
        alone = self.baseline(1, self.busy(*mix.alone))
        expect(alone > 0, "an unlimited program finished no work in the measured time")
        return [100 * work / alone for work in works]

    def missed(self, mix, found):
        """The targets that are missed."""
        missed = [f"{share} % is off by {abs(got - share):.1f} points, the target is {off * self.slack:.3g}"
                  for share, got, off in zip(mix.shares, found, mix.off)
                  if off is not None and abs(got - share) > off * self.slack]
        if mix.total is not None and sum(found) < 100 - mix.total * self.slack:
            missed.append(f"together they get less than {100 - mix.total * self.slack:.3g} %")
        return missed

    def reasons(self, mix, laws, found):
        """What probably is wrong with those that miss their targets."""
        reasons = []
        for share, got, off, charged, had, length, learned in zip(
                mix.shares, found, mix.off, laws.turns.charged, laws.turns.had, laws.turns.turns, laws.learned):
            reason = off is not None and diagnosis(got - share, got, charged, off * self.slack)
            if not reason:
                continue
            if had >= 0.9 and got < share and abs(charged - got) <= off * self.slack:
                reason = ("Charged as used, but it does not fill its turns: its launches come late (are this machine's "
                          "CPUs busy?), or the shim expects that they end after the turn (costs learned too high)")
            turn = f", with turns of {length:.0f} % of a round" if length else ""
            reasons += [f"{share} %{turn}: {reason} (charged {charged:.1f} %)", *map(text_of_learned, learned)]
        return reasons
