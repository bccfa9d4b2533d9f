package io.aliquot.deviceplugin.attribution;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * The host's processes: which container each is in. Reads {@code stat}, {@code status} and {@code cgroup} of
 * {@code /proc/PID}, which need no capability.
 *
 * <p>Not thread-safe.
 */
public final class HostProcesses {
    /** The last ID is that in the process's own namespace: proc_pid_status(5). */
    private static final Pattern NAMESPACE_PIDS = Pattern.compile("^NSpid:.*\\t([0-9]{1,9})$", Pattern.MULTILINE);

    private static final int PARENT_FIELD = 4;
    private static final int START_TIME_FIELD = 22;
    private static final int FIRST_FIELD_AFTER_NAME = 3;

    private final Path proc;
    private final Map<Integer, HostProcess> known = new HashMap<>();

    /**
     * Reads nothing yet.
     *
     * @param proc {@code /proc} of the PID namespace that NVML's process IDs are of
     */
    public HostProcesses(Path proc) {
        this.proc = proc;
    }

    /**
     * A process.
     *
     * @param startTime since boot, which tells it from an earlier process with the same ID
     * @param pidInContainer its ID in its own PID namespace
     * @param container empty for a process outside of pods
     */
    public record HostProcess(String startTime, int pidInContainer, Optional<ContainerId> container) {}

    /** A process by its ID; empty if it has ended. */
    public Optional<HostProcess> find(int pid) {
        try {
            String startTime = stat(pid, START_TIME_FIELD);
            HostProcess process = known.get(pid);
            if (process != null && process.startTime.equals(startTime)) {
                return Optional.of(process);
            }
            var read = new HostProcess(startTime, pidInContainer(pid), container(pid));
            if (!stat(pid, START_TIME_FIELD).equals(startTime)) {
                return Optional.empty(); // the ID was given to another process in between
            }
            known.put(pid, read);
            return Optional.of(read);
        } catch (IOException | IllegalArgumentException e) {
            return Optional.empty();
        }
    }

    /** Forgets all processes but these. */
    public void retain(Set<Integer> pids) {
        known.keySet().retainAll(pids);
    }

    /** The process's parent, which changes when the parent ends. */
    public int parent(int pid) throws IOException {
        return Integer.parseInt(stat(pid, PARENT_FIELD));
    }

    private String stat(int pid, int field) throws IOException {
        String stat = text(pid, "stat");
        // The second field, the program's name in parentheses, may contain anything: proc_pid_stat(5).
        String[] fields = stat.substring(stat.lastIndexOf(')') + 1).strip().split(" ", -1);
        if (fields.length <= START_TIME_FIELD - FIRST_FIELD_AFTER_NAME) {
            throw new IllegalArgumentException("expected the start time of a process, found \"" + stat + "\"");
        }
        return fields[field - FIRST_FIELD_AFTER_NAME];
    }

    /** The container that the process is in now; empty if it is in none of a pod. */
    public Optional<ContainerId> container(int pid) throws IOException {
        return ContainerId.parse(text(pid, "cgroup"));
    }

    private int pidInContainer(int pid) throws IOException {
        Matcher ids = NAMESPACE_PIDS.matcher(text(pid, "status"));
        if (!ids.find()) {
            throw new IllegalArgumentException("expected the process's IDs in its namespaces, found none");
        }
        return Integer.parseInt(ids.group(1));
    }

    private String text(int pid, String file) throws IOException {
        // A program's name may be any bytes.
        return Files.readString(proc.resolve(Integer.toString(pid)).resolve(file), StandardCharsets.ISO_8859_1);
    }
}
