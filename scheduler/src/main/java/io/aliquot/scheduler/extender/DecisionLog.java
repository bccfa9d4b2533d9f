package io.aliquot.scheduler.extender;

import static java.util.stream.Collectors.groupingBy;
import static java.util.stream.Collectors.mapping;
import static java.util.stream.Collectors.toList;

import io.aliquot.scheduler.extender.Wire.FilterResult;
import io.aliquot.scheduler.extender.Wire.HostPriority;
import io.aliquot.scheduler.ledger.PodId;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * One line at level debug for each answer to kube-scheduler: why a pod is on its node, and why on no other one. A line
 * contains names, reasons and scores only, and few of each in a large cluster.
 */
final class DecisionLog {
    private static final Logger LOG = LoggerFactory.getLogger(DecisionLog.class);
    private static final int MOST_NODES = 5;
    private static final int MOST_REASONS = 10;

    private DecisionLog() {}

    static FilterResult filtered(PodId pod, List<String> nodes, FilterResult result) {
        if (LOG.isDebugEnabled()) {
            LOG.debug(
                    "filter {} nodes={} fits=\"{}\" refused=\"{}\" error=\"{}\"",
                    pod,
                    nodes.size(),
                    first(MOST_NODES, result.nodeNames(), ", "),
                    reasons(result),
                    result.error());
        }
        return result;
    }

    static List<HostPriority> prioritized(PodId pod, List<HostPriority> scores) {
        if (LOG.isDebugEnabled()) {
            List<String> best = scores.stream()
                    .sorted(Comparator.comparingInt(HostPriority::score).reversed())
                    .map(node -> node.host() + ": " + node.score())
                    .toList();
            LOG.debug("prioritize {} scores=\"{}\"", pod, first(MOST_NODES, best, ", "));
        }
        return scores;
    }

    static Binder.Result bound(PodId pod, String node, Binder.Result result) {
        LOG.debug("bind {} node={} outcome={} error=\"{}\"", pod, node, result.label(), result.error());
        return result;
    }

    /** The commonest reason first, with its nodes. */
    private static String reasons(FilterResult result) {
        Map<String, List<String>> nodes = Stream.of(result.failedNodes(), result.failedAndUnresolvableNodes())
                .flatMap(refusals -> refusals.entrySet().stream())
                .sorted(Map.Entry.comparingByKey())
                .collect(groupingBy(Map.Entry::getValue, mapping(Map.Entry::getKey, toList())));
        List<String> reasons = nodes.entrySet().stream()
                .sorted(Comparator.comparing(reason -> -reason.getValue().size()))
                .map(reason -> reason.getKey() + ": " + first(MOST_NODES, reason.getValue(), ", "))
                .toList();
        return first(MOST_REASONS, reasons, "; ");
    }

    private static String first(int most, List<String> all, String separator) {
        return all.stream().limit(most).collect(Collectors.joining(separator))
                + (all.size() > most ? " and " + (all.size() - most) + " more" : "");
    }
}
