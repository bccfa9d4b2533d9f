package io.aliquot.scheduler.nodeagent;

import java.util.Collection;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;
import org.springframework.stereotype.Component;

/** The latest report of each node that has one. Thread-safe. */
@Component
public final class NodeReports {
    private final Map<String, NodeReport> byNode = new ConcurrentHashMap<>();

    public void put(NodeReport report) {
        byNode.put(report.node().name(), report);
    }

    /** The node is gone or has no readable inventory. */
    public void remove(String node) {
        byNode.remove(node);
    }

    Optional<NodeReport> find(String node) {
        return Optional.ofNullable(byNode.get(node));
    }

    Collection<NodeReport> all() {
        return byNode.values();
    }
}
