package io.aliquot.scheduler.doctor;

import static io.aliquot.scheduler.doctor.Installation.read;
import static io.aliquot.scheduler.doctor.Installation.unready;
import static io.aliquot.scheduler.doctor.Installation.warning;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.tuple;

import io.aliquot.scheduler.extensionapi.Authority;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.api.model.admissionregistration.v1.MutatingWebhookConfiguration;
import java.util.List;
import java.util.Optional;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

class ClusterChecksTest {
    private final Installation installation = new Installation();

    ClusterChecksTest() throws Exception {}

    @Test
    void aHealthyInstallationHasNoFinding() {
        assertThat(installation.findings()).isEmpty();
    }

    @ParameterizedTest
    @ValueSource(strings = {"v1.30.9", "v1.9.0", "v2.0.0", "none"})
    void aKubernetesVersionThatIsNotSupported(String version) {
        installation.version = version;

        assertThat(ClusterChecks.version(installation.state()))
                .extracting(Finding::print)
                .containsExactly(
                        "cluster: runs Kubernetes " + version + ", and Aliquot needs 1.31 or later; upgrade the"
                                + " cluster, see docs/support-matrix.md (kubernetes-version)");
    }

    @ParameterizedTest
    @CsvSource({"v1.35.9, 0", "v1.36.0, 0", "v1.37.0-eks-1, 1", "v1.34.1, 1"})
    void aKubeSchedulerThatIsNewerThanTheApiServerOrTooOld(String cluster, int findings) {
        installation.version = cluster;

        assertThat(installation.findings())
                .extracting(Finding::check)
                .hasSize(findings)
                .allMatch(check -> check.equals("kube-scheduler-version"));
    }

    @Test
    void nodeAgentsOfAnotherVersion() {
        installation.agent().getMetadata().getLabels().put("app.kubernetes.io/version", "0.1.0");

        assertFinding("versions", "the schedulers are of version 0.2.0 and the node agents of 0.1.0 (node1)");
    }

    @Test
    void aMissingScheduler() {
        installation.deployments.clear();

        assertThat(installation.findings()).extracting(Finding::check).containsExactly("installation");
    }

    @Test
    void anAccountThatLacksRights() {
        List<Right> needed = Right.needed("aliquot", true);
        needed.stream()
                .filter(right ->
                        right.resource().equals("leases") || right.verb().equals("patch"))
                .filter(right -> !right.account().equals("aliquot-ca-bundles"))
                .forEach(installation.refused::add);

        assertThat(installation.findings())
                .extracting(Finding::object, Finding::problem)
                .containsExactly(
                        tuple(
                                "serviceaccount/aliquot/aliquot-device-plugin",
                                "may not patch nodes, patch nodes/status, which the chart allows it"),
                        tuple(
                                "serviceaccount/aliquot/aliquot-scheduler",
                                "may not patch pods, patch nodes, get/list/watch/update leases.coordination.k8s.io"
                                        + " aliquot-scheduler in namespace aliquot, …, which the chart allows it"));
    }

    @Test
    void aReleaseWithoutTheApiNeedsFewerRights() {
        assertThat(Right.needed("aliquot", false))
                .hasSizeLessThan(Right.needed("aliquot", true).size())
                .extracting(Right::group)
                .doesNotContain("apiregistration.k8s.io", "authorization.k8s.io");
    }

    @Test
    void aDeploymentWithoutAvailableReplicasIsExplainedByAPodOfIts() {
        installation.deployments.getFirst().getStatus().setAvailableReplicas(0);
        Pod pod = installation.pods.getFirst();
        unready(
                pod,
                "[{name: extender, ready: false, state: {waiting: {reason: ImagePullBackOff, message: no such image}}}]");
        installation.serving.clear();

        assertFinding(
                "deployment",
                "0 of 2 replicas are available; its pod aliquot-scheduler-a is not ready: its container extender waits"
                        + " (ImagePullBackOff: no such image)");
    }

    @Test
    void aMissingWebhookConfiguration() {
        installation.webhook.getMetadata().setName("another");

        assertFinding("webhook", "is missing, so pods that request shares are not translated");
    }

    @Test
    void anEmptyCaBundleOfOneWebhook() {
        installation.webhook.getWebhooks().getLast().getClientConfig().setCaBundle(null);

        assertFinding(
                "webhook-certificate",
                "the caBundle of update.gpu.aliquot.io is empty, so the API server refuses pods that request shares");
    }

    @Test
    void aCaBundleThatIsNoCertificate() {
        installation.webhook.getWebhooks().forEach(one -> one.getClientConfig().setCaBundle("bm9uZQ=="));

        assertFinding(
                "webhook-certificate",
                "the caBundle of gpu.aliquot.io, update.gpu.aliquot.io is not readable, so the API server refuses pods"
                        + " that request shares");
    }

    @Test
    void anExpiredAuthorityAndAnExpiredCertificate() {
        var later = installation.authority.certificate.getNotAfter().toInstant().plusSeconds(1);

        assertThat(ClusterChecks.webhooks(installation.state(), later))
                .extracting(Finding::check, Finding::object)
                .containsExactly(
                        tuple("webhook-certificate", "MutatingWebhookConfiguration/aliquot"),
                        tuple("webhook-certificate", "pod/aliquot/aliquot-scheduler-a"));
    }

    @Test
    void aCaBundleOfAnotherAuthorityAndOneWithBoth() throws Exception {
        var other = new Authority("other").certificate;
        installation
                .webhook
                .getWebhooks()
                .forEach(one -> one.getClientConfig()
                        .setCaBundle(Installation.bundle(other, installation.authority.certificate)));
        assertThat(installation.findings()).isEmpty();

        installation
                .webhook
                .getWebhooks()
                .forEach(one -> one.getClientConfig().setCaBundle(Installation.bundle(other)));

        assertFinding(
                "webhook-certificate",
                "the caBundle of gpu.aliquot.io, update.gpu.aliquot.io does not contain the authority of the certificate"
                        + " that the schedulers serve, so the API server refuses pods that request shares");
    }

    @Test
    void aWebhookServiceWithoutReadyEndpoints() {
        installation
                .endpoints
                .getFirst()
                .getEndpoints()
                .getFirst()
                .getConditions()
                .setReady(false);

        assertFinding("endpoints", "has no ready endpoint, so pods that request shares are refused");
    }

    @Test
    void anApiServiceWithoutEndpointsIsOneFindingInTheApiServersWords() {
        var condition = installation
                .apiService
                .orElseThrow()
                .getStatus()
                .getConditions()
                .getFirst();
        condition.setStatus("False");
        condition.setReason("MissingEndpoints");
        condition.setMessage("endpoints for service/aliquot-extension-api in \"aliquot\" have no addresses");
        installation.endpoints.removeLast();

        assertFinding(
                "api-service",
                "is not available (MissingEndpoints: endpoints for service/aliquot-extension-api in \"aliquot\" have no"
                        + " addresses), so no namespace can be deleted, and kubectl get gpunodes fails");
    }

    @Test
    void anApiServiceIsMissingOnlyWhereItsDeploymentIsThere() {
        installation.apiService = Optional.empty();
        assertThat(installation.findings()).extracting(Finding::check).containsExactly("api-service");

        installation.deployments.removeLast();
        assertThat(installation.findings()).isEmpty();
    }

    @Test
    void aMissingRuntimeClass() {
        installation.runtimeClasses.clear();

        assertFinding("runtime-class", "is missing, so no node agent and no pod with a share is created");
    }

    @Test
    void hamisWebhookUnlessTheNamesAreShared() {
        installation.otherWebhooks.add(read(
                MutatingWebhookConfiguration.class,
                "{metadata: {name: hami-webhook}, webhooks: [{name: vgpu.hami.io, clientConfig: {}}]}"));
        assertFinding(
                "other-webhook", "is HAMi's, and both HAMi and Aliquot take every pod that requests nvidia.com/gpumem");

        installation
                .webhook
                .getWebhooks()
                .getFirst()
                .getMatchConditions()
                .getFirst()
                .setExpression("k in ['aliquot.io/vgpu']");
        assertThat(installation.findings()).isEmpty();
    }

    @Test
    void aPendingPodInAnIgnoredNamespaceThatRequestsAShare() {
        installation.ignored.add(read(Pod.class, """
                metadata: {name: train, namespace: team}
                spec: {containers: [{name: main, resources: {limits: {cpu: 1, nvidia.com/gpumem: 3000}}}]}
                """));
        installation.ignored.add(read(Pod.class, """
                metadata: {name: web, namespace: team}
                spec: {containers: [{name: main, resources: {limits: {cpu: 1, nvidia.com/gpu: 1}}}]}
                """));

        assertFinding(
                "ignored-namespace",
                "is Pending and requests nvidia.com/gpumem in a namespace with the label aliquot.io/webhook=ignore, where"
                        + " Aliquot's webhook does not translate it");
    }

    @ParameterizedTest
    @CsvSource({
        "aliyun.com/gpu-mem, {}, default-scheduler, 1",
        "mig.aliquot.io/1g.10gb, {}, default-scheduler, 1",
        "nvidia.com/gpu, {}, default-scheduler, 0",
        "nvidia.com/gpu, {aliquot.io/gpu: \"on\"}, default-scheduler, 1",
        "nvidia.com/gpu, {}, aliquot-scheduler, 1",
    })
    void whatNvidiasPluginServesIsItsOwnUnlessThePodSaysOtherwise(
            String resource, String labels, String scheduler, int findings) {
        installation.ignored.add(read(Pod.class, """
                metadata: {name: web, namespace: team, labels: %s}
                spec: {schedulerName: %s, containers: [{name: main, resources: {limits: {%s: 1}}}]}
                """.formatted(labels, scheduler, resource)));

        assertThat(installation.findings()).hasSize(findings);
    }

    @Test
    void aPodWhoseRuntimeHandlerTheNodeDoesNotHave() {
        String message = "Failed to create pod sandbox: rpc error: code = Unknown desc = failed to get sandbox runtime:"
                + " no runtime for \"missing\" is configured";
        installation.starting.add(
                read(
                        Pod.class,
                        "{metadata: {name: train, namespace: team, uid: u}, spec: {nodeName: node1, runtimeClassName: nvidia}}"));
        installation.warnings.put(
                "u",
                List.of(
                        warning("FailedCreatePodSandBox", message),
                        warning("FailedMount", "not yet"),
                        warning(
                                "Failed",
                                "nvidia-container-runtime: exec: \"tool --token=x\": executable file not found"),
                        warning("BackOff", "Back-off restarting failed container main in pod nvidia-train_team(u)")));

        assertFinding("pod-start", "does not start on node node1: " + message);
    }

    private void assertFinding(String check, String problem) {
        assertThat(installation.findings())
                .extracting(Finding::check, Finding::problem)
                .containsExactly(tuple(check, problem));
    }
}
