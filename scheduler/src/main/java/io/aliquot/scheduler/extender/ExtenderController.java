package io.aliquot.scheduler.extender;

import io.aliquot.scheduler.extender.Wire.Args;
import io.aliquot.scheduler.extender.Wire.BindingArgs;
import io.aliquot.scheduler.extender.Wire.BindingResult;
import io.aliquot.scheduler.extender.Wire.FilterResult;
import io.aliquot.scheduler.extender.Wire.PreemptionArgs;
import io.aliquot.scheduler.extender.Wire.PreemptionResult;
import io.aliquot.scheduler.ledger.PodId;
import io.micrometer.core.instrument.Counter;
import io.micrometer.core.instrument.MeterRegistry;
import java.util.List;
import org.springframework.http.HttpStatus;
import org.springframework.http.MediaType;
import org.springframework.web.bind.annotation.PostMapping;
import org.springframework.web.bind.annotation.RequestBody;
import org.springframework.web.bind.annotation.RequestMapping;
import org.springframework.web.bind.annotation.RestController;
import org.springframework.web.server.ResponseStatusException;
import tools.jackson.databind.json.JsonMapper;

/*
 * Answers are whole when they are sent, so that their length is told. In pieces, kube-scheduler, whose decoder stops where
 * the JSON does, would leave the last one unread, and open a new connection for the next request.
 */
/** The four verbs over HTTP. Whatever a verb has to say against its input, it says in an answer with status 200. */
@RestController
@RequestMapping(produces = MediaType.APPLICATION_JSON_VALUE)
final class ExtenderController {
    private static final String WANTS_NAMES = "expected NodeNames, found none: set nodeCacheCapable: true for this "
            + "extender in the KubeSchedulerConfiguration";

    private final Placing placing;
    private final Binder binder;
    private final Preempting preempting;
    private final VerbMeter meter;
    private final MeterRegistry metrics;
    private final JsonMapper json;

    ExtenderController(
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

    @PostMapping("/filter")
    byte[] filter(@RequestBody Args args) {
        List<String> nodes = args.nodeNames();
        return json.writeValueAsBytes(
                nodes == null
                        ? FilterResult.error(WANTS_NAMES)
                        : meter.time("filter", () -> placing.filter(args.pod(), nodes)));
    }

    @PostMapping("/prioritize")
    byte[] prioritize(@RequestBody Args args) {
        List<String> nodes = args.nodeNames();
        if (nodes == null) { // an answer has no place for an error
            throw new ResponseStatusException(HttpStatus.BAD_REQUEST, WANTS_NAMES);
        }
        return json.writeValueAsBytes(meter.time("prioritize", () -> placing.prioritize(args.pod(), nodes)));
    }

    @PostMapping("/bind")
    byte[] bind(@RequestBody BindingArgs args) {
        var pod = new PodId(args.podNamespace(), args.podName(), args.podUID());
        Binder.Result result = meter.time("bind", () -> binder.bind(pod, args.node()));
        Counter.builder("aliquot.extender.binds")
                .description("Binds by how they ended")
                .tag("outcome", result.label())
                .register(metrics)
                .increment();
        return json.writeValueAsBytes(new BindingResult(result.error()));
    }

    @PostMapping("/preempt")
    byte[] preempt(@RequestBody PreemptionArgs args) {
        return json.writeValueAsBytes(new PreemptionResult(
                meter.time("preempt", () -> preempting.preempt(args.pod(), args.nodeNameToMetaVictims()))));
    }
}
