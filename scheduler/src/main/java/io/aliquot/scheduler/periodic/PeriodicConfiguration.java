package io.aliquot.scheduler.periodic;

import java.util.List;
import java.util.function.LongSupplier;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;

@Configuration(proxyBeanMethods = false)
class PeriodicConfiguration {
    @Bean(destroyMethod = "close")
    PeriodicTasks periodicTasks(List<PeriodicTask> tasks, LongSupplier nanoTime) {
        return new PeriodicTasks(tasks, nanoTime);
    }
}
