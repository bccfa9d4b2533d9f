package io.aliquot.simulator;

import io.aliquot.api.format.FormatException;
import io.aliquot.api.names.Annotations;
import io.aliquot.api.names.Resources;
import io.aliquot.api.nodes.Gpu;
import io.aliquot.api.nodes.SlotCount;
import io.aliquot.api.pods.GpuRequest;
import io.aliquot.api.pods.MemoryRequest;
import io.aliquot.scheduler.simulation.PodRequest;
import io.aliquot.scheduler.simulation.SimulatedNode;
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
 * Reads the public openb trace, whose columns
 * https://github.com/alibaba/clusterdata/tree/master/cluster-trace-gpu-v2023 describes. The trace gives neither the
 * memory of a GPU nor what a pod uses of it, only the part of a GPU that a pod requests. Therefore each GPU has {@value
 * Trace#WHOLE} MiB here, and a thousandth of a GPU is one MiB.
 *
 * <p>Files in the same format may have more columns: {@value #NODE_GPU_MIB} of nodes, the memory of each GPU;
 * {@value #GPU_MIB} and {@value #GPU_CORES} of pods, in place of {@value #GPU_MILLI}, with the meaning of
 * {@value Resources#MEMORY} and {@value Resources#CORES}.
 */
final class OpenbTrace {
    static final String NODES = "openb_node_list_gpu_node.csv";
    static final String PODS = "openb_pod_list_";
    static final String NODE_GPU_MIB = "gpu_memory_mib";
    static final String GPU_MILLI = "gpu_milli";
    static final String GPU_MIB = "gpu_mem_mib";
    static final String GPU_CORES = "gpu_cores";
    private static final String CSV = ".csv";
    private static final int MAX_GPUS = 64;
    private static final int ALL_CORES = 100;

    /** Whether the file of nodes gives the memory of their GPUs. */
    private final boolean sized;

    /** One object for all equal requests. */
    private final Map<PodRequest, PodRequest> requests = new HashMap<>();

    private OpenbTrace(boolean sized) {
        this.sized = sized;
    }

    /**
     * Reads the nodes and all workloads.
     *
     * @throws TraceException if a file is missing or invalid
     */
    static Trace read(Path folder) {
        CsvFile nodes = CsvFile.read(folder.resolve(NODES), "sn", "cpu_milli", "memory_mib", "gpu", "model");
        return new OpenbTrace(nodes.has(NODE_GPU_MIB)).trace(folder, nodes);
    }

    private Trace trace(Path folder, CsvFile nodes) {
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

    private SimulatedNode node(CsvFile.Row row) {
        try {
            String name = row.text("sn");
            int count = row.number("gpu", 0, MAX_GPUS);
            int memoryMiB = sized && count > 0 ? row.number(NODE_GPU_MIB, 1, Gpu.LARGEST_MIB) : Trace.WHOLE;
            var gpus = new UniformGpus(count, checkedModel(row, row.text("model")), memoryMiB, SlotCount.MOST);
            return SimulatedNode.of(name, gpus.inventory(name), cpuMillis(row), memoryBytes(row));
        } catch (FormatException e) {
            throw row.invalid(String.valueOf(e.getMessage()));
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
            throw new TraceException("cannot read " + folder + ": " + e, e);
        }
    }

    private List<TracePod> pods(Path file) {
        List<TracePod> pods = new ArrayList<>();
        for (CsvFile.Row row : CsvFile.read(file, "name", "cpu_milli", "memory_mib", "num_gpu", GPU_MILLI)
                .rows()) {
            pods.add(new TracePod(
                    row.text("name"),
                    requests.computeIfAbsent(request(row), request -> request),
                    time(row, "creation_time", Instant.EPOCH),
                    time(row, "deletion_time", Instant.MAX)));
        }
        if (pods.stream().noneMatch(pod -> pod.request().requestsGpu())) {
            throw new TraceException(file + ": no pod requests a GPU");
        }
        return List.copyOf(pods);
    }

    private PodRequest request(CsvFile.Row row) {
        Optional<GpuRequest> gpu =
                row.text(GPU_MIB).isEmpty() && row.text(GPU_CORES).isEmpty()
                        ? requestByPart(row)
                        : requestByAmounts(row);
        try {
            return PodRequest.of(gpu, gpu.isEmpty() ? Map.of() : models(row), cpuMillis(row), memoryBytes(row));
        } catch (FormatException e) {
            throw row.invalid("gpu_spec: " + e.getMessage());
        }
    }

    private Optional<GpuRequest> requestByPart(CsvFile.Row row) {
        int gpus = row.number("num_gpu", 0, MAX_GPUS);
        int part = row.number(GPU_MILLI, gpus == 0 ? 0 : gpus == 1 ? 1 : Trace.WHOLE, Trace.WHOLE);
        if (gpus == 0) {
            return Optional.empty();
        }
        if (sized && part < Trace.WHOLE) {
            throw row.invalid(GPU_MILLI + " is \"" + part + "\", but the nodes have " + NODE_GPU_MIB + "; expected "
                    + Trace.WHOLE + ", or " + GPU_MIB + " and " + GPU_CORES);
        }
        return Optional.of(
                part < Trace.WHOLE
                        ? new GpuRequest(1, new MemoryRequest.Mebibytes(part), 0, false)
                        : new GpuRequest(gpus, new MemoryRequest.WholeCard(), 0, true));
    }

    /** Parses the amounts as the limits of a container. */
    private Optional<GpuRequest> requestByAmounts(CsvFile.Row row) {
        if (!row.text(GPU_MILLI).matches("0?")) {
            throw row.invalid(GPU_MILLI + " is \"" + row.text(GPU_MILLI) + "\" beside " + GPU_MIB + " or " + GPU_CORES
                    + "; expected 0 or nothing");
        }
        Map<String, String> limits = new HashMap<>();
        limits.put(Resources.VGPU, String.valueOf(row.number("num_gpu", 1, MAX_GPUS)));
        if (!row.text(GPU_MIB).isEmpty()) {
            if (!sized) {
                throw row.invalid(GPU_MIB + " is \"" + row.text(GPU_MIB) + "\", but the nodes lack the memory of their"
                        + " GPUs; expected a column " + NODE_GPU_MIB + " in " + NODES);
            }
            limits.put(Resources.MEMORY, String.valueOf(row.number(GPU_MIB, 1, Gpu.LARGEST_MIB)));
        }
        if (!row.text(GPU_CORES).isEmpty()) {
            limits.put(Resources.CORES, String.valueOf(row.number(GPU_CORES, 0, ALL_CORES)));
        }
        return GpuRequest.parse(limits);
    }

    private static Map<String, String> models(CsvFile.Row row) {
        String models = row.text("gpu_spec");
        if (models.isEmpty()) {
            return Map.of();
        }
        for (String model : models.split("\\|", -1)) {
            checkedModel(row, model);
        }
        return Map.of(Annotations.USE_GPU_MODEL, models.replace('|', ','));
    }

    private static String checkedModel(CsvFile.Row row, String model) {
        if (model.isBlank()) {
            throw row.invalid("a GPU model without a name");
        }
        return model;
    }

    private static long cpuMillis(CsvFile.Row row) {
        return row.number("cpu_milli", 0, Integer.MAX_VALUE);
    }

    private static long memoryBytes(CsvFile.Row row) {
        return (long) row.number("memory_mib", 0, Integer.MAX_VALUE) << 20;
    }

    private static Instant time(CsvFile.Row row, String column, Instant unknown) {
        return row.text(column).isEmpty() ? unknown : Instant.ofEpochSecond(row.number(column, 0, Integer.MAX_VALUE));
    }
}
