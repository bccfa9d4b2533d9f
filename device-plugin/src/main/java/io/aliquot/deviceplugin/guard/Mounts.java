package io.aliquot.deviceplugin.guard;

import java.io.BufferedReader;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.function.Predicate;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;

/**
 * The mounts that a process sees, from {@code /proc/PID/mountinfo}, which every user may read: proc_pid_mountinfo(5).
 * Symbolic links are not in it, so a path is resolved as if none of its folders were one.
 *
 * @param list in the order of the file
 */
record Mounts(List<Mount> list) {
    /** A container has some ten mounts of some hundred bytes. A program with mount rights may make 100,000. */
    private static final int LARGEST = 1 << 20;

    private static final Pattern ESCAPED = Pattern.compile("\\\\([0-3][0-7]{2})");
    private static final int LEAST_FIELDS = 5;
    private static final int OCTAL = 8;

    /** Of a file that was removed while it was mounted: fs/d_path.c. */
    private static final String DELETED = "//deleted";

    Mounts {
        list = List.copyOf(list);
    }

    /**
     * A file or folder of a file system.
     *
     * @param device the file system's, major:minor
     * @param path in the file system
     */
    record Source(String device, String path) {
        /** What is at a path below this one, such as {@code /a/b}; {@code ""} is this one. */
        Source resolve(String below) {
            return path.equals("/") && !below.isEmpty() ? new Source(device, below) : new Source(device, path + below);
        }

        /** The path from a folder to this; empty if this is not below it. */
        Optional<String> pathFrom(Source folder) {
            String prefix = folder.path.equals("/") ? "" : folder.path;
            return device.equals(folder.device) && path.startsWith(prefix + "/")
                    ? Optional.of(path.substring(prefix.length()))
                    : Optional.empty();
        }
    }

    /**
     * A mount.
     *
     * @param source what is mounted
     * @param point where, as the process names it
     */
    record Mount(int id, int parent, Source source, String point) {}

    /**
     * Reads the mounts of a process. Those of a list that is longer than a container's can be are left out, all of them.
     *
     * @throws IOException also if the process has ended
     */
    static Mounts read(Path mountinfo) throws IOException {
        try (var in = Files.newInputStream(mountinfo)) {
            byte[] text = in.readNBytes(LARGEST + 1);
            return text.length > LARGEST ? new Mounts(List.of()) : parse(new String(text, StandardCharsets.ISO_8859_1));
        }
    }

    /** Lines that are not a mount are left out. */
    static Mounts parse(String text) {
        return new Mounts(text.lines().flatMap(line -> mount(line).stream()).toList());
    }

    /** What is mounted at such paths, in the order of the file; for a long list of the host, of which it keeps nothing else. */
    static List<Mount> find(Path mountinfo, Pattern point) throws IOException {
        try (BufferedReader lines = Files.newBufferedReader(mountinfo, StandardCharsets.ISO_8859_1)) {
            return lines.lines()
                    .flatMap(line -> mount(line).stream())
                    .filter(mount -> point.matcher(mount.point).find())
                    .toList();
        }
    }

    private static Optional<Mount> mount(String line) {
        String[] fields = line.split(" ", LEAST_FIELDS + 1);
        if (fields.length < LEAST_FIELDS) {
            return Optional.empty();
        }
        try {
            String root = unescape(fields[3]);
            return Optional.of(new Mount(
                    Integer.parseInt(fields[0]),
                    Integer.parseInt(fields[1]),
                    new Source(
                            fields[2],
                            root.endsWith(DELETED) ? root.substring(0, root.length() - DELETED.length()) : root),
                    unescape(fields[4])));
        } catch (NumberFormatException e) {
            return Optional.empty();
        }
    }

    private static String unescape(String field) {
        return ESCAPED.matcher(field)
                .replaceAll(octal ->
                        Matcher.quoteReplacement(String.valueOf((char) Integer.parseInt(octal.group(1), OCTAL))));
    }

    /**
     * What the process finds at an absolute path; empty if its root is not that of a mount, as after a chroot into a folder.
     * As the kernel's path walk does, it goes from the process's root into the topmost mount at each folder.
     */
    Optional<Source> at(String path) {
        return mountOf(path)
                .map(mount ->
                        mount.source.resolve(mount.point.equals("/") ? path : path.substring(mount.point.length())));
    }

    /** Whether something is mounted at such a path, in sight or not; true where the mounts were left out. */
    boolean hasPoint(Predicate<String> sought) {
        return list.isEmpty() || list.stream().anyMatch(mount -> sought.test(mount.point));
    }

    /** Whether the process finds such a source mounted somewhere. */
    boolean shows(Predicate<Source> sought) {
        return list.stream()
                .anyMatch(mount -> sought.test(mount.source)
                        && mountOf(mount.point).filter(mount::equals).isPresent());
    }

    /** Whether a mount is at exactly this path. */
    boolean isMountPoint(String path) {
        return mountOf(path).filter(mount -> mount.point.equals(path)).isPresent();
    }

    private Optional<Mount> mountOf(String path) {
        // A mount over the process's root is not entered: an absolute path starts below it (fs/namei.c, set_root).
        Set<Integer> atRoot = list.stream()
                .filter(mount -> mount.point.equals("/"))
                .map(Mount::id)
                .collect(Collectors.toSet());
        Optional<Mount> current = list.stream()
                .filter(mount -> mount.point.equals("/") && !atRoot.contains(mount.parent))
                .findFirst();
        int end = 0;
        while (current.isPresent() && end < path.length() && !path.equals("/")) {
            int slash = path.indexOf('/', end + 1);
            end = slash < 0 ? path.length() : slash;
            current = Optional.of(topmost(current.get(), path.substring(0, end)));
        }
        return current;
    }

    /** The mount that covers all others at a folder of a mount. */
    private Mount topmost(Mount parent, String folder) {
        Mount current = parent;
        for (int i = 0; i < list.size(); i++) { // each mount at most once: only a list that is none has circles
            Optional<Mount> above = child(current, folder);
            if (above.isEmpty()) {
                break;
            }
            current = above.get();
        }
        return current;
    }

    private Optional<Mount> child(Mount parent, String point) {
        return list.stream()
                .filter(mount -> mount.parent == parent.id && mount.point.equals(point))
                .findFirst();
    }
}
