package io.aliquot.deviceplugin.arbiter;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.pods.CorePolicy;
import io.aliquot.api.pods.Held;
import io.aliquot.api.pods.Priority;
import io.aliquot.api.usage.NodeAllocation.Limit;
import io.aliquot.api.usage.PodContainer;
import io.aliquot.deviceplugin.attribution.ContainerName;
import io.aliquot.deviceplugin.attribution.Limits;
import io.aliquot.deviceplugin.usage.NodeUsage;
import java.util.List;
import java.util.Optional;
import java.util.OptionalDouble;
import java.util.OptionalLong;
import org.junit.jupiter.api.Test;

final class ArbiterFeedTest {
    private static final String GPU = "GPU-11111111-2222-3333-4444-555555555555";

    private Limits limits = new Limits(List.of(
            limit("trainer", "uid-1", 30, CorePolicy.ELASTIC, Priority.LOW),
            limit("server", "uid-2", 50, CorePolicy.FIXED, Priority.HIGH),
            limit("replaced", "uid-3", 20, CorePolicy.FIXED, Priority.NORMAL)));
    private String told = "";
    private final ArbiterFeed feed = new ArbiterFeed(() -> limits, list -> told = list);

    @Test
    void eachContainerWithLimitsIsALineWithTheGpuTimeOfTheLastSecond() {
        sample(use("trainer", "uid-1", "slot-1", 0.7), use("server", "", "slot-2", -1));
        assertThat(told).isEqualTo("""
                slot-1 %1$s 30 elastic low 70.0
                slot-2 %1$s 50 fixed high -
                """.formatted(GPU));
    }

    @Test
    void aContainerWithoutLimitsOrSlotAndASuccessorOfAPodAreLeftOut() {
        sample(
                use("unknown", "uid-9", "slot-1", 0),
                use("replaced", "uid-4", "slot-2", 0),
                use("trainer", "uid-1", "", 0));
        assertThat(told).isEmpty();

        limits = Limits.NONE;
        sample(use("server", "uid-2", "slot-2", 0));
        assertThat(told).isEmpty();
    }

    private void sample(NodeUsage.OfContainer... containers) {
        feed.add(new NodeUsage(List.of(), List.of(containers)));
    }

    private static Limit limit(String pod, String uid, int cores, CorePolicy policy, Priority priority) {
        return new Limit(new PodContainer("team", pod, uid, "main"), GPU, 3000, cores, policy, priority, Held.SHARE);
    }

    private NodeUsage.OfContainer use(String pod, String uid, String slot, double utilization) {
        return new NodeUsage.OfContainer(
                new ContainerName("team", pod, "main"),
                uid,
                slot.isEmpty() ? Optional.empty() : Optional.of(slot),
                GPU,
                OptionalLong.empty(),
                OptionalLong.empty(),
                OptionalLong.empty(),
                0,
                0,
                utilization < 0 ? OptionalDouble.empty() : OptionalDouble.of(utilization),
                0,
                0,
                1);
    }
}
