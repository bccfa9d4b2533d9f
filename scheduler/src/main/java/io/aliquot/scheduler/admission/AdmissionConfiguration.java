package io.aliquot.scheduler.admission;

import io.aliquot.scheduler.settings.Settings;
import java.util.Optional;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;

@Configuration(proxyBeanMethods = false)
class AdmissionConfiguration {
    @Bean
    GpuAdmission gpuAdmission(Settings settings) {
        return new GpuAdmission(
                settings.schedulerName(),
                Optional.of(settings.runtimeClass()).filter(name -> !name.isEmpty()),
                settings.compatibility());
    }
}
