package io.aliquot.deviceplugin.files;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.aliquot.api.shim.Region;
import io.aliquot.testing.Await;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.ArrayList;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.Timeout.ThreadMode;
import org.junit.jupiter.api.io.TempDir;

/** With real leases: a call that waited for one would take 45 s, /proc/sys/fs/lease-break-time. */
@Timeout(value = 20, threadMode = ThreadMode.SEPARATE_THREAD)
final class SlotFilesTest {
    private final Path state;

    SlotFilesTest(@TempDir Path state) {
        this.state = state;
    }

    @Test
    void noContainerGetsALeaseOnAFileThatTheAgentHolds() throws IOException {
        Path shim = Files.createDirectories(state.resolve("shim/1.0-abc"));
        Path preload = Files.writeString(shim.resolve("ld.so.preload"), "x");
        assertThat(Lease.isGranted(preload, Lease.Kind.READING)).isTrue();

        SlotFiles files = SlotFiles.open(state);
        Path region = files.regions().replace("slot-003");
        Path agentFile = files.agentFiles().replace("slot-003");

        assertThat(Stream.of(region, agentFile)
                        .flatMap(file -> Stream.of(Lease.Kind.values()).filter(kind -> Lease.isGranted(file, kind))))
                .isEmpty();
        assertThat(Lease.isGranted(preload, Lease.Kind.READING)).isFalse();
    }

    @Test
    void aLeaseFromBeforeTheAgentsStartDelaysNothingAndIsKnown() throws Exception {
        SlotFiles before = SlotFiles.open(state);
        Path region = before.regions().replace("slot-003");
        before.regions().replace("slot-004");
        before.regions().held().values().forEach(HeldFile::close);
        var opened = new ArrayList<SlotFiles>();
        Await.await(() -> Lease.isGranted(region, Lease.Kind.READING));

        Lease.during(region, Lease.Kind.READING, () -> {
            SlotFiles files = SlotFiles.open(state);
            files.regions().refresh();

            assertThat(files.regions().refused()).containsExactly("slot-003");
            assertThat(files.regions().held()).containsOnlyKeys("slot-004");
            opened.add(files);
        });
        SlotFiles files = opened.getFirst();
        files.regions().openWaiting("slot-003");
        assertThat(files.regions().refused()).isEmpty();
        assertThat(files.regions().held()).containsOnlyKeys("slot-003", "slot-004");
    }

    @Test
    void aSlotThatIsAllocatedAgainHasItsNewFile() throws Exception {
        SlotFiles files = SlotFiles.open(state);
        files.regions().replace("slot-003");
        HeldFile first = files.regions().find("slot-003").orElseThrow();

        files.regions().replace("slot-003");

        assertThat(files.regions().find("slot-003").orElseThrow()).isNotSameAs(first);
        Await.await(() -> openFiles("slots") == 1);
        assertThatThrownBy(first::status).isInstanceOf(IOException.class);

        Files.write(state.resolve("slots/new"), Region.fresh()); // as another agent does
        Files.move(
                state.resolve("slots/new"),
                Files.createFile(state.resolve("slots/slot-004")).resolveSibling("slot-003"),
                StandardCopyOption.ATOMIC_MOVE);
        files.regions().refresh();
        assertThat(files.regions().held()).containsOnlyKeys("slot-003", "slot-004");
        assertThat(files.regions().find("slot-003").orElseThrow().status().links())
                .isEqualTo(1);
        Await.await(() -> openFiles("slots") == 2);
    }

    private long openFiles(String folder) throws IOException {
        try (Stream<Path> all = Files.list(Path.of("/proc/self/fd"))) {
            return all.filter(fd -> {
                        try {
                            return Files.readSymbolicLink(fd).startsWith(state.resolve(folder));
                        } catch (IOException e) {
                            return false;
                        }
                    })
                    .count();
        }
    }

    /** An idle container's region, which the kernel has written to the disk and dropped. */
    @Test
    void whatIsNotInMemoryIsReadInTheBackground() throws Exception {
        SlotFiles files = SlotFiles.open(state);
        Path region = files.regions().replace("slot-003");
        HeldFile file = files.regions().find("slot-003").orElseThrow();
        ByteBuffer buffer = ByteBuffer.allocateDirect(Region.SIZE);
        assertThat(Region.read(file::read, buffer).processHighWater()).isZero();
        assertThat(run("sync", region.toString())).isZero();
        assertThat(run("dd", "if=" + region, "iflag=nocache", "count=0", "status=none"))
                .isZero();

        Await.await(() -> isRead(file, buffer));
    }

    private static boolean isRead(HeldFile file, ByteBuffer buffer) {
        try {
            return Region.read(file::read, buffer).processHighWater() == 0;
        } catch (IOException e) {
            assertThat(e).hasMessageContaining("would wait");
            return false;
        }
    }

    @Test
    void aContainerThatTakesThePermissionsAwayHidesNothing() throws IOException {
        SlotFiles files = SlotFiles.open(state);
        Path region = files.regions().replace("slot-003");
        Files.setPosixFilePermissions(region, Set.of());
        ByteBuffer buffer = ByteBuffer.allocateDirect(Region.SIZE);
        HeldFile file = files.regions().find("slot-003").orElseThrow();

        assertThat(Region.read(file::read, buffer).processHighWater()).isZero();
    }

    private static int run(String... command) throws Exception {
        Process process = new ProcessBuilder(command).start();
        return process.waitFor(10, TimeUnit.SECONDS) ? process.exitValue() : -1;
    }
}
