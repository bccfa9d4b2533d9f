package io.aliquot.deviceplugin.kubelet;

import static org.assertj.core.api.Assertions.assertThat;

import java.io.IOException;
import java.nio.file.Path;
import java.util.List;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

@Timeout(60)
final class PodResourcesClientTest {
    private final TestPodResources kubelet;
    private final PodResourcesClient client;

    PodResourcesClientTest(@TempDir Path folder) throws IOException {
        kubelet = new TestPodResources(folder);
        client = new PodResourcesClient(folder);
    }

    @AfterEach
    void close() {
        client.close();
        kubelet.close();
    }

    @Test
    void listsThePodsWithTheirDevices() {
        kubelet.run("team", "train", "nvidia.com/gpu", "GPU-1", "GPU-2");

        assertThat(client.list())
                .isEqualTo(new DeviceHolders.Known(List.of(
                        new DeviceHolders.Holder("team/train", "main", "nvidia.com/gpu", List.of("GPU-1", "GPU-2")))));
        kubelet.end("team", "train");
        assertThat(client.list()).isEqualTo(new DeviceHolders.Known(List.of()));
    }

    @Test
    void aKubeletThatIsGoneIsUnavailableUntilItIsBack() throws Exception {
        assertThat(client.list()).isInstanceOf(DeviceHolders.Known.class);

        kubelet.stop();

        assertThat(client.list())
                .isInstanceOfSatisfying(
                        DeviceHolders.Unavailable.class,
                        unavailable -> assertThat(unavailable.reason()).contains("kubelet.sock"));
        kubelet.restart();
        assertThat(client.list()).isInstanceOf(DeviceHolders.Known.class);
    }
}
