package io.aliquot.lab.chart;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import com.marcnuri.helm.Helm;
import com.marcnuri.helm.InstallCommand;
import com.marcnuri.helm.UpgradeCommand;
import io.aliquot.api.foreign.FeatureDiscovery;
import io.aliquot.api.names.Annotations;
import io.aliquot.testing.ApiServer;
import io.aliquot.testing.ApiServer.Caller;
import io.aliquot.testing.ApiServer.Response;
import io.aliquot.testing.Await;
import io.fabric8.kubernetes.api.model.GenericKubernetesResource;
import io.fabric8.kubernetes.api.model.GenericKubernetesResourceList;
import io.fabric8.kubernetes.api.model.rbac.ClusterRole;
import io.fabric8.kubernetes.api.model.rbac.PolicyRule;
import io.fabric8.kubernetes.client.utils.KubernetesSerialization;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Predicate;
import java.util.function.Supplier;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.ClassOrderer;
import org.junit.jupiter.api.Nested;
import org.junit.jupiter.api.Order;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestClassOrder;
import org.junit.jupiter.api.condition.EnabledIfEnvironmentVariable;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/**
 * What the chart's policies deny and allow, on a real API server. No webhook runs here: pods are created in a namespace
 * that the webhooks exclude, in the form in which the webhook stores them.
 */
@TestClassOrder(ClassOrderer.OrderAnnotation.class)
class AdmissionPoliciesIT {
    private static final String PODS = "/api/v1/namespaces/tenant/pods";
    private static final String DRY_RUN = "?dryRun=All";
    private static final String SECRETS = "/api/v1/namespaces/" + Chart.NAMESPACE + "/secrets";
    private static final AtomicInteger NAMES = new AtomicInteger();

    private static ApiServer server;
    private static Caller admin;
    private static Caller scheduler;
    private static Caller agent1;

    @BeforeAll
    static void install(@TempDir Path folder) throws Exception {
        server = new ApiServer(folder);
        admin = server.admin();
        new Helm(Chart.FOLDER)
                .install()
                .withName(Chart.RELEASE)
                .withNamespace(Chart.NAMESPACE)
                .createNamespace()
                .withKubeConfigContents(server.kubeconfig())
                .set("hideImplicitGpus", true)
                .set("priority.highNamespaces[0]", "kube-system")
                .call();
        admin.post("/api/v1/namespaces", """
            {apiVersion: v1, kind: Namespace, metadata: {name: tenant, labels: {aliquot.io/webhook: ignore}}}""").expectSuccess();
        for (String node : new String[] {"node1", "node2"}) {
            admin.post("/api/v1/nodes", """
                apiVersion: v1
                kind: Node
                metadata: {name: %s, labels: {gpu: "on"}, annotations: {example.com/kept: "yes"}}
                status:
                  capacity: {cpu: "8", aliquot.io/vgpu: "20"}
                  allocatable: {cpu: "8", aliquot.io/vgpu: "20"}
                  conditions: [{type: Ready, status: "True"}]
                """.formatted(node)).expectSuccess();
        }
        admin.post("/api/v1/namespaces/" + Chart.NAMESPACE + "/pods", """
            apiVersion: v1
            kind: Pod
            metadata: {name: agent-of-node1}
            spec: {nodeName: node1, serviceAccountName: aliquot-device-plugin, containers: [{name: c, image: i}]}
            """).expectSuccess();
        scheduler = server.account("aliquot-scheduler");
        agent1 = server.account("aliquot-device-plugin", "agent-of-node1");
        lease("no-leader", 0);
        awaitPolicies();
    }

    /** Waits until every policy denies a request: a policy takes effect some 100 ms after its creation. */
    private static void awaitPolicies() {
        refused().forEach(refused -> eventually(refused, 403));
    }

    /** A request for each of several policies. */
    private static List<Supplier<Response>> refused() {
        String node = "/api/v1/nodes/node1";
        return List.of(
                () -> admin.post(PODS + DRY_RUN, pod("probe", "annotations: {aliquot.io/fence: x}")),
                () -> admin.post(PODS + DRY_RUN, gpuPod("probe").replace("value: void", "value: all")),
                () -> admin.post(
                        PODS + DRY_RUN, pod("probe", "annotations: {nvidia.cdi.k8s.io/pod: nvidia.com/gpu=0}")),
                () -> admin.patch(node + DRY_RUN, annotation("aliquot.io/gpus", "x")),
                () -> admin.patch(
                        node + "/status" + DRY_RUN, "{\"status\": {\"capacity\": {\"nvidia.com/gpumem\": \"1\"}}}"),
                () -> agent1.patch(node + DRY_RUN, annotation("x", "x")),
                () -> scheduler.patch(node + DRY_RUN, annotation("x", "x")),
                () -> scheduler.post(SECRETS + DRY_RUN, "{apiVersion: v1, kind: Secret, metadata: {name: probe}}"),
                () -> scheduler.post(PODS + "/none/binding" + DRY_RUN, binding("none", "{aliquot.io/vgpu.main: x}")),
                () -> scheduler.post(PODS + "/none/binding" + DRY_RUN, fenced("none", "{aliquot.io/vgpu.main: x}")));
    }

    /** Repeats a request until its response has this code. */
    private static void eventually(Supplier<Response> request, int code) {
        Await.await("code " + code, () -> request.get().code() == code);
    }

    @AfterAll
    static void stop() {
        server.close();
    }

    @Test
    void aMountBelowAWritableVolumeGivesAWarning() {
        String nested = gpuPod("nested")
                .replace("# mounts", "- {name: theirs, mountPath: /x}\n    - {name: limits, mountPath: /x/e}");
        String readOnly = nested.replace("emptyDir: {}", "configMap: {name: c}");

        assertThat(admin.post(PODS + DRY_RUN, nested).expectSuccess().warnings())
                .anySatisfy(warning -> assertThat(warning).contains("a mount lies below a writable volume"));
        assertThat(admin.post(PODS + DRY_RUN, readOnly).expectSuccess().warnings())
                .noneSatisfy(warning -> assertThat(warning).contains("writable volume"));
    }

    /** And what Kubernetes does with a pod that requests nothing, where no webhook changes it: the facts behind the warnings. */
    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            quoteCharacter = '"',
            value = {
                "{type: Container, min: {nvidia.com/gpumem: 1000}} | Limit must be set | no default avoids that",
                "{type: Pod, min: {nvidia.com/gpumem: 1000}} | No request is specified | no default avoids that",
                "{type: Container, maxLimitRequestRatio: {nvidia.com/gpumem: 1}, default: {nvidia.com/gpumem: 0}}"
                        + " | request is 0 | no default avoids that",
                "{type: Pod, max: {mig.aliquot.io/1g.10gb: 1}} | No limit is specified | with the default 0 for it",
                "{type: Pod, max: {nvidia.com/gpumem: 8k}}, {type: Container, default: {nvidia.com/gpumem: 0}} | | ",
                "{type: Container, max: {nvidia.com/gpumem: 8k}, default: {nvidia.com/gpumem: 0}} | | ",
                "{type: Container, max: {nvidia.com/gpumem: 8k}} | aliquot-gpu-pods | Kubernetes makes max the default",
                "{type: Container, max: {cpu: 2}, min: {cpu: 1}} | | ",
                "{type: Container, min: {nvidia.com/gpumem: 1000}, default: {nvidia.com/gpumem: 0}}"
                        + " | min value 1k is greater than default value 0 | "
            })
    void aLimitRangeThatRefusesOrChangesMoreThanItSaysGivesAWarning(String limits, String refused, String warning) {
        String path = "/api/v1/namespaces/" + unique();
        admin.post("/api/v1/namespaces", """
            {apiVersion: v1, kind: Namespace, metadata: {name: %s, labels: {aliquot.io/webhook: ignore}}}""".formatted(path.substring(path.lastIndexOf('/') + 1)))
                .expectSuccess();

        Response created = admin.post(
                path + "/limitranges",
                "{apiVersion: v1, kind: LimitRange, metadata: {name: gpus}, spec: {limits: [" + limits + "]}}");
        Response pod = admin.post(path + "/pods" + DRY_RUN, pod("plain", ""));

        assertThat(String.join("\n", created.warnings())).contains(warning == null ? "" : warning);
        assertThat(created.warnings()).hasSize(warning == null ? 0 : 1);
        Response last = created.code() == 201 ? pod : created;
        assertThat(last.code() == 201).as(last.body()).isEqualTo(refused == null);
        assertThat(last.body()).contains(refused == null ? "" : refused);
    }

    @Test
    void aContainerWithWholeCardsMayHaveTheCapabilitySysAdmin() {
        String whole = gpuPod("whole")
                .replace(", nvidia.com/gpumem: 3000", "")
                .replace(
                        "image: gpu-image",
                        "image: gpu-image\n    securityContext: {capabilities: {add: [SYS_ADMIN]}}");

        admin.post(PODS + DRY_RUN, whole).expectSuccess();
        forbidden(
                admin.post(
                        PODS + DRY_RUN,
                        whole.replace("aliquot.io/vgpu: 1", "aliquot.io/vgpu: 1, mig.aliquot.io/1g.10gb: 1")),
                "MIG instances of others");
    }

    @Nested
    class ReservedAnnotations {
        @ParameterizedTest
        @ValueSource(
                strings = {
                    "aliquot.io/vgpu.main",
                    "aliquot.io/visible-devices.main",
                    "aliquot.io/fence",
                    "aliquot.io/resize-fence",
                    "aliquot.io/total-memory-mib",
                    "aliquot.io/total-cores"
                })
        void administratorMayNotWriteThem(String key) {
            String name = create(plainPod());

            forbidden(admin.post(PODS, pod(unique(), "annotations: {%s: forged}".formatted(key))), "scheduler alone");
            forbidden(admin.patch(PODS + "/" + name, annotation(key, "forged")), "scheduler alone");
            forbidden(admin.patch(PODS + "/" + name + "/status", annotation(key, "forged")), "scheduler alone");
            String binding = binding(name, "{%s: forged}".formatted(key));
            forbidden(admin.post(PODS + "/" + name + "/binding", binding), "");
            forbidden(admin.post("/api/v1/namespaces/tenant/bindings", binding), "");
            assertThat(admin.get(PODS + "/" + name).field("spec", "nodeName")).isEqualTo("null");
        }

        @Test
        void administratorMayNotChangeOrRemoveThemAndMayChangeAllElse() {
            lease("pod-a_1", 1);
            String name = create(plainPod());
            scheduler
                    .post(
                            PODS + "/" + name + "/binding",
                            fenced(name, "{aliquot.io/vgpu.main: granted, aliquot.io/fence: pod-a_1/1}"))
                    .expectSuccess();

            for (String path : new String[] {PODS + "/" + name, PODS + "/" + name + "/status"}) {
                forbidden(admin.patch(path, annotation("aliquot.io/vgpu.main", "more")), "scheduler alone");
                forbidden(
                        admin.patch(path, "{\"metadata\": {\"annotations\": {\"aliquot.io/vgpu.main\": null}}}"),
                        "scheduler alone");
                admin.patch(path, annotation("aliquot.io/gpu-placement", "spread"))
                        .expectSuccess();
                admin.patch(path, annotation("example.com/mine", path)).expectSuccess();
            }
            server.kubelet("node1")
                    .patch(PODS + "/" + name + "/status", "{\"status\": {\"phase\": \"Running\"}}")
                    .expectSuccess();
            assertThat(admin.get(PODS + "/" + name).field("metadata", "annotations", "aliquot.io/vgpu.main"))
                    .isEqualTo("granted");
        }
    }

    @Test
    void onlyPodsOfNamedNamespacesMayBeOfHighPriority() {
        String high = pod(unique(), "annotations: {aliquot.io/priority: high}");
        String name = create(plainPod());

        for (String path : new String[] {PODS + "/" + name, PODS + "/" + name + "/status"}) {
            forbidden(admin.patch(path, annotation("aliquot.io/priority", "high")), "write normal or low");
            admin.patch(path, annotation("aliquot.io/priority", "low")).expectSuccess();
        }
        forbidden(admin.post(PODS, high), "kube-system: write normal or low");
        forbidden(admin.post(PODS + "/" + name + "/binding", binding(name, "{aliquot.io/priority: high}")), "");
        admin.post("/api/v1/namespaces/kube-system/pods" + DRY_RUN, high).expectSuccess();
    }

    /** By annotations of the namespace; the chart's values are their defaults. */
    @Nested
    class CoreRules {
        private static final String NAMESPACE = "walled";
        private static final String WALLED = "/api/v1/namespaces/" + NAMESPACE + "/pods";

        @Test
        void aNamespaceAllowsItsPodsSomeCorePoliciesAndPriorities() {
            String name = unique();
            String share =
                    gpuPod(name).replace("nvidia.com/gpumem: 3000", "nvidia.com/gpumem: 3000, nvidia.com/gpucores: 30");
            // Before the rules, which existing pods survive
            admin.post("/api/v1/namespaces", """
                {apiVersion: v1, kind: Namespace, metadata: {name: walled, labels: {aliquot.io/webhook: ignore}}}""").expectSuccess();
            admin.post(WALLED, gpuPod(name)).expectSuccess();
            admin.patch("/api/v1/namespaces/walled", """
                {"metadata": {"annotations": {"aliquot.io/allowed-core-policies": "elastic, none",
                 "aliquot.io/allowed-priorities": "low", "aliquot.io/require-cores": "true"}}}""").expectSuccess();
            Await.await(
                    "the rules",
                    () -> admin.post(WALLED + DRY_RUN, share.replace(name, "x")).code() == 403);

            forbidden(
                    admin.post(WALLED, annotated(share, "elastic", "normal")),
                    "may not have the priority normal: set aliquot.io/priority to low");
            forbidden(
                    admin.post(WALLED, annotated(share, "fixed", "low")),
                    "may not have the core policy fixed: set aliquot.io/core-policy to elastic or none");
            forbidden(admin.post(WALLED, share.replace(name, unique())), "may not have the core policy fixed");
            forbidden(
                    admin.post(WALLED, annotated(gpuPod(name), "elastic", "low")),
                    "must request nvidia.com/gpucores in the namespace walled: add it to the limits of main");
            admin.post(WALLED, annotated(share, "elastic", "low")).expectSuccess();
            // Whole cards and pods without GPUs have no part of one that costs others.
            admin.post(WALLED, gpuPod(unique()).replace(", nvidia.com/gpumem: 3000", ""))
                    .expectSuccess();
            admin.post(WALLED, plainPod()).expectSuccess();

            forbidden(admin.patch(WALLED + "/" + name, annotation("aliquot.io/core-policy", "fixed2")), "core policy");
            forbidden(admin.patch(WALLED + "/" + name, annotation("aliquot.io/priority", "high")), "priority");
            admin.patch(WALLED + "/" + name, annotation("example.com/x", "y")).expectSuccess();
            admin.patch(WALLED + "/" + name, annotation("aliquot.io/priority", "low"))
                    .expectSuccess();
            forbidden(
                    admin.patch(
                            WALLED + "/" + name, "{\"metadata\": {\"annotations\": {\"aliquot.io/priority\": null}}}"),
                    "priority");
        }

        private static String annotated(String pod, String policy, String priority) {
            return pod.replaceFirst(
                    "metadata: \\{name: [a-z0-9]+",
                    "metadata: {name: " + unique() + ", annotations: {aliquot.io/core-policy: " + policy
                            + ", aliquot.io/priority: " + priority + "}");
        }

        @Test
        void aResizeRespectsThem() {
            lease("pod-a_1", 1);
            String path = "/api/v1/namespaces/walled2";
            admin.post("/api/v1/namespaces", """
                {apiVersion: v1, kind: Namespace, metadata: {name: walled2, labels: {aliquot.io/webhook: ignore},
                 annotations: {aliquot.io/allowed-core-policies: fixed, aliquot.io/require-cores: "true"}}}""").expectSuccess();
            String name = unique();
            admin.post(path + "/pods", pod(name, "annotations: {}")).expectSuccess();
            String vgpu = "GPU-00000000-0000-0000-0000-000000000001 memory=1000Mi cores=%d policy=%s context=0Mi\\n";
            scheduler
                    .post(
                            path + "/pods/" + name + "/binding",
                            fenced(
                                    name,
                                    "{aliquot.io/fence: pod-a_1/1, aliquot.io/vgpu.main: \""
                                            + vgpu.formatted(30, "fixed") + "\"}"))
                    .expectSuccess();
            String resize =
                    "{\"metadata\": {\"labels\": {\"aliquot.io/resized\": \"true\"}, \"annotations\": {\"aliquot.io/resize-fence\": \"pod-a_1/1\", \"aliquot.io/vgpu.main\": \"%s\"}}}";

            forbidden(
                    scheduler.patch(path + "/pods/" + name, resize.formatted(vgpu.formatted(30, "none"))),
                    "may not be resized to this core policy or without cores; allowed: fixed");
            forbidden(
                    scheduler.patch(path + "/pods/" + name, resize.formatted(vgpu.formatted(0, "fixed"))),
                    "may not be resized");
            scheduler
                    .patch(path + "/pods/" + name, resize.formatted(vgpu.formatted(50, "fixed")))
                    .expectSuccess();
        }
    }

    @Nested
    class Resize {
        private static final String GRANTED = "{aliquot.io/vgpu.main: granted, aliquot.io/fence: pod-a_1/3}";

        @Test
        void leaderChangesAPodsAllocationIfItKnowsThePodsVersion() {
            String name = bound();
            String version = admin.get(PODS + "/" + name).field("metadata", "resourceVersion");

            scheduler
                    .patch(PODS + "/" + name, resize(version, "aliquot.io/resize-fence", "pod-a_1/3"))
                    .expectSuccess();
            assertThat(admin.get(PODS + "/" + name).field("metadata", "annotations", "aliquot.io/vgpu.main"))
                    .isEqualTo("more");
            assertThat(scheduler
                            .patch(PODS + "/" + name, resize(version, "aliquot.io/resize-fence", "pod-a_1/3"))
                            .code())
                    .isEqualTo(409);
        }

        @Test
        void formerLeaderMayNotResize() {
            String name = bound();
            String version = admin.get(PODS + "/" + name).field("metadata", "resourceVersion");

            forbidden(
                    scheduler.patch(PODS + "/" + name, resize(version, "aliquot.io/resize-fence", "pod-a_1/2")),
                    "no longer leads");
        }

        /** Without the label the API server would not look at the fence. */
        @Test
        void resizeSetsTheLabelByWhichItsFenceIsChecked() {
            String name = bound();
            String version = admin.get(PODS + "/" + name).field("metadata", "resourceVersion");
            String resize = resize(version, "aliquot.io/resize-fence", "pod-a_1/3");

            forbidden(
                    scheduler.patch(
                            PODS + "/" + name, resize.replace("\"labels\": {\"aliquot.io/resized\": \"true\"},", "")),
                    "must set the label");
            forbidden(
                    scheduler.patch(PODS + "/" + name, "{\"metadata\": {\"labels\": {\"aliquot.io/resized\": \"x\"}}}"),
                    "only");
        }

        @Test
        void resizeKeepsTheFenceOfTheBinding() {
            String name = bound();
            String version = admin.get(PODS + "/" + name).field("metadata", "resourceVersion");
            String resize = resize(version, "aliquot.io/resize-fence", "pod-a_1/3")
                    .replace("\"annotations\": {", "\"annotations\": {\"aliquot.io/total-memory-mib\": \"4000\", ");

            forbidden(
                    scheduler.patch(
                            PODS + "/" + name,
                            resize.replace(
                                    "\"annotations\": {", "\"annotations\": {\"aliquot.io/fence\": \"pod-b_1/4\", ")),
                    "only");
            forbidden(
                    scheduler.patch(PODS + "/" + name, resize(version, "aliquot.io/fence", "pod-a_1/3")),
                    "no longer leads");
            scheduler.patch(PODS + "/" + name, resize).expectSuccess();
            assertThat(admin.get(PODS + "/" + name).field("metadata", "annotations", "aliquot.io/fence"))
                    .isEqualTo("pod-a_1/3");
            assertThat(admin.get(PODS + "/" + name).field("metadata", "annotations", "aliquot.io/total-memory-mib"))
                    .isEqualTo("4000");
        }

        @Test
        void schedulerMayChangeNothingElseOfAPod() {
            String name = bound();

            for (String key : new String[] {
                "example.com/mine",
                "aliquot.io/fence",
                "aliquot.io/resize-fence",
                "aliquot.io/visible-devices.main",
                "aliquot.io/total-memory-mib"
            }) {
                forbidden(scheduler.patch(PODS + "/" + name, annotation(key, "x")), "only");
            }
            forbidden(scheduler.patch(PODS + "/" + name, "{\"metadata\": {\"labels\": {\"x\": \"y\"}}}"), "only");
        }

        /** kube-scheduler's role lets the account write the status, and with it labels and annotations. */
        @Test
        void schedulerWritesOfAPodsStatusWhatKubeSchedulerWrites() {
            String name = bound();
            String status = PODS + "/" + name + "/status";
            String conditions = "{\"status\": {\"conditions\": [{\"type\": \"%s\", \"status\": \"True\"}]}}";

            for (String type : new String[] {"PodScheduled", "DisruptionTarget"}) {
                scheduler.strategicPatch(status, conditions.formatted(type)).expectSuccess();
            }
            scheduler
                    .patch(
                            PODS + "/" + create(plainPod()) + "/status",
                            "{\"status\": {\"nominatedNodeName\": \"node1\"}}")
                    .expectSuccess();
            for (String type : new String[] {"Ready", "ContainersReady", "example.com/gate"}) {
                forbidden(scheduler.strategicPatch(status, conditions.formatted(type)), "except");
            }
            for (String patch : new String[] {
                "{\"phase\": \"Succeeded\"}",
                "{\"podIP\": \"10.0.0.1\", \"podIPs\": [{\"ip\": \"10.0.0.1\"}]}",
                "{\"hostIP\": \"10.0.0.1\", \"hostIPs\": [{\"ip\": \"10.0.0.1\"}]}",
                "{\"containerStatuses\": [{\"name\": \"main\", \"image\": \"i\", \"imageID\": \"\", \"ready\": true, \"restartCount\": 0}]}"
            }) {
                forbidden(scheduler.patch(status, "{\"status\": %s}".formatted(patch)), "except");
            }
            for (String patch : new String[] {
                "{\"annotations\": {\"aliquot.io/vgpu.main\": \"more\"}}",
                "{\"annotations\": {\"aliquot.io/vgpu.main\": \"more\", \"aliquot.io/resize-fence\": \"pod-a_1/3\"}}",
                "{\"annotations\": {\"aliquot.io/visible-devices.main\": \"all\"}}",
                "{\"labels\": {\"app\": \"other\"}}",
                "{\"finalizers\": [\"example.com/forever\"]}"
            }) {
                forbidden(scheduler.patch(status, "{\"metadata\": %s}".formatted(patch)), "metadata");
            }
            assertThat(admin.get(PODS + "/" + name).field("metadata", "annotations", "aliquot.io/vgpu.main"))
                    .isEqualTo("granted");
        }

        /** No role gives the account these rights today; a later Kubernetes' role of kube-scheduler may. */
        @ParameterizedTest
        @CsvSource(
                delimiter = '|',
                value = {
                    "resize | {'spec': {'containers': [{'name': 'main', 'resources': {'requests': {'cpu': '2'}}}]}}",
                    "ephemeralcontainers | {'spec': {'ephemeralContainers': [{'name': 'debug', 'image': 'i'}]}}"
                },
                quoteCharacter = '"')
        void schedulerWritesNoOtherSubresource(String subresource, String patch) {
            assumeTrue(
                    admin.get("/api/v1").body().contains("\"pods/" + subresource + "\""),
                    "this version of Kubernetes has no pods/" + subresource);
            String path = PODS + "/" + bound() + "/" + subresource + DRY_RUN;
            Caller mighty = server.mighty("system:serviceaccount:" + Chart.NAMESPACE + ":aliquot-scheduler");

            admin.strategicPatch(path, patch.replace('\'', '"')).expectSuccess();
            forbidden(mighty.strategicPatch(path, patch.replace('\'', '"')), "the scheduler may not write");
            // The API server leaves metadata as it is in both.
            assertThat(admin.patch(path, annotation("aliquot.io/vgpu.main", "more"))
                            .expectSuccess()
                            .field("metadata", "annotations", "aliquot.io/vgpu.main"))
                    .isEqualTo("granted");
        }

        /**
         * How the scheduler resolves a Binding without a response: it writes a new version of the pod, after which a
         * Binding for the old version fails.
         */
        @Test
        void bindingForAnOlderVersionOfThePodIsAConflict() {
            lease("pod-a_1", 3);
            String name = create(plainPod());
            String version = admin.get(PODS + "/" + name).field("metadata", "resourceVersion");

            scheduler
                    .patch(PODS + "/" + name, annotation("aliquot.io/moved-on", version))
                    .expectSuccess();
            String old =
                    fenced(name, GRANTED).replace("metadata: {", "metadata: {resourceVersion: \"" + version + "\", ");
            assertThat(old).contains(version);
            assertThat(scheduler.post(PODS + "/" + name + "/binding", old).code())
                    .isEqualTo(409);
            assertThat(admin.get(PODS + "/" + name).field("spec", "nodeName")).isEqualTo("null");
        }

        private String bound() {
            lease("pod-a_1", 3);
            String name = create(plainPod().replace("resources: {}", "resources: {requests: {cpu: 1}}"));
            scheduler
                    .post(PODS + "/" + name + "/binding", fenced(name, GRANTED))
                    .expectSuccess();
            return name;
        }

        private static String resize(String version, String key, String value) {
            return """
                {"metadata": {"resourceVersion": "%s", "labels": {"aliquot.io/resized": "true"},
                 "annotations": {"aliquot.io/vgpu.main": "more", "%s": "%s"}}}""".formatted(version, key, value);
        }
    }

    @Nested
    class Fence {
        @Test
        void currentLeaderBinds() {
            lease("pod-a_1", 3);
            String name = create(plainPod());

            scheduler
                    .post(
                            PODS + "/" + name + "/binding",
                            fenced(name, "{aliquot.io/vgpu.main: granted, aliquot.io/fence: pod-a_1/3}"))
                    .expectSuccess();
            assertThat(admin.get(PODS + "/" + name).field("spec", "nodeName")).isEqualTo("node1");
            assertThat(admin.get(PODS + "/" + name).field("metadata", "annotations", "aliquot.io/vgpu.main"))
                    .isEqualTo("granted");
        }

        @ParameterizedTest
        @ValueSource(strings = {"pod-a_1/2", "pod-b_2/3", "pod-a_1", ""})
        void formerLeaderMayNotBind(String fence) {
            lease("pod-a_1", 3);
            String name = create(plainPod());
            String body = fenced(name, "{aliquot.io/vgpu.main: granted, aliquot.io/fence: \"%s\"}".formatted(fence));
            forbidden(scheduler.post(PODS + "/" + name + "/binding", body), "no longer leads");
            forbidden(scheduler.post("/api/v1/namespaces/tenant/bindings", body), "no longer leads");
        }

        @Test
        void gpuPodIsNotBoundWithoutAFence() {
            lease("pod-a_1", 3);
            String name = create(plainPod());

            forbidden(
                    scheduler.post(PODS + "/" + name + "/binding", fenced(name, "{aliquot.io/vgpu.main: granted}")),
                    "must carry aliquot.io/fence");
        }

        /** The API server copies them to the pod. */
        @ParameterizedTest
        @ValueSource(strings = {"annotations: {example.com/mine: x, ", "labels: {app: other, "})
        void schedulersBindingGivesAPodNoOtherMetadata(String metadata) {
            lease("pod-a_1", 3);
            String name = create(plainPod());
            String binding = fenced(name, "{aliquot.io/vgpu.main: granted, aliquot.io/fence: pod-a_1/3}");

            forbidden(
                    scheduler.post(
                            PODS + "/" + name + "/binding",
                            binding.replace(metadata.substring(0, metadata.indexOf('{') + 1), metadata)),
                    "Bindings may carry only");
        }

        @Test
        void otherSchedulersBindPodsWithoutGpus() {
            lease("pod-a_1", 3);
            String name = create(plainPod());

            admin.post(PODS + "/" + name + "/binding", binding(name, "{}")).expectSuccess();
        }

        @Test
        void otherSchedulersBindingMayNotCarryTheLabel() {
            lease("pod-a_1", 3);
            String name = create(plainPod());

            for (String annotations : new String[] {"{}", "{aliquot.io/fence: pod-a_1/3}"}) {
                Response response = admin.post(PODS + "/" + name + "/binding", fenced(name, annotations));
                assertThat(response.code()).isEqualTo(403);
            }
            forbidden(admin.post(PODS + "/" + name + "/binding", fenced(name, "{}")), "only the Aliquot scheduler");
        }

        @ParameterizedTest
        @ValueSource(strings = {"aliquot.io/vgpu.main", "aliquot.io/visible-devices.main", "aliquot.io/fence"})
        void schedulersBindingWithGpusMustCarryTheLabel(String key) {
            lease("pod-a_1", 3);
            String name = create(plainPod());

            forbidden(
                    scheduler.post(PODS + "/" + name + "/binding", binding(name, "{%s: pod-a_1/3}".formatted(key))),
                    "must carry the label");
        }

        @Test
        void missingLeaseDeniesTheSchedulersBindingsAndNoOthers() {
            lease("pod-a_1", 3);
            admin.delete(LEASES + "/aliquot-scheduler").expectSuccess();
            String name = create(plainPod());
            String ours = fenced(name, "{aliquot.io/vgpu.main: granted, aliquot.io/fence: pod-a_1/3}");

            String path = PODS + "/" + name + "/binding";
            Await.await("a refusal", () -> scheduler.post(path + DRY_RUN, ours).code() != 201);
            assertThat(scheduler.post(path, ours).field("message")).contains("no params found");
            admin.post(PODS + "/" + name + "/binding", binding(name, "{}")).expectSuccess();
        }
    }

    /** Without the policy each of these pods is created; with one of the plugins on its node it would see GPUs. */
    @Nested
    class CdiAnnotations {
        @ParameterizedTest
        @ValueSource(
                strings = {
                    "nvidia.cdi.k8s.io/pod: 'nvidia.com/gpu=all'",
                    "nvidia.cdi.k8s.io/container.main: 'nvidia.com/gpu=0'",
                    "nvidia.cdi.k8s.io/container.side: 'vendor.example/nic=0,nvidia.com/gpu=0'",
                    "nvidia.cdi.k8s.io/container.main: 'management.nvidia.com/gpu=all'",
                    "nvidia.cdi.k8s.io/container.main: 'vendor.example/nic=0, management.nvidia.com/gpu=all'",
                    "nvidia.cdi.k8s.io: 'nvidia.com/gpu=all'",
                    "cdi.k8s.io/any: 'nvidia.com/gpu=all'",
                    "cdi.k8s.io/any: 'runtime.nvidia.com/gpu=all'",
                    "cdi.k8s.io/claim: 'k8s.gpu.nvidia.com/claim=0a1b'",
                    "cdi-devices.noderesource.dev/container.main: \"- vendor.example/nic=0\\n- nvidia.com/gpu=0\"",
                    "cdi-devices.nri.io/pod: \"[nvidia.com/gpu=0]\"",
                    "cdi.nri.io/container.main: 'nvidia.com/mig=0:1'",
                    // escapes, tags, anchors, folded texts, and what NVIDIA's runtime completes to its own kind
                    "cdi-devices.noderesource.dev/pod: '[\"nvidia.com\\x2fgpu=all\"]'",
                    "cdi-devices.nri.io/pod: '[\"nvidia.com\\/gpu=all\"]'",
                    "cdi-devices.nri.io/pod: '[!!binary bnZpZGlhLmNvbS9ncHU9YWxs]'",
                    "cdi-devices.nri.io/pod: '[&a vendor.example/nic=0, *a]'",
                    "cdi.k8s.io/any: 'all'",
                    "cdi.k8s.io/any: '0'",
                    "cdi.k8s.io/any: 'NVIDIA.com/gpu=0'",
                    "cdi.k8s.io/any: 'aliquot.io/vgpu=0'",
                    "nvidia.com/container.main.gpus.devices: 'all'",
                    "nvidia.com/container.main.gpus.devices: 'GPU-8f6e8f0c-0000-0000-0000-000000000000'",
                    "example.com/container.main.gpus.devices: '0'",
                    "devices.noderesource.dev/container.main: \"- path: /dev/x\\n  major: 195\\n  minor: 0\"",
                    "devices.nri.io/pod: \"- path: /dev/nvidia0\"",
                    "devices.gke.io/container.main: \"- path: /dev/nvidiactl\"",
                    "devices.gke.io/container.main: \"- path: /dev/char/195:0\"",
                    "devices.gke.io/container.main: \"- path: /dev/dri/renderD128\"",
                    "devices.gke.io/container.main: \"- path: /dev/x/../nvidia0\"",
                    "devices.gke.io/container.main: \"- path: /dev\"",
                    "mounts.nri.io: \"- {source: /x, destination: /etc/aliquot, type: bind, options: [bind]}\"",
                    "mounts.noderesource.dev/pod: \"- {source: /var/lib, destination: /x, type: bind, options: [bind]}\"",
                    "mounts.nri.io/pod: \"- {source: /proc/1/root, destination: /x, type: bind, options: [bind]}\"",
                    "mounts.nri.io/pod: \"- {source: /x, destination: /etc/ld.so.preload, type: bind}\"",
                    "mounts.nri.io/pod: \"- {source: x, destination: /y, type: overlay, options: [lowerdir=/]}\"",
                    "io.kubernetes.cri-o.Devices: '/dev/fuse,/dev/nvidia0:/dev/x:rwm'",
                    "devices.crio.io: '/dev/nvidia-uvm'"
                })
        void ofNvidiasDevicesAreRefused(String annotation) {
            forbidden(
                    admin.post(PODS, pod(unique(), "annotations: {" + annotation + "}")), "no scheduler has allocated");
            String name = unique();
            String metadata = "metadata: {name: %s%s}";
            forbidden(
                    admin.post(
                            PODS,
                            gpuPod(name)
                                    .replace(
                                            metadata.formatted(name, ""),
                                            metadata.formatted(name, ", annotations: {" + annotation + "}"))),
                    "no scheduler has allocated");
        }

        @ParameterizedTest
        @ValueSource(
                strings = {
                    "nvidia.cdi.k8s.io/pod: 'vendor.example/nic=0'",
                    "cdi.k8s.io/nic: 'vendor.example/nic=0,vendor.example/nic=1'",
                    "cdi-devices.nri.io/container.main: '- notnvidia.com/gpu=0'",
                    "cdi-devices.noderesource.dev/pod: '[\"vendor.example/nic=0\"]'",
                    "devices.gke.io/container.main: '- path: /dev/infiniband/uverbs0'",
                    "mounts.nri.io/pod: '- {source: /opt/data, destination: /data, type: bind, options: [bind, ro]}'",
                    "io.kubernetes.cri-o.Devices: '/dev/fuse,/dev/net/tun:/dev/net/tun:rwm'",
                    "example.com/container.main.gpus: 'all'",
                    "example.com/note: 'nvidia.com/gpu=all'",
                    "nvidia.com/cdi: 'nvidia.com/gpu=all'"
                })
        void ofOthersPassUntouched(String annotation) {
            String name = create(pod(unique(), "annotations: {" + annotation + "}"));

            String value = annotation.replaceAll(".*'(.*)'", "$1");
            assertThat(admin.get(PODS + "/" + name).body()).contains(value.replace("\"", "\\\""));
        }

        @Test
        void noUpdateAndNoBindingAddsOne() {
            String name = create(plainPod());
            String key = "nvidia.cdi.k8s.io/container.main";
            for (String path : List.of(PODS + "/" + name, PODS + "/" + name + "/status")) {
                forbidden(admin.patch(path, annotation(key, "nvidia.com/gpu=0")), key);
            }
            forbidden(
                    admin.post(PODS + "/" + name + "/binding", binding(name, "{" + key + ": nvidia.com/gpu=0}")), key);
            admin.patch(PODS + "/" + name, annotation(key, "vendor.example/nic=0"))
                    .expectSuccess();
            forbidden(admin.patch(PODS + "/" + name, annotation(key, "nvidia.com/gpu=0")), key);
        }

        @Test
        void aRefusalNamesThePartThatWasNotUnderstood() {
            Response refused = admin.post(
                    PODS,
                    pod(
                            unique(),
                            "annotations: {cdi.k8s.io/any: \"vendor.example/nic=0,vendor.example/nic\\\\x3d1\"}"));

            forbidden(refused, "\"vendor.example/nic\\x3d1\" of the annotation cdi.k8s.io/any");
            forbidden(
                    admin.post(PODS, pod(unique(), "annotations: {cdi.k8s.io/any: " + "a".repeat(5000) + "}")),
                    "more than 4096 characters");
        }

        @Test
        void theAccountOfAnotherSchedulerMayWriteThem() {
            String name = create(plainPod());
            String key = "nvidia.com/container.main.gpus.devices";
            server.mighty("system:serviceaccount:kai-scheduler:binder")
                    .patch(PODS + "/" + name, annotation(key, "GPU-0"))
                    .expectSuccess();
            forbidden(admin.patch(PODS + "/" + name, annotation(key, "all")), key);
        }

        @ParameterizedTest
        @ValueSource(strings = {"gpu-operator", "kube-system", Chart.NAMESPACE})
        void namespacesOfTheOperatorAndOfTheSystemAreExcepted(String namespace) {
            admin.post(
                    "/api/v1/namespaces",
                    "{apiVersion: v1, kind: Namespace, metadata: {name: %s}}".formatted(namespace));
            String pods = "/api/v1/namespaces/" + namespace + "/pods";
            String name = unique();
            String key = "nvidia.cdi.k8s.io/container.main";

            admin.post(pods, pod(name, "annotations: {" + key + ": management.nvidia.com/gpu=all}"))
                    .expectSuccess();
            admin.patch(pods + "/" + name, annotation(key, "nvidia.com/gpu=all"))
                    .expectSuccess();
        }
    }

    @Nested
    class GpuPods {
        @Test
        void podAsTheWebhookStoresItIsAllowed() {
            admin.post(PODS, gpuPod(unique())).expectSuccess();
        }

        @ParameterizedTest
        @ValueSource(
                strings = {
                    "a-container-whose-name-has-forty-six-chars-xxx",
                    "a-container-whose-name-has-forty-seven-chars-xx",
                    "a-container-whose-name-has-as-many-characters-as-there-may-be-x"
                })
        void longContainerNamesAreTruncatedAndHashedAsTheSchedulerDoes(String container) {
            assertThat(container.length()).isIn(46, 47, 63);
            String pod = gpuPod(unique())
                    .replace("name: main", "name: " + container)
                    .replace(Annotations.visibleDevices("main"), Annotations.visibleDevices(container))
                    .replace(Annotations.vgpu("main"), Annotations.vgpu(container));

            admin.post(PODS, pod).expectSuccess();
        }

        @Test
        void twoContainersWithTheSameAnnotationAreDenied() {
            // 46 characters: the truncated and hashed form of the longer name
            String one = "a-container-whose-name-has-forty-seven-chars-xx";
            String key = Annotations.vgpu(one).substring(Annotations.VGPU_PREFIX.length());
            String pod = gpuPod(unique())
                    .replace("name: main", "name: " + one)
                    .replace(Annotations.visibleDevices("main"), Annotations.visibleDevices(one))
                    .replace(Annotations.vgpu("main"), Annotations.vgpu(one));
            int begin = pod.indexOf("  - name: " + one);
            String second = pod.substring(begin, pod.indexOf("  - name: side")).replace("name: " + one, "name: " + key);

            forbidden(admin.post(PODS, pod + second), "share an annotation");
        }

        @ParameterizedTest
        @CsvSource(
                delimiter = '|',
                value = {
                    "schedulerName: aliquot-scheduler | schedulerName: other | placed by aliquot-scheduler",
                    "schedulerName: aliquot-scheduler | restartPolicy: Always | placed by aliquot-scheduler",
                    "schedulerName: aliquot-scheduler | schedulerName: aliquot-scheduler~  nodeName: node1 | remove spec.nodeName",
                    "visible-devices.main | visible-devices.side | must take NVIDIA_VISIBLE_DEVICES",
                    "name: NVIDIA_VISIBLE_DEVICES, valueFrom | name: NVIDIA_VISIBLE, valueFrom | must take NVIDIA_VISIBLE_DEVICES",
                    "env: [{name: NVIDIA_VISIBLE_DEVICES, valueFrom | env: [{name: NVIDIA_VISIBLE_DEVICES, value: all}, {name: NVIDIA_VISIBLE_DEVICES, valueFrom | must take NVIDIA_VISIBLE_DEVICES",
                    "aliquot.io/vgpu.main | aliquot.io/vgpu.side | limit file at /etc/aliquot",
                    "path: vgpu | path: other | limit file at /etc/aliquot",
                    "mountPath: /etc/aliquot | mountPath: /etc/other | limit file at /etc/aliquot",
                    "readOnly: true | readOnly: false | limit file at /etc/aliquot",
                    "readOnly: true | subPath: vgpu, readOnly: true | limit file at /etc/aliquot",
                    "- {name: limits, mountPath | - {name: theirs, mountPath | limit file at /etc/aliquot",
                    "value: void | value: all | container side requests no GPU",
                    "value: void | value: '' | container side requests no GPU",
                    "name: NVIDIA_VISIBLE_DEVICES, value: void | name: OTHER, value: void | container side requests no GPU",
                    "{name: NVIDIA_VISIBLE_DEVICES, value: void} | {name: NVIDIA_VISIBLE_DEVICES, value: void}, {name: NVIDIA_VISIBLE_DEVICES, value: all} | container side requests no GPU",
                    "name: first, image: i, env: [{name: NVIDIA_VISIBLE_DEVICES, value: void}] | name: first, image: i | container first requests no GPU",
                    "image: gpu-image | image: gpu-image~    securityContext: {privileged: true} | privileged container",
                    "image: gpu-image | image: gpu-image~    securityContext: {capabilities: {add: [CAP_SYS_ADMIN]}} | remove SYS_ADMIN",
                })
        void podThatWasChangedAfterTheWebhookIsDenied(String from, String to, String why) {
            String changed = gpuPod(unique()).replace(from, to.replace("~", "\n"));

            forbidden(admin.post(PODS, changed), why);
        }

        @ParameterizedTest
        @ValueSource(
                strings = {
                    "nvidia.com/gpu",
                    "nvidia.com/gpu.shared",
                    "nvidia.com/priority",
                    "aliyun.com/gpu",
                    "aliyun.com/gpu-mem",
                    "aliyun.com/gpu-core.percentage"
                })
        void podThatStillNamesAResourceThatTheWebhookReplacesIsDenied(String resource) {
            String amounts = "limits: {%1$s: 1}, requests: {%1$s: 1}".formatted(resource);
            String beside = gpuPod(unique())
                    .replace("  - name: side\n", "  - name: side\n    resources: {%s}\n".formatted(amounts));
            String alone =
                    pod(unique(), "annotations: {}").replace("resources: {}", "resources: {%s}".formatted(amounts));

            forbidden(admin.post(PODS, beside), "container side requests a resource");
            forbidden(
                    admin.post(
                            PODS, alone.replace("  containers:", "  schedulerName: aliquot-scheduler\n  containers:")),
                    "container main requests a resource");
            // A pod of another device plugin, for another scheduler.
            admin.post(PODS, alone).expectSuccess();
        }

        @ParameterizedTest
        @ValueSource(
                strings = {
                    "/etc/ld.so.preload",
                    "etc/ld.so.preload",
                    "/etc/ld.so.preload/",
                    "/etc//ld.so.preload",
                    "/etc/./ld.so.preload",
                    "/etc",
                    "/",
                    "/etc/aliquot/vgpu",
                    "/etc/aliquot/",
                    "/usr/local",
                    "/usr/local/aliquot/region"
                })
        void mountOverAReservedPathIsDenied(String path) {
            forbidden(
                    admin.post(
                            PODS,
                            gpuPod(unique()).replace("# mounts", "- {name: theirs, mountPath: \"" + path + "\"}")),
                    "choose other paths");
        }

        @Test
        void terminationMessageAtAReservedPathIsDenied() {
            forbidden(
                    admin.post(
                            PODS,
                            gpuPod(unique())
                                    .replace(
                                            "image: gpu-image",
                                            "image: gpu-image\n    terminationMessagePath: /etc/ld.so.preload")),
                    "choose other paths");
        }

        @ParameterizedTest
        @ValueSource(strings = {"/data", "/etc/app", "/usr/lib/x", "relative"})
        void mountElsewhereIsAllowed(String path) {
            admin.post(PODS, gpuPod(unique()).replace("# mounts", "- {name: theirs, mountPath: \"" + path + "\"}"))
                    .expectSuccess();
        }

        @Test
        void podThatRequestsZeroGpusIsNoGpuPod() {
            admin.post(PODS, plainPod().replace("resources: {}", "resources: {limits: {aliquot.io/vgpu: 0}}"))
                    .expectSuccess();
        }

        @ParameterizedTest
        @ValueSource(
                strings = {"aliquot.io/vgpu", "nvidia.com/gpumem", "nvidia.com/gpumem-percentage", "nvidia.com/gpucores"
                })
        void eachGpuResourceMakesAPodAGpuPod(String resource) {
            forbidden(
                    admin.post(
                            PODS,
                            plainPod().replace("resources: {}", "resources: {limits: {%s: 1}}".formatted(resource))),
                    "a pod that requests vGPUs is placed by aliquot-scheduler, and this one names default-scheduler:"
                            + " Aliquot's webhook is not called because the namespace tenant has the label"
                            + " aliquot.io/webhook=ignore");
        }

        @Test
        void largePodStaysWithinTheApiServersCelCostLimit() {
            var pod = new StringBuilder(gpuPod(unique()));
            String env = "{name: VARIABLE_%d, value: something}, ";
            for (int container = 0; container < 60; container++) {
                pod.append("  - {name: extra-%d, image: i, env: [".formatted(container));
                for (int i = 0; i < 60; i++) {
                    pod.append(env.formatted(i));
                }
                pod.append("{name: NVIDIA_VISIBLE_DEVICES, value: void}]}\n");
            }
            var mounts = new StringBuilder();
            for (int i = 0; i < 100; i++) {
                mounts.append("- {name: theirs, mountPath: /some/where/far/down/in/the/tree/%d}\n    ".formatted(i));
            }

            admin.post(PODS, pod.toString().replace("# mounts", mounts)).expectSuccess();
        }

        /** Also not by the conditions of the webhooks, of which those for GPU pods refuse a pod if they cannot be evaluated. */
        @Test
        void aVeryLargePodWithoutGpusIsNotRefused() {
            admin.post("/api/v1/namespaces", "{apiVersion: v1, kind: Namespace, metadata: {name: neighbor}}")
                    .expectSuccess();
            var annotations = new StringBuilder("annotations: {");
            for (int i = 0; i < 10_000; i++) {
                annotations.append("a-%d: x, ".formatted(i));
            }
            var pod = new StringBuilder(pod(unique(), annotations.append("}").toString()));
            for (int container = 0; container < 200; container++) {
                pod.append("  - {name: extra-%d, image: i, resources: {limits: {cpu: 1, memory: 1Mi}}, env: ["
                        .formatted(container));
                for (int i = 0; i < 325; i++) {
                    pod.append("{name: A_%d}, ".formatted(i));
                }
                pod.append("]}\n");
            }

            admin.post("/api/v1/namespaces/neighbor/pods" + DRY_RUN, pod.toString())
                    .expectSuccess();
        }

        @Test
        void ephemeralContainerWithoutVoidDevicesIsDenied() {
            String name = unique();
            admin.post(PODS, gpuPod(name)).expectSuccess();
            String path = PODS + "/" + name + "/ephemeralcontainers";
            String container =
                    "{\"spec\": {\"ephemeralContainers\": [{\"name\": \"debug\", \"image\": \"i\", \"env\": [%s]}]}}";

            forbidden(admin.patch(path, container.formatted("")), "kubectl debug");
            admin.patch(path, container.formatted("{\"name\": \"NVIDIA_VISIBLE_DEVICES\", \"value\": \"void\"}"))
                    .expectSuccess();
        }
    }

    @Nested
    class Upgrade {
        /** HAMi's nodes have Aliquot's default label. An upgrade is not stopped by them. */
        @Test
        void warnsOfHamisNodesAndAnInstallationIsRefusedUntilTheValuesSayWhatIsWhose() throws IOException {
            admin.post("/api/v1/nodes", """
                {apiVersion: v1, kind: Node, metadata: {name: hami-node, labels: {gpu: "on"}, annotations: {
                  hami.io/node-nvidia-register: "GPU-0,10,122880,100,NVIDIA-A100,0,true:",
                  hami.io/node-handshake: Requesting_2026.11.28 03:00:00}}}""").expectSuccess();
            try {
                assertThat(upgrade())
                        .contains("WARNING: HAMi or ACK seem to share the GPUs of 1 nodes (hami-node)")
                        .contains("--set sharedNames=true");
                assertThatThrownBy(() -> install(Map.of()))
                        .hasMessageContaining("HAMi serves the GPUs of 1 nodes (hami-node)")
                        .hasMessageContaining("sharedNames=true")
                        .hasMessageContaining("nodeLabel=aliquot.io/share-gpus=on");
                for (Map<String, Object> values :
                        List.<Map<String, Object>>of(Map.of("sharedNames", true), Map.of("nodeLabel", "a=b"))) {
                    // Rendered, and refused later: this release's objects are another's.
                    assertThatThrownBy(() -> install(values)).hasMessageNotContaining("HAMi");
                }
                admin.patch(
                                "/api/v1/nodes/hami-node",
                                "{\"metadata\": {\"annotations\": {\"hami.io/node-handshake\": \"Deleted_2026.11.28 04:00:00\"}}}")
                        .expectSuccess();
                assertThat(upgrade()).doesNotContain("WARNING");
                assertThatThrownBy(() -> install(Map.of())).hasMessageNotContaining("HAMi");
            } finally {
                admin.delete("/api/v1/nodes/hami-node").expectSuccess();
            }
        }

        private void install(Map<String, Object> values) throws IOException {
            InstallCommand command = new Helm(Chart.FOLDER)
                    .install()
                    .withName("another")
                    .withNamespace(Chart.NAMESPACE)
                    .withKubeConfigContents(server.kubeconfig());
            values.forEach(command::set);
            command.call();
        }

        @Test
        void isRefusedWhereTheClusterHasFarMoreNodesThanTheMemoryIsFor() {
            assertThatThrownBy(() -> new Helm(Chart.FOLDER)
                            .upgrade()
                            .withName(Chart.RELEASE)
                            .withNamespace(Chart.NAMESPACE)
                            .withKubeConfigContents(server.kubeconfig())
                            .set("cluster.nodes", 1)
                            .call())
                    .hasMessageContaining("the memory of the scheduler's containers is for 1")
                    .hasMessageContaining("Set cluster.nodes");
        }

        private String upgrade() throws IOException {
            return new Helm(Chart.FOLDER)
                    .upgrade()
                    .withName(Chart.RELEASE)
                    .withNamespace(Chart.NAMESPACE)
                    .withKubeConfigContents(server.kubeconfig())
                    .call()
                    .getOutput();
        }
    }

    /**
     * The commands of docs/install.md, "What a policy can stop, and how to switch it off". The last test: without a policy
     * that reads Leases, this API server stops to watch them (kubernetes/kubernetes#130887).
     */
    @Nested
    @Order(Integer.MAX_VALUE)
    class Emergency {
        @Test
        void everyPolicyIsSwitchedOffByDeletingItsBinding() throws Exception {
            List<List<String>> rows = Files.readAllLines(Chart.root().resolve("docs/install.md")).stream()
                    .dropWhile(line -> !line.equals("#### What a policy can stop, and how to switch it off"))
                    .skip(1)
                    .takeWhile(line -> !line.startsWith("#"))
                    .filter(line -> line.startsWith("| `"))
                    .map(line -> List.of(line.split(" *\\| *", -1)))
                    .toList();
            List<String> bindings = rows.stream()
                    .flatMap(row -> Stream.of(row.get(3).replace("`", "").split(", ")))
                    .toList();
            String path = "/apis/admissionregistration.k8s.io/v1/";
            assertThat(bindings)
                    .containsExactlyInAnyOrderElementsOf(rows.stream()
                            .flatMap(
                                    row -> Stream.of(row.get(1).replace("`", "").split(", ")))
                            .toList())
                    .containsExactlyInAnyOrderElementsOf(new KubernetesSerialization()
                                    .unmarshal(
                                            admin.get(path + "validatingadmissionpolicies")
                                                    .body(),
                                            GenericKubernetesResourceList.class)
                                    .getItems()
                                    .stream()
                                    .map(policy -> policy.getMetadata().getName())
                                    .toList());

            for (String binding : bindings) {
                admin.delete(path + "validatingadmissionpolicybindings/" + binding)
                        .expectSuccess();
            }
            for (Supplier<Response> request : refused()) {
                Await.await("no refusal", () -> request.get().code() != 403);
            }
            new Helm(Chart.FOLDER)
                    .upgrade()
                    .withName(Chart.RELEASE)
                    .withNamespace(Chart.NAMESPACE)
                    .withKubeConfigContents(server.kubeconfig())
                    .call();
            awaitPolicies();
        }
    }

    @Nested
    class Nodes {
        private static final String NODE1 = "/api/v1/nodes/node1";
        private static final String NODE2 = "/api/v1/nodes/node2";

        @Test
        void agentWritesTheInventoryAndTotalsOfItsOwnNode() {
            agent1.patch(NODE1, annotation("aliquot.io/gpus", unique())).expectSuccess();
            agent1.patch(NODE1 + "/status", annotation("aliquot.io/gpus", unique()))
                    .expectSuccess();
            agent1.patch(NODE1 + "/status", totals(NAMES.incrementAndGet())).expectSuccess();
        }

        @Test
        void agentLabelsItsNodeWhileItStaysAndRemovesAllThatItWrote() {
            String label = "{\"metadata\": {\"labels\": {\"aliquot.io/node-agent\": %s}}}";

            agent1.patch(NODE1, label.formatted("\"on\"")).expectSuccess();
            forbidden(agent1.patch(NODE1, label.formatted("\"off\"")), "agent may change");
            agent1.patch(NODE1 + "/status", totals(1)).expectSuccess();
            agent1.patch(NODE1, "{\"metadata\": {\"annotations\": {\"aliquot.io/gpus\": null}}}")
                    .expectSuccess();
            agent1.patch(
                            NODE1 + "/status",
                            totals(1).replaceAll("\"nvidia.com/([a-z-]+)\": \"1\"", "\"nvidia.com/$1\": null"))
                    .expectSuccess();
            agent1.patch(NODE1, label.formatted("null")).expectSuccess();
            assertThat(admin.get(NODE1).body()).doesNotContain("gpumem", "node-agent");
        }

        /** Also where GPU feature discovery has written a label since the agent last saw the node. */
        @Test
        void agentChangesOnlyThoseLabelsOfGpuFeatureDiscoveryThatItHasWritten() {
            String all = FeatureDiscovery.LABELS.stream()
                    .map("\"%s\": \"1\""::formatted)
                    .collect(Collectors.joining(", "));
            String names = String.join(",", FeatureDiscovery.LABELS);
            String product = "{\"metadata\": {\"labels\": {\"nvidia.com/gpu.product\": %s}}}";

            agent1.patch(NODE1, gpuLabels(all, "\"" + names + "\"")).expectSuccess();
            agent1.patch(NODE1, product.formatted("\"2\"")).expectSuccess();
            agent1.patch(NODE1, gpuLabels(all.replace("\"1\"", "null"), "null")).expectSuccess();
            assertThat(admin.get(NODE1).body()).doesNotContain("nvidia.com/gpu.product", "gpu-labels");

            admin.patch(NODE1, product.formatted("\"theirs\"")).expectSuccess();
            forbidden(agent1.patch(NODE1, gpuLabels(all, "\"" + names + "\"")), "agent may change");
            agent1.patch(NODE1, gpuLabels("\"nvidia.com/gpu.count\": \"1\"", "\"nvidia.com/gpu.count\""))
                    .expectSuccess();
            forbidden(agent1.patch(NODE1, product.formatted("null")), "agent may change");
            forbidden(
                    agent1.patch(
                            NODE1, annotation("aliquot.io/gpu-labels", "nvidia.com/gpu.count,nvidia.com/gpu.product")),
                    "name no others");
            forbidden(agent1.patch(NODE2, product.formatted("\"1\"")), "own");
            admin.patch(NODE1, gpuLabels("\"nvidia.com/gpu.product\": null, \"nvidia.com/gpu.count\": null", "null"))
                    .expectSuccess();
        }

        private static String gpuLabels(String labels, String record) {
            return "{\"metadata\": {\"labels\": {%s}, \"annotations\": {\"aliquot.io/gpu-labels\": %s}}}"
                    .formatted(labels, record);
        }

        @Test
        void agentSetsAndRemovesItsConditionAndNoOther() {
            agent1.strategicPatch(NODE1 + "/status", condition("AliquotGPUsHealthy", "False"))
                    .expectSuccess();
            assertThat(admin.get(NODE1).body()).contains("AliquotGPUsHealthy", "Ready");
            agent1.strategicPatch(NODE1 + "/status", condition("AliquotGPUsHealthy", "True"))
                    .expectSuccess();
            forbidden(agent1.strategicPatch(NODE1 + "/status", condition("Ready", "False")), "agent may change");
            forbidden(agent1.strategicPatch(NODE1 + "/status", condition("DiskPressure", "True")), "agent may change");
            agent1.strategicPatch(
                            NODE1 + "/status",
                            "{\"status\": {\"conditions\": [{\"$patch\": \"delete\", \"type\": \"AliquotGPUsHealthy\"}]}}")
                    .expectSuccess();
            assertThat(admin.get(NODE1).body()).doesNotContain("AliquotGPUsHealthy");
            forbidden(agent1.strategicPatch(NODE2 + "/status", condition("AliquotGPUsHealthy", "True")), "own");
        }

        private static String condition(String type, String status) {
            return "{\"status\": {\"conditions\": [{\"type\": \"%s\", \"status\": \"%s\"}]}}".formatted(type, status);
        }

        @Test
        void agentMayNotWriteOtherNodes() {
            forbidden(agent1.patch(NODE2, annotation("aliquot.io/gpus", "[]")), "own");
            forbidden(agent1.patch(NODE2 + "/status", totals(1)), "own");
        }

        @Test
        void tokenOfTheAgentsAccountOutsideAPodMayNotWrite() {
            Caller stolen = server.account("aliquot-device-plugin");

            forbidden(stolen.patch(NODE1, annotation("aliquot.io/gpus", "[]")), "own");
            forbidden(stolen.patch(NODE1 + "/status", totals(1)), "own");
        }

        @ParameterizedTest
        @ValueSource(
                strings = {
                    "{\"metadata\": {\"labels\": {\"gpu\": \"off\"}}}",
                    "{\"metadata\": {\"labels\": {\"node-role.kubernetes.io/control-plane\": \"\"}}}",
                    "{\"metadata\": {\"labels\": {\"nvidia.com/gpu.deploy.device-plugin\": \"false\"}}}",
                    "{\"metadata\": {\"labels\": {\"nvidia.com/gpu.present\": \"true\"}}}",
                    "{\"metadata\": {\"annotations\": {\"example.com/kept\": \"no\"}}}",
                    "{\"metadata\": {\"annotations\": {\"example.com/kept\": null}}}",
                    "{\"metadata\": {\"annotations\": {\"aliquot.io/slots\": \"1000\"}}}",
                    "{\"metadata\": {\"annotations\": {\"aliquot.io/wake\": \"now\"}}}",
                    "{\"metadata\": {\"finalizers\": [\"example.com/forever\"]}}",
                    "{\"spec\": {\"unschedulable\": true}}",
                    "{\"spec\": {\"taints\": [{\"key\": \"a\", \"effect\": \"NoExecute\"}]}}"
                })
        void agentMayChangeNothingElseOfItsNode(String patch) {
            forbidden(agent1.patch(NODE1, patch), "agent may change");
        }

        @ParameterizedTest
        @ValueSource(
                strings = {
                    "{\"capacity\": {\"cpu\": \"9\"}}",
                    "{\"capacity\": {\"cpu\": null}}",
                    "{\"allocatable\": {\"cpu\": \"9\"}}",
                    "{\"capacity\": {\"aliquot.io/vgpu\": \"21\"}}",
                    "{\"allocatable\": {\"aliquot.io/vgpu\": null}}",
                    "{\"allocatable\": {\"example.com/other\": \"1\"}}",
                    "{\"conditions\": []}",
                    "{\"addresses\": [{\"type\": \"InternalIP\", \"address\": \"10.0.0.1\"}]}",
                    "{\"images\": [{\"names\": [\"a\"]}]}",
                    "{\"nodeInfo\": {\"kernelVersion\": \"0\"}}",
                    "{\"volumesAttached\": [{\"name\": \"a\", \"devicePath\": \"b\"}]}",
                    "{\"runtimeHandlers\": [{\"name\": \"nvidia\"}]}",
                    "{\"features\": {\"supplementalGroupsPolicy\": true}}",
                    "{\"phase\": \"Terminated\"}"
                })
        void agentMayChangeNothingElseOfItsNodesStatus(String patch) {
            forbidden(agent1.patch(NODE1 + "/status", "{\"status\": %s}".formatted(patch)), "agent may change");
        }

        @Test
        void administratorForgesNoInventory() {
            forbidden(admin.patch(NODE1, annotation("aliquot.io/gpus", "[]")), "own Aliquot agent may");
            forbidden(admin.patch(NODE1 + "/status", annotation("aliquot.io/gpus", "[]")), "own Aliquot agent may");
            forbidden(admin.post("/api/v1/nodes", """
                        {apiVersion: v1, kind: Node, metadata: {name: forged, annotations: {aliquot.io/gpus: ""}}}"""), "own Aliquot agent may");
            forbidden(
                    server.kubelet("node1").patch(NODE1, annotation("aliquot.io/gpus", "[]")), "own Aliquot agent may");
        }

        @Test
        void nobodyButTheSchedulerNamesTheClientsOfANodesAgent() {
            String key = "aliquot.io/agent-clients";
            forbidden(agent1.patch(NODE1, annotation(key, "mine")), ""); // by two policies
            for (Caller caller : List.of(admin, server.kubelet("node1"))) {
                forbidden(caller.patch(NODE1, annotation(key, "mine")), key);
                forbidden(caller.patch(NODE1 + "/status", annotation(key, "mine")), key);
            }
            forbidden(admin.post("/api/v1/nodes", """
                        {apiVersion: v1, kind: Node, metadata: {name: forged, annotations: {aliquot.io/agent-clients: ""}}}"""), key);
            scheduler.patch(NODE1, annotation(key, unique())).expectSuccess();
            forbidden(
                    admin.patch(NODE1, "{\"metadata\": {\"annotations\": {\"aliquot.io/agent-clients\": null}}}"), key);
            agent1.patch(NODE1, annotation("aliquot.io/gpus", unique())).expectSuccess();
        }

        @Test
        void administratorMayNotChangeGpuResourcesAndMayChangeAllElse() {
            forbidden(admin.patch(NODE1 + "/status", totals(1)), "own kubelet");
            forbidden(
                    admin.patch(NODE1 + "/status", "{\"status\": {\"allocatable\": {\"aliquot.io/vgpu\": \"1\"}}}"),
                    "own kubelet");
            forbidden(
                    admin.patch(NODE1 + "/status", "{\"status\": {\"capacity\": {\"aliquot.io/vgpu\": null}}}"),
                    "own kubelet");
            admin.patch(NODE2 + "/status", "{\"status\": {\"capacity\": {\"example.com/other\": \"1\"}}}")
                    .expectSuccess();
            admin.patch(NODE2, annotation("aliquot.io/slots", "20")).expectSuccess();
            admin.patch(NODE2, "{\"metadata\": {\"labels\": {\"gpu\": \"on\", \"aliquot.io/placement\": \"spread\"}}}")
                    .expectSuccess();
            admin.patch(NODE2, "{\"spec\": {\"unschedulable\": true}}").expectSuccess();
        }

        @Test
        void kubeletMayWriteItsOwnNodesStatus() {
            Caller kubelet = server.kubelet("node1");

            kubelet.patch(NODE1 + "/status", "{\"status\": {\"allocatable\": {\"aliquot.io/vgpu\": \"19\"}}}")
                    .expectSuccess();
            kubelet.patch(NODE1 + "/status", totals(0)).expectSuccess();
            kubelet.patch(NODE1 + "/status", "{\"status\": {\"allocatable\": {\"aliquot.io/vgpu\": \"20\"}}}")
                    .expectSuccess();
            forbidden(kubelet.patch(NODE2 + "/status", totals(0)), "");
        }

        @Test
        void schedulerMayWriteTheWakeAnnotationOfANodeAndNothingElse() {
            scheduler.patch(NODE1, annotation("aliquot.io/wake", unique())).expectSuccess();
            forbidden(scheduler.patch(NODE1, annotation("aliquot.io/slots", "1")), "aliquot.io/wake");
            forbidden(scheduler.patch(NODE1, annotation("aliquot.io/gpus", "[]")), "aliquot.io/");
            forbidden(scheduler.patch(NODE1, "{\"spec\": {\"unschedulable\": true}}"), "aliquot.io/wake");
            forbidden(scheduler.patch(NODE1, "{\"metadata\": {\"labels\": {\"gpu\": \"off\"}}}"), "aliquot.io/wake");
            forbidden(scheduler.patch(NODE1 + "/status", totals(1)), "");
        }

        @ParameterizedTest
        @CsvSource({
            "cluster-autoscaler.kubernetes.io/scale-down-disabled, aliquot.io/scale-down-disabled",
            "karpenter.sh/do-not-disrupt, aliquot.io/do-not-disrupt"
        })
        void schedulerKeepsAutoscalersFromNodesAndRemovesOnlyWhatItWrote(String key, String mark) {
            String both = "{\"metadata\": {\"annotations\": {\"%s\": %s, \"%s\": %s}}}";

            forbidden(scheduler.patch(NODE2, annotation(key, "true")), "only with " + mark);
            forbidden(scheduler.patch(NODE2, annotation(mark, "true")), "only with " + mark);
            forbidden(scheduler.patch(NODE2, both.formatted(key, "\"false\"", mark, "\"true\"")), "only with " + mark);
            scheduler
                    .patch(NODE2, both.formatted(key, "\"true\"", mark, "\"true\""))
                    .expectSuccess();
            forbidden(scheduler.patch(NODE2, both.formatted(key, "null", mark, "\"true\"")), "only with " + mark);
            scheduler.patch(NODE2, both.formatted(key, "null", mark, "null")).expectSuccess();

            admin.patch(NODE2, annotation(key, "true")).expectSuccess();
            forbidden(scheduler.patch(NODE2, both.formatted(key, "null", mark, "null")), "only with " + mark);
            admin.patch(NODE2, both.formatted(key, "\"false\"", mark, "\"true\""))
                    .expectSuccess();
            forbidden(scheduler.patch(NODE2, both.formatted(key, "null", mark, "null")), "only with " + mark);
            scheduler
                    .patch(NODE2, both.formatted(key, "\"false\"", mark, "null"))
                    .expectSuccess();
            admin.patch(NODE2, both.formatted(key, "null", mark, "null")).expectSuccess();
        }

        private static String totals(int amount) {
            return """
                {"status": {"capacity": {"nvidia.com/gpumem": "%1$d", "nvidia.com/gpucores": "%1$d", "nvidia.com/gpumem-percentage": "%1$d"},
                 "allocatable": {"nvidia.com/gpumem": "%1$d", "nvidia.com/gpucores": "%1$d", "nvidia.com/gpumem-percentage": "%1$d"}}}""".formatted(amount);
        }
    }

    /** Upgrades of the API server's objects; {@code UpgradeIT} has what runs meanwhile. */
    @Nested
    class Upgrades {
        private static final String CONFIGURATION =
                "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/aliquot";
        private static final String RUNTIME_CLASS = "/apis/node.k8s.io/v1/runtimeclasses/nvidia";

        /** Without a caBundle the API server would refuse GPU pods until the scheduler writes it again. */
        @Test
        void upgradeKeepsTheCaBundleAndTheRuntimeClass() throws IOException {
            String bundle = Base64.getEncoder().encodeToString(Files.readAllBytes(server.certificate()));
            server.account("aliquot-ca-bundles")
                    .strategicPatch(CONFIGURATION, """
                        {"webhooks": [{"name": "gpu.aliquot.io", "clientConfig": {"caBundle": "%1$s"}},
                         {"name": "void.aliquot.io", "clientConfig": {"caBundle": "%1$s"}}]}""".formatted(bundle))
                    .expectSuccess();
            String created = admin.get(RUNTIME_CLASS).expectSuccess().field("metadata", "uid");

            for (int revision = 0; revision < 2; revision++) {
                new Helm(Chart.FOLDER)
                        .upgrade()
                        .withName(Chart.RELEASE)
                        .withNamespace(Chart.NAMESPACE)
                        .withKubeConfigContents(server.kubeconfig())
                        .set("scheduler.replicas", 7 + revision)
                        .call();

                assertThat(admin.get(CONFIGURATION).body().split(Pattern.quote(bundle), -1))
                        .hasSize(3);
                assertThat(admin.get(RUNTIME_CLASS).field("metadata", "uid")).isEqualTo(created);
            }
            assertThat(admin.get("/apis/apps/v1/namespaces/" + Chart.NAMESPACE + "/deployments/aliquot-scheduler")
                            .body())
                    .contains("\"replicas\":8");
        }

        /**
         * No field that is immutable differs, in either direction, clients find the versions of the API that they know, and
         * values of a chart with other names are refused with the option that helps.
         */
        @Test
        void toTheEarlierChartAndBackChangesEveryObjectInPlace() throws IOException {
            String version = Files.readAllLines(Chart.FOLDER.resolve("values.yaml")).stream()
                    .filter(line -> line.startsWith("valuesVersion:"))
                    .findFirst()
                    .orElseThrow();
            List<String> served = apiServices();

            upgrade(Chart.EARLIER).call();
            assertThat(apiServices()).isNotEmpty();
            List<String> earlier = apiServices();
            if (!Chart.earlierValues().contains(version)) {
                assertThatThrownBy(upgrade(Chart.FOLDER).reuseValues()::call)
                        .hasMessageContaining(
                                "run helm upgrade with --reset-then-reuse-values instead of --reuse-values")
                        .hasMessageNotContaining("schema");
            }
            upgrade(Chart.FOLDER).resetThenReuseValues().call();
            upgrade(Chart.FOLDER).reuseValues().call();

            assertThat(apiServices()).containsAll(earlier).isEqualTo(served);
            awaitPolicies();
        }

        private static UpgradeCommand upgrade(Path chart) {
            try {
                return new Helm(chart)
                        .upgrade()
                        .withName(Chart.RELEASE)
                        .withNamespace(Chart.NAMESPACE)
                        .withKubeConfigContents(server.kubeconfig());
            } catch (IOException e) {
                throw new UncheckedIOException(e);
            }
        }

        private static List<String> apiServices() {
            return new KubernetesSerialization()
                            .unmarshal(
                                    admin.get("/apis/apiregistration.k8s.io/v1/apiservices")
                                            .expectSuccess()
                                            .body(),
                                    GenericKubernetesResourceList.class)
                            .getItems()
                            .stream()
                            .map(service -> service.getMetadata().getName())
                            .filter(name -> name.endsWith(".gpu.aliquot.io"))
                            .toList();
        }
    }

    /** Whether the webhook for pods that request no GPU is there. */
    @Nested
    class HiddenGpus {
        private static final String WEBHOOKS =
                "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/aliquot";
        private static final String CLUSTER_POLICIES = "/apis/nvidia.com/v1/clusterpolicies";

        @Test
        @Tag("long")
        @EnabledIfEnvironmentVariable(named = "ALIQUOT_LONG", matches = "1")
        void anUpgradeKeepsThemHiddenAndAClusterPolicyHidesThem() throws IOException {
            upgrade("scheduler.replicas", 9);
            assertThat(hidden()).as("after a release that hid them").isTrue();

            upgrade("hideImplicitGpus", false);
            assertThat(hidden()).isFalse();
            upgrade("hideImplicitGpus", "auto");
            assertThat(hidden())
                    .as("nothing says that NVIDIA's runtime is the default")
                    .isFalse();

            admin.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", """
                apiVersion: apiextensions.k8s.io/v1
                kind: CustomResourceDefinition
                metadata: {name: clusterpolicies.nvidia.com}
                spec:
                  group: nvidia.com
                  names: {kind: ClusterPolicy, plural: clusterpolicies}
                  scope: Cluster
                  versions:
                  - name: v1
                    served: true
                    storage: true
                    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
                """)
                    .expectSuccess();
            eventually(() -> admin.get(CLUSTER_POLICIES), 200);
            for (String otherRuntime : List.of(
                    "{cdi: {enabled: true}}",
                    "{toolkit: {enabled: false}}",
                    "{toolkit: {env: [{name: CONTAINERD_SET_AS_DEFAULT, value: \"false\"}]}}")) {
                clusterPolicy(otherRuntime);
                upgrade("hideImplicitGpus", "auto");
                assertThat(hidden()).as(otherRuntime).isFalse();
            }
            clusterPolicy(
                    "{cdi: {enabled: true}, toolkit: {env: [{name: NVIDIA_RUNTIME_SET_AS_DEFAULT, value: \"true\"}]}}");
            upgrade("hideImplicitGpus", "auto");
            assertThat(hidden()).isTrue();
            admin.delete(CLUSTER_POLICIES + "/cluster-policy").expectSuccess();
            upgrade("hideImplicitGpus", "auto");
            assertThat(hidden()).isTrue();
        }

        private static void clusterPolicy(String spec) {
            admin.delete(CLUSTER_POLICIES + "/cluster-policy");
            admin.post(
                            CLUSTER_POLICIES,
                            "{apiVersion: nvidia.com/v1, kind: ClusterPolicy, metadata: {name: cluster-policy}, spec: %s}"
                                    .formatted(spec))
                    .expectSuccess();
        }

        private static boolean hidden() {
            return admin.get(WEBHOOKS).expectSuccess().body().contains("void.aliquot.io");
        }

        private static void upgrade(String key, Object value) throws IOException {
            new Helm(Chart.FOLDER)
                    .upgrade()
                    .withName(Chart.RELEASE)
                    .withNamespace(Chart.NAMESPACE)
                    .withKubeConfigContents(server.kubeconfig())
                    .set(key, value)
                    .call();
        }
    }

    @Nested
    class Rights {
        private static final String WEBHOOKS =
                "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/aliquot";
        private static final String BUNDLE =
                "{\"webhooks\": [{\"name\": \"gpu.aliquot.io\", \"clientConfig\": {\"caBundle\": null}}]}";

        /** Who may write a webhook configuration may change every pod, and no policy can restrict that. */
        @Test
        void onlyTheJobsAccountWritesTheCaBundles() {
            Caller job = server.account("aliquot-ca-bundles");
            String apiService = "/apis/apiregistration.k8s.io/v1/apiservices/v1alpha1.gpu.aliquot.io";

            for (Caller other : List.of(scheduler, agent1)) {
                forbidden(other.strategicPatch(WEBHOOKS + DRY_RUN, BUNDLE), "");
                forbidden(other.patch(apiService + DRY_RUN, "{\"spec\": {\"caBundle\": null}}"), "");
            }
            job.strategicPatch(WEBHOOKS + DRY_RUN, BUNDLE).expectSuccess();
            job.patch(apiService + DRY_RUN, "{\"spec\": {\"caBundle\": null}}").expectSuccess();
            forbidden(job.get(WEBHOOKS), "");
            forbidden(job.get("/api/v1/namespaces/" + Chart.NAMESPACE + "/secrets/aliquot-webhook-ca"), "");
            forbidden(job.strategicPatch(WEBHOOKS.replaceAll("aliquot$", "other"), BUNDLE), "");
        }

        @Test
        void schedulerCreatesItsOwnSecretsAndNoToken() {
            String secret = """
                {apiVersion: v1, kind: Secret, type: %s, metadata: {name: %s, annotations: {kubernetes.io/service-account.name: aliquot-ca-bundles}}}""";

            forbidden(
                    scheduler.post(
                            SECRETS, secret.formatted("kubernetes.io/service-account-token", "aliquot-webhook-ca")),
                    "no token");
            forbidden(scheduler.post(SECRETS, secret.formatted("Opaque", "sh.helm.release.v1.aliquot.v99")), "only");
            admin.post(SECRETS, secret.formatted("Opaque", "of-the-administrator"))
                    .expectSuccess();
        }

        /**
         * docs/security.md says for every right to write what its thief gains. On another version than the default one
         * kube-scheduler's roles may have fewer.
         */
        @Test
        void theSecurityModelListsEveryRightToWrite() throws IOException {
            List<String> rights = Stream.of(
                            "aliquot-scheduler", "aliquot-device-plugin", "aliquot-ca-bundles", "aliquot-doctor")
                    .flatMap(account -> writes(account).stream().map(right -> account + " " + right))
                    .distinct()
                    .toList();

            assertThat(documented(row -> true)).containsAll(rights);
            if (server.version().equals(Chart.KUBERNETES)) {
                assertThat(rights).containsAll(documented(row -> !row.contains("` from 1.")));
            }
        }

        /** The account and each right of these rows of the security model's table. */
        private static List<String> documented(Predicate<String> rows) throws IOException {
            return Files.readAllLines(Chart.root().resolve("docs/security.md")).stream()
                    .dropWhile(line -> !line.equals("### What a stolen token may do"))
                    .skip(1)
                    .takeWhile(line -> !line.startsWith("#"))
                    .filter(line -> line.startsWith("| `"))
                    .filter(rows)
                    .flatMap(line -> {
                        String[] cells = line.split(" *\\| *", -1);
                        String account = cells[1].replaceFirst("`(.*)`.*", "$1");
                        return Pattern.compile("`([^`]+)`")
                                .matcher(cells[2])
                                .results()
                                .map(right -> account + " " + right.group(1));
                    })
                    .toList();
        }

        /** Each right of an account to do more than to read, {@code group/resource names: verbs}, in all its roles. */
        private static List<String> writes(String account) {
            var json = new KubernetesSerialization();
            String rbac = "/apis/rbac.authorization.k8s.io/v1/";
            var rights = new ArrayList<String>();
            for (GenericKubernetesResource binding : Stream.of("clusterrolebindings", "rolebindings")
                    .flatMap(kind -> json
                            .unmarshal(
                                    admin.get(rbac + kind).expectSuccess().body(), GenericKubernetesResourceList.class)
                            .getItems()
                            .stream())
                    .toList()) {
                List<Map<String, String>> subjects = Objects.requireNonNullElse(binding.get("subjects"), List.of());
                if (subjects.stream()
                        .noneMatch(subject -> account.equals(subject.get("name"))
                                && Chart.NAMESPACE.equals(subject.get("namespace")))) {
                    continue;
                }
                String role = binding.get("roleRef", "name");
                String path = "Role".equals(binding.get("roleRef", "kind"))
                        ? "namespaces/" + binding.getMetadata().getNamespace() + "/roles/"
                        : "clusterroles/";
                ClusterRole rules = json.unmarshal(
                        admin.get(rbac + path + role).expectSuccess().body(), ClusterRole.class);
                rules.getRules().forEach(rule -> rights.addAll(writes(rule)));
            }
            return rights.stream().sorted().toList();
        }

        private static List<String> writes(PolicyRule rule) {
            String verbs = rule.getVerbs().stream()
                    .filter(verb -> !List.of("get", "list", "watch").contains(verb))
                    .sorted()
                    .collect(Collectors.joining(" "));
            String names =
                    rule.getResourceNames().stream().map(name -> " " + name).collect(Collectors.joining());
            return verbs.isEmpty()
                    ? List.of()
                    : rule.getApiGroups().stream()
                            .flatMap(group -> rule.getResources().stream()
                                    .map(resource ->
                                            (group.isEmpty() ? "" : group + "/") + resource + names + ": " + verbs))
                            .toList();
        }

        @Test
        void schedulerMayUseItsOwnSecretsLeaseAndWebhooksAndNoOthers() {
            String secrets = "/api/v1/namespaces/" + Chart.NAMESPACE + "/secrets";
            String webhooks = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";

            scheduler.post(secrets, """
                {apiVersion: v1, kind: Secret, metadata: {name: aliquot-webhook-tls}}""").expectSuccess();
            scheduler.get(secrets + "/aliquot-webhook-tls").expectSuccess();
            String configMaps = "/api/v1/namespaces/" + Chart.NAMESPACE + "/configmaps";
            forbidden(scheduler.get(configMaps), "");
            forbidden(scheduler.get(secrets), "");
            forbidden(scheduler.get(secrets + "/sh.helm.release.v1.aliquot.v1"), "");
            forbidden(scheduler.get("/api/v1/secrets"), "");
            scheduler.post(secrets, """
                {apiVersion: v1, kind: Secret, metadata: {name: aliquot-webhook-ca}}""").expectSuccess();
            scheduler.get(secrets + "/aliquot-webhook-ca").expectSuccess();
            scheduler.get(webhooks + "/aliquot").expectSuccess();
            forbidden(scheduler.get(webhooks), "");
            forbidden(scheduler.delete(webhooks + "/aliquot"), "");
            lease("pod-a_1", 3);
            scheduler.get(LEASES + "/aliquot-scheduler").expectSuccess();
            scheduler
                    .get(LEASES + "?fieldSelector=metadata.name%3Daliquot-scheduler")
                    .expectSuccess();
            forbidden(scheduler.get(LEASES), "");
        }

        @Test
        void agentMayReadNodesAndNothingElse() {
            agent1.get("/api/v1/nodes?fieldSelector=metadata.name%3Dnode1").expectSuccess();
            forbidden(agent1.get("/api/v1/pods"), "");
            forbidden(agent1.get("/api/v1/namespaces/" + Chart.NAMESPACE + "/secrets"), "");
            forbidden(agent1.delete("/api/v1/nodes/node1"), "");
        }
    }

    private static final String LEASES = "/apis/coordination.k8s.io/v1/namespaces/" + Chart.NAMESPACE + "/leases";

    /**
     * Sets the scheduler's Lease, which kube-scheduler keeps while it leads, and waits until the policies see the change:
     * their view of it lags some milliseconds.
     */
    private static void lease(String holder, int transitions) {
        scheduler.post(LEASES, """
            {apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: aliquot-scheduler}}""");
        String version =
                scheduler.get(LEASES + "/aliquot-scheduler").expectSuccess().field("metadata", "resourceVersion");
        scheduler
                .put(LEASES + "/aliquot-scheduler", """
                    {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                     "metadata": {"name": "aliquot-scheduler", "resourceVersion": "%s"},
                     "spec": {"holderIdentity": "%s", "leaseTransitions": %d, "leaseDurationSeconds": 15}}""".formatted(version, holder, transitions))
                .expectSuccess();
        String current =
                fenced("none", "{aliquot.io/vgpu.main: x, aliquot.io/fence: %s/%d}".formatted(holder, transitions));
        eventually(() -> scheduler.post(PODS + "/none/binding" + DRY_RUN, current), 404);
    }

    private static void forbidden(Response response, String why) {
        assertThat(response.code()).as(response.body()).isEqualTo(403);
        assertThat(response.field("message")).contains(why);
    }

    private static String unique() {
        return "t" + NAMES.incrementAndGet();
    }

    private static String create(String pod) {
        return admin.post(PODS, pod).expectSuccess().field("metadata", "name");
    }

    private static String annotation(String key, String value) {
        return "{\"metadata\": {\"annotations\": {\"%s\": \"%s\"}}}".formatted(key, value);
    }

    private static String binding(String pod, String annotations) {
        return """
            apiVersion: v1
            kind: Binding
            metadata: {name: %s, annotations: %s}
            target: {apiVersion: v1, kind: Node, name: node1}
            """.formatted(pod, annotations);
    }

    /** A Binding as the scheduler writes it. */
    private static String fenced(String pod, String annotations) {
        return binding(pod, annotations)
                .replace("metadata: {", "metadata: {labels: {topology.aliquot.io/fenced: \"true\"}, ");
    }

    private static String plainPod() {
        return pod(unique(), "annotations: {}");
    }

    private static String pod(String name, String metadata) {
        return """
            apiVersion: v1
            kind: Pod
            metadata:
              name: %s
              %s
            spec:
              containers:
              - name: main
                image: i
                resources: {}
            """.formatted(name, metadata);
    }

    /** A GPU pod as the admission webhook stores it, with a sidecar, an init container and a place for more mounts. */
    private static String gpuPod(String name) {
        return """
            apiVersion: v1
            kind: Pod
            metadata: {name: %s}
            spec:
              schedulerName: aliquot-scheduler
              volumes:
              - {name: theirs, emptyDir: {}}
              - {name: limits, downwardAPI: {defaultMode: 292, items: [{path: vgpu, fieldRef: {apiVersion: v1, fieldPath: "metadata.annotations['%s']"}}]}}
              initContainers:
              - {name: first, image: i, env: [{name: NVIDIA_VISIBLE_DEVICES, value: void}]}
              containers:
              - name: main
                image: gpu-image
                env: [{name: NVIDIA_VISIBLE_DEVICES, valueFrom: {fieldRef: {apiVersion: v1, fieldPath: "metadata.annotations['%s']"}}}, {name: OWN, value: x}]
                volumeMounts:
                - {name: limits, mountPath: /etc/aliquot, readOnly: true}
                # mounts
                resources: {limits: {aliquot.io/vgpu: 1, nvidia.com/gpumem: 3000}, requests: {aliquot.io/vgpu: 1, nvidia.com/gpumem: 3000}}
              - name: side
                image: i
                env: [{name: NVIDIA_VISIBLE_DEVICES, value: void}]
            """.formatted(name, Annotations.vgpu("main"), Annotations.visibleDevices("main"));
    }
}
