package io.aliquot.deviceplugin.guard;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.deviceplugin.attribution.ContainerName;
import io.aliquot.deviceplugin.attribution.HostProcesses;
import io.aliquot.deviceplugin.attribution.HostProcesses.HostProcess;
import io.aliquot.deviceplugin.guard.LimitsCheck.Missing;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Optional;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Mounts as the kernel lists them for a container of runc's. Process 100 is in it; its parent 50 is the runtime's. */
class LimitsCheckTest {
    private static final String UID = "0a1b2c3d-0000-4000-8000-00000000000f";
    private static final ContainerName MAIN = new ContainerName("team", "train", "main");
    private static final String CGROUP = "0::/kubepods/burstable/pod" + UID + "/" + "a".repeat(64);
    private static final String POD = "/var/lib/kubelet/pods/" + UID + "/volumes";

    private static final String PRELOAD =
            "221 217 254:0 /var/lib/aliquot/shim/0.2.0-0123456789ab/ld.so.preload /etc/ld.so.preload ro - ext4 /dev/vda rw\n";
    private static final String LIMITS = "220 217 0:58 / /etc/aliquot ro,relatime - tmpfs tmpfs rw\n";
    private static final String REST = """
            217 191 0:59 / / rw,relatime - overlay overlay rw,lowerdir=/a,upperdir=/b
            218 217 0:62 / /proc rw,relatime - proc proc rw
            222 217 254:0 /var/lib/kubelet/pods/UID/volumes/kubernetes.io~empty-dir/x /x rw - ext4 /dev/vda rw
            223 217 254:0 /var/lib/aliquot/shim/0.2.0-0123456789ab/libaliquot.so /usr/local/aliquot/0.2.0-0123456789ab/libaliquot.so ro - ext4 /dev/vda rw
            224 217 254:0 /var/lib/aliquot/slots/slot-003 /usr/local/aliquot/region rw - ext4 /dev/vda rw
            225 217 254:0 /var/lib/aliquot/agent/slot-003 /usr/local/aliquot/agent ro - ext4 /dev/vda rw
            """;
    private static final String OWN = LIMITS + PRELOAD + REST;

    private final Path proc;
    private final HostProcesses processes;
    private final LimitsCheck check;
    private long now;

    LimitsCheckTest(@TempDir Path proc) {
        this.proc = proc;
        processes = new HostProcesses(proc);
        check = new LimitsCheck(proc, Path.of("/var/lib/aliquot"), processes, () -> now);
    }

    @BeforeEach
    void aNode() throws IOException {
        process(50, 1, "0::/system.slice/containerd.service");
        mounts(
                50,
                "30 1 254:0 / / rw - ext4 /dev/vda rw\n"
                        + "31 30 0:57 / " + POD + "/kubernetes.io~downward-api/other rw - tmpfs tmpfs rw\n"
                        + "32 30 0:58 / " + POD
                        + "/kubernetes.io~downward-api/aliquot-vgpu-main rw - tmpfs tmpfs rw\n");
        process(99, 50, CGROUP);
        process(100, 99, CGROUP);
        Files.createDirectories(proc.resolve("self"));
        Files.writeString(
                proc.resolve("self/mountinfo"),
                "40 1 0:70 / / rw - overlay overlay rw\n41 40 254:0 /var/lib/aliquot /var/lib/aliquot rw - ext4 /dev/vda rw\n");
    }

    @Test
    void aProcessThatSeesItsLimitsLacksNothing() throws Exception {
        mounts(100, OWN);
        assertThat(find()).isEmpty();
    }

    /** The volume at /x holds the link e to /etc, and the runtime follows it. */
    @Test
    void mountsThroughALinkInAVolumeOrOfTheImageAreFound() throws Exception {
        mounts(100, OWN + "226 220 254:0 /var/lib/kubelet/pods/UID/volumes/mine /etc/aliquot rw - ext4 /dev/vda rw\n");
        assertThat(find()).contains(new Missing("/etc/aliquot", false));

        pass();
        mounts(100, OWN + "227 221 254:0 /var/lib/kubelet/pods/UID/none /etc/ld.so.preload rw - ext4 /dev/vda rw\n");
        assertThat(find()).contains(new Missing("/etc/ld.so.preload", false));

        pass();
        mounts(100, OWN + "223 217 254:0 /var/lib/kubelet/pods/UID/mine /etc rw - ext4 /dev/vda rw\n");
        assertThat(find()).contains(new Missing("/etc/aliquot", false));
    }

    /** A tmpfs of the tenant's own downward-API volume differs by its device alone. */
    @Test
    void eachFileOfAliquotIsChecked() throws Exception {
        mounts(100, OWN.replace("0:58", "0:57"));
        assertThat(find()).contains(new Missing("/etc/aliquot", false));
        for (String path : new String[] {
            "/usr/local/aliquot/0.2.0-0123456789ab/libaliquot.so",
            "/usr/local/aliquot/region",
            "/usr/local/aliquot/agent"
        }) {
            pass();
            mounts(100, OWN + cover(path));
            assertThat(find()).contains(new Missing(path, false));
        }
    }

    private static String cover(String path) {
        String id = OWN.lines()
                .filter(line -> line.contains(" " + path + " "))
                .findFirst()
                .orElseThrow()
                .substring(0, 3);
        return "240 " + id + " 254:0 /var/lib/aliquot-of-mine/slots/x " + path + " rw - ext4 /dev/vda rw\n";
    }

    @Test
    void aRenamedFolderIsToldFromOneThatIsCoveredOrOutOfSight() throws Exception {
        mounts(100, OWN.replace(" /etc/", " /old/"));
        assertThat(find()).contains(new Missing("/etc/aliquot", true));

        pass();
        mounts(100, REST);
        assertThat(find()).as("another mount namespace").contains(new Missing("/etc/aliquot", false));

        pass();
        mounts(100, "");
        assertThat(find()).as("chroot").contains(new Missing("/etc/aliquot", false));
    }

    @Test
    void aFileThatWasReplacedOnTheHostIsStillTheAgents() throws Exception {
        mounts(100, OWN.replace("/ld.so.preload /etc", "/ld.so.preload//deleted /etc"));
        assertThat(find()).isEmpty();
    }

    @Test
    void theMountsOfAProcessWhoseFirstThreadHasEndedAreThoseOfAnother() throws Exception {
        mounts(100, OWN);
        Path thread = Files.createDirectories(proc.resolve("100/task/101"));
        Files.createDirectories(proc.resolve("100/task/100"));
        Files.move(proc.resolve("100/mountinfo"), thread.resolve("mountinfo"));
        Files.writeString(thread.resolve("mountinfo"), REST);

        assertThat(find()).contains(new Missing("/etc/aliquot", false));
    }

    @Test
    void nothingIsSaidWhileTheRightMountsAreNotKnown() throws Exception {
        mounts(100, REST);
        mounts(50, "30 1 254:0 / / rw - ext4 /dev/vda rw\n");
        assertThat(find()).isEmpty();

        pass();
        aNode();
        assertThat(find()).isPresent();
    }

    @Test
    void aLimitFileThatTheKubeletHasMountedAgainIsTheRightOne() throws Exception {
        mounts(100, OWN);
        assertThat(find()).isEmpty();

        pass();
        mounts(50, "32 30 0:60 / " + POD + "/kubernetes.io~downward-api/aliquot-vgpu-main rw - tmpfs tmpfs rw\n");
        mounts(100, OWN.replace("0:58", "0:60"));
        assertThat(find()).isEmpty();
    }

    @Test
    void aProcessIsCheckedAgainEveryFiveSeconds() throws Exception {
        mounts(100, OWN);
        assertThat(find()).isEmpty();
        mounts(100, REST);
        now += Duration.ofSeconds(4).toNanos();
        assertThat(find()).isEmpty();
        now += Duration.ofSeconds(1).toNanos();
        assertThat(find()).isPresent();
    }

    private Optional<Missing> find() {
        HostProcess process = processes.find(100).orElseThrow();
        return check.find(100, process, MAIN);
    }

    private void pass() {
        now += Duration.ofSeconds(5).toNanos();
    }

    private void process(int pid, int parent, String cgroup) throws IOException {
        Path folder = Files.createDirectories(proc.resolve(Integer.toString(pid)));
        Files.writeString(
                folder.resolve("stat"),
                "%d (a) b) R %d 1 1 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 7 0 0\n".formatted(pid, parent));
        Files.writeString(folder.resolve("status"), "Name:\ta\nNSpid:\t%d\t7\n".formatted(pid));
        Files.writeString(folder.resolve("cgroup"), cgroup);
    }

    private void mounts(int pid, String mountinfo) throws IOException {
        Files.writeString(proc.resolve(Integer.toString(pid)).resolve("mountinfo"), mountinfo);
    }
}
