package io.aliquot.api.pods;

import io.aliquot.api.format.Keywords;
import io.aliquot.api.names.Resources;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import java.util.function.Function;
import java.util.function.UnaryOperator;
import java.util.stream.Collectors;
import org.jspecify.annotations.Nullable;

/**
 * What the pods of a namespace may take of a GPU's time at the cost of their neighbors. Policies of the API server hold pods to
 * it; they read the same annotations.
 *
 * @param policies that pods may have, at least one
 * @param priorities that pods may have, at least one
 * @param coresRequired whether a container that shares a GPU must request cores, since without them it is not limited
 */
public record CoreRules(List<CorePolicy> policies, List<Priority> priorities, boolean coresRequired) {
    /** Nothing is forbidden. */
    public static final CoreRules NONE = new CoreRules(List.of(CorePolicy.values()), List.of(Priority.values()), false);

    private static final String POLICIES = "allowed-core-policies";
    private static final String PRIORITIES = "allowed-priorities";
    private static final String CORES_REQUIRED = "require-cores";

    public CoreRules {
        policies = List.copyOf(policies);
        priorities = List.copyOf(priorities);
    }

    /**
     * These rules where no value is set, and the values elsewhere.
     *
     * @param name the name of a value for {@code allowed-core-policies}, {@code allowed-priorities} or {@code require-cores}
     * @param values by these names; null or empty: not set
     * @throws io.aliquot.api.format.FormatException if a value is invalid; the message begins with its name
     */
    public CoreRules with(UnaryOperator<String> name, Function<String, @Nullable String> values) {
        Function<String, Optional<String>> value =
                key -> Optional.ofNullable(values.apply(name.apply(key))).filter(text -> !text.isBlank());
        return new CoreRules(
                value.apply(POLICIES)
                        .map(text -> list(text, one -> CorePolicy.parse(name.apply(POLICIES), one)))
                        .orElse(policies),
                value.apply(PRIORITIES)
                        .map(text -> list(text, one -> Priority.parse(name.apply(PRIORITIES), one)))
                        .orElse(priorities),
                value.apply(CORES_REQUIRED)
                        .map(text ->
                                Keywords.parse(name.apply(CORES_REQUIRED), text, List.of(true, false), String::valueOf))
                        .orElse(coresRequired));
    }

    private static <T> List<T> list(String text, Function<String, T> parse) {
        return Arrays.stream(text.split(",", -1)).map(String::strip).map(parse).toList();
    }

    /** The policy if pods may have it, else the first that they may have. */
    public CorePolicy orAllowed(CorePolicy policy) {
        return policies.contains(policy) ? policy : policies.getFirst();
    }

    /** Why a container may not change to this; empty if it may. */
    public Optional<String> refusal(@Nullable CorePolicy policy, @Nullable Integer cores) {
        if (policy != null && !policies.contains(policy)) {
            return Optional.of("the namespace's pods may not have the core policy " + policy.print() + "; allowed: "
                    + policies.stream().map(CorePolicy::print).collect(Collectors.joining(", ")));
        }
        return coresRequired && cores != null && cores == 0
                ? Optional.of("the namespace's pods must have cores: write 1 to 100")
                : Optional.empty();
    }

    /** The rules in words; empty if nothing is forbidden. */
    public String describe() {
        if (equals(NONE)) {
            return "";
        }
        return "core policies " + policies.stream().map(CorePolicy::print).collect(Collectors.joining(", "))
                + "; priorities " + priorities.stream().map(Priority::print).collect(Collectors.joining(", "))
                + (coresRequired ? "; a share must request " + Resources.CORES : "");
    }
}
