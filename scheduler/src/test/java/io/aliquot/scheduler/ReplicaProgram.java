package io.aliquot.scheduler;

import io.aliquot.scheduler.server.ports.RandomPorts;
import java.io.IOException;
import org.springframework.boot.SpringBootConfiguration;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.boot.builder.SpringApplicationBuilder;
import org.springframework.boot.webmvc.autoconfigure.error.ErrorMvcAutoConfiguration;
import org.springframework.context.annotation.ComponentScan;
import org.springframework.context.annotation.ComponentScan.Filter;
import org.springframework.context.annotation.FilterType;
import org.springframework.context.annotation.Import;
import org.springframework.core.type.classreading.MetadataReader;
import org.springframework.core.type.classreading.MetadataReaderFactory;
import org.springframework.core.type.filter.TypeFilter;

/** {@link SchedulerApplication} on the ports of {@link RandomPorts}, so that two replicas can run on one machine. */
@SpringBootConfiguration(proxyBeanMethods = false)
@EnableAutoConfiguration(exclude = ErrorMvcAutoConfiguration.class)
@ComponentScan(
        excludeFilters = {
            @Filter(type = FilterType.ASSIGNABLE_TYPE, classes = SchedulerApplication.class),
            @Filter(type = FilterType.CUSTOM, classes = ReplicaProgram.OfTests.class)
        })
@Import(RandomPorts.class)
class ReplicaProgram {
    static final class OfTests implements TypeFilter {
        @Override
        public boolean match(MetadataReader type, MetadataReaderFactory factory) throws IOException {
            return type.getResource().getURL().getPath().contains("/test-classes/");
        }
    }

    public static void main(String[] args) {
        var unused = new SpringApplicationBuilder(ReplicaProgram.class).run(args);
    }
}
