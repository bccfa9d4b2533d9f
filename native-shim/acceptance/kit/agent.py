"""The node agent without Kubernetes: its process, what it talks to, and the folders of a host that it reads."""
import contextlib
import filecmp
import hashlib
import itertools
import json
import os
import re
import shutil
import socket
import subprocess
import time
import urllib.request
import uuid

from kit.container import Container
from kit.program import Program
from kit.report import Fail, Skip, expect

NODE = "gpu-node"
NAMESPACE = "kit"
LIMIT_FILES = "/kubelet/pods/{}/volumes/kubernetes.io~downward-api/aliquot-vgpu-main"  # where a kubelet mounts them
STATE_DEVICE = "0:2"  # the file systems of the mounts that the agent reads


class Agent:
    """The agent's program as on a node. device-plugin's tests have the stand-ins of kubelet, API server and scheduler
    (StandIns) and the main class that replaces the host's folders by `folder` (AgentWithoutCluster)."""

    def __init__(self, kit):
        self.kit, self.programs = kit, os.path.join(kit.build, "agent-kit")
        if not os.path.exists(os.path.join(self.programs, "java", "bin", "java")):
            raise Skip("this kit has no node agent; ./aliquot acceptance-kit builds one that has it")
        self.folder = os.path.join(kit.folder.name, "node")
        self.state = os.path.join(self.folder, "state")
        for name in ("proc/self", "logs", "cgroups/kubepods", "cdi", "image", "state", "kubelet/device-plugins",
                     "kubelet/pod-resources"):
            os.makedirs(os.path.join(self.folder, name))
        self.write("token", "none")
        self.write("proc/self/mountinfo", mounts("/", [(STATE_DEVICE, "/", self.state)]))
        self.install_image()
        self.containers = []
        self.host_process()
        self.slots = itertools.cycle(f"slot-{i:03}" for i in range(10))
        self.metrics_port, self.report_port = free_ports(2)
        self.log = open(os.path.join(self.folder, "log"), "w+")
        self.process = None
        self.stand_ins = Program(self.java("StandIns", os.path.join(self.folder, "kubelet"), NODE, self.report_port),
                                 kit.environment, kit.arguments.timeout)
        self.api_server = self.stand_ins.read_line()["apiServer"]

    def write(self, name, text):
        """Writes a file of the folder, as a whole."""
        path = os.path.join(self.folder, name)
        with open(path + ".new", "w") as file:
            file.write(text)
        os.replace(path + ".new", path)

    def install_image(self):
        """What is in the folder of the shim in the agent's image. A version ends with the library's hash."""
        image = os.path.join(self.folder, "image")
        os.symlink(self.kit.shim, os.path.join(image, "libaliquot.so"))
        os.symlink(self.kit.program("arbiter"), os.path.join(image, "aliquot-arbiter"))
        os.symlink(os.path.join(self.programs, "aliquot-hook"), os.path.join(image, "aliquot-hook"))
        with open(self.kit.shim, "rb") as library:
            self.write("image/VERSION", f"kit-{hashlib.sha256(library.read()).hexdigest()[:12]}\n")

    def host_process(self):
        """This process, which starts the containers' programs, is one of the host and sees the kubelet's mounts."""
        own = f"proc/{os.getpid()}"
        os.makedirs(os.path.join(self.folder, own), exist_ok=True)
        self.write(f"{own}/cgroup", "0::/system.slice/containerd.service\n")
        for name in ("stat", "status"):
            with contextlib.suppress(FileExistsError):
                os.symlink(f"/proc/{os.getpid()}/{name}", os.path.join(self.folder, own, name))
        self.write(f"{own}/mountinfo", mounts("/", [(container.limit_device, "/", LIMIT_FILES.format(container.uid))
                                                    for container in self.containers]))

    def java(self, main, *arguments):
        jars = ":".join(os.path.join(self.programs, f"aliquot-device-plugin{name}.jar") for name in ("", "-tests"))
        # A kit that was built with JDK 21 does not know all options of the image, which has JDK 25.
        return [os.path.join(self.programs, "java", "bin", "java"), "-XX:+IgnoreUnrecognizedVMOptions",
                f"@{os.path.join(self.programs, 'java.options')}", "-cp", jars, f"io.aliquot.deviceplugin.{main}",
                *map(str, arguments)]

    def start(self):
        """Starts the agent's process and waits until it is ready."""
        settings = {"NODE_NAME": NODE, "ALIQUOT_KUBELET_ROOT": os.path.join(self.folder, "kubelet"),
                    "ALIQUOT_STATE_DIR": self.state, "ALIQUOT_DEVICE_INJECTION": "runtime",
                    "ALIQUOT_METRICS_PORT": str(self.metrics_port), "ALIQUOT_REPORT_PORT": str(self.report_port),
                    "MALLOC_ARENA_MAX": "2"}
        self.process = subprocess.Popen(self.java("AgentWithoutCluster", self.api_server, self.folder),
                                        env={**self.kit.environment, **settings}, stdin=subprocess.DEVNULL,
                                        stdout=self.log, stderr=subprocess.STDOUT)
        begun = time.monotonic()
        self.until("the agent is ready", self.is_ready, self.kit.arguments.timeout)
        self.seconds_to_start = time.monotonic() - begun

    def kill(self):
        self.process.kill()
        self.process.wait()

    def close(self):
        if self.process is not None and self.process.poll() is None:
            self.kill()
        self.stand_ins.stop()

    def ask(self, do, **more):
        """Asks the stand-ins; see StandIns."""
        self.stand_ins.stdin.write(json.dumps({"do": do, **more}) + "\n")
        self.stand_ins.stdin.flush()
        answer = self.stand_ins.read_line()
        expect("error" not in answer, f"{do}: {answer.get('error')}")
        return answer

    def end_of_log(self):
        self.log.seek(0)
        lines = self.log.read().strip().splitlines()
        return "; the agent's log ends: " + " | ".join(lines[-3:]) if lines else "; the agent's log is empty"

    def until(self, what, read, seconds=30):
        """Reads twice a second until the result is true, and returns it."""
        end = time.monotonic() + seconds
        while True:
            expect(self.process.poll() is None,
                   f"the agent has ended with {self.process.returncode}{self.end_of_log()}")
            try:
                found, reason = read(), ""
            except Fail as failure:
                found, reason = None, f"; {failure}"
            if found:
                return found
            expect(time.monotonic() < end, f"not within {seconds:g} s: {what}{reason}{self.end_of_log()}")
            time.sleep(0.5)

    def node(self):
        return self.ask("node")

    def inventory(self):
        """What the agent has written to the Node; None before it has."""
        text = self.node()["metadata"]["annotations"].get("aliquot.io/gpus")
        return json.loads(text) if text else None

    def gpu(self, uuid):
        return next((gpu for gpu in (self.inventory() or {"gpus": []})["gpus"] if gpu["uuid"] == uuid), None)

    def report(self):
        """What the agent tells the scheduler, which says in its request what each container may use."""
        return self.ask("report", allocation={
            "gpus": [], "pods": [],
            "limits": [{"namespace": NAMESPACE, "pod": container.pod, "uid": container.uid, "container": "main",
                        "gpu": gpu, "memoryMiB": self.kit.limit, "cores": container.cores, "policy": container.policy,
                        "priority": container.priority, "held": "share"}
                       for container in self.containers for gpu in container.gpus]})

    def use(self, container):
        """The container's use of the tested GPU in a report; None if it is not in it."""
        return next((use for use in self.report()["containers"]
                     if use["uid"] == container.uid and use["gpu"] == self.kit.uuid), None)

    def of_gpu(self):
        return next((use for use in self.report()["gpus"] if use["gpu"] == self.kit.uuid), None)

    def page(self, path):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}{path}", timeout=5) as page:
            return page.read().decode()

    def metric(self, name, **labels):
        """The sum of the metric's values with these labels; None if there is none."""
        wanted = [f'{label}="{value}"' for label, value in labels.items()]
        found = [float(line.split(" ")[-1]) for line in self.page("/metrics").splitlines()
                 if re.match(name + "[{ ]", line) and all(each in line for each in wanted)]
        return sum(found) if found else None

    def is_ready(self):
        with contextlib.suppress(OSError):
            return self.page("/readyz") == "ok\n"
        return False


class PodContainer(Container):
    """A container whose region and agent's file are those of the agent's answer to Allocate. The agent finds its
    processes by what a kubelet and a container runtime leave on a host: cgroups, links to logs and mounts."""

    def __init__(self, agent, cores=0, policy="fixed", priority="normal", context=0):
        super().__init__(agent.kit, cores, policy, context, priority=priority, arbiter=False)
        self.agent, self.pod = agent, f"pod-{agent.kit.slots}"
        self.uid, self.id = str(uuid.uuid4()), os.urandom(32).hex()
        self.limit_device = f"0:{100 + agent.kit.slots}"
        self.cgroup = os.path.join("kubepods", "besteffort", f"pod{self.uid}", self.id)

    def __enter__(self):
        agent = self.agent
        self.mounts = agent.ask("allocate", pod=self.pod, slot=next(agent.slots))["mounts"]
        self.region = self.mounts["/usr/local/aliquot/region"]
        # The same library is preloaded from the kit's folder: /dev/shm may be mounted noexec.
        [library] = [host for host in self.mounts.values() if host.endswith("/libaliquot.so")]
        expect(filecmp.cmp(library, agent.kit.shim, shallow=False), f"{library} is not the tested library")
        self.environment.update(ALIQUOT_REGION=self.region, ALIQUOT_AGENT=self.mounts["/usr/local/aliquot/agent"])
        os.makedirs(os.path.join(agent.folder, "cgroups", self.cgroup))
        os.symlink(f"/var/log/pods/{NAMESPACE}_{self.pod}_{self.uid}/main/0.log",
                   os.path.join(agent.folder, "logs", f"{self.pod}_{NAMESPACE}_main-{self.id}.log"))
        agent.containers.append(self)
        agent.host_process()
        agent.report()
        return self

    def add(self, pid):
        super().add(pid)
        own = os.path.join(self.agent.folder, "proc", str(pid))
        os.makedirs(own)
        for name in ("stat", "status"):
            os.symlink(f"/proc/{pid}/{name}", os.path.join(own, name))
        of_state = [(STATE_DEVICE, "/" + os.path.relpath(host, self.agent.state), inside)
                    for inside, host in self.mounts.items()]
        self.agent.write(f"proc/{pid}/mountinfo", mounts("/", [
            (self.limit_device, "/", "/etc/aliquot"), ("0:3", "/nvidia-smi", "/usr/bin/nvidia-smi"), *of_state]))
        self.agent.write(f"proc/{pid}/cgroup", f"0::/{self.cgroup}\n")
        self.agent.write(f"cgroups/{self.cgroup}/cgroup.procs", "".join(f"{each}\n" for each in self.pids))

    def __exit__(self, *ignored):
        agent = self.agent
        agent.containers.remove(self)
        with contextlib.suppress(Fail):  # a check that has failed has said so
            agent.ask("end", pod=self.pod)
        os.unlink(os.path.join(agent.folder, "logs", f"{self.pod}_{NAMESPACE}_main-{self.id}.log"))
        for name in (f"cgroups/kubepods/besteffort/pod{self.uid}", *(f"proc/{pid}" for pid in self.pids)):
            shutil.rmtree(os.path.join(agent.folder, name))
        super().__exit__()


def mounts(root, more):
    """A mountinfo of a root and mounts on it, each a file system, a path in it and a path of the process."""
    lines = [f"1 0 0:1 {root} / rw - tmpfs tmpfs rw"]
    lines += [f"{i + 2} 1 {device} {source} {point} rw - tmpfs tmpfs rw" for i, (device, source, point) in
              enumerate(more)]
    return "".join(line + "\n" for line in lines)


def free_ports(count):
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
