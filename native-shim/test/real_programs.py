"""
Real GPU programs under the shim, on the simulated GPU: real_programs.py CASE. Nothing computes on that GPU, but each
program allocates, is refused, launches, captures and shares memory as on a real one. Code takes no memory there, so what
programs load is not in these figures.
"""
import os
import subprocess
import sys

MIB = 1 << 20
LIMIT = 3000 * MIB


def equal(found, expected, what):
    assert found == expected, f"{what}: expected {expected}, found {found}"
    print(f"{what}: {found}")


def nvml_memory():
    """What another process of the container sees: the bytes in use, and those of the given process."""
    code = ("import pynvml as n; n.nvmlInit(); d = n.nvmlDeviceGetHandleByIndex(0); m = n.nvmlDeviceGetMemoryInfo(d);"
            "print(m.total, m.used, sum(p.usedGpuMemory for p in n.nvmlDeviceGetComputeRunningProcesses(d)))")
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return tuple(map(int, done.stdout.split()))


def fill(mib, allocate, refused, free):
    """Allocates pieces of that many MiB until one is refused. Returns them and the bytes that were free before."""
    before, pieces = free(), []
    while True:
        try:
            pieces.append(allocate(mib * MIB))
        except refused:
            return pieces, before


# ---- PyTorch

def start_torch():
    import torch
    torch.empty(1, device="cuda")
    torch.cuda.synchronize()
    equal(torch.cuda.mem_get_info()[1], LIMIT, "total memory in PyTorch")
    return torch


def torch_free(torch):
    return torch.cuda.mem_get_info()[0]


def train(torch):
    model = torch.nn.Sequential(torch.nn.Linear(1024, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 1024)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    batch = torch.ones(64, 1024, device="cuda")
    for _ in range(3):
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
    torch.cuda.synchronize()


def torch_allocator(granularity):
    """`granularity`: the MiB of which the allocator's requests to the driver are multiples."""
    torch = start_torch()
    train(torch)
    # What the program loaded and cached by now stays; all that follows is counted from here.
    torch.cuda.empty_cache()
    reserved = torch.cuda.memory_reserved()
    pieces, before = fill(100, lambda size: torch.empty(size, dtype=torch.uint8, device="cuda"),
                          torch.OutOfMemoryError, lambda: torch_free(torch))
    grown = torch.cuda.memory_reserved() - reserved
    equal((before - torch_free(torch)) // MIB, grown // MIB, "MiB that 100 MiB tensors take, and PyTorch reserved")
    assert len(pieces) >= before // MIB // 100 - granularity // 100 - 1, f"only {len(pieces)} of {before // MIB} MiB"
    assert torch_free(torch) < (100 + granularity) * MIB, f"refused with {torch_free(torch) // MIB} MiB free"
    rest = torch_free(torch) // (granularity * MIB) * granularity
    pieces.append(torch.empty(rest * MIB, dtype=torch.uint8, device="cuda"))
    assert torch_free(torch) < granularity * MIB, f"{torch_free(torch)} bytes are free after {rest} MiB more"
    print(f"{rest} MiB more, all that is left in multiples of {granularity} MiB, are granted")
    total, used, of_processes = nvml_memory()
    equal((total, used, of_processes), (LIMIT, LIMIT - torch_free(torch), used), "NVML's total, used, used by processes")
    data = torch.arange(1 << 20, dtype=torch.int32)
    pieces[0][:data.nbytes].copy_(data.view(torch.uint8))
    assert torch.equal(pieces[0][:data.nbytes].cpu().view(torch.int32), data), "the data is not what was written"
    pieces.clear()
    torch.cuda.empty_cache()
    torch.cuda.synchronize()
    equal(torch_free(torch), before, "bytes free after all is freed")


def torch_native_allocator():
    torch_allocator(granularity=2)


def torch_expandable_segments():
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = os.environ["PYTORCH_ALLOC_CONF"] = "expandable_segments:True"
    torch_allocator(granularity=20)


def torch_cuda_malloc_async():
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = os.environ["PYTORCH_ALLOC_CONF"] = "backend:cudaMallocAsync"
    torch_allocator(granularity=2)


def torch_graph_capture_and_replay():
    torch = start_torch()
    model = torch.nn.Linear(1024, 1024).cuda()
    batch = torch.ones(4096, 1024, device="cuda")
    side = torch.cuda.Stream()
    with torch.cuda.stream(side), torch.no_grad():
        model(batch)
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    before, reserved = torch_free(torch), torch.cuda.memory_reserved()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph), torch.no_grad():
        answer = model(batch)
    for _ in range(20):
        graph.replay()
    torch.cuda.synchronize()
    assert torch.cuda.memory_reserved() > reserved and answer.shape == (4096, 1024)
    equal(before - torch_free(torch), torch.cuda.memory_reserved() - reserved, "bytes that the graph's pool takes")
    try:
        with torch.cuda.graph(torch.cuda.CUDAGraph()), torch.no_grad():
            torch.empty(LIMIT, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError:
        print("an allocation of the whole limit during a capture is refused")
    else:
        raise AssertionError("an allocation of the whole limit during a capture should be refused")


def torch_green_contexts():
    import gc
    torch = start_torch()
    from torch.cuda.green_contexts import GreenContext
    torch.cuda.empty_cache()
    before = torch_free(torch)
    for _ in range(3):
        green = GreenContext(num_sms=16)
        stream = green.Stream()
        with torch.cuda.stream(stream):
            tensor = torch.full((200 * MIB,), 1, dtype=torch.uint8, device="cuda")
        stream.synchronize()
        equal(before - torch_free(torch), 200 * MIB, "bytes that a tensor of a green context takes")
        del tensor, stream, green
        gc.collect()
        torch.cuda.empty_cache()
        equal(torch_free(torch), before, "bytes free after its end")


def consume(queue, answers):
    import torch
    tensor = queue.get()
    torch.cuda.synchronize()
    answers.put((int(tensor[:10].cpu().sum()), torch_free(torch)))
    queue.get()


def torch_two_processes_share_memory():
    import torch.multiprocessing as processes
    processes.set_start_method("spawn")
    torch = start_torch()
    tensor = torch.empty(500 * MIB, dtype=torch.uint8, device="cuda")
    tensor.copy_(torch.full((500 * MIB,), 7, dtype=torch.uint8))
    torch.cuda.synchronize()
    queue, answers = processes.Queue(), processes.Queue()
    child = processes.Process(target=consume, args=(queue, answers))
    child.start()
    queue.put(tensor)
    total, free = answers.get(timeout=120)
    equal(total, 70, "sum of ten shared bytes")
    equal(torch_free(torch), free, "free bytes in both processes")
    assert LIMIT - free < 600 * MIB, f"the shared 500 MiB are counted twice: {(LIMIT - free) // MIB} MiB used"
    queue.put(None)
    child.join()
    equal(child.exitcode, 0, "exit code of the other process")


# ---- JAX, CuPy, Numba

def jax_preallocates():
    # Otherwise JAX asks CUPTI for its version, which needs tables of the driver that the simulated one lacks.
    os.environ["JAX_SKIP_CUDA_CONSTRAINTS_CHECK"] = "1"
    import jax
    import jax.numpy as jnp
    device = jax.devices()[0]
    jnp.ones((256, 256)).block_until_ready()
    equal(device.memory_stats()["bytes_limit"], int(LIMIT * 0.75), "bytes that JAX preallocates")
    total, used, _ = nvml_memory()
    equal(total, LIMIT, "NVML's total")
    equal(used // MIB, LIMIT * 3 // 4 // MIB, "MiB used according to NVML")
    import numpy
    data = numpy.arange(1 << 20, dtype=numpy.int32)
    assert (numpy.asarray(jax.device_put(data)) == data).all()
    try:
        jax.device_put(numpy.zeros(LIMIT * 4 // 5, numpy.uint8)).block_until_ready()
    except Exception as error:
        assert "RESOURCE_EXHAUSTED" in str(error), error
        print("an array of more than was preallocated is refused")
    else:
        raise AssertionError("an array of more than was preallocated should be refused")


def cupy_is_limited():
    import cupy
    free = lambda: cupy.cuda.runtime.memGetInfo()[0]
    cupy.zeros(1)
    cupy.get_default_memory_pool().free_all_blocks()
    equal(cupy.cuda.runtime.memGetInfo()[1], LIMIT, "total memory in CuPy")
    pieces, before = fill(100, lambda size: cupy.empty(size, dtype=cupy.uint8), cupy.cuda.memory.OutOfMemoryError, free)
    equal(before - free(), len(pieces) * 100 * MIB, "bytes that 100 MiB arrays take")
    assert free() < 100 * MIB, f"refused with {free() // MIB} MiB free"
    pieces[0][:] = 3
    pieces.clear()
    cupy.get_default_memory_pool().free_all_blocks()
    equal(free(), before, "bytes free after all is freed")


def numba_is_limited():
    import numpy
    from numba import cuda
    from numba.cuda.cudadrv.driver import CudaAPIError

    @cuda.jit
    def add(values):
        values[cuda.grid(1)] += 1

    free = lambda: cuda.current_context().get_memory_info()[0]
    array = cuda.to_device(numpy.arange(1024, dtype=numpy.float32))
    add[4, 256](array)
    cuda.synchronize()
    equal(cuda.current_context().get_memory_info()[1], LIMIT, "total memory in Numba")
    pieces, before = fill(100, lambda size: cuda.device_array(size, numpy.uint8), CudaAPIError, free)
    equal(before - free(), len(pieces) * 100 * MIB, "bytes that 100 MiB arrays take")
    assert free() < 100 * MIB, f"refused with {free() // MIB} MiB free"


# ---- monitors

def with_a_program_that_holds_500_mib(*command):
    holder = subprocess.Popen([os.environ["SAMPLE"], "alloc", "500", "hold"], stdout=subprocess.PIPE)
    try:
        assert b"CUDA_SUCCESS" in holder.stdout.readline()
        done = subprocess.run([os.path.join(os.path.dirname(sys.executable), command[0]), *command[1:]],
                              capture_output=True, text=True)
        print(done.stdout, done.stderr)
        assert done.returncode == 0 and "Traceback" not in done.stderr
        return done.stdout, holder.pid
    finally:
        holder.kill()


def gpustat_shows_the_share():
    shown, _ = with_a_program_that_holds_500_mib("gpustat", "--no-color", "--show-pid")
    assert "500 /  3000 MB" in shown


def nvitop_shows_the_share():
    shown, pid = with_a_program_that_holds_500_mib("nvitop", "--once", "--ascii", "--no-unicode")
    assert "500.0MiB / 3000MiB" in shown or "500MiB / 3000MiB" in shown
    assert str(pid) in shown


if __name__ == "__main__":
    globals()[sys.argv[1]]()
