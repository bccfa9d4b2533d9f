"""libcudart 12.9, 13.0 and 13.5 from PyPI on the simulated driver: initialization and the most common calls."""
import ctypes
import glob
import os
import subprocess
import sys
import tempfile
import unittest

DRIVER = os.environ["FAKE_DRIVER"]
LIBRARIES = [path for folder in sys.argv[1:]
             for path in glob.glob(os.path.join(folder, "**", "libcudart.so.1*"), recursive=True)]
del sys.argv[1:]


class RuntimeTest(unittest.TestCase):
    """Runs each test once per runtime, in a new process, because a runtime initializes only once per process."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        root = folder.name
        with open(f"{root}/list", "w") as gpus:
            gpus.write("NVIDIA A100-SXM4-80GB;81920;108\nNVIDIA L4;23034;58\n")
        subprocess.run([os.path.join(DRIVER, "aliquot-fake-driver"), "install", "--root", f"{root}/root", "--source",
                        DRIVER, "--cdi", f"{root}/cdi", "--gpus", f"{root}/list", "--node", "test-node"], check=True,
                       capture_output=True)
        self.environment = {**os.environ, "ALIQUOT_FAKE_GPUS": f"{root}/root/gpus", "ALIQUOT_FAKE_LOG": f"{root}/log"}
        self.log = f"{root}/log"

    def run_with_each(self, program):
        self.assertGreaterEqual(len(LIBRARIES), 3)
        for path in LIBRARIES:
            with self.subTest(path):
                done = subprocess.run([sys.executable, "-c", PRELUDE + program, path], env=self.environment,
                                      capture_output=True, text=True)
                self.assertEqual("", done.stderr + done.stdout)
                self.assertEqual(0, done.returncode)

    def test_device_queries_create_no_context(self):
        self.run_with_each("""
count = c_int()
must(rt.cudaGetDeviceCount(byref(count)))
assert count.value == 2, count
must(rt.cudaDeviceGetAttribute(byref(count), 16, 1))
assert count.value == 58, count
active, flags = c_int(7), c_int()
must(driver.cuDevicePrimaryCtxGetState(0, byref(flags), byref(active)))
assert active.value == 0, active
""")

    def test_memory_keeps_copied_data_until_a_device_reset(self):
        self.run_with_each("""
for again in range(3):
    at, free, total = c_void_p(), c_size_t(), c_size_t()
    must(rt.cudaMalloc(byref(at), c_size_t(1 << 30)))
    must(rt.cudaMemGetInfo(byref(free), byref(total)))
    assert total.value - free.value >= 1 << 30, (free, total)
    data, back = create_string_buffer(b"there and back"), create_string_buffer(15)
    must(rt.cudaMemcpy(at, data, c_size_t(15), 1))
    must(rt.cudaMemcpy(back, at, c_size_t(15), 2))
    assert back.value == data.value, back.value
    assert rt.cudaMalloc(byref(at), c_size_t(100 << 30)) == 2
    rt.cudaGetLastError()
    must(rt.cudaDeviceReset())
    active = c_int()
    must(driver.cuDevicePrimaryCtxGetState(0, byref(c_int()), byref(active)))
    assert active.value == 0, active
""")

    def test_an_export_table_that_the_driver_lacks_is_logged(self):
        self.run_with_each("must(rt.cudaFree(None))")
        with open(self.log) as log:
            lines = log.read()
        self.assertIn("cuGetExportTable: no table", lines)
        self.assertNotIn("slot", lines)  # an unimplemented slot of an existing table
        for present in ("cuInit", "cuMemAlloc", "cuMemGetInfo", "cuDevicePrimaryCtxRetain", "cuLaunchKernel"):
            self.assertNotIn(f"no {present} of", lines)


PRELUDE = """
import sys
from ctypes import *
rt = CDLL(sys.argv[1])
driver = CDLL("libcuda.so.1")
def must(error):
    assert error == 0, error
"""

if __name__ == "__main__":
    sys.exit(not unittest.main(exit=False, verbosity=2).result.wasSuccessful())
