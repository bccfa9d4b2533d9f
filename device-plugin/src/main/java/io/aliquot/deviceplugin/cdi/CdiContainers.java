package io.aliquot.deviceplugin.cdi;

import static io.aliquot.api.format.FormatException.expect;

import io.aliquot.api.format.FormatException;
import io.aliquot.api.format.JsonFields;
import io.aliquot.api.pods.Held;
import io.aliquot.api.usage.NodeAllocation.Limit;
import io.aliquot.api.usage.PodContainer;
import java.io.IOException;
import java.lang.System.Logger;
import java.lang.System.Logger.Level;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.DirectoryIteratorException;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.PosixFilePermission;
import java.nio.file.attribute.PosixFilePermissions;
import java.security.SecureRandom;
import java.time.Duration;
import java.time.Instant;
import java.time.InstantSource;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeSet;
import java.util.function.Supplier;
import java.util.regex.Pattern;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.node.ArrayNode;
import tools.jackson.databind.node.ObjectNode;

/*
 * Why a name is never used twice. containerd learns of changed specifications by inotify, so a rewritten one may still be the
 * former container's when the next one starts; a new name is either known as it is or unresolvable, and then the container
 * does not start. The kubelet repeats Allocate's answer, and so the name, at each start of a container, even after a reboot,
 * when /var/run/cdi is empty. So what a container has is kept under the agent's folder, and its specification is made from
 * that and from NVIDIA's before each start, with the driver as it is then.
 */
/**
 * The containers of this node that get their GPUs by CDI: for each Allocate one device {@code aliquot.io/vgpu=NAME}, whose
 * specification has the GPU and all that limits its use. Thread-safe.
 */
public final class CdiContainers {
    private static final Logger LOG = System.getLogger(CdiContainers.class.getName());

    /** Vendor and class of the devices. */
    static final String KIND = "aliquot.io/vgpu";

    private static final String PREFIX = KIND + "=";
    /** Of specifications, as container-device-interface, pkg/cdi/spec.go, names those of one container. */
    private static final String FILE_PREFIX = "aliquot.io-vgpu_";

    private static final String JSON = ".json";
    /** In the same folder, since containerd watches it for files that are renamed, not for those that appear. */
    private static final String TEMPORARY = ".tmp";

    private static final String NOTE = ".note";
    /** The hook in a user namespace of a pod's is no owner of the file. */
    private static final Set<PosixFilePermission> WRITABLE_BY_ALL = PosixFilePermissions.fromString("rw--w--w-");

    private static final int RANDOM_BYTES = 8;
    private static final Pattern NAME = Pattern.compile("slot-[0-9]{3,6}-[0-9a-f]{" + 2 * RANDOM_BYTES + "}");
    /** The first version of CDI with annotations. */
    private static final String LEAST_VERSION = "0.6.0";

    /** Far longer than the kubelet takes to write Allocate's answer to its checkpoint. */
    private static final Duration YOUNG = Duration.ofMinutes(10);

    private final Path records;
    private final Path specs;
    private final NvidiaDevices nvidia;
    private final StartHook hook;
    private final InstantSource clock;
    private final SecureRandom random = new SecureRandom();

    /**
     * What Allocate gave to a container.
     *
     * @param mounts those of the shim and of the slot's files
     * @param container whose it is; empty before its first start
     * @param gpus what it has, by UUID; none before its first start
     * @param wholeCards whether it has whole cards only
     */
    private record Given(
            List<BindMount> mounts, Optional<PodContainer> container, List<String> gpus, boolean wholeCards) {
        static Given parse(String text) {
            JsonNode root = JsonFields.versioned("what a container has", text, 1);
            List<BindMount> mounts = new ArrayList<>();
            for (JsonNode mount : JsonFields.field(root, "mounts")) {
                mounts.add(new BindMount(
                        JsonFields.text(mount, "hostPath"),
                        JsonFields.text(mount, "containerPath"),
                        JsonFields.truth(mount, "readOnly")));
            }
            List<String> gpus = new ArrayList<>();
            root.path("gpus").forEach(gpu -> gpus.add(gpu.asString("")));
            return new Given(
                    mounts,
                    gpus.isEmpty()
                            ? Optional.empty()
                            : Optional.of(new PodContainer(
                                    JsonFields.text(root, "namespace"),
                                    JsonFields.text(root, "pod"),
                                    JsonFields.text(root, "uid"),
                                    JsonFields.text(root, "container"))),
                    gpus,
                    root.path("wholeCards").asBoolean(false));
        }

        String print() {
            ObjectNode root =
                    JsonFields.JSON.createObjectNode().put("version", 1).put("wholeCards", wholeCards);
            root.set("mounts", JsonFields.JSON.valueToTree(mounts));
            container.ifPresent(of -> root.put("namespace", of.namespace())
                    .put("pod", of.pod())
                    .put("uid", of.uid())
                    .put("container", of.container())
                    .set("gpus", JsonFields.JSON.valueToTree(gpus)));
            return root.toString();
        }
    }

    /**
     * Creates the folder of the records.
     *
     * @param stateDir Aliquot's folder on the host
     * @param specs where specifications are written, a folder that container runtimes read
     */
    public CdiContainers(Path stateDir, Path specs, NvidiaDevices nvidia, StartHook hook, InstantSource clock)
            throws IOException {
        records = Files.createDirectories(stateDir.resolve("cdi"));
        this.specs = specs;
        this.nvidia = nvidia;
        this.hook = hook;
        this.clock = clock;
    }

    /** Whether a file is a specification of Aliquot's. */
    static boolean isOwn(Path file) {
        return file.getFileName().toString().startsWith(FILE_PREFIX);
    }

    /** Whether a container may still need a specification. */
    public boolean exist() {
        try (DirectoryStream<Path> found = Files.newDirectoryStream(records, "*" + JSON)) {
            return found.iterator().hasNext();
        } catch (IOException e) {
            return true;
        }
    }

    /**
     * Names a device for a container that is not known yet.
     *
     * @param slot the first of the container's slots
     * @return its qualified name, which no device has had before
     */
    public String allocate(String slot, List<BindMount> mounts) throws IOException {
        var bytes = new byte[RANDOM_BYTES];
        random.nextBytes(bytes);
        String name = slot + "-" + HexFormat.of().formatHex(bytes);
        write(records, name + JSON, new Given(mounts, Optional.empty(), List.of(), false).print());
        return PREFIX + name;
    }

    /** Whether a CDI device is one of {@link #allocate}. */
    public static boolean isOne(String device) {
        return device.startsWith(PREFIX)
                && NAME.matcher(device.substring(PREFIX.length())).matches();
    }

    /**
     * Writes the specification of a device, unless it is there already.
     *
     * @param device {@link #isOne}
     * @param limits what the scheduler says of the container now; asked only before its first start
     * @return whether it is there now: not while the scheduler has said nothing of the container
     * @throws FormatException if NVIDIA's specifications do not name the container's GPUs: what to do
     * @throws IOException if a file cannot be read or written
     */
    public synchronized boolean prepare(String device, Supplier<List<Limit>> limits) throws IOException {
        String name = device.substring(PREFIX.length());
        Given given = read(name);
        boolean isNew = given.gpus.isEmpty();
        if (isNew) {
            List<Limit> said = limits.get();
            if (said.isEmpty()) {
                return false;
            }
            given = new Given(
                    given.mounts,
                    Optional.of(said.getFirst().container()),
                    said.stream().map(Limit::gpu).distinct().toList(),
                    said.stream().allMatch(limit -> limit.held() == Held.WHOLE_CARD));
        }
        String spec = spec(name, given); // throws before anything is kept
        if (isNew) {
            write(records, name + JSON, given.print());
        }
        makeNote(note(name));
        if (!isContent(specs.resolve(FILE_PREFIX + name + JSON), spec)) {
            write(specs, FILE_PREFIX + name + JSON, spec);
        }
        return true;
    }

    private Path note(String name) {
        return records.resolve(name + NOTE);
    }

    private static void makeNote(Path note) throws IOException {
        if (!Files.exists(note, LinkOption.NOFOLLOW_LINKS)) {
            Files.createFile(note);
        }
        Files.setPosixFilePermissions(note, WRITABLE_BY_ALL); // whatever the umask is
    }

    /** The containers of which the hook has noted since the last call that they start from an image without a loader. */
    public synchronized List<PodContainer> takeWithoutLoader() {
        List<PodContainer> noted = new ArrayList<>();
        try (DirectoryStream<Path> notes =
                Files.newDirectoryStream(records, note -> note.toString().endsWith(NOTE) && Files.size(note) > 0)) {
            for (Path note : notes) {
                Files.write(note, new byte[0], StandardOpenOption.WRITE, StandardOpenOption.TRUNCATE_EXISTING);
                String file = note.getFileName().toString();
                read(file.substring(0, file.length() - NOTE.length())).container.ifPresent(noted::add);
            }
        } catch (IOException | DirectoryIteratorException e) {
            LOG.log(Level.DEBUG, "Cannot read what the hook has noted: {0}", e.toString());
        }
        return noted;
    }

    private Given read(String name) throws IOException {
        Path file = records.resolve(name + JSON);
        try {
            return Given.parse(Files.readString(file));
        } catch (NoSuchFileException e) {
            throw new IOException(file + ", which says what the container has, is missing: delete the pod", e);
        } catch (FormatException e) {
            throw new IOException(file + " is damaged, delete the pod: " + e.getMessage(), e);
        }
    }

    /**
     * Removes what the kubelet cannot name any more.
     *
     * @param named the devices in all answers of Allocate that the kubelet has kept
     */
    public synchronized void retain(Set<String> named) throws IOException {
        Instant old = clock.instant().minus(YOUNG);
        Set<String> names = new TreeSet<>();
        try (DirectoryStream<Path> found = Files.newDirectoryStream(records, "*" + JSON)) {
            for (Path file : found) {
                String name = file.getFileName().toString();
                name = name.substring(0, name.length() - JSON.length());
                if (!named.contains(PREFIX + name)
                        && Files.getLastModifiedTime(file).toInstant().isBefore(old)) {
                    names.add(name);
                }
            }
        }
        for (String name : names) {
            Files.deleteIfExists(specs.resolve(FILE_PREFIX + name + JSON));
            Files.deleteIfExists(note(name));
            Files.deleteIfExists(records.resolve(name + JSON)); // last: it is what the next run finds
        }
    }

    private String spec(String name, Given given) {
        ObjectNode edits = JsonFields.JSON.createObjectNode();
        String version = LEAST_VERSION;
        for (NvidiaDevices.Spec spec : nvidia.find(given.gpus)) {
            version = later(version, spec.version());
            append(edits, spec.edits());
            given.gpus.forEach(gpu ->
                    append(edits, spec.devices().getOrDefault(gpu, JsonFields.JSON.createObjectNode())));
        }
        ArrayNode mounts = edits.withArray("mounts");
        for (BindMount mount : given.mounts) {
            ObjectNode own =
                    mounts.addObject().put("hostPath", mount.hostPath()).put("containerPath", mount.containerPath());
            // As containerd mounts what Allocate's answer lists (internal/cri/opts/spec_linux_opts.go).
            own.putArray("options").add("rbind").add("rprivate").add(mount.readOnly() ? "ro" : "rw");
        }
        given.container.ifPresent(
                of -> edits.withArray("hooks").add(hook.print(of, given.mounts, note(name), given.wholeCards)));
        ObjectNode root =
                JsonFields.JSON.createObjectNode().put("cdiVersion", version).put("kind", KIND);
        ObjectNode annotations = root.putObject("annotations");
        given.container.ifPresent(of -> annotations
                .put("aliquot.io/pod-uid", of.uid())
                .put("aliquot.io/namespace", of.namespace())
                .put("aliquot.io/pod", of.pod())
                .put("aliquot.io/container", of.container()));
        root.putArray("devices").addObject().put("name", name).set("containerEdits", edits);
        return root.toString();
    }

    /** As a runtime adds the edits of a second device: lists grow, and of anything else the last one counts. */
    private static void append(ObjectNode to, JsonNode edits) {
        for (Map.Entry<String, JsonNode> part : edits.properties()) {
            JsonNode present = to.path(part.getKey());
            if (part.getValue() instanceof ArrayNode more && (present.isMissingNode() || present.isArray())) {
                to.withArray(part.getKey()).addAll(more);
            } else if (!part.getValue().isNull()) {
                expect(present.isArray() == part.getValue().isArray(), "a list " + part.getKey(), part.getValue());
                to.set(part.getKey(), part.getValue());
            }
        }
    }

    private static String later(String version, String other) {
        Comparator<String> byNumbers = Comparator.comparing((String text) -> number(text, 0))
                .thenComparing(text -> number(text, 1))
                .thenComparing(text -> number(text, 2));
        return byNumbers.compare(version, other) < 0 ? other : version;
    }

    private static int number(String version, int at) {
        return Integer.parseInt(version.split("[.]", -1)[at]);
    }

    private static boolean isContent(Path file, String text) throws IOException {
        try {
            return Files.readString(file).equals(text);
        } catch (NoSuchFileException e) {
            return false;
        }
    }

    /** Replaces a file as a whole, also in a power failure: the kubelet's checkpoint survives one, and so must this. */
    private static void write(Path folder, String name, String text) throws IOException {
        Path temporary = folder.resolve(name + TEMPORARY);
        Files.deleteIfExists(temporary);
        try (var channel = FileChannel.open(
                temporary,
                Set.of(StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE),
                PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rw-r--r--")))) {
            ByteBuffer bytes = ByteBuffer.wrap(text.getBytes(StandardCharsets.UTF_8));
            while (bytes.hasRemaining()) {
                channel.write(bytes);
            }
            channel.force(true);
        }
        Files.move(temporary, folder.resolve(name), StandardCopyOption.ATOMIC_MOVE);
    }
}
