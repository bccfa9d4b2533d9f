"""cuda-bindings from PyPI, NVIDIA's Python client of the driver API, on the simulated driver."""
import os
import subprocess
import sys
import tempfile
import unittest

from cuda.bindings import driver as cu

DRIVER = os.environ["FAKE_DRIVER"]
PTX = b".version 6.0\n.target sm_50\n.address_size 64\n.visible .entry nothing()\n{\n\tret;\n}\n"


def must(answer):
    result, *values = answer
    if result != cu.CUresult.CUDA_SUCCESS:
        raise AssertionError(result)
    return values[0] if len(values) == 1 else values


class BindingsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        root = cls.folder.name
        with open(f"{root}/list", "w") as gpus:
            gpus.write("NVIDIA A100-SXM4-80GB;81920;108\n")
        subprocess.run([os.path.join(DRIVER, "aliquot-fake-driver"), "install", "--root", f"{root}/root", "--source",
                        DRIVER, "--cdi", f"{root}/cdi", "--gpus", f"{root}/list", "--node", "test-node"], check=True,
                       capture_output=True)
        os.environ["ALIQUOT_FAKE_GPUS"] = f"{root}/root/gpus"
        must(cu.cuInit(0))
        cls.context = must(cu.cuDevicePrimaryCtxRetain(0))
        must(cu.cuCtxSetCurrent(cls.context))

    @classmethod
    def tearDownClass(cls):
        must(cu.cuDevicePrimaryCtxRelease(0))
        cls.folder.cleanup()

    def test_the_device_matches_the_installed_gpu(self):
        self.assertEqual(1, must(cu.cuDeviceGetCount()))
        self.assertEqual(b"NVIDIA A100-SXM4-80GB", must(cu.cuDeviceGetName(64, 0)).split(b"\0")[0])
        self.assertEqual(108, must(cu.cuDeviceGetAttribute(
            cu.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0)))

    def test_memory_is_allocated_counted_and_freed(self):
        before, total = must(cu.cuMemGetInfo())
        self.assertEqual(81920 << 20, total)
        pointer = must(cu.cuMemAlloc(2900 << 20))
        self.assertEqual(before - (2900 << 20), must(cu.cuMemGetInfo())[0])
        self.assertEqual(cu.CUresult.CUDA_ERROR_OUT_OF_MEMORY, cu.cuMemAlloc(79100 << 20)[0])
        must(cu.cuMemFree(pointer))
        self.assertEqual(before, must(cu.cuMemGetInfo())[0])

    def test_data_is_copied_through_a_stream(self):
        stream = must(cu.cuStreamCreate(0))
        pointer = must(cu.cuMemAlloc(1 << 20))
        sent, received = os.urandom(1 << 20), bytearray(1 << 20)
        must(cu.cuMemcpyHtoDAsync(pointer, sent, len(sent), stream))
        must(cu.cuMemcpyDtoHAsync(received, pointer, len(received), stream))
        must(cu.cuStreamSynchronize(stream))
        self.assertEqual(sent, bytes(received))
        must(cu.cuMemFree(pointer))
        must(cu.cuStreamDestroy(stream))

    def test_a_kernel_is_loaded_and_launched(self):
        module = must(cu.cuModuleLoadData(PTX))
        function = must(cu.cuModuleGetFunction(module, b"nothing"))
        must(cu.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, 0, 0, 0))
        self.assertEqual(cu.CUresult.CUDA_ERROR_NOT_FOUND, cu.cuModuleGetFunction(module, b"something")[0])
        must(cu.cuModuleUnload(module))


if __name__ == "__main__":
    sys.exit(not unittest.main(exit=False, verbosity=2).result.wasSuccessful())
