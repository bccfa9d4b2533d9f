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

    /** The {@link io.aliquot.api.nodes.CertificateDigest} of the certificate of the node's agent, as the node names it now. */
    Optional<String> agentCertificate(String node) {
        return find(node).map(NodeReport::agentCertificate).filter(certificate -> !certificate.isEmpty());
    }

    /** Whether there are reports, and each is of a node where pods need no RuntimeClass. */
    public boolean allInjectByCdi() {
        return !byNode.isEmpty() && byNode.values().stream().allMatch(NodeReport::injectsByCdi);
    }

    Collection<NodeReport> all() {
        return byNode.values();
    }
}
