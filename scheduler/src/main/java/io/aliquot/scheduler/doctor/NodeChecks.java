package io.aliquot.scheduler.doctor;

import io.aliquot.api.foreign.ForeignResources;
import io.aliquot.api.foreign.HamiRegistration;
import io.aliquot.api.format.FormatException;
import io.aliquot.api.names.Annotations;
import io.aliquot.api.nodes.Inventory;
import io.aliquot.scheduler.autoscaler.ClusterAutoscaler;
import io.fabric8.kubernetes.api.model.ManagedFieldsEntry;
import io.fabric8.kubernetes.api.model.Node;
import io.fabric8.kubernetes.api.model.NodeCondition;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.api.model.Taint;
import io.fabric8.kubernetes.api.model.coordination.v1.Lease;
import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.TreeMap;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/** What can be wrong with one of Aliquot's nodes, as the API server and the node's agent tell it. */
final class NodeChecks {
    /** The API server's stamp counts whole seconds, and a kubelet's request takes a moment. */
    private static final Duration LARGEST_SKEW = Duration.ofSeconds(10);

    private NodeChecks() {}

    static List<Finding> all(ClusterState state) {
        var checked = state.nodes().stream()
                .flatMap(node -> Stream.of(
                                agent(node, state),
                                owner(node, state),
                                gpus(node),
                                mps(node),
                                cgroups(node),
                                handler(node, state),
                                autoscaler(node),
                                clock(node, state))
                        .flatMap(List::stream));
        return Stream.concat(none(state).stream(), checked).toList();
    }

    private static List<Finding> none(ClusterState state) {
        return state.nodes().isEmpty() && state.agentTemplate().isPresent()
                ? List.of(new Finding(
                        "nodes",
                        "cluster",
                        "no node has the label " + state.nodeLabel() + ", so Aliquot shares no GPU",
                        "label the nodes: kubectl label node NODE " + state.nodeLabel()))
                : List.of();
    }

    static List<Finding> agent(Node node, ClusterState state) {
        Optional<NodeCondition> unready = condition(node, "Ready").filter(ready -> !isTrue(ready));
        if (unready.isPresent()) {
            return List.of(new Finding(
                    "node",
                    object(node),
                    "is not Ready: " + unready.get().getMessage(),
                    "see to its kubelet and container runtime first: journalctl -u kubelet on the node"));
        }
        List<Pod> agents = agents(node, state);
        String namespace = state.namespace();
        if (agents.isEmpty()) {
            return List.of(new Finding(
                    "agent",
                    object(node),
                    "has no node agent" + taints(node),
                    "see kubectl -n " + namespace + " describe daemonset " + ClusterState.AGENT
                            + "; taints that it is to tolerate go to devicePlugin.tolerations"));
        }
        if (agents.stream().noneMatch(PodTrouble::isReady)) {
            Pod agent = agents.getFirst();
            return List.of(new Finding(
                    "agent",
                    object(node),
                    "its node agent " + agent.getMetadata().getName() + " is not ready" + PodTrouble.text(agent, state),
                    "see docs/troubleshooting.md, \"A node shows no GPUs\", and kubectl -n " + namespace + " logs "
                            + agent.getMetadata().getName()));
        }
        Optional<String> text = inventory(node);
        if (text.isEmpty()) {
            return List.of(new Finding(
                    "inventory",
                    object(node),
                    "its agent is ready and has published no GPUs",
                    "see kubectl -n " + namespace + " logs "
                            + agents.getFirst().getMetadata().getName()));
        }
        try {
            Inventory inventory = Inventory.parse(text.get());
            return inventory.gpus().isEmpty() && inventory.conflict().isEmpty()
                    ? List.of(new Finding(
                            "inventory",
                            object(node),
                            "has the label " + state.nodeLabel() + " and no GPU",
                            "remove the label, or see why NVIDIA's driver lists none: nvidia-smi -L on the node"))
                    : List.of();
        } catch (FormatException e) {
            return List.of(new Finding(
                    "inventory",
                    object(node),
                    "its annotation " + Annotations.GPUS + " is not readable: " + e.getMessage(),
                    "finish the upgrade, so that agent and scheduler are of one version"));
        }
    }

    private static String taints(Node node) {
        String taints = node.getSpec().getTaints().stream()
                .filter(taint -> !"PreferNoSchedule".equals(taint.getEffect()))
                .map(Taint::getKey)
                .distinct()
                .collect(Collectors.joining(", "));
        return taints.isEmpty() ? "" : "; the node has the taints " + taints;
    }

    /** Who else serves the node's GPUs, or what else keeps the node from taking pods, by the agent's own sentence. */
    static List<Finding> owner(Node node, ClusterState state) {
        String plugins = allocatable(node).keySet().stream()
                .filter(ForeignResources::servedByOtherPlugins)
                .collect(Collectors.joining(", "));
        if (!plugins.isEmpty()) {
            return List.of(new Finding(
                    "other-device-plugin",
                    object(node),
                    "another device plugin advertises " + plugins + ", so the node takes no pods with shares",
                    "keep that plugin off the node (with the GPU Operator: kubectl label node "
                            + node.getMetadata().getName()
                            + " nvidia.com/gpu.deploy.device-plugin=false --overwrite), or remove the label "
                            + state.nodeLabel()));
        }
        if (HamiRegistration.isOn(annotations(node))) {
            return List.of(new Finding(
                    "hami",
                    object(node),
                    "HAMi has registered the node's GPUs, so it takes no pods with shares",
                    "give Aliquot's nodes another label by the chart's nodeLabel, or remove HAMi and then its"
                            + " registration: kubectl annotate node "
                            + node.getMetadata().getName() + " " + HamiRegistration.REGISTER + "- "
                            + HamiRegistration.HANDSHAKES.getFirst() + "-"));
        }
        return readable(node).map(Inventory::conflict).filter(conflict -> !conflict.isEmpty()).stream()
                .map(conflict -> new Finding(
                        "conflict",
                        object(node),
                        "takes no pods with shares: " + conflict,
                        "see docs/troubleshooting.md, \"A node shows no GPUs\""))
                .toList();
    }

    static List<Finding> gpus(Node node) {
        return condition(node, "AliquotGPUsHealthy").filter(healthy -> !isTrue(healthy)).stream()
                .map(unhealthy -> new Finding(
                        "gpu-health",
                        object(node),
                        unhealthy.getMessage(),
                        "see docs/troubleshooting.md, \"A GPU is unhealthy\""))
                .toList();
    }

    static List<Finding> mps(Node node) {
        return readable(node).filter(Inventory::mps).stream()
                .map(inventory -> new Finding(
                        "mps",
                        object(node),
                        "programs use a GPU of the node through NVIDIA's MPS, under which compute limits do not hold",
                        "find them by nvidia-smi on the node, which gives them the type M+C, and end the daemon: echo quit |"
                                + " nvidia-cuda-mps-control"))
                .toList();
    }

    static List<Finding> cgroups(Node node) {
        return readable(node).filter(inventory -> inventory.cgroups().equals(Inventory.HIDDEN_CGROUPS)).stream()
                .map(
                        inventory -> new Finding(
                                "cgroups",
                                object(node),
                                "its agent sees no pod's cgroup below the host's /sys/fs/cgroup, so a pod that is deleted by force"
                                        + " keeps its share",
                                "mount the cgroup file system there: the kubelet's pods are to be in kubepods or kubepods.slice"))
                .toList();
    }

    /** A node that lists its runtime's handlers, from Kubernetes 1.30 and containerd 2 on, lists that of the RuntimeClass. */
    static List<Finding> handler(Node node, ClusterState state) {
        List<String> reported = Stream.ofNullable(node.getStatus().getRuntimeHandlers())
                .flatMap(List::stream)
                .map(handler -> Objects.requireNonNullElse(handler.getName(), ""))
                .filter(name -> !name.isEmpty())
                .sorted()
                .toList();
        return state
                .runtimeClassName()
                .flatMap(state::runtimeClass)
                .filter(known -> !reported.isEmpty() && !reported.contains(known.getHandler()))
                .stream()
                .map(known -> new Finding(
                        "runtime-handler",
                        object(node),
                        "its container runtime has no handler " + known.getHandler() + ", which the RuntimeClass "
                                + known.getMetadata().getName() + " names, but " + String.join(", ", reported),
                        "configure NVIDIA's runtime on the node: nvidia-ctk runtime configure --runtime=containerd, then"
                                + " restart containerd"))
                .toList();
    }

    private static List<Finding> autoscaler(Node node) {
        return ClusterAutoscaler.readiness(labels(node), allocatable(node).keySet())
                .filter(verdict -> !verdict.ready())
                .stream()
                .map(verdict -> verdict.message().split("\\. ", 2))
                .map(sentences -> new Finding(
                        "autoscaler",
                        object(node),
                        sentences[0],
                        sentences.length > 1 ? sentences[1] : "see docs/autoscalers.md"))
                .toList();
    }

    /**
     * Compares the time that the kubelet wrote into its Lease, by the node's clock, with the API server's stamp of that
     * write (metadata.managedFields). So a kubelet that has ended is not taken for one whose clock is slow.
     */
    static List<Finding> clock(Node node, ClusterState state) {
        return state.leases().stream()
                .filter(lease ->
                        lease.getMetadata().getName().equals(node.getMetadata().getName()))
                .flatMap(lease -> skew(lease).stream())
                .filter(skew -> skew.abs().compareTo(LARGEST_SKEW) > 0)
                .map(skew -> new Finding(
                        "clock",
                        object(node),
                        "its clock is " + skew.abs().toSeconds() + " s " + (skew.isNegative() ? "behind" : "ahead of")
                                + " the API server's",
                        "synchronize it, see chronyc tracking or timedatectl on the node: tokens and certificates may be"
                                + " refused"))
                .toList();
    }

    private static Optional<Duration> skew(Lease lease) {
        return Stream.ofNullable(lease.getMetadata().getManagedFields())
                .flatMap(List::stream)
                .filter(entry -> entry.getFieldsV1() != null
                        && entry.getFieldsV1().getAdditionalProperties().get("f:spec") instanceof Map<?, ?> spec
                        && spec.containsKey("f:renewTime"))
                .map(ManagedFieldsEntry::getTime)
                .filter(Objects::nonNull)
                .map(Instant::parse)
                .findFirst()
                .filter(stamp -> lease.getSpec().getRenewTime() != null)
                .map(stamp ->
                        Duration.between(stamp, lease.getSpec().getRenewTime().toInstant()));
    }

    private static List<Pod> agents(Node node, ClusterState state) {
        return state.podsOf("device-plugin").stream()
                .filter(pod -> node.getMetadata().getName().equals(pod.getSpec().getNodeName()))
                .filter(pod -> !PodTrouble.hasEnded(pod))
                .toList();
    }

    /** The nodes whose agents work and that no other owner and no fault keeps from taking pods. */
    static List<Node> working(ClusterState state) {
        return state.nodes().stream()
                .filter(node ->
                        agent(node, state).isEmpty() && owner(node, state).isEmpty())
                .toList();
    }

    private static Optional<String> inventory(Node node) {
        return Optional.ofNullable(annotations(node).get(Annotations.GPUS));
    }

    /** The inventory; empty if there is none or it is not readable. */
    static Optional<Inventory> readable(Node node) {
        try {
            return inventory(node).map(Inventory::parse);
        } catch (FormatException e) {
            return Optional.empty();
        }
    }

    /** The resources of which there is more than nothing. */
    private static Map<String, ?> allocatable(Node node) {
        var allocatable =
                new TreeMap<>(Objects.requireNonNullElse(node.getStatus().getAllocatable(), Map.of()));
        allocatable.values().removeIf(quantity -> !ClusterChecks.isPositive(quantity));
        return allocatable;
    }

    private static Map<String, String> annotations(Node node) {
        return Objects.requireNonNullElse(node.getMetadata().getAnnotations(), Map.of());
    }

    private static Map<String, String> labels(Node node) {
        return Objects.requireNonNullElse(node.getMetadata().getLabels(), Map.of());
    }

    private static Optional<NodeCondition> condition(Node node, String type) {
        return node.getStatus().getConditions().stream()
                .filter(condition -> condition.getType().equals(type))
                .findFirst();
    }

    private static boolean isTrue(NodeCondition condition) {
        return condition.getStatus().equals("True");
    }

    private static String object(Node node) {
        return "node/" + node.getMetadata().getName();
    }
}
