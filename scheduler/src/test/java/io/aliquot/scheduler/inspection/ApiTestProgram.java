package io.aliquot.scheduler.inspection;

import io.aliquot.api.Gpu;
import io.aliquot.api.Placement;
import io.aliquot.scheduler.LedgerConfiguration;
import io.aliquot.scheduler.apiserver.FakeCluster;
import io.aliquot.scheduler.ledger.BoundPods;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.ledger.NodeFacts;
import io.aliquot.scheduler.ledger.PodId;
import io.aliquot.scheduler.placement.GpuAmount;
import io.aliquot.scheduler.placement.Gpus;
import io.aliquot.scheduler.placement.HostResources;
import io.aliquot.scheduler.server.CertificateSource;
import io.aliquot.scheduler.server.CertificateSource.Identity;
import io.aliquot.scheduler.server.KeyStores;
import io.aliquot.scheduler.server.RandomPorts;
import java.security.KeyStore;
import java.security.PrivateKey;
import java.security.cert.X509Certificate;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.springframework.boot.SpringBootConfiguration;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.boot.builder.SpringApplicationBuilder;
import org.springframework.boot.webmvc.autoconfigure.error.ErrorMvcAutoConfiguration;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.ComponentScan;
import org.springframework.context.annotation.ComponentScan.Filter;
import org.springframework.context.annotation.FilterType;
import org.springframework.context.annotation.Import;

/**
 * The API with a simulated API server. The token {@code admin} may do everything, {@code team} may read the pods of the
 * namespace {@code team}, and with {@code down} the API server is not reachable.
 */
@SpringBootConfiguration(proxyBeanMethods = false)
@EnableAutoConfiguration(exclude = ErrorMvcAutoConfiguration.class)
@ComponentScan(
        basePackages = {
            "io.aliquot.scheduler.server",
            "io.aliquot.scheduler.settings",
            "io.aliquot.scheduler.explain",
            "io.aliquot.scheduler.extender",
            "io.aliquot.scheduler.pending",
            "io.aliquot.scheduler.periodic",
            "io.aliquot.scheduler.preemption",
            "io.aliquot.scheduler.recovery",
            "io.aliquot.scheduler.metrics",
            "io.aliquot.scheduler.inspection"
        },
        excludeFilters = @Filter(type = FilterType.REGEX, pattern = ".*(Test\\$|Program).*"))
@Import({RandomPorts.class, LedgerConfiguration.class})
class ApiTestProgram {
    private static final int MEMORY = 40_000;

    static ConfigurableApplicationContext start() {
        ConfigurableApplicationContext context = new SpringApplicationBuilder(ApiTestProgram.class)
                .properties("POD_NAME=aliquot-1", "POD_NAMESPACE=aliquot", "ALIQUOT_API_SERVICE=aliquot-api")
                .run();
        fill(context.getBean(Ledger.class));
        return context;
    }

    /** Records the tokens that were reviewed, and holds the pods that tests add. */
    static final class Cluster implements AccessReviews, PodLookup {
        final Map<String, Pod> pods = new ConcurrentHashMap<>();
        final List<String> tokens = new java.util.concurrent.CopyOnWriteArrayList<>();

        @Override
        public Optional<Caller> authenticate(String token) {
            tokens.add(token);
            if (token.equals("down")) {
                throw ApiException.unavailable("try again: connection refused");
            }
            return token.equals("admin") || token.startsWith("team")
                    ? Optional.of(new Caller(token, "", List.of("system:authenticated"), Map.of()))
                    : Optional.empty();
        }

        @Override
        public boolean isAllowed(Caller caller, Access access) {
            return caller.user().equals("admin")
                    || (access.namespace().equals("team")
                            && access.resource().equals("pods")
                            && Set.of("get", "list").contains(access.verb()));
        }

        @Override
        public Optional<Pod> find(String namespace, String name) {
            return Optional.ofNullable(pods.get(namespace + "/" + name));
        }
    }

    @Bean
    Cluster cluster() {
        return new Cluster();
    }

    @Bean
    KeyStore keys() throws Exception {
        return KeyStores.selfSigned("aliquot-api");
    }

    @Bean
    CertificateSource certificates(KeyStore keys) throws Exception {
        var key = (PrivateKey) keys.getKey(KeyStores.ALIAS, KeyStores.PASSWORD.toCharArray());
        var certificate = (X509Certificate) keys.getCertificate(KeyStores.ALIAS);
        var identity = Optional.of(new Identity(key, List.of(certificate)));
        return () -> identity;
    }

    @Bean
    FakeCluster apiServer() {
        return new FakeCluster();
    }

    /** Adds three nodes with two GPUs and four pods each; the last pod of a node is the youngest. */
    static void fill(Ledger ledger) {
        for (int node = 1; node <= 3; node++) {
            Gpu[] gpus = {Gpus.gpu(node, 0, MEMORY), Gpus.gpu(node, 1, MEMORY)};
            ledger.putNode(
                    "n" + node,
                    new NodeFacts.Sharing(Gpus.inventory(10, gpus), Placement.BINPACK, new HostResources(1000, 1000)));
            for (int pod = 1; pod <= 4; pod++) {
                var share = BoundPods.main(Gpus.uuid(node, pod % 2), new GpuAmount(15_000, 20, 1, false));
                String namespace = pod == 4 ? "other" : "team";
                var id = new PodId(namespace, "p" + node + "-" + pod, "uid-" + node + "-" + pod);
                ledger.observeBound(BoundPods.under(BoundPods.of(id, "n" + node, 1, share), pod, ""));
            }
        }
    }
}
