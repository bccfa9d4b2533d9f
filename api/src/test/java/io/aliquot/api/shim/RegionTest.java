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

    private static final String NOT_READ = "used|tat|gpu-time|wanted|undecided|peak|context|started";

    @Test
    void readsTheGoldenFileAsTheShimDoes() throws IOException {
        byte[] golden = Files.readAllBytes(GOLDEN.resolve("region.bin"));

        String expected = Files.readString(GOLDEN.resolve("region.expected"));
        assertThat(print(golden)).isEqualTo(expected.replaceAll(" (" + NOT_READ + ")=[0-9]+", ""));
    }

    @Test
    void readsThePartsInUseOfAFile(@TempDir Path folder) throws IOException {
        byte[] golden = Files.readAllBytes(GOLDEN.resolve("region.bin"));
        Region expected = read(golden);
        Path file = Files.write(folder.resolve("region"), golden);
        ByteBuffer buffer = ByteBuffer.allocate(Region.SIZE);

        try (var channel = FileChannel.open(file, StandardOpenOption.READ)) {
            Region read = Region.read(channel::read, buffer);

            assertThat(read.devices()).isEqualTo(expected.devices()).isNotEmpty();
            assertThat(read.pid(0)).isEqualTo(expected.pid(0));
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
    void ignoresADeviceWhoseUuidIsHalfWritten() throws IOException {
        byte[] file = Region.fresh();
        file[4096] = 1;

        assertThat(read(file).devices()).isEmpty();
    }

    @Test
    void rejectsInvalidContentAndSaysWhatWasExpected() {
        assertThatThrownBy(() -> read(new byte[Region.SIZE]))
                .isInstanceOf(FormatException.class)
                .hasMessageContaining("magic");
        assertThatThrownBy(() -> read(with(8, 2))).hasMessageContaining("a region's version 1, found \"2\"");
        assertThatThrownBy(() -> read(with(64, 513))).hasMessageContaining("high-water mark from 0 to 512");
        assertThatThrownBy(() -> read(with(64, -1))).hasMessageContaining("high-water mark from 0 to 512");
    }

    private static byte[] with(int at, int value) {
        byte[] file = Region.fresh();
        ByteBuffer.wrap(file).order(ByteOrder.LITTLE_ENDIAN).putInt(at, value);
        return file;
    }

    private static Region read(byte[] file) throws IOException {
        return Region.read(reader(file), ByteBuffer.allocate(Region.SIZE));
    }

    private static Region.PartReader reader(byte[] file) {
        return (part, at) -> part.put(file, (int) at, part.remaining()).position();
    }

    /** In the form of {@code region.expected}, see {@code native-shim/test/golden.c}, without what the agent does not read. */
    private static String print(byte[] file) throws IOException {
        Region region = read(file);
        var text = new StringBuilder();
        text.append("version 1\nsize ").append(Region.SIZE);
        text.append("\ndevices ").append(Region.DEVICES);
        text.append("\nprocesses ").append(Region.PROCESSES);
        text.append("\nhigh-water ").append(region.processHighWater());
        Region.Notices notices = Region.notices(reader(file));
        text.append("\nunhooked-functions ").append(notices.unhookedFunctions());
        text.append("\nprocess-refused-ms ")
                .append(notices.processRefusedMillis())
                .append('\n');
        for (Region.Device device : region.devices()) {
            text.append("device ").append(device.index()).append(' ').append(device.uuid());
            text.append(" throttled=").append(device.throttledNanos());
            text.append(" denied=").append(device.denied()).append('\n');
            for (int process = 0; process < region.processHighWater(); process++) {
                long bytes = region.chargedBytes(device.index(), process);
                if (bytes != 0) {
                    text.append("charge device=").append(device.index());
                    text.append(" process=").append(process);
                    text.append(" bytes=").append(bytes).append('\n');
                }
            }
        }
        for (int slot = 0; slot < region.processHighWater(); slot++) {
            if (region.pid(slot) != 0) {
                text.append("process ").append(slot).append(" pid=");
                text.append(Integer.toUnsignedString(region.pid(slot))).append('\n');
            }
        }
        return text.toString();
    }
}
