package io.aliquot.deviceplugin;

import static io.aliquot.testing.Await.await;
import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.format.JsonFields;
import io.aliquot.api.nodes.Inventory;
import io.aliquot.api.shim.ContainerPaths;
import io.aliquot.deviceplugin.nvml.FakeDriver;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import tools.jackson.databind.JsonNode;

/** The agent's own process and the stand-ins of the acceptance kit, whose checks run in the long tier only. */
@Timeout(120)
final class AgentWithoutClusterTest {
    private static final Path BUILD = Path.of("..", "native-shim", "build").toAbsolutePath();

    @Test
    void theAgentWritesItsInventoryAllocatesAndReports(@TempDir Path folder) throws Exception {
        var driver = new FakeDriver();
        driver.install("NVIDIA A100-SXM4-80GB;81920;108");
        for (String name :
                List.of("kubelet/device-plugins", "kubelet/pod-resources", "proc", "logs", "cgroups", "cdi")) {
            Files.createDirectories(folder.resolve(name));
        }
        Path image = Files.createDirectory(folder.resolve("image"));
        for (String file : List.of("libaliquot.so", "VERSION", "arbiter/aliquot-arbiter", "hook/aliquot-hook")) {
            Files.createSymbolicLink(image.resolve(Path.of(file).getFileName()), BUILD.resolve(file));
        }
        Files.writeString(folder.resolve("token"), "none");
        int reportPort = freePort();
        try (var standIns = new StandIns(folder.resolve("kubelet"), "node1", reportPort)) {
            var builder = new ProcessBuilder(
                    Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                    "-cp",
                    System.getProperty("java.class.path"),
                    AgentWithoutCluster.class.getName(),
                    Integer.toString(standIns.apiServer()),
                    folder.toString());
            builder.environment().put("LD_LIBRARY_PATH", driver.folder());
            builder.environment().put("NODE_NAME", "node1");
            builder.environment()
                    .put("ALIQUOT_KUBELET_ROOT", folder.resolve("kubelet").toString());
            builder.environment()
                    .put("ALIQUOT_STATE_DIR", folder.resolve("state").toString());
            builder.environment().put("ALIQUOT_METRICS_PORT", "0");
            builder.environment().put("ALIQUOT_REPORT_PORT", Integer.toString(reportPort));
            Process agent = builder.redirectErrorStream(true)
                    .redirectOutput(folder.resolve("log").toFile())
                    .start();
            try {
                await(() -> ask(standIns, "{'do':'registration'}")
                        .path("resource")
                        .asString("")
                        .equals("aliquot.io/vgpu"));
                await(() -> annotation(standIns, "aliquot.io/gpus").isString());
                var inventory =
                        Inventory.parse(annotation(standIns, "aliquot.io/gpus").asString());
                assertThat(inventory.gpus()).singleElement().matches(gpu -> gpu.healthy() && gpu.memoryMiB() == 81_920);
                JsonNode mounts = ask(standIns, "{'do':'allocate','pod':'a','slot':'slot-003'}")
                        .path("mounts");
                assertThat(Path.of(mounts.path(ContainerPaths.REGION).asString()))
                        .isRegularFile();
                assertThat(Path.of(mounts.path(ContainerPaths.AGENT).asString()))
                        .isRegularFile();
                await(() -> ask(standIns, "{'do':'report','allocation':{'gpus':[],'limits':[],'pods':[]}}")
                                .path("gpus")
                                .size()
                        == 1);
            } finally {
                agent.destroyForcibly().waitFor();
            }
        }
    }

    private static int freePort() throws Exception {
        try (var socket = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            return socket.getLocalPort();
        }
    }

    private static JsonNode annotation(StandIns standIns, String name) throws InterruptedException {
        return ask(standIns, "{'do':'node'}")
                .path("metadata")
                .path("annotations")
                .path(name);
    }

    private static JsonNode ask(StandIns standIns, String request) throws InterruptedException {
        return standIns.answer(JsonFields.JSON.readTree(request.replace('\'', '"')));
    }
}
