package io.aliquot.lab;

import static io.aliquot.lab.TestNamespace.EVENTUALLY;
import static io.aliquot.lab.TestNamespace.awaitTrue;
import static java.nio.charset.StandardCharsets.UTF_8;
import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.names.Labels;
import io.aliquot.api.names.Resources;
import io.aliquot.lab.ClusterSnapshot.Change;
import io.fabric8.kubernetes.api.model.NodeStatus;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.api.model.Quantity;
import io.fabric8.kubernetes.api.model.ResourceQuota;
import io.fabric8.kubernetes.api.model.autoscaling.v2.HorizontalPodAutoscalerStatus;
import io.fabric8.kubernetes.client.utils.Serialization;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.api.parallel.Isolated;

/**
 * What an installation changes in a cluster that has other users: Aliquot's own objects, the nodes that an administrator
 * labeled for it, and nothing else. NVIDIA's runtime is not the default of these nodes, and {@code hideImplicitGpus} is
 * false.
 */
@ExtendWith(LabExtension.class)
@Isolated
@LongTier.Only
class InstallationChangesIT {
    /** Pods of foreign-workloads.yaml that stay Pending. */
    private static final Set<String> PENDING = Set.of("other-scheduler", "resource-claim");

    private static final int PODS = 16;
    private static final int ENDED_PODS = 1;

    /** What kubelets and the API server renew at intervals that are longer than the control run. */
    private static final Set<String> RENEWED =
            Set.of(" Node status.conditions[].lastHeartbeatTime", "coordination.k8s.io Lease spec.renewTime");

    /** A kubelet does that five minutes after a device plugin has gone (devicemanager, endpointStopGracePeriod). */
    private static final Duration FORGETS = Duration.ofMinutes(6);

    private static final Quantity NONE = new Quantity("0");

    /** Kubernetes' roles that take up the rules of other roles with a label, here those of {@code aliquot-view}. */
    private static final Set<String> AGGREGATED_ROLES = Set.of("view", "edit", "admin");

    @Test
    void anInstallationChangesItsOwnObjectsAndItsNodesAlone(Lab lab, TestNamespace namespace, @TempDir Path folder)
            throws IOException {
        Path workloads = folder.resolve("workloads.yaml");
        Files.writeString(workloads, workloads(lab));
        try {
            uninstall(lab);
            awaitTrue("the other node's kubelet has forgotten an earlier test's agent", FORGETS, () -> hasNoVgpus(lab));
            lab.setDefaultRuntime(lab.node(NodeKind.DEFAULT_RUNTIME), "runc");
            label(lab);
            startAgain(lab, namespace, workloads);
            ClusterSnapshot first = ClusterSnapshot.of(lab.client());
            startAgain(lab, namespace, workloads);
            ClusterSnapshot before = ClusterSnapshot.of(lab.client());
            var changesAnyway = new TreeSet<>(RENEWED);
            first.changesTo(before).forEach(change -> changesAnyway.add(change.place()));
            // kubectl calls some objects "configured", such as those with a number for a quantity, however often it
            // applies
            String applied = apply(lab, namespace, workloads);
            Map<String, String> pods = pods(lab, namespace);

            install(lab);

            assertThat(pods(lab, namespace)).isEqualTo(pods);
            assertThat(apply(lab, namespace, workloads)).isEqualTo(applied);
            startAgain(lab, namespace, workloads);
            ClusterSnapshot after = ClusterSnapshot.of(lab.client());
            List<Change> changes = before.changesTo(after).stream()
                    .filter(change -> !changesAnyway.contains(change.place()))
                    .toList();

            changesAnyway.forEach(place -> System.out.println("changes anyway: " + place));
            changes.forEach(change -> System.out.println("changed: " + change));
            String documented = Files.readString(lab.root().resolve("docs/install.md"));
            assertThat(changes)
                    .filteredOn(change -> !isOurs(change, after)
                            && !isDocumentedOfOurNodes(change, lab, documented)
                            && !isAggregated(change))
                    .isEmpty();
            assertThat(changesAnyway)
                    .noneMatch(place -> place.startsWith(" Pod spec") || place.startsWith(" Pod metadata.annotations"));

            podsStartWithoutAnyReplica(lab, namespace);
        } finally {
            lab.kubectl("delete", "--namespace", namespace.name(), "-f", workloads.toString());
            lab.setDefaultRuntime(lab.node(NodeKind.DEFAULT_RUNTIME), "nvidia");
            label(lab);
            lab.aliquot("up", "--no-build").expectSuccess();
        }
    }

    private static String workloads(Lab lab) throws IOException {
        return Files.readString(
                        lab.root().resolve("lab/src/test/resources/io/aliquot/lab/foreign-workloads.yaml"), UTF_8)
                .replace("IMAGE", lab.sampleImage())
                .replace("OTHER_NODE", lab.otherNode());
    }

    /** As docs/install.md says, and without what may remain. */
    private static void uninstall(Lab lab) {
        lab.kubectl("label", "nodes", "-l", Labels.GPU, Labels.GPU + "-").expectSuccess();
        lab.kubectl(
                        "wait",
                        "--for=delete",
                        "pod",
                        "-n",
                        Lab.NAMESPACE,
                        "-l",
                        "app.kubernetes.io/component=device-plugin",
                        "--timeout=170s")
                .expectSuccess();
        lab.aliquot("helm", "uninstall", "aliquot", "--namespace", Lab.NAMESPACE, "--wait")
                .expectSuccess();
        lab.kubectl("annotate", "nodes", "--all", "aliquot.io/wake-", "aliquot.io/agent-clients-")
                .expectSuccess();
        lab.kubectl("delete", "runtimeclass", "nvidia", "--ignore-not-found").expectSuccess();
        lab.kubectl("delete", "namespace", Lab.NAMESPACE).expectSuccess();
    }

    private static void label(Lab lab) {
        lab.nodes()
                .forEach(node -> lab.kubectl("label", "node", node, Labels.GPU + "=" + Labels.GPU_ON, "--overwrite")
                        .expectSuccess());
    }

    private static void install(Lab lab) {
        lab.helm(
                "install",
                "--create-namespace",
                "--values",
                lab.root().resolve("lab/values.yaml").toString(),
                "--values",
                lab.root().resolve("lab/gpus.yaml").toString(),
                "--set",
                "hideImplicitGpus=false");
        for (String object : List.of("daemonset/aliquot-device-plugin", "deployment/aliquot-scheduler")) {
            lab.aliquot("kubectl", "-n", Lab.NAMESPACE, "rollout", "status", object, "--timeout=170s")
                    .expectSuccess();
        }
        awaitTrue(
                "the nodes have vGPUs",
                EVENTUALLY,
                () -> lab.nodes().stream().allMatch(node -> lab.allocatable(node, Resources.VGPU) > 0));
    }

    /** Pods that request no GPU, while neither the scheduler nor aliquot-api has a pod. */
    private static void podsStartWithoutAnyReplica(Lab lab, TestNamespace namespace) {
        lab.kubectl("delete", "resourcequota,jobs,pods", "--all", "--namespace", namespace.name())
                .expectSuccess();
        lab.kubectl(
                        "scale",
                        "deployment/aliquot-scheduler",
                        "deployment/aliquot-api",
                        "--replicas=0",
                        "--namespace",
                        Lab.NAMESPACE)
                .expectSuccess();
        lab.kubectl(
                        "wait",
                        "--for=delete",
                        "pod",
                        "-l",
                        "app.kubernetes.io/component in (scheduler, api)",
                        "--namespace",
                        Lab.NAMESPACE,
                        "--timeout=120s")
                .expectSuccess();
        lab.kubectl(
                        "create",
                        "deployment",
                        "plain",
                        "--image=" + lab.sampleImage(),
                        "--replicas=200",
                        "--namespace",
                        namespace.name())
                .expectSuccess();
        lab.kubectl("rollout", "status", "deployment/plain", "--timeout=300s", "--namespace", namespace.name())
                .expectSuccess();
        lab.kubectl("delete", "deployment", "plain", "--namespace", namespace.name())
                .expectSuccess();
    }

    private static String apply(Lab lab, TestNamespace namespace, Path workloads) {
        return lab.kubectl("apply", "--namespace", namespace.name(), "-f", workloads.toString())
                .expectSuccess();
    }

    /** Creates the workloads, or all of their pods again, and waits until they, quota and autoscaler have settled. */
    private static void startAgain(Lab lab, TestNamespace namespace, Path workloads) {
        lab.kubectl("delete", "jobs,pods", "--all", "--namespace", namespace.name())
                .expectSuccess();
        apply(lab, namespace, workloads);
        awaitTrue("the workloads run", EVENTUALLY, () -> {
            List<Pod> pods =
                    lab.client().pods().inNamespace(namespace.name()).list().getItems();
            return pods.size() == PODS
                    && pods.stream().allMatch(InstallationChangesIT::isSettled)
                    && usedPods(lab, namespace).equals(Integer.toString(PODS - ENDED_PODS))
                    && hasTriedToScale(lab, namespace);
        });
    }

    private static boolean isSettled(Pod pod) {
        if (PENDING.contains(pod.getMetadata().getName())) {
            return pod.getStatus().getPhase().equals("Pending");
        }
        // The Job controller takes its finalizer away once it has counted the pod.
        return (pod.getStatus().getPhase().equals("Succeeded")
                        && pod.getMetadata().getFinalizers().isEmpty())
                || TestNamespace.isReady(pod);
    }

    private static String usedPods(Lab lab, TestNamespace namespace) {
        ResourceQuota quota = lab.client()
                .resourceQuotas()
                .inNamespace(namespace.name())
                .withName("quota")
                .get();
        return quota.getStatus() == null || quota.getStatus().getUsed() == null
                ? ""
                : String.valueOf(quota.getStatus().getUsed().get("pods"));
    }

    private static boolean hasNoVgpus(Lab lab) {
        NodeStatus status = lab.client().nodes().withName(lab.otherNode()).get().getStatus();
        return status.getCapacity().getOrDefault(Resources.VGPU, NONE).equals(NONE);
    }

    /** The autoscaler's controller looks every 15 s. */
    private static boolean hasTriedToScale(Lab lab, TestNamespace namespace) {
        HorizontalPodAutoscalerStatus status = lab.client()
                .autoscaling()
                .v2()
                .horizontalPodAutoscalers()
                .inNamespace(namespace.name())
                .withName("autoscaler")
                .get()
                .getStatus();
        return status != null
                && status.getConditions().stream()
                        .anyMatch(condition -> condition.getType().equals("ScalingActive"));
    }

    /** The namespace's pods as JSON. */
    private static Map<String, String> pods(Lab lab, TestNamespace namespace) {
        var pods = new TreeMap<String, String>();
        for (Pod pod : lab.client().pods().inNamespace(namespace.name()).list().getItems()) {
            pods.put(pod.getMetadata().getName(), Serialization.asJson(pod));
        }
        return pods;
    }

    private static boolean isOurs(Change change, ClusterSnapshot after) {
        ClusterSnapshot.Identity object = change.object();
        return object.namespace().equals(Lab.NAMESPACE)
                || object.name().startsWith("aliquot")
                || object.group().equals("gpu.aliquot.io")
                || object.name().equals("v1alpha1.gpu.aliquot.io")
                || (object.kind().equals("RuntimeClass") && object.name().equals("nvidia"))
                // The address of one of our Services.
                || Lab.NAMESPACE.equals(
                        after.objects().getOrDefault(object, Map.of()).get("spec.parentRef.namespace"));
    }

    private static boolean isDocumentedOfOurNodes(Change change, Lab lab, String documented) {
        String key = change.path()
                .replaceFirst("^status\\.conditions\\[(AliquotGPUsHealthy)].*$", "$1")
                .replaceFirst("^(metadata\\.(labels|annotations)|status\\.(capacity|allocatable))\\.", "");
        return change.object().kind().equals("Node")
                && lab.nodes().contains(change.object().name())
                && !key.equals(change.path())
                && documented.contains("`" + key + "`");
    }

    private static boolean isAggregated(Change change) {
        return change.object().kind().equals("ClusterRole")
                && AGGREGATED_ROLES.contains(change.object().name())
                && change.path().startsWith("rules[{")
                && change.path().contains("\"apiGroups\":[\"gpu.aliquot.io\"]")
                && change.before().isEmpty();
    }
}
