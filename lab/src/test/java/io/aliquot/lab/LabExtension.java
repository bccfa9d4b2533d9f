package io.aliquot.lab;

import java.util.Locale;
import java.util.Optional;
import java.util.concurrent.ThreadLocalRandom;
import org.junit.jupiter.api.extension.ExtensionContext;
import org.junit.jupiter.api.extension.ExtensionContext.Namespace;
import org.junit.jupiter.api.extension.ParameterContext;
import org.junit.jupiter.api.extension.ParameterResolver;
import org.junit.jupiter.api.extension.TestExecutionExceptionHandler;

/**
 * Injects the {@link Lab} and a new {@link TestNamespace} into a test, and adds their state to a failure of the test.
 */
final class LabExtension implements ParameterResolver, TestExecutionExceptionHandler {
    private static final Namespace STORE = Namespace.create(LabExtension.class);

    @Override
    public boolean supportsParameter(ParameterContext parameter, ExtensionContext context) {
        Class<?> type = parameter.getParameter().getType();
        return type == Lab.class || type == TestNamespace.class;
    }

    @Override
    public Object resolveParameter(ParameterContext parameter, ExtensionContext context) {
        Lab lab = context.getRoot().getStore(STORE).computeIfAbsent(Lab.class, key -> Lab.find(), Lab.class);
        if (parameter.getParameter().getType() == Lab.class) {
            return lab;
        }
        // JUnit closes the values of a store when the store's test ends.
        return context.getStore(STORE)
                .computeIfAbsent(
                        TestNamespace.class, key -> new TestNamespace(lab, name(context)), TestNamespace.class);
    }

    private static String name(ExtensionContext context) {
        String test = context.getRequiredTestMethod()
                .getName()
                .replaceAll("([A-Z])", "-$1")
                .toLowerCase(Locale.ROOT);
        String unique = Integer.toHexString(ThreadLocalRandom.current().nextInt(0x1000, 0x10000));
        return test.substring(0, Math.min(50, test.length())).replaceAll("-$", "") + "-" + unique;
    }

    @Override
    public void handleTestExecutionException(ExtensionContext context, Throwable failure) throws Throwable {
        Optional.ofNullable(context.getStore(STORE).get(TestNamespace.class, TestNamespace.class))
                .ifPresent(namespace -> failure.addSuppressed(new LabState(namespace.diagnostics())));
        throw failure;
    }

    /** The state of the cluster when a test failed; shown below the failure. */
    private static final class LabState extends RuntimeException {
        private static final long serialVersionUID = 1;

        LabState(String state) {
            super(state, null, false, false);
        }
    }
}
