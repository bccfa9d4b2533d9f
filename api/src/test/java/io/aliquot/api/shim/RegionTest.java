package io.aliquot.api.shim;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.aliquot.api.format.FormatException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

final class RegionTest {
    private static final Path GOLDEN = Path.of("..", "native-shim", "golden");

    @Test
    void readsTheGoldenFileAsTheShimDoes() throws IOException {
        byte[] golden = Files.readAllBytes(GOLDEN.resolve("region.bin"));

        assertThat(print(golden)).isEqualTo(Files.readString(GOLDEN.resolve("region.expected")));
    }

    @Test
    void readsThePartsInUseOfAFile(@TempDir Path folder) throws IOException {
        byte[] golden = Files.readAllBytes(GOLDEN.resolve("region.bin"));
        Region expected = Region.parse(golden);
        Path file = Files.write(folder.resolve("region"), golden);
        ByteBuffer buffer = ByteBuffer.allocate(Region.SIZE);

        try (var channel = FileChannel.open(file, StandardOpenOption.READ)) {
            Region read = Region.read(channel::read, buffer);

            assertThat(read.devices()).isEqualTo(expected.devices()).isNotEmpty();
            assertThat(read.owner(0)).isEqualTo(expected.owner(0));
        }
        Files.write(file, new byte[100]);
        try (var channel = FileChannel.open(file, StandardOpenOption.READ)) {
            assertThatThrownBy(() -> Region.read(channel::read, buffer)).hasMessageContaining("shorter");
        }
    }

    @Test
    void aFreshRegionHasTheGoldenHeaderAndZerosElsewhere() throws IOException {
        ByteBuffer golden = ByteBuffer.wrap(Files.readAllBytes(GOLDEN.resolve("region.bin")));
        ByteBuffer fresh = ByteBuffer.wrap(Region.fresh());

        assertThat(fresh.slice(0, 64)).isEqualTo(golden.slice(0, 64));
        assertThat(fresh.slice(64, Region.SIZE - 64)).isEqualTo(ByteBuffer.allocate(Region.SIZE - 64));
    }

    @Test
    void anEmptyFileEqualsAFreshRegion() {
        Region region = Region.parse(new byte[0]);

        assertThat(region.devices()).isEmpty();
        assertThat(region.processHighWater()).isZero();
    }

    @Test
    void ignoresADeviceWhoseUuidIsHalfWritten() {
        byte[] file = Region.fresh();
        file[4096] = 1;

        assertThat(Region.parse(file).devices()).isEmpty();
    }

    @Test
    void rejectsInvalidContentAndSaysWhatWasExpected() {
        assertThatThrownBy(() -> Region.parse(new byte[100]))
                .isInstanceOf(FormatException.class)
                .hasMessage("expected a region's size 565248, found \"100\"");
        assertThatThrownBy(() -> Region.parse(new byte[Region.SIZE])).hasMessageContaining("magic");
        assertThatThrownBy(() -> Region.parse(with(8, 2))).hasMessageContaining("a region's version 1, found \"2\"");
        assertThatThrownBy(() -> Region.parse(with(64, 513))).hasMessageContaining("high-water mark from 0 to 512");
        assertThatThrownBy(() -> Region.parse(with(64, -1))).hasMessageContaining("high-water mark from 0 to 512");
    }

    private static byte[] with(int at, int value) {
        byte[] file = Region.fresh();
        ByteBuffer.wrap(file).order(ByteOrder.LITTLE_ENDIAN).putInt(at, value);
        return file;
    }

    /** In the form of {@code region.expected}, see {@code native-shim/test/golden.c}. */
    private static String print(byte[] file) throws IOException {
        Region region = Region.parse(file);
        Region.PartReader reader =
                (part, at) -> part.put(file, (int) at, part.remaining()).position();
        var text = new StringBuilder();
        text.append("version 1\nsize ").append(Region.SIZE);
        text.append("\ndevices ").append(Region.DEVICES);
        text.append("\nprocesses ").append(Region.PROCESSES);
        text.append("\nhigh-water ").append(region.processHighWater());
        text.append("\nunhooked-functions ").append(Region.unhookedFunctions(reader));
        text.append("\nprocess-refused-ms ")
                .append(Region.processRefusedMillis(reader))
                .append('\n');
        for (Region.Device device : region.devices()) {
            text.append("device ").append(device.index()).append(' ').append(device.uuid());
            text.append(" used=").append(device.usedBytes());
            Region.Compute compute = device.compute();
            text.append(" tat=").append(compute.tat()).append(" gpu-time=").append(compute.gpuTime());
            text.append(" throttled=").append(compute.throttled());
            text.append(" wanted=")
                    .append(compute.wanted())
                    .append(" denied=")
                    .append(device.denied())
                    .append('\n');
            for (int process = 0; process < Region.PROCESSES; process++) {
                Region.Charge charge = region.charge(device.index(), process);
                if (charge.bytes() != 0 || charge.undecided() != 0) {
                    text.append("charge device=").append(device.index());
                    text.append(" process=").append(process);
                    text.append(" bytes=").append(charge.bytes());
                    text.append(" undecided=").append(charge.undecided());
                    text.append(" gpu-time=").append(charge.gpuTime());
                    text.append(" peak=").append(charge.peakBytes());
                    text.append(" context=").append(charge.contextBytes()).append('\n');
                }
            }
        }
        for (int slot = 0; slot < Region.PROCESSES; slot++) {
            Region.Owner owner = region.owner(slot);
            if (owner.pid() != 0) {
                text.append("process ").append(slot).append(" pid=").append(owner.pid());
                text.append(" started=").append(owner.startedMicros()).append('\n');
            }
        }
        return text.toString();
    }
}
