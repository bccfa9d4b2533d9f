package io.aliquot.scheduler.apiserver.client;

import io.fabric8.kubernetes.api.model.HasMetadata;
import io.fabric8.kubernetes.api.model.KubernetesResourceList;
import io.fabric8.kubernetes.api.model.LimitRange;
import io.fabric8.kubernetes.api.model.LimitRangeList;
import io.fabric8.kubernetes.api.model.Node;
import io.fabric8.kubernetes.api.model.NodeList;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.api.model.PodList;
import io.fabric8.kubernetes.api.model.ResourceQuota;
import io.fabric8.kubernetes.api.model.ResourceQuotaList;
import io.fabric8.kubernetes.api.model.coordination.v1.Lease;
import io.fabric8.kubernetes.api.model.coordination.v1.LeaseList;
import io.fabric8.kubernetes.api.model.node.v1.RuntimeClass;
import io.fabric8.kubernetes.api.model.node.v1.RuntimeClassList;
import io.fabric8.kubernetes.api.model.policy.v1.PodDisruptionBudget;
import io.fabric8.kubernetes.api.model.policy.v1.PodDisruptionBudgetList;
import java.util.function.Supplier;

/**
 * A type of objects to list and watch.
 *
 * @param what its name in the plural, for messages
 * @param path of the collection on the API server
 * @param selector a part of the query that selects among the objects; empty for all
 * @param encoding in which the API server sends them
 * @param list the class of their list
 * @param empty makes an object without content
 */
public record ResourceType<T extends HasMetadata>(
        String what,
        String path,
        String selector,
        Encoding encoding,
        Class<? extends KubernetesResourceList<T>> list,
        Supplier<T> empty) {

    /** {@code PROTOBUF} for the types that {@link ProtobufDecoder} decodes. */
    public enum Encoding {
        JSON,
        PROTOBUF
    }

    public static final ResourceType<Pod> PODS =
            new ResourceType<>("pods", "/api/v1/pods", "", Encoding.PROTOBUF, PodList.class, Pod::new);

    public static final ResourceType<Node> NODES =
            new ResourceType<>("nodes", "/api/v1/nodes", "", Encoding.PROTOBUF, NodeList.class, Node::new);

    public static final ResourceType<PodDisruptionBudget> DISRUPTION_BUDGETS = new ResourceType<>(
            "disruption budgets",
            "/apis/policy/v1/poddisruptionbudgets",
            "",
            Encoding.JSON,
            PodDisruptionBudgetList.class,
            PodDisruptionBudget::new);

    public static final ResourceType<ResourceQuota> RESOURCE_QUOTAS = new ResourceType<>(
            "resource quotas",
            "/api/v1/resourcequotas",
            "",
            Encoding.JSON,
            ResourceQuotaList.class,
            ResourceQuota::new);

    public static final ResourceType<LimitRange> LIMIT_RANGES = new ResourceType<>(
            "LimitRanges", "/api/v1/limitranges", "", Encoding.JSON, LimitRangeList.class, LimitRange::new);

    public static final ResourceType<RuntimeClass> RUNTIME_CLASSES = new ResourceType<>(
            "RuntimeClasses",
            "/apis/node.k8s.io/v1/runtimeclasses",
            "",
            Encoding.JSON,
            RuntimeClassList.class,
            RuntimeClass::new);

    public static ResourceType<Lease> lease(String namespace, String name) {
        return new ResourceType<>(
                "the scheduler's Lease",
                "/apis/coordination.k8s.io/v1/namespaces/" + namespace + "/leases",
                "fieldSelector=metadata.name%3D" + name,
                Encoding.JSON,
                LeaseList.class,
                Lease::new);
    }
}
