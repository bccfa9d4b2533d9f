package io.aliquot.scheduler.apiserver.client;

import com.google.protobuf.ByteString;
import com.google.protobuf.DiscardUnknownFieldsParser;
import com.google.protobuf.InvalidProtocolBufferException;
import com.google.protobuf.Message;
import com.google.protobuf.Parser;
import io.aliquot.scheduler.apiserver.client.proto.KubernetesProto;
import io.fabric8.kubernetes.api.model.Container;
import io.fabric8.kubernetes.api.model.ContainerState;
import io.fabric8.kubernetes.api.model.ContainerStateTerminated;
import io.fabric8.kubernetes.api.model.ContainerStatus;
import io.fabric8.kubernetes.api.model.KubernetesResource;
import io.fabric8.kubernetes.api.model.ListMeta;
import io.fabric8.kubernetes.api.model.ManagedFieldsEntry;
import io.fabric8.kubernetes.api.model.Node;
import io.fabric8.kubernetes.api.model.NodeList;
import io.fabric8.kubernetes.api.model.NodeRuntimeHandler;
import io.fabric8.kubernetes.api.model.NodeRuntimeHandlerFeatures;
import io.fabric8.kubernetes.api.model.NodeStatus;
import io.fabric8.kubernetes.api.model.ObjectMeta;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.api.model.PodCondition;
import io.fabric8.kubernetes.api.model.PodList;
import io.fabric8.kubernetes.api.model.PodSchedulingGate;
import io.fabric8.kubernetes.api.model.PodSpec;
import io.fabric8.kubernetes.api.model.PodStatus;
import io.fabric8.kubernetes.api.model.Quantity;
import io.fabric8.kubernetes.api.model.ResourceRequirements;
import io.fabric8.kubernetes.api.model.Status;
import io.fabric8.kubernetes.api.model.WatchEvent;
import java.io.IOException;
import java.time.Instant;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * Decodes pods and nodes, their lists and their watch events from Kubernetes' protobuf encoding into fabric8's classes.
 * The result has only the fields that {@code kubernetes.proto} lists.
 *
 * <p>Hand-written, because fabric8 reads JSON only, which costs the API server three times and this process ten times as
 * much.
 */
final class ProtobufDecoder {
    /** Precedes each object (Kubernetes API concepts, protobuf encoding). */
    private static final byte[] MAGIC = {'k', '8', 's', 0};

    private ProtobufDecoder() {}

    static boolean isProtobuf(byte[] bytes) {
        return bytes.length >= MAGIC.length && Arrays.equals(bytes, 0, MAGIC.length, MAGIC, 0, MAGIC.length);
    }

    /** Decodes a {@link PodList}, a {@link NodeList}, a {@link Pod}, a {@link Node} or a {@link Status}. */
    static KubernetesResource decode(byte[] bytes) throws IOException {
        if (!isProtobuf(bytes)) {
            throw new InvalidProtocolBufferException("expected Kubernetes' protobuf encoding, found other bytes");
        }
        return object(parse(
                KubernetesProto.Unknown.parser(),
                ByteString.copyFrom(bytes, MAGIC.length, bytes.length - MAGIC.length)));
    }

    /** Decodes a watch event of a {@link Pod}, a {@link Node} or a {@link Status}. */
    static WatchEvent decodeEvent(byte[] bytes) throws IOException {
        KubernetesProto.WatchEvent read = parse(KubernetesProto.WatchEvent.parser(), ByteString.copyFrom(bytes));
        return new WatchEvent(decode(read.getObject().getRaw().toByteArray()), read.getType());
    }

    private static <T extends Message> T parse(Parser<T> parser, ByteString bytes)
            throws InvalidProtocolBufferException {
        return DiscardUnknownFieldsParser.wrap(parser).parseFrom(bytes);
    }

    private static KubernetesResource object(KubernetesProto.Unknown envelope) throws IOException {
        String kind = envelope.getTypeMeta().getKind();
        if (!envelope.hasRaw()) {
            throw new InvalidProtocolBufferException("expected an object of kind " + kind + ", found none");
        }
        ByteString raw = envelope.getRaw();
        return switch (kind) {
            case "PodList" -> {
                KubernetesProto.PodList list = parse(KubernetesProto.PodList.parser(), raw);
                yield new PodList(
                        null,
                        list.getItemsList().stream().map(ProtobufDecoder::pod).toList(),
                        null,
                        listMeta(list.getMetadata()));
            }
            case "NodeList" -> {
                KubernetesProto.NodeList list = parse(KubernetesProto.NodeList.parser(), raw);
                yield new NodeList(
                        null,
                        list.getItemsList().stream().map(ProtobufDecoder::node).toList(),
                        null,
                        listMeta(list.getMetadata()));
            }
            case "Pod" -> pod(parse(KubernetesProto.Pod.parser(), raw));
            case "Node" -> node(parse(KubernetesProto.Node.parser(), raw));
            case "Status" -> status(parse(KubernetesProto.Status.parser(), raw));
            default -> throw new InvalidProtocolBufferException("expected pods or nodes, found kind " + kind);
        };
    }

    private static ListMeta listMeta(KubernetesProto.ListMeta read) {
        var metadata = new ListMeta();
        metadata.setResourceVersion(read.getResourceVersion());
        metadata.setContinue(read.getContinue());
        return metadata;
    }

    private static Status status(KubernetesProto.Status read) {
        var status = new Status();
        status.setStatus(read.getStatus());
        status.setMessage(read.getMessage());
        status.setReason(read.getReason());
        status.setCode(read.getCode());
        return status;
    }

    private static Pod pod(KubernetesProto.Pod read) {
        var pod = new Pod();
        pod.setMetadata(metadata(read.getMetadata()));
        pod.setSpec(podSpec(read.getSpec()));
        pod.setStatus(podStatus(read.getStatus()));
        return pod;
    }

    private static Node node(KubernetesProto.Node read) {
        var status = new NodeStatus();
        status.setAllocatable(quantities(read.getStatus().getAllocatableMap()));
        status.setRuntimeHandlers(read.getStatus().getRuntimeHandlersList().stream()
                .map(ProtobufDecoder::runtimeHandler)
                .toList());
        var node = new Node();
        node.setMetadata(metadata(read.getMetadata()));
        node.setStatus(status);
        return node;
    }

    private static NodeRuntimeHandler runtimeHandler(KubernetesProto.NodeRuntimeHandler read) {
        var features = new NodeRuntimeHandlerFeatures();
        features.setUserNamespaces(read.getFeatures().getUserNamespaces());
        return new NodeRuntimeHandler(features, read.getName());
    }

    private static ObjectMeta metadata(KubernetesProto.ObjectMeta read) {
        var metadata = new ObjectMeta();
        metadata.setName(read.getName());
        metadata.setNamespace(nullIfEmpty(read.getNamespace()));
        metadata.setUid(read.getUid());
        metadata.setResourceVersion(read.getResourceVersion());
        metadata.setCreationTimestamp(time(read.getCreationTimestamp()));
        metadata.setDeletionTimestamp(time(read.getDeletionTimestamp()));
        if (read.hasDeletionGracePeriodSeconds()) {
            metadata.setDeletionGracePeriodSeconds(read.getDeletionGracePeriodSeconds());
        }
        metadata.setLabels(read.getLabelsMap());
        metadata.setAnnotations(read.getAnnotationsMap());
        metadata.setManagedFields(statusWrites(read.getManagedFieldsList()));
        return metadata;
    }

    /** When each writer wrote the status last; what wrote other fields is left out. */
    private static List<ManagedFieldsEntry> statusWrites(List<KubernetesProto.ManagedFieldsEntry> read) {
        return read.stream()
                .filter(write -> write.getSubresource().equals("status"))
                .map(write -> {
                    var entry = new ManagedFieldsEntry();
                    entry.setSubresource(write.getSubresource());
                    entry.setTime(time(write.getTime()));
                    return entry;
                })
                .toList();
    }

    private static PodSpec podSpec(KubernetesProto.PodSpec read) {
        var spec = new PodSpec();
        spec.setContainers(containers(read.getContainersList()));
        spec.setInitContainers(containers(read.getInitContainersList()));
        spec.setRestartPolicy(nullIfEmpty(read.getRestartPolicy()));
        if (read.hasTerminationGracePeriodSeconds()) {
            spec.setTerminationGracePeriodSeconds(read.getTerminationGracePeriodSeconds());
        }
        spec.setServiceAccountName(nullIfEmpty(read.getServiceAccountName()));
        spec.setNodeName(nullIfEmpty(read.getNodeName()));
        spec.setSchedulerName(nullIfEmpty(read.getSchedulerName()));
        if (read.hasPriority()) {
            spec.setPriority(read.getPriority());
        }
        spec.setPreemptionPolicy(nullIfEmpty(read.getPreemptionPolicy()));
        spec.setSchedulingGates(read.getSchedulingGatesList().stream()
                .map(gate -> new PodSchedulingGate(gate.getName()))
                .toList());
        spec.setPriorityClassName(nullIfEmpty(read.getPriorityClassName()));
        if (read.hasActiveDeadlineSeconds()) {
            spec.setActiveDeadlineSeconds(read.getActiveDeadlineSeconds());
        }
        spec.setRuntimeClassName(nullIfEmpty(read.getRuntimeClassName()));
        if (read.hasHostUsers()) {
            spec.setHostUsers(read.getHostUsers());
        }
        spec.setOverhead(quantities(read.getOverheadMap()));
        if (read.hasResources()) {
            spec.setResources(resources(read.getResources()));
        }
        return spec;
    }

    private static List<Container> containers(List<KubernetesProto.Container> read) {
        return read.stream().map(ProtobufDecoder::container).toList();
    }

    private static Container container(KubernetesProto.Container read) {
        var container = new Container();
        container.setName(read.getName());
        container.setResources(resources(read.getResources()));
        container.setRestartPolicy(nullIfEmpty(read.getRestartPolicy()));
        return container;
    }

    private static ResourceRequirements resources(KubernetesProto.ResourceRequirements read) {
        var resources = new ResourceRequirements();
        resources.setLimits(quantities(read.getLimitsMap()));
        resources.setRequests(quantities(read.getRequestsMap()));
        return resources;
    }

    private static PodStatus podStatus(KubernetesProto.PodStatus read) {
        var status = new PodStatus();
        status.setPhase(nullIfEmpty(read.getPhase()));
        status.setConditions(read.getConditionsList().stream()
                .map(ProtobufDecoder::condition)
                .toList());
        status.setMessage(nullIfEmpty(read.getMessage()));
        status.setPodIP(nullIfEmpty(read.getPodIP()));
        status.setContainerStatuses(containerStatuses(read.getContainerStatusesList()));
        status.setInitContainerStatuses(containerStatuses(read.getInitContainerStatusesList()));
        status.setAllocatedResources(quantities(read.getAllocatedResourcesMap()));
        if (read.hasResources()) {
            status.setResources(resources(read.getResources()));
        }
        return status;
    }

    /** Those with resources or an end, which are all that is read of them. */
    private static List<ContainerStatus> containerStatuses(List<KubernetesProto.ContainerStatus> read) {
        return read.stream()
                .filter(status -> status.hasResources() || status.getState().hasTerminated())
                .map(ProtobufDecoder::containerStatus)
                .toList();
    }

    private static ContainerStatus containerStatus(KubernetesProto.ContainerStatus read) {
        var status = new ContainerStatus();
        status.setName(read.getName());
        status.setAllocatedResources(quantities(read.getAllocatedResourcesMap()));
        if (read.hasResources()) {
            status.setResources(resources(read.getResources()));
        }
        if (read.getState().hasTerminated()) {
            var terminated = new ContainerStateTerminated();
            terminated.setExitCode(read.getState().getTerminated().getExitCode());
            status.setState(new ContainerState(null, terminated, null));
        }
        return status;
    }

    private static PodCondition condition(KubernetesProto.PodCondition read) {
        var condition = new PodCondition();
        condition.setType(read.getType());
        condition.setStatus(read.getStatus());
        condition.setLastTransitionTime(time(read.getLastTransitionTime()));
        condition.setReason(nullIfEmpty(read.getReason()));
        condition.setMessage(nullIfEmpty(read.getMessage()));
        return condition;
    }

    private static Map<String, Quantity> quantities(Map<String, KubernetesProto.Quantity> read) {
        var quantities = new LinkedHashMap<String, Quantity>();
        read.forEach((name, quantity) ->
                quantities.put(name, Quantity.parse(quantity.hasString() ? quantity.getString() : "0")));
        return quantities;
    }

    /** Null for an empty message, which means no time. */
    private static @Nullable String time(KubernetesProto.Time read) {
        return read.hasSeconds() ? Instant.ofEpochSecond(read.getSeconds()).toString() : null;
    }

    /** fabric8 has null where JSON leaves out an empty string. */
    private static @Nullable String nullIfEmpty(String text) {
        return text.isEmpty() ? null : text;
    }
}
