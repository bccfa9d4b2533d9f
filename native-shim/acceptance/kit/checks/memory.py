import os
import subprocess
import sys
import tempfile

from kit import FOLDER, MIB
from kit.container import Container
from kit.installed import find_cudart, find_nvcc, torch_command
from kit.report import Skip, expect, skip

# Bytes of the limit that may be unused when an allocation of a kind fails. Plain and managed memory are exact to the
# byte; the driver allocates the other kinds in chunks.
SLACK = {"plain": 0, "managed": 0, "pitched": 4096, "async": 64 * MIB, "captured": 64 * MIB, "virtual": 32 * MIB,
         "array": 32 * MIB}


def run(kit):
    def kind_is_limited(kind):
        before = kit.nvml.used_memory()
        with Container(kit) as container:
            process = kit.start([kit.program("memory"), kind], container)
            full = process.read_line()
            if "missing" in full:
                raise Skip(f"the driver does not export {full['missing']}")
            during = kit.nvml.used_memory()
            after = process.finish()
            limit = kit.limit * MIB
            expect(full["total"] == limit, f"cuMemGetInfo reports {full['total']} bytes in total, the limit is {limit}")
            expect(full["error"] == "CUDA_ERROR_OUT_OF_MEMORY",
                   f"the last allocation fails with {full['error']}, expected CUDA_ERROR_OUT_OF_MEMORY")
            expect(full["obtained"] <= full["free_before"],
                   f"{full['obtained']} bytes allocated, more than the {full['free_before']} that were free")
            expect(full["free_before"] - full["obtained"] <= SLACK[kind],
                   f"only {full['obtained']} of {full['free_before']} free bytes allocated")
            expect(after["free_after"] >= full["free_before"] - SLACK[kind],
                   f"{after['free_after']} bytes free after all was freed, {full['free_before']} at the start")
            growth = (during - before) // MIB
            return (f"{full['obtained']} of {full['free_before']} free bytes allocated, then CUDA_ERROR_OUT_OF_MEMORY; "
                    f"NVML outside the container shows {growth:+} MiB")

    def processes_share_the_limit():
        with Container(kit) as container:
            processes = [kit.start([kit.program("memory"), "plain", "wait"], container) for _ in range(4)]
            for process in processes:
                process.read_line()
            for process in processes:
                process.go_on()
            obtained = [process.read_line()["obtained"] for process in processes]
            for process in processes:
                process.finish()
        expect(sum(obtained) == kit.limit * MIB,
               f"the processes allocated {sum(obtained)} bytes in total, the limit is {kit.limit * MIB}")
        return " + ".join(str(part // MIB) for part in obtained) + f" MiB = {kit.limit} MiB exactly"

    def memory_of_a_killed_process_is_free():
        with Container(kit) as container:
            kit.start([kit.program("memory"), "plain"], container).read_line()
            kit.stop_programs()
            full = kit.run([kit.program("memory"), "plain"], container)
        expect(full["free_after"] == kit.limit * MIB,
               f"the next process finds {full['free_after']} bytes free, the limit is {kit.limit * MIB}")

    def cudart(library):
        with Container(kit) as container:
            found = kit.run([sys.executable, os.path.join(FOLDER, "runtime.py"), library, kit.limit], container)
            expect(found["total"] == kit.limit * MIB,
                   f"cudaMemGetInfo reports {found['total'] // MIB} MiB in total, the limit is {kit.limit} MiB")
            expect(found["beyond"] == 2,
                   f"cudaMalloc of one byte more returns {found['beyond']}, expected 2 (cudaErrorMemoryAllocation)")
            container.expect_no_unhooked_functions()
        return f"{found['obtained']} bytes allocated; one byte more fails"

    def compiled_program():
        nvcc = find_nvcc()
        with tempfile.TemporaryDirectory() as folder, Container(kit) as container:
            program = os.path.join(folder, "runtime")
            root = os.path.dirname(os.path.dirname(os.path.realpath(nvcc)))
            built = subprocess.run([nvcc, "-o", program, os.path.join(FOLDER, "runtime.cu"), "-L" + root + "/lib"],
                                   capture_output=True, text=True)
            if built.returncode != 0:
                raise Skip(f"{nvcc} cannot compile runtime.cu: {built.stderr.strip()[-200:]}")
            found = kit.run([program, kit.limit], container)
        if kit.fake:
            return f"compiled by {nvcc}; the fake driver runs no kernel code, so its results are not checked"
        expect(found["computed"], "the replayed CUDA graph computes a wrong result")
        return f"compiled by {nvcc}; the CUDA graph that it captures computes the right result"

    def torch(environment):
        command = torch_command("torch_memory.py", kit.limit)
        with Container(kit) as container:
            container.environment.update(environment)
            found = kit.run(command, container)
        limit = kit.limit * MIB
        expect(found["total"] == limit,
               f"torch.cuda.mem_get_info reports {found['total'] // MIB} MiB in total, the limit is {kit.limit} MiB")
        expect(limit * 0.8 <= found["first"] <= limit,
               f"tensors of {found['first'] // MIB} MiB fit, expected 80 to 100 % of {kit.limit} MiB")
        expect(found["reserved"] <= limit,
               f"PyTorch's allocator reserved {found['reserved'] // MIB} MiB, the limit is {kit.limit} MiB")
        expect(abs(found["second"] - found["first"]) <= 64 * MIB,
               f"tensors of {found['first'] // MIB} MiB fit, but only {found['second'] // MIB} MiB after freeing them")
        fits = (f"PyTorch {found['torch']}: tensors of {found['first'] // MIB} of {kit.limit} MiB fit, and again after "
                "freeing them")
        if kit.fake:
            return f"{fits}; the fake driver runs no kernel code, so its results are not checked"
        expect(found["graph"], "the replayed CUDA graph computes a wrong result")
        return f"{fits}; a replayed CUDA graph computes the right result"

    for kind in SLACK:
        kit.check("memory", f"{kind} memory is limited", kind_is_limited, kind)
    kit.check("memory", "four processes that allocate at once get the limit in total", processes_share_the_limit)
    kit.check("memory", "the memory of a killed process is free again", memory_of_a_killed_process_is_free)
    libraries = find_cudart()
    for library in libraries:
        kit.check("memory", f"{os.path.basename(library)} is limited", cudart, library)
    if not libraries:
        kit.check("memory", "libcudart is limited", skip, "libcudart.so is not installed")
    kit.check("memory", "a program compiled by nvcc is limited", compiled_program)
    kit.check("memory", "PyTorch is limited", torch, {})
    kit.check("memory", "PyTorch with expandable segments is limited", torch,
              {name: "expandable_segments:True" for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")})
