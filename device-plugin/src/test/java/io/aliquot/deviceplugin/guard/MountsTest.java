package io.aliquot.deviceplugin.guard;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatCode;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.aliquot.deviceplugin.guard.Mounts.Source;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class MountsTest {
    private static final List<String> NAMES = List.of("a", "b", "c d");

    @Test
    void theTopmostOfTwoMountsCountsAndWhatLiesUnderACoveredFolderDoesNot() {
        var mounts = Mounts.parse("""
                20 1 0:1 / / rw - overlay overlay rw
                21 20 0:2 / /etc/aliquot ro - tmpfs tmpfs rw
                22 20 0:3 /state/file /etc/preload ro - ext4 /dev/sda rw
                23 21 0:4 /mine /etc/aliquot rw - ext4 /dev/sda rw
                24 20 0:5 / /usr rw - tmpfs tmpfs rw
                25 20 0:6 / /usr/local/aliquot rw - tmpfs tmpfs rw
                """);

        assertThat(mounts.at("/etc/aliquot")).contains(new Source("0:4", "/mine"));
        assertThat(mounts.at("/etc/aliquot/vgpu")).contains(new Source("0:4", "/mine/vgpu"));
        assertThat(mounts.at("/etc/preload")).contains(new Source("0:3", "/state/file"));
        assertThat(mounts.at("/etc/preload2")).contains(new Source("0:1", "/etc/preload2"));
        assertThat(mounts.at("/usr/local/aliquot")).contains(new Source("0:5", "/local/aliquot"));
        assertThat(mounts.shows(new Source("0:2", "/")::equals)).isFalse();
        assertThat(mounts.shows(new Source("0:6", "/")::equals)).isFalse();
        assertThat(mounts.shows(new Source("0:4", "/mine")::equals)).isTrue();
        assertThat(mounts.isMountPoint("/etc/aliquot")).isTrue();
        assertThat(mounts.isMountPoint("/etc/aliquot/vgpu")).isFalse();
    }

    @Test
    void aMountOverTheRootDoesNotCountAndARootThatIsNoMountIsNotKnown() {
        String listed =
                "20 1 0:1 / / rw - ext4 a rw\n30 20 0:9 / / rw - tmpfs a rw\n31 30 0:8 / /etc rw - tmpfs a rw\n";

        assertThat(Mounts.parse(listed).at("/etc")).contains(new Source("0:1", "/etc"));
        assertThat(Mounts.parse("20 1 0:1 / /x rw - ext4 a rw\n").at("/x")).isEmpty();
    }

    @Test
    void escapesAndRemovedFilesAreRead() {
        var mounts = Mounts.parse("""
                20 1 0:1 / / rw - overlay overlay rw
                21 20 0:2 /a\\040b//deleted /c\\134\\011d rw - tmpfs tmpfs rw
                """);

        assertThat(mounts.at("/c\\\td")).contains(new Source("0:2", "/a b"));
    }

    @Test
    void aListThatIsTooLongShowsNothing(@TempDir Path folder) throws Exception {
        String line = "20 1 0:1 / / rw - overlay overlay rw\n";
        Path file = Files.writeString(folder.resolve("mountinfo"), line.repeat((1 << 20) / line.length() + 1));

        assertThat(Mounts.read(file).at("/")).isEmpty();
    }

    @Test
    void anyBytesAreRead() {
        var random = new Random(40);
        String alphabet = "0123456789 :/\\\n-abc";
        for (int i = 0; i < 20_000; i++) {
            byte[] bytes = new byte[random.nextInt(200)];
            random.nextBytes(bytes);
            var text = new StringBuilder(new String(bytes, StandardCharsets.ISO_8859_1));
            for (int c = 0; i % 2 == 0 && c < text.length(); c++) {
                text.setCharAt(c, alphabet.charAt(text.charAt(c) % alphabet.length()));
            }
            assertThatCode(() -> Mounts.parse(text.toString()).at("/etc/aliquot"))
                    .as("round %s", i)
                    .doesNotThrowAnyException();
        }
        // Mounts of which each is the other's parent.
        var circle = Mounts.parse("1 9 0:1 / / - \n2 1 0:2 / /a -\n3 2 0:3 / /a -\n2 3 0:2 / /a -\n");
        assertThat(circle.at("/a")).isPresent();
    }

    /** Random mounts and renamed folders in a mount namespace of its own: where the kernel finds each path. */
    @Test
    void theKernelFindsTheSame(@TempDir Path folder) throws Exception {
        assumeTrue(run(folder, "mount -t tmpfs tmpfs " + folder).equals(""), "no right to mount");
        for (int seed = 1; seed <= 5; seed++) {
            compare(new Random(seed), "seed " + seed, folder);
        }
    }

    private static void compare(Random random, String seed, Path folder) throws Exception {
        List<String> paths = paths("", 3);
        var script = new StringBuilder("mount -t tmpfs top " + folder + "; cd " + folder + "; mkdir tree own\n");
        List<String> fileSystems = new ArrayList<>();
        for (int i = 0; i < 3; i++) { // each is also mounted elsewhere, where nothing covers it
            script.append("mkdir own/%d; mount -t tmpfs fs%d own/%d; (cd own/%d; mkdir -p %s)\n"
                    .formatted(i, i, i, i, quoted(paths)));
            fileSystems.add("own/" + i);
        }
        script.append("mount --bind own/0 tree\n");
        for (int i = 0; i < 25; i++) {
            String path = "tree" + any(paths, random);
            String from = any(fileSystems, random) + any(paths, random);
            script.append(
                    switch (random.nextInt(5)) {
                        case 0 ->
                            "mv '%s' '%s' 2>/dev/null && mkdir '%s' 2>/dev/null\n"
                                    .formatted(path, path + random.nextInt(9), path);
                        case 1 -> "mount --rbind tree '%s' 2>/dev/null\n".formatted(path);
                        default -> "mount --bind '%s' '%s' 2>/dev/null\n".formatted(from, path);
                    });
        }
        script.append("sed 's/^/M /' /proc/self/mountinfo\n");
        script.append("for p in ")
                .append(quoted(paths.stream().map(path -> "tree" + path).toList()))
                .append("; do stat -c 'T %d:%i %n' \"$p\" 2>/dev/null; done\n");
        script.append("find own -type d -exec stat -c 'O %d:%i %n' {} +\n");
        String output = run(folder, script.toString());

        var mountinfo = new StringBuilder();
        Map<String, String> inodes = new HashMap<>();
        Map<String, String> tree = new HashMap<>();
        for (String line : output.lines().toList()) {
            String[] words = line.split(" ", 3);
            switch (words[0]) {
                case "M" -> mountinfo.append(line.substring(2)).append('\n');
                case "T" -> tree.put(words[2], words[1]);
                case "O" -> inodes.put(words[2], words[1]);
                default -> throw new AssertionError(line);
            }
        }
        var mounts = Mounts.parse(mountinfo.toString());
        Map<String, String> byDevice = new HashMap<>();
        for (String own : fileSystems) {
            byDevice.put(mounts.at(folder + "/" + own).orElseThrow().device(), own);
        }
        assertThat(tree).as(seed).hasSizeGreaterThan(8);
        tree.forEach((path, inode) -> {
            Source source = mounts.at(folder + "/" + path).orElseThrow();
            String own = byDevice.get(source.device()) + (source.path().equals("/") ? "" : source.path());
            assertThat(inodes.get(own))
                    .as("%s: %s is %s%n%s", seed, path, source, mountinfo)
                    .isEqualTo(inode);
        });
    }

    private static List<String> paths(String parent, int depth) {
        List<String> paths = new ArrayList<>();
        for (String name : NAMES) {
            String path = parent + "/" + name;
            paths.add(path);
            if (depth > 1) {
                paths.addAll(paths(path, depth - 1));
            }
        }
        return paths;
    }

    private static String quoted(List<String> paths) {
        return String.join(
                " ",
                paths.stream()
                        .map(path -> "'" + (path.startsWith("/") ? "." + path : path) + "'")
                        .toList());
    }

    private static String any(List<String> list, Random random) {
        return list.get(random.nextInt(list.size()));
    }

    /** What a script prints in a mount namespace of its own. */
    private static String run(Path folder, String script) throws Exception {
        Path file = Files.writeString(folder.resolve("script"), script);
        Process process = new ProcessBuilder("unshare", "--mount", "--propagation", "private", "bash", file.toString())
                .redirectErrorStream(true)
                .start();
        String output = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        assertThat(process.waitFor(20, TimeUnit.SECONDS)).isTrue();
        return output;
    }
}
