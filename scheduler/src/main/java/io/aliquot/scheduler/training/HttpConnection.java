package io.aliquot.scheduler.training;

import java.io.BufferedInputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.net.InetAddress;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.cert.X509Certificate;
import java.util.Locale;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManager;
import javax.net.ssl.X509TrustManager;

/** One connection to the scheduler, kept open between requests, for one thread at a time. */
final class HttpConnection implements AutoCloseable {
    private final Socket socket;
    private final InputStream in;

    HttpConnection(int port, boolean tls) throws IOException {
        socket = tls
                ? tls().getSocketFactory().createSocket(InetAddress.getLoopbackAddress(), port)
                : new Socket(InetAddress.getLoopbackAddress(), port);
        socket.setTcpNoDelay(true);
        in = new BufferedInputStream(socket.getInputStream(), 16 << 10);
    }

    /** Trusts any certificate: the scheduler made its own moments ago, for a name that leads nowhere. */
    private static SSLContext tls() throws IOException {
        var any = new X509TrustManager() {
            @Override
            public void checkClientTrusted(X509Certificate[] chain, String type) {}

            @Override
            public void checkServerTrusted(X509Certificate[] chain, String type) {}

            @Override
            public X509Certificate[] getAcceptedIssuers() {
                return new X509Certificate[0];
            }
        };
        try {
            var context = SSLContext.getInstance("TLS");
            context.init(null, new TrustManager[] {any}, null);
            return context;
        } catch (GeneralSecurityException e) {
            throw new IOException(e);
        }
    }

    /** Sends JSON as Go's client does, and returns the answer's body. */
    byte[] post(String path, String json) throws IOException {
        byte[] body = json.getBytes(StandardCharsets.UTF_8);
        String head = "POST " + path + " HTTP/1.1\r\nHost: 127.0.0.1:" + socket.getPort()
                + "\r\nUser-Agent: Go-http-client/1.1\r\nContent-Length: " + body.length
                + "\r\nContent-Type: application/json\r\nAccept-Encoding: gzip\r\n\r\n";
        byte[] request = new byte[head.length() + body.length];
        System.arraycopy(head.getBytes(StandardCharsets.US_ASCII), 0, request, 0, head.length());
        System.arraycopy(body, 0, request, head.length(), body.length);
        socket.getOutputStream().write(request);
        socket.getOutputStream().flush();
        String status = line();
        int length = 0;
        for (String header = line(); !header.isEmpty(); header = line()) {
            if (header.toLowerCase(Locale.ROOT).startsWith("content-length:")) {
                length = Integer.parseInt(
                        header.substring("content-length:".length()).strip());
            }
        }
        byte[] answer = in.readNBytes(length);
        if (!status.startsWith("HTTP/1.1 200")) {
            throw new IOException(path + ": " + status + " " + new String(answer, StandardCharsets.UTF_8));
        }
        return answer;
    }

    private String line() throws IOException {
        var line = new StringBuilder();
        for (int c = in.read(); c != '\n'; c = in.read()) {
            if (c < 0) {
                throw new EOFException("the scheduler closed the connection");
            }
            if (c != '\r') {
                line.append((char) c);
            }
        }
        return line.toString();
    }

    @Override
    public void close() throws IOException {
        socket.close();
    }
}
