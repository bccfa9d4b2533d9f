package io.aliquot.scheduler.simulate;

import io.aliquot.scheduler.placement.Demand;
import io.aliquot.scheduler.placement.Room;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.SortedMap;
import java.util.TreeMap;
import java.util.stream.Stream;

/**
 * Nodes, and workloads to be run on them. Of a GPU, a thousandth is counted as a MiB of memory.
 *
 * @param models names of GPU models, in the order of their bits in {@link Demand#models}
 * @param workloads pods of each, by its name, in the file's order
 */
record Trace(List<Room.Shape> nodes, List<String> models, SortedMap<String, List<Demand>> workloads) {
    static final String NODES = "openb_node_list_gpu_node.csv";
    static final String PODS = "openb_pod_list_";
    private static final String CSV = ".csv";
    /** As many as there are bits. */
    private static final int MOST_MODELS = 64;

    /** GPU that a pod asks for, in thousandths. */
    static int asked(Demand demand) {
        return demand.gpus() * (demand.whole() ? Room.WHOLE : demand.gpuMiB());
    }

    /** GPU of all nodes together, in thousandths. */
    long capacity() {
        return nodes.stream().mapToLong(node -> (long) node.gpus() * Room.WHOLE).sum();
    }

    /**
     * Reads a folder with the files of the public openb trace, whose columns are described at
     * https://github.com/alibaba/clusterdata/tree/master/cluster-trace-gpu-v2023.
     *
     * @throws TraceException where a file is missing or wrong
     */
    static Trace readOpenb(Path folder) {
        return new Reader().read(folder);
    }

    private static final class Reader {
        private final Map<String, Integer> models = new LinkedHashMap<>();
        private final Map<Demand, Demand> demands = new HashMap<>();

        Trace read(Path folder) {
            List<Room.Shape> nodes = new ArrayList<>();
            for (Csv.Row row : Csv.read(folder.resolve(NODES), "sn", "cpu_milli", "memory_mib", "gpu", "model")
                    .rows()) {
                nodes.add(new Room.Shape(
                        row.number("cpu_milli", 0, Integer.MAX_VALUE),
                        row.number("memory_mib", 0, Integer.MAX_VALUE),
                        row.number("gpu", 0, 64),
                        Room.WHOLE,
                        0,
                        model(row, row.text("model"))));
            }
            SortedMap<String, List<Demand>> workloads = new TreeMap<>();
            for (Path file : files(folder)) {
                String name = file.getFileName().toString();
                workloads.put(name.substring(PODS.length(), name.length() - CSV.length()), pods(file));
            }
            if (workloads.isEmpty()) {
                throw new TraceException(folder + ": no file named " + PODS + "*" + CSV);
            }
            return new Trace(nodes, List.copyOf(models.keySet()), workloads);
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

        private List<Demand> pods(Path file) {
            List<Demand> pods = new ArrayList<>();
            for (Csv.Row row : Csv.read(file, "name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
                    .rows()) {
                pods.add(pod(row));
            }
            if (pods.stream().allMatch(pod -> pod.gpus() == 0)) {
                throw new TraceException(file + ": no pod asks for a GPU");
            }
            return List.copyOf(pods);
        }

        private Demand pod(Csv.Row row) {
            int gpus = row.number("num_gpu", 0, 64);
            int share = row.number("gpu_milli", gpus == 0 ? 0 : gpus == 1 ? 1 : Room.WHOLE, Room.WHOLE);
            boolean part = gpus > 0 && share < Room.WHOLE;
            var demand = new Demand(
                    row.number("cpu_milli", 0, Integer.MAX_VALUE),
                    row.number("memory_mib", 0, Integer.MAX_VALUE),
                    gpus,
                    gpus > 0 && !part,
                    part ? share : 0,
                    0,
                    takes(row));
            return demands.computeIfAbsent(demand, any -> any);
        }

        private long takes(Csv.Row row) {
            String models = row.text("gpu_spec");
            return models.isEmpty()
                    ? Demand.ANY
                    : Arrays.stream(models.split("\\|", -1))
                            .mapToLong(name -> 1L << model(row, name))
                            .reduce(0, (one, other) -> one | other);
        }

        private int model(Csv.Row row, String name) {
            if (name.isBlank()) {
                throw row.wrong("a GPU model without a name");
            }
            int model = models.merge(name, models.size(), (known, any) -> known);
            if (model >= MOST_MODELS) {
                throw row.wrong("\"" + name + "\" is one model of GPUs too many; at most " + MOST_MODELS);
            }
            return model;
        }
    }
}
