package io.aliquot.scheduler.kubernetes.client;

import io.fabric8.kubernetes.client.Config;
import io.fabric8.kubernetes.client.http.HttpClient;
import io.fabric8.kubernetes.client.http.StandardHttpClientBuilder;
import io.fabric8.kubernetes.client.utils.HttpClientUtils;
import java.time.Duration;
import org.apache.hc.client5.http.auth.AuthScope;
import org.apache.hc.client5.http.auth.UsernamePasswordCredentials;
import org.apache.hc.client5.http.config.ConnectionConfig;
import org.apache.hc.client5.http.impl.auth.BasicCredentialsProvider;
import org.apache.hc.client5.http.impl.classic.CloseableHttpClient;
import org.apache.hc.client5.http.impl.classic.HttpClientBuilder;
import org.apache.hc.client5.http.impl.io.PoolingHttpClientConnectionManager;
import org.apache.hc.client5.http.impl.io.PoolingHttpClientConnectionManagerBuilder;
import org.apache.hc.client5.http.ssl.DefaultClientTlsStrategy;
import org.apache.hc.client5.http.ssl.HostnameVerificationPolicy;
import org.apache.hc.client5.http.ssl.HttpsSupport;
import org.apache.hc.client5.http.ssl.NoopHostnameVerifier;
import org.apache.hc.core5.http.HttpHost;
import org.apache.hc.core5.http.impl.io.HttpRequestExecutor;
import org.apache.hc.core5.http.io.SocketConfig;
import org.apache.hc.core5.util.TimeValue;
import org.jspecify.annotations.Nullable;

/**
 * What a fabric8 {@link Config} says about certificates, proxies and credentials, as settings of Apache HttpClient.
 * fabric8 applies a configuration to a builder of its own HTTP clients; this one collects it and builds none of them.
 */
final class HttpSettings extends StandardHttpClientBuilder<HttpClient, HttpClient.Factory, HttpSettings> {
    /** Shorter than the 60 s after which common load balancers drop an idle connection. */
    static final Duration IDLE_LIMIT = Duration.ofSeconds(30);

    /** Idle connections younger than this are reused without a staleness check. */
    private static final TimeValue UNCHECKED = TimeValue.ofSeconds(1);

    /** More than the extender's 64 connections and the watches use; a request that finds none waits for one. */
    private static final int MOST_CONNECTIONS = 256;

    private final Config config;

    @SuppressWarnings("NullAway") // no factory: nothing is built
    HttpSettings(Config config) {
        super(null);
        this.config = config;
        HttpClientUtils.applyCommonConfiguration(config, this, null);
    }

    PoolingHttpClientConnectionManager connections() {
        var builder = PoolingHttpClientConnectionManagerBuilder.create()
                .setMaxConnTotal(MOST_CONNECTIONS)
                .setMaxConnPerRoute(MOST_CONNECTIONS)
                .setDefaultConnectionConfig(ConnectionConfig.custom()
                        .setValidateAfterInactivity(UNCHECKED)
                        .build());
        var sockets = SocketConfig.custom().setTcpNoDelay(true);
        if (isSocks()) {
            sockets.setSocksProxyAddress(getProxyAddress());
        }
        builder.setDefaultSocketConfig(sockets.build());
        if (getSslContext() != null) {
            builder.setTlsSocketStrategy(
                    config.isDisableHostnameVerification()
                            ? new DefaultClientTlsStrategy(
                                    getSslContext(), HostnameVerificationPolicy.CLIENT, NoopHostnameVerifier.INSTANCE)
                            : new DefaultClientTlsStrategy(
                                    getSslContext(),
                                    HostnameVerificationPolicy.BUILTIN,
                                    HttpsSupport.getDefaultHostnameVerifier()));
        }
        return builder.build();
    }

    private boolean isSocks() {
        return getProxyAddress() != null
                && (getProxyType() == HttpClient.ProxyType.SOCKS4 || getProxyType() == HttpClient.ProxyType.SOCKS5);
    }

    CloseableHttpClient client(
            PoolingHttpClientConnectionManager connections, HttpRequestExecutor executor, Duration idleLimit) {
        HttpClientBuilder builder = HttpClientBuilder.create()
                .setConnectionManager(connections)
                .setRequestExecutor(executor)
                .evictIdleConnections(TimeValue.of(idleLimit))
                .disableAutomaticRetries()
                .disableRedirectHandling()
                .disableCookieManagement()
                .disableAuthCaching()
                .disableDefaultUserAgent();
        if (getProxyAddress() != null && !isSocks()) {
            var proxy = new HttpHost(
                    "http", getProxyAddress().getHostString(), getProxyAddress().getPort());
            builder.setProxy(proxy);
            String[] credentials = getProxyAuthorization() == null
                    ? null
                    : HttpClientUtils.decodeBasicCredentials(getProxyAuthorization());
            if (credentials != null) {
                var provider = new BasicCredentialsProvider();
                provider.setCredentials(
                        new AuthScope(proxy),
                        new UsernamePasswordCredentials(credentials[0], credentials[1].toCharArray()));
                builder.setDefaultCredentialsProvider(provider);
            }
        }
        return builder.build();
    }

    @Override
    public HttpClient build() {
        throw new UnsupportedOperationException("builds no client of fabric8");
    }

    @Override
    protected HttpSettings newInstance(HttpClient.@Nullable Factory factory) {
        throw new UnsupportedOperationException("is not copied");
    }
}
