package io.aliquot.api;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import org.junit.jupiter.api.Test;

final class RegionTest {
    private static final Path GOLDEN = Path.of("..", "native-shim", "golden");

    @Test
    void theGoldenFileReadsAsTheShimReadsIt() throws IOException {
        byte[] golden = Files.readAllBytes(GOLDEN.resolve("region.bin"));

        assertThat(print(golden)).isEqualTo(Files.readString(GOLDEN.resolve("region.expected")));
    }

    @Test
    void aFreshFileHasTheGoldenHeaderAndZerosElsewhere() throws IOException {
        ByteBuffer golden = ByteBuffer.wrap(Files.readAllBytes(GOLDEN.resolve("region.bin")));
        ByteBuffer fresh = ByteBuffer.wrap(Region.fresh());

        assertThat(fresh.slice(0, 64)).isEqualTo(golden.slice(0, 64));
        assertThat(fresh.slice(64, Region.SIZE - 64)).isEqualTo(ByteBuffer.allocate(Region.SIZE - 64));
    }

    @Test
    void anEmptyFileIsAFreshOne() {
        Region region = Region.parse(new byte[0]);

        assertThat(region.devices()).isEmpty();
        assertThat(region.processHighWater()).isZero();
    }

    @Test
    void anEntryOfWhichOnlyHalfTheUuidIsWrittenIsNoDeviceYet() {
        byte[] file = Region.fresh();
        file[4096] = 1;

        assertThat(Region.parse(file).devices()).isEmpty();
    }

    @Test
    void whatAContainerScribbledIsRefusedWithWhatWasExpected() {
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

    /** In the form of {@code region.expected}, see {@code native-shim/test/region_golden.c}. */
    private static String print(byte[] file) {
        Region region = Region.parse(file);
        var text = new StringBuilder();
        text.append("version 1\nsize ").append(Region.SIZE);
        text.append("\ndevices ").append(Region.DEVICES);
        text.append("\nprocesses ").append(Region.PROCESSES);
        text.append("\nhigh-water ").append(region.processHighWater());
        text.append("\nunplaced-addresses ").append(region.unplacedAddresses()).append('\n');
        for (Region.Device device : region.devices()) {
            text.append("device ").append(device.index()).append(' ').append(device.uuid());
            text.append(" used=").append(device.usedBytes()).append('\n');
            for (int process = 0; process < Region.PROCESSES; process++) {
                Region.Charge charge = region.charge(device.index(), process);
                if (charge.bytes() != 0 || charge.undecided() != 0) {
                    text.append("charge device=").append(device.index());
                    text.append(" process=").append(process);
                    text.append(" bytes=").append(charge.bytes());
                    text.append(" undecided=").append(charge.undecided()).append('\n');
                }
            }
        }
        return text.toString();
    }
}
