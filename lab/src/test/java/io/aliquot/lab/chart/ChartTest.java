package io.aliquot.lab.chart;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.tuple;

import com.marcnuri.helm.Helm;
import com.marcnuri.helm.LintResult;
import io.aliquot.api.logging.LogLevel;
import io.aliquot.api.logging.LogLevelFile;
import io.aliquot.api.names.Labels;
import io.aliquot.api.ports.ApiServers;
import io.aliquot.lab.chart.Chart.Rendered;
import io.fabric8.kubernetes.api.model.APIService;
import io.fabric8.kubernetes.api.model.ConfigMap;
import io.fabric8.kubernetes.api.model.Container;
import io.fabric8.kubernetes.api.model.EnvVar;
import io.fabric8.kubernetes.api.model.GenericKubernetesResource;
import io.fabric8.kubernetes.api.model.HasMetadata;
import io.fabric8.kubernetes.api.model.KeyToPath;
import io.fabric8.kubernetes.api.model.LabelSelector;
import io.fabric8.kubernetes.api.model.Namespaced;
import io.fabric8.kubernetes.api.model.NodeAffinity;
import io.fabric8.kubernetes.api.model.NodeSelectorRequirement;
import io.fabric8.kubernetes.api.model.NodeSelectorTerm;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.api.model.PodSpec;
import io.fabric8.kubernetes.api.model.PodTemplateSpec;
import io.fabric8.kubernetes.api.model.Quantity;
import io.fabric8.kubernetes.api.model.Service;
import io.fabric8.kubernetes.api.model.VolumeMount;
import io.fabric8.kubernetes.api.model.admissionregistration.v1.MutatingWebhook;
import io.fabric8.kubernetes.api.model.admissionregistration.v1.MutatingWebhookConfiguration;
import io.fabric8.kubernetes.api.model.apps.DaemonSet;
import io.fabric8.kubernetes.api.model.apps.Deployment;
import io.fabric8.kubernetes.api.model.batch.v1.CronJob;
import io.fabric8.kubernetes.api.model.batch.v1.Job;
import io.fabric8.kubernetes.api.model.networking.v1.NetworkPolicy;
import io.fabric8.kubernetes.api.model.networking.v1.NetworkPolicyIngressRule;
import io.fabric8.kubernetes.api.model.networking.v1.NetworkPolicyPeer;
import io.fabric8.kubernetes.api.model.networking.v1.NetworkPolicyPort;
import io.fabric8.kubernetes.api.model.node.v1.RuntimeClass;
import io.fabric8.kubernetes.api.model.policy.v1.PodDisruptionBudget;
import io.fabric8.kubernetes.client.utils.KubernetesSerialization;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.MethodSource;
import org.junit.jupiter.params.provider.ValueSource;

/** What the chart renders. */
class ChartTest {
    private static final Path DEFAULTS = Chart.FOLDER.resolve("ci/defaults-values.yaml");
    private static final Path FAKE_DRIVER = Chart.FOLDER.resolve("ci/fake-driver-values.yaml");
    private static final Path EVERYTHING = Chart.FOLDER.resolve("ci/everything-values.yaml");
    private static final Path DEFAULT_RUNTIME = Chart.FOLDER.resolve("ci/default-runtime-values.yaml");
    private static final Path DRIVER_ROOT = Chart.FOLDER.resolve("ci/driver-root-values.yaml");

    static List<Path> scenarios() {
        return Chart.scenarios();
    }

    @Test
    void chartIsFreeOfLintWarnings() {
        LintResult result = new Helm(Chart.FOLDER).lint().strict().call();

        assertThat(result.isFailed()).as("%s", result.getMessages()).isFalse();
    }

    @ParameterizedTest
    @MethodSource("scenarios")
    void everyTemplateRendersOneObjectExceptThoseOfBindings(Path scenario) {
        assertThat(Chart.render(scenario))
                .extracting(Rendered::template)
                .filteredOn(template -> !template.endsWith("-bindings.yaml"))
                .doesNotHaveDuplicates();
    }

    @ParameterizedTest
    @MethodSource("scenarios")
    void everyObjectIsLabeledAndInTheReleasesNamespace(Path scenario) {
        Map<String, String> homes = Map.of(
                // A RoleBinding is in the namespace of its Role, and this one's Role is Kubernetes' own.
                "aliquot-scheduler:authentication-reader",
                "kube-system",
                // In the release's namespace the webhook is not called.
                "aliquot-test",
                scenario.equals(EVERYTHING) ? "serving" : "default");
        for (Rendered rendered : Chart.render(scenario)) {
            HasMetadata object = rendered.object();
            assertThat(object.getMetadata().getLabels())
                    .as(rendered.template())
                    .containsEntry("app.kubernetes.io/name", "aliquot")
                    .containsEntry("app.kubernetes.io/instance", Chart.RELEASE)
                    .containsKey("app.kubernetes.io/version");
            // generic: a kind that the client does not know, PodMonitor
            boolean namespaced = object instanceof Namespaced
                    || (object instanceof GenericKubernetesResource
                            && !object.getKind().equals("SecurityContextConstraints"));
            String home = homes.getOrDefault(object.getMetadata().getName(), Chart.NAMESPACE);
            assertThat(object.getMetadata().getNamespace())
                    .as(rendered.template())
                    .isEqualTo(namespaced ? home : null);
        }
    }

    @ParameterizedTest
    @MethodSource("scenarios")
    void everyContainerIsUnprivilegedButAnAgentThatHasTheDriverFromTheHost(Path scenario) {
        for (Container container : containers(Chart.render(scenario))) {
            var context = container.getSecurityContext();
            assertThat(context.getReadOnlyRootFilesystem()).isTrue();
            assertThat(container.getImage()).matches("[a-z0-9./:-]+(:[A-Za-z0-9._-]+|@sha256:[0-9a-f]{64})");
            if (scenario.equals(DRIVER_ROOT) && container.getName().equals("device-plugin")) {
                assertThat(context.getPrivileged()).isTrue();
                continue;
            }
            assertThat(context.getAllowPrivilegeEscalation()).isFalse();
            assertThat(context.getCapabilities().getDrop()).containsExactly("ALL");
            assertThat(context.getPrivileged()).isNull();
        }
    }

    /** Of the host's root alone a part, since the agent's user may read the rest: Secrets, the kubelet's key. */
    @Test
    void theAgentSeesNoMoreOfTheHostThanTheDriver() {
        PodSpec ofHost = agent(Chart.render(DRIVER_ROOT));
        PodSpec ofContainer = agent(Chart.renderWith(Map.of("devicePlugin.driverRoot", "/run/nvidia/driver")));

        assertThat(driver(ofHost)).isEqualTo("/usr at /driver/usr");
        assertThat(driver(ofContainer)).isEqualTo("/run/nvidia/driver at /driver");
        for (PodSpec pod : List.of(ofHost, ofContainer)) {
            assertThat(pod.getRuntimeClassName()).isNull();
            assertThat(variable(pod.getContainers().get(0), "ALIQUOT_DRIVER_ROOT"))
                    .contains("/driver");
            assertThat(variable(pod.getContainers().get(0), "NVIDIA_VISIBLE_DEVICES"))
                    .contains("void");
        }
    }

    private static String driver(PodSpec pod) {
        VolumeMount mount = pod.getContainers().get(0).getVolumeMounts().stream()
                .filter(each -> each.getName().equals("driver"))
                .findFirst()
                .orElseThrow();
        assertThat(mount.getReadOnly()).isTrue();
        return pod.getVolumes().stream()
                        .filter(volume -> volume.getName().equals("driver"))
                        .map(volume -> volume.getHostPath().getPath())
                        .findFirst()
                        .orElseThrow()
                + " at "
                + mount.getMountPath();
    }

    @ParameterizedTest
    @MethodSource("scenarios")
    void schedulerRunsAsNonRootAndOnlyTheAgentSeesTheHostsProcesses(Path scenario) {
        List<Rendered> rendered = Chart.render(scenario);

        assertThat(scheduler(rendered).getSecurityContext().getRunAsNonRoot()).isTrue();
        assertThat(scheduler(rendered).getVolumes()).noneMatch(volume -> volume.getHostPath() != null);
        for (PodSpec pod : List.of(scheduler(rendered), agent(rendered))) {
            assertThat(pod.getSecurityContext().getSeccompProfile().getType()).isEqualTo("RuntimeDefault");
            assertThat(pod.getHostNetwork()).isNull();
            assertThat(pod.getHostIPC()).isNull();
        }
        assertThat(scheduler(rendered).getHostPID()).isNull();
        assertThat(agent(rendered).getHostPID()).isTrue();
    }

    /** It is a template of Jobs, and a Job that someone makes must not evict other pods. */
    @Test
    void theDoctorNeverRunsByItselfAndHasNoPriority() {
        List<Rendered> rendered = Chart.render(DEFAULTS);
        assertThat(Chart.all(rendered, CronJob.class)).hasSize(2).allSatisfy(cronJob -> {
            assertThat(cronJob.getSpec().getSuspend()).isTrue();
            PodSpec pod = pod(cronJob);
            assertThat(pod.getPriorityClassName()).isNull();
            assertThat(pod.getServiceAccountName()).isEqualTo("aliquot-doctor");
            assertThat(pod.getSecurityContext().getRunAsNonRoot()).isTrue();
            assertThat(pod.getSecurityContext().getSeccompProfile().getType()).isEqualTo("RuntimeDefault");
        });
        PodSpec check = pod(Chart.the(rendered, CronJob.class, "aliquot-doctor"));
        assertThat(check.getContainers().getFirst().getArgs()).containsExactly("doctor");
        assertThat(check.getVolumes()).hasSize(1);
    }

    /** The pod is ready when the archive is complete, and the container from which it is copied has no token. */
    @Test
    void theDoctorsArchiveIsWrittenBeforeItsPodIsReady() {
        PodSpec pod = pod(Chart.the(Chart.render(DEFAULTS), CronJob.class, "aliquot-doctor-bundle"));

        assertThat(pod.getInitContainers().getFirst().getArgs())
                .containsExactly("doctor", "--bundle", "/bundle/aliquot.tar.gz");
        Container archive = pod.getContainers().getFirst();
        assertThat(archive.getVolumeMounts())
                .extracting(VolumeMount::getMountPath)
                .containsExactly("/bundle");
        assertThat(archive.getImage())
                .isEqualTo(pod.getInitContainers().getFirst().getImage());
    }

    @Test
    void onlyTheAgentSeesGpus() {
        List<Rendered> rendered = Chart.render(FAKE_DRIVER);

        for (Container container : containers(rendered)) {
            assertThat(variable(container, "NVIDIA_VISIBLE_DEVICES"))
                    .as(container.getName())
                    .isEqualTo(
                            switch (container.getName()) {
                                case "device-plugin" -> Optional.of("all");
                                case "share" -> Optional.empty(); // the webhook sets it
                                default -> Optional.of("void");
                            });
        }
    }

    @ParameterizedTest
    @CsvSource({
        "v1.31.0,               v1.31.0",
        "v1.35.4,               v1.35.4",
        "v1.31.2-eks-7f9249a,   v1.31.2",
        "v1.32.1-gke.1729000,   v1.32.1",
        "v1.33.5+k3s1,          v1.33.5",
        "v1.34.0-rc.1,          v1.34.0",
        "v1.40.0,               v1.40.0",
    })
    void kubeSchedulerFollowsTheClustersVersion(String cluster, String tag) {
        String yaml = Chart.template().withKubeVersion(cluster).call();

        assertThat(yaml).contains("image: \"registry.k8s.io/kube-scheduler:" + tag + "\"");
    }

    @Test
    void aliquotsImagesHaveTheProjectsVersionUnlessTheValuesNameOthers() throws IOException {
        Matcher version = Pattern.compile("<artifactId>aliquot</artifactId>\\s*<version>([^<]+)</version>")
                .matcher(Files.readString(Chart.root().resolve("pom.xml")));
        assertThat(version.find()).isTrue();

        assertThat(containers(Chart.render(DEFAULTS)))
                .extracting(Container::getImage)
                .containsExactly(
                        "ghcr.io/aliquot-io/aliquot-scheduler:" + version.group(1),
                        "registry.k8s.io/kube-scheduler:" + Chart.KUBERNETES,
                        "ghcr.io/aliquot-io/aliquot-device-plugin:" + version.group(1),
                        "ghcr.io/aliquot-io/aliquot-scheduler:" + version.group(1),
                        "ghcr.io/aliquot-io/aliquot-device-plugin:" + version.group(1),
                        "ghcr.io/aliquot-io/aliquot-scheduler:" + version.group(1),
                        "ghcr.io/aliquot-io/aliquot-scheduler:" + version.group(1),
                        "ghcr.io/aliquot-io/aliquot-scheduler:" + version.group(1));
        assertThat(containers(Chart.render(Chart.FOLDER.resolve("ci/private-registry-values.yaml"))))
                .extracting(Container::getImage)
                .containsExactly(
                        "registry.example.com:5000/mirror/aliquot-scheduler:0.2.0-r1",
                        "registry.example.com:5000/mirror/kube-scheduler:v1.31.2",
                        "registry.example.com:5000/mirror/aliquot-fake-driver:0.2.0-r1",
                        "registry.example.com:5000/mirror/aliquot-device-plugin:0.2.0-r1",
                        "registry.example.com:5000/mirror/aliquot-scheduler:0.2.0-r1",
                        "registry.example.com:5000/mirror/aliquot-device-plugin:0.2.0-r1",
                        "registry.example.com:5000/mirror/aliquot-scheduler:0.2.0-r1",
                        "registry.example.com:5000/mirror/aliquot-scheduler:0.2.0-r1",
                        "registry.example.com:5000/mirror/aliquot-scheduler:0.2.0-r1");
    }

    @Test
    void aReleasedChartNamesItsImagesByDigestAndATagTakesPrecedence() {
        String digest = "sha256:" + "0123456789abcdef".repeat(4);

        assertThat(agent(Chart.renderWith(Map.of("devicePlugin.image.digest", digest)))
                        .getContainers())
                .extracting(Container::getImage)
                .containsExactly("ghcr.io/aliquot-io/aliquot-device-plugin@" + digest);
        assertThat(agent(Chart.renderWith(
                                Map.of("devicePlugin.image.digest", digest, "devicePlugin.image.tag", "0.2.1")))
                        .getContainers())
                .extracting(Container::getImage)
                .containsExactly("ghcr.io/aliquot-io/aliquot-device-plugin:0.2.1");
    }

    /** Of each repository the host alone changes, so that a mirror can copy images under the paths that they have. */
    @Test
    void aMirrorTakesThePlaceOfTheHostsOfAllRegistries() {
        List<Rendered> rendered = Chart.renderWith(Map.of(
                "imageRegistry",
                "registry.example.com:5000/mirror",
                "scheduler.image.repository",
                "localhost/aliquot-scheduler",
                "devicePlugin.image.repository",
                "our-team/aliquot-device-plugin",
                "fakeDriver.nodes.*[0].model",
                "Tesla T4",
                "fakeDriver.nodes.*[0].memoryMiB",
                "15360",
                "fakeDriver.nodes.*[0].multiprocessors",
                "40"));

        assertThat(containers(rendered).stream()
                        .map(container -> container.getImage().replaceFirst(":[^:/]*$", ""))
                        .distinct())
                .containsExactlyInAnyOrder(
                        "registry.example.com:5000/mirror/aliquot-scheduler",
                        "registry.example.com:5000/mirror/kube-scheduler",
                        "registry.example.com:5000/mirror/aliquot-io/aliquot-fake-driver",
                        "registry.example.com:5000/mirror/our-team/aliquot-device-plugin");
    }

    @Test
    void labsValuesChangeImagesAndDriverOnly() {
        Path lab = Chart.root().resolve("lab");
        List<Rendered> rendered = Chart.render(lab.resolve("values.yaml"), lab.resolve("gpus.yaml"));

        assertThat(containers(rendered))
                .allMatch(container -> container.getImage().startsWith("docker.io/aliquot-lab/"));
        assertThat(containers(rendered))
                .allMatch(container -> container.getImagePullPolicy().equals("Never"));
        assertThat(agent(rendered).getInitContainers())
                .extracting(Container::getName)
                .containsExactly("fake-driver");
        assertThat(scheduler(rendered).getContainers().get(0).getEnv())
                .isEqualTo(
                        scheduler(Chart.render(DEFAULTS)).getContainers().get(0).getEnv());
    }

    /** So that Argo CD and Flux can apply it, and no apply removes a field that the cluster has filled. */
    @ParameterizedTest
    @MethodSource("scenarios")
    void outputIsTheSameEachTimeAndHasNeitherHooksNorCaBundles(Path scenario) {
        String yaml = Chart.template().withValuesFile(scenario).call();

        for (int again = 0; again < 2; again++) {
            assertThat(Chart.template().withValuesFile(scenario).call()).isEqualTo(yaml);
        }
        assertThat(yaml).doesNotContain("helm.sh/hook").doesNotContainPattern("caBundle\\s*:");
    }

    /** A Job's pod cannot be changed, and another webhook needs a caBundle too. */
    @Test
    void anotherPodOrAnotherWebhookMakesAnotherJobThatWritesTheCaBundles() {
        String name = caBundles(Chart.render(DEFAULTS)).getMetadata().getName();

        for (Map<String, Object> change : List.<Map<String, Object>>of(
                Map.of("scheduler.image.tag", "other"),
                Map.of("scheduler.nodeSelector.disk", "ssd"),
                Map.of("hideImplicitGpus", true),
                Map.of("scope", "cluster"),
                Map.of("api.enabled", false))) {
            Job other = caBundles(Chart.renderWith(change));
            assertThat(other.getMetadata().getName()).as("%s", change).isNotEqualTo(name);
        }
        assertThat(caBundles(Chart.renderWith(Map.of("devicePlugin.slots", 3)))
                        .getMetadata()
                        .getName())
                .isEqualTo(name);
    }

    @ParameterizedTest
    @MethodSource("scenarios")
    void theJobWritesTheCaBundlesOfAllWebhooksAndSeesNoKey(Path scenario) {
        List<Rendered> rendered = Chart.render(scenario);
        PodSpec pod = caBundles(rendered).getSpec().getTemplate().getSpec();

        List<String> arguments = pod.getContainers().get(0).getArgs();
        assertThat(arguments.subList(2, 4))
                .containsExactly(
                        "aliquot",
                        Chart.the(rendered, MutatingWebhookConfiguration.class, "aliquot").getWebhooks().stream()
                                .map(MutatingWebhook::getName)
                                .collect(Collectors.joining(",")));
        assertThat(arguments.subList(4, arguments.size()))
                .isEqualTo(Chart.all(rendered, APIService.class).stream()
                        .map(service -> service.getMetadata().getName())
                        .toList());
        assertThat(pod.getVolumes())
                .singleElement()
                .satisfies(volume -> assertThat(volume.getProjected().getSources())
                        .filteredOn(source -> source.getSecret() != null)
                        .flatExtracting(source -> source.getSecret().getItems())
                        .extracting(KeyToPath::getKey)
                        .containsExactly("ca.crt"));
        assertThat(pod.getSecurityContext().getRunAsNonRoot()).isTrue();
    }

    /** The scheduler says it where Helm has no cluster to count. */
    @Test
    void theSchedulerKnowsForHowManyNodesItsMemoryIsUnlessTheUserSetsAllOfIt() {
        assertThat(environment(Chart.renderWith(Map.of("cluster.nodes", 300))))
                .containsEntry("ALIQUOT_PLANNED_NODES", "300");
        assertThat(environment(Chart.renderWith(Map.of("scheduler.resources.limits.memory", "1Gi"))))
                .containsEntry("ALIQUOT_PLANNED_NODES", "100");
        assertThat(environment(Chart.renderWith(Map.of(
                        "scheduler.resources.limits.memory", "1Gi", "kubeScheduler.resources.limits.memory", "2Gi"))))
                .doesNotContainKey("ALIQUOT_PLANNED_NODES");
    }

    private static Map<String, String> environment(List<Rendered> rendered) {
        return scheduler(rendered).getContainers().get(0).getEnv().stream()
                .filter(variable -> variable.getValue() != null)
                .collect(Collectors.toMap(EnvVar::getName, EnvVar::getValue));
    }

    /** A rendering within the same second would not show them all. */
    @Test
    void noTemplateReadsAClockOrRandomNumbers() throws IOException {
        Pattern action = Pattern.compile("\\{\\{-? *[^-/* ].*?}}", Pattern.DOTALL); // and no comment
        Pattern varying = Pattern.compile(
                "\\b(now|ago|date\\w*|uuidv4|rand\\w+|gen[A-Z]\\w+|shuffle|bcrypt|htpasswd|encryptAES|getHostByName)\\b");
        try (Stream<Path> templates = Files.walk(Chart.FOLDER.resolve("templates"))) {
            assertThat(templates.filter(Files::isRegularFile))
                    .isNotEmpty()
                    .allSatisfy(template -> assertThat(action.matcher(Files.readString(template))
                                    .results()
                                    .map(found -> found.group().replaceAll("\"[^\"]*\"", "")))
                            .noneMatch(found -> varying.matcher(found).find()));
        }
    }

    @ParameterizedTest
    @CsvSource({"1, 384, 1024", "100, 384, 1024", "300, 452, 1104", "1000, 690, 1384", "5000, 2050, 2984"})
    void theMemoryOfTheSchedulerFollowsFromTheNumberOfNodes(int nodes, int extender, int kubeScheduler) {
        List<Container> containers =
                scheduler(Chart.renderWith(Map.of("cluster.nodes", nodes))).getContainers();

        assertThat(containers)
                .extracting(container -> container.getResources().getLimits().get("memory"))
                .containsExactly(new Quantity(extender + "Mi"), new Quantity(kubeScheduler + "Mi"));
        assertThat(containers)
                .allSatisfy(container ->
                        assertThat(container.getResources().getRequests()).containsKeys("cpu", "memory"));
    }

    @Test
    void aMemoryLimitOfTheUsersIsKeptAndNothingRequestedBeyondIt() {
        List<Container> containers = scheduler(
                        Chart.renderWith(Map.of("cluster.nodes", 5000, "scheduler.resources.limits.memory", "512Mi")))
                .getContainers();

        assertThat(containers.get(0).getResources().getLimits()).containsEntry("memory", new Quantity("512Mi"));
        assertThat(containers.get(0).getResources().getRequests()).containsOnlyKeys("cpu", "ephemeral-storage");
    }

    @Test
    void twoReplicasAreSpreadAndNeverBothUnavailable() {
        List<Rendered> rendered = Chart.render(DEFAULTS);
        Deployment deployment = Chart.the(rendered, Deployment.class, "aliquot-scheduler");

        assertThat(deployment.getSpec().getReplicas()).isEqualTo(2);
        var update = deployment.getSpec().getStrategy().getRollingUpdate();
        assertThat(update.getMaxUnavailable().getValue()).isEqualTo(0);
        assertThat(update.getMaxSurge().getValue()).isEqualTo(1);
        var labels = deployment.getSpec().getTemplate().getMetadata().getLabels();
        // A second constraint would switch this one off on nodes that lack the other's label.
        assertThat(scheduler(rendered).getTopologySpreadConstraints())
                .singleElement()
                .satisfies(constraint -> {
                    assertThat(constraint.getTopologyKey()).isEqualTo("kubernetes.io/hostname");
                    assertThat(constraint.getWhenUnsatisfiable()).isEqualTo("ScheduleAnyway");
                    assertThat(labels)
                            .containsAllEntriesOf(constraint.getLabelSelector().getMatchLabels());
                });
        assertThat(scheduler(rendered)
                        .getAffinity()
                        .getPodAntiAffinity()
                        .getPreferredDuringSchedulingIgnoredDuringExecution())
                .singleElement()
                .satisfies(preferred -> {
                    assertThat(preferred.getPodAffinityTerm().getTopologyKey())
                            .isEqualTo("topology.kubernetes.io/zone");
                    assertThat(labels)
                            .containsAllEntriesOf(preferred
                                    .getPodAffinityTerm()
                                    .getLabelSelector()
                                    .getMatchLabels());
                });
        var budget = Chart.the(rendered, PodDisruptionBudget.class, "aliquot-scheduler");
        assertThat(budget.getSpec().getMaxUnavailable().getValue()).isEqualTo(1);
        assertThat(labels).containsAllEntriesOf(budget.getSpec().getSelector().getMatchLabels());
    }

    /** A budget for a single pod would block draining its node. */
    @Test
    void oneReplicaHasNoDisruptionBudget() {
        List<Rendered> rendered = Chart.render(EVERYTHING);

        assertThat(Chart.the(rendered, Deployment.class, "aliquot-scheduler")
                        .getSpec()
                        .getReplicas())
                .isEqualTo(1);
        assertThat(Chart.all(rendered, PodDisruptionBudget.class)).isEmpty();
    }

    @Test
    void terminatingReplicaAnswersUntilNoMoreRequestsAreSentToIt() {
        PodSpec pod = scheduler(Chart.render(DEFAULTS));
        Container extender = pod.getContainers().get(0);
        Container kubeScheduler = pod.getContainers().get(1);

        long sleep = extender.getLifecycle().getPreStop().getSleep().getSeconds();
        assertThat(sleep).isBetween(1L, pod.getTerminationGracePeriodSeconds() - 5);
        assertThat(kubeScheduler.getLifecycle())
                .as("releases the Lease at once")
                .isNull();
        assertThat(Chart.the(Chart.render(DEFAULTS), Service.class, "aliquot-webhook")
                        .getSpec()
                        .getPublishNotReadyAddresses())
                .isNull();
    }

    @Test
    void hungExtenderFailsTheLivenessProbesOfBothContainers() {
        PodSpec pod = scheduler(Chart.render(DEFAULTS));

        assertThat(pod.getContainers()).extracting(Container::getName).containsExactly("extender", "kube-scheduler");
        assertThat(pod.getContainers()).extracting(Container::getLivenessProbe).allSatisfy(probe -> {
            assertThat(probe.getHttpGet().getPath()).isEqualTo("/livez");
            assertThat(probe.getHttpGet().getPort().getValue()).isIn("metrics", 9090);
        });
        assertThat(pod.getContainers().get(0).getPorts())
                .anyMatch(port -> port.getName().equals("metrics") && port.getContainerPort() == 9090);
    }

    /** Regression: on a busy machine aliquot-api did not listen within 30 s, and its liveness probe ended it. */
    @Test
    void aSlowStartEndsNoProgram() {
        List<Rendered> rendered = Chart.render(DEFAULTS);
        Stream<PodTemplateSpec> pods = Stream.concat(
                Chart.all(rendered, Deployment.class).stream()
                        .map(deployment -> deployment.getSpec().getTemplate()),
                Chart.all(rendered, DaemonSet.class).stream()
                        .map(set -> set.getSpec().getTemplate()));

        assertThat(pods.flatMap(pod -> pod.getSpec().getContainers().stream())
                        .filter(container -> container.getLivenessProbe() != null))
                .hasSize(4)
                .extracting(Container::getStartupProbe)
                .allSatisfy(probe -> assertThat(probe.getFailureThreshold() * probe.getPeriodSeconds())
                        .isGreaterThanOrEqualTo(120));
    }

    /** Regression: the kubelet retried the mounts of Secrets, which the scheduler creates at its start, for a minute. */
    @Test
    void noPodWaitsForTheSchedulersSecretsToBeMounted() {
        List<Rendered> rendered = Chart.render(DEFAULTS);
        PodSpec job = Chart.all(rendered, Job.class)
                .getFirst()
                .getSpec()
                .getTemplate()
                .getSpec();

        assertThat(apiTemplate(rendered).getSpec().getVolumes())
                .filteredOn(volume -> volume.getSecret() != null)
                .extracting(volume -> volume.getSecret().getOptional())
                .containsExactly(true);
        assertThat(job.getVolumes())
                .flatExtracting(volume -> volume.getProjected().getSources())
                .filteredOn(source -> source.getSecret() != null)
                .extracting(source -> source.getSecret().getOptional())
                .containsExactly(true);
    }

    /** The kubelet (probe.go) looks up the name of a port in the probed container only. */
    @ParameterizedTest
    @MethodSource("scenarios")
    void probesNamePortsOfTheirOwnContainerOnly(Path scenario) {
        for (Container container : containers(Chart.render(scenario))) {
            Stream.of(container.getStartupProbe(), container.getLivenessProbe(), container.getReadinessProbe())
                    .filter(probe -> probe != null)
                    .map(probe -> probe.getHttpGet().getPort())
                    .filter(port -> port.getStrVal() != null)
                    .forEach(port -> assertThat(container.getPorts())
                            .as(container.getName())
                            .anyMatch(own -> own.getName().equals(port.getStrVal())));
        }
    }

    @Test
    void kubeSchedulersBackoffIsAtMostAMinuteByDefault() {
        assertThat(kubeSchedulerConfiguration(Chart.render())).containsEntry("podMaxBackoffSeconds", 60);
    }

    @Test
    void kubeSchedulerCallsTheExtenderBesideItAndLeadsByTheLeaseThatTheFenceNames() {
        Map<String, Object> configuration = kubeSchedulerConfiguration(Chart.render(EVERYTHING));

        assertThat(configuration)
                .containsEntry("percentageOfNodesToScore", 100)
                .containsEntry("podMaxBackoffSeconds", 30);
        assertThat(configuration.get("leaderElection"))
                .isEqualTo(Map.of(
                        "leaderElect",
                        true,
                        "resourceLock",
                        "leases",
                        "resourceName",
                        "aliquot-scheduler",
                        "resourceNamespace",
                        Chart.NAMESPACE));
        assertThat(text(configuration, "extenders"))
                .contains("urlPrefix=http://127.0.0.1:9998")
                .contains("filterVerb=filter", "prioritizeVerb=prioritize", "bindVerb=bind", "preemptVerb=preempt")
                .contains("nodeCacheCapable=true", "weight=5");
        assertThat(text(configuration, "profiles"))
                .contains("schedulerName=aliquot-scheduler")
                .contains("NodeResourcesFit", "NodeResourcesBalancedAllocation")
                .contains("defaultingType=List", "defaultConstraints=[]");
    }

    @Test
    void kubeSchedulersProfileTakesPluginsAndTheirConfigurationFromTheDefaultSchedulers() {
        List<Rendered> rendered = Chart.renderWith(Map.of(
                "kubeScheduler.plugins.multiPoint.enabled[0].name", "Coscheduling",
                "kubeScheduler.plugins.score.disabled[0].name", "ImageLocality",
                "kubeScheduler.pluginConfig[0].name", "PodTopologySpread",
                "kubeScheduler.pluginConfig[0].args.defaultingType", "System"));

        assertThat(text(kubeSchedulerConfiguration(rendered), "profiles"))
                .contains("multiPoint={enabled=[{name=Coscheduling}]}")
                .contains(
                        "disabled=[{name=NodeResourcesFit}, {name=NodeResourcesBalancedAllocation}, {name=ImageLocality}]")
                .contains("ignoredResourceGroups=[mig.aliquot.io]")
                .contains("{args={defaultingType=System}, name=PodTopologySpread}")
                .doesNotContain("defaultingType=List");
    }

    @Test
    void kubeSchedulerChecksEveryResourceOfAliquot() {
        String extenders = text(kubeSchedulerConfiguration(Chart.render(DEFAULTS)), "extenders");

        assertThat(Pattern.compile("\\{name=([a-z./-]+), ignoredByScheduler=false}")
                        .matcher(extenders)
                        .results()
                        .map(result -> result.group(1)))
                .containsExactlyInAnyOrderElementsOf(io.aliquot.api.names.Resources.SUPPORTED);
    }

    @Test
    void schedulersSettingsComeFromTheValues() {
        Container extender = scheduler(Chart.render(EVERYTHING)).getContainers().get(0);

        assertThat(variable(extender, "ALIQUOT_NODE_PLACEMENT")).contains("spread");
        assertThat(variable(extender, "ALIQUOT_GPU_PLACEMENT")).contains("spread");
        assertThat(variable(extender, "ALIQUOT_COMPATIBILITY")).contains("hami");
        assertThat(variable(extender, "ALIQUOT_DEFAULT_CORE_POLICY")).contains("elastic");
        assertThat(variable(extender, "ALIQUOT_OVERUSE")).contains("evict");
        assertThat(variable(extender, "ALIQUOT_UNLIMITED_CONTAINERS")).contains("report");
        assertThat(variable(extender, "ALIQUOT_RUNTIME_CLASS")).contains("nvidia-cdi");
        assertThat(variable(extender, "ALIQUOT_KEEPS_NODES_FROM")).contains("karpenter");
        assertThat(variable(scheduler(Chart.render(DEFAULTS)).getContainers().get(0), "ALIQUOT_KEEPS_NODES_FROM"))
                .contains("cluster_autoscaler");
        assertThat(extender.getEnv())
                .filteredOn(variable -> variable.getName().startsWith("POD_NAME"))
                .allMatch(variable -> variable.getValueFrom().getFieldRef() != null)
                .hasSize(2);
    }

    /** Of a flag that is there twice kube-scheduler takes the last. */
    @Test
    void argumentsOfKubeSchedulerFollowTheCharts() {
        assertThat(scheduler(Chart.render(EVERYTHING)).getContainers().get(1).getCommand())
                .endsWith(
                        "--v=2",
                        "--v=4",
                        "--feature-gates=SchedulerPopFromBackoffQ=false",
                        "--leader-elect-lease-duration=6s");
    }

    @Test
    void kubeSchedulerCollectsGarbageLessOftenUntilItsMemoryIsNearTheLimit() {
        Container kubeScheduler =
                scheduler(Chart.render(DEFAULTS)).getContainers().get(1);

        assertThat(variable(kubeScheduler, "GOGC")).contains("400");
        assertThat(kubeScheduler.getEnv())
                .filteredOn(variable -> variable.getName().equals("GOMEMLIMIT"))
                .extracting(variable ->
                        variable.getValueFrom().getResourceFieldRef().getResource())
                .containsExactly("limits.memory");
        assertThat(kubeScheduler.getResources().getLimits()).containsKey("memory");
    }

    @Test
    void agentsSettingsComeFromTheValues() {
        PodSpec pod = agent(Chart.render(EVERYTHING));
        Container agent = pod.getContainers().get(0);

        assertThat(variable(agent, "ALIQUOT_SLOTS")).contains("1000");
        assertThat(variable(agent, "ALIQUOT_READY_RESOURCE")).contains("microsoft.com/directx");
        assertThat(variable(agent(Chart.render(DEFAULTS)).getContainers().get(0), "ALIQUOT_READY_RESOURCE"))
                .isEmpty();
        assertThat(variable(agent, "ALIQUOT_VISIBLE_DEVICES")).contains("{uuid}");
        assertThat(variable(agent, "ALIQUOT_KUBELET_ROOT")).contains("/data/kubelet");
        assertThat(variable(agent, "ALIQUOT_STATE_DIR")).contains("/data/aliquot");
        assertThat(variable(agent, "ALIQUOT_LABEL_GPU_OPERATOR")).contains("true");
        assertThat(pod.getNodeSelector()).isEqualTo(Map.of("pool", "shared"));
    }

    @Test
    void theAgentRunsOnLabeledNodesAndStaysOnThoseThatItLabels() {
        NodeAffinity affinity = agent(Chart.render(EVERYTHING)).getAffinity().getNodeAffinity();

        assertThat(affinity.getRequiredDuringSchedulingIgnoredDuringExecution().getNodeSelectorTerms())
                .extracting(NodeSelectorTerm::getMatchExpressions)
                .containsExactly(
                        List.of(new NodeSelectorRequirement("gpus.example.com/shared", "In", List.of("by-aliquot"))),
                        List.of(new NodeSelectorRequirement(Labels.NODE_AGENT, "In", List.of(Labels.NODE_AGENT_ON))));
    }

    @Test
    void theNodesLabelIsAValueThatSchedulerAndAgentGet() {
        assertThat(agent(Chart.render(DEFAULTS))
                        .getAffinity()
                        .getNodeAffinity()
                        .getRequiredDuringSchedulingIgnoredDuringExecution()
                        .getNodeSelectorTerms()
                        .get(0)
                        .getMatchExpressions())
                .containsExactly(new NodeSelectorRequirement(Labels.GPU, "In", List.of(Labels.GPU_ON)));
        for (Path scenario : List.of(DEFAULTS, EVERYTHING)) {
            String label = scenario.equals(DEFAULTS) ? "gpu=on" : "gpus.example.com/shared=by-aliquot";
            assertThat(containers(Chart.render(scenario)).stream()
                            .flatMap(container -> variable(container, "ALIQUOT_NODE_LABEL").stream()))
                    .containsExactly(label, label);
        }
    }

    /** Those that the values add, too. */
    @Test
    void theProgramsReadEveryVariableThatTheChartSets() throws IOException {
        List<Rendered> rendered = Chart.render(EVERYTHING);

        for (var settings : Map.of(
                        scheduler(rendered).getContainers().get(0),
                        "scheduler/src/main/java/io/aliquot/scheduler/settings/Settings.java",
                        agent(rendered).getContainers().get(0),
                        "device-plugin/src/main/java/io/aliquot/deviceplugin/Settings.java")
                .entrySet()) {
            String source = Files.readString(Chart.root().resolve(settings.getValue()));
            assertThat(settings.getKey().getEnv())
                    .extracting(EnvVar::getName)
                    .filteredOn(name -> !name.startsWith("NVIDIA_") && !name.equals(ApiServers.VARIABLE))
                    .isNotEmpty()
                    .allMatch(name -> source.contains("\"" + name + "\""));
        }
    }

    /**
     * But not its cgroups: at the same path the JVM would take the host's for its own, and with them the host's memory. The
     * driver's {@code /usr} would hide the image's.
     */
    @ParameterizedTest
    @MethodSource("scenarios")
    void agentMountsTheHostsDirectoriesAtTheSamePaths(Path scenario) {
        PodSpec pod = agent(Chart.render(scenario));

        for (var volume : pod.getVolumes()) {
            if (volume.getHostPath() != null && !List.of("cgroups", "driver").contains(volume.getName())) {
                assertThat(Stream.concat(pod.getContainers().stream(), pod.getInitContainers().stream())
                                .flatMap(container -> container.getVolumeMounts().stream())
                                .filter(mount -> mount.getName().equals(volume.getName())))
                        .isNotEmpty()
                        .allMatch(mount ->
                                mount.getMountPath().equals(volume.getHostPath().getPath()));
            }
        }
    }

    @Test
    void theAgentHasTheFoldersOfCdiUnlessOnlyTheRuntimeInjects() {
        PodSpec pod = agent(Chart.render(DEFAULTS));

        assertThat(variable(pod.getContainers().get(0), "ALIQUOT_DEVICE_INJECTION"))
                .contains("auto");
        assertThat(pod.getContainers().get(0).getVolumeMounts())
                .filteredOn(mount -> mount.getMountPath().endsWith("/cdi"))
                .extracting(VolumeMount::getMountPath, VolumeMount::getReadOnly)
                .containsExactlyInAnyOrder(tuple("/etc/cdi", true), tuple("/var/run/cdi", null));
        assertThat(agent(Chart.render(DEFAULT_RUNTIME)).getVolumes())
                .filteredOn(volume -> volume.getHostPath() != null)
                .noneMatch(volume -> volume.getHostPath().getPath().endsWith("/cdi"));
    }

    @Test
    void defaultRuntimeNeedsNoRuntimeClass() {
        List<Rendered> rendered = Chart.render(DEFAULT_RUNTIME);

        assertThat(Chart.all(rendered, RuntimeClass.class)).isEmpty();
        assertThat(agent(rendered).getRuntimeClassName()).isNull();
        assertThat(variable(scheduler(rendered).getContainers().get(0), "ALIQUOT_RUNTIME_CLASS"))
                .contains("");
    }

    @Test
    void runtimeClassIsCreatedAndUsedByTheAgent() {
        List<Rendered> rendered = Chart.render(DEFAULTS);

        RuntimeClass runtimeClass = Chart.the(rendered, RuntimeClass.class, "nvidia");
        assertThat(runtimeClass.getHandler()).isEqualTo("nvidia");
        assertThat(runtimeClass.getMetadata().getAnnotations()).containsEntry("helm.sh/resource-policy", "keep");
        assertThat(agent(rendered).getRuntimeClassName()).isEqualTo("nvidia");
    }

    @Test
    void fakeDriverIsInstalledOnlyWhereNodesHaveSimulatedGpus() {
        assertThat(agent(Chart.render(DEFAULTS)).getInitContainers()).isEmpty();
        assertThat(Chart.all(Chart.render(DEFAULTS), ConfigMap.class))
                .extracting(map -> map.getMetadata().getName())
                .doesNotContain("aliquot-fake-driver");

        ConfigMap gpus = Chart.the(Chart.render(FAKE_DRIVER), ConfigMap.class, "aliquot-fake-driver");
        assertThat(gpus.getData())
                .isEqualTo(Map.of(
                        "default",
                        "NVIDIA A100-SXM4-80GB;81920;108\nNVIDIA A100-SXM4-80GB;81920;108\n",
                        "node.small-1.example.com",
                        "Tesla T4;15360;40;128\n"));
    }

    @Test
    void podsHaveTheLabelsAndAnnotationsOfTheValuesBesideTheCharts() {
        List<Rendered> labeled = Chart.renderWith(Map.of("podLabels.team", "platform"));
        for (PodTemplateSpec pod : List.of(
                schedulerTemplate(labeled),
                agentTemplate(labeled),
                apiTemplate(labeled),
                caBundles(labeled).getSpec().getTemplate())) {
            assertThat(pod.getMetadata().getLabels())
                    .containsEntry("team", "platform")
                    .containsEntry("app.kubernetes.io/name", "aliquot");
        }

        List<Rendered> rendered = Chart.render(EVERYTHING);
        for (PodTemplateSpec pod : List.of(schedulerTemplate(rendered), agentTemplate(rendered))) {
            assertThat(pod.getMetadata().getAnnotations())
                    .containsEntry("prometheus.io/scrape", "true")
                    .containsKey("kubectl.kubernetes.io/default-container");
        }
    }

    @Test
    void theLogLevelsAreMountedWhereTheProgramsReadThem() {
        List<Rendered> rendered = Chart.render(EVERYTHING);
        Map<String, String> levels =
                Chart.the(rendered, ConfigMap.class, "aliquot-logging").getData();

        assertThat(List.of(scheduler(rendered), agent(rendered)))
                .extracting(pod -> {
                    var volume = pod.getVolumes().stream()
                            .filter(one -> one.getName().equals("logging"))
                            .findFirst()
                            .orElseThrow()
                            .getConfigMap();
                    KeyToPath item = volume.getItems().get(0);
                    var mount = pod.getContainers().get(0).getVolumeMounts().stream()
                            .filter(one -> one.getName().equals("logging"))
                            .findFirst()
                            .orElseThrow();
                    assertThat(volume.getName()).isEqualTo("aliquot-logging");
                    assertThat(mount.getSubPath())
                            .as("the kubelet updates no mount with one")
                            .isNull();
                    assertThat(Path.of(mount.getMountPath(), item.getPath())).isEqualTo(LogLevelFile.MOUNTED);
                    return LogLevel.parse("level", String.valueOf(levels.get(item.getKey())));
                })
                .containsExactly(LogLevel.WARN, LogLevel.DEBUG);
    }

    @Test
    void thePodOfHelmTestRunsTheProbe() throws IOException {
        assertThat(test(Chart.render(DEFAULTS))
                        .getSpec()
                        .getContainers()
                        .get(0)
                        .getCommand()
                        .get(2)
                        .strip())
                .isEqualTo(Files.readString(Chart.FOLDER.resolve("probe.sh")).strip());
    }

    @Test
    void objectsOfPrometheusOperatorAreCreatedOnlyIfEnabled() {
        assertThat(Chart.all(Chart.render(DEFAULTS), GenericKubernetesResource.class))
                .isEmpty();
        assertThat(Chart.all(Chart.render(EVERYTHING), GenericKubernetesResource.class))
                .extracting(
                        HasMetadata::getApiVersion,
                        HasMetadata::getKind,
                        monitor -> monitor.getMetadata().getName())
                .containsExactlyInAnyOrder(
                        tuple("monitoring.coreos.com/v1", "PodMonitor", "aliquot-scheduler"),
                        tuple("monitoring.coreos.com/v1", "PodMonitor", "aliquot-device-plugin"),
                        tuple("monitoring.coreos.com/v1", "PrometheusRule", "aliquot-usage"),
                        tuple("monitoring.coreos.com/v1", "PrometheusRule", "aliquot-alerts"));
    }

    @ParameterizedTest
    @ValueSource(strings = {"usage", "alerts"})
    void aPrometheusRuleHasTheRulesOfItsFile(String name) throws IOException {
        var rule = Chart.the(Chart.render(EVERYTHING), GenericKubernetesResource.class, "aliquot-" + name);

        Object file = new KubernetesSerialization()
                .unmarshal(Files.readString(Chart.FOLDER.resolve("rules").resolve(name + ".yaml")), Object.class);
        assertThat(rule.<Object>get("spec")).isEqualTo(file);
    }

    @Test
    void dashboardsAreInAConfigMapForGrafanasSidecarOnlyIfEnabled() {
        assertThat(Chart.all(Chart.render(DEFAULTS), ConfigMap.class))
                .extracting(map -> map.getMetadata().getName())
                .doesNotContain("aliquot-dashboards");
        assertThat(dashboards(Chart.renderWith(Map.of("metrics.dashboards.enabled", true)))
                        .getMetadata()
                        .getLabels())
                .containsEntry("grafana_dashboard", "1");

        ConfigMap map = dashboards(Chart.render(EVERYTHING));
        assertThat(map.getMetadata().getLabels()).containsEntry("grafana_dashboard", "yes");
        assertThat(map.getData())
                .containsOnlyKeys(
                        "aliquot-cluster.json",
                        "aliquot-namespace.json",
                        "aliquot-node.json",
                        "aliquot-scheduler.json");
    }

    private static ConfigMap dashboards(List<Rendered> rendered) {
        return Chart.the(rendered, ConfigMap.class, "aliquot-dashboards");
    }

    @Test
    void podMonitorsSelectTheirPodsAndAPortOfOneContainer() {
        List<Rendered> rendered = Chart.render(EVERYTHING);

        Map.of("aliquot-scheduler", schedulerTemplate(rendered), "aliquot-device-plugin", agentTemplate(rendered))
                .forEach((name, pod) -> {
                    var monitor = Chart.the(rendered, GenericKubernetesResource.class, name);
                    Map<String, String> selector = monitor.get("spec", "selector", "matchLabels");
                    List<Map<String, Object>> endpoints = monitor.get("spec", "podMetricsEndpoints");

                    assertThat(monitor.getMetadata().getLabels()).containsEntry("release", "prometheus");
                    assertThat(selector).containsEntry("app.kubernetes.io/name", "aliquot");
                    assertThat(pod.getMetadata().getLabels()).containsAllEntriesOf(selector);
                    // Many series have the labels of the containers that use GPUs.
                    assertThat(endpoints).containsExactly(Map.of("port", "metrics", "honorLabels", true));
                    assertThat(pod.getSpec().getContainers().stream()
                                    .flatMap(container -> container.getPorts().stream())
                                    .filter(port -> port.getName().equals("metrics")))
                            .hasSize(1);
                });
    }

    @Test
    void networkPoliciesOpenPortsToTheNamedPodsAndApiServers() {
        assertThat(Chart.all(Chart.render(DEFAULTS), NetworkPolicy.class)).isEmpty();

        String monitoring = "kubernetes.io/metadata.name=monitoring";
        List<Rendered> all = Chart.render(EVERYTHING);
        assertThat(ingress(all, "aliquot-scheduler", schedulerTemplate(all)))
                .containsExactlyInAnyOrder(
                        "webhooks from 192.0.2.0/28, 2001:db8::/64, app.kubernetes.io/component=api,"
                                + " app.kubernetes.io/component=scheduler",
                        "metrics from " + monitoring,
                        "10259 from " + monitoring);
        List<Rendered> known = Chart.renderWith(Map.of(
                "networkPolicy.enabled",
                true,
                "networkPolicy.apiServers[0]",
                "192.0.2.0/28",
                "networkPolicy.apiServers[1]",
                "2001:db8::/64"));
        assertThat(ingress(known, "aliquot-api", apiTemplate(known)))
                .containsExactly("api from 192.0.2.0/28, 2001:db8::/64");
        for (PodTemplateSpec pod : List.of(schedulerTemplate(known), apiTemplate(known))) {
            assertThat(pod.getSpec().getContainers().getFirst().getEnv())
                    .contains(new EnvVar("ALIQUOT_API_SERVERS", "192.0.2.0/28,2001:db8::/64", null));
        }
        assertThat(ingress(all, "aliquot-device-plugin", agentTemplate(all)))
                .containsExactlyInAnyOrder(
                        "usage from app.kubernetes.io/component=scheduler", "metrics from " + monitoring);

        // In a NetworkPolicy a rule without peers would allow all of them.
        List<Rendered> none = Chart.renderWith(Map.of("networkPolicy.enabled", true));
        assertThat(ingress(none, "aliquot-scheduler", schedulerTemplate(none))).containsExactly("webhooks from all");
        assertThat(ingress(none, "aliquot-api", apiTemplate(none))).containsExactly("api from all");
        assertThat(ingress(none, "aliquot-device-plugin", agentTemplate(none)))
                .containsExactly("usage from app.kubernetes.io/component=scheduler");
    }

    /** Each port, and each range of addresses and the last label of each selector that may reach it. */
    private static List<String> ingress(List<Rendered> rendered, String name, PodTemplateSpec pod) {
        NetworkPolicy policy = Chart.the(rendered, NetworkPolicy.class, name);
        assertThat(pod.getMetadata().getLabels())
                .containsAllEntriesOf(policy.getSpec().getPodSelector().getMatchLabels());
        assertThat(policy.getSpec().getPolicyTypes()).containsExactly("Ingress");
        var pairs = new ArrayList<String>();
        for (NetworkPolicyIngressRule rule : policy.getSpec().getIngress()) {
            for (NetworkPolicyPort port : rule.getPorts()) {
                String peers = rule.getFrom().isEmpty()
                        ? "all"
                        : rule.getFrom().stream().map(ChartTest::peer).collect(Collectors.joining(", "));
                pairs.add(port.getPort().getValue() + " from " + peers);
            }
        }
        return pairs;
    }

    private static String peer(NetworkPolicyPeer peer) {
        if (peer.getIpBlock() != null) {
            return peer.getIpBlock().getCidr();
        }
        LabelSelector selector =
                Optional.ofNullable(peer.getNamespaceSelector()).orElse(peer.getPodSelector());
        var label = new TreeMap<>(selector.getMatchLabels()).firstEntry();
        return label.getKey() + "=" + label.getValue();
    }

    @ParameterizedTest
    @MethodSource("scenarios")
    void notesSayWhatToDoNext(Path scenario) {
        assertThat(Chart.notes(scenario))
                .contains("kubectl label node NODE "
                        + (scenario.equals(EVERYTHING) ? "gpus.example.com/shared=by-aliquot" : "gpu=on"))
                .contains("kubectl -n " + Chart.NAMESPACE + " rollout status");
    }

    private static PodTemplateSpec schedulerTemplate(List<Rendered> rendered) {
        return Chart.the(rendered, Deployment.class, "aliquot-scheduler")
                .getSpec()
                .getTemplate();
    }

    private static PodTemplateSpec apiTemplate(List<Rendered> rendered) {
        return Chart.the(rendered, Deployment.class, "aliquot-api").getSpec().getTemplate();
    }

    private static PodTemplateSpec agentTemplate(List<Rendered> rendered) {
        return Chart.the(rendered, DaemonSet.class, "aliquot-device-plugin")
                .getSpec()
                .getTemplate();
    }

    private static PodSpec scheduler(List<Rendered> rendered) {
        return schedulerTemplate(rendered).getSpec();
    }

    private static PodSpec agent(List<Rendered> rendered) {
        return agentTemplate(rendered).getSpec();
    }

    /** The Job that makes the API server trust the scheduler. */
    private static Job caBundles(List<Rendered> rendered) {
        List<Job> jobs = Chart.all(rendered, Job.class);
        assertThat(jobs).hasSize(1);
        return jobs.get(0);
    }

    /** The pod of {@code helm test}. */
    private static Pod test(List<Rendered> rendered) {
        return Chart.the(rendered, Pod.class, "aliquot-test");
    }

    /** The pod of a CronJob's Jobs. */
    private static PodSpec pod(CronJob cronJob) {
        return cronJob.getSpec().getJobTemplate().getSpec().getTemplate().getSpec();
    }

    private static List<Container> containers(List<Rendered> rendered) {
        var containers = new ArrayList<Container>();
        for (PodSpec pod : List.of(
                scheduler(rendered),
                agent(rendered),
                caBundles(rendered).getSpec().getTemplate().getSpec(),
                test(rendered).getSpec())) {
            containers.addAll(pod.getInitContainers());
            containers.addAll(pod.getContainers());
        }
        for (CronJob cronJob : Chart.all(rendered, CronJob.class)) {
            containers.addAll(pod(cronJob).getInitContainers());
            containers.addAll(pod(cronJob).getContainers());
        }
        return containers;
    }

    private static Optional<String> variable(Container container, String name) {
        return container.getEnv().stream()
                .filter(variable -> variable.getName().equals(name))
                .map(EnvVar::getValue)
                .map(value -> value == null ? "" : value)
                .findFirst();
    }

    private static String text(Map<String, Object> configuration, String key) {
        return String.valueOf(configuration.get(key));
    }

    @SuppressWarnings("unchecked")
    private static Map<String, Object> kubeSchedulerConfiguration(List<Rendered> rendered) {
        String yaml = Chart.the(rendered, ConfigMap.class, "aliquot-kube-scheduler")
                .getData()
                .get("config.yaml");
        return new KubernetesSerialization().unmarshal(yaml, Map.class);
    }
}
