package io.aliquot.lab;

import com.google.errorprone.annotations.concurrent.GuardedBy;
import java.util.Collection;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Locale;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ThreadLocalRandom;
import org.junit.jupiter.api.extension.AfterAllCallback;
import org.junit.jupiter.api.extension.BeforeAllCallback;
import org.junit.jupiter.api.extension.ExtensionContext;
import org.junit.jupiter.api.extension.ExtensionContext.Namespace;
import org.junit.jupiter.api.extension.ParameterContext;
import org.junit.jupiter.api.extension.ParameterResolver;
import org.junit.jupiter.api.extension.TestExecutionExceptionHandler;
import org.junit.jupiter.api.parallel.Isolated;

/**
 * Injects the {@link Lab} and a new {@link TestNamespace} into a test, and adds their state to a failure of the test.
 *
 * <p>Two classes with this extension run at a time. Each gets a node, of the {@linkplain NodeKind.Required required} kind, on
 * which all its pods run, and which no other class uses meanwhile. A class that does more to the cluster than to create pods is {@link Isolated}: it runs alone and has
 * all nodes. Classes without this extension, such as the chart's, use no node and run beside the first two.
 */
final class LabExtension
        implements BeforeAllCallback, AfterAllCallback, ParameterResolver, TestExecutionExceptionHandler {
    private static final Namespace STORE = Namespace.create(LabExtension.class);
    private static final String NODE = "node";

    /** The nodes that no class has. */
    private static final class FreeNodes {
        @GuardedBy("this")
        private final Set<String> nodes;

        FreeNodes(Lab lab) {
            nodes = new LinkedHashSet<>(lab.nodes());
        }

        /** Waits for one of these nodes. */
        synchronized String take(Collection<String> suitable) throws InterruptedException {
            while (true) {
                Optional<String> node =
                        nodes.stream().filter(suitable::contains).findFirst();
                if (node.isPresent()) {
                    nodes.remove(node.get());
                    return node.get();
                }
                wait();
            }
        }

        synchronized void giveBack(String node) {
            nodes.add(node);
            notifyAll();
        }
    }

    @Override
    public void beforeAll(ExtensionContext context) throws InterruptedException {
        Class<?> test = context.getRequiredTestClass();
        if (!test.isAnnotationPresent(Isolated.class)) {
            Lab lab = lab(context);
            NodeKind.Required required = test.getAnnotation(NodeKind.Required.class);
            List<String> suitable = required == null ? lab.nodes() : List.of(lab.node(required.value()));
            context.getStore(STORE).put(NODE, freeNodes(context).take(suitable));
        }
    }

    @Override
    public void afterAll(ExtensionContext context) {
        node(context).ifPresent(freeNodes(context)::giveBack);
    }

    private static FreeNodes freeNodes(ExtensionContext context) {
        return context.getRoot()
                .getStore(STORE)
                .computeIfAbsent(FreeNodes.class, key -> new FreeNodes(lab(context)), FreeNodes.class);
    }

    private static Optional<String> node(ExtensionContext context) {
        return Optional.ofNullable(context.getStore(STORE).get(NODE, String.class));
    }

    private static Lab lab(ExtensionContext context) {
        return context.getRoot().getStore(STORE).computeIfAbsent(Lab.class, key -> Lab.find(), Lab.class);
    }

    @Override
    public boolean supportsParameter(ParameterContext parameter, ExtensionContext context) {
        Class<?> type = parameter.getParameter().getType();
        return type == Lab.class || type == TestNamespace.class;
    }

    @Override
    public Object resolveParameter(ParameterContext parameter, ExtensionContext context) {
        Lab lab = lab(context);
        if (parameter.getParameter().getType() == Lab.class) {
            return lab;
        }
        // JUnit closes the values of a store when the store's test ends.
        return context.getStore(STORE)
                .computeIfAbsent(
                        TestNamespace.class,
                        key -> new TestNamespace(lab, name(context), node(context)),
                        TestNamespace.class);
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
