package io.aliquot.api.usage;

import static io.aliquot.api.names.JsonFields.expect;
import static io.aliquot.api.names.JsonFields.instant;
import static io.aliquot.api.names.JsonFields.integer;
import static io.aliquot.api.names.JsonFields.list;
import static io.aliquot.api.names.JsonFields.number;
import static io.aliquot.api.names.JsonFields.optionalInstant;
import static io.aliquot.api.names.JsonFields.optionalInteger;
import static io.aliquot.api.names.JsonFields.optionalNumber;
import static io.aliquot.api.names.JsonFields.optionalText;
import static io.aliquot.api.names.JsonFields.optionalWhole;
import static io.aliquot.api.names.JsonFields.text;
import static io.aliquot.api.names.JsonFields.truth;
import static io.aliquot.api.names.JsonFields.versioned;
import static io.aliquot.api.names.JsonFields.whole;

import io.aliquot.api.names.FormatException;
import io.aliquot.api.names.GpuUuids;
import io.aliquot.api.names.JsonFields;
import java.time.Instant;
import java.util.List;
import java.util.Optional;
import java.util.OptionalDouble;
import java.util.OptionalInt;
import java.util.OptionalLong;
import java.util.Set;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.node.ArrayNode;
import tools.jackson.databind.node.ObjectNode;

/**
 * What the containers of a node use of its GPUs, as its agent measured it last: {@code GET /v1/usage} of the agent's port
 * 9092, JSON. A figure that NVML does not have is absent. Unknown JSON fields belong to a newer version and are ignored.
 *
 * @param at the time of the sample
 * @param containers each container and GPU once, at most {@value #MOST_CONTAINERS}
 * @param gpus each GPU once, at most {@value #MOST_GPUS}
 * @param xids errors of programs in the last two minutes, oldest first, at most {@value #MOST_XIDS}
 * @param findings what was wrong with containers in the last two minutes, at most {@value #MOST_FINDINGS}
 * @param pods UIDs of all pods that have a cgroup on the node, at most {@value #MOST_PODS}; empty unless it was asked for
 *     by the query {@value #WITH_PODS}, and if the agent cannot tell
 */
public record UsageReport(
        Instant at,
        String node,
        List<OfContainer> containers,
        List<OfGpu> gpus,
        List<ApplicationXid> xids,
        List<Finding> findings,
        Optional<Set<String>> pods) {
    /** The path of a report. */
    public static final String PATH = "/v1/usage";

    /** The query for a report with {@link #pods}. */
    public static final String WITH_PODS = "pods";

    public static final int MOST_CONTAINERS = 4096;
    public static final int MOST_GPUS = 64;
    public static final int MOST_XIDS = 100;
    public static final int MOST_FINDINGS = 1000;
    public static final int MOST_PODS = 4096;

    private static final int VERSION = 1;
    private static final String PODS = "pods";
    private static final String UNLIMITED = "unlimited";
    private static final String COVERED = "covered";
    private static final String WITHOUT_SHIM = "withoutShim";
    private static final String FINDINGS = "findings";
    private static final String PROBLEM = "problem";
    private static final String LARGE_REGION = "largeRegion";
    private static final String LIMITS_NOT_SEEN = "limitsNotSeen";
    private static final String GPU_NOT_SEEN = "gpuNotSeen";
    private static final String CLOSED_FILE = "closedFile";
    private static final String PROCESS_TABLE_FULL = "processTableFull";
    private static final int LONGEST_PATH = 200;

    /**
     * A container's use of a GPU.
     *
     * @param chargedBytes what the shim has charged; the container can falsify it
     * @param unattributedBytes what NVML reports beyond that
     * @param sustainedBytes the smallest figure of NVML for the container's processes in the last 10 s
     * @param peakBytes the largest sum of charged and unattributed bytes since the container's start
     * @param gpuSeconds GPU time since the container's start, as NVML reports it
     * @param utilizationPercent of the GPU, in the latest period, 0 to 100
     * @param lentPercent of the GPU: what others used of the container's cores in that period, 0 to 100; empty if its limit
     *     is not known
     * @param borrowedPercent of the GPU: what the container used beyond its cores, of time that others left
     * @param throttledSeconds how long launches were held, by the container's region
     * @param deniedAllocations how many allocations were refused, by the container's region
     * @param processes that have a context on the GPU
     * @param lastActive when the container used the GPU's cores last, or its memory or processes changed
     * @param unlimited why the container's limits do not apply to one of its processes; empty if they do or if that is
     *     not known
     */
    public record OfContainer(
            PodContainer container,
            String gpu,
            OptionalLong chargedBytes,
            OptionalLong unattributedBytes,
            OptionalLong sustainedBytes,
            long peakBytes,
            double gpuSeconds,
            OptionalInt utilizationPercent,
            OptionalInt lentPercent,
            OptionalInt borrowedPercent,
            double throttledSeconds,
            long deniedAllocations,
            int processes,
            Optional<Instant> lastActive,
            Optional<Unlimited> unlimited) {
        public OfContainer {
            GpuUuids.check(gpu);
        }
    }

    /** Why a container's limits do not apply to one of its processes. */
    public sealed interface Unlimited {
        /**
         * The process does not see a file that limits the container.
         *
         * @param path where it sees another file or none
         */
        record Covered(String path) implements Unlimited {
            public Covered {
                checkPath(path);
            }
        }

        /**
         * The process uses GPU memory, and the shim has counted none of it. Also said of programs in containers with whole
         * cards, where the shim counts nothing.
         */
        record WithoutShim() implements Unlimited {}
    }

    /**
     * The use of a GPU.
     *
     * @param usedBytes by all processes
     * @param otherBytes by processes outside of all shares
     * @param powerWatts now
     */
    public record OfGpu(
            String gpu,
            OptionalLong usedBytes,
            OptionalLong otherBytes,
            OptionalInt utilizationPercent,
            OptionalInt temperatureCelsius,
            OptionalDouble powerWatts) {
        public OfGpu {
            GpuUuids.check(gpu);
        }
    }

    /**
     * An XID error that a program caused, and the container that it ran in.
     *
     * @param number NVIDIA's
     * @param meaning in a few words
     */
    public record ApplicationXid(String gpu, int number, String meaning, PodContainer container) {
        private static final int LONGEST_MEANING = 200;

        public ApplicationXid {
            GpuUuids.check(gpu);
            expect(number > 0, "the number of an XID", number);
            expect(meaning.length() <= LONGEST_MEANING, "a meaning in a few words", meaning);
        }
    }

    /**
     * Something wrong with a container, whether it uses a GPU or not. Its pod gets an event.
     *
     * @param container without its pod's uid if the agent does not know it
     */
    public record Finding(PodContainer container, Problem problem) {}

    /** What is wrong with a container. */
    public sealed interface Problem {
        /**
         * The container made its region, a file of the host, larger than a region is, or closed it to the agent.
         *
         * @param bytes the file's length when it was found
         * @param cut whether the agent has cut it; not if the container has closed it to the agent
         */
        record LargeRegion(long bytes, boolean cut) implements Problem {
            public LargeRegion {
                expect(bytes > 0, "a length", bytes);
            }
        }

        /**
         * The container sees a GPU and not a file that limits it.
         *
         * @param path where it sees another file or none
         */
        record LimitsNotSeen(String path) implements Problem {
            public LimitsNotSeen {
                checkPath(path);
            }
        }

        /** The container holds a vGPU, and nothing of NVIDIA's driver is mounted in it. */
        record GpuNotSeen() implements Problem {}

        /** The container keeps the agent from opening its region or the agent's file, by a lease or by owner and mode. */
        record ClosedFile() implements Problem {}

        /** A process was refused GPU memory, because as many others of the container hold some as one can have. */
        record ProcessTableFull() implements Problem {}
    }

    private static void checkPath(String path) {
        expect(
                path.startsWith("/")
                        && path.length() <= LONGEST_PATH
                        && path.chars().allMatch(c -> c > ' ' && c < 127),
                "a path in a container",
                path);
    }

    /** A report without findings. */
    public UsageReport(
            Instant at, String node, List<OfContainer> containers, List<OfGpu> gpus, List<ApplicationXid> xids) {
        this(at, node, containers, gpus, xids, List.of(), Optional.empty());
    }

    public UsageReport {
        expect(!node.isEmpty(), "a node's name", node);
        containers = List.copyOf(containers);
        gpus = List.copyOf(gpus);
        xids = List.copyOf(xids);
        expect(containers.size() <= MOST_CONTAINERS, "at most " + MOST_CONTAINERS + " containers", containers.size());
        expect(gpus.size() <= MOST_GPUS, "at most " + MOST_GPUS + " GPUs", gpus.size());
        findings = List.copyOf(findings);
        expect(findings.size() <= MOST_FINDINGS, "at most " + MOST_FINDINGS + " findings", findings.size());
        pods = pods.map(Set::copyOf);
        expect(pods.map(Set::size).orElse(0) <= MOST_PODS, "at most " + MOST_PODS + " pods", pods);
        expect(xids.size() <= MOST_XIDS, "at most " + MOST_XIDS + " XID errors", xids.size());
    }

    /** The report with these pods. */
    public UsageReport withPods(Optional<Set<String>> uids) {
        return new UsageReport(at, node, containers, gpus, xids, findings, uids);
    }

    /** The container's use of the GPU; empty if there is none. */
    public Optional<OfContainer> find(String podUid, String container, String gpu) {
        return containers.stream()
                .filter(use -> use.container().uid().equals(podUid)
                        && use.container().container().equals(container)
                        && use.gpu().equals(gpu))
                .findFirst();
    }

    /** Throws a {@link FormatException} that names the field which is wrong. */
    public static UsageReport parse(String text) {
        JsonNode root = versioned("a node agent's usage report", text, VERSION);
        return new UsageReport(
                instant(root, "at"),
                text(root, "node"),
                list(root, "containers", MOST_CONTAINERS, UsageReport::container),
                list(root, "gpus", MOST_GPUS, UsageReport::gpu),
                // an earlier agent sends none
                root.has("xids") ? list(root, "xids", MOST_XIDS, UsageReport::xid) : List.of(),
                root.has(FINDINGS) ? findings(root) : List.of(),
                root.has(PODS)
                        ? Optional.of(Set.copyOf(list(root, PODS, MOST_PODS, pod -> text(pod, "uid"))))
                        : Optional.empty());
    }

    private static OfContainer container(JsonNode use) {
        return new OfContainer(
                PodContainer.parse(use),
                text(use, "gpu"),
                optionalWhole(use, "chargedBytes"),
                optionalWhole(use, "unattributedBytes"),
                optionalWhole(use, "sustainedBytes"),
                whole(use, "peakBytes"),
                number(use, "gpuSeconds"),
                optionalInteger(use, "utilizationPercent"),
                optionalInteger(use, "lentPercent"),
                optionalInteger(use, "borrowedPercent"),
                number(use, "throttledSeconds"),
                whole(use, "deniedAllocations"),
                integer(use, "processes"),
                optionalInstant(use, "lastActive"),
                unlimited(use));
    }

    /** Earlier agents send none, and later ones perhaps further reasons. */
    private static Optional<Unlimited> unlimited(JsonNode use) {
        return switch (optionalText(use, UNLIMITED)) {
            case COVERED -> Optional.of(new Unlimited.Covered(text(use, "coveredPath")));
            case WITHOUT_SHIM -> Optional.of(new Unlimited.WithoutShim());
            default -> Optional.empty();
        };
    }

    private static OfGpu gpu(JsonNode use) {
        return new OfGpu(
                text(use, "gpu"),
                optionalWhole(use, "usedBytes"),
                optionalWhole(use, "otherBytes"),
                optionalInteger(use, "utilizationPercent"),
                optionalInteger(use, "temperatureCelsius"),
                optionalNumber(use, "powerWatts"));
    }

    private static ApplicationXid xid(JsonNode xid) {
        return new ApplicationXid(
                text(xid, "gpu"), integer(xid, "number"), text(xid, "meaning"), PodContainer.parse(xid));
    }

    /** Later agents perhaps send further problems. */
    private static List<Finding> findings(JsonNode root) {
        return list(root, FINDINGS, MOST_FINDINGS, UsageReport::finding).stream()
                .flatMap(Optional::stream)
                .toList();
    }

    private static Optional<Finding> finding(JsonNode finding) {
        Optional<Problem> problem = switch (text(finding, PROBLEM)) {
            case LARGE_REGION -> Optional.of(new Problem.LargeRegion(whole(finding, "bytes"), truth(finding, "cut")));
            case LIMITS_NOT_SEEN -> Optional.of(new Problem.LimitsNotSeen(text(finding, "path")));
            case GPU_NOT_SEEN -> Optional.of(new Problem.GpuNotSeen());
            case CLOSED_FILE -> Optional.of(new Problem.ClosedFile());
            case PROCESS_TABLE_FULL -> Optional.of(new Problem.ProcessTableFull());
            default -> Optional.empty();
        };
        return problem.map(known -> new Finding(PodContainer.parse(finding), known));
    }

    public String print() {
        ObjectNode root = JsonFields.JSON
                .createObjectNode()
                .put("version", VERSION)
                .put("at", at.toString())
                .put("node", node);
        ArrayNode ofContainers = root.putArray("containers");
        containers.forEach(use -> print(use, ofContainers.addObject()));
        ArrayNode ofGpus = root.putArray("gpus");
        gpus.forEach(use -> print(use, ofGpus.addObject()));
        ArrayNode list = root.putArray("xids");
        xids.forEach(xid -> print(xid, list.addObject()));
        if (!findings.isEmpty()) {
            ArrayNode objects = root.putArray(FINDINGS);
            findings.forEach(finding -> print(finding, objects.addObject()));
        }
        pods.ifPresent(uids -> {
            ArrayNode objects = root.putArray(PODS);
            uids.forEach(uid -> objects.addObject().put("uid", uid));
        });
        return root.toString();
    }

    private static void print(OfContainer use, ObjectNode object) {
        use.container.print(object);
        object.put("gpu", use.gpu);
        use.chargedBytes.ifPresent(bytes -> object.put("chargedBytes", bytes));
        use.unattributedBytes.ifPresent(bytes -> object.put("unattributedBytes", bytes));
        use.sustainedBytes.ifPresent(bytes -> object.put("sustainedBytes", bytes));
        object.put("peakBytes", use.peakBytes).put("gpuSeconds", use.gpuSeconds);
        use.utilizationPercent.ifPresent(percent -> object.put("utilizationPercent", percent));
        use.lentPercent.ifPresent(percent -> object.put("lentPercent", percent));
        use.borrowedPercent.ifPresent(percent -> object.put("borrowedPercent", percent));
        object.put("throttledSeconds", use.throttledSeconds)
                .put("deniedAllocations", use.deniedAllocations)
                .put("processes", use.processes);
        use.lastActive.ifPresent(at -> object.put("lastActive", at.toString()));
        use.unlimited.ifPresent(why -> {
            switch (why) {
                case Unlimited.Covered(String path) ->
                    object.put(UNLIMITED, COVERED).put("coveredPath", path);
                case Unlimited.WithoutShim() -> object.put(UNLIMITED, WITHOUT_SHIM);
            }
        });
    }

    private static void print(OfGpu use, ObjectNode object) {
        object.put("gpu", use.gpu);
        use.usedBytes.ifPresent(bytes -> object.put("usedBytes", bytes));
        use.otherBytes.ifPresent(bytes -> object.put("otherBytes", bytes));
        use.utilizationPercent.ifPresent(percent -> object.put("utilizationPercent", percent));
        use.temperatureCelsius.ifPresent(celsius -> object.put("temperatureCelsius", celsius));
        use.powerWatts.ifPresent(watts -> object.put("powerWatts", watts));
    }

    private static void print(Finding finding, ObjectNode object) {
        finding.container.print(object);
        switch (finding.problem) {
            case Problem.LargeRegion(long bytes, boolean cut) ->
                object.put(PROBLEM, LARGE_REGION).put("bytes", bytes).put("cut", cut);
            case Problem.LimitsNotSeen(String path) ->
                object.put(PROBLEM, LIMITS_NOT_SEEN).put("path", path);
            case Problem.GpuNotSeen() -> object.put(PROBLEM, GPU_NOT_SEEN);
            case Problem.ClosedFile() -> object.put(PROBLEM, CLOSED_FILE);
            case Problem.ProcessTableFull() -> object.put(PROBLEM, PROCESS_TABLE_FULL);
        }
    }

    private static void print(ApplicationXid xid, ObjectNode object) {
        object.put("gpu", xid.gpu).put("number", xid.number).put("meaning", xid.meaning);
        xid.container.print(object);
    }
}
