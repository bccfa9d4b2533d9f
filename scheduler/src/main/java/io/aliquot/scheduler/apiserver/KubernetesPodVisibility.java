package io.aliquot.scheduler.apiserver;

import io.aliquot.scheduler.extensionapi.identity.PodVisibility;
import io.aliquot.scheduler.extensionapi.identity.RequestUser;
import io.fabric8.kubernetes.api.model.authorization.v1.SubjectAccessReviewBuilder;
import io.fabric8.kubernetes.api.model.authorization.v1.SubjectAccessReviewStatus;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientException;
import java.time.Duration;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import org.springframework.stereotype.Component;

/** Asks the API server by SubjectAccessReview. */
@Component
final class KubernetesPodVisibility implements PodVisibility {
    private static final Logger LOG = LoggerFactory.getLogger(KubernetesPodVisibility.class);
    /** A user waits for this. */
    private static final Duration TIMEOUT = Duration.ofSeconds(2);

    private final KubernetesClient kubernetes;

    KubernetesPodVisibility(KubernetesClient kubernetes) {
        this.kubernetes = KubernetesConfiguration.withTimeout(kubernetes, TIMEOUT);
    }

    @Override
    public boolean mayListPods(RequestUser user, String namespace) {
        var review = new SubjectAccessReviewBuilder()
                .withNewSpec()
                .withUser(user.name())
                .withUid(user.uid())
                .withGroups(user.groups())
                .withExtra(user.extra())
                .withNewResourceAttributes()
                .withVerb("list")
                .withVersion("v1")
                .withResource("pods")
                .withNamespace(namespace)
                .endResourceAttributes()
                .endSpec()
                .build();
        try {
            SubjectAccessReviewStatus status = kubernetes
                    .authorization()
                    .v1()
                    .subjectAccessReview()
                    .create(review)
                    .getStatus();
            return status != null && Boolean.TRUE.equals(status.getAllowed());
        } catch (KubernetesClientException e) {
            LOG.warn("cannot ask which pods a user may list: {}", KubernetesConfiguration.message(e));
            return false;
        }
    }
}
