package io.aliquot.scheduler.admission;

import io.aliquot.scheduler.settings.Settings;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;

@Configuration(proxyBeanMethods = false)
class AdmissionConfiguration {
    @Bean
    GpuAdmission gpuAdmission(Settings settings) {
        return new GpuAdmission(settings.schedulerName(), settings.runtimeClass(), settings.compatibility());
    }
}
