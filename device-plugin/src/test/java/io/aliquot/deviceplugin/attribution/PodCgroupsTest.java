package io.aliquot.deviceplugin.attribution;

import static org.assertj.core.api.Assertions.assertThat;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Set;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

final class PodCgroupsTest {
    private static final String UID = "0a1b2c3d-0000-4000-8000-00000000000f";
    private static final String OTHER = "ffffffff-0000-4000-8000-00000000000f";

    private final Path root;
    private final PodCgroups cgroups;

    PodCgroupsTest(@TempDir Path root) {
        this.root = root;
        cgroups = new PodCgroups(root);
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                // version 2: systemd, and kind's nodes
                "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podU_ID.slice",
                "kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-podU_ID.slice",
                // cgroupfs, with version 1 below each controller
                "kubepods/besteffort/podUID",
                "cpu,cpuacct/kubepods/podUID",
                "memory/docker/node/kubelet/kubepods/burstable/podUID"
            })
    void findsThePodInEachKindOfHierarchy(String path) throws IOException {
        make(path.replace("UID", UID).replace("U_ID", UID.replace('-', '_')));
        make("system.slice/ssh.service");

        assertThat(cgroups.uids()).hasValueSatisfying(uids -> assertThat(uids).containsExactly(UID));
        assertThat(cgroups.kind()).isEqualTo(path.contains(".slice") ? "v1 systemd" : "v1 cgroupfs");
    }

    @Test
    void theRootOfVersion2ListsItsControllers() throws IOException {
        assertThat(cgroups.kind()).isEqualTo("hidden");
        Files.createFile(root.resolve("cgroup.controllers"));
        make("kubepods.slice/kubepods-pod" + UID.replace('-', '_') + ".slice");

        assertThat(cgroups.kind()).isEqualTo("v2 systemd");
    }

    @Test
    void aPodsCgroupCountsWithoutAProcessAndUntilItIsRemoved() throws IOException {
        make("kubepods/pod" + OTHER);
        make("kubepods/pod" + UID);
        assertThat(cgroups.uids()).hasValueSatisfying(uids -> assertThat(uids).containsExactlyInAnyOrder(UID, OTHER));

        Files.delete(root.resolve("kubepods/pod" + UID));

        assertThat(cgroups.uids()).hasValueSatisfying(uids -> assertThat(uids).containsExactly(OTHER));
    }

    @Test
    void aContainersOwnCgroupsAreNoPods() throws IOException {
        make("kubepods/pod" + UID + "/container/kubepods/pod" + OTHER);

        assertThat(cgroups.uids()).hasValueSatisfying(uids -> assertThat(uids).containsExactly(UID));
    }

    /** The agent's own pod has one, so without any it does not see the host's. */
    @Test
    void noPodAtAllIsNoAnswer() throws IOException {
        make("system.slice/ssh.service");
        assertThat(cgroups.uids()).isEmpty();
        assertThat(new PodCgroups(root.resolve("missing")).uids()).isEmpty();
    }

    /** A sandbox is one, too; CRI-O's conmon is none. */
    @ParameterizedTest
    @ValueSource(strings = {"kubepods/podUID/ID", "kubepods.slice/kubepods-podU_ID.slice/crio-ID.scope"})
    void theContainersOfAPodAreThoseBelowItsCgroup(String path) throws IOException {
        String folder = path.replace("UID", UID).replace("U_ID", UID.replace('-', '_'));
        make(folder.replace("ID", "a".repeat(64)));
        make(folder.replace("crio-ID", "crio-conmon-" + "b".repeat(64)).replace("ID", "c".repeat(64)));
        make("kubepods/pod" + OTHER + "/" + "d".repeat(64));

        assertThat(cgroups.containers(Set.of(UID)).keySet())
                .contains(new ContainerId(UID, "a".repeat(64)))
                .extracting(ContainerId::id)
                .doesNotContain("b".repeat(64), "d".repeat(64));
    }

    @Test
    void theProcessesOfAContainerAreThoseOfItsCgroup() throws IOException {
        make("container");
        Files.writeString(root.resolve("container/cgroup.procs"), "17\n23\n");

        assertThat(PodCgroups.processes(root.resolve("container"))).containsExactly(17, 23);
        assertThat(PodCgroups.processes(root.resolve("gone"))).isEmpty();
    }

    private void make(String path) throws IOException {
        Files.createDirectories(root.resolve(path));
    }
}
