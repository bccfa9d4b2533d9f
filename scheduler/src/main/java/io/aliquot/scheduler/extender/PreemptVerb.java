package io.aliquot.scheduler.extender;

import io.aliquot.api.format.FormatException;
import io.aliquot.scheduler.extender.Wire.MetaPod;
import io.aliquot.scheduler.extender.Wire.MetaVictims;
import io.aliquot.scheduler.pending.UnboundPod;
import io.aliquot.scheduler.preemption.NodeVictims;
import io.aliquot.scheduler.preemption.Preemptor;
import java.util.Map;
import java.util.stream.Collectors;
import org.springframework.stereotype.Component;

/** The verb preempt: translates between kube-scheduler's JSON and {@link Preemptor}. */
@Component
final class PreemptVerb {
    private final Preemptor preemptor;

    PreemptVerb(Preemptor preemptor) {
        this.preemptor = preemptor;
    }

    /** The pods to evict, by node; empty where no eviction helps. */
    Map<String, MetaVictims> preempt(Wire.Pod pod, Map<String, MetaVictims> proposed) {
        UnboundPod unbound;
        try {
            unbound = pod.requesting(pod.template().request());
        } catch (FormatException e) {
            return Map.of();
        }
        return toWire(preemptor.preempt(unbound, fromWire(proposed)));
    }

    private static Map<String, NodeVictims> fromWire(Map<String, MetaVictims> victims) {
        return victims.entrySet().stream()
                .collect(Collectors.toMap(
                        Map.Entry::getKey,
                        node -> new NodeVictims(
                                node.getValue().pods().stream()
                                        .map(MetaPod::uid)
                                        .toList(),
                                node.getValue().numPdbViolations())));
    }

    private static Map<String, MetaVictims> toWire(Map<String, NodeVictims> victims) {
        return victims.entrySet().stream()
                .collect(Collectors.toMap(
                        Map.Entry::getKey,
                        node -> new MetaVictims(
                                node.getValue().uids().stream()
                                        .map(MetaPod::new)
                                        .toList(),
                                node.getValue().budgetViolations())));
    }
}
