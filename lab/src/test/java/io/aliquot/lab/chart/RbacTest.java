package io.aliquot.lab.chart;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.lab.chart.Chart.Rendered;
import io.fabric8.kubernetes.api.model.HasMetadata;
import io.fabric8.kubernetes.api.model.rbac.ClusterRole;
import io.fabric8.kubernetes.api.model.rbac.ClusterRoleBinding;
import io.fabric8.kubernetes.api.model.rbac.PolicyRule;
import io.fabric8.kubernetes.api.model.rbac.Role;
import io.fabric8.kubernetes.api.model.rbac.RoleBinding;
import io.fabric8.kubernetes.api.model.rbac.Subject;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/**
 * The complete RBAC rights of Aliquot's accounts. A new right needs its reason beside it in the chart, and a line here.
 */
class RbacTest {
    private static final List<Rendered> RENDERED = Chart.render();

    @Test
    void schedulerHasTheseRightsInAllNamespaces() {
        assertThat(rules(Chart.the(RENDERED, ClusterRole.class, "aliquot-scheduler")
                        .getRules()))
                .containsExactlyInAnyOrder(
                        "pods: get list watch patch",
                        "pods/binding: create",
                        "pods/eviction: create",
                        "policy/poddisruptionbudgets: list watch",
                        "resourcequotas: list watch",
                        "limitranges: list watch",
                        "nodes: get list watch patch",
                        "namespaces: get",
                        "node.k8s.io/runtimeclasses: get list watch",
                        "events: create",
                        "authorization.k8s.io/subjectaccessreviews: create",
                        "admissionregistration.k8s.io/mutatingwebhookconfigurations aliquot: get",
                        "apiregistration.k8s.io/apiservices v1alpha1.gpu.aliquot.io: get");
    }

    /** So that a program that compares the chart with the cluster, such as Argo CD, finds nothing that they have changed. */
    @Test
    void noProgramMayWriteAnObjectOfTheChartButTheJobThatWritesTheCaBundles() {
        Set<String> kinds = RENDERED.stream()
                .filter(rendered -> !rendered.template().contains("/tests/"))
                .map(rendered -> rendered.object().getPlural())
                .collect(Collectors.toSet());
        Stream<PolicyRule> rules = Stream.concat(
                Chart.all(RENDERED, ClusterRole.class).stream().flatMap(role -> role.getRules().stream()),
                Chart.all(RENDERED, Role.class).stream().flatMap(role -> role.getRules().stream()));

        assertThat(kinds).contains("deployments", "validatingadmissionpolicies", "configmaps");
        assertThat(rules.filter(rule -> !Set.of("get", "list", "watch").containsAll(rule.getVerbs()))
                        .flatMap(rule -> rule.getResources().stream())
                        .filter(kinds::contains))
                .containsExactlyInAnyOrder("mutatingwebhookconfigurations", "apiservices");
    }

    @Test
    void theJobThatWritesTheCaBundlesMayDoNothingElse() {
        assertThat(rules(Chart.the(RENDERED, ClusterRole.class, "aliquot-ca-bundles")
                        .getRules()))
                .containsExactlyInAnyOrder(
                        "admissionregistration.k8s.io/mutatingwebhookconfigurations aliquot: patch",
                        "apiregistration.k8s.io/apiservices v1alpha1.gpu.aliquot.io: patch");
        assertThat(rolesOf("aliquot-ca-bundles")).containsExactly("aliquot-ca-bundles");
        assertThat(Chart.all(RENDERED, RoleBinding.class))
                .flatExtracting(RoleBinding::getSubjects)
                .extracting(Subject::getName)
                .containsOnly("aliquot-scheduler", "aliquot-doctor");
    }

    @Test
    void schedulerHasTheseRightsInItsOwnNamespace() {
        assertThat(rules(Chart.the(RENDERED, Role.class, "aliquot-scheduler").getRules()))
                .containsExactlyInAnyOrder(
                        "coordination.k8s.io/leases aliquot-scheduler: get list watch update",
                        "coordination.k8s.io/leases: create",
                        "secrets aliquot-webhook-tls aliquot-webhook-ca: get update",
                        "secrets: create");
    }

    @Test
    void schedulerReadsInKubeSystemHowTheApiServerIdentifiesItself() {
        RoleBinding binding = Chart.the(RENDERED, RoleBinding.class, "aliquot-scheduler:authentication-reader");

        assertThat(binding.getMetadata().getNamespace()).isEqualTo("kube-system");
        assertThat(binding.getRoleRef().getName()).isEqualTo("extension-apiserver-authentication-reader");
    }

    @Test
    void usersRolesGrantTheAggregatedApiOnly() {
        ClusterRole view = Chart.the(RENDERED, ClusterRole.class, "aliquot-view");

        assertThat(view.getMetadata().getLabels()).containsEntry("rbac.authorization.k8s.io/aggregate-to-view", "true");
        assertThat(rules(view.getRules()))
                .containsExactly(
                        "gpu.aliquot.io/gpuquotas: get list watch",
                        "gpu.aliquot.io/gpushares: get list watch",
                        "gpu.aliquot.io/gpushares/explain: get",
                        "gpu.aliquot.io/gpushares/history: get");
        assertThat(rules(Chart.the(RENDERED, ClusterRole.class, "aliquot-gpu-viewer")
                        .getRules()))
                .containsExactly(
                        "gpu.aliquot.io/gpunodes: get list watch",
                        "gpu.aliquot.io/gpus: get list watch",
                        "gpu.aliquot.io/gpus/history: get");
        assertThat(rules(
                        Chart.the(RENDERED, ClusterRole.class, "aliquot-resize").getRules()))
                .containsExactly("gpu.aliquot.io/gpushares: get patch");
    }

    @Test
    void withoutTheApiNothingOfItIsInstalled() {
        List<Rendered> rendered = Chart.renderWith(Map.of("api.enabled", false));

        assertThat(rendered)
                .extracting(one -> one.object().getKind() + " "
                        + one.object().getMetadata().getName())
                .contains("Deployment aliquot-scheduler")
                .doesNotContain(
                        "APIService v1alpha1.gpu.aliquot.io",
                        "Service aliquot-extension-api",
                        "Deployment aliquot-api",
                        "RoleBinding aliquot-scheduler:authentication-reader",
                        "ClusterRole aliquot-view",
                        "ClusterRole aliquot-gpu-viewer",
                        "ClusterRole aliquot-ui",
                        "ClusterRoleBinding aliquot-ui",
                        "ClusterRole aliquot-resize");
    }

    @Test
    void agentHasTheseRights() {
        assertThat(rules(Chart.the(RENDERED, ClusterRole.class, "aliquot-device-plugin")
                        .getRules()))
                .containsExactlyInAnyOrder(
                        "nodes: list watch patch",
                        "nodes/status: patch",
                        "resource.k8s.io/resourceslices: list watch",
                        "nvidia.com/clusterpolicies: list",
                        "nvidia.com/gpuclusters: list");
    }

    @Test
    void theDoctorMayReadTheseAndNothingElse() {
        assertThat(rules(
                        Chart.the(RENDERED, ClusterRole.class, "aliquot-doctor").getRules()))
                .containsExactlyInAnyOrder(
                        "pods: list",
                        "events: list",
                        "nodes: list",
                        "namespaces: list",
                        "apps/deployments: list",
                        "apps/daemonsets: list",
                        "discovery.k8s.io/endpointslices: list",
                        "admissionregistration.k8s.io/mutatingwebhookconfigurations: list",
                        "admissionregistration.k8s.io/validatingadmissionpolicies: list",
                        "admissionregistration.k8s.io/validatingadmissionpolicybindings: list",
                        "apiregistration.k8s.io/apiservices v1alpha1.gpu.aliquot.io: get",
                        "node.k8s.io/runtimeclasses: list",
                        "coordination.k8s.io/leases: list",
                        "authorization.k8s.io/subjectaccessreviews: create");
        assertThat(rolesOf("aliquot-doctor")).containsExactly("aliquot-doctor");
        assertThat(rules(Chart.the(RENDERED, Role.class, "aliquot-doctor").getRules()))
                .containsExactlyInAnyOrder("pods/log: get", "configmaps aliquot-kube-scheduler aliquot-logging: get");
    }

    @Test
    void theDoctorKnowsEachRightOfTheOtherAccounts() throws IOException {
        assertThat(knownToTheDoctor("always|api"))
                .containsExactlyInAnyOrderElementsOf(Stream.concat(
                                rights(RENDERED),
                                // Of roles that Kubernetes has.
                                Stream.of(
                                        "aliquot-scheduler cluster pods: delete",
                                        "aliquot-scheduler cluster persistentvolumes: patch",
                                        "aliquot-scheduler kube-system configmaps extension-apiserver-authentication: get"))
                        .toList());
        assertThat(knownToTheDoctor("always"))
                .containsAll(
                        rights(Chart.renderWith(Map.of("api.enabled", false))).toList())
                .noneMatch(line -> line.contains("apiservices"));
    }

    private static List<String> knownToTheDoctor(String when) throws IOException {
        Path file = Chart.root().resolve("scheduler/src/main/resources/io/aliquot/scheduler/doctor/rights.txt");
        try (Stream<String> lines = Files.lines(file)) {
            return lines.filter(line -> line.matches("(" + when + ") .*"))
                    .map(line -> line.substring(line.indexOf(' ') + 1))
                    .toList();
        }
    }

    /** Each rule of the accounts of the scheduler, the agents and the Job, {@code account where resource.group names: verbs}. */
    private static Stream<String> rights(List<Rendered> rendered) {
        return Stream.of("aliquot-scheduler", "aliquot-device-plugin", "aliquot-ca-bundles")
                .flatMap(account -> Stream.concat(
                        rights(
                                account + " cluster ",
                                Chart.the(rendered, ClusterRole.class, account).getRules()),
                        Chart.all(rendered, Role.class).stream()
                                .filter(role -> role.getMetadata().getName().equals(account))
                                .flatMap(role -> rights(account + " release ", role.getRules()))));
    }

    private static Stream<String> rights(String begin, List<PolicyRule> rules) {
        return rules(rules).stream()
                .map(rule -> begin + rule.replaceFirst("^([^ :/]+(?<!pods|nodes))/([^ :]+)", "$2.$1"));
    }

    @Test
    void withoutTheDoctorNothingOfItIsInstalled() {
        assertThat(Chart.renderWith(Map.of("doctor.enabled", false)))
                .extracting(one -> one.object().getMetadata().getName())
                .doesNotContain("aliquot-doctor", "aliquot-doctor-bundle");
    }

    @Test
    void everyUserMayLoadTheWebPageAndGetsNoOtherRight() {
        assertThat(rules(Chart.the(RENDERED, ClusterRole.class, "aliquot-ui").getRules()))
                .containsExactly("gpu.aliquot.io/ui: get list");
        ClusterRoleBinding binding = Chart.the(RENDERED, ClusterRoleBinding.class, "aliquot-ui");
        assertThat(binding.getRoleRef().getName()).isEqualTo("aliquot-ui");
        assertThat(binding.getSubjects())
                .extracting(subject -> subject.getKind() + " " + subject.getName())
                .containsExactly("Group system:authenticated");
    }

    @Test
    void noOtherAccountGetsRights() {
        List<Subject> subjects = new ArrayList<>();
        Chart.all(RENDERED, ClusterRoleBinding.class).stream()
                .filter(binding -> !binding.getMetadata().getName().equals("aliquot-ui"))
                .forEach(binding -> subjects.addAll(binding.getSubjects()));
        Chart.all(RENDERED, RoleBinding.class).forEach(binding -> subjects.addAll(binding.getSubjects()));

        assertThat(subjects).allSatisfy(subject -> {
            assertThat(subject.getKind()).isEqualTo("ServiceAccount");
            assertThat(subject.getNamespace()).isEqualTo(Chart.NAMESPACE);
            assertThat(subject.getName())
                    .isIn("aliquot-scheduler", "aliquot-device-plugin", "aliquot-ca-bundles", "aliquot-doctor");
        });
    }

    @Test
    void agentIsBoundToItsOwnRoleOnly() {
        assertThat(rolesOf("aliquot-device-plugin")).containsExactly("aliquot-device-plugin");
    }

    @Test
    void schedulerIsBoundToItsOwnRoleAndKubeSchedulers() {
        assertThat(rolesOf("aliquot-scheduler"))
                .containsExactlyInAnyOrder("aliquot-scheduler", "system:kube-scheduler", "system:volume-scheduler");
    }

    /** The ClusterRoles that an account has in all namespaces. */
    private static List<String> rolesOf(String account) {
        return Chart.all(RENDERED, ClusterRoleBinding.class).stream()
                .filter(binding -> binding.getSubjects().get(0).getName().equals(account))
                .map(binding -> binding.getRoleRef().getName())
                .toList();
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "scheduler/clusterrole.yaml",
                "scheduler/role.yaml",
                "device-plugin/clusterrole.yaml",
                "ca-bundles/clusterrole.yaml",
                "doctor/clusterrole.yaml",
                "doctor/role.yaml"
            })
    void everyRuleHasAReasonAboveIt(String template) throws IOException {
        List<String> lines =
                Files.readAllLines(Chart.FOLDER.resolve("templates").resolve(Path.of(template)));

        assertThat(lines).anyMatch(line -> line.startsWith("- apiGroups:"));
        for (int i = 1; i < lines.size(); i++) {
            if (lines.get(i).startsWith("- apiGroups:")) {
                assertThat(lines.get(i - 1))
                        .as("above line %d of %s", i + 1, template)
                        .startsWith("# ");
            }
        }
    }

    @Test
    void tokensAreMountedOnlyWhereTheyAreUsed() {
        assertThat(Chart.all(RENDERED, io.fabric8.kubernetes.api.model.ServiceAccount.class))
                .hasSize(4)
                .allMatch(account -> Boolean.FALSE.equals(account.getAutomountServiceAccountToken()));
    }

    @Test
    void noClusterRoleReadsSecrets() {
        assertThat(RENDERED)
                .extracting(Rendered::object)
                .extracting(HasMetadata::getKind)
                .contains("Role", "ClusterRole");
        assertThat(Chart.all(RENDERED, ClusterRole.class))
                .flatExtracting(ClusterRole::getRules)
                .flatExtracting(PolicyRule::getResources)
                .doesNotContain("secrets", "*");
    }

    /** One line per resource: {@code group/resource names: verbs}. */
    private static List<String> rules(List<PolicyRule> rules) {
        return rules.stream()
                .flatMap(rule -> rule.getApiGroups().stream()
                        .flatMap(group -> rule.getResources().stream().map(resource -> line(group, resource, rule))))
                .toList();
    }

    private static String line(String group, String resource, PolicyRule rule) {
        var names =
                Stream.ofNullable(rule.getResourceNames()).flatMap(List::stream).map(name -> " " + name);
        return (group.isEmpty() ? "" : group + "/") + resource + String.join("", names.toList()) + ": "
                + String.join(" ", rule.getVerbs());
    }
}
