package io.aliquot.scheduler.admission;

import io.aliquot.api.foreign.ForeignResources;
import io.aliquot.api.foreign.HamiAnnotations;
import io.aliquot.api.names.Labels;
import io.aliquot.api.shim.ContainerPaths;
import io.aliquot.scheduler.cluster.AllocationAnnotations;
import java.io.InputStream;
import java.util.Map;
import java.util.Set;
import java.util.function.Predicate;
import tools.jackson.core.JsonParser;
import tools.jackson.core.JsonToken;
import tools.jackson.core.ObjectReadContext;
import tools.jackson.core.StreamReadConstraints;
import tools.jackson.core.StreamReadFeature;
import tools.jackson.core.TokenStreamFactory;
import tools.jackson.core.json.JsonFactory;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.node.ArrayNode;
import tools.jackson.databind.node.JsonNodeFactory;
import tools.jackson.databind.node.MissingNode;
import tools.jackson.databind.node.ObjectNode;

/*
 * A tree of a whole review takes up to 18 times the memory of its text: 50 MiB for 220,000 environment variables. What
 * admission reads is little of a pod: the other fields are left out of the tree, and the elements of an array that it
 * does not read are replaced by one shared node, so that the indexes of a patch stay right. The API server writes the
 * fields of an object in the order of their declaration in Go, so the field that decides about an element comes first or
 * nearly so; in another order the tree is the same and takes more memory.
 */
/** Reads of an AdmissionReview about a pod what admission needs, and counts it. */
final class ReviewReader {
    /** What is kept of a JSON value. A value of another type is kept without what it contains, and refused later. */
    private sealed interface Kept {
        /** The value as it is. */
        record All() implements Kept {}

        /** Of an object these fields, and as they are the others whose name is tested. */
        record Fields(Map<String, Kept> fields, Predicate<String> others) implements Kept {}

        /** Of an array each element, which then has to be in the pod's memory and in the patch with these bytes. */
        record Elements(Kept element, int bytes) implements Kept {}

        /** The object as it is if a text of it is tested; otherwise {@link MissingNode}. */
        record Matching(String field, Predicate<String> text) implements Kept {}
    }

    /** A number that is read into a pod's metadata: the bytes of all annotations, also of those that are not kept. */
    static final String ANNOTATION_BYTES = "annotationBytes";

    private static final Kept ALL = new Kept.All();
    private static final Kept.Fields EVERY_FIELD = new Kept.Fields(Map.of(), name -> true);
    /** The domains of the labels and annotations that {@link GpuAdmission} reads. */
    private static final Set<String> DOMAINS = Set.of("aliquot.io", "nvidia.com", "hami.io", "aliyun.com");

    private static final Kept OURS = new Kept.Fields(
            Map.of(),
            key -> DOMAINS.contains(key.substring(0, Math.max(0, key.indexOf('/'))))
                    || key.equals(LimitRangeDefaults.ANNOTATION));

    /** In bytes, as measured or more: an entry in an object or an array with a small node. */
    private static final int ENTRY = 100;
    /** In bytes: an object or an array in addition. */
    private static final int NODE = 150;
    /** In bytes: references to {@link MissingNode}, also while the array grows. */
    private static final int REFERENCE = 16;
    /** In bytes: what the patch adds for a container, in JSON and in base64, while it is written. */
    private static final int PATCH = 4096;

    private static final Kept CONTAINERS = new Kept.Elements(
            fields(Map.of(
                    "name", ALL,
                    "resources", fields(Map.of("limits", ALL, "requests", ALL, "claims", elements(fields(Map.of())))),
                    "securityContext", fields(Map.of("privileged", ALL, "capabilities", fields(Map.of("add", ALL)))),
                    "env",
                            elements(new Kept.Matching(
                                    "name",
                                    name -> name.equals(JsonContainer.VISIBLE_DEVICES)
                                            || HamiAnnotations.isVariable(name))),
                    "volumeMounts", elements(new Kept.Matching("mountPath", ReservedPaths::concerns)),
                    "volumeDevices", elements(fields(Map.of("devicePath", ALL))),
                    "terminationMessagePath", ALL)),
            PATCH);

    private static final Kept AFFINITY = fields(Map.of(
            "nodeAffinity",
            fields(Map.of(
                    "requiredDuringSchedulingIgnoredDuringExecution",
                    fields(Map.of("nodeSelectorTerms", elements(fields(Map.of("matchFields", ALL)))))))));

    private static final Kept POD = fields(Map.of(
            "metadata", fields(Map.of("annotations", OURS, "labels", OURS)),
            "spec",
                    fields(Map.of(
                            "nodeName", ALL,
                            "schedulerName", ALL,
                            "runtimeClassName", ALL,
                            "affinity", AFFINITY,
                            "tolerations",
                                    elements(new Kept.Matching(
                                            "key",
                                            key -> key.equals(ForeignResources.NVIDIA_GPU)
                                                    || key.equals(Labels.SHARED_TAINT))),
                            "volumes",
                                    elements(new Kept.Matching(
                                            "name", name -> name.startsWith(ContainerPaths.LIMIT_FILE_VOLUMES))),
                            "initContainers", CONTAINERS,
                            "containers", CONTAINERS,
                            "ephemeralContainers", CONTAINERS))));

    private static final Kept NAMES = elements(fields(Map.of("name", ALL)));

    private static final Kept REVIEW = fields(Map.of(
            "kind", ALL,
            "apiVersion", ALL,
            "request",
                    fields(Map.of(
                            "uid", ALL,
                            "kind", ALL,
                            "operation", ALL,
                            "subResource", ALL,
                            "namespace", ALL,
                            "object", POD,
                            "oldObject",
                                    fields(Map.of(
                                            "spec",
                                            fields(Map.of(
                                                    "initContainers", NAMES,
                                                    "containers", NAMES,
                                                    "ephemeralContainers", NAMES))))))));

    /** Without a table of all names, which would keep those of a pod's labels until the body ends. */
    private static final JsonFactory JSON = JsonFactory.builder()
            .disable(TokenStreamFactory.Feature.CANONICALIZE_PROPERTY_NAMES)
            .disable(StreamReadFeature.AUTO_CLOSE_SOURCE)
            .streamReadConstraints(StreamReadConstraints.builder()
                    .maxStringLength(256 << 10) // Kubernetes allows annotations of 256 KiB
                    .build())
            .build();

    private static final JsonNodeFactory NODES = JsonNodeFactory.instance;

    private final JsonParser parser;
    private final ReviewMemory.Share memory;
    private long bytesOfTexts;

    private ReviewReader(JsonParser parser, ReviewMemory.Share memory) {
        this.parser = parser;
        this.memory = memory;
    }

    /**
     * Reads the body to its end.
     *
     * @param into gets the fields as they are read, so that it has those before a failure
     * @throws tools.jackson.core.JacksonException if it is not JSON or cannot be read
     * @throws MalformedReviewException if it is not one object, or if an object has two fields of a name
     * @throws DeniedException if it is too large
     */
    static void read(InputStream body, ObjectNode into, ReviewMemory.Share memory) {
        try (JsonParser parser = JSON.createParser(ObjectReadContext.empty(), body)) {
            if (parser.nextToken() != JsonToken.START_OBJECT) {
                throw new MalformedReviewException("expected an AdmissionReview");
            }
            new ReviewReader(parser, memory).fields(into, (Kept.Fields) REVIEW);
            if (parser.nextToken() != null) {
                throw new MalformedReviewException("expected one AdmissionReview, found more");
            }
        }
    }

    private static Kept fields(Map<String, Kept> fields) {
        return new Kept.Fields(fields, name -> false);
    }

    private static Kept elements(Kept element) {
        return new Kept.Elements(element, REFERENCE);
    }

    private void fields(ObjectNode into, Kept.Fields kept) {
        while (parser.nextToken() == JsonToken.PROPERTY_NAME) {
            String name = parser.currentName();
            Kept value = kept.fields().get(name);
            if (value == null && kept.others().test(name)) {
                value = ALL;
            }
            parser.nextToken();
            if (kept == OURS) {
                bytesOfTexts += AllocationAnnotations.bytes(name) + AllocationAnnotations.bytes(parser.getString());
            }
            if (value == null) {
                parser.skipChildren();
            } else if (value == OURS) {
                bytesOfTexts = 0;
                field(into, name, value);
                if (name.equals("annotations")) {
                    into.put(ANNOTATION_BYTES, bytesOfTexts);
                }
            } else {
                field(into, name, value);
            }
        }
    }

    private void field(ObjectNode into, String name, Kept kept) {
        if (into.has(name)) {
            throw new MalformedReviewException("expected one field of each name, found two");
        }
        memory.take(ENTRY + 2 * name.length());
        if (parser.currentToken() == JsonToken.START_OBJECT && kept instanceof Kept.Fields fields) {
            memory.take(NODE);
            fields(into.putObject(name), fields);
        } else {
            into.set(name, value(kept));
        }
    }

    private JsonNode value(Kept kept) {
        return switch (parser.currentToken()) {
            case START_OBJECT -> {
                int before = memory.used();
                memory.take(NODE);
                ObjectNode object = NODES.objectNode();
                switch (kept) {
                    case Kept.All all -> fields(object, EVERY_FIELD);
                    case Kept.Fields fields -> fields(object, fields);
                    case Kept.Elements elements -> parser.skipChildren();
                    case Kept.Matching matching -> {
                        if (!matching(object, matching)) {
                            memory.backTo(before);
                            yield MissingNode.getInstance();
                        }
                    }
                }
                yield object;
            }
            case START_ARRAY -> {
                memory.take(NODE);
                ArrayNode array = NODES.arrayNode();
                switch (kept) {
                    case Kept.All all -> elements(array, all, ENTRY);
                    case Kept.Elements elements -> elements(array, elements.element(), elements.bytes());
                    case Kept.Fields fields -> parser.skipChildren();
                    case Kept.Matching matching -> parser.skipChildren();
                }
                yield array;
            }
            case VALUE_NUMBER_INT ->
                switch (parser.getNumberType()) {
                    case INT -> NODES.numberNode(parser.getIntValue());
                    case LONG -> NODES.numberNode(parser.getLongValue());
                    default -> NODES.numberNode(parser.getBigIntegerValue());
                };
            case VALUE_NUMBER_FLOAT -> NODES.numberNode(parser.getDecimalValue());
            case VALUE_TRUE -> NODES.booleanNode(true);
            case VALUE_FALSE -> NODES.booleanNode(false);
            case VALUE_NULL -> NODES.nullNode();
            default -> {
                String text = parser.getString();
                memory.take(2 * text.length());
                yield NODES.stringNode(text);
            }
        };
    }

    private void elements(ArrayNode array, Kept kept, int bytes) {
        while (parser.nextToken() != JsonToken.END_ARRAY) {
            memory.take(bytes);
            array.add(value(kept));
        }
    }

    private boolean matching(ObjectNode object, Kept.Matching kept) {
        boolean matches = false;
        while (parser.nextToken() == JsonToken.PROPERTY_NAME) {
            String name = parser.currentName();
            JsonToken token = parser.nextToken();
            if (name.equals(kept.field()) && token == JsonToken.VALUE_STRING) {
                matches = kept.text().test(parser.getString());
                if (!matches) {
                    skipToEnd();
                    return false;
                }
            }
            field(object, name, ALL);
        }
        return matches;
    }

    /** Skips the other fields of the object. */
    private void skipToEnd() {
        while (parser.nextToken() == JsonToken.PROPERTY_NAME) {
            parser.nextToken();
            parser.skipChildren();
        }
    }
}
