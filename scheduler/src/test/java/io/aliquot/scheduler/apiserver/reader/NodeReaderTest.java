package io.aliquot.scheduler.apiserver.reader;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.tuple;

import io.aliquot.api.nodes.Inventory;
import io.aliquot.api.nodes.NodeLabel;
import io.aliquot.api.nodes.NodeSharing;
import io.aliquot.api.nodes.Scaling;
import io.aliquot.api.nodes.SharingMode;
import io.aliquot.api.nodes.VisibleDevices;
import io.aliquot.api.pods.Placement;
import io.aliquot.scheduler.cluster.NodeId;
import io.aliquot.scheduler.extensionapi.objects.ApiTypes.Condition;
import io.aliquot.scheduler.ledger.NodeFacts;
import io.aliquot.scheduler.nodeagent.NodeReport;
import io.aliquot.scheduler.placement.GpuCapacity;
import io.aliquot.scheduler.placement.Gpus;
import io.aliquot.scheduler.placement.HostResources;
import io.aliquot.scheduler.placement.NodeRuntime;
import io.fabric8.kubernetes.api.model.Node;
import io.fabric8.kubernetes.api.model.NodeBuilder;
import io.fabric8.kubernetes.api.model.NodeRuntimeHandler;
import io.fabric8.kubernetes.api.model.NodeRuntimeHandlerFeatures;
import io.fabric8.kubernetes.api.model.Quantity;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class NodeReaderTest {
    private static final Inventory INVENTORY = Gpus.inventory(10, Gpus.gpu(1, 0, 80_000), Gpus.gpu(1, 1, 80_000));

    private static final NodeFacts NOT_LABELED = NodeFacts.Unavailable.notLabeled(NodeLabel.DEFAULT);

    private final NodeReader reader = new NodeReader(Placement.BINPACK);

    @Test
    void aNodeWithLabelAndInventorySharesItsGpus() {
        assertThat(reader.read(node(Map.of("gpu", "on"), Map.of("aliquot.io/gpus", INVENTORY.print()))))
                .isEqualTo(new NodeReader.Reading(
                        new NodeFacts.Sharing(INVENTORY, Placement.BINPACK, new HostResources(7910, 1 << 30)),
                        "",
                        Optional.of(new NodeReport(new NodeId("n1", "uid-n1"), INVENTORY.gpus(), "", false))));
    }

    @Test
    void aNodeNeedsTheChartsRuntimeClassUnlessItInjectsGpusByCdi() {
        var reader = new NodeReader(Placement.BINPACK, NodeLabel.DEFAULT, "nvidia");
        var byCdi = new Inventory(VisibleDevices.BY_ALLOCATE, Scaling.ONE, Scaling.ONE, 10, INVENTORY.gpus());
        Node node = node(Map.of("gpu", "on"), Map.of("aliquot.io/gpus", INVENTORY.print()));
        Node cdi = node(Map.of("gpu", "on"), Map.of("aliquot.io/gpus", byCdi.print()));
        cdi.getStatus()
                .setRuntimeHandlers(List.of(
                        new NodeRuntimeHandler(new NodeRuntimeHandlerFeatures(true, true), ""),
                        new NodeRuntimeHandler(new NodeRuntimeHandlerFeatures(true, true), "runc"),
                        new NodeRuntimeHandler(null, "crun")));

        assertThat(((NodeFacts.Sharing) reader.read(node).facts()).runtime())
                .isEqualTo(new NodeRuntime(Map.of(), "nvidia"));
        assertThat(((NodeFacts.Sharing) reader.read(cdi).facts()).runtime())
                .isEqualTo(new NodeRuntime(Map.of("", true, "runc", true, "crun", false), ""));
        assertThat(reader.read(node).report().orElseThrow().injectsByCdi()).isFalse();
        assertThat(reader.read(cdi).report().orElseThrow().injectsByCdi()).isTrue();
    }

    @Test
    void theNodesPlacementLabelApplies() {
        var labels = Map.of("gpu", "on", "aliquot.io/placement", "spread", "aliquot.io/share", "core-memory");
        var facts = (NodeFacts.Sharing) reader.read(node(labels, Map.of("aliquot.io/gpus", INVENTORY.print())))
                .facts();
        assertThat(facts.gpuPlacement()).isEqualTo(Placement.SPREAD);
    }

    @Test
    void aNodeWithoutTheGpuLabelIsLeftOutWithoutAProblem() {
        assertThat(reader.read(node(Map.of("gpu", "off"), Map.of())).problem()).isEmpty();
        assertThat(reader.read(node(Map.of("gpu", "on"), Map.of())))
                .isEqualTo(new NodeReader.Reading(
                        new NodeFacts.Unavailable("no GPU inventory from the node's device plugin yet"),
                        "",
                        Optional.empty()));
    }

    @Test
    void theLabelOfAliquotsNodesIsASetting() {
        var other = new NodeReader(Placement.BINPACK, NodeLabel.parse("gpus.example.com/shared=by-aliquot"), "");
        Map<String, String> annotations = Map.of("aliquot.io/gpus", INVENTORY.print());

        assertThat(other.read(node(Map.of("gpu", "on"), annotations)).facts())
                .isEqualTo(new NodeFacts.Unavailable("not labelled gpus.example.com/shared=by-aliquot", false, true));
        assertThat(other.read(node(Map.of("gpus.example.com/shared", "by-aliquot"), annotations))
                        .facts())
                .isInstanceOf(NodeFacts.Sharing.class);
    }

    @Test
    void aNodeThatHamiServesIsHamisAlsoBeforeItsAgentSaysSo() {
        Map<String, String> labels = Map.of("gpu", "on");
        var annotations = Map.of("hami.io/node-nvidia-register", "GPU-0,10,122880,100,NVIDIA-A100,0,true:");
        String conflict = Inventory.HAMI + " (…)";
        Map<String, String> reported = new HashMap<>(annotations);
        reported.put("aliquot.io/gpus", INVENTORY.withConflict(conflict).print());

        NodeReader.Reading reading = reader.read(node(labels, annotations));

        assertThat(reading.facts())
                .isEqualTo(new NodeFacts.Unavailable("HAMi serves the node's GPUs, see the node's events", true, true));
        assertThat(reading.problem()).isEmpty();
        assertThat(reader.read(node(labels, reported)).problem()).isEqualTo(conflict);
        Node hamis = node(labels, reported);
        hamis.getMetadata().setResourceVersion("1");
        assertThat(NodeReader.metadata(hamis, reader.read(hamis)).conditions())
                .containsExactly(new Condition("SoleGpuOwner", "False", "HAMi", conflict));
        assertThat(reader.isHamis(node(labels, annotations))).isTrue();
        assertThat(reader.isHamis(node(Map.of(), annotations))).isFalse();
        assertThat(reader.isHamis(node(labels, Map.of()))).isFalse();
    }

    @Test
    void aNodeThatLosesItsLabelTakesNoPodsAndStaysAliquotsWhileItsAgentStays() {
        NodeReader.Reading reading =
                reader.read(node(Map.of("aliquot.io/node-agent", "on"), Map.of("aliquot.io/gpus", INVENTORY.print())));

        assertThat(reading.facts()).isInstanceOf(NodeFacts.Unavailable.class).isNotEqualTo(NOT_LABELED);
        assertThat(reader.read(node(Map.of(), Map.of())).facts()).isEqualTo(NOT_LABELED);
    }

    @Test
    void aConflictWithAnotherDevicePluginLeavesTheNodeOutAndIsAProblem() {
        String why = "another device plugin advertises nvidia.com/gpu on this node";
        NodeReader.Reading reading = reader.read(node(
                Map.of("gpu", "on"),
                Map.of("aliquot.io/gpus", INVENTORY.withConflict(why).print())));

        assertThat(reading.facts())
                .isEqualTo(
                        new NodeFacts.Unavailable("another device plugin uses the node's GPUs, see the node's events"));
        assertThat(reading.problem()).isEqualTo(why);
    }

    /** Its kubelet would reject the pods for want of healthy devices. */
    @Test
    void aNodeWhoseKubeletHasEndedTakesNoPodsUntilItHasTheDevicesAgain() {
        NodeReader.Reading reading = read(
                Map.of(),
                Map.of(
                        "aliquot.io/gpus",
                        INVENTORY.withConflict(Inventory.KUBELET_GONE).print()));

        assertThat(reading.facts())
                .isEqualTo(new NodeFacts.Unavailable(
                        "the node's kubelet has ended or restarted, and does not have the vGPUs yet"));
        assertThat(reading.problem()).isEmpty();
    }

    @Test
    void aNodeWhoseDriverIsBeingUpgradedIsLeftOut() {
        String why = "the driver is being upgraded: the node has the annotation aliquot.io/release-driver=true";
        NodeReader.Reading reading = reader.read(node(
                Map.of("gpu", "on"),
                Map.of("aliquot.io/gpus", INVENTORY.withConflict(why).print())));

        assertThat(reading.facts())
                .isEqualTo(new NodeFacts.Unavailable("the node's driver is being upgraded, see the node's events"));
        assertThat(reading.problem()).isEqualTo(why);
    }

    @Test
    void anUnreadableInventoryLeavesTheNodeOutAndIsAProblem() {
        NodeReader.Reading reading =
                reader.read(node(Map.of("gpu", "on"), Map.of("aliquot.io/gpus", "{\"version\":2}")));
        assertThat(reading.facts())
                .isEqualTo(new NodeFacts.Unavailable("GPU inventory of the node cannot be read, see its events"));
        assertThat(reading.problem()).isEqualTo("aliquot.io/gpus: expected version 1, found \"2\"");
        assertThat(reading.report()).isEmpty();
    }

    /** A node under a driver upgrade takes no pods, and its GPUs may still become unhealthy. */
    @Test
    void theAgentsFindingsAreReadAlsoFromANodeThatTakesNoPods() {
        Inventory inventory = INVENTORY.withConflict("the driver is being upgraded");
        NodeReader.Reading reading = read(Map.of(), Map.of("aliquot.io/gpus", inventory.print()));

        assertThat(reading.facts()).isInstanceOf(NodeFacts.Unavailable.class);
        assertThat(reading.report())
                .hasValueSatisfying(report -> assertThat(report.gpus()).isEqualTo(INVENTORY.gpus()));
    }

    /** Otherwise a new driver would evaluate all Pending pods for the node again. */
    @Test
    void whatNoPlacementDependsOnDoesNotChangeTheNodesFacts() {
        Inventory inventory = INVENTORY
                .withDriver("6f1f0c2e-0d8b-4f0e-9d55-0c8a3f4b7a10", "580.95.05")
                .withCgroups("v2 systemd")
                .withMps(true)
                .withCertificate("0123456789abcdef".repeat(4));

        assertThat(read(Map.of(), Map.of("aliquot.io/gpus", inventory.print())).facts())
                .isEqualTo(read(Map.of(), Map.of()).facts());
    }

    /** As the API server stores it: an amount of 0 is none. */
    @Test
    void aNodeThatClusterAutoscalerTakesForUnreadyHasACondition() {
        Node node = node(Map.of("gpu", "on", "cloud.google.com/gke-accelerator", "nvidia-l4"), Map.of());
        node.getMetadata().setResourceVersion("7");
        node.getStatus().getAllocatable().put("nvidia.com/gpu", new Quantity("0"));

        assertThat(NodeReader.metadata(node, reader.read(node)).conditions())
                .singleElement()
                .satisfies(
                        condition -> assertThat(condition.type() + " " + condition.status() + " " + condition.reason())
                                .isEqualTo("ClusterAutoscalerReady False NoKnownGpuResource"));

        node.getStatus().getAllocatable().put("microsoft.com/directx", new Quantity("2"));
        assertThat(NodeReader.metadata(node, reader.read(node)).conditions())
                .singleElement()
                .satisfies(condition -> assertThat(condition.status()).isEqualTo("True"));

        node.getMetadata().getLabels().remove("cloud.google.com/gke-accelerator");
        assertThat(NodeReader.metadata(node, reader.read(node)).conditions()).isEmpty();
    }

    @Test
    void theNodesShareLabelDecidesTheSharingMode() {
        assertThat(sharing(Map.of("aliquot.io/share", "memory"), Map.of())
                        .gpus()
                        .sharing())
                .isEqualTo(NodeSharing.all(SharingMode.MEMORY));
        var acks = Map.of("ack.node.gpu.schedule", "topology", "ack.node.gpu.placement", "spread");
        assertThat(sharing(acks, Map.of()).gpus().sharing().mode()).isEqualTo(SharingMode.TOPOLOGY);
        assertThat(sharing(acks, Map.of()).gpuPlacement()).isEqualTo(Placement.SPREAD);
        NodeReader.Reading none = read(Map.of("aliquot.io/share", "none"), Map.of());
        assertThat(none.facts()).isEqualTo(new NodeFacts.Unavailable("gives no GPUs (label aliquot.io/share=none)"));
        assertThat(none.problem()).isEmpty();
    }

    @Test
    void labelsOfGpuFeatureDiscoveryThatTheAgentLeavesToOthersMayBeMissing() {
        var left = Map.of("aliquot.io/gpu-labels", "none: the GPU Operator is installed; it labels nodes");
        var labeled = Map.of("nvidia.com/gpu.product", "NVIDIA-A100-SXM4-80GB");

        assertThat(NodeReader.missingGpuLabels(node(Map.of(), left)))
                .hasValue(
                        "the node has no label nvidia.com/gpu.product: the GPU Operator is installed; it labels nodes");
        assertThat(NodeReader.missingGpuLabels(node(labeled, left))).isEmpty();
        assertThat(NodeReader.missingGpuLabels(node(Map.of(), Map.of()))).isEmpty();
        assertThat(NodeReader.missingGpuLabels(node(Map.of(), Map.of("aliquot.io/gpu-labels", "nvidia.com/gpu.count"))))
                .isEmpty();
    }

    @Test
    void anAnnotationSharesSingleGpusInAnotherWay() {
        var cards = sharing(
                        Map.of("aliquot.io/share", "memory"),
                        Map.of("aliquot.io/gpu-share", "0=exclusive, " + Gpus.uuid(1, 1) + "=core-memory:4"))
                .gpus();

        assertThat(cards.list())
                .extracting(GpuCapacity::sharingMode, GpuCapacity::slots)
                .containsExactly(tuple(SharingMode.EXCLUSIVE, 10), tuple(SharingMode.CORE_MEMORY, 4));
        NodeReader.Reading unknown = read(Map.of(), Map.of("aliquot.io/gpu-share", "7=exclusive,1=memory"));
        assertThat(unknown.problem()).startsWith("aliquot.io/gpu-share: the node has no GPU 7;");
        assertThat(((NodeFacts.Sharing) unknown.facts()).gpus().list())
                .extracting(GpuCapacity::sharingMode)
                .containsExactly(SharingMode.CORE_MEMORY, SharingMode.MEMORY);
    }

    @Test
    void aCordonedGpuIsNotAllocatedAndTheOthersAre() {
        var cards = sharing(Map.of(), Map.of("aliquot.io/cordon-gpus", Gpus.uuid(1, 1)))
                .gpus();
        assertThat(cards.list()).extracting(GpuCapacity::cordoned).containsExactly(false, true);
        assertThat(sharing(Map.of(), Map.of("aliquot.io/cordon-gpus", ""))
                        .gpus()
                        .list())
                .extracting(GpuCapacity::cordoned)
                .containsOnly(false);
    }

    @Test
    void aCordonOfAnUnknownGpuIsAProblemAndTheRestOfTheCordonHolds() {
        NodeReader.Reading reading =
                read(Map.of(), Map.of("aliquot.io/cordon-gpus", Gpus.uuid(1, 0) + ", " + Gpus.uuid(2, 0)));
        assertThat(reading.problem())
                .isEqualTo("aliquot.io/cordon-gpus: the node has no GPU " + Gpus.uuid(2, 0)
                        + "; its GPUs are in its annotation aliquot.io/gpus");
        assertThat(((NodeFacts.Sharing) reading.facts()).gpus().list())
                .extracting(GpuCapacity::cordoned)
                .containsExactly(true, false);
    }

    @Test
    void capacityFollowsTheInventorysScaling() {
        var scaled =
                new Inventory(INVENTORY.visibleDevices(), new Scaling(200), new Scaling(150), 10, INVENTORY.gpus());
        var facts =
                (NodeFacts.Sharing) reader.read(node(Map.of("gpu", "on"), Map.of("aliquot.io/gpus", scaled.print())))
                        .facts();
        assertThat(facts.gpus().list()).extracting(GpuCapacity::memoryMiB).containsOnly(160_000L);
        assertThat(facts.gpus().list()).extracting(GpuCapacity::cores).containsOnly(150);
    }

    @ParameterizedTest
    @CsvSource({
        "label,aliquot.io/placement,best,is unknown; allowed: binpack",
        "label,ack.node.gpu.placement,best,is unknown; allowed: binpack",
        "label,aliquot.io/share,mps,is not supported yet",
        "label,aliquot.io/share,all,is unknown; allowed: core-memory",
        "label,ack.node.gpu.schedule,all,is unknown; allowed: default",
        "annotation,aliquot.io/cordon-gpus,GPU-1,expected a GPU's UUID",
        "annotation,aliquot.io/gpu-share,0=topology,allowed: core-memory",
        "annotation,aliquot.io/memory-scaling,much,is not a scaling",
        "annotation,aliquot.io/core-scaling,0,is not a scaling",
        "annotation,aliquot.io/slots,many,is not a number of slots"
    })
    void anUnknownSettingLeavesTheNodeOutAndTheProblemNamesTheAllowedValues(
            String where, String name, String value, String says) {
        NodeReader.Reading reading =
                where.equals("label") ? read(Map.of(name, value), Map.of()) : read(Map.of(), Map.of(name, value));
        assertThat(reading.facts())
                .isEqualTo(new NodeFacts.Unavailable("GPU settings of the node have an error, see its events"));
        assertThat(reading.problem()).contains(name).contains(says);
    }

    /** The agent needs a moment to publish the conflict; a pod of the other plugin does not wait for it. */
    @Test
    void anotherPluginsResourceClosesTheNodeBeforeItsAgentSaysSo() {
        Node node = node(Map.of("gpu", "on"), Map.of("aliquot.io/gpus", INVENTORY.print()));
        node.getStatus().getAllocatable().put("nvidia.com/gpu", new Quantity("4"));
        assertThat(reader.read(node).facts()).isInstanceOf(NodeFacts.Unavailable.class);

        node.getStatus().getAllocatable().put("nvidia.com/gpu", new Quantity("0"));
        node.getStatus().getAllocatable().put("nvidia.com/gpumem", new Quantity("160k"));
        assertThat(reader.read(node).facts()).isInstanceOf(NodeFacts.Sharing.class);
    }

    private NodeFacts.Sharing sharing(Map<String, String> labels, Map<String, String> annotations) {
        return (NodeFacts.Sharing) read(labels, annotations).facts();
    }

    private NodeReader.Reading read(Map<String, String> labels, Map<String, String> annotations) {
        var allLabels = new HashMap<>(labels);
        allLabels.put("gpu", "on");
        var allAnnotations = new HashMap<>(annotations);
        allAnnotations.putIfAbsent("aliquot.io/gpus", INVENTORY.print());
        return reader.read(node(allLabels, allAnnotations));
    }

    private static Node node(Map<String, String> labels, Map<String, String> annotations) {
        return new NodeBuilder()
                .withNewMetadata()
                .withName("n1")
                .withUid("uid-n1")
                .withLabels(labels)
                .withAnnotations(annotations)
                .endMetadata()
                .withNewStatus()
                .addToAllocatable("cpu", new Quantity("7910m"))
                .addToAllocatable("memory", new Quantity("1Gi"))
                .endStatus()
                .build();
    }
}
