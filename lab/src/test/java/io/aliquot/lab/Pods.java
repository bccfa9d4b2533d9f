package io.aliquot.lab;

import io.aliquot.api.names.Labels;
import io.aliquot.api.names.Resources;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.api.model.PodBuilder;
import io.fabric8.kubernetes.api.model.Quantity;
import io.fabric8.kubernetes.api.model.apps.Deployment;
import io.fabric8.kubernetes.api.model.apps.DeploymentBuilder;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** Builds pods as users write them. */
final class Pods {
    /** The name of a pod's only container. */
    static final String MAIN = "main";

    /** Sleeps until SIGTERM. A container's first process ignores that signal if it has no handler, as sleep has none. */
    static final List<String> SLEEP = List.of("bash", "-c", "trap exit TERM; sleep infinity & wait");

    /** The kubelet's folder of its device plugins' sockets. */
    static final String DEVICE_PLUGINS = "/var/lib/kubelet/device-plugins";

    private Pods() {}

    /** A pod with one container, which sleeps and has {@code limits}. */
    static Pod withLimits(Lab lab, String name, Map<String, String> limits) {
        var quantities = new HashMap<String, Quantity>();
        limits.forEach((key, value) -> quantities.put(key, new Quantity(value)));
        return new PodBuilder()
                .withNewMetadata()
                .withName(name)
                .endMetadata()
                .withNewSpec()
                .withTerminationGracePeriodSeconds(1L) // with 0 each deletion is by force
                .withAutomountServiceAccountToken(false)
                .addNewContainer()
                .withName(MAIN)
                .withImage(lab.sampleImage())
                .withImagePullPolicy("Never")
                .withCommand(SLEEP)
                .withNewResources()
                .withLimits(quantities)
                .endResources()
                .endContainer()
                .endSpec()
                .build();
    }

    static Pod withGpuMemory(Lab lab, String name, int mib) {
        return withLimits(lab, name, Map.of(Resources.MEMORY, Integer.toString(mib)));
    }

    static Pod withoutGpu(Lab lab, String name) {
        return withLimits(lab, name, Map.of());
    }

    static Pod withAnnotations(Pod pod, Map<String, String> annotations) {
        return pod.edit()
                .editMetadata()
                .addToAnnotations(annotations)
                .endMetadata()
                .build();
    }

    /** With a file or folder of its node in the first container. */
    static Pod withHostPath(Pod pod, String path, String mountPath) {
        String volume = "host-" + pod.getSpec().getVolumes().size();
        return pod.edit()
                .editSpec()
                .editFirstContainer()
                .addNewVolumeMount()
                .withName(volume)
                .withMountPath(mountPath)
                .endVolumeMount()
                .endContainer()
                .addNewVolume()
                .withName(volume)
                .withNewHostPath()
                .withPath(path)
                .endHostPath()
                .endVolume()
                .endSpec()
                .build();
    }

    /** A pod whose label says that it is Aliquot's. */
    static Pod labeled(Pod pod) {
        return pod.edit()
                .editMetadata()
                .addToLabels(Labels.OURS, Labels.OURS_ON)
                .endMetadata()
                .build();
    }

    /** A Deployment of pods like this one, of its name, in no namespace yet. */
    static Deployment deployment(Pod pod, int replicas) {
        var labels = Map.of("app", pod.getMetadata().getName());
        return new DeploymentBuilder()
                .withNewMetadata()
                .withName(pod.getMetadata().getName())
                .endMetadata()
                .withNewSpec()
                .withReplicas(replicas)
                .withNewSelector()
                .withMatchLabels(labels)
                .endSelector()
                .withNewTemplate()
                .withNewMetadata()
                .withLabels(labels)
                .withAnnotations(pod.getMetadata().getAnnotations())
                .endMetadata()
                .withSpec(pod.getSpec())
                .endTemplate()
                .endSpec()
                .build();
    }

    static Pod onNode(Pod pod, String node) {
        return pod.edit()
                .editSpec()
                .addToNodeSelector("kubernetes.io/hostname", node)
                .endSpec()
                .build();
    }
}
