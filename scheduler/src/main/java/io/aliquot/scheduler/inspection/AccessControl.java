package io.aliquot.scheduler.inspection;

import com.github.benmanes.caffeine.cache.Cache;
import com.github.benmanes.caffeine.cache.Caffeine;
import io.aliquot.api.Sha256;
import io.aliquot.scheduler.inspection.AccessReviews.Access;
import io.aliquot.scheduler.inspection.AccessReviews.Caller;
import java.time.Duration;
import java.util.Optional;
import org.springframework.http.HttpStatus;
import org.springframework.stereotype.Component;

/**
 * Authenticates and authorizes callers through the API server. Its answers are cached for {@link #TIME_TO_LIVE}: a
 * client that polls every second costs the API server little, and a revoked token or permission is refused after that
 * time. Requests that need the same answer at the same time wait for one review. Thread-safe.
 */
@Component
final class AccessControl {
    private static final Duration TIME_TO_LIVE = Duration.ofSeconds(10);
    private static final int MAX_ENTRIES = 10_000;

    private record Review(Caller caller, Access access) {}

    private final AccessReviews reviews;
    /** By the token's SHA-256, so that a dump of this process's memory contains no token from this cache. */
    private final Cache<String, Optional<Caller>> callers = cache();

    private final Cache<Review, Boolean> decisions = cache();

    AccessControl(AccessReviews reviews) {
        this.reviews = reviews;
    }

    private static <K, V> Cache<K, V> cache() {
        return Caffeine.newBuilder()
                .maximumSize(MAX_ENTRIES)
                .expireAfterWrite(TIME_TO_LIVE)
                .build();
    }

    /**
     * The user of a bearer token; empty if the token is invalid.
     *
     * @throws ApiException with status 503 if the API server gives no answer
     */
    Optional<Caller> authenticate(String token) {
        return callers.get(Sha256.hex(token), hash -> reviews.authenticate(token));
    }

    /**
     * Whether the cluster's RBAC allows it.
     *
     * @throws ApiException with status 503 if the API server gives no answer
     */
    boolean isAllowed(Caller caller, Access access) {
        return decisions.get(new Review(caller, access), review -> reviews.isAllowed(caller, access));
    }

    /**
     * Returns normally if the cluster's RBAC allows it.
     *
     * @throws ApiException with status 403 that names the missing permission, or 503 if the API server gives no answer
     */
    void require(Caller caller, Access access) {
        if (!isAllowed(caller, access)) {
            throw new ApiException(
                    HttpStatus.FORBIDDEN,
                    caller.user() + " is not allowed to " + access
                            + "; ask a cluster administrator for that permission (RBAC)");
        }
    }
}
