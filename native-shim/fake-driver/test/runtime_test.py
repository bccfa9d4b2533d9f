"""
PyPI's libcudart on the fake driver: it finds the driver, looks its functions up, and is refused the private table by
which it would make sure that the driver is NVIDIA's own. It says so by an error, and nothing crashes or hangs.
"""
import ctypes
import glob
import os
import sys
import tempfile
import unittest

LOG = tempfile.NamedTemporaryFile()
os.environ["ALIQUOT_FAKE_LOG"] = LOG.name
LIBRARIES = glob.glob(os.path.join(sys.argv.pop(1), "**", "libcudart.so.1*"), recursive=True)


class RuntimeTest(unittest.TestCase):
    def test_the_runtime_says_that_this_is_no_driver_of_nvidias(self):
        self.assertNotEqual([], LIBRARIES)
        for path in LIBRARIES:
            with self.subTest(path):
                runtime = ctypes.CDLL(path)
                count = ctypes.c_int()
                self.assertNotEqual(0, runtime.cudaGetDeviceCount(ctypes.byref(count)))
        with open(LOG.name) as log:
            lacking = log.read()
        self.assertIn("cuGetExportTable: no table", lacking)
        for present in ("cuInit", "cuMemAlloc", "cuMemGetInfo", "cuDevicePrimaryCtxRetain", "cuLaunchKernel"):
            self.assertNotIn(f"no {present} of", lacking)


if __name__ == "__main__":
    sys.exit(not unittest.main(exit=False, verbosity=2).result.wasSuccessful())
