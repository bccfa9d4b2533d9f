package io.aliquot.lab;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.names.Labels;
import io.aliquot.api.names.Resources;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.client.KubernetesClientException;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;

/** Pods that the chart's policies refuse. The scheduler's tests have what its webhook refuses. */
@ExtendWith(LabExtension.class)
class AdmissionRefusalsIT {
    @Test
    void aPodThatBypassesTheWebhookIsRefusedByAnAdmissionPolicy(Lab lab, TestNamespace namespace) {
        lab.kubectl("label", "namespace", namespace.name(), Labels.WEBHOOK + "=" + Labels.WEBHOOK_IGNORE)
                .expectSuccess();
        // The API server sees the label a moment later; until then it calls the webhook, which admits the pod.
        Pod bypassing = Pods.withLimits(lab, "bypassing", Map.of(Resources.VGPU, "1"));
        TestNamespace.awaitTrue("a refusal", TestNamespace.EVENTUALLY, () -> {
            try {
                namespace.create(bypassing);
                namespace.delete("bypassing");
                return false;
            } catch (KubernetesClientException e) {
                assertThat(e.getCode()).isEqualTo(403);
                assertThat(e.getMessage())
                        .contains("ValidatingAdmissionPolicy")
                        .contains("the namespace " + namespace.name() + " has the label aliquot.io/webhook=ignore");
                return true;
            }
        });
    }
}
