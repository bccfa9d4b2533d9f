package io.aliquot.scheduler.inspection;

import com.github.benmanes.caffeine.cache.Cache;
import com.github.benmanes.caffeine.cache.Caffeine;
import com.github.benmanes.caffeine.cache.Ticker;
import io.aliquot.api.Sha256;
import io.aliquot.scheduler.inspection.AccessReviews.Access;
import io.aliquot.scheduler.inspection.AccessReviews.Caller;
import java.time.Duration;
import java.util.Optional;
import org.jspecify.annotations.Nullable;
import org.springframework.http.HttpStatus;

/**
 * Authenticates and authorizes callers through the API server. Its answers are cached for {@link #TIME_TO_LIVE}: a
 * client that polls every second costs the API server little, and a revoked token or permission is refused after that
 * time. Thread-safe.
 */
final class AccessControl {
    static final Duration TIME_TO_LIVE = Duration.ofSeconds(10);
    private static final int MAX_ENTRIES = 10_000;

    private record Review(Caller caller, Access access) {}

    private final AccessReviews reviews;
    /** By the token's SHA-256, so that a dump of this process's memory contains no token from this cache. */
    private final Cache<String, Optional<Caller>> callers;

    private final Cache<Review, Boolean> decisions;

    AccessControl(AccessReviews reviews, Ticker ticker) {
        this.reviews = reviews;
        this.callers = expiring(ticker).build();
        this.decisions = expiring(ticker).build();
    }

    private static Caffeine<Object, Object> expiring(Ticker ticker) {
        return Caffeine.newBuilder()
                .maximumSize(MAX_ENTRIES)
                .expireAfterWrite(TIME_TO_LIVE)
                .ticker(ticker);
    }

    /**
     * The user of a bearer token; empty if the token is invalid.
     *
     * @throws ApiException with status 503 if the API server gives no answer
     */
    Optional<Caller> authenticate(String token) {
        String key = Sha256.hex(token);
        Optional<Caller> cached = callers.getIfPresent(key);
        if (cached == null) {
            try {
                cached = reviews.authenticate(token);
            } catch (ApiServerUnavailableException e) {
                throw unavailable(e);
            }
            callers.put(key, cached);
        }
        return cached;
    }

    /**
     * Whether the cluster's RBAC allows it.
     *
     * @throws ApiException with status 503 if the API server gives no answer
     */
    boolean isAllowed(Caller caller, Access access) {
        var review = new Review(caller, access);
        @Nullable Boolean cached = decisions.getIfPresent(review);
        if (cached == null) {
            try {
                cached = reviews.isAllowed(caller, access);
            } catch (ApiServerUnavailableException e) {
                throw unavailable(e);
            }
            decisions.put(review, cached);
        }
        return cached;
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

    private static ApiException unavailable(ApiServerUnavailableException e) {
        return ApiException.unavailable(
                "the API server could not authenticate or authorize the request, try again: " + e.getMessage());
    }
}
