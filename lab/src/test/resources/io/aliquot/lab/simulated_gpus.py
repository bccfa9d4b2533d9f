# Usage: simulated_gpus.py SPECIFICATION FOLDER CONTAINER-FOLDER
# Adds to a CDI specification of NVIDIA's what makes its device nodes work: the files of the simulated GPUs and driver.
import json
import os
import sys

path, host, container = sys.argv[1:]
with open(path) as file:
    specification = json.load(file)
gpus = sorted(name for name in os.listdir(host) if name.startswith("GPU-"))


def mount(owner, name):
    owner["containerEdits"].setdefault("mounts", []).append(
        {"hostPath": f"{host}/{name}", "containerPath": f"{container}/{name}", "options": ["rw", "bind"]})


def device_nodes(device):
    return [node["path"] for node in device["containerEdits"]["deviceNodes"]]


devices = specification["devices"]
gpu_of = {device_nodes(device)[0]: device["name"] for device in devices if device["name"] in gpus}
assert sorted(gpu_of.values()) == gpus, f"{path} does not name {gpus} by UUID: {specification}"
for device in devices:
    for node in device_nodes(device):
        mount(device, gpu_of[node])
mount(specification, ".driver")

# Renamed, as NVIDIA's programs do: containerd reads whole files only.
with open(path + ".new", "w") as file:
    json.dump(specification, file)
os.rename(path + ".new", path)
