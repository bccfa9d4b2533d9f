import contextlib
import json
import os
import struct
import time
import uuid

from kit.report import expect

FOLDERS = "limits", "regions", "agents", "reports"  # with a file of each container
UNHOOKED_FUNCTIONS = 128  # offsets in the region, in bytes: include/aliquot/region.h
GPU_TIME = 4096 + 72  # of the first GPU; those of the others follow
THROTTLED = 4096 + 80
QUEUED, LONG_LAUNCH = 4096 + 144, 4096 + 168  # when a launch last queued, and was too long for a turn
DEVICE_SIZE = 256
AGENT_MAGIC = 0x3154474151494C41  # and sizes in bytes: include/aliquot/agent.h
AGENT_SIZE, AGENT_HEADER_SIZE, AGENT_DEVICES, AGENT_DEVICE_SIZE = 4096, 64, 16, 128
TURN = AGENT_HEADER_SIZE + 64  # of the first GPU
TURN_WAITS, TURN_LENGTH, TURN_UNITS, TURN_AGE_MS = 1 << 19, 1023, 512, 100


class Container:
    """A limit file, a region and an agent's file. Processes started with them form one container for the shim. The
    arbiter knows it, as on a node, unless `arbiter` is False."""

    def __init__(self, kit, cores=0, policy="fixed", context=0, gpus=None, priority="normal", arbiter=True):
        self.kit, self.gpus, self.pids = kit, gpus or [kit.uuid], set()
        self.cores, self.policy, self.priority, self.has_arbiter = cores, policy, priority, arbiter
        kit.slots += 1
        self.slot = f"slot-{kit.slots}"
        limits, self.region, self.agent, self.report = self.files = [os.path.join(kit.folder.name, name, self.slot)
                                                                for name in FOLDERS]
        with open(limits, "w") as file:
            for gpu in self.gpus:
                file.write(f"{gpu} memory={kit.limit}Mi cores={cores} policy={policy} priority=0 context={context}Mi\n")
        open(self.region, "w").close()
        with open(self.agent, "wb") as file:
            file.write(struct.pack("<QIIIII", AGENT_MAGIC, 1, AGENT_HEADER_SIZE, AGENT_SIZE, AGENT_DEVICES,
                                   AGENT_DEVICE_SIZE))
            for i, gpu in enumerate(self.gpus):
                file.seek(AGENT_HEADER_SIZE + i * AGENT_DEVICE_SIZE)
                file.write(uuid.UUID(gpu[4:]).bytes)
            file.truncate(AGENT_SIZE)
        self.environment = dict(kit.environment, LD_PRELOAD=kit.shim, ALIQUOT_CONFIG=limits, ALIQUOT_REGION=self.region,
                                ALIQUOT_AGENT=self.agent, ALIQUOT_REPORT=self.report)

    def __enter__(self):
        if self.has_arbiter:
            self.kit.arbiter.add(self)
        return self

    def __exit__(self, *_):
        if self.has_arbiter:
            self.kit.arbiter.remove(self)
        for file in self.files:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(file)

    def add(self, pid):
        """Takes note of a process that was started in the container."""
        self.pids.add(pid)

    def line(self, gpu, used):
        """In the list for the arbiter. used: NVML's utilization by process ID."""
        seen = [used[pid] for pid in list(self.pids) if pid in used and gpu == self.kit.uuid]
        return f"{self.slot} {gpu} {self.cores} {self.policy} {self.priority} {min(100, sum(seen)) if seen else '-'}"

    def counter(self, offset, file=None):
        with open(file or self.region, "rb") as opened:
            opened.seek(offset)
            return int.from_bytes(opened.read(8), "little")

    def turn(self):
        """The length of its turn on the first GPU in percent of a round; None: it has no turn, and launches at any
        time."""
        word = self.counter(TURN, self.agent)
        age = time.monotonic_ns() // 1_000_000 - (word >> 20)
        return 100 * (word & TURN_LENGTH) / TURN_UNITS if word & TURN_WAITS and age <= TURN_AGE_MS else None

    def has_queued(self, seconds):
        """Whether a launch queued behind the program's own work in the last seconds."""
        return time.monotonic_ns() - self.counter(QUEUED) < seconds * 1e9

    def has_long_launches(self):
        """Whether a launch of the last second was too long for a turn."""
        return time.monotonic_ns() - self.counter(LONG_LAUNCH) < 1e9

    def times(self):
        """GPU time charged, and time for which launches were throttled, in nanoseconds, on all GPUs."""
        return [sum(self.counter(offset + i * DEVICE_SIZE) for i in range(len(self.gpus)))
                for offset in (GPU_TIME, THROTTLED)]

    def learned(self):
        """What the shim learned in each process that has ended: src/compute/report.h."""
        with contextlib.suppress(OSError), open(self.report) as file:
            return [json.loads(line) for line in file]
        return []

    def expect_no_unhooked_functions(self):
        unhooked = self.counter(UNHOOKED_FUNCTIONS)
        expect(unhooked == 0, f"unhooked_functions in the region is {unhooked}, expected 0")
