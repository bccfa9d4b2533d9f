package io.aliquot.scheduler.nodeagent;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.scheduler.cluster.NodeId;
import java.util.List;
import org.junit.jupiter.api.Test;

class NodeReportsTest {
    private final NodeReports reports = new NodeReports();

    /** Before the first report, a node of any kind may be the first. */
    @Test
    void oneNodeThatDoesNotInjectByCdiIsEnoughAndSoIsNoNode() {
        assertThat(reports.allInjectByCdi()).isFalse();
        put("n1", true);
        assertThat(reports.allInjectByCdi()).isTrue();
        put("n2", false);
        assertThat(reports.allInjectByCdi()).isFalse();
        reports.remove("n2");
        assertThat(reports.allInjectByCdi()).isTrue();
    }

    private void put(String node, boolean injectsByCdi) {
        reports.put(new NodeReport(new NodeId(node, "uid-" + node), List.of(), "", injectsByCdi));
    }
}
