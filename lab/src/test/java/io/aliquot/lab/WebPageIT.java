package io.aliquot.lab;

import static com.microsoft.playwright.assertions.PlaywrightAssertions.assertThat;
import static io.aliquot.lab.TestNamespace.EVENTUALLY;
import static java.nio.charset.StandardCharsets.UTF_8;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assumptions.assumeThat;

import com.microsoft.playwright.Locator;
import com.microsoft.playwright.Page;
import com.microsoft.playwright.PlaywrightException;
import com.microsoft.playwright.assertions.PlaywrightAssertions;
import com.microsoft.playwright.options.AriaRole;
import com.microsoft.playwright.options.ColorScheme;
import com.sun.net.httpserver.HttpServer;
import io.aliquot.api.names.Resources;
import io.aliquot.testing.Chromium;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.client.Config;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.regex.Pattern;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.api.extension.RegisterExtension;
import org.junit.jupiter.api.extension.TestExecutionExceptionHandler;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.api.parallel.Isolated;

/** The web page in a browser, through kubectl proxy, with real pods on simulated GPUs. */
@ExtendWith(LabExtension.class)
@Isolated
@SuppressWarnings("NullAway.Init") // JUnit sets the fields
class WebPageIT {
    private static final Map<String, String> LIMITS =
            Map.of(Resources.VGPU, "1", Resources.MEMORY, "3000", Resources.CORES, "30");

    private static Chromium chromium;

    @TempDir
    private Path folder;

    private final List<Page> pages = new ArrayList<>();
    private static final Duration RESTART_TIMEOUT = Duration.ofMinutes(4);

    private final List<String> errors = new ArrayList<>();
    /** Answers that are no success, and requests without one. */
    private final List<String> refusals = new ArrayList<>();

    /** Adds what the pages show to a failure. */
    @RegisterExtension
    final TestExecutionExceptionHandler pagesOfAFailure = (context, failure) -> {
        pages.forEach(page -> failure.addSuppressed(
                new AssertionError(page.url() + ": " + page.locator("body").innerText())));
        failure.addSuppressed(new AssertionError("answers that are no success: " + refusals));
        throw failure;
    };

    @BeforeAll
    static void startChromium() {
        assumeThat(Chromium.isInstalled()).as("chromium is installed").isTrue();
        chromium = new Chromium();
        PlaywrightAssertions.setDefaultAssertionTimeout((double) EVENTUALLY.toMillis());
    }

    @AfterAll
    static void stopChromium() {
        if (chromium != null) {
            chromium.close();
        }
    }

    @AfterEach
    void closePages() {
        pages.forEach(page -> page.context().close());
        assertThat(errors).as("errors of the page's scripts").isEmpty();
    }

    @Test
    void eachViewShowsRealPodsAndFollowsThem(Lab lab, TestNamespace namespace) throws IOException {
        Pod train = namespace.run(using(Pods.withLimits(lab, "train", LIMITS)));
        try (var proxy = KubectlProxy.ofLab(lab)) {
            Page cluster = open(proxy, "");
            Locator tile = cluster.locator("[data-gpu='"
                    + Allocations.of(train, Pods.MAIN).getFirst().uuid().toLowerCase(Locale.ROOT) + "']");
            assertThat(tile).hasAccessibleName(Pattern.compile("3,000 MiB of 81,920 MiB allocated, 1 share"));
            Page pods = open(proxy, "?view=pods&namespace=" + namespace.name());
            assertThat(link(pods, namespace, "train")).isVisible();
            Page pending = open(proxy, "?view=pending");
            assertThat(main(pending)).containsText("No Pending pod");
            Page pod = open(proxy, "?view=pod&name=train&namespace=" + namespace.name());
            assertThat(main(pod)).containsText("Bound on node");
            assertThat(main(pod)).containsText("1 process"); // the agent has measured it
            assertThat(image(pod, "Memory used of GPU")).isVisible();

            namespace.create(Pods.withGpuMemory(lab, "waits", 200_000));
            assertThat(link(pods, namespace, "waits")).isVisible();
            assertThat(link(pending, namespace, "waits").first()).isVisible();
            assertThat(main(pending)).containsText("nvidia.com/gpumem: 81920 instead of 200000");
            namespace.delete("waits");
            assertThat(link(pods, namespace, "waits")).hasCount(0);

            tile.click();
            assertThat(image(cluster, "Memory of 80.0 GiB: train 2.9 GiB")).isVisible();
            assertThat(image(cluster, "Memory used, by container. " + namespace.name() + "/train/main: 2.2 GiB now"))
                    .isVisible();
            namespace.delete("train");
            assertThat(image(cluster, "Memory of 80.0 GiB: free 80.0 GiB")).isVisible();
        }
    }

    @Test
    @LongTier.Only
    void aResizeThroughThePageReachesTheContainer(Lab lab, TestNamespace namespace) throws IOException {
        namespace.run(Pods.withLimits(lab, "grows", LIMITS));
        try (var proxy = KubectlProxy.ofLab(lab)) {
            Page page = open(proxy, "?view=pod&name=grows&namespace=" + namespace.name());
            Locator memory = page.getByLabel("Memory of each GPU, in MiB");

            memory.fill("90000");
            assertThat(main(page)).containsText("90000 MiB");
            assertThat(button(page, "Apply")).isDisabled();
            memory.fill("4000");
            assertThat(main(page)).containsText("This fits now.");
            button(page, "Apply").click();

            assertThat(main(page)).containsText("Resized at");
            TestNamespace.awaitTrue(
                    "4000 MiB in the container",
                    TestNamespace.VOLUME_UPDATED,
                    () -> namespace.exec("grows", "nvidia-smi").out().contains("0MiB / 4000MiB"));
        }
    }

    @Test
    @LongTier.Only
    void aUserOfOneNamespaceSeesItAndReadsWhatIsMissing(Lab lab, TestNamespace namespace) throws IOException {
        namespace.run(Pods.withLimits(lab, "train", LIMITS));
        lab.kubectl("create", "serviceaccount", "viewer", "--namespace", namespace.name())
                .expectSuccess();
        lab.kubectl(
                        "create",
                        "rolebinding",
                        "viewer",
                        "--clusterrole=view",
                        "--serviceaccount=" + namespace.name() + ":viewer",
                        "--namespace",
                        namespace.name())
                .expectSuccess();
        try (var proxy = KubectlProxy.of(lab, kubeconfig(lab, namespace.token("viewer")))) {
            Page page = open(proxy, "");
            assertThat(main(page)).containsText("aliquot-gpu-viewer");
            navigate(page, proxy.page("?view=pods&namespace=" + namespace.name()));
            assertThat(link(page, namespace, "train")).isVisible();
            navigate(page, proxy.page("?view=pods"));
            assertThat(main(page)).containsText("cannot list resource \"gpushares\"");
            navigate(page, proxy.page("?view=pod&name=train&namespace=" + namespace.name()));
            page.getByLabel("Memory of each GPU, in MiB").fill("4000");

            assertThat(main(page)).containsText("aliquot-resize");
            assertThat(Allocations.of(namespace.get("train"), Pods.MAIN)
                            .getFirst()
                            .memoryMiB())
                    .isEqualTo(3000);
        }
    }

    /** kubectl proxy has the administrator's rights, and any page that the same browser shows can send it requests. */
    @Test
    @LongTier.Only
    void aForeignPageChangesNothingThroughAnOpenProxy(Lab lab, TestNamespace namespace) throws IOException {
        Pod before = namespace.run(Pods.withLimits(lab, "train", LIMITS));
        HttpServer server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
        server.createContext("/", exchange -> {
            exchange.getResponseHeaders().add("Content-Type", "text/html");
            exchange.sendResponseHeaders(200, 0);
            exchange.close();
        });
        server.start();
        try (var proxy = KubectlProxy.ofLab(lab)) {
            String share = "/apis/gpu.aliquot.io/v1alpha1/namespaces/" + namespace.name() + "/gpushares/train";
            Page foreign = open();
            foreign.navigate("http://127.0.0.1:" + server.getAddress().getPort() + "/");

            assertThat(foreign.evaluate(ATTACK, proxy.origin() + share))
                    .isEqualTo(Map.of(
                            "PATCH", "no answer",
                            "PATCH as text", "no answer",
                            "PATCH without CORS", "no answer",
                            "PUT", "no answer",
                            "DELETE", "no answer",
                            "GET", "no answer",
                            "GET without CORS", "opaque",
                            "HEAD without CORS", "opaque",
                            "POST without CORS", "opaque",
                            "form", "sent"));
            Pod after = namespace.get("train");
            assertThat(after.getMetadata().getResourceVersion())
                    .isEqualTo(before.getMetadata().getResourceVersion());
            assertThat(Allocations.of(after, Pods.MAIN)).isEqualTo(Allocations.of(before, Pods.MAIN));

            // The same request from the page's own origin works, so it was not refused for another reason.
            Page own = open(proxy, "?view=pods");
            assertThat(own.evaluate(ATTACK, share))
                    .asInstanceOf(org.assertj.core.api.InstanceOfAssertFactories.MAP)
                    .containsEntry("PATCH", "200");
            assertThat(Allocations.of(namespace.get("train"), Pods.MAIN)
                            .getFirst()
                            .memoryMiB())
                    .isEqualTo(4000);
        } finally {
            server.stop(0);
        }
    }

    /** Sends requests to an address; the value is what the page learns of each answer. */
    private static final String ATTACK = """
            async address => {
              const body = JSON.stringify({ spec: { containers: [{ name: 'main', memoryMiB: 4000 }] } });
              const json = { 'Content-Type': 'application/merge-patch+json' };
              const text = { 'Content-Type': 'text/plain' };
              const attempts = {
                'PATCH': { method: 'PATCH', headers: json, body },
                'PATCH as text': { method: 'PATCH', headers: text, body },
                'PATCH without CORS': { method: 'PATCH', mode: 'no-cors', headers: text, body },
                'PUT': { method: 'PUT', headers: text, body },
                'DELETE': { method: 'DELETE', headers: text, body: 'x' },
                'GET': {},
                'GET without CORS': { mode: 'no-cors' },
                'HEAD without CORS': { method: 'HEAD', mode: 'no-cors' },
                'POST without CORS': { method: 'POST', mode: 'no-cors', headers: text, body },
              };
              const results = {};
              for (const [name, options] of Object.entries(attempts)) {
                results[name] = await fetch(address, options).then(
                  answer => answer.type === 'opaque' ? 'opaque' : String(answer.status), () => 'no answer');
              }
              const frame = document.createElement('iframe');
              frame.name = 'target';
              const form = document.createElement('form');
              Object.assign(form, { method: 'POST', action: address, target: 'target', enctype: 'text/plain' });
              const field = document.createElement('input');
              Object.assign(field, { name: body.slice(0, -1) + ',"x":"', value: '"}' });
              form.append(field);
              document.body.append(frame, form);
              await new Promise(resolve => { frame.onload = resolve; setTimeout(resolve, 3000); form.submit(); });
              results.form = 'sent';
              return results;
            }""";

    @Test
    @LongTier.Only
    void thePageOutlivesTheScheduler(Lab lab, TestNamespace namespace) throws IOException {
        var replicas = new SchedulerReplicas(lab);
        replicas.awaitReady(RESTART_TIMEOUT);
        try (var proxy = KubectlProxy.ofLab(lab)) {
            Page page = open(proxy, "?view=pods&namespace=" + namespace.name());
            assertThat(main(page)).containsText("0 pods");

            List<String> killed = extenders(replicas);
            replicas.all().forEach(replica -> replicas.signal(replica, SchedulerReplicas.EXTENDER, "SIGKILL"));
            assertThat(page.getByRole(AriaRole.ALERT)).containsText("The API does not answer");
            assertThat(main(page)).containsText("0 pods");
            TestNamespace.awaitTrue(
                    "new containers", EVENTUALLY, () -> Collections.disjoint(extenders(replicas), killed));
            replicas.awaitReady(EVENTUALLY.multipliedBy(2));
            namespace.run(Pods.withLimits(lab, "after", LIMITS));

            assertThat(link(page, namespace, "after")).isVisible();
            assertThat(page.getByRole(AriaRole.ALERT)).hasCount(0);
        } finally {
            replicas.restart(RESTART_TIMEOUT); // the kubelet may yet restart kube-scheduler, whose extender was away
        }
    }

    /** The IDs of the extenders' containers. */
    private static List<String> extenders(SchedulerReplicas replicas) {
        return replicas.all().stream()
                .map(replica -> TestNamespace.containerStatus(replica, SchedulerReplicas.EXTENDER)
                        .getContainerID())
                .toList();
    }

    private Page open() {
        Page page = chromium.open(ColorScheme.LIGHT, 1440, 900);
        page.onPageError(errors::add);
        page.onResponse(response -> {
            if (!response.ok()) {
                refusals.add(response.status() + " " + response.url());
            }
        });
        page.onRequestFailed(request -> refusals.add(request.failure() + " " + request.url()));
        pages.add(page);
        return page;
    }

    private Page open(KubectlProxy proxy, String view) {
        Page page = open();
        navigate(page, proxy.page(view));
        return page;
    }

    /** Chromium aborts its requests when a network interface comes or goes, which the lab's pods have on this machine. */
    private static void navigate(Page page, String address) {
        try {
            page.navigate(address);
        } catch (PlaywrightException e) {
            if (!String.valueOf(e.getMessage()).contains("ERR_NETWORK_CHANGED")) {
                throw e;
            }
            page.navigate(address);
        }
    }

    /** The pod's only container allocates 2000 MiB. */
    private static Pod using(Pod pod) {
        pod.getSpec().getContainers().getFirst().setCommand(List.of("vgpu-sample", "alloc", "2000", "hold"));
        return pod;
    }

    /** A file with which kubectl has the rights of a token. */
    private Path kubeconfig(Lab lab, String token) throws IOException {
        Config config = lab.client().getConfiguration();
        return Files.writeString(
                folder.resolve("kubeconfig"),
                """
                apiVersion: v1
                kind: Config
                clusters:
                - {name: lab, cluster: {server: "%s", certificate-authority-data: "%s"}}
                users:
                - {name: user, user: {token: "%s"}}
                contexts:
                - {name: lab, context: {cluster: lab, user: user}}
                current-context: lab
                """.formatted(config.getMasterUrl(), config.getCaCertData(), token),
                UTF_8);
    }

    private static Locator main(Page page) {
        return page.getByRole(AriaRole.MAIN);
    }

    private static Locator link(Page page, TestNamespace namespace, String pod) {
        return page.getByRole(
                AriaRole.LINK,
                new Page.GetByRoleOptions()
                        .setName(namespace.name() + "/" + pod)
                        .setExact(true));
    }

    private static Locator image(Page page, String name) {
        return page.getByRole(AriaRole.IMG, new Page.GetByRoleOptions().setName(name));
    }

    private static Locator button(Page page, String name) {
        return page.getByRole(
                AriaRole.BUTTON, new Page.GetByRoleOptions().setName(name).setExact(true));
    }
}
