package io.aliquot.deviceplugin.kubelet;

import com.google.errorprone.annotations.concurrent.GuardedBy;
import io.aliquot.api.names.Resources;
import io.aliquot.api.retry.Backoff;
import io.aliquot.api.usage.NodeAllocation.Limit;
import io.aliquot.deviceplugin.cdi.CdiContainers;
import io.aliquot.deviceplugin.cdi.DeviceInjection;
import io.aliquot.deviceplugin.files.SlotFiles;
import io.aliquot.deviceplugin.metrics.AgentMetrics;
import io.aliquot.deviceplugin.problem.Problem;
import io.aliquot.deviceplugin.shim.Shim;
import io.grpc.Status;
import java.io.IOException;
import java.lang.System.Logger;
import java.lang.System.Logger.Level;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.time.Duration;
import java.time.InstantSource;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.function.BiFunction;
import java.util.function.LongSupplier;
import org.jspecify.annotations.Nullable;

/**
 * Serves {@code aliquot.io/vgpu}, or another resource, to the kubelet and stays registered, on a thread of its own.
 *
 * <p>A registration ends when the kubelet restarts (it empties the plugin folder and creates a new socket), when it
 * closes the ListAndWatch stream, or when the Node has no {@code aliquot.io/vgpu} although slots are advertised. The
 * plugin then registers again with a new socket, after the old one is closed: the kubelet identifies a plugin that
 * disconnects by resource and socket, and removes the resource whichever registration holds it by then
 * (pkg/kubelet/cm/devicemanager/plugin/v1beta1, {@code runClient} and {@code disconnectClient}).
 *
 * <p>A kubelet that starts rejects the pods that it admits before it has the plugin's devices, and it admits the first ones
 * some 100 ms after it has created its socket (pkg/kubelet, {@code syncLoop}). So the thread watches the folder and registers
 * with a new kubelet at once. It also polls the folder once a second, which costs two {@code stat} calls, in case a host has
 * no inotify instances left.
 */
public final class KubeletRegistrar implements AutoCloseable {
    private static final Logger LOG = System.getLogger(KubeletRegistrar.class.getName());
    private static final int LONGEST_PAUSE_IN_INTERVALS = 30;

    private static final Duration POLL_INTERVAL = Duration.ofSeconds(1);

    /**
     * The kubelet writes changed devices to the Node with its status: every 10 s by default, every minute in the slowest
     * configurations that we know (nodeStatusUpdateFrequency).
     */
    private static final Duration TOLERANCE = Duration.ofSeconds(75);

    /** After a failed registration. A kubelet creates its socket some microseconds before it listens on it. */
    private static final Duration FIRST_PAUSE = Duration.ofMillis(10);

    private final String resource;
    private final PluginFolder folder;
    private final DevicePluginService service;
    private final AgentMetrics metrics;
    private final Duration interval;
    private final LongSupplier nanoTime;
    private final Thread thread;
    private final Semaphore wakeUps = new Semaphore(0);

    private volatile Runnable onKubeletChange = () -> {};
    private volatile boolean kubeletGone;
    private volatile boolean closed;
    private volatile boolean withdrawn;
    private volatile String withdrawnReason = "";
    private volatile boolean registered;
    private volatile String notRegisteredReason = "not registered with the kubelet yet";

    // Used by the thread alone.
    private final Backoff backoff;
    private final Problem failure = new Problem(LOG, Level.WARNING);
    private @Nullable Registration registration;
    private Optional<KubeletInstance> lastTried = Optional.empty();

    @GuardedBy("this")
    private final AllocatableCheck allocatableCheck;

    @GuardedBy("this")
    private final Problem otherPlugin = new Problem(LOG, Level.ERROR);

    @GuardedBy("this")
    private boolean registrationLost;

    /**
     * Prepares to serve; {@link #advertise} registers.
     *
     * @param allocator answers Allocate
     * @param starts answers PreStartContainer; empty for devices that no container gets
     * @param nanoTime a clock such as {@link System#nanoTime}
     * @param interval pause between two polls of the folder
     * @param tolerance how long the Node's allocatable may differ from the advertised slots
     */
    KubeletRegistrar(
            String resource,
            PluginFolder folder,
            DevicePluginService.ContainerAllocator allocator,
            Optional<CdiStarts> starts,
            AgentMetrics metrics,
            LongSupplier nanoTime,
            Duration interval,
            Duration tolerance) {
        this.resource = resource;
        this.folder = folder;
        this.metrics = metrics;
        this.interval = interval;
        this.nanoTime = nanoTime;
        backoff = new Backoff(nanoTime, FIRST_PAUSE, interval.multipliedBy(LONGEST_PAUSE_IN_INTERVALS));
        allocatableCheck = new AllocatableCheck(nanoTime, tolerance);
        service = new DevicePluginService(allocator, starts, metrics, nanoTime);
        thread = new Thread(this::run, "kubelet " + resource);
        thread.setDaemon(true);
    }

    /**
     * Prepares to advertise the node's vGPUs.
     *
     * @param folder the kubelet's folder of plugin sockets
     * @param files which containers mount
     * @param cdi the containers that get their GPUs by CDI
     * @param limits what the scheduler said last of a container, by its pod's UID and its name; none: nothing yet
     * @throws IOException if files of slots cannot be written
     */
    public static KubeletRegistrar ofVgpus(
            Path folder,
            SlotFiles files,
            Shim shim,
            CdiContainers cdi,
            BiFunction<String, String, List<Limit>> limits,
            AgentMetrics metrics,
            InstantSource clock,
            LongSupplier nanoTime)
            throws IOException {
        var allocator = new Allocator(shim, files, cdi);
        allocator.warmUp();
        return new KubeletRegistrar(
                Resources.VGPU,
                new PluginFolder(folder, "", clock),
                allocator::allocate,
                Optional.of(new CdiStarts(folder, cdi, limits, nanoTime, CdiStarts.LONGEST_WAIT)),
                metrics,
                nanoTime,
                POLL_INTERVAL,
                TOLERANCE);
    }

    /**
     * Prepares to advertise devices of another resource that no container gets: where one requests them, the kubelet ends its
     * pod as UnexpectedAdmissionError. Cluster Autoscaler takes the node for ready by them.
     */
    public static KubeletRegistrar ofRefusedDevices(
            String resource, Path folder, AgentMetrics metrics, InstantSource clock, LongSupplier nanoTime) {
        return new KubeletRegistrar(
                resource,
                new PluginFolder(folder, ".ready", clock),
                (slots, everAdvertised, injection) -> {
                    throw Status.PERMISSION_DENIED
                            .withDescription(
                                    resource + " stands for the node's GPUs, which Aliquot shares, and is given to no"
                                            + " container; request " + Resources.VGPU)
                            .asException();
                },
                Optional.empty(),
                metrics,
                nanoTime,
                POLL_INTERVAL,
                TOLERANCE);
    }

    /** Calls this whenever {@link #kubeletGone} has changed; to be set before the first {@link #advertise}. */
    public void onKubeletChange(Runnable listener) {
        onKubeletChange = listener;
    }

    /** Whether the kubelet had the slots and does not have them now, most probably because it has ended or restarted. */
    public boolean kubeletGone() {
        return kubeletGone;
    }

    /** The name of the devices. */
    public String resource() {
        return resource;
    }

    /** Sets how containers get their GPUs from now on; registers again if that changes, since the kubelet must know it. */
    public void inject(DeviceInjection injection) {
        service.inject(injection);
        if (service.isOutdated()) {
            wake();
        }
    }

    /** Advertises these slots to the kubelet from now on; the first call starts the registration. */
    public synchronized void advertise(AdvertisedSlots slots) {
        withdrawn = false;
        if (!slots.equals(service.advertised())) {
            allocatableCheck.restart();
            service.advertise(slots);
        }
        if (thread.getState() == Thread.State.NEW && !closed) {
            thread.start();
        }
    }

    /**
     * Ends the registration until the next {@link #advertise}; the kubelet then sets the Node's slots to 0, and removes them
     * after five minutes.
     *
     * @param reason for the administrator
     */
    public synchronized void withdraw(String reason) {
        withdrawnReason = "no slots are advertised, because " + reason;
        withdrawn = true;
        if (thread.getState() == Thread.State.NEW) {
            unregistered(withdrawnReason);
        }
        wake();
    }

    /**
     * Takes note of the Node's allocatable {@code aliquot.io/vgpu}. If it is 0 for long although slots are advertised,
     * the plugin registers again. If it is another wrong number for long, another device plugin has registered the
     * resource. This plugin then reports a problem and does not register again, since two plugins would take the
     * resource from each other forever.
     */
    public synchronized void observeAllocatable(long allocatable) {
        int advertised = service.advertised().healthy();
        if (!registered && allocatable != advertised) {
            return;
        }
        switch (allocatableCheck.compare(allocatable, advertised)) {
            case AGREES -> otherPlugin.resolve();
            case TOLERATED -> {}
            case REGISTRATION_LOST -> {
                registrationLost = true;
                wake();
            }
            case OTHER_PLUGIN ->
                otherPlugin.report("the node has " + allocatable + " " + resource + " where this plugin advertises "
                        + advertised + ": another device plugin has registered " + resource
                        + " with the kubelet (other sockets in the folder: " + folder.otherSockets()
                        + "); remove it from this node, then restart the kubelet or this pod");
        }
    }

    /** Why the kubelet does not allocate this plugin's slots; empty while it does. */
    public Optional<String> problem() {
        synchronized (this) {
            if (otherPlugin.message().isPresent()) {
                return otherPlugin.message();
            }
        }
        return registered ? Optional.empty() : Optional.of(notRegisteredReason);
    }

    @Override
    public void close() {
        closed = true;
        wake();
        try {
            thread.join(); // returns at once if the thread was never started
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    private void run() {
        Runnable endWatch = watch();
        try {
            while (!closed) {
                try {
                    poll();
                } catch (IOException | RuntimeException e) {
                    failed("cannot serve the kubelet in " + folder + ": " + e);
                    backoff.start();
                }
                awaitWakeUp();
            }
        } catch (InterruptedException e) {
            closed = true;
        }
        endWatch.run();
        closeRegistration();
    }

    /** Returns what ends the watch. */
    private Runnable watch() {
        try {
            return folder.watch(this::wake);
        } catch (IOException e) {
            LOG.log(
                    Level.WARNING,
                    "Cannot watch {0}, so a kubelet that restarts may reject pods until the next look at it, once a"
                            + " second: {1} (if the host has no inotify instances left, raise"
                            + " fs.inotify.max_user_instances)",
                    folder,
                    e.toString());
            return () -> {};
        }
    }

    private void awaitWakeUp() throws InterruptedException {
        Duration pause = backoff.remaining();
        boolean shorter = pause.isPositive() && pause.compareTo(interval) < 0;
        if (wakeUps.tryAcquire((shorter ? pause : interval).toNanos(), TimeUnit.NANOSECONDS)) {
            wakeUps.drainPermits(); // one look serves all requests made until now
        }
    }

    /** Ends a registration that the kubelet no longer holds, and registers if there is none. */
    private void poll() throws IOException {
        if (withdrawn) {
            closeRegistration();
            unregistered(withdrawnReason);
            setKubeletGone(false);
            return;
        }
        Optional<KubeletInstance> kubelet = folder.kubelet();
        if (registration != null) {
            Optional<String> end = endOf(registration, kubelet);
            if (end.isEmpty()) {
                if (registration.hasDevices()) {
                    setKubeletGone(false);
                }
                return;
            }
            LOG.log(Level.INFO, "The registration has ended: {0}", end.get());
            unregistered(end.get());
            setKubeletGone(true); // before the socket is closed, because that takes some milliseconds
            closeRegistration();
        }
        if (kubelet.isEmpty()) {
            failed("waiting for " + folder.kubeletSocket()
                    + ": the kubelet is not running, or ALIQUOT_KUBELET_ROOT is not its folder");
            return;
        }
        if (!kubelet.equals(lastTried)) {
            lastTried = kubelet;
            backoff.reset();
        }
        if (backoff.isOver()) {
            register();
        }
    }

    /** Why a registration has ended; empty while it stands. */
    private Optional<String> endOf(Registration registration, Optional<KubeletInstance> kubelet) {
        synchronized (this) {
            if (registrationLost) {
                registrationLost = false;
                return Optional.of("the Node has no " + resource + " although slots are advertised");
            }
        }
        if (!kubelet.equals(Optional.of(registration.kubelet()))) {
            return Optional.of("the kubelet has restarted");
        }
        if (!Files.exists(registration.socket(), LinkOption.NOFOLLOW_LINKS)) {
            return Optional.of("the kubelet has removed the plugin's socket");
        }
        if (service.isOutdated()) {
            return Optional.of("containers get their GPUs in another way from now on");
        }
        return registration.end();
    }

    private void register() throws IOException {
        backoff.start(); // also after a success, so that registrations that end soon become rarer
        Path socket = folder.newOwnSocket();
        try {
            // First, because a kubelet that starts removes the plugin's socket, and would then wait for it in Register.
            KubeletInstance kubelet = folder.listeningKubelet();
            folder.removeOwnSockets();
            registration =
                    Registration.open(resource, kubelet, folder.kubeletSocket(), socket, service, this::wake, nanoTime);
        } catch (IOException e) {
            Files.deleteIfExists(socket);
            failed("cannot register at " + folder.kubeletSocket() + ": " + e.getMessage());
            return;
        }
        synchronized (this) {
            allocatableCheck.restart();
            otherPlugin.resolve();
        }
        failure.resolve();
        registered = true;
        metrics.registered();
        LOG.log(
                Level.INFO,
                "Registered {0} with the kubelet: {1} slots",
                resource,
                service.advertised().total());
    }

    private void closeRegistration() {
        if (registration != null) {
            registration.close();
            registration = null;
        }
    }

    private void failed(String reason) {
        unregistered(failure.report(reason));
    }

    private void unregistered(String reason) {
        notRegisteredReason = reason;
        registered = false;
    }

    private void setKubeletGone(boolean gone) {
        if (kubeletGone != gone) {
            kubeletGone = gone;
            onKubeletChange.run();
        }
    }

    private void wake() {
        wakeUps.release();
    }
}
