package io.aliquot.scheduler.placement;

import static org.assertj.core.api.Assertions.assertThat;

import java.util.Map;
import java.util.Optional;
import org.junit.jupiter.api.Test;

class NodeRuntimeTest {
    private static final PodRuntime NVIDIA = new PodRuntime("nvidia", false);
    private static final PodRuntime NVIDIA_IN_USER_NAMESPACE = new PodRuntime("nvidia", true);
    private static final PodRuntime IN_USER_NAMESPACE = new PodRuntime("", true);

    /** As Debian's containerd 1.6, which reports no handlers. */
    @Test
    void aRuntimeThatReportsNoHandlersStartsEachPodButThoseWithAUserNamespace() {
        assertThat(refusal(NodeRuntime.UNKNOWN, PodRuntime.DEFAULT, "")).isEmpty();
        assertThat(refusal(NodeRuntime.UNKNOWN, NVIDIA, "nvidia")).isEmpty();
        assertThat(refusal(NodeRuntime.UNKNOWN, NVIDIA_IN_USER_NAMESPACE, "nvidia"))
                .isEqualTo("the node's container runtime does not report user namespaces, which hostUsers: false needs:"
                        + " containerd does from 2.0 on");
    }

    @Test
    void aPodStartsWhereItsHandlerIsAndThatHandlerDecidesAboutItsUserNamespace() {
        var runtime = new NodeRuntime(Map.of("", true, "runc", true, "nvidia", false), "");

        assertThat(refusal(runtime, PodRuntime.DEFAULT, "")).isEmpty();
        assertThat(refusal(runtime, NVIDIA, "nvidia")).isEmpty();
        assertThat(refusal(runtime, IN_USER_NAMESPACE, "")).isEmpty();
        assertThat(refusal(runtime, NVIDIA_IN_USER_NAMESPACE, "nvidia"))
                .isEqualTo(
                        "the node's runtime handler nvidia does not support user namespaces, which hostUsers: false needs");
        assertThat(refusal(new NodeRuntime(Map.of("", false), ""), IN_USER_NAMESPACE, ""))
                .isEqualTo(
                        "the node's default runtime handler does not support user namespaces, which hostUsers: false needs");
        assertThat(refusal(new NodeRuntime(Map.of("", true, "runc", true), ""), NVIDIA, "nvidia"))
                .isEqualTo(
                        "the node's container runtime has no handler nvidia, which the pod's RuntimeClass nvidia names:"
                                + " configure it in containerd or CRI-O");
    }

    /** Kubernetes refuses to create such a pod; it can only be older than the deletion of its RuntimeClass. */
    @Test
    void aRuntimeClassThatIsGoneIsLeftToTheKubelet() {
        assertThat(new NodeRuntime(Map.of("", true), "").refusal(NVIDIA_IN_USER_NAMESPACE, Optional.empty()))
                .isEmpty();
    }

    @Test
    void aPodWithoutARuntimeClassDoesNotGoWhereTheRuntimeClassBringsTheGpus() {
        var runtime = new NodeRuntime(Map.of(), "nvidia");

        assertThat(refusal(runtime, PodRuntime.DEFAULT, ""))
                .isEqualTo(
                        "the node's GPUs come by the RuntimeClass nvidia, which the pod was created without: create it again");
        assertThat(refusal(runtime, new PodRuntime("mine", false), "runc")).isEmpty();
    }

    /** The reason; empty if the pod can start. kube-scheduler uses it as a format string for its event. */
    private static String refusal(NodeRuntime runtime, PodRuntime pod, String handler) {
        return runtime.refusal(pod, Optional.of(handler))
                .map(refused -> {
                    assertThat(refused.unresolvable()).isTrue();
                    assertThat(refused.reason()).doesNotContain("%");
                    return refused.reason();
                })
                .orElse("");
    }
}
