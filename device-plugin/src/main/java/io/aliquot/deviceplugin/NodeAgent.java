package io.aliquot.deviceplugin;

import io.aliquot.api.usage.UsageHistory;
import io.aliquot.api.usage.UsageReport;
import io.aliquot.api.usage.UsageReport.Problem;
import io.aliquot.deviceplugin.arbiter.ArbiterFeed;
import io.aliquot.deviceplugin.arbiter.ArbiterProcess;
import io.aliquot.deviceplugin.attribution.Limits;
import io.aliquot.deviceplugin.attribution.PodCgroups;
import io.aliquot.deviceplugin.cdi.CdiContainers;
import io.aliquot.deviceplugin.cdi.NvidiaDevices;
import io.aliquot.deviceplugin.files.ContainerFiles;
import io.aliquot.deviceplugin.files.SlotFiles;
import io.aliquot.deviceplugin.guard.HolderCheck;
import io.aliquot.deviceplugin.guard.RecentFindings;
import io.aliquot.deviceplugin.guard.RegionGuard;
import io.aliquot.deviceplugin.health.HealthHistory;
import io.aliquot.deviceplugin.health.HealthTracker;
import io.aliquot.deviceplugin.health.XidTable;
import io.aliquot.deviceplugin.kubelet.KubeletRegistrar;
import io.aliquot.deviceplugin.kubelet.PodResourcesClient;
import io.aliquot.deviceplugin.metrics.AgentMetrics;
import io.aliquot.deviceplugin.node.NodeClient;
import io.aliquot.deviceplugin.nvml.NvmlSession;
import io.aliquot.deviceplugin.periodic.PeriodicTask;
import io.aliquot.deviceplugin.usage.ApplicationXids;
import io.aliquot.deviceplugin.usage.ContextMeasurement;
import io.aliquot.deviceplugin.usage.RecentUsage;
import io.aliquot.deviceplugin.usage.UsageTracker;
import java.lang.System.Logger;
import java.lang.System.Logger.Level;
import java.nio.file.Path;
import java.time.Duration;
import java.time.InstantSource;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.LongSupplier;
import java.util.function.Supplier;

/**
 * The agent's main loop: one thread runs the {@link Reconciler} periodically, and at once after {@link #wake}. Owns and
 * closes what the loop uses.
 */
final class NodeAgent implements AutoCloseable {
    private static final Logger LOG = System.getLogger(NodeAgent.class.getName());

    /** With the usual interval half a minute; between Binding and Allocate there are some hundred milliseconds. */
    private static final int QUIET_INTERVALS_BEFORE_WITHDRAWAL = 6;

    /** With the usual interval ten seconds; the driver takes note of an error before it reports it. */
    private static final int INTERVALS_TO_SETTLE = 2;

    private static final Duration SAMPLE_PERIOD = Duration.ofSeconds(1);
    private static final Duration SHUTDOWN_TIMEOUT = Duration.ofSeconds(5);

    /** Why the loop has ended. */
    enum End {
        CLOSED,
        /** The container should be restarted. */
        RESTART
    }

    /**
     * Folders of the host and of this program's image.
     *
     * @param proc {@code /proc} of the host's PID namespace
     * @param containerLogs the kubelet's links to the logs of containers
     * @param cgroups {@code /sys/fs/cgroup}
     * @param cdi those of CDI's specifications; the last is written to
     * @param image the image's, with the shim and the arbiter
     */
    record Folders(Path proc, Path containerLogs, Path cgroups, List<Path> cdi, Path image) {
        Folders {
            cdi = List.copyOf(cdi);
        }
    }

    private final String nodeName;
    private final KubeletRegistrar registrar;
    private final Optional<KubeletRegistrar> readyRegistrar;
    private final CdiContainers cdiContainers;
    private final NvmlSession nvml;
    private final Reconciler reconciler;
    private final PodResourcesClient podResources;
    private final RecentUsage recent;
    private final ApplicationXids applicationXids;
    private final HealthHistory healthHistory = new HealthHistory();
    private final AgentHealth health;
    private final RecentFindings findings;
    private final RegionGuard regionGuard;
    private final PodCgroups podCgroups;
    private final HolderCheck holderCheck;
    private final ArbiterProcess arbiter;
    private final Duration interval;
    private final Semaphore wakeUps = new Semaphore(0);
    private final CountDownLatch ended = new CountDownLatch(1);
    private final AtomicLong passes = new AtomicLong();
    private volatile boolean started;
    private volatile boolean closed;

    /**
     * Does nothing before {@link #run}.
     *
     * @param registrar closed by this object
     * @param files which containers mount
     * @param folders where the host's and the image's folders are
     * @param bootId the host's; empty if unknown
     * @param certificate which one this agent serves the scheduler, by its digest
     * @param limits what the scheduler said last of this node
     * @param nvidiaDevices the GPUs that CDI names
     * @param cdiContainers those of this node that get their GPUs by CDI
     * @param interval pause between two passes without {@link #wake}
     * @param nanoTime a clock such as {@link System#nanoTime}
     */
    NodeAgent(
            Settings settings,
            NvmlSession.Opener nvmlOpener,
            KubeletRegistrar registrar,
            SlotFiles files,
            Folders folders,
            AgentMetrics metrics,
            String bootId,
            String certificate,
            Supplier<Limits> limits,
            NvidiaDevices nvidiaDevices,
            CdiContainers cdiContainers,
            Duration interval,
            InstantSource clock,
            LongSupplier nanoTime) {
        this.registrar = registrar;
        this.cdiContainers = cdiContainers;
        this.interval = interval;
        podResources = new PodResourcesClient(settings.podResources());
        this.nodeName = settings.nodeName();
        recent = new RecentUsage(limits, clock, nanoTime);
        applicationXids = new ApplicationXids(nanoTime);
        findings = new RecentFindings(nanoTime);
        var contexts = new ContextMeasurement();
        arbiter = new ArbiterProcess(
                folders.image.resolve(ArbiterProcess.PROGRAM),
                ContainerFiles.regionsFolder(settings.stateDir()),
                ContainerFiles.agentFolder(settings.stateDir()),
                settings.lowFloor(),
                metrics,
                nanoTime);
        var feed = new ArbiterFeed(limits, arbiter::tell);
        var usage = new UsageTracker(
                folders.proc,
                folders.containerLogs,
                settings.stateDir(),
                files,
                podResources::list,
                limits,
                findings,
                List.of(recent, applicationXids, contexts, feed),
                nanoTime);
        nvml = new NvmlSession(
                nvmlOpener,
                List.of(open -> new PeriodicTask("usage", SAMPLE_PERIOD, () -> usage.sample(open::usage)).start()),
                metrics,
                interval,
                this::wake,
                nanoTime);
        readyRegistrar = settings.readyResource()
                .map(resource -> KubeletRegistrar.ofRefusedDevices(
                        resource, settings.devicePlugins(), metrics, clock, nanoTime));
        podCgroups = new PodCgroups(folders.cgroups);
        reconciler = new Reconciler(
                settings,
                nvml,
                registrar,
                readyRegistrar,
                podResources,
                metrics,
                new HealthTracker(
                        XidTable.load(settings.ignoreXids(), settings.fatalXids()),
                        bootId,
                        interval.multipliedBy(INTERVALS_TO_SETTLE),
                        healthHistory,
                        applicationXids::add,
                        clock,
                        nanoTime),
                contexts,
                limits,
                nvidiaDevices,
                podCgroups,
                bootId,
                certificate,
                interval.multipliedBy(QUIET_INTERVALS_BEFORE_WITHDRAWAL),
                clock,
                nanoTime);
        health = new AgentHealth(registrar, nanoTime);
        registrar.onKubeletChange(this::wake);
        regionGuard = new RegionGuard(files, podResources::list, findings, metrics, nanoTime);
        holderCheck = new HolderCheck(
                folders.proc, folders.containerLogs, settings.stateDir(), podCgroups, limits, findings, nanoTime);
    }

    /** Requests a pass at once, because something may have changed. Thread-safe. */
    void wake() {
        wakeUps.release();
    }

    /** How many passes have ended. Thread-safe. */
    long passes() {
        return passes.get();
    }

    /** How the node's GPUs are used. Thread-safe. */
    RecentUsage usage() {
        return recent;
    }

    /** What was wrong with containers lately. Thread-safe. */
    RecentFindings findings() {
        return findings;
    }

    /** The latest sample for the scheduler; empty while NVML does not answer. Thread-safe. */
    Optional<UsageReport> report() {
        return recent.report(nodeName, applicationXids.recent(), findings.list());
    }

    /** See {@link PodCgroups#uids}. Thread-safe. */
    Optional<Set<String>> pods() {
        return podCgroups.uids();
    }

    /** The use of a GPU in the last 15 minutes and its health; empty if the GPU is not known. Thread-safe. */
    Optional<UsageHistory> history(String gpu) {
        return recent.history(gpu, healthHistory.of(gpu));
    }

    /** What the probes report. Thread-safe. */
    AgentHealth health() {
        return health;
    }

    /**
     * Runs the loop until {@link #close}, or until only a restart of the container can help.
     *
     * @param node closed by this object
     */
    End run(NodeClient node) {
        started = true;
        nvml.start();
        arbiter.start();
        regionGuard.start();
        try {
            while (!closed) {
                List<String> unmet = reconciler.reconcile(node);
                holderCheck.run();
                cdiContainers
                        .takeWithoutLoader()
                        .forEach(container -> findings.add(container, new Problem.ImageWithoutLoader()));
                health.passEnded(unmet, reconciler.isInConflict());
                passes.incrementAndGet();
                Optional<String> restart = nvml.restartReason();
                if (restart.isPresent()) {
                    LOG.log(
                            Level.ERROR,
                            "{0}: exiting, because NVIDIA''s runtime mounts the driver''s libraries when a container"
                                    + " starts",
                            restart.get());
                    return End.RESTART;
                }
                awaitWakeUp();
            }
            return End.CLOSED;
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            return End.CLOSED;
        } finally {
            registrar.close();
            readyRegistrar.ifPresent(KubeletRegistrar::close);
            nvml.close();
            arbiter.close();
            regionGuard.close();
            podResources.close();
            node.close();
            ended.countDown();
        }
    }

    /** Ends {@link #run}; returns when it has closed everything, or after a few seconds. */
    @Override
    public void close() {
        closed = true;
        wake();
        if (!started) {
            registrar.close();
            return;
        }
        try {
            if (!ended.await(SHUTDOWN_TIMEOUT.toMillis(), TimeUnit.MILLISECONDS)) {
                LOG.log(Level.WARNING, "Exiting before everything is closed");
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    private void awaitWakeUp() throws InterruptedException {
        if (wakeUps.tryAcquire(interval.toNanos(), TimeUnit.NANOSECONDS)) {
            wakeUps.drainPermits(); // one pass serves all requests made until now
        }
    }
}
