package io.aliquot.scheduler.apiserver;

import io.aliquot.scheduler.apiserver.reader.PodReader;
import io.fabric8.kubernetes.api.model.Pod;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;

/** Tracks which nodes have a ready agent, and where, by the agents' pods. Thread-safe. */
final class NodeAgents {
    /** The chart's; only the agents may run under it in the release's namespace. */
    private static final String SERVICE_ACCOUNT = "aliquot-device-plugin";

    /** An agent's pod; {@code address} is empty unless it is ready and has one. */
    private record Agent(String node, boolean ready, String address) {}

    /** Receives what changes. */
    interface Listener {
        /**
         * The node has an agent.
         *
         * @param ready whether one is ready
         * @param address of the pod of a ready one; empty if none is ready
         */
        void agent(String node, boolean ready, String address);

        /** The node lost its last agent. */
        void noAgent(String node);
    }

    private final String namespace;
    private final Listener listener;
    private final Map<String, Agent> byUid = new HashMap<>();

    /**
     * Knows no agent at first.
     *
     * @param namespace of the release
     */
    NodeAgents(String namespace, Listener listener) {
        this.namespace = namespace;
        this.listener = listener;
    }

    synchronized void onPresent(Pod pod) {
        String node = PodReader.node(pod);
        if (!node.isEmpty()
                && namespace.equals(pod.getMetadata().getNamespace())
                && SERVICE_ACCOUNT.equals(pod.getSpec().getServiceAccountName())) {
            boolean ready = ready(pod);
            var now = new Agent(node, ready, ready ? address(pod) : "");
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
            listener.noAgent(node);
        } else {
            listener.agent(
                    node,
                    agents.stream().anyMatch(Agent::ready),
                    agents.stream()
                            .map(Agent::address)
                            .filter(address -> !address.isEmpty())
                            .findFirst()
                            .orElse(""));
        }
    }

    private static String address(Pod pod) {
        return Objects.requireNonNullElse(pod.getStatus().getPodIP(), "");
    }

    private static boolean ready(Pod pod) {
        return pod.getMetadata().getDeletionTimestamp() == null
                && pod.getStatus() != null
                && pod.getStatus().getConditions().stream()
                        .anyMatch(condition -> condition.getType().equals("Ready")
                                && condition.getStatus().equals("True"));
    }
}
