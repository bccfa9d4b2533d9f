package io.aliquot.scheduler.inspection;

import static org.assertj.core.api.Assertions.assertThat;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.aliquot.scheduler.inspection.ApiTestProgram.Cluster;
import io.aliquot.scheduler.inspection.PodLookup.ParsedRequest;
import io.aliquot.scheduler.ledger.PodId;
import io.aliquot.scheduler.placement.Gpus;
import io.aliquot.scheduler.server.RandomPorts;
import java.io.File;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.springframework.context.ConfigurableApplicationContext;

/**
 * Schemathesis generates requests from {@code openapi.json} and checks the responses against it. The test is skipped if
 * the program is not on the PATH. {@code ./aliquot test} installs it; by hand:
 * {@code pip install -r lab/schemathesis.txt}.
 */
class SchemathesisTest {
    private static final String PROGRAM = "schemathesis";

    @Test
    void everyGeneratedRequestIsAnsweredAsDescribed(@TempDir Path folder) throws Exception {
        assumeTrue(program().isPresent(), PROGRAM + " is not on the PATH");
        try (ConfigurableApplicationContext context = ApiTestProgram.start()) {
            context.getBean(Cluster.class)
                    .pods
                    .put(
                            "team/big",
                            new PodLookup.Pod(
                                    new PodId("team", "big", "uid-big"),
                                    "",
                                    false,
                                    "aliquot-scheduler",
                                    new ParsedRequest.Valid(Gpus.request("APP:main: gpumem=12000")),
                                    5,
                                    true,
                                    ""));
            Path log = folder.resolve("log");
            Process process = new ProcessBuilder(
                            program().get().toString(),
                            "run",
                            "https://localhost:" + RandomPorts.api(context) + "/api/v1/openapi.json",
                            "--tls-verify=false",
                            "--header=Authorization: Bearer admin",
                            "--checks=all",
                            "--max-examples=" + Integer.getInteger("schemathesis.examples", 20),
                            "--no-color")
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
