package io.aliquot.deviceplugin.kubelet;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.aliquot.api.format.FormatException;
import io.aliquot.deviceplugin.kubelet.DeviceCheckpoint.Entry;
import java.util.List;
import java.util.Set;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

final class DeviceCheckpointTest {
    /** Of the kubelet 1.35.4, with fewer slots: an init container and the main one of a pod have the same slot. */
    private static final String KUBELET = """
            {"Data":{"PodDeviceEntries":[{"PodUID":"8c62f73b-ad6b-47e7-8366-df0c08b19b69","ContainerName":"init",\
            "ResourceName":"aliquot.io/vgpu","DeviceIDs":{"-1":["slot-010"]},"AllocResp":"Ch4KFk5WSURJQV9WSVNJQkxFX0RF\
            VklDRVMSBHZvaWQqKwopYWxpcXVvdC5pby92Z3B1PXNsb3QtMDEwLWU3MThhZmI5ZDQ2MTM2YTA="},{"PodUID":"8c62f73b-ad6b-\
            47e7-8366-df0c08b19b69","ContainerName":"main","ResourceName":"aliquot.io/vgpu","DeviceIDs":{"-1":["slot-010"]},\
            "AllocResp":"Ch4KFk5WSURJQV9WSVNJQkxFX0RFVklDRVMSBHZvaWQqKwopYWxpcXVvdC5pby92Z3B1PXNsb3QtMDEwLWUwNWM4MGVkOWE\
            wYTE0OWE="}],"RegisteredDevices":{"aliquot.io/vgpu":["slot-016","slot-006"]}},"Checksum":2252468180}""";

    private static final String UID = "8c62f73b-ad6b-47e7-8366-df0c08b19b69";

    @Test
    void namesTheContainerOfEachAnswer() {
        assertThat(DeviceCheckpoint.parse(KUBELET).entries())
                .containsExactly(
                        entry("init", "aliquot.io/vgpu=slot-010-e718afb9d46136a0"),
                        entry("main", "aliquot.io/vgpu=slot-010-e05c80ed9a0a149a"));
    }

    private static Entry entry(String container, String device) {
        return new Entry(UID, container, "aliquot.io/vgpu", Set.of("slot-010"), List.of(device));
    }

    @Test
    void aKubeletWithoutDevicesHasNoEntries() {
        assertThat(DeviceCheckpoint.parse(
                                "{\"Data\":{\"PodDeviceEntries\":null,\"RegisteredDevices\":{}},\"Checksum\":1}")
                        .entries())
                .isEmpty();
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "",
                "null",
                "{}",
                "{\"Data\":[]}",
                "{\"Data\":{\"PodDeviceEntries\":[1]}}",
                "{\"Data\":{\"PodDeviceEntries\":[{\"PodUID\":\"u\",\"ContainerName\":\"c\",\"ResourceName\":\"r\","
                        + "\"DeviceIDs\":{},\"AllocResp\":\"?\"}]}}",
                "{\"Data\":{\"PodDeviceEntries\":[{\"PodUID\":\"u\",\"ContainerName\":\"c\",\"ResourceName\":\"r\","
                        + "\"DeviceIDs\":{},\"AllocResp\":\"////\"}]}}"
            })
    void refusesAnotherForm(String text) {
        assertThatThrownBy(() -> DeviceCheckpoint.parse(text)).isInstanceOf(FormatException.class);
    }
}
