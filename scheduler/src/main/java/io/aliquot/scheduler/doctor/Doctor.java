package io.aliquot.scheduler.doctor;

import ch.qos.logback.classic.Level;
import io.aliquot.api.format.JsonFields;
import io.aliquot.scheduler.apiserver.client.ApiServerClient;
import io.fabric8.kubernetes.client.ConfigBuilder;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientBuilder;
import io.fabric8.kubernetes.client.KubernetesClientException;
import java.io.IOException;
import java.io.PrintStream;
import java.io.UncheckedIOException;
import java.nio.file.Path;
import java.time.Clock;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.function.LongSupplier;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** The program {@code aliquot doctor}: reads the cluster, checks it and prints what it finds. */
public final class Doctor {
    private static final int HEALTHY = 0;
    private static final int FOUND = 1;
    private static final int COULD_NOT_LOOK = 2;
    private static final int TIMEOUT_MILLIS = 10_000;

    private Doctor() {}

    /**
     * Runs the program with the configuration of the environment, as kubectl has it, and returns its exit code.
     *
     * @param arguments as {@link Options#USAGE} says
     * @param clock to compare certificates with
     * @param nanoTime to wait for probes
     */
    public static int run(
            List<String> arguments, Clock clock, LongSupplier nanoTime, PrintStream out, PrintStream err) {
        // Logback without a configuration prints debug messages of the client to standard output.
        ((ch.qos.logback.classic.Logger) LoggerFactory.getLogger(Logger.ROOT_LOGGER_NAME)).setLevel(Level.OFF);
        Optional<Options> options;
        try {
            options = Options.parse(arguments);
        } catch (IllegalArgumentException e) {
            err.println("aliquot doctor: " + e.getMessage());
            return COULD_NOT_LOOK;
        }
        if (options.isEmpty()) {
            out.print(Options.USAGE);
            return HEALTHY;
        }
        var config = new ConfigBuilder()
                .withRequestRetryBackoffLimit(0)
                .withConnectionTimeout(TIMEOUT_MILLIS)
                .withRequestTimeout(TIMEOUT_MILLIS)
                .withHttp2Disable(true)
                .build();
        try (KubernetesClient client =
                new KubernetesClientBuilder().withConfig(config).build()) {
            return options.get().bundle().isPresent()
                    ? bundle(options.get(), options.get().bundle().get(), client, clock, nanoTime, out, err)
                    : run(options.get(), client, clock, nanoTime, out);
        } catch (KubernetesClientException e) {
            err.println(
                    "aliquot doctor: cannot read the cluster at " + config.getMasterUrl() + ": " + message(e)
                            + "; use the kubeconfig of an administrator (KUBECONFIG), or run the chart's CronJob aliquot-doctor");
            return COULD_NOT_LOOK;
        }
    }

    private static int run(
            Options options, KubernetesClient client, Clock clock, LongSupplier nanoTime, PrintStream out) {
        Diagnosis diagnosis = diagnose(options, client, clock, nanoTime);
        out.println(diagnosis.print(options.json()));
        return diagnosis.findings().isEmpty() ? HEALTHY : FOUND;
    }

    /** Writes the archive, also if the findings are incomplete or there are none because the caller may not read enough. */
    private static int bundle(
            Options options,
            Path file,
            KubernetesClient client,
            Clock clock,
            LongSupplier nanoTime,
            PrintStream out,
            PrintStream err) {
        String server = client.getKubernetesVersion().getGitVersion(); // fails if there is no API server
        var apiServer = new ApiServerClient(client.getConfiguration());
        try (var bundle = new Bundle(file, apiServer, clock.instant(), nanoTime, err)) {
            err.println("Checking the installation, Kubernetes " + server);
            try {
                Diagnosis diagnosis = diagnose(options, client, clock, nanoTime);
                out.println(diagnosis.print(options.json()));
                bundle.addFindings(diagnosis.print(false), diagnosis.print(true));
            } catch (KubernetesClientException e) {
                bundle.addError("findings.json", message(e));
            }
            bundle.addCluster();
            bundle.complete();
            return HEALTHY;
        } catch (IOException | UncheckedIOException e) {
            err.println("aliquot doctor: cannot write " + file + ": " + e.getMessage() + "; choose another folder");
            return COULD_NOT_LOOK;
        }
    }

    private record Diagnosis(ClusterState state, List<Finding> findings, int probed) {
        String print(boolean json) {
            return json ? json(findings, state) : text(findings, state, probed);
        }
    }

    private static Diagnosis diagnose(Options options, KubernetesClient client, Clock clock, LongSupplier nanoTime) {
        ClusterState state = new ClusterReader(client).read();
        var findings = new ArrayList<>(ClusterChecks.all(state, clock.instant()));
        findings.addAll(NodeChecks.all(state));
        List<String> probed = List.of();
        if (options.probe()) {
            var probe = new Probe(client, options, nanoTime);
            probed = NodeChecks.working(state).stream()
                    .map(node -> node.getMetadata().getName())
                    .toList();
            findings.addAll(probe.run(state, probed));
        }
        return new Diagnosis(state, findings, probed.size());
    }

    static String text(List<Finding> findings, ClusterState state, int probed) {
        var text = new StringBuilder();
        findings.forEach(finding -> text.append(finding.print()).append(System.lineSeparator()));
        int nodes = state.nodes().size();
        return text.append(
                        switch (findings.size()) {
                            case 0 -> "Nothing found";
                            case 1 -> "1 finding";
                            default -> findings.size() + " findings";
                        })
                .append(": Kubernetes ")
                .append(state.kubernetesVersion())
                .append(", ")
                .append(nodes)
                .append(nodes == 1 ? " node with " : " nodes with ")
                .append(state.nodeLabel())
                .append(", ")
                .append(probed)
                .append(" of them probed")
                .toString();
    }

    static String json(List<Finding> findings, ClusterState state) {
        var root = JsonFields.JSON.createObjectNode();
        var list = root.putArray("findings");
        findings.forEach(finding -> list.addObject()
                .put("check", finding.check())
                .put("object", finding.object())
                .put("problem", finding.problem())
                .put("action", finding.action()));
        var nodes = root.putArray("nodes");
        state.nodes().stream().map(NodeFacts::of).forEach(nodes::add);
        return root.toPrettyString();
    }

    /** The API server's own message, or the cause why there is none. */
    static String message(KubernetesClientException e) {
        if (e.getStatus() != null && e.getStatus().getMessage() != null) {
            return e.getStatus().getMessage();
        }
        Throwable cause = e;
        while (cause.getCause() != null) {
            cause = cause.getCause();
        }
        return String.valueOf(cause.getMessage() == null ? cause : cause.getMessage());
    }
}
