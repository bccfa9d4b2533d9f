package io.aliquot.scheduler.apiserver;

import io.aliquot.scheduler.server.health.Readiness;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ConcurrentSkipListSet;
import java.util.stream.Collectors;
import org.springframework.stereotype.Component;

/**
 * The nodes that have Aliquot's label and HAMi's registration, as a line of {@code /readyz}: HAMi selects its nodes by the
 * label that is Aliquot's default, and the chart sees no nodes when Helm only renders it. Thread-safe.
 */
@Component
final class HamiNodes implements Readiness {
    private static final int MOST_NAMES = 3;

    private final Set<String> names = new ConcurrentSkipListSet<>();

    void put(String node, boolean hamis) {
        if (hamis) {
            names.add(node);
        } else {
            names.remove(node);
        }
    }

    @Override
    public Optional<String> waitsFor() {
        return Optional.empty();
    }

    @Override
    public Optional<String> remark() {
        int count = names.size();
        return count == 0
                ? Optional.empty()
                : Optional.of("HAMi serves the GPUs of " + count + " nodes with Aliquot's label, which take no vGPUs: "
                        + names.stream().limit(MOST_NAMES).collect(Collectors.joining(", "))
                        + (count > MOST_NAMES ? ", …" : "")
                        + "; give Aliquot's nodes a label of their own by the chart value nodeLabel");
    }
}
