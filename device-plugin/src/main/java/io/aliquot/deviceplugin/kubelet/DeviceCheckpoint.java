package io.aliquot.deviceplugin.kubelet;

import static io.aliquot.api.format.FormatException.expect;

import com.google.protobuf.InvalidProtocolBufferException;
import io.aliquot.api.format.FormatException;
import io.aliquot.api.format.JsonFields;
import io.aliquot.deviceplugin.v1beta1.CDIDevice;
import io.aliquot.deviceplugin.v1beta1.ContainerAllocateResponse;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import tools.jackson.core.JacksonException;
import tools.jackson.databind.JsonNode;

/*
 * Why this file and not PodResources. The kubelet writes the file before Allocate's caller goes on, and reads it when it
 * starts, so it is exactly what the kubelet can repeat; it has the pod's UID and init containers, which PodResources leaves
 * out. Its format is the kubelet's own, the same since Kubernetes 1.20 (pkg/kubelet/cm/devicemanager/checkpoint,
 * checkpoint.go). Where it changes, containers do not start, and the message names the file.
 */
/**
 * Which answer of Allocate the kubelet keeps for which container: its checkpoint of devices.
 *
 * @param entries one for each container and resource
 */
record DeviceCheckpoint(List<Entry> entries) {
    /** The file's name in the folder of the kubelet's socket. */
    static final String FILE = "kubelet_internal_checkpoint";

    /** A container with an answer of some hundred bytes takes 1 KB. */
    private static final int LARGEST = 16 << 20;

    DeviceCheckpoint {
        entries = List.copyOf(entries);
    }

    /**
     * The devices of a container.
     *
     * @param podUid its pod's
     * @param cdiDevices those that the answer names
     */
    record Entry(String podUid, String container, String resource, Set<String> deviceIds, List<String> cdiDevices) {
        Entry {
            deviceIds = Set.copyOf(deviceIds);
            cdiDevices = List.copyOf(cdiDevices);
        }
    }

    /**
     * Reads the file of a kubelet.
     *
     * @param folder that of its socket
     * @throws IOException if there is none
     * @throws FormatException if it is not as expected
     */
    static DeviceCheckpoint read(Path folder) throws IOException {
        Path file = folder.resolve(FILE);
        try (var in = Files.newInputStream(file)) {
            byte[] bytes = in.readNBytes(LARGEST + 1);
            expect(bytes.length <= LARGEST, "at most " + LARGEST + " bytes", "more");
            return parse(new String(bytes, StandardCharsets.UTF_8));
        } catch (FormatException e) {
            throw new FormatException("the kubelet's checkpoint " + file + " cannot be read: " + e.getMessage(), e);
        }
    }

    static DeviceCheckpoint parse(String text) {
        JsonNode root;
        try {
            root = JsonFields.JSON.readTree(text);
        } catch (JacksonException e) {
            throw new FormatException("expected JSON: " + e.getOriginalMessage(), e);
        }
        JsonNode list = JsonFields.field(JsonFields.field(root, "Data"), "PodDeviceEntries");
        List<Entry> entries = new ArrayList<>();
        for (JsonNode entry : list) { // null if there is none
            Set<String> ids = new HashSet<>();
            // By NUMA node.
            JsonFields.field(entry, "DeviceIDs").forEach(node -> node.forEach(id -> ids.add(id.asString(""))));
            entries.add(new Entry(
                    JsonFields.text(entry, "PodUID"),
                    JsonFields.text(entry, "ContainerName"),
                    JsonFields.text(entry, "ResourceName"),
                    ids,
                    cdiDevices(JsonFields.text(entry, "AllocResp"))));
        }
        return new DeviceCheckpoint(entries);
    }

    private static List<String> cdiDevices(String answer) {
        try {
            return ContainerAllocateResponse.parseFrom(Base64.getDecoder().decode(answer)).getCdiDevicesList().stream()
                    .map(CDIDevice::getName)
                    .toList();
        } catch (InvalidProtocolBufferException | IllegalArgumentException e) {
            throw new FormatException("expected an answer of Allocate in AllocResp: " + e.getMessage(), e);
        }
    }
}
