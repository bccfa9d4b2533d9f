package io.aliquot.scheduler.ledger;

import static org.assertj.core.api.Assertions.assertThat;

import org.junit.jupiter.api.Test;

class NodeAccountTest {
    @Test
    void hostResourcesBreakTiesBetweenEquallyFullGpus() {
        assertThat(NodeAccount.fullness(0.5, 0.6)).isGreaterThan(NodeAccount.fullness(0.5, 0.4));
        assertThat(NodeAccount.fullness(0.9, 0.0)).isGreaterThan(NodeAccount.fullness(0.5, 1.0));
    }
}
