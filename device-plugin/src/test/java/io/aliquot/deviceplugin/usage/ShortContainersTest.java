package io.aliquot.deviceplugin.usage;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.shim.AgentFile;
import io.aliquot.api.shim.Region;
import io.aliquot.deviceplugin.attribution.ContainerName;
import io.aliquot.deviceplugin.attribution.Limits;
import io.aliquot.deviceplugin.files.SlotFiles;
import io.aliquot.deviceplugin.guard.RecentFindings;
import io.aliquot.deviceplugin.health.XidTable;
import io.aliquot.deviceplugin.kubelet.DeviceHolders;
import io.aliquot.deviceplugin.nvml.GpuUsage;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.OptionalInt;
import java.util.OptionalLong;
import java.util.Set;
import java.util.UUID;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/**
 * 5,000 containers of a second each, in the agent's heap. Regression: 800 in a quarter of an hour ended it, by an
 * OutOfMemoryError.
 */
final class ShortContainersTest {
    private static final int CONTAINERS = 5_000;
    private static final int AT_ONCE = 50;
    private static final List<String> GPUS =
            List.of("GPU-11111111-2222-3333-4444-555555555555", "GPU-11111111-2222-3333-4444-666666666666");

    @Test
    void theAgentKeepsWhatItKnowsOfThemInItsHeap(@TempDir Path host) throws Exception {
        Path output = host.resolve("output");
        Process program = new ProcessBuilder(
                        Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                        // As in the image (lab/layers.sh)
                        "-XX:+UseSerialGC",
                        "-Xmx32m",
                        "-Xmn2m",
                        "-XX:+ExitOnOutOfMemoryError",
                        "-cp",
                        System.getProperty("java.class.path"),
                        Program.class.getName(),
                        host.toString())
                .redirectErrorStream(true)
                .redirectOutput(output.toFile())
                .start();
        int status = program.waitFor();

        assertThat(Files.readString(output, StandardCharsets.UTF_8)).contains("seen " + CONTAINERS + "\n");
        assertThat(status).isZero();
    }

    /** All that the agent keeps of containers, over a host made of files. */
    static final class Program {
        private final Path host;
        private final List<DeviceHolders.Holder> holders = new ArrayList<>();
        private final Map<Integer, Path> links = new HashMap<>();
        private long now;

        private Program(Path host) {
            this.host = host;
        }

        public static void main(String[] args) throws Exception {
            System.out.println("seen " + new Program(Path.of(args[0])).run());
        }

        private int run() throws Exception {
            for (String folder : List.of("state/slots", "state/agent", "logs")) {
                Files.createDirectories(host.resolve(folder));
            }
            var recent = new RecentUsage(() -> Limits.NONE, () -> Instant.EPOCH.plusNanos(now), () -> now);
            var xids = new ApplicationXids(() -> now);
            var tracker = new UsageTracker(
                    host.resolve("proc"),
                    host.resolve("logs"),
                    host.resolve("state"),
                    SlotFiles.open(host.resolve("state")),
                    () -> new DeviceHolders.Known(List.copyOf(holders)),
                    () -> Limits.NONE,
                    new RecentFindings(() -> now),
                    List.of(recent, xids, new ContextMeasurement()),
                    () -> now);
            int seen = 0;
            for (int first = 0; first < CONTAINERS; first += AT_ONCE) {
                List<GpuUsage.GpuProcess> running = new ArrayList<>();
                holders.clear();
                for (int i = 0; i < AT_ONCE; i++) {
                    int pid = 100 + i;
                    start(pid, new ContainerName("team", "job-" + (first + i), "main"), "slot-" + i);
                    running.add(new GpuUsage.GpuProcess(pid, OptionalLong.of(0)));
                }
                now += Duration.ofSeconds(1).toNanos();
                GPUS.forEach(
                        gpu -> xids.add(gpu, XidTable.load(Set.of(), Set.of()).of(31)));
                tracker.sample(since -> GPUS.stream()
                        .map(gpu -> new GpuUsage(
                                gpu,
                                OptionalInt.of(50),
                                OptionalInt.empty(),
                                OptionalInt.empty(),
                                running.stream()
                                        .filter(process -> process.pid() % 2 == GPUS.indexOf(gpu))
                                        .toList(),
                                List.of()))
                        .toList());
                seen += recent.latest().containers().size();
            }
            recent.report("node1", xids.recent(), List.of()).orElseThrow().print();
            recent.history(GPUS.getFirst(), List.of()).orElseThrow().print();
            return seen;
        }

        private void start(int pid, ContainerName name, String slot) throws Exception {
            String uid = new UUID(0, pid + now).toString();
            String id = (uid + uid).replace("-", "");
            Path folder = Files.createDirectories(host.resolve("proc/" + pid));
            Files.writeString(
                    folder.resolve("stat"),
                    "%d (a) R 1 1 1 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 %d 0 0\n".formatted(pid, now + pid));
            Files.writeString(folder.resolve("cgroup"), "0::/kubepods/burstable/pod" + uid + "/" + id);
            Path link = host.resolve("logs/%s_team_main-%s.log".formatted(name.pod(), id));
            Files.createSymbolicLink(link, Path.of("/var/log/pods/team_%s_%s/main/0.log".formatted(name.pod(), uid)));
            Path former = links.put(pid, link);
            if (former != null) {
                Files.delete(former);
            } else {
                Files.writeString(folder.resolve("status"), "Name:\ta\nPid:\t%d\nNSpid:\t%d\t7\n".formatted(pid, pid));
                Files.write(host.resolve("state/agent/" + slot), AgentFile.fresh());
                Files.write(host.resolve("state/slots/" + slot), Region.fresh());
            }
            holders.add(new DeviceHolders.Holder("team/" + name.pod(), "main", "aliquot.io/vgpu", List.of(slot)));
        }
    }
}
