import ctypes
import statistics

from kit.report import Skip


class Nvml:
    """NVML without the shim, as a monitor outside the containers reads it: this process never preloads the shim."""

    def __init__(self, uuid=None):
        try:
            self.library = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError as error:
            raise SystemExit(f"run: cannot load NVIDIA's driver libraries: {error}")
        if self.library.nvmlInit_v2() != 0:
            raise SystemExit("run: nvmlInit fails; check that nvidia-smi works")
        self.device = ctypes.c_void_p()
        if uuid is None:
            found = self.library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(self.device))
        else:
            found = self.library.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(self.device))
        if found != 0:
            raise SystemExit(f"run: this machine has no GPU {uuid or 0}; nvidia-smi -L lists its GPUs")

    def text(self, function, *arguments):
        buffer = ctypes.create_string_buffer(96)
        result = getattr(self.library, function)(*arguments, buffer, ctypes.c_uint(96))
        return buffer.value.decode() if result == 0 else ""

    def name(self):
        return self.text("nvmlDeviceGetName", self.device)

    def uuid(self):
        return self.text("nvmlDeviceGetUUID", self.device)

    def driver(self):
        return self.text("nvmlSystemGetDriverVersion")

    def second_uuid(self):
        """UUID of another GPU of this machine, or None."""
        count, device = ctypes.c_uint(0), ctypes.c_void_p()
        self.library.nvmlDeviceGetCount_v2(ctypes.byref(count))
        for index in range(count.value):
            if self.library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device)) == 0:
                uuid = self.text("nvmlDeviceGetUUID", device)
                if uuid not in ("", self.uuid()):
                    return uuid
        return None

    def memory(self):
        """Total bytes and used bytes of the GPU."""
        memory = (ctypes.c_ulonglong * 3)()
        if self.library.nvmlDeviceGetMemoryInfo(self.device, memory) != 0:
            raise Skip("NVML does not report the memory of this GPU")
        return memory[0], memory[2]

    def used_memory(self):
        return self.memory()[1]

    def memory_of(self, pid):
        """Bytes that the process uses on the GPU; None if NVML does not tell."""

        class Process(ctypes.Structure):
            _fields_ = [("pid", ctypes.c_uint), ("bytes", ctypes.c_ulonglong), ("instance", ctypes.c_uint),
                        ("compute_instance", ctypes.c_uint)]

        found, count = (Process * 256)(), ctypes.c_uint(256)
        if self.library.nvmlDeviceGetComputeRunningProcesses_v3(self.device, ctypes.byref(count), found) != 0:
            return None
        return next((each.bytes for each in found[:count.value] if each.pid == pid and each.bytes < 1 << 60), None)

    def is_mig(self):
        current, pending = ctypes.c_uint(0), ctypes.c_uint(0)
        return (self.library.nvmlDeviceGetMigMode(self.device, ctypes.byref(current), ctypes.byref(pending)) == 0
                and current.value == 1)

    def is_mig_capable(self):
        return self.library.nvmlDeviceGetMigMode(self.device, ctypes.byref(ctypes.c_uint(0)),
                                                 ctypes.byref(ctypes.c_uint(0))) == 0

    def compute_capability(self):
        major, minor = ctypes.c_int(0), ctypes.c_int(0)
        self.library.nvmlDeviceGetCudaComputeCapability(self.device, ctypes.byref(major), ctypes.byref(minor))
        return major.value, minor.value

    def utilization(self):
        """Percent of the recent time in which any kernel ran on the GPU; None if NVML does not tell."""
        rates = (ctypes.c_uint * 2)()
        return rates[0] if self.library.nvmlDeviceGetUtilizationRates(self.device, rates) == 0 else None

    def processes(self):
        """The number of processes that have a context on the GPU."""
        count = ctypes.c_uint(0)
        self.library.nvmlDeviceGetComputeRunningProcesses_v3(self.device, ctypes.byref(count), None)
        return count.value

    def samples(self, since):
        """Samples of SM utilization taken after `since` (microseconds): process ID, time in microseconds, percent."""

        class Sample(ctypes.Structure):
            _fields_ = [("pid", ctypes.c_uint), ("time", ctypes.c_ulonglong), ("sm", ctypes.c_uint),
                        ("memory", ctypes.c_uint), ("encoder", ctypes.c_uint), ("decoder", ctypes.c_uint)]

        samples, count = (Sample * 4096)(), ctypes.c_uint(4096)
        if self.library.nvmlDeviceGetProcessUtilization(self.device, samples, ctypes.byref(count),
                                                        ctypes.c_ulonglong(since)) != 0:
            return []
        return [(sample.pid, sample.time, sample.sm) for sample in samples[:count.value]
                if sample.time > since and sample.sm <= 100]

    def process_utilization(self, since):
        """Mean SM utilization in percent by process ID, from samples taken after `since` (microseconds)."""
        by_process = {}
        for pid, _, percent in self.samples(since):
            by_process.setdefault(pid, []).append(percent)
        return {pid: statistics.mean(values) for pid, values in by_process.items()}
