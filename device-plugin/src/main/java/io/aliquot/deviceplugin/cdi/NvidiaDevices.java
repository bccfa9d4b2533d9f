package io.aliquot.deviceplugin.cdi;

import static io.aliquot.api.format.FormatException.expect;

import com.google.errorprone.annotations.concurrent.GuardedBy;
import io.aliquot.api.format.FormatException;
import io.aliquot.api.format.JsonFields;
import io.aliquot.api.nodes.Inventory;
import io.aliquot.deviceplugin.problem.Problem;
import java.io.IOException;
import java.lang.System.Logger.Level;
import java.nio.charset.StandardCharsets;
import java.nio.file.DirectoryIteratorException;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.attribute.BasicFileAttributes;
import java.nio.file.attribute.FileTime;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.regex.Pattern;
import org.snakeyaml.engine.v2.api.Load;
import org.snakeyaml.engine.v2.api.LoadSettings;
import org.snakeyaml.engine.v2.exceptions.YamlEngineException;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.node.ObjectNode;

/**
 * The GPUs that NVIDIA's CDI specifications of the host name by UUID, such as {@code nvidia.com/gpu=GPU-…}. Reads files that
 * have changed, at each call. Thread-safe.
 */
public final class NvidiaDevices {
    /** What container runtimes read, in ascending priority (container-device-interface, pkg/cdi/spec-dirs.go). */
    public static final List<Path> FOLDERS = List.of(Path.of("/etc/cdi"), Path.of("/var/run/cdi"));

    static final String KIND = "nvidia.com/gpu";

    /** With 8 GPUs of 7 MIG instances, each by two names, a specification has some 300 KB. One of this size takes 12 MB of heap. */
    private static final int LARGEST = 1 << 19;

    private static final int MOST_FILES = 64;
    private static final Pattern VERSION = Pattern.compile("[0-9]{1,4}[.][0-9]{1,4}[.][0-9]{1,4}");

    private final List<Path> folders;
    private final Problem unreadable = new Problem(System.getLogger(NvidiaDevices.class.getName()), Level.WARNING);

    @GuardedBy("this")
    private Map<Path, Read> files = Map.of();

    /** What tells a file from a later one of its name. */
    private record Version(long size, FileTime modified, String key) {}

    /** A file as it was read: either a specification or why there is none. */
    private record Read(Version version, Optional<Spec> spec, String problem) {}

    /**
     * A specification of NVIDIA's.
     *
     * @param version its {@code cdiVersion}
     * @param edits those of each of its devices
     * @param devices the edits of each GPU, by UUID
     */
    record Spec(String version, JsonNode edits, Map<String, JsonNode> devices) {}

    /** Reads nothing yet. */
    public NvidiaDevices(List<Path> folders) {
        this.folders = List.copyOf(folders);
    }

    /** Which of these GPUs no specification names. */
    public List<String> unnamed(List<String> gpus) {
        List<Spec> specs = specs();
        return gpus.stream()
                .filter(gpu -> specs.stream().noneMatch(spec -> spec.devices.containsKey(gpu)))
                .toList();
    }

    /** What is wrong with files of NVIDIA's; empty if nothing is. */
    public synchronized Optional<String> problem() {
        return unreadable.message();
    }

    /**
     * The specifications that name these GPUs, each once.
     *
     * @throws FormatException names the first GPU that none names, and what to do
     */
    Set<Spec> find(List<String> gpus) {
        List<Spec> specs = specs();
        Set<Spec> found = new LinkedHashSet<>();
        for (String gpu : gpus) {
            found.add(specs.stream()
                    .filter(spec -> spec.devices.containsKey(gpu))
                    .findFirst()
                    .orElseThrow(() -> new FormatException(advice(gpu))));
        }
        return found;
    }

    /** What to do about a GPU that no specification names; at most 300 characters, as a conflict of an inventory. */
    public String advice(String gpu) {
        return Inventory.NOT_IN_CDI + "in " + folders.get(0) + " or " + folders.get(1) + " names " + KIND + "=" + gpu
                + ": run nvidia-ctk cdi generate --output=/var/run/cdi/nvidia.yaml on the node"
                + (problem().isPresent() ? "; the agent's log says which file is unreadable" : "");
    }

    /** The specification that a container runtime prefers first. */
    private synchronized List<Spec> specs() {
        Map<Path, Read> present = new HashMap<>();
        List<Spec> specs = new ArrayList<>();
        List<String> problems = new ArrayList<>();
        for (Path folder : folders.reversed()) {
            try {
                for (Map.Entry<Path, Version> file : list(folder).entrySet()) {
                    Read before = files.get(file.getKey());
                    Read read = before != null && before.version.equals(file.getValue())
                            ? before
                            : read(file.getKey(), file.getValue());
                    present.put(file.getKey(), read);
                    read.spec.ifPresent(specs::add);
                    if (!read.problem.isEmpty()) {
                        problems.add(read.problem);
                    }
                }
            } catch (IOException e) {
                problems.add("cannot read " + folder + ": " + e);
            }
        }
        files = present;
        if (problems.isEmpty()) {
            unreadable.resolve();
        } else {
            unreadable.report(String.join("; ", problems));
        }
        return specs;
    }

    private static Map<Path, Version> list(Path folder) throws IOException {
        Map<Path, Version> files = new TreeMap<>();
        try (DirectoryStream<Path> found = Files.newDirectoryStream(folder, "*.{json,yaml}")) {
            for (Path file : found) {
                if (!CdiContainers.isOwn(file) && files.size() < MOST_FILES) {
                    try {
                        var attributes = Files.readAttributes(file, BasicFileAttributes.class);
                        files.put(
                                file,
                                new Version(
                                        attributes.size(),
                                        attributes.lastModifiedTime(),
                                        String.valueOf(attributes.fileKey())));
                    } catch (NoSuchFileException e) {
                        // replaced at this moment, or a link to what only the host has
                    }
                }
            }
        } catch (NoSuchFileException e) {
            return Map.of();
        } catch (DirectoryIteratorException e) {
            throw e.getCause();
        }
        return files;
    }

    private static Read read(Path file, Version version) {
        try (var in = Files.newInputStream(file)) {
            byte[] bytes = in.readNBytes(LARGEST + 1);
            expect(bytes.length <= LARGEST, "at most " + LARGEST + " bytes", "more");
            return new Read(version, parse(new String(bytes, StandardCharsets.UTF_8)), "");
        } catch (IOException | FormatException e) {
            return new Read(version, Optional.empty(), file + ": " + e.getMessage());
        }
    }

    /** YAML includes JSON. Empty for a specification of another kind. */
    static Optional<Spec> parse(String text) {
        JsonNode root;
        try {
            root = JsonFields.JSON.valueToTree(new Load(LoadSettings.builder()
                            .setCodePointLimit(LARGEST)
                            .setAllowDuplicateKeys(false)
                            .setUseMarks(false) // they say where an error is, and double the memory
                            .build())
                    .loadFromString(text));
        } catch (YamlEngineException | IllegalArgumentException | ClassCastException e) {
            throw new FormatException(
                    "expected YAML or JSON: "
                            + String.valueOf(e.getMessage()).lines().findFirst().orElse(""),
                    e);
        } catch (StackOverflowError e) {
            throw new FormatException("expected a CDI specification, found a deeper nesting", e);
        }
        expect(root.isObject(), "a CDI specification, an object", root.getNodeType());
        if (!JsonFields.text(root, "kind").equals(KIND)) {
            return Optional.empty();
        }
        String version = JsonFields.text(root, "cdiVersion");
        expect(VERSION.matcher(version).matches(), "a cdiVersion such as 0.6.0", version);
        JsonNode list = JsonFields.field(root, "devices");
        expect(list.isArray(), "a list devices", list.getNodeType());
        Map<String, JsonNode> devices = new HashMap<>();
        for (JsonNode device : list) {
            String name = JsonFields.text(device, "name");
            if (name.startsWith("GPU-") || name.startsWith("MIG-")) {
                devices.put(name, edits(device));
            }
        }
        return Optional.of(new Spec(version, edits(root), devices));
    }

    private static JsonNode edits(JsonNode owner) {
        JsonNode edits = owner.path("containerEdits");
        if (edits.isMissingNode() || edits.isNull()) {
            return JsonFields.JSON.createObjectNode();
        }
        expect(edits.isObject(), "an object containerEdits", edits.getNodeType());
        return (ObjectNode) edits;
    }
}
