from kit import MIB
from kit.checks.questions import bytes_by_step
from kit.container import Container
from kit.report import Skip, expect


def run(kit):
    measured_mib = None

    def measured():
        nonlocal measured_mib
        steps, _ = bytes_by_step(kit)
        created = steps["context"]["gpu"]
        measured_mib = -(-(created + steps["first kernel"]["gpu"]) // MIB)  # rounded up
        if measured_mib <= 0 and kit.fake:
            raise Skip("contexts on this fake GPU use no memory")
        expect(measured_mib > 0, f"NVML shows no memory used by a process's context: {measured_mib} MiB")
        return f"{-(-created // MIB)} MiB, and {measured_mib} MiB after a kernel has run"

    def total_stays_within_the_limit():
        if not measured_mib:
            raise Skip("the memory of a context was not measured")
        kit.initialize_gpu()
        with Container(kit, context=measured_mib) as container:
            before = kit.nvml.used_memory()
            process = kit.start([kit.program("memory"), "plain"], container)
            full = process.read_line()
            during = kit.nvml.used_memory()
            process.finish()
        charged = kit.limit * MIB - full["obtained"]
        expect(charged == measured_mib * MIB,
               f"the shim charges {charged // MIB} MiB for the context, the limit file says {measured_mib} MiB")
        used = -(-(during - before) // MIB)
        expect(used <= kit.limit + 4, f"NVML shows {used} MiB used, the limit is {kit.limit} MiB")
        return f"with context={measured_mib}Mi in the limit file NVML shows {used} of {kit.limit} MiB used"

    kit.check("context", "NVML shows the memory of a process's first context", measured)
    kit.check("context", "a process's total memory, context included, stays within the limit",
              total_stays_within_the_limit)
