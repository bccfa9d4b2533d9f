package io.aliquot.scheduler.extensionapi.identity;

import io.aliquot.api.format.FormatException;
import io.aliquot.scheduler.extensionapi.machinery.StatusException;
import io.aliquot.scheduler.settings.Settings;
import jakarta.annotation.PostConstruct;
import jakarta.annotation.PreDestroy;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import org.springframework.stereotype.Component;

/**
 * Reads by what the front proxy is recognized, again every {@value #PERIOD_SECONDS} s, so a CA can be rotated without a
 * restart. While the API server gives no answer, the last one counts. Thread-safe.
 */
@Component
public final class FrontProxyKeeper {
    static final long PERIOD_SECONDS = 15;

    private static final Logger LOG = LoggerFactory.getLogger(FrontProxyKeeper.class);

    private sealed interface State {
        record Known(FrontProxy proxy) implements State {}

        /** The API server's configuration is not usable. */
        record Unusable(String why) implements State {}

        record NotRead() implements State {}
    }

    private final ControlPlane controlPlane;
    private final boolean served;
    private final ScheduledExecutorService timer = Executors.newSingleThreadScheduledExecutor(
            Thread.ofPlatform().name("front-proxy").daemon().factory());
    private volatile State state = new State.NotRead();
    private String lastProblem = "";

    FrontProxyKeeper(ControlPlane controlPlane, Settings settings) {
        this.controlPlane = controlPlane;
        this.served = !settings.apiGroupService().isEmpty();
    }

    @PostConstruct
    void start() {
        if (served) {
            var unused = timer.scheduleWithFixedDelay(this::read, 0, PERIOD_SECONDS, TimeUnit.SECONDS);
        }
    }

    @PreDestroy
    void stop() {
        timer.shutdownNow();
    }

    /** Reads once. */
    public synchronized void read() {
        try {
            state = new State.Known(FrontProxy.parse(controlPlane.authentication()));
            lastProblem = "";
        } catch (FormatException e) {
            state = new State.Unusable(String.valueOf(e.getMessage()));
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
        return switch (state) {
            case State.Known(FrontProxy proxy) -> proxy;
            case State.Unusable(String why) -> throw StatusException.unauthorized(why);
            case State.NotRead() ->
                throw StatusException.unavailable(
                        "this replica has not read yet how the API server identifies itself; try again");
        };
    }
}
