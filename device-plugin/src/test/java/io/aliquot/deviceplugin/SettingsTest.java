package io.aliquot.deviceplugin;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.aliquot.api.format.FormatException;
import io.aliquot.deviceplugin.cdi.DeviceInjection;
import java.nio.file.Path;
import java.util.Map;
import org.junit.jupiter.api.Test;

final class SettingsTest {
    @Test
    void eachSettingExceptTheNodeNameHasADefault() {
        Settings settings = Settings.parse(Map.of("NODE_NAME", "gpu-1.example.com", "ALIQUOT_SLOTS", ""));

        assertThat(settings.nodeName()).isEqualTo("gpu-1.example.com");
        assertThat(settings.slots()).isEqualTo(10);
        assertThat(settings.lowFloor()).isEqualTo(5);
        assertThat(settings.visibleDevices().template()).isEqualTo("{uuid}");
        assertThat(settings.devicePlugins()).isEqualTo(Path.of("/var/lib/kubelet/device-plugins"));
        assertThat(settings.stateDir()).isEqualTo(Path.of("/var/lib/aliquot"));
        assertThat(settings.metricsPort()).isEqualTo(9091);
        assertThat(settings.ignoreXids()).isEmpty();
        assertThat(settings.fatalXids()).isEmpty();
        assertThat(settings.readyResource()).isEmpty();
        assertThat(settings.injection()).isEmpty();
        assertThat(settings.driverRoot()).isEmpty();
    }

    @Test
    void noContainerWouldSeeAGpuByVisibleDevicesAlone() {
        assertThat(Settings.parse(Map.of("NODE_NAME", "n", "ALIQUOT_DEVICE_INJECTION", "cdi"))
                        .injection())
                .hasValue(DeviceInjection.CDI);
        assertThatThrownBy(() -> Settings.parse(Map.of(
                        "NODE_NAME", "n",
                        "ALIQUOT_VISIBLE_DEVICES", "void",
                        "ALIQUOT_DEVICE_INJECTION", "CDI")))
                .hasMessage(
                        "ALIQUOT_VISIBLE_DEVICES: with void no container would see a GPU; where the agent is to give"
                                + " containers their GPUs by CDI, set ALIQUOT_DEVICE_INJECTION=cdi\n"
                                + "ALIQUOT_DEVICE_INJECTION: expected auto, cdi or runtime, found \"CDI\"");
    }

    @Test
    void readsEachSetting() {
        Settings settings = Settings.parse(Map.of(
                "NODE_NAME", "n",
                "ALIQUOT_SLOTS", "20",
                "ALIQUOT_VISIBLE_DEVICES", "runtime.nvidia.com/gpu={uuid}",
                "ALIQUOT_DRIVER_ROOT", "/driver",
                "ALIQUOT_KUBELET_ROOT", "/k/",
                "ALIQUOT_STATE_DIR", "/s",
                "ALIQUOT_METRICS_PORT", "0",
                "ALIQUOT_IGNORE_XIDS", "48, 95",
                "ALIQUOT_FATAL_XIDS", "13"));

        assertThat(settings.slots()).isEqualTo(20);
        assertThat(settings.visibleDevices().template()).isEqualTo("runtime.nvidia.com/gpu={uuid}");
        assertThat(settings.driverRoot()).hasValue(Path.of("/driver"));
        assertThat(settings.devicePlugins()).isEqualTo(Path.of("/k/device-plugins"));
        assertThat(settings.podResources()).isEqualTo(Path.of("/k/pod-resources"));
        assertThat(settings.metricsPort()).isZero();
        assertThat(settings.ignoreXids()).containsExactlyInAnyOrder(48, 95);
        assertThat(settings.fatalXids()).containsExactly(13);
    }

    @Test
    void reportsAllInvalidSettingsWithWhatWasExpected() {
        assertThatThrownBy(() -> Settings.parse(Map.of(
                        "ALIQUOT_SLOTS", "0",
                        "ALIQUOT_LOW_FLOOR", "101",
                        "ALIQUOT_VISIBLE_DEVICES", "all",
                        "ALIQUOT_STATE_DIR", "here",
                        "ALIQUOT_DRIVER_ROOT", "there",
                        "ALIQUOT_METRICS_PORT", "70000",
                        "ALIQUOT_IGNORE_XIDS", "all",
                        "ALIQUOT_FATAL_XIDS", "13,,48")))
                .isInstanceOf(FormatException.class)
                .hasMessageContaining("NODE_NAME: expected the name of this pod's node, found \"\"; set it from")
                .hasMessageContaining("ALIQUOT_LOW_FLOOR: expected percent from 0 to 100, found \"101\"")
                .hasMessageContaining("ALIQUOT_SLOTS: ")
                .hasMessageContaining("\"0\" is not a number of slots from 1 to 1000")
                .hasMessageContaining("ALIQUOT_VISIBLE_DEVICES: expected a template")
                .hasMessageContaining("ALIQUOT_STATE_DIR: expected an absolute path, found \"here\"")
                .hasMessageContaining("ALIQUOT_DRIVER_ROOT: expected an absolute path, found \"there\"")
                .hasMessageContaining("ALIQUOT_METRICS_PORT: expected a port from 0 to 65535, found \"70000\"")
                .hasMessageContaining("ALIQUOT_IGNORE_XIDS: expected XIDs from 1 to 9999")
                .hasMessageContaining("ALIQUOT_FATAL_XIDS: expected XIDs from 1 to 9999");
    }

    @Test
    void theReadyResourceIsOneThatEveryReleaseOfClusterAutoscalerKnowsAndNoPodOfLinuxRequests() {
        assertThat(Settings.parse(Map.of("NODE_NAME", "n", "ALIQUOT_READY_RESOURCE", "microsoft.com/directx"))
                        .readyResource())
                .hasValue("microsoft.com/directx");
        assertThatThrownBy(() -> Settings.parse(Map.of("NODE_NAME", "n", "ALIQUOT_READY_RESOURCE", "nvidia.com/gpu")))
                .hasMessageContaining("ALIQUOT_READY_RESOURCE: expected microsoft.com/directx or nothing");
    }

    @Test
    void anXidIsEitherIgnoredOrFatal() {
        assertThatThrownBy(() -> Settings.parse(
                        Map.of("NODE_NAME", "n", "ALIQUOT_IGNORE_XIDS", "48,95", "ALIQUOT_FATAL_XIDS", "95")))
                .hasMessageContaining("ALIQUOT_FATAL_XIDS: XID 95 is in ALIQUOT_IGNORE_XIDS, too");
    }
}
