package io.aliquot.scheduler.inspection;

import io.aliquot.scheduler.inspection.AccessReviews.Caller;
import io.aliquot.scheduler.server.Problems;
import jakarta.servlet.FilterChain;
import jakarta.servlet.ServletException;
import jakarta.servlet.http.HttpFilter;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.util.Collections;
import java.util.List;
import java.util.Optional;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.jspecify.annotations.Nullable;
import org.springframework.boot.web.servlet.FilterRegistration;
import org.springframework.http.HttpHeaders;
import org.springframework.http.ProblemDetail;
import org.springframework.stereotype.Component;

/**
 * Refuses requests without a valid bearer token. The authenticated {@link Caller} of the others becomes the request
 * attribute {@link #CALLER}.
 *
 * <p>Package server accepts the paths below /api on the API's own port only.
 */
@Component
@FilterRegistration(urlPatterns = "/api/*")
final class TokenFilter extends HttpFilter {
    static final String CALLER = "aliquot.caller";
    private static final long serialVersionUID = 1L;
    /** The credentials of RFC 6750, section 2.1. */
    private static final Pattern BEARER = Pattern.compile("[Bb]earer +([A-Za-z0-9._~+/-]+=*)");

    private final transient AccessControl access;

    TokenFilter(AccessControl access) {
        this.access = access;
    }

    @Override
    protected void doFilter(HttpServletRequest request, HttpServletResponse response, FilterChain chain)
            throws IOException, ServletException {
        Optional<Caller> caller;
        try {
            Optional<String> token = token(Collections.list(request.getHeaders(HttpHeaders.AUTHORIZATION)));
            caller = token.isPresent() ? access.authenticate(token.get()) : Optional.empty();
        } catch (ApiException refusal) {
            Problems.write(request, response, refusal.getBody());
            return;
        }
        if (caller.isEmpty()) {
            // RFC 6750, section 3: a response with status 401 names the scheme.
            response.setHeader(HttpHeaders.WWW_AUTHENTICATE, "Bearer realm=\"aliquot\"");
            var problem = ProblemDetail.forStatus(HttpServletResponse.SC_UNAUTHORIZED);
            problem.setDetail("send the header Authorization: Bearer TOKEN with a valid token of this cluster,"
                    + " for example from kubectl create token");
            Problems.write(request, response, problem);
            return;
        }
        request.setAttribute(CALLER, caller.get());
        chain.doFilter(request, response);
    }

    private static Optional<String> token(List<String> headers) {
        if (headers.size() != 1) {
            return Optional.empty();
        }
        @Nullable String header = headers.get(0);
        Matcher matcher = BEARER.matcher(header == null ? "" : header);
        return matcher.matches() ? Optional.of(matcher.group(1)) : Optional.empty();
    }
}
