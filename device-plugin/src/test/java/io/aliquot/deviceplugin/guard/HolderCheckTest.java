package io.aliquot.deviceplugin.guard;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.pods.CorePolicy;
import io.aliquot.api.pods.Held;
import io.aliquot.api.pods.Priority;
import io.aliquot.api.usage.NodeAllocation.Limit;
import io.aliquot.api.usage.PodContainer;
import io.aliquot.api.usage.UsageReport.Finding;
import io.aliquot.api.usage.UsageReport.Problem;
import io.aliquot.deviceplugin.attribution.Limits;
import io.aliquot.deviceplugin.attribution.PodCgroups;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** A host made of files. By the scheduler, container main of the pod train holds a vGPU; process 100 is main's first. */
final class HolderCheckTest {
    private static final String UID = "0a1b2c3d-0000-4000-8000-00000000000f";
    private static final String VOLUME =
            "/var/lib/kubelet/pods/" + UID + "/volumes/kubernetes.io~downward-api/aliquot-vgpu-main";
    private static final PodContainer MAIN = new PodContainer("team", "train", UID, "main");

    private static final String ROOT = "217 191 0:59 / / rw,relatime - overlay overlay rw\n";
    private static final String DRIVER =
            "218 217 254:0 /usr/lib/libnvidia-ml.so.570 /usr/lib/libnvidia-ml.so.570 ro - ext4 /dev/vda rw\n";
    private static final String LIMITS = "220 217 0:58 / /etc/aliquot ro - tmpfs tmpfs rw\n";
    private static final String ALLOCATED = """
            221 217 254:0 /var/lib/aliquot/shim/0.2.0/ld.so.preload /etc/ld.so.preload ro - ext4 /dev/vda rw
            223 217 254:0 /var/lib/aliquot/shim/0.2.0/libaliquot.so /usr/local/aliquot/0.2.0/libaliquot.so ro - ext4 /dev/vda rw
            224 217 254:0 /var/lib/aliquot/slots/slot-003 /usr/local/aliquot/region rw - ext4 /dev/vda rw
            225 217 254:0 /var/lib/aliquot/agent/slot-003 /usr/local/aliquot/agent ro - ext4 /dev/vda rw
            """;
    private static final String WITHOUT_ALLOCATE = ROOT + DRIVER + LIMITS;

    private final Path host;
    private Limits limits = new Limits(List.of(new Limit(
            MAIN, "GPU-11111111-2222-3333-4444-555555555555", 2000, 0, CorePolicy.FIXED, Priority.NORMAL, Held.SHARE)));
    private long now;
    private final RecentFindings findings = new RecentFindings(() -> now);
    private final HolderCheck check;

    HolderCheckTest(@TempDir Path host) throws IOException {
        this.host = host;
        for (String folder : List.of("proc/self", "logs", "cgroups")) {
            Files.createDirectories(host.resolve(folder));
        }
        check = new HolderCheck(
                host.resolve("proc"),
                host.resolve("logs"),
                Path.of("/var/lib/aliquot"),
                new PodCgroups(host.resolve("cgroups")),
                () -> limits,
                findings,
                () -> now);
    }

    @BeforeEach
    void aNode() throws IOException {
        Files.writeString(host.resolve("proc/self/mountinfo"), """
                40 1 0:70 / / rw - overlay overlay rw
                41 40 254:0 /var/lib/aliquot /var/lib/aliquot rw - ext4 /dev/vda rw
                """);
        process(50, 1, "0::/system.slice/containerd.service", "32 30 0:58 / " + VOLUME + " rw - tmpfs tmpfs rw\n");
    }

    /** As after a reboot of a node whose kubelet has lost its device checkpoint; no process uses the GPU. */
    @Test
    void aContainerThatWasStartedWithoutAllocateIsFoundInTenSecondsAndItsSandboxIsNot() throws Exception {
        container('a', "main", WITHOUT_ALLOCATE, 100);
        container('b', "", ROOT, 90);
        run(2);
        assertThat(findings.list()).containsExactly(unlimited("/etc/ld.so.preload"));
    }

    @Test
    void aContainerThatSeesItsFilesIsLeftAlone() throws Exception {
        container('a', "main", WITHOUT_ALLOCATE + ALLOCATED, 100);
        run(20);
        assertThat(findings.list()).isEmpty();
    }

    @Test
    void eachFileOfAliquotIsLookedFor() throws Exception {
        container('a', "main", ROOT + DRIVER + ALLOCATED, 100);
        run(2);
        assertThat(findings.list()).containsExactly(unlimited("/etc/aliquot"));
        container('a', "main", WITHOUT_ALLOCATE + ALLOCATED.replaceAll(".*/region rw.*\n", ""), 100);
        run(4);
        assertThat(findings.list()).containsExactly(unlimited("/usr/local/aliquot/region"));
    }

    @Test
    void containersWithoutAShareAndPodsOfOthersAreLeftAlone() throws Exception {
        container('a', "sidecar", WITHOUT_ALLOCATE, 100);
        run(10);
        limits = Limits.NONE;
        container('b', "main", WITHOUT_ALLOCATE, 101);
        run(10);
        assertThat(findings.list()).isEmpty();
    }

    /** Its first process still sees the host's mounts: those of its own are not there yet. */
    @Test
    void aContainerThatIsBeingCreatedIsNone() throws Exception {
        container('a', "main", ROOT + DRIVER + "32 30 0:58 / " + VOLUME + " rw - tmpfs tmpfs rw\n", 100);
        run(10);
        assertThat(findings.list()).isEmpty();
    }

    /** Programs such as bubblewrap give their children other mounts; a later process of the container has a larger start time. */
    @Test
    void theFirstProcessOfAContainerCounts() throws Exception {
        container('a', "main", WITHOUT_ALLOCATE + ALLOCATED, 100);
        process(7, 100, cgroup('a'), ROOT + DRIVER);
        Files.writeString(folder('a').resolve("cgroup.procs"), "7\n100\n");
        Files.writeString(host.resolve("proc/7/stat"), stat(7, 100, 8));
        run(10);
        assertThat(findings.list()).isEmpty();
    }

    /** As one that runc has started, or gVisor. */
    @Test
    void aContainerInWhichNothingOfTheDriverIsMountedSeesNoGpu() throws Exception {
        container('a', "main", ROOT + LIMITS + ALLOCATED, 100);
        run(2);
        assertThat(findings.list()).containsExactly(new Finding(MAIN, new Problem.GpuNotSeen()));
    }

    @Test
    void whatHasEndedOrCannotBeReadIsNoFinding() throws Exception {
        container('a', "main", WITHOUT_ALLOCATE, 100);
        Files.delete(host.resolve("proc/100/mountinfo"));
        run(10);
        container('b', "main", WITHOUT_ALLOCATE, 101);
        Files.writeString(folder('b').resolve("cgroup.procs"), "");
        run(10);
        Files.delete(host.resolve("logs/train_team_main-" + "a".repeat(64) + ".log"));
        assertThat(findings.list()).isEmpty();
    }

    private static Finding unlimited(String path) {
        return new Finding(MAIN, new Problem.LimitsNotSeen(path));
    }

    private void run(int times) {
        for (int i = 0; i < times; i++) {
            check.run();
            now += HolderCheck.PERIOD.toNanos();
        }
    }

    /** @param name empty for a sandbox, to whose log there is no link */
    private void container(char id, String name, String mounts, int pid) throws IOException {
        process(pid, 50, cgroup(id), mounts);
        Files.createDirectories(folder(id));
        Files.writeString(folder(id).resolve("cgroup.procs"), pid + "\n");
        Path link = host.resolve(
                "logs/train_team_" + name + "-" + String.valueOf(id).repeat(64) + ".log");
        if (!name.isEmpty() && !Files.isSymbolicLink(link)) {
            Files.createSymbolicLink(link, Path.of("/var/log/pods/team_train_" + UID + "/" + name + "/0.log"));
        }
    }

    private Path folder(char id) {
        return host.resolve(
                "cgroups/kubepods/pod" + UID + "/" + String.valueOf(id).repeat(64));
    }

    private static String cgroup(char id) {
        return "0::/kubepods/pod" + UID + "/" + String.valueOf(id).repeat(64);
    }

    private void process(int pid, int parent, String cgroup, String mounts) throws IOException {
        Path folder = Files.createDirectories(host.resolve("proc/" + pid));
        Files.writeString(folder.resolve("stat"), stat(pid, parent, 7));
        Files.writeString(folder.resolve("status"), "Name:\ta\nNSpid:\t%d\t1\n".formatted(pid));
        Files.writeString(folder.resolve("cgroup"), cgroup);
        Files.writeString(folder.resolve("mountinfo"), mounts);
    }

    private static String stat(int pid, int parent, int start) {
        return "%d (a) b) R %d 1 1 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 %d 0 0\n".formatted(pid, parent, start);
    }
}
