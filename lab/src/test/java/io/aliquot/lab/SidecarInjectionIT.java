package io.aliquot.lab;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.assertj.core.api.Assertions.assertThat;

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpsConfigurator;
import com.sun.net.httpserver.HttpsServer;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.api.model.admissionregistration.v1.MutatingWebhookConfiguration;
import io.fabric8.kubernetes.api.model.admissionregistration.v1.MutatingWebhookConfigurationBuilder;
import java.io.IOException;
import java.io.InputStream;
import java.net.InetSocketAddress;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.api.io.TempDir;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.json.JsonMapper;
import tools.jackson.databind.node.ObjectNode;

/** Another webhook, called after Aliquot's, adds a sidecar before the container that requests a GPU. */
@ExtendWith(LabExtension.class)
class SidecarInjectionIT {
    private static final JsonMapper JSON = new JsonMapper();
    private static final String PASSWORD = "not-secret";

    @Test
    void aSidecarInjectedAfterAliquotsWebhookSeesNoGpuAndTheGpuContainerKeepsIts(
            Lab lab, TestNamespace namespace, @TempDir Path folder) throws IOException, GeneralSecurityException {
        String address = URI.create(lab.setting("API_SERVER")).getHost();
        Path store = folder.resolve("keys.p12");
        keytool("-genkeypair", "-keyalg", "EC", "-dname", "CN=injector", "-ext", "san=ip:" + address, store);
        byte[] certificate = keytool("-exportcert", "-rfc", store).getBytes(UTF_8);

        HttpsServer injector = serve(address, store, lab.sampleImage());
        MutatingWebhookConfiguration webhook = configuration(
                namespace, "https://" + address + ":" + injector.getAddress().getPort() + "/", certificate);
        try {
            lab.client().resource(webhook).create();
            // The API server calls a new webhook only a moment after it has stored it.
            TestNamespace.awaitTrue("a sidecar in every pod", TestNamespace.EVENTUALLY, () -> {
                Pod pod = namespace.create(Pods.withGpuMemory(lab, "meshed", 3000));
                boolean injected = pod.getSpec().getContainers().size() == 2;
                if (!injected) {
                    namespace.delete("meshed");
                }
                return injected;
            });

            Pod pod = namespace.awaitRunning("meshed", TestNamespace.EVENTUALLY);

            assertThat(pod.getSpec().getContainers())
                    .extracting(container -> container.getName())
                    .containsExactly("sidecar", Pods.MAIN);
            assertThat(namespace
                            .execIn("meshed", "sidecar", "printenv", "NVIDIA_VISIBLE_DEVICES")
                            .expectSuccess())
                    .isEqualTo("void\n");
            assertThat(namespace.exec("meshed", "nvidia-smi").expectSuccess()).contains("0MiB / 3000MiB");
        } finally {
            lab.client().resource(webhook).delete();
            injector.stop(0);
        }
    }

    private static MutatingWebhookConfiguration configuration(TestNamespace namespace, String url, byte[] certificate) {
        return new MutatingWebhookConfigurationBuilder()
                .withNewMetadata()
                .withName("zz-" + namespace.name()) // webhooks are called in the order of their configurations' names
                .endMetadata()
                .addNewWebhook()
                .withName("injector.example.com")
                .withAdmissionReviewVersions("v1")
                .withSideEffects("None")
                .withFailurePolicy("Ignore")
                .withTimeoutSeconds(5)
                .withNewNamespaceSelector()
                .addToMatchLabels("kubernetes.io/metadata.name", namespace.name())
                .endNamespaceSelector()
                .withNewClientConfig()
                .withUrl(url)
                .withCaBundle(Base64.getEncoder().encodeToString(certificate))
                .endClientConfig()
                .addNewRule()
                .withApiGroups("")
                .withApiVersions("v1")
                .withOperations("CREATE")
                .withResources("pods")
                .endRule()
                .endWebhook()
                .build();
    }

    private static HttpsServer serve(String address, Path store, String image)
            throws IOException, GeneralSecurityException {
        KeyStore keys = KeyStore.getInstance("PKCS12");
        try (InputStream in = Files.newInputStream(store)) {
            keys.load(in, PASSWORD.toCharArray());
        }
        KeyManagerFactory managers = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
        managers.init(keys, PASSWORD.toCharArray());
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(managers.getKeyManagers(), null, null);
        HttpsServer server = HttpsServer.create(new InetSocketAddress(address, 0), 0);
        server.setHttpsConfigurator(new HttpsConfigurator(context));
        server.createContext("/", exchange -> inject(exchange, image));
        server.start();
        return server;
    }

    private static void inject(HttpExchange exchange, String image) throws IOException {
        try (exchange) {
            JsonNode review = JSON.readTree(exchange.getRequestBody());
            String patch = """
                    [{"op": "add", "path": "/spec/containers/0", "value": {"name": "sidecar", "image": "%s",
                      "imagePullPolicy": "Never", "command": ["bash", "-c", "%s"],
                      "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}}]
                    """.formatted(image, Pods.SLEEP.getLast());
            ObjectNode answer = JSON.createObjectNode()
                    .put("apiVersion", "admission.k8s.io/v1")
                    .put("kind", "AdmissionReview");
            answer.putObject("response")
                    .put("uid", review.path("request").path("uid").asString(""))
                    .put("allowed", true)
                    .put("patchType", "JSONPatch")
                    .put("patch", Base64.getEncoder().encodeToString(patch.getBytes(UTF_8)));
            byte[] body = JSON.writeValueAsBytes(answer);
            exchange.getResponseHeaders().add("Content-Type", "application/json");
            exchange.sendResponseHeaders(200, body.length);
            exchange.getResponseBody().write(body);
        }
    }

    private static String keytool(Object... arguments) {
        var command = new ArrayList<String>();
        command.add(Path.of(System.getProperty("java.home"), "bin", "keytool").toString());
        for (Object argument : arguments) {
            if (argument instanceof Path store) {
                command.addAll(List.of("-keystore", store.toString()));
            } else {
                command.add(argument.toString());
            }
        }
        command.addAll(List.of("-alias", "injector", "-storetype", "PKCS12", "-storepass", PASSWORD));
        return Lab.execute(Duration.ofSeconds(30), command).expectSuccess();
    }
}
