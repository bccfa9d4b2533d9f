package io.aliquot.lab;

import static org.assertj.core.api.Assertions.assertThat;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;

/** The lab itself: a cluster like others. */
@ExtendWith(LabExtension.class)
class ClusterIT {
    @Test
    void aPodRunsAndCommandsRunInIt(Lab lab, TestNamespace space) {
        space.run(Pods.plain(lab, "plain"));

        assertThat(space.exec("plain", "echo", "hello").expectSuccess()).isEqualTo("hello\n");
        assertThat(space.exec("plain", "false").exit()).isEqualTo(1);
    }
}
