package io.aliquot.scheduler.admission;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.foreign.ForeignResources;
import io.aliquot.api.names.Resources;
import io.aliquot.api.pods.Compatibility;
import io.aliquot.api.pods.PodDefaults;
import io.fabric8.kubernetes.client.utils.KubernetesSerialization;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.math.BigInteger;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.node.ObjectNode;

/**
 * Compares the webhook's output for example manifests with golden files: {@code admitted.yaml}, the mutated pods, or
 * {@code refused.txt}, the messages. {@code GoldenRequestsTest} reads the same manifests. After an intended change,
 * {@code -Daliquot.golden.write=true} rewrites the files; review their difference.
 *
 * <p>The manifests have the shape of HAMi's examples for NVIDIA (github.com/Project-HAMi/HAMi, examples/nvidia) and of
 * those in ACK's documentation (Alibaba Cloud, Container Service for Kubernetes: GPU sharing, multi-GPU sharing,
 * allocating computing power, topology-aware scheduling, card models). Those in {@code hami-compatible} are admitted
 * with HAMi's meaning of names.
 */
class GoldenManifestsTest {
    private static final Path FOLDER = Path.of("src/test/resources/golden");
    private static final KubernetesSerialization YAML = new KubernetesSerialization();

    static List<Path> cases() {
        try (Stream<Path> files = Files.walk(FOLDER)) {
            return files.filter(file -> file.endsWith("manifest.yaml"))
                    .map(Path::getParent)
                    .sorted()
                    .toList();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    @Test
    void findsAllManifests() {
        assertThat(cases())
                .map(Path::getParent)
                .map(Path::getFileName)
                .map(Path::toString)
                .contains("hami", "hami-compatible", "ack");
        assertThat(cases()).hasSizeGreaterThan(40);
    }

    @ParameterizedTest
    @MethodSource("cases")
    void admitsOrRefusesThePodsOfAManifestAsRecorded(Path folder) throws IOException {
        var pods = new ArrayList<String>();
        var refusals = new ArrayList<String>();
        for (ObjectNode pod : pods(folder)) {
            Admission admission = admission(folder, pod);
            try {
                ObjectNode admitted = Pods.mutated(admission, pod);
                assertThat(Pods.mutated(admission, admitted)).isEqualTo(admitted);
                pods.add(YAML.asYaml(YAML.unmarshal(admitted.toString(), Map.class)));
            } catch (DeniedException e) {
                refusals.add(e.getMessage() + "\n");
            }
        }
        check(folder.resolve("admitted.yaml"), String.join("", pods));
        check(folder.resolve("refused.txt"), String.join("", refusals));
    }

    /** docs/compatibility.md says of each of HAMi's examples whether it is accepted. */
    @Test
    void theDocumentNamesEachOfHamisExamplesAndWhetherItIsAccepted() throws IOException {
        var documented = new TreeMap<String, Boolean>();
        for (String line : Files.readAllLines(Path.of("../docs/compatibility.md"))) {
            Matcher row = Pattern.compile("\\| (`[a-z`, *-]+) \\| (yes|\\*\\*no\\*\\*) \\|.*")
                    .matcher(line);
            if (row.matches()) {
                Pattern.compile("`([a-z-]+)`")
                        .matcher(row.group(1))
                        .results()
                        .forEach(example ->
                                documented.put(example.group(1), row.group(2).equals("yes")));
            }
        }
        var tested = new TreeMap<String, Boolean>();
        cases().stream()
                .filter(folder -> folder.startsWith(FOLDER.resolve("hami")))
                .forEach(folder ->
                        tested.put(folder.getFileName().toString(), !Files.exists(folder.resolve("refused.txt"))));
        assertThat(tested).hasSize(23).isEqualTo(documented);
    }

    private static void check(Path file, String found) throws IOException {
        if (Boolean.getBoolean("aliquot.golden.write")) {
            if (found.isEmpty()) {
                Files.deleteIfExists(file);
            } else {
                Files.writeString(file, found);
            }
        }
        assertThat(found).isEqualTo(Files.exists(file) ? Files.readString(file) : "");
    }

    /** The webhook that the API server calls, by its conditions, in a namespace labeled aliquot.io/gpu=on. */
    private static Admission admission(Path folder, ObjectNode pod) {
        Compatibility compatibility =
                folder.startsWith(FOLDER.resolve("hami-compatible")) ? Compatibility.HAMI : Compatibility.NONE;
        return Stream.concat(Resources.SUPPORTED.stream(), ForeignResources.NAMES.stream())
                        .anyMatch(resource -> pod.toString().contains('"' + resource + '"'))
                ? new GpuAdmission(
                        "nvidia", name -> Optional.of("nvidia"), false, compatibility, () -> PodDefaults.NONE)
                : new VoidAdmission(Set.of(), node -> true);
    }

    /** The manifest's pods and those that its controllers would create. */
    private static List<ObjectNode> pods(Path folder) throws IOException {
        var pods = new ArrayList<ObjectNode>();
        for (String document : Files.readString(folder.resolve("manifest.yaml")).split("(?m)^---$", -1)) {
            ObjectNode object = Pods.JSON.valueToTree(YAML.unmarshal(document, Map.class));
            if (object.get("kind").stringValue().equals("Pod")) {
                pods.add(asSent(object));
            } else if (object.at("/spec/template") instanceof ObjectNode template) {
                ObjectNode pod =
                        Pods.JSON.createObjectNode().put("apiVersion", "v1").put("kind", "Pod");
                pod.setAll(template);
                String name = object.at("/metadata/name").stringValue();
                pod.withObject("/metadata").put("generateName", name + "-");
                pods.add(asSent(pod));
            }
        }
        assertThat(pods).isNotEmpty();
        return pods;
    }

    /** Adds what kube-apiserver adds before it calls webhooks: canonical amounts, and requests for limits. */
    private static ObjectNode asSent(ObjectNode pod) {
        for (String kind : List.of("initContainers", "containers")) {
            for (JsonNode container : pod.at("/spec/" + kind)) {
                JsonNode limits = container.at("/resources/limits");
                if (limits instanceof ObjectNode amounts) {
                    ObjectNode requests = ((ObjectNode) container).withObject("/resources/requests");
                    for (String name : List.copyOf(amounts.propertyNames())) {
                        String amount = canonical(amounts.get(name).asString(""));
                        amounts.put(name, amount);
                        if (!requests.has(name) || Resources.SUPPORTED.contains(name)) {
                            requests.put(name, amount);
                        }
                    }
                }
            }
        }
        ObjectNode spec = Pods.spec(pod);
        if (!spec.has("schedulerName")) {
            spec.put("schedulerName", "default-scheduler");
        }
        return pod;
    }

    /** 3000 is 3k (k8s.io/apimachinery, pkg/api/resource: canonical form). */
    private static String canonical(String amount) {
        if (!amount.matches("[1-9][0-9]*000")) {
            return amount;
        }
        String[] suffixes = {"", "k", "M", "G"};
        var number = new BigInteger(amount);
        int power = 0;
        while (power < 3 && number.mod(BigInteger.valueOf(1000)).signum() == 0) {
            number = number.divide(BigInteger.valueOf(1000));
            power++;
        }
        return number + suffixes[power];
    }
}
