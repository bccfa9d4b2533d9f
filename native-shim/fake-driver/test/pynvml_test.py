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

    def test_features_are_reported_as_enabled_or_disabled(self):
        device = pynvml.nvmlDeviceGetHandleByIndex(0)
        self.assertEqual([0, 0], list(pynvml.nvmlDeviceGetMigMode(device)))
        self.assertEqual([1, 1], list(pynvml.nvmlDeviceGetEccMode(device)))
        self.assertEqual(0, pynvml.nvmlDeviceGetUtilizationRates(device).gpu)
        with self.assertRaises(pynvml.NVMLError_NotSupported):
            pynvml.nvmlDeviceGetNvLinkState(device, 0)
        self.assertEqual(pynvml.NVML_TOPOLOGY_NODE, pynvml.nvmlDeviceGetTopologyCommonAncestor(
            device, pynvml.nvmlDeviceGetHandleByIndex(1)))

    def test_instances_come_and_go_while_nvml_is_initialized(self):
        card, other = (pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(2))
        with self.assertRaises(pynvml.NVMLError_NotSupported):
            pynvml.nvmlDeviceGetMigMode(other)
        installer("mig", UUIDS[0], "on")
        uuid = installer("mig-create", UUIDS[0], "1g.10gb+me").strip()
        try:
            self.assertEqual([1, 1], list(pynvml.nvmlDeviceGetMigMode(card)))
            self.assertEqual(7, pynvml.nvmlDeviceGetMaxMigDeviceCount(card))
            mig = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(card, 0)
            with self.assertRaises(pynvml.NVMLError_NotFound):
                pynvml.nvmlDeviceGetMigDeviceHandleByIndex(card, 1)
            self.assertEqual(uuid, pynvml.nvmlDeviceGetUUID(mig))
            self.assertEqual("NVIDIA A100-SXM4-80GB MIG 1g.10gb+me", pynvml.nvmlDeviceGetName(mig))
            self.assertTrue(pynvml.nvmlDeviceIsMigDeviceHandle(mig))
            attributes = pynvml.nvmlDeviceGetAttributes(mig)
            self.assertEqual((14, 1, 1, 9856), (attributes.multiprocessorCount, attributes.gpuInstanceSliceCount,
                                                attributes.computeInstanceSliceCount, attributes.memorySizeMB))
            self.assertEqual(9856 << 20, pynvml.nvmlDeviceGetMemoryInfo(mig).total)
            self.assertEqual(1, pynvml.nvmlDeviceGetGpuInstanceId(mig))
            parent = pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(mig)
            self.assertEqual(UUIDS[0], pynvml.nvmlDeviceGetUUID(parent))
            with self.assertRaises(pynvml.NVMLError_NotSupported):
                pynvml.nvmlDeviceGetUtilizationRates(mig)
        finally:
            installer("mig-destroy", uuid)
            installer("mig", UUIDS[0], "off")
        with self.assertRaises(pynvml.NVMLError_InvalidArgument):
            pynvml.nvmlDeviceGetMemoryInfo(mig)

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

    def control(self, *arguments):
        installer(*arguments, "--root", os.path.dirname(os.environ["ALIQUOT_FAKE_GPUS"]))

    def healed_device(self, index):
        self.addCleanup(self.control, "heal", UUIDS[index])
        return pynvml.nvmlDeviceGetHandleByIndex(index)

    def event_set(self, *devices):
        events = pynvml.nvmlEventSetCreate()
        self.addCleanup(pynvml.nvmlEventSetFree, events)
        for device in devices:
            pynvml.nvmlDeviceRegisterEvents(device, pynvml.nvmlEventTypeXidCriticalError, events)
        return events

    def recovery(self, device):
        [value] = pynvml.nvmlDeviceGetFieldValues(device, [pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION])
        pynvml._nvmlCheckReturn(value.nvmlReturn)
        self.assertEqual(pynvml.NVML_VALUE_TYPE_UNSIGNED_INT, value.valueType)
        return value.value.uiVal

    def errors(self, device, counter):
        return pynvml.nvmlDeviceGetTotalEccErrors(device, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, counter)

    def test_each_xid_raises_its_event_and_has_its_effects(self):
        none, reset, drain = (pynvml.NVML_GPU_RECOVERY_ACTION_NONE, pynvml.NVML_GPU_RECOVERY_ACTION_GPU_RESET,
                              pynvml.NVML_GPU_RECOVERY_ACTION_DRAIN_AND_RESET)
        device = self.healed_device(0)
        events = self.event_set(device)
        # XID: recovery action, uncorrectable ECC errors, [rows remapped, by errors, pending, failed]
        effects = {13: (none, 0, [0, 0, 0, 0]), 31: (none, 0, [0, 0, 0, 0]), 43: (none, 0, [0, 0, 0, 0]),
                   45: (none, 0, [0, 0, 0, 0]), 48: (reset, 1, [0, 0, 0, 0]), 63: (drain, 0, [0, 1, 1, 0]),
                   64: (reset, 0, [0, 0, 0, 1]), 74: (reset, 0, [0, 0, 0, 0]), 94: (none, 1, [0, 0, 0, 0]),
                   95: (reset, 1, [0, 0, 0, 0]), 119: (reset, 0, [0, 0, 0, 0]), 154: (reset, 0, [0, 0, 0, 0])}
        for xid, (recovery, errors, rows) in effects.items():
            with self.subTest(xid=xid):
                self.control("fail", UUIDS[0], "--xid", str(xid))
                event = pynvml.nvmlEventSetWait(events, 5000)
                self.assertEqual((UUIDS[0], xid), (pynvml.nvmlDeviceGetUUID(event.device), event.eventData))
                self.assertEqual(recovery, self.recovery(device))
                self.assertEqual(errors, self.errors(device, pynvml.NVML_VOLATILE_ECC))
                self.assertEqual(rows, list(pynvml.nvmlDeviceGetRemappedRows(device)))
                self.control("heal", UUIDS[0])
                self.assertEqual((none, 0), (self.recovery(device), self.errors(device, pynvml.NVML_AGGREGATE_ECC)))
                self.assertEqual([0, 0, 0, 0], list(pynvml.nvmlDeviceGetRemappedRows(device)))

    def test_xid_79_makes_the_gpu_lost_until_a_reset(self):
        device = self.healed_device(0)
        self.control("fail", UUIDS[0], "--xid", "79")
        with self.assertRaises(pynvml.NVMLError_GpuIsLost):
            self.recovery(device)
        self.control("return", UUIDS[0])
        self.assertEqual(pynvml.NVML_GPU_RECOVERY_ACTION_GPU_RESET, self.recovery(device))
        self.control("lose", UUIDS[0])
        self.control("reset", UUIDS[0])
        self.assertEqual(pynvml.NVML_GPU_RECOVERY_ACTION_NONE, self.recovery(device))

    def test_repeated_xids_are_one_event_each(self):
        device = self.healed_device(1)
        events = self.event_set(device)
        raised = [31, 31, 13, 31]
        for xid in raised:
            self.control("fail", UUIDS[1], "--xid", str(xid))
        self.control("heal", UUIDS[1])
        self.assertEqual(raised, [pynvml.nvmlEventSetWait(events, 5000).eventData for _ in raised])
        with self.assertRaises(pynvml.NVMLError_Timeout):
            pynvml.nvmlEventSetWait(events, 0)
        for xid in range(1, 71):
            self.control("fail", UUIDS[1], "--xid", str(xid))
        self.assertEqual(list(range(7, 71)), [pynvml.nvmlEventSetWait(events, 5000).eventData for _ in range(64)])

    def test_a_reset_clears_what_the_driver_keeps_and_leaves_a_failed_remapping(self):
        device = self.healed_device(0)
        for xid in (48, 63, 64):
            self.control("fail", UUIDS[0], "--xid", str(xid))
        self.control("reset", UUIDS[0])
        self.assertEqual(pynvml.NVML_GPU_RECOVERY_ACTION_NONE, self.recovery(device))
        self.assertEqual([0, 1, 0, 1], list(pynvml.nvmlDeviceGetRemappedRows(device)))
        self.assertEqual((0, 1), (self.errors(device, pynvml.NVML_VOLATILE_ECC),
                                  self.errors(device, pynvml.NVML_AGGREGATE_ECC)))

    def test_each_recovery_action_is_reported_unless_the_driver_is_too_old(self):
        device = self.healed_device(0)
        for value, word in enumerate(("none", "reset", "reboot", "drain-p2p", "drain-reset")):
            self.control("recover", UUIDS[0], word)
            self.assertEqual(value, self.recovery(device))
        self.addCleanup(self.control, "driver", "--with", "recovery-actions")
        self.control("driver", "--without", "recovery-actions")
        with self.assertRaises(pynvml.NVMLError_NotSupported):
            self.recovery(device)
        self.control("driver", "--with", "recovery-actions")
        fields = pynvml.nvmlDeviceGetFieldValues(device, [pynvml.NVML_FI_DEV_ECC_CURRENT] * 2)
        self.assertEqual([pynvml.NVML_ERROR_NOT_SUPPORTED] * 2, [field.nvmlReturn for field in fields])

    def test_slowdowns_are_reported(self):
        device = self.healed_device(0)
        slow = pynvml.nvmlClocksThrottleReasonHwSlowdown
        thermal, power = (pynvml.nvmlClocksThrottleReasonHwThermalSlowdown,
                          pynvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown)
        self.assertEqual(slow | thermal | power, pynvml.nvmlDeviceGetSupportedClocksEventReasons(device))
        limit = pynvml.nvmlDeviceGetTemperatureThreshold(device, pynvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN)
        for change, reasons in ((("hot", UUIDS[0]), slow | thermal),
                                (("power-brake", UUIDS[0], "on"), slow | thermal | power),
                                (("cool", UUIDS[0]), slow | power), (("power-brake", UUIDS[0], "off"), 0)):
            self.control(*change)
            self.assertEqual(reasons, pynvml.nvmlDeviceGetCurrentClocksEventReasons(device))
            self.assertEqual(reasons, pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(device))
            self.assertEqual(reasons & thermal != 0, pynvml.nvmlDeviceGetTemperature(device, 0) > limit)

    def test_the_compute_mode_is_default_or_exclusive(self):
        device = self.healed_device(0)
        for switch, mode in (("on", pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS), ("off", pynvml.NVML_COMPUTEMODE_DEFAULT)):
            self.control("exclusive", UUIDS[0], switch)
            self.assertEqual(mode, pynvml.nvmlDeviceGetComputeMode(device))

    def test_processes_are_clients_of_mps_where_they_are_said_to_be(self):
        device = self.healed_device(0)
        self.assertEqual([], pynvml.nvmlDeviceGetMPSComputeRunningProcesses(device))
        self.control("mps", UUIDS[0], "on")
        self.assertEqual([process.pid for process in pynvml.nvmlDeviceGetComputeRunningProcesses(device)],
                         [process.pid for process in pynvml.nvmlDeviceGetMPSComputeRunningProcesses(device)])

    def test_an_event_can_come_from_a_gpu_that_does_not_tell_its_uuid(self):
        events = self.event_set(self.healed_device(0))
        self.control("hide-uuid", UUIDS[0])
        self.control("fail", UUIDS[0], "--xid", "31")
        event = pynvml.nvmlEventSetWait(events, 5000)
        self.assertEqual(31, event.eventData)
        with self.assertRaises(pynvml.NVMLError_GpuIsLost):
            pynvml.nvmlDeviceGetUUID(event.device)
        self.control("heal", UUIDS[0])
        self.assertEqual(UUIDS[0], pynvml.nvmlDeviceGetUUID(event.device))

    def test_a_removed_gpu_is_lost_and_then_no_longer_listed(self):
        device = self.healed_device(0)
        self.control("remove", UUIDS[0])
        with self.assertRaises(pynvml.NVMLError_GpuIsLost):
            pynvml.nvmlDeviceGetMemoryInfo(device)
        pynvml.nvmlShutdown()
        pynvml.nvmlInit()
        self.assertEqual(1, pynvml.nvmlDeviceGetCount())
        self.assertEqual(UUIDS[1], pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(0)))
        with self.assertRaises(pynvml.NVMLError_NotFound):
            pynvml.nvmlDeviceGetHandleByUUID(UUIDS[0])
        self.control("insert", UUIDS[0])
        pynvml.nvmlShutdown()
        pynvml.nvmlInit()
        self.assertEqual(2, pynvml.nvmlDeviceGetCount())

    def test_an_unloaded_driver_answers_no_call_and_a_new_one_only_new_clients(self):
        self.addCleanup(self.control, "driver", "--load")
        device = pynvml.nvmlDeviceGetHandleByIndex(0)
        version = pynvml.nvmlSystemGetDriverVersion()
        self.addCleanup(self.control, "driver", "--version", version)
        events = self.event_set(device)
        spare = pynvml.nvmlEventSetCreate()
        self.control("driver", "--version", "999.1-fake")
        self.assertEqual(version, pynvml.nvmlSystemGetDriverVersion())
        self.control("driver", "--unload")
        for call in (pynvml.nvmlInit, pynvml.nvmlDeviceGetCount, pynvml.nvmlSystemGetDriverVersion,
                     lambda: pynvml.nvmlDeviceGetUUID(device), lambda: pynvml.nvmlEventSetWait(events, 1000)):
            with self.assertRaises(pynvml.NVMLError_DriverNotLoaded):
                call()
        pynvml.nvmlEventSetFree(spare)
        self.control("driver", "--load")
        for call in (lambda: pynvml.nvmlDeviceGetMemoryInfo(device), lambda: pynvml.nvmlEventSetWait(events, 1000)):
            with self.assertRaises(pynvml.NVMLError_GpuIsLost):
                call()
        pynvml.nvmlShutdown()
        pynvml.nvmlInit()
        self.assertEqual("999.1-fake", pynvml.nvmlSystemGetDriverVersion())
        self.assertEqual(0, pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(0)).used)

    def test_a_driver_of_another_version_refuses_new_clients(self):
        self.addCleanup(self.control, "driver", "--mismatch", "off")
        pynvml.nvmlShutdown()
        self.addCleanup(pynvml.nvmlInit)
        self.control("driver", "--mismatch", "on")
        with self.assertRaises(pynvml.NVMLError_LibRmVersionMismatch):
            pynvml.nvmlInit()
        self.control("driver", "--mismatch", "off")

    def test_calls_that_reach_a_gpu_hang_until_the_driver_answers_again(self):
        self.addCleanup(self.control, "driver", "--hang", "off")
        device = pynvml.nvmlDeviceGetHandleByIndex(0)
        self.control("driver", "--hang", "on")
        answers = []
        calls = [threading.Thread(target=lambda: answers.append(pynvml.nvmlDeviceGetMemoryInfo(device).used)),
                 threading.Thread(target=lambda: answers.append(pynvml.nvmlInit()))]
        for call in calls:
            call.start()
        self.assertEqual(UUIDS[0], pynvml.nvmlDeviceGetUUID(device))  # known without the GPU
        time.sleep(0.3)
        self.assertEqual([], answers)
        self.control("driver", "--hang", "off")
        for call in calls:
            call.join(30)
        self.assertEqual({0, None}, set(answers))
        pynvml.nvmlShutdown()


if __name__ == "__main__":
    sys.exit(not unittest.main(exit=False, verbosity=2).result.wasSuccessful())
