package io.aliquot.scheduler.doctor;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.scheduler.apiserver.client.ApiServerClient;
import io.aliquot.testing.ApiServer;
import io.fabric8.kubernetes.client.Config;
import io.fabric8.kubernetes.client.ConfigBuilder;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.concurrent.atomic.AtomicLong;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Where no API server answers. */
class BundleTest {
    private final AtomicLong nanoTime = new AtomicLong();

    @TempDir
    @SuppressWarnings("NullAway.Init")
    Path folder;

    @Test
    void whatDoesNotFitIsNamed() throws Exception {
        try (Bundle bundle = bundle()) {
            // Few characters, which the redaction reads one by one, and many bytes
            bundle.addFindings("€".repeat(Bundle.MAX_BYTES / 3 + 1), "{\"findings\":[]}");
            bundle.complete();
        }

        TarGzTest.extract(folder.resolve("a.tar.gz"), folder);
        assertThat(folder.resolve("aliquot-bundle/findings.json")).exists();
        assertThat(folder.resolve("aliquot-bundle/findings.txt")).doesNotExist();
        assertThat(folder.resolve("aliquot-bundle/errors.txt"))
                .content()
                .isEqualTo(
                        "findings.txt: left out, because the archive has 0 of 64 MiB and this file 67108867 bytes\n");
    }

    @Test
    void afterFiveMinutesNothingIsReadAnyMore() throws Exception {
        try (Bundle bundle = bundle()) {
            bundle.addError("findings.json", "Connection refused");
            bundle.addError("findings.json", "token=PLANTED\nand more");
            nanoTime.set(Duration.ofMinutes(6).toNanos());
            bundle.addCluster();
            bundle.complete();
        }

        TarGzTest.extract(folder.resolve("a.tar.gz"), folder);
        assertThat(folder.resolve("aliquot-bundle/errors.txt"))
                .content()
                .startsWith("findings.json: Connection refused\nfindings.json: token=(redacted) and more\n")
                .contains("nodes.jsonl: left out, because the others took 5 minutes");
    }

    @Test
    void anInterruptedBundleLeavesNoFile() throws Exception {
        Files.writeString(folder.resolve("a.tar.gz"), "of yesterday");
        try (Bundle bundle = bundle()) {
            bundle.addFindings("", "{}");
        }

        try (var files = Files.list(folder)) {
            assertThat(files).containsExactly(folder.resolve("a.tar.gz"));
        }
        assertThat(folder.resolve("a.tar.gz")).content().isEqualTo("of yesterday");
    }

    private Bundle bundle() throws IOException {
        Config unreachable = new ConfigBuilder(Config.empty())
                .withMasterUrl("https://127.0.0.1:" + ApiServer.freePort())
                .build();
        return new Bundle(
                folder.resolve("a.tar.gz"),
                new ApiServerClient(unreachable),
                Instant.EPOCH,
                nanoTime::get,
                new PrintStream(new ByteArrayOutputStream(), true, UTF_8));
    }
}
