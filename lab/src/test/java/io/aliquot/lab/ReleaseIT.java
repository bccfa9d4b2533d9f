package io.aliquot.lab;

import static io.aliquot.lab.LabScripts.bash;
import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.lab.LabScripts.Result;
import io.fabric8.kubernetes.api.model.Container;
import io.fabric8.kubernetes.api.model.Pod;
import java.nio.file.Path;
import java.util.List;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.api.parallel.Isolated;

/**
 * The release that {@link ReleaseTest} has built, from a registry inside the lab that is the only source of chart and images:
 * {@code --long release}.
 */
@ExtendWith(LabExtension.class)
@Isolated
@LongTier.Only
class ReleaseIT {
    @TempDir
    @SuppressWarnings("NullAway.Init")
    private Path folder;

    @Test
    void helmInstallsItAndAPodGetsItsShare(Lab lab, TestNamespace namespace) throws Exception {
        try (var registry = Registry.inLab(folder)) {
            publish(registry.address());
            lab.aliquot("helm", "uninstall", "aliquot", "--namespace", Lab.NAMESPACE, "--wait")
                    .expectSuccess();

            lab.aliquot(
                            "helm",
                            "install",
                            "aliquot",
                            "oci://" + registry.address() + "/r/charts/aliquot",
                            "--plain-http",
                            "--version",
                            bash("project_version").output(),
                            "--namespace",
                            Lab.NAMESPACE,
                            "--create-namespace",
                            "--values",
                            lab.root().resolve("lab/gpus.yaml").toString(),
                            "--set",
                            "imageRegistry=" + registry.address(),
                            "--set", // the lab's kubelets do not count it
                            "ephemeralStorage.request=,ephemeralStorage.limit=")
                    .expectSuccess();
            lab.awaitSchedulers();
            lab.awaitAgents();

            assertThat(images(lab)).hasSize(4).allMatch(image -> image.startsWith(registry.address()));
            namespace.run(Pods.withGpuMemory(lab, "share", 3000));
            assertThat(namespace.exec("share", "vgpu-sample", "info").expectSuccess())
                    .contains("3000 MiB");
        }
    }

    /**
     * Once the kubelet has pulled an image from the registry, it takes that of the lab's own name, which is the same one, for
     * absent (KEP-2535).
     */
    @AfterAll
    static void removeTheLab(Lab lab) {
        lab.aliquot("down").expectSuccess();
    }

    /** Publishes the release, and kube-scheduler's image, from the lab's network. */
    private static void publish(String registry) {
        Result published = bash("find_lab; \"${in_network[@]}\" bash \"$root/lab/step.sh\" publish_release " + registry
                + "/r '' 2>&1 && \"${in_network[@]}\" $(release_program crane) push $(image_file kube-scheduler) "
                + registry + "/kube-scheduler:v$kubernetes_version 2>&1");
        assertThat(published.success()).as(published.output()).isTrue();
    }

    /** The distinct images of the installed pods. */
    private static List<String> images(Lab lab) {
        return lab.client().pods().inNamespace(Lab.NAMESPACE).list().getItems().stream()
                .map(Pod::getSpec)
                .flatMap(spec -> Stream.concat(spec.getContainers().stream(), spec.getInitContainers().stream()))
                .map(Container::getImage)
                .distinct()
                .toList();
    }
}
