import datetime
import functools
import os
import tempfile

from kit import MIB
from kit.answers import Answers
from kit.arbiter import Arbiter
from kit.build import version
from kit.container import FOLDERS
from kit.nvml import Nvml
from kit.program import Program
from kit.report import Report


class Kit:
    """What the checks of a run share: the GPU, what is known about it, the programs, the containers and the report."""

    def __init__(self, arguments):
        self.arguments = arguments
        self.nvml = Nvml(arguments.gpu)
        self.uuid = self.nvml.uuid()
        self.fake = self.nvml.driver().endswith("-fake")
        self.alone = self.nvml.processes() == 0  # no other process uses the GPU
        self.environment = {key: value for key, value in os.environ.items() if key != "LD_PRELOAD"}
        self.environment["CUDA_VISIBLE_DEVICES"] = self.uuid
        self.build = os.path.abspath(arguments.build)
        self.shim = os.path.abspath(arguments.shim or os.path.join(self.build, "libaliquot.so"))
        total, used = self.nvml.memory()
        self.limit = min(4096, (total - used) // MIB // 2)  # MiB of each container
        # In memory, as on a node: on an overlay file system a lock on the region does not outlive the descriptor.
        self.folder = tempfile.TemporaryDirectory(prefix="aliquot-acceptance-",
                                                  dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
        for name in FOLDERS:
            os.mkdir(os.path.join(self.folder.name, name))
        self.slots = 0  # containers so far
        self.started = []  # programs
        self.report = Report(arguments)
        self.about = {"gpu": self.nvml.name(), "driver": self.nvml.driver(), "fake": self.fake,
                      "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
                      "version": version(self.build), "limit_mib": self.limit}
        self.answers = Answers(os.path.dirname(os.path.abspath(arguments.results)), self.about)

    @functools.cached_property
    def arbiter(self):
        return Arbiter(self)

    @functools.cached_property
    def rate(self):
        """Iterations of the busy kernel that take a microsecond on the idle GPU; measured when it is first needed."""
        return self.run([self.program("busy"), "calibrate"])["rate"]

    def program(self, name):
        return os.path.join(self.build, "acceptance", "accept-" + name)

    def start(self, command, container=None, environment=None):
        program = Program(command, {**(container or self).environment, **(environment or {})}, self.arguments.timeout)
        self.started.append(program)
        if container:
            container.add(program.pid)
        return program

    def run(self, command, container=None, environment=None):
        """Runs a program to its end and returns its last line of output."""
        return self.start(command, container, environment).finish()

    def initialize_gpu(self):
        """Keeps a context for the rest of the check: the first one on a GPU also initializes it, which uses memory."""
        self.start([self.program("memory"), "plain", "wait"]).read_line()

    def stop_programs(self):
        for program in self.started:
            program.stop()
        self.started.clear()

    def check(self, section, name, function, *arguments, **options):
        """Runs a check (report.py). What it has started is killed at its end."""

        def run():
            try:
                return function(*arguments, **options)
            finally:
                self.stop_programs()

        self.report.check(section, name, run)
