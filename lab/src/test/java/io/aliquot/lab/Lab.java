package io.aliquot.lab;

import static java.nio.charset.StandardCharsets.UTF_8;

import io.fabric8.kubernetes.api.model.Event;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.api.model.Quantity;
import io.fabric8.kubernetes.client.Config;
import io.fabric8.kubernetes.client.ConfigBuilder;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientBuilder;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;

/**
 * The running lab, as {@code ./aliquot env} describes it. The tests must run in the lab's network namespace;
 * {@code src/test/jvm/bin/java} starts their JVM there.
 */
final class Lab implements AutoCloseable {
    /** The namespace of the release. */
    static final String NAMESPACE = "aliquot";

    private static final String DRIVER = "/var/lib/aliquot/fake-driver";
    private static final Duration COMMAND_TIMEOUT = Duration.ofSeconds(60);

    /** Of the virtual machine, beside other work; the command itself gives it ten minutes. */
    private static final Duration REBOOT_TIMEOUT = Duration.ofMinutes(12);

    private final Path root;
    private final Map<String, String> environment;
    private final KubernetesClient client;

    /** Exit status and output of a finished command. */
    record Output(int exit, String out, String err) {
        /** The standard output; fails the test if the command failed. */
        String expectSuccess() {
            if (exit != 0) {
                throw new AssertionError("expected a command to succeed, found " + this);
            }
            return out;
        }

        @Override
        public String toString() {
            return "exit " + exit + "\n" + out + err;
        }
    }

    private Lab(Path root, Map<String, String> environment) {
        this.root = root;
        this.environment = Map.copyOf(environment);
        Config config;
        try {
            config = Config.fromKubeconfig(Files.readString(Path.of(setting("KUBECONFIG"))));
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
        // Without retries, a test that expects an error gets it at once.
        config.setRequestRetryBackoffLimit(0);
        config.setWatchReconnectInterval(200);
        this.client = new KubernetesClientBuilder().withConfig(config).build();
    }

    /** Finds the lab of the checkout that contains the working directory. */
    static Lab find() {
        Path root = Path.of("").toAbsolutePath();
        while (!Files.isExecutable(root.resolve("aliquot"))) {
            if (root.getParent() == null) {
                throw new IllegalStateException("no ./aliquot in the working directory or above it");
            }
            root = root.getParent();
        }
        var environment = new HashMap<String, String>();
        String text = execute(COMMAND_TIMEOUT, List.of(root.resolve("aliquot").toString(), "env"))
                .expectSuccess();
        text.lines().forEach(line -> {
            int equals = line.indexOf('=');
            environment.put(
                    line.substring(0, equals), line.substring(equals + 1).trim());
        });
        return new Lab(root, environment);
    }

    /** A client with the rights of the cluster's administrator. */
    KubernetesClient client() {
        return client;
    }

    /** A value of {@code ./aliquot env}. */
    String setting(String key) {
        String value = environment.get(key);
        if (value == null) {
            throw new IllegalStateException("./aliquot env has no " + key);
        }
        return value;
    }

    /** The value of {@code ./aliquot env} that names what {@code ./aliquot build} makes for the tests. */
    String built(String key) {
        String path = setting(key);
        if (!Files.exists(Path.of(path))) {
            throw new IllegalStateException("there is no " + path + "; ./aliquot build makes it");
        }
        return path;
    }

    /** The nodes whose GPUs Aliquot shares. */
    List<String> nodes() {
        return List.of(setting("NODES").split(" ", -1));
    }

    /** The node of a kind, one of {@link #nodes()} if they have one of it. */
    String node(NodeKind kind) {
        String cdi = setting("CDI_NODE");
        return switch (kind) {
            case CDI -> cdi;
            case DEFAULT_RUNTIME ->
                nodes().stream().filter(node -> !node.equals(cdi)).findFirst().orElseThrow();
            case RUNTIME_CLASS -> otherNode();
            case VIRTUAL_MACHINE -> virtualMachine();
        };
    }

    /** The node whose GPUs NVIDIA's device plugin serves. */
    String otherNode() {
        return setting("OTHER_NODE");
    }

    /** The virtual machine, a node while {@code ./aliquot vm up} has added it. */
    String virtualMachine() {
        return setting("VM_NODE");
    }

    /** The nodes whose GPUs Aliquot shares, with the virtual machine if it is one. */
    List<String> nodesWithShares() {
        var all = new ArrayList<String>(nodes());
        if (client.nodes().withName(virtualMachine()).get() != null) {
            all.add(virtualMachine());
        }
        return all;
    }

    /** Whether a node is not a hollow one. */
    boolean hasKubelet(String node) {
        return nodes().contains(node) || node.equals(otherNode()) || node.equals(virtualMachine());
    }

    /** A node's allocatable amount of a resource; 0 if the node does not list the resource. */
    int allocatable(String node, String resource) {
        Quantity quantity =
                client.nodes().withName(node).get().getStatus().getAllocatable().get(resource);
        return quantity == null ? 0 : quantity.getNumericalAmount().intValueExact();
    }

    /**
     * A client that impersonates a user and has the administrator's RBAC rights: for requests that admission policies
     * allow to that user only.
     *
     * @param extra the extra fields of the user's token
     */
    KubernetesClient impersonate(String user, Map<String, List<String>> extra) {
        Config config = new ConfigBuilder(client.getConfiguration())
                .withImpersonateUsername(user)
                .withImpersonateGroups("system:masters")
                .withImpersonateExtras(extra)
                .build();
        return new KubernetesClientBuilder().withConfig(config).build();
    }

    /** The pods of a component of the release that are not terminating. */
    List<Pod> componentPods(String component) {
        return pods(component)
                .filter(pod -> pod.getMetadata().getDeletionTimestamp() == null)
                // the agent's pod on a deleted hollow node remains for minutes
                .filter(pod -> hasKubelet(String.valueOf(pod.getSpec().getNodeName())))
                .toList();
    }

    /** The node agent of a node. */
    Pod agentOf(String node) {
        return componentPods("device-plugin").stream()
                .filter(pod -> node.equals(pod.getSpec().getNodeName()))
                .findFirst()
                .orElseThrow(() -> new AssertionError("no node agent on " + node));
    }

    /** Also those that are being deleted. */
    private Stream<Pod> pods(String component) {
        return client
                .pods()
                .inNamespace(NAMESPACE)
                .withLabel("app.kubernetes.io/component", component)
                .list()
                .getItems()
                .stream();
    }

    /** The events about a node. */
    List<Event> nodeEvents(String node) {
        return client.v1()
                .events()
                .inAnyNamespace()
                .withField("involvedObject.name", node)
                .list()
                .getItems();
    }

    /** The metrics of a pod in Prometheus's text format. */
    static String metrics(Pod pod, int port) {
        URI uri = URI.create("http://" + pod.getStatus().getPodIP() + ":" + port + "/metrics");
        try (var http = HttpClient.newHttpClient()) {
            return http.send(HttpRequest.newBuilder(uri).build(), BodyHandlers.ofString())
                    .body();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new IllegalStateException("interrupted during a scrape", e);
        }
    }

    /** An image with bash, coreutils, Python and {@code vgpu-sample}. */
    String sampleImage() {
        return setting("SAMPLE_IMAGE");
    }

    Path root() {
        return root;
    }

    /** Runs {@code ./aliquot ARGUMENTS}. */
    Output aliquot(String... arguments) {
        var command = new ArrayList<String>();
        command.add(root.resolve("aliquot").toString());
        command.addAll(Arrays.asList(arguments));
        return execute(COMMAND_TIMEOUT.multipliedBy(3), command);
    }

    Output kubectl(String... arguments) {
        return aliquot(prepend(arguments, "kubectl"));
    }

    /** Runs a command on a node, beside its kubelet and container runtime. */
    Output onNode(String node, String... command) {
        return aliquot(prepend(command, "node", node));
    }

    /**
     * Changes a GPU or the simulated driver of a node, as {@code aliquot-fake-driver --help} says, and returns what the
     * command prints.
     */
    String driver(String node, String... command) {
        var all = new ArrayList<String>(List.of(DRIVER + "/bin/aliquot-fake-driver"));
        all.addAll(Arrays.asList(command));
        all.addAll(List.of("--root", DRIVER, "--cdi", "/etc/cdi"));
        return onNode(node, all.toArray(String[]::new)).expectSuccess();
    }

    /** Upgrades the release with one more value, such as {@code "devicePlugin.mig=true"}. */
    void upgrade(String value) {
        helm("upgrade", "--reuse-values", "--set", value);
    }

    /** Runs helm for the release with this checkout's chart; returns what it prints. */
    String helm(String verb, String... flags) {
        String chart = root.resolve("charts/aliquot").toString();
        return aliquot(prepend(flags, "helm", verb, "aliquot", chart, "--namespace", NAMESPACE))
                .expectSuccess();
    }

    /** Waits until the node agents have the last upgrade's form and are ready. */
    void awaitAgents() {
        kubectl("rollout", "status", "daemonset/aliquot-device-plugin", "--namespace", NAMESPACE, "--timeout=120s")
                .expectSuccess();
    }

    /** Waits until all schedulers have the last upgrade's form. Those of before have ended then: they admit pods until they do. */
    void awaitSchedulers() {
        kubectl("rollout", "status", "deployment/aliquot-scheduler", "--namespace", NAMESPACE, "--timeout=170s")
                .expectSuccess();
        TestNamespace.awaitTrue(
                "the schedulers of before have ended",
                TestNamespace.EVENTUALLY,
                () -> pods("scheduler").noneMatch(pod -> pod.getMetadata().getDeletionTimestamp() != null));
    }

    /** Sets a label of a node, or removes it: {@code key=value}, {@code key-}. */
    void label(String node, String label) {
        kubectl("label", "--overwrite", "node", node, label).expectSuccess();
    }

    /** Sets the runtime of a node's containers without a RuntimeClass, and restarts containerd, which their pods survive. */
    void setDefaultRuntime(String node, String runtime) {
        configureContainerd(node, "s/default_runtime_name = .*/default_runtime_name = \"%s\"/".formatted(runtime));
    }

    /** Changes containerd's configuration by a command of sed, and restarts containerd, which the node's pods survive. */
    void configureContainerd(String node, String change) {
        onNode(node, "sed", "-i", change, "/etc/containerd/config.toml").expectSuccess();
        kill(node + "/containerd");
        start(node + "/containerd");
    }

    /** Sends SIGKILL to a program of the lab, such as {@code node1/kubelet}. */
    void kill(String... programs) {
        aliquot(prepend(programs, "kill")).expectSuccess();
    }

    void start(String... programs) {
        aliquot(prepend(programs, "start")).expectSuccess();
    }

    /** Ends all programs and containers of a node and starts it again; returns when its kubelet answers. */
    void reboot(String node) {
        execute(REBOOT_TIMEOUT, List.of(root.resolve("aliquot").toString(), "reboot", node))
                .expectSuccess();
    }

    /** Has the node's container runtime send SIGKILL to all processes of a container. */
    void killContainer(String node, String containerId) {
        signal(node, containerId, "SIGKILL");
    }

    /** Has the node's container runtime send a signal to all processes of a container. */
    void signal(String node, String containerId, String signal) {
        onNode(
                        node,
                        "ctr",
                        "--namespace",
                        "k8s.io",
                        "tasks",
                        "kill",
                        "--signal",
                        signal,
                        "--all",
                        containerId.replaceFirst("^containerd://", ""))
                .expectSuccess();
    }

    @Override
    public void close() {
        client.close();
    }

    private static String[] prepend(String[] tail, String... head) {
        var all = new ArrayList<>(Arrays.asList(head));
        all.addAll(Arrays.asList(tail));
        return all.toArray(String[]::new);
    }

    static Output execute(Duration timeout, List<String> command) {
        try {
            Process process = new ProcessBuilder(command)
                    .redirectInput(
                            ProcessBuilder.Redirect.from(Path.of("/dev/null").toFile()))
                    .start();
            var out = read(process.getInputStream());
            var err = read(process.getErrorStream());
            if (!process.waitFor(timeout.toMillis(), TimeUnit.MILLISECONDS)) {
                process.destroyForcibly();
                throw new AssertionError("timed out after " + timeout + ": " + command);
            }
            return new Output(process.exitValue(), out.join(), err.join());
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new IllegalStateException("interrupted while waiting for " + command, e);
        }
    }

    /** On a thread of its own: on two cores the common pool has one, which the Kubernetes client needs. */
    private static CompletableFuture<String> read(InputStream stream) {
        return CompletableFuture.supplyAsync(
                () -> {
                    try (stream) {
                        return new String(stream.readAllBytes(), UTF_8);
                    } catch (IOException e) {
                        throw new UncheckedIOException(e);
                    }
                },
                task -> Thread.ofPlatform().daemon().start(task));
    }
}
