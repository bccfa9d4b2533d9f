package io.aliquot.deviceplugin.node;

import static org.assertj.core.api.Assertions.assertThat;

import java.util.Map;
import java.util.Optional;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

final class DriverReleaseTest {
    private static final String STATE = "nvidia.com/gpu-driver-upgrade-state";

    @ParameterizedTest
    @ValueSource(
            strings = {
                "pod-deletion-required",
                "drain-required",
                "node-maintenance-required",
                "post-maintenance-required",
                "pod-restart-required",
                "upgrade-failed"
            })
    void theDriverIsReleasedBeforeTheOperatorUnloadsIt(String state) {
        assertThat(release(Map.of(STATE, state), Map.of()))
                .contains("the driver is being upgraded: the node has the label " + STATE + "=" + state);
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "",
                "upgrade-required",
                "cordon-required",
                "wait-for-jobs-required",
                "validation-required",
                "uncordon-required",
                "upgrade-done"
            })
    void theDriverIsUsedBeforeAndAfterThat(String state) {
        assertThat(release(Map.of(STATE, state), Map.of())).isEmpty();
    }

    @Test
    void theDriverIsReleasedWhileThePartsOfTheOperatorArePaused() {
        assertThat(release(Map.of("nvidia.com/gpu.deploy.dcgm", "paused-for-driver-upgrade"), Map.of()))
                .contains("the driver is being upgraded: the node's label nvidia.com/gpu.deploy.dcgm says"
                        + " paused-for-driver-upgrade");
        assertThat(release(Map.of("nvidia.com/gpu.deploy.dcgm", "true_paused-for-driver-upgrade"), Map.of()))
                .isPresent();
        assertThat(release(Map.of("nvidia.com/gpu.deploy.device-plugin", "false"), Map.of()))
                .isEmpty();
    }

    @Test
    void theDriverIsReleasedOnAnAdministratorsDemand() {
        assertThat(release(Map.of(), Map.of("aliquot.io/release-driver", "true")))
                .hasValueSatisfying(
                        reason -> assertThat(DriverRelease.isCauseOf(reason)).isTrue());
        assertThat(release(Map.of(), Map.of("aliquot.io/release-driver", "false")))
                .isEmpty();
    }

    private static Optional<String> release(Map<String, String> labels, Map<String, String> annotations) {
        return DriverRelease.of(new NodeView(labels, annotations, Map.of(), Map.of(), Map.of(), ""));
    }
}
