package io.aliquot.scheduler.simulate;

import static org.assertj.core.api.Assertions.assertThat;

import java.io.IOException;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.file.Files;
import java.nio.file.Path;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import picocli.CommandLine;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.json.JsonMapper;

class SimulateTest {
    @TempDir
    @SuppressWarnings("NullAway.Init")
    private Path folder;

    private final StringWriter out = new StringWriter();
    private final StringWriter err = new StringWriter();

    @BeforeEach
    void trace() throws IOException {
        Files.writeString(
                folder.resolve(Openb.NODES),
                "sn,cpu_milli,memory_mib,gpu,model\nn0,64000,262144,2,P100\nn1,64000,262144,2,P100\n");
        Files.writeString(
                folder.resolve("openb_pod_list_tiny.csv"),
                "name,cpu_milli,memory_mib,num_gpu,gpu_milli\np0,1000,2048,1,600\np1,1000,2048,1,400\n");
    }

    @Test
    void policiesStandSideBySideInTheTableAndEachReplayInTheJson() throws IOException {
        Path json = folder.resolve("out.json");

        assertThat(run(
                        "--trace",
                        folder.toString(),
                        "--policy",
                        "fgd,best-fit",
                        "--seeds",
                        "3",
                        "--json",
                        json.toString()))
                .isZero();

        assertThat(out.toString().lines().skip(1).findFirst().orElseThrow()).matches("workload +fgd +best-fit");
        assertThat(out.toString())
                .containsPattern("(?m)^tiny +\\d+\\.\\d\\d / +\\d+\\.\\d\\d +\\d+\\.\\d\\d / +\\d+\\.\\d\\d$");
        JsonNode results = JsonMapper.builder().build().readTree(Files.readString(json));
        assertThat(results.size()).isEqualTo(2);
        assertThat(results.get(0).get("policy").asString()).isEqualTo("fgd");
        assertThat(results.get(0).get("seeds").size()).isEqualTo(3);
    }

    @Test
    void threadsChangeNothing() {
        run("--trace", folder.toString(), "--threads", "1");
        String one = out.toString();
        out.getBuffer().setLength(0);
        run("--trace", folder.toString(), "--threads", "3");

        assertThat(out.toString()).isEqualTo(one);
    }

    @Test
    void whatIsWrongIsSaidAndWhatIsAllowed() {
        assertThat(run("--trace", folder.toString(), "--workload", "huge")).isEqualTo(2);
        assertThat(err.toString()).contains("\"huge\"").contains("there are tiny");
        assertThat(run("--trace", folder.toString(), "--seeds", "0")).isEqualTo(2);
        assertThat(err.toString()).contains("--seeds is 0; expected at least 1");
        assertThat(run("--trace", folder.resolve("none").toString())).isEqualTo(1);
        assertThat(err.toString()).contains("can't read");
    }

    private int run(String... args) {
        CommandLine line = Simulate.commandLine();
        line.setOut(new PrintWriter(out, true));
        line.setErr(new PrintWriter(err, true));
        return line.execute(args);
    }
}
