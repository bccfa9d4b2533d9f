package io.aliquot.api.foreign;

import static io.aliquot.api.format.FormatException.expect;

import io.aliquot.api.format.FormatException;
import io.aliquot.api.pods.CorePolicy;
import io.aliquot.api.pods.Priority;
import io.aliquot.api.pods.Vgpu;
import java.util.ArrayList;
import java.util.List;

/**
 * What the containers of a pod of HAMi hold: HAMi's annotation {@value #ANNOTATION}. Each container's devices end with
 * {@code ;}, each device ends with {@code :} and has the fields UUID, vendor, MiB and percent of cores, separated by
 * commas; later fields are ignored (github.com/Project-HAMi/HAMi, pkg/device/devices.go, EncodePodSingleDevice and
 * DecodeContainerDevices). For example {@code GPU-8f6e8f0c-12ab-34cd-56ef-1234567890ab,NVIDIA,3000,30:;}.
 *
 * @param containers the vGPUs of each container, init containers first; empty for a container without any
 */
public record HamiAllocation(List<List<Vgpu>> containers) {
    public static final String ANNOTATION = "hami.io/vgpu-devices-allocated";

    private static final int FIELDS = 4;
    private static final int MOST_CHARACTERS = 64 * 1024;

    public HamiAllocation {
        containers = containers.stream().map(List::copyOf).toList();
    }

    /**
     * Reads the annotation.
     *
     * @throws FormatException if the text does not have this format, or does not name whole GPUs (HAMi's names of MIG
     *     devices have a suffix)
     */
    public static HamiAllocation parse(String text) {
        if (text.length() > MOST_CHARACTERS) {
            throw new FormatException("expected at most " + MOST_CHARACTERS + " characters, found " + text.length());
        }
        List<List<Vgpu>> containers = new ArrayList<>();
        String[] parts = text.split(";", -1);
        // The text after the last semicolon is no container; versions without a final semicolon end with a device.
        int count = parts[parts.length - 1].isEmpty() ? parts.length - 1 : parts.length;
        for (int i = 0; i < count; i++) {
            List<Vgpu> vgpus = new ArrayList<>();
            for (String device : parts[i].split(":", -1)) {
                if (!device.isEmpty()) {
                    vgpus.add(vgpu(device));
                }
            }
            containers.add(vgpus);
        }
        expect(
                !containers.stream().allMatch(List::isEmpty),
                "at least one device such as GPU-<uuid>,NVIDIA,3000,30:;",
                text);
        return new HamiAllocation(containers);
    }

    private static Vgpu vgpu(String device) {
        String[] fields = device.split(",", -1);
        expect(fields.length >= FIELDS, "a device as UUID,vendor,MiB,cores", device);
        return new Vgpu(
                fields[0],
                number("MiB", fields[2]),
                number("cores", fields[3]),
                CorePolicy.FIXED,
                Priority.NORMAL,
                0,
                false);
    }

    private static int number(String name, String text) {
        expect(text.matches("[0-9]{1,9}"), "a whole number for " + name, text);
        return Integer.parseInt(text);
    }
}
