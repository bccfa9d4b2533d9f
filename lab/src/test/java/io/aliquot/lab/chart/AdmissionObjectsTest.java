package io.aliquot.lab.chart;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.foreign.ForeignResources;
import io.aliquot.api.names.Resources;
import io.aliquot.api.shim.ContainerPaths;
import io.aliquot.lab.chart.Chart.Rendered;
import io.fabric8.kubernetes.api.model.LabelSelector;
import io.fabric8.kubernetes.api.model.LabelSelectorRequirement;
import io.fabric8.kubernetes.api.model.admissionregistration.v1.MutatingWebhook;
import io.fabric8.kubernetes.api.model.admissionregistration.v1.MutatingWebhookConfiguration;
import io.fabric8.kubernetes.api.model.admissionregistration.v1.ValidatingAdmissionPolicy;
import io.fabric8.kubernetes.api.model.admissionregistration.v1.ValidatingAdmissionPolicyBinding;
import io.fabric8.kubernetes.api.model.admissionregistration.v1.Variable;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Webhooks and policies as rendered; {@link AdmissionPoliciesIT} tests the policies on an API server. */
class AdmissionObjectsTest {
    private static final List<Rendered> RENDERED = Chart.renderWith(Map.of("hideImplicitGpus", true));

    private static final List<String> ACK =
            List.of(ForeignResources.ACK_GPU, ForeignResources.ACK_MEMORY, ForeignResources.ACK_CORES);

    /** A string of a CEL list. */
    private static final Pattern STRING = Pattern.compile("'([a-z.]+/[a-z.-]+)'");

    /** The policy's regular expression of reserved mount paths; it uses only syntax that RE2 and Java share. */
    private static final Pattern RESERVED = Pattern.compile(
            Chart.the(RENDERED, ValidatingAdmissionPolicy.class, "aliquot-gpu-pods").getSpec().getVariables().stream()
                    .filter(variable -> variable.getName().equals("taken"))
                    .map(Variable::getExpression)
                    .map(expression -> Pattern.compile("'(.*)'").matcher(expression))
                    .filter(Matcher::matches)
                    .map(matcher -> matcher.group(1))
                    .findFirst()
                    .orElseThrow());

    /** All but those that only warn. */
    static List<ValidatingAdmissionPolicy> policies() {
        return Chart.all(RENDERED, ValidatingAdmissionPolicy.class).stream()
                .filter(policy -> !List.of("aliquot-nested-mounts", "aliquot-limit-ranges")
                        .contains(policy.getMetadata().getName()))
                .toList();
    }

    @Test
    void gpuPodsDependOnTheWebhookAndOtherPodsDoNot() {
        for (String ours : List.of(
                "gpu.aliquot.io", "namespace.gpu.aliquot.io", "gpu-shared.gpu.aliquot.io", "mig.gpu.aliquot.io")) {
            assertThat(webhook(ours).getFailurePolicy()).isEqualTo("Fail");
        }
        for (String other : List.of("void.aliquot.io", "debug.aliquot.io")) {
            assertThat(webhook(other).getFailurePolicy()).isEqualTo("Ignore");
            assertThat(webhook(other).getTimeoutSeconds()).isEqualTo(1);
        }
        assertThat(webhook("update.gpu.aliquot.io").getFailurePolicy()).isEqualTo("Ignore");
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "gpu.aliquot.io",
                "namespace.gpu.aliquot.io",
                "gpu-shared.gpu.aliquot.io",
                "mig.gpu.aliquot.io",
                "void.aliquot.io",
                "debug.aliquot.io"
            })
    void webhookIsReinvokedAfterOtherWebhooksAndSkipsExcludedNamespaces(String name) {
        MutatingWebhook webhook = webhook(name);

        assertThat(webhook.getReinvocationPolicy()).isEqualTo("IfNeeded");
        assertThat(webhook.getSideEffects()).isEqualTo("None");
        assertThat(webhook.getNamespaceSelector().getMatchExpressions())
                .contains(
                        new LabelSelectorRequirement(
                                "kubernetes.io/metadata.name", "NotIn", List.of("kube-system", Chart.NAMESPACE)),
                        new LabelSelectorRequirement("aliquot.io/webhook", "NotIn", List.of("ignore")));
    }

    @Test
    void updatesOfAliquotsPodsAreTranslatedWhateverTheirNamespaceSaysOfNewOnes() {
        MutatingWebhook webhook = webhook("update.gpu.aliquot.io");

        assertThat(webhook.getReinvocationPolicy()).isEqualTo("IfNeeded");
        assertThat(webhook.getSideEffects()).isEqualTo("None");
        assertThat(webhook.getNamespaceSelector().getMatchExpressions())
                .containsExactly(new LabelSelectorRequirement(
                        "kubernetes.io/metadata.name", "NotIn", List.of("kube-system", Chart.NAMESPACE)));
        assertThat(resources(webhook, "changes-a-gpu-pod")).containsExactlyElementsOf(Resources.SUPPORTED);
    }

    @Test
    void onlyInLabeledNamespacesDoesAFurtherWebhookCoverPodsThatRequestNvidiasGpus() {
        assertThat(webhook("namespace.gpu.aliquot.io").getNamespaceSelector().getMatchExpressions())
                .contains(new LabelSelectorRequirement("aliquot.io/gpu", "In", List.of("on")));
        assertThat(resources(webhook("namespace.gpu.aliquot.io"), "requests-gpus"))
                .containsExactly("nvidia.com/gpu");
    }

    @Test
    void timeSlicesAndInstancesAreAliquotsWhereTheNamespaceOrTheChartClaimsThem() {
        MutatingWebhook labeled = webhook("gpu-shared.gpu.aliquot.io");
        assertThat(labeled.getNamespaceSelector().getMatchExpressions())
                .contains(new LabelSelectorRequirement("aliquot.io/gpu.shared", "In", List.of("on")));
        assertThat(resources(labeled, "requests-claimed")).containsExactly(ForeignResources.NVIDIA_GPU_SHARED);

        assertThat(webhook("mig.gpu.aliquot.io").getNamespaceSelector().getMatchExpressions())
                .contains(new LabelSelectorRequirement("aliquot.io/mig", "In", List.of("on")));

        List<MutatingWebhook> claimed = webhooks(Map.of("claims[0]", "gpu.shared", "claims[1]", "mig"));
        assertThat(claimed)
                .extracting(MutatingWebhook::getName)
                .doesNotContain("gpu-shared.gpu.aliquot.io", "mig.gpu.aliquot.io");
        String condition = claimed.get(0).getMatchConditions().get(0).getExpression();
        assertThat(resources(condition.substring(0, condition.indexOf("nvidia.com/gpu'"))))
                .contains(ForeignResources.NVIDIA_GPU_SHARED);
        assertThat(condition).contains("k.startsWith('nvidia.com/mig-')");
    }

    @Test
    void scopeClusterNeedsNoLabel() {
        List<MutatingWebhook> webhooks = webhooks(Map.of("scope", "cluster"));

        assertThat(webhooks)
                .extracting(MutatingWebhook::getName)
                .containsExactly(
                        "gpu.aliquot.io",
                        "gpu-shared.gpu.aliquot.io",
                        "mig.gpu.aliquot.io",
                        "update.gpu.aliquot.io",
                        "debug.aliquot.io");
        assertThat(webhooks.get(0).getMatchConditions().get(0).getExpression())
                .contains("'nvidia.com/gpu'")
                .doesNotContain("aliquot.io/gpu'");
    }

    /** {@link AdmissionPoliciesIT} has what a cluster says; here there is none to ask. */
    @Test
    void withoutAClusterGpusAreHiddenOnlyWhereTheValuesSayThatNvidiasRuntimeIsTheDefault() {
        assertThat(webhooks(Map.of())).extracting(MutatingWebhook::getName).doesNotContain("void.aliquot.io");
        assertThat(webhooks(Map.of("runtimeClass.name", "", "runtimeClass.create", false)))
                .extracting(MutatingWebhook::getName)
                .contains("void.aliquot.io");
    }

    @Test
    void withoutHidingOnlyContainersAddedToGpuPodsAreChangedBesideGpuPods() {
        List<MutatingWebhook> webhooks = webhooks(Map.of("hideImplicitGpus", false));

        assertThat(webhooks)
                .extracting(MutatingWebhook::getName)
                .containsExactly(
                        "gpu.aliquot.io",
                        "namespace.gpu.aliquot.io",
                        "gpu-shared.gpu.aliquot.io",
                        "mig.gpu.aliquot.io",
                        "update.gpu.aliquot.io",
                        "debug.aliquot.io");
        assertThat(webhooks.get(5).getMatchConditions()).hasSize(1);
    }

    @Test
    void selectorsNarrowEveryWebhook() {
        List<MutatingWebhook> webhooks = webhooks(Map.of(
                "hideImplicitGpus",
                true,
                "webhooks.namespaceSelector.matchLabels.team",
                "a",
                "webhooks.objectSelector.matchLabels.gpu-pod",
                "yes"));

        assertThat(webhooks).hasSize(7).allSatisfy(webhook -> {
            assertThat(webhook.getNamespaceSelector().getMatchLabels()).isEqualTo(Map.of("team", "a"));
            assertThat(webhook.getNamespaceSelector().getMatchExpressions()).isNotEmpty();
            assertThat(webhook.getObjectSelector().getMatchLabels()).isEqualTo(Map.of("gpu-pod", "yes"));
        });
    }

    @Test
    void upgradesKeepTheCaBundleThatTheSchedulerWrote() {
        assertThat(webhooks())
                .hasSize(7)
                .allMatch(webhook -> webhook.getClientConfig().getCaBundle() == null);
    }

    @Test
    void aRequestOfASupportedOrAckResourceMakesAPodAliquots() {
        String condition = webhook("gpu.aliquot.io").getMatchConditions().get(0).getExpression();
        var own = new ArrayList<>(Resources.SUPPORTED);
        own.addAll(ACK);

        assertThat(resources(condition.substring(0, condition.indexOf("nvidia.com/gpu'"))))
                .isEqualTo(own);
    }

    @Test
    void withSharedNamesOnlyVgpusMakeAPodAliquotsUnlessItSaysSo() {
        MutatingWebhook webhook = webhooks(Map.of("sharedNames", true)).get(0);
        String condition = webhook.getMatchConditions().get(0).getExpression();

        assertThat(condition.indexOf("'aliquot.io/vgpu'")).isPositive().isLessThan(condition.indexOf("nvidia.com/"));
        assertThat(condition.substring(condition.indexOf("nvidia.com/")))
                .contains("aliquot.io/gpu", "aliquot-scheduler")
                .doesNotContain("aliquot.io/vgpu");
    }

    @ParameterizedTest
    @MethodSource("policies")
    void policyDeniesWithForbiddenAndAMessage(ValidatingAdmissionPolicy policy) {
        assertThat(policy.getSpec().getFailurePolicy()).isEqualTo("Fail");
        assertThat(policy.getSpec().getValidations()).isNotEmpty().allSatisfy(validation -> {
            assertThat(validation.getReason()).isEqualTo("Forbidden");
            assertThat(validation.getMessage() != null || validation.getMessageExpression() != null)
                    .isTrue();
        });
        ValidatingAdmissionPolicyBinding binding = Chart.the(
                RENDERED,
                ValidatingAdmissionPolicyBinding.class,
                policy.getMetadata().getName());
        assertThat(binding.getSpec().getPolicyName())
                .isEqualTo(policy.getMetadata().getName());
        assertThat(binding.getSpec().getValidationActions()).containsExactly("Deny");
        // in every namespace
        assertThat(binding.getSpec().getMatchResources()).isNull();
        assertThat(policy.getSpec().getMatchConstraints().getNamespaceSelector())
                .isEqualTo(new LabelSelector());
    }

    @Test
    void policiesMatchSupportedResourcesAndThoseThatTheWebhookReplaces() {
        assertThat(resources(condition("aliquot-debug-containers"))).containsExactlyElementsOf(Resources.SUPPORTED);
        assertThat(resources(condition("aliquot-gpu-pods")))
                .containsAll(Resources.SUPPORTED)
                .containsAll(ForeignResources.NAMES);
    }

    private static String condition(String policy) {
        return Chart.the(RENDERED, ValidatingAdmissionPolicy.class, policy)
                .getSpec()
                .getMatchConditions()
                .get(0)
                .getExpression();
    }

    private static List<String> resources(MutatingWebhook webhook, String condition) {
        return webhook.getMatchConditions().stream()
                .filter(candidate -> candidate.getName().equals(condition))
                .map(candidate -> resources(candidate.getExpression()))
                .findFirst()
                .orElseThrow();
    }

    private static List<String> resources(String expression) {
        return STRING.matcher(expression)
                .results()
                .map(result -> result.group(1))
                .toList();
    }

    @Test
    void theFenceSelectsOurBindingsSoAMissingLeaseRefusesNoOthers() {
        var parameter = Chart.the(RENDERED, ValidatingAdmissionPolicyBinding.class, "aliquot-fence")
                .getSpec()
                .getParamRef();

        assertThat(parameter.getName()).isEqualTo("aliquot-scheduler");
        assertThat(parameter.getNamespace()).isEqualTo(Chart.NAMESPACE);
        assertThat(parameter.getParameterNotFoundAction()).isEqualTo("Deny");
        assertThat(Chart.the(RENDERED, ValidatingAdmissionPolicy.class, "aliquot-fence")
                        .getSpec()
                        .getMatchConstraints()
                        .getObjectSelector()
                        .getMatchExpressions())
                .singleElement()
                .satisfies(selector -> assertThat(selector.getKey()).isEqualTo("topology.aliquot.io/fenced"));
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "/",
                "",
                "//",
                "etc",
                "/etc",
                "/etc/",
                "/usr",
                "/usr/local",
                "/usr/local/",
                "/etc/aliquot",
                "/etc/aliquot/",
                "/etc/aliquot/vgpu",
                "etc/aliquot",
                "/etc/ld.so.preload",
                "/etc/ld.so.preload/",
                "/etc/ld.so.preload/x",
                "/usr/local/aliquot",
                "/usr/local/aliquot/region",
                "/etc//ld.so.preload",
                "/etc/./ld.so.preload",
                "/tmp/../etc/ld.so.preload",
                "/tmp/..",
                "..",
                ".",
                "/.",
                "./x",
                "/data/."
            })
    void mountOverAReservedPathIsRefused(String path) {
        assertThat(RESERVED.matcher(path).find()).isTrue();
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "/data", "/etc/aliquot2", "/etc/aliquot.d", "/etc/ld.so.preload.d", "/etc/ldXso.preload", "/etcetera",
                "/usr/lib", "/usr/localhost", "/usr/local/aliquots", "/usr/local/lib", "/home/etc/aliquot", "/x/..y",
                "/x/.ssh", "/x/...", "/dev/termination-log", "/data/etc/ld.so.preload", "data"
            })
    void mountElsewhereIsAllowed(String path) {
        assertThat(RESERVED.matcher(path).find()).isFalse();
    }

    /** The definition: a normalized path is reserved if it is an ancestor or a descendant of a reserved path. */
    @Test
    void randomPathsAreReservedExactlyByDefinition() {
        long seed = System.nanoTime();
        var random = new Random(seed);
        String[] parts = {"etc", "aliquot", "ld.so.preload", "usr", "local", "region", ".", "..", "", "x"};
        for (int i = 0; i < 200_000; i++) {
            var path = new StringBuilder(random.nextInt(8) == 0 ? "" : "/");
            for (int n = random.nextInt(5); n > 0; n--) {
                path.append(parts[random.nextInt(parts.length)]).append(n > 1 || random.nextInt(4) == 0 ? "/" : "");
            }
            assertThat(RESERVED.matcher(path).find())
                    .as("seed %d: %s", seed, path)
                    .isEqualTo(meetsReserved(path.toString()));
        }
    }

    private static boolean meetsReserved(String path) {
        String rooted = path.startsWith("/") ? path : "/" + path;
        String folder = rooted.endsWith("/") ? rooted : rooted + "/";
        List<String> parts = List.of(folder.substring(1).split("/", -1));
        return parts.subList(0, parts.size() - 1).stream().anyMatch(part -> part.matches("|[.]|[.][.]"))
                || Stream.of(ContainerPaths.CONFIG_FOLDER, ContainerPaths.PRELOAD, ContainerPaths.SHIM_FOLDER)
                        .map(reserved -> reserved + "/")
                        .anyMatch(reserved -> reserved.startsWith(folder) || folder.startsWith(reserved));
    }

    private static List<MutatingWebhook> webhooks() {
        return webhooks(RENDERED);
    }

    private static List<MutatingWebhook> webhooks(Map<String, Object> values) {
        return webhooks(Chart.renderWith(values));
    }

    private static List<MutatingWebhook> webhooks(List<Rendered> rendered) {
        return Chart.the(rendered, MutatingWebhookConfiguration.class, "aliquot")
                .getWebhooks();
    }

    private static MutatingWebhook webhook(String name) {
        return webhooks().stream()
                .filter(webhook -> webhook.getName().equals(name))
                .findFirst()
                .orElseThrow();
    }
}
