package io.aliquot.scheduler.extender;

import static java.nio.charset.StandardCharsets.UTF_8;

import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.scoring.NodeScoring;
import io.aliquot.scheduler.server.ports.RandomPorts;
import java.io.BufferedInputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.Socket;
import java.util.Locale;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.BenchmarkMode;
import org.openjdk.jmh.annotations.Fork;
import org.openjdk.jmh.annotations.Measurement;
import org.openjdk.jmh.annotations.Mode;
import org.openjdk.jmh.annotations.OutputTimeUnit;
import org.openjdk.jmh.annotations.Param;
import org.openjdk.jmh.annotations.Scope;
import org.openjdk.jmh.annotations.Setup;
import org.openjdk.jmh.annotations.State;
import org.openjdk.jmh.annotations.TearDown;
import org.openjdk.jmh.annotations.Warmup;
import org.springframework.boot.builder.SpringApplicationBuilder;
import org.springframework.context.ConfigurableApplicationContext;

/** Filter as kube-scheduler calls it: over one loopback connection that stays open, all nodes' names in the request. */
@State(Scope.Thread)
@BenchmarkMode(Mode.SampleTime)
@OutputTimeUnit(TimeUnit.MICROSECONDS)
@Warmup(iterations = 5, time = 3)
@Measurement(iterations = 5, time = 4)
@Fork(1)
@SuppressWarnings("NullAway.Init") // JMH calls the set-up first
public class HttpBenchmark {
    private static final int PODS = 1000;
    /** On a busy machine few calls fit into a warm-up that is measured in seconds. */
    private static final int WARM = 4000;

    @Param("5000")
    private int nodes;

    @Param("50000")
    private int shares;

    private ConfigurableApplicationContext program;
    private Socket socket;
    private OutputStream out;
    private InputStream in;
    private byte[] buffer = new byte[1 << 20];
    private byte[][] fitting;
    private byte[] giant;
    private int next;

    @Setup
    public void start() throws IOException {
        program = new SpringApplicationBuilder(ExtenderHttpTest.Program.class)
                .properties("POD_NAME=aliquot-1", "POD_NAMESPACE=aliquot")
                .run();
        var fleet = new Fleet(program.getBean(Ledger.class), program.getBean(NodeScoring.class), program.getBean(FilterAndPrioritize.class), nodes, shares);
        fitting = new byte[PODS][];
        for (int i = 0; i < PODS; i++) {
            fitting[i] = request(fleet, "pod-" + i, ExtenderFixture.mebibytes(2000 + 500 * (i % 4)));
        }
        giant = request(fleet, "giant", "\"aliquot.io/vgpu\": \"8\"");
        // Last: a connection that stays silent is closed.
        socket = new Socket(InetAddress.getLoopbackAddress(), RandomPorts.extender(program));
        socket.setTcpNoDelay(true);
        out = socket.getOutputStream();
        in = new BufferedInputStream(socket.getInputStream(), 1 << 16);
        for (int i = 0; i < WARM; i++) {
            exchange(i % 4 == 0 ? giant : fitting[i % PODS]);
        }
    }

    private static byte[] request(Fleet fleet, String pod, String limits) {
        String body = "{\"Pod\": " + ExtenderFixture.podJson(pod, limits, "") + ", \"Nodes\": null, \"NodeNames\": "
                + fleet.names.stream().collect(Collectors.joining("\",\"", "[\"", "\"]")) + "}";
        return ("POST /filter HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: "
                        + body.getBytes(UTF_8).length + "\r\n\r\n" + body)
                .getBytes(UTF_8);
    }

    @TearDown
    public void stop() throws IOException {
        socket.close();
        program.close();
    }

    /** Fits on nearly every node; the answer names the best hundred. */
    @Benchmark
    public int placed() throws IOException {
        return exchange(fitting[next++ % PODS]);
    }

    /** Fits nowhere; the answer names every node and why. */
    @Benchmark
    public int refused() throws IOException {
        return exchange(giant);
    }

    /** Reads the whole answer and returns its length. */
    private int exchange(byte[] request) throws IOException {
        out.write(request);
        out.flush();
        if (!line().contains(" 200")) {
            throw new IOException("expected status 200");
        }
        int length = -1;
        for (String header = line(); !header.isEmpty(); header = line()) {
            if (header.toLowerCase(Locale.ROOT).startsWith("content-length:")) {
                length = Integer.parseInt(header.substring("content-length:".length()).trim());
            }
        }
        if (length >= 0) {
            return read(length);
        }
        int sum = 0;
        for (int chunk = Integer.parseInt(line(), 16); chunk > 0; chunk = Integer.parseInt(line(), 16)) {
            sum += read(chunk);
            line();
        }
        line();
        return sum;
    }

    private int read(int length) throws IOException {
        if (length > buffer.length) {
            buffer = new byte[length];
        }
        if (in.readNBytes(buffer, 0, length) < length) {
            throw new EOFException();
        }
        return length;
    }

    private String line() throws IOException {
        var line = new StringBuilder();
        for (int c = in.read(); c != '\n'; c = in.read()) {
            if (c < 0) {
                throw new EOFException();
            }
            if (c != '\r') {
                line.append((char) c);
            }
        }
        return line.toString();
    }
}
