package io.aliquot.deviceplugin.arbiter;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.shim.AgentFile;
import io.aliquot.deviceplugin.metrics.AgentMetrics;
import io.aliquot.testing.Await;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.PosixFilePermissions;
import java.time.Duration;
import java.util.Objects;
import java.util.concurrent.atomic.AtomicLong;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** Programs that end, hang, or are missing, and the real one, which native-shim builds. */
@Timeout(30)
final class ArbiterProcessTest {
    private static final String GPU = "GPU-11111111-2222-3333-4444-555555555555";
    private static final int GRANT_AT = 16; // agent.h: grant
    private static final int ACTIVE_AT = 48; // active

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
    void theProgramGetsItsArgumentsAndEachListAndEndsWithItsInput() throws Exception {
        ArbiterProcess running = start("echo \"$*\"; cat; echo end");
        running.tell("slot-1 GPU 30 elastic normal -\n");
        await("regions agent 7\nslot-1 GPU 30 elastic normal -\n.\n");
        running.tell("");
        await("regions agent 7\nslot-1 GPU 30 elastic normal -\n.\n.\n");

        running.close();

        await("regions agent 7\nslot-1 GPU 30 elastic normal -\n.\n.\nend\n");
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
        arbiter = new ArbiterProcess(
                folder.resolve("program"), Path.of("regions"), Path.of("agent"), 7, metrics, this::now);
        arbiter.start();
        arbiter.tell("first\n");
        write("cat");

        await("first\n.\n");
    }

    @Test
    void theArbiterThatIsKilledIsStartedAgainAndTheAgentsValuesStay() throws Exception {
        Path program = Path.of("../native-shim/build/arbiter", ArbiterProcess.PROGRAM);
        assertThat(program).as("built by ./mvnw -pl native-shim compile").exists();
        Files.createDirectory(folder.resolve("regions"));
        Path slot = Files.createDirectory(folder.resolve("agent")).resolve("slot-1");
        Files.write(slot, AgentFile.fresh());
        try (var file = FileChannel.open(slot, StandardOpenOption.WRITE)) {
            AgentFile.makeEntry(file::write, 0, GPU);
            arbiter = new ArbiterProcess(
                    program, folder.resolve("regions"), folder.resolve("agent"), 5, metrics, this::now);
            arbiter.start();
            arbiter.tell("slot-1 " + GPU + " 30 elastic normal -\n");
            for (int kill = 1; kill <= 3; kill++) {
                awaitWordsAfter(slot, System.nanoTime() / 1_000_000);
                AgentFile.writeUnattributed(file::write, 0, kill, kill);
                ProcessHandle running = ProcessHandle.current()
                        .children()
                        .filter(child -> child.info().command().orElse("").endsWith(ArbiterProcess.PROGRAM))
                        .findAny()
                        .orElseThrow();
                running.destroyForcibly();
                running.onExit().join();
                assertThat(device(slot).unattributedBytes()).isEqualTo(kill);
            }
            awaitWordsAfter(slot, System.nanoTime() / 1_000_000);
        }
        assertThat(word(slot, GRANT_AT) & 0xfffff).isEqualTo(300_000);
        assertThat(device(slot).unattributedBytes()).isEqualTo(3);
    }

    private static void awaitWordsAfter(Path slot, long millis) {
        Await.await(() -> word(slot, ACTIVE_AT) >>> 20 > millis);
    }

    /** A word of the arbiter in the first GPU's entry: a value of 20 bits, and before it the time in ms. */
    private static long word(Path slot, int at) throws IOException {
        return ByteBuffer.wrap(Files.readAllBytes(slot))
                .order(ByteOrder.LITTLE_ENDIAN)
                .getLong(64 + at);
    }

    private static AgentFile.Device device(Path slot) throws IOException {
        return Objects.requireNonNull(
                AgentFile.parse(Files.readAllBytes(slot)).devices().get(0));
    }

    private ArbiterProcess start(String script) throws IOException {
        write(script);
        var started = new ArbiterProcess(
                folder.resolve("program"), Path.of("regions"), Path.of("agent"), 7, metrics, this::now);
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

    private void await(String content) {
        Await.await(content, () -> Files.readString(lists).equals(content));
    }
}
