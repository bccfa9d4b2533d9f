package io.aliquot.scheduler.inspection;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.scheduler.inspection.ApiMapper.NodeHolding;
import io.aliquot.scheduler.ledger.BoundPod;
import io.aliquot.scheduler.ledger.BoundPods;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.ledger.LedgerListener;
import io.aliquot.scheduler.ledger.PodId;
import io.aliquot.scheduler.placement.GpuAmount;
import io.aliquot.scheduler.placement.Gpus;
import org.junit.jupiter.api.Test;

class ApiMapperTest {
    private final Ledger ledger = new Ledger(() -> 0, new LedgerListener() {
        @Override
        public void capacityFreed(String node) {}

        @Override
        public void overallocated(String node, String gpu) {}
    });
    private final ApiMapper mapper = new ApiMapper(ledger);

    /** The ledger returns holdings in no order, so eight pods make it likely that both orders occur. */
    @Test
    void ofTwoPodsOfOneNameTheOneThatWasNotDeletedByForceIsReturned() {
        for (int i = 0; i < 8; i++) {
            String name = "db-" + i;
            ledger.observeBound(pod(name, "before"));
            ledger.deletedBeforeEnd(name + "-before");
            ledger.assume(pod(name, "read"));
            assertThat(mapper.pod("default", name)).map(ApiMapperTest::uid).hasValue(name + "-read");
            ledger.observeBound(pod(name, "observed"));
            assertThat(mapper.pod("default", name)).map(ApiMapperTest::uid).hasValue(name + "-observed");
        }
        assertThat(mapper.pods("default", "")).hasSize(24);
    }

    private static String uid(NodeHolding held) {
        return held.pod().uid();
    }

    private static BoundPod pod(String name, String which) {
        return BoundPods.of(
                new PodId("default", name, name + "-" + which),
                "n1",
                1,
                BoundPods.main(Gpus.uuid(1, 0), new GpuAmount(100, 0, 1, false)));
    }
}
