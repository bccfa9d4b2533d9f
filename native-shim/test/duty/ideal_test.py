#!/usr/bin/env python3
"""
Compares ideal.py's bound with random schedules of a program that computes between its kernels beside one with kernels
of another length: no schedule may use more of the GPU.
"""
import math
import random

import ideal

CYCLES = 300


def schedule(kernel, think, other, choose):
    """The program's part of the GPU, and the GPU's use. choose(time until the program is ready) returns when in the gap
    the next kernels of the other one begin and how many, or None."""
    now = used = rest = 0.0
    for _ in range(CYCLES):
        ready = now + think
        while now < ready - 1e-12:
            if rest == 0:
                begin, count = choose(ready - now) or (math.inf, 0)
                if begin >= ready - now:
                    break
                now, rest = now + begin, other * count
            turn = max(1, math.ceil((ready - now) / ideal.SLICE - 1e-9)) * ideal.SLICE
            part = min(rest, turn if now + rest > ready + 1e-12 else rest)
            now, used, rest = now + part, used + part, rest - part if rest - part > 1e-12 else 0.0
        now = max(now, ready) + kernel
    return CYCLES * kernel / now, (CYCLES * kernel + used) / now


def chooser(chance, other):
    """Leaves gaps idle, or begins at once, aligned to the end of a turn or of a kernel, or at any time."""
    idle, at_once, count = chance.random(), chance.random(), chance.choice((1, 1, 2, 3, 50))

    def choose(left):
        if chance.random() < idle:
            return None
        if chance.random() < at_once:
            return 0.0, count
        return chance.choice((left % ideal.SLICE, left % other, chance.random() * left)), count
    return choose


def main():
    chance, closest = random.Random(1), 1.0
    for _ in range(2000):
        kernel, think = chance.choice((0.2, 0.5, 1, 2)), chance.choice((0.3, 1, 1.5, 2, 3, 4.5, 7))
        other = chance.choice((0.2, 0.7, 1, 1.3, 3, 5, 7, 20))
        rate, use = schedule(kernel, think, other, chooser(chance, other))
        mix = [ideal.Tenant(100, "fixed", f"{kernel}ms", f"think={think}"),
               ideal.Tenant(0, "elastic", f"{other}ms", "busy")]
        most = ideal.use(mix, [rate, use - rate])
        closest = min(closest, most - use)
        assert use <= most + 1e-9, (kernel, think, other, rate, use, most)
    print(f"no schedule exceeds the bound; the closest is {100 * max(0.0, closest):.2f} points below")


if __name__ == "__main__":
    main()
