package io.aliquot.api.shim;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.aliquot.api.format.FormatException;
import io.aliquot.api.pods.Held;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.List;
import java.util.Objects;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

final class AgentFileTest {
    private static final Path GOLDEN = Path.of("..", "native-shim", "golden");
    private static final String UUID = "GPU-8f6e8f0c-0001-4a5b-9c3d-000000000001";
    private static final String NOT_READ = "[a-z-]*ms|granted|active|borrowed|turn";

    @Test
    void readsTheGoldenFileAsTheShimDoes() throws IOException {
        byte[] golden = Files.readAllBytes(GOLDEN.resolve("agent.bin"));

        String expected = Files.readString(GOLDEN.resolve("agent.expected"));
        assertThat(print(golden)).isEqualTo(expected.replaceAll(" (" + NOT_READ + ")=[0-9]+", ""));
    }

    @Test
    void aFreshFileHasTheGoldenHeaderAndZerosElsewhere() throws IOException {
        ByteBuffer golden = ByteBuffer.wrap(Files.readAllBytes(GOLDEN.resolve("agent.bin")));
        ByteBuffer fresh = ByteBuffer.wrap(AgentFile.fresh());

        assertThat(fresh.capacity()).isEqualTo(golden.capacity()).isEqualTo(AgentFile.SIZE);
        assertThat(fresh.slice(0, 28)).isEqualTo(golden.slice(0, 28));
        assertThat(fresh.slice(28, AgentFile.SIZE - 28)).isEqualTo(ByteBuffer.allocate(AgentFile.SIZE - 28));
    }

    @Test
    void writesTheAgentsValuesOfOneEntryInPlaceAndNothingElse(@TempDir Path folder) throws IOException {
        byte[] golden = Files.readAllBytes(GOLDEN.resolve("agent.bin"));
        Path file = Files.write(folder.resolve("agent"), golden);

        try (var channel = FileChannel.open(file, StandardOpenOption.WRITE)) {
            AgentFile.writeUnattributed(channel::write, 0, 1L << 40, 7);
            AgentFile.writeUnattributed(channel::write, 3, 1L << 41, 8);
            AgentFile.makeEntry(channel::write, 3, UUID);
        }

        byte[] written = Files.readAllBytes(file);
        assertThat(entry(written, 0))
                .isEqualTo(new AgentFile.Device(entry(golden, 0).uuid(), 1L << 40));
        assertThat(entry(written, 3)).isEqualTo(new AgentFile.Device(UUID, 1L << 41));
        ByteBuffer words = ByteBuffer.wrap(written).order(ByteOrder.LITTLE_ENDIAN);
        assertThat(words.getLong(64 + 32)).as("updated_ms of agent.h").isEqualTo(7);
        for (int at : List.of(64 + 24, 64 + 3 * 128, 64 + 3 * 128 + 24)) { // agent.h: two values, and a UUID
            System.arraycopy(golden, at, written, at, 16);
        }
        assertThat(written).isEqualTo(golden);
    }

    @Test
    void writesWhatTheContainerHolds(@TempDir Path folder) throws IOException {
        Path file = Files.write(folder.resolve("agent"), AgentFile.fresh());
        assertThat(AgentFile.parse(AgentFile.fresh()).held()).isEqualTo(Held.UNKNOWN);

        for (Held held : List.of(Held.WHOLE_CARD, Held.SHARE)) {
            try (var channel = FileChannel.open(file, StandardOpenOption.WRITE)) {
                AgentFile.writeHeld(channel::write, held);
            }
            assertThat(AgentFile.parse(Files.readAllBytes(file)).held()).isEqualTo(held);
        }
        assertThat(AgentFile.parse(with(28, 3)).held()).as("of a newer version").isEqualTo(Held.UNKNOWN);
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

    private static AgentFile.Device entry(byte[] file, int entry) {
        return Objects.requireNonNull(AgentFile.parse(file).devices().get(entry));
    }

    private static byte[] with(int at, int value) {
        byte[] file = AgentFile.fresh();
        ByteBuffer.wrap(file).order(ByteOrder.LITTLE_ENDIAN).putInt(at, value);
        return file;
    }

    /** In the form of {@code agent.expected}, see {@code native-shim/test/golden.c}, without what the agent does not read. */
    private static String print(byte[] file) {
        var text = new StringBuilder("version 1\nsize ").append(AgentFile.SIZE);
        text.append("\ndevices ").append(AgentFile.DEVICES);
        text.append("\nholds ")
                .append(AgentFile.parse(file).held() == Held.WHOLE_CARD ? 2 : 0)
                .append('\n');
        AgentFile.parse(file).devices().forEach((entry, device) -> {
            text.append("device ").append(entry).append(' ').append(device.uuid());
            text.append(" unattributed=").append(device.unattributedBytes());
            text.append('\n');
        });
        return text.toString();
    }
}
