package io.aliquot.scheduler.extensionapi;

import io.aliquot.scheduler.extensionapi.Authority.Identity;
import io.aliquot.scheduler.extensionapi.ExtensionApiProgram.FakeControlPlane;
import io.aliquot.scheduler.extensionapi.identity.FrontProxyKeeper;
import io.aliquot.scheduler.server.ports.RandomPorts;
import io.aliquot.testing.ApiServer;
import io.aliquot.testing.ApiServer.Response;
import io.aliquot.testing.Await;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Base64;
import java.util.LinkedHashMap;
import org.bouncycastle.asn1.x509.KeyPurposeId;
import org.springframework.context.ConfigurableApplicationContext;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.json.JsonMapper;

/** A real API server whose aggregation layer forwards the API group to a replica. */
final class Aggregation implements AutoCloseable {
    private static final String SERVICE = "aliquot-extension-api";

    final ApiServer server;
    private final ConfigurableApplicationContext replica;

    Aggregation(Path folder, ConfigurableApplicationContext replica) throws Exception {
        this.replica = replica;
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

    /** Reads what the API server itself publishes. */
    private void trustTheApiServer() throws Exception {
        Response map = await("/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication");
        var data = new LinkedHashMap<String, String>();
        JsonNode found = JsonMapper.shared().readTree(map.body()).get("data");
        found.propertyStream()
                .forEach(entry -> data.put(entry.getKey(), entry.getValue().asString()));
        replica.getBean(FakeControlPlane.class).authentication = data;
        replica.getBean(FrontProxyKeeper.class).read();
    }

    /** Repeats a request until it succeeds. */
    Response await(String path) {
        Await.await(path, () -> server.admin().get(path).code() == 200);
        return server.admin().get(path).expectSuccess();
    }

    @Override
    public void close() {
        server.close();
    }
}
