package io.aliquot.lab.chart;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatCode;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import com.marcnuri.helm.TemplateCommand;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Values that the chart refuses, with a message that says what to set instead. */
class InvalidValuesTest {
    @Test
    void namespaceDefaultIsRefused() {
        assertThatThrownBy(() -> Chart.template().withNamespace("default").call())
                .hasMessageContaining("cannot be installed in the namespace default")
                .hasMessageContaining("--namespace aliquot --create-namespace");
    }

    @ParameterizedTest
    @CsvSource({"v1.20.0", "v1.30.14", "v1.30.9-eks-1"})
    void kubernetesBefore131IsRefused(String version) {
        assertThatThrownBy(() -> Chart.template().withKubeVersion(version).call())
                .hasMessageContaining("needs Kubernetes 1.31 or later")
                .hasMessageContaining("this is " + version.replaceFirst("-.*", ""))
                .hasMessageContaining("--kube-version");
    }

    @Test
    void kubernetes131IsAcceptedAlsoWithAProvidersSuffix() {
        assertThatCode(() -> Chart.template().withKubeVersion("v1.31.0-gke.1").call())
                .doesNotThrowAnyException();
    }

    @Test
    void runtimeClassWithoutANameIsRefused() {
        refused(Map.of("runtimeClass.name", ""), "set runtimeClass.create=false");
    }

    @Test
    void aPrivilegedAgentOnOpenShiftIsRefused() {
        refused(Map.of("devicePlugin.driverRoot", "/", "platform", "openshift"), "Leave it empty");
    }

    @ParameterizedTest
    @ValueSource(strings = {"usr", "/run/nvidia/../driver", "/run/"})
    void aDriverRootThatIsNoneIsRefused(String folder) {
        refused(Map.of("devicePlugin.driverRoot", folder), "driverRoot");
    }

    @Test
    void theArgumentsThatTheChartGivesAPluginOfKubeSchedulerAreNotReplaced() {
        refused(Map.of("kubeScheduler.pluginConfig[0].name", "NodeResourcesFit"), "scheduler.placement.node");
    }

    @Test
    void takingEveryGpuPodOfAClusterThatSharesNamesIsRefused() {
        refused(Map.of("scope", "cluster", "sharedNames", true), "Set scope=opt-in and label the namespaces");
    }

    @ParameterizedTest
    @ValueSource(strings = {"gpu", "gpu=", "=on", "a b=c", "aliquot.io/node-agent=on"})
    void aNodeLabelThatIsNoneIsRefused(String label) {
        refused(Map.of("nodeLabel", label), "nodeLabel");
    }

    @ParameterizedTest
    @ValueSource(strings = {"10.0.0.1", "10.0.0.0/33", "api.example.com/32", "2001:db8::/129"})
    void anAddressOfAnApiServerThatIsNoRangeIsRefused(String range) {
        refused(Map.of("networkPolicy.apiServers[0]", range), "/networkPolicy/apiServers/0");
    }

    @ParameterizedTest
    @CsvSource({"allowed.corePolicies[0], force", "allowed.priorities[0], urgent", "allowed.requireCores, maybe"})
    void aRuleOfAnUnknownWordIsRefused(String value, String word) {
        refused(Map.of(value, word), "allowed");
    }

    @ParameterizedTest
    @ValueSource(strings = {"kube-system", Chart.NAMESPACE})
    void aTestInANamespaceWithoutTheWebhookIsRefused(String namespace) {
        refused(
                Map.of("test.namespace", namespace),
                "test.namespace: no webhook of Aliquot's is called in " + namespace);
    }

    @Test
    void aLogLevelOfAnUnknownWordIsRefused() {
        refused(Map.of("scheduler.logLevel", "DEBUG"), "/scheduler/logLevel");
    }

    @Test
    void variablesThatTheChartSetsItselfAreRefused() {
        refused(
                Map.of("devicePlugin.extraEnv[0].name", "ALIQUOT_SLOTS"),
                "devicePlugin.extraEnv: the chart sets ALIQUOT_SLOTS itself");
        refused(Map.of("scheduler.extraEnv[0].name", "POD_NAME"), "scheduler.extraEnv: the chart sets POD_NAME itself");
    }

    @Test
    void aReadyResourceThatOtherPluginsServeIsRefused() {
        refused(Map.of("autoscaler.readyResource", "nvidia.com/gpu"), "Set microsoft.com/directx, or remove");
        refused(Map.of("autoscaler.readyResource", "amd.com/gpu"), "/autoscaler/readyResource");
    }

    @Test
    void fakeDriverWithUnknownDeviceNamesIsRefused() {
        TemplateCommand command = Chart.template()
                .withValuesFile(Chart.FOLDER.resolve("ci/fake-driver-values.yaml"))
                .set("devicePlugin.visibleDevices", "runtime.nvidia.com/gpu={uuid}");

        assertThatThrownBy(command::call).hasMessageContaining("must be {uuid} or nvidia.com/gpu={uuid}");
    }

    @ParameterizedTest
    @CsvSource({
        "scope,                           everything,    opt-in",
        "webhooks.namespaceSelector.labels.a, b,         labels",
        "overuse,                         delete,        report",
        "unlimitedContainers,             evict,         /unlimitedContainers",
        "scheduler.replicas,              0,             /scheduler/replicas",
        "scheduler.placement.node,        tetris,        fragmentation",
        "scheduler.placement.gpu,         Binpack,       spread",
        "scheduler.resourcs.limits,       1,             resourcs",
        "schedulers.replicas,             1,             schedulers",
        "devicePlugin.slots,              0,             /devicePlugin/slots",
        "devicePlugin.slots,              1001,          /devicePlugin/slots",
        "devicePlugin.visibleDevices,     all,           /devicePlugin/visibleDevices",
        "devicePlugin.stateDir,           var/aliquot,   /devicePlugin/stateDir",
        "devicePlugin.stateDir,           /var/../etc,   /devicePlugin/stateDir",
        "devicePlugin.kubeletRoot,        /,             /devicePlugin/kubeletRoot",
        "imagePullPolicy,                 Sometimes,     IfNotPresent",
        "kubeScheduler.extraArgs[0],      -v=4,          /kubeScheduler/extraArgs/0",
        "metrics.podMonitors.enabled,     true,          podMonitors",
        "runtimeClass.name,               Nvidia,        /runtimeClass/name",
    })
    void invalidValueIsRefusedWithItsName(String value, String given, String named) {
        refused(Map.of(value, given), named);
    }

    private static void refused(Map<String, Object> values, String... advice) {
        assertThatThrownBy(() -> Chart.renderWith(values))
                .satisfies(e -> assertThat(e.getMessage()).contains(advice));
    }
}
