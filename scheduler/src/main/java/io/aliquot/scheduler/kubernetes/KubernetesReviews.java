package io.aliquot.scheduler.kubernetes;

import io.aliquot.scheduler.inspection.AccessReviews;
import io.aliquot.scheduler.inspection.ApiException;
import io.fabric8.kubernetes.api.model.authentication.TokenReview;
import io.fabric8.kubernetes.api.model.authentication.TokenReviewBuilder;
import io.fabric8.kubernetes.api.model.authentication.UserInfo;
import io.fabric8.kubernetes.api.model.authorization.v1.SubjectAccessReview;
import io.fabric8.kubernetes.api.model.authorization.v1.SubjectAccessReviewBuilder;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientException;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.jspecify.annotations.Nullable;

/** TokenReview and SubjectAccessReview. */
final class KubernetesReviews implements AccessReviews {
    /** A user of the HTTP API waits for this. */
    private static final Duration TIMEOUT = Duration.ofSeconds(4);

    private final KubernetesClient kubernetes;

    KubernetesReviews(KubernetesClient kubernetes) {
        this.kubernetes = KubernetesConfiguration.withTimeout(kubernetes, TIMEOUT);
    }

    @Override
    public Optional<Caller> authenticate(String token) {
        var question = new TokenReviewBuilder()
                .withNewSpec()
                .withToken(token)
                .endSpec()
                .build();
        TokenReview answer;
        try {
            answer = kubernetes.tokenReviews().create(question);
        } catch (KubernetesClientException e) {
            throw unavailable(e);
        }
        if (answer.getStatus() == null
                || !Boolean.TRUE.equals(answer.getStatus().getAuthenticated())
                || answer.getStatus().getUser() == null) {
            return Optional.empty();
        }
        UserInfo user = answer.getStatus().getUser();
        return Optional.of(new Caller(
                orEmpty(user.getUsername()),
                orEmpty(user.getUid()),
                orEmpty(user.getGroups()),
                orEmpty(user.getExtra())));
    }

    @Override
    public boolean isAllowed(Caller caller, Access access) {
        var question = new SubjectAccessReviewBuilder()
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
            SubjectAccessReview answer =
                    kubernetes.authorization().v1().subjectAccessReview().create(question);
            return answer.getStatus() != null
                    && Boolean.TRUE.equals(answer.getStatus().getAllowed());
        } catch (KubernetesClientException e) {
            throw unavailable(e);
        }
    }

    private static ApiException unavailable(KubernetesClientException e) {
        String message = e.getStatus() != null && e.getStatus().getMessage() != null
                ? e.getStatus().getMessage()
                : String.valueOf(e.getMessage());
        return ApiException.unavailable(
                "the API server could not authenticate or authorize the request, try again: " + message);
    }

    private static String orEmpty(@Nullable String text) {
        return text == null ? "" : text;
    }

    private static List<String> orEmpty(@Nullable List<String> list) {
        return list == null ? List.of() : list;
    }

    private static Map<String, List<String>> orEmpty(@Nullable Map<String, List<String>> map) {
        return map == null ? Map.of() : map;
    }
}
