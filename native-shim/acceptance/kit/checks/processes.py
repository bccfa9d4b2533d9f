import concurrent.futures
import time

from kit import MIB
from kit.container import Container
from kit.report import Fail, Skip, expect


def run(kit):
    def short_processes():
        wanted, failed = kit.arguments.processes, []
        with Container(kit, cores=50) as container, concurrent.futures.ThreadPoolExecutor(8) as pool:
            def one(number):
                if failed or time.monotonic() > kit.report.deadline:
                    return False
                try:
                    kit.run([kit.program("short"), number], container)
                except Fail as failure:
                    failed.append(f"process {number}: {failure}")
                return True

            done = sum(pool.map(one, range(wanted)))
            expect(not failed, "; ".join(failed[:3]))
            free = kit.run([kit.program("memory"), "plain"], container)["free_after"]
            expect(free == kit.limit * MIB, f"{free} bytes are free afterwards, the limit is {kit.limit * MIB}")
        if done < wanted:
            raise Skip(f"{done} of {wanted} processes ran, without an error, before the time limit")
        return f"{done} processes, 8 at a time, without an error; nothing stays charged"

    kit.check("processes", "short processes end without a crash, a hang or a remaining charge", short_processes)
