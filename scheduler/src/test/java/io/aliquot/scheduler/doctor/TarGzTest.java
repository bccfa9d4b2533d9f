package io.aliquot.scheduler.doctor;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.io.OutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Instant;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class TarGzTest {
    private static final Instant TIME = Instant.parse("2026-11-29T12:00:00Z");

    /** Extracts with tar into a folder. */
    static void extract(Path archive, Path into) throws Exception {
        Files.createDirectories(into);
        Process tar = new ProcessBuilder("tar", "-xzf", archive.toString(), "-C", into.toString())
                .redirectErrorStream(true)
                .start();
        String output = new String(tar.getInputStream().readAllBytes(), UTF_8);
        assertThat(tar.waitFor()).as(output).isZero();
        assertThat(output).isEmpty();
    }

    @Test
    void tarExtractsWhatWasAdded(@TempDir Path folder) throws Exception {
        Path file = folder.resolve("a.tar.gz");
        byte[] blocks = new byte[1024];
        String longFolder = "logs/" + "p".repeat(63) + "/" + "q".repeat(80);
        try (OutputStream out = Files.newOutputStream(file);
                var archive = new TarGz(out, TIME)) {
            archive.add("top", "empty", new byte[0]);
            archive.add("top", "blocks", blocks);
            archive.add(
                    longFolder,
                    "é.log",
                    "one more byte than a block: ".repeat(19).getBytes(UTF_8));
            assertThat(archive.size()).isEqualTo(1024 + 532);
            assertThatThrownBy(() -> archive.add("top", "n".repeat(101), blocks))
                    .hasMessageContaining("expected at most 100 bytes, found nnn");
        }

        extract(file, folder.resolve("extracted"));

        assertThat(folder.resolve("extracted/top/empty")).isEmptyFile();
        assertThat(folder.resolve("extracted/top/blocks")).hasBinaryContent(blocks);
        Path log = folder.resolve("extracted").resolve(longFolder).resolve("é.log");
        assertThat(log).content().startsWith("one more").hasSize(532);
        assertThat(Files.getLastModifiedTime(log).toInstant()).isEqualTo(TIME);
    }
}
