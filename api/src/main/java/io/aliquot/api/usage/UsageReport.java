package io.aliquot.api.usage;

import static io.aliquot.api.format.FormatException.expect;

import com.fasterxml.jackson.annotation.JsonTypeInfo;
import com.fasterxml.jackson.annotation.JsonUnwrapped;
import io.aliquot.api.format.GpuUuids;
import java.time.Instant;
import java.util.List;
import java.util.Optional;
import java.util.OptionalDouble;
import java.util.OptionalInt;
import java.util.OptionalLong;
import java.util.Set;

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
     */
    public record OfContainer(
            @JsonUnwrapped PodContainer container,
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
            Optional<Instant> lastActive) {
        public OfContainer {
            GpuUuids.check(gpu);
        }
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
    public record ApplicationXid(
            String gpu,
            int number,
            String meaning,
            @JsonUnwrapped PodContainer container) {
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
    public record Finding(@JsonUnwrapped PodContainer container, Problem problem) {}

    /** What is wrong with a container. */
    @JsonTypeInfo(use = JsonTypeInfo.Id.SIMPLE_NAME, property = "kind", defaultImpl = Problem.Other.class)
    public sealed interface Problem {
        /** Of a newer version, which this one does not know. */
        record Other() implements Problem {}

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
         * A process of the container sees a GPU and not a file that limits the container.
         *
         * @param path where it sees another file or none
         */
        record LimitsNotSeen(String path) implements Problem {
            private static final int LONGEST_PATH = 200;

            public LimitsNotSeen {
                expect(
                        path.startsWith("/")
                                && path.length() <= LONGEST_PATH
                                && path.chars().allMatch(c -> c > ' ' && c < 127),
                        "a path in a container",
                        path);
            }
        }

        /**
         * A process has used memory of a GPU for 10 s, and the shim does not count it. Also said of programs in containers
         * with whole cards, where the shim counts nothing.
         */
        record WithoutShim(String gpu) implements Problem {
            public WithoutShim {
                GpuUuids.check(gpu);
            }
        }

        /** The container has started from an image without a dynamic loader, which would load CUDA and the shim. */
        record ImageWithoutLoader() implements Problem {}

        /** The container holds a vGPU, and nothing of NVIDIA's driver is mounted in it. */
        record GpuNotSeen() implements Problem {}

        /** The container keeps the agent from opening its region or the agent's file, by a lease or by owner and mode. */
        record ClosedFile() implements Problem {}

        /** A process was refused GPU memory, because as many others of the container hold some as one can have. */
        record ProcessTableFull() implements Problem {}
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

    /** Throws a {@link io.aliquot.api.format.FormatException} that names the field which is wrong. */
    public static UsageReport parse(String text) {
        return AgentJson.parse(UsageReport.class, text);
    }

    public String print() {
        return AgentJson.print(this);
    }
}
