package io.aliquot.scheduler.training;

import com.google.protobuf.CodedOutputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import tools.jackson.databind.JsonNode;

/**
 * Encodes pods and nodes as the API server does: field numbers of k8s.io/api core/v1/generated.proto and
 * k8s.io/apimachinery meta/v1/generated.proto. It leaves out fields that are not named here.
 */
final class KubernetesProtobuf {
    /** Precedes every object (Kubernetes API concepts, protobuf encoding). */
    private static final byte[] MAGIC = {'k', '8', 's', 0};

    private enum Type {
        STRING,
        NUMBER,
        TIME,
        MESSAGE,
        STRINGS,
        QUANTITIES,
        /** Has the size of the real field, not its content. */
        OPAQUE
    }

    private record Field(int number, Type type, Map<String, Field> message) {}

    private static Field field(int number, Type type) {
        return new Field(number, type, Map.of());
    }

    private static Field message(int number, Map<String, Field> fields) {
        return new Field(number, Type.MESSAGE, fields);
    }

    private static final Map<String, Field> METADATA = Map.ofEntries(
            Map.entry("name", field(1, Type.STRING)),
            Map.entry("namespace", field(3, Type.STRING)),
            Map.entry("uid", field(5, Type.STRING)),
            Map.entry("resourceVersion", field(6, Type.STRING)),
            Map.entry("creationTimestamp", field(8, Type.TIME)),
            Map.entry("labels", field(11, Type.STRINGS)),
            Map.entry("annotations", field(12, Type.STRINGS)),
            Map.entry("managedFields", field(17, Type.OPAQUE)));

    private static final Map<String, Field> CONTAINER = Map.of(
            "name", field(1, Type.STRING),
            "image", field(2, Type.STRING),
            "env", field(7, Type.OPAQUE),
            "resources", message(8, Map.of("limits", field(1, Type.QUANTITIES), "requests", field(2, Type.QUANTITIES))),
            "volumeMounts", field(9, Type.OPAQUE),
            "imagePullPolicy", field(14, Type.STRING));

    private static final Map<String, Field> CONDITION = Map.of(
            "type", field(1, Type.STRING),
            "status", field(2, Type.STRING),
            "lastTransitionTime", field(4, Type.TIME),
            "reason", field(5, Type.STRING),
            "message", field(6, Type.STRING));

    private static final Map<String, Field> POD_SPEC = Map.ofEntries(
            Map.entry("volumes", field(1, Type.OPAQUE)),
            Map.entry("containers", message(2, CONTAINER)),
            Map.entry("restartPolicy", field(3, Type.STRING)),
            Map.entry("terminationGracePeriodSeconds", field(4, Type.NUMBER)),
            Map.entry("dnsPolicy", field(6, Type.STRING)),
            Map.entry("serviceAccountName", field(8, Type.STRING)),
            Map.entry("nodeName", field(10, Type.STRING)),
            Map.entry("schedulerName", field(19, Type.STRING)),
            Map.entry("initContainers", message(20, CONTAINER)),
            Map.entry("tolerations", field(22, Type.OPAQUE)),
            Map.entry("priority", field(25, Type.NUMBER)));

    private static final Map<String, Field> POD = Map.of(
            "metadata", message(1, METADATA),
            "spec", message(2, POD_SPEC),
            "status", message(3, Map.of("phase", field(1, Type.STRING), "conditions", message(2, CONDITION))));

    private static final Map<String, Field> NODE = Map.of(
            "metadata", message(1, METADATA),
            "status",
                    message(
                            3,
                            Map.of("capacity", field(1, Type.QUANTITIES), "allocatable", field(2, Type.QUANTITIES))));

    /** Resources that the API server sends in protobuf, by plural. */
    private static final Map<String, Map<String, Field>> MESSAGES = Map.of("pods", POD, "nodes", NODE);

    private KubernetesProtobuf() {}

    static boolean encodes(String resource) {
        return MESSAGES.containsKey(resource);
    }

    private static Map<String, Field> fields(String resource) {
        return Objects.requireNonNull(MESSAGES.get(resource));
    }

    /** A PodList or a NodeList. */
    static byte[] list(String resource, String version, List<JsonNode> items) {
        return envelope(resource.equals("pods") ? "PodList" : "NodeList", bytes(list -> {
            list.writeByteArray(1, bytes(metadata -> metadata.writeString(2, version)));
            for (JsonNode item : items) {
                list.writeByteArray(2, encode(fields(resource), item));
            }
        }));
    }

    /** A frame of a watch: a WatchEvent behind its length. */
    static byte[] event(String resource, String type, JsonNode object) {
        byte[] raw = envelope(resource.equals("pods") ? "Pod" : "Node", encode(fields(resource), object));
        byte[] event = bytes(out -> {
            out.writeString(1, type);
            out.writeByteArray(2, bytes(extension -> extension.writeByteArray(1, raw)));
        });
        return bytes(out -> {
            for (int shift = 24; shift >= 0; shift -= 8) {
                out.writeRawByte((byte) (event.length >>> shift));
            }
            out.writeRawBytes(event);
        });
    }

    private static byte[] envelope(String kind, byte[] object) {
        return bytes(out -> {
            out.writeRawBytes(MAGIC);
            out.writeByteArray(1, bytes(type -> {
                type.writeString(1, "v1");
                type.writeString(2, kind);
            }));
            out.writeByteArray(2, object);
        });
    }

    private static byte[] encode(Map<String, Field> fields, JsonNode object) {
        return bytes(out -> {
            for (Map.Entry<String, JsonNode> property : object.properties()) {
                Field field = fields.get(property.getKey());
                if (field != null) {
                    write(out, field, property.getValue());
                }
            }
        });
    }

    private static void write(CodedOutputStream out, Field field, JsonNode value) throws IOException {
        switch (field.type()) {
            case STRING -> out.writeString(field.number(), value.asString());
            case NUMBER -> out.writeInt64(field.number(), value.asLong());
            case TIME ->
                out.writeByteArray(
                        field.number(),
                        bytes(time -> time.writeInt64(
                                1, Instant.parse(value.asString()).getEpochSecond())));
            case OPAQUE -> out.writeByteArray(field.number(), value.toString().getBytes(StandardCharsets.UTF_8));
            case MESSAGE -> {
                for (JsonNode one : value.isArray() ? value.values() : List.of(value)) {
                    out.writeByteArray(field.number(), encode(field.message(), one));
                }
            }
            case STRINGS, QUANTITIES -> {
                for (Map.Entry<String, JsonNode> entry : value.properties()) {
                    String text = entry.getValue().asString();
                    out.writeByteArray(field.number(), bytes(pair -> {
                        pair.writeString(1, entry.getKey());
                        if (field.type() == Type.QUANTITIES) {
                            pair.writeByteArray(2, bytes(quantity -> quantity.writeString(1, text)));
                        } else {
                            pair.writeString(2, text);
                        }
                    }));
                }
            }
        }
    }

    private interface Writer {
        void write(CodedOutputStream out) throws IOException;
    }

    private static byte[] bytes(Writer writer) {
        var bytes = new ByteArrayOutputStream();
        try {
            var out = CodedOutputStream.newInstance(bytes);
            writer.write(out);
            out.flush();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
        return bytes.toByteArray();
    }
}
