package io.aliquot.deviceplugin;

import io.aliquot.api.format.JsonFields;
import io.aliquot.api.names.Annotations;
import io.aliquot.api.names.Resources;
import io.aliquot.api.tls.PinnedTrust;
import io.aliquot.api.tls.TlsContext;
import io.aliquot.api.usage.UsageReport;
import io.aliquot.deviceplugin.kubelet.TestKubelet;
import io.aliquot.deviceplugin.kubelet.TestPodResources;
import io.aliquot.deviceplugin.node.OneNodeApiServer;
import io.aliquot.deviceplugin.report.AgentCertificate;
import io.aliquot.deviceplugin.v1beta1.ContainerAllocateResponse;
import io.aliquot.deviceplugin.v1beta1.Mount;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.time.Duration;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.node.ObjectNode;

/**
 * What a node agent talks to, for the acceptance kit (docs/acceptance.md): a kubelet, an API server with one Node, and a
 * scheduler. Reads requests, a line of JSON each, and answers each by one line:
 *
 * <ul>
 *   <li>{@code {"do": "node"}}: the Node
 *   <li>{@code {"do": "registration"}}: waits for a registration with the kubelet; the resource
 *   <li>{@code {"do": "allocate", "pod": ..., "slot": ...}}: Allocate's answer for a container {@code main} of the pod in the
 *       namespace {@code kit}, which PodResources lists from then on
 *   <li>{@code {"do": "end", "pod": ...}}: PodResources no longer lists it
 *   <li>{@code {"do": "report", "allocation": ...}}: the agent's report, to a request that says what is allocated
 * </ul>
 *
 * <p>An answer with {@code "error"} says why there is none.
 */
public final class StandIns implements AutoCloseable {
    private static final String NAMESPACE = "kit";
    private static final Duration TIMEOUT = Duration.ofSeconds(20);

    private final TestKubelet kubelet;
    private final TestPodResources podResources;
    private final OneNodeApiServer apiServer;
    private final HttpClient scheduler;
    private final URI report;

    StandIns(Path kubeletRoot, String node, int reportPort) throws IOException, GeneralSecurityException {
        kubelet = new TestKubelet(kubeletRoot.resolve("device-plugins"));
        podResources = new TestPodResources(kubeletRoot.resolve("pod-resources"));
        apiServer = new OneNodeApiServer(node);
        AgentCertificate own = AgentCertificate.create(); // such a one is good enough for a client
        apiServer.annotate(Annotations.AGENT_CLIENTS, own.digest());
        scheduler = HttpClient.newBuilder()
                .connectTimeout(TIMEOUT)
                .sslContext(TlsContext.of(
                        TlsContext.presenting(own.key(), own.certificate()), new PinnedTrust(certificate -> {})))
                .build();
        report = URI.create("https://127.0.0.1:" + reportPort + UsageReport.PATH + "?" + UsageReport.WITH_PODS);
    }

    /** The port of the API server. */
    int apiServer() {
        return apiServer.port();
    }

    /**
     * Prints the port of the API server, and then the answers, until the input ends.
     *
     * @param args the kubelet's folder, which has {@code device-plugins} and {@code pod-resources}; the Node's name; the port
     *     at which the agent will report
     */
    public static void main(String[] args) throws Exception {
        AgentLog.open();
        try (var standIns = new StandIns(Path.of(args[0]), args[1], Integer.parseInt(args[2]));
                var requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8))) {
            System.out.println(JsonFields.JSON.createObjectNode().put("apiServer", standIns.apiServer()));
            for (String line = requests.readLine(); line != null; line = requests.readLine()) {
                System.out.println(standIns.answer(JsonFields.JSON.readTree(line)));
            }
        }
        System.exit(0); // the HTTP client has threads
    }

    /** Answers one request. */
    JsonNode answer(JsonNode request) throws InterruptedException {
        ObjectNode answer = JsonFields.JSON.createObjectNode();
        try {
            return switch (JsonFields.text(request, "do")) {
                case "node" -> apiServer.node();
                case "registration" ->
                    answer.put("resource", kubelet.nextRegistration().getResourceName());
                case "allocate" -> allocate(JsonFields.text(request, "pod"), JsonFields.text(request, "slot"));
                case "end" -> {
                    podResources.end(NAMESPACE, JsonFields.text(request, "pod"));
                    yield answer;
                }
                case "report" -> report(JsonFields.field(request, "allocation"));
                default -> answer.put("error", "unknown request: " + request);
            };
        } catch (IOException | RuntimeException | AssertionError e) {
            return answer.put("error", e.toString());
        }
    }

    private JsonNode allocate(String pod, String slot) {
        ContainerAllocateResponse allocated = kubelet.allocate(slot).getContainerResponses(0);
        podResources.run(NAMESPACE, pod, Resources.VGPU, slot);
        ObjectNode mounts = JsonFields.JSON.createObjectNode();
        for (Mount mount : allocated.getMountsList()) {
            mounts.put(mount.getContainerPath(), mount.getHostPath());
        }
        return JsonFields.JSON.createObjectNode().set("mounts", mounts);
    }

    private JsonNode report(JsonNode allocation) throws IOException, InterruptedException {
        HttpRequest request = HttpRequest.newBuilder(report)
                .timeout(TIMEOUT)
                .method("GET", HttpRequest.BodyPublishers.ofString(allocation.toString()))
                .build();
        HttpResponse<String> response = scheduler.send(request, BodyHandlers.ofString());
        return JsonFields.JSON.readTree(response.body());
    }

    @Override
    public void close() {
        apiServer.close();
        kubelet.close();
        podResources.close();
    }
}
