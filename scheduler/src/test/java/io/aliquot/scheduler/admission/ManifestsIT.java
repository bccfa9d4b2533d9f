package io.aliquot.scheduler.admission;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.names.Resources;
import io.aliquot.scheduler.server.ports.KeyStores;
import io.aliquot.scheduler.server.ports.RandomPorts;
import io.aliquot.scheduler.server.ports.TlsCertificate;
import io.aliquot.testing.ApiServer;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.api.model.PodList;
import io.fabric8.kubernetes.api.model.Quantity;
import io.fabric8.kubernetes.client.utils.KubernetesSerialization;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.security.PrivateKey;
import java.security.cert.X509Certificate;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.springframework.boot.builder.SpringApplicationBuilder;
import org.springframework.context.ConfigurableApplicationContext;

/**
 * kubectl applies the manifests of docs/manifests.md to a real API server, which calls the real webhooks by the chart's
 * configuration and checks the pods by its policies.
 */
class ManifestsIT {
    private static final Path ROOT = Path.of("..").toAbsolutePath().normalize();
    private static final Pattern BLOCK = Pattern.compile("(?ms)^```yaml\n(.*?)^```$(?:\n\nStored: `([^`]*)`$)?");

    @SuppressWarnings("NullAway.Init") // set by start(), like the others
    private static Path folder;

    @SuppressWarnings("NullAway.Init")
    private static ApiServer server;

    @SuppressWarnings("NullAway.Init")
    private static ConfigurableApplicationContext scheduler;

    @SuppressWarnings("NullAway.Init")
    private static String manifests;

    @SuppressWarnings("NullAway.Init")
    private static Map<String, String> stored;

    /** What kubectl printed, errors included. */
    private record Output(int status, String text) {
        Output expectSuccess() {
            assertThat(status).as(text).isZero();
            return this;
        }
    }

    @BeforeAll
    static void start(@TempDir Path temporary) throws Exception {
        folder = temporary;
        server = new ApiServer(Files.createDirectory(folder.resolve("server")));
        scheduler = new SpringApplicationBuilder(WebhooksTest.Program.class)
                .properties("POD_NAME=aliquot-1", "POD_NAMESPACE=aliquot")
                .initializers(starting ->
                        WebhooksTest.Program.reading(starting, server.client().build()))
                .run();
        KeyStore identity = KeyStores.selfSigned("localhost");
        var certificate = (X509Certificate) identity.getCertificate(KeyStores.ALIAS);
        scheduler
                .getBean(TlsCertificate.class)
                .serve((PrivateKey) identity.getKey(KeyStores.ALIAS, KeyStores.PASSWORD.toCharArray()), certificate);
        Files.writeString(folder.resolve("kubeconfig"), server.kubeconfig());
        kubectl("create", "namespace", "aliquot").expectSuccess();
        apply(rendered()
                        .replaceAll(
                                "(?m)^    service: \\{name: aliquot-webhook, .* path: (.*)\\}$",
                                Matcher.quoteReplacement(
                                                "    url: https://localhost:" + RandomPorts.webhooks(scheduler))
                                        + "$1\n    caBundle: "
                                        + Base64.getEncoder().encodeToString(pem(certificate))))
                .expectSuccess();
        read(Files.readString(ROOT.resolve("docs/manifests.md")));
        // The API server reads the configurations some 100 ms after their creation: the policy denies, and the webhook
        // changes.
        String probe =
                "{apiVersion: v1, kind: Pod, metadata: {name: probe, namespace: default}, spec: {containers: [{name: c,"
                        + " image: i, resources: {limits: {aliyun.com/gpu-mem: 1}}}]}}";
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
        while (!apply(probe, "--dry-run=server", "-o=yaml").text().contains("schedulerName: aliquot-scheduler")) {
            assertThat(System.nanoTime()).as("the webhooks are called").isLessThan(end);
        }
    }

    @AfterAll
    static void stop() {
        scheduler.close();
        server.close();
    }

    private static void read(String document) {
        var blocks = new ArrayList<String>();
        stored = new TreeMap<>();
        Matcher block = BLOCK.matcher(document);
        while (block.find()) {
            blocks.add(block.group(1));
            if (block.group(2) != null) {
                Matcher name = Pattern.compile("(?s).*kind: Pod\nmetadata:\n  name: (\\S+)\n.*")
                        .matcher(block.group(1));
                assertThat(name.matches()).as(block.group(1)).isTrue();
                stored.put(name.group(1), block.group(2));
            }
        }
        assertThat(stored).hasSizeGreaterThanOrEqualTo(9);
        manifests = String.join("---\n", blocks);
    }

    @Test
    void eachManifestIsStoredAsTheDocumentSaysAndApplyingItAgainChangesNothing() throws Exception {
        String printed = apply(manifests).expectSuccess().text();

        assertThat(requests()).isEqualTo(stored);
        assertThat(printed)
                .contains(
                        "Warning: container main: Aliquot reads nvidia.com/gpu: 1 as aliquot.io/vgpu: 1 (whole cards)")
                .contains(
                        "Aliquot reads nvidia.com/gpu.shared: 1 as aliquot.io/vgpu: 1, nvidia.com/gpumem-percentage: 25")
                .contains("nvidia.com/priority: 1 as aliquot.io/vgpu: 2, annotation aliquot.io/priority: low")
                .contains("Aliquot reads aliyun.com/gpu-core.percentage: 30, aliyun.com/gpu-mem: 8 as");

        String versions = versions();
        assertThat(apply(manifests).expectSuccess().text()).doesNotContain("created");
        assertThat(versions()).as("after kubectl apply").isEqualTo(versions);
        assertThat(kubectlWith(manifests, "diff", "-f", "-").expectSuccess().text())
                .isEmpty();

        // Kubernetes refuses another amount, as of every pod.
        String changed = manifests;
        List<String> changes = List.of(
                "nvidia.com/gpu: ,1,2",
                "nvidia.com/gpu.shared: ,1,2",
                "aliyun.com/gpu-mem: ,8,10",
                "nvidia.com/priority: ,1,0",
                "nvidia.com/gpumem: ,2048,2049");
        for (String change : changes) {
            String[] parts = change.split(",", -1);
            String before = changed;
            changed = changed.replaceFirst(parts[0] + parts[1] + "(?=[ \n])", parts[0] + parts[2]);
            assertThat(changed).isNotEqualTo(before);
        }
        Output refused = apply(changed);
        assertThat(refused.text().split("pod updates may not change fields", -1))
                .as(refused.text())
                .hasSize(changes.size() + 1);
        assertThat(refused.status()).isEqualTo(1);
        assertThat(versions()).as("after refusals").isEqualTo(versions);
    }

    @Test
    void applyingAManifestAgainOnTheServerChangesNothing() throws Exception {
        String others = manifests.replaceAll("(?m)(kind: Pod\nmetadata:\n  name: )", "$1server-side-");
        apply(others, "--server-side").expectSuccess();
        String versions = versions();

        apply(others, "--server-side").expectSuccess();
        assertThat(versions()).as("after kubectl apply --server-side").isEqualTo(versions);
        assertThat(kubectlWith(others, "diff", "--server-side", "-f", "-")
                        .expectSuccess()
                        .text())
                .isEmpty();
    }

    /** What a namespace says counts when a pod is created; no node exists, so the pods are Pending. */
    @Test
    void aPodStaysWhatItIsWhenItsNamespaceSaysSomethingElse() throws Exception {
        String claimed = inNamespace("team-changing");
        apply(claimed).expectSuccess();
        String versions = versions();

        String unclaimed = claimed.replaceAll("(?m)^  +aliquot.io/(gpu|gpu.shared|mig): \"on\".*\n", "")
                .replace("  labels:\n", "  labels:\n    aliquot.io/webhook: ignore\n");
        for (String changed : List.of(
                claimed.replace("default-memory-percentage: \"25\"", "default-memory-percentage: \"50\"")
                        .replace("default-gpu: slice", "default-gpu: card"),
                unclaimed)) {
            assertThat(changed).isNotEqualTo(claimed);
            apply(changed).expectSuccess();
            assertThat(versions()).isEqualTo(versions);
        }
        assertThat(apply(unclaimed.replaceFirst("gpu.shared: 1", "gpu.shared: 2"))
                        .text())
                .contains("pod updates may not change fields");

        kubectl("annotate", "namespace", "team-changing", "--overwrite", "aliquot.io/default-cores=all")
                .expectSuccess();
        kubectl("label", "namespace", "team-changing", "aliquot.io/gpu.shared=on", "aliquot.io/webhook-")
                .expectSuccess();
        String pods = claimed.substring(claimed.indexOf("---"));
        apply(pods).expectSuccess();
        assertThat(apply(pods.replace("name: time-slice", "name: another")).text())
                .contains("the namespace team-changing has an invalid annotation: aliquot.io/default-cores: ");
    }

    @Test
    void aNamespaceHasACorePolicyForPodsThatShareGpus() throws Exception {
        String share = limitedPod("share", "nvidia.com/gpumem: 3k");
        String others = limitedPod("card", "aliquot.io/vgpu: 1") + limitedPod("plain", "cpu: 1");
        kubectl("create", "namespace", "team-elastic").expectSuccess();
        kubectl("annotate", "namespace", "team-elastic", "aliquot.io/default-core-policy=force")
                .expectSuccess();
        assertThat(apply(share, "--namespace=team-elastic").text())
                .contains("the namespace team-elastic has an invalid annotation: aliquot.io/default-core-policy:"
                        + " \"force\" is unknown; allowed: fixed, elastic, none");
        apply(others, "--namespace=team-elastic").expectSuccess();

        kubectl("annotate", "namespace", "team-elastic", "--overwrite", "aliquot.io/default-core-policy=elastic")
                .expectSuccess();
        for (String outcome : List.of("created", "unchanged")) {
            assertThat(apply(share, "--namespace=team-elastic").expectSuccess().text())
                    .contains("pod/share " + outcome);
            assertThat(kubectl(
                                    "get",
                                    "pod",
                                    "share",
                                    "--namespace=team-elastic",
                                    "-o=jsonpath={.metadata.annotations.aliquot\\.io/core-policy}")
                            .text())
                    .isEqualTo("elastic");
        }
    }

    /** A pod that was created before its namespace claimed it belongs to the other device plugin. */
    @Test
    void aPodOfAnotherDevicePluginStaysItsOwnWhenItsNamespaceClaimsSuchPods() throws Exception {
        String claimed = inNamespace("team-later");
        String pods = claimed.substring(claimed.indexOf("---"))
                        // Aliquot's kube-scheduler also places pods that are not Aliquot's.
                        .replaceFirst("(?s)(name: mig-instance.*?\nspec:\n)", "$1  schedulerName: aliquot-scheduler\n")
                + """
                ---
                {apiVersion: v1, kind: Pod, metadata: {name: plain, namespace: team-later},
                 spec: {schedulerName: aliquot-scheduler, containers: [{name: main, image: "plain:1"}]}}
                """;
        kubectl("create", "namespace", "team-later").expectSuccess();
        apply(pods).expectSuccess();
        String versions = versions();
        String written = kubectl("get", "pods", "-n=team-later", "-o=jsonpath={.items[*].spec}")
                .text();
        assertThat(written)
                .contains("nvidia.com/gpu.shared", "nvidia.com/mig-1g.10gb")
                .doesNotContain("aliquot.io/vgpu", "NVIDIA_VISIBLE_DEVICES");

        apply(claimed.substring(0, claimed.indexOf("---"))).expectSuccess();
        apply(pods).expectSuccess();
        assertThat(versions()).isEqualTo(versions);

        // Kubernetes lets the image of a pod change. That makes no pod Aliquot's.
        apply(pods.replace("cuda:12.6.2", "cuda:12.6.3").replace("plain:1", "plain:2"))
                .expectSuccess();
        assertThat(kubectl("get", "pods", "-n=team-later", "-o=jsonpath={.items[*].spec}")
                        .text())
                .isEqualTo(written.replace("cuda:12.6.2", "cuda:12.6.3").replace("plain:1", "plain:2"));
    }

    /** The pods whose meaning depends on their namespace, in one that says all that the document's say. */
    private static String inNamespace(String name) {
        String slices = manifests.substring(manifests.indexOf("kind: Namespace\nmetadata:\n  name: team-slices") - 15);
        String instance = slices.substring(slices.indexOf("kind: Pod\nmetadata:\n  name: mig-instance") - 15);
        return (slices.substring(0, slices.indexOf("---", slices.indexOf("gpu-that-is-a-slice")))
                                .replaceFirst("  labels:\n", "  labels:\n    aliquot.io/mig: \"on\"\n")
                        + "---\n"
                        + instance.substring(0, instance.indexOf("---")))
                .replaceAll("team-(slices|mig)", name);
    }

    /** The API server adds what LimitRanges say before and after it calls the webhook, and then checks it. */
    @Test
    void limitRangesDoWhatTheReferenceSays() throws Exception {
        String pods = limitedPod("plain", "cpu: 1")
                + limitedPod("card", "aliquot.io/vgpu: 1")
                + limitedPod("percent", "nvidia.com/gpumem-percentage: 50");
        apply(limited("as-documented", example())).expectSuccess();
        apply(limited("only-max", "{type: Container, max: {nvidia.com/gpumem: 8k}}"))
                .expectSuccess();
        apply(limited("only-min", "{type: Container, min: {nvidia.com/gpumem: 1k}}"))
                .expectSuccess();

        assertThat(limits("as-documented", pods)).containsExactly("cpu: 1", "aliquot.io/vgpu: 1", HALF);
        assertThat(limits("only-max", pods))
                .containsExactly("cpu: 1", "aliquot.io/vgpu: 1, nvidia.com/gpumem: 8k", HALF);
        for (String pod : pods.split("(?=apiVersion)", -1)) {
            assertThat(apply(pod, "--namespace=only-min").text())
                    .contains("minimum nvidia.com/gpumem usage per Container is 1k, but request is 0");
        }
        assertThat(limits("only-min", limitedPod("enough", "nvidia.com/gpumem: 3k")))
                .containsExactly("aliquot.io/vgpu: 1, nvidia.com/gpumem: 3k");
        String instances =
                "{type: Container, max: {nvidia.com/gpumem: 8k, nvidia.com/mig-1g.10gb: 2, aliquot.io/vgpu: 2}}";
        apply(limited("instances", instances)
                        .replaceFirst("name: instances", "name: instances, labels: {aliquot.io/mig: \"on\"}"))
                .expectSuccess();
        assertThat(limits(
                        "instances",
                        limitedPod("plain", "cpu: 1")
                                + limitedPod("instance", "nvidia.com/mig-1g.10gb: 1")
                                + limitedPod("share", "nvidia.com/gpucores: 50, aliquot.io/vgpu: 1")))
                .containsExactly(
                        "cpu: 1",
                        "aliquot.io/vgpu: 1, mig.aliquot.io/1g.10gb: 1",
                        "aliquot.io/vgpu: 1, nvidia.com/gpucores: 50, nvidia.com/gpumem: 8k");
    }

    private static final String HALF = "aliquot.io/vgpu: 1, nvidia.com/gpumem-percentage: 50";

    /** The limits of the LimitRange in docs/reference.md. */
    private static String example() throws IOException {
        Matcher example = Pattern.compile("(?s)kind: LimitRange\n.*?  limits:\n  - (type: .*?)```")
                .matcher(Files.readString(ROOT.resolve("docs/reference.md")));
        assertThat(example.find()).isTrue();
        return "{" + example.group(1).replaceAll("#.*", "").strip().replaceAll("\\s*\n", ", ") + "}";
    }

    private static String limited(String namespace, String limits) {
        return """
            {apiVersion: v1, kind: Namespace, metadata: {name: %1$s}}
            ---
            {apiVersion: v1, kind: LimitRange, metadata: {name: gpus, namespace: %1$s}, spec: {limits: [%2$s]}}
            """.formatted(namespace, limits);
    }

    private static String limitedPod(String name, String limits) {
        return """
            apiVersion: v1
            kind: Pod
            metadata: {name: %s}
            spec: {containers: [{name: main, image: i, resources: {limits: {%s}}}]}
            ---
            """.formatted(name, limits);
    }

    /** The limits of the pods that are stored, without those of 0. */
    private static List<String> limits(String namespace, String pods) throws Exception {
        apply(pods, "--namespace=" + namespace).expectSuccess();
        String json =
                kubectl("get", "pods", "--namespace=" + namespace, "-o=json").text();
        var found = new TreeMap<String, String>();
        for (Pod pod :
                new KubernetesSerialization().unmarshal(json, PodList.class).getItems()) {
            found.put(
                    String.format(
                            "%03d", pods.indexOf("name: " + pod.getMetadata().getName() + "}")),
                    new TreeMap<>(pod.getSpec()
                                    .getContainers()
                                    .getFirst()
                                    .getResources()
                                    .getLimits())
                            .entrySet().stream()
                                    .filter(limit ->
                                            !limit.getValue().toString().equals("0"))
                                    .map(limit -> limit.getKey() + ": " + limit.getValue())
                                    .collect(Collectors.joining(", ")));
        }
        return List.copyOf(found.values());
    }

    /** A pod that Aliquot does not claim is what it would be without Aliquot. */
    @Test
    void timeSlicesOfOtherNamespacesStayAsTheyWereWritten() throws Exception {
        String pod = manifests
                .substring(manifests.indexOf("---\napiVersion: v1\nkind: Pod\nmetadata:\n  name: time-slice"))
                .replaceFirst("(?s)---\n(.*?)---.*", "$1")
                .replace("team-slices", "default");
        String claimed =
                apply(pod, "--dry-run=server", "-o=yaml").expectSuccess().text();
        String ignored = apply(
                        pod.replace("namespace: default", "namespace: kube-system"), "--dry-run=server", "-o=yaml")
                .expectSuccess()
                .text();

        assertThat(claimed).contains("nvidia.com/gpu.shared", "schedulerName: default-scheduler");
        assertThat(withoutIdentity(claimed)).isEqualTo(withoutIdentity(ignored).replace("kube-system", "default"));
    }

    private static String withoutIdentity(String pod) {
        return pod.replaceAll("(?m)^  (uid|creationTimestamp): .*\n", "");
    }

    /** The limits that ask for GPUs, by the names of the pods. */
    private static Map<String, String> requests() throws Exception {
        var requests = new TreeMap<String, String>();
        String json = kubectl("get", "pods", "-A", "-o=json").text();
        for (Pod pod :
                new KubernetesSerialization().unmarshal(json, PodList.class).getItems()) {
            if (stored.containsKey(pod.getMetadata().getName())) {
                Map<String, Quantity> limits =
                        pod.getSpec().getContainers().getFirst().getResources().getLimits();
                var names = new ArrayList<>(Resources.SUPPORTED);
                limits.keySet().stream().filter(name -> !names.contains(name)).forEach(names::add);
                names.retainAll(limits.keySet());
                requests.put(
                        pod.getMetadata().getName(),
                        names.stream()
                                .map(name -> name + ": " + limits.get(name))
                                .collect(Collectors.joining(", ")));
            }
        }
        return requests;
    }

    private static String versions() throws Exception {
        return kubectl(
                        "get",
                        "pods",
                        "-A",
                        "-o=custom-columns=:metadata.name,:metadata.resourceVersion,:metadata.generation")
                .expectSuccess()
                .text();
    }

    private static String rendered() throws Exception {
        return run(
                        "",
                        "helm",
                        "template",
                        "aliquot",
                        ROOT.resolve("charts/aliquot").toString(),
                        "--namespace=aliquot",
                        "--kube-version=1.35.4",
                        "--show-only=templates/webhook/mutatingwebhookconfiguration.yaml",
                        "--show-only=templates/policies/gpu-pods.yaml",
                        "--show-only=templates/policy-bindings.yaml")
                .expectSuccess()
                .text();
    }

    private static byte[] pem(X509Certificate certificate) throws Exception {
        return ("-----BEGIN CERTIFICATE-----\n"
                        + Base64.getMimeEncoder().encodeToString(certificate.getEncoded())
                        + "\n-----END CERTIFICATE-----\n")
                .getBytes(UTF_8);
    }

    private static Output apply(String objects, String... options) throws Exception {
        var arguments = new ArrayList<>(List.of("apply", "-f", "-"));
        arguments.addAll(List.of(options));
        return kubectlWith(objects, arguments.toArray(String[]::new));
    }

    private static Output kubectl(String... arguments) throws Exception {
        return kubectlWith("", arguments);
    }

    private static Output kubectlWith(String input, String... arguments) throws Exception {
        var command = new ArrayList<>(List.of("kubectl", "--kubeconfig=" + folder.resolve("kubeconfig")));
        command.addAll(List.of(arguments));
        return run(input, command.toArray(String[]::new));
    }

    private static Output run(String input, String... command) throws IOException, InterruptedException {
        command[0] = ApiServer.programs().resolve(command[0]).toString();
        Path output = folder.resolve("output");
        Process process = new ProcessBuilder(command)
                .redirectErrorStream(true)
                .redirectInput(Files.writeString(folder.resolve("input"), input).toFile())
                .redirectOutput(output.toFile())
                .start();
        return new Output(process.waitFor(), Files.readString(output));
    }
}
