package io.aliquot.scheduler.server.health;

import io.micrometer.core.instrument.binder.jvm.JvmGcMetrics;
import io.micrometer.core.instrument.binder.jvm.JvmMemoryMetrics;
import io.micrometer.prometheusmetrics.PrometheusConfig;
import io.micrometer.prometheusmetrics.PrometheusMeterRegistry;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;

@Configuration(proxyBeanMethods = false)
class MetricsConfiguration {
    @Bean
    PrometheusMeterRegistry metrics() {
        return new PrometheusMeterRegistry(PrometheusConfig.DEFAULT);
    }

    @Bean
    JvmMemoryMetrics memory(PrometheusMeterRegistry metrics) {
        var memory = new JvmMemoryMetrics();
        memory.bindTo(metrics);
        return memory;
    }

    @Bean
    JvmGcMetrics collections(PrometheusMeterRegistry metrics) {
        var collections = new JvmGcMetrics();
        collections.bindTo(metrics);
        return collections;
    }
}
