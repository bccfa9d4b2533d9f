package io.aliquot.lab;

import static io.aliquot.lab.TestNamespace.EVENTUALLY;
import static org.assertj.core.api.Assertions.assertThat;

import io.fabric8.kubernetes.api.model.Pod;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.api.parallel.Isolated;

/**
 * A release of Helm 3 that another program takes over by server-side apply, as Argo CD does: none of Aliquot's programs changes a
 * field that the chart has, so the comparison that such a program makes for ever finds nothing.
 */
@ExtendWith(LabExtension.class)
@Isolated
@LongTier.Only
class ServerSideApplyIT {
    private static final String JOB = "app.kubernetes.io/component=ca-bundles";
    private static final Duration ROLLOUT = EVENTUALLY.multipliedBy(2);

    @TempDir
    @SuppressWarnings("NullAway.Init")
    private Path folder;

    @Test
    void nothingDiffersAfterNewCertificatesAnotherLeaderAnotherAgentAndAnUpgrade(Lab lab) throws IOException {
        var schedulers = new SchedulerReplicas(lab);
        try {
            Path manifests = render(lab);
            apply(lab, manifests);
            String bundle = caBundle(lab);

            inRelease(lab, "delete", "secret", "aliquot-webhook-ca", "aliquot-webhook-tls");
            inRelease(lab, "delete", "job", "-l", JOB);
            apply(lab, manifests);
            inRelease(lab, "wait", "--for=condition=Complete", "job", "-l", JOB, "--timeout=120s");
            schedulers.awaitReady(ROLLOUT);
            assertThat(caBundle(lab)).isNotEmpty().isNotEqualTo(bundle);

            String leader = schedulers.leader();
            inRelease(lab, "delete", "pod", leader);
            schedulers.awaitReady(ROLLOUT);
            assertThat(schedulers.leader()).isNotEqualTo(leader);

            Pod agent = lab.agentOf(lab.nodes().get(0));
            inRelease(lab, "delete", "pod", agent.getMetadata().getName());
            lab.awaitAgents();

            apply(lab, render(lab, "--set-string", "podLabels.upgraded=yes"));
            lab.awaitSchedulers();
            lab.awaitAgents();
            assertThat(differences(lab, manifests).out()).contains("upgraded: \"yes\"");
            apply(lab, manifests);
            lab.awaitSchedulers();
            lab.awaitAgents();
            schedulers.awaitReady(ROLLOUT);

            assertThat(differences(lab, manifests)).isEqualTo(new Lab.Output(0, "", ""));
        } finally {
            inRelease(lab, "delete", "job", "-l", JOB);
            lab.aliquot("up", "--no-build").expectSuccess();
        }
    }

    /** The chart with the values of the lab's release, and more if given. */
    private Path render(Lab lab, String... flags) throws IOException {
        String values = lab.aliquot("helm", "get", "values", "aliquot", "--namespace", Lab.NAMESPACE, "-o", "yaml")
                .expectSuccess();
        Path file = Files.writeString(folder.resolve("values.yaml"), values);
        String[] all = new String[flags.length + 3];
        System.arraycopy(flags, 0, all, 3, flags.length);
        all[0] = "--skip-tests";
        all[1] = "--values";
        all[2] = file.toString();
        return Files.writeString(Files.createTempFile(folder, "manifests", ".yaml"), lab.helm("template", all));
    }

    /** Fails on a conflict with another field manager. */
    private static void apply(Lab lab, Path manifests) {
        lab.kubectl("apply", "--server-side", "--field-manager=gitops", "-f", manifests.toString())
                .expectSuccess();
    }

    private static Lab.Output differences(Lab lab, Path manifests) {
        return lab.kubectl("diff", "--server-side", "--field-manager=gitops", "-f", manifests.toString());
    }

    private static String caBundle(Lab lab) {
        return lab.kubectl("get", "apiservice", "v1alpha1.gpu.aliquot.io", "-o", "jsonpath={.spec.caBundle}")
                .expectSuccess();
    }

    private static void inRelease(Lab lab, String... command) {
        String[] all = new String[command.length + 2];
        all[0] = "--namespace";
        all[1] = Lab.NAMESPACE;
        System.arraycopy(command, 0, all, 2, command.length);
        lab.kubectl(all).expectSuccess();
    }
}
