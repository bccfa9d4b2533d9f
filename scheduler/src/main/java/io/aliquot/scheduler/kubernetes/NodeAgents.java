package io.aliquot.scheduler.kubernetes;

import io.fabric8.kubernetes.api.model.Pod;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.function.BiConsumer;
import java.util.function.Consumer;

/** Which nodes have an agent that is ready, from the agents' own pods. Thread-safe. */
final class NodeAgents {
    /** The chart's; nobody else may run pods under it in the release's namespace. */
    private static final String SERVICE_ACCOUNT = "aliquot-device-plugin";

    private record Agent(String node, boolean ready) {}

    private final String namespace;
    private final BiConsumer<String, Boolean> served;
    private final Consumer<String> unattended;
    private final Map<String, Agent> byUid = new HashMap<>();

    /**
     * Knows of no agent yet.
     *
     * @param namespace the release's
     * @param served is told of a node that has an agent, and whether one is ready, at each change
     * @param unattended is told of a node that has none any more
     */
    NodeAgents(String namespace, BiConsumer<String, Boolean> served, Consumer<String> unattended) {
        this.namespace = namespace;
        this.served = served;
        this.unattended = unattended;
    }

    /** A pod is new or has changed. */
    synchronized void present(Pod pod) {
        String node = PodReader.node(pod);
        if (!node.isEmpty()
                && namespace.equals(pod.getMetadata().getNamespace())
                && SERVICE_ACCOUNT.equals(pod.getSpec().getServiceAccountName())) {
            var now = new Agent(node, ready(pod));
            if (!Objects.equals(byUid.put(pod.getMetadata().getUid(), now), now)) {
                tell(node);
            }
        }
    }

    /** A pod is no more. */
    synchronized void gone(String uid) {
        Agent before = byUid.remove(uid);
        if (before != null) {
            tell(before.node());
        }
    }

    private void tell(String node) {
        // In a rolling update the old agent and the new one may both be there for a while.
        List<Agent> there = byUid.values().stream()
                .filter(agent -> agent.node().equals(node))
                .toList();
        if (there.isEmpty()) {
            unattended.accept(node);
        } else {
            served.accept(node, there.stream().anyMatch(Agent::ready));
        }
    }

    private static boolean ready(Pod pod) {
        return pod.getMetadata().getDeletionTimestamp() == null
                && pod.getStatus() != null
                && pod.getStatus().getConditions().stream()
                        .anyMatch(condition -> condition.getType().equals("Ready")
                                && condition.getStatus().equals("True"));
    }
}
