package io.aliquot.scheduler.extender;

import io.aliquot.scheduler.extender.Wire.Args;
import io.aliquot.scheduler.extender.Wire.BindingArgs;
import io.aliquot.scheduler.extender.Wire.BindingResult;
import io.aliquot.scheduler.extender.Wire.FilterResult;
import io.aliquot.scheduler.extender.Wire.HostPriority;
import io.aliquot.scheduler.extender.Wire.PreemptionArgs;
import io.aliquot.scheduler.extender.Wire.PreemptionResult;
import io.aliquot.scheduler.ledger.PodId;
import io.micrometer.core.instrument.Counter;
import io.micrometer.core.instrument.MeterRegistry;
import java.util.List;
import org.springframework.http.HttpStatus;
import org.springframework.web.bind.annotation.PostMapping;
import org.springframework.web.bind.annotation.RequestBody;
import org.springframework.web.bind.annotation.RestController;
import org.springframework.web.server.ResponseStatusException;

/** The four verbs over HTTP. Whatever a verb has to say against its input, it says in an answer with status 200. */
@RestController
final class ExtenderController {
    private static final String WANTS_NAMES = "expected NodeNames, found none: set nodeCacheCapable: true for this "
            + "extender in the KubeSchedulerConfiguration";

    private final Placing placing;
    private final Binder binder;
    private final Preempting preempting;
    private final VerbMeter meter;
    private final MeterRegistry metrics;

    ExtenderController(Placing placing, Binder binder, Preempting preempting, VerbMeter meter, MeterRegistry metrics) {
        this.placing = placing;
        this.binder = binder;
        this.preempting = preempting;
        this.meter = meter;
        this.metrics = metrics;
    }

    @PostMapping("/filter")
    FilterResult filter(@RequestBody Args args) {
        List<String> nodes = args.nodeNames();
        return nodes == null
                ? FilterResult.error(WANTS_NAMES)
                : meter.time("filter", () -> placing.filter(args.pod(), nodes));
    }

    /*
     * Not a ResponseEntity: Spring flushes those, so that their length is not told, and kube-scheduler, whose decoder
     * stops where the JSON does, then opens a new connection for each pod.
     */
    @PostMapping("/prioritize")
    List<HostPriority> prioritize(@RequestBody Args args) {
        List<String> nodes = args.nodeNames();
        if (nodes == null) { // an answer has no place for an error
            throw new ResponseStatusException(HttpStatus.BAD_REQUEST, WANTS_NAMES);
        }
        return meter.time("prioritize", () -> placing.prioritize(args.pod(), nodes));
    }

    @PostMapping("/bind")
    BindingResult bind(@RequestBody BindingArgs args) {
        var pod = new PodId(args.podNamespace(), args.podName(), args.podUID());
        Binder.Result result = meter.time("bind", () -> binder.bind(pod, args.node()));
        Counter.builder("aliquot.extender.binds")
                .description("Binds by how they ended")
                .tag("outcome", result.label())
                .register(metrics)
                .increment();
        return new BindingResult(result.error());
    }

    @PostMapping("/preempt")
    PreemptionResult preempt(@RequestBody PreemptionArgs args) {
        return new PreemptionResult(
                meter.time("preempt", () -> preempting.preempt(args.pod(), args.nodeNameToMetaVictims())));
    }
}
