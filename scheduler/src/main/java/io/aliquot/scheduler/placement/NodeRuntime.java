package io.aliquot.scheduler.placement;

import io.aliquot.scheduler.placement.Feasibility.Refused;
import java.util.Map;
import java.util.Optional;

/**
 * Which pods a node's container runtime can start.
 *
 * @param userNamespaces the runtime's handlers, and whether each supports user namespaces. The default handler is also there
 *     under the empty name. No entry at all: the runtime does not report its handlers, as containerd 1, or the node's kubelet
 *     does not (Node.status.runtimeHandlers, KEP-127 and KEP-3857)
 * @param gpuRuntimeClass the RuntimeClass that brings a pod's GPUs; empty if pods need none
 */
public record NodeRuntime(Map<String, Boolean> userNamespaces, String gpuRuntimeClass) {
    /** A runtime that does not report its handlers, on a node where pods need no RuntimeClass. */
    public static final NodeRuntime UNKNOWN = new NodeRuntime(Map.of(), "");

    private static final String NEEDED = " user namespaces, which hostUsers: false needs";

    public NodeRuntime {
        userNamespaces = Map.copyOf(userNamespaces);
    }

    /**
     * Why the runtime cannot start a pod, or starts it without its GPUs. The kubelet would retry for ever on a node without
     * the handler, or without user namespaces (Kubernetes 1.35, pkg/kubelet/userns, GetOrCreateUserNamespaceMappings, which
     * takes a runtime that reports no handlers for one without).
     *
     * @param handler that of the pod's RuntimeClass, the empty name without one; empty if the RuntimeClass is not known
     */
    public Optional<Refused> refusal(PodRuntime pod, Optional<String> handler) {
        return reason(pod, handler).map(reason -> new Refused(reason, true));
    }

    private Optional<String> reason(PodRuntime pod, Optional<String> handler) {
        if (pod.runtimeClass().isEmpty() && !gpuRuntimeClass.isEmpty()) {
            return Optional.of("the node's GPUs come by the RuntimeClass " + gpuRuntimeClass
                    + ", which the pod was created without: create it again");
        }
        if (!userNamespaces.isEmpty()) {
            return handler.flatMap(name -> reason(pod, name));
        }
        return pod.userNamespace()
                ? Optional.of("the node's container runtime does not report" + NEEDED + ": containerd does from 2.0 on")
                : Optional.empty();
    }

    private Optional<String> reason(PodRuntime pod, String handler) {
        if (!handler.isEmpty() && !userNamespaces.containsKey(handler)) {
            return Optional.of(
                    "the node's container runtime has no handler " + handler + ", which the pod's RuntimeClass "
                            + pod.runtimeClass() + " names: configure it in containerd or CRI-O");
        }
        if (!pod.userNamespace() || userNamespaces.getOrDefault(handler, false)) {
            return Optional.empty();
        }
        String named = handler.isEmpty() ? "default runtime handler" : "runtime handler " + handler;
        return Optional.of("the node's " + named + " does not support" + NEEDED);
    }
}
