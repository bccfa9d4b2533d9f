package io.aliquot.scheduler;

import io.aliquot.scheduler.simulate.Simulate;
import java.util.Arrays;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.boot.webmvc.autoconfigure.error.ErrorMvcAutoConfiguration;

/** The entry point of the process: the scheduler or, with the argument {@code simulate}, the simulator. */
// Package server writes error responses; Spring Boot's error pages are not used.
@SpringBootApplication(exclude = ErrorMvcAutoConfiguration.class)
public class SchedulerApplication {
    public static void main(String[] args) {
        if (args.length > 0 && args[0].equals(Simulate.NAME)) {
            System.exit(Simulate.run(Arrays.copyOfRange(args, 1, args.length)));
        }
        SpringApplication.run(SchedulerApplication.class, args);
    }
}
