package io.aliquot.scheduler.simulate;

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
import org.springframework.boot.logging.LoggingSystem;
import picocli.CommandLine;
import picocli.CommandLine.ArgGroup;
import picocli.CommandLine.Command;
import picocli.CommandLine.IVersionProvider;
import picocli.CommandLine.Model.CommandSpec;
import picocli.CommandLine.Option;
import picocli.CommandLine.ParameterException;
import picocli.CommandLine.Spec;

/** The command {@value #NAME}. */
@Command(
        name = Simulate.NAME,
        header = "Replays pods against nodes without a cluster, with placement policies side by side.",
        description = {
            "",
            "Reads nodes and pods from a trace, from a dump of a cluster, or from a cluster itself, of which it lists"
                    + " nodes and pods and nothing else; it never writes to one. Equal arguments give equal figures.",
            ""
        },
        mixinStandardHelpOptions = true,
        versionProvider = Simulate.Version.class,
        sortOptions = false,
        usageHelpAutoWidth = true,
        exitCodeListHeading = "%nExit codes:%n",
        exitCodeList = {
            "0:done",
            "1:an input can't be read or a file can't be written; nothing was simulated or the rest was",
            "2:wrong arguments"
        },
        footerHeading = "%nExamples:%n",
        footer = {
            "  kubectl get nodes,pods -A -o json | java -jar aliquot-scheduler.jar simulate --dump - --html report.html",
            "  java -jar aliquot-scheduler.jar simulate --live --context staging --arrivals drawn --offered 150",
            "  java -jar aliquot-scheduler.jar simulate --trace openb --workload default --policy fgd,fragmentation"
        })
public final class Simulate implements Callable<Integer> {
    public static final String NAME = "simulate";

    /** Where nodes and pods come from. */
    private static final class Source {
        @Option(
                names = "--trace",
                paramLabel = "DIR",
                description = "Folder of the openb trace, " + Openb.NODES + " and " + Openb.PODS
                        + "*.csv, or of files in its form. Those may tell each GPU's memory (" + Openb.CARD_MIB
                        + " of nodes), and pods then ask for memory and cores of each GPU (" + Openb.MIB + ", "
                        + Openb.CORES + " in percent) in place of " + Openb.MILLI + ".")
        private @Nullable Path trace;

        @Option(
                names = "--dump",
                arity = "1..*",
                paramLabel = "FILE",
                description = "What kubectl get nodes,pods -A -o json printed, in one file or several; "
                        + Snapshot.STDIN + " is standard input.")
        private List<String> dump = List.of();

        @Option(names = "--live", description = "The cluster that kubectl would talk to.")
        private boolean live;
    }

    @ArgGroup(multiplicity = "1")
    @SuppressWarnings("NullAway.Init")
    private Source source;

    @Option(
            names = "--context",
            paramLabel = "NAME",
            description = "With --live: of the kubeconfig, instead of the current.")
    private @Nullable String context;

    @Option(
            names = "--kubeconfig",
            paramLabel = "FILE",
            description = "With --live: instead of $KUBECONFIG or ~/.kube/config.")
    private @Nullable Path kubeconfig;

    @Option(
            names = "--workload",
            paramLabel = "NAME",
            split = ",",
            description = "With --trace: what stands for * in the files' names. All if not given.")
    private List<String> workloads = List.of();

    @Option(
            names = "--require-model",
            paramLabel = "PERCENT[:MODEL]",
            description =
                    "With --trace: so many percent of the pods that ask for GPUs require this GPU model, or where none"
                            + " is named each another, drawn in proportion to the models' GPUs. PodLookup that require models already"
                            + " count and keep them.")
    private @Nullable String requireModel;

    @Option(
            names = "--policy",
            paramLabel = "NAME",
            split = ",",
            description = "Policies: ${COMPLETION-CANDIDATES}. All if not given.")
    private List<Contender> policies = List.of(Contender.values());

    @Option(
            names = "--arrivals",
            paramLabel = "HOW",
            description = "given: the pods in the order of their creation (default of --dump and --live); shuffled: in"
                    + " random order; drawn: these and more like them, drawn at random, in random order (default of"
                    + " --trace).")
    private @Nullable Arrivals arrivals;

    @Option(
            names = "--offered",
            paramLabel = "PERCENT",
            defaultValue = "130",
            description = "With --arrivals drawn: GPU that all pods together ask for, of what there is (default:"
                    + " ${DEFAULT-VALUE}).")
    private int offered;

    @Option(
            names = "--departures",
            description =
                    "Pods end: a Poisson process of pods drawn from the workload that would hold --offered percent of"
                            + " the GPUs, with lifetimes drawn from the workload's or, where it has none, from those of the"
                            + " workload " + Traffic.LIFETIMES + ". Measured after the first mean lifetime.")
    private boolean departures;

    @Option(
            names = "--lifetimes",
            paramLabel = "N",
            defaultValue = "5",
            description = "With --departures: mean lifetimes to replay (default: ${DEFAULT-VALUE}).")
    private int lifetimes;

    @Option(
            names = "--seeds",
            paramLabel = "N",
            defaultValue = "10",
            description = "Replays of each, with the seeds 0 to N-1 (default: ${DEFAULT-VALUE}).")
    private int seeds;

    @Option(
            names = "--threads",
            paramLabel = "N",
            description = "Replays at a time (default: as many as there are cores).")
    private int threads = Runtime.getRuntime().availableProcessors();

    @Option(
            names = "--json",
            paramLabel = "FILE",
            description = "Writes everything: figures of each replay, curves, what pods hold of each GPU at the end.")
    private @Nullable Path json;

    @Option(names = "--csv", paramLabel = "FILE", description = "Writes the figures of each replay, a line each.")
    private @Nullable Path csv;

    @Option(
            names = "--html",
            paramLabel = "FILE",
            description = "Writes a page with tables, plots and a map of the GPUs.")
    private @Nullable Path html;

    @Spec
    @SuppressWarnings("NullAway.Init")
    private CommandSpec spec;

    /** One column of a line of the table. */
    private record Cell(String workload, Contender policy) {}

    /** The jar's. */
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

    /** Runs the command; for the exit code see its help. */
    public static int run(String... args) {
        // The libraries' log would stand in the results.
        LoggingSystem.get(Simulate.class.getClassLoader()).beforeInitialize();
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
        check();
        RequiredModels required = required();
        Trace read = read();
        read.remarks().forEach(remark -> spec.commandLine().getErr().println("note: " + remark));
        Arrivals order =
                arrivals != null ? arrivals : source.trace != null || departures ? Arrivals.DRAWN : Arrivals.GIVEN;
        Map<String, List<Pod>> chosen = chosen(read);
        var experiment = new Experiment(read, order, offered, departures ? lifetimes : 0, required);
        Map<Cell, List<Outcome>> outcomes = replay(experiment, chosen);
        var results = new ArrayList<Report.Result>();
        outcomes.forEach((cell, of) -> results.add(Report.result(
                cell.workload(),
                cell.policy(),
                chosen.getOrDefault(cell.workload(), List.of()).size(),
                of,
                experiment)));
        var report = new Report(
                new Report.Program(
                        Version.text(), spec.commandLine().getParseResult().originalArgs()),
                new Report.Input(
                        named(),
                        read.nodes().size(),
                        (int) (read.capacity() / Trace.WHOLE),
                        order.toString(),
                        offered,
                        experiment.lifetimes(),
                        seeds,
                        read.alike(),
                        read.remarks()),
                Report.nodes(read),
                results);
        Output.table(report, spec.commandLine().getOut());
        Output.decisions(report, spec.commandLine().getErr());
        write(json, report, Output::json);
        write(csv, report, Output::csv);
        write(html, report, Output::html);
        return 0;
    }

    private static void write(@Nullable Path file, Report report, BiConsumer<Report, Path> form) {
        if (file != null) {
            form.accept(report, file);
        }
    }

    private void check() {
        atLeastOne("--seeds", seeds);
        atLeastOne("--threads", threads);
        atLeastOne("--offered", offered);
        if (lifetimes < 2) {
            throw new ParameterException(
                    spec.commandLine(),
                    "--lifetimes is " + lifetimes + "; expected at least 2, of which the first is not measured");
        }
        if (requireModel != null && source.trace == null) {
            throw new ParameterException(
                    spec.commandLine(),
                    "--require-model is for --trace; pods of a cluster have more to choose GPUs by");
        }
        if (departures && arrivals != null && arrivals != Arrivals.DRAWN) {
            throw new ParameterException(
                    spec.commandLine(), "--departures draws pods; leave out --arrivals " + arrivals);
        }
        if (!source.live && (context != null || kubeconfig != null)) {
            throw new ParameterException(spec.commandLine(), "--context and --kubeconfig are for --live");
        }
        if (source.trace == null && !workloads.isEmpty()) {
            throw new ParameterException(
                    spec.commandLine(), "--workload is for --trace; a cluster has one workload, which is replayed");
        }
        for (Path file : new Path[] {json, csv, html}) {
            // Said before the work is done, and not after.
            if (file != null
                    && file.toAbsolutePath().getParent() != null
                    && !Files.isDirectory(file.toAbsolutePath().getParent())) {
                throw new ParameterException(spec.commandLine(), file + ": there is no such folder; make it first");
            }
        }
    }

    private void atLeastOne(String option, int value) {
        if (value < 1) {
            throw new ParameterException(spec.commandLine(), option + " is " + value + "; expected at least 1");
        }
    }

    private RequiredModels required() {
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
            return Openb.read(source.trace);
        }
        if (!source.live) {
            return Survey.of(Snapshot.of(source.dump, System.in));
        }
        try (KubernetesClient client =
                new KubernetesClientBuilder().withConfig(config()).build()) {
            return Survey.of(Snapshot.of(client));
        }
    }

    private Config config() {
        if (kubeconfig == null) {
            return Config.autoConfigure(context);
        }
        if (!Files.isReadable(kubeconfig)) {
            throw new TraceException("can't read " + kubeconfig);
        }
        return Config.fromKubeconfig(context, kubeconfig.toFile());
    }

    private String named() {
        if (source.trace != null) {
            return "trace " + source.trace;
        }
        return source.live
                ? "live cluster" + (context == null ? "" : " " + context)
                : "dump " + String.join(" ", source.dump);
    }

    private Map<String, List<Pod>> chosen(Trace read) {
        Map<String, List<Pod>> chosen = new LinkedHashMap<>();
        for (String name : workloads) {
            List<Pod> pods = read.workloads().get(name);
            if (pods == null) {
                throw new ParameterException(
                        spec.commandLine(),
                        "--workload is \"" + name + "\"; in " + source.trace + " there are "
                                + String.join(", ", read.workloads().keySet()));
            }
            chosen.put(name, pods);
        }
        return chosen.isEmpty() ? read.workloads() : chosen;
    }

    private Map<Cell, List<Outcome>> replay(Experiment experiment, Map<String, List<Pod>> chosen)
            throws InterruptedException {
        ExecutorService pool = Executors.newFixedThreadPool(threads);
        try {
            Map<Cell, List<Future<Outcome>>> running = new LinkedHashMap<>();
            chosen.forEach((workload, pods) -> policies.forEach(policy -> running.put(
                    new Cell(workload, policy),
                    LongStream.range(0, seeds)
                            .mapToObj(seed -> pool.submit(() -> experiment.run(pods, policy, seed)))
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
            if (e.getCause() instanceof TraceException wrong) {
                throw wrong;
            }
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
}
