package io.aliquot.training;

import com.google.protobuf.ByteString;
import com.google.protobuf.Descriptors.FieldDescriptor;
import com.google.protobuf.Message;
import com.google.protobuf.UnknownFieldSet;
import io.aliquot.scheduler.kubernetes.client.proto.KubernetesProto.Node;
import io.aliquot.scheduler.kubernetes.client.proto.KubernetesProto.NodeList;
import io.aliquot.scheduler.kubernetes.client.proto.KubernetesProto.Pod;
import io.aliquot.scheduler.kubernetes.client.proto.KubernetesProto.PodList;
import io.aliquot.scheduler.kubernetes.client.proto.KubernetesProto.RawExtension;
import io.aliquot.scheduler.kubernetes.client.proto.KubernetesProto.Time;
import io.aliquot.scheduler.kubernetes.client.proto.KubernetesProto.TypeMeta;
import io.aliquot.scheduler.kubernetes.client.proto.KubernetesProto.Unknown;
import io.aliquot.scheduler.kubernetes.client.proto.KubernetesProto.WatchEvent;
import java.nio.ByteBuffer;
import java.time.Instant;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import tools.jackson.databind.JsonNode;

/** Encodes pods and nodes as the API server does, from their JSON. */
final class KubernetesProtobuf {
    /** Precedes every object (Kubernetes API concepts, protobuf encoding). */
    private static final ByteString MAGIC = ByteString.copyFromUtf8("k8s\0");
    /** No message has a field of this number. */
    private static final int UNREAD = 1000;

    private KubernetesProtobuf() {}

    /** The plurals of what the scheduler reads in protobuf. */
    static boolean encodes(String resource) {
        return resource.equals("pods") || resource.equals("nodes");
    }

    /** An object or a list. */
    static ByteString encode(JsonNode object) {
        String kind = object.path("kind").asString();
        Message.Builder builder = switch (kind) {
            case "Pod" -> Pod.newBuilder();
            case "PodList" -> PodList.newBuilder();
            case "Node" -> Node.newBuilder();
            case "NodeList" -> NodeList.newBuilder();
            default -> throw new IllegalArgumentException(kind);
        };
        return MAGIC.concat(Unknown.newBuilder()
                .setTypeMeta(TypeMeta.newBuilder().setKind(kind))
                .setRaw(message(builder, object).toByteString())
                .build()
                .toByteString());
    }

    /** A frame of a watch: a WatchEvent behind its length. */
    static byte[] event(String type, JsonNode object) {
        byte[] event = WatchEvent.newBuilder()
                .setType(type)
                .setObject(RawExtension.newBuilder().setRaw(encode(object)))
                .build()
                .toByteArray();
        return ByteBuffer.allocate(4 + event.length)
                .putInt(event.length)
                .put(event)
                .array();
    }

    /**
     * The scheduler's messages have only the fields that it reads. It receives the others too, and skips them; here
     * their JSON stands for them.
     */
    private static Message message(Message.Builder builder, JsonNode json) {
        if (json.isString()) { // a Time or a Quantity
            return builder instanceof Time.Builder time
                    ? time.setSeconds(Instant.parse(json.asString()).getEpochSecond())
                            .build()
                    : message(builder, ApiServer.JSON.createObjectNode().set("string", json));
        }
        var unread = UnknownFieldSet.Field.newBuilder();
        for (Map.Entry<String, JsonNode> property : json.properties()) {
            FieldDescriptor field = builder.getDescriptorForType().findFieldByName(property.getKey());
            if (field == null) {
                unread.addLengthDelimited(
                        ByteString.copyFromUtf8(property.getValue().toString()));
            } else if (field.isRepeated()) {
                for (JsonNode one : elements(field, property.getValue())) {
                    builder.addRepeatedField(field, value(builder, field, one));
                }
            } else {
                builder.setField(field, value(builder, field, property.getValue()));
            }
        }
        return builder.setUnknownFields(UnknownFieldSet.newBuilder()
                        .addField(UNREAD, unread.build())
                        .build())
                .build();
    }

    /** Of a list or of a map, whose elements are messages with a key and a value. */
    private static Collection<JsonNode> elements(FieldDescriptor field, JsonNode value) {
        return field.isMapField()
                ? value.properties().stream()
                        .<JsonNode>map(entry -> ApiServer.JSON
                                .createObjectNode()
                                .put("key", entry.getKey())
                                .set("value", entry.getValue()))
                        .toList()
                : List.copyOf(value.values());
    }

    private static Object value(Message.Builder builder, FieldDescriptor field, JsonNode value) {
        return switch (field.getJavaType()) {
            case STRING -> value.asString();
            case INT -> value.asInt();
            case LONG -> value.asLong();
            default -> message(builder.newBuilderForField(field), value);
        };
    }
}
