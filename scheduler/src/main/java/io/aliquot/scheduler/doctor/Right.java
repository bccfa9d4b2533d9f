package io.aliquot.scheduler.doctor;

import static java.nio.charset.StandardCharsets.UTF_8;

import io.fabric8.kubernetes.api.model.authorization.v1.SubjectAccessReview;
import io.fabric8.kubernetes.api.model.authorization.v1.SubjectAccessReviewBuilder;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.util.List;
import java.util.Objects;
import java.util.regex.MatchResult;
import java.util.regex.Pattern;
import java.util.stream.Stream;

/**
 * A right that an account of Aliquot's needs.
 *
 * @param account the name of the ServiceAccount, which is in the release's namespace
 * @param namespace where it needs it; empty for the whole cluster
 * @param group the resource's API group; empty for the core group
 * @param resource in the plural, with its subresource if there is one, such as {@code pods/binding}
 * @param name of the one object that it is about; empty for all
 * @param verb as in RBAC, such as {@code list}
 */
record Right(String account, String namespace, String group, String resource, String name, String verb) {
    /** As rights.txt explains: when, account, where, resource, group, names, verbs. */
    private static final Pattern LINE =
            Pattern.compile("(always|api) (\\S+) (\\S+) ([^\\s.:]+)(?:\\.([^\\s:]+))?((?: [^\\s:]+)*): (.+)");

    /**
     * The rights that the accounts of a release need.
     *
     * @param api whether the release has the aggregated API
     */
    static List<Right> needed(String releaseNamespace, boolean api) {
        return lines().map(Right::match)
                .filter(line -> api || line.group(1).equals("always"))
                .flatMap(line -> {
                    String namespace = switch (line.group(3)) {
                        case "cluster" -> "";
                        case "release" -> releaseNamespace;
                        default -> line.group(3);
                    };
                    String group = Objects.requireNonNullElse(line.group(5), "");
                    List<String> names = List.of(line.group(6).strip().split(" ", -1));
                    return names.stream()
                            .flatMap(name -> Stream.of(line.group(7).split(" ", -1))
                                    .map(verb ->
                                            new Right(line.group(2), namespace, group, line.group(4), name, verb)));
                })
                .toList();
    }

    private static MatchResult match(String line) {
        var matcher = LINE.matcher(line);
        if (!matcher.matches()) {
            throw new IllegalStateException("expected a right in rights.txt, found " + line);
        }
        return matcher.toMatchResult();
    }

    private static Stream<String> lines() {
        try (InputStream file = Right.class.getResourceAsStream("rights.txt")) {
            return new String(file.readAllBytes(), UTF_8)
                    .lines()
                    .filter(line -> !line.isBlank() && !line.startsWith("#"));
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    /** The question to the API server whether the account of a release has this right. */
    SubjectAccessReview question(String releaseNamespace) {
        String[] parts = resource.split("/", 2);
        return new SubjectAccessReviewBuilder()
                .withNewSpec()
                .withUser(user(releaseNamespace))
                // As the API server puts service accounts into groups
                // (apiserver/pkg/authentication/serviceaccount/util.go).
                .withGroups(
                        "system:serviceaccounts", "system:serviceaccounts:" + releaseNamespace, "system:authenticated")
                .withNewResourceAttributes()
                .withNamespace(namespace)
                .withGroup(group)
                .withResource(parts[0])
                .withSubresource(parts.length > 1 ? parts[1] : "")
                .withName(name)
                .withVerb(verb)
                .endResourceAttributes()
                .endSpec()
                .build();
    }

    /** The account's name as a user. */
    String user(String releaseNamespace) {
        return "system:serviceaccount:" + releaseNamespace + ":" + account;
    }

    /** What it is about, such as {@code leases.coordination.k8s.io aliquot-scheduler in namespace aliquot}. */
    String target() {
        return resource
                + (group.isEmpty() ? "" : "." + group)
                + (name.isEmpty() ? "" : " " + name)
                + (namespace.isEmpty() ? "" : " in namespace " + namespace);
    }
}
