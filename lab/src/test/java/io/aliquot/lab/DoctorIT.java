package io.aliquot.lab;

import static io.aliquot.lab.TestNamespace.EVENTUALLY;
import static io.aliquot.lab.TestNamespace.awaitTrue;
import static java.nio.charset.StandardCharsets.US_ASCII;
import static org.assertj.core.api.Assertions.assertThat;

import io.aliquot.api.foreign.HamiRegistration;
import io.aliquot.api.format.JsonFields;
import io.aliquot.api.names.Labels;
import io.aliquot.lab.Lab.Output;
import io.fabric8.kubernetes.api.model.Event;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.api.model.admissionregistration.v1.MutatingWebhookConfiguration;
import io.fabric8.kubernetes.api.model.coordination.v1.Lease;
import io.fabric8.kubernetes.api.model.node.v1.RuntimeClass;
import io.fabric8.kubernetes.api.model.rbac.PolicyRule;
import java.time.Duration;
import java.time.ZoneOffset;
import java.time.ZonedDateTime;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.function.Predicate;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.api.parallel.Isolated;
import tools.jackson.databind.JsonNode;

/** That the doctor names what is wrong, and nothing where nothing is: faults are planted one after the other. */
@ExtendWith(LabExtension.class)
@LongTier.Only
@Isolated
class DoctorIT {
    private static final Duration DAEMON_SET = Duration.ofMinutes(2);
    private static final String CDI = "/etc/cdi/aliquot-fake-driver.json";
    private static final String PLUGINS = "/var/lib/kubelet/device-plugins";
    /** Self-signed, valid in 2020. */
    private static final String EXPIRED = """
            -----BEGIN CERTIFICATE-----
            MIIBTTCB86ADAgECAgkA0LNwpCdzpwIwCgYIKoZIzj0EAwMwEjEQMA4GA1UEAxMH
            ZXhwaXJlZDAeFw0yMDAxMDExNzQzMjFaFw0yMDEyMzExNzQzMjFaMBIxEDAOBgNV
            BAMTB2V4cGlyZWQwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAATLKQ8m1XWWfyn+
            mIzJ9ytpvCgk/hujMITpEmioVTSNCfslJSyflDU841eyx7iU+9wdxmcLv5WwbtGc
            9YNkZ8TCozIwMDAdBgNVHQ4EFgQUiJiiE9lNPFhCWThYAAVKRgNzTL8wDwYDVR0T
            AQH/BAUwAwEB/zAKBggqhkjOPQQDAwNJADBGAiEA7dfQdW6HE2MrhVCK2lOHjvXd
            g+crWOcbg2PV2NaTWyACIQDXmVOWXBbsfuEJTYHShwQjdlx5uedXIcaHSxirJ8AQ
            Cg==
            -----END CERTIFICATE-----
            """;

    private record Finding(String check, String object, String problem) {
        /** Whether this is the finding of a check about an object, in whose problem something is said. */
        boolean is(String check, String object, String part) {
            return this.check.equals(check) && this.object.equals(object) && problem.contains(part);
        }
    }

    @Test
    void aHealthyClusterHasNoFindingAndEachNodeIsProbed(Lab lab) {
        Output output = lab.aliquot("doctor");

        assertThat(output.exit()).as("%s", output).isZero();
        assertThat(output.out())
                .matches("Nothing found: Kubernetes v[0-9.]+, " + lab.nodes().size() + " nodes with gpu=on, "
                        + lab.nodes().size() + " of them probed\n");
        assertThat(lab.client().pods().inNamespace("default").list().getItems())
                .as("the probes are deleted")
                .allMatch(pod -> pod.getMetadata().getDeletionTimestamp() != null);
    }

    @Test
    void theChartsJobFindsTheSameWithAnAccountThatOnlyReads(Lab lab) {
        String object = "job/doctor-it";
        try {
            lab.kubectl("-n", Lab.NAMESPACE, "create", "job", "--from=cronjob/aliquot-doctor", "doctor-it")
                    .expectSuccess();
            lab.kubectl("-n", Lab.NAMESPACE, "wait", "--for=condition=complete", object, "--timeout=90s")
                    .expectSuccess();
            assertThat(lab.kubectl("-n", Lab.NAMESPACE, "logs", object).expectSuccess())
                    .startsWith("Nothing found: ")
                    .contains(", 0 of them probed");
        } finally {
            lab.kubectl("-n", Lab.NAMESPACE, "delete", object, "--ignore-not-found");
        }
    }

    @Test
    void theDriversLibraryIsOfAnotherVersionThanTheKernelModule(Lab lab) {
        String node = lab.nodes().getFirst();
        try {
            lab.driver(node, "driver", "--mismatch", "on");
            deleteAgent(lab, node);
            awaitFinding(lab, found -> found.is("agent", "node/" + node, "Driver/library version mismatch"));
        } finally {
            lab.driver(node, "driver", "--mismatch", "off");
            lab.awaitAgents();
        }
        awaitHealthy(lab);
    }

    @Test
    void theRuntimeClassIsMissing(Lab lab) {
        RuntimeClass runtimeClass = deleteRuntimeClass(lab);
        try {
            assertThat(findings(lab)).anyMatch(found -> found.is("runtime-class", "runtimeclass/nvidia", "is missing"));
        } finally {
            lab.client().resource(runtimeClass).create();
        }
        awaitHealthy(lab);
    }

    @Test
    void theRuntimeClassHasAHandlerThatNoNodeHas(Lab lab, TestNamespace namespace) {
        RuntimeClass runtimeClass = deleteRuntimeClass(lab);
        RuntimeClass without = lab.client().getKubernetesSerialization().clone(runtimeClass);
        without.setHandler("missing");
        try {
            lab.client().resource(without).create();
            awaitWarning(namespace, "no runtime for \"missing\" is configured");
            assertThat(findings(lab))
                    .anyMatch(
                            found -> found.is("pod-start", pod(namespace), "no runtime for \"missing\" is configured"));
        } finally {
            deleteRuntimeClass(lab);
            lab.client().resource(runtimeClass).create();
            namespace.deleteAllPods();
        }
        awaitHealthy(lab);
    }

    @Test
    void theCdiSpecificationIsMissing(Lab lab, TestNamespace namespace) {
        try {
            lab.onNode(namespace.node(), "mv", CDI, CDI + ".away").expectSuccess();
            awaitWarning(namespace, "CDI");
            assertThat(findings(lab)).anyMatch(found -> found.is("pod-start", pod(namespace), "CDI"));
        } finally {
            lab.onNode(namespace.node(), "mv", CDI + ".away", CDI).expectSuccess();
            namespace.deleteAllPods();
        }
        awaitHealthy(lab);
    }

    @Test
    void theKubeletsPluginFolderIsNotWritable(Lab lab) {
        String node = lab.nodes().getFirst();
        try {
            lab.onNode(node, "chmod", "555", PLUGINS).expectSuccess();
            deleteAgent(lab, node);
            awaitFinding(lab, found -> found.is("agent", "node/" + node, PLUGINS));
        } finally {
            lab.onNode(node, "chmod", "755", PLUGINS).expectSuccess();
            lab.awaitAgents();
        }
        awaitHealthy(lab);
    }

    /** The kubelet is ended, and its Lease is as one whose clock is a minute ahead would write it. */
    @Test
    void aNodesClockIsOffByAMinute(Lab lab) {
        String node = lab.nodes().getFirst();
        try {
            lab.kill(node + "/kubelet");
            lab.client()
                    .resources(Lease.class)
                    .inNamespace("kube-node-lease")
                    .withName(node)
                    .edit(lease -> {
                        lease.getSpec()
                                .setRenewTime(ZonedDateTime.now(ZoneOffset.UTC).plusMinutes(1));
                        return lease;
                    });
            assertThat(findings(lab)).anyMatch(found -> found.is("clock", "node/" + node, "s ahead of"));
        } finally {
            lab.start(node + "/kubelet");
        }
        awaitHealthy(lab);
    }

    @Test
    void theWebhooksAuthorityHasExpired(Lab lab) {
        var webhooks = lab.client()
                .admissionRegistration()
                .v1()
                .mutatingWebhookConfigurations()
                .withName("aliquot");
        MutatingWebhookConfiguration before = webhooks.get();
        try {
            webhooks.edit(one -> withCaBundle(one, Base64.getEncoder().encodeToString(EXPIRED.getBytes(US_ASCII))));
            assertThat(findings(lab))
                    .anyMatch(found -> found.is(
                            "webhook-certificate",
                            "MutatingWebhookConfiguration/aliquot",
                            "has expired at 2020-12-31T17:43:21Z"));
        } finally {
            String bundle = before.getWebhooks().getFirst().getClientConfig().getCaBundle();
            webhooks.edit(one -> withCaBundle(one, bundle));
        }
        awaitHealthy(lab);
    }

    private static MutatingWebhookConfiguration withCaBundle(MutatingWebhookConfiguration webhooks, String bundle) {
        webhooks.getWebhooks().forEach(one -> one.getClientConfig().setCaBundle(bundle));
        return webhooks;
    }

    /** As by an administrator's edit or by a policy engine. */
    @Test
    void theAgentsRoleHasLostARight(Lab lab) {
        var role = lab.client().rbac().clusterRoles().withName("aliquot-device-plugin");
        List<PolicyRule> before = role.get().getRules();
        try {
            role.edit(one -> {
                one.getRules().forEach(rule -> rule.setVerbs(without("patch", rule.getVerbs())));
                one.getRules().removeIf(rule -> rule.getVerbs().isEmpty());
                return one;
            });
            awaitFinding(
                    lab,
                    found -> found.is(
                            "rights",
                            "serviceaccount/aliquot/aliquot-device-plugin",
                            "may not patch nodes, patch nodes/status"));
        } finally {
            role.edit(one -> {
                one.setRules(before);
                return one;
            });
        }
        awaitHealthy(lab);
    }

    private static List<String> without(String verb, List<String> verbs) {
        return verbs.stream().filter(one -> !one.equals(verb)).toList();
    }

    @Test
    void theComputeModeLetsOneProgramUseTheGpu(Lab lab) {
        String node = lab.nodes().getFirst();
        String gpu = Allocations.inventory(lab, node).gpus().getFirst().uuid();
        try {
            lab.driver(node, "exclusive", gpu, "on");
            awaitFinding(lab, found -> found.is("gpu-health", "node/" + node, "lets one program at a time use it"));
        } finally {
            lab.driver(node, "exclusive", gpu, "off");
        }
        awaitHealthy(lab);
    }

    @Test
    void theApiServiceHasNoEndpoints(Lab lab) {
        String[] scale = {"-n", Lab.NAMESPACE, "scale", "deployment/aliquot-api"};
        int replicas = lab.client()
                .apps()
                .deployments()
                .inNamespace(Lab.NAMESPACE)
                .withName("aliquot-api")
                .get()
                .getSpec()
                .getReplicas();
        try {
            lab.kubectl(with(scale, "--replicas=0")).expectSuccess();
            awaitFinding(
                    lab, found -> found.is("api-service", "apiservice/v1alpha1.gpu.aliquot.io", "MissingEndpoints"));
            assertThat(findings(lab))
                    .anyMatch(found ->
                            found.is("deployment", "deployment/aliquot/aliquot-api", "0 of 0 replicas are available"));
        } finally {
            lab.kubectl(with(scale, "--replicas=" + replicas)).expectSuccess();
        }
        awaitHealthy(lab);
    }

    @Test
    void nvidiasDevicePluginServesOneOfOurNodes(Lab lab) {
        String node = lab.otherNode();
        try {
            lab.kubectl("label", "node", node, Labels.GPU + "=" + Labels.GPU_ON).expectSuccess();
            awaitFinding(lab, found -> found.is("other-device-plugin", "node/" + node, "nvidia.com/gpu"));
        } finally {
            lab.kubectl("label", "node", node, Labels.GPU + "-").expectSuccess();
        }
        awaitHealthy(lab);
    }

    @Test
    void theCdiSpecificationIsMissingWhereTheAgentNamesCdiDevices(Lab lab) {
        String node = lab.node(NodeKind.CDI);
        try {
            lab.onNode(node, "mv", CDI, CDI + ".away").expectSuccess();
            awaitTrue(
                    "the node takes no pods",
                    EVENTUALLY,
                    () -> findings(lab).stream()
                            .anyMatch(found -> found.is("conflict", "node/" + node, "nvidia-ctk cdi generate")));
        } finally {
            lab.onNode(node, "mv", CDI + ".away", CDI).expectSuccess();
        }
        awaitHealthy(lab);
    }

    @Test
    void hamiIsRegisteredOnOneOfOurNodes(Lab lab) {
        String node = lab.nodes().getFirst();
        try {
            lab.kubectl("annotate", "node", node, HamiRegistration.REGISTER + "=[{\"id\":\"GPU-1\"}]")
                    .expectSuccess();
            assertThat(findings(lab)).anyMatch(found -> found.is("hami", "node/" + node, "HAMi has registered"));
        } finally {
            lab.kubectl("annotate", "node", node, HamiRegistration.REGISTER + "-")
                    .expectSuccess();
        }
        awaitHealthy(lab);
    }

    @Test
    void aShareIsPendingInANamespaceThatTheWebhookIgnores(Lab lab, TestNamespace namespace) {
        lab.kubectl("label", "namespace", namespace.name(), Labels.WEBHOOK + "=" + Labels.WEBHOOK_IGNORE)
                .expectSuccess();
        namespace.create(Pods.withLimits(lab, "share", Map.of("aliyun.com/gpu-mem", "3")));

        assertThat(findings(lab))
                .anyMatch(found -> found.is("ignored-namespace", pod(namespace), "requests aliyun.com/gpu-mem"));
        namespace.deleteAllPods();
        awaitHealthy(lab);
    }

    /** As with an image whose programs do not read /etc/ld.so.preload: the loader ignores a file that is no library. */
    @Test
    void theProbeDoesNotLoadTheShim(Lab lab) {
        String node = lab.nodes().getFirst();
        String shim = lab.onNode(node, "find", "/var/lib/aliquot/shim", "-name", "libaliquot.so")
                .expectSuccess()
                .strip();
        try {
            lab.onNode(node, "mv", shim, shim + ".away").expectSuccess();
            lab.onNode(node, "cp", "/etc/hostname", shim).expectSuccess();
            assertThat(findings(lab, "--probe"))
                    .anyMatch(found ->
                            found.is("probe", "node/" + node, "the loader has not loaded /usr/local/aliquot/"));
        } finally {
            lab.onNode(node, "mv", shim + ".away", shim).expectSuccess();
        }
        assertThat(findings(lab, "--probe")).isEmpty();
    }

    private static RuntimeClass deleteRuntimeClass(Lab lab) {
        var runtimeClasses = lab.client().resources(RuntimeClass.class);
        RuntimeClass present = runtimeClasses.withName("nvidia").get();
        runtimeClasses.withName("nvidia").delete();
        present.getMetadata().setResourceVersion(null);
        present.getMetadata().setUid(null);
        return present;
    }

    /** Creates a pod with a share that cannot start, and waits for the event that says why. */
    private static void awaitWarning(TestNamespace namespace, String part) {
        namespace.create(Pods.withGpuMemory(namespace.lab(), "share", 1000));
        awaitTrue(
                "an event about the pod says: " + part,
                EVENTUALLY,
                () -> namespace.events("share").stream()
                        .map(Event::getMessage)
                        .anyMatch(message -> String.valueOf(message).contains(part)));
    }

    private static String pod(TestNamespace namespace) {
        return "pod/" + namespace.name() + "/share";
    }

    private static void deleteAgent(Lab lab, String node) {
        Pod agent = lab.agentOf(node);
        lab.client().resource(agent).delete();
    }

    private static void awaitHealthy(Lab lab) {
        awaitFindings(lab, List::isEmpty);
    }

    private static void awaitFinding(Lab lab, Predicate<Finding> expected) {
        awaitFindings(lab, findings -> findings.stream().anyMatch(expected));
    }

    private static void awaitFindings(Lab lab, Predicate<List<Finding>> expected) {
        var last = new ArrayList<Finding>();
        try {
            awaitTrue("other findings", DAEMON_SET, () -> {
                last.clear();
                last.addAll(findings(lab));
                return expected.test(last);
            });
        } catch (AssertionError e) {
            throw new AssertionError("found " + last, e);
        }
    }

    private static List<Finding> findings(Lab lab) {
        return findings(lab, "--no-probe");
    }

    private static List<Finding> findings(Lab lab, String probe) {
        Output output = lab.aliquot("doctor", "-o", "json", probe);
        var findings = new ArrayList<Finding>();
        for (JsonNode one : JsonFields.JSON.readTree(output.out()).path("findings")) {
            findings.add(new Finding(
                    one.path("check").asString(),
                    one.path("object").asString(),
                    one.path("problem").asString()));
        }
        assertThat(output.exit()).as("%s", output).isEqualTo(findings.isEmpty() ? 0 : 1);
        return findings;
    }

    private static String[] with(String[] command, String argument) {
        var all = new ArrayList<>(List.of(command));
        all.add(argument);
        return all.toArray(String[]::new);
    }
}
