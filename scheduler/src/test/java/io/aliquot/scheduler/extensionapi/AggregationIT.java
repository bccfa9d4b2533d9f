package io.aliquot.scheduler.extensionapi;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.scheduler.extensionapi.Authority.Identity;
import io.aliquot.scheduler.extensionapi.ExtensionApiProgram.FakeControlPlane;
import io.aliquot.scheduler.server.RandomPorts;
import io.aliquot.testing.ApiServer;
import io.aliquot.testing.ApiServer.Response;
import io.fabric8.kubernetes.client.Config;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientBuilder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.concurrent.TimeUnit;
import org.bouncycastle.asn1.x509.KeyPurposeId;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.springframework.context.ConfigurableApplicationContext;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.json.JsonMapper;

/** The API's port behind a real API server with its aggregation layer. */
@SuppressWarnings("NullAway.Init") // JUnit sets the folder
class AggregationIT {
    private static final String SERVICE = "aliquot-extension-api";

    private static ApiServer server;
    private static ConfigurableApplicationContext replica;

    @BeforeAll
    static void start(@TempDir Path folder) throws Exception {
        var frontProxyCa = new Authority("front-proxy-ca");
        Identity frontProxy = frontProxyCa.client("front-proxy-client");
        server = new ApiServer(
                folder,
                "--requestheader-client-ca-file="
                        + Authority.write(folder, "front-proxy-ca.crt", frontProxyCa.certificate),
                "--requestheader-allowed-names=front-proxy-client",
                "--requestheader-username-headers=X-Remote-User",
                "--requestheader-group-headers=X-Remote-Group",
                "--requestheader-extra-headers-prefix=X-Remote-Extra-",
                "--proxy-client-cert-file="
                        + Authority.write(folder, "front-proxy-client.crt", frontProxy.certificate()),
                "--proxy-client-key-file=" + Authority.write(folder, "front-proxy-client.key", frontProxy.key()));
        var ca = new Authority("aliquot");
        replica = ExtensionApiProgram.start();
        ExtensionApiProgram.serve(
                replica,
                ca.issue(
                        SERVICE + "." + ApiServer.NAMESPACE + ".svc",
                        KeyPurposeId.id_kp_serverAuth,
                        Duration.ofDays(1)));
        trustTheApiServer();
        server.admin()
                .post("/api/v1/namespaces", """
                {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "%s"}}""".formatted(ApiServer.NAMESPACE))
                .expectSuccess();
        // No kube-proxy serves cluster IPs here.
        server.admin()
                .post("/api/v1/namespaces/" + ApiServer.NAMESPACE + "/services", """
                {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "%s"},
                 "spec": {"type": "ExternalName", "externalName": "localhost"}}""".formatted(SERVICE))
                .expectSuccess();
        server.admin()
                .post("/apis/apiregistration.k8s.io/v1/apiservices", """
                {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
                 "metadata": {"name": "v1alpha1.gpu.aliquot.io"},
                 "spec": {"group": "gpu.aliquot.io", "version": "v1alpha1", "groupPriorityMinimum": 100,
                  "versionPriority": 10, "caBundle": "%s",
                  "service": {"name": "%s", "namespace": "%s", "port": %d}}}""".formatted(
                                Base64.getEncoder().encodeToString(ca.pem().getBytes(StandardCharsets.US_ASCII)),
                                SERVICE,
                                ApiServer.NAMESPACE,
                                RandomPorts.webhooks(replica)))
                .expectSuccess();
    }

    @AfterAll
    static void stop() {
        if (replica != null) {
            replica.close();
        }
        if (server != null) {
            server.close();
        }
    }

    /** Reads what the API server itself publishes. */
    private static void trustTheApiServer() throws Exception {
        Response map = new Response(404, "");
        for (int i = 0; i < 100 && map.code() != 200; i++) {
            map = server.admin().get("/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication");
            TimeUnit.MILLISECONDS.sleep(100);
        }
        var data = new LinkedHashMap<String, String>();
        JsonNode found =
                JsonMapper.shared().readTree(map.expectSuccess().body()).get("data");
        found.propertyStream()
                .forEach(entry -> data.put(entry.getKey(), entry.getValue().asString()));
        replica.getBean(FakeControlPlane.class).authentication = data;
        replica.getBean(FrontProxyKeeper.class).read();
    }

    @Test
    void theApiServerForwardsRequestsWithTheirUsers() throws Exception {
        Response answer = await("/apis/gpu.aliquot.io/v1alpha1/gpunodes");

        assertThat(answer.field("name")).isEqualTo("admin");
        assertThat(answer.field("groups")).contains("system:masters");
        Response patched =
                server.admin().patch("/apis/gpu.aliquot.io/v1alpha1/namespaces/team/gpushares/train", "{\"refuse\":1}");
        assertThat(patched.code()).isEqualTo(409);
        assertThat(patched.field("message")).isEqualTo("GPU-1 has 10 MiB free");
    }

    @Test
    void theApiServerFindsTheGroupAvailableAndListsItsResources() throws Exception {
        var unused = await("/apis/gpu.aliquot.io/v1alpha1/gpunodes");

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
        var unused = await("/apis/gpu.aliquot.io/v1alpha1/gpunodes");
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

    private static Response await(String path) throws Exception {
        Response answer = server.admin().get(path);
        for (int i = 0; i < 300 && answer.code() != 200; i++) {
            TimeUnit.MILLISECONDS.sleep(100);
            answer = server.admin().get(path);
        }
        return answer.expectSuccess();
    }
}
