import re
import shutil
import subprocess

from kit.container import Container
from kit.report import Skip, expect


def values_of(lines):
    """The values that nvidia-smi -q prints, each with its headings."""
    path = []
    for line in lines:
        name, _, value = line.partition(" : ")
        depth = len(line) - len(line.lstrip())
        path = [(level, heading) for level, heading in path if level < depth] + [(depth, name.strip())]
        yield " > ".join(heading for _, heading in path), value.strip()


def run(kit):
    program = shutil.which("nvidia-smi")

    def output_of(container, *options):
        if program is None:
            raise Skip("nvidia-smi is not installed")
        done = subprocess.run([program, "-i", kit.uuid, *options], capture_output=True, text=True,
                              env=container.environment if container else kit.environment)
        expect(done.returncode == 0,
               f"nvidia-smi {' '.join(options)} failed: {(done.stderr or done.stdout).strip()[-200:]}")
        return done.stdout.splitlines()

    def compare(read):
        """Reads without the shim, with it, and without it again, while a context keeps the GPU initialized. Returns the
        first two readings and the names of the values that differ between the first and the last: those change without
        the shim, too, so the comparison ignores them."""
        kit.initialize_gpu()
        with Container(kit) as container:
            bare, limited, bare_again = read(None), read(container), read(None)
        return bare, limited, {name for name, _ in set(bare) ^ set(bare_again)}

    def query():
        def read(container):
            return list(values_of(output_of(container, "-q")))

        bare, limited, changing = compare(read)
        may_differ = "FB Memory|Utilization|Process|Accounting|Power Draw|Throughput"
        unexpected = sorted({f"{name}: {value}" for name, value in set(limited) ^ set(bare)
                             if name not in changing and not re.search(may_differ, name)})
        expect(not unexpected, f"these values differ, too: {'; '.join(unexpected)}")
        total = next((value for name, value in limited if re.search("FB Memory(?: Usage >)? Total$", name)), "missing")
        expect(total == f"{kit.limit} MiB", f"the total memory is {total}, the limit is {kit.limit} MiB")
        return f"{len(bare)} lines; the total memory is the limit, {total}"

    def table():
        def read(container):
            lines = output_of(container)
            processes = next((i for i, line in enumerate(lines) if "Processes:" in line), len(lines))
            return list(enumerate(lines[:processes]))

        bare, limited, changing = compare(read)
        expect(len(bare) == len(limited),
               f"the table has {len(limited)} lines before the processes with the shim, {len(bare)} without it")
        unexpected = [with_shim.strip() for (index, without), (_, with_shim) in zip(bare, limited)
                      if without != with_shim and index not in changing and "MiB" not in with_shim]
        expect(not unexpected, f"these lines differ, too: {'; '.join(unexpected)}")
        expect(any(f" {kit.limit}MiB" in line for _, line in limited), f"the table does not contain {kit.limit}MiB")
        return f"{len(bare)} lines before the processes; the total memory is the limit, {kit.limit}MiB"

    kit.check("nvidia-smi", "nvidia-smi -q differs only in memory, utilization, processes and accounting", query)
    kit.check("nvidia-smi", "the table of nvidia-smi differs only in memory and processes", table)
