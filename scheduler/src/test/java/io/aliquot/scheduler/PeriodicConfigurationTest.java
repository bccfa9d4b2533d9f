package io.aliquot.scheduler;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.scheduler.periodic.PeriodicTasks;
import io.aliquot.scheduler.server.health.Liveness;
import java.util.Arrays;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.springframework.context.annotation.Bean;

class PeriodicConfigurationTest {
    /** Regression: the liveness probe did not notice that a periodic task had ended. */
    @Test
    void periodicTasksTakePartInTheLivenessProbe() {
        assertThat(Arrays.stream(PeriodicConfiguration.class.getDeclaredMethods())
                        .filter(method -> method.isAnnotationPresent(Bean.class))
                        .<Class<?>>map(method -> method.getReturnType()))
                .isEqualTo(List.of(PeriodicTasks.class))
                .allMatch(Liveness.class::isAssignableFrom);
    }
}
