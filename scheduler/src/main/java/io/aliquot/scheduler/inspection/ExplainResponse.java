package io.aliquot.scheduler.inspection;

import java.util.List;

/**
 * The answer of {@code explain}.
 *
 * @param state {@code waiting}, {@code bound}, {@code ended}, {@code no-gpu}, {@code refused} or {@code not-ours}
 * @param summary all of it in one line
 * @param kubeScheduler why kube-scheduler found no node when it last tried, in its words; empty where it hasn't yet, or has
 * @param node empty while it has none
 * @param placement how its GPUs are, or would be, chosen
 * @param shares what it holds
 * @param fits nodes whose GPUs would hold it now
 * @param scores of those, the ones that the placement likes best, best first
 * @param refusals the other nodes, by what is in the way
 * @param nearest where least is missing
 * @param remedies what it could ask for instead and would be placed now
 * @param victims pods that would have to go, on the nodes where that costs least; without the names of those that the
 *     caller may not see
 * @param gpus of the node that was asked about, what is in the way on each GPU
 */
record ExplainResponse(
        String namespace,
        String name,
        String uid,
        String state,
        String summary,
        String kubeScheduler,
        String node,
        String placement,
        List<ApiTypes.Share> shares,
        Nodes fits,
        List<Score> scores,
        List<Refusal> refusals,
        List<Near> nearest,
        List<String> remedies,
        List<Room> victims,
        List<Lack> gpus) {
    /** Of a pod that is not waiting for a GPU. */
    static ExplainResponse plain(PodLookup.Pod pod, String state, String summary) {
        return new ExplainResponse(
                pod.id().namespace(),
                pod.id().name(),
                pod.id().uid(),
                state,
                summary,
                "",
                pod.node(),
                "",
                List.of(),
                new Nodes(0, List.of()),
                List.of(),
                List.of(),
                List.of(),
                List.of(),
                List.of(),
                List.of());
    }

    ExplainResponse holding(List<ApiTypes.Share> held, String chosen) {
        return new ExplainResponse(
                namespace,
                name,
                uid,
                state,
                summary,
                kubeScheduler,
                node,
                chosen,
                held,
                fits,
                scores,
                refusals,
                nearest,
                remedies,
                victims,
                gpus);
    }

    /** So many nodes, and the names of some. */
    record Nodes(int count, List<String> examples) {}

    record Score(String node, List<Term> terms) {}

    record Term(String name, int thousandths) {}

    record Refusal(String reason, boolean hopeless, Nodes nodes) {}

    record Near(String node, List<Lack> lacks) {}

    record Lack(String container, String gpu, String text, long memoryMiB, int cores, int slots) {}

    record Room(String node, List<Victim> pods) {}

    record Victim(String namespace, String name, int priority, boolean ending) {}
}
