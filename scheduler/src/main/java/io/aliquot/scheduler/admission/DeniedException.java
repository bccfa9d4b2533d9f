package io.aliquot.scheduler.admission;

import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.jspecify.annotations.Nullable;
import org.springframework.http.HttpStatus;

/**
 * A refusal of a pod. The message is one sentence for the pod's author that says what to write instead. It may quote
 * the pod, which the API server has not validated yet, so it is shortened and control characters are replaced.
 */
final class DeniedException extends RuntimeException {
    private static final long serialVersionUID = 1L;
    private static final int MAX_LENGTH = 600;

    private final HttpStatus code;

    DeniedException(String message) {
        this(message, null);
    }

    DeniedException(String message, @Nullable Throwable cause) {
        this(HttpStatus.FORBIDDEN, printable(message), cause);
    }

    private DeniedException(HttpStatus code, String message, @Nullable Throwable cause) {
        super(message, cause, false, false); // without a stack trace, which costs more than the refusal
        this.code = code;
    }

    /**
     * The refusals of one pod, numbered if there are several.
     *
     * @param more the number of those that are not among {@code refusals}
     */
    static DeniedException of(List<DeniedException> refusals, int more) {
        if (refusals.size() == 1) {
            return refusals.getFirst();
        }
        String numbered = IntStream.range(0, refusals.size())
                .mapToObj(i -> "(" + (i + 1) + ") " + refusals.get(i).getMessage())
                .collect(Collectors.joining("; "));
        return new DeniedException(
                HttpStatus.FORBIDDEN, more > 0 ? numbered + "; and " + more + " more" : numbered, null);
    }

    static DeniedException tooLarge() {
        return new DeniedException(
                HttpStatus.CONTENT_TOO_LARGE,
                "the pod is too large for Aliquot's webhook: use fewer containers, environment variables, volumes, mounts"
                        + " and tolerations, and shorter names",
                null);
    }

    static DeniedException busy() {
        return new DeniedException(
                HttpStatus.TOO_MANY_REQUESTS,
                "Aliquot's webhook reads too many other large pods now: create the pod again",
                null);
    }

    /** The API server did not return an object that decides about the pod. */
    static DeniedException unreadable(String object, String why) {
        return new DeniedException(
                HttpStatus.TOO_MANY_REQUESTS,
                printable("Aliquot's webhook could not read the " + object + " (" + why + "): create the pod again"),
                null);
    }

    /** What the API server answers to the pod's author. */
    HttpStatus code() {
        return code;
    }

    private static String printable(String message) {
        String shown = message.replaceAll("\\p{Cntrl}", "?");
        return shown.length() <= MAX_LENGTH ? shown : shown.substring(0, MAX_LENGTH) + "…";
    }
}
