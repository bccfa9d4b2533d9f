package io.aliquot.scheduler.extensionapi;

import static java.nio.charset.StandardCharsets.UTF_8;

import com.microsoft.playwright.BrowserContext;
import com.microsoft.playwright.Page;
import com.microsoft.playwright.options.ColorScheme;
import io.aliquot.api.nodes.Gpu;
import io.aliquot.api.pods.Placement;
import io.aliquot.scheduler.extensionapi.ObjectsProgram.Changes;
import io.aliquot.scheduler.extensionapi.machinery.Discovery;
import io.aliquot.scheduler.extensionapi.objects.GpuNodes.NodeMetadata;
import io.aliquot.scheduler.extensionapi.objects.GpuPod.ParsedRequest;
import io.aliquot.scheduler.extensionapi.webpage.WebPageController;
import io.aliquot.scheduler.ledger.BoundPods;
import io.aliquot.scheduler.ledger.NodeFacts;
import io.aliquot.scheduler.ledger.Quota;
import io.aliquot.scheduler.ledger.QuotaResource;
import io.aliquot.scheduler.placement.GpuAmount;
import io.aliquot.scheduler.placement.Gpus;
import io.aliquot.scheduler.placement.HostResources;
import io.aliquot.testing.Chromium;
import io.aliquot.testing.FaultyTcpProxy;
import jakarta.servlet.Filter;
import jakarta.servlet.FilterChain;
import jakarta.servlet.ServletException;
import jakarta.servlet.ServletRequest;
import jakarta.servlet.ServletResponse;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.function.Predicate;
import java.util.stream.IntStream;
import org.springframework.boot.builder.SpringApplicationBuilder;
import org.springframework.context.ConfigurableApplicationContext;

/**
 * The web page and the objects with a real ledger, behind a proxy that can fail, and a browser's view of them. It stands
 * for the API server, too: it can forbid requests.
 */
final class WebPageProgram implements AutoCloseable {
    static final String PATH = Discovery.VERSION_PATH + "/ui/";

    /** Collects what a test asks for later; it runs before the page's own scripts. */
    private static final String OBSERVE = """
            window.longTasks = [];
            new PerformanceObserver(list => window.longTasks.push(...list.getEntries().map(
              entry => ({ start: entry.startTime, millis: entry.duration })))).observe({ type: 'longtask', buffered: true });
            window.violations = [];
            document.addEventListener('securitypolicyviolation', event => window.violations.push(
              `${event.violatedDirective} ${event.blockedURI} ${event.sample}`));
            """;

    private final ConfigurableApplicationContext context;
    private final FaultyTcpProxy proxy;
    private final ApiServerFilter apiServer = new ApiServerFilter();
    private final List<BrowserContext> windows = new ArrayList<>();
    private final List<String> errors = new CopyOnWriteArrayList<>();

    /** Answers as the API server does what RBAC forbids, and remembers what is not read. */
    private static final class ApiServerFilter implements Filter {
        volatile Predicate<String> forbidden = path -> false;
        final List<String> paths = new CopyOnWriteArrayList<>();
        final List<String> changes = new CopyOnWriteArrayList<>();

        @Override
        public void doFilter(ServletRequest request, ServletResponse response, FilterChain chain)
                throws IOException, ServletException {
            var http = (HttpServletRequest) request;
            String path = http.getRequestURI();
            paths.add(path + (http.getQueryString() == null ? "" : "?" + http.getQueryString()));
            if (!http.getMethod().equals("GET")) {
                changes.add(http.getMethod() + " " + path);
            }
            if (forbidden.test(path)) {
                var answer = (HttpServletResponse) response;
                answer.setStatus(HttpServletResponse.SC_FORBIDDEN);
                answer.setContentType("application/json");
                String plural = path.substring(path.lastIndexOf('/') + 1);
                answer.getOutputStream().write("""
                        {"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"%1$s.gpu.aliquot.io \
                        is forbidden: User \\"viewer\\" cannot list resource \\"%1$s\\" in API group \\"gpu.aliquot.io\\" at \
                        the cluster scope","reason":"Forbidden","details":{"group":"gpu.aliquot.io","kind":"%1$s"},\
                        "code":403}""".formatted(plural).getBytes(UTF_8));
                return;
            }
            chain.doFilter(request, response);
        }
    }

    WebPageProgram() throws IOException {
        context = new SpringApplicationBuilder(ObjectsProgram.class, WebPageController.class)
                .properties("POD_NAME=aliquot-1", "POD_NAMESPACE=aliquot", "server.port=0")
                .initializers(
                        application -> ((org.springframework.context.support.GenericApplicationContext) application)
                                .registerBean("apiServer filter", Filter.class, () -> apiServer))
                .run();
        proxy = new FaultyTcpProxy(context.getEnvironment().getRequiredProperty("local.server.port", Integer.class));
    }

    Changes changes() {
        return context.getBean(Changes.class);
    }

    /** What the node agents would report. */
    Figures figures() {
        return context.getBean(Figures.class);
    }

    <T> T bean(Class<T> type) {
        return context.getBean(type);
    }

    FaultyTcpProxy network() {
        return proxy;
    }

    /** Forbids requests by their paths from now on, as RBAC would. */
    void forbid(Predicate<String> paths) {
        apiServer.forbidden = paths;
    }

    /** The paths and queries of all requests so far. */
    List<String> requests() {
        return List.copyOf(apiServer.paths);
    }

    /** Method and path of all requests other than GET. */
    List<String> changesRequested() {
        return List.copyOf(apiServer.changes);
    }

    String origin() {
        return "http://127.0.0.1:" + proxy.port();
    }

    /** Adds a node with GPUs of one model; {@code number} is part of their UUIDs. */
    void addNode(String name, int number, int gpus, String model, int memoryMiB) {
        Gpu[] list = IntStream.range(0, gpus)
                .mapToObj(index -> new Gpu(
                        Gpus.uuid(number, index), index, model, memoryMiB, 0, -1, Gpu.HEALTHY, Gpu.SHIM, Map.of()))
                .toArray(Gpu[]::new);
        Changes changes = changes();
        changes.ledger()
                .putNode(
                        name,
                        new NodeFacts.Sharing(
                                Gpus.inventory(10, list), Placement.BINPACK, new HostResources(1000, 1000)));
        changes.nodes()
                .put(new NodeMetadata(
                        name, "uid-" + name, changes.version().incrementAndGet(), Instant.EPOCH, Map.of(), List.of()));
    }

    /** Adds a bound pod whose container {@code main} holds a part of a GPU. */
    void addPod(String namespace, String name, String node, String uuid, int memoryMiB) {
        changes()
                .bound(
                        namespace,
                        name,
                        node,
                        Map.of("app", name),
                        BoundPods.main(uuid, new GpuAmount(memoryMiB, 10, 1, false)));
    }

    /** Adds a pod that waits for a GPU, or changes one; kube-scheduler has said why. */
    void addPending(String namespace, String name, int memoryMiB, String message) {
        Changes changes = changes();
        changes.put(
                changes.id(namespace, name),
                changes.version().incrementAndGet(),
                Map.of("app", name),
                "",
                0,
                new ParsedRequest.Valid(Gpus.request("APP:main: gpumem=" + memoryMiB)),
                message,
                List.of());
    }

    /** Adds or replaces a ResourceQuota. */
    void putQuota(String namespace, String name, Map<QuotaResource, Long> hard) {
        changes().ledger().putQuota(new Quota(namespace, name, "uid-quota-" + name, hard, List.of()));
    }

    /** The first lists of the watches on pods and nodes are complete. */
    void listed() {
        Changes changes = changes();
        changes.shares().listed(changes.version().get());
        changes.nodes().listed(changes.version().get());
    }

    /** Opens an empty page, which keeps the errors of its scripts. */
    Page open(Chromium chromium, ColorScheme scheme) {
        Page page = chromium.open(scheme, 1440, 900);
        windows.add(page.context());
        page.addInitScript(OBSERVE);
        page.onPageError(errors::add);
        return page;
    }

    /** Opens a view of the page. */
    Page open(Chromium chromium, ColorScheme scheme, String view) {
        Page page = open(chromium, scheme);
        page.navigate(address(view));
        return page;
    }

    String address(String view) {
        return origin() + PATH + view;
    }

    /** What scripts did not catch, in all pages. */
    List<String> errors() {
        return List.copyOf(errors);
    }

    @Override
    public void close() {
        windows.forEach(BrowserContext::close);
        proxy.close();
        context.close();
    }
}
