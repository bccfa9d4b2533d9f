package io.aliquot.api.pods;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.aliquot.api.format.FormatException;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Locale;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

class VgpusTest {
    private static final Path GOLDEN = Path.of("golden", "vgpu");

    static Stream<Path> valid() throws IOException {
        return files("valid");
    }

    static Stream<Path> invalid() throws IOException {
        return files("invalid");
    }

    @ParameterizedTest
    @MethodSource("valid")
    void parsesValidGoldenFiles(Path file) throws IOException {
        String expected = Files.readString(Path.of(file.toString().replace(".vgpu", ".expected")));

        assertThat(Vgpus.parse(text(file)).list().stream()
                        .map(VgpusTest::describe)
                        .collect(Collectors.joining()))
                .isEqualTo(expected);
    }

    @ParameterizedTest
    @MethodSource("invalid")
    void rejectsInvalidGoldenFiles(Path file) throws IOException {
        String text = text(file);

        assertThatThrownBy(() -> Vgpus.parse(text)).isInstanceOf(FormatException.class);
    }

    @Test
    void findsTheGoldenFiles() throws IOException {
        assertThat(valid()).hasSizeGreaterThan(5);
        assertThat(invalid()).hasSizeGreaterThan(30);
    }

    @Test
    void parsesWhatItPrints() {
        Randomly.times(2_000, random -> {
            var vgpus = new Vgpus(IntStream.rangeClosed(1, 1 + random.nextInt(16))
                    .mapToObj(i -> Randomly.vgpu(random))
                    .toList());

            assertThat(Vgpus.parse(vgpus.print())).isEqualTo(vgpus);
        });
    }

    @Test
    void throwsOnlyFormatExceptionsForAnyText() {
        String good = "GPU-8f6e8f0c-0001-4a5b-9c3d-000000000001 memory=3000Mi cores=30 policy=fixed exclusive\n";
        Randomly.times(20_000, random -> {
            var text = new StringBuilder(good.repeat(1 + random.nextInt(2)));
            for (int i = random.nextInt(4); i >= 0; i--) {
                int at = random.nextInt(text.length());
                switch (random.nextInt(3)) {
                    case 0 -> text.setCharAt(at, (char) random.nextInt(128));
                    case 1 -> text.deleteCharAt(at);
                    default -> text.insert(at, (char) random.nextInt(0x10000));
                }
            }
            try {
                Vgpus parsed = Vgpus.parse(text.toString());
                assertThat(Vgpus.parse(parsed.print())).isEqualTo(parsed);
            } catch (FormatException e) {
                assertThat(e).hasMessageContaining("expected").hasMessageContaining("found");
            }
        });
    }

    @Test
    void rejectsATextOfTenMegabytes() {
        assertThatThrownBy(() -> Vgpus.parse("x".repeat(10_000_000)))
                .isInstanceOf(FormatException.class)
                .hasMessageContaining("65536");
    }

    @Test
    void rejectsAGpuThatIsListedTwice() {
        var vgpu =
                new Vgpu("GPU-8f6e8f0c-0001-4a5b-9c3d-000000000001", 1, 0, CorePolicy.FIXED, Priority.NORMAL, 0, false);

        assertThatThrownBy(() -> new Vgpus(List.of(vgpu, vgpu))).isInstanceOf(FormatException.class);
    }

    @Test
    void aPriorityIsAWordAndTheNumberOfVersion01IsIgnored() {
        String line = "GPU-8f6e8f0c-0001-4a5b-9c3d-000000000001 memory=1Mi cores=0 ";

        assertThat(Vgpus.parse(line + "compute-priority=low").list().get(0).priority())
                .isEqualTo(Priority.LOW);
        assertThat(Vgpus.parse(line + "priority=7").list().get(0).priority()).isEqualTo(Priority.NORMAL);
        assertThatThrownBy(() -> Vgpus.parse(line + "compute-priority=7"))
                .hasMessageContaining("expected priority high, normal or low");
    }

    private static Stream<Path> files(String kind) throws IOException {
        try (Stream<Path> all = Files.list(GOLDEN.resolve(kind))) {
            return all.filter(file -> file.toString().endsWith(".vgpu")).sorted().toList().stream();
        }
    }

    // The shim reads bytes. Latin-1 keeps every byte, so invalid UTF-8 stays invalid.
    private static String text(Path file) throws IOException {
        return Files.readString(file, StandardCharsets.ISO_8859_1);
    }

    private static String describe(Vgpu vgpu) {
        return String.format(
                Locale.ROOT,
                "%s memory=%d cores=%d policy=%s context=%d exclusive=%b%n",
                vgpu.uuid(),
                vgpu.memoryMiB(),
                vgpu.cores(),
                vgpu.policy().print(),
                vgpu.contextMiB(),
                vgpu.exclusive());
    }
}
