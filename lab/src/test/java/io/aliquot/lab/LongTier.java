package io.aliquot.lab;

import static java.lang.annotation.ElementType.METHOD;
import static java.lang.annotation.ElementType.TYPE;
import static java.lang.annotation.RetentionPolicy.RUNTIME;

import java.lang.annotation.Retention;
import java.lang.annotation.Target;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.condition.EnabledIfEnvironmentVariable;

/** What runs in the long tier only: {@code ./aliquot test --long lab} and {@code --long faults}. */
final class LongTier {
    private static final String VARIABLE = "ALIQUOT_LONG";
    private static final String ON = "1";

    private LongTier() {}

    /** A test that takes minutes, or of which others cover most. */
    @Target({TYPE, METHOD})
    @Retention(RUNTIME)
    @EnabledIfEnvironmentVariable(named = VARIABLE, matches = ON)
    @Tag("long")
    @interface Only {}

    /** All cases, or the full length, in the long tier; else some, or less. */
    static <T> T orElse(T all, T some) {
        return ON.equals(System.getenv(VARIABLE)) ? all : some;
    }
}
