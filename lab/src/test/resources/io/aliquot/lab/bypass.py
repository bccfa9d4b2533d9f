"""Uses a GPU behind the shim's back: bypass.py MIB [counted] [fill] allocates memory, and fills it all the time. Calls
the driver by addresses from its symbol table; with `counted` makes the context by the shim, which so knows of the process."""
import ctypes
import functools
import struct
import sys
import time

shim = ctypes.CDLL("libcuda.so.1")
with open("/proc/self/maps") as maps:
    line = next(line for line in maps if "libcuda.so" in line).split()
base, path = int(line[0].split("-")[0], 16), line[5]
with open(path, "rb") as file:
    elf = file.read()
table = struct.unpack_from("<Q", elf, 40)[0]  # of sections
entry, count = struct.unpack_from("<HH", elf, 58)
sections = [struct.unpack_from("<IIQQQQIIQQ", elf, table + i * entry) for i in range(count)]
symbols = next(section for section in sections if section[1] == 11)  # SHT_DYNSYM
names = sections[symbols[6]][4]


def driver(wanted, *arguments):
    result = function(wanted)(*arguments)
    assert result == 0, (wanted, result)


@functools.cache
def function(wanted):
    for at in range(symbols[4], symbols[4] + symbols[5], 24):
        name, _, _, section, value, _ = struct.unpack_from("<IBBHQQ", elf, at)
        start = names + name
        if section != 0 and elf[start : elf.index(b"\0", start)] == wanted:
            return ctypes.CFUNCTYPE(ctypes.c_int)(base + value)
    raise LookupError(wanted)


context = ctypes.byref(ctypes.c_void_p())
if "counted" in sys.argv:
    assert shim.cuInit(0) == 0 and shim.cuCtxCreate_v2(context, 0, 0) == 0
else:
    driver(b"cuInit", 0)
    driver(b"cuCtxCreate_v2", context, 0, 0)
memory, size = ctypes.c_void_p(), ctypes.c_size_t(int(sys.argv[1]) << 20)
driver(b"cuMemAlloc_v2", ctypes.byref(memory), size)
print("allocated", flush=True)
while "fill" in sys.argv:
    for _ in range(64):  # so that the GPU always has work
        driver(b"cuMemsetD8Async", memory, ctypes.c_ubyte(0), size, ctypes.c_void_p())
    driver(b"cuCtxSynchronize")
time.sleep(3600)
