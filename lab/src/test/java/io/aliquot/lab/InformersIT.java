package io.aliquot.lab;

import static io.aliquot.lab.TestNamespace.EVENTUALLY;
import static io.aliquot.lab.TestNamespace.awaitTrue;
import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.lab.InformerProcess.Entry;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.client.KubernetesClientException;
import io.fabric8.kubernetes.client.Watch;
import io.fabric8.kubernetes.client.Watcher;
import io.fabric8.kubernetes.client.WatcherException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.api.parallel.Isolated;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import tools.jackson.core.JacksonException;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.json.JsonMapper;

/** Controllers' informers, of client-go, on the resources of gpu.aliquot.io. */
@ExtendWith(LabExtension.class)
@Isolated
class InformersIT {
    private static final List<String> RESOURCES = List.of("gpushares", "gpunodes", "gpus");
    private static final int PODS = 3;
    private static final Duration RESTART_TIMEOUT = Duration.ofMinutes(4);

    /** client-go 1.35 takes the first objects from a watch, 1.31 from a list. */
    @ParameterizedTest
    @ValueSource(strings = {"1.31", "1.35"})
    void anInformerSyncsAndSeesAnAllocationWithinASecond(String version, Lab lab, TestNamespace namespace) {
        try (var informer = new InformerProcess(lab, version, RESOURCES.toArray(String[]::new));
                var bound = new Bindings(lab, namespace)) {
            for (String resource : RESOURCES) {
                awaitTrue(
                        resource + " are synced",
                        EVENTUALLY,
                        () -> synced(informer, resource).isPresent());
                assertThat(synced(informer, resource))
                        .as(resource)
                        .hasValue(list(lab, resource, "--all-namespaces").size());
                List<String> requests = informer.requests(resource, 0);
                if (version.equals("1.31")) {
                    assertThat(requests)
                            .anyMatch(url -> url.contains("limit=500") && !url.contains("watch="))
                            .anyMatch(url -> url.contains("watch=true"))
                            .noneMatch(url -> url.contains("sendInitialEvents"));
                } else {
                    assertThat(requests).allMatch(url -> url.contains("watch=true"));
                    assertThat(requests.getFirst()).contains("sendInitialEvents=true");
                }
            }
            var shares = new ArrayList<Long>();
            var nodes = new ArrayList<Long>();
            for (int i = 0; i < PODS; i++) {
                String name = "pod-" + i;
                int from = informer.lines().size();
                namespace.create(Pods.withGpuMemory(lab, name, 1000));
                awaitTrue(
                        "the informer has " + name,
                        EVENTUALLY,
                        () -> bound.at(name).isPresent()
                                && boundShare(informer, namespace, name).isPresent()
                                && update(informer, "gpunodes", from).isPresent()
                                && update(informer, "gpus", from).isPresent());
                shares.add(boundShare(informer, namespace, name).getAsLong()
                        - bound.at(name).getAsLong());
                nodes.add(update(informer, "gpunodes", from).getAsLong()
                        - bound.at(name).getAsLong());
            }
            System.out.printf(
                    "client-go %s: milliseconds from a pod's binding to its gpushare %s, to its gpunode %s%n",
                    version, shares, nodes);
            assertThat(shares.stream().sorted().toList().get(PODS / 2)).isLessThan(1000);
            assertThat(nodes.stream().sorted().toList().get(PODS / 2)).isLessThan(1000);
        }
    }

    /** Whatever the API server answers meanwhile: the informers have what a list has, without a restart. */
    @LongTier.Only
    @Test
    void informersMissNothingWhileEachReplicaIsKilled(Lab lab, TestNamespace namespace) {
        var replicas = new SchedulerReplicas(lab);
        replicas.awaitReady(RESTART_TIMEOUT);
        try (var older = new InformerProcess(lab, "1.31", RESOURCES.toArray(String[]::new));
                var newer = new InformerProcess(lab, "1.35", RESOURCES.toArray(String[]::new))) {
            List<InformerProcess> informers = List.of(older, newer);
            namespace.run(Pods.withGpuMemory(lab, "stays", 1000));
            namespace.run(Pods.withGpuMemory(lab, "goes", 1000));
            awaitSame(lab, namespace, informers);
            String before =
                    list(lab, "gpushares", "--namespace=" + namespace.name()).get("stays");
            List<Integer> from =
                    informers.stream().map(informer -> informer.lines().size()).toList();

            int killed = 0;
            for (Pod replica : replicas.all()) {
                replicas.signal(replica, SchedulerReplicas.EXTENDER, "SIGKILL");
                create(namespace, Pods.withGpuMemory(lab, "comes-" + killed++, 1000));
                if (killed == 1) {
                    namespace.requestDeletion(namespace.get("goes"));
                }
                replicas.awaitReady(RESTART_TIMEOUT);
            }
            for (int i = 0; i < killed; i++) {
                namespace.awaitRunning("comes-" + i, RESTART_TIMEOUT);
            }
            awaitSame(lab, namespace, informers);

            assertThat(lab.kubectl("get", "--raw", GpuApiIT.GROUP + "/gpushares?watch=true&resourceVersion=" + before)
                            .expectSuccess())
                    .as("a watch from before the replicas' start")
                    .contains("\"type\":\"ERROR\"", "\"code\":410", "\"reason\":\"Expired\"");
            for (int i = 0; i < informers.size(); i++) {
                List<String> requests = informers.get(i).requests("gpushares", from.get(i));
                System.out.println("client-go " + (i == 0 ? "1.31" : "1.35") + " sent " + requests);
                assertThat(requests)
                        .as("it lists again after the 410")
                        .anyMatch(url -> !url.contains("watch=") || url.contains("sendInitialEvents=true"));
            }
        }
    }

    /** Admission of pods fails while the replica that was just killed still counts as ready. */
    private static void create(TestNamespace namespace, Pod pod) {
        awaitTrue("a pod is admitted", EVENTUALLY, () -> {
            try {
                namespace.create(pod);
                return true;
            } catch (KubernetesClientException e) {
                return false;
            }
        });
    }

    private static void awaitSame(Lab lab, TestNamespace namespace, List<InformerProcess> informers) {
        for (InformerProcess informer : informers) {
            awaitTrue(
                    "an informer has what a list has",
                    EVENTUALLY,
                    () -> informer.objects("gpushares", namespace.name())
                            .equals(list(lab, "gpushares", "--namespace=" + namespace.name())));
        }
    }

    private static OptionalLong synced(InformerProcess informer, String resource) {
        return informer.lines().stream()
                .filter(line -> line.event().equals("synced") && line.resource().equals(resource))
                .mapToLong(Entry::objects)
                .findFirst();
    }

    /** When the informer reported that the pod holds its share. */
    private static OptionalLong boundShare(InformerProcess informer, TestNamespace namespace, String pod) {
        return informer.lines().stream()
                .filter(line -> line.name().equals(namespace.name() + "/" + pod)
                        && line.phase().equals("Bound"))
                .mapToLong(Entry::at)
                .findFirst();
    }

    private static OptionalLong update(InformerProcess informer, String resource, int from) {
        return informer.lines().stream()
                .skip(from)
                .filter(line -> line.event().equals("update") && line.resource().equals(resource))
                .mapToLong(Entry::at)
                .findFirst();
    }

    /** When this process saw a pod's node, in milliseconds since 1970. */
    private static final class Bindings implements Watcher<Pod>, AutoCloseable {
        private final Map<String, Long> times = new ConcurrentHashMap<>();
        private final Watch watch;

        Bindings(Lab lab, TestNamespace namespace) {
            watch = lab.client().pods().inNamespace(namespace.name()).watch(this);
        }

        OptionalLong at(String pod) {
            Long time = times.get(pod);
            return time == null ? OptionalLong.empty() : OptionalLong.of(time);
        }

        @Override
        public void eventReceived(Action action, Pod pod) {
            if (pod.getSpec().getNodeName() != null) {
                times.putIfAbsent(pod.getMetadata().getName(), System.currentTimeMillis());
            }
        }

        @Override
        public void onClose(WatcherException cause) {
            // The test then fails for lack of a time.
        }

        @Override
        public void close() {
            watch.close();
        }
    }

    /** The objects' resourceVersions by name. */
    private static Map<String, String> list(Lab lab, String resource, String scope) {
        String text = lab.kubectl("get", resource, scope, "--output", "json").expectSuccess();
        try {
            var versions = new TreeMap<String, String>();
            for (JsonNode item : new JsonMapper().readTree(text).get("items")) {
                versions.put(
                        item.at("/metadata/name").asString(""),
                        item.at("/metadata/resourceVersion").asString(""));
            }
            return versions;
        } catch (JacksonException e) {
            throw new AssertionError(text, e);
        }
    }
}
