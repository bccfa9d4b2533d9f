package io.aliquot.scheduler.inspection;

import io.aliquot.api.Placement;
import io.aliquot.scheduler.explain.Explainer.Liked;
import io.aliquot.scheduler.explain.Explainer;
import io.aliquot.scheduler.explain.Explanation;
import io.aliquot.scheduler.inspection.AccessReviews.Caller;
import io.aliquot.scheduler.inspection.AccessReviews.Deed;
import io.aliquot.scheduler.inspection.ExplainResponse.Lack;
import io.aliquot.scheduler.inspection.ExplainResponse.Near;
import io.aliquot.scheduler.inspection.ExplainResponse.Nodes;
import io.aliquot.scheduler.inspection.ExplainResponse.Room;
import io.aliquot.scheduler.inspection.ExplainResponse.Score;
import io.aliquot.scheduler.inspection.ExplainResponse.Term;
import io.aliquot.scheduler.inspection.ExplainResponse.Victim;
import io.aliquot.scheduler.inspection.PodLookup.Wish;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.ledger.NodeFacts.Sharing;
import io.aliquot.scheduler.pending.PendingPods;
import io.aliquot.scheduler.placement.PodGpuRequest;
import io.aliquot.scheduler.settings.Settings;
import jakarta.servlet.http.HttpServletRequest;
import java.util.List;
import java.util.Optional;
import java.util.stream.Collectors;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.PathVariable;
import org.springframework.web.bind.annotation.RequestAttribute;
import org.springframework.web.bind.annotation.RestController;

/** Why a pod waits for GPUs, or why it has those that it has. */
@RestController
final class ExplainController {
    private static final int EXAMPLES = 5;
    private static final String ALL_NODES =
            "; all nodes were looked at: which of them kube-scheduler would take is not known to this replica";

    private final PodLookup pods;
    private final ApiMapper stock;
    private final Ledger ledger;
    private final PendingPods pending;
    private final Explainer explainer;
    private final AccessControl access;
    private final Settings settings;

    ExplainController(
            PodLookup pods,
            ApiMapper stock,
            Ledger ledger,
            PendingPods pending,
            Explainer explainer,
            AccessControl access,
            Settings settings) {
        this.pods = pods;
        this.stock = stock;
        this.ledger = ledger;
        this.pending = pending;
        this.explainer = explainer;
        this.access = access;
        this.settings = settings;
    }

    @GetMapping("/api/v1/pods/{namespace}/{name}/explain")
    ExplainResponse explain(
            HttpServletRequest request,
            @RequestAttribute(TokenFilter.CALLER) Caller caller,
            @PathVariable("namespace") String namespace,
            @PathVariable("name") String name) {
        String node = QueryParameters.of(request, "node").name("node");
        QueryParameters.checkName("namespace", namespace);
        QueryParameters.checkName("name", name);
        access.require(caller, new Deed("get", "pods", namespace, name));
        PodLookup.Pod pod = find(namespace, name);
        if (pod.ended()) {
            return ExplainResponse.plain(pod, "ended", "has ended and holds nothing");
        }
        if (!pod.node().isEmpty()) {
            return bound(pod);
        }
        if (pod.wish() instanceof Wish.Nonsense nonsense) {
            return ExplainResponse.plain(pod, "refused", "cannot be placed anywhere: " + nonsense.why());
        }
        PodGpuRequest ask = ((Wish.Clear) pod.wish()).ask();
        if (ask.containers().isEmpty()) {
            return ExplainResponse.plain(pod, "no-gpu", "asks for no GPU");
        }
        if (!pod.schedulerName().equals(settings.schedulerName())) {
            return ExplainResponse.plain(
                    pod,
                    "not-ours",
                    "is for scheduler " + pod.schedulerName() + " to place; write schedulerName: "
                            + settings.schedulerName() + ", or create it where the webhook sets that");
        }
        return waiting(pod, ask, node, caller);
    }

    private PodLookup.Pod find(String namespace, String name) {
        try {
            return pods.find(namespace, name)
                    .orElseThrow(() -> ApiException.notFound("there is no pod " + name + " in namespace " + namespace));
        } catch (UnansweredException e) {
            throw ApiException.unavailable("the API server did not tell about the pod, try again: " + e.getMessage());
        }
    }

    private ExplainResponse bound(PodLookup.Pod pod) {
        List<ApiTypes.Share> shares = stock.pods(pod.id().namespace(), pod.node()).stream()
                .filter(held -> held.holding().pod().uid().equals(pod.id().uid()))
                .flatMap(held -> ApiMapper.shares(held).stream())
                .toList();
        String holds = shares.isEmpty()
                ? "no share of a GPU"
                : shares.stream()
                        .map(share -> share.container() + ": " + share.memoryMiB() + " MiB and "
                                + (share.cores() == 0 ? "no limit of the cores" : share.cores() + " % of the cores")
                                + " of " + share.gpu() + (share.exclusive() ? ", alone" : ""))
                        .collect(Collectors.joining("; "));
        Optional<Placement> wished =
                pod.wish() instanceof Wish.Clear readable ? readable.ask().gpuPlacement() : Optional.empty();
        String placement = wished.map(policy -> policy.print() + ", as the pod says")
                .or(() -> ledger.view(pod.node())
                        .map(view -> view.facts() instanceof Sharing sharing
                                ? sharing.gpuPlacement().print() + ", as node or chart say"
                                : ""))
                .orElse("");
        ExplainResponse plain = ExplainResponse.plain(pod, "bound", "is on node " + pod.node() + " and holds " + holds);
        return shares.isEmpty() ? plain : plain.holding(shares, placement);
    }

    private ExplainResponse waiting(PodLookup.Pod pod, PodGpuRequest ask, String node, Caller caller) {
        Optional<List<String>> asked = pending.candidates(pod.id().uid());
        List<String> nodes = asked.orElseGet(ledger::nodeNames);
        Explanation story = explainer.explain(pod.id(), ask, pod.priority(), pod.preempts(), nodes);
        Placement policy = ask.nodePlacement().orElse(settings.nodePlacement());
        return new ExplainResponse(
                pod.id().namespace(),
                pod.id().name(),
                pod.id().uid(),
                "waiting",
                summary(story, pod.verdict()) + (asked.isEmpty() ? ALL_NODES : ""),
                pod.verdict(),
                "",
                policy.print(),
                List.of(),
                new Nodes(
                        story.fitting().size(),
                        story.fitting().stream().limit(EXAMPLES).toList()),
                explainer.liked(pod.id(), ask, policy, story.fitting()).stream()
                        .map(ExplainController::score)
                        .toList(),
                story.groups().stream()
                        .map(group -> new ExplainResponse.Refusal(
                                group.reason(), group.hopeless(), new Nodes(group.nodes(), group.examples())))
                        .toList(),
                story.nearest().stream()
                        .map(near -> new Near(near.node(), lacks(near.lacks())))
                        .toList(),
                story.remedies(),
                story.victims().stream()
                        .map(room -> new Room(
                                room.node(),
                                room.pods().stream()
                                        .map(victim -> victim(victim, caller))
                                        .toList()))
                        .toList(),
                node.isEmpty() ? List.of() : lacks(explainer.gpuByGpu(pod.id(), ask, node)));
    }

    private static Score score(Liked liked) {
        return new Score(
                liked.node(),
                liked.terms().stream()
                        .map(term -> new Term(term.name(), (int) Math.round(term.thousandths())))
                        .toList());
    }

    /** Where the GPUs are not what it waits for, kube-scheduler alone knows for what. */
    private static String summary(Explanation story, String verdict) {
        if (story.fitting().isEmpty()) {
            return story.summary();
        }
        return story.summary()
                + (verdict.isEmpty()
                        ? "; kube-scheduler has not refused it so far"
                        : "; when kube-scheduler last tried, it found: " + verdict);
    }

    /** Priorities are told to all, names to those who may list the pods there. */
    private Victim victim(Explanation.Victim victim, Caller caller) {
        String namespace = victim.pod().namespace();
        boolean shown = access.may(caller, new Deed("list", "pods", namespace, ""));
        return new Victim(shown ? namespace : "", shown ? victim.pod().name() : "", victim.priority(), victim.ending());
    }

    private static List<Lack> lacks(List<Explanation.Lack> lacks) {
        return lacks.stream()
                .map(lack -> new Lack(
                        lack.container(), lack.gpu(), lack.text(), lack.memoryMiB(), lack.cores(), lack.slots()))
                .toList();
    }
}
