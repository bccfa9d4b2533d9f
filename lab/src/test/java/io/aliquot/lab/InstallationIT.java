package io.aliquot.lab;

import static io.aliquot.lab.TestNamespace.EVENTUALLY;
import static io.aliquot.lab.TestNamespace.awaitTrue;
import static org.assertj.core.api.Assertions.assertThat;

import io.fabric8.kubernetes.api.model.admissionregistration.v1.MutatingWebhook;
import io.fabric8.kubernetes.client.KubernetesClientException;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.api.io.TempDir;

/** The release: what the chart makes of a cluster, and what the programs keep right in it. */
@ExtendWith(LabExtension.class)
class InstallationIT {
    private static final String RELEASE = "aliquot";
    private static final String SECRET = "aliquot-webhook-tls";

    @Test
    void theChartWithItsDefaultsPassesADryRunByTheServer(Lab lab, @TempDir Path folder) throws IOException {
        Path objects = folder.resolve("objects.yaml");
        Files.writeString(
                objects,
                lab.aliquot("helm", "template", RELEASE, chart(lab), "--namespace", Lab.NAMESPACE)
                        .expectSuccess());

        String answer = lab.kubectl(
                        "apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", objects.toString())
                .expectSuccess();

        assertThat(answer)
                .contains("deployment.apps/aliquot-scheduler")
                .contains("daemonset.apps/aliquot-device-plugin")
                .contains("mutatingwebhookconfiguration.admissionregistration.k8s.io/aliquot")
                .contains("validatingadmissionpolicy");
    }

    @Test
    void anUpgradeWithoutAChangeKeepsTheWebhooksAuthority(Lab lab) {
        Set<String> before = authorities(lab);

        lab.aliquot("helm", "upgrade", RELEASE, chart(lab), "--namespace", Lab.NAMESPACE, "--reuse-values")
                .expectSuccess();

        assertThat(before).hasSize(1).doesNotContain("");
        assertThat(authorities(lab)).isEqualTo(before);
    }

    @Test
    void aDeletedCertificateIsMadeAnewAndAdmissionGoesOn(Lab lab, TestNamespace space) {
        String before = certificate(lab);

        lab.client().secrets().inNamespace(Lab.NAMESPACE).withName(SECRET).delete();

        awaitTrue(
                "another certificate, trusted by both webhooks",
                EVENTUALLY,
                () -> !certificate(lab).isEmpty()
                        && !certificate(lab).equals(before)
                        && authorities(lab).size() == 1
                        && !authorities(lab).contains(""));
        // The API server hears of the authority a moment after it has stored it.
        awaitTrue("a pod that asks for a GPU is admitted", Duration.ofSeconds(20), () -> {
            try {
                space.create(Pods.memory(lab, "after", 1000));
                return true;
            } catch (KubernetesClientException e) {
                return false;
            }
        });
        space.awaitRunning("after", EVENTUALLY);
    }

    @Test
    void aPodBoundAtFirstTryCostsOneWrite(Lab lab, TestNamespace space) throws InterruptedException {
        space.run(Pods.memory(lab, "warm-up", 1000));
        AuditLog log = AuditLog.fromNowOn(lab);

        space.run(Pods.memory(lab, "counted", 1000));

        Thread.sleep(1500); // for writes that would come after
        assertThat(log.ours())
                .containsExactly(new AuditLog.Write("aliquot-scheduler", "create", "pods/binding counted", 201));
    }

    @Test
    void theExtendersVerbsCannotBeReachedFromAnotherPod(Lab lab, TestNamespace space) {
        String address = lab.partsOf("scheduler").stream()
                .filter(TestNamespace::runs)
                .map(pod -> pod.getStatus().getPodIP())
                .findFirst()
                .orElseThrow();
        space.run(Pods.plain(lab, "stranger"));
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

        assertThat(space.exec("stranger", "python3", "-c", script)
                        .expectSuccess()
                        .lines())
                .containsExactly(
                        "9998 /bind ConnectionRefusedError",
                        "9998 /filter ConnectionRefusedError",
                        "9090 /bind 404",
                        "9090 /livez 200");
    }

    private static String chart(Lab lab) {
        return lab.root().resolve("charts/aliquot").toString();
    }

    private static Set<String> authorities(Lab lab) {
        List<MutatingWebhook> webhooks = lab.client()
                .admissionRegistration()
                .v1()
                .mutatingWebhookConfigurations()
                .withName("aliquot")
                .get()
                .getWebhooks();
        assertThat(webhooks)
                .extracting(MutatingWebhook::getName)
                .containsExactlyInAnyOrder("gpu.aliquot.io", "void.aliquot.io", "debug.aliquot.io");
        var authorities = new HashSet<String>();
        for (MutatingWebhook webhook : webhooks) {
            String bundle = webhook.getClientConfig().getCaBundle();
            authorities.add(bundle == null ? "" : bundle);
        }
        return authorities;
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
