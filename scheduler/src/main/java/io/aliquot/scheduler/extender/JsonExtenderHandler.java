package io.aliquot.scheduler.extender;

import io.aliquot.scheduler.extender.Wire.Args;
import io.aliquot.scheduler.extender.Wire.BindingArgs;
import io.aliquot.scheduler.extender.Wire.BindingResult;
import io.aliquot.scheduler.extender.Wire.FilterResult;
import io.aliquot.scheduler.extender.Wire.HostPriority;
import io.aliquot.scheduler.extender.Wire.PreemptionArgs;
import io.aliquot.scheduler.extender.Wire.PreemptionResult;
import io.aliquot.scheduler.ledger.PodId;
import io.aliquot.scheduler.server.ExtenderHandler;
import io.aliquot.scheduler.server.FailedRequestException;
import io.micrometer.core.instrument.Counter;
import io.micrometer.core.instrument.MeterRegistry;
import java.io.InputStream;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Supplier;
import org.springframework.http.HttpStatus;
import org.springframework.web.server.ResponseStatusException;
import tools.jackson.core.JsonParser;
import tools.jackson.databind.DatabindException;
import tools.jackson.databind.json.JsonMapper;

/** The four verbs in JSON. */
final class JsonExtenderHandler implements ExtenderHandler {
    private static final String FILTER = "/filter";
    private static final String PRIORITIZE = "/prioritize";
    private static final String BIND = "/bind";
    private static final String PREEMPT = "/preempt";

    private static final String WANTS_NAMES = "expected NodeNames, found none: set nodeCacheCapable: true for this "
            + "extender in the KubeSchedulerConfiguration";

    private final JsonMapper json = Wire.mapper();
    private final FilterAndPrioritize filterAndPrioritize;
    private final Binder binder;
    private final PreemptVerb preemptVerb;
    private final VerbMetrics verbMetrics;
    private final MeterRegistry metrics;
    /** By outcome. */
    private final Map<String, Counter> binds = new ConcurrentHashMap<>();

    JsonExtenderHandler(
            FilterAndPrioritize filterAndPrioritize,
            Binder binder,
            PreemptVerb preemptVerb,
            VerbMetrics verbMetrics,
            MeterRegistry metrics) {
        this.filterAndPrioritize = filterAndPrioritize;
        this.binder = binder;
        this.preemptVerb = preemptVerb;
        this.verbMetrics = verbMetrics;
        this.metrics = metrics;
    }

    @Override
    public byte[] answer(String path, InputStream body) {
        return json.writeValueAsBytes(
                switch (path) {
                    case FILTER -> filter(read(body, Args.class));
                    case PRIORITIZE -> prioritize(read(body, Args.class));
                    case BIND -> bind(read(body, BindingArgs.class));
                    case PREEMPT -> preempt(read(body, PreemptionArgs.class));
                    default -> throw new ResponseStatusException(HttpStatus.NOT_FOUND, "nothing here");
                });
    }

    private <T> T read(InputStream body, Class<T> type) {
        T value = json.readValue(body, type);
        if (value == null) {
            throw DatabindException.from((JsonParser) null, "expected an object, found null");
        }
        return value;
    }

    private FilterResult filter(Args args) {
        return args.nodeNames()
                .map(nodes -> about(args.pod().id(), "filter", () -> filterAndPrioritize.filter(args.pod(), nodes)))
                .orElseGet(() -> FilterResult.error(WANTS_NAMES));
    }

    private List<HostPriority> prioritize(Args args) {
        // the answer to prioritize has no field for an error
        List<String> nodes =
                args.nodeNames().orElseThrow(() -> new ResponseStatusException(HttpStatus.BAD_REQUEST, WANTS_NAMES));
        return about(args.pod().id(), "prioritize", () -> filterAndPrioritize.prioritize(args.pod(), nodes));
    }

    private BindingResult bind(BindingArgs args) {
        Binder.Result result = about(args.pod(), "bind", () -> binder.bind(args.pod(), args.node()));
        binds.computeIfAbsent(result.label(), this::register).increment();
        return new BindingResult(result.error());
    }

    private Counter register(String label) {
        return Counter.builder("aliquot.extender.binds")
                .description("Binds by outcome")
                .tag("outcome", label)
                .register(metrics);
    }

    private PreemptionResult preempt(PreemptionArgs args) {
        return new PreemptionResult(
                about(args.pod().id(), "preempt", () -> preemptVerb.preempt(args.pod(), args.nodeNameToMetaVictims())));
    }

    /** Names the pod in the exception: the callers do not know it. */
    private <T> T about(PodId pod, String verb, Supplier<T> work) {
        try {
            return verbMetrics.time(verb, work);
        } catch (RuntimeException e) {
            throw new FailedRequestException(verb, pod, e);
        }
    }
}
