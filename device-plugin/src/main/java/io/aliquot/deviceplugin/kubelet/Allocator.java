package io.aliquot.deviceplugin.kubelet;

import io.aliquot.api.nodes.VisibleDevices;
import io.aliquot.api.shim.ContainerPaths;
import io.aliquot.deviceplugin.cdi.BindMount;
import io.aliquot.deviceplugin.cdi.CdiContainers;
import io.aliquot.deviceplugin.cdi.DeviceInjection;
import io.aliquot.deviceplugin.files.ContainerFiles;
import io.aliquot.deviceplugin.files.SlotFiles;
import io.aliquot.deviceplugin.shim.Shim;
import io.aliquot.deviceplugin.v1beta1.CDIDevice;
import io.aliquot.deviceplugin.v1beta1.ContainerAllocateResponse;
import io.aliquot.deviceplugin.v1beta1.Mount;
import io.grpc.Status;
import io.grpc.StatusException;
import java.io.IOException;
import java.nio.file.Path;
import java.util.List;

/**
 * Answers Allocate for one container: the shim, the file that preloads it, an empty region and the agent's own file, as mounts
 * or by a CDI device that will have the GPUs, too; and makes no GPU visible. The answer does not depend on the pod, which
 * Allocate does not name: the pod's annotations, which Bind wrote, set its GPUs and limits. So Allocate needs no API call and
 * two or three local files.
 */
final class Allocator {
    private static final String WARM_UP = ".warm-up";

    private final Shim shim;
    private final ContainerFiles regions;
    private final ContainerFiles agentFiles;
    private final CdiContainers cdi;

    /** Prepares to answer. */
    Allocator(Shim shim, SlotFiles files, CdiContainers cdi) {
        this.shim = shim;
        this.cdi = cdi;
        regions = files.regions();
        agentFiles = files.agentFiles();
    }

    /**
     * Allocates slots to a container.
     *
     * @param slots device ids, in any order
     * @param everAdvertised the largest number of slots ever advertised: the kubelet may still use the ids of an older,
     *     longer list
     * @param injection by mounts, or by a CDI device
     * @throws StatusException INVALID_ARGUMENT for ids that were never advertised; INTERNAL if the slot's files cannot
     *     be written
     */
    ContainerAllocateResponse allocate(List<String> slots, int everAdvertised, DeviceInjection injection)
            throws StatusException {
        if (slots.isEmpty()) {
            throw invalid("expected at least one slot for a container, found none");
        }
        for (String slot : slots) {
            if (AdvertisedSlots.parseId(slot).orElse(Integer.MAX_VALUE) >= everAdvertised) {
                throw invalid("expected slots from slot-000 to "
                        + (everAdvertised == 0 ? "none yet" : AdvertisedSlots.id(everAdvertised - 1)) + ", found "
                        + slot.replaceAll("[^!-~]", "?")
                        + "; if another device plugin serves aliquot.io/vgpu on this node, remove it");
            }
        }
        // The kubelet sends the ids in random order; all slots of a container use the region of the first.
        String first = slots.stream().sorted().findFirst().orElseThrow();
        try {
            List<BindMount> mounts = mounts(regions.replace(first), agentFiles.replace(first));
            return switch (injection) {
                case RUNTIME -> response(mounts);
                case CDI -> response(cdi.allocate(first, mounts));
            };
        } catch (IOException e) {
            throw Status.INTERNAL
                    .withDescription("cannot write the files of " + first + ": " + e)
                    .withCause(e)
                    .asException();
        }
    }

    /** Makes one answer and discards it, so that the first pod does not wait until classes are loaded. */
    void warmUp() throws IOException {
        int unused = response(mounts(regions.replace(WARM_UP), agentFiles.replace(WARM_UP)))
                .getSerializedSize();
        regions.remove(WARM_UP, regions.find(WARM_UP));
        agentFiles.remove(WARM_UP, agentFiles.find(WARM_UP));
    }

    private List<BindMount> mounts(Path region, Path agentFile) {
        return List.of(
                new BindMount(shim.library().toString(), shim.libraryInContainer(), true),
                new BindMount(shim.preload().toString(), ContainerPaths.PRELOAD, true),
                new BindMount(region.toString(), ContainerPaths.REGION, false),
                new BindMount(agentFile.toString(), ContainerPaths.AGENT, true));
    }

    private static ContainerAllocateResponse response(List<BindMount> mounts) {
        var response = response();
        for (BindMount mount : mounts) {
            response.addMounts(Mount.newBuilder()
                    .setHostPath(mount.hostPath())
                    .setContainerPath(mount.containerPath())
                    .setReadOnly(mount.readOnly()));
        }
        return response.build();
    }

    private static ContainerAllocateResponse response(String cdiDevice) {
        return response()
                .addCdiDevices(CDIDevice.newBuilder().setName(cdiDevice))
                .build();
    }

    /** The container's own env, set at admission, overrides this one (docs/architecture.md: the life of a pod, 5). */
    private static ContainerAllocateResponse.Builder response() {
        return ContainerAllocateResponse.newBuilder().putEnvs("NVIDIA_VISIBLE_DEVICES", VisibleDevices.NONE);
    }

    private static StatusException invalid(String message) {
        return Status.INVALID_ARGUMENT.withDescription(message).asException();
    }
}
