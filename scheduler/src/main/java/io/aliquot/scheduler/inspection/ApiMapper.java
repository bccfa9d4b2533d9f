package io.aliquot.scheduler.inspection;

import io.aliquot.api.Vgpu;
import io.aliquot.scheduler.inspection.ApiTypes.Amounts;
import io.aliquot.scheduler.ledger.Holding;
import io.aliquot.scheduler.ledger.Holding.State;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.ledger.NodeFacts.Sharing;
import io.aliquot.scheduler.ledger.NodeView;
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

/** What the ledger has, in the API's words; each node at one instant, two nodes perhaps at different ones. */
final class ApiMapper {
    /** Where a pod was made anew under its name, the one that is there more surely comes first. */
    private static final List<State> THERE = List.of(State.HELD, State.ASSUMED, State.LINGERING);

    private final Ledger ledger;

    ApiMapper(Ledger ledger) {
        this.ledger = ledger;
    }

    /** A pod's holding and where it is. */
    record Held(String node, Holding holding) {
        String key() {
            return holding.pod().namespace() + "/" + holding.pod().name() + "/"
                    + holding.pod().uid();
        }
    }

    Optional<NodeView> view(String node) {
        return ledger.view(node);
    }

    /** All nodes, or the one of this name if it isn't empty. */
    Stream<NodeView> views(String node) {
        Stream<String> names = node.isEmpty() ? ledger.nodeNames().stream() : Stream.of(node);
        return names.flatMap(name -> ledger.view(name).stream());
    }

    /** Pods that hold shares, as far as the cluster or we know. */
    List<Held> pods(String namespace, String node) {
        return held(node)
                .filter(held -> THERE.contains(held.holding().state()))
                .filter(held -> !held.holding().shares().isEmpty())
                .filter(held ->
                        namespace.isEmpty() || held.holding().pod().namespace().equals(namespace))
                .toList();
    }

    Optional<Held> pod(String namespace, String name) {
        return pods(namespace, "").stream()
                .filter(held -> held.holding().pod().name().equals(name))
                .min(Comparator.comparing(held -> THERE.indexOf(held.holding().state())));
    }

    /** Room that is kept without the cluster's word. */
    List<Held> reservations() {
        return held("").filter(held -> held.holding().state() != State.HELD)
                .filter(held -> !held.holding().perGpu().isEmpty())
                .toList();
    }

    private Stream<Held> held(String node) {
        return views(node).flatMap(view -> view.holdings().stream().map(holding -> new Held(view.name(), holding)));
    }

    static ApiTypes.Node node(NodeView view) {
        if (view.facts() instanceof Sharing sharing) {
            return new ApiTypes.Node(
                    view.name(),
                    view.served(),
                    view.leftOut(),
                    sharing.cards().share().print(),
                    sharing.gpuPlacement().print(),
                    gpus(view));
        }
        return new ApiTypes.Node(view.name(), false, view.leftOut(), "", "", List.of());
    }

    static List<ApiTypes.Gpu> gpus(NodeView view) {
        return view.gpus().stream().map(room -> gpu(view.name(), room)).toList();
    }

    private static ApiTypes.Gpu gpu(String node, GpuFreeCapacity room) {
        GpuCapacity card = room.card();
        GpuAmount taken = room.taken();
        return new ApiTypes.Gpu(
                node,
                card.gpu().uuid(),
                card.gpu().index(),
                card.gpu().model(),
                card.gpu().numa(),
                card.gpu().healthy(),
                card.cordoned(),
                taken.exclusive(),
                Amounts.of(card.memoryMiB(), taken.memoryMiB()),
                Amounts.of(card.cores(), taken.cores()),
                Amounts.of(card.slots(), taken.slots()));
    }

    static ApiTypes.Pod pod(Held held) {
        Holding holding = held.holding();
        return new ApiTypes.Pod(
                holding.pod().namespace(),
                holding.pod().name(),
                holding.pod().uid(),
                held.node(),
                state(holding),
                holding.priority(),
                shares(held));
    }

    private static String state(Holding holding) {
        return switch (holding.state()) {
            case HELD -> holding.leavesBy().isBefore(Instant.MAX) ? "ending" : "bound";
            case ASSUMED -> "binding";
            default -> print(holding.state());
        };
    }

    private static String print(State state) {
        return state.name().toLowerCase(Locale.ROOT);
    }

    static List<ApiTypes.Share> shares(Held held) {
        var shares = new ArrayList<ApiTypes.Share>();
        held.holding().shares().forEach(share -> {
            for (Vgpu vgpu : share.vgpus().list()) {
                shares.add(new ApiTypes.Share(
                        held.holding().pod().namespace(),
                        held.holding().pod().name(),
                        held.holding().pod().uid(),
                        held.node(),
                        share.container(),
                        vgpu.uuid(),
                        vgpu.memoryMiB(),
                        vgpu.cores(),
                        vgpu.policy().print(),
                        vgpu.priority(),
                        vgpu.exclusive()));
            }
        });
        return shares;
    }

    static ApiTypes.Reservation reservation(Held held) {
        Holding holding = held.holding();
        List<ApiTypes.Part> parts = holding.perGpu().entrySet().stream()
                .map(part -> new ApiTypes.Part(
                        part.getKey(),
                        part.getValue().memoryMiB(),
                        part.getValue().cores(),
                        part.getValue().slots(),
                        part.getValue().exclusive()))
                .sorted((one, other) -> one.gpu().compareTo(other.gpu()))
                .toList();
        return new ApiTypes.Reservation(
                holding.pod().namespace(),
                holding.pod().name(),
                holding.pod().uid(),
                held.node(),
                print(holding.state()),
                holding.age().toSeconds(),
                parts);
    }
}
