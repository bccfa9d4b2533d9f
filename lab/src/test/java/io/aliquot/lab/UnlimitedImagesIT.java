package io.aliquot.lab;

import static io.aliquot.lab.TestNamespace.EVENTUALLY;
import static io.aliquot.lab.TestNamespace.awaitTrue;
import static org.assertj.core.api.Assertions.assertThat;

import io.fabric8.kubernetes.api.model.Container;
import io.fabric8.kubernetes.api.model.ContainerBuilder;
import io.fabric8.kubernetes.api.model.Pod;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.api.parallel.Isolated;

/** Images whose programs the shim cannot limit, on both kinds of node. Takes four minutes. */
@ExtendWith(LabExtension.class)
@Isolated
@LongTier.Only
class UnlimitedImagesIT {
    /** The end of the sentence of both walls: the hook before the start, the agent's check after it. */
    private static final String ADVICE =
            "use an image with glibc (Debian, Ubuntu, UBI; not Alpine, not Nix) or request a whole GPU";

    /** From the program's first use of the GPU. */
    private static final Duration IN_TIME = Duration.ofSeconds(30);

    private boolean reports;

    @AfterEach
    void endThemAgain(Lab lab) {
        if (reports) {
            set(lab, "end");
        }
    }

    @Test
    void whereTheGpuComesByCdiTheContainerDoesNotStart(Lab lab, TestNamespace namespace) {
        namespace.create(ofOtherLoader(lab, "musl", lab.node(NodeKind.CDI)));

        awaitTrue(
                "an event says why",
                EVENTUALLY,
                () -> hasEvent(
                        namespace,
                        "musl",
                        "Failed",
                        "aliquot-hook: the image's programs cannot be limited,"
                                + " because its dynamic loader /shared/ld does not read /etc/ld.so.preload; "
                                + ADVICE));
        assertThat(TestNamespace.containerStatus(namespace.get("musl"), Pods.MAIN)
                        .getState()
                        .getRunning())
                .isNull();
    }

    /** Its neighbor has a context and no allocation. */
    @Test
    void whereTheGpuComesFromNvidiasRuntimeThePodIsEndedOnceItUsesTheGpu(Lab lab, TestNamespace namespace) {
        String node = lab.node(NodeKind.DEFAULT_RUNTIME);
        namespace.run(Pods.onNode(idle(lab, "neighbor"), node));
        namespace.run(ofOtherLoader(lab, "musl", node));
        long started = System.nanoTime();

        namespace
                .client()
                .pods()
                .inNamespace(namespace.name())
                .withName("musl")
                .waitUntilCondition(pod -> pod == null, 2 * IN_TIME.toMillis(), TimeUnit.MILLISECONDS);

        Duration took = Duration.ofNanos(System.nanoTime() - started);
        System.out.println("ended after " + took);
        assertThat(took).isLessThan(IN_TIME.plusSeconds(5)); // in which a pod ends
        assertThat(hasEvent(namespace, "musl", "GpuProgramWithoutShim", ADVICE)).isTrue();
        assertThat(hasEvent(namespace, "musl", "Evicted", ADVICE)).isTrue();
        assertThat(namespace.get("neighbor").getMetadata().getDeletionTimestamp())
                .isNull();
        assertThat(namespace.events("neighbor")).noneMatch(event -> "GpuProgramWithoutShim".equals(event.getReason()));
    }

    /** The image of sandboxes: one static program, which does not use the GPU. */
    @Test
    void anImageWithoutALoaderStartsWithAnEvent(Lab lab, TestNamespace namespace) {
        Pod pod = idle(lab, "static");
        Container main = pod.getSpec()
                .getContainers()
                .getFirst()
                .edit()
                .withImage("docker.io/aliquot-lab/pause:lab")
                .withCommand("/pause")
                .build();
        namespace.run(
                Pods.onNode(pod.edit().editSpec().withContainers(main).endSpec().build(), lab.node(NodeKind.CDI)));

        awaitTrue(
                "an event",
                EVENTUALLY,
                () -> hasEvent(
                        namespace,
                        "static",
                        "GpuImageWithoutLoader",
                        "the image of container main has no dynamic loader"));
        assertThat(TestNamespace.isRunning(namespace.get("static"))).isTrue();
    }

    @Test
    void theChartMayHaveThemReportedOnly(Lab lab, TestNamespace namespace) throws Exception {
        reports = true;
        set(lab, "report");
        List<NodeKind> kinds = List.of(NodeKind.DEFAULT_RUNTIME, NodeKind.CDI);
        for (NodeKind kind : kinds) {
            namespace.run(ofOtherLoader(lab, name(kind), lab.node(kind)));
        }

        for (NodeKind kind : kinds) {
            awaitTrue(
                    "an event on " + kind,
                    EVENTUALLY,
                    () -> hasEvent(namespace, name(kind), "GpuProgramWithoutShim", ADVICE));
        }
        Thread.sleep(IN_TIME);
        for (NodeKind kind : kinds) {
            assertThat(TestNamespace.isRunning(namespace.get(name(kind))))
                    .as(kind.name())
                    .isTrue();
        }
    }

    private static void set(Lab lab, String value) {
        lab.upgrade("unlimitedContainers=" + value);
        lab.awaitAgents();
        lab.awaitSchedulers();
    }

    /** Of a pod. */
    private static String name(NodeKind kind) {
        return kind == NodeKind.CDI ? "cdi" : "default-runtime";
    }

    private static boolean hasEvent(TestNamespace namespace, String pod, String reason, String text) {
        return namespace.events(pod).stream()
                .anyMatch(event ->
                        reason.equals(event.getReason()) && event.getMessage().contains(text));
    }

    private static Pod idle(Lab lab, String name) {
        Pod pod = Pods.withGpuMemory(lab, name, 2000);
        pod.getSpec().getContainers().getFirst().setCommand(List.of("vgpu-sample", "hold"));
        return pod;
    }

    /** As of an image with musl or of Nix: its program's loader reads another file. The program allocates 500 MiB. */
    private static Pod ofOtherLoader(Lab lab, String name, String node) {
        Pod pod = Pods.onNode(idle(lab, name), node);
        Container main = pod.getSpec().getContainers().getFirst();
        Container init = new ContainerBuilder()
                .withName("init")
                .withImage(main.getImage())
                .withImagePullPolicy(main.getImagePullPolicy())
                .withCommand("python3", "-c", """
                        import os
                        def patch(source, target, old, new):
                            content = open(source, "rb").read()
                            assert old in content
                            open(target, "wb").write(content.replace(old, new.ljust(len(old), b"\\0")))
                            os.chmod(target, 0o755)
                        patch("/lib64/ld-linux-x86-64.so.2", "/shared/ld", b"/etc/ld.so.preload", b"/etc/ld-no.preload")
                        patch("/usr/local/bin/vgpu-sample", "/shared/app", b"/lib64/ld-linux-x86-64.so.2", b"/shared/ld")
                        """)
                .build();
        return CdiInjectionIT.withSharedFolder(
                pod,
                init,
                new ContainerBuilder(main)
                        .withCommand("/shared/app", "alloc", "500", "hold")
                        .build());
    }
}
