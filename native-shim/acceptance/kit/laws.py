"""Compares the arbiter's law with turns (docs/compute.md) with the same without them, for several sections."""
import contextlib
import statistics
import time
import typing

from kit.container import Container
from kit.report import Skip, expect
from kit.shares import Shares, Tenant

WINDOW = 0.8  # seconds: ten rounds of turns, because a part of a round would favor one container
SETTLE = 0.4  # seconds after each change of the law, which count for neither
SKEW = 1  # seconds by which programs may start apart: an H200 creates some six contexts a second
KNOWN_SLICE_US = 2000  # of the simulated GPU


class Law(typing.NamedTuple):
    """What programs got under a law; each a list with an item for each program."""
    works: list  # seconds of GPU time per second
    charged: list  # the shim's own accounting of that, in percent of the time
    turns: list  # their lengths in percent of a round; None: it never had one
    had: list  # the part of the time for which it had a turn
    windows: list  # the works in each window


class Comparison(typing.NamedTuple):
    without: Law
    turns: Law
    reasons: list  # for each program, why it may have no turn
    learned: list  # for each program, what the shim learned in its processes

    def is_void(self):
        return max(self.without.had) > 0.1

    def flaws(self, shares):
        """What is wrong with the turns of the programs with these shares."""
        found = [f"{share} % had a turn in {100 * had:.0f} % of the time: {reason}"
                 for share, had, reason in zip(shares, self.turns.had, self.reasons) if had < 0.9]
        if self.is_void():
            found.append("there were turns beside a container without a limit, so the figures without turns are not "
                         "what they say: the arbiter, or the list that it gets, is wrong")
        return found


class Laws(Shares):
    @property
    def hog(self):
        """The command of a program that keeps the GPU busy."""
        return self.busy(0.2)

    def percent(self, work):
        return 100 * work / self.baseline(1, self.hog)

    def reachable(self):
        """What two unlimited programs reach together, in percent."""
        return self.whole(self.hog)

    def measured_slices(self):
        """The answer about time slices. None: on the simulated GPU they are known instead."""
        found = self.kit.answers.known().get("time_slices")
        if found is None and not self.kit.fake:
            raise Skip("not applicable: the kernels of two processes have not been seen to alternate (run questions), "
                       "so a launch may have to wait for another process's whole kernel")
        return found

    def slices(self):
        """Milliseconds of a time slice, and the part of it that a switch costs."""
        found = self.measured_slices() or {"slice_us": KNOWN_SLICE_US,
                                           "switch_us": KNOWN_SLICE_US * (100 / self.reachable() - 1)}
        return found["slice_us"] / 1000, found["switch_us"] / found["slice_us"]

    def text_of_slices(self):
        slice_ms, switch = self.slices()
        return (f"time slices of {slice_ms:.2f} ms{' (known, not measured)' if self.kit.fake else ''}, a switch takes "
                f"{1000 * switch * slice_ms:.0f} us, two unlimited programs reach {self.reachable():.0f} % together")

    def compare(self, shares, loads, policies, seconds):
        """Runs a program for each share, without turns and with them in alternation, for so many seconds of each law,
        so that a change of the GPU's clocks meets both. loads: milliseconds of each program's kernels, and their
        shape."""
        phases = 2 * max(1, round(seconds / WINDOW))
        lasting = phases * (SETTLE + WINDOW) + SKEW
        tenants = [Tenant(share, self.busy(*load, seconds=lasting), 1, policy)
                   for share, load, policy in zip(shares, loads, policies)]
        with self.running(tenants) as (containers, processes):
            start = time.monotonic()
            # First without: meanwhile the arbiter sees which programs always have work.
            windows = [watch(self.kit, containers, start + i * (SETTLE + WINDOW), i % 2 == 1) for i in range(phases)]
            reasons = [why_no_turn(container) for container in containers]
            programs = [process.finish() for [process] in processes]
            learned = [container.learned() for container in containers]
        ends = min(program["start"] + len(program["tenths"]) / 10 for program in programs)
        windows = [window for window in windows if window["end"] <= ends]
        without, turns = (law_of([window for window in windows if window["turns"] == turns], programs)
                          for turns in (False, True))
        return Comparison(without, turns, reasons, learned)


def watch(kit, containers, begin, turns):
    """Watches containers for a window, which begins a while after a time, with turns or without. The arbiter gives no
    turns while a container without a limit is on the GPU (arbiter.c): without turns it is told of one, which runs no
    program."""
    with contextlib.nullcontext() if turns else Container(kit, policy="none"):
        begin += SETTLE
        time.sleep(max(0, begin - time.monotonic()))
        since, before, looks = time.monotonic(), [container.times()[0] for container in containers], []
        while time.monotonic() < begin + WINDOW:
            looks.append([container.turn() for container in containers])
            time.sleep(max(0, min(0.05, begin + WINDOW - time.monotonic())))
        charged = [container.times()[0] - then for container, then in zip(containers, before)]
        elapsed = (time.monotonic() - since) * 1e9
    expect(looks, "this machine is too busy to measure: a wait of 0.4 s took more than a second")
    return {"turns": turns, "begin": begin, "end": begin + WINDOW, "looks": looks,
            "charged": [100 * each / elapsed for each in charged]}


def law_of(windows, programs):
    expect(windows, f"the programs began to be measured more than {SKEW} s apart; expected less")
    works = [[work_between(program, window["begin"], window["end"]) for program in programs] for window in windows]
    looks = list(zip(*(look for window in windows for look in window["looks"])))
    lengths = [[length for length in mine if length is not None] for mine in looks]
    return Law(means(works), means(window["charged"] for window in windows),
               [statistics.mean(mine) if mine else None for mine in lengths],
               [len(mine) / len(all_mine) for mine, all_mine in zip(lengths, looks)], works)


def means(rows):
    return [statistics.mean(column) for column in zip(*rows)]


def work_between(program, begin, end):
    """Seconds of GPU time per second between two times, by the tenths of a second in which the program's work ended."""
    first, last = (round(10 * (at - program["start"])) for at in (begin, end))
    expect(0 <= first < last <= len(program["tenths"]) + 1, "one program did not run for as long as the other")
    return 10 * sum(program["tenths"][first:last]) / (last - first)


def why_no_turn(container):
    """What keeps the arbiter from giving a container a turn, by what its region says."""
    if container.has_long_launches():
        return "the shim measures launches of more than 5 ms, which take no turns"
    if not container.has_queued(1):
        return "no launch queues behind its own work, so it takes turns only while it gets less than its cores"
    return "its launches wait or run for less than nine tenths of the time"


def text_of(percents):
    return " + ".join(f"{percent:.1f}" for percent in percents) + f" = {sum(percents):.1f} %"
