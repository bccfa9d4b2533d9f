package io.aliquot.api.shim;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.aliquot.api.names.FormatException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

final class AgentFileTest {
    private static final Path GOLDEN = Path.of("..", "native-shim", "golden");
    private static final String UUID = "GPU-8f6e8f0c-0001-4a5b-9c3d-000000000001";
    private static final Region.Grant NO_GRANT = new Region.Grant(0, 0);

    @Test
    void readsTheGoldenFileAsTheShimDoes() throws IOException {
        byte[] golden = Files.readAllBytes(GOLDEN.resolve("agent.bin"));

        assertThat(print(golden)).isEqualTo(Files.readString(GOLDEN.resolve("agent.expected")));
    }

    @Test
    void aFreshFileHasTheGoldenHeaderAndZerosElsewhere() throws IOException {
        ByteBuffer golden = ByteBuffer.wrap(Files.readAllBytes(GOLDEN.resolve("agent.bin")));
        ByteBuffer fresh = ByteBuffer.wrap(AgentFile.fresh());

        assertThat(fresh.capacity()).isEqualTo(golden.capacity()).isEqualTo(AgentFile.SIZE);
        assertThat(fresh.slice(0, 64)).isEqualTo(golden.slice(0, 64));
        assertThat(fresh.slice(64, AgentFile.SIZE - 64)).isEqualTo(ByteBuffer.allocate(AgentFile.SIZE - 64));
    }

    @Test
    void writingTheGoldenFilesDevicesGivesTheGoldenFile(@TempDir Path folder) throws IOException {
        byte[] golden = Files.readAllBytes(GOLDEN.resolve("agent.bin"));
        byte[] fresh = AgentFile.fresh();
        fresh[64 + 128 + 24] = 1; // in the golden file, the value of an entry that has no UUID yet
        Path file = Files.write(folder.resolve("agent"), fresh);

        try (var channel = FileChannel.open(file, StandardOpenOption.WRITE)) {
            for (Map.Entry<Integer, AgentFile.Device> device :
                    AgentFile.parse(golden).devices().entrySet()) {
                AgentFile.write(channel, device.getKey(), device.getValue());
            }
        }

        assertThat(Files.readAllBytes(file)).isEqualTo(golden);
    }

    @Test
    void writesOneEntryInPlaceAndNothingElse(@TempDir Path folder) throws IOException {
        byte[] golden = Files.readAllBytes(GOLDEN.resolve("agent.bin"));
        Path file = Files.write(folder.resolve("agent"), golden);
        var device = new AgentFile.Device(UUID, new Region.Grant((1L << 44) - 1, 1_000_000), 1L << 40, 7, 0xffff_ffffL);

        try (var channel = FileChannel.open(file, StandardOpenOption.WRITE)) {
            AgentFile.write(channel, 3, device);
        }

        byte[] written = Files.readAllBytes(file);
        assertThat(AgentFile.parse(written).devices()).containsEntry(3, device).hasSize(4);
        int at = 64 + 3 * 128; // agent.h: entry 3
        System.arraycopy(golden, at, written, at, 128);
        assertThat(written).isEqualTo(golden);
    }

    @Test
    void ignoresAnEntryWithoutACompleteUuid() {
        byte[] file = AgentFile.fresh();
        file[64] = 1;

        assertThat(AgentFile.parse(file).devices()).isEmpty();
    }

    @Test
    void rejectsInvalidContentAndSaysWhatWasExpected() {
        assertThatThrownBy(() -> AgentFile.parse(new byte[0]))
                .isInstanceOf(FormatException.class)
                .hasMessage("expected an agent's file's size 4096, found \"0\"");
        assertThatThrownBy(() -> AgentFile.parse(new byte[AgentFile.SIZE])).hasMessageContaining("magic");
        assertThatThrownBy(() -> AgentFile.parse(with(8, 2))).hasMessageContaining("version 1, found \"2\"");
        assertThatThrownBy(() -> AgentFile.parse(with(12, 65))).hasMessageContaining("header's size 64");
        assertThatThrownBy(() -> AgentFile.parse(with(16, 8192))).hasMessageContaining("total size 4096");
        assertThatThrownBy(() -> AgentFile.parse(with(20, 17))).hasMessageContaining("number of devices 16");
        assertThatThrownBy(() -> AgentFile.parse(with(24, 64))).hasMessageContaining("device's size 128");
    }

    @Test
    void rejectsValuesOutOfRange() {
        assertThatThrownBy(() -> new AgentFile.Device("8f6e", NO_GRANT, 0, 0, 0))
                .hasMessageContaining("UUID");
        assertThatThrownBy(() -> new AgentFile.Device("GPU-00000000-0000-0000-9c3d-000000000001", NO_GRANT, 0, 0, 0))
                .hasMessageContaining("half of zeros");
        assertThatThrownBy(() -> new AgentFile.Device(UUID, NO_GRANT, 1L << 52, 0, 0))
                .hasMessageContaining("below 2^52");
        assertThatThrownBy(() -> new AgentFile.Device(UUID, NO_GRANT, -1, 0, 0)).hasMessageContaining("below 2^52");
        assertThatThrownBy(() -> new AgentFile.Device(UUID, NO_GRANT, 0, -1, 0)).hasMessageContaining("0 ms or later");
        assertThatThrownBy(() -> new AgentFile.Device(UUID, NO_GRANT, 0, 0, 1L << 32))
                .hasMessageContaining("active containers");
    }

    private static byte[] with(int at, int value) {
        byte[] file = AgentFile.fresh();
        ByteBuffer.wrap(file).order(ByteOrder.LITTLE_ENDIAN).putInt(at, value);
        return file;
    }

    /** In the form of {@code agent.expected}, see {@code native-shim/test/golden.c}. */
    private static String print(byte[] file) {
        var text = new StringBuilder("version 1\nsize ").append(AgentFile.SIZE);
        text.append("\ndevices ").append(AgentFile.DEVICES).append('\n');
        AgentFile.parse(file).devices().forEach((entry, device) -> {
            text.append("device ").append(entry).append(' ').append(device.uuid());
            text.append(" granted=").append(device.grant().millionths());
            text.append(" granted-ms=").append(device.grant().millis());
            text.append(" unattributed=").append(device.unattributedBytes());
            text.append(" updated-ms=").append(device.updatedMillis());
            text.append(" active=").append(device.active()).append('\n');
        });
        return text.toString();
    }
}
