package io.aliquot.scheduler.kubernetes.client;

import io.fabric8.kubernetes.api.model.HasMetadata;
import io.fabric8.kubernetes.api.model.KubernetesResourceList;
import io.fabric8.kubernetes.api.model.Node;
import io.fabric8.kubernetes.api.model.NodeBuilder;
import io.fabric8.kubernetes.api.model.NodeList;
import io.fabric8.kubernetes.api.model.ObjectMeta;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.api.model.PodBuilder;
import io.fabric8.kubernetes.api.model.PodList;
import io.fabric8.kubernetes.api.model.coordination.v1.Lease;
import io.fabric8.kubernetes.api.model.coordination.v1.LeaseBuilder;
import io.fabric8.kubernetes.api.model.coordination.v1.LeaseList;
import io.fabric8.kubernetes.api.model.policy.v1.PodDisruptionBudget;
import io.fabric8.kubernetes.api.model.policy.v1.PodDisruptionBudgetBuilder;
import io.fabric8.kubernetes.api.model.policy.v1.PodDisruptionBudgetList;
import java.util.function.Function;

/**
 * Objects to be listed and watched.
 *
 * @param what their name, plural, for messages
 * @param path where they are, on the API server
 * @param selector a query's part that chooses among them; empty for all
 * @param encoding how they are sent
 * @param list what a list of them is
 * @param slim makes one that has metadata only
 */
public record ResourceType<T extends HasMetadata>(
        String what,
        String path,
        String selector,
        Encoding encoding,
        Class<? extends KubernetesResourceList<T>> list,
        Function<ObjectMeta, T> slim) {

    /** {@code PROTOBUF} for what {@link ProtobufDecoder} reads. */
    public enum Encoding {
        JSON,
        PROTOBUF
    }

    public static final ResourceType<Pod> PODS = new ResourceType<>(
            "pods",
            "/api/v1/pods",
            "",
            Encoding.PROTOBUF,
            PodList.class,
            metadata -> new PodBuilder().withMetadata(metadata).build());

    public static final ResourceType<Node> NODES = new ResourceType<>(
            "nodes",
            "/api/v1/nodes",
            "",
            Encoding.PROTOBUF,
            NodeList.class,
            metadata -> new NodeBuilder().withMetadata(metadata).build());

    public static final ResourceType<PodDisruptionBudget> DISRUPTION_BUDGETS = new ResourceType<>(
            "disruption budgets",
            "/apis/policy/v1/poddisruptionbudgets",
            "",
            Encoding.JSON,
            PodDisruptionBudgetList.class,
            metadata -> new PodDisruptionBudgetBuilder().withMetadata(metadata).build());

    public static ResourceType<Lease> lease(String namespace, String name) {
        return new ResourceType<>(
                "the scheduler's Lease",
                "/apis/coordination.k8s.io/v1/namespaces/" + namespace + "/leases",
                "fieldSelector=metadata.name%3D" + name,
                Encoding.JSON,
                LeaseList.class,
                metadata -> new LeaseBuilder().withMetadata(metadata).build());
    }
}
