package io.aliquot.scheduler.extensionapi;

import io.aliquot.api.nodes.Gpu;
import io.aliquot.api.pods.CorePolicy;
import io.aliquot.api.pods.CoreRules;
import io.aliquot.api.pods.Placement;
import io.aliquot.api.pods.Priority;
import io.aliquot.scheduler.LedgerConfiguration;
import io.aliquot.scheduler.SystemClocks;
import io.aliquot.scheduler.cluster.FakeCluster;
import io.aliquot.scheduler.explain.Explainer;
import io.aliquot.scheduler.extensionapi.endpoints.DocumentsController;
import io.aliquot.scheduler.extensionapi.endpoints.HistoryController;
import io.aliquot.scheduler.extensionapi.endpoints.ObjectsController;
import io.aliquot.scheduler.extensionapi.endpoints.ShareExplainController;
import io.aliquot.scheduler.extensionapi.endpoints.SharePatchController;
import io.aliquot.scheduler.extensionapi.identity.IdentityFilter;
import io.aliquot.scheduler.extensionapi.identity.PodVisibility;
import io.aliquot.scheduler.extensionapi.identity.RequestUser;
import io.aliquot.scheduler.extensionapi.machinery.Watches;
import io.aliquot.scheduler.extensionapi.objects.ApiTypes.Condition;
import io.aliquot.scheduler.extensionapi.objects.GpuNodeResource;
import io.aliquot.scheduler.extensionapi.objects.GpuNodes;
import io.aliquot.scheduler.extensionapi.objects.GpuNodes.NodeMetadata;
import io.aliquot.scheduler.extensionapi.objects.GpuPod;
import io.aliquot.scheduler.extensionapi.objects.GpuPod.ParsedRequest;
import io.aliquot.scheduler.extensionapi.objects.GpuQuotas;
import io.aliquot.scheduler.extensionapi.objects.GpuResource;
import io.aliquot.scheduler.extensionapi.objects.GpuShares;
import io.aliquot.scheduler.extensionapi.objects.NamespaceRules;
import io.aliquot.scheduler.extensionapi.objects.PendingReasons;
import io.aliquot.scheduler.extensionapi.webpage.WebPageController;
import io.aliquot.scheduler.ledger.BoundPod;
import io.aliquot.scheduler.ledger.BoundPods;
import io.aliquot.scheduler.ledger.ContainerShare;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.ledger.NodeFacts;
import io.aliquot.scheduler.ledger.PodId;
import io.aliquot.scheduler.pending.PendingPods;
import io.aliquot.scheduler.placement.GpuAmount;
import io.aliquot.scheduler.placement.Gpus;
import io.aliquot.scheduler.placement.HostResources;
import io.aliquot.scheduler.placement.PodGpuRequest;
import io.aliquot.scheduler.preemption.Budgets;
import io.aliquot.scheduler.recovery.WriteReconciler;
import io.aliquot.scheduler.resize.Resizer;
import io.aliquot.scheduler.settings.Settings;
import jakarta.servlet.Filter;
import jakarta.servlet.http.HttpServletRequest;
import java.time.Instant;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;
import java.util.concurrent.atomic.AtomicLong;
import org.springframework.boot.SpringBootConfiguration;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.boot.builder.SpringApplicationBuilder;
import org.springframework.boot.web.servlet.FilterRegistrationBean;
import org.springframework.boot.webmvc.autoconfigure.error.ErrorMvcAutoConfiguration;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.ComponentScan;
import org.springframework.context.annotation.Configuration;
import org.springframework.context.annotation.FilterType;
import org.springframework.context.annotation.Import;
import org.springframework.core.env.Environment;

/** The objects with a real ledger over plain HTTP: without TLS, identities and the other ports. */
@SpringBootConfiguration(proxyBeanMethods = false)
@EnableAutoConfiguration(exclude = ErrorMvcAutoConfiguration.class)
@ComponentScan(
        basePackages = "io.aliquot.scheduler.server",
        useDefaultFilters = false,
        includeFilters = @ComponentScan.Filter(type = FilterType.REGEX, pattern = ".*ErrorResponses"))
@Import({SystemClocks.class, ObjectsProgram.Objects.class})
class ObjectsProgram {
    static final Condition CONDITION = new Condition("ClusterAutoscalerReady", "False", "NoKnownGpuResource", "why");
    private static final int MEMORY = 40_000;

    static ConfigurableApplicationContext start() {
        ConfigurableApplicationContext context = new SpringApplicationBuilder(ObjectsProgram.class)
                .properties("POD_NAME=aliquot-1", "POD_NAMESPACE=aliquot", "server.port=0")
                .run();
        context.getBean(Changes.class).fill();
        return context;
    }

    static String url(ConfigurableApplicationContext context) {
        return "http://localhost:" + context.getEnvironment().getRequiredProperty("local.server.port");
    }

    @Bean
    Settings settings(Environment environment) {
        return Settings.read(environment::getProperty);
    }

    /** Stands in for {@link IdentityFilter}: the header names the user, without a certificate. */
    @Bean
    FilterRegistrationBean<Filter> user() {
        return new FilterRegistrationBean<>((request, response, chain) -> {
            String name = ((HttpServletRequest) request).getHeader("X-Remote-User");
            if (name != null) {
                request.setAttribute(RequestUser.ATTRIBUTE, new RequestUser(name, "", List.of(), Map.of()));
            }
            chain.doFilter(request, response);
        });
    }

    /** What answers requests for objects, in front of a simulated API server. */
    @Configuration(proxyBeanMethods = false)
    @Import({
        LedgerConfiguration.class,
        Explainer.class,
        PendingPods.class,
        Budgets.class,
        Resizer.class,
        WriteReconciler.class,
        GpuNodes.class,
        GpuNodeResource.class,
        GpuResource.class,
        GpuShares.class,
        GpuQuotas.class,
        PendingReasons.class,
        Watches.class,
        ObjectsController.class,
        SharePatchController.class,
        ShareExplainController.class,
        HistoryController.class,
        DocumentsController.class,
        WebPageController.class
    })
    static class Objects {
        @Bean
        FakeCluster apiServer() {
            return new FakeCluster();
        }

        /** The namespace other forbids what costs neighbors. */
        @Bean
        NamespaceRules rules() {
            var walled = new CoreRules(List.of(CorePolicy.FIXED, CorePolicy.ELASTIC), List.of(Priority.LOW), true);
            return namespace -> namespace.equals("other") ? walled : CoreRules.NONE;
        }

        @Bean
        PodVisibility visibility() {
            return (user, namespace) -> user.name().equals("admin");
        }

        @Bean
        Figures figures() {
            return new Figures();
        }

        @Bean
        Changes changes(Ledger ledger, GpuShares shares, GpuNodes nodes) {
            return new Changes(ledger, shares, nodes, new AtomicLong(100));
        }
    }

    /** What the watches on pods and nodes would report. */
    record Changes(Ledger ledger, GpuShares shares, GpuNodes nodes, AtomicLong version) {
        /** Three nodes with two GPUs each, and on each node three pods of team and one of other. */
        void fill() {
            for (int node = 1; node <= 3; node++) {
                node(node, Gpus.gpu(node, 0, MEMORY), Gpus.gpu(node, 1, MEMORY));
                for (int pod = 1; pod <= 4; pod++) {
                    String name = "p" + node + "-" + pod;
                    bound(
                            pod == 4 ? "other" : "team",
                            name,
                            "n" + node,
                            Map.of("app", "train", "tier", pod % 2 == 0 ? "a" : "b"),
                            BoundPods.main(Gpus.uuid(node, pod % 2), new GpuAmount(15_000, 20, 1, false)));
                }
            }
            shares.listed(version.get());
            nodes.listed(version.get());
        }

        void node(int number, Gpu... gpus) {
            ledger.putNode(
                    "n" + number,
                    new NodeFacts.Sharing(Gpus.inventory(10, gpus), Placement.BINPACK, new HostResources(1000, 1000)));
            nodes.put(new NodeMetadata(
                    "n" + number,
                    "uid-n" + number,
                    version.incrementAndGet(),
                    Instant.EPOCH.plusSeconds(number),
                    Map.of("zone", "z" + number),
                    List.of(CONDITION)));
        }

        PodId id(String namespace, String name) {
            return new PodId(namespace, name, "uid-" + name);
        }

        void bound(String namespace, String name, String node, Map<String, String> labels, ContainerShare... held) {
            PodId id = id(namespace, name);
            long at = version.incrementAndGet();
            BoundPod like = BoundPods.of(id, node, 1, held);
            ledger.observeBound(new BoundPod(
                    id,
                    node,
                    at,
                    List.of(held),
                    like.hostRequests(),
                    like.scopes(),
                    1,
                    Instant.EPOCH.plusSeconds(at),
                    Instant.EPOCH.plusSeconds(at),
                    like.grace(),
                    Instant.MAX));
            put(
                    id,
                    at,
                    labels,
                    node,
                    1,
                    new ParsedRequest.Valid(Gpus.request("APP:main: gpumem=15000")),
                    "",
                    List.of(held));
        }

        /** A pod of the namespace team, whose priority is higher than that of all bound pods. */
        void pending(String name, PodGpuRequest request, String message) {
            pending(name, new ParsedRequest.Valid(request), message);
        }

        void pending(String name, ParsedRequest request, String message) {
            put(id("team", name), version.incrementAndGet(), Map.of("app", name), "", 5, request, message, List.of());
        }

        /** A Pending pod with scheduling gates, as kube-scheduler marks it. */
        void gated(String name, PodGpuRequest request, String... gates) {
            long at = version.incrementAndGet();
            shares.put(new GpuPod(
                    id("team", name),
                    at,
                    Instant.EPOCH.plusSeconds(at),
                    Map.of(),
                    "",
                    false,
                    5,
                    true,
                    "Scheduling is blocked due to non-empty scheduling gates",
                    List.of(gates),
                    new ParsedRequest.Valid(request),
                    List.of()));
            nodes.reached(at);
        }

        void put(
                PodId id,
                long at,
                Map<String, String> labels,
                String node,
                int priority,
                ParsedRequest request,
                String message,
                List<ContainerShare> held) {
            shares.put(new GpuPod(
                    id,
                    at,
                    Instant.EPOCH.plusSeconds(at),
                    labels,
                    node,
                    false,
                    priority,
                    true,
                    message,
                    List.of(),
                    request,
                    held));
            nodes.reached(at);
        }

        void ended(String namespace, String name) {
            long at = version.incrementAndGet();
            ledger.observeEnded("uid-" + name);
            shares.remove(id(namespace, name), OptionalLong.of(at));
            nodes.reached(at);
        }
    }
}
