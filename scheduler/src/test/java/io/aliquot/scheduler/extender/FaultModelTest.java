package io.aliquot.scheduler.extender;

import static org.assertj.core.api.Assertions.assertThat;

import ch.qos.logback.classic.Level;
import ch.qos.logback.classic.Logger;
import java.util.List;
import java.util.Random;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.slf4j.LoggerFactory;

/**
 * Random histories of a small cluster with two replicas: see {@link FaultModel}. No GPU is ever over-allocated. Once
 * all events are delivered, both ledgers equal the state of the API server. {@code -Daliquot.seed} repeats a failure;
 * {@code -Daliquot.histories} sets the number of histories. Each has a thousand steps.
 */
class FaultModelTest {
    private static final int STEPS = 1000;
    /** They create more than 1,000 pods. */
    private static final int LARGE_STEPS = 10_000;

    private static final Logger LOG = (Logger) LoggerFactory.getLogger("io.aliquot.scheduler");

    @BeforeAll
    static void quiet() {
        LOG.setLevel(Level.OFF);
    }

    @AfterAll
    static void loud() {
        LOG.setLevel(null);
    }

    /** 1,000 pods and more in 20 namespaces with quotas. */
    @Test
    void quotasHoldInALargeCluster() {
        long seed = Long.getLong("aliquot.seed", System.nanoTime());
        var counts = new FaultModel.Counts();
        try {
            new FaultModel(new Random(seed), counts, 12, 20).run(LARGE_STEPS);
        } catch (RuntimeException | AssertionError e) {
            throw new AssertionError("with -Daliquot.seed=" + seed, e);
        }
        System.out.println(LARGE_STEPS + " steps from -Daliquot.seed=" + seed + ": " + counts);
        for (String what : List.of("bind bound", "over quota", "resize Done", "quota changed", "restart")) {
            assertThat(counts.all().getOrDefault(what, 0)).as(what).isPositive();
        }
        assertThat(counts.all().getOrDefault("pod created", 0)).isGreaterThan(1000);
    }

    @Test
    void noHistoryOverAllocatesAGpuOrLosesAReservation() {
        long first = Long.getLong("aliquot.seed", System.nanoTime());
        int histories = Integer.getInteger("aliquot.histories", 300);
        var counts = new FaultModel.Counts();
        for (int i = 0; i < histories; i++) {
            long seed = first + i;
            try {
                new FaultModel(new Random(seed), counts).run(STEPS);
            } catch (RuntimeException | AssertionError e) {
                throw new AssertionError("with -Daliquot.seed=" + seed, e);
            }
        }
        System.out.println(histories * (long) STEPS + " steps from -Daliquot.seed=" + first + ": " + counts);
        // Each of these must occur, or the test does not cover it.
        for (String what : List.of(
                "bind bound",
                "answer lost",
                "request carried out late",
                "stale fence refused",
                "resize Done",
                "room kept",
                "GPU with less than pods hold",
                "over quota",
                "resize over quota",
                "quota below what is held",
                "audit",
                "failover",
                "restart",
                "restart of the leader's extender alone")) {
            assertThat(counts.all().getOrDefault(what, 0)).as(what).isGreaterThan(histories / 50);
        }
    }
}
