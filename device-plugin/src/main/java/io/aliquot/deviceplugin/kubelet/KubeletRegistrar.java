package io.aliquot.deviceplugin.kubelet;

import io.aliquot.api.Resources;
import io.aliquot.deviceplugin.metrics.AgentMetrics;
import io.aliquot.deviceplugin.shim.Shim;
import java.io.IOException;
import java.lang.System.Logger;
import java.lang.System.Logger.Level;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.attribute.BasicFileAttributes;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Locale;
import java.util.Objects;
import java.util.Optional;

/**
 * Serves {@code nvidia.com/gpu} to the kubelet, and stays registered.
 *
 * <p>A registration ends when the kubelet restarts (it empties its folder of sockets and makes its own anew), when it
 * drops our stream, or when it says on the Node that it has no device of ours although we offer some. Then we register
 * again, each time with a new socket, and only once the old one is closed: the kubelet finds a plugin that went away by
 * resource and socket, and takes the resource from whoever holds it by then (pkg/kubelet/cm/devicemanager/plugin/v1beta1,
 * {@code runClient} and {@code disconnectClient}).
 *
 * <p>The kubelet's folder is looked at once a second rather than watched: two {@code stat} calls, nothing to lose and
 * nothing to overflow.
 */
public final class KubeletRegistrar implements AutoCloseable {
    private static final Logger LOG = System.getLogger(KubeletRegistrar.class.getName());

    private static final String KUBELET_SOCKET = "kubelet.sock";
    private static final String OUR_SOCKETS = "aliquot-";
    private static final int LONGEST_PAUSE_IN_LOOKS = 30;

    private final Path folder;
    private final DevicePluginService service;
    private final AgentMetrics metrics;
    private final Duration look;
    private final Duration patience;
    private final Thread thread;

    private volatile boolean closed;
    private volatile State state = new State(false, "not registered with the kubelet yet");

    // Of the thread alone.
    private Optional<Registration> session = Optional.empty();
    private Duration pause;
    private long notBefore = System.nanoTime();
    private String lastTrouble = "";
    private List<String> othersSockets = List.of();

    // Guarded by this.
    private boolean lost;
    private long agreedAt = System.nanoTime();
    private Optional<String> conflict = Optional.empty();

    /**
     * Starts to serve; nothing is registered before the first {@link #offer}.
     *
     * @param folder the kubelet's folder of plugin sockets
     * @param state the host's folder of Aliquot
     * @throws IOException if the folder of slots can't be made
     */
    public KubeletRegistrar(Path folder, Path state, Shim shim, AgentMetrics metrics) throws IOException {
        // The kubelet tells the Node about changed devices with its status, every 10 s by default, a minute at most in
        // the configurations we know (nodeStatusUpdateFrequency).
        this(folder, state, shim, metrics, Duration.ofSeconds(1), Duration.ofSeconds(75));
    }

    /**
     * The same with other times.
     *
     * @param look pause between looks at the folder
     * @param patience time the Node may show another number of slots than ours before that means something
     */
    KubeletRegistrar(Path folder, Path state, Shim shim, AgentMetrics metrics, Duration look, Duration patience)
            throws IOException {
        this.folder = folder;
        this.metrics = metrics;
        this.look = look;
        this.patience = patience;
        pause = look;
        service = new DevicePluginService(shim, new RegionFiles(state), metrics);
        service.warmUp();
        thread = new Thread(this::run, "kubelet");
        thread.setDaemon(true);
    }

    /** Offers these slots from now on. */
    public synchronized void offer(AdvertisedSlots offer) {
        if (!offer.equals(service.offer())) {
            agreedAt = System.nanoTime();
            service.offer(offer);
        }
        if (thread.getState() == Thread.State.NEW && !closed) {
            thread.start();
        }
    }

    /**
     * Compares what the Node says is allocatable with what we offer. None although we offer some: the kubelet has lost
     * us, so register again. Another number: another plugin answers for our resource; two of them would take it from
     * each other for ever, so say so and leave it.
     */
    public synchronized void observe(long allocatable) {
        if (allocatable == service.offer().healthy()) {
            agreedAt = System.nanoTime();
            conflict = Optional.empty();
        } else if (System.nanoTime() - agreedAt > patience.toNanos() && state.registered()) {
            agreedAt = System.nanoTime();
            if (allocatable == 0) {
                lost = true;
                notifyAll();
            } else {
                String sentence = "the node has " + allocatable + " " + Resources.GPU + " where this plugin offers "
                        + service.offer().healthy() + ": another device plugin has registered " + Resources.GPU
                        + " with the kubelet (sockets beside ours: " + others()
                        + "); remove it from this node, then restart the kubelet or this pod";
                if (!conflict.equals(Optional.of(sentence))) {
                    LOG.log(Level.ERROR, sentence);
                }
                conflict = Optional.of(sentence);
            }
        }
    }

    /** Whether the kubelet knows us, and what is wrong if not. */
    public State state() {
        State now = state;
        synchronized (this) {
            return conflict.map(sentence -> new State(false, sentence)).orElse(now);
        }
    }

    /**
     * How things stand with the kubelet.
     *
     * @param registered the kubelet listens to our list
     * @param trouble why not; empty when registered
     */
    public record State(boolean registered, String trouble) {}

    @Override
    public void close() {
        closed = true;
        wake();
        try {
            thread.join(); // returns at once where it was never started
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    private void run() {
        while (!closed) {
            try {
                step();
                synchronized (this) {
                    if (!closed && !lost) {
                        wait(look.toMillis());
                    }
                }
            } catch (InterruptedException e) {
                closed = true;
            } catch (IOException | RuntimeException e) {
                trouble("cannot serve the kubelet in " + folder + ": " + e);
                backOff();
            }
        }
        session.ifPresent(Registration::close);
    }

    private void step() throws IOException, InterruptedException {
        warnOfOthers();
        Optional<Object> kubelet = kubeletSocket();
        if (session.isPresent()) {
            Optional<String> ended = whyEnded(session.get(), kubelet);
            if (ended.isEmpty()) {
                return;
            }
            LOG.log(Level.INFO, "The registration has ended: {0}", ended.get());
            session.get().close();
            session = Optional.empty();
            state = new State(false, ended.get());
        }
        if (kubelet.isEmpty()) {
            trouble("waiting for " + folder.resolve(KUBELET_SOCKET) + ": the kubelet isn't running, or "
                    + "ALIQUOT_KUBELET_DIR is not its folder of device plugins");
        } else if (System.nanoTime() - notBefore >= 0) {
            register(kubelet.get());
        }
    }

    private Optional<String> whyEnded(Registration session, Optional<Object> kubelet) {
        synchronized (this) {
            if (lost) {
                lost = false;
                return Optional.of("the Node shows no " + Resources.GPU + " although slots are offered");
            }
        }
        if (!kubelet.equals(Optional.of(session.kubelet()))) {
            return Optional.of("the kubelet has restarted");
        }
        if (!Files.exists(session.socket(), LinkOption.NOFOLLOW_LINKS)) {
            return Optional.of("the kubelet has removed our socket");
        }
        return session.ended();
    }

    private void register(Object kubelet) throws IOException, InterruptedException {
        removeOldSockets();
        // A name that no earlier run has used.
        Path socket = folder.resolve(OUR_SOCKETS + Long.toHexString(System.currentTimeMillis()) + ".sock");
        backOff(); // in effect until the registration has stood for a while
        try {
            Registration opened =
                    Registration.open(kubelet, folder.resolve(KUBELET_SOCKET), socket, service, this::wake);
            session = Optional.of(opened);
            agree();
            lastTrouble = "";
            state = new State(true, "");
            metrics.registered();
            LOG.log(
                    Level.INFO,
                    "Registered {0} with the kubelet: {1} slots",
                    Resources.GPU,
                    service.offer().slots());
        } catch (IOException e) {
            Files.deleteIfExists(socket);
            trouble(String.valueOf(e.getMessage()));
        }
    }

    private synchronized void agree() {
        agreedAt = System.nanoTime();
        conflict = Optional.empty();
    }

    private synchronized void wake() {
        notifyAll();
    }

    /** Doubles the pause before the next try; one that lasted longer than the longest pause starts anew. */
    private void backOff() {
        Duration longest = look.multipliedBy(LONGEST_PAUSE_IN_LOOKS);
        long now = System.nanoTime();
        pause = now - notBefore > longest.toNanos() ? look : pause;
        notBefore = now + pause.toNanos();
        Duration doubled = pause.multipliedBy(2);
        pause = doubled.compareTo(longest) < 0 ? doubled : longest;
    }

    private void trouble(String sentence) {
        if (!sentence.equals(lastTrouble)) {
            LOG.log(Level.WARNING, sentence);
            lastTrouble = sentence;
        }
        state = new State(false, sentence);
    }

    /** The kubelet's socket, told from one that it made later; empty where there is none. */
    private Optional<Object> kubeletSocket() throws IOException {
        try {
            var attributes = Files.readAttributes(
                    folder.resolve(KUBELET_SOCKET), BasicFileAttributes.class, LinkOption.NOFOLLOW_LINKS);
            // An inode's number is soon used again.
            return Optional.of(List.of(Objects.toString(attributes.fileKey()), attributes.lastModifiedTime()));
        } catch (NoSuchFileException e) {
            return Optional.empty();
        }
    }

    private void removeOldSockets() throws IOException {
        try (DirectoryStream<Path> old = Files.newDirectoryStream(folder, OUR_SOCKETS + "*.sock")) {
            for (Path socket : old) {
                Files.deleteIfExists(socket);
            }
        }
    }

    private void warnOfOthers() {
        List<String> others = others();
        if (!others.equals(othersSockets)) {
            othersSockets = others;
            if (others.stream().anyMatch(name -> name.toLowerCase(Locale.ROOT).contains("nvidia"))) {
                LOG.log(
                        Level.WARNING,
                        "Another device plugin for NVIDIA GPUs seems to serve this node: {0}. Only one may register {1};"
                                + " remove the other from nodes with the label gpu=on",
                        others,
                        Resources.GPU);
            }
        }
    }

    private List<String> others() {
        var names = new ArrayList<String>();
        try (DirectoryStream<Path> sockets = Files.newDirectoryStream(folder, "*.sock")) {
            for (Path socket : sockets) {
                String name = socket.getFileName().toString();
                if (!name.equals(KUBELET_SOCKET) && !name.startsWith(OUR_SOCKETS)) {
                    names.add(name);
                }
            }
        } catch (IOException e) {
            return List.of(); // no folder, no others
        }
        Collections.sort(names);
        return names;
    }
}
