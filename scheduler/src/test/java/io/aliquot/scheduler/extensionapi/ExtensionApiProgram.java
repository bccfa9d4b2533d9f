package io.aliquot.scheduler.extensionapi;

import io.aliquot.scheduler.cluster.FakeCluster;
import io.aliquot.scheduler.extensionapi.Authority.Identity;
import io.aliquot.scheduler.extensionapi.endpoints.DocumentsController;
import io.aliquot.scheduler.extensionapi.identity.ControlPlane;
import io.aliquot.scheduler.extensionapi.identity.FrontProxyKeeper;
import io.aliquot.scheduler.extensionapi.identity.IdentityFilter;
import io.aliquot.scheduler.extensionapi.identity.LeaderProxy;
import io.aliquot.scheduler.extensionapi.identity.RequestUser;
import io.aliquot.scheduler.extensionapi.machinery.Discovery;
import io.aliquot.scheduler.extensionapi.machinery.StatusException;
import io.aliquot.scheduler.extensionapi.webpage.WebPageController;
import io.aliquot.scheduler.server.health.Readiness;
import io.aliquot.scheduler.server.ports.RandomPorts;
import io.aliquot.scheduler.server.ports.TlsCertificate;
import jakarta.servlet.http.HttpServletRequest;
import java.net.InetSocketAddress;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Optional;
import org.springframework.boot.SpringBootConfiguration;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.boot.builder.SpringApplicationBuilder;
import org.springframework.boot.webmvc.autoconfigure.error.ErrorMvcAutoConfiguration;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.ComponentScan;
import org.springframework.context.annotation.ComponentScan.Filter;
import org.springframework.context.annotation.Configuration;
import org.springframework.context.annotation.FilterType;
import org.springframework.context.annotation.Import;
import org.springframework.http.MediaType;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.PatchMapping;
import org.springframework.web.bind.annotation.RequestAttribute;
import org.springframework.web.bind.annotation.RequestBody;
import org.springframework.web.bind.annotation.RestController;
import tools.jackson.databind.JsonNode;

/** A replica with the API's port and two resources of a test, in front of a simulated API server. */
@SpringBootConfiguration(proxyBeanMethods = false)
@Import({ExtensionApiProgram.Port.class, ExtensionApiProgram.Resources.class, WebPageController.class})
class ExtensionApiProgram {
    static ConfigurableApplicationContext start() {
        return start(ExtensionApiProgram.class);
    }

    /** Starts a program with {@link Port}. */
    static ConfigurableApplicationContext start(Class<?> program) {
        return new SpringApplicationBuilder(program)
                .properties(
                        "POD_NAME=aliquot-1",
                        "POD_NAMESPACE=aliquot",
                        "ALIQUOT_API_GROUP_SERVICE=aliquot-extension-api")
                .run();
    }

    /** Serves the identity, with TLS, in a started replica. */
    static void serve(ConfigurableApplicationContext replica, Identity identity) {
        replica.getBean(TlsCertificate.class).serve(identity.key(), identity.certificate());
    }

    /** What every request passes, in front of a simulated API server; a program adds what answers. */
    @Configuration(proxyBeanMethods = false)
    @EnableAutoConfiguration(exclude = ErrorMvcAutoConfiguration.class)
    @ComponentScan(
            basePackages = {"io.aliquot.scheduler.server", "io.aliquot.scheduler.settings"},
            excludeFilters = @Filter(type = FilterType.REGEX, pattern = ".*(Test\\$|Program).*"))
    @Import({
        RandomPorts.class,
        IdentityFilter.class,
        FrontProxyKeeper.class,
        LeaderProxy.class,
        DocumentsController.class
    })
    static class Port {
        @Bean
        FakeControlPlane controlPlane() {
            return new FakeControlPlane();
        }
    }

    @RestController
    static class Resources {
        /** Answers the user of the request. */
        @GetMapping(Discovery.VERSION_PATH + "/gpunodes")
        RequestUser user(@RequestAttribute(RequestUser.ATTRIBUTE) RequestUser user) {
            return user;
        }

        /** Answers the user and the port of the replica. */
        @GetMapping(Discovery.VERSION_PATH + "/namespaces/team/gpushares/train/explain")
        Map<String, Object> explained(
                HttpServletRequest request, @RequestAttribute(RequestUser.ATTRIBUTE) RequestUser user) {
            return Map.of("user", user, "port", request.getLocalPort());
        }

        /** Answers the user and the patch. */
        @PatchMapping(
                path = Discovery.VERSION_PATH + "/namespaces/team/gpushares/train",
                consumes = "application/merge-patch+json",
                produces = MediaType.APPLICATION_JSON_VALUE)
        Map<String, Object> patched(
                @RequestAttribute(RequestUser.ATTRIBUTE) RequestUser user, @RequestBody JsonNode patch) {
            if (patch.has("refuse")) {
                throw new StatusException(409, "GPU-1 has 10 MiB free");
            }
            return Map.of("user", user, "patch", patch);
        }
    }

    static final class FakeControlPlane implements ControlPlane {
        volatile Map<String, String> authentication = Map.of();
        volatile Optional<InetSocketAddress> leader = Optional.empty();

        @Override
        public Map<String, String> authentication() {
            return authentication;
        }

        @Override
        public Optional<InetSocketAddress> leader() {
            return leader;
        }

        /** What kubeadm sets, with these CAs. */
        static Map<String, String> of(String authorities, String names, String clientAuthorities) {
            var data = new LinkedHashMap<String, String>();
            data.put("client-ca-file", clientAuthorities);
            data.put("requestheader-client-ca-file", authorities);
            data.put("requestheader-allowed-names", names);
            data.put("requestheader-username-headers", "[\"X-Remote-User\"]");
            data.put("requestheader-uid-headers", "[\"X-Remote-Uid\"]");
            data.put("requestheader-group-headers", "[\"X-Remote-Group\"]");
            data.put("requestheader-extra-headers-prefix", "[\"X-Remote-Extra-\"]");
            return data;
        }
    }

    /** Not ready while {@link #waits} names a reason. */
    static final class Part implements Readiness {
        volatile String waits = "";

        @Override
        public Optional<String> waitsFor() {
            return Optional.of(waits).filter(reason -> !reason.isEmpty());
        }
    }

    @Bean
    Part part() {
        return new Part();
    }

    @Bean
    FakeCluster cluster() {
        return new FakeCluster();
    }
}
