package io.aliquot.lab;

import static io.aliquot.lab.TestNamespace.awaitTrue;
import static org.assertj.core.api.Assertions.assertThat;

import io.fabric8.kubernetes.api.model.Container;
import io.fabric8.kubernetes.api.model.ContainerBuilder;
import io.fabric8.kubernetes.api.model.EnvVarBuilder;
import io.fabric8.kubernetes.api.model.IntOrString;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.api.model.policy.v1.PodDisruptionBudgetBuilder;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;

/** Pods with programs to which their container's limits do not apply are ended. {@link UnlimitedImagesIT} has images. */
@NodeKind.Required(
        value = {NodeKind.DEFAULT_RUNTIME, NodeKind.RUNTIME_CLASS},
        because = "`CdiInjectionIT`: such a container does not start")
@ExtendWith(LabExtension.class)
class LimitsCheckIT {
    private static final Duration IN_TIME = Duration.ofSeconds(30);
    /** From the pods' creation to the start of their programs, on a busy machine. */
    private static final Duration STARTUP = Duration.ofSeconds(15);

    private static final long A_YEAR_SECONDS = 31_536_000;

    /** The first two ignore SIGTERM, have a year to end, and a disruption budget that allows no eviction. */
    @Test
    void podsThatCoverTheirLimitsOrRunAProgramWithoutTheShimAreEnded(Lab lab, TestNamespace namespace)
            throws Exception {
        namespace
                .client()
                .resource(new PodDisruptionBudgetBuilder()
                        .withNewMetadata()
                        .withName("all")
                        .endMetadata()
                        .withNewSpec()
                        .withMinAvailable(new IntOrString(2))
                        .withNewSelector()
                        .withMatchLabels(Map.of("app", "covered"))
                        .endSelector()
                        .endSpec()
                        .build())
                .inNamespace(namespace.name())
                .create();
        long created = System.nanoTime();
        namespace.create(covering(lab, "link-in-volume", "ln -s /etc /x/e", "/x/e"));
        namespace.create(covering(lab, "link-in-image", "true", "/opt/etc"));
        namespace.run(Pods.withGpuMemory(lab, "bypass", 3000));
        namespace
                // MiB, too much to be taken for a context
                .exec("bypass", "bash", "-c", "nohup python3 -c \"$1\" 1000 > /dev/null 2>&1 &", "-", bypass())
                .expectSuccess();

        for (String name : List.of("link-in-volume", "link-in-image")) {
            namespace
                    .client()
                    .pods()
                    .inNamespace(namespace.name())
                    .withName(name)
                    .waitUntilCondition(pod -> pod == null, 2 * IN_TIME.toMillis(), TimeUnit.MILLISECONDS);
            assertThat(Duration.ofNanos(System.nanoTime() - created)).as(name).isLessThan(IN_TIME.plus(STARTUP));
            assertThat(namespace.events(name)).anySatisfy(event -> {
                assertThat(event.getReason()).isEqualTo("GpuLimitsCovered");
                assertThat(event.getMessage()).contains("container main does not see its limits: at /etc/aliquot");
            });
        }
        namespace
                .client()
                .pods()
                .inNamespace(namespace.name())
                .withName("bypass") // which uses no more than its limit
                .waitUntilCondition(pod -> pod == null, IN_TIME.toMillis(), TimeUnit.MILLISECONDS);
        assertThat(namespace.events("bypass"))
                .anySatisfy(event -> assertThat(event.getReason()).isEqualTo("GpuProgramWithoutShim"));
    }

    /** As with a descriptor of the GPU from another container, or the rights to make one: the runtime has given it none. */
    @Test
    void aContainerWithoutAShareThatUsesAGpuBesideOneIsFound(Lab lab, TestNamespace namespace) {
        Container helper = new ContainerBuilder()
                .withName("helper")
                .withImage(lab.sampleImage())
                .withImagePullPolicy("Never")
                .withCommand(
                        "bash",
                        "-c",
                        "LD_LIBRARY_PATH=/fake/lib ALIQUOT_FAKE_GPUS=/fake/gpus vgpu-sample alloc 500 hold")
                .addNewVolumeMount()
                .withName("fake")
                .withMountPath("/fake")
                .endVolumeMount()
                .build();
        namespace.run(Pods.withGpuMemory(lab, "beside", 1000)
                .edit()
                .editSpec()
                .addToContainers(helper)
                .addNewVolume()
                .withName("fake")
                .withNewHostPath()
                .withPath("/var/lib/aliquot/fake-driver")
                .endHostPath()
                .endVolume()
                .endSpec()
                .build());

        awaitTrue(
                "an event about the container without a share",
                IN_TIME.plus(STARTUP),
                () -> namespace.events("beside").stream()
                        .anyMatch(event -> "GpuMemoryOveruse".equals(event.getReason())
                                && event.getMessage().startsWith("container helper uses")
                                && event.getMessage().endsWith("holds no share of it")));
    }

    /** A pod that mounts an empty folder and an empty file over Aliquot's, through a link to /etc. */
    static Pod covering(Lab lab, String name, String link, String etc) {
        Pod pod = Pods.withGpuMemory(lab, name, 3000);
        Container main = pod.getSpec()
                .getContainers()
                .getFirst()
                .edit()
                .withCommand("bash", "-c", "trap '' TERM; vgpu-sample alloc 5000 hold")
                .addNewVolumeMount()
                .withName("x")
                .withMountPath("/x")
                .endVolumeMount()
                .addNewVolumeMount()
                .withName("mine")
                .withMountPath(etc + "/aliquot")
                .endVolumeMount()
                .addNewVolumeMount()
                .withName("mine")
                .withMountPath(etc + "/ld.so.preload")
                .withSubPath("none")
                .endVolumeMount()
                .build();
        Container prepare = new ContainerBuilder()
                .withName("prepare")
                .withImage(lab.sampleImage())
                .withImagePullPolicy("Never")
                .withCommand("bash", "-c", link + "; touch /mine/none")
                .withEnv(new EnvVarBuilder()
                        .withName("NVIDIA_VISIBLE_DEVICES")
                        .withValue("void")
                        .build())
                .addNewVolumeMount()
                .withName("x")
                .withMountPath("/x")
                .endVolumeMount()
                .addNewVolumeMount()
                .withName("mine")
                .withMountPath("/mine")
                .endVolumeMount()
                .build();
        return pod.edit()
                .editMetadata()
                .addToLabels("app", "covered")
                .endMetadata()
                .editSpec()
                .withTerminationGracePeriodSeconds(A_YEAR_SECONDS)
                .withInitContainers(prepare)
                .withContainers(main)
                .addNewVolume()
                .withName("x")
                .withNewEmptyDir()
                .endEmptyDir()
                .endVolume()
                .addNewVolume()
                .withName("mine")
                .withNewEmptyDir()
                .endEmptyDir()
                .endVolume()
                .endSpec()
                .build();
    }

    /** A program that calls the driver behind the shim's back. */
    static String bypass() throws IOException {
        try (InputStream resource = LimitsCheckIT.class.getResourceAsStream("bypass.py")) {
            return new String(resource.readAllBytes(), StandardCharsets.UTF_8);
        }
    }
}
