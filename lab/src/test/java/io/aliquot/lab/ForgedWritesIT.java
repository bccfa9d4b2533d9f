package io.aliquot.lab;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.catchThrowableOfType;

import io.aliquot.api.Annotations;
import io.aliquot.api.Resources;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.client.KubernetesClientException;
import io.fabric8.kubernetes.client.dsl.base.PatchContext;
import io.fabric8.kubernetes.client.dsl.base.PatchType;
import java.util.List;
import java.util.Map;
import org.assertj.core.api.ThrowableAssert.ThrowingCallable;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Writes that only Aliquot's own programs may make are refused to a cluster administrator. */
@ExtendWith(LabExtension.class)
class ForgedWritesIT {
    private static final PatchContext MERGE = PatchContext.of(PatchType.JSON_MERGE);

    @ParameterizedTest
    @ValueSource(
            strings = {
                "aliquot.io/vgpu.main",
                "aliquot.io/visible-devices.main",
                "aliquot.io/fence",
                "aliquot.io/resize-fence"
            })
    void aReservedAnnotationIsRefusedInEveryRequest(String key, Lab lab, TestNamespace namespace) {
        expectForbidden(
                () -> namespace.create(Pods.withAnnotations(Pods.withoutGpu(lab, "created"), Map.of(key, "forged"))));
        Pod restored = namespace.create(
                Pods.withAnnotations(Pods.withGpuMemory(lab, "restored", 1000), Map.of(key, "forged")));
        assertThat(restored.getMetadata().getAnnotations())
                .as("the webhook removes it from a GPU pod")
                .doesNotContainKey(key);

        namespace.create(unscheduled(Pods.withoutGpu(lab, "pod")));
        String patch = "{\"metadata\":{\"annotations\":{\"" + key + "\":\"forged\"}}}";
        var pod = lab.client().pods().inNamespace(namespace.name()).withName("pod");
        expectForbidden(() -> pod.patch(MERGE, patch));
        expectForbidden(() -> pod.subresource("status").patch(MERGE, patch));

        String binding = """
                {"apiVersion":"v1","kind":"Binding","metadata":{"name":"pod","annotations":{"%s":"forged"}},
                 "target":{"apiVersion":"v1","kind":"Node","name":"%s"}}
                """.formatted(key, lab.nodes().get(0));
        String namespacePath = "/api/v1/namespaces/" + namespace.name();
        expectForbidden(() -> lab.client().raw(namespacePath + "/pods/pod/binding", "POST", binding));
        expectForbidden(() -> lab.client().raw(namespacePath + "/bindings", "POST", binding));

        assertThat(namespace.annotations("pod")).isEmpty();
        assertThat(TestNamespace.isBound(namespace.get("pod"))).isFalse();
    }

    @Test
    void anAllocationCanBeNeitherChangedNorRemoved(Lab lab, TestNamespace namespace) {
        Pod held = namespace.run(Pods.withGpuMemory(lab, "held", 1000));
        String key = Annotations.vgpu(Pods.MAIN);
        String more = namespace.annotation("held", key).replace("memory=1000Mi", "memory=80000Mi");
        var pod = lab.client().pods().inNamespace(namespace.name()).withName("held");

        expectForbidden(() -> pod.patch(
                MERGE, "{\"metadata\":{\"annotations\":{\"" + key + "\":\"" + more.replace("\n", "\\n") + "\"}}}"));
        expectForbidden(() -> pod.patch(MERGE, "{\"metadata\":{\"annotations\":{\"" + key + "\":null}}}"));

        assertThat(namespace.annotations("held"))
                .containsEntry(key, held.getMetadata().getAnnotations().get(key));
        pod.patch(MERGE, "{\"metadata\":{\"annotations\":{\"example.com/mine\":\"yes\"}}}");
        assertThat(namespace.annotations("held")).containsEntry("example.com/mine", "yes");
    }

    @Test
    void onlyANodesOwnAgentWritesItsGpus(Lab lab) {
        String node = lab.nodes().get(0);
        var object = lab.client().nodes().withName(node);
        String more = "{\"status\":{\"capacity\":{\"" + Resources.MEMORY + "\":\"999999\"}}}";
        String annotation = "{\"metadata\":{\"annotations\":{\"" + Annotations.GPUS + "\":\"{}\"}}}";

        expectForbidden(() -> object.patch(MERGE, annotation));
        expectForbidden(() -> object.subresource("status").patch(MERGE, annotation));
        expectForbidden(() -> object.subresource("status").patch(MERGE, more));

        // the agent of another node, as its token says
        try (var other = lab.impersonate(
                "system:serviceaccount:" + Lab.NAMESPACE + ":aliquot-device-plugin",
                Map.of(
                        "authentication.kubernetes.io%2Fnode-name",
                        List.of(lab.nodes().get(1))))) {
            expectForbidden(() -> other.nodes().withName(node).patch(MERGE, annotation));
            expectForbidden(
                    () -> other.nodes().withName(node).subresource("status").patch(MERGE, more));
        }
        assertThat(Allocations.inventory(lab, node).gpus()).hasSize(2);
    }

    /** The pod with the name of a scheduler that does not exist. */
    private static Pod unscheduled(Pod pod) {
        return pod.edit()
                .editSpec()
                .withSchedulerName("no-such-scheduler")
                .endSpec()
                .build();
    }

    private static void expectForbidden(ThrowingCallable request) {
        var refusal = catchThrowableOfType(KubernetesClientException.class, request);
        assertThat(refusal).as("a refusal").isNotNull();
        assertThat(refusal.getCode()).as(refusal.getMessage()).isEqualTo(403);
    }
}
