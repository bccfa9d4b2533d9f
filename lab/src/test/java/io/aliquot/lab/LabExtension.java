package io.aliquot.lab;

import com.google.errorprone.annotations.concurrent.GuardedBy;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.Locale;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ThreadLocalRandom;
import java.util.stream.Collectors;
import org.junit.jupiter.api.extension.AfterEachCallback;
import org.junit.jupiter.api.extension.BeforeAllCallback;
import org.junit.jupiter.api.extension.ExtensionContext;
import org.junit.jupiter.api.extension.ExtensionContext.Namespace;
import org.junit.jupiter.api.extension.ExtensionContext.Store;
import org.junit.jupiter.api.extension.ParameterContext;
import org.junit.jupiter.api.extension.ParameterResolver;
import org.junit.jupiter.api.extension.TestExecutionExceptionHandler;
import org.junit.jupiter.api.parallel.Isolated;

/**
 * Injects the {@link Lab}, a new {@link TestNamespace} and a {@link RuntimeClassNode} into a test, and adds their state to a
 * failure of the test. Records which kinds of node each test has run on, for {@link SupportMatrix}.
 *
 * <p>Two classes with this extension run at a time. Each gets a node, of the {@linkplain NodeKind.Required required} kind, on
 * which all its pods run, and which no other class uses meanwhile. A class that does more to the cluster than to create pods is
 * {@link Isolated}: it runs alone, and has all nodes if it requires no kind. Classes without this extension, such as the chart's,
 * use no node and run beside the first two.
 */
final class LabExtension
        implements BeforeAllCallback, AfterEachCallback, ParameterResolver, TestExecutionExceptionHandler {
    private static final Namespace STORE = Namespace.create(LabExtension.class);
    private static final String NODE = "node";

    /** The kind on whose node each class runs that may. */
    private static final Optional<NodeKind> WANTED =
            Optional.ofNullable(System.getProperty("aliquot.kind")).map(NodeKind::valueOf);

    /** The nodes that no class has. */
    private static final class FreeNodes {
        @GuardedBy("this")
        private final Set<String> nodes;

        FreeNodes(Lab lab) {
            nodes = Arrays.stream(NodeKind.values()).map(lab::node).collect(Collectors.toSet());
        }

        /** Waits for one of these nodes. */
        synchronized String take(Collection<String> suitable) throws InterruptedException {
            while (true) {
                for (String node : suitable) {
                    if (nodes.remove(node)) {
                        return node;
                    }
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
        Optional<NodeKind.Required> required = Optional.ofNullable(test.getAnnotation(NodeKind.Required.class));
        if (required.isPresent()) {
            TestResult.skipped(test, required.get()).forEach(TestResult::append);
        }
        if (required.isEmpty() && test.isAnnotationPresent(Isolated.class)) {
            return;
        }
        Lab lab = lab(context);
        List<NodeKind> kinds = List.of(required.map(NodeKind.Required::value).orElseGet(NodeKind::values));
        List<String> suitable = WANTED.filter(kinds::contains)
                .or(() -> required.map(any -> kinds.getFirst()))
                .map(kind -> List.of(lab.node(kind)))
                .orElseGet(lab::nodes);
        FreeNodes free = freeNodes(context);
        String node = free.take(suitable);
        // JUnit closes the values of a store when the store's test or class ends, the last one first.
        Store store = context.getStore(STORE);
        store.put("give back", (AutoCloseable) () -> free.giveBack(node));
        store.put(NODE, node);
        if (node.equals(lab.node(NodeKind.RUNTIME_CLASS))) {
            store.put(RuntimeClassNode.class, new RuntimeClassNode(lab));
        }
    }

    /** Records the result for each kind of node that the test's pods had containers on. */
    @Override
    public void afterEach(ExtensionContext context) {
        Store store = context.getStore(STORE);
        TestNamespace namespace = store.get(TestNamespace.class, TestNamespace.class);
        if (namespace == null) {
            return;
        }
        Lab lab = lab(context);
        Set<String> nodes = namespace.nodesWithContainers();
        for (NodeKind kind : NodeKind.values()) {
            boolean exists = kind != NodeKind.RUNTIME_CLASS || store.get(RuntimeClassNode.class) != null;
            if (exists && nodes.contains(lab.node(kind))) {
                TestResult.of(context, kind).append();
            }
        }
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
        return type == Lab.class || type == TestNamespace.class || type == RuntimeClassNode.class;
    }

    @Override
    public Object resolveParameter(ParameterContext parameter, ExtensionContext context) {
        Lab lab = lab(context);
        Class<?> type = parameter.getParameter().getType();
        Store store = context.getStore(STORE);
        if (type == Lab.class) {
            return lab;
        }
        if (type == RuntimeClassNode.class) {
            return store.computeIfAbsent(type, key -> new RuntimeClassNode(lab));
        }
        return store.computeIfAbsent(
                TestNamespace.class, key -> new TestNamespace(lab, name(context), node(context)), TestNamespace.class);
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
