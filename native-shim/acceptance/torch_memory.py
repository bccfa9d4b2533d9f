"""
torch_memory.py MIB: PyTorch in a container with a limit of MIB. Allocates tensors until memory runs out, frees them and
allocates them again; then captures a CUDA graph and replays it. Prints one JSON object. The environment configures
PyTorch's allocator.
"""
import json
import sys

import torch

MIB = 1 << 20
limit = int(sys.argv[1]) * MIB
_, total = torch.cuda.mem_get_info()


def fill(step):
    tensors = []
    try:
        while True:
            tensors.append(torch.empty(step, dtype=torch.uint8, device="cuda"))
    except torch.cuda.OutOfMemoryError:
        return len(tensors) * step


first = fill(32 * MIB)
reserved = torch.cuda.max_memory_reserved()
torch.cuda.empty_cache()
second = fill(32 * MIB)
torch.cuda.empty_cache()

weights = torch.eye(512, device="cuda") * 2
static = torch.ones(512, 512, device="cuda")
side = torch.cuda.Stream()
with torch.cuda.stream(side):
    for _ in range(3):
        static @ weights
torch.cuda.current_stream().wait_stream(side)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    result = static @ weights
static.fill_(3)
for _ in range(10):
    graph.replay()
torch.cuda.synchronize()
json.dump({"torch": torch.__version__, "total": total, "first": first, "second": second, "reserved": reserved,
           "graph": bool((result == 6).all())}, sys.stdout)
