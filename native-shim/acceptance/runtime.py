"""
runtime.py LIBCUDART MIB: allocates the whole limit of MIB with cudaMalloc, then one byte more. It loads NVIDIA's
runtime library with ctypes, as Python programs do, and prints one JSON object.
"""
import ctypes
import json
import sys

runtime = ctypes.CDLL(sys.argv[1])
limit = int(sys.argv[2]) << 20
runtime.cudaMalloc.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
runtime.cudaFree.argtypes = [ctypes.c_void_p]


def must(result):
    if result != 0:
        sys.exit(f"libcudart returned error {result}")


free, total, block, other = ctypes.c_size_t(), ctypes.c_size_t(), ctypes.c_void_p(), ctypes.c_void_p()
must(runtime.cudaFree(None))
must(runtime.cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total)))
must(runtime.cudaMalloc(ctypes.byref(block), free))
beyond = runtime.cudaMalloc(ctypes.byref(other), 1)
must(runtime.cudaFree(block))
json.dump({"total": total.value, "obtained": free.value, "beyond": beyond}, sys.stdout)
