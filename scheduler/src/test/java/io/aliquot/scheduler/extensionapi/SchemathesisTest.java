package io.aliquot.scheduler.extensionapi;

import static org.assertj.core.api.Assertions.assertThat;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.aliquot.scheduler.extensionapi.Authority.Identity;
import io.aliquot.scheduler.extensionapi.ExtensionApiProgram.FakeControlPlane;
import io.aliquot.scheduler.extensionapi.ObjectsProgram.Changes;
import io.aliquot.scheduler.extensionapi.identity.FrontProxyKeeper;
import io.aliquot.scheduler.extensionapi.objects.GpuNodes;
import io.aliquot.scheduler.placement.Gpus;
import io.aliquot.scheduler.server.ports.RandomPorts;
import java.io.File;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import org.bouncycastle.asn1.x509.KeyPurposeId;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.springframework.boot.SpringBootConfiguration;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.annotation.Import;

/**
 * Schemathesis generates requests from the description of the group and checks the responses against it, with the front
 * proxy's certificate over TLS. The test is skipped if the program is not on the PATH. {@code ./aliquot test} installs
 * it; by hand: {@code pip install -r lab/schemathesis.txt}. {@code -Dschemathesis.examples} sets the number of requests
 * for each operation and check.
 */
class SchemathesisTest {
    private static final String PROGRAM = "schemathesis";

    /*
     * WatchHttpTest covers watches, which do not end. Two checks are excluded: the API ignores unknown parameters, as the
     * API server does, so it accepts what the schema forbids; and it refuses combinations of parameters, and selectors,
     * that a schema cannot exclude. 504 is the answer for a version that the replica has not seen yet, 503 the one to a
     * second resize, because the simulated API server does not report the outcome of the first one.
     */
    private static final String CONFIGURATION = """
            [parameters]
            "query.watch" = "false"
            "path.namespace" = { dictionary = "namespaces", probability = 0.9 }
            "path.name" = { dictionary = "names", probability = 0.8 }

            [dictionaries.namespaces]
            values = ["team", "other"]

            [dictionaries.names]
            values = ["n1", "p1-2", "p1-4", "p2-2", "big", "GPU"]

            [checks.not_a_server_error]
            expected-statuses = ["2xx", "4xx", 503, 504]
            """;

    /** A replica with everything that answers requests to the aggregated API. */
    @SpringBootConfiguration(proxyBeanMethods = false)
    @Import({ExtensionApiProgram.Port.class, ObjectsProgram.Objects.class})
    static class Replica {}

    @Test
    void everyGeneratedRequestIsAnsweredAsDescribed(@TempDir Path folder) throws Exception {
        assumeTrue(program().isPresent(), PROGRAM + " is not on the PATH");
        var frontProxyCa = new Authority("front-proxy-ca");
        var serverCa = new Authority("aliquot");
        Identity frontProxy = frontProxyCa.client("front-proxy-client");
        try (ConfigurableApplicationContext replica = ExtensionApiProgram.start(Replica.class)) {
            ExtensionApiProgram.serve(
                    replica, serverCa.issue("localhost", KeyPurposeId.id_kp_serverAuth, Duration.ofDays(1)));
            replica.getBean(FakeControlPlane.class).authentication =
                    FakeControlPlane.of(frontProxyCa.pem(), "[\"front-proxy-client\"]", serverCa.pem());
            replica.getBean(FrontProxyKeeper.class).read();
            Changes changes = replica.getBean(Changes.class);
            changes.fill();
            changes.pending("big", Gpus.request("APP:main: gpumem=12000"), "0/3 nodes are available");
            Files.writeString(
                    folder.resolve("schemathesis.toml"),
                    CONFIGURATION.replace("\"GPU\"", '"' + GpuNodes.name(Gpus.uuid(1, 0)) + '"'));
            Path log = folder.resolve("log");
            Process process = new ProcessBuilder(
                            program().get().toString(),
                            "run",
                            "https://localhost:" + RandomPorts.webhooks(replica)
                                    + "/openapi/v3/apis/gpu.aliquot.io/v1alpha1",
                            "--tls-verify=" + Authority.write(folder, "ca.crt", serverCa.certificate),
                            "--request-cert=" + Authority.write(folder, "client.crt", frontProxy.certificate()),
                            "--request-cert-key=" + Authority.write(folder, "client.key", frontProxy.key()),
                            "--header=X-Remote-User: admin",
                            "--exclude-checks=negative_data_rejection,positive_data_acceptance",
                            "--max-examples=" + Integer.getInteger("schemathesis.examples", 5))
                    .directory(folder.toFile())
                    .redirectErrorStream(true)
                    .redirectOutput(log.toFile())
                    .start();
            boolean ended = process.waitFor(10, TimeUnit.MINUTES);
            process.destroyForcibly();
            String output = Files.readString(log, StandardCharsets.UTF_8);
            assertThat(ended).as(output).isTrue();
            assertThat(process.exitValue()).as(output).isZero();
        }
    }

    private static Optional<Path> program() {
        return Arrays.stream(System.getenv().getOrDefault("PATH", "").split(File.pathSeparator, -1))
                .map(folder -> Path.of(folder, PROGRAM))
                .filter(Files::isExecutable)
                .findFirst();
    }
}
