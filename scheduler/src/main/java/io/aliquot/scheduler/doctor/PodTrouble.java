package io.aliquot.scheduler.doctor;

import io.fabric8.kubernetes.api.model.ContainerState;
import io.fabric8.kubernetes.api.model.ContainerStatus;
import io.fabric8.kubernetes.api.model.Event;
import io.fabric8.kubernetes.api.model.Pod;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import java.util.stream.Stream;

/** Why a pod is not ready, by its own status, its events and what it says itself. */
final class PodTrouble {
    private static final int LONGEST_MESSAGE = 600;

    private PodTrouble() {}

    static boolean isReady(Pod pod) {
        return pod.getStatus().getConditions().stream()
                .anyMatch(condition -> condition.getType().equals("Ready")
                        && condition.getStatus().equals("True"));
    }

    static boolean hasEnded(Pod pod) {
        return Set.of("Succeeded", "Failed")
                .contains(String.valueOf(pod.getStatus().getPhase()));
    }

    /**
     * The part of a sentence after {@code the pod is not ready}: what it says itself, or else its containers' states, the
     * last message of each, and its last event. Empty if nothing tells.
     */
    static String text(Pod pod, ClusterState state) {
        String uid = pod.getMetadata().getUid();
        return text(
                pod,
                state.warnings().getOrDefault(uid, List.of()),
                state.readiness().getOrDefault(uid, ""));
    }

    static String text(Pod pod, List<Event> warnings, String readiness) {
        var texts = new LinkedHashSet<String>();
        if (!readiness.isBlank()) {
            texts.add("it says: " + readiness.strip().replace("\n", ", "));
        }
        Stream.of(pod.getStatus().getInitContainerStatuses(), pod.getStatus().getContainerStatuses())
                .flatMap(List::stream)
                .flatMap(PodTrouble::ofContainer)
                .forEach(texts::add);
        pod.getStatus().getConditions().stream()
                .filter(condition -> condition.getType().equals("PodScheduled")
                        && condition.getStatus().equals("False"))
                .map(condition -> String.valueOf(condition.getMessage()))
                .forEach(texts::add);
        if (readiness.isBlank() && !warnings.isEmpty()) {
            Event last = warnings.getLast();
            texts.add("its last event is " + last.getReason() + ": " + shortened(last.getMessage()));
        }
        return texts.isEmpty() ? "" : ": " + String.join("; ", texts);
    }

    private static Stream<String> ofContainer(ContainerStatus container) {
        if (Boolean.TRUE.equals(container.getReady())) {
            return Stream.empty();
        }
        var now = container.getState() == null ? new ContainerState() : container.getState();
        var before = container.getLastState() == null ? new ContainerState() : container.getLastState();
        // PodInitializing and ContainerCreating say nothing.
        Stream<String> waiting = Stream.ofNullable(now.getWaiting())
                .filter(state -> !Set.of("PodInitializing", "ContainerCreating").contains(state.getReason()))
                .map(state -> "its container " + container.getName() + " waits (" + state.getReason()
                        + (state.getMessage() == null ? "" : ": " + shortened(state.getMessage())) + ")");
        Stream<String> ended = Stream.of(now, before)
                .flatMap(state -> Stream.ofNullable(state.getTerminated()))
                .filter(state -> state.getExitCode() != 0)
                .limit(1)
                .map(state -> "its container " + container.getName() + " ended with exit code " + state.getExitCode()
                        + (state.getMessage() == null ? "" : " and the message: " + shortened(state.getMessage())));
        return Stream.concat(waiting, ended);
    }

    /** The end of a log tells more than its beginning; of events, which are shorter, all is kept. */
    private static String shortened(String message) {
        String text = message.strip();
        return text.length() <= LONGEST_MESSAGE ? text : "…" + text.substring(text.length() - LONGEST_MESSAGE);
    }
}
