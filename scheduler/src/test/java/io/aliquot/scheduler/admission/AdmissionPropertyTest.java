package io.aliquot.scheduler.admission;

import static io.aliquot.scheduler.admission.Pods.JSON;
import static io.aliquot.scheduler.admission.Pods.mutated;
import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.pods.Compatibility;
import io.aliquot.api.pods.PodDefaults;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Random;
import java.util.Set;
import java.util.stream.Stream;
import java.util.stream.StreamSupport;
import org.junit.jupiter.api.Test;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.node.ArrayNode;
import tools.jackson.databind.node.ObjectNode;

/**
 * Random pods: {@code -Daliquot.reviews} sets their number. A failure prints the seed, and {@code -Daliquot.seed=…} repeats
 * it.
 */
class AdmissionPropertyTest {
    private static final GpuAdmission GPU = new GpuAdmission(
            "nvidia", name -> Optional.of("nvidia"), false, Compatibility.NONE, () -> PodDefaults.NONE);
    private static final VoidAdmission VOID = new VoidAdmission(Set.of(), node -> true);
    private static final int PODS = Integer.getInteger("aliquot.reviews", 500);

    @Test
    void aSecondCallChangesOnlyContainersThatWereAddedInBetween() {
        randomGpuPods((random, pod) -> {
            ObjectNode once = mutated(GPU, pod);
            assertThat(mutated(GPU, once)).isEqualTo(once);
            assertThat(mutated(VOID, once)).isEqualTo(once);

            ArrayNode containers = once.withArray("/spec/containers");
            int at = random.nextInt(containers.size() + 1);
            containers.insert(at, container(random, "injected", false));
            ObjectNode twice = mutated(GPU, once);
            assertSeesNoGpu(twice.at("/spec/containers/" + at));
            twice.withArray("/spec/containers").remove(at);
            containers.remove(at);
            assertThat(twice).isEqualTo(once);
        });
    }

    @Test
    void everyContainerGetsExactlyOneNvidiaVisibleDevicesWithAliquotsValue() {
        randomGpuPods((random, pod) -> {
            ObjectNode mutated = mutated(GPU, pod);
            for (String kind : List.of("initContainers", "containers")) {
                JsonNode before = pod.at("/spec/" + kind);
                for (int i = 0; i < before.size(); i++) {
                    JsonNode container = mutated.at("/spec/" + kind + "/" + i);
                    if (!containerRequestsGpus(before.get(i))) {
                        assertSeesNoGpu(container);
                    } else {
                        assertSeesItsAllocatedGpus(mutated, container);
                    }
                }
            }
        });
    }

    @Test
    void everyGpuContainerGetsOnlyAliquotsResourcesInWholeAmounts() {
        for (Compatibility compatibility : Compatibility.values()) {
            var admission =
                    new GpuAdmission("", name -> Optional.of("nvidia"), false, compatibility, () -> PodDefaults.NONE);
            randomly((random, pod) -> {
                ObjectNode mutated = mutated(admission, pod);
                assertThat(mutated(admission, mutated)).isEqualTo(mutated);
                for (String kind : List.of("initContainers", "containers")) {
                    JsonNode before = pod.at("/spec/" + kind);
                    for (int i = 0; i < before.size(); i++) {
                        JsonNode resources =
                                mutated.at("/spec/" + kind + "/" + i).path("resources");
                        assertThat(resources.toString())
                                .doesNotContain("aliyun")
                                .doesNotContain("priority")
                                .doesNotContainPattern("nvidia.com/gpu\":\"[1-9]");
                        if (containerRequestsGpus(before.get(i))) {
                            assertThat(resources.at("/limits/aliquot.io~1vgpu").stringValue())
                                    .matches("[12]")
                                    .isEqualTo(resources
                                            .at("/requests/aliquot.io~1vgpu")
                                            .stringValue());
                        }
                    }
                }
            });
        }
    }

    @Test
    void theVoidWebhookHidesTheGpusInPodsWithoutThemFromContainersThatDoNotSetTheVariable() {
        randomly((random, pod) -> {
            if (requestsGpus(pod)) {
                return;
            }
            ObjectNode mutated = mutated(VOID, pod);
            for (String kind : List.of("initContainers", "containers")) {
                JsonNode before = pod.at("/spec/" + kind);
                for (int i = 0; i < before.size(); i++) {
                    JsonNode container = mutated.at("/spec/" + kind + "/" + i);
                    if (before.get(i).path("env").findValuesAsString("name").contains("NVIDIA_VISIBLE_DEVICES")) {
                        assertThat(container).isEqualTo(before.get(i));
                    } else {
                        assertSeesNoGpu(container);
                    }
                }
            }
        });
    }

    @Test
    void whatIsKeptOfAPodLeadsToTheSameChangesAsAllOfIt() {
        randomly((random, pod) -> {
            pod.withObject("/metadata/annotations").put("example.com/a", "b").put("aliquot.io/fence", "c/1");
            pod.withArray("/spec/tolerations")
                    .add(JSON.createObjectNode().put("operator", "Exists"))
                    .add(JSON.createObjectNode()
                            .put("key", random.nextBoolean() ? "nvidia.com/gpu" : "aliquot.io/shared")
                            .put("operator", random.nextBoolean() ? "Exists" : "Equal"));
            for (Admission admission : List.of(GPU, VOID)) {
                EditedObject whole = EditedObject.of(pod.deepCopy());
                admission.admit(whole);

                assertThat(mutated(admission, pod)).isEqualTo(whole.tree());
                assertThat(Pods.patched(whole.operations(), pod)).isEqualTo(whole.tree());
            }
        });
    }

    @Test
    void answersAnyCorruptedReviewOrRejectsItAsMalformed() {
        randomly((random, pod) -> {
            ObjectNode review = AdmissionReviewTest.review(pod);
            int corruptions = 1 + random.nextInt(3);
            for (int i = 0; i < corruptions; i++) {
                corrupt(random, review);
            }
            for (Admission admission : List.of(GPU, VOID)) {
                try {
                    assertThat(Pods.answer(review.toString(), read -> admission))
                            .isNotEmpty();
                } catch (MalformedReviewException e) {
                    assertThat(e.getMessage()).startsWith("expected ").doesNotContain("\n");
                }
            }
        });
    }

    /** Replaces a random node by one of another type. */
    private static void corrupt(Random random, JsonNode within) {
        var children = new ArrayList<JsonNode>();
        within.forEach(children::add);
        if (children.isEmpty()) {
            return;
        }
        int at = random.nextInt(children.size());
        if (children.get(at).isContainer() && !children.get(at).isEmpty() && random.nextInt(5) > 0) {
            corrupt(random, children.get(at));
            return;
        }
        JsonNode replacement = switch (random.nextInt(7)) {
            case 0 -> JSON.nullNode();
            case 1 -> JSON.createArrayNode().add(1);
            case 2 -> JSON.createObjectNode().put("name", 1);
            case 3 -> JSON.getNodeFactory().numberNode(-1);
            case 4 -> JSON.getNodeFactory().booleanNode(true);
            case 5 -> JSON.getNodeFactory().stringNode("");
            default -> JSON.getNodeFactory().stringNode("\u0000\n'\"/~");
        };
        if (within instanceof ArrayNode array) {
            array.set(at, replacement);
        } else if (within instanceof ObjectNode object) {
            var fields = new ArrayList<String>();
            object.propertyNames().iterator().forEachRemaining(fields::add);
            object.set(fields.get(at), replacement);
        }
    }

    private static void assertSeesNoGpu(JsonNode container) {
        assertThat(visibleDevices(container).get("value").stringValue()).isEqualTo("void");
    }

    private static void assertSeesItsAllocatedGpus(JsonNode pod, JsonNode container) {
        String name = container.get("name").stringValue();
        assertThat(visibleDevices(container).at("/valueFrom/fieldRef/fieldPath").stringValue())
                .isEqualTo("metadata.annotations['aliquot.io/visible-devices." + name + "']");
        var mounts = new ArrayList<String>();
        for (JsonNode mount : container.get("volumeMounts")) {
            if (mount.get("mountPath").stringValue().equals("/etc/aliquot")) {
                mounts.add(mount.get("name").stringValue());
            }
        }
        assertThat(mounts).containsExactly("aliquot-vgpu-" + name);
        assertThat(pod.at("/spec/volumes").findValuesAsString("name")).containsOnlyOnce("aliquot-vgpu-" + name);
    }

    private static JsonNode visibleDevices(JsonNode container) {
        var found = new ArrayList<JsonNode>();
        for (JsonNode variable : container.get("env")) {
            if (variable.get("name").stringValue().equals("NVIDIA_VISIBLE_DEVICES")) {
                found.add(variable);
            }
        }
        assertThat(found).hasSize(1);
        return found.get(0);
    }

    private interface Check {
        void on(Random random, ObjectNode pod);
    }

    /** The pods for which the API server calls the GPU webhook. */
    private static void randomGpuPods(Check check) {
        randomly((random, pod) -> {
            if (requestsGpus(pod)) {
                check.on(random, pod);
            }
        });
    }

    private static void randomly(Check check) {
        long first = Long.getLong("aliquot.seed", System.nanoTime());
        for (long seed = first; seed < first + PODS; seed++) {
            var random = new Random(seed);
            ObjectNode pod = pod(random);
            try {
                check.on(random, pod.deepCopy());
            } catch (RuntimeException | AssertionError e) {
                throw new AssertionError("with -Daliquot.seed=" + seed + " and " + pod, e);
            }
        }
    }

    private static ObjectNode pod(Random random) {
        ObjectNode pod = JSON.createObjectNode().put("kind", "Pod").put("apiVersion", "v1");
        pod.putObject("metadata").put("name", "p");
        ObjectNode spec = pod.putObject("spec");
        if (random.nextBoolean()) {
            spec.put("schedulerName", random.nextBoolean() ? "default-scheduler" : "aliquot-scheduler");
        }
        if (random.nextInt(4) == 0) {
            spec.put("runtimeClassName", "other");
        }
        if (random.nextBoolean()) {
            spec.putArray("volumes").addObject().put("name", "data").putObject("emptyDir");
        }
        int inits = random.nextInt(3);
        for (int i = 0; i < inits; i++) {
            spec.withArray("/initContainers").add(container(random, "init-" + i, random.nextInt(4) == 0));
        }
        int apps = 1 + random.nextInt(4);
        for (int i = 0; i < apps; i++) {
            spec.withArray("/containers").add(container(random, "app-" + i, random.nextBoolean()));
        }
        return pod;
    }

    /** Amounts by Aliquot's resource names or by ACK's. */
    private static Map<String, String> gpuAmounts(Random random) {
        var amounts = new HashMap<String, String>();
        String memory = Integer.toString(1 + random.nextInt(80));
        switch (random.nextInt(5)) {
            case 0 -> amounts.put("nvidia.com/gpumem", memory);
            case 3 -> amounts.put("aliquot.io/vgpu", "1");
            case 1 -> amounts.put("nvidia.com/gpu", "2");
            case 2 -> amounts.put("aliyun.com/gpu", "2");
            default -> {
                amounts.put("aliyun.com/gpu-mem", memory);
                if (random.nextBoolean()) {
                    amounts.put("aliyun.com/gpu-core.percentage", "30");
                }
            }
        }
        if (random.nextInt(3) == 0) {
            amounts.put("nvidia.com/priority", "1");
        }
        return amounts;
    }

    private static boolean requestsGpus(ObjectNode pod) {
        return Stream.of("initContainers", "containers")
                .flatMap(kind -> StreamSupport.stream(pod.at("/spec/" + kind).spliterator(), false))
                .anyMatch(AdmissionPropertyTest::containerRequestsGpus);
    }

    private static boolean containerRequestsGpus(JsonNode container) {
        var names = new ArrayList<String>();
        container.at("/resources/limits").propertyNames().iterator().forEachRemaining(names::add);
        return names.stream().anyMatch(name -> name.contains(".com/gpu") || name.equals("aliquot.io/vgpu"));
    }

    private static ObjectNode container(Random random, String name, boolean gpu) {
        ObjectNode container = JSON.createObjectNode().put("name", name).put("image", "i~/" + random.nextInt());
        int variables = random.nextInt(5);
        for (int i = 0; i < variables; i++) {
            ObjectNode variable = container.withArray("/env").addObject();
            switch (random.nextInt(4)) {
                case 0 -> variable.put("name", "NVIDIA_VISIBLE_DEVICES").put("value", "all");
                case 1 ->
                    variable.put("name", "NVIDIA_VISIBLE_DEVICES")
                            .putObject("valueFrom")
                            .putObject("fieldRef")
                            .put("fieldPath", "metadata.name");
                case 2 -> variable.put("name", "NVIDIA_DRIVER_CAPABILITIES").put("value", "all");
                default -> variable.put("name", "A" + random.nextInt(3));
            }
        }
        if (random.nextBoolean()) {
            container.withArray("/volumeMounts").addObject().put("name", "data").put("mountPath", "/data");
        }
        Map<String, String> amounts = gpu ? gpuAmounts(random) : random.nextBoolean() ? Map.of("cpu", "1") : Map.of();
        amounts.forEach((key, value) -> {
            container.withObject("/resources/limits").put(key, value);
            if (random.nextBoolean()) {
                container.withObject("/resources/requests").put(key, value);
            }
        });
        return container;
    }
}
