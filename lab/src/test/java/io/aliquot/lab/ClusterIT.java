package io.aliquot.lab;

import static org.assertj.core.api.Assertions.assertThat;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;

/** The lab itself works as a Kubernetes cluster. */
@ExtendWith(LabExtension.class)
class ClusterIT {
    @Test
    void aPodRunsAndExecutesCommands(Lab lab, TestNamespace namespace) {
        namespace.run(Pods.withoutGpu(lab, "plain"));

        assertThat(namespace.exec("plain", "echo", "hello").expectSuccess()).isEqualTo("hello\n");
        assertThat(namespace.exec("plain", "false").exit()).isEqualTo(1);
    }
}
