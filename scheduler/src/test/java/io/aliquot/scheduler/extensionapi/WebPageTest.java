package io.aliquot.scheduler.extensionapi;

import static com.microsoft.playwright.assertions.PlaywrightAssertions.assertThat;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assumptions.assumeThat;

import com.microsoft.playwright.Frame;
import com.microsoft.playwright.Locator;
import com.microsoft.playwright.Page;
import com.microsoft.playwright.Route;
import com.microsoft.playwright.assertions.PlaywrightAssertions;
import com.microsoft.playwright.options.AriaRole;
import com.microsoft.playwright.options.ColorScheme;
import io.aliquot.api.usage.PodContainer;
import io.aliquot.api.usage.UsageHistory;
import io.aliquot.scheduler.cluster.FakeCluster;
import io.aliquot.scheduler.extensionapi.machinery.Discovery;
import io.aliquot.scheduler.extensionapi.machinery.WatchCache;
import io.aliquot.scheduler.extensionapi.objects.ApiTypes.GpuUsage;
import io.aliquot.scheduler.extensionapi.objects.ApiTypes.ShareUsage;
import io.aliquot.scheduler.extensionapi.objects.GpuNodes;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.ledger.QuotaResource;
import io.aliquot.scheduler.placement.Gpus;
import io.aliquot.testing.Chromium;
import java.io.IOException;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.OptionalInt;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** The web page in a browser, with the objects of a real ledger. */
@SuppressWarnings("NullAway.Init") // JUnit calls start()
class WebPageTest {
    /** Without a slash, which no path of the API may contain. */
    private static final String HOSTILE = "<img src=x onerror='window.injected = 1'>\u202e<svg onload='alert(1)'>";

    private static final String A100 = "NVIDIA A100-SXM4-80GB";
    private static final int MEMORY_MIB = 81_920;
    private static final String TRAIN_GPU = Gpus.uuid(1, 0);
    private static final String TRAIN = "?view=pod&namespace=team&name=train";
    private static final String GPU = "?view=gpu&gpu=" + GpuNodes.name(TRAIN_GPU);

    /** The address of each view, and what its main part says. */
    private static final Map<String, String> VIEWS = Map.ofEntries(
            Map.entry("", "24 GPUs"),
            Map.entry("?view=cluster&color=used", "24 GPUs"),
            Map.entry("?view=cluster&color=health&q=n1&model=NVIDIA+A100-SXM4-80GB", "8 GPUs of 24"),
            Map.entry("?view=cluster&namespace=team", "1 GPU of 24"),
            Map.entry(GPU, "GPU 0 of n1"),
            Map.entry("?view=pods", "team/train"),
            Map.entry("?view=pods&phase=Pending&sort=memory", "2 pods of 3"),
            Map.entry(TRAIN, "team/train"),
            Map.entry("?view=pod&namespace=team&name=waits", "What would fit"),
            Map.entry("?view=pending", "2 pods wait for GPUs"),
            Map.entry("?view=quotas", "1 ResourceQuota limits GPUs"));

    /** The page asks again after at most 15 s. */
    private static final double TIMEOUT_MILLIS = 30_000;

    private static Chromium chromium;
    private WebPageProgram program;

    @BeforeAll
    static void startChromium() {
        assumeThat(Chromium.isInstalled()).as("chromium is installed").isTrue();
        chromium = new Chromium();
        PlaywrightAssertions.setDefaultAssertionTimeout(TIMEOUT_MILLIS);
    }

    @AfterAll
    static void stopChromium() {
        if (chromium != null) {
            chromium.close();
        }
    }

    /**
     * Twelve nodes with two GPUs each. On the first GPU of n1 is team/train with 20,000 MiB, idle for long; team/waits
     * and other/waits-too are Pending. The quota team/gpus allows 500,000 MiB and 100 vGPUs.
     */
    @BeforeEach
    void start() throws IOException {
        program = new WebPageProgram();
        for (int node = 1; node <= 12; node++) {
            program.addNode("n" + node, node, 2, A100, MEMORY_MIB);
        }
        program.addPod("team", "train", "n1", Gpus.uuid(1, 0), 20_000);
        program.addPending("team", "waits", 200_000, "0/12 nodes are available: 12 no GPU with 200000 MiB free.");
        program.addPending("other", "waits-too", 300_000, "0/12 nodes are available: 12 no GPU with 300000 MiB free.");
        program.putQuota("team", "gpus", Map.of(QuotaResource.MEMORY, 500_000L, QuotaResource.VGPUS, 100L));
        program.listed();
        program.figures()
                .containers
                .put(
                        "uid-train/main/" + TRAIN_GPU,
                        new ShareUsage(12_000L, 0, 4, 0, 1, 3L, 42.0, "2026-11-26T09:12:00Z"));
        program.figures().gpus.put(TRAIN_GPU, new GpuUsage(12_500L, 500L, 7, 61, 250));
        program.figures().histories.put(TRAIN_GPU, history("XID error 48"));
    }

    /**
     * The last 15 minutes of a GPU that team/train uses; it borrowed 15 % until half a minute ago, and lent 3 % since. The
     * GPU's health changed twice.
     */
    private static UsageHistory history(String reason) {
        List<OptionalInt> memory = Collections.nCopies(900, OptionalInt.of(12_000));
        List<OptionalInt> time = thenForHalfAMinute(25, 7);
        Instant end = Instant.now();
        return new UsageHistory(
                end,
                1,
                new UsageHistory.OfGpu(memory, time),
                List.of(new UsageHistory.OfContainer(
                        new PodContainer("team", "train", "uid-train", "main"),
                        memory,
                        memory,
                        time,
                        thenForHalfAMinute(20_000, 20_000),
                        thenForHalfAMinute(10, 10),
                        thenForHalfAMinute(0, 3),
                        thenForHalfAMinute(15, 0))),
                List.of(
                        new UsageHistory.HealthChange(end.minusSeconds(600), false, reason),
                        new UsageHistory.HealthChange(end.minusSeconds(300), true, "")));
    }

    private static List<OptionalInt> thenForHalfAMinute(int first, int then) {
        return Stream.concat(
                        Collections.nCopies(870, OptionalInt.of(first)).stream(),
                        Collections.nCopies(30, OptionalInt.of(then)).stream())
                .toList();
    }

    @AfterEach
    void stop() {
        program.close();
    }

    /** One that the page's script imports, and one that the page itself names. */
    @ParameterizedTest
    @ValueSource(strings = {"pods.js", "style.css"})
    void aFileThatDidNotArriveIsLoadedAgain(String name) {
        Page page = program.open(chromium, ColorScheme.LIGHT);
        page.route(
                "**/" + name,
                route -> route.fulfill(new Route.FulfillOptions().setStatus(503)),
                new Page.RouteOptions().setTimes(1));

        page.waitForResponse(
                response -> response.url().endsWith("/" + name) && response.ok(),
                () -> page.navigate(program.address("?view=pods")));
        assertThat(page.getByText("team/train")).isVisible();
    }

    @Test
    void aChangeAppearsWithoutAReload() {
        Page page = program.open(chromium, ColorScheme.LIGHT, "");
        assertThat(tile(page, 0, "n1")).hasAccessibleName(Pattern.compile("20[,.]000 MiB of 81[,.]920 MiB allocated"));

        program.addPod("team", "second", "n1", Gpus.uuid(1, 0), 10_000);

        assertThat(tile(page, 0, "n1")).hasAccessibleName(Pattern.compile("30[,.]000 MiB of 81[,.]920 MiB allocated"));
        assertThat(program.errors()).isEmpty();
    }

    @Test
    void anApiThatGoesAwayLeavesThePictureAndReturns() throws InterruptedException {
        Page page = program.open(chromium, ColorScheme.LIGHT, "");
        assertThat(tile(page, 0, "n1")).hasAccessibleName(Pattern.compile("20[,.]000 MiB"));

        program.network().stopListening();
        assertThat(page.getByRole(AriaRole.ALERT)).containsText("The API does not answer");
        assertThat(tile(page, 0, "n1")).isVisible();
        program.addPod("team", "second", "n1", Gpus.uuid(1, 0), 10_000);
        program.network().startListening();

        assertThat(tile(page, 0, "n1")).hasAccessibleName(Pattern.compile("30[,.]000 MiB"));
        assertThat(page.getByRole(AriaRole.ALERT)).hasCount(0);
        assertThat(program.errors()).isEmpty();
    }

    @Test
    void aWatchThatCannotBeContinuedBeginsWithAList() throws InterruptedException {
        Page page = program.open(chromium, ColorScheme.LIGHT, "?view=pending");
        assertThat(main(page)).containsText("2 pods wait");
        program.network().stopListening();
        assertThat(page.getByRole(AriaRole.ALERT)).isVisible();

        for (int i = 0; i <= WatchCache.LOG_LENGTH; i++) {
            program.addPending("team", "later", 400_000, "no node " + i);
        }
        program.network().startListening();

        assertThat(main(page)).containsText("3 pods wait");
        assertThat(main(page)).containsText("no node " + WatchCache.LOG_LENGTH);
        assertThat(program.errors()).isEmpty();
    }

    @Test
    void keysReachEachTileAndOpenIt() {
        Page page = program.open(chromium, ColorScheme.LIGHT, "");
        tile(page, 0, "n1").waitFor();

        for (int i = 0; i < 40 && !isFocused(tile(page, 0, "n1")); i++) {
            page.keyboard().press("Tab");
        }
        assertThat(tile(page, 0, "n1")).isFocused();
        page.keyboard().press("ArrowRight");
        assertThat(tile(page, 1, "n1")).isFocused();
        page.keyboard().press("ArrowRight");
        assertThat(tile(page, 0, "n2")).isFocused();
        page.keyboard().press("Control+End");
        assertThat(tile(page, 1, "n12")).isFocused();
        page.keyboard().press("Enter");

        assertThat(page).hasURL(Pattern.compile("gpu=" + GpuNodes.name(Gpus.uuid(12, 1))));
    }

    /** By which it is there again after a reload, and accessible in the colors of both schemes. */
    @Test
    void eachViewHasItsAddressAndIsAccessible() {
        Page page = program.open(chromium, ColorScheme.LIGHT);
        VIEWS.forEach((address, text) -> {
            page.navigate(program.origin() + WebPageProgram.PATH + address);
            assertThat(main(page)).containsText(text);
            for (ColorScheme scheme : List.of(ColorScheme.LIGHT, ColorScheme.DARK)) {
                page.emulateMedia(new Page.EmulateMediaOptions().setColorScheme(scheme));
                assertThat(Chromium.accessibilityViolations(page))
                        .as("%s, %s", address, scheme)
                        .isEmpty();
            }
            String title = page.title();
            page.reload();
            assertThat(main(page)).containsText(text);
            assertThat(page).hasTitle(title);
            assertThat(page).hasURL(program.origin() + WebPageProgram.PATH + address);
        });
        assertThat(program.errors()).isEmpty();
    }

    @Test
    void linksAndFiltersChangeTheAddress() {
        Page page = program.open(chromium, ColorScheme.LIGHT, "");
        tile(page, 0, "n1").click();
        assertThat(page).hasURL(program.origin() + WebPageProgram.PATH + GPU);
        page.getByRole(AriaRole.LINK, named("team/train")).click();
        assertThat(main(page)).containsText("Granted and used");
        page.goBack();
        assertThat(main(page)).containsText("GPU 0 of n1");
        page.getByRole(AriaRole.NAVIGATION).getByText("Cluster").click();
        page.getByLabel("Memory stranded").check(new Locator.CheckOptions().setForce(true));
        page.getByLabel("Search").fill("n12");

        assertThat(main(page)).containsText("2 GPUs of 24");
        assertThat(page).hasURL(Pattern.compile("color=stranded&q=n12"));
        page.reload();
        assertThat(main(page)).containsText("2 GPUs of 24");
        assertThat(program.errors()).isEmpty();
    }

    @Test
    void aGpuShowsItsSharesItsLastMinutesAndItsHealth() {
        Page page = program.open(chromium, ColorScheme.LIGHT, GPU);

        assertThat(image(page, "Memory of 80.0 GiB:")).isVisible();
        assertThat(image(page, "Memory used, by container. team/train/main:")).isVisible();
        assertThat(image(page, "GPU time used, by container. team/train/main:")).isVisible();
        assertThat(main(page)).containsText("unhealthy: XID error 48");
        assertThat(page.locator("canvas")).hasCount(2);
        assertThat(program.errors()).isEmpty();
    }

    @Test
    void aPodShowsWhatItHoldsAndThatItIsIdle() {
        Page page = program.open(chromium, ColorScheme.LIGHT, TRAIN);

        assertThat(main(page)).containsText("idle since");
        assertThat(main(page)).containsText("3 allocations");
        assertThat(main(page)).containsText("42 s");
        assertThat(main(page)).containsText(Pattern.compile("0.% of 10.%, 4.% lent"));
        assertThat(image(page, "Memory used of GPU 0, last 15 minutes.")).isVisible();
        assertThat(page.getByRole(AriaRole.FIGURE).filter(new Locator.FilterOptions().setHasText("GPU time used of")))
                .containsText(
                        Pattern.compile("main, own cores 7.% now, 10.% at most.*main, borrowed 0.% now, 15.% at most"
                                + ".*main, lent 3.% now, 3.% at most.*granted 10.%"));
        assertThat(main(page)).containsText("app=train");
        assertThat(page.locator("canvas")).hasCount(2);
        assertThat(program.errors()).isEmpty();
    }

    @Test
    void aPodIsResizedWithThePossibleBesideTheField() {
        Page page = program.open(chromium, ColorScheme.LIGHT, TRAIN);
        Locator memory = page.getByLabel("Memory of each GPU, in MiB");

        assertThat(memory).hasAccessibleDescription("up to 81,920 MiB: GPU 0 of n1 has 61,920 MiB free");
        memory.fill("90000");
        assertThat(main(page)).containsText("90000 MiB");
        assertThat(page.getByRole(AriaRole.BUTTON, named("Apply"))).isDisabled();
        memory.fill("25000");
        assertThat(main(page)).containsText("This fits now.");
        assertThat(program.bean(FakeCluster.class).sent).isEmpty();
        page.getByRole(AriaRole.BUTTON, named("Apply")).click();

        assertThat(main(page)).containsText("Resized at");
        assertThat(program.bean(FakeCluster.class).sent)
                .singleElement()
                .satisfies(sent -> assertThat(sent.annotations().get("aliquot.io/vgpu.main"))
                        .contains("memory=25000Mi"));
        assertThat(program.changesRequested())
                .containsOnly("PATCH " + Discovery.VERSION_PATH + "/namespaces/team/gpushares/train");
        assertThat(program.errors()).isEmpty();
    }

    @Test
    void pendingPodsHaveTheirReasonWhatWouldFitAndWhatIsInTheWay() {
        for (int node = 1; node <= 12; node++) {
            for (int gpu = 0; gpu < 2; gpu++) {
                program.addPod("team", "p" + node + "-" + gpu, "n" + node, Gpus.uuid(node, gpu), 1920);
            }
        }
        program.addPending(
                "team",
                "waits",
                81_000,
                "0/12 nodes are available: 12 no GPU with 81000 MiB free. no new claims to deallocate, preemption: 0/12"
                        + " nodes are available: 12 Preemption is not helpful for scheduling.");
        Page page = program.open(chromium, ColorScheme.LIGHT, "?view=pending");

        assertThat(page.getByRole(AriaRole.HEADING, new Page.GetByRoleOptions().setLevel(2)))
                .hasText(new String[] {"no GPU with 300000 MiB free", "no GPU with 81000 MiB free"});
        assertThat(main(page)).containsText("nvidia.com/gpumem: 80000 instead of 81000");
        assertThat(main(page)).containsText("lacks 1000 MiB");
        assertThat(page.getByRole(AriaRole.LINK, named("team/waits")).first()).isVisible();
        assertThat(program.errors()).isEmpty();
    }

    @Test
    void aQuotaShowsWhatIsUsedAllowedAndLeft() {
        Page page = program.open(chromium, ColorScheme.LIGHT, "?view=quotas");
        Locator quota = row(page, "team/gpus");

        assertThat(quota).containsText(Pattern.compile("20,000 MiB of 500,000 MiB\\s*480,000 MiB left\\s*–"));
        assertThat(quota).containsText(Pattern.compile("1 of 100\\s*99 left"));
        program.putQuota("team", "gpus", Map.of(QuotaResource.MEMORY, 15_000L, QuotaResource.CORES, 150L));
        assertThat(quota).containsText(Pattern.compile("20,000 MiB of 15,000 MiB\\s*0 MiB left"));
        assertThat(quota).containsText(Pattern.compile("10.% of 150.%\\s*140.% left"));
        program.addPod("team", "train", "n1", TRAIN_GPU, 12_000);
        assertThat(quota).containsText(Pattern.compile("12,000 MiB of 15,000 MiB\\s*3,000 MiB left"));
        program.bean(Ledger.class).removeQuota("team", "gpus");
        assertThat(main(page)).containsText("No quota of GPUs");
        assertThat(program.errors()).isEmpty();
    }

    /** The API server decides by the namespace in the path; the page asks for nothing else that names a quota. */
    @Test
    void quotasOfANamespaceThatIsNotTheUsersAreNotShown() {
        program.putQuota("other", "secret", Map.of(QuotaResource.MEMORY, 77_777L));
        program.forbid(path -> path.matches(".*/v1alpha1/(gpuquotas|namespaces/other/.*)"));
        Page page = program.open(chromium, ColorScheme.LIGHT, "?view=quotas");

        assertThat(main(page)).containsText("The quotas of all namespaces are not yours to see");
        page.getByLabel("Namespaces, separated by commas").fill("team,other");
        page.getByRole(AriaRole.BUTTON, named("Show")).click();
        assertThat(row(page, "team/gpus")).isVisible();
        assertThat(main(page)).containsText("is forbidden: User \"viewer\" cannot list");
        assertThat(page.getByText(Pattern.compile("secret|77,777"))).hasCount(0);
        page.getByRole(AriaRole.LINK, named("team/gpus")).click();
        assertThat(main(page)).containsText("team/train");
        assertThat(program.errors()).isEmpty();
    }

    private static Locator row(Page page, String text) {
        return page.getByRole(AriaRole.ROW).filter(new Locator.FilterOptions().setHasText(text));
    }

    @Test
    void hostileTextsStayTexts() {
        String script = "javascript:alert(1)";
        String node = "a" + HOSTILE;
        program.addNode(node, 13, 1, HOSTILE, MEMORY_MIB);
        program.addNode(script, 14, 1, script, MEMORY_MIB);
        program.addPod(HOSTILE, HOSTILE, node, Gpus.uuid(13, 0), 1000);
        program.addPod(script, script, script, Gpus.uuid(14, 0), 1000);
        program.addPending(HOSTILE, "b" + HOSTILE, 200_000, HOSTILE);
        program.putQuota(HOSTILE, HOSTILE, Map.of(QuotaResource.MEMORY, 50_000L));
        program.figures().histories.put(Gpus.uuid(13, 0), history(HOSTILE));
        String ofPod = "&namespace=" + encoded(HOSTILE) + "&name=";
        Page page = program.open(chromium, ColorScheme.LIGHT, "");
        assertThat(tile(page, 0, node)).isVisible();
        assertThat(tile(page, 0, script)).isVisible();
        assertNothingInjected(page);

        Map.of(
                        "?view=cluster&color=health&q=" + encoded(HOSTILE) + "&model=" + encoded(HOSTILE),
                        "1 GPU of 26",
                        "?view=gpu&gpu=" + GpuNodes.name(Gpus.uuid(13, 0)),
                        "unhealthy: " + HOSTILE,
                        "?view=gpu&gpu=" + encoded(HOSTILE),
                        "No GPU",
                        "?view=pods&q=" + encoded(HOSTILE),
                        "2 pods of 6",
                        "?view=pod" + ofPod + encoded(HOSTILE),
                        "Granted and used",
                        "?view=pod" + ofPod + encoded("b" + HOSTILE),
                        "What would fit",
                        "?view=quotas",
                        "2 ResourceQuotas",
                        "?view=pending",
                        "3 pods wait")
                .forEach((address, text) -> {
                    page.navigate(program.origin() + WebPageProgram.PATH + address);
                    assertThat(main(page)).containsText(text);
                    assertThat(main(page)).containsText(HOSTILE);
                    assertNothingInjected(page);
                });
    }

    private static String encoded(String text) {
        return URLEncoder.encode(text, StandardCharsets.UTF_8);
    }

    private void assertNothingInjected(Page page) {
        assertThat(page.evaluate("() => window.injected ?? 'nothing'")).isEqualTo("nothing");
        assertThat(page.evaluate("() => window.violations"))
                .as("violations of the policy")
                .isEqualTo(List.of());
        assertThat(page.locator("img, svg[onload], script:not([src])").count()).isZero();
        assertThat(page.evaluate("() => [...document.querySelectorAll('[href]')].filter(one => "
                        + "new URL(one.href.baseVal ?? one.href, document.baseURI).origin !== location.origin).length"))
                .as("links to elsewhere")
                .isEqualTo(0);
        assertThat(program.errors()).isEmpty();
    }

    /** The API server answers so where RBAC grants only the namespace {@code team}. */
    @Test
    void aUserOfOneNamespaceReadsWhatIsMissing() {
        program.forbid(path -> path.matches(".*/v1alpha1/(gpus|gpunodes|gpushares)"));
        Page page = program.open(chromium, ColorScheme.LIGHT, "");

        assertThat(main(page)).containsText("is forbidden: User \"viewer\" cannot list");
        assertThat(main(page)).containsText("aliquot-gpu-viewer");
        page.navigate(program.origin() + WebPageProgram.PATH + "?view=pods&namespace=team");
        assertThat(page.getByRole(AriaRole.LINK, named("team/train"))).isVisible();
        assertThat(page.getByRole(AriaRole.LINK, named("other/waits-too"))).hasCount(0);
        page.navigate(program.origin() + WebPageProgram.PATH + TRAIN);
        assertThat(main(page)).containsText("Granted and used");
        assertThat(page.getByLabel("Memory of each GPU, in MiB")).hasValue("20000");
        assertThat(program.errors()).isEmpty();
    }

    @Test
    void anotherPageCannotFrameThisOne() {
        Page page = program.open(chromium, ColorScheme.LIGHT);
        page.route(
                "http://foreign.example/",
                route -> route.fulfill(new com.microsoft.playwright.Route.FulfillOptions()
                        .setContentType("text/html")
                        .setBody("<iframe src='" + program.origin() + WebPageProgram.PATH + "'></iframe>")));
        page.navigate("http://foreign.example/");

        List<Frame> frames = page.mainFrame().childFrames();
        assertThat(frames).hasSize(1);
        assertThat(frames.getFirst().url()).startsWith("chrome-error:");
    }

    private static Locator main(Page page) {
        return page.getByRole(AriaRole.MAIN);
    }

    private static Locator image(Page page, String name) {
        return page.getByRole(AriaRole.IMG, new Page.GetByRoleOptions().setName(name));
    }

    private static Locator tile(Page page, int gpu, String node) {
        return page.getByRole(AriaRole.LINK, new Page.GetByRoleOptions().setName("GPU " + gpu + " of " + node + ","));
    }

    private static boolean isFocused(Locator element) {
        return (boolean) element.evaluate("element => element === document.activeElement");
    }

    private static Page.GetByRoleOptions named(String name) {
        return new Page.GetByRoleOptions().setName(name).setExact(true);
    }
}
