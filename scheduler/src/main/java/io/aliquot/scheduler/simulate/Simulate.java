package io.aliquot.scheduler.simulate;

import java.io.IOException;
import java.io.PrintWriter;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.stream.LongStream;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine;
import picocli.CommandLine.Command;
import picocli.CommandLine.Model.CommandSpec;
import picocli.CommandLine.Option;
import picocli.CommandLine.ParameterException;
import picocli.CommandLine.Spec;
import tools.jackson.databind.json.JsonMapper;

/** The command {@value #NAME}. */
@Command(
        name = Simulate.NAME,
        description = "Replays a trace's pods against its nodes, with placement policies side by side.",
        mixinStandardHelpOptions = true,
        sortOptions = false)
public final class Simulate implements Callable<Integer> {
    public static final String NAME = "simulate";

    @Option(
            names = "--trace",
            required = true,
            paramLabel = "DIR",
            description = "Folder with " + Openb.NODES + " and " + Openb.PODS + "*.csv.")
    @SuppressWarnings("NullAway.Init")
    private Path trace;

    @Option(
            names = "--workload",
            paramLabel = "NAME",
            split = ",",
            description = "Workloads: what stands for * in the files' names. All if not given.")
    private List<String> workloads = List.of();

    @Option(
            names = "--policy",
            paramLabel = "NAME",
            split = ",",
            description = "Policies: ${COMPLETION-CANDIDATES}. All if not given.")
    private List<Contender> policies = List.of(Contender.values());

    @Option(
            names = "--seeds",
            paramLabel = "N",
            defaultValue = "10",
            description = "Replays of each, with the seeds 0 to N-1 (default: ${DEFAULT-VALUE}).")
    private int seeds;

    @Option(
            names = "--threads",
            paramLabel = "N",
            defaultValue = "1",
            description = "Replays at a time (default: ${DEFAULT-VALUE}).")
    private int threads;

    @Option(
            names = "--json",
            paramLabel = "FILE",
            description = "Where to write the results as JSON, each replay's too.")
    private @Nullable Path json;

    @Spec
    @SuppressWarnings("NullAway.Init")
    private CommandSpec spec;

    /** One cell of the table. */
    private record Cell(String workload, Contender policy) {}

    /** Runs the command; the exit code is 0, 1 for a trace that is no trace, and 2 for wrong arguments. */
    public static int run(String... args) {
        return commandLine().execute(args);
    }

    static CommandLine commandLine() {
        return new CommandLine(new Simulate())
                .setCaseInsensitiveEnumValuesAllowed(true)
                .setExecutionExceptionHandler((exception, line, parsed) -> {
                    if (exception instanceof TraceException) {
                        line.getErr().println(exception.getMessage());
                        return 1;
                    }
                    throw exception;
                });
    }

    @Override
    public Integer call() throws InterruptedException {
        atLeastOne("--seeds", seeds);
        atLeastOne("--threads", threads);
        Trace read = Openb.read(trace);
        Map<Cell, List<Outcome>> outcomes = replay(read, chosen(read));
        print(outcomes);
        if (json != null) {
            write(json, outcomes);
        }
        return 0;
    }

    private void atLeastOne(String option, int value) {
        if (value < 1) {
            throw new ParameterException(spec.commandLine(), option + " is " + value + "; expected at least 1");
        }
    }

    private Map<String, List<Pod>> chosen(Trace read) {
        Map<String, List<Pod>> chosen = new LinkedHashMap<>();
        for (String name : workloads) {
            List<Pod> pods = read.workloads().get(name);
            if (pods == null) {
                throw new ParameterException(
                        spec.commandLine(),
                        "--workload is \"" + name + "\"; in " + trace + " there are "
                                + String.join(", ", read.workloads().keySet()));
            }
            chosen.put(name, pods);
        }
        return chosen.isEmpty() ? read.workloads() : chosen;
    }

    private Map<Cell, List<Outcome>> replay(Trace read, Map<String, List<Pod>> chosen) throws InterruptedException {
        ExecutorService pool = Executors.newFixedThreadPool(threads);
        try {
            Map<Cell, List<Future<Outcome>>> running = new LinkedHashMap<>();
            chosen.forEach((workload, pods) -> policies.forEach(policy -> running.put(
                    new Cell(workload, policy),
                    LongStream.range(0, seeds)
                            .mapToObj(seed -> pool.submit(() -> Outcome.of(read, pods, policy, seed)))
                            .toList())));
            int all = running.size() * seeds;
            int done = 0;
            Map<Cell, List<Outcome>> outcomes = new LinkedHashMap<>();
            for (Map.Entry<Cell, List<Future<Outcome>>> cell : running.entrySet()) {
                List<Outcome> of = new ArrayList<>();
                for (Future<Outcome> one : cell.getValue()) {
                    of.add(one.get());
                    progress(++done, all, cell.getKey());
                }
                outcomes.put(cell.getKey(), of);
            }
            return outcomes;
        } catch (ExecutionException e) {
            throw new IllegalStateException(e.getCause());
        } finally {
            pool.shutdownNow();
        }
    }

    /** On a terminal, and nowhere else. */
    private void progress(int done, int all, Cell cell) {
        if (CommandLine.Help.Ansi.AUTO.enabled()) {
            PrintWriter err = spec.commandLine().getErr();
            err.printf("\r\033[K%s", done == all ? "" : done + "/" + all + " " + cell.workload() + " " + cell.policy());
            err.flush();
        }
    }

    private void print(Map<Cell, List<Outcome>> outcomes) {
        PrintWriter out = spec.commandLine().getOut();
        out.printf(
                "GPU allocated, %% of what there is, once 100 %% and %d %% of it were asked for; mean of %d seeds%n",
                Outcome.OFFERED, seeds);
        out.printf("%-20s", "workload");
        policies.forEach(policy -> out.printf(" %16s", policy));
        String workload = "";
        for (Map.Entry<Cell, List<Outcome>> cell : outcomes.entrySet()) {
            if (!cell.getKey().workload().equals(workload)) {
                workload = cell.getKey().workload();
                out.printf("%n%-20s", workload);
            }
            Outcome mean = Outcome.mean(cell.getValue());
            out.printf(Locale.ROOT, "    %5.2f / %5.2f", mean.atCapacity(), mean.atEnd());
        }
        out.println();
        out.flush();
    }

    private static void write(Path file, Map<Cell, List<Outcome>> outcomes) {
        record Result(String workload, String policy, Outcome mean, List<Outcome> seeds) {}
        List<Result> results = outcomes.entrySet().stream()
                .map(cell -> new Result(
                        cell.getKey().workload(),
                        cell.getKey().policy().toString(),
                        Outcome.mean(cell.getValue()),
                        cell.getValue()))
                .toList();
        try {
            Files.write(
                    file,
                    JsonMapper.builder()
                            .build()
                            .writerWithDefaultPrettyPrinter()
                            .writeValueAsBytes(results));
        } catch (IOException e) {
            throw new TraceException("can't write " + file + ": " + e, e);
        }
    }
}
