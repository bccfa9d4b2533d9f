package io.aliquot.scheduler;

import static java.nio.charset.StandardCharsets.UTF_8;

import io.aliquot.testing.ApiServer;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.EnumMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.Stream;

/** A replica as the chart's Deployment has it: a real kube-scheduler and the extender, each a process. */
final class ReplicaProcess implements AutoCloseable {
    /** A container of the replica's pod. */
    enum Part {
        EXTENDER,
        KUBE_SCHEDULER
    }

    private static final HttpClient HTTP = HttpClient.newBuilder()
            .version(HttpClient.Version.HTTP_1_1)
            .connectTimeout(Duration.ofSeconds(2))
            .build();

    private final Path folder;
    private final String name;
    private final Path kubeconfig;
    private final int webhooks = ApiServer.freePort();
    private final int health = ApiServer.freePort();
    private final Map<Part, List<String>> commands = new EnumMap<>(Part.class);
    private final Map<Part, Process> processes = new EnumMap<>(Part.class);

    /**
     * Starts none of its processes.
     *
     * @param name of the replica's pod, which begins the holder's name in the Lease
     * @param kubeconfig of the scheduler's service account
     * @param configuration of kube-scheduler as the chart renders it
     */
    ReplicaProcess(Path folder, String name, Path kubeconfig, String configuration)
            throws IOException, InterruptedException {
        this.folder = folder;
        this.name = name;
        this.kubeconfig = kubeconfig;
        int extender = ApiServer.freePort();
        Path file = Files.writeString(
                folder.resolve(name + ".yaml"),
                configuration
                        .replace("http://127.0.0.1:9998", "http://127.0.0.1:" + extender)
                        .replace("clientConnection: {", "clientConnection: {kubeconfig: " + kubeconfig + ", "));
        commands.put(
                Part.EXTENDER,
                List.of(
                        Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                        "-Xmx192m",
                        "-XX:+UseSerialGC",
                        "-XX:TieredStopAtLevel=1",
                        "-Daliquot.ports.extender=" + extender,
                        "-Daliquot.ports.webhooks=" + webhooks,
                        "-Daliquot.ports.health=" + health,
                        "-cp",
                        System.getProperty("java.class.path"),
                        ReplicaProgram.class.getName()));
        // kube-scheduler calls itself by the name of its host, which is the pod's in a cluster.
        commands.put(
                Part.KUBE_SCHEDULER,
                List.of(
                        "unshare",
                        "--uts",
                        "sh",
                        "-c",
                        "hostname " + name + " && exec " + ApiServer.programs().resolve("kube-scheduler") + " --config="
                                + file + " --secure-port=0 --authentication-skip-lookup=true"
                                + " --leader-elect-lease-duration=6s --leader-elect-renew-deadline=4s"
                                + " --leader-elect-retry-period=1s"));
    }

    String name() {
        return name;
    }

    int webhooksPort() {
        return webhooks;
    }

    /** Starts what does not run, as the kubelet does. */
    void start() {
        commands.forEach((part, command) -> {
            Process process = processes.get(part);
            if (process == null || !process.isAlive()) {
                processes.put(part, start(part, command));
            }
        });
    }

    private Process start(Part part, List<String> command) {
        var builder = new ProcessBuilder(command)
                .redirectErrorStream(true)
                .redirectOutput(ProcessBuilder.Redirect.appendTo(log(part).toFile()));
        builder.environment()
                .putAll(Map.of(
                        "POD_NAME",
                        name,
                        "POD_NAMESPACE",
                        ApiServer.NAMESPACE,
                        "ALIQUOT_API_GROUP_SERVICE",
                        "aliquot-extension-api",
                        "KUBECONFIG",
                        kubeconfig.toString()));
        try {
            return builder.start();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    private Path log(Part part) {
        return folder.resolve(name + "-" + part + ".log");
    }

    /** The last lines of both logs. */
    String logs() throws IOException {
        var text = new StringBuilder();
        for (Part part : Part.values()) {
            List<String> lines = Files.exists(log(part)) ? Files.readAllLines(log(part), UTF_8) : List.of();
            text.append("\n").append(log(part).getFileName()).append(":\n");
            text.append(String.join("\n", lines.subList(Math.max(0, lines.size() - 40), lines.size())));
        }
        return text.toString();
    }

    /** Sends a signal such as KILL, and waits for the end of a process that it ends. */
    void signal(String signal, Part... parts) throws IOException, InterruptedException {
        List<Process> running = Stream.of(parts)
                .flatMap(part -> Stream.ofNullable(processes.get(part)))
                .filter(Process::isAlive)
                .toList();
        var command = new ArrayList<>(List.of("kill", "-" + signal));
        running.forEach(process -> command.add(Long.toString(process.pid())));
        if (!running.isEmpty()) {
            var unused = new ProcessBuilder(command).inheritIO().start().waitFor();
        }
        if (signal.equals("KILL") || signal.equals("TERM")) {
            running.forEach(process -> process.onExit().join());
        }
    }

    /** Samples of the extender's metrics whose names begin with {@code aliquot_}; none if it does not answer. */
    Map<String, Double> metrics() throws InterruptedException {
        var request = HttpRequest.newBuilder(URI.create("http://127.0.0.1:" + health + "/metrics"))
                .timeout(Duration.ofSeconds(2))
                .build();
        var samples = new TreeMap<String, Double>();
        try {
            HTTP.send(request, BodyHandlers.ofString(UTF_8))
                    .body()
                    .lines()
                    .filter(line -> line.startsWith("aliquot_"))
                    .forEach(line -> {
                        int space = line.lastIndexOf(' ');
                        samples.put(line.substring(0, space), Double.valueOf(line.substring(space + 1)));
                    });
        } catch (IOException e) {
            // it is starting, paused or dead
        }
        return samples;
    }

    @Override
    public void close() {
        processes.values().forEach(Process::destroyForcibly);
        processes.values().forEach(process -> process.onExit().join());
    }
}
