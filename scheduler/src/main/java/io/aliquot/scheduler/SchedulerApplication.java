package io.aliquot.scheduler;

import io.aliquot.scheduler.apiproxy.ApiProxy;
import io.aliquot.scheduler.certificate.CaBundles;
import io.aliquot.scheduler.doctor.Doctor;
import java.io.IOException;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.boot.webmvc.autoconfigure.error.ErrorMvcAutoConfiguration;

/** The entry point of the process. */
// Package server.errors writes error responses; Spring Boot's error pages are not used.
@SpringBootApplication(exclude = ErrorMvcAutoConfiguration.class)
public class SchedulerApplication {
    private static final int USAGE_ERROR = 2;
    private static final String CA_BUNDLES = "ca-bundles";
    private static final String API_PROXY = "api-proxy";
    private static final String DOCTOR = "doctor";

    /**
     * Takes properties of Spring Boot only, {@code --name=value}; exits with status 2 if there is another argument. After
     * {@code ca-bundles}, takes the arguments of {@link CaBundles#write} and does that alone; after {@code api-proxy}, those
     * of {@link ApiProxy#run}; after {@code doctor}, those of {@link Doctor#run}.
     */
    public static void main(String[] args) throws IOException, InterruptedException {
        if (args.length > 0 && args[0].equals(CA_BUNDLES)) {
            CaBundles.write(Arrays.asList(args).subList(1, args.length));
            return;
        }
        if (args.length > 0 && args[0].equals(API_PROXY)) {
            ApiProxy.run(Arrays.asList(args).subList(1, args.length), System.getenv(), new SystemClocks().nanoTime());
            return;
        }
        if (args.length > 0 && args[0].equals(DOCTOR)) {
            var clocks = new SystemClocks();
            List<String> arguments = Arrays.asList(args).subList(1, args.length);
            System.exit(Doctor.run(arguments, clocks.clock(), clocks.nanoTime(), System.out, System.err));
        }
        Optional<String> unknown =
                Arrays.stream(args).filter(arg -> !arg.matches("--.+=.*")).findFirst();
        if (unknown.isPresent()) {
            System.err.println("The scheduler takes no argument \"" + unknown.get()
                    + "\"; the simulator is a program of its own: java -jar aliquot-simulator.jar --help");
            System.exit(USAGE_ERROR);
        }
        SpringApplication.run(SchedulerApplication.class, args);
    }
}
