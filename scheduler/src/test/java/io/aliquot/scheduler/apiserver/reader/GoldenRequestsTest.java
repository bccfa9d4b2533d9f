package io.aliquot.scheduler.apiserver.reader;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.nodes.Gpu;
import io.aliquot.api.pods.Placement;
import io.aliquot.scheduler.placement.ContainerGpuRequest;
import io.aliquot.scheduler.placement.PodGpuRequest;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.client.utils.KubernetesSerialization;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/** The GPU requests of the pods of {@code GoldenManifestsTest}, after admission: {@code requests.txt} beside each. */
class GoldenRequestsTest {
    private static final Path FOLDER = Path.of("src/test/resources/golden");
    private static final KubernetesSerialization YAML = new KubernetesSerialization();

    /** One GPU of each, of which the requests say which they take. */
    private static final List<String> MODELS = List.of(
            "NVIDIA A100-SXM4-80GB",
            "NVIDIA A10",
            "Tesla V100-SXM2-32GB",
            "NVIDIA GeForce GTX 1080 Ti",
            "NVIDIA GeForce RTX 2080 Ti");

    private static final List<Gpu> GPUS = IntStream.range(0, MODELS.size())
            .mapToObj(i -> new Gpu(
                    "GPU-8f6e8f0c-000%d-4a5b-9c3d-00000000000%d".formatted(i + 1, i + 1),
                    i,
                    MODELS.get(i),
                    16_384,
                    0,
                    -1,
                    Gpu.HEALTHY,
                    Gpu.SHIM,
                    Map.of()))
            .toList();

    static List<Path> admitted() {
        try (Stream<Path> files = Files.walk(FOLDER)) {
            return files.filter(file -> file.endsWith("admitted.yaml")).sorted().toList();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    @ParameterizedTest
    @MethodSource("admitted")
    void createdPodsHaveTheseGpuRequests(Path admitted) throws IOException {
        var requests = new StringBuilder();
        for (String document : Files.readString(admitted).split("(?m)^---$", -1)) {
            if (!document.isBlank()) {
                requests.append(print(PodReader.gpuRequest(YAML.unmarshal(document, Pod.class))));
            }
        }
        Path file = admitted.resolveSibling("asks.txt");
        if (Boolean.getBoolean("aliquot.golden.write")) {
            Files.writeString(file, requests);
        }
        assertThat(requests.toString()).isEqualTo(Files.readString(file));
    }

    private static String print(PodGpuRequest request) {
        if (request.containers().isEmpty()) {
            return "no GPU\n";
        }
        var text = new StringBuilder();
        for (ContainerGpuRequest container : request.containers()) {
            text.append("%s: %d x %s, cores %d%s%n"
                    .formatted(
                            container.name(),
                            container.request().vgpus(),
                            container.request().memory(),
                            container.request().cores(),
                            container.request().exclusive() ? ", exclusive" : ""));
        }
        text.append("  placement: node %s, GPU %s%s%n"
                .formatted(
                        request.nodePlacement().map(Placement::print).orElse("-"),
                        request.gpuPlacement().map(Placement::print).orElse("-"),
                        request.topology() ? ", linked best" : ""));
        request.numa().ifPresent(numa -> text.append("  NUMA: %s%n".formatted(numa.print())));
        text.append("  policy: %s, priority %s%n"
                .formatted(request.corePolicy().print(), request.priority().print()));
        String taken = GPUS.stream().filter(request::takes).map(Gpu::model).collect(Collectors.joining(", "));
        return text.append("  takes: %s%n".formatted(taken)).toString();
    }
}
