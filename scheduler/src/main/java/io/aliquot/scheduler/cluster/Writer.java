package io.aliquot.scheduler.cluster;

import io.aliquot.scheduler.extender.Cluster.WriteOutcome;
import io.fabric8.kubernetes.api.model.Status;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.http.HttpClient;
import io.fabric8.kubernetes.client.http.HttpResponse;
import java.net.ConnectException;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * Writes of which one must know what became of them. One try each, but for a server that says it is too busy, and when
 * to come back: it has not looked at the request.
 */
final class Writer {
    private static final int REQUEST_TIMEOUT = 408;
    private static final int CONFLICT = 409;
    private static final int TOO_MANY_REQUESTS = 429;
    private static final int LEAST_WAIT_SECONDS = 1;

    private final KubernetesClient kubernetes;
    private final HttpClient http;
    private final Duration patience;

    /** {@code patience} is for the write as a whole, waiting for a busy server included. */
    Writer(KubernetesClient kubernetes, Duration patience) {
        this.kubernetes = kubernetes;
        this.http = kubernetes.getHttpClient();
        this.patience = patience;
    }

    WriteOutcome write(String method, String contentType, String path, Object body) {
        String json = kubernetes.getKubernetesSerialization().asJson(body);
        long end = System.nanoTime() + patience.toNanos();
        while (true) {
            Duration left = Duration.ofNanos(end - System.nanoTime());
            // The server stops working on it when nobody waits for it any more (kube-apiserver, WithRequestDeadline).
            URI uri = URI.create(kubernetes.getMasterUrl().toString().replaceAll("/+$", "") + path + "?timeout="
                    + left.toMillis() + "ms");
            var request = http.newHttpRequestBuilder()
                    .uri(uri)
                    .method(method, contentType, json)
                    .header("Accept", "application/json")
                    .timeout(left.toMillis(), TimeUnit.MILLISECONDS)
                    .build();
            HttpResponse<byte[]> response;
            try {
                response = http.sendAsync(request, byte[].class).get(left.toMillis(), TimeUnit.MILLISECONDS);
            } catch (ExecutionException e) {
                return failed(e);
            } catch (TimeoutException e) {
                return new WriteOutcome.Unknown("no answer within " + left.toMillis() + " ms");
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
                return new WriteOutcome.Unknown("interrupted");
            }
            if (response.code() != TOO_MANY_REQUESTS) {
                return outcome(response);
            }
            Duration wait = Duration.ofSeconds(retryAfter(response));
            if (end - System.nanoTime() <= wait.toNanos()) {
                return new WriteOutcome.Refused("the API server is too busy: " + message(response));
            }
            try {
                TimeUnit.NANOSECONDS.sleep(wait.toNanos());
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
                return new WriteOutcome.Refused("interrupted while the API server was too busy");
            }
        }
    }

    private static WriteOutcome failed(Throwable error) {
        for (Throwable cause = error; cause != null; cause = cause.getCause()) {
            if (cause instanceof ConnectException) {
                return new WriteOutcome.Refused("the API server cannot be reached: " + cause.getMessage());
            }
        }
        Throwable cause = error.getCause() == null ? error : error.getCause();
        return new WriteOutcome.Unknown(String.valueOf(cause));
    }

    private WriteOutcome outcome(HttpResponse<byte[]> response) {
        int code = response.code();
        if (response.isSuccessful()) {
            return new WriteOutcome.Done();
        }
        if (code == CONFLICT) {
            return new WriteOutcome.Conflicts(message(response));
        }
        return code >= 400 && code < 500 && code != REQUEST_TIMEOUT
                ? new WriteOutcome.Refused(message(response))
                : new WriteOutcome.Unknown(message(response));
    }

    private static long retryAfter(HttpResponse<byte[]> response) {
        String seconds = response.header("Retry-After");
        return seconds != null && seconds.matches("[0-9]{1,6}")
                ? Math.max(LEAST_WAIT_SECONDS, Long.parseLong(seconds))
                : LEAST_WAIT_SECONDS;
    }

    private String message(HttpResponse<byte[]> response) {
        byte[] body = response.body();
        String text = body == null ? "" : new String(body, StandardCharsets.UTF_8).strip();
        if (text.startsWith("{")) {
            try {
                Status status = kubernetes.getKubernetesSerialization().unmarshal(text, Status.class);
                if (status.getMessage() != null) {
                    return status.getMessage();
                }
            } catch (RuntimeException e) {
                // told as it is
            }
        }
        return "HTTP " + response.code()
                + (text.isEmpty() ? "" : " " + text.substring(0, Math.min(200, text.length())));
    }
}
