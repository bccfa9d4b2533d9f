package io.aliquot.scheduler.kubernetes.watch;

import static io.aliquot.scheduler.kubernetes.Await.await;
import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.scheduler.kubernetes.client.ApiServerClient;
import io.aliquot.scheduler.kubernetes.client.ListWatchClient;
import io.aliquot.scheduler.kubernetes.client.ResourceType;
import io.fabric8.kubernetes.client.Config;
import io.fabric8.kubernetes.client.ConfigBuilder;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientBuilder;
import java.util.List;
import java.util.concurrent.atomic.AtomicLong;
import org.junit.jupiter.api.Test;

/** Against an API server that does not answer; {@code InformerIT} has the rest. */
class WatchHealthCheckTest {
    private final AtomicLong nanoTime = new AtomicLong();

    /** Regression: an Error ended the periodic check, and nothing said so. */
    @Test
    void anErrorFailsTheLivenessProbe() {
        Config config = new ConfigBuilder(Config.empty())
                .withMasterUrl("http://127.0.0.1:1")
                .build();
        try (KubernetesClient kubernetes =
                        new KubernetesClientBuilder().withConfig(config).build();
                var lease = Informer.start(
                        new ListWatchClient(
                                new ApiServerClient(kubernetes.getConfiguration(), System::nanoTime),
                                kubernetes.getKubernetesSerialization()),
                        ResourceType.lease("kube-system", "kube-scheduler"),
                        present -> {},
                        gone -> {},
                        nanoTime::get);
                var check = new WatchHealthCheck(lease, List.of(lease), () -> {
                    throw new StackOverflowError("of this test");
                })) {
            assertThat(check.broken()).isEmpty();
            nanoTime.addAndGet(WatchHealthCheck.RENEWED.toNanos() + 1);
            check.start();
            await("the failure", () -> check.broken().isPresent());
            assertThat(check.broken().orElseThrow()).contains("StackOverflowError");
        }
    }
}
