package io.aliquot.testing;

import static java.nio.charset.StandardCharsets.UTF_8;

import com.microsoft.playwright.Browser;
import com.microsoft.playwright.BrowserContext;
import com.microsoft.playwright.BrowserType.LaunchOptions;
import com.microsoft.playwright.Page;
import com.microsoft.playwright.Playwright;
import com.microsoft.playwright.options.ColorScheme;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;

/** Debian's Chromium without a window, driven by Playwright. Only the thread that started it may use it. */
public final class Chromium implements AutoCloseable {
    private static final Path PROGRAM = Path.of("/usr/bin/chromium");
    private static final String AXE = "/META-INF/resources/webjars/axe-core/4.6.3/axe.min.js";

    /** The rules of WCAG 2.1, levels A and AA. Elements that a rule cannot decide about are not reported. */
    private static final String RUN_AXE = """
            async () => {
              const result = await axe.run(document, {
                runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa'], resultTypes: ['violations'] });
              return result.violations.flatMap(rule => rule.nodes.map(
                node => `${rule.id}: ${node.html.slice(0, 200)}: ${node.failureSummary.replaceAll(/\\s+/g, ' ')}`));
            }""";

    private final Playwright playwright;
    private final Browser browser;

    /** Whether the program exists; a test that needs it is skipped otherwise. */
    public static boolean isInstalled() {
        return Files.isExecutable(PROGRAM);
    }

    public Chromium() {
        playwright = Playwright.create(
                new Playwright.CreateOptions().setEnv(Map.of("PLAYWRIGHT_SKIP_BROWSER_DOWNLOAD", "1")));
        browser = playwright
                .chromium()
                .launch(new LaunchOptions()
                        .setExecutablePath(PROGRAM)
                        .setArgs(List.of("--no-sandbox"))); // it does not sandbox root's processes
    }

    /** Opens a page without the storage and cache of others. Closing its context closes it. */
    public Page open(ColorScheme scheme, int width, int height) {
        BrowserContext context = browser.newContext(
                new Browser.NewContextOptions().setColorScheme(scheme).setViewportSize(width, height));
        return context.newPage();
    }

    /** What in the page violates WCAG 2.1 AA, as far as axe finds it: a line for each element, which begins with the rule. */
    @SuppressWarnings("unchecked") // the script returns an array of strings
    public static List<String> accessibilityViolations(Page page) {
        page.evaluate(axe());
        return (List<String>) page.evaluate(RUN_AXE);
    }

    private static String axe() {
        try (InputStream script = Chromium.class.getResourceAsStream(AXE)) {
            if (script == null) {
                throw new IllegalStateException("expected axe-core in the class path, found no " + AXE);
            }
            return new String(script.readAllBytes(), UTF_8);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    @Override
    public void close() {
        browser.close();
        playwright.close();
    }
}
