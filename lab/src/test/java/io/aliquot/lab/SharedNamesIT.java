package io.aliquot.lab;

import static io.aliquot.lab.TestNamespace.EVENTUALLY;
import static io.aliquot.lab.TestNamespace.awaitTrue;
import static java.nio.charset.StandardCharsets.UTF_8;
import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.foreign.ForeignResources;
import io.aliquot.api.names.Resources;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.api.model.PodSpec;
import io.fabric8.kubernetes.client.KubernetesClientException;
import java.io.ByteArrayInputStream;
import java.io.InputStream;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.api.parallel.Isolated;

/** The release with {@code sharedNames=true}, beside HAMi's webhook. */
@ExtendWith(LabExtension.class)
@Isolated
class SharedNamesIT {
    /** As HAMi's chart renders it (charts/hami/templates/scheduler/webhook.yaml); HAMi itself does not run. */
    private static final String HAMI_WEBHOOK = """
            apiVersion: admissionregistration.k8s.io/v1
            kind: MutatingWebhookConfiguration
            metadata: {name: hami-webhook}
            webhooks:
            - name: vgpu.hami.io
              admissionReviewVersions: [v1beta1]
              clientConfig: {service: {name: hami-scheduler, namespace: hami, path: /webhook/mutating, port: 443}}
              failurePolicy: Ignore
              matchPolicy: Equivalent
              namespaceSelector:
                matchExpressions:
                - {key: hami.io/webhook, operator: NotIn, values: [ignore]}
                - {key: kubernetes.io/metadata.name, operator: In, values: [%s]}
              objectSelector: {matchExpressions: [{key: hami.io/webhook, operator: NotIn, values: [ignore]}]}
              reinvocationPolicy: Never
              rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods], scope: "*"}]
              sideEffects: None
              timeoutSeconds: 10
            """;

    @Test
    void whereNamesAreSharedHamisPodsAreLeftAloneAndAliquotsAreLabeled(Lab lab, TestNamespace namespace) {
        Map<String, String> limits = Map.of(ForeignResources.NVIDIA_GPU, "1", Resources.MEMORY, "3000");
        lab.client().load(stream(HAMI_WEBHOOK.formatted(namespace.name()))).create();
        upgrade(lab, "sharedNames=true");
        try {
            awaitTrue(
                    "HAMi's pod is left alone",
                    EVENTUALLY,
                    () -> getsScheduler(namespace, limits, "default-scheduler"));
            Pod hami = Pods.withLimits(lab, "hami", limits);
            hami.getSpec().setSchedulerName("hami-scheduler");
            hami.getSpec().setNodeName("elsewhere");

            PodSpec stored = namespace.create(hami).getSpec();

            assertThat(stored.getSchedulerName()).isEqualTo("hami-scheduler");
            assertThat(stored.getContainers().get(0).getEnv()).isEmpty();
            assertThat(stored.getContainers().get(0).getResources().getLimits())
                    .isEqualTo(
                            hami.getSpec().getContainers().get(0).getResources().getLimits());
            OwnershipIT.assertTranslated(namespace.run(Pods.labeled(Pods.withLimits(lab, "labeled", limits))));
            namespace.run(Pods.withLimits(lab, "vgpu", Map.of(Resources.VGPU, "1", Resources.MEMORY, "3000")));
        } finally {
            upgrade(lab, "sharedNames=false");
            lab.client().load(stream(HAMI_WEBHOOK.formatted(namespace.name()))).delete();
            awaitTrue(
                    "memory makes a pod Aliquot's again",
                    EVENTUALLY,
                    () -> getsScheduler(namespace, limits, "aliquot-scheduler"));
        }
    }

    /** Whether a pod gets this scheduler. After an upgrade, webhooks and policies change at different moments. */
    private static boolean getsScheduler(TestNamespace namespace, Map<String, String> limits, String expected) {
        try {
            return namespace
                    .client()
                    .resource(Pods.withLimits(namespace.lab(), "probe", limits))
                    .inNamespace(namespace.name())
                    .dryRun()
                    .create()
                    .getSpec()
                    .getSchedulerName()
                    .equals(expected);
        } catch (KubernetesClientException e) {
            return false;
        }
    }

    private static void upgrade(Lab lab, String value) {
        lab.aliquot(
                        "helm",
                        "upgrade",
                        "aliquot",
                        lab.root().resolve("charts/aliquot").toString(),
                        "--namespace",
                        Lab.NAMESPACE,
                        "--reuse-values",
                        "--set",
                        value)
                .expectSuccess();
    }

    private static InputStream stream(String text) {
        return new ByteArrayInputStream(text.getBytes(UTF_8));
    }
}
