package io.aliquot.lab.chart;

import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.testing.ApiServer;
import io.aliquot.testing.ApiServer.Caller;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledIfEnvironmentVariable;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/**
 * The chart in the hands of programs that apply on the server's side, on an API server without nodes: what Argo CD does, which
 * renders, applies and compares for ever, and Helm 4. In {@code io.aliquot.lab.ServerSideApplyIT} Aliquot's programs run meanwhile.
 */
class GitOpsIT {
    private static final String WEBHOOKS =
            "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/aliquot";
    private static final String API_SERVICE = "/apis/apiregistration.k8s.io/v1/apiservices/v1alpha1.gpu.aliquot.io";
    /** What the Job writes; the API server does not read it before it calls the webhook. */
    private static final String BUNDLE = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0t";

    private static Path folder;
    private static ApiServer server;
    private static Program helm;
    private static Program kubectl;

    @BeforeAll
    static void start(@TempDir Path temporary) throws Exception {
        folder = temporary;
        server = new ApiServer(folder);
        helm = program(ApiServer.programs(), "helm");
        kubectl = program(ApiServer.programs(), "kubectl");
    }

    private static Program program(Path programs, String name) throws Exception {
        return new Program(
                programs.resolve(name), Files.writeString(folder.resolve("kubeconfig"), server.kubeconfig()));
    }

    @AfterAll
    static void stop() {
        server.close();
    }

    /** Regression: 20 fields whose defaults the chart left out were Helm's. */
    @Test
    void appliesOverAReleaseOfHelm3AndFindsNothingToChangeOnceTheJobHasWrittenTheCaBundles() throws Exception {
        install(helm);
        Path manifests = render();
        apply(manifests);
        writeCaBundles();

        assertThat(differences(manifests)).isEmpty();
        assertThat(caBundles()).containsExactly(BUNDLE, BUNDLE);

        uninstall(helm);
    }

    @ParameterizedTest
    @ValueSource(strings = {"default-runtime", "driver-root", "everything", "fake-driver", "hami", "private-registry"})
    @Tag("long")
    @EnabledIfEnvironmentVariable(named = "ALIQUOT_LONG", matches = "1")
    void appliesEachScenarioOverAReleaseOfHelm3(String scenario) throws Exception {
        List<String> values = List.of(
                "--values",
                Chart.FOLDER.resolve("ci/" + scenario + "-values.yaml").toString(),
                // of kinds that this API server does not have
                "--set",
                "metrics.podMonitor.enabled=false,metrics.prometheusRule.enabled=false");
        String[] arguments = values.toArray(String[]::new);
        install(helm, arguments);
        Path manifests = render(arguments);
        apply(manifests);

        assertThat(differences(manifests)).isEmpty();

        uninstall(helm);
    }

    @Test
    @Tag("long")
    @EnabledIfEnvironmentVariable(named = "ALIQUOT_LONG", matches = "1")
    void helm4InstallsUpgradesRollsBackAndUninstalls() throws Exception {
        Program helm4 = program(ApiServer.programs("chart_programs"), "helm");
        assertThat(helm4.run("version", "--short")).startsWith("v4.");
        install(helm4);
        writeCaBundles();
        assertThat(replicas()).isEqualTo("2");

        upgrade(helm4, "--set", "scheduler.replicas=3");
        assertThat(replicas()).isEqualTo("3");
        helm4.run("rollback", Chart.RELEASE, "1", "--namespace", Chart.NAMESPACE);
        assertThat(replicas()).isEqualTo("2");
        assertThat(caBundles()).containsExactly(BUNDLE, BUNDLE);
        uninstall(helm4);
        assertThat(server.admin().get(WEBHOOKS).code()).isEqualTo(404);

        install(helm);
        upgrade(helm4, "--server-side=true", "--set", "scheduler.replicas=3");
        assertThat(replicas()).as("of a release of Helm 3").isEqualTo("3");
        uninstall(helm4);
    }

    private static void install(Program helm, String... values) throws Exception {
        onRelease(helm, "install", values, "--create-namespace");
    }

    private static void upgrade(Program helm, String... values) throws Exception {
        onRelease(helm, "upgrade", values);
    }

    private static void uninstall(Program helm) throws Exception {
        helm.run("uninstall", Chart.RELEASE, "--namespace", Chart.NAMESPACE);
    }

    /** Writes what Argo CD applies. */
    private static Path render(String... values) throws Exception {
        String manifests = onRelease(helm, "template", values, "--skip-tests", "--kube-version", server.version());
        return Files.writeString(folder.resolve("manifests.yaml"), manifests);
    }

    private static String onRelease(Program helm, String verb, String[] values, String... more) throws Exception {
        var arguments =
                new ArrayList<>(List.of(verb, Chart.RELEASE, Chart.FOLDER.toString(), "--namespace", Chart.NAMESPACE));
        arguments.addAll(List.of(values));
        arguments.addAll(List.of(more));
        return helm.run(arguments.toArray(String[]::new));
    }

    /** Fails on a conflict with another field manager. */
    private static void apply(Path manifests) throws Exception {
        kubectl.run("apply", "--server-side", "--field-manager=argocd-controller", "-f", manifests.toString());
    }

    /** What {@link #apply} would change. */
    private static String differences(Path manifests) throws Exception {
        return kubectl.run("diff", "--server-side", "--field-manager=argocd-controller", "-f", manifests.toString());
    }

    /** As the chart's Job does, with its rights. */
    private static void writeCaBundles() {
        Caller job = server.account("aliquot-ca-bundles");
        job.strategicPatch(WEBHOOKS, """
                        {"webhooks": [{"name": "gpu.aliquot.io", "clientConfig": {"caBundle": "%s"}}]}""".formatted(BUNDLE)).expectSuccess();
        job.patch(API_SERVICE, """
                        {"spec": {"caBundle": "%s"}}""".formatted(BUNDLE)).expectSuccess();
    }

    private static List<String> caBundles() throws Exception {
        return List.of(
                kubectl.run(
                        "get",
                        "mutatingwebhookconfiguration",
                        "aliquot",
                        "-o",
                        "jsonpath={.webhooks[?(@.name=='gpu.aliquot.io')].clientConfig.caBundle}"),
                server.admin().get(API_SERVICE).expectSuccess().field("spec", "caBundle"));
    }

    private static String replicas() {
        return server.admin()
                .get("/apis/apps/v1/namespaces/" + Chart.NAMESPACE + "/deployments/aliquot-scheduler")
                .expectSuccess()
                .field("spec", "replicas");
    }
}
