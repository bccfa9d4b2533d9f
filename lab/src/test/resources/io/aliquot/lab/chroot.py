# As user 0 of a container: prints what an allocation of 4000 MiB returns after cuInit was resolved in another root, in
# which the container has a whole card.
import ctypes
import os
import subprocess

uuid = subprocess.run(["nvidia-smi", "-L"], check=True, capture_output=True, text=True).stdout.split("UUID: ")[1][:40]
for folder in ("/x/etc/aliquot", "/x/usr/local/aliquot"):
    os.makedirs(folder)
with open("/x/etc/aliquot/vgpu", "w") as limits:
    limits.write(uuid + " memory=80000Mi cores=100 exclusive\n")
with open("/usr/local/aliquot/agent", "rb") as ours, open("/x/usr/local/aliquot/agent", "wb") as copy:
    content = bytearray(ours.read())
    content[28] = 2  # agent.h: whole cards only
    copy.write(content)
open("/x/usr/local/aliquot/region", "w").close()

driver = ctypes.CDLL("libcuda.so.1")  # resolves nothing yet
root = os.open("/", os.O_RDONLY | os.O_DIRECTORY)
os.chroot("/x")
for name in ("cuInit", "cuDevicePrimaryCtxRetain", "cuCtxSetCurrent", "cuMemAlloc_v2"):
    getattr(driver, name)
os.fchdir(root)
os.chroot(".")

context, address = ctypes.c_void_p(), ctypes.c_uint64()
assert driver.cuInit(0) == 0
assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert driver.cuCtxSetCurrent(context) == 0
for mib in 4000, 500:
    print(mib, driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(mib << 20)))
