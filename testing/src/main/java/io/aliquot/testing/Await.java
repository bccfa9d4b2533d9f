package io.aliquot.testing;

import java.time.Duration;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;

/** Waits for what a server, a process or another thread makes true. */
public final class Await {
    private static final Duration LONGEST = Duration.ofSeconds(30);

    private Await() {}

    /** Something that becomes true. */
    public interface Condition {
        boolean holds() throws Exception;
    }

    /** Fails after 30 s. */
    public static void await(Condition condition) {
        await("what the test waits for", condition);
    }

    /** Fails after 30 s. */
    public static void await(String what, Condition condition) {
        await(() -> what, LONGEST, condition);
    }

    /** Checks the condition every 10 ms; fails after some time. */
    public static void await(Supplier<String> what, Duration longest, Condition condition) {
        long end = System.nanoTime() + longest.toNanos();
        try {
            while (!condition.holds()) {
                if (System.nanoTime() - end > 0) {
                    throw new AssertionError("not within " + longest.toSeconds() + " s: " + what.get());
                }
                TimeUnit.MILLISECONDS.sleep(10);
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new IllegalStateException(e);
        } catch (RuntimeException e) {
            throw e;
        } catch (Exception e) {
            throw new IllegalStateException(e);
        }
    }
}
