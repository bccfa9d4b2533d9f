package io.aliquot.scheduler.inspection;

import com.github.benmanes.caffeine.cache.Cache;
import com.github.benmanes.caffeine.cache.Caffeine;
import com.github.benmanes.caffeine.cache.Ticker;
import io.aliquot.api.Sha256;
import io.aliquot.scheduler.inspection.AccessReviews.Caller;
import io.aliquot.scheduler.inspection.AccessReviews.Deed;
import java.time.Duration;
import java.util.Optional;
import org.jspecify.annotations.Nullable;
import org.springframework.http.HttpStatus;

/**
 * Who asks, and whether they may. The API server's answers hold for {@link #HOLD_FOR}, so that a page that asks every
 * second costs it next to nothing, and a token or a right that is taken away is gone here as soon. Thread-safe.
 */
final class AccessControl {
    static final Duration HOLD_FOR = Duration.ofSeconds(10);
    private static final int MOST = 10_000;

    private record Question(Caller caller, Deed deed) {}

    private final AccessReviews reviews;
    /** By the token's SHA-256: nobody who reads our memory finds a token here. */
    private final Cache<String, Optional<Caller>> callers;

    private final Cache<Question, Boolean> rights;

    AccessControl(AccessReviews reviews, Ticker ticker) {
        this.reviews = reviews;
        this.callers = brief(ticker).build();
        this.rights = brief(ticker).build();
    }

    private static Caffeine<Object, Object> brief(Ticker ticker) {
        return Caffeine.newBuilder()
                .maximumSize(MOST)
                .expireAfterWrite(HOLD_FOR)
                .ticker(ticker);
    }

    /**
     * The caller of this name.
     *
     * @throws ApiException where the API server can't say
     */
    Optional<Caller> whose(String token) {
        String key = Sha256.hex(token);
        Optional<Caller> known = callers.getIfPresent(key);
        if (known == null) {
            try {
                known = reviews.whose(token);
            } catch (UnansweredException e) {
                throw unanswered(e);
            }
            callers.put(key, known);
        }
        return known;
    }

    /** Whether the cluster's own rules let the caller do that. */
    boolean may(Caller caller, Deed deed) {
        var question = new Question(caller, deed);
        @Nullable Boolean known = rights.getIfPresent(question);
        if (known == null) {
            try {
                known = reviews.allowed(caller, deed);
            } catch (UnansweredException e) {
                throw unanswered(e);
            }
            rights.put(question, known);
        }
        return known;
    }

    /**
     * Returns if the caller may do that.
     *
     * @throws ApiException that says what right is missing
     */
    void require(Caller caller, Deed deed) {
        if (!may(caller, deed)) {
            throw new ApiException(
                    HttpStatus.FORBIDDEN,
                    caller.user() + " may not " + deed + "; ask an admin of the cluster for that right (RBAC)");
        }
    }

    private static ApiException unanswered(UnansweredException e) {
        return ApiException.unavailable(
                "the API server did not say who you are and what you may do, try again: " + e.getMessage());
    }
}
