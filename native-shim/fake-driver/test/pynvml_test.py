"""nvidia-ml-py from PyPI, NVIDIA's Python client of NVML, on the simulated driver."""
import ctypes
import os
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import pynvml

DRIVER = os.environ["FAKE_DRIVER"]
UUIDS = []


def installer(*arguments):
    return subprocess.run([os.path.join(DRIVER, "aliquot-fake-driver"), *arguments], check=True,
                          capture_output=True, text=True).stdout


class PynvmlTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        root = cls.folder.name
        with open(f"{root}/list", "w") as gpus:
            gpus.write("NVIDIA A100-SXM4-80GB;81920;108\nNVIDIA L4;23034;58\n")
        installer("install", "--root", f"{root}/root", "--source", DRIVER, "--cdi", f"{root}/cdi", "--gpus",
                  f"{root}/list", "--node", "test-node")
        os.environ["ALIQUOT_FAKE_GPUS"] = f"{root}/root/gpus"
        pynvml.nvmlInit()
        UUIDS[:] = [pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(i)) for i in range(2)]

    @classmethod
    def tearDownClass(cls):
        pynvml.nvmlShutdown()
        cls.folder.cleanup()

    def test_structure_sizes_match_those_of_the_driver(self):
        self.assertEqual(24, ctypes.sizeof(pynvml.c_nvmlMemory_t))
        self.assertEqual(40, ctypes.sizeof(pynvml.c_nvmlMemory_v2_t))
        self.assertEqual(pynvml.nvmlMemory_v2, ctypes.sizeof(pynvml.c_nvmlMemory_v2_t) | 2 << 24)
        self.assertEqual(24, ctypes.sizeof(pynvml.c_nvmlBAR1Memory_t))
        self.assertEqual(68, ctypes.sizeof(pynvml.nvmlPciInfo_t))
        self.assertEqual(8, ctypes.sizeof(pynvml.c_nvmlUtilization_t))
        self.assertEqual(24, ctypes.sizeof(pynvml.c_nvmlProcessInfo_v2_t))
        self.assertEqual(32, ctypes.sizeof(pynvml.c_nvmlEventData_t))
        self.assertEqual(40, ctypes.sizeof(pynvml.c_nvmlDeviceAttributes))

    def test_the_inventory_matches_the_installed_gpus(self):
        self.assertEqual(2, pynvml.nvmlDeviceGetCount())
        self.assertTrue(pynvml.nvmlSystemGetDriverVersion().endswith("-fake"))
        self.assertEqual(13000, pynvml.nvmlSystemGetCudaDriverVersion())
        first, second = (pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(2))
        self.assertEqual("NVIDIA A100-SXM4-80GB", pynvml.nvmlDeviceGetName(first))
        self.assertEqual("NVIDIA L4", pynvml.nvmlDeviceGetName(second))
        self.assertEqual((8, 0), pynvml.nvmlDeviceGetCudaComputeCapability(first))
        self.assertEqual((8, 9), pynvml.nvmlDeviceGetCudaComputeCapability(second))
        self.assertEqual(23034 << 20, pynvml.nvmlDeviceGetMemoryInfo(second).total)
        self.assertEqual(1, pynvml.nvmlDeviceGetMinorNumber(second))
        self.assertNotEqual(UUIDS[0], UUIDS[1])

    def test_a_device_is_found_by_every_identifier(self):
        device = pynvml.nvmlDeviceGetHandleByIndex(1)
        pci = pynvml.nvmlDeviceGetPciInfo(device)
        for found in (pynvml.nvmlDeviceGetHandleByUUID(UUIDS[1]),
                      pynvml.nvmlDeviceGetHandleByPciBusId(pci.busId),
                      pynvml.nvmlDeviceGetHandleBySerial(pynvml.nvmlDeviceGetSerial(device))):
            self.assertEqual(1, pynvml.nvmlDeviceGetIndex(found))
        with self.assertRaises(pynvml.NVMLError_NotFound):
            pynvml.nvmlDeviceGetHandleByUUID("GPU-00000000-0000-0000-0000-000000000000")
        with self.assertRaises(pynvml.NVMLError_InvalidArgument):
            pynvml.nvmlDeviceGetHandleByIndex(2)

    def test_a_structure_of_another_version_is_refused(self):
        device = pynvml.nvmlDeviceGetHandleByIndex(0)
        memory = pynvml.c_nvmlMemory_v2_t(version=pynvml.nvmlMemory_v2 + 1)
        function = ctypes.CDLL("libnvidia-ml.so.1").nvmlDeviceGetMemoryInfo_v2
        self.assertEqual(pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH, function(device, ctypes.byref(memory)))

    def test_a_process_is_listed_with_its_memory_until_it_ends(self):
        device = pynvml.nvmlDeviceGetHandleByIndex(0)
        self.assertEqual([], pynvml.nvmlDeviceGetComputeRunningProcesses(device))
        sample = subprocess.Popen([os.path.join(DRIVER, "vgpu-sample"), "alloc", "2900", "hold"],
                                  stdout=subprocess.PIPE, text=True)
        self.assertEqual("alloc 2900 MiB: CUDA_SUCCESS\n", sample.stdout.readline())
        for processes in (pynvml.nvmlDeviceGetComputeRunningProcesses_v2(device),
                          pynvml.nvmlDeviceGetComputeRunningProcesses_v3(device)):
            self.assertEqual([(sample.pid, 2900 << 20)], [(p.pid, p.usedGpuMemory) for p in processes])
        self.assertEqual([], pynvml.nvmlDeviceGetGraphicsRunningProcesses(device))
        self.assertEqual(2900 << 20, pynvml.nvmlDeviceGetMemoryInfo(device).used)
        memory = pynvml.nvmlDeviceGetMemoryInfo(device, version=pynvml.nvmlMemory_v2)
        self.assertEqual((81920 - 2900) << 20, memory.free)
        sample.kill()
        sample.communicate()
        self.assertEqual(0, pynvml.nvmlDeviceGetMemoryInfo(device).used)
        self.assertEqual([], pynvml.nvmlDeviceGetComputeRunningProcesses(device))

    def test_disabled_features_are_reported_as_disabled(self):
        device = pynvml.nvmlDeviceGetHandleByIndex(0)
        self.assertEqual([0, 0], list(pynvml.nvmlDeviceGetMigMode(device)))
        self.assertEqual([0, 0], list(pynvml.nvmlDeviceGetEccMode(device)))
        self.assertEqual(0, pynvml.nvmlDeviceGetUtilizationRates(device).gpu)
        with self.assertRaises(pynvml.NVMLError_NotSupported):
            pynvml.nvmlDeviceGetNvLinkState(device, 0)
        self.assertEqual(pynvml.NVML_TOPOLOGY_NODE, pynvml.nvmlDeviceGetTopologyCommonAncestor(
            device, pynvml.nvmlDeviceGetHandleByIndex(1)))

    def test_numa_nodes_and_links_match_the_list(self):
        with tempfile.TemporaryDirectory() as root:
            with open(f"{root}/list", "w") as gpus:
                gpus.write("A;1024;1;;1;1=nvlink4,2=pix\nA;1024;1;;1;2=nvlink2\nA;1024;1;;0\nA;1024;1;;0\n")
            installer("install", "--root", f"{root}/root", "--source", DRIVER, "--cdi", f"{root}/cdi", "--gpus",
                      f"{root}/list", "--node", "linked")
            program = f"""if True:
                import ctypes, pynvml as p
                p.nvmlInit()
                d = [p.nvmlDeviceGetHandleByIndex(i) for i in range(4)]
                print([list(p.nvmlDeviceGetMemoryAffinity(one, 1, p.NVML_AFFINITY_SCOPE_NODE)) for one in d])
                print([p.nvmlDeviceGetTopologyCommonAncestor(d[0], one) for one in d])
                print([p.nvmlDeviceGetTopologyCommonAncestor(d[3], one) for one in d])
                print([sum(p.nvmlDeviceGetNvLinkState(one, n) for n in range(18)) for one in d[:3]])
                print([p.nvmlDeviceGetNvLinkRemotePciInfo(d[1], n).bus for n in range(6)])
                print(p.nvmlDeviceGetNvLinkRemoteDeviceType(d[1], 0))
                """
            output = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True,
                                    env=dict(os.environ, ALIQUOT_FAKE_GPUS=f"{root}/root/gpus")).stdout
            self.assertEqual("[[2], [2], [1], [1]]\n[0, 40, 10, 50]\n[50, 50, 40, 0]\n[4, 6, 2]\n"
                             "[1, 1, 1, 1, 3, 3]\n0\n", output)

    def test_a_failure_raises_an_event_until_the_gpu_is_healed(self):
        devices = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(2)]
        events = pynvml.nvmlEventSetCreate()
        for device in devices:
            pynvml.nvmlDeviceRegisterEvents(device, pynvml.nvmlEventTypeXidCriticalError, events)
        start = time.monotonic()
        with self.assertRaises(pynvml.NVMLError_Timeout):
            pynvml.nvmlEventSetWait(events, 150)
        self.assertGreaterEqual(time.monotonic() - start, 0.15)
        root = os.path.dirname(os.environ["ALIQUOT_FAKE_GPUS"])
        later = threading.Timer(0.2, installer, ["fail", UUIDS[1], "--root", root])
        later.start()
        event = pynvml.nvmlEventSetWait(events, 5000)
        later.join()
        self.assertEqual(UUIDS[1], pynvml.nvmlDeviceGetUUID(event.device))
        self.assertEqual((pynvml.nvmlEventTypeXidCriticalError, 79), (event.eventType, event.eventData))
        with self.assertRaises(pynvml.NVMLError_GpuIsLost):
            pynvml.nvmlDeviceGetMemoryInfo(devices[1])
        self.assertEqual(UUIDS[1], pynvml.nvmlDeviceGetUUID(devices[1]))
        installer("heal", UUIDS[1], "--root", root)
        self.assertEqual(0, pynvml.nvmlDeviceGetMemoryInfo(devices[1]).used)
        installer("fail", UUIDS[0], "--xid", "48", "--root", root)
        self.assertEqual(48, pynvml.nvmlEventSetWait(events, 5000).eventData)
        self.assertEqual(0, pynvml.nvmlDeviceGetMemoryInfo(devices[0]).used)  # not lost
        installer("heal", UUIDS[0], "--root", root)
        pynvml.nvmlEventSetFree(events)


if __name__ == "__main__":
    sys.exit(not unittest.main(exit=False, verbosity=2).result.wasSuccessful())
