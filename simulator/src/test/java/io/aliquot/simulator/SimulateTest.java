package io.aliquot.simulator;

import static org.assertj.core.api.Assertions.assertThat;

import java.io.IOException;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
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
                folder.resolve(OpenbTrace.NODES),
                "sn,cpu_milli,memory_mib,gpu,model\nn0,64000,262144,2,P100\nn1,64000,262144,2,P100\n");
        Files.writeString(
                folder.resolve("openb_pod_list_tiny.csv"),
                "name,cpu_milli,memory_mib,num_gpu,gpu_milli\np0,1000,2048,1,600\np1,1000,2048,1,400\n");
    }

    @Test
    void theTableHasAColumnPerPolicyAndTheJsonHasEachReplay() throws IOException {
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
        assertThat(results.get("results").size()).isEqualTo(2);
        JsonNode fgd = results.get("results").get(0);
        assertThat(fgd.get("policy").asString()).isEqualTo("fgd");
        assertThat(fgd.get("replays").size()).isEqualTo(3);
        assertThat(fgd.get("curve").get("allocated").get("mean").size()).isGreaterThan(200);
        assertThat(fgd.get("gpus").size()).isEqualTo(2);
        assertThat(results.at("/nodes/0/uuids").size()).isEqualTo(2);
        assertThat(fgd.get("gpus").toString()).isEqualTo("[[100,80],[100,100]]");
        assertThat(fgd.at("/held/memoryMiB").toString()).isEqualTo("[[1000,800],[1000,1000]]");
        assertThat(fgd.at("/held/vgpus").get(1).size()).isEqualTo(2);
        assertThat(fgd.at("/mean/decisionMillis/p50").asDouble())
                .isPositive()
                .isLessThanOrEqualTo(fgd.at("/mean/decisionMillis/p99").asDouble());
        assertThat(results.get("program").get("arguments").get(0).asString()).isEqualTo("--trace");
    }

    @Test
    void theCsvHasALinePerReplay() throws IOException {
        Path csv = folder.resolve("out.csv");
        Files.move(folder.resolve("openb_pod_list_tiny.csv"), folder.resolve("openb_pod_list_a, \"b\".csv"));

        run("--trace", folder.toString(), "--policy", "fgd,best-fit", "--seeds", "3", "--csv", csv.toString());

        List<String> lines = Files.readAllLines(csv);
        assertThat(lines).hasSize(7);
        assertThat(lines.get(0))
                .startsWith(
                        "workload,policy,seed,allocated_at_capacity,allocated,placed_at_capacity,placed,stranded,pods,"
                                + "seconds,decision_p50_ms,"
                                + "decision_p99_ms,failed_");
        assertThat(lines.get(6)).startsWith("\"a, \"\"b\"\"\",best-fit,2,");
    }

    @Test
    void thePageLoadsNothingAndTreatsInputAsText() throws IOException {
        Path html = folder.resolve("out.html");
        String name = "<img src=x onerror=alert(1)> & {{data}} -->";
        Files.writeString(
                folder.resolve(OpenbTrace.NODES),
                "sn,cpu_milli,memory_mib,gpu,model\n<" + "/script><b>n0,64000,262144,2,P100\n");
        Files.move(folder.resolve("openb_pod_list_tiny.csv"), folder.resolve("openb_pod_list_" + name + ".csv"));

        run("--trace", folder.toString(), "--seeds", "2", "--html", html.toString());

        String page = Files.readString(html);
        assertThat(page).doesNotContain("<img").doesNotContain("innerHTML").doesNotContainPattern("(src|href)=\"");
        assertThat(page.split("</script>", -1)).hasSize(3);
        String data = page.substring(page.indexOf("id=\"data\">") + 10);
        JsonNode read = JsonMapper.builder().build().readTree(data.substring(0, data.indexOf("</script>")));
        assertThat(read.get("nodes").get(0).get("name").asString()).isEqualTo("</script><b>n0");
        assertThat(read.get("results").get(0).get("workload").asString()).isEqualTo(name);
    }

    @Test
    void aDumpIsReplayedInItsOwnOrderAndTheOutputNamesWhatIsLeftOut() {
        assertThat(run("--dump", "src/test/resources/gfd/dump.json", "--seeds", "1"))
                .isZero();

        assertThat(err.toString()).contains("note: 2 of 8 nodes have no GPUs");
        assertThat(out.toString()).contains("cluster");
    }

    @Test
    void theFigureAtCapacityIsMissingIfThePodsRequestLessThanTheCapacity() throws IOException {
        Path json = folder.resolve("out.json");

        run("--trace", folder.toString(), "--arrivals", "given", "--policy", "fgd", "--json", json.toString());

        assertThat(out.toString()).contains("– / 25.00");
        JsonNode mean = JsonMapper.builder()
                .build()
                .readTree(Files.readString(json))
                .get("results")
                .get(0)
                .get("mean");
        assertThat(mean.get("atCapacity").isNull()).isTrue();
        assertThat(mean.get("allocated").asDouble()).isEqualTo(25);
    }

    @Test
    void withDeparturesPodsEndAndTheFiguresAreMeansOverTime() throws IOException {
        Path json = folder.resolve("out.json");
        Files.writeString(folder.resolve("openb_pod_list_tiny.csv"), """
                name,cpu_milli,memory_mib,num_gpu,gpu_milli,creation_time,deletion_time
                p0,1000,2048,1,600,0,10
                p1,1000,2048,1,400,0,30
                """);

        assertThat(run(
                        "--trace",
                        folder.toString(),
                        "--departures",
                        "--lifetimes",
                        "20",
                        "--seeds",
                        "2",
                        "--json",
                        json.toString()))
                .isZero();

        JsonNode result = JsonMapper.builder()
                .build()
                .readTree(Files.readString(json))
                .get("results")
                .get(0);
        assertThat(out.toString()).contains("mean over time");
        assertThat(result.get("mean").get("allocated").asDouble()).isBetween(50.0, 100.0);
        // All GPUs have the same memory.
        assertThat(result.get("mean").get("placed"))
                .isEqualTo(result.get("mean").get("allocated"));
        assertThat(out.toString()).doesNotContain("by the mean GPU");
        assertThat(result.get("curve").get("allocated").get("mean").size()).isEqualTo(2001);
        assertThat(run("--trace", folder.toString(), "--departures", "--arrivals", "given"))
                .isEqualTo(2);
        assertThat(run("--trace", folder.toString(), "--lifetimes", "1")).isEqualTo(2);
    }

    @Test
    void aPodIsPlacedOnlyWhereBothItsMemoryAndItsCoresFit() throws IOException {
        Path json = folder.resolve("out.json");
        Path html = folder.resolve("out.html");
        Files.writeString(folder.resolve(OpenbTrace.NODES), """
                sn,cpu_milli,memory_mib,gpu,model,gpu_memory_mib
                n0,64000,262144,1,T4,16000
                n1,64000,262144,1,L40S,48000
                """);
        Files.writeString(folder.resolve("openb_pod_list_tiny.csv"), """
                name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_mem_mib,gpu_cores,gpu_spec,creation_time
                first,1000,2048,1,,4000,60,T4,1
                lacks-cores,1000,2048,1,,4000,60,T4,2
                fits-exactly,1000,2048,1,,12000,40,T4,3
                lacks-memory,1000,2048,1,,1,,T4,4
                too-large,1000,2048,1,,16001,1,T4,5
                elsewhere,1000,2048,1,,16000,10,,6
                """);

        assertThat(run(
                        "--trace",
                        folder.toString(),
                        "--arrivals",
                        "given",
                        "--policy",
                        "fragmentation,fgd,binpack,spread",
                        "--seeds",
                        "1",
                        "--json",
                        json.toString(),
                        "--html",
                        html.toString()))
                .isZero();

        JsonNode results =
                JsonMapper.builder().build().readTree(Files.readString(json)).get("results");
        assertThat(results.size()).isEqualTo(4);
        for (JsonNode result : results) {
            JsonNode mean = result.get("mean");
            assertThat(mean.get("failed").toString()).isEqualTo("{\"never\":1.0,\"model\":2.0}");
            // Allocated: the T4 and a third of the L40S. Placed: 60 %, 40 % and 50 % of the mean memory, 32,000 MiB.
            assertThat(mean.get("allocated").asDouble()).isEqualTo(66.7);
            assertThat(mean.get("placed").asDouble()).isEqualTo(75);
        }
        assertThat(out.toString()).containsPattern("by the mean GPU.*\\R.*\\Rtiny +50\\.00 / 75\\.00");
        assertThat(Files.readString(html)).contains("\"alike\":false"); // the page then has a second table
    }

    @Test
    void theHelpShowsExamplesAndExitCodes() {
        assertThat(run("--help")).isZero();
        assertThat(out.toString()).contains("Examples:").contains("--dump -").contains("Exit codes:");
        out.getBuffer().setLength(0);
        assertThat(run("--version")).isZero();
        assertThat(out.toString()).startsWith("aliquot ");
    }

    @Test
    void conflictingArgumentsAreRejected() {
        assertThat(run()).isEqualTo(2);
        assertThat(err.toString()).contains("--trace").contains("--dump").contains("--live");
        assertThat(run("--trace", folder.toString(), "--live")).isEqualTo(2);
        assertThat(run("--trace", folder.toString(), "--context", "c")).isEqualTo(2);
        assertThat(err.toString()).contains("--context and --kubeconfig are for --live");
        assertThat(run("--dump", "x", "--workload", "w")).isEqualTo(2);
        assertThat(run("--trace", folder.toString(), "--html", folder + "/no/such/a.html"))
                .isEqualTo(2);
        assertThat(err.toString()).contains("the folder does not exist");
    }

    @Test
    void theNumberOfThreadsDoesNotChangeTheResults() {
        run("--trace", folder.toString(), "--threads", "1");
        String one = out.toString();
        out.getBuffer().setLength(0);
        run("--trace", folder.toString(), "--threads", "3");

        assertThat(out.toString()).isEqualTo(one);
    }

    @Test
    void anInvalidArgumentIsReportedWithTheValidValues() {
        assertThat(run("--trace", folder.toString(), "--workload", "huge")).isEqualTo(2);
        assertThat(err.toString()).contains("\"huge\"").contains("has tiny");
        assertThat(run("--trace", folder.toString(), "--seeds", "0")).isEqualTo(2);
        assertThat(err.toString()).contains("--seeds is 0; expected at least 1");
        assertThat(run("--trace", folder.resolve("none").toString())).isEqualTo(1);
        assertThat(err.toString()).contains("cannot read");
    }

    private int run(String... args) {
        CommandLine line = Simulate.commandLine();
        line.setOut(new PrintWriter(out, true));
        line.setErr(new PrintWriter(err, true));
        return line.execute(args);
    }
}
