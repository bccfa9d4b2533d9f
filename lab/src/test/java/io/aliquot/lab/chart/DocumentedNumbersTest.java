package io.aliquot.lab.chart;

import static org.assertj.core.api.Assertions.assertThat;

import io.fabric8.kubernetes.api.model.admissionregistration.v1.ValidatingAdmissionPolicy;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Set;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;

/** What the documentation says of the chart and can be counted: a few milliseconds. */
class DocumentedNumbersTest {
    private static final String INSTALL = read("docs/install.md");

    @Test
    void theReadmeCountsThePoliciesThatTheChartInstalls() {
        assertThat(first(read("README.md"), "(\\S+) ValidatingAdmissionPolicies"))
                .isEqualTo(String.valueOf(policies().size()));
    }

    @Test
    void bothTablesOfThePoliciesHaveARowOfEach() {
        List<String> tables = List.of(
                between(INSTALL, "### What the policies enforce", "#### What a policy can stop"),
                between(INSTALL, "#### What a policy can stop", "## Values"));

        for (String table : tables) {
            assertThat(rows(table).flatMap(row -> matches(row.getFirst(), "`(aliquot-[a-z-]+)`")))
                    .containsExactlyInAnyOrderElementsOf(policies());
        }
    }

    @Test
    void theTableForGitOpsHasARowOfEachLookup() {
        List<String> lookups = templates()
                .flatMap(template -> matches(template, "\\(?\\blookup \"[^\"]+\" \"([A-Za-z]+)\""))
                .toList();
        String table = between(INSTALL, "## GitOps", "```yaml");

        assertThat(lookups).isNotEmpty();
        assertThat(rows(table)
                        .map(List::getFirst)
                        .filter(first -> !first.equals("looked up"))
                        .flatMap(first -> Stream.of(first.split(", ", -1))))
                .containsExactlyInAnyOrderElementsOf(lookups);
    }

    @Test
    void theSupportMatrixNamesTheVersionsThatTheLabRuns() {
        String matrix = read("docs/support-matrix.md");

        assertThat(rows(matrix).filter(cells -> cells.getFirst().equals("Helm")).map(cells -> cells.get(2)))
                .containsExactly(first(read("lab/kube/go.mod"), "helm\\.sh/helm/v3 v(\\S+)"));
        String versions = read("lab/common.sh");
        assertThat(matrix)
                .contains(
                        "containerd " + first(versions, "containerd_version=(\\S+)"),
                        "runc " + first(versions, "runc_version=(\\S+)"),
                        "toolkit " + first(versions, "nvidia_toolkit_version=(\\S+)"));
    }

    /** Beside the default version those of the table, which {@code ./aliquot test --long kubernetes-VERSION} writes. */
    @Test
    void theNotesNameTheVersionsOfKubernetesThatTheSupportMatrixHasAndTheLabRuns() {
        Path notes = Chart.scenarios().getFirst();
        String byDefault = first(read("lab/kube/go.mod"), "k8s\\.io/kubernetes v(\\S+)");
        String table = between(
                read("docs/support-matrix.md"),
                "<!-- What ran on which Kubernetes",
                "<!-- End of what ran on which Kubernetes");
        List<String> others = matches(table, "(?m)^\\| (1\\.[0-9.]+) \\|")
                .filter(version -> !version.equals(byDefault))
                .toList();

        assertThat(others)
                .allMatch(version -> Files.exists(Chart.root().resolve("lab/kube/versions/" + version + ".mod")));
        List<String> tested = Stream.concat(others.stream(), Stream.of(byDefault))
                .map(version -> version.substring(0, version.lastIndexOf('.')))
                .sorted()
                .toList();
        assertThat(Chart.notes(notes, "v1.99.0"))
                .contains("runs Kubernetes v1.99.0. Aliquot's own tests ran on " + String.join(", ", tested) + " (");
        for (String version : tested) {
            assertThat(Chart.notes(notes, "v" + version + ".0")).doesNotContain("own tests ran on");
        }
    }

    private static Set<String> policies() {
        return Set.copyOf(Chart.all(Chart.render(), ValidatingAdmissionPolicy.class).stream()
                .map(policy -> policy.getMetadata().getName())
                .toList());
    }

    private static Stream<String> templates() {
        try (Stream<Path> files = Files.walk(Chart.FOLDER.resolve("templates"))) {
            return files.filter(Files::isRegularFile).map(Path::toString).sorted().toList().stream()
                    .map(DocumentedNumbersTest::read);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    /** The cells of each row of the tables. */
    private static Stream<List<String>> rows(String text) {
        return text.lines()
                .filter(line -> line.startsWith("| "))
                .map(line -> Stream.of(line.substring(2).split(" \\|", -1))
                        .map(String::strip)
                        .toList());
    }

    private static Stream<String> matches(String text, String regex) {
        return Pattern.compile(regex).matcher(text).results().map(result -> result.group(1));
    }

    private static String first(String text, String regex) {
        return matches(text, regex).findFirst().orElseThrow(() -> new AssertionError("expected a match of " + regex));
    }

    private static String between(String text, String start, String end) {
        int from = text.indexOf(start);
        return text.substring(from, text.indexOf(end, from));
    }

    private static String read(String path) {
        try {
            return Files.readString(Chart.root().resolve(path));
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }
}
