package io.aliquot.simulator;

import io.aliquot.api.Annotations;
import io.aliquot.api.FormatException;
import io.aliquot.api.GpuRequest;
import io.aliquot.api.MemoryRequest;
import io.aliquot.api.Resources;
import io.aliquot.api.SlotCount;
import io.aliquot.api.Vgpu;
import io.aliquot.scheduler.placement.ContainerGpuRequest;
import io.aliquot.scheduler.placement.ContainerKind;
import io.aliquot.scheduler.placement.HostResources;
import io.aliquot.scheduler.placement.PodGpuRequest;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.SortedMap;
import java.util.TreeMap;
import java.util.stream.Stream;

/**
 * Reads a folder with the files of the public openb trace, whose columns are described at
 * https://github.com/alibaba/clusterdata/tree/master/cluster-trace-gpu-v2023. The trace says of a GPU neither its memory nor
 * what is used of it, only which part of it a pod asks for: here each has {@value Trace#WHOLE} MiB, and a thousandth is one.
 *
 * <p>Files of the same form may have columns that openb's lack: of nodes {@value #CARD_MIB}, the memory of each GPU; of pods
 * {@value #MIB} and {@value #CORES}, what production knows as {@value Resources#MEMORY} and {@value Resources#CORES}, in the
 * place of {@value #MILLI}.
 */
final class OpenbTrace {
    static final String NODES = "openb_node_list_gpu_node.csv";
    static final String PODS = "openb_pod_list_";
    static final String CARD_MIB = "gpu_memory_mib";
    static final String MILLI = "gpu_milli";
    static final String MIB = "gpu_mem_mib";
    static final String CORES = "gpu_cores";
    private static final String CSV = ".csv";
    private static final String CONTAINER = "main";
    private static final int MOST_GPUS = 64;
    private static final int ALL_CORES = 100;

    /** Whether the nodes tell what memory their GPUs have. */
    private final boolean sized;

    private final Map<PodGpuRequest, PodGpuRequest> asks = new HashMap<>();

    private OpenbTrace(boolean sized) {
        this.sized = sized;
    }

    /**
     * Reads the nodes and all workloads.
     *
     * @throws TraceException where a file is missing or wrong
     */
    static Trace read(Path folder) {
        Csv nodes = Csv.read(folder.resolve(NODES), "sn", "cpu_milli", "memory_mib", "gpu", "model");
        return new OpenbTrace(nodes.has(CARD_MIB)).trace(folder, nodes);
    }

    private Trace trace(Path folder, Csv nodes) {
        SortedMap<String, List<TracePod>> workloads = new TreeMap<>();
        for (Path file : files(folder)) {
            String name = file.getFileName().toString();
            workloads.put(name.substring(PODS.length(), name.length() - CSV.length()), pods(file));
        }
        if (workloads.isEmpty()) {
            throw new TraceException(folder + ": no file named " + PODS + "*" + CSV);
        }
        return new Trace(nodes.rows().stream().map(this::node).toList(), workloads, List.of());
    }

    private Node node(Csv.Row row) {
        try {
            int gpus = row.number("gpu", 0, MOST_GPUS);
            int miB = sized && gpus > 0 ? row.number(CARD_MIB, 1, Vgpu.LARGEST_MIB) : Trace.WHOLE;
            return Node.of(
                    row.text("sn"), new Node.Gpus(gpus, named(row, row.text("model")), miB, SlotCount.MOST), load(row));
        } catch (FormatException e) {
            throw row.wrong(String.valueOf(e.getMessage()));
        }
    }

    private static List<Path> files(Path folder) {
        try (Stream<Path> files = Files.list(folder)) {
            return files.filter(file -> {
                        String name = file.getFileName().toString();
                        return name.startsWith(PODS) && name.endsWith(CSV);
                    })
                    .sorted()
                    .toList();
        } catch (IOException e) {
            throw new TraceException("can't read " + folder + ": " + e, e);
        }
    }

    private List<TracePod> pods(Path file) {
        List<TracePod> pods = new ArrayList<>();
        for (Csv.Row row : Csv.read(file, "name", "cpu_milli", "memory_mib", "num_gpu", MILLI)
                .rows()) {
            pods.add(new TracePod(
                    row.text("name"),
                    asks.computeIfAbsent(ask(row), ask -> ask),
                    load(row),
                    time(row, "creation_time", Instant.EPOCH),
                    time(row, "deletion_time", Instant.MAX)));
        }
        if (pods.stream().allMatch(pod -> pod.ask().containers().isEmpty())) {
            throw new TraceException(file + ": no pod asks for a GPU");
        }
        return List.copyOf(pods);
    }

    private PodGpuRequest ask(Csv.Row row) {
        Optional<ContainerGpuRequest> container =
                row.text(MIB).isEmpty() && row.text(CORES).isEmpty() ? byPart(row) : Optional.of(byAmounts(row));
        try {
            return PodGpuRequest.of(container.stream().toList(), container.isEmpty() ? Map.of() : models(row), false);
        } catch (FormatException e) {
            throw row.wrong("gpu_spec: " + e.getMessage());
        }
    }

    private Optional<ContainerGpuRequest> byPart(Csv.Row row) {
        int gpus = row.number("num_gpu", 0, MOST_GPUS);
        int part = row.number(MILLI, gpus == 0 ? 0 : gpus == 1 ? 1 : Trace.WHOLE, Trace.WHOLE);
        if (gpus == 0) {
            return Optional.empty();
        }
        if (sized && part < Trace.WHOLE) {
            throw row.wrong(MILLI + " is \"" + part + "\", but the nodes have " + CARD_MIB + "; expected " + Trace.WHOLE
                    + ", or " + MIB + " and " + CORES);
        }
        GpuRequest request = part < Trace.WHOLE
                ? new GpuRequest(1, new MemoryRequest.Mebibytes(part), 0, false)
                : new GpuRequest(gpus, new MemoryRequest.WholeCard(), 0, true);
        return Optional.of(new ContainerGpuRequest(CONTAINER, ContainerKind.APP, request));
    }

    /** Read as a container's limits are. */
    private ContainerGpuRequest byAmounts(Csv.Row row) {
        if (!row.text(MILLI).matches("0?")) {
            throw row.wrong(MILLI + " is \"" + row.text(MILLI) + "\" beside " + MIB + " or " + CORES
                    + "; expected 0 or nothing");
        }
        Map<String, String> limits = new HashMap<>();
        limits.put(Resources.GPU, String.valueOf(row.number("num_gpu", 1, MOST_GPUS)));
        if (!row.text(MIB).isEmpty()) {
            if (!sized) {
                throw row.wrong(MIB + " is \"" + row.text(MIB) + "\", but the nodes don't tell their GPUs' memory;"
                        + " expected a column " + CARD_MIB + " in " + NODES);
            }
            limits.put(Resources.MEMORY, String.valueOf(row.number(MIB, 1, Vgpu.LARGEST_MIB)));
        }
        if (!row.text(CORES).isEmpty()) {
            limits.put(Resources.CORES, String.valueOf(row.number(CORES, 0, ALL_CORES)));
        }
        return ContainerGpuRequest.parse(CONTAINER, ContainerKind.APP, limits).orElseThrow();
    }

    private static Map<String, String> models(Csv.Row row) {
        String models = row.text("gpu_spec");
        if (models.isEmpty()) {
            return Map.of();
        }
        for (String model : models.split("\\|", -1)) {
            named(row, model);
        }
        return Map.of(Annotations.USE_GPU_MODEL, models.replace('|', ','));
    }

    private static String named(Csv.Row row, String model) {
        if (model.isBlank()) {
            throw row.wrong("a GPU model without a name");
        }
        return model;
    }

    private static HostResources load(Csv.Row row) {
        return new HostResources(
                row.number("cpu_milli", 0, Integer.MAX_VALUE),
                (long) row.number("memory_mib", 0, Integer.MAX_VALUE) << 20);
    }

    private static Instant time(Csv.Row row, String column, Instant unknown) {
        return row.text(column).isEmpty() ? unknown : Instant.ofEpochSecond(row.number(column, 0, Integer.MAX_VALUE));
    }
}
