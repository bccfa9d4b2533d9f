package io.aliquot.deviceplugin.attribution;

import static org.assertj.core.api.Assertions.assertThat;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

final class ContainerIdTest {
    private static final String UID = "0a1b2c3d-0000-4000-8000-00000000000f";
    private static final String ID = "0123456789abcdef".repeat(4);

    @ParameterizedTest
    @ValueSource(
            strings = {
                // cgroup v1, driver cgroupfs, containerd and CRI-O
                "12:memory:/kubepods/burstable/podUID/ID\n11:cpu,cpuacct:/kubepods/burstable/podUID/ID",
                "12:memory:/kubepods/podUID/crio-ID",
                // v1, systemd
                "1:name=systemd:/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podU_ID.slice/cri-containerd-ID.scope",
                // v2, from the host's cgroup namespace and from another one
                "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podU_ID.slice/crio-ID.scope",
                "0::/../../kubepods-podU_ID.slice/cri-containerd-ID.scope",
                "0::/kubepods/podUID/ID",
                // a container that runs systemd itself, and CRI-O's folder below the scope
                "0::/kubepods.slice/kubepods-podU_ID.slice/crio-ID.scope/container/system.slice",
                // containerd with the driver cgroupfs under a kubelet with systemd
                "0::/system.slice/kubepods-podU_ID.slice:cri-containerd:ID",
            })
    void readsTheContainerFromEachKindOfPath(String cgroup) {
        String text = cgroup.replace("podUID", "pod" + UID)
                .replace("podU_ID", "pod" + UID.replace('-', '_'))
                .replace("ID", ID);

        assertThat(ContainerId.parse(text)).contains(new ContainerId(UID, ID));
    }

    @Test
    void readsAStaticPod() {
        assertThat(ContainerId.parse("0::/kubepods/pod" + "0f".repeat(16) + "/" + ID))
                .contains(new ContainerId("0f".repeat(16), ID));
    }

    @Test
    void aContainerCannotPassForAnotherByCgroupsOfItsOwn() {
        String other = "ffffffff-ffff-4fff-8fff-ffffffffffff";

        assertThat(ContainerId.parse(
                        "0::/kubepods/pod%s/%s/kubepods/pod%s/%s".formatted(UID, ID, other, "f".repeat(64))))
                .contains(new ContainerId(UID, ID));
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "",
                "0::/",
                "0::/system.slice/sshd.service",
                "0::/docker/0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
                "0::/kubepods/podnot-a-uid/0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
                "0::/kubepods/pod0a1b2c3d-0000-4000-8000-00000000000f/short",
            })
    void aProcessOutsideOfPodsIsInNoContainer(String cgroup) {
        assertThat(ContainerId.parse(cgroup)).isEmpty();
    }
}
