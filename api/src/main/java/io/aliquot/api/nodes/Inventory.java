package io.aliquot.api.nodes;

import static io.aliquot.api.format.FormatException.expect;
import static io.aliquot.api.format.JsonFields.field;
import static io.aliquot.api.format.JsonFields.instant;
import static io.aliquot.api.format.JsonFields.integer;
import static io.aliquot.api.format.JsonFields.optionalInteger;
import static io.aliquot.api.format.JsonFields.optionalText;
import static io.aliquot.api.format.JsonFields.text;
import static io.aliquot.api.format.JsonFields.truth;
import static io.aliquot.api.format.JsonFields.versioned;
import static io.aliquot.api.format.JsonFields.whole;

import io.aliquot.api.format.JsonFields;
import io.aliquot.api.names.Resources;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.regex.Pattern;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.node.ArrayNode;
import tools.jackson.databind.node.ObjectNode;

/**
 * The GPUs of a node and how they are shared: the node annotation {@code Annotations.GPUS}, JSON, written by the node's
 * agent. Unknown JSON fields belong to a newer version and are ignored.
 *
 * @param visibleDevices how the node's runtime names GPUs
 * @param memoryScaling the over-commit of memory
 * @param coreScaling the over-commit of compute
 * @param slots the maximum number of vGPUs of a GPU, 1 to {@value SlotCount#MOST}
 * @param gpus each UUID and index once; may be empty
 * @param conflict why the node may take no pods although it has GPUs, such as another device plugin that serves them; at
 *     most {@value #LONGEST_CONFLICT} characters; empty if there is no reason
 * @param bootId the host's boot id; empty if unknown
 * @param driverVersion the version of NVIDIA's driver, at most {@value #LONGEST_VERSION} printable ASCII characters; empty
 *     if unknown
 * @param cgroups the version of the node's cgroups and the driver that names those of pods, such as {@code v2 systemd};
 *     {@link #HIDDEN_CGROUPS} if the agent sees none of a pod; empty if unknown
 * @param mps whether programs use a GPU of the node through NVIDIA's MPS
 * @param totals the extended resources of the Node that are larger than {@link #extendedResources}, because pods may hold as
 *     much since before an administrator lowered a scaling; by resource
 * @param certificate which certificate the node's agent serves: its {@link CertificateDigest}; empty if unknown
 * @param withheld whether the agent has written no extended resources to the Node and advertises no vGPUs, because the GPUs
 *     are another owner's: whatever amounts the Node has are not the agent's
 */
public record Inventory(
        VisibleDevices visibleDevices,
        Scaling memoryScaling,
        Scaling coreScaling,
        int slots,
        List<Gpu> gpus,
        String conflict,
        String bootId,
        String driverVersion,
        String cgroups,
        boolean mps,
        Map<String, Long> totals,
        String certificate,
        boolean withheld) {
    /** Of {@link #cgroups}: the agent's own pod has one, so it does not see those of the host. */
    public static final String HIDDEN_CGROUPS = "hidden";

    /** How a {@link #conflict} begins while the node's driver is being upgraded and the agent does not use it. */
    public static final String DRIVER_UPGRADE = "the driver is being upgraded: ";

    /** The {@link #conflict} from the end of the kubelet's connection to the agent until the kubelet has its devices again. */
    public static final String KUBELET_GONE = "the kubelet has ended or restarted, and does not have the vGPUs yet";

    /** How a {@link #conflict} begins while containers could not get a GPU of the node, because CDI does not name it. */
    public static final String NOT_IN_CDI = "no CDI specification ";

    /** How a {@link #conflict} begins while HAMi is registered on the node. */
    public static final String HAMI = "HAMi serves this node's GPUs";

    private static final int VERSION = 1;
    private static final int LONGEST_CONFLICT = 300;
    private static final int LONGEST_VERSION = 80;
    // As the kernel prints a random UUID (drivers/char/random.c).
    private static final Pattern BOOT_ID = Pattern.compile("([0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})?");
    private static final Pattern CGROUPS = Pattern.compile("(v[12] (cgroupfs|systemd)|" + HIDDEN_CGROUPS + ")?");
    private static final Pattern DRIVER_VERSION = Pattern.compile("[ -~]{0," + LONGEST_VERSION + "}");

    /** An inventory without the optional parts. */
    public Inventory(
            VisibleDevices visibleDevices, Scaling memoryScaling, Scaling coreScaling, int slots, List<Gpu> gpus) {
        this(visibleDevices, memoryScaling, coreScaling, slots, gpus, "", "", "", "", false, Map.of(), "", false);
    }

    public Inventory {
        expect(conflict.length() <= LONGEST_CONFLICT, "a shorter conflict", conflict.length());
        expect(slots >= 1 && slots <= SlotCount.MOST, "slots from 1 to " + SlotCount.MOST, slots);
        gpus = List.copyOf(gpus);
        expect(gpus.stream().map(Gpu::uuid).distinct().count() == gpus.size(), "each UUID once", "one twice");
        expect(gpus.stream().map(Gpu::index).distinct().count() == gpus.size(), "each index once", "one twice");
        expect(BOOT_ID.matcher(bootId).matches(), "a boot id", bootId);
        expect(DRIVER_VERSION.matcher(driverVersion).matches(), "a driver's version", driverVersion);
        expect(CGROUPS.matcher(cgroups).matches(), "a version of cgroups and a driver", cgroups);
        totals = Map.copyOf(totals);
        expect(
                certificate.isEmpty() || CertificateDigest.isOne(certificate),
                "the digest of a certificate",
                certificate);
    }

    /** Whether containers get their GPUs by the CDI device that Allocate names, which any handler of the runtime injects. */
    public boolean injectsByCdi() {
        return visibleDevices.equals(VisibleDevices.BY_ALLOCATE);
    }

    /** The GPUs of which vGPUs can be made. */
    public List<Gpu> gpusWithCapacity() {
        return gpus.stream().filter(Gpu::hasCapacity).toList();
    }

    /** Memory of a GPU for all its vGPUs together, in MiB. A single vGPU never gets more than the physical memory. */
    public long allocatableMiB(Gpu gpu) {
        return gpu.hasCapacity() ? Math.max(1, memoryScaling.of(gpu.memoryMiB())) : 0;
    }

    /** Compute of a GPU for all its vGPUs together, in percent of the GPU. */
    public int allocatableCores() {
        return (int) coreScaling.of(100);
    }

    /**
     * The extended resources in the node's status: sums over all its GPUs, unhealthy ones included.
     *
     * <p>{@link Resources#MEMORY_PERCENTAGE} is at least 100 for each GPU, because a percentage refers to what one vGPU
     * can get, also if the scaling is below 1. If compute is not reserved, {@link Resources#CORES} is 100 for each
     * slot, because kube-scheduler counts the requests all the same.
     */
    public Map<String, Long> extendedResources(NodeSharing sharing) {
        return Map.of(
                Resources.MEMORY,
                gpus.stream().mapToLong(this::allocatableMiB).sum(),
                Resources.MEMORY_PERCENTAGE,
                Math.max(100, memoryScaling.of(100)) * gpusWithCapacity().size(),
                Resources.CORES,
                gpusWithCapacity().stream()
                        .mapToLong(gpu -> sharing.mode(gpu) == SharingMode.MEMORY
                                ? 100L * sharing.slots(gpu, slots)
                                : allocatableCores())
                        .sum());
    }

    public static Inventory parse(String text) {
        JsonNode root = versioned("a node's inventory", text, VERSION);
        JsonNode list = field(root, "gpus");
        expect(list.isArray(), "an array gpus", list.getNodeType());
        var gpus = new ArrayList<Gpu>();
        for (JsonNode gpu : list) {
            gpus.add(gpu(gpu));
        }
        return new Inventory(
                new VisibleDevices(text(root, "visibleDevices")),
                scaling(root, "memoryScaling"),
                scaling(root, "coreScaling"),
                integer(root, "slots"),
                gpus,
                optionalText(root, "conflict"),
                optionalText(root, "bootId"),
                optionalText(root, "driverVersion"),
                optionalText(root, "cgroups"),
                root.path("mps").asBoolean(false),
                totals(root),
                optionalText(root, "certificate"),
                root.path("withheld").asBoolean(false));
    }

    private static Map<String, Long> totals(JsonNode root) {
        var totals = new LinkedHashMap<String, Long>();
        JsonNode object = root.path("totals");
        expect(object.isMissingNode() || object.isObject(), "an object totals", object);
        object.propertyNames().forEach(resource -> totals.put(resource, whole(object, resource)));
        return totals;
    }

    /** The same inventory with other GPUs. */
    public Inventory withGpus(List<Gpu> gpus) {
        return with(gpus, conflict, bootId, driverVersion, cgroups, mps, totals, certificate, withheld);
    }

    /** The same inventory with another {@link #conflict}. */
    public Inventory withConflict(String conflict) {
        return with(gpus, conflict, bootId, driverVersion, cgroups, mps, totals, certificate, withheld);
    }

    /** The same inventory as found under this boot and this driver. */
    public Inventory withDriver(String bootId, String driverVersion) {
        return with(gpus, conflict, bootId, driverVersion, cgroups, mps, totals, certificate, withheld);
    }

    /** The same inventory of a node with these {@link #cgroups}. */
    public Inventory withCgroups(String cgroups) {
        return with(gpus, conflict, bootId, driverVersion, cgroups, mps, totals, certificate, withheld);
    }

    /** The same inventory of a node with or without programs that use {@link #mps}. */
    public Inventory withMps(boolean mps) {
        return with(gpus, conflict, bootId, driverVersion, cgroups, mps, totals, certificate, withheld);
    }

    /** The same inventory with other {@link #totals}. */
    public Inventory withTotals(Map<String, Long> totals) {
        return with(gpus, conflict, bootId, driverVersion, cgroups, mps, totals, certificate, withheld);
    }

    /** The same inventory of an agent with another {@link #certificate}. */
    public Inventory withCertificate(String certificate) {
        return with(gpus, conflict, bootId, driverVersion, cgroups, mps, totals, certificate, withheld);
    }

    /** The same inventory with or without the extended resources and vGPUs. */
    public Inventory withWithheld(boolean withheld) {
        return with(gpus, conflict, bootId, driverVersion, cgroups, mps, totals, certificate, withheld);
    }

    private Inventory with(
            List<Gpu> gpus,
            String conflict,
            String bootId,
            String driverVersion,
            String cgroups,
            boolean mps,
            Map<String, Long> totals,
            String certificate,
            boolean withheld) {
        return new Inventory(
                visibleDevices,
                memoryScaling,
                coreScaling,
                slots,
                gpus,
                conflict,
                bootId,
                driverVersion,
                cgroups,
                mps,
                totals,
                certificate,
                withheld);
    }

    public String print() {
        ObjectNode root = JsonFields.JSON
                .createObjectNode()
                .put("version", VERSION)
                .put("visibleDevices", visibleDevices.template())
                .put("memoryScaling", memoryScaling.hundredths() / 100.0)
                .put("coreScaling", coreScaling.hundredths() / 100.0)
                .put("slots", slots);
        if (!conflict.isEmpty()) {
            root.put("conflict", conflict);
        }
        if (!bootId.isEmpty()) {
            root.put("bootId", bootId);
        }
        if (!driverVersion.isEmpty()) {
            root.put("driverVersion", driverVersion);
        }
        if (!cgroups.isEmpty()) {
            root.put("cgroups", cgroups);
        }
        if (mps) {
            root.put("mps", true);
        }
        if (!certificate.isEmpty()) {
            root.put("certificate", certificate);
        }
        if (withheld) {
            root.put("withheld", true);
        }
        if (!totals.isEmpty()) {
            ObjectNode object = root.putObject("totals");
            new TreeMap<>(totals).forEach(object::put);
        }
        var list = root.putArray("gpus");
        for (Gpu gpu : gpus) {
            ObjectNode node = list.addObject()
                    .put("uuid", gpu.uuid())
                    .put("index", gpu.index())
                    .put("model", gpu.model())
                    .put("memoryMiB", gpu.memoryMiB())
                    .put("contextMiB", gpu.contextMiB())
                    .put("numa", gpu.numa())
                    .put("healthy", gpu.healthy());
            gpu.health().unhealthy().ifPresent(unhealthy -> print(unhealthy, node));
            node.put("mode", gpu.mode());
            ObjectNode links = node.putObject("links");
            // Sorted, so that an unchanged inventory prints the same text and is not written again.
            new TreeMap<>(gpu.links()).forEach((uuid, link) -> links.put(uuid, link.print()));
            gpu.instance()
                    .ifPresent(instance -> node.putObject("mig")
                            .put("card", instance.card())
                            .put("profile", instance.profile())
                            .put("slices", instance.slices())
                            .put("cardSlices", instance.cardSlices())
                            .put("multiprocessors", instance.multiprocessors())
                            .put("cardMiB", instance.cardMiB()));
            if (!gpu.heldBy().isEmpty()) {
                ArrayNode holders = node.putArray("heldBy");
                for (ForeignHolder holder : gpu.heldBy()) {
                    ObjectNode one =
                            holders.addObject().put("pod", holder.pod()).put("resource", holder.resource());
                    if (holder.hami()) {
                        one.put("hami", true);
                    }
                }
            }
        }
        return root.toString();
    }

    private static void print(GpuHealth.Unhealthy unhealthy, ObjectNode gpu) {
        gpu.put("reason", unhealthy.reason());
        gpu.put("since", unhealthy.since().toString());
        unhealthy.xid().ifPresent(xid -> gpu.put("xid", xid));
        gpu.put("recovery", unhealthy.recovery().print());
    }

    private static Gpu gpu(JsonNode node) {
        expect(node.isObject(), "an object for each GPU", node.getNodeType());
        Map<String, Link> links = new LinkedHashMap<>();
        if (node.has("links")) {
            JsonNode object = node.get("links");
            expect(object.isObject(), "an object links", object.getNodeType());
            for (var link : object.properties()) {
                expect(link.getValue().isString(), "a link's name", link.getValue());
                links.put(link.getKey(), Link.parse(link.getValue().stringValue()));
            }
        }
        var holders = new ArrayList<ForeignHolder>();
        if (node.has("heldBy")) {
            expect(node.get("heldBy").isArray(), "an array heldBy", node.get("heldBy"));
            for (JsonNode holder : node.get("heldBy")) {
                expect(holder.isObject(), "an object for each holder", holder);
                boolean hami = holder.has("hami") && truth(holder, "hami");
                holders.add(new ForeignHolder(text(holder, "pod"), text(holder, "resource"), hami));
            }
        }
        return new Gpu(
                text(node, "uuid"),
                integer(node, "index"),
                text(node, "model"),
                integer(node, "memoryMiB"),
                integer(node, "contextMiB"),
                integer(node, "numa"),
                health(node),
                text(node, "mode"),
                links,
                holders,
                kind(node));
    }

    private static GpuKind kind(JsonNode gpu) {
        if (!gpu.has("mig")) {
            return GpuKind.CARD;
        }
        JsonNode mig = gpu.get("mig");
        expect(mig.isObject(), "an object mig", mig.getNodeType());
        return new GpuKind.MigInstance(
                text(mig, "card"),
                text(mig, "profile"),
                integer(mig, "slices"),
                integer(mig, "cardSlices"),
                integer(mig, "multiprocessors"),
                integer(mig, "cardMiB"));
    }

    private static GpuHealth health(JsonNode gpu) {
        if (truth(gpu, "healthy")) {
            return Gpu.HEALTHY;
        }
        return new GpuHealth.Unhealthy(
                text(gpu, "reason"),
                instant(gpu, "since"),
                optionalInteger(gpu, "xid"),
                GpuHealth.Recovery.parse(text(gpu, "recovery")));
    }

    private static Scaling scaling(JsonNode object, String name) {
        JsonNode value = field(object, name);
        expect(value.isNumber(), "a number " + name, value);
        return Scaling.parse(name, value.asString(""));
    }
}
