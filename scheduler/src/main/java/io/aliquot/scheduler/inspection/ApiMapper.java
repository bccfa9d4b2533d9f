package io.aliquot.scheduler.inspection;

import io.aliquot.api.GpuHealth.Unhealthy;
import io.aliquot.api.Vgpu;
import io.aliquot.scheduler.inspection.ApiTypes.Amounts;
import io.aliquot.scheduler.ledger.ContainerAllocation;
import io.aliquot.scheduler.ledger.Holding;
import io.aliquot.scheduler.ledger.Holding.State;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.ledger.NodeFacts.Sharing;
import io.aliquot.scheduler.ledger.NodeView;
import io.aliquot.scheduler.ledger.PodId;
import io.aliquot.scheduler.placement.GpuAmount;
import io.aliquot.scheduler.placement.GpuCapacity;
import io.aliquot.scheduler.placement.GpuFreeCapacity;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Locale;
import java.util.Optional;
import java.util.stream.Stream;
import org.springframework.stereotype.Component;

/** Reads the ledger and maps it to {@link ApiTypes}. Each node is read at one instant, two nodes at different ones. */
@Component
final class ApiMapper {
    /**
     * The states of pods that hold shares. A pod that was deleted by force and then created again is in the ledger
     * twice under one name; the API shows the holding whose state comes first here.
     */
    private static final List<State> HOLDING_STATES = List.of(State.HELD, State.ASSUMED, State.LINGERING);

    private final Ledger ledger;

    ApiMapper(Ledger ledger) {
        this.ledger = ledger;
    }

    record NodeHolding(String node, Holding holding) {
        PodId pod() {
            return holding.pod();
        }

        /** Sorts by namespace and name, and is unique. */
        String key() {
            return pod().namespace() + "/" + pod().name() + "/" + pod().uid();
        }
    }

    /** All nodes if the name is empty, otherwise the node of that name. */
    Stream<NodeView> views(String node) {
        Stream<String> names = node.isEmpty() ? ledger.nodeNames().stream() : Stream.of(node);
        return names.flatMap(name -> ledger.view(name).stream());
    }

    /** Bound pods that hold shares, of one namespace or all (empty), on one node or all (empty). */
    List<NodeHolding> pods(String namespace, String node) {
        return holdings(node)
                .filter(held -> HOLDING_STATES.contains(held.holding().state()))
                .filter(held -> !held.holding().shares().isEmpty())
                .filter(held -> namespace.isEmpty() || held.pod().namespace().equals(namespace))
                .toList();
    }

    Optional<NodeHolding> pod(String namespace, String name) {
        return pods(namespace, "").stream()
                .filter(held -> held.pod().name().equals(name))
                .min(Comparator.comparing(
                        held -> HOLDING_STATES.indexOf(held.holding().state())));
    }

    /** Capacity that the ledger counts as taken although the watch reports no bound pod for it. */
    List<NodeHolding> reservations() {
        return holdings("")
                .filter(held -> held.holding().state() != State.HELD)
                .filter(held -> !held.holding().perGpu().isEmpty())
                .toList();
    }

    private Stream<NodeHolding> holdings(String node) {
        return views(node)
                .flatMap(view -> view.holdings().stream().map(holding -> new NodeHolding(view.name(), holding)));
    }

    static ApiTypes.Node node(NodeView view) {
        if (view.facts() instanceof Sharing sharing) {
            return new ApiTypes.Node(
                    view.name(),
                    view.agentReady(),
                    view.unavailableReason(),
                    sharing.gpus().sharingMode().print(),
                    sharing.gpuPlacement().print(),
                    gpus(view));
        }
        return new ApiTypes.Node(view.name(), false, view.unavailableReason(), "", "", List.of());
    }

    static List<ApiTypes.Gpu> gpus(NodeView view) {
        return view.gpus().stream().map(gpu -> gpu(view.name(), gpu)).toList();
    }

    private static ApiTypes.Gpu gpu(String node, GpuFreeCapacity free) {
        GpuCapacity card = free.capacity();
        GpuAmount allocated = free.allocated();
        Optional<Unhealthy> unhealthy = card.gpu().health().unhealthy();
        return new ApiTypes.Gpu(
                node,
                card.gpu().uuid(),
                card.gpu().index(),
                card.gpu().model(),
                card.gpu().numa(),
                card.gpu().healthy(),
                unhealthy.map(Unhealthy::reason).orElse(""),
                unhealthy
                        .filter(Unhealthy::isSinceKnown)
                        .map(one -> one.since().toString())
                        .orElse(null),
                card.cordoned(),
                allocated.exclusive(),
                Amounts.of(card.memoryMiB(), allocated.memoryMiB()),
                Amounts.of(card.cores(), allocated.cores()),
                Amounts.of(card.slots(), allocated.slots()));
    }

    static ApiTypes.Pod pod(NodeHolding held) {
        return pod(held, held.holding().shares());
    }

    /** The pod with other shares than the ledger's. */
    static ApiTypes.Pod pod(NodeHolding held, List<ContainerAllocation> shares) {
        return new ApiTypes.Pod(
                held.pod().namespace(),
                held.pod().name(),
                held.pod().uid(),
                held.node(),
                podState(held.holding()),
                held.holding().priority(),
                shares(held, shares));
    }

    private static String podState(Holding holding) {
        return switch (holding.state()) {
            case HELD -> holding.leavesBy().isBefore(Instant.MAX) ? "terminating" : "bound";
            case ASSUMED -> "binding";
            case RESERVED, RESERVED_FOR_PREEMPTOR, LINGERING -> reservationState(holding.state());
        };
    }

    private static String reservationState(State state) {
        return switch (state) {
            case RESERVED -> "expected";
            case RESERVED_FOR_PREEMPTOR -> "kept";
            case ASSUMED, HELD, LINGERING -> state.name().toLowerCase(Locale.ROOT);
        };
    }

    static List<ApiTypes.ShareView> shares(NodeHolding held) {
        return shares(held, held.holding().shares());
    }

    private static List<ApiTypes.ShareView> shares(NodeHolding held, List<ContainerAllocation> shares) {
        var views = new ArrayList<ApiTypes.ShareView>();
        for (ContainerAllocation allocation : shares) {
            for (Vgpu vgpu : allocation.vgpus().list()) {
                views.add(new ApiTypes.ShareView(
                        held.pod().namespace(),
                        held.pod().name(),
                        held.pod().uid(),
                        held.node(),
                        allocation.container(),
                        vgpu.uuid(),
                        vgpu.memoryMiB(),
                        vgpu.cores(),
                        vgpu.policy().print(),
                        vgpu.priority(),
                        vgpu.exclusive()));
            }
        }
        return views;
    }

    static ApiTypes.Reservation reservation(NodeHolding held) {
        List<ApiTypes.ReservedAmount> amounts = held.holding().perGpu().entrySet().stream()
                .map(entry -> reservedAmount(entry.getKey(), entry.getValue()))
                .sorted(Comparator.comparing(ApiTypes.ReservedAmount::gpu))
                .toList();
        return new ApiTypes.Reservation(
                held.pod().namespace(),
                held.pod().name(),
                held.pod().uid(),
                held.node(),
                reservationState(held.holding().state()),
                held.holding().age().toSeconds(),
                amounts);
    }

    private static ApiTypes.ReservedAmount reservedAmount(String gpu, GpuAmount amount) {
        return new ApiTypes.ReservedAmount(gpu, amount.memoryMiB(), amount.cores(), amount.slots(), amount.exclusive());
    }
}
