package io.aliquot.lab;

import static com.microsoft.playwright.assertions.PlaywrightAssertions.assertThat;
import static org.assertj.core.api.Assertions.assertThat;

import com.microsoft.playwright.Page;
import com.microsoft.playwright.assertions.PlaywrightAssertions;
import com.microsoft.playwright.options.AriaRole;
import com.microsoft.playwright.options.ColorScheme;
import io.aliquot.api.names.Annotations;
import io.aliquot.api.names.Resources;
import io.aliquot.api.nodes.GpuHealth;
import io.aliquot.testing.Chromium;
import io.fabric8.kubernetes.api.model.Pod;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.api.parallel.Isolated;

/**
 * Writes the pictures of the web page in {@code docs/images}; not part of {@code verify}: {@code ./mvnw -q verify -pl lab
 * -am -Dlab.asItIs=true -Dtest=None -Dsurefire.failIfNoSpecifiedTests=false -Dit.test=Screenshots
 * -Dfailsafe.failIfNoSpecifiedTests=false}. Beside the lab's two nodes there are nodes without a kubelet, whose pods hold
 * GPUs and never start.
 */
@ExtendWith(LabExtension.class)
@Isolated
class Screenshots {
    private static final int WIDTH = 1440;
    private static final int LARGEST_BYTES = 200_000;

    /** Until the charts show more than a few points. */
    private static final int HISTORY_SECONDS = 150;

    @Test
    void ofTheWebPage(Lab lab) throws Exception {
        PlaywrightAssertions.setDefaultAssertionTimeout((double) TestNamespace.EVENTUALLY.toMillis());
        try (var nodes = new HollowNodes(lab, hardware());
                var inference = new TestNamespace(lab, "inference", Optional.empty());
                var research = new TestNamespace(lab, "research", Optional.empty());
                var proxy = KubectlProxy.ofLab(lab);
                var chromium = new Chromium()) {
            fill(lab, nodes, inference, research);
            for (int i = 0; i < 4; i++) {
                research.run(spread(Pods.withGpuMemory(lab, "notebook-" + i, 2500)));
            }
            inference.run(program(
                    Pods.withLimits(
                            lab, "chat", Map.of(Resources.VGPU, "1", Resources.MEMORY, "20000", Resources.CORES, "40")),
                    "vgpu-sample busy 3600 & while true; do vgpu-sample alloc 14000 sleep 25;"
                            + " vgpu-sample alloc 6000 sleep 20; vgpu-sample alloc 10500 sleep 15; done"));
            pending(lab, inference, research);
            TimeUnit.SECONDS.sleep(HISTORY_SECONDS);
            for (ColorScheme scheme : List.of(ColorScheme.LIGHT, ColorScheme.DARK)) {
                Page page = chromium.open(scheme, WIDTH, 600);
                page.navigate(proxy.page(""));
                assertThat(page.getByText(gpus()).first()).isVisible();
                save(page, "cluster", scheme);
                page.setViewportSize(WIDTH, 900);
                page.navigate(proxy.page("?view=pod&namespace=inference&name=chat"));
                assertThat(page.locator("canvas")).hasCount(2);
                page.getByRole(AriaRole.HEADING, new Page.GetByRoleOptions().setName("Resize"))
                        .scrollIntoViewIfNeeded();
                save(page, "pod", scheme);
                page.navigate(proxy.page("?view=pending"));
                assertThat(page.getByText("What would fit")).hasCount(3);
                page.setViewportSize(WIDTH, 650);
                save(page, "pending", scheme);
                page.context().close();
            }
        }
    }

    private static String gpus() {
        return hardware().stream().mapToInt(one -> one.gpus().size()).sum() + 4 + " GPUs";
    }

    private static List<HollowNodes.Hardware> hardware() {
        var hardware = new ArrayList<HollowNodes.Hardware>();
        hardware.addAll(Collections.nCopies(7, HollowNodes.hardware(128, 8, "NVIDIA H100 80GB HBM3", 81559)));
        hardware.addAll(Collections.nCopies(3, HollowNodes.hardware(64, 4, "NVIDIA L40S", 46068)));
        var gpus = new ArrayList<>(hardware.get(2).gpus());
        gpus.set(5, gpus.get(5).withHealth(new GpuHealth.Unhealthy("XID error 79", Instant.now())));
        hardware.set(2, new HollowNodes.Hardware(128, List.copyOf(gpus)));
        return hardware;
    }

    /** Binds pods of many sizes, the same ones each time. */
    private static void fill(Lab lab, HollowNodes nodes, TestNamespace inference, TestNamespace research) {
        var random = new Random(7);
        int[] sizes = {4_000, 8_000, 10_000, 16_000, 24_000, 40_000, 60_000};
        for (int i = 0; i < 12 * nodes.count(); i++) {
            TestNamespace namespace = random.nextInt(3) == 0 ? research : inference;
            namespace.create(HollowNodes.require(Pods.withLimits(
                    lab,
                    "job-" + i,
                    Map.of(
                            Resources.MEMORY,
                            Integer.toString(sizes[random.nextInt(sizes.length)]),
                            Resources.CORES,
                            Integer.toString(10 * (1 + random.nextInt(4)))))));
        }
    }

    private static void pending(Lab lab, TestNamespace inference, TestNamespace research) {
        research.create(Pods.withGpuMemory(lab, "train-large", 80_000));
        research.create(Pods.withGpuMemory(lab, "train-larger", 80_000));
        inference.create(HollowNodes.tolerate(
                Pods.withLimits(lab, "evaluate", Map.of(Resources.VGPU, "9", Resources.MEMORY, "20000"))));
        inference.create(HollowNodes.tolerate(Pods.withGpuMemory(lab, "embed", 120_000)));
        for (String pod : List.of("train-large", "train-larger")) {
            research.awaitUnschedulable(pod);
        }
        for (String pod : List.of("evaluate", "embed")) {
            inference.awaitUnschedulable(pod);
        }
    }

    private static Pod spread(Pod pod) {
        return Pods.withAnnotations(
                pod, Map.of(Annotations.GPU_PLACEMENT, "spread", Annotations.NODE_PLACEMENT, "spread"));
    }

    private static Pod program(Pod pod, String script) {
        pod.getSpec().getContainers().getFirst().setCommand(List.of("bash", "-c", script));
        return pod;
    }

    private static void save(Page page, String view, ColorScheme scheme) throws IOException {
        Path file =
                Path.of("../docs/images/web-page-" + view + "-" + scheme.name().toLowerCase(Locale.ROOT) + ".png");
        Files.createDirectories(file.getParent());
        byte[] picture = page.screenshot();
        assertThat(picture.length).as("bytes of " + file).isLessThan(LARGEST_BYTES);
        Files.write(file, picture);
    }
}
