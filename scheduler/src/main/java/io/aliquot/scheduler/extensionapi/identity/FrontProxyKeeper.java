package io.aliquot.scheduler.extensionapi.identity;

import io.aliquot.api.format.FormatException;
import io.aliquot.scheduler.extensionapi.machinery.StatusException;
import io.aliquot.scheduler.settings.Settings;
import jakarta.annotation.PostConstruct;
import java.time.Duration;
import java.util.function.Supplier;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import org.springframework.stereotype.Component;

/**
 * Reads by what the front proxy is recognized, again and again, so a CA can be rotated without a restart. While the API
 * server gives no answer, the last one counts. Thread-safe.
 */
@Component
public final class FrontProxyKeeper {
    public static final Duration PERIOD = Duration.ofSeconds(15);

    private static final Logger LOG = LoggerFactory.getLogger(FrontProxyKeeper.class);

    private final ControlPlane controlPlane;
    private final boolean served;
    private volatile Supplier<FrontProxy> current = () -> {
        throw StatusException.unavailable(
                "this replica has not read yet how the API server identifies itself; try again");
    };
    private String lastProblem = "";

    FrontProxyKeeper(ControlPlane controlPlane, Settings settings) {
        this.controlPlane = controlPlane;
        this.served = !settings.apiGroupService().isEmpty();
    }

    /** The first run, for which the start of the replica does not wait: the API server may be away. */
    @PostConstruct
    void start() {
        Thread.ofPlatform().name("front-proxy").daemon().start(this::refresh);
    }

    /** One run, every {@link #PERIOD}. */
    public void refresh() {
        if (served) {
            read();
        }
    }

    /** Reads once. */
    public synchronized void read() {
        try {
            FrontProxy read = FrontProxy.parse(controlPlane.authentication());
            current = () -> read;
            lastProblem = "";
        } catch (FormatException e) {
            current = () -> {
                throw StatusException.unauthorized(String.valueOf(e.getMessage()));
            };
            logOnce(e);
        } catch (RuntimeException e) {
            logOnce(e);
        }
    }

    private void logOnce(RuntimeException e) {
        String problem = String.valueOf(e.getMessage());
        if (!problem.equals(lastProblem)) {
            LOG.warn("cannot tell which requests the API server forwards, trying again: {}", problem);
        }
        lastProblem = problem;
    }

    /**
     * By what the front proxy is recognized.
     *
     * @throws StatusException with code 401 if no request can come from it, or 503 if that is not known yet
     */
    FrontProxy current() {
        return current.get();
    }
}
