package io.aliquot.scheduler.cluster;

import io.aliquot.scheduler.apiserver.Cluster.WriteOutcome;
import io.aliquot.scheduler.cluster.ApiServerClient.Answer;
import io.fabric8.kubernetes.api.model.Status;
import io.fabric8.kubernetes.client.utils.KubernetesSerialization;
import java.io.IOException;
import java.net.ConnectException;
import java.time.Duration;
import java.util.concurrent.TimeUnit;
import org.apache.hc.core5.http.ContentType;

/**
 * Writes of which one must know what became of them. One try each, but for a server that says it is too busy, and when
 * to come back: it has not looked at the request.
 */
final class Writer {
    private static final int REQUEST_TIMEOUT = 408;
    private static final int CONFLICT = 409;
    private static final int TOO_MANY_REQUESTS = 429;
    private static final long LEAST_WAIT_SECONDS = 1;

    private final KubernetesSerialization json;
    private final ApiServerClient line;
    private final Duration patience;

    /** {@code patience} is for the write as a whole, waiting for a busy server included. */
    Writer(ApiServerClient line, KubernetesSerialization json, Duration patience) {
        this.line = line;
        this.json = json;
        this.patience = patience;
    }

    WriteOutcome write(String method, ContentType type, String path, Object body) {
        String text = json.asJson(body);
        long end = System.nanoTime() + patience.toNanos();
        while (true) {
            Duration left = Duration.ofNanos(end - System.nanoTime());
            Answer response;
            try {
                // The server stops working on it when nobody waits for it any more (kube-apiserver,
                // WithRequestDeadline).
                response = line.send(method, path + "?timeout=" + left.toMillis() + "ms", type, text, left);
            } catch (ConnectException e) {
                return new WriteOutcome.Unheard("the API server cannot be reached: " + e.getMessage());
            } catch (IOException e) {
                return new WriteOutcome.Unknown(e.toString());
            }
            if (response.code() != TOO_MANY_REQUESTS) {
                return outcome(response);
            }
            Duration wait = Duration.ofSeconds(retryAfter(response));
            if (end - System.nanoTime() <= wait.toNanos()) {
                return new WriteOutcome.Unheard("the API server is too busy: " + message(response));
            }
            try {
                TimeUnit.NANOSECONDS.sleep(wait.toNanos());
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
                return new WriteOutcome.Unheard("interrupted while the API server was too busy");
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

    /** Why not, in the server's words. */
    String message(Answer response) {
        String text = response.text().strip();
        if (text.startsWith("{")) {
            try {
                Status status = json.unmarshal(text, Status.class);
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
