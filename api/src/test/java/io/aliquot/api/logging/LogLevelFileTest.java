package io.aliquot.api.logging;

import static org.assertj.core.api.Assertions.assertThat;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class LogLevelFileTest {
    private final List<LogLevel> changes = new ArrayList<>();
    private final List<String> problems = new ArrayList<>();
    private final Path file;
    private final LogLevelFile level;

    LogLevelFileTest(@TempDir Path folder) {
        file = folder.resolve("level");
        level = new LogLevelFile(file, changes::add, problems::add);
    }

    @Test
    void aLevelIsAppliedWhenItDiffersFromThePresentOne() throws IOException {
        read("info");
        assertThat(changes).isEmpty();

        read("debug\n");
        read("debug");
        read("error");
        read("info");

        assertThat(changes).containsExactly(LogLevel.DEBUG, LogLevel.ERROR, LogLevel.INFO);
        assertThat(problems).isEmpty();
    }

    @Test
    void anyOtherContentChangesNothingAndIsReportedOnceWithWhatToWrite() throws IOException {
        read("debug");
        changes.clear();

        read("DEBUG");
        read("DEBUG");
        read("x".repeat(1_000_000));
        read("debug");
        read("DEBUG");

        String wrong = "the log level in ConfigMap aliquot-logging: \"DEBUG\" is unknown;"
                + " allowed: error, warn, info, debug; the level stays debug";
        assertThat(changes).isEmpty();
        assertThat(problems).hasSize(3).startsWith(wrong).endsWith(wrong);
        assertThat(problems.get(1)).hasSizeLessThan(250);
    }

    @Test
    void theLevelStaysWhileThereIsNoFile() throws IOException {
        level.read();
        read("warn");
        Files.delete(file);
        level.read();

        assertThat(changes).containsExactly(LogLevel.WARN);
        assertThat(problems).isEmpty();
    }

    @Test
    void aFileThatCannotBeReadIsReported() throws IOException {
        Files.createDirectory(file);

        level.read();
        level.read();

        assertThat(changes).isEmpty();
        assertThat(problems).singleElement().asString().contains("the level stays info");
    }

    private void read(String content) throws IOException {
        Files.writeString(file, content);
        level.read();
    }
}
