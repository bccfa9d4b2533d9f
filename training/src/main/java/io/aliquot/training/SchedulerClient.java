package io.aliquot.training;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import org.apache.hc.client5.http.classic.methods.HttpGet;
import org.apache.hc.client5.http.classic.methods.HttpPost;
import org.apache.hc.client5.http.impl.classic.CloseableHttpClient;
import org.apache.hc.client5.http.impl.classic.HttpClients;
import org.apache.hc.client5.http.impl.io.PoolingHttpClientConnectionManagerBuilder;
import org.apache.hc.client5.http.ssl.DefaultClientTlsStrategy;
import org.apache.hc.client5.http.ssl.HostnameVerificationPolicy;
import org.apache.hc.client5.http.ssl.NoopHostnameVerifier;
import org.apache.hc.client5.http.ssl.TrustAllStrategy;
import org.apache.hc.core5.http.ClassicHttpRequest;
import org.apache.hc.core5.http.ContentType;
import org.apache.hc.core5.http.HttpHeaders;
import org.apache.hc.core5.http.io.entity.ByteArrayEntity;
import org.apache.hc.core5.http.io.entity.EntityUtils;
import org.apache.hc.core5.ssl.SSLContexts;

/** Sends requests to the scheduler as kube-scheduler and the API server do. */
final class SchedulerClient {
    private final CloseableHttpClient http;

    /**
     * Trusts any certificate: the scheduler has just made its own, for a name that resolves to nothing here.
     *
     * @param frontProxy the key and certificate with which requests to the aggregated API are sent
     */
    SchedulerClient(int connections, KeyStore frontProxy) throws GeneralSecurityException {
        var trustAll = new DefaultClientTlsStrategy(
                SSLContexts.custom()
                        .loadTrustMaterial(TrustAllStrategy.INSTANCE)
                        .loadKeyMaterial(frontProxy, ApiServer.PASSWORD.toCharArray())
                        .build(),
                HostnameVerificationPolicy.CLIENT,
                NoopHostnameVerifier.INSTANCE);
        http = HttpClients.custom()
                .setConnectionManager(PoolingHttpClientConnectionManagerBuilder.create()
                        .setTlsSocketStrategy(trustAll)
                        .setMaxConnPerRoute(connections)
                        .setMaxConnTotal(2 * connections)
                        .build())
                .setUserAgent("Go-http-client/1.1")
                .build();
    }

    String post(String url, String json) {
        var request = new HttpPost(url);
        request.setEntity(
                new ByteArrayEntity(json.getBytes(StandardCharsets.UTF_8), ContentType.create("application/json")));
        return send(request, url);
    }

    /** Reads from the aggregated API as the API server does for a user. */
    void get(String url, String accepted) {
        var request = new HttpGet(url);
        request.setHeader(HttpHeaders.ACCEPT, accepted);
        request.setHeader(ApiServer.USER_HEADER, "training");
        send(request, url);
    }

    private String send(ClassicHttpRequest request, String url) {
        try {
            return http.execute(request, response -> {
                String answer = EntityUtils.toString(response.getEntity());
                if (response.getCode() != 200) {
                    throw new IOException(url + ": " + response.getCode() + " " + answer);
                }
                return answer;
            });
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }
}
