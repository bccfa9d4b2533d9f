package io.aliquot.simulator;

import io.fabric8.kubernetes.client.Config;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientBuilder;
import java.io.PrintWriter;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.function.BiConsumer;
import java.util.stream.LongStream;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine;
import picocli.CommandLine.ArgGroup;
import picocli.CommandLine.Command;
import picocli.CommandLine.IVersionProvider;
import picocli.CommandLine.Model.CommandSpec;
import picocli.CommandLine.Option;
import picocli.CommandLine.ParameterException;
import picocli.CommandLine.Spec;

/** The simulator's command line. */
@Command(
        name = "aliquot-simulator",
        header = "Replays pods against nodes without a cluster, with several placement policies side by side.",
        description = {
            "",
            "Reads nodes and pods from a trace, from a dump of a cluster, or from a cluster, where it only lists nodes and"
                    + " pods and never writes. Equal arguments give equal figures.",
            ""
        },
        mixinStandardHelpOptions = true,
        versionProvider = Simulate.Version.class,
        sortOptions = false,
        usageHelpAutoWidth = true,
        exitCodeListHeading = "%nExit codes:%n",
        exitCodeList = {
            "0:success",
            "1:an input cannot be read or an output file cannot be written",
            "2:invalid arguments"
        },
        footerHeading = "%nExamples:%n",
        footer = {
            "  kubectl get nodes,pods -A -o json | java -jar aliquot-simulator.jar --dump - --html report.html",
            "  java -jar aliquot-simulator.jar --live --context staging --arrivals drawn --offered 150",
            "  java -jar aliquot-simulator.jar --trace openb --workload default --policy fgd,fragmentation"
        })
final class Simulate implements Callable<Integer> {
    /** Where nodes and pods come from. */
    private static final class Source {
        @Option(
                names = "--trace",
                paramLabel = "DIR",
                description = "Folder of the openb trace (" + OpenbTrace.NODES + ", " + OpenbTrace.PODS
                        + "*.csv), or of files in its format. Such files may give the memory of each GPU (column "
                        + OpenbTrace.NODE_GPU_MIB + " of nodes); pods then request memory and cores of each GPU ("
                        + OpenbTrace.GPU_MIB + ", " + OpenbTrace.GPU_CORES + " in percent) in place of "
                        + OpenbTrace.GPU_MILLI + ".")
        private @Nullable Path trace;

        @Option(
                names = "--dump",
                arity = "1..*",
                paramLabel = "FILE",
                description = "Output of kubectl get nodes,pods -A -o json, in one or several files; " + Snapshot.STDIN
                        + " is standard input.")
        private List<String> dump = List.of();

        @Option(names = "--live", description = "The cluster of the current kubeconfig.")
        private boolean live;
    }

    @ArgGroup(multiplicity = "1")
    @SuppressWarnings("NullAway.Init")
    private Source source;

    @Option(
            names = "--context",
            paramLabel = "NAME",
            description = "With --live: the context of the kubeconfig (default: the current context).")
    private @Nullable String context;

    @Option(
            names = "--kubeconfig",
            paramLabel = "FILE",
            description = "With --live: the kubeconfig (default: $KUBECONFIG or ~/.kube/config).")
    private @Nullable Path kubeconfig;

    @Option(
            names = "--workload",
            paramLabel = "NAME",
            split = ",",
            description = "With --trace: workloads, the part of the file names at the * (default: all).")
    private List<String> workloads = List.of();

    @Option(
            names = "--require-model",
            paramLabel = "PERCENT[:MODEL]",
            description = "With --trace: this percentage of the pods with GPUs require a GPU model: the named one, or a"
                    + " model drawn for each pod in proportion to the models' GPUs. Pods that already require models"
                    + " count and keep them.")
    private @Nullable String requireModel;

    @Option(
            names = "--policy",
            paramLabel = "NAME",
            split = ",",
            description = "Policies: ${COMPLETION-CANDIDATES} (default: all).")
    private List<Policy> policies = List.of(Policy.values());

    @Option(
            names = "--arrivals",
            paramLabel = "HOW",
            description = "given: the pods in the order of their creation (default of --dump and --live); shuffled: in"
                    + " random order; drawn: these pods and more pods drawn from them, in random order (default of"
                    + " --trace).")
    private @Nullable ArrivalOrder arrivals;

    @Option(
            names = "--offered",
            paramLabel = "PERCENT",
            defaultValue = "130",
            description = "With --arrivals drawn: GPU that all pods together request, in percent of the capacity"
                    + " (default: ${DEFAULT-VALUE}).")
    private int offered;

    @Option(
            names = "--departures",
            description = "Pods end: they arrive as a Poisson process of pods drawn from the workload that would hold"
                    + " --offered percent of the GPUs. Their lifetimes are drawn from the workload or, if it has none,"
                    + " from the workload " + ArrivalProcess.LIFETIMES
                    + ". The measurement starts after the first mean lifetime.")
    private boolean departures;

    @Option(
            names = "--lifetimes",
            paramLabel = "N",
            defaultValue = "5",
            description = "With --departures: length of the replay in mean lifetimes (default: ${DEFAULT-VALUE}).")
    private int lifetimes;

    @Option(
            names = "--seeds",
            paramLabel = "N",
            defaultValue = "10",
            description = "Replays of each workload and policy, with the seeds 0 to N-1 (default: ${DEFAULT-VALUE}).")
    private int seeds;

    @Option(names = "--threads", paramLabel = "N", description = "Parallel replays (default: number of cores).")
    private int threads = Runtime.getRuntime().availableProcessors();

    @Option(
            names = "--json",
            paramLabel = "FILE",
            description =
                    "Writes the whole report: figures of each replay, curves, what pods hold of each GPU at the end.")
    private @Nullable Path json;

    @Option(names = "--csv", paramLabel = "FILE", description = "Writes a line per replay.")
    private @Nullable Path csv;

    @Option(
            names = "--html",
            paramLabel = "FILE",
            description = "Writes an HTML page with tables, plots and a map of the GPUs.")
    private @Nullable Path html;

    @Spec
    @SuppressWarnings("NullAway.Init")
    private CommandSpec spec;

    /** A cell of the table. */
    private record Cell(String workload, Policy policy) {}

    /** The version of the jar. */
    static final class Version implements IVersionProvider {
        @Override
        public String[] getVersion() {
            return new String[] {"aliquot " + text()};
        }

        static String text() {
            String version = Simulate.class.getPackage().getImplementationVersion();
            return version == null ? "(not from a jar)" : version;
        }
    }

    public static void main(String[] args) {
        System.exit(commandLine().execute(args));
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
        check();
        RequiredModels required = requiredModels();
        Trace trace = read();
        trace.remarks().forEach(remark -> spec.commandLine().getErr().println("note: " + remark));
        ArrivalOrder order = arrivals != null
                ? arrivals
                : source.trace != null || departures ? ArrivalOrder.DRAWN : ArrivalOrder.GIVEN;
        Map<String, List<TracePod>> selected = selected(trace);
        var experiment = new Experiment(trace, order, offered, departures ? lifetimes : 0, required);
        Map<Cell, List<Outcome>> outcomes = replay(experiment, selected);
        var results = new ArrayList<Report.Result>();
        outcomes.forEach((cell, replays) -> results.add(Report.result(
                cell.workload(),
                cell.policy(),
                selected.getOrDefault(cell.workload(), List.of()).size(),
                replays,
                experiment)));
        var report = new Report(
                new Report.Program(
                        Version.text(), spec.commandLine().getParseResult().originalArgs()),
                new Report.Input(
                        sourceName(),
                        trace.nodes().size(),
                        (int) (trace.capacity() / Trace.WHOLE),
                        order.toString(),
                        offered,
                        experiment.lifetimes(),
                        seeds,
                        trace.uniformMemory(),
                        trace.remarks()),
                Report.nodes(trace),
                results);
        ReportWriter.table(report, spec.commandLine().getOut());
        ReportWriter.decisions(report, spec.commandLine().getErr());
        write(json, report, ReportWriter::json);
        write(csv, report, ReportWriter::csv);
        write(html, report, ReportWriter::html);
        return 0;
    }

    private static void write(@Nullable Path file, Report report, BiConsumer<Report, Path> writer) {
        if (file != null) {
            writer.accept(report, file);
        }
    }

    private void check() {
        atLeastOne("--seeds", seeds);
        atLeastOne("--threads", threads);
        atLeastOne("--offered", offered);
        if (lifetimes < 2) {
            throw new ParameterException(
                    spec.commandLine(),
                    "--lifetimes is " + lifetimes + "; expected at least 2: the measurement starts after the first");
        }
        if (requireModel != null && source.trace == null) {
            throw new ParameterException(
                    spec.commandLine(), "--require-model is for --trace; the pods of a cluster select GPUs themselves");
        }
        if (departures && arrivals != null && arrivals != ArrivalOrder.DRAWN) {
            throw new ParameterException(
                    spec.commandLine(), "--departures draws pods; leave out --arrivals " + arrivals);
        }
        if (!source.live && (context != null || kubeconfig != null)) {
            throw new ParameterException(spec.commandLine(), "--context and --kubeconfig are for --live");
        }
        if (source.trace == null && !workloads.isEmpty()) {
            throw new ParameterException(spec.commandLine(), "--workload is for --trace; a cluster has one workload");
        }
        for (Path file : new Path[] {json, csv, html}) {
            // Checked before the replays, which take long.
            if (file != null
                    && file.toAbsolutePath().getParent() != null
                    && !Files.isDirectory(file.toAbsolutePath().getParent())) {
                throw new ParameterException(spec.commandLine(), file + ": the folder does not exist; create it first");
            }
        }
    }

    private void atLeastOne(String option, int value) {
        if (value < 1) {
            throw new ParameterException(spec.commandLine(), option + " is " + value + "; expected at least 1");
        }
    }

    private RequiredModels requiredModels() {
        try {
            return requireModel == null ? RequiredModels.NONE : RequiredModels.parse(requireModel);
        } catch (IllegalArgumentException e) {
            throw new ParameterException(
                    spec.commandLine(),
                    "--require-model is \"" + requireModel + "\"; expected PERCENT or PERCENT:MODEL, such as 25:T4",
                    e);
        }
    }

    private Trace read() {
        if (source.trace != null) {
            return OpenbTrace.read(source.trace);
        }
        if (!source.live) {
            return ClusterTrace.of(Snapshot.of(source.dump, System.in));
        }
        try (KubernetesClient client =
                new KubernetesClientBuilder().withConfig(config()).build()) {
            return ClusterTrace.of(Snapshot.of(client));
        }
    }

    private Config config() {
        if (kubeconfig == null) {
            return Config.autoConfigure(context);
        }
        if (!Files.isReadable(kubeconfig)) {
            throw new TraceException("cannot read " + kubeconfig);
        }
        return Config.fromKubeconfig(context, kubeconfig.toFile());
    }

    private String sourceName() {
        if (source.trace != null) {
            return "trace " + source.trace;
        }
        return source.live
                ? "live cluster" + (context == null ? "" : " " + context)
                : "dump " + String.join(" ", source.dump);
    }

    private Map<String, List<TracePod>> selected(Trace trace) {
        Map<String, List<TracePod>> selected = new LinkedHashMap<>();
        for (String name : workloads) {
            List<TracePod> pods = trace.workloads().get(name);
            if (pods == null) {
                throw new ParameterException(
                        spec.commandLine(),
                        "--workload is \"" + name + "\"; " + source.trace + " has "
                                + String.join(", ", trace.workloads().keySet()));
            }
            selected.put(name, pods);
        }
        return selected.isEmpty() ? trace.workloads() : selected;
    }

    private Map<Cell, List<Outcome>> replay(Experiment experiment, Map<String, List<TracePod>> selected)
            throws InterruptedException {
        ExecutorService pool = Executors.newFixedThreadPool(threads);
        try {
            Map<Cell, List<Future<Outcome>>> running = new LinkedHashMap<>();
            selected.forEach((workload, pods) -> policies.forEach(policy -> running.put(
                    new Cell(workload, policy),
                    LongStream.range(0, seeds)
                            .mapToObj(seed -> pool.submit(() -> experiment.run(pods, policy, seed)))
                            .toList())));
            int all = running.size() * seeds;
            int done = 0;
            Map<Cell, List<Outcome>> outcomes = new LinkedHashMap<>();
            for (Map.Entry<Cell, List<Future<Outcome>>> cell : running.entrySet()) {
                List<Outcome> replays = new ArrayList<>();
                for (Future<Outcome> replay : cell.getValue()) {
                    replays.add(replay.get());
                    progress(++done, all, cell.getKey());
                }
                outcomes.put(cell.getKey(), replays);
            }
            return outcomes;
        } catch (ExecutionException e) {
            if (e.getCause() instanceof TraceException invalid) {
                throw invalid;
            }
            throw new IllegalStateException(e.getCause());
        } finally {
            pool.shutdownNow();
        }
    }

    /** Shows the progress if the output is a terminal. */
    private void progress(int done, int all, Cell cell) {
        if (CommandLine.Help.Ansi.AUTO.enabled()) {
            PrintWriter err = spec.commandLine().getErr();
            err.printf("\r\033[K%s", done == all ? "" : done + "/" + all + " " + cell.workload() + " " + cell.policy());
            err.flush();
        }
    }
}
