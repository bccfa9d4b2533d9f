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

/** A cluster administrator tries to write what only Aliquot's own programs may. */
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
    void aReservedAnnotationIsRefusedWhereverItIsWritten(String key, Lab lab, TestNamespace space) {
        forbidden(() -> space.create(Pods.annotated(Pods.plain(lab, "created"), Map.of(key, "forged"))));
        forbidden(() -> space.create(Pods.annotated(Pods.memory(lab, "created", 1000), Map.of(key, "forged"))));

        space.create(unscheduled(Pods.plain(lab, "pod")));
        String patch = "{\"metadata\":{\"annotations\":{\"" + key + "\":\"forged\"}}}";
        var pod = lab.client().pods().inNamespace(space.name()).withName("pod");
        forbidden(() -> pod.patch(MERGE, patch));
        forbidden(() -> pod.subresource("status").patch(MERGE, patch));

        String binding = """
                {"apiVersion":"v1","kind":"Binding","metadata":{"name":"pod","annotations":{"%s":"forged"}},
                 "target":{"apiVersion":"v1","kind":"Node","name":"%s"}}
                """.formatted(key, lab.nodes().get(0));
        String namespace = "/api/v1/namespaces/" + space.name();
        forbidden(() -> lab.client().raw(namespace + "/pods/pod/binding", "POST", binding));
        forbidden(() -> lab.client().raw(namespace + "/bindings", "POST", binding));

        assertThat(space.annotations("pod")).isEmpty();
        assertThat(TestNamespace.bound(space.get("pod"))).isFalse();
    }

    @Test
    void anAllocationCanBeNeitherChangedNorRemoved(Lab lab, TestNamespace space) {
        Pod held = space.run(Pods.memory(lab, "held", 1000));
        String key = Annotations.vgpu(Pods.MAIN);
        String more = space.annotation("held", key).replace("memory=1000Mi", "memory=80000Mi");
        var pod = lab.client().pods().inNamespace(space.name()).withName("held");

        forbidden(() -> pod.patch(
                MERGE, "{\"metadata\":{\"annotations\":{\"" + key + "\":\"" + more.replace("\n", "\\n") + "\"}}}"));
        forbidden(() -> pod.patch(MERGE, "{\"metadata\":{\"annotations\":{\"" + key + "\":null}}}"));

        assertThat(space.annotations("held"))
                .containsEntry(key, held.getMetadata().getAnnotations().get(key));
        pod.patch(MERGE, "{\"metadata\":{\"annotations\":{\"example.com/mine\":\"yes\"}}}");
        assertThat(space.annotations("held")).containsEntry("example.com/mine", "yes");
    }

    @Test
    void aNodesGpusAreItsOwnAgentsToWrite(Lab lab) {
        String node = lab.nodes().get(0);
        var object = lab.client().nodes().withName(node);
        String more = "{\"status\":{\"capacity\":{\"" + Resources.MEMORY + "\":\"999999\"}}}";
        String annotation = "{\"metadata\":{\"annotations\":{\"" + Annotations.GPUS + "\":\"{}\"}}}";

        forbidden(() -> object.patch(MERGE, annotation));
        forbidden(() -> object.subresource("status").patch(MERGE, annotation));
        forbidden(() -> object.subresource("status").patch(MERGE, more));

        // the agent of another node, by its token's claim
        try (var other = lab.as(
                "system:serviceaccount:" + Lab.NAMESPACE + ":aliquot-device-plugin",
                Map.of(
                        "authentication.kubernetes.io%2Fnode-name",
                        List.of(lab.nodes().get(1))))) {
            forbidden(() -> other.nodes().withName(node).patch(MERGE, annotation));
            forbidden(() -> other.nodes().withName(node).subresource("status").patch(MERGE, more));
        }
        assertThat(Allocations.inventory(lab, node).gpus()).hasSize(2);
    }

    /** A pod that no scheduler takes care of. */
    private static Pod unscheduled(Pod pod) {
        return pod.edit().editSpec().withSchedulerName("nobody").endSpec().build();
    }

    private static void forbidden(ThrowingCallable request) {
        var refusal = catchThrowableOfType(KubernetesClientException.class, request);
        assertThat(refusal).as("a refusal").isNotNull();
        assertThat(refusal.getCode()).as(refusal.getMessage()).isEqualTo(403);
    }
}
