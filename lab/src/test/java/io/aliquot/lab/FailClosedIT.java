package io.aliquot.lab;

import static io.aliquot.lab.TestNamespace.EVENTUALLY;
import static io.aliquot.lab.TestNamespace.awaitTrue;
import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.Annotations;
import io.fabric8.kubernetes.client.KubernetesClient;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;

/** A limit file that makes no sense gives no GPU rather than all of it. */
@ExtendWith(LabExtension.class)
class FailClosedIT {
    private static final String ASK = "vgpu-sample alloc 1 2>&1";

    @Test
    void aLimitFileThatIsEmptyTruncatedOrHugeStopsTheProgramWithOneLine(Lab lab, TestNamespace space) {
        space.run(Pods.memory(lab, "limited", 3000));
        String good = space.annotation("limited", Annotations.vgpu(Pods.MAIN));
        assertThat(space.exec("limited", "bash", "-c", ASK).expectSuccess()).contains("CUDA_SUCCESS");

        try (KubernetesClient scheduler =
                lab.as("system:serviceaccount:" + Lab.NAMESPACE + ":aliquot-scheduler", Map.of())) {
            for (String bad : new String[] {
                "", good.substring(0, good.indexOf("memory=") + 9), "é" + good, good + "#".repeat(200_000)
            }) {
                rewrite(lab, scheduler, space, bad);

                String said = space.exec("limited", "bash", "-c", ASK).out();

                assertThat(said).doesNotContain("CUDA_SUCCESS");
                assertThat(said.lines().filter(line -> line.contains("/etc/aliquot/vgpu")))
                        .as(said)
                        .hasSize(1);
                assertThat(space.exec("limited", "cat", "/etc/hostname").expectSuccess())
                        .as("what uses no GPU goes on")
                        .isEqualTo("limited\n");
            }
            rewrite(lab, scheduler, space, good);
        }
        assertThat(space.exec("limited", "bash", "-c", ASK).expectSuccess()).contains("CUDA_SUCCESS");
    }

    /** As a resize by the leader. */
    private static void rewrite(Lab lab, KubernetesClient scheduler, TestNamespace space, String limits) {
        scheduler
                .pods()
                .inNamespace(space.name())
                .withName("limited")
                .edit(pod -> Pods.annotated(
                        pod,
                        Map.of(
                                Annotations.vgpu(Pods.MAIN),
                                limits,
                                Annotations.RESIZE_FENCE,
                                new SchedulerReplicas(lab).fence().print())));
        awaitTrue(
                "the file says it",
                EVENTUALLY,
                () -> space.exec("limited", "cat", "/etc/aliquot/vgpu").out().equals(limits));
    }
}
