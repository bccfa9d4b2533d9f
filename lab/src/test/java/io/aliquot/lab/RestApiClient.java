package io.aliquot.lab;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.List;

/** Calls the leader's REST API with curl and a bearer token, as a user does. */
final class RestApiClient {
    private static final String HOST = "aliquot-api." + Lab.NAMESPACE + ".svc";
    private static final ObjectMapper JSON = new ObjectMapper();

    private final String address;
    private final Path authority;
    private final String token;

    record Response(int code, JsonNode body) {}

    private RestApiClient(String address, Path authority, String token) {
        this.address = address;
        this.authority = authority;
        this.token = token;
    }

    static RestApiClient withToken(Lab lab, String token) {
        var replicas = new SchedulerReplicas(lab);
        replicas.awaitReady(Duration.ofMinutes(4)); // an earlier test may have killed one
        String bundle = lab.client()
                .admissionRegistration()
                .v1()
                .mutatingWebhookConfigurations()
                .withName("aliquot")
                .get()
                .getWebhooks()
                .get(0)
                .getClientConfig()
                .getCaBundle();
        try {
            Path authority = Files.createTempFile("aliquot-api", ".crt");
            authority.toFile().deleteOnExit();
            Files.write(authority, Base64.getDecoder().decode(bundle));
            return new RestApiClient(replicas.get(replicas.leader()).getStatus().getPodIP(), authority, token);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    Response get(String path) {
        return send(path);
    }

    /** Resizes one container's share of a pod. */
    Response patchShares(TestNamespace namespace, String pod, String share) {
        return send(
                "/pods/" + namespace.name() + "/" + pod + "/shares",
                "--request",
                "PATCH",
                "--header",
                "Content-Type: application/json",
                "--data",
                "{\"shares\": [" + share + "]}");
    }

    private Response send(String path, String... more) {
        var command = new ArrayList<>(List.of(
                "curl",
                "--silent",
                "--show-error",
                "--cacert",
                authority.toString(),
                "--connect-to",
                HOST + ":443:" + address + ":8443",
                "--header",
                "Authorization: Bearer " + token,
                "--write-out",
                "\n%{http_code}",
                "https://" + HOST + "/api/v1" + path));
        command.addAll(Arrays.asList(more));
        String out = Lab.execute(Duration.ofSeconds(30), command).expectSuccess();
        int end = out.lastIndexOf('\n');
        try {
            return new Response(Integer.parseInt(out.substring(end + 1)), JSON.readTree(out.substring(0, end)));
        } catch (IOException e) {
            throw new UncheckedIOException("expected JSON, found " + out, e);
        }
    }
}
