package io.aliquot.scheduler.cluster;

import com.google.protobuf.CodedInputStream;
import io.fabric8.kubernetes.api.model.Container;
import io.fabric8.kubernetes.api.model.KubernetesResource;
import io.fabric8.kubernetes.api.model.ListMeta;
import io.fabric8.kubernetes.api.model.Node;
import io.fabric8.kubernetes.api.model.NodeList;
import io.fabric8.kubernetes.api.model.NodeStatus;
import io.fabric8.kubernetes.api.model.ObjectMeta;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.api.model.PodCondition;
import io.fabric8.kubernetes.api.model.PodList;
import io.fabric8.kubernetes.api.model.PodSpec;
import io.fabric8.kubernetes.api.model.PodStatus;
import io.fabric8.kubernetes.api.model.Quantity;
import io.fabric8.kubernetes.api.model.ResourceRequirements;
import io.fabric8.kubernetes.api.model.Status;
import io.fabric8.kubernetes.api.model.WatchEvent;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/*
 * Fields by their numbers in k8s.io/api core/v1/generated.proto, and in k8s.io/apimachinery runtime, meta/v1 and
 * api/resource generated.proto, which never change. What is not named here, managedFields among it, is stepped over by
 * its length, so that a list costs the server a third and us a tenth of what it costs as JSON.
 */
/**
 * Reads pods and nodes, lists of them and what watches tell of them, in Kubernetes' protobuf: of each object what this
 * package's readers want, some six hundred bytes of a pod's kilobytes.
 */
final class ProtobufDecoder {
    /** Before every object (Kubernetes API concepts, protobuf encoding). */
    private static final byte[] MAGIC = {'k', '8', 's', 0};

    private final CodedInputStream in;

    private ProtobufDecoder(CodedInputStream in) {
        this.in = in;
    }

    static boolean reads(byte[] bytes) {
        return bytes.length >= MAGIC.length && Arrays.equals(bytes, 0, MAGIC.length, MAGIC, 0, MAGIC.length);
    }

    /** A {@link PodList}, a {@link NodeList} or a {@link Status}. */
    static KubernetesResource read(byte[] bytes) throws IOException {
        var in = CodedInputStream.newInstance(bytes, MAGIC.length, bytes.length - MAGIC.length);
        return new ProtobufDecoder(in).envelope();
    }

    /** One of a watch, whose object is a {@link Pod}, a {@link Node} or a {@link Status}. */
    static WatchEvent event(byte[] bytes) throws IOException {
        return new ProtobufDecoder(CodedInputStream.newInstance(bytes)).event();
    }

    private WatchEvent event() throws IOException {
        var event = new WatchEvent();
        fields(number -> {
            switch (number) {
                case 1 -> event.setType(in.readString());
                case 2 ->
                    message(raw -> {
                        if (raw == 1) {
                            event.setObject(embedded());
                        } else {
                            skip();
                        }
                    });
                default -> skip();
            }
        });
        return event;
    }

    private KubernetesResource embedded() throws IOException {
        int outer = in.pushLimit(in.readRawVarint32());
        in.skipRawBytes(MAGIC.length);
        KubernetesResource object = envelope();
        in.popLimit(outer);
        return object;
    }

    /** Has read a field's tag, and reads its value. */
    private interface Field {
        void read(int number) throws IOException;
    }

    private interface Reader<T> {
        T read() throws IOException;
    }

    private void fields(Field field) throws IOException {
        for (int tag = in.readTag(); tag != 0; tag = in.readTag()) {
            field.read(tag >>> 3);
        }
    }

    private void message(Field field) throws IOException {
        int outer = in.pushLimit(in.readRawVarint32());
        fields(field);
        in.popLimit(outer);
    }

    private void skip() throws IOException {
        in.skipField(in.getLastTag());
    }

    private KubernetesResource envelope() throws IOException {
        var kind = new String[] {""};
        var found = new KubernetesResource[1];
        fields(number -> {
            switch (number) {
                case 1 -> kind[0] = kind();
                case 2 -> found[0] = object(kind[0]);
                default -> skip();
            }
        });
        if (found[0] == null) {
            throw new IOException("expected an object of kind " + kind[0] + ", found none");
        }
        return found[0];
    }

    private String kind() throws IOException {
        var kind = new String[] {""};
        message(number -> {
            if (number == 2) {
                kind[0] = in.readString();
            } else {
                skip();
            }
        });
        return kind[0];
    }

    private KubernetesResource object(String kind) throws IOException {
        return switch (kind) {
            case "PodList" -> {
                var list = new PodList();
                list.setMetadata(new ListMeta());
                list.setItems(list(list.getMetadata(), this::pod));
                yield list;
            }
            case "NodeList" -> {
                var list = new NodeList();
                list.setMetadata(new ListMeta());
                list.setItems(list(list.getMetadata(), this::node));
                yield list;
            }
            case "Pod" -> pod();
            case "Node" -> node();
            case "Status" -> status();
            default -> throw new IOException("expected pods or nodes, found kind " + kind);
        };
    }

    private <T> List<T> list(ListMeta metadata, Reader<T> item) throws IOException {
        var items = new ArrayList<T>();
        message(number -> {
            switch (number) {
                case 1 -> listMeta(metadata);
                case 2 -> items.add(item.read());
                default -> skip();
            }
        });
        return items;
    }

    private void listMeta(ListMeta metadata) throws IOException {
        message(number -> {
            switch (number) {
                case 2 -> metadata.setResourceVersion(in.readString());
                case 3 -> metadata.setContinue(in.readString());
                default -> skip();
            }
        });
    }

    private Status status() throws IOException {
        var status = new Status();
        message(number -> {
            switch (number) {
                case 2 -> status.setStatus(in.readString());
                case 3 -> status.setMessage(in.readString());
                case 4 -> status.setReason(in.readString());
                case 6 -> status.setCode(in.readInt32());
                default -> skip();
            }
        });
        return status;
    }

    private Pod pod() throws IOException {
        var pod = new Pod();
        message(number -> {
            switch (number) {
                case 1 -> pod.setMetadata(metadata());
                case 2 -> pod.setSpec(podSpec());
                case 3 -> pod.setStatus(podStatus());
                default -> skip();
            }
        });
        return pod;
    }

    private Node node() throws IOException {
        var node = new Node();
        message(number -> {
            switch (number) {
                case 1 -> node.setMetadata(metadata());
                case 3 -> node.setStatus(nodeStatus());
                default -> skip();
            }
        });
        return node;
    }

    private ObjectMeta metadata() throws IOException {
        var metadata = new ObjectMeta();
        var labels = new LinkedHashMap<String, String>();
        var annotations = new LinkedHashMap<String, String>();
        message(number -> {
            switch (number) {
                case 1 -> metadata.setName(in.readString());
                case 3 -> metadata.setNamespace(notEmpty(in.readString()));
                case 5 -> metadata.setUid(in.readString());
                case 6 -> metadata.setResourceVersion(in.readString());
                case 8 -> metadata.setCreationTimestamp(time());
                case 9 -> metadata.setDeletionTimestamp(time());
                case 10 -> metadata.setDeletionGracePeriodSeconds(in.readInt64());
                case 11 -> entry(labels, in::readString);
                case 12 -> entry(annotations, in::readString);
                default -> skip();
            }
        });
        metadata.setLabels(labels);
        metadata.setAnnotations(annotations);
        return metadata;
    }

    private PodSpec podSpec() throws IOException {
        var spec = new PodSpec();
        var containers = new ArrayList<Container>();
        var initContainers = new ArrayList<Container>();
        var overhead = new LinkedHashMap<String, Quantity>();
        message(number -> {
            switch (number) {
                case 2 -> containers.add(container());
                case 4 -> spec.setTerminationGracePeriodSeconds(in.readInt64());
                case 8 -> spec.setServiceAccountName(notEmpty(in.readString()));
                case 10 -> spec.setNodeName(notEmpty(in.readString()));
                case 19 -> spec.setSchedulerName(notEmpty(in.readString()));
                case 20 -> initContainers.add(container());
                case 25 -> spec.setPriority(in.readInt32());
                case 32 -> entry(overhead, this::quantity);
                case 40 -> spec.setResources(resources());
                default -> skip();
            }
        });
        spec.setContainers(containers);
        spec.setInitContainers(initContainers);
        spec.setOverhead(overhead);
        return spec;
    }

    private Container container() throws IOException {
        var container = new Container();
        message(number -> {
            switch (number) {
                case 1 -> container.setName(in.readString());
                case 8 -> container.setResources(resources());
                case 24 -> container.setRestartPolicy(notEmpty(in.readString()));
                default -> skip();
            }
        });
        return container;
    }

    private ResourceRequirements resources() throws IOException {
        var limits = new LinkedHashMap<String, Quantity>();
        var requests = new LinkedHashMap<String, Quantity>();
        message(number -> {
            switch (number) {
                case 1 -> entry(limits, this::quantity);
                case 2 -> entry(requests, this::quantity);
                default -> skip();
            }
        });
        var resources = new ResourceRequirements();
        resources.setLimits(limits);
        resources.setRequests(requests);
        return resources;
    }

    private PodStatus podStatus() throws IOException {
        var status = new PodStatus();
        var conditions = new ArrayList<PodCondition>();
        message(number -> {
            switch (number) {
                case 1 -> status.setPhase(notEmpty(in.readString()));
                case 2 -> conditions.add(condition());
                default -> skip();
            }
        });
        status.setConditions(conditions);
        return status;
    }

    private PodCondition condition() throws IOException {
        var condition = new PodCondition();
        message(number -> {
            switch (number) {
                case 1 -> condition.setType(in.readString());
                case 2 -> condition.setStatus(in.readString());
                case 4 -> condition.setLastTransitionTime(time());
                case 5 -> condition.setReason(notEmpty(in.readString()));
                default -> skip();
            }
        });
        return condition;
    }

    private NodeStatus nodeStatus() throws IOException {
        var allocatable = new LinkedHashMap<String, Quantity>();
        message(number -> {
            if (number == 2) {
                entry(allocatable, this::quantity);
            } else {
                skip();
            }
        });
        var status = new NodeStatus();
        status.setAllocatable(allocatable);
        return status;
    }

    private <T> void entry(Map<String, T> map, Reader<T> value) throws IOException {
        var key = new String[] {""};
        message(number -> {
            switch (number) {
                case 1 -> key[0] = in.readString();
                case 2 -> map.put(key[0], value.read());
                default -> skip();
            }
        });
    }

    private Quantity quantity() throws IOException {
        var text = new String[] {"0"};
        message(number -> {
            if (number == 1) {
                text[0] = in.readString();
            } else {
                skip();
            }
        });
        return Quantity.parse(text[0]);
    }

    /** None where the message is empty, as of no time. */
    private @Nullable String time() throws IOException {
        var time = new String[1];
        message(number -> {
            if (number == 1) {
                time[0] = Times.print(in.readInt64());
            } else {
                skip();
            }
        });
        return time[0];
    }

    /** As in JSON, where what is empty is left out. */
    private static @Nullable String notEmpty(String text) {
        return text.isEmpty() ? null : text;
    }
}
