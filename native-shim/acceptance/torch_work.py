"""
torch_work.py train|decode WARM_UP SECONDS: keeps a GPU busy as programs with PyTorch do, by training steps of a small
network or by generating tokens one after the other. Prints an empty object after WARM_UP seconds, measures for SECONDS,
and prints the steps per second.
"""
import ctypes
import json
import sys
import time

import torch

torch.manual_seed(0)
mode, warm_up, seconds = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
# One token reads all weights: 1 GiB for decoding, so that the GPU and not the host limits the speed.
width = {"train": 4096, "decode": 8192}[mode]
layers = torch.nn.Sequential(*(layer for _ in range(8) for layer in (torch.nn.Linear(width, width), torch.nn.ReLU())))
model = layers.to("cuda", torch.bfloat16)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
data = torch.randn(512, width, device="cuda", dtype=torch.bfloat16)


def train():
    model(data).float().square().mean().backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    torch.cuda.synchronize()


@torch.no_grad()
def decode():
    token = data[:1]
    for _ in range(16):
        token = model(token)
        token = data[int(token.argmax()) % 512][None]  # the host waits for each token


step = {"train": train, "decode": decode}[mode]
step()
start = time.perf_counter()
while time.perf_counter() < start + warm_up:
    step()
print("{}", flush=True)
start, steps = time.perf_counter(), 0
while time.perf_counter() < start + seconds:
    step()
    steps += 1
print(json.dumps({"work": steps / (time.perf_counter() - start)}), flush=True)
ctypes.CDLL(None).exit(0)  # without Python's own teardown, during which threads of PyTorch may abort the process
