package io.aliquot.scheduler.kubernetes;

import io.aliquot.api.FormatException;
import io.aliquot.scheduler.inspection.AccessReviews;
import io.aliquot.scheduler.inspection.ApiException;
import io.aliquot.scheduler.inspection.PodLookup;
import io.fabric8.kubernetes.api.model.authentication.TokenReviewBuilder;
import io.fabric8.kubernetes.api.model.authentication.TokenReviewStatus;
import io.fabric8.kubernetes.api.model.authentication.UserInfo;
import io.fabric8.kubernetes.api.model.authorization.v1.SubjectAccessReviewBuilder;
import io.fabric8.kubernetes.api.model.authorization.v1.SubjectAccessReviewStatus;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientException;
import java.time.Duration;
import java.util.Objects;
import java.util.Optional;
import org.springframework.stereotype.Component;

/** What the HTTP API reads from the API server: TokenReview, SubjectAccessReview and single pods. */
@Component
final class KubernetesInspection implements AccessReviews, PodLookup {
    /** A user of the HTTP API waits for this. */
    private static final Duration TIMEOUT = Duration.ofSeconds(4);

    private final KubernetesClient kubernetes;

    KubernetesInspection(KubernetesClient kubernetes) {
        this.kubernetes = KubernetesConfiguration.withTimeout(kubernetes, TIMEOUT);
    }

    @Override
    public Optional<Caller> authenticate(String token) {
        var review = new TokenReviewBuilder()
                .withNewSpec()
                .withToken(token)
                .endSpec()
                .build();
        TokenReviewStatus status;
        try {
            status = kubernetes.tokenReviews().create(review).getStatus();
        } catch (KubernetesClientException e) {
            throw unavailable(e);
        }
        if (status == null || !Boolean.TRUE.equals(status.getAuthenticated()) || status.getUser() == null) {
            return Optional.empty();
        }
        UserInfo user = status.getUser();
        return Optional.of(new Caller(
                Objects.requireNonNullElse(user.getUsername(), ""),
                Objects.requireNonNullElse(user.getUid(), ""),
                user.getGroups(),
                user.getExtra()));
    }

    @Override
    public boolean isAllowed(Caller caller, Access access) {
        var review = new SubjectAccessReviewBuilder()
                .withNewSpec()
                .withUser(caller.user())
                .withUid(caller.uid())
                .withGroups(caller.groups())
                .withExtra(caller.extra())
                .withNewResourceAttributes()
                .withVerb(access.verb())
                .withVersion("v1")
                .withResource(access.resource())
                .withNamespace(access.namespace())
                .withName(access.name())
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
            throw unavailable(e);
        }
    }

    @Override
    public Optional<Pod> find(String namespace, String name) {
        io.fabric8.kubernetes.api.model.Pod pod;
        try {
            pod = kubernetes.pods().inNamespace(namespace).withName(name).get();
        } catch (KubernetesClientException e) {
            throw ApiException.unavailable("the API server did not return the pod, try again: " + e.getMessage());
        }
        if (pod == null) {
            return Optional.empty();
        }
        return Optional.of(new Pod(
                PodReader.id(pod),
                PodReader.node(pod),
                PodReader.ended(pod),
                Objects.requireNonNullElse(pod.getSpec().getSchedulerName(), ""),
                request(pod),
                Objects.requireNonNullElse(pod.getSpec().getPriority(), 0),
                !"Never".equals(pod.getSpec().getPreemptionPolicy()),
                PodReader.unschedulableMessage(pod)));
    }

    private static ApiException unavailable(KubernetesClientException e) {
        return ApiException.unavailable("the API server could not authenticate or authorize the request, try again: "
                + KubernetesConfiguration.message(e));
    }

    private static ParsedRequest request(io.fabric8.kubernetes.api.model.Pod pod) {
        try {
            return new ParsedRequest.Valid(PodReader.gpuRequest(pod));
        } catch (FormatException e) {
            return new ParsedRequest.Invalid(String.valueOf(e.getMessage()));
        }
    }
}
