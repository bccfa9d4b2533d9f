package io.aliquot.deviceplugin;

import io.aliquot.deviceplugin.kubelet.KubeletRegistrar;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.function.LongSupplier;

/** Liveness and readiness of this process, as the probes report them. Thread-safe. */
final class AgentHealth {
    private static final Duration LONGEST_PASS = Duration.ofMinutes(2);

    private final KubeletRegistrar registrar;
    private final LongSupplier nanoTime;
    private volatile long lastPassAt;
    private volatile List<String> unmet = List.of("the agent is starting");
    private volatile boolean inConflict;

    AgentHealth(KubeletRegistrar registrar, LongSupplier nanoTime) {
        this.registrar = registrar;
        this.nanoTime = nanoTime;
        lastPassAt = nanoTime.getAsLong();
    }

    /**
     * Records the end of a pass of the agent's loop.
     *
     * @param unmet what keeps the node from taking GPU pods
     * @param inConflict whether the agent leaves the node's GPUs to another owner, or to an upgrade of the driver
     */
    void passEnded(List<String> unmet, boolean inConflict) {
        this.unmet = List.copyOf(unmet);
        this.inConflict = inConflict;
        lastPassAt = nanoTime.getAsLong();
    }

    /** The problems for which the kubelet should restart this container. */
    List<String> livenessProblems() {
        Duration age = Duration.ofNanos(nanoTime.getAsLong() - lastPassAt);
        return age.compareTo(LONGEST_PASS) > 0
                ? List.of("the last pass of the agent's loop ended " + age.toSeconds() + " s ago")
                : List.of();
    }

    /**
     * Whether the agent does its work. It does on a node that it leaves to another owner: if it were unready there, a rollout
     * of the DaemonSet would wait for as long as the conflict lasts.
     */
    boolean isReady() {
        return inConflict || readinessProblems().isEmpty();
    }

    /** The problems that keep the node from taking GPU pods. */
    List<String> readinessProblems() {
        List<String> problems = new ArrayList<>(unmet);
        registrar.problem().ifPresent(problems::add);
        return problems;
    }
}
