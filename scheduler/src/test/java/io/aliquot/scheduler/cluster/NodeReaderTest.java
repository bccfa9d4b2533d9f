package io.aliquot.scheduler.cluster;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.Gpu;
import io.aliquot.api.Inventory;
import io.aliquot.api.Placement;
import io.aliquot.api.VisibleDevices;
import io.aliquot.scheduler.ledger.HostLoad;
import io.aliquot.scheduler.ledger.NodeFacts;
import io.aliquot.scheduler.placement.Gpus;
import io.fabric8.kubernetes.api.model.Node;
import io.fabric8.kubernetes.api.model.NodeBuilder;
import io.fabric8.kubernetes.api.model.Quantity;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class NodeReaderTest {
    private static final List<Gpu> GPUS = List.of(Gpus.gpu(1, 0, 80_000));
    private static final Inventory INVENTORY = new Inventory(new VisibleDevices("{uuid}"), 1, 1, 10, GPUS);

    private final NodeReader reader = new NodeReader(Placement.BINPACK);

    @Test
    void aNodeWithLabelAndInventorySharesItsGpus() {
        assertThat(reader.read(node(Map.of("gpu", "on"), Map.of("aliquot.io/gpus", INVENTORY.print()))))
                .isEqualTo(new NodeReader.Reading(
                        new NodeFacts.Sharing(INVENTORY, Placement.BINPACK, new HostLoad(7910, 1 << 30)), ""));
    }

    @Test
    void theNodesLabelSaysHowToChooseItsGpus() {
        var labels = Map.of("gpu", "on", "aliquot.io/placement", "spread", "aliquot.io/share", "core-memory");
        var facts = (NodeFacts.Sharing) reader.read(node(labels, Map.of("aliquot.io/gpus", INVENTORY.print())))
                .facts();
        assertThat(facts.gpuPlacement()).isEqualTo(Placement.SPREAD);
    }

    @Test
    void aNodeThatTakesNoPartIsLeftOutWithoutFurtherAdo() {
        assertThat(reader.read(node(Map.of("gpu", "off"), Map.of())).problem()).isEmpty();
        assertThat(reader.read(node(Map.of("gpu", "on"), Map.of())))
                .isEqualTo(new NodeReader.Reading(
                        new NodeFacts.LeftOut("no GPU inventory from the node's device plugin yet"), ""));
    }

    @Test
    void anUnreadableInventoryLeavesTheNodeOutAndTellsItsAdmin() {
        NodeReader.Reading reading =
                reader.read(node(Map.of("gpu", "on"), Map.of("aliquot.io/gpus", "{\"version\":2}")));
        assertThat(reading.facts())
                .isEqualTo(new NodeFacts.LeftOut("GPU inventory of the node cannot be read, see its events"));
        assertThat(reading.problem()).isEqualTo("aliquot.io/gpus: expected version 1, found \"2\"");
    }

    @ParameterizedTest
    @CsvSource({
        "label,aliquot.io/placement,fragmentation,is not supported yet; allowed: binpack",
        "label,aliquot.io/placement,best,is unknown; allowed: binpack",
        "label,aliquot.io/share,mig,is not supported yet; allowed: core-memory",
        "annotation,aliquot.io/cordon-gpus,GPU-1,is not supported yet; allowed: aliquot.io/slots",
        "annotation,aliquot.io/memory-scaling,2,is not supported yet",
        "annotation,aliquot.io/slots,many,is not a number of slots"
    })
    void anUnknownSettingLeavesTheNodeOutAndTellsItsAdminWhatIsAllowed(
            String where, String name, String value, String says) {
        boolean label = where.equals("label");
        var labels = label ? Map.of("gpu", "on", name, value) : Map.of("gpu", "on");
        var annotations = label
                ? Map.of("aliquot.io/gpus", INVENTORY.print())
                : Map.of("aliquot.io/gpus", INVENTORY.print(), name, value);
        NodeReader.Reading reading = reader.read(node(labels, annotations));
        assertThat(reading.facts())
                .isEqualTo(new NodeFacts.LeftOut("GPU settings of the node have an error, see its events"));
        assertThat(reading.problem()).contains(name).contains(says);
    }

    private static Node node(Map<String, String> labels, Map<String, String> annotations) {
        return new NodeBuilder()
                .withNewMetadata()
                .withName("n1")
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
