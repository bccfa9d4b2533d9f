package io.aliquot.lab;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.within;

import io.aliquot.api.names.Annotations;
import io.aliquot.api.names.Resources;
import io.fabric8.kubernetes.api.model.Pod;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.api.parallel.Isolated;

/** How the time of a GPU is divided between pods. */
@ExtendWith(LabExtension.class)
@Isolated
class ComputeIT {
    /** In percentage points. The limits are enforced more exactly; the two busy cores that run the lab add noise. */
    private static final double TOLERANCE = 5;

    @Test
    void podsThatRequest30And70PercentOfAGpuGetThatAndOneAloneGetsNoMoreThanItsLimit(Lab lab, TestNamespace namespace) {
        Pod thirty = namespace.run(podWithCores(lab, "thirty", 30));
        Pod seventy = namespace.run(podWithCores(lab, "seventy", 70));
        Pod alone = namespace.run(podWithCores(lab, "alone", 40));
        assertThat(Allocations.gpuOf(seventy)).as("one GPU").isEqualTo(Allocations.gpuOf(thirty));
        assertThat(Allocations.gpuOf(alone)).as("another GPU").isNotEqualTo(Allocations.gpuOf(thirty));

        for (String pod : List.of("thirty", "seventy", "alone")) {
            startKernels(namespace, pod);
        }
        // In the first seconds one pod runs alone, and the shim learns the cost of kernels.
        namespace.exec("thirty", "sleep", "16").expectSuccess();

        assertThat(utilizationCountedByThePod(namespace, "thirty")).isCloseTo(30, within(TOLERANCE));
        assertThat(utilizationCountedByThePod(namespace, "seventy")).isCloseTo(70, within(TOLERANCE));
        assertThat(utilizationCountedByThePod(namespace, "alone")).isCloseTo(40, within(TOLERANCE));
        assertThat(utilizationReportedByNvml(lab, thirty))
                .as("utilization that NVML reports on the node")
                .hasSize(2)
                .satisfies(utilization -> assertThat(utilization.get(0)).isCloseTo(30, within(TOLERANCE)))
                .satisfies(utilization -> assertThat(utilization.get(1)).isCloseTo(70, within(TOLERANCE)));
    }

    /** Each process's utilization of the pod's GPU in the last seconds, as NVML reports it, in ascending order. */
    private static List<Double> utilizationReportedByNvml(Lab lab, Pod pod) {
        String output = lab.onNode(
                        pod.getSpec().getNodeName(),
                        "sh",
                        "-c",
                        "cd /var/lib/aliquot/fake-driver && LD_LIBRARY_PATH=lib ALIQUOT_FAKE_GPUS=gpus"
                                + " exec bin/nvidia-smi pmon -d 5 -c 1 -i " + Allocations.gpuOf(pod))
                .expectSuccess();
        return output.lines()
                .map(line -> line.trim().split(" +", -1))
                .filter(columns -> columns[columns.length - 1].equals("vgpu-sample"))
                .map(columns -> Double.valueOf(columns[3]))
                .sorted()
                .toList();
    }

    private static Pod podWithCores(Lab lab, String name, int cores) {
        Pod pod =
                Pods.withLimits(lab, name, Map.of(Resources.MEMORY, "1000", Resources.CORES, Integer.toString(cores)));
        return Pods.withAnnotations(
                pod, Map.of(Annotations.NODE_PLACEMENT, "binpack", Annotations.GPU_PLACEMENT, "binpack"));
    }

    private static void startKernels(TestNamespace namespace, String pod) {
        namespace
                .exec(pod, "sh", "-c", "vgpu-sample busy 600 > /tmp/busy 2>&1 &")
                .expectSuccess();
    }

    /** Utilization in the last ten seconds, from the number of 1 ms kernels a second: a GPU can run 1,000. */
    private static double utilizationCountedByThePod(TestNamespace namespace, String pod) {
        return namespace
                        .exec(pod, "tail", "-n", "10", "/tmp/busy")
                        .expectSuccess()
                        .lines()
                        .filter(line -> line.startsWith("busy: "))
                        .mapToInt(line -> Integer.parseInt(line.split(" ", -1)[1]))
                        .average()
                        .orElseThrow(() -> new AssertionError("the pod counted no kernels"))
                / 10;
    }
}
