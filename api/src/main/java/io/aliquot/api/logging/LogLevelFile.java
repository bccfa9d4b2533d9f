package io.aliquot.api.logging;

import io.aliquot.api.format.FormatException;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.function.Consumer;

/**
 * The process's log level, which an administrator changes while the process runs: a file with one word, which is a key of
 * the mounted ConfigMap {@code aliquot-logging}. The kubelet updates the file within about a minute of the ConfigMap.
 * Without the file the level stays as it is.
 *
 * <p>Not thread-safe.
 */
public final class LogLevelFile {
    /** Where the chart mounts the file, in each program's container. */
    public static final Path MOUNTED = Path.of("/etc/aliquot-logging/level");

    /** Between two reads. */
    public static final Duration PERIOD = Duration.ofSeconds(10);

    /** Of the file, in bytes: more than the longest word, with some blanks. */
    private static final int READ = 64;

    private final Path file;
    private final Consumer<LogLevel> change;
    private final Consumer<String> problem;
    private LogLevel level = LogLevel.INFO;
    private String reported = "";

    /**
     * For a process that logs at {@link LogLevel#INFO} until the file says otherwise.
     *
     * @param change makes the process log at another level
     * @param problem logs what is wrong with the file, and what to write instead
     */
    public LogLevelFile(Path file, Consumer<LogLevel> change, Consumer<String> problem) {
        this.file = file;
        this.change = change;
        this.problem = problem;
    }

    /** Reads the file and applies its level. A content that is no level changes nothing, and is reported once. */
    public void read() {
        try (InputStream content = Files.newInputStream(file)) {
            String text = new String(content.readNBytes(READ), StandardCharsets.UTF_8).strip();
            apply(LogLevel.parse("the log level in ConfigMap aliquot-logging", text));
            reported = "";
        } catch (NoSuchFileException e) {
            // not mounted, or the ConfigMap is gone
        } catch (IOException e) {
            report(e.toString());
        } catch (FormatException e) {
            report(String.valueOf(e.getMessage()));
        }
    }

    private void apply(LogLevel wanted) {
        if (wanted != level) {
            level = wanted;
            change.accept(wanted);
        }
    }

    private void report(String what) {
        if (!what.equals(reported)) {
            reported = what;
            problem.accept(what + "; the level stays " + level.print());
        }
    }
}
