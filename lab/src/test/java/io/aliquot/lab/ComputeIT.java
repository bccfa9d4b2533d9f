package io.aliquot.lab;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.within;

import io.aliquot.api.Resources;
import io.fabric8.kubernetes.api.model.Pod;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;

/** What pods get of a GPU's time. */
@ExtendWith(LabExtension.class)
class ComputeIT {
    /** In points: shares are exact to less, but the two cores that run all of this are busy, too. */
    private static final double TOLERANCE = 5;

    @Test
    void twoPodsThatAskFor30And70PercentOfOneGpuGet30And70(Lab lab, TestNamespace space) {
        Pod thirty = space.run(asking(lab, "thirty", 30));
        Pod seventy = space.run(asking(lab, "seventy", 70));
        assertThat(Allocations.gpu(seventy)).as("one GPU").isEqualTo(Allocations.gpu(thirty));

        keepBusy(space, "thirty");
        keepBusy(space, "seventy");
        sleep(
                space, "thirty",
                16); // the first seconds are one pod's alone, and the costs of kernels are learnt in them

        assertThat(percentOfTheGpu(space, "thirty")).isCloseTo(30, within(TOLERANCE));
        assertThat(percentOfTheGpu(space, "seventy")).isCloseTo(70, within(TOLERANCE));
        assertThat(percentSeenByTheNode(lab, thirty))
                .as("what NVML says on the node")
                .hasSize(2)
                .satisfies(seen -> assertThat(seen.get(0)).isCloseTo(30, within(TOLERANCE)))
                .satisfies(seen -> assertThat(seen.get(1)).isCloseTo(70, within(TOLERANCE)));
    }

    @Test
    void aPodWithoutCompanyGetsNoMoreThanItAskedFor(Lab lab, TestNamespace space) {
        space.run(asking(lab, "alone", 40));

        keepBusy(space, "alone");
        sleep(space, "alone", 12);

        assertThat(percentOfTheGpu(space, "alone")).isCloseTo(40, within(TOLERANCE));
    }

    /** Of the GPU that a pod is on: what each process had of it in the last seconds, the smallest first. */
    private static List<Double> percentSeenByTheNode(Lab lab, Pod pod) {
        String shown = lab.onNode(
                        pod.getSpec().getNodeName(),
                        "sh",
                        "-c",
                        "cd /var/lib/aliquot/fake-driver && LD_LIBRARY_PATH=lib ALIQUOT_FAKE_GPUS=gpus"
                                + " exec bin/nvidia-smi pmon -d 5 -c 1 -i " + Allocations.gpu(pod))
                .expectSuccess();
        return shown.lines()
                .map(line -> line.trim().split(" +", -1))
                .filter(columns -> columns[columns.length - 1].equals("vgpu-sample"))
                .map(columns -> Double.valueOf(columns[3]))
                .sorted()
                .toList();
    }

    private static Pod asking(Lab lab, String name, int cores) {
        return Pods.asking(lab, name, Map.of(Resources.MEMORY, "1000", Resources.CORES, Integer.toString(cores)));
    }

    private static void keepBusy(TestNamespace space, String pod) {
        space.exec(pod, "sh", "-c", "vgpu-sample busy 600 > /tmp/busy 2>&1 &").expectSuccess();
    }

    private static void sleep(TestNamespace space, String pod, int seconds) {
        space.exec(pod, "sleep", Integer.toString(seconds)).expectSuccess();
    }

    /** Kernels of 1 ms that the GPU took in the last ten seconds, of the 1,000 a second that it can take. */
    private static double percentOfTheGpu(TestNamespace space, String pod) {
        return space.exec(pod, "tail", "-n", "10", "/tmp/busy")
                        .expectSuccess()
                        .lines()
                        .filter(line -> line.startsWith("busy: "))
                        .mapToInt(line -> Integer.parseInt(line.split(" ", -1)[1]))
                        .average()
                        .orElseThrow(() -> new AssertionError("nothing was counted"))
                / 10;
    }
}
