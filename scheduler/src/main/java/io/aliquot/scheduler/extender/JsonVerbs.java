package io.aliquot.scheduler.extender;

import io.aliquot.scheduler.extender.Wire.Args;
import io.aliquot.scheduler.extender.Wire.BindingArgs;
import io.aliquot.scheduler.extender.Wire.BindingResult;
import io.aliquot.scheduler.extender.Wire.FilterResult;
import io.aliquot.scheduler.extender.Wire.HostPriority;
import io.aliquot.scheduler.extender.Wire.PreemptionArgs;
import io.aliquot.scheduler.extender.Wire.PreemptionResult;
import io.aliquot.scheduler.ledger.PodId;
import io.aliquot.scheduler.server.Problems;
import io.aliquot.scheduler.server.Verbs;
import io.micrometer.core.instrument.Counter;
import io.micrometer.core.instrument.MeterRegistry;
import java.io.InputStream;
import java.util.List;
import org.springframework.http.HttpStatus;
import org.springframework.web.server.ResponseStatusException;
import tools.jackson.databind.json.JsonMapper;

/** The four verbs in JSON. Whatever a verb has to say against its input, it says in its answer. */
final class JsonVerbs implements Verbs {
    private static final String FILTER = "/filter";
    private static final String PRIORITIZE = "/prioritize";
    private static final String BIND = "/bind";
    private static final String PREEMPT = "/preempt";

    private static final String WANTS_NAMES = "expected NodeNames, found none: set nodeCacheCapable: true for this "
            + "extender in the KubeSchedulerConfiguration";

    private final Placing placing;
    private final Binder binder;
    private final Preempting preempting;
    private final VerbMeter meter;
    private final MeterRegistry metrics;
    private final JsonMapper json;

    JsonVerbs(
            Placing placing,
            Binder binder,
            Preempting preempting,
            VerbMeter meter,
            MeterRegistry metrics,
            JsonMapper json) {
        this.placing = placing;
        this.binder = binder;
        this.preempting = preempting;
        this.meter = meter;
        this.metrics = metrics;
        this.json = json;
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
        T args = json.readValue(body, type);
        if (args == null) {
            throw new ResponseStatusException(HttpStatus.BAD_REQUEST, Problems.NOT_OUR_JSON);
        }
        return args;
    }

    private FilterResult filter(Args args) {
        List<String> nodes = args.nodeNames();
        return nodes == null
                ? FilterResult.error(WANTS_NAMES)
                : meter.time("filter", () -> placing.filter(args.pod(), nodes));
    }

    private List<HostPriority> prioritize(Args args) {
        List<String> nodes = args.nodeNames();
        if (nodes == null) { // an answer has no place for an error
            throw new ResponseStatusException(HttpStatus.BAD_REQUEST, WANTS_NAMES);
        }
        return meter.time("prioritize", () -> placing.prioritize(args.pod(), nodes));
    }

    private BindingResult bind(BindingArgs args) {
        var pod = new PodId(args.podNamespace(), args.podName(), args.podUID());
        Binder.Result result = meter.time("bind", () -> binder.bind(pod, args.node()));
        Counter.builder("aliquot.extender.binds")
                .description("Binds by how they ended")
                .tag("outcome", result.label())
                .register(metrics)
                .increment();
        return new BindingResult(result.error());
    }

    private PreemptionResult preempt(PreemptionArgs args) {
        return new PreemptionResult(
                meter.time("preempt", () -> preempting.preempt(args.pod(), args.nodeNameToMetaVictims())));
    }
}
