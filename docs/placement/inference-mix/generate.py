#!/usr/bin/env python3
"""Writes this folder's two CSV files: a made-up cluster that serves inference, and its pods. Equal files each time."""

import random

DAYS = 86400
HOURS = 3600

# model, memory of a GPU in MiB, GPUs of a node, CPUs, GiB, nodes
NODES = [
    ("T4", 15360, 4, 48, 192, 24),
    ("L4", 23034, 4, 64, 256, 24),
    ("A10", 23028, 4, 64, 256, 16),
    ("L40S", 46068, 8, 128, 768, 16),
    ("A100-40G", 40960, 8, 96, 1024, 16),
    ("A100-80G", 81920, 8, 128, 1024, 12),
    ("H100", 81559, 8, 192, 2048, 8),
    ("H100", 81559, 4, 96, 1024, 4),
]

LARGE = "A100-80G|H100"
WHOLE = [(None, None)]  # No memory, no cores: the GPUs are its own.


def shares(gibibytes, cores):
    return [(int(g * 1024), c) for g in gibibytes for c in cores]


# kind, pods, CPUs, GiB, GPUs, GiB and percent of each GPU, models (empty: any), median lifetime
PODS = [
    ("embedder", 120, [1, 2], [2, 4], 1, shares([2, 3, 4], [10]), "", 2 * DAYS),
    ("reranker", 60, [1, 2], [4], 1, shares([3, 4], [10, 15]), "", 2 * DAYS),
    ("vision", 60, [1, 2], [4], 1, shares([1.5, 2, 3], [10, 20]), "", 2 * DAYS),
    ("speech", 70, [2, 4], [4, 8], 1, shares([3, 6], [20, 25]), "", 2 * DAYS),
    # A100 and H100 have no video encoder.
    ("video", 60, [4, 8], [8, 16], 1, shares([2, 4], [30, 40]), "T4|L4|A10|L40S", 2 * DAYS),
    ("image-generation", 50, [2, 4], [16], 1, shares([12, 14], [60, 80]), "", 2 * DAYS),
    ("llm-8b-int4", 130, [2, 4], [8, 16], 1, shares([6, 8, 10], [25, 30]), "", 2 * DAYS),
    ("llm-7b-fp16", 110, [4, 8], [16, 32], 1, shares([16, 18, 20], [40, 50]), "", 2 * DAYS),
    ("llm-13b-fp16", 50, [4, 8], [32], 1, shares([28, 32, 40], [60]), "", 2 * DAYS),
    ("llm-13b-two-gpus", 12, [8], [32], 2, WHOLE, "L4|A10", 2 * DAYS),
    ("llm-34b-fp16", 24, [8], [64], 1, WHOLE, LARGE, 2 * DAYS),
    ("llm-70b-fp8", 14, [16], [128], 2, WHOLE, LARGE, 2 * DAYS),
    ("llm-70b-fp16", 20, [16, 32], [128, 256], 4, WHOLE, LARGE, 2 * DAYS),
    ("llm-405b-fp8", 5, [64], [512], 8, WHOLE, "H100", 2 * DAYS),
    ("unshared", 60, [4, 8], [16, 32], 1, WHOLE, "", 2 * DAYS),
    ("notebook", 110, [1, 2, 4], [4, 8, 16], 1, shares([4, 8, 12], [10, 20]), "", 4 * HOURS),
    ("fine-tuning", 24, [8, 16], [64, 128], 1, WHOLE, "A100-40G|A100-80G|H100", 8 * HOURS),
    ("fine-tuning-node", 5, [64], [512], 8, WHOLE, "A100-40G|A100-80G", 8 * HOURS),
    ("gateway", 90, [1, 2, 4], [2, 4, 8], 0, WHOLE, "", 2 * DAYS),
    ("preprocessing", 50, [4, 8, 16], [8, 16, 32], 0, WHOLE, "", HOURS / 2),
]


def write(name, header, rows):
    with open(name, "w", newline="\n") as file:
        file.write(header + "\n")
        file.writelines(",".join(map(str, row)) + "\n" for row in rows)


def main():
    draw = random.Random(1)
    nodes = [
        (f"{model.lower()}-{gpus}-{i:02d}", cpus * 1000, gibibytes * 1024, gpus, model, mebibytes)
        for model, mebibytes, gpus, cpus, gibibytes, count in NODES
        for i in range(count)
    ]
    pods = []
    for kind, count, cpus, gibibytes, gpus, amounts, models, lifetime in PODS:
        for i in range(count):
            cpu, memory, (mebibytes, cores) = draw.choice(cpus), draw.choice(gibibytes), draw.choice(amounts)
            created = draw.randrange(7 * DAYS)
            ended = created + int(draw.lognormvariate(0, 1) * lifetime) + 1
            milli = "" if mebibytes else 1000 if gpus else 0
            pods.append((f"{kind}-{i:03d}", cpu * 1000, memory * 1024, gpus, milli, mebibytes or "", cores or "", models, created, ended))
    pods.sort(key=lambda pod: pod[8])
    write("openb_node_list_gpu_node.csv", "sn,cpu_milli,memory_mib,gpu,model,gpu_memory_mib", nodes)
    write(
        "openb_pod_list_inference.csv",
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_mem_mib,gpu_cores,gpu_spec,creation_time,deletion_time",
        pods,
    )


if __name__ == "__main__":
    main()
