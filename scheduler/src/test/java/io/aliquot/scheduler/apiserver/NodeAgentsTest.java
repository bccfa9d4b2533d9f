package io.aliquot.scheduler.apiserver;

import static org.assertj.core.api.Assertions.assertThat;

import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.api.model.PodBuilder;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;

class NodeAgentsTest {
    private final List<String> reports = new ArrayList<>();
    private final NodeAgents agents = new NodeAgents("aliquot", new NodeAgents.Listener() {
        @Override
        public void agent(String node, boolean ready, String address) {
            reports.add((node + " " + ready + " " + address).strip());
        }

        @Override
        public void noAgent(String node) {
            reports.add(node + " none");
        }
    });

    @Test
    void aNodeHasAnAgentWhileTheAgentsPodIsReady() {
        agents.onPresent(agent("a", "n1", "False"));
        agents.onPresent(agent("a", "n1", "True"));
        agents.onPresent(agent("a", "n1", "True"));
        agents.onPresent(agent("a", "n1", "False"));
        agents.onGone("a");

        assertThat(reports).containsExactly("n1 false", "n1 true 10.0.0.a", "n1 false", "n1 none");
    }

    @Test
    void anAgentThatIsBeingDeletedIsNotReadyButItsSuccessorIs() {
        agents.onPresent(agent("old", "n1", "True"));
        Pod ending = agent("old", "n1", "True");
        ending.getMetadata().setDeletionTimestamp("2026-01-01T00:00:00Z");
        agents.onPresent(ending);
        agents.onPresent(agent("new", "n1", "True"));
        agents.onGone("old");

        assertThat(reports)
                .containsExactly("n1 true 10.0.0.old", "n1 false", "n1 true 10.0.0.new", "n1 true 10.0.0.new");
    }

    @Test
    void anAgentsNewAddressIsReported() {
        Pod moved = agent("a", "n1", "True");
        agents.onPresent(moved);
        moved.getStatus().setPodIP(null);
        agents.onPresent(moved);
        moved.getStatus().setPodIP("fd00::1");
        agents.onPresent(moved);

        assertThat(reports).containsExactly("n1 true 10.0.0.a", "n1 true", "n1 true fd00::1");
    }

    @Test
    void otherPodsAreNotAgents() {
        agents.onPresent(agent("a", "n1", "False")
                .edit()
                .editMetadata()
                .withNamespace("b")
                .endMetadata()
                .build());
        agents.onPresent(agent("b", "n1", "False")
                .edit()
                .editSpec()
                .withServiceAccountName("default")
                .endSpec()
                .build());
        agents.onPresent(agent("c", "", "False"));
        agents.onGone("d");

        assertThat(reports).isEmpty();
    }

    private static Pod agent(String uid, String node, String ready) {
        return new PodBuilder()
                .withNewMetadata()
                .withNamespace("aliquot")
                .withName("aliquot-device-plugin-" + uid)
                .withUid(uid)
                .endMetadata()
                .withNewSpec()
                .withServiceAccountName("aliquot-device-plugin")
                .withNodeName(node.isEmpty() ? null : node)
                .endSpec()
                .withNewStatus()
                .withPodIP("10.0.0." + uid)
                .addNewCondition()
                .withType("Ready")
                .withStatus(ready)
                .endCondition()
                .endStatus()
                .build();
    }
}
