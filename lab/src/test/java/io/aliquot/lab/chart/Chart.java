package io.aliquot.lab.chart;

import static java.nio.charset.StandardCharsets.UTF_8;

import com.marcnuri.helm.DryRun;
import com.marcnuri.helm.Helm;
import com.marcnuri.helm.TemplateCommand;
import io.fabric8.kubernetes.api.model.HasMetadata;
import io.fabric8.kubernetes.client.utils.KubernetesSerialization;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;
import java.util.regex.Pattern;
import java.util.stream.Stream;

/** The chart of the checkout that contains the working directory, and the objects that Helm renders from it. */
final class Chart {
    static final String NAMESPACE = "aliquot";
    static final String RELEASE = "aliquot";

    /** Helm as a library has no cluster to ask and would assume an old version. */
    static final String KUBERNETES = "v1.35.4";

    private static final Pattern HOOK = Pattern.compile("(?m)^ +helm\\.sh/hook.*\n");

    static final Path FOLDER = root().resolve("charts/aliquot");

    /** The chart of the newest release, packaged; until there is one, that of the commit before the first release. */
    static final Path EARLIER = root().resolve("lab/src/test/charts/earlier.tgz");

    /** A copy in which what {@code helm test} creates is an object as all others: Helm as a library prints no hooks. */
    private static final Path WITHOUT_HOOKS = withoutHooks();

    private static final KubernetesSerialization SERIALIZATION = new KubernetesSerialization();

    /** By values files. */
    private static final Map<List<Path>, List<Rendered>> RENDERED = new ConcurrentHashMap<>();

    private Chart() {}

    /** A rendered object and its template. */
    record Rendered(String template, HasMetadata object) {}

    static Path root() {
        Path root = Path.of("").toAbsolutePath();
        while (!Files.isDirectory(root.resolve("charts/aliquot"))) {
            root = Optional.ofNullable(root.getParent())
                    .orElseThrow(
                            () -> new IllegalStateException("no charts/aliquot in the working directory or above it"));
        }
        return root;
    }

    /** The values.yaml of {@link #EARLIER}. */
    static String earlierValues() {
        try {
            Process tar = new ProcessBuilder("tar", "-xzOf", EARLIER.toString(), RELEASE + "/values.yaml").start();
            return new String(tar.getInputStream().readAllBytes(), UTF_8);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    private static Path withoutHooks() {
        try (Stream<Path> files = Files.walk(FOLDER)) {
            Path copy = Files.createTempDirectory(Path.of("target"), "chart");
            for (Path file : files.filter(Files::isRegularFile).toList()) {
                Path to = copy.resolve(FOLDER.relativize(file));
                Files.createDirectories(to.getParent());
                Files.writeString(to, HOOK.matcher(Files.readString(file)).replaceAll(""));
            }
            return copy;
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    /** The scenarios: the values files in {@code ci/}. */
    static List<Path> scenarios() {
        try (Stream<Path> files = Files.list(FOLDER.resolve("ci"))) {
            return files.sorted().toList();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    static TemplateCommand template() {
        return new Helm(WITHOUT_HOOKS)
                .template()
                .withName(RELEASE)
                .withNamespace(NAMESPACE)
                .withKubeVersion(KUBERNETES);
    }

    /** The notes that Helm prints after an installation. */
    static String notes(Path valuesFile) {
        return notes(valuesFile, KUBERNETES);
    }

    /** The same in a cluster of this version. */
    static String notes(Path valuesFile, String kubernetes) {
        String report = new Helm(FOLDER)
                .install()
                .withName(RELEASE)
                .withNamespace(NAMESPACE)
                .withKubeVersion(kubernetes)
                .withValuesFile(valuesFile)
                .clientOnly()
                .withDryRunOption(DryRun.CLIENT)
                .call()
                .getOutput();
        return report.substring(report.indexOf("NOTES:"));
    }

    /** Once for all tests, which do not change it; the files are the checkout's. */
    static List<Rendered> render(Path... valuesFiles) {
        return RENDERED.computeIfAbsent(List.of(valuesFiles), files -> {
            TemplateCommand command = template();
            files.forEach(command::withValuesFile);
            return parse(command.call());
        });
    }

    static List<Rendered> renderWith(Map<String, Object> values) {
        TemplateCommand command = template();
        values.forEach(command::set);
        return parse(command.call());
    }

    private static List<Rendered> parse(String yaml) {
        var rendered = new ArrayList<Rendered>();
        for (String document : yaml.split("(?m)^---$", -1)) {
            if (document.lines().allMatch(line -> line.isBlank() || line.startsWith("#"))) {
                continue;
            }
            String template = document.lines()
                    .filter(line -> line.startsWith("# Source: "))
                    .findFirst()
                    .orElseThrow(
                            () -> new AssertionError("expected a comment that names the template of:\n" + document))
                    .substring("# Source: ".length());
            Object object = SERIALIZATION.unmarshal(document);
            rendered.add(new Rendered(template, (HasMetadata) object));
        }
        return List.copyOf(rendered);
    }

    /** The one object of this type and name. */
    static <T extends HasMetadata> T the(List<Rendered> rendered, Class<T> type, String name) {
        List<T> found = all(rendered, type).stream()
                .filter(object -> object.getMetadata().getName().equals(name))
                .toList();
        if (found.size() != 1) {
            throw new AssertionError("expected one " + type.getSimpleName() + " " + name + ", found " + found.size());
        }
        return found.get(0);
    }

    static <T extends HasMetadata> List<T> all(List<Rendered> rendered, Class<T> type) {
        return rendered.stream()
                .map(Rendered::object)
                .filter(type::isInstance)
                .map(type::cast)
                .toList();
    }
}
