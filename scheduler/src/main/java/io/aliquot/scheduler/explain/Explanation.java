package io.aliquot.scheduler.explain;

import io.aliquot.scheduler.ledger.PodId;
import java.util.List;

/**
 * Why a pod waits, or doesn't have to.
 *
 * @param summary all of it in one line, the same as long as the situation is
 * @param fitting nodes whose GPUs hold the pod now
 * @param groups the other nodes, by what is in the way
 * @param nearest of those that another pod's leaving may help, the ones where least is missing, nearest first
 * @param remedies what the pod could ask for instead, a sentence each; empty where nothing would help
 * @param victims where pods of lower priority could make room, cheapest first
 */
public record Explanation(
        String summary,
        List<String> fitting,
        List<Group> groups,
        List<Near> nearest,
        List<String> remedies,
        List<Room> victims) {
    public Explanation {
        fitting = List.copyOf(fitting);
        groups = List.copyOf(groups);
        nearest = List.copyOf(nearest);
        remedies = List.copyOf(remedies);
        victims = List.copyOf(victims);
    }

    /**
     * Nodes that refuse the pod for the same reason.
     *
     * @param reason as kube-scheduler is told it
     * @param hopeless whether no other pod's leaving helps
     * @param nodes how many
     * @param examples some of them
     */
    public record Group(String reason, boolean hopeless, int nodes, List<String> examples) {
        public Group {
            examples = List.copyOf(examples);
        }
    }

    /** A node, and what is missing on those of its GPUs that come closest. */
    public record Near(String node, List<Lack> lacks) {
        public Near {
            lacks = List.copyOf(lacks);
        }
    }

    /**
     * Why a GPU doesn't hold a vGPU of a container.
     *
     * @param text a sentence's end: "lacks 2000 MiB"
     * @param memoryMiB that would have to be freed; 0 where memory is not in the way
     * @param cores percent that would have to be freed
     * @param slots vGPUs that would have to go
     */
    public record Lack(String container, String gpu, String text, long memoryMiB, int cores, int slots) {}

    /** Room that is there once these pods are gone. */
    public record Room(String node, List<Victim> pods) {
        public Room {
            pods = List.copyOf(pods);
        }
    }

    /** Somebody who would have to go, or is going already. */
    public record Victim(PodId pod, int priority, boolean ending) {}
}
