"""Questions to the GPU, without the shim."""
import os
import statistics
import time

from kit import MIB
from kit.answers import OVERLAP_STREAMS, late_parts, warps_of
from kit.installed import find_cublas
from kit.report import Skip, skip


def run(kit, only=None):
    """Runs the questions, or some of them, and keeps the answers."""

    def answer(name, function):
        found, text = function(kit)
        kit.answers.add(name, found)
        return text

    if only is None:
        kit.check("questions", "the busy kernel runs", calibrated, kit)
    for name, (question, function) in QUESTIONS.items():
        if only is None or name in only:
            kit.check("questions", question, answer, name, function)
    if kit.answers.given and only is None:
        print(f"The answers are in {kit.answers.file}")


def ask(kit, *words, environment=None):
    return kit.start([kit.program("questions"), *words], environment=environment)


def ask_with_library(kit, question, path):
    """Also a library, if there is one, in an environment in which it finds those beside it."""
    if path is None:
        return ask(kit, question)
    folders = filter(None, [os.path.dirname(path), os.environ.get("LD_LIBRARY_PATH")])
    return ask(kit, question, path, environment={"LD_LIBRARY_PATH": os.pathsep.join(folders)})


def calibrated(kit):
    return f"{kit.rate:.0f} iterations take a microsecond"


def delays(kit):
    found, rate = [], kit.rate
    for beside in (False, True):
        for connections in (1, 8, 32):
            if beside:
                kit.start([kit.program("busy"), rate, 200_000, 0.2, 3600]).read_line()
            answer = ask(kit, "delays", rate, environment={"CUDA_DEVICE_MAX_CONNECTIONS": str(connections)}).finish()
            kit.stop_programs()
            found += [{"hog": beside, "connections": connections, **row} for row in answer["delays"]]

    def late(**wanted):
        parts = late_parts(found, **wanted)
        return f"{100 * min(parts):.0f} to {100 * max(parts):.0f} %"

    alone = statistics.median(row["median_us"] for row in found if not row["hog"] and row["own_streams"] == 0)
    return found, (
        f"{alone:.1f} us alone. Later than 100 us: {late(hog=False, own_streams=0)} alone, "
        f"{late(hog=True, own_streams=0)} beside a hog; with own kernels on 1 stream {late(hog=False, own_streams=1)} "
        f"and {late(hog=True, own_streams=1)}, on 16 streams {late(hog=False, own_streams=16)} and "
        f"{late(hog=True, own_streams=16)}")


def time_slices(kit):
    processes = [ask(kit, "timeline", 1.5) for _ in range(2)]
    for process in processes:
        process.read_line()
    for process in processes:
        process.go_on()
    lines = [process.read_line() for process in processes]
    if not all(line["computed"] for line in lines):
        raise Skip("not measurable: the GPU is simulated and runs no kernel code" if kit.fake else
                   "the kernel wrote no result")
    found = time_slices_of(*lines)
    if found is None:
        raise Skip("the kernels of the two processes did not alternate")
    return found, (f"time slices of {found['slice_us']:.0f} us (10th to 90th percentile {found['slice_p10_us']:.0f} "
                   f"to {found['slice_p90_us']:.0f}), a switch takes {found['switch_us']:.1f} us (median of "
                   f"{found['switches']}); the clock's step is {found['clock_step_ns']} ns")


def overlap(kit):
    """The rate of kernels on some streams, relative to that on one. A kernel has few warps on each multiprocessor, so
    that it alone does not use all of what the GPU can do."""
    found = {}
    for streams in OVERLAP_STREAMS:
        program = kit.start([kit.program("busy"), kit.rate, 1_000_000, 0.3, 1, f"streams={streams}"],
                            environment={"CUDA_DEVICE_MAX_CONNECTIONS": "32"})
        found[str(streams)] = program.finish()["work"]
    rates = {streams: work / found["1"] for streams, work in found.items()}
    text = ", ".join(f"{rate:.2f} on {streams}" for streams, rate in rates.items() if streams != "1")
    return rates, f"rate relative to one stream: {text}; {warps_of(rates)} warps keep a multiprocessor busy"


def clock_drift(kit):
    found = ask(kit, "drift", kit.arguments.drift).finish()
    return found, (f"{found['ppm']:+.2f} ppm over {found['seconds']:g} s, at most {found['residual_us']:.1f} us off "
                   "a straight line")


def without_context(kit):
    found = ask(kit, "no-context").finish()
    return found, ", ".join(f"{name} returns {result}" for name, result in found.items())


def own_import(kit):
    found = ask(kit, "import").finish()
    same = {True: "the same handle", False: "another handle"}
    return found, (f"cuMemImportFromShareableHandle returns {same[found['import_is_same_handle']]}, "
                   f"cuMemRetainAllocationHandle {same[found['retain_is_same_handle']]}")


def bytes_by_step(kit, library=None):
    """Bytes that NVML shows more after each step: on the GPU, and for the process."""
    found, before = {}, None
    kit.initialize_gpu()
    process = ask_with_library(kit, "bytes", library)
    line = process.read_line()
    while "step" in line:
        now = kit.nvml.used_memory(), kit.nvml.memory_of(process.pid)
        if before is not None:
            found[line["step"]] = {"gpu": now[0] - before[0],
                                   "process": None if now[1] is None else now[1] - (before[1] or 0)}
        before = now
        process.go_on()
        line = process.read_line()
    return found, line.get("missing")


def text_of(found):
    return ", ".join(f"{name}: {values['gpu'] / MIB:.1f} MiB" for name, values in found.items())


def first_launch(kit):
    library = find_cublas()
    found = ask_with_library(kit, "first", library).finish()
    if "missing" in found:  # cuBLAS does not run here
        found = ask(kit, "first").finish()
    cublas = ("" if "first_cublas_ms" not in found else
              f"; cuBLAS {found['first_cublas_ms']:.1f} ms and {1000 * found['second_cublas_ms']:.0f} us")
    return found, (f"{found['first_launch_ms']:.2f} ms the first time, {1000 * found['second_launch_ms']:.1f} us the "
                   f"second{cublas}")


def memory_bytes(kit):
    found, _ = bytes_by_step(kit)
    return found, text_of(found)


def cublas_bytes(kit):
    library = find_cublas() or skip("libcublas.so is not installed")
    found, missing = bytes_by_step(kit, library)
    found = {name: values for name, values in found.items() if name.startswith("cublas")}
    if not found:
        raise Skip(f"{library} does not run: {missing}")
    return found, f"{text_of(found)} ({os.path.basename(library)}{f'; {missing}' if missing else ''})"


def utilization(kit):
    found, rate = {}, kit.rate
    hog, bursts = (200_000, 0, 3600), (30_000_000, 0, 3600, "think=0.07")
    cases = {"one hog": ([hog], 100), "two hogs": ([hog, hog], 50), "30 of 100 ms": ([bursts], 30)}
    for name, (programs, expected) in cases.items():
        processes = [kit.start([kit.program("busy"), rate, *arguments]) for arguments in programs]
        for process in processes:
            process.read_line()
        found[name] = {"expected": expected, **sampled(kit, [process.pid for process in processes], 4)}
        kit.stop_programs()
    rows = [row for row in found.values() if row["samples"] > 0]
    if not rows:
        raise Skip("NVML returns no samples of processes")
    return found, "; ".join(
        f"{name}: {row['mean']:.0f} % (expected {row['expected']}), a sample every {row['period_ms']:.0f} ms, "
        f"{row['age_ms']:.0f} ms old, first after {row['first_ms']:.0f} ms"
        for name, row in found.items() if row["samples"] > 0)


def sampled(kit, pids, seconds):
    """Reads NVML's samples of the processes, whose load starts now, every 10 ms."""
    start, last = time.time() * 1e6, int(time.time() * 1e6)
    times, ages, values, first = {pid: [] for pid in pids}, [], [], None
    while time.time() * 1e6 < start + seconds * 1e6:
        for pid, taken, percent in kit.nvml.samples(last):
            now = time.time() * 1e6
            last = max(last, taken)
            # In a container NVML's process IDs are those of the host: then all processes on the GPU are ours.
            if not (kit.alone or pid in times) or (times.get(pid) and taken <= times[pid][-1]):
                continue
            times.setdefault(pid, []).append(taken)
            ages.append(now - taken)
            if first is None and percent > 0:
                first = now - start
            if taken > start + 1e6:  # the first second includes the time before the load
                values.append(percent)
        time.sleep(0.01)
    periods = [after - before for each in times.values() for before, after in zip(each, each[1:])]
    middle = lambda numbers: statistics.median(numbers) / 1000 if numbers else 0
    return {"samples": len(values), "mean": statistics.mean(values) if values else 0,
            "period_ms": middle(periods), "age_ms": middle(ages), "first_ms": (first or 0) / 1000}


def time_slices_of(one, other):
    """Time slices and switches of two processes, from the times in which each did not run. None: they never took
    turns."""

    def runs(line):
        starts = [line["start"]] + [end for _, end in line["gaps"]]
        ends = [start for start, _ in line["gaps"]] + [line["end"]]
        return list(zip(starts, ends))

    begin, end = max(one["start"], other["start"]), min(one["end"], other["end"])
    slices, switches = [], []
    for mine, theirs in ((one, other), (other, one)):
        inside = [run for run in runs(mine) if begin < run[0] and run[1] < end]
        slices += [(stop - start) / 1000 for start, stop in inside]
        for gap in mine["gaps"]:
            within = [run for run in runs(theirs) if gap[0] <= run[0] and run[1] <= gap[1]]
            if within:  # a gap is the other's run and a switch before and after it
                switches.append((gap[1] - gap[0] - (within[-1][1] - within[0][0])) / 2000)
    if len(slices) < 10 or len(switches) < 10:
        return None
    slices.sort()
    return {"slice_us": statistics.median(slices), "slice_p10_us": slices[len(slices) // 10],
            "slice_p90_us": slices[len(slices) * 9 // 10], "switch_us": statistics.median(switches),
            "switches": len(switches), "clock_step_ns": max(one["step_ns"], other["step_ns"])}


# By the name of the answer. Each function returns the answer and the text to print.
QUESTIONS = {
    "event_delays": ("how late does an event on an idle stream complete", delays),
    "time_slices": ("how long are time slices, and a switch between processes", time_slices),
    "overlap": ("how many kernels of one process overlap", overlap),
    "no_context": ("do event functions work without a current context", without_context),
    "own_import": ("does an import of own memory return the same handle", own_import),
    "first_launch": ("how long does the host wait for a kernel's first launch", first_launch),
    "nvml_bytes": ("which memory does NVML show", memory_bytes),
    "nvml_bytes_cublas": ("which memory does cuBLAS use", cublas_bytes),
    "nvml_utilization": ("how exact is NVML's utilization of processes", utilization),
    "clock_drift": ("how far do the clocks of GPU and host drift apart", clock_drift),
}
