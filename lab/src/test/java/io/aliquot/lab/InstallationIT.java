package io.aliquot.lab;

import static io.aliquot.lab.TestNamespace.EVENTUALLY;
import static io.aliquot.lab.TestNamespace.awaitTrue;
import static org.assertj.core.api.Assertions.assertThat;

import io.fabric8.kubernetes.api.model.DeletionPropagation;
import io.fabric8.kubernetes.api.model.admissionregistration.v1.MutatingWebhook;
import io.fabric8.kubernetes.api.model.batch.v1.Job;
import io.fabric8.kubernetes.client.KubernetesClientException;
import java.time.Duration;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.api.parallel.Isolated;

/** The release: what the chart installs, and what the programs maintain at run time. */
@ExtendWith(LabExtension.class)
@Isolated
class InstallationIT {
    private static final String SECRET = "aliquot-webhook-tls";

    @Test
    void anUpgradeWithoutChangesKeepsTheWebhooksCaBundleAndTheJobThatWroteIt(Lab lab) {
        Set<String> before = caBundles(lab);
        Job job = job(lab);

        lab.helm("upgrade", "--reuse-values");

        assertThat(before).hasSize(1).doesNotContain("");
        assertThat(caBundles(lab)).isEqualTo(before);
        assertThat(job(lab).getMetadata().getUid()).isEqualTo(job.getMetadata().getUid());
        assertThat(job.getStatus().getSucceeded()).isEqualTo(1);
    }

    /** As docs/install.md says. */
    @Test
    void aCaBundleThatWasRemovedIsThereAgainWhenTheJobHasRunAgain(Lab lab, TestNamespace namespace) {
        Set<String> before = caBundles(lab);
        lab.client()
                .admissionRegistration()
                .v1()
                .mutatingWebhookConfigurations()
                .withName("aliquot")
                .edit(configuration -> {
                    configuration
                            .getWebhooks()
                            .forEach(webhook -> webhook.getClientConfig().setCaBundle(null));
                    return configuration;
                });
        assertThat(caBundles(lab)).containsExactly("");

        lab.client()
                .resource(job(lab))
                .withPropagationPolicy(DeletionPropagation.BACKGROUND)
                .delete();
        lab.helm("upgrade", "--reuse-values");

        awaitTrue(
                "the caBundle is there again", EVENTUALLY, () -> caBundles(lab).equals(before));
        admitted(lab, namespace, "after");
    }

    /** The scheduler has no right to write the caBundle, and needs none. */
    @Test
    void aDeletedCertificateIsRecreatedAndNoPodIsRefusedMeanwhile(Lab lab, TestNamespace namespace) {
        String before = certificate(lab);
        Set<String> caBundles = caBundles(lab);

        lab.client().secrets().inNamespace(Lab.NAMESPACE).withName(SECRET).delete();

        var pods = new AtomicInteger();
        awaitTrue("a new certificate", EVENTUALLY, () -> {
            namespace.create(Pods.withGpuMemory(lab, "meanwhile-" + pods.incrementAndGet(), 1));
            return !certificate(lab).isEmpty() && !certificate(lab).equals(before);
        });
        assertThat(caBundles(lab)).isEqualTo(caBundles);
        admitted(lab, namespace, "after");
    }

    /** Waits until the API server uses the caBundle, a moment after it has stored it. */
    private static void admitted(Lab lab, TestNamespace namespace, String name) {
        awaitTrue("a pod that requests a GPU is admitted", Duration.ofSeconds(20), () -> {
            try {
                namespace.create(Pods.withGpuMemory(lab, name, 1000));
                return true;
            } catch (KubernetesClientException e) {
                return false;
            }
        });
        namespace.awaitRunning(name, EVENTUALLY);
    }

    /** The Job that writes the caBundles. */
    private static Job job(Lab lab) {
        List<Job> jobs = lab.client()
                .batch()
                .v1()
                .jobs()
                .inNamespace(Lab.NAMESPACE)
                .withLabel("app.kubernetes.io/component", "ca-bundles")
                .list()
                .getItems();
        assertThat(jobs).hasSize(1);
        return jobs.get(0);
    }

    @Test
    void bindingAPodAtTheFirstAttemptTakesOneWrite(Lab lab, TestNamespace namespace) throws InterruptedException {
        namespace.run(Pods.withGpuMemory(lab, "warm-up", 1000));
        AuditLog log = AuditLog.fromNowOn(lab);

        namespace.run(Pods.withGpuMemory(lab, "counted", 1000));

        namespace.run(Pods.withGpuMemory(lab, "later", 1000)); // meanwhile a write that follows the Binding would come
        assertThat(log.aliquotWrites())
                .containsExactly(
                        new AuditLog.Write("aliquot-scheduler", "create", "pods/binding counted", 201),
                        new AuditLog.Write("aliquot-scheduler", "create", "pods/binding later", 201));
    }

    @Test
    void theExtendersVerbsAreUnreachableFromAnotherPod(Lab lab, TestNamespace namespace) {
        String address = lab.componentPods("scheduler").stream()
                .filter(TestNamespace::isRunning)
                .map(pod -> pod.getStatus().getPodIP())
                .findFirst()
                .orElseThrow();
        namespace.run(Pods.withoutGpu(lab, "other-pod"));
        String script = """
                import sys, urllib.request, urllib.error
                for port, path in ((9998, "/bind"), (9998, "/filter"), (9090, "/bind"), (9090, "/livez")):
                    try:
                        code = urllib.request.urlopen(
                            urllib.request.Request(f"http://%s:{port}{path}", None if path == "/livez" else b"{}"),
                            timeout=5).status
                    except urllib.error.HTTPError as e:
                        code = e.code
                    except urllib.error.URLError as e:
                        code = type(e.reason).__name__
                    print(port, path, code)
                """.formatted(address);

        assertThat(namespace
                        .exec("other-pod", "python3", "-c", script)
                        .expectSuccess()
                        .lines())
                .containsExactly(
                        "9998 /bind ConnectionRefusedError",
                        "9998 /filter ConnectionRefusedError",
                        "9090 /bind 404",
                        "9090 /livez 200");
    }

    private static Set<String> caBundles(Lab lab) {
        List<MutatingWebhook> webhooks = lab.client()
                .admissionRegistration()
                .v1()
                .mutatingWebhookConfigurations()
                .withName("aliquot")
                .get()
                .getWebhooks();
        assertThat(webhooks)
                .extracting(MutatingWebhook::getName)
                .containsExactlyInAnyOrder(
                        "gpu.aliquot.io",
                        "namespace.gpu.aliquot.io",
                        "gpu-shared.gpu.aliquot.io",
                        "mig.gpu.aliquot.io",
                        "update.gpu.aliquot.io",
                        "void.aliquot.io",
                        "debug.aliquot.io");
        var caBundles = new HashSet<String>();
        for (MutatingWebhook webhook : webhooks) {
            String bundle = webhook.getClientConfig().getCaBundle();
            caBundles.add(bundle == null ? "" : bundle);
        }
        return caBundles;
    }

    private static String certificate(Lab lab) {
        var secret = lab.client()
                .secrets()
                .inNamespace(Lab.NAMESPACE)
                .withName(SECRET)
                .get();
        return secret == null ? "" : String.valueOf(secret.getData().get("tls.crt"));
    }
}
