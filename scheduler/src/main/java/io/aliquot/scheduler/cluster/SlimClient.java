package io.aliquot.scheduler.cluster;

import com.fasterxml.jackson.annotation.JsonIncludeProperties;
import com.fasterxml.jackson.core.type.TypeReference;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.json.JsonMapper;
import io.fabric8.kubernetes.api.model.Container;
import io.fabric8.kubernetes.api.model.Node;
import io.fabric8.kubernetes.api.model.NodeList;
import io.fabric8.kubernetes.api.model.NodeStatus;
import io.fabric8.kubernetes.api.model.ObjectMeta;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.api.model.PodCondition;
import io.fabric8.kubernetes.api.model.PodList;
import io.fabric8.kubernetes.api.model.PodSpec;
import io.fabric8.kubernetes.api.model.PodStatus;
import io.fabric8.kubernetes.api.model.ResourceRequirements;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientBuilder;
import io.fabric8.kubernetes.client.KubernetesClientException;
import io.fabric8.kubernetes.client.utils.KubernetesSerialization;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;

/*
 * Of a pod's kilobytes the readers of this package want some six hundred bytes. No object is ever made of what is not
 * named here or in ProtobufReader: managedFields, env, volumes, probes, most of status. Lists come as protobuf, watches'
 * events as JSON, since the client's watches read nothing else.
 */
/**
 * A client for lists and watches of many objects. Of nodes and pods it gives what {@link NodeReader}, {@link PodReader}
 * and {@link Agents} read, and no more; so nothing that it gave may be written back.
 */
final class SlimClient implements AutoCloseable {
    private final KubernetesClient client;

    /** One that asks the same server, as the same user. */
    SlimClient(KubernetesClient like) {
        KubernetesSerialization serialization = serialization();
        this.client = new KubernetesClientBuilder()
                .withConfig(like.getConfiguration())
                .withKubernetesSerialization(serialization)
                .withHttpClientBuilderConsumer(http -> http.addOrReplaceInterceptor(
                        CompressedLists.class.getName(), new CompressedLists(serialization)))
                .build();
    }

    KubernetesClient kubernetes() {
        return client;
    }

    @Override
    public void close() {
        client.close();
    }

    private static KubernetesSerialization serialization() {
        return new Serialization(JsonMapper.builder()
                .addMixIn(ObjectMeta.class, Metadata.class)
                .addMixIn(PodList.class, Items.class)
                .addMixIn(NodeList.class, Items.class)
                .addMixIn(Pod.class, Whole.class)
                .addMixIn(PodSpec.class, OfPodSpec.class)
                .addMixIn(Container.class, OfContainer.class)
                .addMixIn(ResourceRequirements.class, OfResources.class)
                .addMixIn(PodStatus.class, OfPodStatus.class)
                .addMixIn(PodCondition.class, OfCondition.class)
                .addMixIn(Node.class, OfNode.class)
                .addMixIn(NodeStatus.class, OfNodeStatus.class)
                .build());
    }

    private static final class Serialization extends KubernetesSerialization {
        private Serialization(ObjectMapper mapper) {
            super(mapper, true);
        }

        @Override
        @SuppressWarnings("unchecked") // the type is that of the list that was asked for
        public <T> T unmarshal(InputStream stream, TypeReference<T> type) {
            try {
                byte[] bytes = stream.readAllBytes();
                return ProtobufReader.reads(bytes)
                        ? (T) ProtobufReader.read(bytes)
                        : super.unmarshal(new ByteArrayInputStream(bytes), type);
            } catch (IOException e) {
                throw new KubernetesClientException("cannot read the API server's answer", e);
            }
        }
    }

    @JsonIncludeProperties({
        "namespace",
        "name",
        "uid",
        "resourceVersion",
        "labels",
        "annotations",
        "creationTimestamp",
        "deletionTimestamp"
    })
    private interface Metadata {}

    @JsonIncludeProperties({"metadata", "items"})
    private interface Items {}

    @JsonIncludeProperties({"apiVersion", "kind", "metadata", "spec", "status"})
    private interface Whole {}

    @JsonIncludeProperties({
        "nodeName",
        "initContainers",
        "containers",
        "priority",
        "terminationGracePeriodSeconds",
        "serviceAccountName"
    })
    private interface OfPodSpec {}

    @JsonIncludeProperties({"name", "restartPolicy", "resources"})
    private interface OfContainer {}

    @JsonIncludeProperties({"limits", "requests"})
    private interface OfResources {}

    @JsonIncludeProperties({"phase", "conditions"})
    private interface OfPodStatus {}

    @JsonIncludeProperties({"type", "status", "lastTransitionTime"})
    private interface OfCondition {}

    @JsonIncludeProperties({"apiVersion", "kind", "metadata", "status"})
    private interface OfNode {}

    @JsonIncludeProperties({"allocatable"})
    private interface OfNodeStatus {}
}
