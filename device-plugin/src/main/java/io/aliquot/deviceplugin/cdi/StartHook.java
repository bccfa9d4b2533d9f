package io.aliquot.deviceplugin.cdi;

import io.aliquot.api.format.JsonFields;
import io.aliquot.api.shim.ContainerPaths;
import io.aliquot.api.usage.PodContainer;
import java.nio.file.Path;
import java.util.List;
import tools.jackson.databind.node.ArrayNode;
import tools.jackson.databind.node.ObjectNode;

/**
 * The hook in each specification, which ends the start of another container than the specification's, and of one that cannot be
 * limited. The contract of its arguments is in native-shim/README.md, Before a container starts.
 *
 * @param program its path on the host
 * @param pods the kubelet's folder of pods
 * @param endsUnlimited whether it looks at mounts and image, too; else the agent finds and reports after the start what is
 *     wrong with them
 */
public record StartHook(Path program, Path pods, boolean endsUnlimited) {
    /** The kubelet waits two minutes for the runtime. The hook ends itself six seconds after Linux has started it. */
    private static final int TIMEOUT_SECONDS = 30;

    /**
     * As an element of {@code containerEdits.hooks} (github.com/cncf-tags/container-device-interface, SPEC.md).
     *
     * @param mounts beside the limit file's
     * @param note the file in which it notes an image without a dynamic loader
     * @param wholeCards whether the container has whole cards only, so that nothing is to be limited
     */
    ObjectNode print(PodContainer of, List<BindMount> mounts, Path note, boolean wholeCards) {
        ObjectNode hook = JsonFields.JSON
                .createObjectNode()
                .put("hookName", "createContainer")
                .put("path", program.toString())
                .put("timeout", TIMEOUT_SECONDS);
        hook.putArray("env").add("PATH=/"); // else it inherits the runtime's
        ArrayNode arguments = hook.putArray("args").add(String.valueOf(program.getFileName()));
        arguments.add("--pod-uid").add(of.uid()).add("--namespace").add(of.namespace());
        arguments.add("--pod").add(of.pod()).add("--container").add(of.container());
        if (endsUnlimited) {
            arguments.add("--mount").add(limitFile(of)).add(ContainerPaths.CONFIG_FOLDER);
            mounts.forEach(
                    mount -> arguments.add("--mount").add(mount.hostPath()).add(mount.containerPath()));
            if (!wholeCards) {
                arguments.add("--preload").add("--note").add(note.toString());
            }
        }
        return hook;
    }

    /** The folder of its volume (Kubernetes 1.35, pkg/volume/downwardapi). */
    private String limitFile(PodContainer of) {
        return pods.resolve(of.uid())
                .resolve("volumes/kubernetes.io~downward-api")
                .resolve(ContainerPaths.limitFileVolume(of.container()))
                .toString();
    }
}
