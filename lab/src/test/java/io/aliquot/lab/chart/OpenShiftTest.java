package io.aliquot.lab.chart;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.lab.chart.Chart.Rendered;
import io.fabric8.kubernetes.api.model.Container;
import io.fabric8.kubernetes.api.model.GenericKubernetesResource;
import io.fabric8.kubernetes.api.model.PodSecurityContext;
import io.fabric8.kubernetes.api.model.PodSpec;
import io.fabric8.kubernetes.api.model.PodTemplateSpec;
import io.fabric8.kubernetes.api.model.SecurityContext;
import io.fabric8.kubernetes.api.model.Volume;
import io.fabric8.kubernetes.api.model.apps.DaemonSet;
import io.fabric8.kubernetes.api.model.apps.Deployment;
import io.fabric8.kubernetes.api.model.batch.v1.Job;
import io.fabric8.kubernetes.api.model.rbac.ClusterRole;
import io.fabric8.kubernetes.client.utils.KubernetesSerialization;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/**
 * The chart value {@code platform: openshift}, by what OpenShift compares pods with: the agents' pods with the chart's SCC, the
 * others with {@code restricted-v2}, which every account may use
 * (openshift/cluster-kube-apiserver-operator, {@code 0000_20_kube-apiserver-operator_00_scc-restricted-v2.yaml}).
 */
class OpenShiftTest {
    private static final KubernetesSerialization YAML = new KubernetesSerialization();
    private static final List<Rendered> RENDERED = render(Map.of());

    private static final String NAME = "aliquot-device-plugin";
    private static final Set<String> VOLUMES_OF_RESTRICTED = Set.of(
            "configMap",
            "csi",
            "downwardAPI",
            "emptyDir",
            "ephemeral",
            "image",
            "persistentVolumeClaim",
            "projected",
            "secret");

    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void theAgentsPodsAreAsTheirSccAllows(boolean mig) {
        List<Rendered> rendered = render(Map.of(
                "devicePlugin.mig",
                mig,
                "fakeDriver.nodes.node-1[0].model",
                "NVIDIA T4",
                "fakeDriver.nodes.node-1[0].memoryMiB",
                15360,
                "fakeDriver.nodes.node-1[0].multiprocessors",
                40));
        Map<String, Object> scc = scc(rendered);
        PodSpec pod = agent(rendered).getSpec();

        assertThat(scc)
                .containsEntry("allowPrivilegedContainer", false)
                .containsEntry("allowPrivilegeEscalation", false)
                .containsEntry("allowHostPID", true)
                .containsEntry("allowHostIPC", false)
                .containsEntry("allowHostNetwork", false)
                .containsEntry("allowHostPorts", false)
                .containsEntry("allowHostDirVolumePlugin", true)
                .containsEntry("readOnlyRootFilesystem", true)
                .containsEntry("requiredDropCapabilities", List.of("ALL"))
                .containsEntry("seccompProfiles", List.of("runtime/default"));
        for (String strategy : List.of("runAsUser", "seLinuxContext")) {
            assertThat(asMap(scc, strategy).get("type")).as(strategy).isEqualTo("MustRunAs");
        }
        PodSecurityContext context = pod.getSecurityContext();
        assertThat(asMap(scc, "runAsUser").get("uid"))
                .isEqualTo(context.getRunAsUser().intValue());
        assertThat(asMap(scc, "seLinuxContext").get("seLinuxOptions"))
                .isEqualTo(YAML.convertValue(context.getSeLinuxOptions(), Map.class));
        assertThat(pod.getHostPID()).isTrue();
        assertThat(pod.getHostNetwork()).isNull();
        assertThat(pod.getHostIPC()).isNull();
        assertThat(kinds(pod)).isSubsetOf(strings(scc, "volumes")).contains("hostPath");
        assertThat(strings(scc, "allowedCapabilities")).isEqualTo(mig ? List.of("SYS_ADMIN") : List.of());
        assertThat(containers(pod)).hasSize(3).allSatisfy(container -> {
            assertConfined(container, Set.copyOf(strings(scc, "allowedCapabilities")));
            assertThat(container.getSecurityContext().getReadOnlyRootFilesystem())
                    .isTrue();
            assertThat(container.getPorts()).noneMatch(port -> port.getHostPort() != null);
        });
    }

    @Test
    void theAgentsPodsUseTheirOwnScc() {
        assertThat(agent(RENDERED).getMetadata().getAnnotations()).containsEntry("openshift.io/required-scc", NAME);
        assertThat(Chart.the(RENDERED, ClusterRole.class, NAME).getRules())
                .filteredOn(rule -> rule.getVerbs().contains("use"))
                .singleElement()
                .satisfies(rule -> {
                    assertThat(rule.getApiGroups()).containsExactly("security.openshift.io");
                    assertThat(rule.getResources()).containsExactly("securitycontextconstraints");
                    assertThat(rule.getResourceNames()).containsExactly(NAME);
                });
    }

    /** Without it, a container of Aliquot's may not read the files that limit it, and its loader ignores what it may not read. */
    @Test
    void theAgentStartsAfterItsFilesHaveTheTypeThatPodsMayRead() {
        Container first = agent(RENDERED).getSpec().getInitContainers().get(0);

        assertThat(first.getCommand())
                .containsExactly("chcon", "--recursive", "system_u:object_r:container_file_t:s0", "/var/lib/aliquot");
        assertThat(first.getVolumeMounts())
                .singleElement()
                .satisfies(mount -> assertThat(mount.getMountPath()).isEqualTo("/var/lib/aliquot"));
    }

    @Test
    void theOtherPodsAreAsRestrictedV2AllowsAndTakeTheNamespacesUid() {
        List<PodSpec> pods = Stream.of(
                        Chart.the(RENDERED, Deployment.class, "aliquot-scheduler")
                                .getSpec()
                                .getTemplate(),
                        Chart.the(RENDERED, Deployment.class, "aliquot-api")
                                .getSpec()
                                .getTemplate(),
                        Chart.all(RENDERED, Job.class).get(0).getSpec().getTemplate())
                .map(PodTemplateSpec::getSpec)
                .toList();

        assertThat(pods).allSatisfy(pod -> {
            PodSecurityContext context = pod.getSecurityContext();
            assertThat(context.getRunAsNonRoot()).isTrue();
            assertThat(context.getRunAsUser()).isNull();
            assertThat(context.getRunAsGroup()).isNull();
            assertThat(context.getFsGroup()).isNull();
            assertThat(context.getSeLinuxOptions()).isNull();
            assertThat(context.getSeccompProfile().getType()).isEqualTo("RuntimeDefault");
            assertThat(pod.getHostPID()).isNull();
            assertThat(pod.getHostNetwork()).isNull();
            assertThat(kinds(pod)).isSubsetOf(VOLUMES_OF_RESTRICTED);
            assertThat(containers(pod)).allSatisfy(container -> assertConfined(container, Set.of()));
        });
    }

    @Test
    void anotherPlatformHasNoneOfIt() {
        assertThat(Chart.template().call())
                .doesNotContain("openshift.io")
                .doesNotContain("spc_t")
                .contains("runAsUser: 65532");
    }

    private static void assertConfined(Container container, Set<String> capabilities) {
        SecurityContext context = container.getSecurityContext();
        assertThat(context.getPrivileged()).isNull();
        assertThat(context.getAllowPrivilegeEscalation()).isFalse();
        assertThat(context.getRunAsUser()).isNull();
        assertThat(context.getSeLinuxOptions()).isNull();
        assertThat(context.getCapabilities().getDrop()).containsExactly("ALL");
        assertThat(context.getCapabilities().getAdd()).isSubsetOf(capabilities);
    }

    private static PodTemplateSpec agent(List<Rendered> rendered) {
        return Chart.the(rendered, DaemonSet.class, NAME).getSpec().getTemplate();
    }

    private static List<Container> containers(PodSpec pod) {
        return Stream.concat(pod.getInitContainers().stream(), pod.getContainers().stream())
                .toList();
    }

    /** The kinds of the pod's volumes, such as {@code hostPath}, and that of the account's token. */
    private static List<String> kinds(PodSpec pod) {
        return Stream.concat(pod.getVolumes().stream().flatMap(OpenShiftTest::kinds), Stream.of("projected"))
                .toList();
    }

    private static Stream<String> kinds(Volume volume) {
        Map<?, ?> fields = YAML.convertValue(volume, Map.class);
        return fields.keySet().stream().map(String::valueOf).filter(key -> !key.equals("name"));
    }

    private static Map<String, Object> scc(List<Rendered> rendered) {
        return Chart.all(rendered, GenericKubernetesResource.class).stream()
                .filter(object -> object.getKind().equals("SecurityContextConstraints"))
                .filter(object -> object.getApiVersion().equals("security.openshift.io/v1"))
                .filter(object -> object.getMetadata().getName().equals(NAME))
                .findFirst()
                .orElseThrow()
                .getAdditionalProperties();
    }

    private static Map<?, ?> asMap(Map<String, Object> scc, String key) {
        return (Map<?, ?>) scc.getOrDefault(key, Map.of());
    }

    private static List<String> strings(Map<String, Object> scc, String key) {
        return ((List<?>) scc.getOrDefault(key, List.of()))
                .stream().map(String::valueOf).toList();
    }

    private static List<Rendered> render(Map<String, Object> values) {
        var all = new HashMap<>(values);
        all.put("platform", "openshift");
        return Chart.renderWith(all);
    }
}
