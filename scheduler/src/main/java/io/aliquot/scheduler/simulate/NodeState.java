package io.aliquot.scheduler.simulate;

import java.util.Arrays;
import org.jspecify.annotations.Nullable;

/**
 * What is left of a node. Immutable; two are equal if no pod could tell one node from the other, whichever GPU of either
 * is the fuller one.
 */
final class NodeState {
    final NodeModel model;
    final int cpuMillis;
    final int memoryMiB;
    /** Of the whole node, in thousandths of a GPU. */
    final int free;

    /** What is left of each GPU, in thousandths, ascending. */
    private final int[] left;

    private final int hash;

    private NodeState(NodeModel model, int cpuMillis, int memoryMiB, int[] left) {
        this.model = model;
        this.cpuMillis = cpuMillis;
        this.memoryMiB = memoryMiB;
        this.left = left;
        this.free = Arrays.stream(left).sum();
        this.hash = ((model.hashCode() * 31 + cpuMillis) * 31 + memoryMiB) * 31 + Arrays.hashCode(left);
    }

    static NodeState empty(NodeModel model) {
        int[] left = new int[model.gpus()];
        Arrays.fill(left, Demand.WHOLE);
        return new NodeState(model, model.cpuMillis(), model.memoryMiB(), left);
    }

    int gpus() {
        return left.length;
    }

    /** What is left of a GPU, from the fullest, 0, on. */
    int left(int gpu) {
        return left[gpu];
    }

    /** The fullest GPU that has so much left; as many as there are if none has. */
    int fullestWith(int share) {
        int gpu = 0;
        while (gpu < left.length && left[gpu] < share) {
            gpu++;
        }
        return gpu;
    }

    /** Whether a demand fits, {@link #fullestWith} being the first GPU that it may have. */
    boolean fits(Demand demand) {
        return demand.cpuMillis() <= cpuMillis
                && demand.memoryMiB() <= memoryMiB
                && (demand.gpus() == 0
                        || (demand.takes(model) && left.length - fullestWith(demand.share()) >= demand.gpus()));
    }

    /**
     * With a demand on it.
     *
     * @param gpu the first of its GPUs, ignored if it wants none; for whole GPUs {@link #fullestWith} that
     */
    NodeState with(Demand demand, int gpu) {
        int[] after = left.clone();
        for (int i = 0; i < demand.gpus(); i++) {
            after[gpu + i] -= demand.share();
        }
        Arrays.sort(after);
        return new NodeState(model, cpuMillis - demand.cpuMillis(), memoryMiB - demand.memoryMiB(), after);
    }

    @Override
    public boolean equals(@Nullable Object other) {
        return other instanceof NodeState state
                && hash == state.hash
                && cpuMillis == state.cpuMillis
                && memoryMiB == state.memoryMiB
                && model.equals(state.model)
                && Arrays.equals(left, state.left);
    }

    @Override
    public int hashCode() {
        return hash;
    }

    @Override
    public String toString() {
        return model + " with " + cpuMillis + " mCPU, " + memoryMiB + " MiB and " + Arrays.toString(left) + " left";
    }
}
