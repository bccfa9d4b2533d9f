import contextlib
import os
import subprocess
import threading
import time

from kit.report import expect


class Arbiter:
    """The program that divides the GPU's time among containers, and the node agent's part beside it: once a second it
    tells the program which containers there are, with NVML's figure for each where NVML has proved to be exact."""

    def __init__(self, kit):
        self.kit, self.containers, self.changed = kit, [], threading.Event()
        self.process = subprocess.Popen([kit.program("arbiter"), *(os.path.join(kit.folder.name, name)
                                                                   for name in ("regions", "agents"))],
                                        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        threading.Thread(target=self.tell, daemon=True).start()

    def tell(self):
        with contextlib.suppress(OSError):  # the program has ended; the next container fails its check
            while True:
                since = int(time.time() * 1e6)
                self.changed.wait(1)
                self.changed.clear()
                used = self.kit.nvml.process_utilization(since) if self.kit.answers.nvml_is_exact() else {}
                lines = [container.line(gpu, used) for container in list(self.containers) for gpu in container.gpus]
                self.process.stdin.write("".join(line + "\n" for line in [*lines, "."]))
                self.process.stdin.flush()

    def add(self, container):
        expect(self.process.poll() is None, f"the arbiter has ended with {self.process.returncode}")
        self.containers.append(container)
        self.changed.set()

    def remove(self, container):
        self.containers.remove(container)
        self.changed.set()
