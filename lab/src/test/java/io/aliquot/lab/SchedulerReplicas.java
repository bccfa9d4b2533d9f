package io.aliquot.lab;

import io.aliquot.api.pods.Fence;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.api.model.coordination.v1.Lease;
import io.fabric8.kubernetes.api.model.coordination.v1.LeaseSpec;
import io.fabric8.kubernetes.client.KubernetesClientException;
import java.time.Duration;
import java.util.List;
import java.util.Optional;

/** The pods of the scheduler, and which of them is the leader. */
final class SchedulerReplicas {
    static final String EXTENDER = "extender";
    static final String KUBE_SCHEDULER = "kube-scheduler";
    private static final String NAME = "aliquot-scheduler";

    private final Lab lab;

    SchedulerReplicas(Lab lab) {
        this.lab = lab;
    }

    /** The replicas that are not terminating. */
    List<Pod> all() {
        return lab.componentPods("scheduler");
    }

    /** The name of the pod whose kube-scheduler holds the Lease; empty if none does. */
    String leader() {
        return holder().replaceFirst("_.*", "");
    }

    /** The Lease's holderIdentity, which each start of a kube-scheduler changes; empty if there is no holder. */
    String holder() {
        return lease().map(LeaseSpec::getHolderIdentity).orElse("");
    }

    /** The fence that the leader's writes must carry. */
    Fence fence() {
        return new Fence(holder(), lease().map(LeaseSpec::getLeaseTransitions).orElse(0));
    }

    private Optional<LeaseSpec> lease() {
        return Optional.ofNullable(lab.client()
                        .leases()
                        .inNamespace(Lab.NAMESPACE)
                        .withName(NAME)
                        .get())
                .map(Lease::getSpec);
    }

    Pod get(String name) {
        return all().stream()
                .filter(pod -> pod.getMetadata().getName().equals(name))
                .findFirst()
                .orElseThrow(() -> new AssertionError("there is no replica " + name));
    }

    /** How often the kube-schedulers that run now found no node for a pod, by their logs (schedule_one.go, V(2)). */
    long failedAttempts(String namespace, String pod) {
        String line = "Unable to schedule pod; no fit; waiting\" pod=\"" + namespace + "/" + pod + "\"";
        return all().stream()
                .flatMap(replica -> lab.client()
                        .pods()
                        .resource(replica)
                        .inContainer(KUBE_SCHEDULER)
                        .getLog()
                        .lines())
                .filter(text -> text.contains(line))
                .count();
    }

    void signal(Pod replica, String container, String signal) {
        lab.signal(
                replica.getSpec().getNodeName(),
                TestNamespace.containerStatus(replica, container).getContainerID(),
                signal);
    }

    /** Replaces all replicas, as an upgrade does, and waits until the old ones are gone and the new ones are ready. */
    void restart(Duration within) {
        List<String> old =
                all().stream().map(pod -> pod.getMetadata().getName()).toList();
        lab.kubectl("-n", Lab.NAMESPACE, "rollout", "restart", "deployment/" + NAME)
                .expectSuccess();
        TestNamespace.awaitTrue("the old replicas of the scheduler are gone", within, () -> {
            try {
                return old.stream()
                        .allMatch(pod -> lab.client()
                                        .pods()
                                        .inNamespace(Lab.NAMESPACE)
                                        .withName(pod)
                                        .get()
                                == null);
            } catch (KubernetesClientException e) {
                return false;
            }
        });
        awaitReady(within);
    }

    /** Waits until all replicas of the Deployment are ready, one of them leads, and the API server reaches one. */
    void awaitReady(Duration within) {
        TestNamespace.awaitTrue("all replicas of the scheduler are ready and one leads", within, () -> {
            try {
                int replicas = lab.client()
                        .apps()
                        .deployments()
                        .inNamespace(Lab.NAMESPACE)
                        .withName(NAME)
                        .get()
                        .getSpec()
                        .getReplicas();
                List<Pod> pods = all();
                return pods.size() == replicas
                        && pods.stream().allMatch(TestNamespace::isReady)
                        && pods.stream()
                                .anyMatch(pod -> pod.getMetadata().getName().equals(leader()))
                        && lab.client().raw(GpuApiIT.GROUP + "/gpunodes?limit=1") != null;
            } catch (KubernetesClientException e) {
                return false;
            }
        });
    }
}
