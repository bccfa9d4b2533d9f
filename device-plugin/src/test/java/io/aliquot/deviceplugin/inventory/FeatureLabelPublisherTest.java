package io.aliquot.deviceplugin.inventory;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.foreign.FeatureDiscovery;
import io.aliquot.api.names.Annotations;
import io.aliquot.deviceplugin.metrics.AgentMetrics;
import io.aliquot.deviceplugin.node.DraDevice;
import io.aliquot.deviceplugin.node.MetadataPatch;
import io.aliquot.deviceplugin.node.NodeClient;
import io.aliquot.deviceplugin.node.NodeCondition;
import io.aliquot.deviceplugin.node.NodeView;
import io.aliquot.deviceplugin.node.NodeWriteException;
import io.aliquot.deviceplugin.nvml.NodeFeatures;
import java.io.IOException;
import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

final class FeatureLabelPublisherTest {
    private static final NodeFeatures A100 = new NodeFeatures(
            "580.159.04",
            13_000,
            "DGX",
            List.of(new NodeFeatures.Gpu(
                    "NVIDIA A100-SXM4-80GB", 81_920, 8, 0, NodeFeatures.Mig.OFF, "0x030200", false)));
    private static final String PRODUCT = "nvidia.com/gpu.product";
    private static final String NFD = "nfd.node.kubernetes.io/feature-labels";

    private final FakeNode node = new FakeNode();
    private long now;
    private FeatureLabelPublisher publisher = newPublisher();

    private FeatureLabelPublisher newPublisher() {
        return new FeatureLabelPublisher(new AgentMetrics(), () -> now);
    }

    private void publish() {
        publisher.publish(node, node.view(), A100, true);
    }

    @Test
    void publishesAllLabelsAndTheirNamesOnce() {
        publish();

        assertThat(node.labels).containsOnlyKeys(FeatureDiscovery.LABELS);
        assertThat(node.labels).containsEntry(PRODUCT, "NVIDIA-A100-SXM4-80GB");
        assertThat(node.record()).isEqualTo(String.join(",", FeatureDiscovery.LABELS));
        publish();
        assertThat(node.patches).isEqualTo(1);
        assertThat(node.questions).isEqualTo(1);
    }

    @Test
    void correctsItsLabelsAndFollowsTheGpus() {
        publish();
        node.labels.put(PRODUCT, "forged");
        node.labels.remove("nvidia.com/gpu.count");

        publish();

        assertThat(node.labels)
                .containsEntry(PRODUCT, "NVIDIA-A100-SXM4-80GB")
                .containsEntry("nvidia.com/gpu.count", "1");
        publisher.publish(node, node.view(), new NodeFeatures("580.159.04", 13_000, "bad.", A100.gpus()), true);
        assertThat(node.labels).doesNotContainKey("nvidia.com/gpu.machine");
        assertThat(node.record()).doesNotContain("gpu.machine").contains(PRODUCT);
    }

    @Test
    void whileTheGpusAreUnknownTheLabelsStay() {
        publisher.publish(node, node.view(), NodeFeatures.UNKNOWN, true);
        assertThat(node.patches).isZero();
        assertThat(node.questions).isZero();
        publish();

        publisher.publish(node, node.view(), NodeFeatures.UNKNOWN, true);

        assertThat(node.labels).hasSize(FeatureDiscovery.LABELS.size());
        assertThat(node.patches).isEqualTo(1);
    }

    @Test
    void labelsOfOthersAreNeverChanged() {
        node.labels.put(PRODUCT, "Set-By-Hand");

        publish();
        publisher.publish(node, node.view(), A100, false);
        assertThat(node.labels).containsExactly(Map.entry(PRODUCT, "Set-By-Hand"));
        publish();
        assertThat(node.record()).doesNotContain(PRODUCT).contains("nvidia.com/gpu.count");
        assertThat(publisher.withdraw(node, node.view())).isEmpty();

        assertThat(node.labels).containsExactly(Map.entry(PRODUCT, "Set-By-Hand"));
        assertThat(node.annotations).isEmpty();
    }

    /** NFD changes no label that has its value already, and lists it as its own. */
    @ParameterizedTest
    @CsvSource({NFD, "gpu-nodes." + NFD})
    void whenFeatureDiscoveryComesItsLabelsStayAndTheOthersGo(String annotation) {
        publish();
        node.annotations.put(
                annotation, "cpu-model.vendor_id, " + PRODUCT + ",nvidia.com/gpu.memory,nvidia.com/gfd.timestamp");
        node.labels.put("nvidia.com/gpu.memory", "81000");
        node.labels.put("nvidia.com/gfd.timestamp", "1");

        publish();

        assertThat(node.labels)
                .containsOnly(
                        Map.entry(PRODUCT, "NVIDIA-A100-SXM4-80GB"),
                        Map.entry("nvidia.com/gpu.memory", "81000"),
                        Map.entry("nvidia.com/gfd.timestamp", "1"));
        assertThat(node.record()).isEqualTo("none: GPU feature discovery labels this node");

        node.labels.clear(); // NFD removes its labels
        node.annotations.remove(annotation);
        publish();
        assertThat(node.labels).hasSize(FeatureDiscovery.LABELS.size());
    }

    @ParameterizedTest
    @CsvSource({
        "nvidia.com/gpu.deploy.driver, true",
        "nvidia.com/gpu.deploy.operands, false",
        "nvidia.com/gpu.deploy.gpu-feature-discovery, false",
        "nvidia.com/gpu.deploy.device-plugin, true"
    })
    void aNodeThatTheGpuOperatorHandlesGetsNone(String label, String value) {
        publish();
        node.labels.put("nvidia.com/gpu.deploy.device-plugin", "false");
        node.labels.put(label, value);

        publish();

        assertThat(node.labels.keySet()).allMatch(name -> name.startsWith("nvidia.com/gpu.deploy."));
        assertThat(node.record()).contains("GPU Operator handles this node, which has the label " + label);
        publish();
        assertThat(node.patches).isEqualTo(2);
    }

    @Test
    void theLabelsThatKeepPartsOfTheOperatorOffAreNoSignOfIt() {
        node.labels.putAll(
                Map.of("nvidia.com/gpu.deploy.device-plugin", "false", "nvidia.com/gpu.deploy.dra-driver", "false"));

        publish();

        assertThat(node.labels).containsKey(PRODUCT);
    }

    /** It may not have labeled a new node yet, and would decide by the agent's labels. */
    @Test
    void whileTheGpuOperatorIsInstalledNoLabelsAreBegun() {
        node.operator = Optional.of(true);
        publish();
        publish();
        assertThat(node.labels).isEmpty();
        assertThat(node.record()).startsWith("none: the GPU Operator is installed");
        assertThat(node.questions).as("the question has a pause").isEqualTo(1);

        node.operator = Optional.of(false);
        now += Duration.ofMinutes(5).toNanos();
        publish();

        assertThat(node.labels).containsKey(PRODUCT);
    }

    @Test
    void whileTheApiServerDoesNotTellNothingIsWritten() {
        node.operator = Optional.empty();
        publish();
        assertThat(node.patches).isZero();

        node.operator = Optional.of(false);
        now += Duration.ofSeconds(2).toNanos();
        publish();

        assertThat(node.labels).containsKey(PRODUCT);
    }

    @Test
    void aNodeThatAnotherPluginServesGetsNone() {
        publish();

        publisher.publish(node, node.view(), A100, false);

        assertThat(node.labels).isEmpty();
        assertThat(node.annotations).isEmpty();
    }

    @Test
    void anAgentThatStartsKnowsTheLabelsOfItsPredecessor() {
        publish();
        publisher = newPublisher();

        publish();
        assertThat(node.patches).isEqualTo(1);
        assertThat(publisher.withdraw(node, node.view())).isEmpty();

        assertThat(node.labels).isEmpty();
        assertThat(node.annotations).isEmpty();
    }

    @Test
    void anEditedAnnotationRemovesNoLabelThatIsNotOfTheList() {
        node.labels.put("gpu", "on");
        node.annotations.put(Annotations.GPU_LABELS, "gpu," + PRODUCT);

        publisher.withdraw(node, node.view());

        assertThat(node.labels).containsEntry("gpu", "on");
    }

    @Test
    void aFailedWriteIsRepeatedAfterAPauseAndKeepsTheAgentOnTheNode() {
        publish();
        node.refusing = true;

        assertThat(publisher.withdraw(node, node.view()))
                .hasValueSatisfying(why -> assertThat(why).contains("not now"));
        node.refusing = false;
        assertThat(publisher.withdraw(node, node.view()))
                .as("the pause is not over")
                .isPresent();
        now += Duration.ofSeconds(2).toNanos();
        assertThat(publisher.withdraw(node, node.view())).isEmpty();

        assertThat(node.labels).isEmpty();
    }

    private static final class FakeNode implements NodeClient {
        private final Map<String, String> labels = new HashMap<>();
        private final Map<String, String> annotations = new HashMap<>();
        private Optional<Boolean> operator = Optional.of(false);
        private boolean refusing;
        private int patches;
        private int questions;

        NodeView view() {
            return new NodeView(labels, annotations, Map.of(), Map.of(), Map.of(), "");
        }

        String record() {
            return annotations.getOrDefault(Annotations.GPU_LABELS, "");
        }

        @Override
        public Optional<NodeView> latest() {
            return Optional.of(view());
        }

        @Override
        public Optional<List<DraDevice>> draDevices() {
            return Optional.of(List.of());
        }

        @Override
        public Optional<Boolean> hasGpuOperator() {
            questions++;
            return operator;
        }

        @Override
        public void patchMetadata(MetadataPatch patch) throws NodeWriteException {
            if (refusing) {
                throw new NodeWriteException("not now", new IOException());
            }
            patches++;
            labels.putAll(patch.labels());
            labels.keySet().removeAll(patch.removedLabels());
            annotations.putAll(patch.annotations());
            annotations.keySet().removeAll(patch.removedAnnotations());
        }

        @Override
        public void setExtendedResources(Map<String, Long> resources) {
            throw new UnsupportedOperationException();
        }

        @Override
        public void removeExtendedResources(Collection<String> resources) {
            throw new UnsupportedOperationException();
        }

        @Override
        public void setCondition(NodeCondition condition) {
            throw new UnsupportedOperationException();
        }

        @Override
        public void removeCondition(String type) {
            throw new UnsupportedOperationException();
        }

        @Override
        public void close() {}
    }
}
