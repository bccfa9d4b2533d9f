package io.aliquot.scheduler.extensionapi;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assumptions.assumeThat;

import com.microsoft.playwright.Browser;
import com.microsoft.playwright.Page;
import com.microsoft.playwright.options.ColorScheme;
import io.aliquot.scheduler.extensionapi.machinery.Discovery;
import io.aliquot.scheduler.placement.Gpus;
import io.aliquot.testing.Chromium;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.List;
import java.util.Set;
import java.util.stream.Collectors;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledIfEnvironmentVariable;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.json.JsonMapper;

/**
 * The web page in a browser, with 5,000 GPUs on 625 nodes and 20,000 shares. Times depend on the machine: the test
 * appends them to {@code target/figures.txt} as lines of {@code name|number}, and checks what does not depend on it. In
 * the long tier, {@code ALIQUOT_LONG=1}.
 */
@EnabledIfEnvironmentVariable(named = "ALIQUOT_LONG", matches = "1")
@SuppressWarnings("NullAway.Init") // JUnit calls start()
class WebPageScaleTest {
    private static final int NODES = 625;
    private static final int GPUS = 8;
    private static final int MEMORY_MIB = 81_920;
    private static final int MOST_DOM_NODES = 2000;
    private static final int SCROLLS = 60;
    private static final int LIST_PAGE = 500;

    /** Four times the target: a task takes more CPU time, too, while other programs use the same caches and cores. */
    private static final int LONGEST_TASK_MILLIS = 200;

    private static final String FIGURE = "web page, 5,000 GPUs and 20,000 shares: ";
    private static final String TILE = "[data-gpu]";

    /** Elements and texts. */
    private static final String DOM_NODES = """
            () => {
              let nodes = 0;
              const walker = document.createTreeWalker(document, NodeFilter.SHOW_ALL);
              while (walker.nextNode()) nodes++;
              return nodes;
            }""";

    /** Remembers the nodes of the cluster in whose cards an element or a text changes. */
    private static final String OBSERVE_CARDS = """
            () => {
              window.changedCards = new Set();
              new MutationObserver(records => records.forEach(({ target }) => {
                const element = target.nodeType === Node.ELEMENT_NODE ? target : target.parentElement;
                const card = element?.closest('[role=group][aria-label^="Node "]');
                if (card) window.changedCards.add(card.getAttribute('aria-label'));
              })).observe(document.querySelector('main'),
                { subtree: true, childList: true, characterData: true, attributes: true });
            }""";

    private static Chromium chromium;
    private static WebPageProgram program;

    @BeforeAll
    static void start() throws IOException {
        assumeThat(Chromium.isInstalled()).as("chromium is installed").isTrue();
        chromium = new Chromium();
        program = new WebPageProgram();
        for (int node = 0; node < NODES; node++) {
            String name = node(node);
            program.addNode(
                    name, node, GPUS, node % 3 == 0 ? "NVIDIA H100 80GB HBM3" : "NVIDIA A100-SXM4-80GB", MEMORY_MIB);
            for (int gpu = 0; gpu < GPUS; gpu++) {
                for (int share = 0; share < (node + gpu) % 9; share++) {
                    program.addPod(
                            "team-" + node % 20,
                            "p%d-%d-%d".formatted(node, gpu, share),
                            name,
                            Gpus.uuid(node, gpu),
                            8_000);
                }
            }
        }
        program.listed();
    }

    @AfterAll
    static void stop() {
        if (program != null) {
            program.close();
        }
        if (chromium != null) {
            chromium.close();
        }
    }

    @Test
    void loadingAndScrollingTakeShortTasksAndFewDomNodes() throws IOException {
        Page page = program.open(chromium, ColorScheme.LIGHT);
        var tasks = new Tasks(page);
        page.navigate(program.origin() + WebPageProgram.PATH);
        page.locator(TILE).first().waitFor();
        publish("tiles after navigation", page.evaluate("() => Math.round(performance.now())") + " ms");
        page.getByText("5,000 GPUs").first().waitFor();
        publish("all GPUs after navigation", page.evaluate("() => Math.round(performance.now())") + " ms");
        assertThat(domNodes(page)).isLessThanOrEqualTo(MOST_DOM_NODES);
        publish("first contentful paint", page.evaluate("""
                () => Math.round(performance.getEntriesByName('first-contentful-paint')[0].startTime)""") + " ms");

        int most = 0;
        page.mouse().move(700, 500);
        for (int i = 0; i < SCROLLS; i++) {
            page.mouse().wheel(0, i % 2 == 0 ? 3000 : -1500);
            page.evaluate("() => new Promise(resolve => requestAnimationFrame(() => requestAnimationFrame(resolve)))");
            most = Math.max(most, domNodes(page));
        }
        long longest = tasks.longestMillis();

        publish("most DOM nodes", Integer.toString(most));
        publish("longest task while loading and scrolling, CPU time", longest + " ms");
        assertThat(most).isLessThanOrEqualTo(MOST_DOM_NODES);
        assertThat(longest).as("CPU time of the longest task").isLessThan(LONGEST_TASK_MILLIS);
        assertThat(program.errors()).isEmpty();
    }

    /** It lasts longer than the period in which the page reads the usage of all GPUs again. */
    @Test
    void updatesTakeShortTasks() throws IOException {
        Page page = program.open(chromium, ColorScheme.LIGHT, "");
        page.getByText("5,000 GPUs").first().waitFor();
        var tasks = new Tasks(page);
        long lists = lists();
        int pods = 0;
        do {
            for (int i = 0; i < 20; i++) {
                program.addPod("team-1", "update-" + pods, node(pods % NODES), Gpus.uuid(pods % NODES, 1), 1);
                pods++;
            }
            page.waitForTimeout(100); // events, not a condition: 200 pods a second
        } while (lists() < lists + NODES * GPUS / LIST_PAGE);
        long longest = tasks.longestMillis();

        publish("longest task at 200 pods a second, CPU time", longest + " ms");
        assertThat(longest).as("CPU time of the longest task").isLessThan(LONGEST_TASK_MILLIS);
        assertThat(program.errors()).isEmpty();
    }

    private static long lists() {
        return program.requests().stream()
                .filter(request -> request.startsWith(Discovery.VERSION_PATH + "/gpus?") && !request.contains("watch"))
                .count();
    }

    @Test
    void anEventDrawsOnlyTheCardOfItsNode() {
        Page page = program.open(chromium, ColorScheme.LIGHT, "");
        page.getByText("5,000 GPUs").first().waitFor();
        page.evaluate(OBSERVE_CARDS);

        for (int node = 300; node < 400; node++) {
            program.addPod("team-0", "late-" + node, node(node), Gpus.uuid(node, 0), 4_000);
        }
        program.addPod("team-0", "late", node(1), Gpus.uuid(1, 0), 4_000);
        page.getByLabel("GPU 0 of " + node(1) + ",")
                .and(page.getByLabel("12000 MiB of 81920 MiB allocated"))
                .or(page.getByLabel("12,000 MiB of 81,920 MiB allocated"))
                .first()
                .waitFor();

        assertThat(page.evaluate("() => [...changedCards]")).isEqualTo(List.of("Node " + node(1)));
        assertThat(program.errors()).isEmpty();
    }

    /**
     * The tasks of a page's main thread. Their CPU time counts: on a busy machine the browser's own measure, which is the
     * time by the clock, is mostly that of other programs.
     */
    private record Tasks(Browser browser) {
        Tasks(Page page) {
            this(page.context().browser());
            browser.startTracing(page, new Browser.StartTracingOptions().setCategories(List.of("toplevel")));
        }

        long longestMillis() {
            JsonNode events =
                    JsonMapper.shared().readTree(browser.stopTracing()).get("traceEvents");
            Set<String> mainThreads = events.valueStream()
                    .filter(event -> event.path("name").asString("").equals("thread_name")
                            && event.at("/args/name").asString("").equals("CrRendererMain"))
                    .map(Tasks::thread)
                    .collect(Collectors.toSet());
            return events.valueStream()
                            .filter(event -> event.path("name").asString("").equals("ThreadControllerImpl::RunTask")
                                    && mainThreads.contains(thread(event)))
                            .mapToLong(event -> event.path("tdur").asLong(0))
                            .max()
                            .orElseThrow(() -> new AssertionError("the trace has no task of a page"))
                    / 1000;
        }

        private static String thread(JsonNode event) {
            return event.get("pid") + "/" + event.get("tid");
        }
    }

    private static String node(int number) {
        return "n%03d".formatted(number);
    }

    private static int domNodes(Page page) {
        return ((Number) page.evaluate(DOM_NODES)).intValue();
    }

    private static void publish(String name, String number) throws IOException {
        System.out.println(FIGURE + name + ": " + number);
        Files.writeString(
                Path.of("target/figures.txt"),
                FIGURE + name + "|" + number + "\n",
                StandardOpenOption.CREATE,
                StandardOpenOption.APPEND);
    }
}
