package io.aliquot.scheduler.doctor;

import static java.nio.charset.StandardCharsets.UTF_8;

import io.aliquot.api.format.JsonFields;
import io.aliquot.api.nodes.NodeLabel;
import io.aliquot.scheduler.apiserver.client.ApiServerClient;
import io.aliquot.scheduler.apiserver.client.ApiServerClient.Answer;
import java.io.Closeable;
import java.io.IOException;
import java.io.OutputStream;
import java.io.PrintStream;
import java.io.UncheckedIOException;
import java.net.URLEncoder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.attribute.PosixFilePermissions;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashSet;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.function.Consumer;
import java.util.function.Function;
import java.util.function.LongSupplier;
import tools.jackson.core.JacksonException;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.node.ObjectNode;

/**
 * The archive of {@code --bundle}, for support: findings, versions, configuration, nodes,
 * pods, events, metrics and logs, without what {@link Redaction} leaves out. Secrets are never read. What cannot be read is
 * named in its file {@code errors.txt}.
 */
final class Bundle implements Closeable {
    /** Of all files before they are compressed, but for {@code errors.txt}. Logs shrink to a tenth. */
    static final int MAX_BYTES = 64 << 20;
    /** Of each log its last part. */
    static final int MAX_LOG_BYTES = 1 << 20;

    /**
     * The kubelet begins with the first of the last lines and ends after these bytes (k8s.io/cri-client, pkg/logs/logs.go): a
     * small limit of bytes would cut off the newest lines. This one does so only if lines have more than 800 bytes on average.
     */
    private static final String LOG_LIMITS = "tailLines=5000&limitBytes=" + (4 << 20);

    /** The token of the chart's Job is valid for 10 minutes; a request to a node that is down takes {@link #TIMEOUT}. */
    private static final Duration LONGEST = Duration.ofMinutes(5);

    private static final Duration TIMEOUT = Duration.ofSeconds(10);
    /** With 20 KB for each of a node the API server's answer has 1 MB. */
    private static final int PAGE = 50;

    private static final int MAX_ERRORS = 1000;
    private static final String FOLDER = "aliquot-bundle";
    private static final String RELEASE = "labelSelector=app.kubernetes.io%2Fname%3Daliquot";
    private static final String CORE = "/api/v1/";

    private record Part(String file, String path) {}

    /** What of the configuration is the cluster's. */
    private static final List<Part> CLUSTER = List.of(
            new Part("deployments", "/apis/apps/v1/deployments?" + RELEASE),
            new Part("daemonsets", "/apis/apps/v1/daemonsets?" + RELEASE),
            new Part(
                    "mutatingwebhookconfigurations",
                    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations?" + RELEASE),
            new Part(
                    "validatingadmissionpolicies",
                    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies?" + RELEASE),
            new Part(
                    "validatingadmissionpolicybindings",
                    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings?" + RELEASE),
            new Part("runtimeclasses", "/apis/node.k8s.io/v1/runtimeclasses?"));

    private final ApiServerClient apiServer;
    private final LongSupplier nanoTime;
    private final PrintStream progress;
    private final Path file;
    private final Path part;
    private final TarGz archive;
    private final long start;
    private final List<String> errors = new ArrayList<>();
    private boolean complete;

    /**
     * Begins the archive, which only its user may read.
     *
     * @param file the archive; until {@link #complete} it has a name of its own
     * @param now the time that the archive's files have
     * @param progress gets a line for each pod
     * @throws IOException if the file cannot be written
     */
    Bundle(Path file, ApiServerClient apiServer, Instant now, LongSupplier nanoTime, PrintStream progress)
            throws IOException {
        this.file = file;
        this.apiServer = apiServer;
        this.nanoTime = nanoTime;
        this.progress = progress;
        this.start = nanoTime.getAsLong();
        this.part = Files.createTempFile(
                file.getParent(),
                ".aliquot-bundle",
                ".part",
                PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rw-------")));
        OutputStream out = Files.newOutputStream(part);
        this.archive = new TarGz(out, now);
    }

    /** Adds what the doctor prints. */
    void addFindings(String text, String json) {
        addText("findings.txt", text + "\n");
        add("findings.json", Redaction.own(JsonFields.JSON.readTree(json)).toPrettyString());
    }

    /** Notes that a part is missing. */
    void addError(String item, String reason) {
        if (errors.size() < MAX_ERRORS) {
            errors.add(item + ": " + Redaction.text(reason).strip().replaceAll("\\s+", " "));
        }
    }

    /** Reads all but the findings. Parts that cannot be read become errors. */
    void addCluster() {
        progress.println("Reading versions, configuration, nodes, pods and events");
        attempt("versions.json", () -> add("versions.json", json("/version").toPrettyString()));
        var releases = new HashSet<String>();
        var label = new ArrayList<>(List.of(NodeLabel.DEFAULT));
        for (Part one : CLUSTER) {
            addObjects("config/" + one.file() + ".json", one.path(), object -> {
                releases.add(object.path("metadata").path("namespace").asString(""));
                nodeLabel(object).ifPresent(found -> label.set(0, found));
            });
        }
        addObject("config/apiservice.json", "/apis/apiregistration.k8s.io/v1/apiservices/" + ClusterState.API_SERVICE);
        String namespace =
                releases.stream().filter(name -> !name.isEmpty()).findFirst().orElse("aliquot");
        for (String name : List.of("aliquot-kube-scheduler", "aliquot-logging")) {
            addObject("config/configmap-" + name + ".json", CORE + "namespaces/" + namespace + "/configmaps/" + name);
        }
        addObjects(
                "config/lease.json",
                "/apis/coordination.k8s.io/v1/namespaces/" + namespace + "/leases?fieldSelector=metadata.name%3D"
                        + ClusterState.SCHEDULER,
                lease -> {});

        Set<String> nodes = addNodes(label.getFirst());
        Set<String> shares = addShares();
        addEvents(namespace, nodes, shares);
        for (JsonNode pod : pods(namespace)) {
            addMetrics(pod);
            addLogs(pod);
        }
    }

    private static Optional<NodeLabel> nodeLabel(JsonNode object) {
        return object.path("spec")
                .path("template")
                .path("spec")
                .path("containers")
                .valueStream()
                .flatMap(container -> container.path("env").valueStream())
                .filter(variable -> variable.path("name").asString("").equals("ALIQUOT_NODE_LABEL"))
                .map(variable -> NodeLabel.parse(variable.path("value").asString("")))
                .findFirst();
    }

    /** Adds a file with one of Aliquot's own objects. */
    private void addObject(String name, String path) {
        attempt(name, () -> add(name, Redaction.own(json(path)).toPrettyString()));
    }

    /** Adds a file with a list of Aliquot's own objects. */
    private void addObjects(String name, String path, Consumer<JsonNode> visitor) {
        attempt(name, () -> {
            var objects = JsonFields.JSON.createArrayNode();
            list(path, object -> {
                visitor.accept(object);
                objects.add(Redaction.own(object));
            });
            add(name, objects.toPrettyString());
        });
    }

    /** Adds a file with a line for each object of a list, which it visits, too. */
    private void addLines(String name, String path, Function<JsonNode, ObjectNode> line, Consumer<JsonNode> visitor) {
        attempt(name, () -> {
            var lines = new StringBuilder();
            list(path, object -> {
                visitor.accept(object);
                lines.append(line.apply(object)).append('\n');
            });
            add(name, lines.toString());
        });
    }

    private Set<String> addNodes(NodeLabel label) {
        var names = new HashSet<String>();
        addLines(
                "nodes.jsonl",
                CORE + "nodes?labelSelector=" + encoded(label.key() + "=" + label.value()),
                node -> Redaction.node(node, label),
                node -> names.add(name(node)));
        return names;
    }

    private Set<String> addShares() {
        var uids = new HashSet<String>();
        addLines(
                "shares.jsonl",
                CORE + "pods?fieldSelector=" + encoded("spec.schedulerName=" + ClusterState.SCHEDULER),
                Redaction::share,
                pod -> uids.add(pod.path("metadata").path("uid").asString("")));
        return uids;
    }

    /** Adds the events about Aliquot's objects, its nodes and the pods with shares, oldest first. */
    private void addEvents(String namespace, Set<String> nodes, Set<String> shares) {
        var lines = new ArrayList<String>(); // each begins with its time
        attempt(
                "events.jsonl of " + namespace,
                () -> list(CORE + "namespaces/" + namespace + "/events?", event -> {
                    if (event.path("involvedObject").path("name").asString("").startsWith("aliquot")) {
                        lines.add(Redaction.ownEvent(event).toString());
                    }
                }));
        attempt(
                "events.jsonl of nodes",
                () -> list(events("involvedObject.kind=Node"), event -> {
                    if (nodes.contains(event.path("involvedObject").path("name").asString(""))) {
                        lines.add(Redaction.nodeEvent(event).toString());
                    }
                }));
        for (String source : List.of("source=" + ClusterState.SCHEDULER, "type=Warning,source=kubelet")) {
            attempt(
                    "events.jsonl of pods",
                    () -> list(events("involvedObject.kind=Pod," + source), event -> {
                        if (shares.contains(
                                event.path("involvedObject").path("uid").asString(""))) {
                            lines.add(Redaction.shareEvent(event).toString());
                        }
                    }));
        }
        lines.sort(Comparator.naturalOrder());
        add("events.jsonl", String.join("\n", lines) + "\n");
    }

    private static String events(String selector) {
        return CORE + "events?fieldSelector=" + encoded(selector);
    }

    /** Adds the list of the release's pods and returns them, schedulers first, then those that are not ready. */
    private List<JsonNode> pods(String namespace) {
        var pods = new ArrayList<JsonNode>();
        addLines("pods.jsonl", CORE + "namespaces/" + namespace + "/pods?" + RELEASE, Redaction::ownPod, pods::add);
        pods.removeIf(pod -> component(pod).equals("doctor"));
        pods.sort(Comparator.comparing((JsonNode pod) -> component(pod).equals("device-plugin"))
                .thenComparing(Bundle::isReady)
                .thenComparing(Bundle::name));
        return pods;
    }

    private static String component(JsonNode pod) {
        return pod.path("metadata").path("labels").path(ClusterState.COMPONENT).asString("");
    }

    private static boolean isReady(JsonNode pod) {
        return pod.path("status")
                .path("conditions")
                .valueStream()
                .anyMatch(condition -> condition.path("type").asString("").equals("Ready")
                        && condition.path("status").asString("").equals("True"));
    }

    private static String name(JsonNode object) {
        return object.path("metadata").path("name").asString("");
    }

    private void addMetrics(JsonNode pod) {
        pod.path("spec")
                .path("containers")
                .valueStream()
                .flatMap(container -> container.path("ports").valueStream())
                .filter(port -> port.path("name").asString("").equals("metrics"))
                .findFirst()
                .map(port -> new PodPort(
                        pod.path("metadata").path("namespace").asString(""),
                        name(pod),
                        pod.path("status").path("podIP").stringValueOpt(),
                        port.path("containerPort").asInt()))
                .ifPresent(port -> {
                    String entry = "metrics/" + name(pod) + ".txt";
                    attempt(
                            entry,
                            () -> addText(
                                    entry,
                                    successful(port.get(apiServer, "/metrics")).text()));
                });
    }

    private void addLogs(JsonNode pod) {
        progress.println("Reading the logs of " + name(pod));
        JsonNode status = pod.path("status");
        for (String list : List.of("initContainerStatuses", "containerStatuses")) {
            for (JsonNode container : status.path(list)) {
                String of = container.path("name").asString("");
                String path = CORE + "namespaces/"
                        + pod.path("metadata").path("namespace").asString("") + "/pods/" + name(pod) + "/log?container="
                        + of + "&timestamps=true&" + LOG_LIMITS;
                String entry = "logs/" + name(pod) + "/" + of;
                addLog(entry + ".log", path);
                if (container.path("restartCount").asInt(0) > 0) {
                    addLog(entry + ".previous.log", path + "&previous=true");
                }
            }
        }
    }

    private void addLog(String name, String path) {
        attempt(name, () -> {
            byte[] log = successful(apiServer.get(path, "text/plain, application/json", TIMEOUT))
                    .body();
            int cut = Math.max(0, log.length - MAX_LOG_BYTES);
            addText(name, new String(log, cut, log.length - cut, UTF_8));
        });
    }

    private interface Reading {
        void run() throws IOException;
    }

    private void attempt(String name, Reading reading) {
        if (nanoTime.getAsLong() - start > LONGEST.toNanos()) {
            addError(name, "left out, because the others took " + LONGEST.toMinutes() + " minutes");
            return;
        }
        try {
            reading.run();
        } catch (IOException | JacksonException | IllegalArgumentException e) {
            addError(name, String.valueOf(e.getMessage() == null ? e : e.getMessage()));
        }
    }

    private void list(String path, Consumer<JsonNode> visitor) throws IOException {
        String next = "";
        do {
            JsonNode page = json(path + "&limit=" + PAGE + (next.isEmpty() ? "" : "&continue=" + encoded(next)));
            page.path("items").forEach(visitor);
            next = page.path("metadata").path("continue").asString("");
        } while (!next.isEmpty());
    }

    private JsonNode json(String path) throws IOException {
        return JsonFields.JSON.readTree(
                successful(apiServer.get(path, "application/json", TIMEOUT)).body());
    }

    private static Answer successful(Answer answer) throws IOException {
        if (answer.isSuccessful()) {
            return answer;
        }
        String text = answer.text();
        String message = text.startsWith("{")
                ? JsonFields.JSON.readTree(text).path("message").asString(text)
                : text;
        throw new IOException(message.isBlank() ? "the answer has status " + answer.code() : message);
    }

    private static String encoded(String text) {
        return URLEncoder.encode(text, UTF_8);
    }

    /** Adds text that is none of Redaction's objects. */
    private void addText(String name, String text) {
        add(name, Redaction.text(text));
    }

    private void add(String name, String text) {
        byte[] content = text.getBytes(UTF_8);
        if (archive.size() + content.length > MAX_BYTES) {
            addError(
                    name,
                    "left out, because the archive has " + (archive.size() >> 20) + " of " + (MAX_BYTES >> 20)
                            + " MiB and this file " + content.length + " bytes");
            return;
        }
        write(name, content);
    }

    private void write(String name, byte[] content) {
        int slash = name.lastIndexOf('/');
        try {
            archive.add(FOLDER + (slash < 0 ? "" : "/" + name.substring(0, slash)), name.substring(slash + 1), content);
        } catch (IOException e) {
            throw new UncheckedIOException(e); // no error of one part: the disk is full
        }
    }

    /** Ends the archive and gives the file its name. */
    void complete() throws IOException {
        write("errors.txt", (String.join("\n", errors) + "\n").getBytes(UTF_8));
        archive.close();
        Files.move(part, file, StandardCopyOption.REPLACE_EXISTING);
        complete = true;
        progress.println(file + " has " + Files.size(file) + " bytes; "
                + (errors.isEmpty() ? "nothing is missing" : "what is missing is in its errors.txt: " + errors.size()));
    }

    /** Removes what has been written unless it is complete. */
    @Override
    public void close() throws IOException {
        if (!complete) {
            try {
                archive.close();
            } finally {
                Files.deleteIfExists(part);
            }
        }
    }
}
