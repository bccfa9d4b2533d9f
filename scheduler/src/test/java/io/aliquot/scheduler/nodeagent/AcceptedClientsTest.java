package io.aliquot.scheduler.nodeagent;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.nodes.CertificateDigest;
import io.aliquot.scheduler.cluster.Cluster.LeaderStatus;
import io.aliquot.scheduler.cluster.Cluster.WriteOutcome;
import io.aliquot.scheduler.cluster.FakeCluster;
import io.aliquot.scheduler.cluster.FakeCluster.NodeWrite;
import java.security.cert.X509Certificate;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.junit.jupiter.api.Test;

class AcceptedClientsTest {
    private static final String KEY = "aliquot.io/agent-clients";
    private static final X509Certificate CERTIFICATE = FakeAgent.certificate(FakeAgent.SCHEDULERS);
    private static final String DIGEST = CertificateDigest.of(CERTIFICATE);
    private static final Duration TICK = Duration.ofMillis(500);

    private final FakeCluster cluster = new FakeCluster();
    private final List<String> told = new ArrayList<>();
    private long now;
    private final AcceptedClients clients = new AcceptedClients(cluster, told::add, () -> now);

    @Test
    void aNodeWithAnInventoryIsToldOnceByTheLeader() {
        clients.put("n1", 5, inventory());
        clients.put("other", 6, Map.of());
        run(Duration.ofSeconds(2));
        assertThat(cluster.nodeWrites).as("no certificate yet").isEmpty();

        clients.accept(List.of(CERTIFICATE));
        cluster.leaderStatus = new LeaderStatus.NotLeading("another does");
        run(Duration.ofSeconds(2));
        assertThat(cluster.nodeWrites).isEmpty();

        cluster.leaderStatus = new FakeCluster().leaderStatus;
        run(Duration.ofSeconds(2));
        assertThat(cluster.nodeWrites).containsExactly(new NodeWrite("n1", 5, Map.of(KEY, Optional.of(DIGEST))));
        clients.put("n1", 7, inventory(DIGEST));
        run(Duration.ofMinutes(1));
        assertThat(cluster.nodeWrites).hasSize(1);
        assertThat(told).containsExactly("n1");
    }

    @Test
    void anotherValueIsReplacedAndTheOneOfANodeWithoutAnAgentRemoved() {
        clients.accept(List.of(CERTIFICATE));
        clients.put("n1", 5, inventory("former"));
        clients.put("left", 6, Map.of(KEY, DIGEST));
        run(TICK);

        assertThat(cluster.nodeWrites)
                .containsExactlyInAnyOrder(
                        new NodeWrite("n1", 5, Map.of(KEY, Optional.of(DIGEST))),
                        new NodeWrite("left", 6, Map.of(KEY, Optional.empty())));
        assertThat(told)
                .as("what was there before this replica started is no news")
                .isEmpty();
    }

    @Test
    void aWriteWithoutEffectIsRepeatedAfterTenSecondsAndAtOnceForALaterVersion() {
        clients.accept(List.of(CERTIFICATE));
        cluster.outcomes.add(new WriteOutcome.Unknown("no answer"));
        cluster.outcomes.add(new WriteOutcome.Conflicts("changed"));
        clients.put("n1", 5, inventory());
        run(Duration.ofSeconds(10));
        assertThat(cluster.nodeWrites).hasSize(1);
        run(Duration.ofSeconds(1));
        assertThat(cluster.nodeWrites).hasSize(2);

        clients.put("n1", 8, inventory());
        run(TICK);
        assertThat(cluster.nodeWrites).extracting(NodeWrite::version).containsExactly(5L, 5L, 8L);
    }

    @Test
    void manyNodesAreToldInTurn() {
        clients.accept(List.of(CERTIFICATE));
        for (int node = 0; node < 120; node++) {
            clients.put("n" + node, node, inventory());
        }
        run(TICK);
        assertThat(cluster.nodeWrites).hasSize(AcceptedClients.MAX_WRITES_PER_RUN);
        run(TICK.multipliedBy(2));
        assertThat(cluster.nodeWrites).extracting(NodeWrite::node).hasSize(120).doesNotHaveDuplicates();
        clients.remove("n1");
        run(Duration.ofSeconds(20));
        assertThat(cluster.nodeWrites.subList(120, 239))
                .extracting(NodeWrite::node)
                .doesNotContain("n1");
    }

    private static Map<String, String> inventory(String... clients) {
        Map<String, String> annotations = new HashMap<>(Map.of("aliquot.io/gpus", "[]"));
        List.of(clients).forEach(value -> annotations.put(KEY, value));
        return annotations;
    }

    private void run(Duration time) {
        for (long i = time.dividedBy(TICK); i > 0; i--) {
            now += TICK.toNanos();
            clients.update();
        }
    }
}
