package io.aliquot.scheduler.kubernetes;

import io.fabric8.kubernetes.api.model.Pod;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.function.BiConsumer;
import java.util.function.Consumer;

/** Tracks which nodes have a ready agent, by the agents' pods. Thread-safe. */
final class NodeAgents {
    /** The chart's; only the agents may run under it in the release's namespace. */
    private static final String SERVICE_ACCOUNT = "aliquot-device-plugin";

    private record Agent(String node, boolean ready) {}

    private final String namespace;
    private final BiConsumer<String, Boolean> onAgent;
    private final Consumer<String> onNoAgent;
    private final Map<String, Agent> byUid = new HashMap<>();

    /**
     * Knows no agent at first.
     *
     * @param namespace of the release
     * @param onAgent receives, at each change, a node with an agent and whether an agent is ready
     * @param onNoAgent receives a node that lost its last agent
     */
    NodeAgents(String namespace, BiConsumer<String, Boolean> onAgent, Consumer<String> onNoAgent) {
        this.namespace = namespace;
        this.onAgent = onAgent;
        this.onNoAgent = onNoAgent;
    }

    synchronized void onPresent(Pod pod) {
        String node = PodReader.node(pod);
        if (!node.isEmpty()
                && namespace.equals(pod.getMetadata().getNamespace())
                && SERVICE_ACCOUNT.equals(pod.getSpec().getServiceAccountName())) {
            var now = new Agent(node, ready(pod));
            if (!Objects.equals(byUid.put(pod.getMetadata().getUid(), now), now)) {
                report(node);
            }
        }
    }

    synchronized void onGone(String uid) {
        Agent before = byUid.remove(uid);
        if (before != null) {
            report(before.node());
        }
    }

    private void report(String node) {
        // In a rolling update the old agent and the new one can exist at the same time.
        List<Agent> agents = byUid.values().stream()
                .filter(agent -> agent.node().equals(node))
                .toList();
        if (agents.isEmpty()) {
            onNoAgent.accept(node);
        } else {
            onAgent.accept(node, agents.stream().anyMatch(Agent::ready));
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
