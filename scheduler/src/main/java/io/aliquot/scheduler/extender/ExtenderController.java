package io.aliquot.scheduler.extender;

import io.aliquot.scheduler.extender.Wire.Args;
import io.aliquot.scheduler.extender.Wire.BindingArgs;
import io.aliquot.scheduler.extender.Wire.BindingResult;
import io.aliquot.scheduler.extender.Wire.FilterResult;
import io.aliquot.scheduler.extender.Wire.PreemptionArgs;
import io.aliquot.scheduler.extender.Wire.PreemptionResult;
import io.aliquot.scheduler.ledger.PodId;
import io.aliquot.scheduler.server.errors.FailedRequestException;
import io.micrometer.core.instrument.Counter;
import io.micrometer.core.instrument.MeterRegistry;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Supplier;
import org.springframework.http.HttpStatus;
import org.springframework.http.MediaType;
import org.springframework.web.bind.annotation.PostMapping;
import org.springframework.web.bind.annotation.RequestBody;
import org.springframework.web.bind.annotation.RestController;
import org.springframework.web.server.ResponseStatusException;
import tools.jackson.core.JsonParser;
import tools.jackson.databind.DatabindException;
import tools.jackson.databind.json.JsonMapper;

/**
 * The four verbs over HTTP. To kube-scheduler only status 200 is success. Answers are bytes, so that they are sent with
 * their length: kube-scheduler's JSON decoder stops at the end of the JSON and would leave the last chunk of a chunked
 * answer unread, so that the next request would need a new connection.
 */
@RestController
final class ExtenderController {
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

    ExtenderController(
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

    @PostMapping(path = "/filter", produces = MediaType.APPLICATION_JSON_VALUE)
    byte[] filter(@RequestBody byte[] body) {
        Args args = read(body, Args.class);
        return json.writeValueAsBytes(args.nodeNames()
                .map(nodes -> DecisionLog.filtered(
                        args.pod().id(),
                        nodes,
                        about(args.pod().id(), "filter", () -> filterAndPrioritize.filter(args.pod(), nodes))))
                .orElseGet(() -> FilterResult.error(WANTS_NAMES)));
    }

    @PostMapping(path = "/prioritize", produces = MediaType.APPLICATION_JSON_VALUE)
    byte[] prioritize(@RequestBody byte[] body) {
        Args args = read(body, Args.class);
        // the answer to prioritize has no field for an error
        List<String> nodes =
                args.nodeNames().orElseThrow(() -> new ResponseStatusException(HttpStatus.BAD_REQUEST, WANTS_NAMES));
        return json.writeValueAsBytes(DecisionLog.prioritized(
                args.pod().id(),
                about(args.pod().id(), "prioritize", () -> filterAndPrioritize.prioritize(args.pod(), nodes))));
    }

    @PostMapping(path = "/bind", produces = MediaType.APPLICATION_JSON_VALUE)
    byte[] bind(@RequestBody byte[] body) {
        BindingArgs args = read(body, BindingArgs.class);
        Binder.Result result = DecisionLog.bound(
                args.pod(), args.node(), about(args.pod(), "bind", () -> binder.bind(args.pod(), args.node())));
        binds.computeIfAbsent(result.label(), this::register).increment();
        return json.writeValueAsBytes(new BindingResult(result.error()));
    }

    @PostMapping(path = "/preempt", produces = MediaType.APPLICATION_JSON_VALUE)
    byte[] preempt(@RequestBody byte[] body) {
        PreemptionArgs args = read(body, PreemptionArgs.class);
        return json.writeValueAsBytes(new PreemptionResult(about(
                args.pod().id(), "preempt", () -> preemptVerb.preempt(args.pod(), args.nodeNameToMetaVictims()))));
    }

    private <T> T read(byte[] body, Class<T> type) {
        T value = json.readValue(body, type);
        if (value == null) {
            throw DatabindException.from((JsonParser) null, "expected an object, found null");
        }
        return value;
    }

    private Counter register(String label) {
        return Counter.builder("aliquot.extender.binds")
                .description("Binds by outcome")
                .tag("outcome", label)
                .register(metrics);
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
