package io.aliquot.scheduler.admission;

import io.aliquot.scheduler.apiserver.client.ApiServerClient;
import java.io.IOException;
import java.time.Duration;
import java.util.Optional;
import java.util.regex.Pattern;
import tools.jackson.core.JacksonException;
import tools.jackson.databind.json.JsonMapper;

/**
 * Which container runtime starts the pods of a RuntimeClass. A runtime that isolates a container by a kernel or a machine of
 * its own shows it no GPU of the host, and the files that limit it have no effect there.
 *
 * @param apiServer whose RuntimeClasses are read
 */
record RuntimeClasses(ApiServerClient apiServer) {
    private static final Duration TIMEOUT = Duration.ofSeconds(5);
    private static final JsonMapper JSON = JsonMapper.shared();

    /**
     * Handlers have the names that their documentation proposes: gVisor, Kata Containers (kata-qemu, kata-fc, …), Firecracker,
     * urunc, libkrun, Quark, Kuasar, Edera, Hyper-V, and WebAssembly by runwasi and crun.
     */
    private static final Pattern SANDBOX = Pattern.compile(
            "(^|[^a-z])(runsc|gvisor|kata|firecracker|urunc|krun|crun-vm|quark|kuasar|edera|runhcs|spin|slight|wws|lunatic)([^a-z]|$)"
                    + "|wasm");

    private static final Pattern NVIDIA = Pattern.compile("nvidia([^a-z].*)?");

    /** The handler of a RuntimeClass; empty if there is none of that name, which Kubernetes refuses. */
    Optional<String> handler(String name) {
        try {
            ApiServerClient.Answer answer =
                    apiServer.get("/apis/node.k8s.io/v1/runtimeclasses/" + name, "application/json", TIMEOUT);
            if (answer.code() == 404) {
                return Optional.empty();
            }
            if (!answer.isSuccessful()) {
                throw DeniedException.unreadable("RuntimeClass " + name, "status " + answer.code());
            }
            return Optional.of(JSON.readTree(answer.body()).path("handler").asString(""));
        } catch (IOException | JacksonException e) {
            throw DeniedException.unreadable("RuntimeClass " + name, String.valueOf(e.getMessage()));
        }
    }

    /**
     * What the author of a GPU pod should know about a handler; empty for NVIDIA's runtime, and where GPUs come by CDI, which
     * any handler but a sandbox injects.
     *
     * @param cdi whether each node injects GPUs by CDI
     * @throws DeniedException if no GPU of the node can be in such a container
     */
    static Optional<String> warning(String runtimeClass, String handler, boolean cdi) {
        if (SANDBOX.matcher(handler).find()) {
            throw new DeniedException("the RuntimeClass " + runtimeClass + " starts the pod by " + handler
                    + ", a sandbox, in which a container sees no GPU of its node, and its limits have no effect: remove"
                    + " spec.runtimeClassName, or the GPU resources");
        }
        return cdi || NVIDIA.matcher(handler).matches()
                ? Optional.empty()
                : Optional.of("the RuntimeClass " + runtimeClass + " starts the pod by " + handler
                        + ": if that is not NVIDIA's runtime, the containers see no GPU, except on nodes that inject GPUs"
                        + " by CDI; remove spec.runtimeClassName");
    }
}
