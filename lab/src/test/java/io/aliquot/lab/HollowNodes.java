package io.aliquot.lab;

import static java.nio.charset.StandardCharsets.UTF_8;

import io.aliquot.api.Annotations;
import io.aliquot.api.Labels;
import io.aliquot.api.Resources;
import io.fabric8.kubernetes.api.model.NodeBuilder;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.api.model.Quantity;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientException;
import io.fabric8.kubernetes.client.dsl.base.PatchContext;
import io.fabric8.kubernetes.client.dsl.base.PatchType;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.UUID;
import java.util.regex.Pattern;

/**
 * Nodes that nobody stands behind, with the GPUs of a real one under other names: pods are bound there as anywhere and
 * never start, so that many can come and go.
 */
final class HollowNodes implements AutoCloseable {
    private static final int CONFLICT = 409;
    private static final String LABEL = "aliquot-lab/hollow";

    private final Lab lab;
    private final int count;

    HollowNodes(Lab lab, int count) {
        this.lab = lab;
        this.count = count;
        close(); // what a killed test has left
        String real = Optional.ofNullable(lab.client()
                        .nodes()
                        .withName(lab.nodes().get(0))
                        .get()
                        .getMetadata()
                        .getAnnotations()
                        .get(Annotations.GPUS))
                .orElseThrow(() -> new AssertionError("node " + lab.nodes().get(0) + " has no inventory"));
        try {
            for (int i = 0; i < count; i++) {
                make("hollow-" + i, real);
            }
        } catch (RuntimeException e) {
            close();
            throw e;
        }
    }

    int count() {
        return count;
    }

    private void make(String name, String inventory) {
        lab.client()
                .resource(new NodeBuilder()
                        .withNewMetadata()
                        .withName(name)
                        .addToLabels(Labels.GPU, Labels.GPU_ON)
                        .addToLabels("kubernetes.io/hostname", name)
                        .addToLabels(LABEL, "")
                        .endMetadata()
                        .withNewSpec()
                        // else the DaemonSet would send an agent there, which would never be ready
                        .addNewTaint()
                        .withKey(LABEL)
                        .withEffect("NoSchedule")
                        .endTaint()
                        .endSpec()
                        .build())
                .create();
        try (KubernetesClient kubelet = lab.as("system:node:" + name, Map.of());
                KubernetesClient agent = lab.as(
                        "system:serviceaccount:" + Lab.NAMESPACE + ":aliquot-device-plugin",
                        Map.of("authentication.kubernetes.io%2Fnode-name", List.of(name)))) {
            report(kubelet, name);
            String own = Pattern.compile("GPU-[0-9a-f-]{36}")
                    .matcher(inventory)
                    .replaceAll(match -> "GPU-" + UUID.nameUUIDFromBytes((name + match.group()).getBytes(UTF_8)));
            agent.nodes()
                    .withName(name)
                    .patch(
                            PatchContext.of(PatchType.JSON_MERGE),
                            "{\"metadata\":{\"annotations\":{\"" + Annotations.GPUS + "\":" + quoted(own) + "}}}");
        }
    }

    /** Again while others change the new node, too: controllers give it taints and addresses. */
    private static void report(KubernetesClient kubelet, String name) {
        for (int tries = 1; ; tries++) {
            try {
                kubelet.nodes()
                        .withName(name)
                        .editStatus(node -> new NodeBuilder(node)
                                .editOrNewStatus()
                                .withCapacity(resources())
                                .withAllocatable(resources())
                                .endStatus()
                                .build());
                return;
            } catch (KubernetesClientException e) {
                if (e.getCode() != CONFLICT || tries == 10) {
                    throw e;
                }
            }
        }
    }

    private static String quoted(String text) {
        return "\"" + text.replace("\\", "\\\\").replace("\"", "\\\"").replace("\n", "\\n") + "\"";
    }

    private static Map<String, Quantity> resources() {
        var resources = new HashMap<String, Quantity>();
        Map.of(
                        "cpu",
                        "64",
                        "memory",
                        "512Gi",
                        "pods",
                        "250",
                        Resources.GPU,
                        "20",
                        Resources.MEMORY,
                        Integer.toString(2 * 81920),
                        Resources.CORES,
                        "200",
                        Resources.MEMORY_PERCENTAGE,
                        "200")
                .forEach((name, amount) -> resources.put(name, new Quantity(amount)));
        return resources;
    }

    /** The pod, for these nodes alone. */
    static Pod only(Pod pod) {
        return pod.edit()
                .editSpec()
                .addToNodeSelector(LABEL, "")
                .addNewToleration()
                .withOperator("Exists")
                .endToleration()
                .endSpec()
                .build();
    }

    @Override
    public void close() {
        lab.client().nodes().withLabel(LABEL).delete();
    }
}
