package io.aliquot.scheduler.extensionapi.machinery;

import io.aliquot.api.format.FormatException;
import io.aliquot.scheduler.cluster.LabelSelector;
import jakarta.servlet.http.HttpServletRequest;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.TreeSet;
import java.util.function.Function;
import java.util.function.Predicate;
import org.jspecify.annotations.Nullable;

/**
 * The query parameters of a request, as Kubernetes defines them (k8s.io/apimachinery, meta/v1, ListOptions). Unknown ones
 * are ignored, as in the API server.
 */
public final class Query {
    private static final int LONGEST_TOKEN = 2000;
    private static final int MAX_TIMEOUT_SECONDS = 24 * 60 * 60;

    private final Map<String, String[]> parameters;

    private Query(Map<String, String[]> parameters) {
        this.parameters = parameters;
    }

    public static Query of(HttpServletRequest request) {
        try {
            return new Query(request.getParameterMap());
        } catch (IllegalStateException e) { // Servlet 6.1 throws this if a parameter cannot be decoded
            throw StatusException.badRequest("write parameters as name=value, in UTF-8 and percent-encoded");
        }
    }

    /** Where a list continues: after an object, with the version of its first page. */
    public record Continuation(long version, String after) {
        public String print() {
            return Base64.getUrlEncoder()
                    .withoutPadding()
                    .encodeToString(("1/" + version + "/" + after).getBytes(StandardCharsets.UTF_8));
        }

        private static Continuation parse(String token) {
            try {
                String[] parts = new String(Base64.getUrlDecoder().decode(token), StandardCharsets.UTF_8).split("/", 3);
                if (token.length() <= LONGEST_TOKEN
                        && parts.length == 3
                        && parts[0].equals("1")
                        && parts[1].matches("[0-9]{1,18}")) {
                    return new Continuation(Long.parseLong(parts[1]), parts[2]);
                }
            } catch (IllegalArgumentException e) {
                // below
            }
            throw invalid();
        }

        /** The answer to a token that no list of the request's objects has given. */
        public static StatusException invalid() {
            return StatusException.badRequest("continue: write metadata.continue of the page before, or leave it out");
        }
    }

    /** The parameter's value; empty if it is absent. */
    public String text(String name) {
        String @Nullable [] values = parameters.get(name);
        return values == null ? "" : values[0];
    }

    /** As the API server reads it: true unless it is absent, {@code false} or {@code 0}. */
    public boolean flag(String name) {
        return parameters.containsKey(name)
                && !text(name).equalsIgnoreCase("false")
                && !text(name).equals("0");
    }

    boolean has(String name) {
        return !text(name).isEmpty();
    }

    /** The number of objects on a page; 0 for all. */
    public int limit() {
        return (int) Math.min(Integer.MAX_VALUE - 1, number("limit").orElse(0));
    }

    public Optional<Continuation> continuation() {
        return has("continue") ? Optional.of(Continuation.parse(text("continue"))) : Optional.empty();
    }

    OptionalLong timeoutSeconds() {
        OptionalLong seconds = number("timeoutSeconds");
        return seconds.isPresent() ? OptionalLong.of(Math.min(MAX_TIMEOUT_SECONDS, seconds.getAsLong())) : seconds;
    }

    /** The parameter {@code resourceVersion}; empty if it is absent. */
    public OptionalLong version() {
        return number("resourceVersion");
    }

    private OptionalLong number(String name) {
        String text = text(name);
        if (text.isEmpty()) {
            return OptionalLong.empty();
        }
        if (!text.matches("[0-9]{1,18}")) {
            throw StatusException.badRequest(name + ": write a whole number instead of \"" + text + "\"");
        }
        return OptionalLong.of(Long.parseLong(text));
    }

    /** Whether the parameter {@code dryRun} asks to change nothing. */
    public boolean dryRun() {
        String[] values = parameters.getOrDefault("dryRun", new String[0]);
        for (String value : values) {
            if (!value.equals("All")) {
                throw StatusException.badRequest("dryRun: write All instead of \"" + value + "\"");
            }
        }
        return values.length > 0;
    }

    /** The objects that the selectors of the request select. */
    public <T> Predicate<T> selected(Resource<T> resource) {
        LabelSelector labels = labels();
        Predicate<T> fields = fields(resource);
        return object -> fields.test(object) && labels.matches(resource.labels(object));
    }

    private LabelSelector labels() {
        try {
            return LabelSelector.parse(text("labelSelector"));
        } catch (FormatException e) {
            throw StatusException.badRequest("labelSelector: " + e.getMessage());
        }
    }

    public boolean selects() {
        return has("labelSelector") || has("fieldSelector");
    }

    private <T> Predicate<T> fields(Resource<T> resource) {
        Predicate<T> all = object -> true;
        if (!has("fieldSelector")) {
            return all;
        }
        for (String part : text("fieldSelector").split(",", -1)) {
            int at = part.indexOf('=');
            if (at < 0) {
                throw StatusException.badRequest("fieldSelector: write field=value instead of \"" + part + "\"");
            }
            boolean not = at > 0 && part.charAt(at - 1) == '!';
            String name = part.substring(0, not ? at - 1 : at).strip();
            String value =
                    part.substring(part.startsWith("==", at) ? at + 2 : at + 1).strip();
            Function<T, String> field = Optional.ofNullable(resource.fields().get(name))
                    .orElseThrow(() -> StatusException.badRequest("field label not supported: " + name + "; those of "
                            + resource.plural() + ": "
                            + String.join(", ", new TreeSet<>(resource.fields().keySet()))));
            all = all.and(object -> field.apply(object).equals(value) != not);
        }
        return all;
    }

    /**
     * What a row of a table carries: {@code None}, {@code Metadata} or {@code Object}.
     *
     * @throws StatusException with code 400
     */
    String includeObject() {
        String include = has("includeObject") ? text("includeObject") : "Metadata";
        return switch (include) {
            case "None", "Metadata", "Object" -> include;
            default -> throw StatusException.badRequest("includeObject: write None, Metadata or Object");
        };
    }
}
