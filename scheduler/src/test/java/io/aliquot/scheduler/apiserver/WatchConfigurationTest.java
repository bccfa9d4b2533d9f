package io.aliquot.scheduler.apiserver;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.scheduler.apiserver.leadership.Leadership;
import io.aliquot.scheduler.apiserver.watch.Informer;
import io.aliquot.scheduler.server.health.Liveness;
import java.lang.reflect.Method;
import java.util.Arrays;
import org.junit.jupiter.api.Test;
import org.springframework.context.annotation.Bean;

class WatchConfigurationTest {
    /** Regression: the liveness probe did not ask the leadership. */
    @Test
    void leadershipAndWatchesTakePartInTheLivenessProbe() {
        assertThat(Arrays.stream(WatchConfiguration.class.getDeclaredMethods())
                        .filter(method -> method.isAnnotationPresent(Bean.class))
                        .<Class<?>>map(Method::getReturnType)
                        .filter(Liveness.class::isAssignableFrom))
                .contains(Leadership.class, Informer.class);
    }
}
