package io.aliquot.scheduler;

import java.time.Clock;
import java.util.function.LongSupplier;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;

/** The clocks of the process. No other class reads a static clock, so that tests can inject their own. */
@Configuration(proxyBeanMethods = false)
public class SystemClocks {
    /** Monotonic, in nanoseconds from an arbitrary origin; it can overflow, so compare differences, not values. */
    @Bean
    LongSupplier nanoTime() {
        return System::nanoTime;
    }

    @Bean
    Clock clock() {
        return Clock.systemUTC();
    }
}
