package io.aliquot.scheduler.apiserver.client;

import io.aliquot.scheduler.apiserver.client.ApiServerClient.Answer;
import io.aliquot.scheduler.cluster.Cluster.WriteOutcome;
import io.fabric8.kubernetes.api.model.Status;
import io.fabric8.kubernetes.client.utils.KubernetesSerialization;
import java.io.IOException;
import java.net.ConnectException;
import java.time.Duration;
import java.util.concurrent.TimeUnit;
import java.util.function.LongSupplier;

/**
 * Writes whose outcome the caller must know. Each is sent once. Only after status 429 is it sent again, when
 * {@code Retry-After} says: the API server has not processed that request.
 */
public final class Writer {
    private static final int REQUEST_TIMEOUT = 408;
    private static final int CONFLICT = 409;
    private static final int TOO_MANY_REQUESTS = 429;
    private static final long LEAST_WAIT_SECONDS = 1;
    /** A request is not sent with less time left. */
    private static final Duration SHORTEST = Duration.ofMillis(1);

    private final KubernetesSerialization json;
    private final ApiServerClient client;
    private final Duration timeout;
    private final LongSupplier nanoTime;

    /** {@code timeout} limits the whole write, including the waits for a busy API server. */
    public Writer(ApiServerClient client, KubernetesSerialization json, Duration timeout, LongSupplier nanoTime) {
        this.client = client;
        this.json = json;
        this.timeout = timeout;
        this.nanoTime = nanoTime;
    }

    /** {@code type} is the content type in which the API server reads {@code body}. */
    public WriteOutcome write(String method, String type, String path, Object body) {
        String text = json.asJson(body);
        long end = nanoTime.getAsLong() + timeout.toNanos();
        Duration left = timeout;
        while (true) {
            Answer response;
            try {
                // The API server stops processing the request once its client has given up (kube-apiserver,
                // WithRequestDeadline).
                response = client.send(method, path + "?timeout=" + left.toMillis() + "ms", type, text, left);
            } catch (ConnectException e) {
                return new WriteOutcome.Unheard("the API server cannot be reached: " + e.getMessage());
            } catch (IOException e) {
                return new WriteOutcome.Unknown(e.toString());
            }
            if (response.code() != TOO_MANY_REQUESTS) {
                return outcome(response);
            }
            Duration wait = Duration.ofSeconds(retryAfter(response));
            left = Duration.ofNanos(end - nanoTime.getAsLong()).minus(wait);
            if (left.compareTo(SHORTEST) < 0) {
                return new WriteOutcome.Unheard("the API server is too busy: " + message(response));
            }
            try {
                TimeUnit.NANOSECONDS.sleep(wait.toNanos());
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
                return new WriteOutcome.Unheard("interrupted while the API server was too busy");
            }
            left = Duration.ofNanos(end - nanoTime.getAsLong()); // the wait can take longer than asked for
            if (left.compareTo(SHORTEST) < 0) {
                return new WriteOutcome.Unheard("the API server is too busy: " + message(response));
            }
        }
    }

    private WriteOutcome outcome(Answer response) {
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

    private static long retryAfter(Answer response) {
        return response.retryAfter()
                .filter(seconds -> seconds.matches("[0-9]{1,6}"))
                .map(seconds -> Math.max(LEAST_WAIT_SECONDS, Long.parseLong(seconds)))
                .orElse(LEAST_WAIT_SECONDS);
    }

    /** The message of the Status in {@code response}, or its text. */
    public String message(Answer response) {
        String text = response.text().strip();
        if (text.startsWith("{")) {
            try {
                Status status = json.unmarshal(text, Status.class);
                if (status.getMessage() != null) {
                    return status.getMessage();
                }
            } catch (RuntimeException e) {
                // returned as it is
            }
        }
        return "HTTP " + response.code()
                + (text.isEmpty() ? "" : " " + text.substring(0, Math.min(200, text.length())));
    }
}
