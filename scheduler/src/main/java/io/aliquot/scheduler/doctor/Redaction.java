package io.aliquot.scheduler.doctor;

import io.aliquot.api.format.JsonFields;
import io.aliquot.api.names.Annotations;
import io.aliquot.api.names.Labels;
import io.aliquot.api.names.Resources;
import io.aliquot.api.nodes.NodeLabel;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.function.Predicate;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.node.ArrayNode;
import tools.jackson.databind.node.ObjectNode;

/**
 * What of an object or a text a {@link Bundle} contains. Of Aliquot's own objects that is all but what a person may have put a
 * secret into; of nodes, pods and events of others only the fields that are named here.
 */
final class Redaction {
    private static final String REDACTED = "(redacted)";

    // Each list has the beginnings of names.

    /** Of Aliquot's variables none is a secret; of others, which come from the values extraEnv, only the names stay. */
    private static final List<String> OUR_VARIABLES =
            List.of("ALIQUOT_", "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", "GOGC", "GOMEMLIMIT");

    private static final List<String> OUR_ANNOTATIONS = List.of(
            "aliquot.io/",
            "checksum/",
            "deployment.kubernetes.io/",
            "meta.helm.sh/",
            "kubectl.kubernetes.io/default-container",
            "kubectl.kubernetes.io/restartedAt");

    private static final List<String> NODE_LABELS = List.of(
            "aliquot.io/",
            "nvidia.com/",
            "kubernetes.io/",
            "node.kubernetes.io/",
            "topology.kubernetes.io/",
            Labels.ACK_SHARE,
            Labels.ACK_PLACEMENT);

    /** Of the kubelet, the node controller and the node agents; others can write any text into theirs. */
    private static final List<String> NODE_CONDITIONS =
            List.of("Aliquot", "Ready", "MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable");

    /** Of the scheduler; the messages of others may be a tenant's program's. */
    private static final List<String> POD_CONDITIONS = List.of("PodScheduled", "DisruptionTarget");

    /** Reporters whose messages about nodes are no user's text. */
    private static final Set<String> NODE_REPORTERS = Set.of("kubelet", "node-controller", ClusterState.SCHEDULER);

    /** The kubelet's reasons before a container is created: their messages have nothing of a container's program. */
    private static final Set<String> BEFORE_CONTAINERS = Set.of("FailedCreatePodSandBox", "UnexpectedAdmissionError");

    /**
     * The second wall, for what no list of fields sees: keys, tokens and passwords in logs and messages. Each pattern keeps
     * its first group.
     */
    private static final List<Pattern> SECRETS = List.of(
            Pattern.compile(
                    "()-----BEGIN [A-Z ]{0,20}PRIVATE KEY-----.*?(?:-----END [A-Z ]{0,20}PRIVATE KEY-----|\\z)",
                    Pattern.DOTALL),
            Pattern.compile("()\\beyJ[\\w-]{10,}+\\.[\\w-]{10,}+\\.[\\w-]*+"), // JSON Web Token (RFC 7519)
            Pattern.compile("(\\b(?:bearer|basic) )[\\w.~+/=-]{16,}+", Pattern.CASE_INSENSITIVE),
            Pattern.compile("(://[^\\s/:@]{0,100}+:)[^\\s/@]{1,200}+(?=@)"), // a URL's password
            Pattern.compile(
                    "((?:passwd|password|secret|token|api_?-?key)(?:=|\"\\s?:\\s?\"))[^\\s\"'&,;]++",
                    Pattern.CASE_INSENSITIVE),
            // A line of YAML, as in a ConfigMap.
            Pattern.compile(
                    "(^[\\t -]*+[\\w.-]{0,40}(?:passwd|password|secret|token|api_?-?key)[\"']?:[ \\t]++)\\S.*+$",
                    Pattern.CASE_INSENSITIVE | Pattern.MULTILINE));

    private Redaction() {}

    static String text(String text) {
        String redacted = text;
        for (Pattern secret : SECRETS) {
            redacted = secret.matcher(redacted).replaceAll("$1" + REDACTED);
        }
        return redacted;
    }

    /** A copy of JSON that the doctor or the API server made of Aliquot's own. */
    static JsonNode own(JsonNode object) {
        JsonNode copy = object.deepCopy();
        strip(copy);
        return copy;
    }

    private static void strip(JsonNode node) {
        if (node instanceof ArrayNode array) {
            for (int i = 0; i < array.size(); i++) {
                if (array.get(i).isString()) {
                    array.set(i, text(array.get(i).asString()));
                } else {
                    strip(array.get(i));
                }
            }
        } else if (node instanceof ObjectNode object) {
            object.remove("managedFields");
            if (object.path("annotations") instanceof ObjectNode annotations) {
                annotations.retain(keys(annotations, startsWith(OUR_ANNOTATIONS)));
            }
            for (JsonNode variable : object.path("env")) {
                if (variable instanceof ObjectNode one
                        && one.has("value")
                        && !startsWith(OUR_VARIABLES).test(one.path("name").asString(""))) {
                    one.put("value", REDACTED);
                }
            }
            for (Map.Entry<String, JsonNode> field : object.properties()) {
                if (field.getValue().isString()) {
                    field.setValue(JsonFields.JSON
                            .getNodeFactory()
                            .stringNode(text(field.getValue().asString())));
                } else {
                    strip(field.getValue());
                }
            }
        }
    }

    /** A pod of the release: its specification is its Deployment's or DaemonSet's, and what others have injected into it. */
    static ObjectNode ownPod(JsonNode pod) {
        ObjectNode some = identity(pod);
        copy(pod.path("metadata"), some, "labels", "ownerReferences");
        copy(pod.path("spec"), some, "nodeName", "runtimeClassName", "priority");
        copy(pod, some, "status");
        return (ObjectNode) own(some);
    }

    /** A node: what Aliquot's own labels, annotations and conditions say, its resources and its versions. */
    static ObjectNode node(JsonNode node, NodeLabel label) {
        ObjectNode some = identity(node);
        JsonNode metadata = node.path("metadata");
        some.set(
                "labels",
                fields(metadata.path("labels"), startsWith(NODE_LABELS).or(label.key()::equals)));
        some.set("annotations", fields(metadata.path("annotations"), startsWith(List.of("aliquot.io/"))));
        copy(node.path("spec"), some, "unschedulable", "taints");
        JsonNode status = node.path("status");
        copy(status, some, "capacity", "allocatable", "nodeInfo", "runtimeHandlers");
        some.set("conditions", conditions(status, NODE_CONDITIONS));
        return (ObjectNode) own(some);
    }

    /** A pod of someone's that names Aliquot's scheduler: what Aliquot and Kubernetes wrote into it, and its amounts. */
    static ObjectNode share(JsonNode pod) {
        ObjectNode some = identity(pod);
        some.set(
                "annotations",
                fields(
                        pod.path("metadata").path("annotations"),
                        key -> Annotations.reservedOnPods(key) || key.equals(Annotations.BUMPED_VERSION)));
        copy(pod.path("spec"), some, "nodeName", "runtimeClassName", "priority");
        ObjectNode limits = some.putObject("limits");
        Stream.of("initContainers", "containers")
                .flatMap(list -> pod.path("spec").path(list).valueStream())
                .forEach(container -> limits.set(
                        container.path("name").asString(""),
                        fields(
                                container.path("resources").path("limits"),
                                key -> Resources.SUPPORTED.contains(key) || key.startsWith(Resources.INSTANCE_GROUP))));
        JsonNode status = pod.path("status");
        copy(status, some, "phase", "reason");
        some.set("conditions", conditions(status, POD_CONDITIONS));
        ArrayNode containers = some.putArray("containers");
        Stream.of("initContainerStatuses", "containerStatuses")
                .flatMap(list -> status.path(list).valueStream())
                .forEach(container -> containers.add(container(container)));
        return (ObjectNode) own(some);
    }

    /** Without messages, which are the end of a program's log, or quote its command. */
    private static ObjectNode container(JsonNode status) {
        ObjectNode some = JsonFields.JSON.createObjectNode();
        copy(status, some, "name", "ready", "restartCount");
        for (String when : List.of("state", "lastState")) {
            status.path(when).properties().forEach(state -> {
                ObjectNode at = some.putObject(when).putObject(state.getKey());
                copy(state.getValue(), at, "reason", "exitCode", "startedAt", "finishedAt");
            });
        }
        return some;
    }

    /** An event about one of Aliquot's own objects, with its message. */
    static ObjectNode ownEvent(JsonNode event) {
        return event(event, true);
    }

    /** An event about a node. */
    static ObjectNode nodeEvent(JsonNode event) {
        return event(event, NODE_REPORTERS.contains(reporter(event)));
    }

    /** An event about a pod with shares: the kubelet's messages quote commands and what probes print. */
    static ObjectNode shareEvent(JsonNode event) {
        String message = event.path("message").asString("");
        String reason = event.path("reason").asString("");
        return event(
                event,
                reporter(event).equals(ClusterState.SCHEDULER)
                        || BEFORE_CONTAINERS.contains(reason)
                        // The hook's sentence, or a CDI device of ours that the runtime does not find.
                        || (reason.equals("Failed")
                                && message.contains("aliquot")
                                && !ClusterChecks.quotesCommand(message)));
    }

    private static ObjectNode event(JsonNode event, boolean message) {
        ObjectNode some = JsonFields.JSON.createObjectNode();
        JsonNode object = event.path("involvedObject");
        some.put(
                "time",
                Stream.of(
                                event.path("lastTimestamp"),
                                event.path("series").path("lastObservedTime"),
                                event.path("eventTime"),
                                event.path("metadata").path("creationTimestamp"))
                        .map(time -> time.asString(""))
                        .filter(time -> !time.isEmpty())
                        .findFirst()
                        .orElse(""));
        copy(event, some, "type", "reason");
        some.put("reporter", reporter(event));
        copy(object, some, "kind", "namespace", "name", "uid");
        some.put(
                "count",
                event.path("count").asInt(event.path("series").path("count").asInt(1)));
        if (message) {
            copy(event, some, "message");
        }
        return (ObjectNode) own(some);
    }

    private static String reporter(JsonNode event) {
        String component = event.path("source").path("component").asString("");
        return component.isEmpty() ? event.path("reportingComponent").asString("") : component;
    }

    private static ObjectNode identity(JsonNode object) {
        ObjectNode some = JsonFields.JSON.createObjectNode();
        copy(object.path("metadata"), some, "namespace", "name", "uid", "creationTimestamp", "deletionTimestamp");
        return some;
    }

    private static ArrayNode conditions(JsonNode status, List<String> withMessage) {
        ArrayNode some = JsonFields.JSON.createArrayNode();
        for (JsonNode condition : status.path("conditions")) {
            ObjectNode one = some.addObject();
            copy(condition, one, "type", "status", "reason", "lastTransitionTime");
            if (startsWith(withMessage).test(condition.path("type").asString(""))) {
                copy(condition, one, "message");
            }
        }
        return some;
    }

    private static ObjectNode fields(JsonNode object, Predicate<String> kept) {
        return object instanceof ObjectNode all
                ? all.deepCopy().retain(keys(all, kept))
                : JsonFields.JSON.createObjectNode();
    }

    private static List<String> keys(ObjectNode object, Predicate<String> kept) {
        return object.propertyNames().stream().filter(kept).toList();
    }

    private static Predicate<String> startsWith(List<String> prefixes) {
        return key -> prefixes.stream().anyMatch(key::startsWith);
    }

    private static void copy(JsonNode from, ObjectNode to, String... names) {
        for (String name : names) {
            Optional.ofNullable(from.get(name)).ifPresent(value -> to.set(name, value.deepCopy()));
        }
    }
}
