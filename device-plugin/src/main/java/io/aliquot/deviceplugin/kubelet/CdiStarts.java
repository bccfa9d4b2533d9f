package io.aliquot.deviceplugin.kubelet;

import io.aliquot.api.format.FormatException;
import io.aliquot.api.names.Resources;
import io.aliquot.api.usage.NodeAllocation.Limit;
import io.aliquot.deviceplugin.cdi.CdiContainers;
import io.aliquot.deviceplugin.kubelet.DeviceCheckpoint.Entry;
import io.grpc.Status;
import io.grpc.StatusException;
import java.io.IOException;
import java.lang.System.Logger;
import java.lang.System.Logger.Level;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Set;
import java.util.function.BiFunction;
import java.util.function.BooleanSupplier;
import java.util.function.LongSupplier;
import java.util.stream.Collectors;

/**
 * Answers PreStartContainer: makes sure that the CDI device that Allocate named for a container has its specification. It
 * waits for the scheduler, which tells the agent a container's GPUs within about a second after Bind. Thread-safe.
 */
final class CdiStarts {
    private static final Logger LOG = System.getLogger(CdiStarts.class.getName());

    /** The kubelet waits 30 s (k8s.io/kubelet, pkg/apis/deviceplugin/v1beta1/constants.go). */
    static final Duration LONGEST_WAIT = Duration.ofSeconds(25);

    private static final Duration PAUSE = Duration.ofMillis(100);

    private final Path kubeletFolder;
    private final CdiContainers containers;
    private final BiFunction<String, String, List<Limit>> limits;
    private final LongSupplier nanoTime;
    private final Duration longestWait;

    /**
     * Does nothing yet.
     *
     * @param kubeletFolder with the kubelet's checkpoint
     * @param limits what the scheduler said last of a container, by its pod's UID and its name; none: nothing yet
     */
    CdiStarts(
            Path kubeletFolder,
            CdiContainers containers,
            BiFunction<String, String, List<Limit>> limits,
            LongSupplier nanoTime,
            Duration longestWait) {
        this.kubeletFolder = kubeletFolder;
        this.containers = containers;
        this.limits = limits;
        this.nanoTime = nanoTime;
        this.longestWait = longestWait;
    }

    /** Whether the kubelet must ask before it starts containers that were allocated in another way since. */
    boolean areNeeded() {
        return containers.exist();
    }

    /**
     * Waits until a container can start.
     *
     * @param slots all of the container's, in any order
     * @param abandoned whether the kubelet no longer waits
     * @throws StatusException why it cannot; the kubelet shows it in an event of the pod and tries again
     */
    void prepare(List<String> slots, BooleanSupplier abandoned) throws StatusException, InterruptedException {
        long start = nanoTime.getAsLong();
        String missing = look(Set.copyOf(slots));
        while (!missing.isEmpty() && !abandoned.getAsBoolean()) {
            if (nanoTime.getAsLong() - start >= longestWait.toNanos()) {
                throw Status.UNAVAILABLE.withDescription(missing).asException();
            }
            Thread.sleep(PAUSE);
            missing = look(Set.copyOf(slots));
        }
    }

    /**
     * Writes the specifications of all containers that have these slots: an init container and a later one of its pod may have
     * the same, and the kubelet does not say which one it starts.
     *
     * @return what is missing; empty if nothing is
     */
    private String look(Set<String> slots) throws StatusException {
        try {
            DeviceCheckpoint checkpoint = DeviceCheckpoint.read(kubeletFolder);
            List<Entry> holders = checkpoint.entries().stream()
                    .filter(entry -> entry.resource().equals(Resources.VGPU)
                            && entry.deviceIds().equals(slots))
                    .toList();
            if (holders.isEmpty()) {
                return "the kubelet's checkpoint " + kubeletFolder.resolve(DeviceCheckpoint.FILE)
                        + " names no container with " + String.join(", ", slots) + "; delete the pod if this stays";
            }
            if (holders.stream().map(Entry::podUid).distinct().count() > 1) {
                throw Status.FAILED_PRECONDITION
                        .withDescription("the kubelet says that several pods have " + String.join(", ", slots)
                                + ": "
                                + holders.stream().map(Entry::podUid).distinct().collect(Collectors.joining(", "))
                                + "; delete this pod")
                        .asException();
            }
            for (Entry holder : holders) {
                for (String device : holder.cdiDevices()) {
                    if (CdiContainers.isOne(device)
                            && !containers.prepare(device, () -> limits.apply(holder.podUid(), holder.container()))) {
                        return "Aliquot's scheduler has not told this node's agent which GPU container "
                                + holder.container() + " of the pod with UID " + holder.podUid()
                                + " has: see whether the scheduler runs and reaches the agent's port 9092";
                    }
                }
            }
            retain(checkpoint);
            return "";
        } catch (FormatException e) {
            return String.valueOf(e.getMessage());
        } catch (IOException e) {
            return "cannot prepare the start of the container: " + e;
        }
    }

    private void retain(DeviceCheckpoint checkpoint) {
        try {
            containers.retain(checkpoint.entries().stream()
                    .flatMap(entry -> entry.cdiDevices().stream())
                    .collect(Collectors.toSet()));
        } catch (IOException e) {
            LOG.log(Level.WARNING, "Cannot remove CDI specifications of former containers: {0}", e.toString());
        }
    }
}
