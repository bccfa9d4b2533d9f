package io.aliquot.deviceplugin.arbiter;

import io.aliquot.deviceplugin.metrics.AgentMetrics;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.time.Duration;
import java.util.concurrent.atomic.AtomicLong;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** Programs that end, hang, or are missing; NodeAgentTest runs the real one. */
@Timeout(30)
final class ArbiterProcessTest {
    private final AgentMetrics metrics = new AgentMetrics();
    private final AtomicLong skipped = new AtomicLong();
    private final Path folder;
    private final Path lists;
    private @Nullable ArbiterProcess arbiter;

    ArbiterProcessTest(@TempDir Path folder) {
        this.folder = folder;
        lists = folder.resolve("lists");
    }

    @AfterEach
    void close() {
        if (arbiter != null) {
            arbiter.close();
        }
    }

    @Test
    void theProgramGetsItsFoldersAndEachListAndEndsWithItsInput() throws Exception {
        ArbiterProcess running = start("echo \"$1 $2\"; cat; echo end");
        running.tell("slot-1 GPU 30 elastic normal -\n");
        await("regions agent\nslot-1 GPU 30 elastic normal -\n.\n");
        running.tell("");
        await("regions agent\nslot-1 GPU 30 elastic normal -\n.\n.\n");

        running.close();

        await("regions agent\nslot-1 GPU 30 elastic normal -\n.\n.\nend\n");
    }

    @Test
    void aProgramThatEndsIsStartedAgainWithTheLatestList() throws Exception {
        start("read line; echo \"$line\"; test -e once || { touch once; exit 3; }; cat")
                .tell("first\n");

        await("first\nfirst\n.\n");
    }

    @Test
    void aProgramThatDoesNotReadItsInputIsEnded() throws Exception {
        ArbiterProcess running = start("test -e once && exec cat; touch once; exec sleep 1000");
        String large = "x".repeat(200_000) + "\n"; // more than a pipe holds
        while (!Files.readString(lists).endsWith(".\n")) {
            running.tell(large);
            skipped.addAndGet(Duration.ofMillis(100).toNanos());
            Thread.sleep(5);
        }
    }

    @Test
    void aProgramThatIsMissingIsTriedAgain() throws Exception {
        arbiter =
                new ArbiterProcess(folder.resolve("program"), Path.of("regions"), Path.of("agent"), metrics, this::now);
        arbiter.start();
        arbiter.tell("first\n");
        write("cat");

        await("first\n.\n");
    }

    private ArbiterProcess start(String script) throws IOException {
        write(script);
        var started =
                new ArbiterProcess(folder.resolve("program"), Path.of("regions"), Path.of("agent"), metrics, this::now);
        started.start();
        arbiter = started;
        return started;
    }

    private void write(String script) throws IOException {
        Files.createFile(lists);
        Path program = folder.resolve("new");
        Files.writeString(program, "#!/bin/sh\ncd " + folder + "; exec >> lists\n" + script + "\n");
        Files.setPosixFilePermissions(program, PosixFilePermissions.fromString("rwx------"));
        Files.move(program, folder.resolve("program"));
    }

    private long now() {
        return System.nanoTime() + skipped.get();
    }

    private void await(String content) throws Exception {
        while (!Files.readString(lists).equals(content)) {
            Thread.sleep(5);
        }
    }
}
