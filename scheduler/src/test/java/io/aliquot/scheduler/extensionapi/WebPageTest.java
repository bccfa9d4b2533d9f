package io.aliquot.scheduler.extensionapi;

import static com.microsoft.playwright.assertions.PlaywrightAssertions.assertThat;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assumptions.assumeThat;

import com.microsoft.playwright.Frame;
import com.microsoft.playwright.Locator;
import com.microsoft.playwright.Page;
import com.microsoft.playwright.assertions.PlaywrightAssertions;
import com.microsoft.playwright.options.AriaRole;
import com.microsoft.playwright.options.ColorScheme;
import io.aliquot.scheduler.placement.Gpus;
import io.aliquot.testing.Chromium;
import java.io.IOException;
import java.util.List;
import java.util.regex.Pattern;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** The web page in a browser, with the objects of a real ledger. */
@SuppressWarnings("NullAway.Init") // JUnit calls start()
class WebPageTest {
    private static final String HOSTILE =
            "<img src=x onerror='window.injected = 1'>\u202e</script><svg/onload=alert(1)>";
    private static final String A100 = "NVIDIA A100-SXM4-80GB";
    private static final int MEMORY_MIB = 81_920;

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

    /** Twelve nodes with two GPUs each; on the first GPU of n1 is team/train, with 20,000 MiB. */
    @BeforeEach
    void start() throws IOException {
        program = new WebPageProgram();
        for (int node = 1; node <= 12; node++) {
            program.addNode("n" + node, node, 2, A100, MEMORY_MIB);
        }
        program.addPod("team", "train", "n1", Gpus.uuid(1, 0), 20_000);
        program.listed();
    }

    @AfterEach
    void stop() {
        program.close();
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
        Page page = program.open(chromium, ColorScheme.LIGHT, "");
        assertThat(page.getByRole(AriaRole.LINK, named("0 pods"))).isVisible();
        program.network().stopListening();
        assertThat(page.getByRole(AriaRole.ALERT)).isVisible();

        for (int i = 0; i <= ObjectStore.LOG_LENGTH; i++) {
            program.changes().pending("waits", Gpus.request("APP:main: gpumem=200000"), "no node " + i);
        }
        program.network().startListening();

        assertThat(page.getByRole(AriaRole.LINK, named("1 pod"))).isVisible();
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

    @Test
    void hostileTextsStayTexts() {
        program.addNode("a" + HOSTILE, 13, 1, HOSTILE, MEMORY_MIB);
        program.addNode("javascript:alert(1)", 14, 1, "javascript:alert(1)", MEMORY_MIB);
        program.addPod(HOSTILE, HOSTILE, "a" + HOSTILE, Gpus.uuid(13, 0), 1000);
        program.addPod("javascript:alert(1)", "javascript:alert(1)", "javascript:alert(1)", Gpus.uuid(14, 0), 1000);
        Page page = program.open(chromium, ColorScheme.LIGHT, "");

        assertThat(tile(page, 0, "a" + HOSTILE)).isVisible();
        assertThat(tile(page, 0, "javascript:alert(1)")).isVisible();
        assertNothingInjected(page);
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

        assertThat(page.getByRole(AriaRole.MAIN)).containsText("is forbidden: User \"viewer\" cannot list");
        assertThat(page.getByRole(AriaRole.MAIN)).containsText("aliquot-gpu-viewer");
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

    @ParameterizedTest
    @EnumSource(
            value = ColorScheme.class,
            names = {"LIGHT", "DARK"})
    void eachViewIsAccessible(ColorScheme scheme) {
        Page page = program.open(chromium, scheme, "");
        tile(page, 0, "n1").waitFor();

        assertThat(Chromium.accessibilityViolations(page)).isEmpty();
    }

    @Test
    void looksOnly() {
        Page page = program.open(chromium, ColorScheme.LIGHT, "");
        tile(page, 0, "n1").waitFor();

        assertThat(program.changesRequested()).isEmpty();
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
