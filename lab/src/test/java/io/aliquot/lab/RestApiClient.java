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

/** The scheduler's REST API as somebody with a token and curl finds it, at the replica that leads. */
final class RestApiClient {
    private static final String HOST = "aliquot-api." + Lab.NAMESPACE + ".svc";
    private static final ObjectMapper JSON = new ObjectMapper();

    private final String address;
    private final Path authority;
    private final String token;

    record Answer(int code, JsonNode body) {}

    private RestApiClient(String address, Path authority, String token) {
        this.address = address;
        this.authority = authority;
        this.token = token;
    }

    static RestApiClient as(Lab lab, String token) {
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

    Answer get(String path) {
        return ask(path);
    }

    /** Changes one share of a pod. */
    Answer patchShares(TestNamespace space, String pod, String share) {
        return ask(
                "/pods/" + space.name() + "/" + pod + "/shares",
                "--request",
                "PATCH",
                "--header",
                "Content-Type: application/json",
                "--data",
                "{\"shares\": [" + share + "]}");
    }

    private Answer ask(String path, String... more) {
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
            return new Answer(Integer.parseInt(out.substring(end + 1)), JSON.readTree(out.substring(0, end)));
        } catch (IOException e) {
            throw new UncheckedIOException("no JSON: " + out, e);
        }
    }
}
