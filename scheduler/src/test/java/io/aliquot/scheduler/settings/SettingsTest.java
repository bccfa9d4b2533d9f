package io.aliquot.scheduler.settings;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.aliquot.api.nodes.NodeLabel;
import io.aliquot.api.pods.Compatibility;
import io.aliquot.api.pods.Placement;
import io.aliquot.api.pods.PodDefaults;
import io.aliquot.api.ports.ApiServers;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import org.junit.jupiter.api.Test;

class SettingsTest {
    @Test
    void everyVariableExceptThePodsNameAndNamespaceHasADefault() {
        assertThat(read("", ""))
                .isEqualTo(new Settings(
                        "p",
                        "n",
                        "",
                        NodeLabel.DEFAULT,
                        Placement.FRAGMENTATION,
                        Placement.FRAGMENTATION,
                        Compatibility.NONE,
                        PodDefaults.NONE,
                        100,
                        0,
                        OverusePolicy.REPORT,
                        OverusePolicy.EVICT,
                        "",
                        "",
                        Set.of(),
                        ApiServers.UNKNOWN,
                        ""));
    }

    @Test
    void anInvalidValueIsRefusedWithTheVariableAndTheAllowedValues() {
        assertThatThrownBy(() -> read("ALIQUOT_NODES_PER_FILTER", "-1"))
                .hasMessage("ALIQUOT_NODES_PER_FILTER: \"-1\" is not a whole number from 0 to 100000");
        assertThatThrownBy(() -> read("ALIQUOT_PLANNED_NODES", "many"))
                .hasMessage("ALIQUOT_PLANNED_NODES: \"many\" is not a whole number from 0 to 100000");
        assertThatThrownBy(() -> read("ALIQUOT_NODE_PLACEMENT", "best"))
                .hasMessage("ALIQUOT_NODE_PLACEMENT: \"best\" is unknown; allowed: binpack, spread, fragmentation");
        assertThatThrownBy(() -> read("ALIQUOT_COMPATIBILITY", "ack"))
                .hasMessage("ALIQUOT_COMPATIBILITY: \"ack\" is unknown; allowed: none, hami");
        assertThatThrownBy(() -> read("ALIQUOT_DEFAULT_MEMORY", "3Gi"))
                .hasMessage("ALIQUOT_DEFAULT_MEMORY: nvidia.com/gpumem counts MiB: write 3072 instead of 3Gi");
        assertThatThrownBy(() -> read("ALIQUOT_DEFAULT_CORE_POLICY", "force"))
                .hasMessage("ALIQUOT_DEFAULT_CORE_POLICY: \"force\" is unknown; allowed: fixed, elastic, none");
        assertThatThrownBy(() -> read("ALIQUOT_NODE_LABEL", "gpu")).hasMessageContaining("a node label such as gpu=on");
        assertThatThrownBy(() -> read("ALIQUOT_OVERUSE", "delete"))
                .hasMessage("ALIQUOT_OVERUSE: \"delete\" is unknown; allowed: report, evict");
        assertThatThrownBy(() -> read("ALIQUOT_UNLIMITED_CONTAINERS", "evict"))
                .hasMessage("ALIQUOT_UNLIMITED_CONTAINERS: \"evict\" is unknown; allowed: report, end");
        assertThatThrownBy(() -> read("ALIQUOT_RUNTIME_CLASS", "NV!"))
                .hasMessage("ALIQUOT_RUNTIME_CLASS: \"NV!\" is not the name of a Kubernetes object");
        assertThatThrownBy(() -> read("ALIQUOT_LOG_FORMAT", "xml"))
                .hasMessage("ALIQUOT_LOG_FORMAT: \"xml\" is unknown; allowed: empty for text, ecs, logstash, gelf");
        assertThatThrownBy(() -> read("ALIQUOT_KEEPS_NODES_FROM", "karpenter,all"))
                .hasMessage("ALIQUOT_KEEPS_NODES_FROM: \"all\" is unknown; allowed: cluster_autoscaler, karpenter");
        assertThatThrownBy(() -> read("ALIQUOT_API_SERVERS", "10.0.0.0/24,"))
                .hasMessage("ALIQUOT_API_SERVERS: expected a range of addresses such as 10.0.0.0/24, found \"\"");
        assertThatThrownBy(() -> read("POD_NAME", "")).hasMessage("POD_NAME is not set; the chart sets it");
    }

    private static Settings read(String name, String value) {
        Map<String, String> environment = new HashMap<>(Map.of("POD_NAME", "p", "POD_NAMESPACE", "n"));
        environment.put(name, value);
        return Settings.read(environment::get);
    }
}
