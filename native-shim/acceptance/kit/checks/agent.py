"""The node agent itself, without Kubernetes: kit/agent.py."""
import contextlib
import itertools
import re
import shutil
import subprocess
import time

from kit import MIB
from kit.agent import Agent, PodContainer
from kit.checks.nvidia_smi import values_of
from kit.report import Fail, Skip, expect
from kit.shares import Shares, Tenant, has_busy_kernel

SLACK = 4 * MIB  # between figures of NVML, the agent and the shim
ALONE = 12  # seconds for which a container must have been alone on the GPU, for an error to be its program's
CONTEXT_STEP = 8  # MiB: the agent publishes the size of contexts in such steps


def run(kit):
    agent = None

    def starts():
        nonlocal agent
        begun = Agent(kit)
        with contextlib.ExitStack() as on_failure:
            on_failure.callback(begun.close)
            begun.start()
            resource = begun.ask("registration")["resource"]
            expect(resource == "aliquot.io/vgpu", f"the agent has registered {resource} with the kubelet")
            on_failure.pop_all()
        agent = begun
        with open(f"/proc/{agent.process.pid}/status") as status:
            resident = int(re.search(r"VmRSS:\s+(\d+)", status.read()).group(1)) // 1024
        return f"ready after {agent.seconds_to_start:.1f} s; {resident} MiB resident"

    kit.check("agent", "the agent starts, registers with the kubelet and is ready", starts)
    if agent is None:
        return
    try:
        checks(kit, agent)
    finally:
        agent.close()


def checks(kit, agent):
    def check(name, function, *arguments):
        def run():
            try:
                return function(kit, agent, *arguments)
            except (KeyError, TypeError, OSError) as error:  # what the agent answers is not what a check reads
                raise Fail(f"unexpected answer: {error!r}")

        kit.check("agent", name, run)

    check("the inventory agrees with nvidia-smi -q", inventory)
    check("labels are those of GPU feature discovery", labels)
    check("each GPU is healthy", healthy)
    check("an error makes a GPU unhealthy until it has recovered", error)
    listed = []
    check("NVML lists the processes of this machine by their IDs here", lists_processes, listed)
    if not listed:
        return
    check("what NVML shows of a container is charged or unattributed, and the limit holds with both", memory)
    check("the size of contexts is measured, and NVML shows no more than the limit", context)
    check("a program outside of all containers is counted as such", outside)
    check("a program that bypasses the shim is found", bypass)
    check("an error of a program names its container, and the GPU stays healthy", error_of_program)
    if has_busy_kernel(kit, "agent"):
        measure = Shares(kit, container_of=lambda tenant: PodContainer(
            agent, tenant.share or 0, "none" if tenant.share is None else tenant.policy, tenant.priority))
        check("tenants with 30 % and 70 % get their shares, by the agent's arbiter", shares, measure)
        check("a container's GPU time is what NVML says", gpu_time, measure)
        check("programs and their limits outlive the agent, which finds them again", restart, measure)


def smi(kit):
    """What nvidia-smi -q says of the node, and of each GPU."""
    program = shutil.which("nvidia-smi")
    if program is None:
        raise Skip("nvidia-smi is not installed")
    done = subprocess.run([program, "-q"], capture_output=True, text=True, env=kit.environment)
    expect(done.returncode == 0, f"nvidia-smi -q failed: {(done.stderr or done.stdout).strip()[-200:]}")
    node, gpus = {}, {}
    for name, value in values_of(done.stdout.splitlines()):
        gpu, _, rest = name.partition(" > ")
        if gpu.startswith("GPU "):
            gpus.setdefault(gpu, {})[rest] = value
        else:
            node[name] = value
    return node, list(gpus.values())


def total_mib(gpu):
    return next((int(value.split()[0]) for name, value in gpu.items()
                 if re.search("^FB Memory(?: Usage >)? Total$", name)), None)


def seen(agent, container):
    """How many processes of the container the agent reports."""
    return (agent.use(container) or {"processes": 0})["processes"]


def inventory(kit, agent):
    node, gpus = smi(kit)
    found = agent.until("the Node has an inventory", agent.inventory)
    expected = [(index, gpu["GPU UUID"], gpu["Product Name"], total_mib(gpu)) for index, gpu in enumerate(gpus)]
    actual = [(gpu["index"], gpu["uuid"], gpu["model"], gpu["memoryMiB"])
              for gpu in sorted(found["gpus"], key=lambda gpu: gpu["index"])]
    expect(actual == expected, f"the inventory has {actual}, nvidia-smi {expected}")
    expect(found["driverVersion"] == node["Driver Version"],
           f"the inventory has driver {found['driverVersion']}, nvidia-smi {node['Driver Version']}")
    expect(not found.get("conflict"), f"the inventory has a conflict: {found.get('conflict')}")

    def amounts():
        capacity = agent.node()["status"].get("capacity", {})
        return capacity.get("nvidia.com/gpumem") == str(sum(total for *_, total in expected)) and capacity

    capacity = agent.until("the Node has the memory of all GPUs", amounts)
    expect(capacity["nvidia.com/gpucores"] == str(100 * len(gpus)), f"the Node has {capacity}")
    return f"{len(gpus)} GPUs with index, UUID, model and memory; {capacity['nvidia.com/gpumem']} MiB in total"


def sanitized(text):
    return re.sub(" +", "-", re.sub("[^A-Za-z0-9-_. ]", "", text).strip())


def line_of(path):
    with contextlib.suppress(OSError), open(path) as file:
        return file.readline().strip()
    return ""


def labels(kit, agent):
    """GPU feature discovery's rules (NVIDIA/k8s-device-plugin, internal/lm), for whole GPUs without sharing."""
    node, gpus = smi(kit)
    major, minor = kit.nvml.compute_capability()
    driver = (node["Driver Version"].split(".") + [""])[:3]
    cuda = node["CUDA Version"].split(".")
    family = {7: "volta" if minor < 5 else "turing", 8: "ampere" if minor < 9 else "ada-lovelace", 9: "hopper",
              10: "blackwell", 12: "blackwell"}
    expected = {"gpu.product": sanitized(gpus[0]["Product Name"]),
                "gpu.count": str(sum(gpu["Product Name"] == gpus[0]["Product Name"] for gpu in gpus)),
                "gpu.memory": str(total_mib(gpus[0])), "gpu.family": family.get(major, "undefined"),
                "gpu.compute.major": str(major), "gpu.compute.minor": str(minor), "gpu.replicas": "1",
                "gpu.sharing-strategy": "none", "mps.capable": "false", "vgpu.present": "false",
                "gpu.machine": sanitized(line_of("/sys/class/dmi/id/product_name")) or "unknown",
                "mig.capable": str(kit.nvml.is_mig_capable()).lower(),
                "cuda.runtime.major": cuda[0], "cuda.runtime.minor": cuda[1],
                "cuda.runtime-version.full": node["CUDA Version"], "cuda.driver-version.full": node["Driver Version"],
                "cuda.driver.major": driver[0], "cuda.driver.minor": driver[1]}
    if re.fullmatch("([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?", driver[2]):
        expected["cuda.driver.rev"] = driver[2]

    def labels_of_node():
        found = {name[len("nvidia.com/"):]: value for name, value in agent.node()["metadata"]["labels"].items()
                 if name.startswith("nvidia.com/")}
        return "gpu.product" in found and found

    found = agent.until("the Node has GPU feature discovery's labels", labels_of_node)
    wrong = [f"{name}={found.get(name)}, expected {value}" for name, value in expected.items()
             if found.get(name) != value]
    expect(not wrong, "; ".join(wrong))
    return f"{len(found)} labels, {len(expected)} of them compared: gpu.product={found['gpu.product']}"


def condition(agent):
    return next((each for each in agent.node()["status"].get("conditions", []) if each["type"] == "AliquotGPUsHealthy"),
                {"status": "missing"})


def healthy(kit, agent):
    agent.until("the Node's condition AliquotGPUsHealthy is True", lambda: condition(agent)["status"] == "True")
    unhealthy = [gpu for gpu in agent.inventory()["gpus"] if not gpu["healthy"]]
    expect(not unhealthy, f"unhealthy in the inventory: {unhealthy}")
    expect(agent.metric("aliquot_gpu_healthy", gpu=kit.uuid) == 1, "the metric aliquot_gpu_healthy is not 1")
    return condition(agent)["message"]


def error(kit, agent):
    driver = shutil.which("aliquot-fake-driver")
    if not kit.fake or driver is None:
        raise Skip("an error of a real GPU cannot be provoked")
    failed = kit.nvml.second_uuid() or kit.uuid
    subprocess.run([driver, "fail", failed, "--xid", "79"], check=True)
    try:
        agent.until("the GPU is unhealthy in the inventory", lambda: not agent.gpu(failed)["healthy"])
        agent.until("the condition says so", lambda: condition(agent)["status"] == "False")
        message = condition(agent)["message"]
        expect("XID 79" in message, f"the condition does not name the error: {message}")
    finally:
        subprocess.run([driver, "heal", failed], check=True)
    start = time.monotonic()
    agent.until("the GPU is healthy again", lambda: agent.gpu(failed)["healthy"])
    return f"{message}; healthy {time.monotonic() - start:.0f} s after its recovery"


def lists_processes(kit, agent, listed):
    """Also notes in `listed` that they are."""
    process = kit.start([kit.program("memory"), "plain", "wait"])
    process.read_line()
    if kit.nvml.memory_of(process.pid) is None:
        raise Skip("NVML does not list a process that uses the GPU, as in a container with PIDs of its own: the agent, "
                   "which would run on the host, cannot tell containers apart here")
    listed.append(True)


def settled(agent, container, nvml):
    """The container's use, once charged and unattributed bytes are what NVML shows, and after how many seconds."""
    start = time.monotonic()
    use = agent.until(f"the agent reports the {nvml // MIB} MiB that NVML shows of the container",
                      lambda: next((use for use in [agent.use(container)] if use and
                                    abs(use["chargedBytes"] + use["unattributedBytes"] - nvml) <= SLACK), None))
    return use, time.monotonic() - start


def memory(kit, agent):
    with PodContainer(agent) as container:
        process = kit.start([kit.program("memory"), "plain", "wait"], container)
        process.read_line()
        nvml = kit.nvml.memory_of(process.pid)
        use, seconds = settled(agent, container, nvml)
        # The simulated GPU's machine may be busy. On others: samples of a second, read twice a second.
        expect(seconds <= (10 if kit.fake else 3.5), f"the agent tells only {seconds:.1f} s after the context")
        shown = agent.metric("aliquot_container_memory_used_bytes", pod=container.pod, gpu=kit.uuid)
        expect(abs(shown - nvml) <= SLACK, f"the metric has {shown} bytes, NVML {nvml}")
        expect(use["processes"] == 1, f"the agent reports {use['processes']} processes, expected 1")
        process.go_on()
        full = process.read_line()
        largest = kit.nvml.memory_of(process.pid)
        expect(full["error"] == "CUDA_ERROR_OUT_OF_MEMORY", f"the last allocation fails with {full['error']}")
        expect(largest <= kit.limit * MIB + SLACK,
               f"NVML shows {largest // MIB} MiB of the process, the limit is {kit.limit} MiB")
        expect(kit.limit * MIB - largest <= 2 * SLACK + use["unattributedBytes"] // 10,
               f"NVML shows only {largest // MIB} of {kit.limit} MiB when an allocation fails")
        agent.until("the agent reports the charges",
                    lambda: abs(agent.use(container)["chargedBytes"] - full["obtained"]) <= SLACK)
        process.finish()
        expect(agent.use(container)["deniedAllocations"] > 0, "the agent reports no denied allocation")
    return (f"{use['chargedBytes'] // MIB} MiB charged and {use['unattributedBytes'] // MIB} MiB beyond that, NVML "
            f"{nvml // MIB} MiB, after {seconds:.1f} s; then {full['obtained'] // MIB} MiB allocated, NVML "
            f"{largest // MIB} of {kit.limit} MiB")


def context(kit, agent):
    kit.initialize_gpu()
    with PodContainer(agent) as container:
        process = kit.start([kit.program("memory"), "plain", "wait"], container)
        process.read_line()
        nvml = kit.nvml.memory_of(process.pid)
        settled(agent, container, nvml)
        # In steps, of the smallest process that the agent has seen.
        size = agent.until(
            f"the inventory has the size of a context, {nvml // MIB} MiB by NVML",
            lambda: next((found for found in [agent.gpu(kit.uuid)["contextMiB"]]
                          if nvml // MIB - 2 * CONTEXT_STEP < found <= nvml // MIB), None))
    with PodContainer(agent, context=size) as container:
        process = kit.start([kit.program("memory"), "plain"], container)
        full = process.read_line()
        largest = kit.nvml.memory_of(process.pid)
        process.finish()
    expect(kit.limit * MIB - full["obtained"] == size * MIB,
           f"the shim charges {kit.limit - full['obtained'] // MIB} MiB for the context, the inventory has {size} MiB")
    expect(largest <= (kit.limit + nvml // MIB - size) * MIB + SLACK,
           f"NVML shows {largest // MIB} MiB, the limit is {kit.limit} MiB")
    return (f"the inventory has {size} MiB, NVML {nvml // MIB} MiB for a process; at the limit of {kit.limit} MiB NVML "
            f"shows {largest // MIB} MiB at once")


def outside(kit, agent):
    process = kit.start([kit.program("memory"), "plain", "wait"])
    process.read_line()
    nvml = kit.nvml.memory_of(process.pid)
    agent.until("the agent reports the memory of the other process",
                lambda: (agent.of_gpu() or {}).get("otherBytes", 0) >= nvml - SLACK)
    return f"NVML shows {nvml // MIB} MiB of the process, the agent {agent.of_gpu()['otherBytes'] // MIB} MiB of others"


def bypass(kit, agent):
    with PodContainer(agent) as container:
        process = kit.start([kit.program("memory"), "plain", "wait"], container, {"LD_PRELOAD": ""})
        process.read_line()
        start, nvml = time.monotonic(), kit.nvml.memory_of(process.pid)

        def finding():
            return next((each["problem"] for each in agent.report()["findings"]
                         if each["uid"] == container.uid and each["problem"]["kind"] == "WithoutShim"), None)

        found = agent.until("the agent reports the program without the shim", finding)
        seconds, use = time.monotonic() - start, agent.use(container)
        expect(found["gpu"] == kit.uuid, f"the finding names {found['gpu']}")
        expect(abs(use["unattributedBytes"] - nvml) <= SLACK,
               f"NVML shows {nvml} bytes of the program, the agent {use['unattributedBytes']} beyond the charges")
        others = kit.start([kit.program("memory"), "plain"], container).read_line()
        expect(others["obtained"] <= kit.limit * MIB - nvml + SLACK,
               f"another program of the container gets {others['obtained'] // MIB} MiB of {kit.limit} MiB, although "
               f"{nvml // MIB} MiB are used beside the shim")
    return (f"reported after {seconds:.0f} s, with its {nvml // MIB} MiB, which other programs of the container do not "
            "get")


def error_of_program(kit, agent):
    driver = shutil.which("aliquot-fake-driver")
    if kit.fake and driver is None:
        raise Skip("aliquot-fake-driver is not in the PATH")
    with PodContainer(agent) as container:
        process = kit.start([kit.program("questions"), "fault"], container)
        process.read_line()
        agent.until("the agent reports the container's process", lambda: seen(agent, container) == 1)
        time.sleep(ALONE)
        process.go_on()
        error = process.read_line()["error"]
        if kit.fake:  # which runs no code, so that the driver is told to report the error
            subprocess.run([driver, "fail", kit.uuid, "--xid", "31"], check=True)
        elif error == "CUDA_SUCCESS":
            raise Skip("the kernel caused no error")
        found = agent.until("the agent names the container of the XID error",
                            lambda: next((xid for xid in agent.report()["xids"] if xid["uid"] == container.uid), None))
        process.stop()
    expect(agent.gpu(kit.uuid)["healthy"], "the GPU is unhealthy after an error of a program")
    return f"XID {found['number']} ({found['meaning']})" + ("" if kit.fake else f" after {error}")


def shares(kit, agent, measure):
    expect(agent.metric("aliquot_agent_arbiter_running") == 1, "the agent's arbiter does not run")
    return measure.shares_hold([Tenant(30, measure.busy(2)), Tenant(70, measure.busy(2))])


def gpu_time(kit, agent, measure):
    """The agent reads NVML once a second, and this check, too: the two agree, whatever NVML's figures are worth."""
    with PodContainer(agent, 50) as container:
        process = kit.start(measure.busy(2, seconds=9), container)
        process.read_line()
        agent.until("the agent reports the container's GPU time",
                    lambda: (agent.use(container) or {}).get("gpuSeconds"))
        charged, used, start = container.times()[0], agent.use(container)["gpuSeconds"], time.time()
        time.sleep(5)
        charged, used = container.times()[0] - charged, agent.use(container)["gpuSeconds"] - used
        elapsed = time.time() - start
        nvml = kit.nvml.process_utilization(int(start * 1e6)).get(process.pid)
    if nvml is None:
        raise Skip("NVML has no utilization of processes on this GPU")
    figure = f"{100 * used / elapsed:.0f} % by the agent, {nvml:.0f} % by NVML, {charged / 1e7 / elapsed:.0f} % charged"
    # A sample more or less at either end of the time
    expect(abs(100 * used / elapsed - nvml) <= max(10, kit.arguments.tolerance), figure)
    return figure


def restart(kit, agent, measure):
    tolerance, seconds = kit.arguments.tolerance, 18 + 2 * agent.seconds_to_start
    command = measure.busy(2, seconds=seconds)
    alone, whole = measure.baseline(1, measure.busy(2)), measure.whole(measure.busy(2))
    with PodContainer(agent, 30) as first, PodContainer(agent, 70) as second:
        processes = [kit.start(command, container) for container in (first, second)]
        holder = kit.start([kit.program("memory"), "plain"], second)
        full = holder.read_line()
        for process in processes:
            process.read_line()
        start = time.monotonic()
        agent.until("the agent reports both containers", lambda: (seen(agent, first), seen(agent, second)) == (1, 2))
        before = agent.inventory()
        agent.kill()
        refused = kit.start([kit.program("memory"), "plain"], second).read_line()
        expect(refused["obtained"] == 0,
               f"without the agent, {refused['obtained']} bytes beyond the limit are allocated")
        killed = time.monotonic()
        agent.start()
        agent.until("the agent reports both containers again",
                    lambda: (seen(agent, first), seen(agent, second)) == (1, 3), seconds)
        found = time.monotonic()
        charged = agent.use(second)["chargedBytes"]
        expect(abs(charged - full["obtained"]) <= SLACK,
               f"the agent reports {charged} bytes charged, the program holds {full['obtained']}")
        expect(gpus_of(agent.inventory()) == gpus_of(before), "the GPUs of the inventory have changed")
        outputs = [process.finish() for process in processes]
        holder.finish()
    text = []
    for limit, output in zip((30, 70), outputs):
        since = output["tenths"][int(10 * (found - start)) + 10:]
        expect(len(since) >= 10, f"the agent needed {found - killed:.0f} s until it reported the containers again")
        during, after = 100 * output["work"] / alone, 1000 * sum(since) / len(since) / alone
        text.append(f"limit {limit} %: {during:.1f} % throughout, {after:.1f} % with the new agent")
        expect(during <= limit + tolerance and after <= limit + tolerance, f"{text[-1]}: more than the limit")
        expect(after >= limit * min(1, whole / 100) - tolerance, f"{text[-1]}: less than the limit")
        pauses = [len(list(run)) / 10 for work, run in itertools.groupby(output["tenths"]) if work == 0]
        still = max(pauses, default=0)
        expect(still < (3 if kit.fake else 1), f"the program of {limit} % stood still for {still:.1f} s")
    return (f"{'; '.join(text)}; reported again {found - killed:.1f} s after the start; nothing more was allocated "
            "meanwhile")


def gpus_of(inventory):
    return [{name: value for name, value in gpu.items() if name != "contextMiB"} for gpu in inventory["gpus"]]
