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
import io.micrometer.core.instrument.Counter;
import io.micrometer.core.instrument.MeterRegistry;
import jakarta.servlet.http.HttpServlet;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.util.List;
import org.springframework.http.HttpMethod;
import org.springframework.http.HttpStatus;
import org.springframework.http.MediaType;
import org.springframework.web.server.ResponseStatusException;
import tools.jackson.core.JacksonException;
import tools.jackson.databind.json.JsonMapper;

/*
 * A servlet, not a controller: three requests come with every pod, and what Spring MVC does for each costs more than the
 * verbs themselves.
 *
 * Answers are whole when they are sent, so that their length is told. In pieces, kube-scheduler, whose decoder stops where
 * the JSON does, would leave the last one unread, and open a new connection for the next request.
 */
/** The four verbs over HTTP. Whatever a verb has to say against its input, it says in an answer with status 200. */
final class ExtenderServlet extends HttpServlet {
    static final String FILTER = "/filter";
    static final String PRIORITIZE = "/prioritize";
    static final String BIND = "/bind";
    static final String PREEMPT = "/preempt";

    private static final long serialVersionUID = 1L;
    private static final String WANTS_NAMES = "expected NodeNames, found none: set nodeCacheCapable: true for this "
            + "extender in the KubeSchedulerConfiguration";

    private final transient Placing placing;
    private final transient Binder binder;
    private final transient Preempting preempting;
    private final transient VerbMeter meter;
    private final transient MeterRegistry metrics;
    private final transient JsonMapper json;

    ExtenderServlet(
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
    protected void service(HttpServletRequest request, HttpServletResponse response) throws IOException {
        byte[] answer;
        try {
            answer = json.writeValueAsBytes(answer(request));
        } catch (JacksonException e) {
            Problems.write(request, response, Problems.unreadable(e));
            return;
        } catch (ResponseStatusException e) {
            Problems.write(request, response, e.getBody());
            return;
        } catch (RuntimeException e) {
            Problems.write(request, response, Problems.failed(e));
            return;
        }
        response.setContentType(MediaType.APPLICATION_JSON_VALUE);
        response.setContentLength(answer.length);
        response.getOutputStream().write(answer);
    }

    private Object answer(HttpServletRequest request) throws IOException {
        if (!HttpMethod.POST.matches(request.getMethod())) {
            throw new ResponseStatusException(HttpStatus.METHOD_NOT_ALLOWED, "expected POST");
        }
        return switch (request.getServletPath()) {
            case FILTER -> filter(read(request, Args.class));
            case PRIORITIZE -> prioritize(read(request, Args.class));
            case BIND -> bind(read(request, BindingArgs.class));
            case PREEMPT -> preempt(read(request, PreemptionArgs.class));
            default -> throw new ResponseStatusException(HttpStatus.NOT_FOUND, "nothing here");
        };
    }

    private <T> T read(HttpServletRequest request, Class<T> type) throws IOException {
        T args = json.readValue(request.getInputStream(), type);
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
