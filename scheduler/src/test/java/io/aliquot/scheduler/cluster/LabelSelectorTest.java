package io.aliquot.scheduler.cluster;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.aliquot.scheduler.cluster.LabelSelector.Requirement;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class LabelSelectorTest {
    @Test
    void allLabelsMustBeEqual() {
        var selector = LabelSelector.of(Map.of("app", "a", "tier", "t"), List.of());
        assertThat(selector.matches(Map.of("app", "a", "tier", "t", "more", "m")))
                .isTrue();
        assertThat(selector.matches(Map.of("app", "a"))).isFalse();
        assertThat(selector.matches(Map.of("app", "b", "tier", "t"))).isFalse();
    }

    @Test
    void anEmptySelectorMatchesEveryPod() {
        assertThat(LabelSelector.of(Map.of(), List.of()).matches(Map.of())).isTrue();
    }

    @ParameterizedTest(name = "{0} {1}: with the value {2} {3}")
    @CsvSource({
        "In,           a b, a, true",
        "In,           a b, c, false",
        "In,           a b,  , false",
        "NotIn,        a b, a, false",
        "NotIn,        a b, c, true",
        "NotIn,        a b,  , true",
        "Exists,       '',  a, true",
        "Exists,       '',   , false",
        "DoesNotExist, '',  a, false",
        "DoesNotExist, '',   , true",
    })
    void operatorsMatchLikeThoseOfKubernetes(String operator, String values, String value, boolean matches) {
        var requirement = new Requirement("app", operator, Set.copyOf(Arrays.asList(values.split(" ", -1))));
        assertThat(LabelSelector.of(Map.of(), List.of(requirement))
                        .matches(value == null ? Map.of() : Map.of("app", value)))
                .isEqualTo(matches);
    }

    @Test
    void anUnknownOperatorIsAnError() {
        assertThatThrownBy(() -> new Requirement("app", "Like", Set.of())).hasMessageContaining("found Like");
    }
}
