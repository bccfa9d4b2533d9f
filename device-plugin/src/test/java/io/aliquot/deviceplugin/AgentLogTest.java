package io.aliquot.deviceplugin;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.logging.LogLevelFile;
import java.lang.System.Logger.Level;
import java.nio.file.Files;
import java.nio.file.Path;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

final class AgentLogTest {
    @Test
    void theFileSetsTheLevelOfAliquotsCodeAndOfNoLibrary(@TempDir Path folder) throws Exception {
        Path file = folder.resolve("level");
        LogLevelFile level = AgentLog.level(file);
        System.Logger ours = System.getLogger("io.aliquot.deviceplugin.Any");
        System.Logger librarys = System.getLogger("io.grpc.Any");

        Files.writeString(file, "debug");
        level.read();
        assertThat(ours.isLoggable(Level.DEBUG)).isTrue();
        assertThat(librarys.isLoggable(Level.DEBUG)).isFalse();

        Files.writeString(file, "error");
        level.read();
        assertThat(ours.isLoggable(Level.ERROR)).isTrue();
        assertThat(ours.isLoggable(Level.WARNING)).isFalse();
        assertThat(librarys.isLoggable(Level.WARNING)).isTrue();

        Files.writeString(file, "info");
        level.read();
        assertThat(ours.isLoggable(Level.INFO)).isTrue();
        assertThat(ours.isLoggable(Level.DEBUG)).isFalse();
    }
}
