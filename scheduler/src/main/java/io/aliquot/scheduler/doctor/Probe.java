package io.aliquot.scheduler.doctor;

import static java.nio.charset.StandardCharsets.UTF_8;

import io.aliquot.api.names.Resources;
import io.fabric8.kubernetes.api.model.ContainerStateTerminated;
import io.fabric8.kubernetes.api.model.Event;
import io.fabric8.kubernetes.api.model.NodeSelectorRequirement;
import io.fabric8.kubernetes.api.model.NodeSelectorRequirementBuilder;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.api.model.PodBuilder;
import io.fabric8.kubernetes.api.model.Quantity;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientException;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.TimeUnit;
import java.util.function.LongSupplier;
import java.util.stream.Stream;

/**
 * Pods with a small share, one on each node, that tell by their termination message what a container sees of its limits. They
 * are created with the caller's rights, and deleted whatever happens, also if the program is interrupted.
 */
final class Probe {
    static final int MIB = 64;

    private static final Duration LONGEST_WAIT = Duration.ofSeconds(60);
    private static final long POLL_MILLIS = 500;
    /** Ends pods of a doctor that was killed. */
    private static final long LONGEST_RUN_SECONDS = 120;

    private static final String RUN = "doctor.aliquot.io/run";
    private static final String CONTAINER = "probe";
    private static final long NOT_ROOT = 65532;

    /** Of the chart, whose pod of {@code helm test} runs it too. Prints one sentence, with {@link #FAILED} if it is a finding. */
    private static final String SCRIPT = script();

    private static final String FAILED = "FAILED: ";

    private final KubernetesClient client;
    private final Options options;
    private final LongSupplier nanoTime;
    private final String run = UUID.randomUUID().toString();

    Probe(KubernetesClient client, Options options, LongSupplier nanoTime) {
        this.client = client;
        this.options = options;
        this.nanoTime = nanoTime;
    }

    /** Probes these nodes at the same time. */
    List<Finding> run(ClusterState state, List<String> nodes) {
        var interrupted = new Thread(this::deleteAll);
        Runtime.getRuntime().addShutdownHook(interrupted);
        try {
            var findings = new ArrayList<Finding>();
            // By the name of the pod.
            var probed = new LinkedHashMap<String, String>();
            for (String node : nodes) {
                try {
                    Pod pod = client.resource(pod(node, state))
                            .inNamespace(options.namespace())
                            .create();
                    probed.put(pod.getMetadata().getName(), node);
                } catch (KubernetesClientException e) {
                    findings.add(
                            finding(
                                    node,
                                    "a probe pod with " + MIB + " MiB is refused: " + Doctor.message(e),
                                    "see docs/troubleshooting.md, \"A pod is refused\", or choose another namespace by --namespace"));
                }
            }
            Map<String, Pod> pods = awaitEnd(probed.keySet());
            probed.forEach((name, node) -> Optional.ofNullable(pods.get(name))
                    .map(pod -> judge(node, pod))
                    .orElseGet(() ->
                            Optional.of(finding(node, "its probe pod was deleted by another program", "try again")))
                    .ifPresent(findings::add));
            return findings;
        } finally {
            deleteAll();
            Runtime.getRuntime().removeShutdownHook(interrupted);
        }
    }

    private void deleteAll() {
        client.pods().inNamespace(options.namespace()).withLabel(RUN, run).delete();
    }

    /** The pods when all have ended, or after the longest wait. */
    private Map<String, Pod> awaitEnd(Set<String> names) {
        long start = nanoTime.getAsLong();
        while (true) {
            var pods = new HashMap<String, Pod>();
            client.pods()
                    .inNamespace(options.namespace())
                    .withLabel(RUN, run)
                    .list()
                    .getItems()
                    .forEach(pod -> pods.put(pod.getMetadata().getName(), pod));
            boolean allEnded =
                    names.stream().allMatch(name -> !pods.containsKey(name) || PodTrouble.hasEnded(pods.get(name)));
            if (allEnded || nanoTime.getAsLong() - start > LONGEST_WAIT.toNanos()) {
                return pods;
            }
            try {
                TimeUnit.MILLISECONDS.sleep(POLL_MILLIS);
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
                return pods;
            }
        }
    }

    private Optional<Finding> judge(String node, Pod pod) {
        if (!PodTrouble.hasEnded(pod)) {
            List<Event> warnings = ClusterReader.events(client, pod);
            return Optional.of(finding(
                    node,
                    "a probe pod with " + MIB + " MiB has not ended within " + LONGEST_WAIT.toSeconds() + " s"
                            + PodTrouble.text(pod, warnings, ""),
                    pod.getSpec().getNodeName() == null
                            ? "see docs/troubleshooting.md, \"A pod stays Pending\""
                            : "see the node's container runtime and NVIDIA's runtime in it"));
        }
        Optional<ContainerStateTerminated> ended = pod.getStatus().getContainerStatuses().stream()
                .flatMap(status -> Stream.ofNullable(status.getState().getTerminated()))
                .findFirst();
        String message = ended.map(ContainerStateTerminated::getMessage).orElse("");
        return problem(message, pod.getStatus().getPhase().equals("Succeeded"), PodTrouble.text(pod, List.of(), ""))
                .map(problem -> finding(
                        node,
                        problem,
                        "see docs/troubleshooting.md, \"A program in the container fails\", and do not run pods of other"
                                + " tenants there"));
    }

    /**
     * What is wrong with what a probe saw, a part of a sentence; empty if its limits hold.
     *
     * @param message what it printed last
     * @param succeeded whether it ended with exit code 0
     * @param trouble what Kubernetes says of it otherwise
     */
    static Optional<String> problem(String message, boolean succeeded, String trouble) {
        if (succeeded) {
            return Optional.empty();
        }
        return message.lines()
                .filter(line -> line.startsWith(FAILED))
                .findFirst()
                .map(line -> "in a container with a share " + line.substring(FAILED.length()))
                .or(() -> Optional.of("its probe pod failed" + trouble));
    }

    private static String script() {
        try (InputStream script = Probe.class.getResourceAsStream("probe.sh")) {
            return new String(script.readAllBytes(), UTF_8);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    private static Finding finding(String node, String problem, String action) {
        return new Finding("probe", "node/" + node, problem, action);
    }

    /** With kube-scheduler's choice of the node and not by nodeName, which would bypass the scheduler. */
    private Pod pod(String node, ClusterState state) {
        var agent = state.agentTemplate()
                .orElseThrow(() -> new IllegalStateException("expected a node agent where a node works"))
                .getSpec();
        NodeSelectorRequirement thisNode = new NodeSelectorRequirementBuilder()
                .withKey("metadata.name")
                .withOperator("In")
                .withValues(node)
                .build();
        return new PodBuilder()
                .withNewMetadata()
                .withGenerateName("aliquot-doctor-")
                .addToLabels(RUN, run)
                .endMetadata()
                .withNewSpec()
                .withRestartPolicy("Never")
                .withActiveDeadlineSeconds(LONGEST_RUN_SECONDS)
                .withTerminationGracePeriodSeconds(1L)
                .withAutomountServiceAccountToken(false)
                .withEnableServiceLinks(false)
                .withNewAffinity()
                .withNewNodeAffinity()
                .withNewRequiredDuringSchedulingIgnoredDuringExecution()
                .addNewNodeSelectorTerm()
                .withMatchFields(thisNode)
                .endNodeSelectorTerm()
                .endRequiredDuringSchedulingIgnoredDuringExecution()
                .endNodeAffinity()
                .endAffinity()
                .addNewToleration()
                .withOperator("Exists")
                .endToleration()
                .withNewSecurityContext()
                .withRunAsNonRoot(true)
                .withRunAsUser(NOT_ROOT)
                .withRunAsGroup(NOT_ROOT)
                .withNewSeccompProfile()
                .withType("RuntimeDefault")
                .endSeccompProfile()
                .endSecurityContext()
                .addNewContainer()
                .withName(CONTAINER)
                .withImage(options.image()
                        .orElseGet(() -> agent.getContainers().getFirst().getImage()))
                .withImagePullPolicy(
                        options.image().isPresent()
                                ? "IfNotPresent"
                                : agent.getContainers().getFirst().getImagePullPolicy())
                .withCommand("/bin/sh", "-c", SCRIPT)
                .withTerminationMessagePolicy("FallbackToLogsOnError")
                .addNewEnv()
                .withName("NVIDIA_DRIVER_CAPABILITIES")
                .withValue("compute,utility")
                .endEnv()
                .withNewResources()
                .addToLimits(Resources.MEMORY, new Quantity(Integer.toString(MIB)))
                .addToLimits(Resources.CORES, new Quantity("1")) // a namespace may require them
                .endResources()
                .withNewSecurityContext()
                .withAllowPrivilegeEscalation(false)
                .withReadOnlyRootFilesystem(true)
                .withNewCapabilities()
                .withDrop("ALL")
                .endCapabilities()
                .endSecurityContext()
                .endContainer()
                .endSpec()
                .build();
    }
}
