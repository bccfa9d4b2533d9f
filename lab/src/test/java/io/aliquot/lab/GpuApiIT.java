package io.aliquot.lab;

import static io.aliquot.lab.TestNamespace.EVENTUALLY;
import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.names.Resources;
import io.fabric8.kubernetes.api.model.LimitRangeBuilder;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.api.model.Quantity;
import java.io.IOException;
import java.nio.file.Files;
import java.time.Duration;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;
import tools.jackson.core.JacksonException;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.json.JsonMapper;

/** The API group gpu.aliquot.io behind the cluster's API server, with kubectl. */
@ExtendWith(LabExtension.class)
class GpuApiIT {
    private static final Map<String, String> LIMITS =
            Map.of(Resources.VGPU, "1", Resources.MEMORY, "3000", Resources.CORES, "30");
    static final String GROUP = "/apis/gpu.aliquot.io/v1alpha1";

    /** The longest time from the answer to a patch until the container's processes see the new limits. */
    private static final Duration RESIZE_TIMEOUT = Duration.ofSeconds(2);

    @Test
    void kubectlListsWhoHoldsWhatAndWhyAPodIsPending(Lab lab, TestNamespace namespace) {
        namespace.run(Pods.withLimits(lab, "holds", LIMITS));
        namespace.create(Pods.withGpuMemory(lab, "waits", 200_000));
        namespace.create(Pods.withGpuMemory(lab, "unmatched", 1000)
                .edit()
                .editSpec()
                .addToNodeSelector("disktype", "tape")
                .endSpec()
                .build());
        namespace.awaitUnschedulable("waits");
        namespace.awaitUnschedulable("unmatched");

        String list = kubectl(lab, namespace, "get", "gpushares", "--output", "wide");

        assertThat(list.lines().map(line -> line.split(" +", -1)[0]))
                .containsExactly("NAME", "holds", "unmatched", "waits");
        assertThat(list).containsPattern("holds +Bound +node[12] +[0-9-]+/3000Mi +[0-9-]+/30%");
        assertThat(list).containsPattern("waits +Pending +- ");
        assertThat(json(kubectl(lab, namespace, "get", "gpushare", "waits", "--output", "json"))
                        .at("/status/reason")
                        .asString(""))
                .contains("200000 MiB");
        assertThat(kubectl(lab, namespace, "describe", "gpushare", "waits")).contains("Pending", "200000 MiB");
        TestNamespace.awaitTrue(
                "kube-scheduler's own reason",
                EVENTUALLY,
                () -> kubectl(lab, namespace, "describe", "gpushare", "unmatched")
                        .matches("(?s).*fit the pod's GPU requests.*node affinity/selector.*"));
    }

    @Test
    void theDocumentedQueryNamesThePodsOfAGpu(Lab lab, TestNamespace namespace) throws IOException {
        Pod pod = namespace.run(Pods.withLimits(lab, "holds", LIMITS));
        namespace.create(Pods.withGpuMemory(lab, "waits", 200_000));
        namespace.awaitUnschedulable("waits");
        String uuid = Allocations.of(pod, Pods.MAIN).getFirst().uuid();
        String template = Files.readString(lab.root().resolve("docs/coexistence.md"))
                .replaceFirst("(?s).*go-template='([^']*)'.*", "$1")
                .replaceFirst("GPU-8f6e8f0c-…", uuid);

        String pods = lab.kubectl("get", "gpushares", "-A", "-o", "go-template=" + template)
                .expectSuccess();

        assertThat(pods.lines().filter(line -> line.startsWith(namespace.name() + "/")))
                .containsExactly(namespace.name() + "/holds");
    }

    @Test
    void nodesAndGpusHaveARoleOfTheirOwn(Lab lab, TestNamespace namespace) {
        String viewer = account(lab, namespace, "viewer", "view");
        Pod pod = namespace.run(Pods.withLimits(lab, "holds", LIMITS));
        String gpu = Allocations.of(pod, Pods.MAIN).getFirst().uuid().toLowerCase(Locale.ROOT);

        assertThat(kubectl(lab, namespace, "get", "gpunodes")).contains(lab.nodes());
        assertThat(kubectl(lab, namespace, "get", "gpus")).contains(gpu, "A100");
        assertThat(kubectl(lab, namespace, "get", "gpushares", "--as", viewer)).contains("holds");
        assertThat(lab.kubectl("get", "gpus", "--as", viewer).err()).contains("Forbidden");
        assertThat(lab.kubectl("get", "gpushares", "--all-namespaces", "--as", viewer)
                        .err())
                .contains("Forbidden");
    }

    @Test
    void usageAppearsInAGpushareWithinHalfAMinute(Lab lab, TestNamespace namespace) {
        namespace.run(using2000(lab, "uses"));

        TestNamespace.awaitTrue(
                "2000 MiB and a context",
                EVENTUALLY,
                () -> json(kubectl(lab, namespace, "get", "gpushare", "uses", "--output", "json"))
                                .at("/status/usage/memoryMiB")
                                .asInt(0)
                        == 2256);
        assertThat(kubectl(lab, namespace, "get", "gpushares")).contains("2256/3000Mi");
    }

    /** The first of three resizes may come while the kubelet writes the pod's files ({@link TestNamespace}). */
    @Test
    void kubectlResizesAPodAndItsProcessesSeeThatWithin2Seconds(Lab lab, TestNamespace namespace) {
        String editor = account(lab, namespace, "editor", "aliquot-resize");
        namespace.run(Pods.withLimits(lab, "grows", LIMITS));

        assertThat(IntStream.of(6000, 5000, 4000)
                        .mapToObj(memory -> timeToSee(lab, namespace, memory, editor))
                        .toList())
                .anySatisfy(time -> assertThat(time).isLessThan(RESIZE_TIMEOUT));

        assertThat(namespace.get("grows").getMetadata().getAnnotations())
                .containsEntry("aliquot.io/total-memory-mib", "4000")
                .containsEntry("aliquot.io/total-cores", "20");
        TestNamespace.awaitTrue(
                "the last resize is seen",
                TestNamespace.VOLUME_UPDATED,
                () -> nvidiaSmiShows(namespace, "grows", "0MiB / 4000MiB"));
        assertThat(namespace.exec("grows", "cat", "/etc/aliquot/vgpu").out())
                .contains("memory=4000Mi", "cores=20", "policy=elastic");
        assertThat(namespace
                        .exec("grows", "vgpu-sample", "alloc", "3700", "alloc", "100")
                        .out()
                        .lines())
                .as("and its context")
                .contains("alloc 3700 MiB: CUDA_SUCCESS", "alloc 100 MiB: CUDA_ERROR_OUT_OF_MEMORY");
        assertThat(TestNamespace.containerStatus(namespace.get("grows"), Pods.MAIN)
                        .getRestartCount())
                .isZero();
        assertThat(json(kubectl(lab, namespace, "get", "gpushare", "grows", "--output", "json"))
                        .at("/status/memoryMiB")
                        .asInt(0))
                .isEqualTo(4000);

        Lab.execute(
                        EVENTUALLY,
                        List.of(
                                "env",
                                "KUBE_EDITOR=sed -i '/^spec:/,/^status:/s/cores: 20/cores: 40/'",
                                lab.root().resolve("aliquot").toString(),
                                "kubectl",
                                "edit",
                                "gpushare",
                                "grows",
                                "--namespace",
                                namespace.name(),
                                "--as",
                                editor))
                .expectSuccess();
        assertThat(Allocations.of(namespace.get("grows"), Pods.MAIN).getFirst().cores())
                .isEqualTo(40);
    }

    /** From the answer to the patch, by a clock in the container, so that the time of an exec does not count. */
    private static Duration timeToSee(Lab lab, TestNamespace namespace, int memory, String editor) {
        var seen = CompletableFuture.supplyAsync(() ->
                namespace.exec("grows", "bash", "-c", """
                        until nvidia-smi | grep -q 0MiB./.%dMiB || (( SECONDS > 30 )); do sleep 0.05; done
                        date +%%s%%3N
                        """.formatted(memory)).expectSuccess());
        patch(
                        lab,
                        namespace,
                        "grows",
                        "\"memoryMiB\": " + memory + ", \"cores\": 20, \"policy\": \"elastic\"",
                        "--as",
                        editor)
                .expectSuccess();
        long answered = System.currentTimeMillis();
        return Duration.ofMillis(Long.parseLong(seen.join().strip()) - answered);
    }

    @Test
    void shrinkingAShareBelowItsUsageKeepsTheUsedMemoryAndRefusesFurtherAllocations(Lab lab, TestNamespace namespace) {
        Pod pod = namespace.run(using2000(lab, "shrinks"));
        TestNamespace.awaitTrue(
                "2000 MiB are in use", EVENTUALLY, () -> nvidiaSmiShows(namespace, "shrinks", "2256MiB / 3000MiB"));

        patch(lab, namespace, "shrinks", "\"memoryMiB\": 1000").expectSuccess();

        TestNamespace.awaitTrue(
                "the used memory stays allocated",
                TestNamespace.VOLUME_UPDATED,
                () -> nvidiaSmiShows(namespace, "shrinks", "MiB / 1000MiB"));
        assertThat(namespace.exec("shrinks", "vgpu-sample", "alloc", "1").toString())
                .as("another program, which needs a context")
                .contains("CUDA_ERROR_OUT_OF_MEMORY");
        assertThat(allocatedMiB(lab, pod)).as("no other pod gets what it uses").isGreaterThanOrEqualTo(3000);
        assertThat(TestNamespace.containerStatus(namespace.get("shrinks"), Pods.MAIN)
                        .getRestartCount())
                .isZero();
    }

    /** With the pods of other tests, which come and go. */
    private static long allocatedMiB(Lab lab, Pod pod) {
        return Long.parseLong(lab.kubectl(
                        "get", "gpunode", pod.getSpec().getNodeName(), "-o", "jsonpath={.status.memoryMiB.allocated}")
                .expectSuccess());
    }

    @Test
    void aPatchThatDoesNotFitOrIsNotAllowedChangesNothing(Lab lab, TestNamespace namespace) {
        String viewer = account(lab, namespace, "viewer", "edit");
        Pod pod = namespace.run(Pods.withLimits(lab, "stays", LIMITS));

        assertThat(patch(lab, namespace, "stays", "\"memoryMiB\": 4000", "--as", viewer)
                        .err())
                .contains("Forbidden");
        assertThat(patch(lab, namespace, "stays", "\"memoryMiB\": 90000").err())
                .contains("invalid: spec.containers", "90000 MiB");
        patch(lab, namespace, "stays", "\"memoryMiB\": 4000", "--dry-run=server")
                .expectSuccess();
        assertThat(lab.kubectl(
                                "patch",
                                "gpushare",
                                "stays",
                                "--namespace",
                                namespace.name(),
                                "--patch",
                                "{\"spec\":{}}")
                        .err())
                .contains("--type");

        assertThat(Allocations.of(namespace.get("stays"), Pods.MAIN)).isEqualTo(Allocations.of(pod, Pods.MAIN));
    }

    /** Also the scheduler's rights to watch quotas and LimitRanges: without them it sees none. */
    @Test
    @LongTier.Only
    void aQuotaRefusesPodsAndResizesUntilItIsRaised(Lab lab, TestNamespace namespace) {
        String viewer = account(lab, namespace, "viewer", "view");
        kubectl(lab, namespace, "create", "quota", "gpus", "--hard=limits.nvidia.com/gpumem=5000");
        awaitQuota(lab, namespace, "0/5000Mi");
        namespace.run(Pods.withLimits(lab, "fits", LIMITS));
        namespace.create(Pods.withLimits(lab, "waits", LIMITS));
        String sentence =
                "namespace " + namespace.name() + " has 2000 of 5000 MiB left, the pod needs 3000 (ResourceQuota gpus)";

        assertThat(namespace.awaitUnschedulable("waits")).contains(sentence);
        assertThat(patch(lab, namespace, "fits", "\"memoryMiB\": 6000").err()).contains(sentence);
        assertThat(Allocations.of(namespace.get("fits"), Pods.MAIN).getFirst().memoryMiB())
                .isEqualTo(3000);
        assertThat(kubectl(lab, namespace, "get", "gpuquotas", "--as", viewer)).containsPattern("gpus +3000/5000Mi +-");
        assertThat(lab.kubectl("get", "gpuquotas", "--namespace", "default", "--as", viewer)
                        .err())
                .contains("Forbidden");

        kubectl(
                lab,
                namespace,
                "patch",
                "resourcequota",
                "gpus",
                "--type=merge",
                "--patch={\"spec\": {\"hard\": {\"limits.nvidia.com/gpumem\": \"6000\"}}}");

        namespace.awaitRunning("waits", TestNamespace.PROMPTLY);
        awaitQuota(lab, namespace, "6000/6000Mi");
        patch(lab, namespace, "fits", "\"memoryMiB\": 2000").expectSuccess();
        awaitQuota(lab, namespace, "5000/6000Mi");

        lab.client()
                .resource(new LimitRangeBuilder()
                        .withNewMetadata()
                        .withName("least")
                        .withNamespace(namespace.name())
                        .endMetadata()
                        .withNewSpec()
                        .addNewLimit()
                        .withType("Container")
                        .withMin(Map.of(Resources.MEMORY, new Quantity("1k")))
                        .endLimit()
                        .endSpec()
                        .build())
                .create();
        TestNamespace.awaitTrue(
                "an event on the LimitRange",
                EVENTUALLY,
                () -> kubectl(lab, namespace, "events", "--for=limitrange/least")
                        .matches("(?s).*GpuLimitRange.*remove it: no default avoids that.*"));
    }

    private static void awaitQuota(Lab lab, TestNamespace namespace, String memory) {
        TestNamespace.awaitTrue(
                memory + " in the quota",
                EVENTUALLY,
                () -> kubectl(lab, namespace, "get", "gpuquotas").contains(" " + memory + " "));
    }

    @Test
    void kubectlWaitsForAndWatchesShares(Lab lab, TestNamespace namespace) {
        // bash does not wait for kubectl, which sees only at its next line that its output is closed
        var watch = CompletableFuture.supplyAsync(
                () -> Lab.execute(
                        EVENTUALLY,
                        List.of(
                                "bash",
                                "-c",
                                "head -n 1 < <(\"$0\" kubectl get gpushares --namespace \"$1\" --watch --output name"
                                        + " --request-timeout=60s 2> /dev/null)",
                                lab.root().resolve("aliquot").toString(),
                                namespace.name())),
                task -> Thread.ofPlatform().start(task));
        namespace.create(Pods.withLimits(lab, "comes", LIMITS));

        kubectl(
                lab,
                namespace,
                "wait",
                "gpushare/comes",
                "--for=jsonpath={.status.phase}=Bound",
                "--timeout=" + EVENTUALLY.toSeconds() + "s");

        assertThat(watch.join().expectSuccess()).contains("comes");
    }

    /** A pod whose program holds 2000 MiB, and a context. */
    private static Pod using2000(Lab lab, String name) {
        return Pods.withLimits(lab, name, LIMITS)
                .edit()
                .editSpec()
                .editFirstContainer()
                .withCommand("vgpu-sample", "alloc", "2000", "hold")
                .endContainer()
                .endSpec()
                .build();
    }

    private static boolean nvidiaSmiShows(TestNamespace namespace, String pod, String text) {
        return namespace.exec(pod, "nvidia-smi").out().contains(text);
    }

    private static Lab.Output patch(Lab lab, TestNamespace namespace, String pod, String fields, String... arguments) {
        return lab.kubectl(Stream.concat(
                        Stream.of(
                                "patch",
                                "gpushare",
                                pod,
                                "--namespace",
                                namespace.name(),
                                "--type",
                                "merge",
                                "--patch",
                                "{\"spec\": {\"containers\": [{\"name\": \"main\", " + fields + "}]}}"),
                        Stream.of(arguments))
                .toArray(String[]::new));
    }

    static String kubectl(Lab lab, TestNamespace namespace, String... arguments) {
        return lab.kubectl(Stream.concat(Stream.of(arguments), Stream.of("--namespace", namespace.name()))
                        .toArray(String[]::new))
                .expectSuccess();
    }

    static JsonNode json(String text) {
        try {
            return new JsonMapper().readTree(text);
        } catch (JacksonException e) {
            throw new AssertionError(text, e);
        }
    }

    /** Creates a service account with a ClusterRole in the namespace and {@code view}; returns its user name. */
    private static String account(Lab lab, TestNamespace namespace, String name, String role) {
        String account = namespace.name() + ":" + name;
        kubectl(lab, namespace, "create", "serviceaccount", name);
        for (String one : List.of("view", role)) {
            lab.kubectl(
                    "create",
                    "rolebinding",
                    name + "-" + one,
                    "--clusterrole=" + one,
                    "--serviceaccount=" + account,
                    "--namespace",
                    namespace.name());
        }
        return "system:serviceaccount:" + account;
    }
}
