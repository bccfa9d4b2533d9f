"""What is known about the GPU: the answers to the questions (checks/questions.py), of this call and earlier ones."""
import contextlib
import json
import os
import re
import statistics

from kit import MIB

OVERLAP_STREAMS = 1, 2, 4, 8, 16  # on which the busy kernel is measured
BUSY_WARPS = 4  # of the busy kernel on each multiprocessor (busy.c)
MAX_WARPS = 64  # that a multiprocessor can have, so also those of 16 such kernels
NVML_TOLERANCE = 3  # points; a node agent uses NVML's figures of processes if they are not further off


class Answers:
    """Kept in measured-GPU.json, with the GPU as a profile of the simulated GPU."""

    def __init__(self, folder, about):
        self.about, self.given, self.earlier = about, {}, {}
        name = re.sub("[^A-Za-z0-9]+", "-", about["gpu"]).strip("-")
        self.file = os.path.join(folder, f"measured-{name}.json")
        with contextlib.suppress(OSError, ValueError), open(self.file) as file:
            before = json.load(file)
            if (before["gpu"], before["driver"]) == (about["gpu"], about["driver"]):
                self.earlier = before

    def add(self, name, answer):
        self.given[name] = answer
        dates = {**self.earlier.get("dates", {}), **{name: self.about["date"] for name in self.given}}
        with open(self.file + ".new", "w") as file:
            json.dump({**self.about, "profile": profile_of(self.known()), "dates": dates, "answers": self.known()},
                      file, indent=1)
        os.replace(self.file + ".new", self.file)

    def known(self):
        return {**self.earlier.get("answers", {}), **self.given}

    def nvml_error(self):
        """Largest error of NVML's utilization of processes in points; None: not measured."""
        return max((abs(row["mean"] - row["expected"]) for row in self.known().get("nvml_utilization", {}).values()
                    if row["samples"] > 0), default=None)

    def nvml_is_exact(self):
        return self.nvml_error() is not None and self.nvml_error() <= NVML_TOLERANCE


def late_parts(delays, **wanted):
    """The part of the probes that were late, in each row of the delays with these values."""
    return [row["late"] for row in delays if all(row[key] == value for key, value in wanted.items())]


def warps_of(overlap):
    """How many warps N keep a multiprocessor busy, from the rates on some streams relative to one. Of k kernels with w
    warps each on a multiprocessor, each uses w/N of it at random, so all together U(k) = 1 - (1 - w/N)^k. Returns the N
    from w to 64 whose U(16)/U(1), the sum of (1 - w/N)^i for i from 0 to 15, is nearest to the rate on 16 streams."""
    most = max(OVERLAP_STREAMS)
    gain = lambda warps: sum((1 - BUSY_WARPS / warps) ** i for i in range(most))
    return min(range(BUSY_WARPS, MAX_WARPS + 1), key=lambda warps: abs(gain(warps) - overlap[str(most)]))


def profile_of(answers):
    """The answers as a profile of the simulated GPU, for ALIQUOT_FAKE_PROFILE."""
    items = []
    delays = answers.get("event_delays", [])

    def late(**wanted):
        return statistics.mean(late_parts(delays, **wanted) or [0])

    if delays:
        if late(hog=False, own_streams=1, connections=32, priority="highest") > 0.5:
            items.append("events=own")
        if late(hog=False, own_streams=16, connections=8) - late(hog=False, own_streams=16, connections=32) > 0.3:
            items.append("connections=8")  # the default; streams that share a queue wait for each other
        idle = [row for row in delays if not row["hog"] and row["own_streams"] == 0]
        items.append(f"late={min(row['median_us'] for row in idle):.1f}-{max(row['p90_us'] for row in idle):.1f}")
    if "time_slices" in answers:
        items.append(f"switch={answers['time_slices']['switch_us']:.1f}")
    if "overlap" in answers and warps_of(answers["overlap"]) > BUSY_WARPS:
        items.append(f"warps={warps_of(answers['overlap'])}")
    if "clock_drift" in answers:
        items.append(f"drift={answers['clock_drift']['ppm']:.2f}")
    if "first_launch" in answers:
        times = [answers["first_launch"][key] for key in ("first_launch_ms", "first_cublas_ms")
                 if key in answers["first_launch"]]
        items.append(f"lazy={min(times):.2f}-{max(times):.2f}")
    if "nvml_bytes" in answers:
        items.append(f"context={answers['nvml_bytes']['context']['gpu'] // MIB}")
        if answers["nvml_bytes"]["1 byte"]["gpu"] >= MIB:
            items.append(f"pages={answers['nvml_bytes']['1 byte']['gpu'] // MIB}")
    if answers.get("own_import", {}).get("import_is_same_handle"):
        items.append("import=same")
    return ",".join(items)
