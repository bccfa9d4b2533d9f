package io.aliquot.lab;

import static io.aliquot.lab.TestNamespace.EVENTUALLY;
import static io.aliquot.lab.TestNamespace.awaitTrue;
import static java.util.stream.Collectors.joining;
import static org.assertj.core.api.Assertions.assertThat;

import io.fabric8.kubernetes.api.model.Pod;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.regex.Pattern;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.api.parallel.Isolated;

/**
 * The manifests of docs/manifests.md run. {@code ManifestsIT} of the module scheduler checks what the API server stores, in
 * the gate.
 */
@Isolated
@LongTier.Only
@ExtendWith(LabExtension.class)
class DocumentedManifestsIT {
    private static final Pattern BLOCK = Pattern.compile("(?ms)^```yaml\n(.*?)^```$");
    private static final Pattern NAMESPACE = Pattern.compile("kind: Namespace\nmetadata:\n  name: (\\S+)\n");
    private static final Pattern POD = Pattern.compile("kind: Pod\n");

    /** One after the other: together they need more GPUs than the lab has. */
    @Test
    void eachRunsAndIsUnchangedWhenItIsAppliedAgain(Lab lab) throws IOException {
        String manifests = BLOCK.matcher(Files.readString(lab.root().resolve("docs/manifests.md")))
                .results()
                .map(block -> block.group(1))
                .collect(joining("---\n"))
                .replaceAll("image: \\S+", "image: " + lab.sampleImage() + "\n    imagePullPolicy: Never")
                .replace("\nspec:\n", "\nspec:\n  terminationGracePeriodSeconds: 1\n");
        List<String> objects = List.of(manifests.split("---\n", -1));
        List<String> namespaces = NAMESPACE
                .matcher(manifests)
                .results()
                .map(found -> found.group(1))
                .toList();
        // The lab's GPUs have no MIG instances; MigInstancesIT makes some.
        List<String> pods = objects.stream()
                .filter(object -> POD.matcher(object).find() && !object.contains("nvidia.com/mig-"))
                .toList();
        assertThat(pods).hasSizeGreaterThanOrEqualTo(9);
        Path file = Files.createDirectories(lab.root().resolve("lab/target")).resolve("manifests.yaml");
        try {
            Files.writeString(
                    file,
                    objects.stream()
                            .filter(object -> NAMESPACE.matcher(object).find())
                            .collect(joining("---\n")));
            lab.kubectl("apply", "-f", file.toString()).expectSuccess();
            for (String namespace : namespaces) {
                awaitTrue(
                        "a service account in " + namespace,
                        EVENTUALLY,
                        () -> lab.client()
                                        .serviceAccounts()
                                        .inNamespace(namespace)
                                        .withName("default")
                                        .get()
                                != null);
            }
            for (String pod : pods) {
                Files.writeString(file, pod);
                lab.kubectl("apply", "-f", file.toString()).expectSuccess();
                awaitTrue(pod, EVENTUALLY, () -> running(lab, namespaces).size() == 1);
                List<String> version = running(lab, namespaces);

                lab.kubectl("apply", "-f", file.toString()).expectSuccess();
                assertThat(lab.kubectl("diff", "-f", file.toString()).expectSuccess())
                        .isEmpty();

                assertThat(running(lab, namespaces)).isEqualTo(version);
                lab.kubectl("delete", "-f", file.toString()).expectSuccess();
            }
        } finally {
            for (String namespace : namespaces) {
                lab.kubectl("delete", "namespace", namespace, "--ignore-not-found")
                        .expectSuccess();
            }
        }
    }

    /** The running pods with their UIDs and allocations; their status goes on changing. */
    private static List<String> running(Lab lab, List<String> namespaces) {
        return namespaces.stream()
                .flatMap(namespace -> lab.client().pods().inNamespace(namespace).list().getItems().stream())
                .filter(pod -> "Running".equals(pod.getStatus().getPhase()))
                .map(DocumentedManifestsIT::identity)
                .sorted()
                .toList();
    }

    private static String identity(Pod pod) {
        return pod.getMetadata().getName() + " " + pod.getMetadata().getUid() + " "
                + pod.getSpec().getContainers().getFirst().getResources() + " "
                + pod.getMetadata().getAnnotations().get("aliquot.io/vgpu.main");
    }
}
