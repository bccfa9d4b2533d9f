package io.aliquot.deviceplugin;

import io.aliquot.api.Annotations;
import io.aliquot.api.FormatException;
import io.aliquot.api.Gpu;
import io.aliquot.api.Inventory;
import io.aliquot.api.Resources;
import io.aliquot.api.SharingMode;
import io.aliquot.deviceplugin.kubelet.KubeletPlugin;
import io.aliquot.deviceplugin.metrics.Metrics;
import io.aliquot.deviceplugin.node.NodeApi;
import io.aliquot.deviceplugin.node.NodeView;
import io.aliquot.deviceplugin.node.NodeWishes;
import io.aliquot.deviceplugin.node.NodeWriteException;
import io.aliquot.deviceplugin.nvml.Nvml;
import io.aliquot.deviceplugin.nvml.NvmlException;
import io.aliquot.deviceplugin.nvml.PhysicalGpu;
import io.aliquot.deviceplugin.nvml.XidWatch;
import io.aliquot.deviceplugin.shim.ShimReports;
import java.lang.System.Logger;
import java.lang.System.Logger.Level;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeSet;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/**
 * Keeps three things in step with the GPUs and with what the node's admin wishes: the slots offered to the kubelet, the
 * Node's inventory, and its totals. One thread looks at everything every few seconds, and at once when told of a change;
 * what it finds different it puts right. So it matters little what was missed, or who wrote in between.
 *
 * <p>A wish that we refuse leaves the inventory as it was: the scheduler refuses the same and leaves the node out.
 */
final class Agent implements AutoCloseable {
    private static final Logger LOG = System.getLogger(Agent.class.getName());

    private static final Duration LONGEST_PAUSE = Duration.ofSeconds(60);
    /** With no library in the container only a new container helps: NVIDIA's runtime brings it at the start. */
    private static final Duration PATIENCE_WITHOUT_NVML = Duration.ofMinutes(10);

    private static final Duration STUCK = Duration.ofMinutes(2);
    private static final Duration GRACE = Duration.ofSeconds(5);

    /** How NVML is opened. */
    interface NvmlOpener {
        Nvml open() throws NvmlException;
    }

    private final Settings settings;
    private final NvmlOpener opener;
    private final KubeletPlugin plugin;
    private final Metrics metrics;
    private final Duration look;
    private final ShimReports reports;
    private final Map<String, String> said = new HashMap<>();
    private final CountDownLatch shut = new CountDownLatch(1);

    private volatile Optional<NodeApi> node = Optional.empty();
    private Optional<Nvml> nvml = Optional.empty();
    private Optional<XidWatch> xids = Optional.empty();
    private Optional<Inventory> told = Optional.empty();
    /** The node's totals as they were at most, of this Node object. */
    private final Map<String, Long> highest = new HashMap<>();

    private Map<String, String> troubled = Map.of();
    private Duration nvmlPause = Duration.ofSeconds(1);
    private long nvmlNotBefore = System.nanoTime();
    private long nvmlAnsweredAt = System.nanoTime();
    private Duration writePause = Duration.ZERO;
    private long writeNotBefore = System.nanoTime();

    private volatile long beat = System.nanoTime();
    private volatile List<String> waitingFor = List.of("starting");
    private volatile boolean closed;
    private boolean woken; // guarded by this

    /**
     * Does nothing before {@link #run}.
     *
     * @param plugin closed by this
     * @param look pause between looks when nothing happens
     */
    Agent(Settings settings, NvmlOpener opener, KubeletPlugin plugin, Metrics metrics, Duration look) {
        this.settings = settings;
        this.opener = opener;
        this.plugin = plugin;
        this.metrics = metrics;
        this.look = look;
        reports = new ShimReports(settings.stateDir(), metrics);
    }

    /** Something may have changed. */
    synchronized void wake() {
        woken = true;
        notifyAll();
    }

    /** Why this process should be restarted; empty if it needn't. */
    String stuck() {
        long seconds = Duration.ofNanos(System.nanoTime() - beat).toSeconds();
        return seconds > STUCK.toSeconds() ? "the agent's loop has not come round for " + seconds + " s" : "";
    }

    /** What keeps the node from taking shares; empty for nothing. */
    String waitingFor() {
        List<String> now = new ArrayList<>(waitingFor);
        KubeletPlugin.State state = plugin.state();
        if (!state.registered()) {
            now.add(state.trouble());
        }
        return String.join("\n", now);
    }

    /**
     * Works until {@link #close}, or until only a new container can help.
     *
     * @param node closed by this
     * @return false when this process should be started anew
     */
    boolean run(NodeApi node) {
        this.node = Optional.of(node);
        try {
            while (!closed) {
                waitingFor = stepOrReason(node);
                reports.read();
                beat = System.nanoTime();
                if (nvml.isEmpty() && System.nanoTime() - nvmlAnsweredAt > PATIENCE_WITHOUT_NVML.toNanos()) {
                    LOG.log(
                            Level.ERROR,
                            "No NVML for {0} minutes: starting anew, since NVIDIA''s runtime brings the driver''s"
                                    + " libraries when a container starts",
                            PATIENCE_WITHOUT_NVML.toMinutes());
                    return false;
                }
                rest();
            }
            return true;
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            return true;
        } finally {
            shut();
        }
    }

    /** Returns when {@link #run} has let go of everything, or after a few seconds. */
    @Override
    public void close() {
        closed = true;
        wake();
        if (node.isEmpty()) {
            plugin.close();
            return; // never ran
        }
        try {
            if (!shut.await(GRACE.toMillis(), TimeUnit.MILLISECONDS)) {
                LOG.log(Level.WARNING, "Ending without having closed everything");
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    private synchronized void rest() throws InterruptedException {
        long until = System.nanoTime() + look.toNanos();
        while (!woken && !closed && System.nanoTime() < until) {
            wait(Math.max(1, Duration.ofNanos(until - System.nanoTime()).toMillis()));
        }
        woken = false;
    }

    private void shut() {
        plugin.close();
        closeNvml();
        node.ifPresent(NodeApi::close);
        shut.countDown();
    }

    private void closeNvml() {
        xids.ifPresent(XidWatch::close);
        nvml.ifPresent(Nvml::close);
        xids = Optional.empty();
        nvml = Optional.empty();
    }

    private List<String> stepOrReason(NodeApi node) {
        try {
            List<String> lacking = step(node);
            said.remove("step");
            return lacking;
        } catch (RuntimeException e) {
            // A GPU that tells nonsense, say: what is running goes on, and perhaps the next look is better.
            return List.of(say("step", Level.ERROR, "cannot make out this node's GPUs: " + e));
        }
    }

    /** One look at everything. Answers what the node still lacks. */
    private List<String> step(NodeApi node) {
        List<String> lacking = new ArrayList<>();
        Optional<NodeView> view = node.latest();
        if (view.isEmpty()) {
            // Slots and inventory depend on the Node; a node that was deleted begins anew.
            told = Optional.empty();
            highest.clear();
            lacking.add(say(
                    "node", Level.INFO, "node " + settings.nodeName() + " has not been seen yet in the API server"));
        } else {
            said.remove("node");
            if (told.isEmpty()) {
                told = inventoryOn(view.get());
            }
        }
        List<PhysicalGpu> gpus = look(lacking);
        if (view.isEmpty()) {
            return lacking;
        }
        Optional<NodeWishes> wishes = wishes(view.get());
        if (told.isEmpty() && (wishes.isEmpty() || nvml.isEmpty())) {
            if (wishes.isEmpty()) {
                lacking.add(said.getOrDefault("wishes", "the node asks for something that is refused"));
            }
            return lacking;
        }
        Inventory present = GpuInventory.of(
                gpus,
                told,
                settings.visibleDevices(),
                wishes.or(() -> told.map(NodeWishes::grantedBy)).orElseThrow());
        if (present.gpus().isEmpty()) {
            lacking.add(say(
                    "none",
                    Level.WARNING,
                    "NVML shows no GPU on this node; a node without GPUs should not have the label gpu=on"));
        } else {
            said.remove("none");
        }
        sayHealth(gpus, present);
        plugin.offer(GpuInventory.offer(present));
        metrics.slots(
                GpuInventory.offer(present).healthy(),
                GpuInventory.offer(present).unhealthy());
        plugin.observe(view.get().allocatable().getOrDefault(Resources.GPU, 0L));
        if (wishes.isPresent()) {
            told = Optional.of(present);
        }
        write(node, view.get(), wishes.isPresent()).ifPresent(lacking::add);
        return lacking;
    }

    /** The GPUs now; those of before, all in trouble, while NVML doesn't answer. */
    private List<PhysicalGpu> look(List<String> lacking) {
        try {
            if (nvml.isEmpty()) {
                if (System.nanoTime() - nvmlNotBefore < 0) {
                    String trouble = said.getOrDefault("nvml", "NVML is not open yet");
                    lacking.add(trouble);
                    return beforeInTrouble(trouble);
                }
                nvmlNotBefore = System.nanoTime() + nvmlPause.toNanos();
                nvmlPause = shorter(nvmlPause.multipliedBy(2), LONGEST_PAUSE);
                Nvml opened = opener.open();
                nvml = Optional.of(opened);
                xids = Optional.of(new XidWatch(opened, metrics, this::wake));
            }
            List<PhysicalGpu> gpus =
                    nvml.get().gpus().stream().map(this::withXid).toList();
            nvmlPause = Duration.ofSeconds(1);
            nvmlAnsweredAt = System.nanoTime();
            if (said.remove("nvml") != null) {
                LOG.log(Level.INFO, "NVML answers");
            }
            return gpus;
        } catch (NvmlException e) {
            String trouble = say("nvml", Level.ERROR, String.valueOf(e.getMessage()));
            closeNvml();
            lacking.add(trouble);
            return beforeInTrouble(trouble);
        }
    }

    private List<PhysicalGpu> beforeInTrouble(String trouble) {
        return told.map(inventory -> GpuInventory.allTroubled(inventory, trouble))
                .orElse(List.of());
    }

    private PhysicalGpu withXid(PhysicalGpu gpu) {
        String xid = xids.map(watch -> watch.trouble(gpu.uuid())).orElse("");
        return xid.isEmpty()
                ? gpu
                : new PhysicalGpu(gpu.uuid(), gpu.index(), gpu.model(), gpu.memoryMiB(), gpu.numa(), xid, gpu.links());
    }

    /** What the node's admin wishes; empty while that is something that we refuse. */
    private Optional<NodeWishes> wishes(NodeView view) {
        try {
            NodeWishes wishes = NodeWishes.parse(view, settings.slots());
            metrics.nodeSettingsRefused(false);
            if (said.remove("wishes") != null) {
                LOG.log(Level.INFO, "The node's labels and annotations are all right again");
            }
            return Optional.of(wishes);
        } catch (FormatException e) {
            metrics.nodeSettingsRefused(true);
            say(
                    "wishes",
                    Level.ERROR,
                    "node " + settings.nodeName() + ": " + e.getMessage()
                            + " (until then the inventory stays as it was, and the scheduler leaves the node out)");
            return Optional.empty();
        }
    }

    private Optional<Inventory> inventoryOn(NodeView view) {
        String text = view.annotations().get(Annotations.GPUS);
        if (text == null) {
            return Optional.empty();
        }
        try {
            return Optional.of(Inventory.parse(text));
        } catch (FormatException e) {
            LOG.log(
                    Level.WARNING,
                    "The node''s annotation {0} is unreadable and will be written anew: {1}",
                    Annotations.GPUS,
                    e.getMessage());
            return Optional.empty();
        }
    }

    /** Puts right what differs on the Node. Answers why it couldn't. */
    private Optional<String> write(NodeApi node, NodeView view, boolean inventoryToo) {
        if (told.isEmpty()) {
            return Optional.empty();
        }
        String inventory = told.get().print();
        Map<String, Long> totals = totals(told.get(), view);
        boolean sameInventory =
                !inventoryToo || inventory.equals(view.annotations().get(Annotations.GPUS));
        boolean sameTotals = totals.entrySet().stream()
                .allMatch(total -> total.getValue().equals(view.capacity().getOrDefault(total.getKey(), 0L))
                        && total.getValue().equals(view.allocatable().getOrDefault(total.getKey(), 0L)));
        if (sameInventory && sameTotals) {
            return Optional.empty();
        }
        if (System.nanoTime() - writeNotBefore < 0) {
            return Optional.of(said.getOrDefault("write", "the node is about to be written"));
        }
        try {
            if (!sameInventory) {
                node.annotate(Annotations.GPUS, inventory);
                metrics.wroteNode("inventory");
            }
            if (!sameTotals) {
                node.putResources(totals);
                metrics.wroteNode("totals");
            }
            writePause = Duration.ZERO;
            said.remove("write");
            return Optional.empty();
        } catch (NodeWriteException e) {
            writePause = shorter(writePause.plusSeconds(1).multipliedBy(2), LONGEST_PAUSE);
            writeNotBefore = System.nanoTime() + writePause.toNanos();
            return Optional.of(say("write", Level.WARNING, String.valueOf(e.getMessage())));
        }
    }

    /**
     * The node's totals. After a scaling was made smaller they stay: pods may hold more than the new ones, and a kubelet
     * that restarts would reject some that run. What is sold follows the scaling all the same, since the scheduler counts
     * each GPU by the inventory.
     */
    private Map<String, Long> totals(Inventory inventory, NodeView view) {
        inventory.totals(share(view)).forEach((resource, total) -> {
            highest.merge(resource, total, Math::max);
            highest.merge(resource, view.capacity().getOrDefault(resource, 0L), Math::max);
        });
        return Map.copyOf(highest);
    }

    /** Of one that is refused the totals know nothing; they stay as they were at most. */
    private static SharingMode share(NodeView view) {
        try {
            return SharingMode.of(view.labels());
        } catch (FormatException e) {
            return SharingMode.CORE_MEMORY;
        }
    }

    private void sayHealth(List<PhysicalGpu> seen, Inventory present) {
        Map<String, String> now = new HashMap<>();
        for (Gpu gpu : present.gpus()) {
            if (!gpu.healthy()) {
                now.put(gpu.uuid(), "NVML does not show it any more");
            }
        }
        for (PhysicalGpu gpu : seen) {
            if (!gpu.trouble().isEmpty()) {
                now.put(gpu.uuid(), gpu.trouble());
            }
        }
        if (!now.equals(troubled)) {
            var all = new TreeSet<>(now.keySet());
            all.addAll(troubled.keySet());
            for (String uuid : all) {
                String trouble = now.getOrDefault(uuid, "");
                if (!trouble.equals(troubled.getOrDefault(uuid, ""))) {
                    LOG.log(
                            trouble.isEmpty() ? Level.INFO : Level.ERROR,
                            trouble.isEmpty() ? uuid + " is well again" : uuid + " takes no new vGPU: " + trouble);
                }
            }
            troubled = now;
        }
        metrics.gpus(present.gpus().size() - now.size(), now.size());
    }

    /** Logs a sentence, once until it changes. */
    private String say(String about, Level level, String sentence) {
        if (!sentence.equals(said.put(about, sentence))) {
            LOG.log(level, sentence);
        }
        return sentence;
    }

    private static Duration shorter(Duration one, Duration other) {
        return one.compareTo(other) < 0 ? one : other;
    }
}
