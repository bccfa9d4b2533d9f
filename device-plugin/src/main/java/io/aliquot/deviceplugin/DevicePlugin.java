package io.aliquot.deviceplugin;

import io.aliquot.api.format.FormatException;
import io.aliquot.api.logging.LogLevelFile;
import io.aliquot.api.names.Annotations;
import io.aliquot.deviceplugin.cdi.CdiContainers;
import io.aliquot.deviceplugin.cdi.NvidiaDevices;
import io.aliquot.deviceplugin.cdi.StartHook;
import io.aliquot.deviceplugin.files.SlotFiles;
import io.aliquot.deviceplugin.kubelet.KubeletRegistrar;
import io.aliquot.deviceplugin.metrics.AgentMetrics;
import io.aliquot.deviceplugin.monitoring.AllocationMetrics;
import io.aliquot.deviceplugin.monitoring.MonitoringServer;
import io.aliquot.deviceplugin.monitoring.UsageMetrics;
import io.aliquot.deviceplugin.node.ApiServerClient;
import io.aliquot.deviceplugin.node.ApiServerNodeClient;
import io.aliquot.deviceplugin.nvml.Nvml;
import io.aliquot.deviceplugin.nvml.NvmlException;
import io.aliquot.deviceplugin.nvml.NvmlSession;
import io.aliquot.deviceplugin.periodic.PeriodicTask;
import io.aliquot.deviceplugin.report.AgentCertificate;
import io.aliquot.deviceplugin.report.ReportServer;
import io.aliquot.deviceplugin.shim.Shim;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.InstantSource;
import java.util.Optional;
import java.util.function.LongSupplier;

/**
 * The process's entry point: connects the parts to each other, to the environment and to the clocks. Exit codes: 0
 * after SIGTERM, 2 for invalid settings or a damaged image, 1 if only a restart of the container can help.
 */
public final class DevicePlugin {
    private static final Path SYS = Path.of("/sys");
    // The kubelet cannot be told another folder for the logs (pkg/kubelet/kuberuntime, legacyContainerLogsDir).
    private static final NodeAgent.Folders FOLDERS = new NodeAgent.Folders(
            Path.of("/proc"),
            Path.of("/var/log/containers"),
            Path.of("/host/sys/fs/cgroup"),
            NvidiaDevices.FOLDERS,
            Shim.IN_IMAGE);
    /** The host's in each container (kernel: drivers/char/random.c). */
    private static final Path BOOT_ID = Path.of("/proc/sys/kernel/random/boot_id");

    private static final Duration INTERVAL = Duration.ofSeconds(5);
    private static final int EXIT_RESTART = 1;
    private static final int EXIT_INVALID_SETTINGS = 2;

    private DevicePlugin() {}

    public static void main(String[] args) {
        AgentLog.open();
        try {
            System.exit(run(
                    Settings.parse(System.getenv()),
                    ApiServerClient.ofPod(System.getenv(), ApiServerClient.SERVICE_ACCOUNT),
                    FOLDERS));
        } catch (IOException | FormatException e) {
            System.err.println(e.getMessage());
            System.exit(EXIT_INVALID_SETTINGS);
        } catch (RuntimeException e) {
            // Exit explicitly: other threads would keep the process alive and answer its probes.
            e.printStackTrace();
            System.exit(EXIT_RESTART);
        }
    }

    private static NvmlSession.Opener nvml(Settings settings) {
        return new NvmlSession.Opener() {
            @Override
            public Nvml open() throws NvmlException {
                return settings.driverRoot().isPresent()
                        ? Nvml.openBelow(settings.driverRoot().get(), SYS)
                        : Nvml.open(Nvml.LIBRARY, SYS);
            }

            @Override
            public Optional<String> loadedDriver() {
                return firstLine(SYS.resolve("module/nvidia/version"));
            }
        };
    }

    /** What the kernel says in a file; empty if it has none. */
    private static Optional<String> firstLine(Path file) {
        try {
            return Files.readString(file).lines().findFirst();
        } catch (IOException e) {
            return Optional.empty();
        }
    }

    /** Runs the agent until its end; returns the exit code. */
    static int run(Settings settings, ApiServerClient server, NodeAgent.Folders folders) throws IOException {
        LongSupplier nanoTime = System::nanoTime;
        var metrics = new AgentMetrics();
        try (var logLevel =
                new PeriodicTask("log-level", LogLevelFile.PERIOD, AgentLog.level(LogLevelFile.MOUNTED)::read)) {
            logLevel.start();
            Shim shim = Shim.install(folders.image(), settings.stateDir());
            SlotFiles files = SlotFiles.open(settings.stateDir());
            var allocation = new AllocationMetrics(settings.nodeName(), nanoTime);
            metrics.add(allocation);
            var nvidiaDevices = new NvidiaDevices(folders.cdi());
            var cdiContainers = new CdiContainers(
                    settings.stateDir(),
                    folders.cdi().getLast(),
                    nvidiaDevices,
                    new StartHook(shim.hook(), settings.kubeletRoot().resolve("pods"), settings.endsUnlimited()),
                    InstantSource.system());
            var registrar = KubeletRegistrar.ofVgpus(
                    settings.devicePlugins(),
                    files,
                    shim,
                    cdiContainers,
                    (podUid, container) -> allocation.limits().of(podUid, container),
                    metrics,
                    InstantSource.system(),
                    nanoTime);
            AgentCertificate certificate = AgentCertificate.create();
            var agent = new NodeAgent(
                    settings,
                    nvml(settings),
                    registrar,
                    files,
                    folders,
                    metrics,
                    firstLine(BOOT_ID).orElse(""),
                    certificate.digest(),
                    allocation::limits,
                    nvidiaDevices,
                    cdiContainers,
                    INTERVAL,
                    InstantSource.system(),
                    nanoTime);
            metrics.add(new UsageMetrics(settings.nodeName(), agent.usage(), agent.findings()));
            var node = new ApiServerNodeClient(server, settings.nodeName(), agent::wake, nanoTime);
            var reports = new ReportServer(
                    settings.reportPort(),
                    () -> node.latest().map(seen -> seen.annotations().get(Annotations.AGENT_CLIENTS)),
                    certificate,
                    agent::report,
                    agent::pods,
                    agent::history,
                    allocation::accept);
            reports.start();
            AgentHealth health = agent.health();
            var monitoring = new MonitoringServer(
                    settings.metricsPort(),
                    metrics,
                    health::livenessProblems,
                    health::readinessProblems,
                    health::isReady);
            Runtime.getRuntime().addShutdownHook(new Thread(agent::close, "shutdown"));
            NodeAgent.End end = agent.run(node);
            monitoring.close();
            reports.close();
            return end == NodeAgent.End.CLOSED ? 0 : EXIT_RESTART;
        }
    }
}
