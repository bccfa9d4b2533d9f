package io.aliquot.training;

import java.io.IOException;
import java.net.ServerSocket;
import java.security.GeneralSecurityException;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;

/**
 * The training run: starts the scheduler as a process of its own, acts as its API server and as its kube-scheduler for
 * some thousands of pods, and ends it with SIGTERM, upon which its JVM writes the AOT cache.
 *
 * <p>An AOT cache (JEP 483, 514, 515) holds a program's classes and the profiles of its methods, so that the JVM
 * compiles the hot methods as soon as they are called. It is as good as the run that recorded it. Therefore the
 * scheduler runs unchanged, over TLS and HTTP, and its class path is the image's.
 *
 * <p>{@code java -jar aliquot-training.jar PODS java OPTION... -jar FILE}
 */
public final class Training {
    static final int NODES = 100;
    private static final Duration START = Duration.ofMinutes(2);
    /** The JVM assembles the cache before it ends. */
    private static final Duration END = Duration.ofMinutes(5);

    private Training() {}

    public static void main(String[] arguments) {
        int status = 0;
        try {
            train(Integer.parseInt(arguments[0]), List.of(arguments).subList(1, arguments.length));
        } catch (IOException | InterruptedException | GeneralSecurityException | RuntimeException e) {
            e.printStackTrace();
            status = 1;
        }
        System.exit(status); // the API server's threads wait for requests
    }

    private static void train(int pods, List<String> command)
            throws IOException, InterruptedException, GeneralSecurityException {
        var apiServer = new ApiServer();
        var objects = new ClusterObjects(apiServer);
        objects.createInitial(NODES);
        int[] ports = freePorts();
        var all = new ArrayList<>(command);
        all.add(1, "-Daliquot.ports=%d,%d,%d".formatted(ports[0], ports[1], ports[2]));
        var builder = new ProcessBuilder(all).inheritIO();
        builder.environment().put("KUBECONFIG", apiServer.kubeconfig().toString());
        builder.environment().put("POD_NAME", ClusterObjects.SCHEDULER_POD);
        builder.environment().put("POD_NAMESPACE", ClusterObjects.NAMESPACE);
        builder.environment().put("ALIQUOT_API_GROUP_SERVICE", "aliquot-extension-api");
        Process scheduler = builder.start();
        try {
            var load = new Load(objects, apiServer, new Load.Ports(ports[0], ports[1], ports[2]));
            await("the scheduler is ready", START, () -> running(scheduler) && load.ready());
            report("ready", scheduler);
            objects.renewLease();
            await("the scheduler leads", START, () -> running(scheduler) && load.leads());
            report("leads", scheduler);
            load.run(pods, what -> report(what, scheduler));
            scheduler.destroy();
            if (!scheduler.waitFor(END.toSeconds(), TimeUnit.SECONDS)) {
                throw new IllegalStateException("expected the scheduler to end within " + END);
            }
        } finally {
            scheduler.destroyForcibly();
        }
    }

    /** The machine that builds an image may use the standard ones. */
    private static int[] freePorts() throws IOException {
        var ports = new int[3];
        var sockets = new ArrayList<ServerSocket>();
        for (int i = 0; i < ports.length; i++) {
            var socket = new ServerSocket(0);
            sockets.add(socket);
            ports[i] = socket.getLocalPort();
        }
        for (ServerSocket socket : sockets) {
            socket.close();
        }
        return ports;
    }

    private static void report(String what, Process scheduler) {
        ProcessHandle.Info info = scheduler.info();
        Duration age = Duration.between(info.startInstant().orElseThrow(), Instant.now());
        System.out.printf(
                "%s after %d ms, %d ms of CPU%n",
                what, age.toMillis(), info.totalCpuDuration().orElseThrow().toMillis());
    }

    private static boolean running(Process scheduler) {
        if (!scheduler.isAlive()) {
            throw new IllegalStateException(
                    "expected the scheduler to run, but it ended with " + scheduler.exitValue());
        }
        return true;
    }

    static void await(String what, Duration limit, BooleanSupplier done) throws InterruptedException {
        long end = System.nanoTime() + limit.toNanos();
        while (!done.getAsBoolean()) {
            if (System.nanoTime() - end > 0) {
                throw new IllegalStateException("expected within " + limit + " that " + what);
            }
            Thread.sleep(50);
        }
    }
}
