package io.aliquot.deviceplugin.cdi;

import static org.assertj.core.api.Assertions.assertThat;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

final class DeviceInjectionTest {
    @ParameterizedTest
    @ValueSource(
            strings = {
                "containerd://2.0.0",
                "containerd://v2.2.1",
                "containerd://2.1.4-k3s1",
                "containerd://10.0.0",
                "cri-o://1.34.2"
            })
    void theseRuntimesResolveCdiNames(String runtime) {
        assertThat(DeviceInjection.isResolvedBy(runtime)).isTrue();
    }

    @Test
    void othersAreNotKnownTo() {
        for (String runtime : new String[] {
            "containerd://1.7.29", "containerd://1.6.20~ds1", "docker://27.0.1", "", "containerd://", "containerd://2"
        }) {
            assertThat(DeviceInjection.isResolvedBy(runtime)).as(runtime).isFalse();
        }
    }
}
