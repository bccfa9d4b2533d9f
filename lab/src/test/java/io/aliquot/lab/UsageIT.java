package io.aliquot.lab;

import static io.aliquot.lab.TestNamespace.EVENTUALLY;
import static io.aliquot.lab.TestNamespace.awaitTrue;
import static org.assertj.core.api.Assertions.assertThat;

import io.fabric8.kubernetes.api.model.Pod;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Arrays;
import java.util.OptionalDouble;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;

/** The node agents report what containers use. A CUDA context of the lab's simulated GPUs takes 256 MiB. */
@ExtendWith(LabExtension.class)
class UsageIT {
    private static final int PORT = 9091;
    private static final double MIB = 1 << 20;

    /** One scrape interval, as people set it at least. */
    private static final Duration A_SCRAPE = Duration.ofSeconds(15);

    private static final String MEMORY = "aliquot_container_memory_used_bytes";
    private static final String CHARGED = "kind=\"charged\"";
    private static final String UNATTRIBUTED = "kind=\"unattributed\"";
    private static final Pattern KERNELS = Pattern.compile("busy 5: ([0-9]+) kernels of 1 ms");

    @Test
    void aProgramsMemoryWithItsContextIsItsContainers(Lab lab, TestNamespace namespace) {
        Pod pod = namespace.run(Pods.withGpuMemory(lab, "user", 3000));
        start(namespace, "vgpu-sample alloc 2000 hold");

        awaitTrue("2000 MiB and the context", A_SCRAPE, () -> used(lab, pod) == 2256 * MIB);
        assertThat(value(lab, pod, MEMORY, CHARGED))
                .as("with the context as far as its size was known")
                .hasValue((2000 + contextMiB(pod)) * MIB);
        assertThat(value(lab, pod, "aliquot_container_processes")).hasValue(1);

        namespace.exec("user", "bash", "-c", "kill -KILL $(cat /tmp/started)").expectSuccess();

        awaitTrue(
                "0 after a SIGKILL",
                A_SCRAPE,
                () -> value(lab, pod, MEMORY, CHARGED).orElse(-1) == 0
                        && value(lab, pod, MEMORY, UNATTRIBUTED).orElse(-1) == 0);
        assertThat(value(lab, pod, "aliquot_container_memory_peak_bytes").orElse(0))
                .isBetween(2000 * MIB, 2256 * MIB);
        namespace.delete("user");
        awaitTrue(
                "no series after the pod",
                EVENTUALLY,
                () -> value(lab, pod, MEMORY).isEmpty());
    }

    @Test
    void contextsCountAgainstTheLimit(Lab lab, TestNamespace namespace) {
        Pod pod = namespace.run(Pods.withGpuMemory(lab, "contexts", 3000));
        start(namespace, "vgpu-sample alloc 100 hold");
        awaitTrue("100 MiB and the context", A_SCRAPE, () -> used(lab, pod) == 356 * MIB);

        int free = 3000 - 356 - contextMiB(pod);
        assertThat(namespace
                        .exec("contexts", "vgpu-sample", "alloc", "" + (free + 1), "alloc", "" + free)
                        .expectSuccess())
                .as("3000 MiB without 100, a context, and what is known at once of another one")
                .contains(
                        "alloc " + (free + 1) + " MiB: CUDA_ERROR_OUT_OF_MEMORY",
                        "alloc " + free + " MiB: CUDA_SUCCESS");
        awaitTrue(
                "the refusal is counted",
                A_SCRAPE,
                () -> value(lab, pod, "aliquot_container_denied_allocations_total")
                                .orElse(0)
                        == 1);
        assertThat(namespace
                        .exec("contexts", "vgpu-sample", "sleep", "4", "alloc", "2389", "alloc", "2388")
                        .expectSuccess())
                .as("3000 MiB without two contexts and 100 MiB")
                .contains("alloc 2389 MiB: CUDA_ERROR_OUT_OF_MEMORY", "alloc 2388 MiB: CUDA_SUCCESS");
        awaitTrue(
                "usage with the context, as on a GPU",
                A_SCRAPE,
                () -> namespace.exec("contexts", "nvidia-smi").expectSuccess().contains(" 356MiB / 3000MiB"));
    }

    @Test
    void aProgramThatBypassesTheShimIsFoundByNvmlsFigures(Lab lab, TestNamespace namespace) throws Exception {
        Pod pod = namespace.run(Pods.withGpuMemory(lab, "bypass", 3000));
        String program = resource("bypass.py");
        namespace
                .exec(
                        "bypass",
                        "bash",
                        "-c",
                        "nohup python3 -c \"$1\" 5000 counted > /tmp/out 2>&1 & "
                                + "until grep -q allocated /tmp/out || ! kill -0 $!; do sleep 0.1; done; cat /tmp/out",
                        "-",
                        program)
                .expectSuccess();

        awaitTrue("its memory and its context", A_SCRAPE, () -> used(lab, pod) == 5256 * MIB);
        assertThat(value(lab, pod, MEMORY, CHARGED)).as("what the shim knows").hasValue(contextMiB(pod) * MIB);
        assertThat(namespace.exec("bypass", "vgpu-sample", "alloc", "1").toString())
                .as("another program of its container, which needs a context")
                .contains("CUDA_ERROR_OUT_OF_MEMORY");
        awaitTrue(
                "an event",
                EVENTUALLY,
                () -> namespace.events("bypass").stream()
                        .anyMatch(event -> "GpuMemoryOveruse".equals(event.getReason())
                                && event.getMessage().contains("uses 5256 MiB")
                                && event.getMessage().contains("its limit is 3000 MiB")));
    }

    /** NVML and the region are read at different instants, so they nearly always disagree. */
    @Test
    void aProgramThatAllocatesAndFreesAllTheTimeIsNeverRefused(Lab lab, TestNamespace namespace) throws Exception {
        namespace.run(Pods.withGpuMemory(lab, "hammer", 3000));

        String output = namespace
                .exec("hammer", "python3", "-c", resource("hammer.py"), LongTier.orElse("15", "5"), "2700")
                .expectSuccess();

        assertThat(Integer.parseInt(output.split(" ", -1)[0])).isGreaterThan(1000);
    }

    private static String resource(String name) throws IOException {
        try (InputStream resource = UsageIT.class.getResourceAsStream(name)) {
            return new String(resource.readAllBytes(), StandardCharsets.UTF_8);
        }
    }

    @Test
    void gpuTimeIsThatOfTheContainersKernels(Lab lab, TestNamespace namespace) {
        Pod pod = namespace.run(Pods.withGpuMemory(lab, "busy", 1000));

        // As many kernels as the machine's other work leaves time for.
        String output = namespace
                .exec("busy", "vgpu-sample", "sleep", "3", "busy", "5", "sleep", "3")
                .expectSuccess();
        Matcher kernels = KERNELS.matcher(output);
        assertThat(kernels.find()).as(output).isTrue();
        double seconds = Integer.parseInt(kernels.group(1)) / 1000.0;
        assertThat(seconds).isGreaterThan(0.5);

        awaitTrue("the kernels' GPU time", A_SCRAPE, () -> gpuSeconds(lab, pod) > 0.9 * seconds);
        // On a busy machine the simulated GPU's kernels take longer than they should.
        assertThat(gpuSeconds(lab, pod)).isLessThan(1.25 * seconds);
    }

    @Test
    void theAgentCanReadNoProcessOfTheHost(Lab lab, TestNamespace namespace) {
        Pod agent = lab.agentOf(lab.nodes().getFirst());
        String name = agent.getMetadata().getName();

        for (String file : new String[] {"environ", "maps", "root/etc/passwd"}) {
            Lab.Output output = lab.kubectl("exec", "--namespace", Lab.NAMESPACE, name, "--", "cat", "/proc/1/" + file);
            assertThat(output.exit()).as(output.toString()).isNotZero();
            assertThat(output.err()).contains("ermission denied");
        }
        assertThat(lab.kubectl("exec", "--namespace", Lab.NAMESPACE, name, "--", "cat", "/proc/1/stat")
                        .expectSuccess())
                .as("the host's first process")
                .startsWith("1 ");
    }

    private static void start(TestNamespace namespace, String command) {
        String pod = namespace
                .client()
                .pods()
                .inNamespace(namespace.name())
                .list()
                .getItems()
                .getFirst()
                .getMetadata()
                .getName();
        namespace
                .exec(pod, "bash", "-c", "nohup " + command + " > /dev/null 2>&1 & echo $! > /tmp/started")
                .expectSuccess();
    }

    /** What the limit file charges a process for its context. The model's takes 256 MiB, at least 216 by its architecture. */
    private static int contextMiB(Pod pod) {
        int mib = Allocations.of(pod, Pods.MAIN).getFirst().contextMiB();
        assertThat(mib).isBetween(216, 256);
        return mib;
    }

    private static double used(Lab lab, Pod pod) {
        return value(lab, pod, MEMORY, CHARGED).orElse(0)
                + value(lab, pod, MEMORY, UNATTRIBUTED).orElse(0);
    }

    private static double gpuSeconds(Lab lab, Pod pod) {
        return value(lab, pod, "aliquot_container_gpu_seconds_total").orElse(0);
    }

    /** The value of a metric's series for a pod, with these labels; empty if there is none. */
    static OptionalDouble value(Lab lab, Pod pod, String metric, String... labels) {
        String metrics = Lab.metrics(lab.agentOf(pod.getSpec().getNodeName()), PORT);
        Pattern series = Pattern.compile("(?m)^" + metric + "\\{(.*)} (.*)$");
        return series.matcher(metrics)
                .results()
                .filter(match ->
                        match.group(1).contains("pod=\"" + pod.getMetadata().getName() + "\""))
                .filter(match -> match.group(1)
                        .contains("namespace=\"" + pod.getMetadata().getNamespace() + "\""))
                .filter(match -> Arrays.stream(labels).allMatch(match.group(1)::contains))
                .mapToDouble(match -> Double.parseDouble(match.group(2)))
                .findFirst();
    }
}
