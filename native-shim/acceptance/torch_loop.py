"""
torch_loop.py ROUNDS: measures an eager PyTorch loop whose time is dominated by kernel launches. Prints the microseconds
per training step of a small network, as the median of rounds of 50 steps.
"""
import ctypes
import json
import statistics
import sys
import time

import torch

torch.manual_seed(0)
model = torch.nn.Sequential(*(layer for _ in range(8) for layer in (torch.nn.Linear(64, 64), torch.nn.ReLU()))).cuda()
data = torch.randn(32, 64, device="cuda")


def time_per_step(steps):
    start = time.perf_counter()
    for _ in range(steps):
        model(data).sum().backward()
        model.zero_grad(set_to_none=True)
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / steps * 1e6


for _ in range(5):
    time_per_step(50)
json.dump({"step": statistics.median(time_per_step(50) for _ in range(int(sys.argv[1])))}, sys.stdout)
sys.stdout.flush()
ctypes.CDLL(None).exit(0)  # without Python's own teardown, during which threads of PyTorch may abort the process
