package io.aliquot.scheduler.admission;

import java.util.ArrayList;
import java.util.List;
import java.util.function.Supplier;
import org.jspecify.annotations.Nullable;
import org.springframework.http.HttpStatus;

/** The refusals of checks that do not depend on each other: the pod's author learns them in one answer. Not thread-safe. */
final class Refusals {
    /** A hostile pod can have very many. */
    private static final int MOST = 5;

    private final List<DeniedException> first = new ArrayList<>();
    private int more;
    private @Nullable DeniedException repeatable;

    /** Keeps a refusal for {@link #throwIfAny}. */
    void add(DeniedException refusal) {
        if (refusal.code() != HttpStatus.FORBIDDEN) {
            repeatable = refusal;
        } else if (first.size() < MOST) {
            first.add(refusal);
        } else {
            more++;
        }
    }

    /** Runs a check and keeps its refusal. */
    void check(Runnable check) {
        try {
            check.run();
        } catch (DeniedException e) {
            add(e);
        }
    }

    /** The same for a check with a result, which is {@code otherwise} if the pod is refused. */
    <T> T check(Supplier<T> check, T otherwise) {
        try {
            return check.get();
        } catch (DeniedException e) {
            add(e);
            return otherwise;
        }
    }

    /** @throws DeniedException with all refusals; with one that clients repeat only if nothing else refuses the pod */
    void throwIfAny() {
        if (!first.isEmpty()) {
            throw DeniedException.of(first, more);
        }
        if (repeatable != null) {
            throw repeatable;
        }
    }
}
