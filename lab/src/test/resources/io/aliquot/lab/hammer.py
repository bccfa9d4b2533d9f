"""Allocates and frees GPU memory as fast as it can: hammer.py SECONDS MIB. Prints how often, or the first error."""
import ctypes
import sys
import time

cuda = ctypes.CDLL("libcuda.so.1")
assert cuda.cuInit(0) == 0
assert cuda.cuCtxCreate_v2(ctypes.byref(ctypes.c_void_p()), 0, 0) == 0
size = ctypes.c_size_t(int(sys.argv[2]) << 20)
end = time.monotonic() + float(sys.argv[1])
times = 0
while time.monotonic() < end:
    address = ctypes.c_void_p()
    result = cuda.cuMemAlloc_v2(ctypes.byref(address), size)
    if result != 0:
        sys.exit(f"error {result} after {times} allocations")
    assert cuda.cuMemFree_v2(address) == 0
    times += 1
print(times, "allocations")
