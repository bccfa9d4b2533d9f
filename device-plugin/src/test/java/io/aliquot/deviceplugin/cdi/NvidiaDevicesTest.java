package io.aliquot.deviceplugin.cdi;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.aliquot.api.format.FormatException;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

final class NvidiaDevicesTest {
    private static final String A = "GPU-00000000-0000-0000-0000-00000000000a";
    private static final String B = "GPU-00000000-0000-0000-0000-00000000000b";

    /** The form of what nvidia-ctk writes. */
    private static final String YAML = """
            ---
            cdiVersion: 0.5.0
            kind: nvidia.com/gpu
            devices:
            - name: "0"
              containerEdits:
                deviceNodes:
                - path: /dev/nvidia0
            - name: %s
              containerEdits:
                deviceNodes:
                - path: /dev/nvidia0
                  permissions: rw
            containerEdits:
              env:
              - NVIDIA_VISIBLE_DEVICES=void
            """;

    private final Path etc;
    private final Path run;
    private final NvidiaDevices devices;

    NvidiaDevicesTest(@TempDir Path etc, @TempDir Path run) {
        this.etc = etc;
        this.run = run;
        devices = new NvidiaDevices(List.of(etc, run));
    }

    @Test
    void findsGpusByTheirUuidInYamlAndInJson() throws IOException {
        Files.writeString(etc.resolve("nvidia.yaml"), YAML.formatted(A));
        Files.writeString(
                run.resolve("more.json"),
                "{\"cdiVersion\":\"0.7.0\",\"kind\":\"nvidia.com/gpu\",\"devices\":[{\"name\":\"" + B
                        + "\",\"containerEdits\":{\"additionalGids\":[44]}}]}");

        assertThat(devices.unnamed(List.of(A, B, "0"))).containsExactly("0");
        assertThat(devices.find(List.of(A, B)))
                .extracting(NvidiaDevices.Spec::version)
                .containsExactly("0.5.0", "0.7.0");
        assertThat(devices.problem()).isEmpty();
    }

    @Test
    void followsFilesThatAppearChangeAndDisappear() throws IOException {
        assertThat(devices.unnamed(List.of(A))).containsExactly(A);
        Files.writeString(run.resolve("nvidia.yaml"), YAML.formatted(A));
        assertThat(devices.unnamed(List.of(A))).isEmpty();

        Files.writeString(run.resolve("nvidia.yaml"), YAML.formatted(B) + "# changed\n");
        assertThat(devices.unnamed(List.of(A))).containsExactly(A);

        Files.delete(run.resolve("nvidia.yaml"));
        assertThat(devices.unnamed(List.of(B))).containsExactly(B);
    }

    /** As container runtimes resolve a device that two folders have. */
    @Test
    void aDeviceOfVarRunGoesBeforeThatOfEtc() throws IOException {
        Files.writeString(etc.resolve("a.yaml"), YAML.formatted(A));
        Files.writeString(run.resolve("z.yaml"), YAML.formatted(A).replace("0.5.0", "0.6.0"));

        assertThat(devices.find(List.of(A)))
                .extracting(NvidiaDevices.Spec::version)
                .containsExactly("0.6.0");
    }

    @Test
    void leavesOtherKindsAndItsOwnSpecificationsOut() throws IOException {
        Files.writeString(run.resolve("other.yaml"), YAML.formatted(A).replace("nvidia.com/gpu", "example.com/gpu"));
        Files.writeString(run.resolve("aliquot.io-vgpu_slot-000-0.json"), "not even JSON: {");
        Files.writeString(run.resolve("notes.txt"), "[");

        assertThat(devices.unnamed(List.of(A))).containsExactly(A);
        assertThat(devices.problem()).isEmpty();
    }

    @Test
    void aBrokenFileIsASentenceAndDoesNotHideTheOthers() throws IOException {
        Files.writeString(etc.resolve("nvidia.yaml"), YAML.formatted(A));
        for (String broken : List.of(
                "",
                "[",
                "[".repeat(200_000),
                "{".repeat(5000),
                "- a list",
                "kind: nvidia.com/gpu",
                "kind: [nvidia.com/gpu]",
                YAML.formatted(B).replace("0.5.0", "one"),
                YAML.formatted(B).replace("devices:\n-", "devices:\n  other:\n  -"),
                YAML.formatted(B).replace("kind:", "kind: twice\nkind:"),
                YAML.formatted(B).replace("name: " + B, "title: " + B),
                YAML.formatted(B) + "#".repeat(1 << 20),
                "a: &a [x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\n".repeat(2),
                "\0\0",
                "!!java.lang.ProcessBuilder [[touch]]")) {
            Files.writeString(run.resolve("broken.yaml"), broken);

            assertThat(devices.unnamed(List.of(A, B)))
                    .as(broken.substring(0, Math.min(50, broken.length())))
                    .containsExactly(B);
            assertThat(devices.problem().orElseThrow()).startsWith(run.resolve("broken.yaml") + ": expected ");
        }
        Files.delete(run.resolve("broken.yaml"));
        assertThat(devices.unnamed(List.of(A))).isEmpty();
        assertThat(devices.problem()).isEmpty();
    }

    @Test
    void saysWhatToDoAboutAGpuThatIsNotNamed() {
        assertThatThrownBy(() -> devices.find(List.of(A)))
                .isInstanceOf(FormatException.class)
                .hasMessageContaining("names nvidia.com/gpu=" + A + ": run nvidia-ctk cdi generate");
        assertThat(new NvidiaDevices(NvidiaDevices.FOLDERS).advice(A))
                .as("fits the conflict of an inventory")
                .hasSizeLessThanOrEqualTo(230);
    }

    /** Eight GPUs of seven MIG instances each, by two names; the agent has 32 MiB of heap for everything. */
    @Test
    void readsTheLargestRealSpecification() throws IOException {
        String hook = """
                    - hookName: createContainer
                      path: /usr/bin/nvidia-cdi-hook
                      args: [nvidia-cdi-hook, create-symlinks, --link, ../card1::/dev/dri/by-path/pci-0000:00:0f.0-card]
                """;
        String device = """
                - name: MIG-%s
                  containerEdits:
                    deviceNodes:
                    - path: /dev/nvidia-caps/nvidia-cap%s
                    hooks:
                """;
        String many = IntStream.range(0, 112)
                .mapToObj(i -> device.formatted(i, i) + hook.repeat(15))
                .collect(Collectors.joining("", "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices:\n", ""));
        Files.writeString(run.resolve("nvidia.yaml"), many);

        assertThat(many.length()).isBetween(200_000, 1 << 20);
        assertThat(devices.unnamed(List.of("MIG-0", "MIG-111"))).isEmpty();
    }
}
