package io.aliquot.deviceplugin.guard;

import io.aliquot.api.shim.ContainerPaths;
import io.aliquot.deviceplugin.attribution.ContainerId;
import io.aliquot.deviceplugin.attribution.ContainerName;
import io.aliquot.deviceplugin.attribution.HostProcesses;
import io.aliquot.deviceplugin.attribution.HostProcesses.HostProcess;
import io.aliquot.deviceplugin.guard.Mounts.Source;
import java.io.IOException;
import java.lang.System.Logger;
import java.lang.System.Logger.Level;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.function.LongSupplier;
import java.util.function.Predicate;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.jspecify.annotations.Nullable;

/*
 * Why by mounts. Admission refuses mounts on Aliquot's paths, but a path may lead there through a symbolic link that the
 * image or an earlier container made, and the runtime follows it. mountinfo lists what really is at a path, and needs no
 * right over the process; /proc/PID/root needs CAP_SYS_PTRACE, with which the agent could read the memory of all tenants.
 * What must be there is known by device and path in the file system, which a tenant cannot choose: the tmpfs that the
 * kubelet made for the pod's limit file, and the files of the agent's own folder.
 */
/** Whether the processes of containers see the files that limit them. Not thread-safe. */
public final class LimitsCheck {
    private static final Logger LOG = System.getLogger(LimitsCheck.class.getName());
    private static final Duration PERIOD = Duration.ofSeconds(5);
    private static final Pattern PRELOAD = Pattern.compile("/shim/([^/]+)/ld\\.so\\.preload");

    private static final Pattern LIMIT_FILE = Pattern.compile(
            "/pods/[^/]+/volumes/kubernetes\\.io~downward-api/" + ContainerPaths.LIMIT_FILE_VOLUMES + "[^/]*$");

    private static final int MOST_KNOWN = 4096;

    private final Path proc;
    private final Path stateDir;
    private final HostProcesses processes;
    private final LongSupplier nanoTime;

    /** The latest result for each process, by its ID. */
    private final Map<Integer, Checked> checked = new HashMap<>();

    /** The tmpfs of each container's limit file, by {@link Volume#point}. */
    private final Map<String, Source> limitFiles = new HashMap<>();

    /** The containers for which the log says that they cannot be checked. */
    private final Set<Volume> unknown = new HashSet<>();

    /** The agent's folder; its mount stays while the agent runs. */
    private @Nullable Source state;

    private record Checked(String startTime, long at, Optional<Missing> missing) {}

    private record Volume(String podUid, String container) {
        /** How the path ends at which the kubelet mounts it on the host. */
        String point() {
            return "/pods/" + podUid + "/volumes/kubernetes.io~downward-api/"
                    + ContainerPaths.limitFileVolume(container);
        }
    }

    /**
     * Checks nothing yet.
     *
     * @param proc {@code /proc} of the host's PID namespace
     * @param stateDir Aliquot's folder on the host, at the same path in this process
     */
    public LimitsCheck(Path proc, Path stateDir, HostProcesses processes, LongSupplier nanoTime) {
        this.proc = proc;
        this.stateDir = stateDir;
        this.processes = processes;
        this.nanoTime = nanoTime;
    }

    /**
     * A file that a process does not see at its path.
     *
     * @param path one of {@link ContainerPaths}
     * @param moved whether it sees the file elsewhere and no mount at the path: the image has a symbolic link for
     *     {@code /etc}, or a program has renamed the folder, which mountinfo does not tell apart
     */
    public record Missing(String path, boolean moved) {}

    /**
     * What a process sees.
     *
     * @param missing the first file that it does not see; empty also if that is not known
     * @param driver whether something of NVIDIA's driver is mounted somewhere
     * @param isStarting whether it still sees the host's mounts, as before the runtime has started the container's program
     */
    record View(Optional<Missing> missing, boolean driver, boolean isStarting) {}

    /**
     * The first file that a process does not see; empty also if that is not known. Looks at a process when it is new and
     * then every few seconds.
     */
    public Optional<Missing> find(int pid, HostProcess process, ContainerName container) {
        long now = nanoTime.getAsLong();
        Checked before = checked.get(pid);
        if (before != null && before.startTime.equals(process.startTime()) && now - before.at < PERIOD.toNanos()) {
            return before.missing;
        }
        Optional<Missing> missing = look(pid, process, container).flatMap(View::missing);
        checked.put(pid, new Checked(process.startTime(), now, missing));
        return missing;
    }

    /** Forgets all processes but these. */
    public void retain(Set<Integer> pids) {
        checked.keySet().retainAll(pids);
    }

    /** What a process sees now; empty if it has ended. */
    Optional<View> look(int pid, HostProcess process, ContainerName container) {
        Mounts seen;
        try {
            seen = mounts(pid);
        } catch (IOException e) {
            return Optional.empty(); // the process has ended
        }
        var volume = new Volume(process.container().map(ContainerId::podUid).orElse(""), container.container());
        return Optional.of(new View(
                missing(pid, seen, volume, container),
                seen.hasPoint(path -> path.contains("nvidia") || path.contains("/libcuda.so")),
                seen.hasPoint(path -> path.endsWith(volume.point()))));
    }

    private Optional<Missing> missing(int pid, Mounts seen, Volume volume, ContainerName container) {
        try {
            Optional<Missing> missing = missing(seen, limitFile(pid, volume), state());
            if (missing.isPresent()) {
                limitFiles.remove(volume.point()); // the kubelet may have mounted another tmpfs since
                missing = missing(seen, limitFile(pid, volume), state());
            }
            unknown.remove(volume);
            return missing;
        } catch (IOException | IllegalArgumentException e) {
            if (unknown.add(volume)) {
                LOG.log(Level.WARNING, "Cannot check whether {0} sees its limits, retrying: {1}", container, e);
            }
            return Optional.empty();
        }
    }

    private static Optional<Missing> missing(Mounts seen, Source limitFile, Source own) {
        return missing(seen, ContainerPaths.CONFIG_FOLDER, limitFile::equals)
                .or(() -> missing(
                        seen,
                        ContainerPaths.PRELOAD,
                        source -> version(source, own).isPresent()))
                .or(() -> library(seen, own))
                .or(() -> missing(seen, ContainerPaths.REGION, source -> isIn("/slots/", source, own)))
                .or(() -> missing(seen, ContainerPaths.AGENT, source -> isIn("/agent/", source, own)));
    }

    private static Optional<Missing> missing(Mounts seen, String path, Predicate<Source> expected) {
        return seen.at(path).filter(expected).isPresent()
                ? Optional.empty()
                : Optional.of(new Missing(path, seen.shows(expected) && !seen.isMountPoint(path)));
    }

    /** The shim of the version that ld.so.preload names. */
    private static Optional<Missing> library(Mounts seen, Source own) {
        String library = seen.at(ContainerPaths.PRELOAD)
                        .flatMap(source -> version(source, own))
                        .orElse("")
                + "/libaliquot.so";
        return missing(seen, ContainerPaths.SHIM_FOLDER + "/" + library, own.resolve("/shim/" + library)::equals);
    }

    /** The version of the shim to which an ld.so.preload of the agent's folder belongs. */
    private static Optional<String> version(Source preload, Source own) {
        return preload.pathFrom(own)
                .map(PRELOAD::matcher)
                .filter(Matcher::matches)
                .map(path -> path.group(1));
    }

    private static boolean isIn(String folder, Source source, Source own) {
        return source.pathFrom(own).filter(path -> path.startsWith(folder)).isPresent();
    }

    /** The mounts of a process, of whose threads the first may have ended; the others go on. */
    private Mounts mounts(int pid) throws IOException {
        Path process = proc.resolve(Integer.toString(pid));
        try {
            return Mounts.read(process.resolve("mountinfo"));
        } catch (IOException e) {
            try (DirectoryStream<Path> threads = Files.newDirectoryStream(process.resolve("task"))) {
                for (Path thread : threads) {
                    try {
                        return Mounts.read(thread.resolve("mountinfo"));
                    } catch (IOException ended) {
                        e.addSuppressed(ended);
                    }
                }
            }
            throw e;
        }
    }

    private Source state() throws IOException {
        if (state == null) {
            state = Mounts.read(proc.resolve("self/mountinfo"))
                    .at(stateDir.toString())
                    .orElseThrow(() -> new IOException("no mount of this process has " + stateDir));
        }
        return state;
    }

    private Source limitFile(int pid, Volume volume) throws IOException {
        if (!limitFiles.containsKey(volume.point())) {
            if (limitFiles.size() >= MOST_KNOWN) {
                unknown.clear();
                limitFiles.clear(); // those of ended pods; the others are read again
            }
            Path mountinfo = proc.resolve(Integer.toString(hostAncestor(pid))).resolve("mountinfo");
            Mounts.find(mountinfo, LIMIT_FILE).forEach(mount -> {
                Matcher point = LIMIT_FILE.matcher(mount.point());
                if (point.find()) {
                    limitFiles.put(point.group(), mount.source());
                }
            });
        }
        return Optional.ofNullable(limitFiles.get(volume.point()))
                .orElseThrow(() -> new IOException("the host has no mount at ..." + volume.point()));
    }

    /**
     * The first ancestor that is in no container of a pod: the runtime's, which is in the mount namespace of the kubelet.
     * The host's first process need not be, where a node is itself a container.
     */
    private int hostAncestor(int pid) throws IOException {
        int current = pid;
        while (current > 0 && processes.container(current).isPresent()) {
            current = processes.parent(current);
        }
        return current;
    }
}
