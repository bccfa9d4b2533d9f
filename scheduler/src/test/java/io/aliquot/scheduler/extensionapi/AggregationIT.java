package io.aliquot.scheduler.extensionapi;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.testing.ApiServer;
import io.aliquot.testing.ApiServer.Response;
import io.fabric8.kubernetes.client.Config;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientBuilder;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.springframework.context.ConfigurableApplicationContext;

/** The API's port behind a real API server with its aggregation layer. */
@SuppressWarnings("NullAway.Init") // JUnit sets the folder
class AggregationIT {
    private static ConfigurableApplicationContext replica;
    private static Aggregation aggregation;
    private static ApiServer server;

    @BeforeAll
    static void start(@TempDir Path folder) throws Exception {
        replica = ExtensionApiProgram.start();
        aggregation = new Aggregation(folder, replica);
        server = aggregation.server;
    }

    @AfterAll
    static void stop() {
        if (aggregation != null) {
            aggregation.close();
        }
        if (replica != null) {
            replica.close();
        }
    }

    @Test
    void theApiServerForwardsRequestsWithTheirUsers() throws Exception {
        Response answer = aggregation.await("/apis/gpu.aliquot.io/v1alpha1/gpunodes");

        assertThat(answer.field("name")).isEqualTo("admin");
        assertThat(answer.field("groups")).contains("system:masters");
        Response patched =
                server.admin().patch("/apis/gpu.aliquot.io/v1alpha1/namespaces/team/gpushares/train", "{\"refuse\":1}");
        assertThat(patched.code()).isEqualTo(409);
        assertThat(patched.field("message")).isEqualTo("GPU-1 has 10 MiB free");
    }

    @Test
    void theApiServerFindsTheGroupAvailableAndListsItsResources() throws Exception {
        var unused = aggregation.await("/apis/gpu.aliquot.io/v1alpha1/gpunodes");

        assertThat(server.admin()
                        .get("/apis/apiregistration.k8s.io/v1/apiservices/v1alpha1.gpu.aliquot.io")
                        .body())
                .contains("all checks passed");
        assertThat(server.admin().get("/apis").body()).contains("gpu.aliquot.io/v1alpha1");
        assertThat(server.admin().get("/apis/gpu.aliquot.io/v1alpha1").body()).contains("gpushares/explain");
    }

    /** kubectl finds resources in this document; the API server merges ours into it. */
    @Test
    void theApiServersAggregatedDiscoveryHasTheResourcesWithTheirShortNames() throws Exception {
        var unused = aggregation.await("/apis/gpu.aliquot.io/v1alpha1/gpunodes");
        Config config = server.client().withTrustCerts(true).build();
        try (KubernetesClient client =
                new KubernetesClientBuilder().withConfig(config).build()) {
            var request = client.getHttpClient()
                    .newHttpRequestBuilder()
                    .uri(config.getMasterUrl() + "apis")
                    .header(
                            "Accept",
                            "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json")
                    .build();
            String found = "";
            for (int i = 0; i < 300 && !found.contains("\"gsh\""); i++) {
                TimeUnit.MILLISECONDS.sleep(100);
                found = client.getHttpClient()
                        .sendAsync(request, String.class)
                        .get()
                        .body();
            }
            assertThat(found).contains("\"gsh\"", "\"explain\"", "\"GpuShareHistory\"");
        }
    }
}
