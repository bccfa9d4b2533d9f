package io.aliquot.scheduler.doctor;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.time.Clock;
import java.time.Instant;
import java.time.ZoneOffset;
import java.util.List;
import java.util.Optional;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class DoctorTest {
    private static final String SEEN = """
            limit=GPU-1 memory=64Mi cores=0 policy=fixed context=216Mi
            preload=/usr/local/aliquot/1/libaliquot.so
            shim=4
            memory=64
            """;

    private final ByteArrayOutputStream out = new ByteArrayOutputStream();
    private final ByteArrayOutputStream err = new ByteArrayOutputStream();

    @Test
    void helpIsPrintedWithoutACluster() {
        assertThat(run("--help")).isZero();
        assertThat(out.toString(UTF_8)).isEqualTo(Options.USAGE);
    }

    @Test
    void anUnknownOptionEndsWithStatus2() {
        assertThat(run("--bundle")).isEqualTo(2);
        assertThat(err.toString(UTF_8)).contains("there is no option \"--bundle\"");
    }

    private int run(String... arguments) {
        return Doctor.run(
                List.of(arguments),
                Clock.fixed(Instant.EPOCH, ZoneOffset.UTC),
                () -> 0,
                new PrintStream(out, true, UTF_8),
                new PrintStream(err, true, UTF_8));
    }

    @Test
    void theLastOfTwoOptionsThatContradictEachOtherCounts() {
        assertThat(Options.parse(List.of("--probe", "-o", "json", "--no-probe", "-n", "team", "--probe-image", "a:1")))
                .contains(new Options(true, false, "team", Optional.of("a:1")));
        assertThatThrownBy(() -> Options.parse(List.of("-o", "yaml"))).hasMessageContaining("text or json");
        assertThatThrownBy(() -> Options.parse(List.of("-n"))).hasMessageContaining("write a value after -n");
    }

    @Test
    void findingsArePrintedOneALineAndCounted() throws Exception {
        var installation = new Installation();
        installation.runtimeClasses.clear();

        String text = Doctor.text(installation.findings(), installation.state(), 1);

        assertThat(text.lines())
                .containsExactly(
                        "runtimeclass/nvidia: is missing, so no node agent and no pod with a share is created; create it"
                                + " with the handler of NVIDIA's runtime, by helm upgrade with runtimeClass.create=true,"
                                + " or set runtimeClass.name to another one (runtime-class)",
                        "1 finding: Kubernetes v1.35.4, 1 node with gpu=on, 1 of them probed");
        assertThat(Doctor.json(List.of(new Finding("a", "b", "c\nd", "e"))).replaceAll("\\s", ""))
                .isEqualTo("{\"findings\":[{\"check\":\"a\",\"object\":\"b\",\"problem\":\"cd\",\"action\":\"e\"}]}");
    }

    @Test
    void aProbeThatSeesItsLimitsIsNoFinding() {
        assertThat(Probe.problem(SEEN, true, "")).isEmpty();
        assertThat(Probe.problem(SEEN.replace("memory=64\n", "memory=\n"), true, ""))
                .as("without nvidia-smi in the container")
                .isEmpty();
    }

    @ParameterizedTest
    @CsvSource({
        "limit=GPU-1 memory=64Mi, limit=cat: /etc/aliquot/vgpu: No such file or directory, does not see its limit file",
        "preload=/usr/local/aliquot/1/libaliquot.so, preload=/lib/libown.so, does not see /etc/ld.so.preload: /lib/libown.so",
        "shim=4, shim=0, does not load the shim",
        "memory=64\\n, memory=81920\\n, says of the GPU's memory: 81920 MiB",
        "limit=, nothing=, its probe pod failed: it says no",
    })
    void aProbeThatDoesNotSeeThem(String seen, String instead, String problem) {
        String facts = SEEN.replace(seen.replace("\\n", "\n"), instead.replace("\\n", "\n"));

        assertThat(facts).isNotEqualTo(SEEN);
        assertThat(Probe.problem(facts, true, ": it says no"))
                .hasValueSatisfying(text -> assertThat(text).contains(problem));
    }
}
