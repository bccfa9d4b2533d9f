package io.aliquot.api.pods;

import static io.aliquot.api.format.FormatException.expect;

import io.aliquot.api.format.FormatException;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Collectors;

/**
 * A container's share: the content of the annotation {@code Annotations.vgpu} and, through the downward API, of the
 * limit file {@code /etc/aliquot/vgpu}. The tests of this class and of the shim read the same examples in
 * {@code api/golden/vgpu}, whose README defines the format.
 *
 * @param list at least one vGPU, each on another GPU
 */
public record Vgpus(List<Vgpu> list) {
    private static final int MAX_LENGTH = 64 * 1024;

    public Vgpus {
        list = List.copyOf(list);
        expect(!list.isEmpty(), "at least one vGPU", "none");
        expect(
                list.size() == 1 || list.stream().map(Vgpu::uuid).distinct().count() == list.size(),
                "each GPU once",
                "a UUID twice");
    }

    public static Vgpus parse(String text) {
        if (text.length() > MAX_LENGTH) {
            throw FormatException.expected("at most " + MAX_LENGTH + " characters", text.length() + " of them");
        }
        for (int i = 0; i < text.length(); i++) {
            char c = text.charAt(i);
            if (c != '\n' && (c < ' ' || c >= 0x7f)) {
                throw FormatException.expected("printable ASCII", text);
            }
        }
        String lines = text.endsWith("\n") ? text.substring(0, text.length() - 1) : text;
        var vgpus = new ArrayList<Vgpu>();
        for (String line : lines.split("\n", -1)) {
            vgpus.add(Vgpu.parse(line));
        }
        return new Vgpus(vgpus);
    }

    public String print() {
        return list.stream().map(vgpu -> vgpu.print() + "\n").collect(Collectors.joining());
    }

    public List<String> uuids() {
        return list.stream().map(Vgpu::uuid).toList();
    }
}
