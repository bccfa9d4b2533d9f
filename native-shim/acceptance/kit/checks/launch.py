import statistics

from kit.container import Container
from kit.installed import torch_command
from kit.report import Skip, expect


def run(kit):
    def overhead(command, key, unit, cores):
        """Runs the program in pairs, with and without the shim in alternating order, and expects a median slowdown of
        the pairs of at most 0.5 %."""
        ratios, bare, shimmed = [], [], []
        for i in range(kit.arguments.pairs):
            with Container(kit, cores) as container:
                for side in (None, container) if i % 2 == 0 else (container, None):
                    (shimmed if side else bare).append(kit.run(command, side)[key])
            ratios.append(100 * (shimmed[-1] / bare[-1] - 1))
        median = statistics.median(ratios)
        quartiles = sorted(ratios)[len(ratios) // 4], sorted(ratios)[-1 - len(ratios) // 4]
        figure = (f"{median:+.2f} % (quartiles of {len(ratios)} pairs {quartiles[0]:+.2f} and {quartiles[1]:+.2f} %); "
                  f"{statistics.median(bare):.2f} -> {statistics.median(shimmed):.2f} {unit}")
        if kit.fake:
            raise Skip(f"{figure}; a launch into the fake driver does not cost what a real launch costs")
        expect(median <= 0.5, f"{figure}; the limit is 0.5 %")
        return figure

    def torch(cores):
        return overhead(torch_command("torch_loop.py", 40), "step", "us per step", cores)

    for cores, name in ((0, "without a compute limit"), (95, "with a compute limit of 95 %")):
        kit.check("launch", f"the shim slows down PyTorch's eager loop {name} by at most 0.5 %", torch, cores)
        kit.check("launch", f"the shim slows down a loop of kernel launches {name} by at most 0.5 %",
                  overhead, [kit.program("launch"), 200], "launch", "ns per launch", cores)
