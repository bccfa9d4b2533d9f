package io.aliquot.lab;

import static io.aliquot.lab.TestNamespace.awaitTrue;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.within;

import io.aliquot.api.names.Annotations;
import io.aliquot.api.names.Resources;
import io.fabric8.kubernetes.api.model.Pod;
import java.time.Duration;
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

    private static final Duration SOON = Duration.ofSeconds(60);

    @Test
    void fixedPodsGetTheirCoresAndAnElasticOneWhatIsIdleUntilItsOwnerHasWork(Lab lab, TestNamespace namespace) {
        Pod owner = namespace.run(podWithCores(lab, "owner", 30));
        Pod elastic = namespace.run(
                Pods.withAnnotations(podWithCores(lab, "elastic", 40), Map.of(Annotations.CORE_POLICY, "elastic")));
        Pod alone = namespace.run(podWithCores(lab, "alone", 40));
        assertThat(Allocations.gpuOf(elastic)).as("one GPU").isEqualTo(Allocations.gpuOf(owner));
        assertThat(Allocations.gpuOf(alone)).as("another GPU").isNotEqualTo(Allocations.gpuOf(owner));

        for (String pod : List.of("owner", "elastic", "alone")) {
            startKernels(namespace, pod);
        }
        // In the first seconds one pod runs alone, and the shim learns the cost of kernels.
        namespace.exec("owner", "sleep", "11").expectSuccess();

        assertThat(utilizationCountedByThePod(namespace, "owner")).isCloseTo(30, within(TOLERANCE));
        assertThat(utilizationCountedByThePod(namespace, "elastic"))
                .as("30 % more")
                .isCloseTo(70, within(TOLERANCE));
        assertThat(utilizationCountedByThePod(namespace, "alone"))
                .as("no more than its limit")
                .isCloseTo(40, within(TOLERANCE));
        awaitTrue(
                "30 and 70 % by NVML on the node",
                SOON, () -> {
                    List<Double> reported = utilizationReportedByNvml(lab, owner);
                    return reported.size() == 2
                            && Math.abs(reported.get(0) - 30) < TOLERANCE
                            && Math.abs(reported.get(1) - 70) < TOLERANCE;
                });
        awaitUsage(lab, namespace, "elastic", "borrowedPercent", 30, SOON);

        namespace.exec("owner", "sh", "-c", "kill $(cat /tmp/started)").expectSuccess();
        awaitUtilization(namespace, "elastic", 100);
        awaitUsage(lab, namespace, "owner", "lentPercent", 30, SOON);
        startKernels(namespace, "owner");
        awaitUtilization(namespace, "elastic", 70);
        assertThat(utilizationCountedByThePod(namespace, "owner", 3)).isCloseTo(30, within(TOLERANCE));
    }

    /** The figures are of a whole second and at most a second old when kubectl asks; the rest is for kubectl. */
    @Test
    @LongTier.Only
    void theFiguresOfKubectlShowWithinSecondsThatAnOwnersWorkIsBack(Lab lab, TestNamespace namespace) {
        Pod owner = namespace.run(podWithCores(lab, "owner", 30));
        Pod elastic = namespace.run(
                Pods.withAnnotations(podWithCores(lab, "elastic", 40), Map.of(Annotations.CORE_POLICY, "elastic")));
        assertThat(Allocations.gpuOf(elastic)).as("one GPU").isEqualTo(Allocations.gpuOf(owner));
        startKernels(namespace, "elastic");
        awaitUsage(lab, namespace, "elastic", "utilizationPercent", 100, SOON);

        for (int repetition = 0; repetition < 3; repetition++) {
            startKernels(namespace, "owner");
            awaitUsage(lab, namespace, "owner", "utilizationPercent", 30, Duration.ofSeconds(4));
            namespace.exec("owner", "sh", "-c", "kill $(cat /tmp/started)").expectSuccess();
            awaitUsage(lab, namespace, "owner", "lentPercent", 30, Duration.ofSeconds(4));
        }
    }

    @Test
    @LongTier.Only
    void aPodOfLowPriorityGivesWayToOneOfHighPriorityDownToAFloor(Lab lab, TestNamespace namespace) {
        Pod low = namespace.run(elasticPod(lab, "low", "low"));
        Pod high = namespace.run(elasticPod(lab, "high", "high"));
        assertThat(Allocations.gpuOf(high)).as("one GPU").isEqualTo(Allocations.gpuOf(low));
        startKernels(namespace, "low");
        awaitUtilization(namespace, "low", 100);

        startKernels(namespace, "high");
        awaitUtilization(namespace, "high", 95);
        awaitUtilization(namespace, "low", 5); // the floor

        namespace.exec("high", "sh", "-c", "kill $(cat /tmp/started)").expectSuccess();
        awaitUtilization(namespace, "low", 100);
    }

    private static Pod elasticPod(Lab lab, String name, String priority) {
        return Pods.withAnnotations(
                podWithCores(lab, name, 40),
                Map.of(Annotations.CORE_POLICY, "elastic", Annotations.PRIORITY, priority));
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
                .exec(pod, "sh", "-c", "vgpu-sample busy 600 > /tmp/busy 2>&1 & echo $! > /tmp/started")
                .expectSuccess();
    }

    private static void awaitUsage(
            Lab lab, TestNamespace namespace, String pod, String figure, int percent, Duration within) {
        String path = "jsonpath={.status.usage." + figure + "}";
        awaitTrue(figure + " of " + pod + ": " + percent, within, () -> {
            String found = lab.kubectl("get", "gpushare", pod, "--namespace", namespace.name(), "--output", path)
                    .expectSuccess();
            return !found.isEmpty() && Math.abs(Integer.parseInt(found) - percent) <= TOLERANCE;
        });
    }

    /** Waits until a pod, whose kernels {@code vgpu-sample} counts in /tmp/busy, uses so much of its GPU. */
    static void awaitUtilization(TestNamespace namespace, String pod, int percent) {
        awaitTrue(
                percent + " % for 2 s",
                SOON,
                () -> Math.abs(utilizationCountedByThePod(namespace, pod, 2) - percent) < TOLERANCE);
    }

    private static double utilizationCountedByThePod(TestNamespace namespace, String pod) {
        return utilizationCountedByThePod(namespace, pod, 5);
    }

    /** Utilization in the last seconds, from the number of 1 ms kernels a second: a GPU can run 1,000. */
    private static double utilizationCountedByThePod(TestNamespace namespace, String pod, int seconds) {
        return namespace
                        .exec(pod, "tail", "-n", Integer.toString(seconds), "/tmp/busy")
                        .expectSuccess()
                        .lines()
                        .filter(line -> line.startsWith("busy: "))
                        .mapToInt(line -> Integer.parseInt(line.split(" ", -1)[1]))
                        .average()
                        .orElse(0)
                / 10;
    }
}
